"""EAPH from pairs of rows: the space, the memberships, the relevance, and what they are worth."""

from types import SimpleNamespace

import numpy as np
import pytest

from shorthash import EAPH, RelevantPairs, evaluate, load, make_hasher, save
from shorthash.errors import InvalidInput
from shorthash.learners.eaph import pairs as module
from shorthash.learners.eaph.groups import Memberships
from shorthash.learners.eaph.pairs import (
    PENALTY,
    Pairs,
    as_vector,
    drawn_loss,
    from_vector,
    learn_memberships,
    lift,
    mixture,
    partner_targets,
    relevance_of_pairs,
)


def drawn_pairs(y, n_pairs, seed=0):
    rng = np.random.default_rng(seed)
    first = rng.integers(len(y), size=n_pairs)
    second = np.array([rng.choice(np.flatnonzero(y == y[i])) for i in first])
    return np.column_stack([first, second])[first != second]


@pytest.fixture(scope="module")
def hidden():
    """Ten classes in five columns, under ten columns of noise in which neighbours lie."""
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=900)
    X = np.hstack([rng.normal(size=(10, 5))[y] * 2 + rng.normal(size=(900, 5)) / 2, rng.normal(size=(900, 10)) * 3])
    return X.astype(np.float32), y


@pytest.fixture(scope="module")
def fitted(hidden):
    X, y = hidden
    return EAPH(5, random_state=0, n_iter=6).fit(X[:700], RelevantPairs(drawn_pairs(y[:700], 1500)))


def class_map(hasher, X, y):
    return evaluate(hasher.transform(X[700:]), y[700:], hasher.transform(X[:700]), y[:700]).map


def test_pairs_find_classes_that_neighbours_do_not(hidden, fitted):
    X, y = hidden
    alone = class_map(EAPH(5, random_state=0, n_iter=6).fit(X[:700]), X, y)
    labelled = class_map(EAPH(5, random_state=0, n_iter=6).fit(X[:700], y[:700]), X, y)
    assert class_map(fitted, X, y) > alone + 0.75 * (labelled - alone)


def test_attributes(fitted):
    assert not hasattr(fitted, "classes_")
    assert not hasattr(fitted, "near_map_")
    taken = next(line for line in fitted.report_ if line["taken"])
    assert taken["lift"] == fitted.lift_ == max(line["lift"] for line in fitted.report_)
    assert fitted.posterior_.whitening is not None
    P = fitted.posterior_.predict(np.eye(15, dtype=np.float32))
    expected = P @ fitted.relevance_
    np.testing.assert_allclose(fitted.wanted(np.eye(15)), expected, rtol=1e-3, atol=2.0**-22 * expected.max())


def test_codes_do_not_depend_on_the_batch_and_are_saved(hidden, fitted, tmp_path):
    X, _ = hidden
    codes = fitted.transform(X)
    assert np.array_equal(codes[:50], np.concatenate([fitted.transform(row[None]) for row in X[:50]]))
    again = load(save(fitted, tmp_path / "model"))
    assert np.array_equal(again.transform(X), codes)
    assert np.array_equal(again.probes(X[:5], 3), fitted.probes(X[:5], 3))


def test_labels_after_pairs_and_pairs_after_labels(hidden):
    X, y = hidden
    given = RelevantPairs(drawn_pairs(y[:100], 60))
    hasher = EAPH(4, random_state=0, n_iter=2).fit(X[:100], y[:100]).fit(X[:100], given)
    assert not hasattr(hasher, "classes_")
    assert np.array_equal(hasher.transform(X), EAPH(4, random_state=0, n_iter=2).fit(X[:100], given).transform(X))
    assert not hasattr(hasher.fit(X[:100]), "lift_")
    assert not hasattr(hasher.fit(X[:100], y[:100]), "relevance_")


@pytest.mark.parametrize("metric", ["euclidean", "dot"])
@pytest.mark.parametrize("n_pairs", [1, 12])
def test_few_pairs_and_other_metrics(hidden, metric, n_pairs):
    X, y = hidden
    hasher = make_hasher("auto", 4, random_state=0, metric=metric, n_iter=2)
    given = RelevantPairs(drawn_pairs(y[:60], 30)[:n_pairs], np.arange(1, n_pairs + 1))
    assert hasher.fit(X[:60], given).transform(X).shape == (900, 4)


def test_partners_that_are_equal(hidden):
    X = np.repeat(hidden[0][:40], 2, axis=0)
    hasher = EAPH(4, random_state=0, n_iter=2).fit(X, RelevantPairs(np.arange(80).reshape(40, 2)))
    assert hasher.posterior_.whitening is None
    assert hasher.lift_ > 1


