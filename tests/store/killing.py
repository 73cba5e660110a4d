"""Start a process that writes to a store, kill it at a random moment, look at what is left; and again, and again.

``python killing.py SCENARIO URL ATTEMPTS SEED``: with ``URL`` sqlite:///FOLDER/%d.db or the URL of a server.
"""

import os
import random
import signal
import sys
import time
import traceback

import numpy as np

from shorthash import open_store

BATCH = 500
N_OLD = 20_000


def old_code(ids):
    return (np.asarray(ids) * 37 % 4096).astype(np.uint64)


def new_code(ids):
    return (np.asarray(ids) * 40503 % 65536).astype(np.uint64)


def vector(ids):
    return np.stack([np.asarray(ids), -np.asarray(ids), np.ones(len(ids))], axis=1).astype(np.float32)


def add_batches(store, acknowledge):
    for number in range(10**6):
        ids = np.arange(number * BATCH, (number + 1) * BATCH)
        store.add(old_code(ids), ids=ids, metadata=[{"id": int(i)} for i in ids], vectors=vector(ids))
        acknowledge(number)
        if number % 3 == 2 and hasattr(store, "pack_vectors"):
            store.pack_vectors()


def check_batches(store, acknowledged_batches):
    n = len(store)
    assert n % BATCH == 0, f"half a batch: {n}"
    assert n >= BATCH * len(acknowledged_batches), (
        f"{len(acknowledged_batches)} batches were acknowledged, but there are {n} items"
    )
    assert n <= BATCH * (len(acknowledged_batches) + 1)
    ids = np.arange(n)
    assert np.array_equal(np.sort(store.ids), ids)
    items = store.items(ids)
    assert np.array_equal(items.codes, old_code(ids))
    assert items.metadata == [{"id": i} for i in range(n)]
    assert n == 0 or np.array_equal(items.vectors, vector(ids))
    store.add([1], ids=[10**9], vectors=vector([10**9]))
    assert store.rerank([1], vector([10**9]), 1, radius=0, metric="euclidean").ids.tolist() == [10**9]


def migrate(store, acknowledge):
    store.add_version("v2", 16)
    acknowledge(-1)

    def encode(items):
        acknowledge(len(items))
        return new_code(items.ids)

    store.migrate("v2", encode, batch_size=BATCH)
    store.switch("v2")
    store.drop_version("v1")


def check_migration(store, acknowledged_batches):
    old = store if store.version == "v1" else None
    if old is not None:
        assert np.array_equal(np.sort(old.codes), np.sort(old_code(range(N_OLD))))
        assert len(old) == N_OLD
    if "v2" in store.versions:
        new = store.at("v2")
        ids = new.ids
        assert np.array_equal(new.codes, new_code(ids))
        acknowledged = (
            sum(acknowledged_batches[1:-1]) if acknowledged_batches else 0
        )  # a batch is done when the next one begins
        assert len(new) >= acknowledged, f"{acknowledged} codes were acknowledged, but there are {len(new)}"
        if old is not None:
            old.migrate("v2", lambda items: new_code(items.ids))
            new = old.switch("v2")
        assert np.array_equal(np.sort(new.ids), np.arange(N_OLD))
        assert np.array_equal(new.codes, new_code(new.ids))
    else:
        assert not acknowledged_batches, "the new version was acknowledged, but is not there"


def fill(store):
    store.add(old_code(range(N_OLD)))


SCENARIOS = {"add": (lambda store: None, add_batches, check_batches), "migrate": (fill, migrate, check_migration)}


def attempt(prepare, write, check, url, collection, seconds):
    with open_store(url, 12, collection=collection) as store:
        prepare(store)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, b"ready\n")
            with open_store(url, collection=collection) as store:
                write(store, lambda number: os.write(writing, f"{number}\n".encode()))
            time.sleep(60)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as acknowledged:
        assert acknowledged.readline() == "ready\n"
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL, "the writer failed by itself"
        acknowledged_batches = [int(line) for line in acknowledged if line.endswith("\n")]
    with open_store(url, collection=collection) as store:
        check(store, acknowledged_batches)
        store.drop()
    return len(acknowledged_batches)


def main(scenario, url, attempts, seed):
    chance = random.Random(int(seed))
    counts = []
    for number in range(int(attempts)):
        place = url % number if "%d" in url else url
        collection = f"killed_{os.getpid()}_{number}"
        counts.append(attempt(*SCENARIOS[scenario], place, collection, chance.uniform(0, 0.35)))
    sys.stdout.write(f"acknowledged: {counts}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
