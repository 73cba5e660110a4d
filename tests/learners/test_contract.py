"""What every hasher must do; hashers are found, not listed."""

import importlib
import inspect
import pickle
import pkgutil
import tracemalloc

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import AgglomerativeClustering
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

import shorthash.learners
from shorthash import load, save
from shorthash.errors import InvalidInput, PersistenceError
from shorthash.learners.base import BaseHasher
from shorthash.learners.ccaitq import CCAITQ
from shorthash.learners.classifier import ClassifierCode
from shorthash.learners.eaph.estimator import EAPH
from shorthash.learners.lsh import LSH
from shorthash.learners.pcarr import PCARR
from shorthash.learners.rslh.estimator import RSLH
from shorthash.learners.sdh import SDH


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
        {"init": "annealed", "boosting": None, "n_bits": 4},
        {"init": "polar", "n_runs": 2},
        {"init": "separated", "variant": "authors-code", "boosting": None},
    ],
    "BitBoost": [
        {"estimator": PCARR(), "n_runs": 2},
        {"estimator": CCAITQ(), "strategy": "ob"},
        {"estimator": LSH(), "clustering": AgglomerativeClustering(metric="precomputed", linkage="average")},
    ],
    "CodewordHasher": [
        {"estimator": RSLH()},
        {"estimator": RSLH(init="distinct", boosting=None), "encoder": "expected-ap", "temperature": 3.0},
        {"estimator": ClassifierCode(), "encoder": "nearest"},
        {"estimator": SDH(), "encoder": "linear", "scores": "logistic"},
    ],
    "ClassifierCode": [{"estimator": RidgeClassifier(), "codebook": "binary"}, {"codebook": "random"}],
    "KSH": [{"n_labelled": 20}],
    "MFH": [{"habir": True}],
    "COSDISH": [{"dissimilar": "positive"}],
    "FSDH": [{"nu": 1.0, "max_iter": 50}],
    "FSSH": [{"variant": "os"}],
    "NSH": [{"nu": 0.0, "n_bits": 3}, {"nu": 1.0, "max_iter": 50}],
    "SSLH": [{"mode": "paper"}],
}


QUICK = {"EAPH": {"n_starts": 1, "n_iter": 2}, "KSH": {"max_iter": 3}}  # in the place of defaults: the same, sooner


def settings_of(cls):
    """The defaults, unless the class has a parameter without one, and the variants."""
    parameters = list(inspect.signature(cls).parameters.values())
    complete = all(p.default is not p.empty for p in parameters)
    return [*([QUICK.get(cls.__name__, {})] if complete else []), *VARIANTS.get(cls.__name__, [])]


ESTIMATORS = [c(**settings) for c in discover() for settings in settings_of(c)]


def of_length(hasher, n_bits):
    """A copy that learns ``n_bits`` bits; a meta-estimator has the length of what it wraps."""
    name = "n_bits" if "n_bits" in hasher.get_params(deep=False) else "estimator__n_bits"
    return clone(hasher).set_params(**{name: n_bits})


def fitting(hasher, n_features, n_classes):
    """A copy whose code is no longer than the method can learn from so many features and classes."""
    longest = hasher.max_bits(n_features, n_classes)
    return clone(hasher) if hasher.n_bits <= longest else of_length(hasher, longest)


# scikit-learn's checks come with as few as two features and two classes (and one feature, where an error may be raised)
FIRST = {type(e): e for e in reversed(ESTIMATORS)}  # one hasher of every class
CHECKED = [fitting(estimator, 2, 2) for estimator in FIRST.values()]


# a published number of iterations may leave codes unsettled, which is said, and no breach of contract
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.filterwarnings("ignore::shorthash.errors.ShorthashWarning")
@pytest.mark.parametrize("estimator", CHECKED, ids=str)
def test_scikit_learn_contract(estimator):
    results = check_estimator(estimator, on_skip=None, on_fail=None)
    failed = [f"{r['check_name']}: {r['exception']!r}" for r in results if r["status"] == "failed"]
    assert not failed, "\n".join(failed)
    assert sum(r["status"] == "passed" for r in results) > 35


def test_something_is_discovered():
    assert "RSLH" in [c.__name__ for c in discover()]
    assert {type(e) for e in ESTIMATORS} == set(discover())  # also those that cannot do without arguments


def seeded(estimator):
    """A copy for blobs, with a seed."""
    copy = fitting(estimator, 12, 5)
    return copy.set_params(random_state=0) if "random_state" in copy.get_params() else copy


@pytest.fixture(scope="module", params=ESTIMATORS, ids=str)
def fitted(request, blobs):
    """A hasher fitted to blobs, for tests that do not change it."""
    return seeded(request.param).fit(*blobs)


@pytest.fixture
def hasher(fitted):
    """The same, not fitted."""
    return clone(fitted)


