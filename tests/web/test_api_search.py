"""POST /search: the same neighbours as the collection finds, and one sentence for every wrong question."""

import json

import numpy as np
import pytest
from pictures import encoded, picture
from served import allowed

from shorthash.codes import hamming_distances, pack

JSON = {"content-type": "application/json"}


def flat(answer):
    return [item for group in answer["groups"] for item in group["items"]]


def upload(client, octets, name="query.png", **fields):
    return client.post("/search", files={"image": (name, octets)}, data=fields)


def test_by_vector_finds_what_the_collection_finds(vector_api, vectors, rows):
    X = rows[0]
    answer = vector_api.post("/search", json={"vector": X[3].tolist(), "k": 15})
    assert answer.status_code == 200
    told = answer.json()
    found = vectors.search(vector=X[3], k=15)
    items = flat(told)
    assert told["query"] == {"code": found.code, "bits": f"{found.code:05b}"}
    assert sorted(item["id"] for item in items) == sorted(found.ids.tolist())
    assert told["count"] == len(items) == 15
    assert told["ring_sizes"] == vectors.ring_sizes(found.code).tolist()
    assert sum(told["ring_sizes"]) == 120
    codes = np.array([item["code"] for item in items], dtype=np.uint8)
    distances = hamming_distances(np.array([found.code], dtype=np.uint8), codes, 5)[0]
    assert distances.tolist() == [item["distance"] for item in items]
    assert [group["distance"] for group in told["groups"]] == sorted(set(distances.tolist()))
    assert {item["name"] for item in items} == {f"v{item['id']}" for item in items}
    assert all(item["score"] is None and item["thumbnail"] is None for item in items)
    assert set(items[0]) == {"id", "label", "name", "code", "bits", "distance", "score", "thumbnail"}


def test_vectors_that_come_together_get_their_own_codes(vectors, rows):
    """Requests share an encoding; none may get another's code."""
    import asyncio

    from shorthash.web import Settings
    from shorthash.web.metrics import Metrics
    from shorthash.web.queries import Query
    from shorthash.web.service import Service

    X, metrics = rows[0], Metrics()
    service = Service(vectors, Settings(), metrics)

    async def together():
        return await asyncio.gather(*(service.search(Query("vector", row, 1, None, False)) for row in X))

    told = [json.loads(answer)["query"]["code"] for answer in asyncio.run(together())]
    service.close()
    assert told == pack(vectors.encode(X)).tolist()
    text = metrics.text(0, 0, 0).decode()
    assert "shorthash_encode_seconds_count 2.0" in text
    assert "shorthash_encoded_vectors_total 120.0" in text


def test_a_vector_has_one_code_alone_and_among_others(vectors, rows):
    import asyncio

    from hostile import hostile_rows

    from shorthash.web.batching import BatchEncoder

    near = hostile_rows(vectors.hasher, rows[0], 40).astype(np.float32)
    X = np.concatenate([near, rows[0]])
    sizes = []

    def encode(batch):
        sizes.append(len(batch))
        return pack(vectors.encode(batch))

    async def together():
        encoder = BatchEncoder(encode)
        return await asyncio.gather(*(encoder.code(row) for row in X))

    async def alone():
        encoder = BatchEncoder(encode)
        return [await encoder.code(row) for row in X]

    codes = asyncio.run(together())
    assert max(sizes) == 64
    assert codes == asyncio.run(alone()) == pack(vectors.encode(X)).tolist()


def test_by_id_leaves_the_item_out_and_reranks(vector_api):
    told = vector_api.post("/search", json={"id": 7, "k": 20, "radius": 1, "rerank": True}).json()
    items = flat(told)
    assert 7 not in {item["id"] for item in items}
    assert all(item["distance"] <= 1 for item in items)
    for group in told["groups"]:
        scores = [item["score"] for item in group["items"]]
        assert scores == sorted(scores, reverse=True)
    assert vector_api.post("/search", json={"id": 7, "k": 3}).json()["count"] == 3


def test_by_code_as_number_and_as_bits(vector_api):
    number, bits = (vector_api.post("/search", json={"code": code}).json() for code in (5, "00101"))
    assert number["query"] == bits["query"] == {"code": 5, "bits": "00101"}
    assert number["groups"] == bits["groups"]
    assert number["count"] == 20


def test_by_image(api, pictures):
    octets = encoded(picture("rings", 3))
    told = upload(api, octets, k=5, radius="", rerank="true").json()
    best = max(flat(told), key=lambda item: item["score"])
    assert best["name"] == "rings/3.png"
    assert best["score"] == pytest.approx(1.0, abs=1e-5)
    thumbnail = api.get(best["thumbnail"])
    assert thumbnail.headers["content-type"] == "image/jpeg"
    assert thumbnail.content.startswith(b"\xff\xd8")
    assert api.get(best["thumbnail"], headers={"If-None-Match": thumbnail.headers["etag"]}).status_code == 304
    assert upload(api, octets, radius="0", k="1").json()["count"] <= 1


