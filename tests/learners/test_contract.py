"""What every hasher must do; hashers are found, not listed."""

import importlib
import inspect
import pickle
import pkgutil

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import shorthash.learners
from shorthash.errors import InvalidInput
from shorthash.learners.base import BaseHasher


def discover():
    """Every public hasher class in the learners' room."""
    found = set()
    for module in pkgutil.iter_modules(shorthash.learners.__path__, "shorthash.learners."):
        for _, member in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            public = member is not BaseHasher and not inspect.isabstract(member) and member.__name__[0] != "_"
            if issubclass(member, BaseHasher) and public:
                found.add(member)
    return sorted(found, key=lambda c: c.__name__)


# further settings of a class that must pass the same checks; "n_bits" is cut to what a method can learn from the data
VARIANTS = {
    "RSLH": [
        {"similarity": "S", "boosting": "ob", "n_bits": 4},
        {"boosting": None, "solver": "per-sample"},
        {"boosting": "positionwise", "n_runs": 2, "n_bits": 17},
        {"variant": "authors-code"},
        {"constraint": "nI", "shared_projection": False},
        {"constraint": "nI", "solver": "per-sample", "similarity": "S"},
    ]
}
ESTIMATORS = [c(**v) for c in discover() for v in [{}, *VARIANTS.get(c.__name__, [])]]


def of_length(hasher, n_bits):
    """A copy that learns ``n_bits`` bits; a meta-estimator has the length of what it wraps."""
    name = "n_bits" if "n_bits" in hasher.get_params(deep=False) else "estimator__n_bits"
    return clone(hasher).set_params(**{name: n_bits})


def fitting(hasher, n_features, n_classes):
    """A copy whose code is no longer than the method can learn from so many features and classes."""
    longest = hasher.max_bits(n_features, n_classes)
    return clone(hasher) if hasher.n_bits <= longest else of_length(hasher, longest)


# scikit-learn's checks come with as few as two features and two classes (and one feature, where an error may be raised)
CHECKED = [fitting(estimator, 2, 2) for estimator in ESTIMATORS]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::shorthash.errors.ShorthashWarning")
@parametrize_with_checks(CHECKED)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_something_is_discovered():
    assert "RSLH" in [c.__name__ for c in discover()]


@pytest.fixture(params=ESTIMATORS, ids=str)
def hasher(request):
    seeded = fitting(request.param, 12, 5)  # the shape of blobs
    return seeded.set_params(random_state=0) if "random_state" in seeded.get_params() else seeded


def test_codes_are_signs(hasher, blobs):
    X, y = blobs
    codes = hasher.fit(X, y).transform(X)
    assert codes.dtype == np.int8
    assert codes.shape == (300, hasher.n_bits)
    assert set(np.unique(codes)) <= {-1, 1}
    assert np.array_equal(codes, np.where(hasher.project(X) >= 0, 1, -1))


def test_same_seed_same_codes(hasher, blobs):
    X, y = blobs
    codes = [clone(hasher).fit(X, y).transform(X) for _ in range(2)]
    assert np.array_equal(*codes)


def test_pickling_keeps_the_codes(hasher, blobs):
    X, y = blobs
    hasher.fit(X, y)
    assert np.array_equal(pickle.loads(pickle.dumps(hasher)).transform(X), hasher.transform(X))


@pytest.mark.filterwarnings("ignore::shorthash.errors.CollisionWarning")
@pytest.mark.parametrize("n_bits", [1, 2, 3, 5, 7, 8, 9, 13, 31, 32, 33, 63, 64])
def test_any_length(hasher, blobs, n_bits):
    X, y = blobs
    longest = hasher.max_bits(n_features=12, n_classes=5)
    if n_bits > longest:
        with pytest.raises(InvalidInput, match=rf"at most {longest} bits .*: .*\. Got n_bits={n_bits} instead; \w+"):
            of_length(hasher, n_bits).fit(X, y)
        return
    codes = of_length(hasher, n_bits).fit(X, y).transform(X[:7])
    assert codes.shape == (7, n_bits)


def test_duplicated_rows_get_equal_codes(hasher, blobs):
    X, y = blobs
    hasher.fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    codes = hasher.transform(np.repeat(X, 2, axis=0))
    assert np.array_equal(codes[::2], codes[1::2])


def test_tiny_and_unbalanced_data(hasher):
    X = np.array([[0.0], [1.0], [1.1], [1.2], [1.3]])
    short = fitting(hasher, 1, 2)
    codes = short.fit(X, [0, 1, 1, 1, 1]).transform(X)
    assert codes.shape == (5, short.n_bits)


def test_parameters_and_input_are_left_alone(hasher, blobs):
    X, y = blobs  # read-only arrays: writing into them would raise
    before = {k: repr(v) for k, v in hasher.get_params().items()}
    hasher.fit(X, y).transform(X)
    assert {k: repr(v) for k, v in hasher.get_params().items()} == before
