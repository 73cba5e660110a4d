"""Limits and safety: hosts, rates, sizes, pixels and time; headers of all answers; no path leaves the server."""

import asyncio
import struct
import time
import zlib

import numpy as np
import pytest
from pictures import encoded, picture
from PIL import Image
from served import SECRET, allowed, client_of

from shorthash.errors import InvalidInput, PersistenceError
from shorthash.web import Settings
from shorthash.web.limits import BODIES, HEADERS, Body, Limits, Metrics, RateLimit, client_key

JSON = {"content-type": "application/json"}


def upload(client, octets, path="/search"):
    return client.post(path, files={"image": ("query.png", octets)}, headers=allowed())


def test_every_answer_has_safe_headers(api):
    for answer in (
        api.get("/"),
        api.get("/healthz"),
        api.get("/nowhere"),
        api.post("/search", content=b"{", headers=JSON),
        api.get("/healthz", headers={"host": "evil.example"}),
        api.put("/search"),
    ):
        for name, value in HEADERS:
            assert answer.headers[name.decode()] == value.decode()
        assert "server" not in answer.headers
    assert "'unsafe-inline'" not in api.get("/").headers["content-security-policy"]


@pytest.mark.parametrize(
    ("host", "good"),
    [
        ("localhost", True),
        ("LOCALHOST:8000", True),
        ("127.0.0.1:80", True),
        ("[::1]:8000", True),
        ("192.168.0.7", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
    ],
)
def test_unknown_host_names_are_refused(asked_api, host, good):
    answer = asked_api.get("/healthz", headers={"host": host})
    assert answer.status_code == (200 if good else 421)
    assert good or "--allow-host" in answer.json()["detail"]


def test_other_names_can_be_allowed(vectors):
    with client_of(vectors, hosts=("Photos.Example",)) as client:
        assert client.get("/healthz", headers={"host": "photos.example:443"}).status_code == 200
        assert client.get("/healthz", headers={"host": "localhost"}).status_code == 421


def test_head_is_get_without_a_body(api):
    for path in ("/healthz", "/buckets", "/items/0", "/", "/nowhere"):
        got, head = api.get(path), api.head(path)
        assert (head.status_code, head.content) == (got.status_code, b"")
        assert head.headers["content-length"] == got.headers["content-length"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/search", "POST"),
        ("HEAD", "/search", "POST"),
        ("PUT", "/items/3", "DELETE, GET, HEAD, PATCH"),
        ("GET", "/items", "POST"),
        ("POST", "/buckets", "GET, HEAD"),
        ("DELETE", "/healthz", "GET, HEAD"),
        ("OPTIONS", "/search", "POST"),
    ],
)
def test_other_methods_are_405_and_name_the_allowed_ones(asked_api, method, path, allow):
    answer = asked_api.request(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == allow


def test_a_client_with_too_many_requests_must_wait(vectors):
    with client_of(vectors, rate=0.01, burst=3) as client:
        statuses = [client.get("/buckets").status_code for _ in range(5)]
        assert statuses == [200, 200, 200, 429, 429]
        refused = client.get("/buckets")
        assert 1 <= int(refused.headers["retry-after"]) <= 100
        assert "per second" in refused.json()["detail"]
        assert client.get("/healthz").status_code == 200  # health, thumbnails and static files are not limited
        assert client.get(f"/thumbnails/{'0' * 32}.jpg").status_code == 404


def test_token_buckets_refill_and_are_bounded():
    now = [0.0]
    limit = RateLimit(2, 4, clients=10, clock=lambda: now[0])
    assert [limit.wait("a") > 0 for _ in range(5)] == [False] * 4 + [True]
    now[0] = 0.5
    assert [limit.wait("a") > 0 for _ in range(2)] == [False, True]
    for i in range(100):
        limit.wait(str(i))
    assert len(limit) == 10
    assert client_key("2001:db8::1%eth0") == client_key("2001:db8::ffff") != client_key("2001:db9::1")
    assert client_key("not:an:address") == "not:an:address"


def test_long_bodies_are_refused_while_they_arrive(vectors):
    read = []

    def chunks():
        for _ in range(100):
            read.append(1)
            yield b" " * 1000

    with client_of(vectors, max_body=5000) as client:
        announced = client.post("/search", content=b" " * 5001, headers=JSON)
        streamed = client.post("/search", content=chunks(), headers=JSON)
        false_length = client.post("/search", content=chunks(), headers={**JSON, "content-length": "10"})
        assert [announced.status_code, streamed.status_code, false_length.status_code] == [413, 413, 413]
        assert "5000 bytes" in streamed.json()["detail"]
        assert client.post("/search", content=b'{"id": 1}' + b" " * 4000, headers=JSON).status_code == 200


def scope_of(path, method="POST"):
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 5),
        "asgi": {"version": "3.0"},
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
    }


