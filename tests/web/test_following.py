"""Servers beside a writer: an answer belongs to one state, and no later than the request."""

import json
import threading

import numpy as np
import pytest
from served import client_of

from shorthash.images import Collection


@pytest.fixture
def reader(vectors):
    """A read-only server of a collection that another connection writes to."""
    with Collection(vectors.path, readonly=True) as opened, client_of(opened, token=None) as client:
        yield client


def test_a_reading_server_follows_removals_and_additions(reader, vectors, rows):
    assert reader.post("/search", json={"id": 17, "k": 39}).json()["count"] == 39
    vectors.remove([5])
    for path in ("/items/5", "/?id=5"):
        assert reader.get(path).status_code == 404
    answer = reader.post("/search", json={"id": 17, "k": 1000}).json()
    assert answer["count"] == 118 == sum(answer["ring_sizes"]) - 1
    [new] = vectors.add_vectors(rows[0][:1], names=["late"]).tolist()
    assert reader.get(f"/items/{new}").json()["name"] == "late"
    assert reader.get("/healthz").json()["items"] == 120
    vectors.remove(vectors.ids)
    assert reader.get("/").status_code == 200
    assert reader.get("/buckets").json()["count"] == 0
    assert reader.post("/search", json={"code": 0, "k": 5}).json()["count"] == 0


def test_pages_of_a_writing_server_do_not_fail_while_items_are_removed(vectors, rows):
    stop, failures = threading.Event(), []

    def churn():
        rng = np.random.default_rng(0)
        while not stop.is_set():
            gone = rng.choice(vectors.ids, 20, replace=False)
            vectors.remove(gone)
            vectors.add_vectors(rows[0][:20])

    with client_of(vectors) as client:
        thread = threading.Thread(target=churn)
        thread.start()
        try:
            for number in range(15):
                answer = client.post("/search", json={"code": number % 32, "k": 1000}).json()
                if answer["count"] != sum(answer["ring_sizes"]):
                    failures.append(answer)
                failures += [p for p in ("/", "/bits", "/map", "/model") if client.get(p).status_code != 200]
                item = int(vectors.ids[number % 60])
                again = client.post("/search", json={"id": item, "k": 5, "radius": 5, "rerank": True})
                if again.status_code not in (200, 404, 422) or "not in the store" in again.text:
                    failures.append(again.text)
        finally:
            stop.set()
            thread.join()
    assert not failures, json.dumps(failures[:3])[:500]
