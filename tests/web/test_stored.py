"""Servers over a store: they answer as the searcher does, keep no state, and survive each other."""

import itertools
import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from fastapi.testclient import TestClient
from processes import Popen
from sklearn.datasets import make_blobs
from stores import postgres_url

from shorthash import EAPH, Searcher, open_store, save
from shorthash.errors import InvalidInput, PersistenceError
from shorthash.store import SQLiteStore
from shorthash.web import Settings, create_store_app

X, y = make_blobs(300, n_features=5, centers=6, cluster_std=3.0, random_state=0)
X = X.astype(np.float32)
numbers = itertools.count()


@pytest.fixture(scope="module")
def hasher():
    return EAPH(n_bits=6, n_iter=4, n_starts=1, random_state=0).fit(X[:200], y[:200])


def fill(hasher, store, stop=300):
    metadata = [{"odd": bool(i % 2)} for i in range(stop)]
    return Searcher(hasher, store, vectors="float32").add(X[:stop], classes=y[:stop], metadata=metadata)


@pytest.fixture(scope="module")
def served(hasher, tmp_path_factory):
    """A searcher of a store, and a client of a server over the same file."""
    path = tmp_path_factory.mktemp("stored") / "items.db"
    with SQLiteStore(path, 6) as store:
        searcher = fill(hasher, store)
        app = create_store_app(hasher, lambda: SQLiteStore(path), Settings(rate=0, threads=2))
        with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
            yield searcher, client


def ids_of(answer):
    return [item["id"] for item in answer.json()["items"]]


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"radius": 1},
        {"radius": 2, "rerank": "cosine"},
        {"probes": 3},
        {"probes": "auto", "rerank": "posterior"},
        {"probes": 4, "rerank": "cosine", "where": {"odd": True, "class": [0, 1, 2]}},
    ],
)
def test_the_server_answers_as_the_searcher_does(served, policy):
    searcher, client = served
    found = searcher.search(X[7:8], 9, **policy)
    answer = client.post("/search", json={"vector": X[7].tolist(), "k": 9, **policy})
    assert answer.status_code == 200, answer.text
    assert ids_of(answer) == found.ids.tolist()
    data = answer.json()
    if policy.get("rerank"):
        assert [item["score"] for item in data["items"]] == pytest.approx(found.scores.tolist())
    if "probes" in policy:
        assert (data["looked_up"], data["looked_at"]) == (found.looked_up(0).tolist(), found.n_items[0])
        assert data["expected_precision"] == pytest.approx(found.precision[0], abs=1e-4)
    for item in data["items"]:
        assert item["distance"] == bin(item["code"] ^ data["query"]["code"]).count("1")
        assert (item["label"], item["metadata"]) == (y[item["id"]], {"odd": bool(item["id"] % 2)})


def test_items_are_found_by_id_and_by_code(served):
    searcher, client = served
    item = client.get("/items/17").json()
    assert item["code"] == int(searcher.index.items([17]).codes[0])
    cell = client.get(f"/buckets/{item['code']}", params={"offset": 1, "limit": 2}).json()
    every = searcher.index.within(searcher.index.items([17]).codes, 0).ids.tolist()
    assert (cell["load"], [row["id"] for row in cell["items"]]) == (len(every), every[1:3])
    for query in ({"id": 17}, {"id": 17, "probes": 2}, {"id": "17", "radius": 1, "rerank": "posterior"}):
        near = ids_of(client.post("/search", json={**query, "k": 5}))
        assert len(near) == 5
        assert 17 not in near
    assert ids_of(client.post("/search", json={"code": item["code"], "k": 3, "radius": 0})) == every[:3]
    assert client.get("/healthz").json() == {
        "status": "ok",
        "collection": "items",
        "version": "v1",
        "current_version": "v1",
        "n_bits": 6,
        "n_features": 5,
    }
    assert "shorthash_search_seconds_count" in client.get("/metrics").text
    assert client.get("/openapi.json").json()["paths"].keys() >= {"/search", "/items/{id}", "/buckets/{code}"}


def test_mistakes_are_one_sentence(served, hasher, tmp_path):
    _, client = served
    vector = X[0].tolist()
    for body, status, sentence in (
        ({"vector": vector[:3]}, 422, "vector must have at least 5 items"),
        ({"vector": vector, "id": 3}, 422, "exactly one of vector, id and code. Got vector and id"),
        ({"code": 3, "probes": 2}, 422, "a code has none"),
        ({"code": 64}, 422, "code must be less than or equal to 63"),
        ({"vector": vector, "probes": 2, "radius": 1}, 422, "probes or a radius. Got both"),
        ({"vector": vector, "where": {"a.b": 1}}, 422, "must be a name of letters"),
        ({"vector": vector, "rerank": "dot"}, 422, "rerank must be 'posterior' or 'cosine'"),
        ({"id": 9999}, 404, "There is no item 9999"),
    ):
        answer = client.post("/search", json=body)
        assert answer.status_code == status, answer.text
        assert sentence in answer.json()["detail"]
    assert client.get("/items/none").status_code == 404
    with SQLiteStore(tmp_path / "other.db", 6) as store:
        Searcher(hasher, store, vectors="float32").add(-X[:30])
        store.update(range(30), 63 - store.codes)
        with pytest.raises(InvalidInput, match=r"version 'v1' .* are not those of this model: \d+% of 16 vectors"):
            create_store_app(hasher, lambda: store)


