"""/items, /buckets, health and metrics: every route, the token, and what a write leaves on disk."""

import pytest
from pictures import encoded, picture
from served import TOKEN, allowed, client_of

from shorthash.images import Collection


def send(client, *named, label=None, headers=None):
    files = [("image", pair) for pair in named]
    data = {} if label is None else {"label": label}
    return client.post("/items", files=files, data=data, headers=allowed() if headers is None else headers)


def test_vectors_are_added_shown_and_removed(vector_api, vectors, rows):
    X = rows[0]
    items = [{"vector": X[0].tolist(), "label": "x;y", "name": "one"}, {"vector": X[1].tolist()}]
    answer = vector_api.post("/items", json={"items": items}, headers=allowed())
    assert answer.status_code == 201
    assert answer.json() == {"added": [120, 121], "duplicates": [], "failed": []}
    shown = vector_api.get("/items/120").json()
    assert (shown["id"], shown["label"], shown["name"], shown["thumbnail"]) == (120, "x;y", "one", None)
    assert shown["bits"] == f"{shown['code']:05b}"
    assert vector_api.delete("/items/120", headers=allowed()).status_code == 204
    for answer in (vector_api.get("/items/120"), vector_api.delete("/items/120", headers=allowed())):
        assert answer.status_code == 404
        assert "There is no item 120" in answer.json()["detail"]
    assert len(vectors) == 121


def test_ids_keep_their_kind(named_api, rows):
    vector = rows[0][0].tolist()
    added = named_api.post("/items", json={"items": [{"id": "c/d e", "vector": vector}]}, headers=allowed())
    assert added.json()["added"] == ["c/d e"]
    assert named_api.get("/items/c%2Fd%20e").json()["id"] == "c/d e"
    assert named_api.get("/items/a/b").json()["id"] == "a/b"
    assert named_api.delete("/items/a/b", headers=allowed()).status_code == 204
    numbered = named_api.post("/items", json={"items": [{"vector": vector}]}, headers=allowed())
    assert numbered.status_code == 422
    assert "string ids" in numbered.json()["detail"]


@pytest.mark.parametrize("text", ["x", "1.0", "007", "-0", "1e3", "9" * 19, "9" * 400, "٣", "%00"])
def test_invalid_ids_are_404(asked_api, text):
    assert asked_api.get(f"/items/{text}").status_code == 404


WRONG = [
    ([], 422, "must be a JSON object. Got a list"),
    ({"items": []}, 422, "items must have at least 1 item, not 0"),
    ({"items": [3]}, 422, "items.0 must be a JSON object. Got 3."),
    ({"items": [{"label": 1}]}, 422, "items.0.vector is missing"),
    ({"items": [{"vector": [0] * 6, "code": 1}]}, 422, "items.0.code is not a field"),
    (
        {"items": [{"vector": [0] * 6, "label": 1.5}]},
        422,
        "items.0.label must be a valid integer or",
    ),
    ({"items": [{"vector": [0] * 6, "label": "x" * 501}]}, 422, "at most 500 characters"),
    ({"items": [{"vector": [0] * 6, "name": 5}]}, 422, "items.0.name must be a valid string. Got 5."),
    ({"items": [{"vector": [0] * 6, "id": 200}, {"vector": [0] * 6}]}, 422, "Either all items"),
    ({"items": [{"vector": [0] * 6, "id": 200}, {"vector": [0] * 6, "id": 200}]}, 422, "must be different"),
    ({"items": [{"vector": [0] * 6, "id": 200}, {"vector": [0] * 6, "id": "x"}]}, 422, "all integers or all strings"),
    ({"items": [{"vector": [0] * 6, "id": "x"}]}, 422, "ids"),
    ({"items": [{"vector": [0] * 6, "id": 3}]}, 409, "Id 3 is already used"),
]


@pytest.mark.parametrize(("body", "status", "sentence"), WRONG)
def test_wrong_items_are_refused_and_nothing_is_added(vector_api, vectors, body, status, sentence):
    answer = vector_api.post("/items", json=body, headers=allowed())
    assert answer.status_code == status
    assert sentence in answer.json()["detail"]
    assert len(vectors) == 120


def test_images_are_added_once_and_named_without_folders(api, pictures, picture_folder):
    new = encoded(picture("rings", 700))
    before = {p for p in picture_folder.parent.rglob("*") if p.is_file()}
    answer = send(api, ("../../../evil.png", new), ("again.png", new), ("text.png", b"no image"), label="rings")
    assert answer.status_code == 201
    report = answer.json()
    [item] = report["added"]
    assert report["duplicates"] == [{"name": "again.png", "id": item}]
    assert report["failed"][0]["name"] == "text.png"
    shown = api.get(f"/items/{item}").json()
    assert (shown["name"], shown["label"]) == ("evil.png", "rings")
    assert api.get(shown["thumbnail"]).status_code == 200
    fresh = {p for p in picture_folder.parent.rglob("*") if p.is_file()} - before
    assert [p.suffix for p in fresh if "sqlite" not in p.name] == [".jpg"]
    assert all(picture_folder in p.parents for p in fresh)
    again = send(api, ("again.png", new))
    assert (again.status_code, again.json()["added"]) == (200, [])
    broken = send(api, ("text.png", b"no image"))
    assert broken.status_code == 422
    assert "Nothing was added" in broken.json()["detail"]
    assert api.delete(f"/items/{item}", headers=allowed()).status_code == 204
    assert api.get(shown["thumbnail"]).status_code == 404


