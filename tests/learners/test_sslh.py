"""SSLH against full matrices, quirks of the authors' code included."""

from dataclasses import replace

import numpy as np
import pytest
from dense_methods import dense_sslh, indicator, samples_of, signs, without_constant_bits

from shorthash.errors import InvalidInput
from shorthash.learners import sslh
from shorthash.learners.sslh import SSLH

LIVELY = {"lam": 0.2, "nu": 0.3, "gamma": 0.02, "theta": 0.05, "delta": 1.5}


@pytest.fixture(params=["single", "multi"])
def data(request, blobs, tagged):
    X, y = blobs if request.param == "single" else tagged
    return X[:50] - X[:50].mean(axis=0), y[:50]


def run_dense(hasher, X, y, n_iter):
    H0 = signs(np.random.RandomState(hasher.random_state).uniform(-0.5, 0.5, size=(len(X), hasher.n_bits)))
    terms = (hasher.lam, hasher.nu, hasher.gamma, hasher.theta, hasher.delta, hasher.mode)
    return dense_sslh(X, indicator(y), H0, *terms, n_iter)


@pytest.mark.parametrize("weights", [{}, LIVELY], ids=["released", "lively"])
@pytest.mark.parametrize("mode", ["code", "paper"])
def test_equals_full_matrices(data, mode, weights, seed):
    X, y = data
    hasher = SSLH(4, **weights, mode=mode, random_state=seed).fit(X, y)
    H, P, rounds = run_dense(hasher, X, y, hasher.n_iter_)
    assert np.array_equal(hasher.codes_, H)
    assert np.allclose(hasher.projection_, without_constant_bits(P, H))
    assert np.allclose(hasher.objective_, [steps[-1] for steps in rounds])


@pytest.mark.parametrize("mode", ["code", "paper"])
def test_all_steps_but_that_of_the_codes_descend(data, mode, seed):
    """W, P and U minimise their parts; the weights D are the tangent of the loss, so a W-step cannot raise it."""
    X, y = data
    _, _, rounds = run_dense(SSLH(4, **LIVELY, mode=mode, random_state=seed), X, y, 6)
    for steps in rounds:
        assert np.all(np.diff(steps) <= 1e-9 * np.abs(steps[:-1]))


def test_code_mode_has_the_quirks(data):
    """One pass from zeros, no gamma X U, rows of U for its columns: each changes the codes, step by step by hand."""
    X, y = data
    Y, rng = indicator(y), np.random.default_rng(0)
    W, P, U = rng.normal(size=(4, Y.shape[1])), rng.normal(size=(12, 4)), rng.normal(size=(12, 4))
    D = rng.random(50)
    w = sslh.SSLH(4, lam=0.2, nu=0.3, gamma=0.02, theta=0.05, delta=1.5, mode="code")
    found = sslh._h_step(samples_of(X, y), D, W, P, U, w)

    def one_pass(coupling, linear):
        H = np.zeros((50, 4))
        for m in range(4):
            for i in range(50):
                pull = sum(H[i, j] * (D[i] * W[j] @ W[m] + 0.02 * coupling[j, m] + 0.05) for j in range(m))
                H[i, m] = 1.0 if linear[i, m] - pull >= 0 else -1.0
        return H

    Q = D[:, None] * (Y @ W.T) + 0.3 * X @ P
    assert np.array_equal(found, one_pass(U[:4] @ U[:4].T, Q))
    assert not np.array_equal(found, one_pass(U.T @ U, Q))
    assert not np.array_equal(found, one_pass(U[:4] @ U[:4].T, Q + 0.02 * X @ U))
    paper = sslh._h_step(samples_of(X, y), D, W, P, U, replace(w, mode="paper"))
    assert not np.array_equal(paper, one_pass(U.T @ U, Q + 0.02 * X @ U))  # more sweeps follow the first


def test_more_bits_than_features_is_defined_in_both_modes(blobs):
    X, y = blobs
    for mode in ("code", "paper"):
        assert SSLH(16, mode=mode, random_state=0).fit(X[:, :3], y).codes_.shape == (300, 16)


def test_heavy_balance_makes_the_bits_of_every_code_balance(blobs):
    X, y = blobs
    hasher = SSLH(8, theta=1e3, mode="paper", random_state=0).fit(X, y)
    assert not hasher.codes_.sum(axis=1).any()


def test_outliers_are_forgiven_within_delta_only(blobs):
    X, y = blobs
    gentle = SSLH(8, delta=1e6, random_state=0).fit(X, y)
    assert np.isfinite(gentle.objective_).all()
    with pytest.raises(InvalidInput, match="'delta' parameter of SSLH must be a finite float > 0"):
        SSLH(delta=0).fit(X, y)
    with pytest.raises(InvalidInput, match=r"'mode' parameter of SSLH must be one of 'code', 'paper'\. Got 'matlab'"):
        SSLH(mode="matlab").fit(X, y)