def call(app, scope, receive):
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_a_body_that_never_arrives_is_aborted(vectors):
    app = client_of(vectors, timeout=0.05).app

    async def receive():
        await asyncio.sleep(30)

    status, body = call(app, scope_of("/search"), receive)
    assert status == 408
    assert b"did not arrive within 0.05 seconds" in body


def test_slow_work_is_aborted_but_a_write_is_finished(vectors, rows, monkeypatch):
    find, add = vectors.buckets, vectors.add_vectors
    monkeypatch.setattr(vectors, "buckets", lambda: time.sleep(0.4) or find())
    monkeypatch.setattr(vectors, "add_vectors", lambda *a, **k: time.sleep(0.4) or add(*a, **k))
    with client_of(vectors, timeout=0.1) as client:
        slow = client.get("/buckets")
        assert slow.status_code == 503
        assert "longer than 0.1 seconds" in slow.json()["detail"]
        item = {"vector": rows[0][0].tolist()}
        assert client.post("/items", json={"items": [item]}, headers=allowed()).status_code == 201


def test_large_bodies_together_are_bounded():
    limits = Limits(None, Settings(max_body=1000), Metrics())

    async def receive():
        return {"type": "http.request", "body": b"x" * 1000, "more_body": False}

    bodies = [Body(receive, limits) for _ in range(BODIES + 1)]

    async def fill():
        for body in bodies[:BODIES]:
            await body.receive()
        with pytest.raises(Exception, match="busy with large requests"):
            await bodies[-1].receive()

    asyncio.run(fill())
    assert limits.body_bytes == (BODIES + 1) * 1000


def test_reranking_is_bounded(vectors):
    with client_of(vectors, max_rerank=10) as client:
        answer = client.post("/search", json={"id": 0, "rerank": True, "radius": 5})
        assert answer.status_code == 422
        assert "would compare 120 items, more than 10" in answer.json()["detail"]