def test_remembered_answers_are_forgotten_when_something_is_written(vector_api, rows):
    ask = {"vector": rows[0][0].tolist(), "k": 1000}
    assert [vector_api.post("/search", json=ask).json()["count"] for _ in range(2)] == [120, 120]
    assert "shorthash_remembered_answers_total 1.0" in vector_api.get("/metrics").text
    item = {"vector": rows[0][0].tolist(), "name": "new"}
    [new] = vector_api.post("/items", json={"items": [item]}, headers=allowed()).json()["added"]
    assert vector_api.post("/search", json=ask).json()["count"] == 121
    assert vector_api.delete(f"/items/{new}", headers=allowed()).status_code == 204
    assert vector_api.post("/search", json=ask).json()["count"] == 120


WRONG = [
    ({}, "exactly one of vector, id and code. Got none"),
    ({"id": 1, "code": 2}, "Got id and code"),
    ({"id": 1, "limit": 2}, "Got 'limit'"),
    ([1], "JSON object"),
    ({"vector": [1, 2]}, "6 numbers. Got 2 entries"),
    ({"vector": "abc"}, "6 numbers. Got 'abc'"),
    ({"vector": [1, 2, 3, 4, 5, "6"]}, "nothing but numbers. Got '6'"),
    ({"vector": [1, 2, 3, 4, 5, True]}, "nothing but numbers. Got True"),
    ({"vector": [1, 2, 3, 4, 5, None]}, "nothing but numbers. Got None"),
    ({"vector": [1, 2, 3, 4, 5, [6]]}, "nothing but numbers. Got a list"),
    ({"vector": [1, 2, 3, 4, 5, 1e16]}, "scale the features"),
    ({"id": 1.5}, "integer of 64 bits, or a string. Got 1.5"),
    ({"id": True}, "Got True"),
    ({"id": 2**63}, "integer of 64 bits"),
    ({"id": ""}, "1 to 500 bytes"),
    ({"id": "a\0"}, "no NUL"),
    ({"code": 32}, "from 0 to 31"),
    ({"code": -1}, "from 0 to 31"),
    ({"code": "0101"}, "5 zeros and ones"),
    ({"code": 1, "rerank": True}, "a code is none"),
    ({"id": 1, "k": 0}, "k must be an integer from 1 to 1000. Got 0"),
    ({"id": 1, "k": 1001}, "1 to 1000"),
    ({"id": 1, "k": True}, "k must be"),
    ({"id": 1, "k": None}, "k must be"),
    ({"id": 1, "radius": 6}, "from 0 to 5"),
    ({"id": 1, "radius": 0.5}, "from 0 to 5"),
    ({"id": 1, "rerank": 1}, "true or false"),
]


@pytest.mark.parametrize(("body", "sentence"), WRONG, ids=[json.dumps(body)[:40] for body, _ in WRONG])
def test_wrong_questions_get_one_sentence(vector_api, body, sentence):
    answer = vector_api.post("/search", json=body)
    assert answer.status_code == 422
    assert sentence in answer.json()["detail"]


def test_unknown_ids_are_404(vector_api, named_api):
    for client, item in ((vector_api, 5000), (vector_api, "x"), (named_api, 3), (named_api, "zzz" * 60)):
        answer = client.post("/search", json={"id": item})
        assert answer.status_code == 404
        assert "There is no item" in answer.json()["detail"]
    assert named_api.post("/search", json={"id": "a/b"}).status_code == 200


def test_what_is_no_json_is_400(vector_api):
    for body in (b"", b"{", b'{"id": NaN}', b"\xff\xfe", b'{"id": "\\ud800"}', b"[" * 100_000):
        answer = vector_api.post("/search", content=body, headers=JSON)
        assert answer.status_code == 400, body[:20]
        assert "must be JSON" in answer.json()["detail"]


@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "application/jsonp"],
)
def test_other_content_types_are_415(api, kind):
    answer = api.post("/search", content=b'{"id": 1}', headers={"content-type": kind} if kind else {})
    assert answer.status_code == 415
    assert "multipart/form-data" in answer.json()["detail"]


def test_json_may_name_its_charset(api):
    assert api.post(
        "/search", content=b'{"id": 1}', headers={"content-type": "Application/JSON; charset=UTF-8"}
    ).is_success


def test_a_collection_of_vectors_takes_no_images(vector_api):
    answer = upload(vector_api, encoded(picture("rings", 0)))
    assert answer.status_code == 415
    assert "takes vectors, not images" in answer.json()["detail"]


def test_forms_are_strict(api):
    octets = encoded(picture("rings", 0))
    cases = [
        (upload(api, octets, limit=3), "'limit' is unknown"),
        (upload(api, octets, k="many"), "Got 'many'"),
        (upload(api, octets, rerank="perhaps"), "true or false"),
        (api.post("/search", files=[("image", ("a", octets)), ("image", ("b", octets))]), "one file"),
        (api.post("/search", files={"picture": ("a", octets)}), "'picture' is unknown"),
        (api.post("/search", files={"image": (None, "text")}), "must be a file"),
        (api.post("/search", files={"k": (None, "3")}), "Got 0"),
    ]
    for answer, sentence in cases:
        assert answer.status_code == 422
        assert sentence in answer.json()["detail"]
    for kind in (
        "multipart/form-data",
        "multipart/form-data; boundary=x",
        "multipart/form-data; boundary=x; charset=q",
    ):
        assert api.post("/search", content=b"--y\r\nnothing", headers={"content-type": kind}).status_code in (400, 422)
