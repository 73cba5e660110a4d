"""Two reading servers and one writing server under load: every answer is a state that the test's model had meanwhile.

``SHORTHASH_ATTACKS`` set: for a minute; otherwise for a second.
"""

import json
import os
import random
import threading
import time
import urllib.request

import numpy as np
import pytest
from served import allowed
from web.test_api_process import server

from shorthash import make_hasher
from shorthash.images import Collection

SECONDS = 60 if os.environ.get("SHORTHASH_ATTACKS") else 1
N_BITS = 5


def ask(address, path, body=None, method=None):
    headers = {**allowed(), "content-type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read() or b"null")


class Model:
    """The states of the collection in turn, and when each write began and was acknowledged."""

    def __init__(self, ids):
        self.states, self.begun, self.acknowledged = [frozenset(ids)], [], []

    def possible(self, start, end):
        """States that an answer may show: from the last one acknowledged before it, to the last one begun."""
        low = sum(when <= start for when in list(self.acknowledged))
        high = sum(when <= end for when in list(self.begun))
        return self.states[low : high + 1]


def write(address, model, X, stop):
    rng = random.Random(0)
    while not stop.is_set():
        now = model.states[-1]
        begin = time.monotonic()
        if len(now) > 80 and rng.random() < 0.5:
            gone = rng.choice(sorted(now))
            model.states.append(now - {gone})
            model.begun.append(begin)
            ask(address, f"/items/{gone}", method="DELETE")
        else:
            new = max(now) + 1 + rng.randrange(3)
            model.states.append(now | {new})
            model.begun.append(begin)
            ask(address, "/items", {"items": [{"id": new, "vector": X[new % len(X)].tolist()}]})
        model.acknowledged.append(time.monotonic())
        time.sleep(0.005)


def read(address, model, wrong, counts, stop):
    rng = random.Random(address)
    while not stop.is_set():
        start = time.monotonic()
        answer = ask(address, "/search", {"code": rng.randrange(1 << N_BITS), "k": 1000})
        end = time.monotonic()
        ids = frozenset(item["id"] for group in answer["groups"] for item in group["items"])
        agrees = answer["count"] == len(ids) == sum(answer["ring_sizes"])
        if not agrees or ids not in model.possible(start, end):
            wrong.append((address, sorted(ids ^ model.states[-1])[:5]))
        counts.append(1)


@pytest.mark.attack
def test_readers_beside_a_writer_give_no_wrong_answer(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6)).astype(np.float32)
    hasher = make_hasher("pcaitq", n_bits=N_BITS, random_state=0).fit(X)
    with Collection.create(tmp_path / "points", hasher) as made:
        ids = made.add_vectors(X[:100]).tolist()
    model, wrong, counts, stop = Model(ids), [], [], threading.Event()
    options = ("--rate", "0")
    with (
        server(tmp_path / "points", *options) as (_, writer, _),
        server(tmp_path / "points", "--readonly", *options) as (_, one, _),
        server(tmp_path / "points", "--readonly", *options) as (_, two, _),
    ):
        threads = [threading.Thread(target=write, args=(writer, model, X, stop))]
        threads += [threading.Thread(target=read, args=(a, model, wrong, counts, stop)) for a in (one, two, writer)]
        for thread in threads:
            thread.start()
        time.sleep(SECONDS)
        while not (wrong or (len(counts) > 5 * SECONDS and len(model.acknowledged) > 2 * SECONDS)):
            time.sleep(0.1)  # on a busy machine, until there is something to judge by
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong, wrong[:3]