def test_large_uploads_touch_no_temporary_file(api, monkeypatch):
    """Starlette would spool what is larger than 1 MiB to the disk."""
    from tempfile import SpooledTemporaryFile

    def forbidden(self):
        raise AssertionError("an upload went to the disk")

    monkeypatch.setattr(SpooledTemporaryFile, "rollover", forbidden)
    large = encoded(picture("rings", 4, size=(1200, 900)), "BMP")
    assert len(large) > 1 << 21
    assert send(api, ("large.bmp", large)).status_code == 201
    assert api.post("/search", files={"image": ("large.bmp", large)}).status_code == 200
    assert api.post("/", files={"image": ("large.bmp", large)}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        ({}, "is missing"),
        ({"Authorization": "Bearer wrong"}, "is wrong"),
        ({"Authorization": f"Basic {TOKEN}"}, "is missing"),
        ({"Authorization": "Bearer \xe9".encode("latin-1")}, "is wrong"),
    ],
)
def test_writes_need_the_token(api, pictures, headers, sentence):
    for answer in (
        api.request("DELETE", "/items/0", headers=headers),
        send(api, ("a.png", encoded(picture("rings", 900))), headers=headers),
    ):
        assert answer.status_code == 401
        assert sentence in answer.json()["detail"]
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert len(pictures) == 24


def test_without_a_token_nobody_can_write(vectors):
    with client_of(vectors, token=None) as client:
        answer = client.delete("/items/0", headers=allowed())
        assert answer.status_code == 403
        assert "--token" in answer.json()["detail"]
        assert client.get("/healthz").json()["writable"] is False


def test_a_read_only_collection_is_not_written(picture_folder):
    with Collection(picture_folder, readonly=True) as opened, client_of(opened) as client:
        answer = client.delete("/items/0", headers=allowed())
        assert answer.status_code == 403
        assert "--readonly was given" in answer.json()["detail"]
    with Collection(picture_folder, readonly=True) as opened, client_of(opened, token=None) as client:
        answer = client.delete("/items/0", headers=allowed())  # as serve opens it without a token
        assert "--readonly" not in answer.json()["detail"]
        assert "SHORTHASH_TOKEN" in answer.json()["detail"]


def test_buckets(api, pictures):
    answer = api.get("/buckets").json()
    assert answer["n_bits"] == 4
    assert answer["count"] == len(answer["buckets"])
    assert sum(bucket["load"] for bucket in answer["buckets"]) == 24
    assert api.get("/buckets", params={"offset": 1, "limit": 1}).json()["buckets"] == answer["buckets"][1:2]
    full = max(answer["buckets"], key=lambda bucket: bucket["load"])
    page = api.get(f"/buckets/{full['code']}", params={"offset": 1, "limit": 2}).json()
    assert (page["load"], page["classes"], page["offset"]) == (full["load"], full["classes"], 1)
    assert [item["id"] for item in page["items"]] == pictures.bucket(full["code"])[1:3].tolist()
    assert all("source" not in item for item in page["items"])
    empty = next(code for code in range(16) if code not in {bucket["code"] for bucket in answer["buckets"]})
    assert api.get(f"/buckets/{empty}").json()["items"] == []
    for path in ("/buckets/16", "/buckets/-1", "/buckets/x", "/buckets/0?limit=9999", "/buckets?offset=-1"):
        answer = api.get(path)
        assert answer.status_code == 422
        assert isinstance(answer.json()["detail"], str)


def test_health_and_metrics(api):
    health = api.get("/healthz").json()
    assert health == {
        "status": "ok",
        "items": 24,
        "n_bits": 4,
        "n_features": 512,
        "takes_images": True,
        "writable": True,
    }
    api.post("/search", json={"id": 1})
    api.get("/nowhere")
    answer = api.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in (
        'shorthash_requests_total{method="POST",route="/search",status="200"} 1.0',
        'shorthash_requests_total{method="GET",route="(none)",status="404"} 1.0',
        'shorthash_request_seconds_count{route="/search"} 1.0',
        "shorthash_search_seconds_count 1.0",
        "shorthash_items 24.0",
    ):
        assert line in answer.text


def test_an_empty_collection_answers(row_hasher, rows, tmp_path):
    vector = rows[0][0].tolist()
    with Collection.create(tmp_path / "empty", row_hasher) as made, client_of(made) as client:
        assert client.get("/buckets").json()["buckets"] == []
        assert client.get("/items/0").status_code == 404
        assert client.get("/metrics").status_code == 200
        for more in ({}, {"rerank": True}):
            assert client.post("/search", json={"vector": vector, **more}).json()["count"] == 0
        assert (
            client.post("/items", json={"items": [{"id": "x", "vector": vector}]}, headers=allowed()).status_code == 201
        )
        assert client.get("/items/x").json()["id"] == "x"


def test_searches_and_writes_at_once_end_in_one_state(vectors, rows):
    """Readers see no item half there, and cached answers are never older than an acknowledged write."""
    import threading

    X, problems, stop = rows[0], [], threading.Event()
    with client_of(vectors) as client:

        def read():
            while not stop.is_set():
                answer = client.post("/search", json={"vector": X[0].tolist(), "k": 1000})
                if answer.status_code != 200 or answer.json()["count"] < 120:
                    problems.append(answer.text)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        for i in range(15):
            body = {"items": [{"vector": X[0].tolist(), "name": f"new {i}"}]}
            [item] = client.post("/items", json=body, headers=allowed()).json()["added"]
            answer = client.post("/search", json={"vector": X[0].tolist(), "k": 1000}).json()
            names = {n["id"]: n["name"] for group in answer["groups"] for n in group["items"]}
            assert names[item] == f"new {i}"
            assert client.delete(f"/items/{item}", headers=allowed()).status_code == 204
            answer = client.post("/search", json={"vector": X[0].tolist(), "k": 1000}).json()
            assert answer["count"] == 120
        stop.set()
        for reader in readers:
            reader.join()
    assert not problems
