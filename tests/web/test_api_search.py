"""POST /search: the same neighbours as the collection finds, and one sentence for every wrong request."""

import json

import numpy as np
import pytest
from pictures import encoded, picture
from served import allowed

from shorthash.codes import hamming_distances, pack

JSON = {"content-type": "application/json"}

HOW = {"k": 1, "radius": None, "rerank": False, "probes": None}


def flat(answer):
    return [item for group in answer["groups"] for item in group["items"]]


def upload(client, octets, name="query.png", **fields):
    return client.post("/search", files={"image": (name, octets)}, data=fields)


def test_by_vector_finds_what_the_collection_finds(vector_api, vectors, rows):
    X = rows[0]
    response = vector_api.post("/search", json={"vector": X[3].tolist(), "k": 15})
    assert response.status_code == 200
    answer = response.json()
    found = vectors.search(vector=X[3], k=15)
    items = flat(answer)
    assert answer["query"] == {"code": found.code, "bits": f"{found.code:05b}"}
    assert sorted(item["id"] for item in items) == sorted(found.ids.tolist())
    assert answer["count"] == len(items) == 15
    assert answer["ring_sizes"] == vectors.ring_sizes(found.code).tolist()
    assert sum(answer["ring_sizes"]) == 120
    codes = np.array([item["code"] for item in items], dtype=np.uint8)
    distances = hamming_distances(np.array([found.code], dtype=np.uint8), codes, 5)[0]
    assert distances.tolist() == [item["distance"] for item in items]
    assert [group["distance"] for group in answer["groups"]] == sorted(set(distances.tolist()))
    assert {item["name"] for item in items} == {f"v{item['id']}" for item in items}
    assert all(item["score"] is None and item["thumbnail"] is None for item in items)
    assert set(items[0]) == {"id", "label", "name", "code", "bits", "distance", "score", "thumbnail"}


def test_concurrent_vectors_get_their_own_codes(vectors, rows):
    """They are encoded together; none may get another's code."""
    import asyncio

    from shorthash.web import Settings
    from shorthash.web.service import Service

    X = rows[0]
    service = Service(vectors, Settings())
    metrics = service.metrics

    async def together():
        return await asyncio.gather(*(service.search(HOW, vector=row) for row in X))

    codes = [answer["query"]["code"] for answer in asyncio.run(together())]
    service.close()
    assert codes == pack(vectors.encode(X)).tolist()
    text = metrics.text(0, 0, n_bits=0).decode()
    assert "shorthash_encode_seconds_count 2.0" in text
    assert "shorthash_encoded_vectors_total 120.0" in text


def test_a_vector_has_one_code_alone_and_among_others(vectors, rows, monkeypatch):
    import asyncio

    from hostile import hostile_rows

    from shorthash.web import Settings
    from shorthash.web.service import Service

    near = hostile_rows(vectors.hasher, rows[0], 40).astype(np.float32)
    X = np.concatenate([near, rows[0]])
    expected = pack(vectors.encode(X)).tolist()
    encode, sizes = vectors.encode, []
    monkeypatch.setattr(vectors, "encode", lambda batch: sizes.append(len(batch)) or encode(batch))
    service = Service(vectors, Settings(cache_bytes=0))

    async def code(row):
        return (await service.search(HOW, vector=row))["query"]["code"]

    async def together():
        return await asyncio.gather(*(code(row) for row in X))

    async def alone():
        return [await code(row) for row in X]

    assert asyncio.run(together()) == expected
    assert max(sizes) == 64
    assert asyncio.run(alone()) == expected
    service.close()


def test_by_id_leaves_the_item_out_and_reranks(vector_api):
    answer = vector_api.post("/search", json={"id": 7, "k": 20, "radius": 1, "rerank": True}).json()
    items = flat(answer)
    assert 7 not in {item["id"] for item in items}
    assert all(item["distance"] <= 1 for item in items)
    for group in answer["groups"]:
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
    answer = upload(api, octets, k=5, radius="", rerank="true").json()
    best = max(flat(answer), key=lambda item: item["score"])
    assert best["name"] == "rings/3.png"
    assert best["score"] == pytest.approx(1.0, abs=1e-5)
    thumbnail = api.get(best["thumbnail"])
    assert thumbnail.headers["content-type"] == "image/jpeg"
    assert thumbnail.content.startswith(b"\xff\xd8")
    assert api.get(best["thumbnail"], headers={"If-None-Match": thumbnail.headers["etag"]}).status_code == 304
    assert upload(api, octets, radius="0", k="1").json()["count"] <= 1


