import numpy as np
import pytest

from shorthash.learners.solvers import Ridge, polar


def test_ridge_is_its_definition():
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(40, 6)), rng.normal(size=(40, 3))
    expected = np.linalg.inv(X.T @ X + 0.3 * np.eye(6)) @ X.T @ T
    assert np.allclose(Ridge(X.T @ X, 0.3).solve(X.T @ T), expected, atol=1e-12)


def test_ridge_without_penalty_on_dependent_features_is_the_pseudo_inverse():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(20, 3)), 2, axis=1)
    T = rng.normal(size=(20, 2))
    assert np.allclose(Ridge(X.T @ X, 0.0).solve(X.T @ T), np.linalg.pinv(X) @ T, atol=1e-8)


def test_ridge_leaves_the_gram_matrix_alone():
    K = np.eye(3)
    Ridge(K, 1.0)
    assert np.array_equal(K, np.eye(3))


def test_polar_equals_the_thin_svd():
    Q = np.random.default_rng(0).normal(size=(50, 6))
    U, _, Vt = np.linalg.svd(Q, full_matrices=False)
    assert np.allclose(polar(Q), U @ Vt, atol=1e-12)


def test_polar_is_orthonormal_even_without_full_rank():
    Q = np.random.default_rng(0).normal(size=(50, 2)) @ np.random.default_rng(1).normal(size=(2, 6))
    B = polar(Q)
    assert np.allclose(B.T @ B, np.eye(6), atol=1e-12)


@pytest.mark.parametrize("rank", [2, 6])
def test_no_orthonormal_matrix_beats_the_polar_factor(rank):
    rng = np.random.default_rng(0)
    Q = rng.normal(size=(30, rank)) @ rng.normal(size=(rank, 6))
    best = np.trace(polar(Q).T @ Q)
    for _ in range(50):
        other, _ = np.linalg.qr(rng.normal(size=(30, 6)))
        assert np.trace(other.T @ Q) <= best + 1e-9