def test_codes_are_signs(fitted, blobs):
    codes = fitted.transform(blobs[0])
    assert codes.dtype == np.int8
    assert codes.shape == (300, fitted.n_bits)
    assert set(np.unique(codes)) <= {-1, 1}
    assert np.array_equal(codes, np.where(fitted.project(blobs[0]) >= 0, 1, -1))


def test_same_seed_same_codes_and_parameters_and_input_are_left_alone(hasher, fitted, blobs):
    X, y = blobs  # read-only arrays: writing into them would raise
    before = {k: repr(v) for k, v in hasher.get_params().items()}
    assert np.array_equal(hasher.fit(X, y).transform(X), fitted.transform(X))
    assert {k: repr(v) for k, v in hasher.get_params().items()} == before


def test_pickling_keeps_the_codes(fitted, blobs):
    X, _ = blobs
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).transform(X), fitted.transform(X))


@pytest.mark.filterwarnings("ignore::shorthash.errors.CollisionWarning")
def test_any_length(hasher, blobs):
    X, y = blobs
    longest = hasher.max_bits(n_features=12, n_classes=5)
    for n_bits in (1, 13, 64):
        if n_bits > longest:
            sentence = rf"at most {longest} bits .*: .*\. Got n_bits={n_bits} instead; \w+"
            with pytest.raises(InvalidInput, match=sentence):
                of_length(hasher, n_bits).fit(X, y)
        else:
            assert of_length(hasher, n_bits).fit(X, y).transform(X[:7]).shape == (7, n_bits)


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


def test_several_labels_are_learned_or_refused(hasher, tagged):
    X, Y = tagged
    short = fitting(hasher, 12, 4)
    tags = get_tags(short).target_tags
    if tags.required and not tags.multi_output:
        with pytest.raises(InvalidInput, match=r"several labels; .*, or use a method for several labels"):
            short.fit(X, Y)
        return
    codes = short.fit(X, Y).transform(X)
    assert codes.shape == (300, short.n_bits)
    assert np.array_equal(codes, clone(short).fit(X, 2 * Y - 1).transform(X))  # labels of -1 and +1 are the same labels


def test_one_class_cannot_be_told_apart(hasher, blobs):
    if get_tags(hasher).target_tags.required:
        with pytest.raises(InvalidInput, match="has one class only"):
            hasher.fit(blobs[0], np.zeros(300))


def test_bad_features_and_labels_are_named(hasher, fitted, blobs):
    X, y = blobs
    broken = X.copy()
    broken[3, 5] = np.nan
    with pytest.raises(InvalidInput, match=r"NaN \(first at row 3, column 5\)"):
        hasher.fit(broken, y)
    with pytest.raises(InvalidInput, match=r"All 300 rows of X .* are equal"):
        hasher.fit(np.ones((300, 12)), y)
    if get_tags(hasher).target_tags.required:
        with pytest.raises(InvalidInput, match="300 rows and y has 3"):
            hasher.fit(X, y[:3])
    with pytest.raises(InvalidInput, match="infinity"):
        fitted.transform(np.full((1, 12), np.inf))


def test_bad_lengths_are_refused(hasher, blobs):
    for n_bits in (0, 65, 2.0, None):
        sentence = rf"'n_bits' parameter of \w+ must be an int in the range .* Got {n_bits}"
        with pytest.raises(InvalidInput, match=sentence):
            of_length(hasher, n_bits).fit(*blobs)


def test_saving_keeps_the_codes(fitted, blobs, tmp_path):
    X, _ = blobs
    parts = [v for v in fitted.get_params().values() if isinstance(v, BaseEstimator) and not isinstance(v, BaseHasher)]
    if parts:  # classifiers and clusterers of scikit-learn, but for the default, are not ours to save
        with pytest.raises(PersistenceError, match="is not among the classes that shorthash saves"):
            save(fitted, tmp_path / "model")
        return
    loaded = load(save(fitted, tmp_path / "model"))
    assert np.array_equal(loaded.project(X), fitted.project(X))
    assert loaded.get_params().keys() == fitted.get_params().keys()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("hasher", FIRST.values(), ids=str)
def test_many_rows_need_no_square_matrix(hasher):
    """One bit per pair of 24 000 rows would be 69 MiB, one float64 4 GiB."""
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=24_000)
    X = rng.normal(size=(5, 8))[y] + rng.normal(size=(24_000, 8))
    small = of_length(hasher, 4)
    if isinstance(small, EAPH):
        small.set_params(posterior=LogisticRegression())
    tracemalloc.start()
    codes = small.fit(X, y).transform(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert codes.shape == (24_000, 4)
    assert peak < 60 * 2**20, f"peak of {peak / 2**20:.0f} MiB; the rows have {X.nbytes / 2**20:.0f}"
