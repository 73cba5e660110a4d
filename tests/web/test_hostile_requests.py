"""Requests that are meant to harm: images that cost much, ids with line ends, names with escapes."""

import time
from urllib.parse import quote

import pytest
from images.bombs import many_scans, tiny_gif
from pictures import encoded, picture
from served import allowed, client_of

from shorthash.cli.terminal import printable
from shorthash.images import Collection


def test_bombs_are_refused_and_searches_go_on(api):
    start = time.perf_counter()
    for name, octets in [("scans.jpg", many_scans()), ("tiny.gif", tiny_gif())]:
        for path in ("/search", "/"):
            refused = api.post(path, files={"image": (name, octets)})
            assert refused.status_code == 422
        added = api.post("/items", files=[("image", (name, octets))], headers=allowed())
        assert added.status_code == 422
    assert api.post("/search", json={"code": 0}).status_code == 200
    assert time.perf_counter() - start < 10
    good = ("image", ("good.png", encoded(picture("rings", 4711))))
    bad = ("image", ("bad.gif", tiny_gif()))
    answer = api.post("/items", files=[bad, good, bad], headers=allowed()).json()
    assert (len(answer["added"]), len(answer["failed"])) == (1, 2)


def test_images_of_a_request_are_added_together_or_not_at_all(pictures, monkeypatch):
    images = [("image", (f"{i}.png", encoded(picture("rings", 9000 + i)))) for i in range(40)]
    with client_of(pictures) as client:
        n = len(pictures)
        monkeypatch.setattr(Collection, "_commit", lambda *_: 1 / 0)
        assert client.post("/items", files=images, headers=allowed()).status_code == 500
        assert client.get("/healthz").json()["items"] == n
        monkeypatch.undo()
        assert len(client.post("/items", files=images, headers=allowed()).json()["added"]) == 40


@pytest.mark.parametrize("name", ["a\nb", "\n", "a\r\n", "a/b\n/c", " ", "\x1b[31m"])
def test_every_id_can_be_shown_and_removed(named_api, rows, name):
    body = {"items": [{"id": name, "vector": rows[0][0].tolist()}]}
    assert named_api.post("/items", json=body, headers=allowed()).status_code == 201
    assert named_api.get(f"/items/{quote(name, safe='')}").json()["id"] == name
    assert named_api.delete(f"/items/{quote(name, safe='')}", headers=allowed()).status_code == 204
    assert named_api.get(f"/items/{quote(name, safe='')}").status_code == 404


def test_a_terminal_does_not_obey_names():
    assert printable("cat\x1b]0;owned\x07\u202e.jpg") == "cat\\x1b]0;owned\\x07\\u202e.jpg"
    assert printable("Füße, 猫") == "Füße, 猫"