def test_a_search_may_not_look_at_too_many_items(hasher, tmp_path):
    path = tmp_path / "items.db"
    with SQLiteStore(path, 6) as store:
        fill(hasher, store)
    app = create_store_app(hasher, lambda: SQLiteStore(path), Settings(max_rerank=20))
    with TestClient(app, base_url="http://localhost") as client:
        answer = client.post("/search", json={"vector": X[0].tolist(), "probes": 60, "rerank": "cosine"})
        assert answer.status_code == 422
        assert "more than 20; use fewer probes" in answer.json()["detail"]


def test_a_lost_connection_is_opened_again(hasher):
    """The database ends every connection: the next search is answered, and one without database is told so."""
    name = f"lost{os.getpid()}"
    with open_store(postgres_url(), 6, collection=name) as store:
        fill(hasher, store, 50)
        app = create_store_app(hasher, lambda: open_store(postgres_url(), collection=name), Settings(threads=1))
        with TestClient(app, base_url="http://localhost") as client:
            query = {"vector": X[3].tolist(), "probes": 2, "k": 4}
            before = ids_of(client.post("/search", json=query))
            with store._connection.statements() as run:
                [served_by] = app.state.service._stores
                assert run("SELECT pg_terminate_backend(?)", [served_by._connection.raw.info.backend_pid]) == [(True,)]
            assert ids_of(client.post("/search", json=query)) == before
            service = app.state.service

            def fail(*_):
                raise PersistenceError("PostgreSQL reports: no.")

            service.search = fail
            answer = client.post("/search", json=query)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            assert answer.json()["detail"] == "The database cannot be reached at the moment; try again."
        store.drop()


@contextmanager
def server(*words):
    """A running server and its address."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "shorthash", "serve", *words, "--port", "0", "--rate", "0"]
    with Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def address_of(process):
    lines = [process.stdout.readline() for _ in range(3)]
    found = re.search(r"http://\S+:\d+", "".join(lines))
    assert found, (lines, process.poll() is not None and process.stderr.read())
    return found.group()


def ask(address, body):
    request = urllib.request.Request(
        f"{address}/search", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


def test_two_servers_a_writer_a_migration_and_a_kill(hasher, tmp_path):
    """Every answer is right while another process writes and migrates; when one server is killed, the other goes on."""
    save(hasher, tmp_path / "items.model")
    url, name = postgres_url(), f"many{os.getpid()}"
    with open_store(url, 6, collection=name, partitions=4) as store, ExitStack() as stack:
        searcher = fill(hasher, store, 100)
        words = (url, "--model", str(tmp_path / "items.model"), "--collection", name)
        servers = [stack.enter_context(server(*words)) for _ in range(2)]
        stop, answers, lost = threading.Event(), [], []
        addresses = [address_of(process) for process in servers]
        query = {"vector": X[7].tolist(), "k": 300, "probes": 40, "rerank": "posterior"}

        def client(address):
            while not stop.is_set():
                try:
                    answers.append((address, [item["id"] for item in ask(address, query)["items"]]))
                except (OSError, urllib.error.HTTPError) as error:
                    lost.append((address, error))
                    return

        threads = [threading.Thread(target=client, args=(address,)) for address in addresses]
        for thread in threads:
            thread.start()
        while (
            len({address for address, _ in answers}) < 2 and not lost
        ):  # both have answered before anything is written
            stop.wait(0.01)
        for start in range(100, 200, 20):  # the writer
            searcher.add(X[start : start + 20], classes=y[start : start + 20])
        newer = Searcher(
            EAPH(n_bits=5, n_iter=2, n_starts=1, random_state=1).fit(X[:200], y[:200]), store.add_version("v2", 5)
        )
        store.migrate("v2", newer.encode_items, batch_size=50)
        servers[0].kill()
        servers[0].wait()
        searcher.add(X[200:], classes=y[200:])
        after = len(answers)
        while len(answers) < after + 3 and not lost[1:]:
            stop.wait(0.01)
        stop.set()
        for thread in threads:
            thread.join()
        assert {address for address, _ in lost} == {addresses[0]}
        sizes = []
        for _, ids in answers:
            assert len(set(ids)) == len(ids)
            sizes.append(len(ids))
        last = ask(addresses[1], query)
        expected = searcher.search(X[7:8], 300, probes=40, rerank="posterior")
        assert [item["id"] for item in last["items"]] == expected.ids.tolist()
        assert min(sizes) < max(sizes) == len(expected.ids)
        assert store.migrate("v2", newer.encode_items) == 100
        found = newer.search(X[7:8], 20, probes=3, rerank="posterior")
        assert len(found.ids) == 20
        store.drop()