@pytest.mark.parametrize(
    ("pairs", "weights", "message"),
    [
        ([[0, 1, 2]], None, r"shape \(n_pairs, 2\)"),
        (np.empty((0, 2), dtype=int), None, "at least one pair"),
        ([[0.5, 1.0]], None, "whole numbers"),
        ([[0, 1], [3, 3]], None, "pair 1 is row 3 twice"),
        ([[0, 1]], [1, 2], "one number per pair"),
        ([[0, 1], [1, 2]], [1, -2], "pair 1 has -2"),
        ([[0, 1]], [float("nan")], "finite and above 0"),
    ],
)
def test_bad_pairs(pairs, weights, message):
    with pytest.raises(InvalidInput, match=message):
        RelevantPairs(pairs, weights)


def test_rows_that_are_not_there_and_methods_that_need_labels(hidden):
    X, y = hidden
    for wrong in ([[0, 1], [2, 50]], [[-1, 3], [0, 1]]):
        with pytest.raises(InvalidInput, match="rows 0 to 49 of X"):
            EAPH(4).fit(X[:50], RelevantPairs(wrong))
    with pytest.raises(InvalidInput, match="are no labels"):
        make_hasher("rslh", 4).fit(X[:50], RelevantPairs([[0, 1]]))
    with pytest.raises(InvalidInput, match="fitted with labels"):
        EAPH(3, n_iter=1).fit(X[:50], RelevantPairs([[0, 1]])).partial_fit(X[:50], y[:50])


def slow_relevance(P, first, second, weights, m, steps=10):
    """Expectation maximisation pair by pair, in either order."""
    K = P.shape[1]
    R = np.full((K, K), 1 / len(P))
    for _ in range(steps):
        counts, chances = np.zeros((K, K)), np.zeros((K, K))
        for i, j, w in [*zip(first, second, weights, strict=True), *zip(second, first, weights, strict=True)]:
            parts = np.array([[P[i, a] * R[a, b] * P[j, b] for b in range(K)] for a in range(K)])
            counts += w * parts / parts.sum()
            chances += w * np.outer(P[i], m)
        R = counts / chances
    return (R + R.T) / 2


@pytest.fixture(scope="module")
def small():
    rng = np.random.default_rng(1)
    P = rng.dirichlet([0.5] * 4, size=12).astype(np.float32)
    first, second = rng.integers(6, size=20), rng.integers(6, 12, size=20)
    return P, Pairs(np.zeros((12, 2), dtype=np.float32), first, second, rng.uniform(0.5, 2, size=20))


def test_relevance_equals_the_slow_estimate(small):
    P, pairs = small
    m = np.array([0.1, 0.2, 0.3, 0.4])
    expected = slow_relevance(P, pairs.first, pairs.second, pairs.weights, m)
    assert relevance_of_pairs(P, pairs, m) == pytest.approx(expected, rel=1e-5)


def test_a_weight_counts_as_so_many_pairs(small):
    P, pairs = small
    m = P.mean(axis=0)
    counts = np.arange(20) % 3 + 1
    weighted = Pairs(pairs.X, pairs.first, pairs.second, counts.astype(float))
    repeated = Pairs(pairs.X, np.repeat(pairs.first, counts), np.repeat(pairs.second, counts), np.ones(counts.sum()))
    one, two = (relevance_of_pairs(P, some, m) for some in (weighted, repeated))
    assert one == pytest.approx(two)
    one, two = (partner_targets(P, one, some) for some in (weighted, repeated))
    assert one == pytest.approx(two, rel=1e-5)


def test_targets_are_what_partners_make_likely(small, monkeypatch):
    P, pairs = small
    R = np.random.default_rng(2).uniform(size=(4, 4))
    R = R + R.T
    expected = np.zeros((12, 4))
    for i, j, w in zip(pairs.first, pairs.second, pairs.weights, strict=True):
        for own, other in ((i, j), (j, i)):
            likely = P[own] * (R @ P[other])
            expected[own] += w * likely / likely.sum()
    expected /= np.maximum(expected.sum(axis=1, keepdims=True), 1e-9)
    monkeypatch.setattr(module, "BLOCK", 7)
    assert partner_targets(P, R, pairs) == pytest.approx(expected, rel=1e-4)


