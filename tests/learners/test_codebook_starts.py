"""Where the codewords of RSLH start: what each start promises, and that all of it follows from sums."""

import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier

from shorthash import RSLH
from shorthash._labels import group_labels
from shorthash.data.rows import Rows
from shorthash.learners import codebooks
from shorthash.learners.codebooks import (
    PENALTIES,
    annealed_codebook,
    crowding,
    expected_confusion,
    n_distinct,
    polar_codebook,
    separation,
)
from shorthash.learners.sums import GroupStatistics

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

DESIGNED = ["distinct", "balanced", "separated", "polar", "annealed"]
STARTS = ["random", *DESIGNED]


def sums_of(X, y):
    return GroupStatistics.of(Rows(X, "test"), group_labels(y, owner="test"))


@pytest.mark.parametrize("init", STARTS)
@pytest.mark.parametrize("variant", ["paper", "authors-code"])
def test_single_label_codewords_stay_where_they_start(blobs, init, variant, monkeypatch):
    from shorthash.learners.rslh import estimator as rslh_estimator
    from shorthash.learners.rslh import steps as rslh_steps

    drawn = []

    def start(problem, rng):
        C, W = rslh_steps.start(problem, rng)
        drawn.append(C if init != "random" or variant == "paper" else np.where(W.T >= 0, 1, -1))
        return C, W

    monkeypatch.setattr(rslh_estimator, "start", start)
    hasher = RSLH(n_bits=6, init=init, boosting=None, variant=variant, random_state=0).fit(*blobs)
    assert len(drawn) == 1
    assert np.array_equal(hasher.codewords_, drawn[0])


def test_the_random_start_is_the_first_draw_of_the_seed(blobs):
    """Faithful, and unchanged by the other starts: independent bits."""
    hasher = RSLH(n_bits=6, boosting=None, random_state=0).fit(*blobs)
    seed = np.random.RandomState(hasher._seed).randint(np.iinfo(np.int32).max, size=1)[0]
    assert np.array_equal(hasher.codewords_, 2 * np.random.RandomState(seed).randint(0, 2, size=(5, 6)) - 1)


@pytest.mark.parametrize("init", DESIGNED)
@pytest.mark.parametrize("data", ["blobs", "tagged"])
def test_both_solvers_start_alike(init, data, request):
    X, y = request.getfixturevalue(data)
    fits = [
        RSLH(n_bits=6, init=init, boosting=None, solver=solver, random_state=0).fit(X, y)
        for solver in ("one-pass", "per-sample")
    ]
    assert np.array_equal(fits[0].codewords_, fits[1].codewords_)


@pytest.mark.parametrize("init", DESIGNED)
def test_more_rows_in_any_order_equal_one_fit(blobs, init):
    X, y = blobs
    whole = RSLH(n_bits=4, init=init, random_state=0).fit(X, y)
    parts = np.array_split(np.random.default_rng(0).permutation(len(X)), 4)
    for order in (parts, parts[::-1]):
        hasher = RSLH(n_bits=4, init=init, random_state=0)
        for part in order:
            hasher.partial_fit(X[part], y[part], classes=np.arange(5))
        assert np.array_equal(hasher.codewords_, whole.codewords_)
        assert np.allclose(hasher.projection_, whole.projection_)
    halves = [
        RSLH(n_bits=4, init=init, random_state=0).partial_fit(X[part], y[part], classes=np.arange(5))
        for part in (slice(0, 100), slice(100, 300))
    ]
    assert np.array_equal(halves[0].merge(halves[1]).codewords_, whole.codewords_)


@pytest.mark.parametrize("init", DESIGNED)
def test_forgetting_equals_never_having_seen(blobs, init):
    X, y = blobs
    hasher = RSLH(n_bits=4, init=init, random_state=0).fit(X, y).forget(X[200:], y[200:])
    assert np.array_equal(hasher.codewords_, RSLH(n_bits=4, init=init, random_state=0).fit(X[:200], y[:200]).codewords_)


@pytest.mark.parametrize("init", ["distinct", "balanced", "separated", "annealed"])
def test_codewords_are_distinct_where_there_are_enough(digits, init, seed):
    X, y = digits
    for n_bits in (4, 5, 8):
        hasher = RSLH(n_bits=n_bits, init=init, boosting=None, random_state=seed).fit(X, y)
        assert n_distinct(hasher.codewords_) == 10


