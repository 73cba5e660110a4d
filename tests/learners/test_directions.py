import numpy as np
import pytest

from shorthash.data.rows import Rows
from shorthash.learners.solvers import centred, principal_directions, random_rotation, scatter


def rows_of(X):
    return Rows(X, "test")


def test_centring_and_scatter_equal_their_definitions(seed):
    X = np.random.default_rng(seed).normal(size=(5000, 4)) + np.array([3, -2, 0, 100])  # more rows than a batch
    mean, rows = centred(rows_of(X.astype(np.float32)))
    C = X.astype(np.float32).astype(float)
    assert np.allclose(mean, C.mean(axis=0), atol=1e-10)
    assert np.allclose(scatter(rows), (C - C.mean(axis=0)).T @ (C - C.mean(axis=0)), rtol=1e-10)


def test_directions_are_those_of_the_svd_of_centred_rows(seed):
    X = np.random.default_rng(seed).normal(size=(60, 7)) * np.arange(1, 8)
    _, rows = centred(rows_of(X))
    V = principal_directions(rows, 3)
    _, _, Vt = np.linalg.svd(X - X.mean(axis=0))
    assert np.allclose(np.abs(V.T @ Vt[:3].T), np.eye(3), atol=1e-8)
    assert (V[np.abs(V).argmax(axis=0), np.arange(3)] > 0).all()


def test_a_large_mean_costs_no_digits():
    X = np.random.default_rng(0).normal(size=(200, 3)) * [3, 2, 1]
    near = principal_directions(centred(rows_of(X))[1], 3)
    far = principal_directions(centred(rows_of(X + 1e6))[1], 3)
    assert np.allclose(near, far, atol=1e-6)


def test_directions_without_variance_come_last():
    X = np.outer(np.arange(10.0), [3.0, 4.0, 0.0])
    V = principal_directions(centred(rows_of(X))[1], 3)
    assert np.allclose(V[:, 0], [0.6, 0.8, 0])
    assert np.allclose(V.T @ V, np.eye(3))


@pytest.mark.parametrize("n", [1, 2, 9])
def test_random_rotations_are_orthogonal(n):
    R = random_rotation(n, np.random.RandomState(0))
    assert np.allclose(R.T @ R, np.eye(n))


def test_random_rotations_point_everywhere():
    """Without fixing the signs of the QR factorisation, the first entry would never be positive."""
    first = [random_rotation(3, np.random.RandomState(s))[0, 0] for s in range(400)]
    assert abs(np.mean(np.array(first) > 0) - 0.5) < 0.08
    assert abs(np.mean(np.square(first)) - 1 / 3) < 0.05