def test_rounds_end_when_held_out_pairs_are_no_more_likely(small, monkeypatch):
    _, pairs = small
    X = np.random.default_rng(3).normal(size=(12, 2)).astype(np.float32)
    start = Memberships(X[:4].astype(np.float64), 1.0, unit=False)
    pairs = Pairs(X, pairs.first, pairs.second, pairs.weights)
    seen = []

    def likelihood(model):
        seen.append(model)
        return [1.0, 2.0, 3.0, 2.5][len(seen) - 1]

    best = learn_memberships(start, pairs, SimpleNamespace(rows=X, likelihood=likelihood))
    assert seen[0] is start
    assert best is seen[2]
    assert len(seen) == 4
    monkeypatch.setattr(module, "PENALTY", 1e6)  # weights stay where they begin
    seen.clear()
    assert learn_memberships(start, pairs, SimpleNamespace(rows=X, likelihood=likelihood)).centers == pytest.approx(
        start.centers, abs=1e-3
    )


def test_the_mixture_is_the_likeliest():
    rng = np.random.default_rng(0)
    chances, weights = rng.gamma(1.0, size=(200, 3)) * [1.2, 1.0, 0.4], rng.uniform(size=200)
    shares, value = mixture(chances, weights)
    assert shares.sum() == pytest.approx(1)
    grid = [(a, b, 1 - a - b) for a in np.linspace(0, 1, 41) for b in np.linspace(0, 1 - a, 41)]
    best = max(np.average(np.log(chances @ point + 1e-12), weights=weights) for point in grid)
    assert value == pytest.approx(best, abs=2e-3)


def test_lift_is_the_precision_of_partners_against_chance():
    rng = np.random.default_rng(0)
    items, queries = (rng.integers(16, size=n).astype(np.uint8) for n in (400, 30))
    partners = np.where(rng.random(30) < 0.5, queries, rng.integers(16, size=30)).astype(np.uint8)
    weights = rng.uniform(0.5, 2, size=30)
    places = []
    for q, p in zip(queries, partners, strict=True):
        distance = np.sort([bin(q ^ z).count("1") for z in [*items, p]])
        own = np.flatnonzero(distance == bin(q ^ p).count("1"))
        places.append(np.linspace(own[0] / 401, (own[-1] + 1) / 401, 2001)[1:])  # where in its level the partner stands
    mass = np.repeat(weights / weights.sum() / 2000, 2000)
    u = np.concatenate(places)
    order = np.argsort(u)
    found = np.cumsum(mass[order])
    expected = (mass[order] * found / u[order]).sum()
    assert lift(queries, partners, items, 4, weights) == pytest.approx(expected, rel=0.01)
    assert expected > 1.5
    same = np.zeros(30, dtype=np.uint8)
    assert lift(same, same, np.zeros(400, dtype=np.uint8), 4, weights) == pytest.approx(1, rel=0.01)


def test_the_slope_of_the_loss():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(40, 3)).astype(np.float32)
    W, W0, b = rng.normal(size=(4, 3)), rng.normal(size=(4, 3)), rng.normal(size=4)
    scores = X @ W.T.astype(np.float32) + b.astype(np.float32)
    P = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    v = np.concatenate([W.ravel(), b])
    value, slope = drawn_loss(v, X, P, W0)  # the targets are met: the penalty alone is left
    entropy = -(P * np.log(P)).sum(axis=1).mean()
    assert value == pytest.approx(entropy + PENALTY / 2 * ((W - W0) ** 2).sum(), rel=1e-6)
    np.testing.assert_allclose(slope, np.append(PENALTY * (W - W0), np.zeros(4)), atol=1e-6)
    targets, step = P[::-1].copy(), 1e-2
    _, slope = drawn_loss(v, X, targets, W0)
    for i, e in enumerate(np.eye(len(v)) * step):
        rise = drawn_loss(v + e, X, targets, W0)[0] - drawn_loss(v - e, X, targets, W0)[0]
        assert rise / (2 * step) == pytest.approx(slope[i], abs=1e-3)


def test_memberships_with_a_space_and_a_bias_are_the_softmax_of_distances():
    rng = np.random.default_rng(0)
    V, C, X = rng.normal(size=(3, 3)), rng.normal(size=(4, 3)), rng.normal(size=(6, 3)).astype(np.float32)
    model = Memberships(C, 1.7, unit=True, shift=np.ones(3), whitening=V, bias=np.arange(4.0))
    Z = (X - 1) @ V
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    S = 1.7 * (np.arange(4) - ((Z[:, None] - C) ** 2).sum(axis=2))
    assert model.predict(X) == pytest.approx(np.exp(S) / np.exp(S).sum(axis=1, keepdims=True), rel=1e-4)
    assert model.scores(model.prepared(X)) == pytest.approx(S / 1.7 + (Z**2).sum(axis=1, keepdims=True), rel=1e-4)
    again = from_vector(as_vector(model), model)
    np.testing.assert_allclose(again.centers, C, atol=1e-12)
    np.testing.assert_allclose(again.bias, np.arange(4), atol=1e-12)
