import numpy as np
import pytest

from shorthash.learners.solvers import Ridge, polar


def test_ridge_is_its_definition():
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(40, 6)), rng.normal(size=(40, 3))
    expected = np.linalg.inv(X.T @ X + 0.3 * np.eye(6)) @ X.T @ T
    assert np.allclose(Ridge(X.T @ X, 0.3).solve(X.T @ T), expected, atol=1e-12)


@pytest.mark.parametrize("draw", range(10))
@pytest.mark.parametrize("copies", [2, 5])
def test_ridge_without_penalty_on_dependent_features_is_the_pseudo_inverse(draw, copies):
    """Whether Cholesky of a singular matrix succeeds depends on the last digit, hence on the CPU."""
    rng = np.random.default_rng(draw)
    X = np.repeat(rng.normal(size=(40, 6)), copies, axis=1)
    T = rng.normal(size=(40, 2))
    assert np.allclose(Ridge(X.T @ X, 0.0).solve(X.T @ T), np.linalg.pinv(X) @ T, atol=1e-10)


def test_ridge_with_a_penalty_below_rounding_is_the_pseudo_inverse():
    rng = np.random.default_rng(0)
    X = 1e9 * np.repeat(rng.normal(size=(40, 6)), 2, axis=1)
    T = rng.normal(size=(40, 2))
    assert np.allclose(Ridge(X.T @ X, 1e-3).solve(X.T @ T), np.linalg.pinv(X) @ T, atol=1e-19)


def test_ridge_does_not_take_other_units_for_dependent_features():
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(60, 4)), rng.normal(size=(60, 2))
    units = np.array([1e9, 1.0, 1e-3, 1e-9])
    expected = np.linalg.lstsq(X, T, rcond=None)[0] / units[:, None]
    assert np.allclose(Ridge((X * units).T @ (X * units), 0.0).solve((X * units).T @ T), expected, rtol=1e-9, atol=0)


def test_ridge_of_a_zero_feature_gives_it_no_weight():
    X = np.random.default_rng(0).normal(size=(30, 3)) * [1.0, 0.0, 1.0]
    assert Ridge(X.T @ X, 0.0).solve(X.T @ X[:, :1])[1, 0] == 0


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
