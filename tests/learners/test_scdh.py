"""SCDH against full matrices; its constraints."""

import numpy as np
import pytest
from dense_methods import dense_scdh, indicator, samples_of, signs, without_constant_bits

from shorthash.errors import InvalidInput
from shorthash.learners import scdh
from shorthash.learners.scdh import SCDH

LIVELY = {"alpha": 40.0, "beta": 3.0, "lam": 60.0}


@pytest.fixture(params=["single", "multi"])
def data(request, blobs, tagged):
    X, y = blobs if request.param == "single" else tagged
    return X[:60] - X[:60].mean(axis=0), y[:60]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("weights", [{}, LIVELY], ids=["paper", "lively"])
def test_equals_full_matrices(data, weights, seed):
    X, y = data
    hasher = SCDH(3, **weights, random_state=seed).fit(X, y)
    H0 = signs(np.random.RandomState(seed).normal(size=(60, 3)))
    H, P, steps = dense_scdh(X, indicator(y), H0, hasher.alpha, hasher.beta, hasher.lam, hasher.n_iter_)
    assert np.array_equal(hasher.codes_, H)
    assert np.allclose(hasher.projection_, without_constant_bits(P, H))
    assert np.allclose(hasher.objective_, steps[2::3])


@pytest.mark.parametrize("weights", [(0.1, 1.0, 10.0), tuple(LIVELY.values())], ids=["paper", "lively"])
def test_no_step_raises_the_objective(data, weights, seed):
    X, y = data
    H0 = signs(np.random.default_rng(seed).normal(size=(60, 3)))
    *_, steps = dense_scdh(X, indicator(y), H0, *weights, n_iter=8)
    assert np.all(np.diff(steps) <= 1e-9 * np.abs(steps[:-1]))


@pytest.mark.parametrize("n_bits", [1, 3, 8, 20])
def test_z_is_balanced_and_uncorrelated(data, n_bits, seed):
    """Z'Z = n I and Z'1 = 0, also where random directions must complete it."""
    X, y = data
    rng = np.random.RandomState(seed)
    pairs = scdh._Pairs(samples_of(X, y), n_bits)
    H = signs(rng.normal(size=(60, n_bits))).astype(np.int8)
    H[:] = H[0] if n_bits == 20 else H  # equal codes: J C = 0, and everything is free
    Z = scdh._z_step(pairs, H, 0.1, rng)
    assert np.allclose(Z.T @ Z, 60 * np.eye(n_bits), atol=1e-8)
    assert np.allclose(Z.sum(axis=0), 0, atol=1e-8)


def test_the_completion_loses_nothing(seed):
    """Any completion of the polar factor reaches the nuclear norm."""
    rng = np.random.RandomState(seed)
    Q = rng.normal(size=(30, 3)) @ rng.normal(size=(3, 7))
    Q -= Q.mean(axis=0)
    Z = scdh._balanced_polar(Q, rng)
    assert np.sum(Z * Q) == pytest.approx(np.linalg.norm(Q, "nuc"))
    assert np.allclose(Z.T @ Z, np.eye(7))


def test_similarity_products_equal_those_of_the_full_matrix(data, seed):
    X, y = data
    Y = indicator(y)
    Yt = Y / np.linalg.norm(Y, axis=1, keepdims=True)
    S = 2 * Yt @ Yt.T - 1
    rng = np.random.default_rng(seed)
    Z, H = rng.normal(size=(60, 4)), signs(rng.normal(size=(60, 4)))
    pairs = scdh._Pairs(samples_of(X, y), 4)
    assert np.allclose(pairs.times(Z), 4 * S @ Z)
    assert pairs.error(Z, H.astype(np.int8)) == pytest.approx(((4 * S - Z @ H.T) ** 2).sum())


def test_more_bits_than_classes(blobs):
    X, y = blobs
    hasher = SCDH(16, random_state=0, max_iter=30).fit(X, y)
    assert np.all(np.diff(hasher.objective_) <= 1e-9 * hasher.objective_[:-1])


def test_balanced_bits_spread_the_codewords(digits):
    """Balance and decorrelation are what it adds: fewer classes collide than with random codewords."""
    X, y = digits
    rng = np.random.default_rng(0)
    by_chance = [len(np.unique(signs(rng.normal(size=(10, 4))), axis=0)) for _ in range(200)]
    fits = [SCDH(4, random_state=seed).fit(X - X.mean(axis=0), y) for seed in range(8)]
    assert np.mean([len(np.unique(h.codewords_, axis=0)) for h in fits]) > np.mean(by_chance) + 0.5
    assert np.mean([np.abs(h.codes_.mean(axis=0)).mean() for h in fits]) < 0.2  # 0.25 by chance


def test_lam_must_be_positive(blobs):
    with pytest.raises(InvalidInput, match="'lam' parameter of SCDH must be a finite float > 0"):
        SCDH(lam=0).fit(*blobs)
