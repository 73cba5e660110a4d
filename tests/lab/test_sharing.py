"""Shared work changes no code."""

import numpy as np
import pytest

from shorthash import make_hasher
from shorthash.data.datasets import Dataset, read_dataset
from shorthash.data.splits import RandomQueries
from shorthash.lab.sharing import SharedSplit
from shorthash.lab.spec import RunSpec

pytestmark = pytest.mark.filterwarnings("ignore")  # collisions, iterations: not the matter here

FRONT = {"n_anchors": 120}
CASES = [
    *(
        ("kernel", name, {})
        for name in ("rslh", "nsh", "fsdh", "hcsdh", "sslh", "sdhmlr", "sdh", "fssh", "scdh", "posh")
    ),
    ("kernel", "rslh", {"boosting": None, "similarity": "S"}),
    *(("plain", name, {}) for name in ("sh", "pcaitq", "pcarr", "mfh", "classifier", "auto", "lfh")),
]
PROTOCOL = RandomQueries(n_queries=200, n_train=500, seed=3)


@pytest.fixture(scope="module")
def digits_split():
    return SharedSplit(read_dataset("digits"), PROTOCOL.to_dict())


def spec_of(kind, method, n_bits, settings):
    front_end = FRONT if kind == "kernel" else {}
    values = {"dataset": "digits", "protocol": PROTOCOL.to_dict(), "seed": 3}
    return RunSpec("scores", method=method, n_bits=n_bits, settings=settings, front_end=front_end, **values)


@pytest.mark.parametrize(("kind", "method", "settings"), CASES, ids=lambda value: str(value))
def test_shared_work_changes_no_code(digits_split, kind, method, settings):
    """Every method, at two lengths one after the other, against the pipeline alone."""
    split = digits_split
    for n_bits in (5, 3):
        spec = spec_of(kind, method, n_bits, settings)
        front_end = dict(spec.front_end) or None
        alone = make_hasher(method, n_bits, kernel=front_end, random_state=3, **settings)
        alone.fit(split.X_train, split.y_train)
        shared = split.run(spec)
        assert np.array_equal(shared.query, alone.transform(split.X_query))
        assert np.array_equal(shared.database, alone.transform(split.X_database))
        assert shared.fit_seconds >= 0
        assert shared.encode_seconds >= 0


@pytest.mark.parametrize("method", ["rslh", "nsh", "sslh"])
def test_shared_work_changes_no_code_of_several_labels(tagged, method):
    X, Y = tagged
    split = SharedSplit(Dataset("tagged", X, Y), RandomQueries(n_queries=50, seed=0).to_dict())
    spec = RunSpec("scores", "tagged", {}, 0, method, 4, {}, {"n_anchors": 60})
    alone = make_hasher(method, 4, kernel={"n_anchors": 60}, random_state=0).fit(split.X_train, split.y_train)
    assert np.array_equal(split.run(spec).query, alone.transform(split.X_query))


def test_one_kernel_is_held(digits_split):
    digits_split.run(spec_of("kernel", "rslh", 3, {}))
    first = digits_split._kernel[1]
    digits_split.run(spec_of("kernel", "sdh", 3, {}))
    assert digits_split._kernel[1] is first, "centring is no part of the kernel"
