"""The pages: complete, escaped, under a strict policy, and without paths of this machine."""

import re

import numpy as np
import pytest
from fastapi.testclient import TestClient
from pictures import CLASSES, encoded, picture, write_folder

from shorthash import make_hasher
from shorthash.images import Collection, fit_images
from shorthash.images.features import GistFeatures
from shorthash.web import Settings, create_app

PAGES = ("/", "/?id=0", "/?id=0&rerank=1", "/map", "/map?code=0000", "/bits", "/model")
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&{{ 7*7 }}"


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp("secret-place") / "photos")
    target = tmp_path_factory.mktemp("secret-models") / "photos.model"
    fit_images(folder, target, n_bits=4, features=GistFeatures(32), method="rslh")
    with Collection(target) as collection:
        yield collection


@pytest.fixture(scope="module")
def client(photos):
    with TestClient(create_app(photos, Settings(rate=0)), base_url="http://localhost") as client:
        yield client


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    """A collection of vectors with hostile labels, names and string ids."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = (rng.normal(size=(3, 6))[y] * 3 + rng.normal(size=(60, 6))).astype(np.float32)
    model = make_hasher("rslh", n_bits=4, random_state=0, kernel={"n_anchors": 20}).fit(X, y)
    with Collection.create(tmp_path_factory.mktemp("secret-points") / "points & <b>lines", model) as made:
        ids = [f"{HOSTILE} {i}" for i in range(60)]
        made.add_vectors(X, ids=ids, labels=[f"{HOSTILE} {c}" for c in y], names=[f"{HOSTILE} {i}" for i in range(60)])
        yield made


@pytest.fixture(scope="module")
def hostile(points):
    with TestClient(create_app(points, Settings(rate=0)), base_url="http://localhost") as client:
        yield client


def text_of(html):
    """What is between tags."""
    return re.sub(r"<[^>]*>", " ", html)


@pytest.mark.parametrize("path", PAGES)
def test_pages_are_complete_and_obey_the_policy(client, path):
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    html = answer.text
    assert not re.search(r"<script(?![^>]*\bsrc=)", html), "inline script"
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", html), "inline style or handler"
    assert not re.search(r"(?:src|href|action)=\"(?:https?:)?//", html), "something from elsewhere"
    assert html.count("<main") == html.count("<h1") == 1
    assert all("alt=" in image for image in re.findall(r"<img[^>]*>", html))


@pytest.mark.parametrize("path", [*PAGES, "/?id=999", "/?code=2", "/map?code=x", "/?id=0&part=1", "/static/nothing.js"])
def test_no_path_of_the_server_is_shown(client, photos, path):
    html = client.get(path).text
    assert "secret" not in html
    assert str(photos.path.parent) not in html
    [source] = photos.sources_of([0])
    assert "secret-place" in source
    assert source not in html


@pytest.mark.parametrize("path", ["/", "/map", "/map?code=0101", "/bits", "/model"])
def test_hostile_names_stay_text(hostile, path):
    html = hostile.get(path).text
    assert "<script>alert" not in html
    assert "<img src=x" not in html
    assert "<b>lines" not in html
    assert "&lt;b&gt;lines" in html


def test_hostile_ids_are_searched_and_stay_text(hostile, points):
    first = str(points.ids[0])
    answer = hostile.get("/", params={"id": first})
    assert answer.status_code == 200
    assert "neighbours at" in text_of(answer.text)
    assert "<script>alert" not in answer.text
    missing = hostile.get("/", params={"id": HOSTILE})
    assert missing.status_code == 404
    assert "is not in the collection" in missing.text
    assert "<script>alert" not in missing.text
    chosen = hostile.get("/map", params={"class": f"{HOSTILE} 1", "code": HOSTILE})
    assert chosen.status_code == 422
    assert "<script>alert" not in chosen.text


def test_vectors_have_no_pictures_and_no_upload(hostile):
    html = hostile.get("/").text
    assert 'type="file"' not in html
    assert "/thumbnails/" not in html
    assert "Pick an item" in html


def test_a_search_by_id_shows_rings_buckets_and_pictures(client, photos):
    html = client.get("/?id=0&radius=4&k=100").text
    assert "23 neighbours" in html
    shown = set(re.findall(r"/thumbnails/(\w+)\.jpg", html))
    assert len(shown) == 24
    assert html.count('class="bucket"') == len(photos.buckets())
    content = photos.items([0])[0].content
    assert client.get(f"/thumbnails/{content}.jpg").headers["content-type"] == "image/jpeg"


def test_a_script_gets_the_requested_part(client):
    part = client.get("/?id=0&part=1").text
    assert "<html" not in part
    assert 'data-summary="' in part
    assert "<html" not in client.get("/map?code=0000&part=1").text


def test_an_uploaded_picture_is_searched(client):
    image = encoded(picture("rings", 99), "JPEG")
    answer = client.post("/?part=1&k=8", files={"image": ("mine.jpg", image, "image/jpeg")})
    assert answer.status_code == 200
    assert "8 neighbours" in answer.text
    assert "Your picture" in answer.text
    whole = client.post("/", files={"image": ("mine.jpg", image, "image/jpeg")}).text
    assert "<html" in whole


@pytest.mark.parametrize("content", [b"", b"no image at all", encoded(picture("rings", 1))[:200]])
def test_a_broken_upload_is_explained(client, content):
    answer = client.post("/?part=1", files={"image": ("mine.png", content, "image/png")})
    assert 400 <= answer.status_code < 500
    assert "<html" not in answer.text
    assert 'role="alert"' in answer.text
    assert "The image cannot be used: " in answer.text


def test_re_ranking_too_much_is_explained(photos):
    settings = Settings(rate=0, max_rerank=3)
    with TestClient(create_app(photos, settings), base_url="http://localhost") as client:
        answer = client.get("/?id=0&rerank=1&radius=4")
        assert "more than 3; use a smaller radius" in answer.text
        image = encoded(picture("rings", 99))
        answer = client.post("/?part=1&rerank=1&radius=4", files={"image": ("a.png", image, "image/png")})
        assert "more than 3; use a smaller radius" in answer.text
        assert client.get("/?id=0&radius=4").status_code == 200


def test_an_uploaded_picture_is_re_ranked(client):
    image = encoded(picture("rings", 99))
    answer = client.post("/?part=1&rerank=1&radius=4&k=5", files={"image": ("a.png", image, "image/png")})
    assert "5 neighbours" in answer.text
    assert "best cosine first" in answer.text


def test_an_upload_without_a_picture_is_refused(client):
    assert 400 <= client.post("/?part=1", data={"image": "text"}).status_code < 500
    assert 400 <= client.post("/?part=1", content=b"x", headers={"content-type": "text/plain"}).status_code < 500


def test_the_page_says_that_a_code_cannot_be_re_ranked(client):
    html = client.get("/?code=0101&rerank=1&radius=4").text
    assert "Re-ranking and probes need an item or a picture" in html
    assert "neighbours at" in html


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/?id=999", 404, "Id 999 is not in the collection"),
        ("/?id=seven", 404, "ids are integers here"),
        ("/?code=21", 422, "A code is written as 4 zeros and ones here"),
        ("/map?code=111", 422, "A code is written as 4 zeros and ones here"),
    ],
)
def test_a_wrong_address_is_explained_in_one_sentence(client, path, status, sentence):
    answer = client.get(path)
    assert answer.status_code == status
    assert sentence in answer.text


@pytest.mark.parametrize("value", ["%00", "%ff", "a" * 5000, "%F0%9F%90%86", "-1", "1e400", "../../etc/passwd"])
def test_no_address_is_a_server_error(client, hostile, value):
    for one in (client, hostile):
        for path in (f"/?id={value}", f"/?code={value}", f"/?k={value}&radius={value}&sample={value}&id=0"):
            assert one.get(path).status_code < 500
        assert one.get(f"/map?code={value}&class={value}").status_code < 500
        assert one.get(f"/static/{value}").status_code == 404


def test_files_are_sent_again_only_if_changed(client):
    for name, kind in (("page.css", "text/css"), ("search.js", "javascript"), ("icon.svg", "image/svg+xml")):
        answer = client.get(f"/static/{name}")
        assert kind in answer.headers["content-type"]
        again = client.get(f"/static/{name}", headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304


def test_bits_are_explained_again_when_items_change(tmp_path, photos):
    fit_images(write_folder(tmp_path / "p", 3), tmp_path / "m", n_bits=3, features=GistFeatures(32), method="rslh")
    with (
        Collection(tmp_path / "m") as collection,
        TestClient(create_app(collection, Settings(rate=0)), base_url="http://localhost") as client,
    ):
        before = client.get("/bits").text
        assert client.get("/bits").text == before
        collection.remove([0])
        after = client.get("/bits").text
        assert "?id=0" in before
        assert not re.search(r"\?id=0\b", after)


def test_an_empty_collection_has_pages(tmp_path, points):
    with (
        Collection.create(tmp_path / "empty", points.hasher) as collection,
        TestClient(create_app(collection, Settings(rate=0)), base_url="http://localhost") as client,
    ):
        for path in ("/", "/?code=0101", "/map", "/map?code=0101", "/bits", "/model"):
            assert client.get(path).status_code == 200
        assert "This collection is empty" in client.get("/").text
        assert client.get("/?id=1").status_code == 404


def test_every_class_is_in_the_legend(client):
    html = client.get("/map").text
    for name in CLASSES:
        assert f"<span>{name}</span>" in html


def test_errors_are_pages_for_people_and_json_for_programs(api):
    browser = {"accept": "text/html,application/xhtml+xml"}
    page = api.get("/nowhere<script>", headers=browser)
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "<script>" not in page.text
    assert api.get("/nowhere").json()["detail"].startswith("There is nothing at this address")
    assert api.get("/items/999", headers=browser).headers["content-type"].startswith("text/html")


def test_items_are_found_by_class_and_name(api):
    found = api.get("/?q=RINGS")
    assert "8 items found" in found.text
    assert "<title>“RINGS” ·" in found.text
    assert "1 item found" in api.get("/?q=rings/3.png").text
    assert "0 items found" in api.get("/", params={"q": "<b>none</b>"}).text
    assert "<b>none" not in api.get("/", params={"q": "<b>none</b>"}).text
