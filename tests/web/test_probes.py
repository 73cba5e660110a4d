"""Search by learned probes through the JSON API and on the page."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from fastapi.testclient import TestClient
from sklearn.datasets import make_blobs

from shorthash import EAPH, Collection, Searcher, make_hasher
from shorthash.errors import InvalidInput
from shorthash.images import check_collection
from shorthash.web import Settings, create_app

X, y = make_blobs(300, n_features=5, centers=6, cluster_std=3.0, random_state=0)


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    """A collection with posteriors, and a client of it."""
    hasher = EAPH(n_bits=5, n_iter=4, n_starts=1, random_state=0).fit(X[:200], y[:200])
    with Collection.create(tmp_path_factory.mktemp("probed") / "blobs", hasher) as collection:
        collection.add_vectors(X, labels=y.tolist())
        with TestClient(create_app(collection), base_url="http://localhost") as client:
            yield client, collection, hasher


def test_the_api_looks_up_cells(probed):
    client, _, hasher = probed
    answer = client.post("/search", json={"vector": X[0].tolist(), "k": 7, "probes": 3}).json()
    assert answer["looked_up"] == hasher.probes(X[:1], 3)[0].tolist()
    assert 0 < answer["expected_precision"] <= 1
    items = [item for group in answer["groups"] for item in group["items"]]
    assert len(items) == 7
    assert {item["code"] for item in items} <= set(answer["looked_up"])
    by_id = client.post("/search", json={"id": 0, "k": 7, "probes": "auto", "rerank": True}).json()
    found = [item for group in by_id["groups"] for item in group["items"]]
    assert 0 not in {item["id"] for item in found}
    assert all(-1 <= item["score"] <= 1 for item in found)
    rings = client.post("/search", json={"id": 0, "k": 7}).json()
    assert (rings["looked_up"], rings["expected_precision"]) == ([], None)


def test_a_collection_finds_what_a_searcher_finds(probed):
    _, collection, hasher = probed
    for rerank in (False, True):
        found = collection.search(vector=X[5], k=12, probes=2, rerank=rerank)
        cells = set(hasher.probes(X[5:6], 2)[0].tolist())
        assert set(found.looked_up) == cells
        inside = [i for i in range(300) if collection.items([i])[0].code in cells]
        assert set(found.ids.tolist()) <= set(inside)
        if rerank:
            cosines = (X @ X[5]) / np.linalg.norm(X, axis=1) / np.linalg.norm(X[5])
            assert found.ids.tolist() == sorted(inside, key=lambda i: -cosines[i])[:12]


@pytest.mark.parametrize("reach", [{"probes": 3}, {"probes": "auto"}, {"radius": 1}, {}])
def test_items_are_ordered_by_posterior(probed, reach):
    """By the collection, the API and a searcher that keeps posteriors in memory: the same items and scores."""
    client, collection, hasher = probed
    searcher = Searcher(hasher).add(X)
    expected = searcher.search(X[5:6], 12, rerank="posterior", **reach)
    found = collection.search(vector=X[5], k=12, rerank="posterior", **reach)
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.scores.tolist() == pytest.approx(expected.scores.tolist(), abs=1e-6)
    assert found.expected == pytest.approx(float(expected.precision[0]), abs=1e-4)
    body = {"vector": X[5].tolist(), "k": 12, "rerank": "posterior", **reach}
    answer = client.post("/search", json=body).json()
    items = [item for group in answer["groups"] for item in group["items"]]
    scores = {item["id"]: item["score"] for item in items}
    assert [scores[item] for item in found.ids.tolist()] == pytest.approx(found.scores.tolist())
    assert (answer["looked_up"] == []) == ("probes" not in reach)
    assert 5 not in collection.search(id=5, k=12, rerank="posterior", **reach).ids


def test_posteriors_of_an_older_collection_are_computed_by_fsck(probed, tmp_path):
    _, collection, hasher = probed
    with Collection.create(tmp_path / "old", hasher) as old:
        old.add_vectors(X[:50])
        old.add_codes([3], ids=[900])  # without a vector it has no posterior
        expected = old.search(vector=X[5], k=9, rerank="posterior")
    with closing(sqlite3.connect(tmp_path / "old" / "items.sqlite")) as database, database:
        database.execute("UPDATE items SET posterior = NULL, crc = NULL")
    with Collection(tmp_path / "old", readonly=True) as old:
        assert len(old.search(vector=X[5], k=9, rerank="cosine")) == 9
        with pytest.raises(InvalidInput, match=r"have no posteriors.*fsck MODEL --repair"):
            old.search(vector=X[5], k=9, rerank="posterior")
    assert check_collection(tmp_path / "old", repair=True).n_posteriors == 50
    assert check_collection(tmp_path / "old", repair=True).n_posteriors == 0
    with Collection(tmp_path / "old", readonly=True) as old:
        found = old.search(vector=X[5], k=9, rerank="posterior")
        assert found.ids.tolist() == expected.ids.tolist()
    with pytest.raises(InvalidInput, match="'rerank' parameter of search must be one of"):
        collection.search(id=0, rerank="dot")


def test_a_model_without_posteriors_cannot_order_by_them(tmp_path):
    with Collection.create(tmp_path / "c", make_hasher("pcaitq", 3, random_state=0).fit(X)) as made:
        made.add_vectors(X[:20])
        with pytest.raises(InvalidInput, match="needs a hasher that has learned posteriors"):
            made.search(id=0, rerank="posterior")
        assert made.keep_posteriors() == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"id": 0, "probes": 2, "radius": 1}, "takes probes or a radius. Got both"),
        ({"code": 0, "probes": 2}, "Probes are chosen by features, and a code has none"),
        ({"id": 0, "probes": 0}, "probes must"),
        ({"id": 0, "probes": "many"}, "probes must"),
        ({"id": 0, "rerank": "dot"}, "rerank must"),
        ({"code": 0, "rerank": "posterior"}, "Re-ranking compares vectors, and a code has none"),
    ],
)
def test_wrong_requests_are_422(probed, body, message):
    answer = probed[0].post("/search", json=body)
    assert answer.status_code == 422
    assert message in answer.json()["detail"]


def test_reranking_is_bounded(probed):
    with TestClient(create_app(probed[1], Settings(max_rerank=10)), base_url="http://localhost") as client:
        answer = client.post("/search", json={"id": 0, "rerank": True, "probes": 32})
        assert answer.status_code == 422
        assert "would compare 300 items, more than 10; use a smaller radius or fewer probes" in answer.text
        assert client.post("/search", json={"id": 0, "probes": 32}).status_code == 200


def test_the_page_has_a_switch_and_the_map_shows_the_cells(probed):
    client, _, hasher = probed
    assert 'id="probes"' in client.get("/").text
    ordered = client.get("/?id=0&posterior=1").text
    assert "by the probability of being relevant, of all items within the radius" in ordered
    assert 'name="posterior" type="checkbox" value="1" role="switch" checked' in ordered
    html = client.get("/?id=0&probes=1").text
    assert "looked up" in html
    link = html.split('href="/map?looked=')[1].split('"')[0]
    cells = [int(code, 2) for code in link.split(".")]
    assert cells == hasher.probes(X[:1], len(cells))[0].tolist()
    drawn = client.get(f"/map?looked={link}").text
    assert 0 < drawn.count(' looked"') <= len(cells)
    assert "looked up as number 1" in drawn
    assert client.get("/map?looked=hello").status_code == 422
