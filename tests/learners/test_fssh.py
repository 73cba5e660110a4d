"""FSSH against full matrices."""

import numpy as np
import pytest
from dense_methods import dense_fssh, indicator, ridge, samples_of, shared_labels, signs, without_constant_bits
from sklearn.preprocessing import scale

from shorthash.errors import InvalidInput
from shorthash.learners import fssh
from shorthash.learners.fssh import FSSH

LIVELY = {"mu": 3.0, "theta": 2.0}


@pytest.fixture(params=["single", "multi"])
def data(request, blobs, tagged):
    X, y = blobs if request.param == "single" else tagged
    return scale(X[:60]), y[:60]


@pytest.mark.parametrize("weights", [{}, LIVELY], ids=["paper", "lively"])
@pytest.mark.parametrize("variant", ["ts", "os"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_equals_full_matrices(data, variant, weights, seed):
    X, y = data
    Y = indicator(y)
    hasher = FSSH(4, **weights, variant=variant, random_state=seed).fit(X, y)
    rng = np.random.RandomState(seed)
    G0, W0 = rng.normal(size=(Y.shape[1], 4)), rng.normal(size=(12, 4))
    H, _, W, steps = dense_fssh(X, Y, G0, W0, hasher.mu, hasher.theta, hasher.n_iter_)
    assert np.array_equal(hasher.codes_, H)
    P = W if variant == "os" else ridge(X, H, 1.0)
    assert np.allclose(hasher.projection_, without_constant_bits(P, H))
    assert np.allclose(hasher.objective_, steps[2::3])


@pytest.mark.parametrize("weights", [(1e4, 1e-2), (3.0, 2.0)], ids=["paper", "lively"])
def test_no_step_raises_the_objective(data, weights, seed):
    X, y = data
    Y, rng = indicator(y), np.random.default_rng(seed)
    *_, steps = dense_fssh(X, Y, rng.normal(size=(Y.shape[1], 4)), rng.normal(size=(12, 4)), *weights, n_iter=8)
    assert np.all(np.diff(steps) <= 1e-9 * np.abs(steps[:-1]))


def test_the_similarity_enters_as_if_it_were_there(data):
    X, y = data
    problem = fssh._Problem(samples_of(X, y))
    S = shared_labels(indicator(y))
    assert np.allclose(problem.A, X.T @ S @ indicator(y))
    assert problem.similarity_norm == pytest.approx((S**2).sum())


def test_g_and_w_are_stationary(data, seed):
    X, y = data
    Y, S = indicator(y), shared_labels(indicator(y))
    rng = np.random.default_rng(seed)
    H, G, W = signs(rng.normal(size=(60, 4))), rng.normal(size=(Y.shape[1], 4)), rng.normal(size=(12, 4))
    problem = fssh._Problem(samples_of(X, y))
    G = fssh._g_step(problem, Y.T @ H, W, 3.0)
    assert np.allclose(Y.T @ (Y @ G @ (X @ W).T - S.T) @ X @ W + 3.0 * Y.T @ (Y @ G - H), 0, atol=1e-7)
    W = fssh._w_step(problem, X.T @ H, G, 2.0)
    assert np.allclose(X.T @ (X @ W @ (Y @ G).T - S) @ Y @ G + 2.0 * X.T @ (X @ W - H), 0, atol=1e-7)


def test_dependent_features_do_no_harm(blobs):
    """Centred kernel features are rank deficient; the pseudo-inverse gives the codes of the independent ones."""
    X, y = scale(blobs[0]), blobs[1]
    doubled = np.hstack([X, X])
    one, two = (FSSH(6, random_state=0, variant="os").fit(A, y) for A in (X, doubled))
    assert np.isfinite(two.projection_).all()
    assert np.abs(two.projection_).max() < 10 * np.abs(one.projection_).max()


def test_one_codeword_per_class(blobs):
    X, y = scale(blobs[0]), blobs[1]
    hasher = FSSH(8, random_state=0).fit(X, y)
    assert np.array_equal(hasher.codes_, hasher.codewords_[y])


def test_bad_variant(blobs):
    with pytest.raises(InvalidInput, match=r"'variant' parameter of FSSH must be one of 'ts', 'os'\. Got 'one'"):
        FSSH(variant="one").fit(*blobs)
