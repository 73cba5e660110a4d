"""COSDISH against loops and exhaustive search."""

import itertools

import numpy as np
import pytest
from dense_methods import indicator, ridge, samples_of, shared_labels, signs, without_constant_bits
from sklearn.preprocessing import scale

from shorthash.errors import InvalidInput
from shorthash.learners import cosdish
from shorthash.learners.cosdish import COSDISH


@pytest.fixture(params=["single", "multi"])
def data(request, blobs, tagged):
    X, y = blobs if request.param == "single" else tagged
    return scale(X[:40]), y[:40]


@pytest.fixture(params=[-1.0, 1.0], ids=["negative", "positive"])
def sampled(request, data, seed):
    X, y = data
    columns = np.random.default_rng(seed).choice(40, size=5, replace=False)
    return cosdish._similarity(samples_of(X, y), columns, request.param), columns


def test_similarity_of_the_columns(data):
    X, y = data
    columns = np.array([7, 30, 2])
    full = shared_labels(indicator(y))[:, columns]
    ratio = full.sum() / (1 - full).sum()
    negative = cosdish._similarity(samples_of(X, y), columns, -1.0)
    assert np.allclose(negative, np.where(full == 1, 1.0, -ratio))
    assert negative.sum() == pytest.approx(0)
    assert np.allclose(cosdish._similarity(samples_of(X, y), columns, 1.0), np.where(full == 1, 1.0, ratio))


def test_the_others_minimise_the_weighted_absolute_error(sampled, seed):
    S, columns = sampled
    H = signs(np.random.default_rng(seed).normal(size=(40, 4))).astype(np.int8)
    found = cosdish._gamma_step(H, S, columns)
    every = np.array(list(itertools.product([-1.0, 1.0], repeat=4)))
    for i in range(40):
        if i in columns:
            assert np.array_equal(found[i], H[i])
            continue
        errors = np.abs(S[i]) * np.abs(4 * np.sign(S[i]) - every @ H[columns].T.astype(float))
        own = np.abs(S[i]) * np.abs(4 * np.sign(S[i]) - found[i] @ H[columns].T.astype(float))
        assert own.sum() <= errors.sum(axis=1).min() + 1e-4


def test_bits_stay_where_nothing_speaks_for_either_value():
    H = np.array([[1, -1], [-1, 1], [1, -1], [1, 1]], dtype=np.int8)
    S = np.array([[0.5, 0.5], [0.5, 0.5], [1.0, -1.0], [1.0, 1.0]])
    fresh = cosdish._gamma_step(H, S, np.array([0, 1]))
    assert fresh.tolist() == [[1, -1], [-1, 1], [1, -1], [1, 1]]


def squared_error(H, S, columns, bit):
    """Of the first ``bit + 1`` bits, on the sampled columns."""
    part = H[:, : bit + 1].astype(float)
    return ((H.shape[1] * S - part @ part[columns].T) ** 2).sum()


def test_no_bit_step_raises_its_cost(sampled, seed):
    """Bit k against its old value, the bits before it being new."""
    S, columns = sampled
    H = signs(np.random.default_rng(seed).normal(size=(40, 4))).astype(np.int8)
    changed = 0
    for _ in range(5):
        new = cosdish._omega_step(H, S, columns)
        others = np.setdiff1d(np.arange(40), columns)
        assert np.array_equal(new[others], H[others])
        for bit in range(4):
            mixed = np.hstack([new[:, :bit], H[:, bit:]])
            assert squared_error(new, S, columns, bit) <= squared_error(mixed, S, columns, bit) + 1e-9
        changed += int((new != H).sum())
        H = cosdish._gamma_step(new, S, columns)
    assert changed > 0


def by_clusters(A, p):
    """The approximation as the paper describes it: rows of a Cholesky factor, the tightest cluster of half of them."""
    k = len(p)
    Q = np.zeros((k + 1, k + 1))
    Q[:k, :k] = 4 * A
    Q[:k, k] = Q[k, :k] = p - 2 * A @ np.ones(k)
    Q = Q / np.abs(Q).max()
    points = np.linalg.cholesky(1e4 * np.eye(k + 1) - Q)  # rows are the items
    best, best_scatter = None, np.inf
    for centre in range(k + 1):
        distances = ((points[:k] - points[centre]) ** 2).sum(axis=1)
        members = [*np.argsort(distances, kind="stable")[: (k + 2) // 2 - 1], k]
        scatter = ((points[members] - points[members].mean(axis=0)) ** 2).sum()
        if scatter < best_scatter - 1e-9:
            best, best_scatter = members, scatter
    b = -np.ones(k + 1)
    b[best] = 1.0
    return b[:k]


@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_the_approximation_is_that_of_the_paper(k):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        A = rng.normal(size=(k, k))
        A = A + A.T
        np.fill_diagonal(A, 0.0)
        p = rng.normal(size=k)
        found = cosdish._balanced_half(A, p)
        assert (found == 1).sum() == (k + 2) // 2 - 1
        assert found @ A @ found + p @ found == pytest.approx(
            by_clusters(A, p) @ A @ by_clusters(A, p) + p @ by_clusters(A, p)
        )


def test_the_approximation_is_good(seed):
    """Among balanced signs, never worse than the average, and often close to the best."""
    rng = np.random.default_rng(seed)
    shares = []
    for _ in range(30):
        A = rng.normal(size=(8, 8))
        A = A + A.T
        np.fill_diagonal(A, 0.0)
        p = rng.normal(size=8)
        costs = np.array(
            [b @ A @ b + p @ b for b in itertools.product([-1.0, 1.0], repeat=8) if sum(v == 1 for v in b) == 4]
        )
        found = cosdish._balanced_half(A, p)
        shares.append((costs < found @ A @ found + p @ found - 1e-9).mean())
    assert max(shares) < 0.5
    assert np.mean(shares) < 0.1


def test_the_hash_function_regresses_the_codes(data):
    X, y = data
    hasher = COSDISH(4, ridge=3.0, random_state=0).fit(X, y)
    assert np.allclose(
        hasher.projection_, without_constant_bits(ridge(X, hasher.codes_.astype(float), 3.0), hasher.codes_)
    )


def test_codes_follow_the_classes(blobs):
    X, y = blobs
    for dissimilar in ("negative", "positive"):
        hasher = COSDISH(8, dissimilar=dissimilar, random_state=0).fit(X, y)
        assert (hasher.codes_ == hasher.codewords_[y]).mean() > 0.98


def test_bad_choice(blobs):
    with pytest.raises(InvalidInput, match="'dissimilar' parameter of COSDISH must be one of 'negative', 'positive'"):
        COSDISH(dissimilar="zero").fit(*blobs)
