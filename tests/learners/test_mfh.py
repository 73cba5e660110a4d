import numpy as np
import pytest
from scipy.optimize import approx_fprime

from shorthash.errors import InvalidInput
from shorthash.learners.mfh import MFH

LAM, MU, GAMMA = 0.7, 5.0, 0.3
WEIGHTS = {"lam": LAM, "mu": MU, "gamma": GAMMA}


def objective(X, U, V, P):
    """The definition."""
    sizes = np.sum(V**2) + np.sum(P**2) + np.sum(U**2)
    return LAM * np.sum((X - V @ U) ** 2) + MU * np.sum((V - X @ P) ** 2) + GAMMA * sizes


@pytest.fixture
def X(seed):
    X = np.random.default_rng(seed).normal(size=(30, 5)) * [3, 2, 1, 1, 0.1]
    return X - X.mean(axis=0)


def latent(X, U, P):
    """The V that belongs to U and P: stationary in the dense objective."""
    return X @ (LAM * U.T + MU * P) @ np.linalg.inv(LAM * U @ U.T + (MU + GAMMA) * np.eye(len(U)))


def test_the_objective_is_its_definition_and_never_rises(X, seed):
    for turns in (1, 2, 7):
        hasher = MFH(3, max_iter=turns, tol=0, random_state=seed, **WEIGHTS).fit(X)
        U, P = hasher.basis_, hasher.projection_
        assert len(hasher.objective_) == turns
        assert hasher.objective_[-1] == pytest.approx(objective(X, U, latent(X, U, P), P))
    assert (np.diff(hasher.objective_) <= 1e-9).all()
    assert hasher.objective_[-1] < hasher.objective_[0]


def test_latent_rows_and_projection_are_stationary_together(X, seed):
    hasher = MFH(3, max_iter=2, tol=0, random_state=seed, **WEIGHTS).fit(X)
    U, P = hasher.basis_, hasher.projection_
    V = latent(X, U, P)
    by_latent = approx_fprime(V.ravel(), lambda v: objective(X, U, v.reshape(V.shape), P), 1e-6)
    by_projection = approx_fprime(P.ravel(), lambda p: objective(X, U, V, p.reshape(P.shape)), 1e-6)
    assert np.abs(by_latent).max() < 1e-3
    assert np.abs(by_projection).max() < 1e-3
    assert np.allclose(P, np.linalg.solve(X.T @ X + GAMMA / MU * np.eye(5), X.T @ V))


def test_the_basis_is_the_ridge_of_the_rows_on_the_latent_rows(X, seed):
    """Two runs from one start, one a turn longer: its U comes from the V of the shorter."""
    short = MFH(3, max_iter=2, tol=0, random_state=seed, **WEIGHTS).fit(X)
    long = MFH(3, max_iter=3, tol=0, random_state=seed, **WEIGHTS).fit(X)
    V = latent(X, short.basis_, short.projection_)
    assert np.allclose(long.basis_, np.linalg.solve(V.T @ V + GAMMA / LAM * np.eye(3), V.T @ X))


def test_habir_takes_its_own_steps(X, seed):
    rng = np.random.RandomState(seed)
    V = rng.uniform(size=(30, 3))
    P = rng.uniform(size=(5, 3))
    for _ in range(4):
        U = np.linalg.solve(V.T @ V + GAMMA * np.eye(3), V.T @ X)
        V = X @ (LAM * U.T + MU * P) @ np.linalg.inv(LAM * U @ U.T + (2 * MU + GAMMA) * np.eye(3))
        P = np.linalg.solve(X.T @ X + GAMMA * np.eye(5), X.T @ V)
    hasher = MFH(3, max_iter=4, tol=0, habir=True, random_state=seed, **WEIGHTS).fit(X)
    assert np.allclose(hasher.projection_, P)
    assert np.allclose(hasher.basis_, U)


def test_without_ridge_it_spans_the_principal_directions(X, seed):
    """Limit case: gamma = 0 leaves the best factorisation of rank L, which is PCA up to a change of basis."""
    hasher = MFH(2, gamma=0, max_iter=2000, tol=0, random_state=seed).fit(X)
    _, s, Vt = np.linalg.svd(X)
    span, _ = np.linalg.qr(hasher.projection_)
    assert np.allclose(np.linalg.svd(span.T @ Vt[:2].T)[1], 1, atol=1e-4)
    assert hasher.objective_[-1] == pytest.approx(np.sum(s[2:] ** 2), rel=1e-4)


def test_more_bits_than_features(X):
    assert MFH(9, random_state=0).fit(X).transform(X).shape == (30, 9)
    assert MFH(9, gamma=0, random_state=0).fit(X).transform(X).shape == (30, 9)


def test_the_threshold_is_the_mean_of_the_latent_rows(X):
    shifted = X + 40
    hasher = MFH(3, random_state=0).fit(shifted)
    assert np.allclose(hasher.project(shifted).mean(axis=0), 0, atol=1e-9)


def test_turns_end_when_the_objective_is_flat(X):
    hasher = MFH(3, max_iter=1000, tol=1e-3, random_state=0).fit(X)
    falls = -np.diff(hasher.objective_) / hasher.objective_[:-1]
    assert (falls[:-1] > 1e-3).all()
    assert falls[-1] <= 1e-3


@pytest.mark.parametrize(("name", "value"), [("lam", 0), ("mu", 0), ("gamma", -1), ("tol", -1)])
def test_bad_weights(X, name, value):
    with pytest.raises(InvalidInput, match=f"'{name}' parameter of MFH must be a finite float >"):
        MFH(**{name: value}).fit(X)