def test_a_write_clears_the_cache_of_answers(vector_api, rows):
    ask = {"vector": rows[0][0].tolist(), "k": 1000}
    assert [vector_api.post("/search", json=ask).json()["count"] for _ in range(2)] == [120, 120]
    assert "shorthash_cached_answers_total 1.0" in vector_api.get("/metrics").text
    item = {"vector": rows[0][0].tolist(), "name": "new"}
    [new] = vector_api.post("/items", json={"items": [item]}, headers=allowed()).json()["added"]
    assert vector_api.post("/search", json=ask).json()["count"] == 121
    assert vector_api.delete(f"/items/{new}", headers=allowed()).status_code == 204
    assert vector_api.post("/search", json=ask).json()["count"] == 120


WRONG = [
    ({}, "exactly one of vector, id and code. Got none"),
    ({"id": 1, "code": 2}, "Got id and code"),
    ({"id": 1, "limit": 2}, "limit is not a field"),
    ([1], "The body must be a JSON object. Got a list of 1."),
    ({"vector": [1, 2]}, "vector must have at least 6 items, not 2."),
    ({"vector": "abc"}, "vector must be a valid list. Got 'abc'."),
    ({"vector": [1, 2, 3, 4, 5, "6"]}, "vector.5 must be a valid number. Got '6'."),
    ({"vector": [1, 2, 3, 4, 5, True]}, "vector.5 must be a valid number. Got True."),
    ({"vector": [1, 2, 3, 4, 5, None]}, "vector.5 must be a valid number. Got None."),
    ({"vector": [1, 2, 3, 4, 5, [6]]}, "vector.5 must be a valid number. Got a list"),
    ({"vector": [1, 2, 3, 4, 5, 1e16]}, "vector.5 must be less than or equal to 1000000000000000. Got 1e+16."),
    ({"id": 1.5}, "id must be a valid integer or must be a valid string. Got 1.5."),
    ({"id": True}, "Got True"),
    ({"id": 2**63}, "id must be less than or equal to 9223372036854775807"),
    ({"id": ""}, "must have at least 1 character"),
    ({"id": "é" * 300}, "at most 500 bytes"),
    ({"id": "a\0"}, "no NUL"),
    ({"code": 32}, "code must be less than or equal to 31 or"),
    ({"code": -1}, "code must be greater than or equal to 0 or"),
    ({"code": "0101"}, "must match pattern '^[01]{5}$'. Got '0101'."),
    ({"code": 1, "rerank": True}, "a code has none"),
    ({"id": 1, "k": 0}, "k must be greater than or equal to 1. Got 0."),
    ({"id": 1, "k": 1001}, "k must be less than or equal to 1000. Got 1001."),
    ({"id": 1, "k": True}, "k must be a valid integer. Got True."),
    ({"id": 1, "k": None}, "k must be"),
    ({"id": 1, "radius": 6}, "radius must be less than or equal to 5"),
    ({"id": 1, "radius": 0.5}, "radius must be a valid integer"),
    ({"id": 1, "rerank": 1}, "rerank must be 'cosine', 'posterior', True or False. Got '1'."),
]


@pytest.mark.parametrize(("body", "sentence"), WRONG, ids=[json.dumps(body)[:40] for body, _ in WRONG])
def test_wrong_requests_get_one_sentence(asked_api, body, sentence):
    answer = asked_api.post("/search", json=body)
    assert answer.status_code == 422
    assert sentence in answer.json()["detail"]


def test_unknown_ids_are_404(vector_api, named_api):
    for client, item in ((vector_api, 5000), (vector_api, "x"), (named_api, 3), (named_api, "zzz" * 60)):
        answer = client.post("/search", json={"id": item})
        assert answer.status_code == 404
        assert "There is no item" in answer.json()["detail"]
    assert named_api.post("/search", json={"id": "a/b"}).status_code == 200


def test_invalid_json_is_400(vector_api):
    for body in (b"", b"{", b'{"id": NaN}', b"\xff\xfe", b'{"id": "\\ud800"}', b"[" * 1000):
        answer = vector_api.post("/search", content=body, headers=JSON)
        assert answer.status_code == 400, body[:20]
        assert "must be JSON" in answer.json()["detail"]
    answer = vector_api.post("/search", content=b"[" * 100_000, headers=JSON)
    assert answer.status_code == 413
    assert "values, which this request cannot use; send less" in answer.json()["detail"]


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
        (upload(api, octets, rerank="perhaps"), "rerank must be 'cosine', 'posterior', True or False. Got 'perhaps'"),
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