def png_header(width, height):
    """A PNG with a size in its header and no pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def animated():
    frames = [picture("rings", i) for i in range(3)]
    return encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])


def turned():
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(picture("rings", 5), "JPEG", exif=exif)


def sixteen_bits():
    return encoded(Image.fromarray(np.linspace(0, 65535, 64 * 48).reshape(48, 64).astype(np.uint16)))


JPEG = encoded(picture("rings", 3), "JPEG")
GOOD = {
    "CMYK": encoded(picture("rings", 0).convert("CMYK"), "JPEG"),
    "turned by EXIF": turned(),
    "animated": animated(),
    "16 bits": sixteen_bits(),
    "palette with transparency": encoded(picture("rings", 1).convert("P"), "PNG", transparency=3),
    "one pixel": encoded(Image.new("RGB", (1, 1))),
}
BAD = {
    "empty": b"",
    "truncated": JPEG[: len(JPEG) // 2],
    "truncated in the header": JPEG[:20],
    "text": b"hello",
    "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "PDF": b"%PDF-1.4\n%%EOF",
    "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n",
    "bomb": png_header(50_000, 50_000),
    "long side": png_header(70_000, 1),
    "damaged": JPEG[:200] + bytes(200) + JPEG[400:],
}


@pytest.mark.parametrize("octets", GOOD.values(), ids=GOOD)
def test_odd_images_are_searched_and_added(api, octets):
    assert upload(api, octets).status_code == 200
    assert upload(api, octets, "/items").status_code == 201


@pytest.mark.parametrize("octets", BAD.values(), ids=BAD)
def test_broken_images_get_one_sentence(api, pictures, octets):
    for path in ("/search", "/items"):
        answer = upload(api, octets, path)
        if octets is not BAD["damaged"]:
            assert answer.status_code == 422
            assert answer.json()["detail"]
        assert answer.status_code < 500
        assert SECRET not in answer.text
    assert api.get("/healthz").status_code == 200


def test_images_truncated_or_damaged_anywhere_never_crash(api, seed):
    rng = np.random.default_rng(seed)
    for whole in (JPEG, encoded(picture("rings", 2)), animated(), encoded(picture("rings", 2), "TIFF")):
        for _ in range(12):
            octets = np.frombuffer(whole, np.uint8)[: rng.integers(1, len(whole) + 1)].copy()
            octets[rng.integers(len(octets), size=rng.integers(4))] = rng.integers(256)
            assert upload(api, octets.tobytes()).status_code in (200, 422)


def test_pixels_are_counted_before_they_are_decoded(pictures):
    with client_of(pictures, max_pixels=1000) as client:
        answer = upload(client, encoded(picture("rings", 0)))
        assert answer.status_code == 422
        assert "64 x 48 pixels, and at most 1000" in answer.json()["detail"]


def broken(*_, **__):
    raise OSError(f"disk on fire at /somewhere/{SECRET}/items.sqlite")


def refusing(kind):
    def refuse(*_, **__):
        raise kind(f"Cannot write /somewhere/{SECRET}/photos.model/x: No space left on device; make room.")

    return refuse


@pytest.mark.parametrize(
    "fault",
    [broken, refusing(PersistenceError), refusing(ValueError)],
    ids=["OSError", "PersistenceError", "ValueError"],
)
def test_faults_are_a_plain_sentence(pictures, monkeypatch, caplog, fault):
    for name in ("search", "items", "add_extracted", "remove", "buckets"):
        monkeypatch.setattr(pictures, name, fault)
    with client_of(pictures) as client:
        answers = [
            client.post("/search", json={"id": 1}),
            client.get("/items/1"),
            client.delete("/items/1", headers=allowed()),
            upload(client, JPEG, "/items"),
            client.get("/buckets"),
            client.get("/metrics"),
        ]
    for answer in answers:
        assert answer.status_code == 500
        assert answer.json()["detail"].endswith("log has the details.")
        assert SECRET not in answer.text
        assert "/somewhere" not in answer.text
    assert SECRET in caplog.text  # the log has the details


def test_no_answer_names_the_folder(api, pictures):
    item = api.get("/items/0").json()
    answers = [
        api.get(path)
        for path in (
            "/items/0",
            "/items/x",
            "/buckets",
            "/buckets/99",
            "/healthz",
            "/metrics",
            "/openapi.json",
            "/nowhere",
            "/thumbnails/../meta.json",
            "/thumbnails/%2e%2e%2fmeta.json.jpg",
            "/static/../app.py",
            "/static/%2e%2e%2fapp.py",
            item["thumbnail"],
        )
    ]
    answers += [api.post("/search", json=body) for body in ({"id": 0}, {"id": -1}, {"vector": [1]}, {"code": 99}, 5)]
    answers += [upload(api, octets) for octets in BAD.values()]
    for answer in answers:
        assert SECRET.encode() not in answer.content
        assert str(pictures.path).encode() not in answer.content
        assert answer.status_code < 500


def test_settings_are_checked():
    for wrong, match in (
        ({"max_body": 0}, "max_body"),
        ({"rate": -1}, "rate"),
        ({"timeout": 0}, "timeout"),
        ({"token": ""}, "token"),
        ({"token": "é"}, "ASCII"),
    ):
        with pytest.raises(InvalidInput, match=match):
            Settings(**wrong)
    assert "secret" not in repr(Settings(token="secret"))


def test_a_body_with_too_large_a_content_length_is_not_read(vectors):
    async def receive():
        raise AssertionError("the body was read")

    scope = scope_of("/search")
    scope["headers"].append((b"content-length", b"99999999999"))
    assert call(client_of(vectors).app, scope, receive)[0] == 413
