"""LFH against loops."""

import numpy as np
import pytest
from dense_methods import indicator, ridge, samples_of, shared_labels, without_constant_bits
from sklearn.preprocessing import scale

from shorthash.errors import InvalidInput
from shorthash.learners import lfh
from shorthash.learners.lfh import LFH


@pytest.fixture(params=["single", "multi"])
def data(request, blobs, tagged):
    X, y = blobs if request.param == "single" else tagged
    return scale(X[:60]), y[:60]


def posterior(u, i, U, columns, S, b):
    """Of one factor, given the sampled columns; pairs count in both orders."""
    value = -(u @ u) / (2 * b)
    for j in columns:
        theta = u @ U[j] / 2
        value += 2 * (S[i, j] * theta - np.log1p(np.exp(theta)))
    return value


def test_no_step_lowers_the_posterior(data, seed):
    S = shared_labels(indicator(data[1]))
    rng = np.random.default_rng(seed)
    U = 2 * rng.normal(size=(60, 4))
    for _ in range(10):
        columns = rng.choice(60, size=4, replace=False)
        moved = lfh._u_step(U, columns, S[:, columns].astype(bool), b=2.0)
        for i in range(60):
            if i in columns:
                assert np.array_equal(moved[i], U[i])
            else:
                before, after = (posterior(u[i], i, U, columns, S, 2.0) for u in (U, moved))
                assert after >= before - 1e-9
        U = moved


def test_a_step_goes_to_the_top_of_its_bound(data, seed):
    """Row by row: gradient of the posterior over the bound of its curvature, 1/8 of the sampled factors' products."""
    S = shared_labels(indicator(data[1]))
    rng = np.random.default_rng(seed)
    U, columns, b = 2 * rng.normal(size=(60, 4)), rng.choice(60, size=4, replace=False), 2.0
    moved = lfh._u_step(U, columns, S[:, columns].astype(bool), b)
    curvature = np.eye(4) / b + sum(np.outer(U[j], U[j]) for j in columns) / 8
    for i in np.setdiff1d(np.arange(60), columns):
        slope = -U[i] / b + sum((S[i, j] - 1 / (1 + np.exp(-U[i] @ U[j] / 2))) * U[j] for j in columns)
        assert np.allclose(curvature @ (moved[i] - U[i]), slope)


def test_repeated_steps_on_the_same_columns_reach_a_maximum(data, seed):
    S = shared_labels(indicator(data[1]))
    columns = np.array([3, 14, 15, 9])
    U = np.random.default_rng(seed).normal(size=(60, 4))
    for _ in range(500):
        U = lfh._u_step(U, columns, S[:, columns].astype(bool), b=2.0)
    for i in (0, 1, 2):
        h = 1e-5
        for e in np.eye(4):
            up, down = (posterior(U[i] + s * h * e, i, U, columns, S, 2.0) for s in (1, -1))
            assert abs(up - down) / (2 * h) < 1e-6


def test_columns_of_the_similarity(data):
    X, y = data
    columns = np.array([5, 0, 41])
    assert np.array_equal(lfh._similarity(samples_of(X, y), columns), shared_labels(indicator(y))[:, columns] == 1)


def test_starts_from_principal_scores(data):
    X, y = data
    U = lfh._start(samples_of(X, y), 4)
    left, s, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    assert np.allclose(np.abs(U), np.abs(left[:, :4] * s[:4]))
    shifted = lfh._start(samples_of(X + 100.0, y), 4)
    assert np.allclose(U, shifted)


def test_with_few_features_it_starts_from_them_in_turn(data):
    X, y = data
    U = lfh._start(samples_of(X[:, :3], y), 5)
    assert np.allclose(U, X[:, [0, 1, 2, 0, 1]])


def test_the_hash_function_regresses_the_factors(data):
    X, y = data
    hasher = LFH(4, lam=2.0, max_iter=1, random_state=0).fit(X, y)
    columns = lfh.sample_without_replacement(60, 4, random_state=np.random.RandomState(0))
    start = lfh._start(samples_of(X, y), 4)
    U = lfh._u_step(start, columns, shared_labels(indicator(y))[:, columns] == 1, b=30 / 4)
    assert np.array_equal(hasher.codes_, np.where(U >= 0, 1, -1))
    assert np.allclose(hasher.projection_, without_constant_bits(ridge(X, U, 2.0 * 60 / 12), hasher.codes_))
    assert hasher.n_iter_ == 1


def test_bad_prior(blobs):
    with pytest.raises(InvalidInput, match="'beta' parameter of LFH must be a finite float > 0"):
        LFH(beta=0).fit(*blobs)
