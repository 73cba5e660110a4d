"""SDHMLR against full matrices; its Sylvester step against scipy's."""

import numpy as np
import pytest
from dense_methods import dense_sdhmlr, indicator, samples_of, signs, without_constant_bits
from scipy.linalg import solve_sylvester

from shorthash.errors import InvalidInput
from shorthash.learners import sdhmlr
from shorthash.learners.sdh import SDH
from shorthash.learners.sdhmlr import SDHMLR
from shorthash.learners.solvers import LabelGram

LIVELY = {"alpha": 0.3, "nu": 0.4, "lam": 0.2, "ridge": 0.3}


@pytest.fixture(params=["single", "multi"])
def data(request, blobs, tagged):
    X, y = blobs if request.param == "single" else tagged
    return X[:60] - X[:60].mean(axis=0), y[:60]


def w_step(X, y, H, alpha, lam):
    samples = samples_of(X, y)
    return sdhmlr._w_step(samples, LabelGram(samples.Yg, samples.N), H.astype(np.int8), alpha, lam)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0, 20.0])
def test_w_solves_its_sylvester_equation(data, seed, alpha):
    X, y = data
    Y, H = indicator(y), signs(np.random.default_rng(seed).normal(size=(60, 4)))
    W = w_step(X, y, H, alpha, lam=0.1)
    left = H.T @ H + 0.1 * np.eye(4)
    assert np.allclose(left @ W + alpha * W @ Y.T @ Y, (1 + alpha) * H.T @ Y)
    assert np.allclose(W, solve_sylvester(left, alpha * Y.T @ Y, (1 + alpha) * H.T @ Y))


def test_with_one_label_the_equation_falls_apart_by_class(blobs, seed):
    X, y = blobs[0][:60], blobs[1][:60]
    H = signs(np.random.default_rng(seed).normal(size=(60, 4)))
    W = w_step(X, y, H, 2.0, lam=0.1)
    for k in range(5):
        left = H.T @ H + (0.1 + 2.0 * (y == k).sum()) * np.eye(4)
        assert np.allclose(W[:, k], 3.0 * np.linalg.inv(left) @ H[y == k].sum(axis=0))


def test_w_is_stationary(data, seed):
    X, y = data
    Y, H = indicator(y), signs(np.random.default_rng(seed).normal(size=(60, 4)))
    W = w_step(X, y, H, 0.5, lam=0.1)
    gradient = H.T @ (H @ W - Y) + 0.5 * (Y @ W.T - H).T @ Y + 0.1 * W
    assert np.allclose(gradient, 0, atol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("weights", [{}, LIVELY], ids=["default", "lively"])
def test_equals_full_matrices(data, weights, seed):
    X, y = data
    hasher = SDHMLR(4, **weights, random_state=seed).fit(X, y)
    H0 = signs(np.random.RandomState(seed).normal(size=(60, 4)))
    terms = (hasher.alpha, hasher.nu, hasher.lam, hasher.ridge)
    H, P, steps = dense_sdhmlr(X, indicator(y), H0, *terms, hasher.n_iter_)
    assert np.array_equal(hasher.codes_, H)
    assert np.allclose(hasher.projection_, without_constant_bits(P, H))
    assert np.allclose(hasher.objective_, steps[2::3])


def test_no_step_raises_the_objective(data, seed):
    X, y = data
    H0 = signs(np.random.default_rng(seed).normal(size=(60, 5)))
    *_, steps = dense_sdhmlr(X, indicator(y), H0, *LIVELY.values(), n_iter=6)
    assert np.all(np.diff(steps) <= 1e-9 * np.abs(steps[:-1]))


def test_without_the_second_direction_it_is_sdh(blobs):
    X, y = blobs
    shared = {"nu": 1e-5, "lam": 1.0, "ridge": 1e-2, "max_iter": 5, "random_state": 3}
    assert np.array_equal(SDHMLR(6, alpha=0.0, **shared).fit(X, y).codes_, SDH(6, **shared).fit(X, y).codes_)


def test_one_codeword_per_class(blobs):
    X, y = blobs
    hasher = SDHMLR(8, random_state=0).fit(X, y)
    assert np.array_equal(hasher.codes_, hasher.codewords_[y])


def test_lam_must_be_positive(blobs):
    with pytest.raises(InvalidInput, match="'lam' parameter of SDHMLR must be a finite float > 0"):
        SDHMLR(lam=0).fit(*blobs)
