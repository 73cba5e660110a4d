"""SDH against full matrices."""

import numpy as np
import pytest
from dense_methods import dense_sdh, indicator, samples_of, signs, without_constant_bits
from sklearn.exceptions import ConvergenceWarning

from shorthash.errors import InvalidInput
from shorthash.learners import sdh
from shorthash.learners.sdh import SDH

LIVELY = {"lam": 0.5, "nu": 0.4, "ridge": 0.3}  # weights under which every term matters


@pytest.fixture(params=["single", "multi"])
def data(request, blobs, tagged):
    X, y = blobs if request.param == "single" else tagged
    return X[:60] - X[:60].mean(axis=0), y[:60]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("weights", [{}, LIVELY], ids=["paper", "lively"])
def test_equals_full_matrices(data, weights, seed):
    X, y = data
    hasher = SDH(4, **weights, random_state=seed).fit(X, y)
    H0 = signs(np.random.RandomState(seed).normal(size=(60, 4)))
    lam, nu, rho = hasher.lam, hasher.nu, hasher.ridge
    H, P, steps = dense_sdh(X, indicator(y), H0, lam, nu, rho, hasher.n_iter_)
    assert np.array_equal(hasher.codes_, H)
    assert np.allclose(hasher.projection_, without_constant_bits(P, H))
    assert np.allclose(hasher.objective_, steps[3::3])


@pytest.mark.parametrize("weights", [(1.0, 1e-5, 1e-2), (0.5, 0.4, 0.3)], ids=["paper", "lively"])
def test_no_step_raises_the_objective(data, weights, seed):
    X, y = data
    H0 = signs(np.random.default_rng(seed).normal(size=(60, 5)))
    *_, steps = dense_sdh(X, indicator(y), H0, *weights, n_iter=6)
    assert np.all(np.diff(steps) <= 1e-9 * np.abs(steps[:-1]))


def test_w_step_is_stationary(data, seed):
    X, y = data
    H, Y = signs(np.random.default_rng(seed).normal(size=(60, 4))), indicator(y)
    W = sdh._w_step(samples_of(X, y), H.astype(np.int8), lam=0.7)
    assert np.allclose(H.T @ (H @ W - Y) + 0.7 * W, 0, atol=1e-10)


def test_one_codeword_per_class(digits):
    """Structural fact F1: the features are too light to tell samples of a class apart."""
    X, y = digits
    hasher = SDH(8, random_state=0).fit(X, y)
    assert np.array_equal(hasher.codes_, hasher.codewords_[y])


def test_heavy_features_split_classes(blobs):
    X, y = blobs
    hasher = SDH(8, nu=1.0, max_iter=50, random_state=0).fit(X, y)
    assert not np.array_equal(hasher.codes_, hasher.codewords_[y])


def test_says_when_codes_have_not_settled(blobs):
    with pytest.warns(
        ConvergenceWarning, match="SDH stopped after max_iter=1 iterations with codes still changing; increase"
    ):
        SDH(8, max_iter=1, random_state=0).fit(*blobs)


@pytest.mark.parametrize("name", ["lam", "nu", "ridge"])
def test_bad_weights(blobs, name):
    with pytest.raises(InvalidInput, match=rf"The '{name}' parameter of SDH must be a finite float >= 0. Got -1.0"):
        SDH(**{name: -1.0}).fit(*blobs)


def test_bad_counts(blobs):
    with pytest.raises(InvalidInput, match="'max_sweeps' parameter of SDH must be an int >= 1"):
        SDH(max_sweeps=0).fit(*blobs)