def test_runs_draw_their_own_starts(blobs):
    hasher = RSLH(n_bits=8, init="separated", boosting="positionwise", n_runs=3, random_state=0).fit(*blobs)
    assert len(hasher.convergence_) == 3
    alone = RSLH(n_bits=8, init="separated", boosting=None, random_state=0).fit(*blobs)
    assert not np.array_equal(hasher.codewords_, alone.codewords_)
    assert set(hasher.chosen_bits_ // 8) != {0}


def test_one_class_seen_so_far(blobs):
    X, y = blobs
    for init in STARTS:
        hasher = RSLH(n_bits=4, init=init, random_state=0).partial_fit(X[:1], y[:1], classes=np.arange(5))
        assert hasher.codewords_.shape == (1, 4)


def test_long_codes_are_annealed_in_parts(blobs):
    X, y = blobs
    hasher = RSLH(n_bits=35, init="annealed", boosting=None, random_state=0).fit(X, y)
    assert hasher.codewords_.shape == (5, 35)
    assert separation(hasher.codewords_)[0] >= 3  # in each of three parts codewords are distinct


def test_many_label_sets_have_codewords_of_their_own():
    confusion = 0.9 * np.eye(60) / 60 + 0.1 / 60**2
    C = annealed_codebook(np.eye(60, dtype=np.uint8), confusion, 7, np.random.RandomState(0))
    assert n_distinct(C) == 60


def test_polar_equals_the_alternation_on_full_matrices(tagged, seed):
    _, Y = tagged
    Y = Y[:80]
    groups = group_labels(Y, owner="test")
    S = np.where(Y @ Y.T > 0, 1.0, -1.0)
    J = np.eye(80) - 1 / 80
    C = np.where(np.random.RandomState(seed).normal(size=(len(groups.rows), 3)) >= 0, 1, -1)
    H = C[groups.ids].astype(float)
    for _ in range(codebooks.POLAR_ITERATIONS):
        U, _, Vt = np.linalg.svd(J @ S @ J @ H + 1e-3 * J @ H, full_matrices=False)
        H = np.where(J @ S @ J @ U @ Vt >= 0, 1.0, -1.0)
    found = codebooks._polar_run(groups.rows, np.bincount(groups.ids).astype(float), 3, np.random.RandomState(seed))
    assert np.array_equal(found[groups.ids], H)


def test_polar_takes_the_least_crowded_run(seed):
    rows, counts = np.eye(10, dtype=np.uint8), np.full(10, 7.0)
    rng = np.random.RandomState(seed)
    runs = [crowding(codebooks._polar_run(rows, counts, 6, rng)) for _ in range(codebooks.POLAR_RUNS)]
    assert crowding(polar_codebook(rows, counts, 6, np.random.RandomState(seed))) == min(runs)


def left_out_scores(X, y, penalty):
    """Ridge scores with intercept of every row, by a fit without it."""
    n, u = len(X), y.max() + 1
    S = np.empty((n, u))
    for i in range(n):
        rest = np.arange(n) != i
        center, bias = X[rest].mean(axis=0), np.bincount(y[rest], minlength=u) / (n - 1)
        A = X[rest] - center
        P = np.linalg.solve(A.T @ A + penalty * np.eye(X.shape[1]), A.T @ (np.eye(u)[y[rest]] - bias))
        S[i] = bias + (X[i] - center) @ P
    return S


def test_confusion_is_the_mean_score_of_rows_left_out(seed):
    """Generalised cross-validation against refits without every row; the penalty by those refits too."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=120)
    X = rng.normal(size=(3, 20))[y] + 1.5 * rng.normal(size=(120, 20))
    Z = X - X.mean(axis=0)
    largest = np.linalg.eigvalsh(Z.T @ Z)[-1]
    runs = [left_out_scores(X, y, relative * largest) for relative in PENALTIES]
    best = min(runs, key=lambda S: np.sum((np.eye(3)[y] - S) ** 2))
    exact = np.eye(3)[y].T @ best / 120
    assert np.allclose(expected_confusion(sums_of(X, y)), exact, atol=0.01)


def test_confusion_of_the_sums_is_that_of_a_classifier(digits):
    X, y = digits
    rng = np.random.default_rng(0)
    train, test = np.arange(len(X))[::2], np.tile(np.arange(len(X))[1::2], 20)  # errors enough to be counted
    seen = X[train] + 12 * rng.normal(size=X[train].shape)
    expected = expected_confusion(sums_of(seen, y[train]))
    assert expected.sum() == pytest.approx(1, abs=1e-4)
    assert np.array_equal(expected, expected.T)
    assert np.allclose(expected.sum(axis=0), np.bincount(y[train]) / len(train), atol=0.02)
    classifier = RidgeClassifier(alpha=100).fit(seen, y[train])
    predicted = classifier.predict(X[test] + 12 * rng.normal(size=X[test].shape))
    found = np.zeros((10, 10))
    np.add.at(found, (predicted, y[test]), 1 / len(test))
    apart = ~np.eye(10, dtype=bool)
    assert np.corrcoef(expected[apart], (found + found.T)[apart])[0, 1] > 0.8


def test_as_many_features_as_rows_leave_chance(seed):
    rng = np.random.default_rng(seed)
    expected = expected_confusion(sums_of(rng.normal(size=(30, 60)), np.arange(30) % 3))
    assert np.isfinite(expected).all()
    assert (expected.diagonal() > 0).all()


def test_annealed_puts_confused_classes_close_together():
    confusion = np.eye(8) + 0.3 * np.eye(8)[np.arange(8) ^ 1]  # classes 2k and 2k + 1 are taken for each other
    C = annealed_codebook(np.eye(8, dtype=np.uint8), confusion / confusion.sum(), 4, np.random.RandomState(0))
    distance = (4 - C.astype(int) @ C.T) / 2
    assert (distance[np.arange(8), np.arange(8) ^ 1] == 1).all()


@pytest.mark.data
def test_designed_codewords_retrieve_better_on_cifar10(real_features):
    X, y = real_features("cifar10_cnn256")
    rows = np.random.default_rng(0).permutation(len(X))[:6000]
    train, test = rows[:3000], rows[3000:]
    Z = X - X[train].mean(axis=0)
    value = {}
    for init in ("random", "distinct", "annealed"):
        fits = [RSLH(n_bits=4, init=init, boosting=None, random_state=s).fit(Z[train], y[train]) for s in range(3)]
        value[init] = np.mean([hasher.score(Z[test], y[test]) for hasher in fits])
    assert value["random"] < value["distinct"] < value["annealed"]
