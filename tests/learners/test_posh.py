"""POSH against full matrices."""

import numpy as np
import pytest
from dense_methods import dense_affinity, dense_posh, indicator, ridge, samples_of, signs, without_constant_bits
from sklearn.preprocessing import scale

from shorthash.errors import InvalidInput
from shorthash.learners import posh
from shorthash.learners.posh import POSH

LIVELY = {"gamma": 0.5, "eta": 2.0, "lam": 0.7}


@pytest.fixture(params=["single", "multi"])
def data(request, blobs, tagged):
    X, y = blobs if request.param == "single" else tagged
    return scale(X[:60]), y[:60]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("weights", [{}, LIVELY], ids=["paper", "lively"])
def test_equals_full_matrices(data, weights, seed):
    X, y = data
    hasher = POSH(4, **weights, random_state=seed).fit(X, y)  # every row is an anchor
    rng = np.random.RandomState(seed)
    posh.sample_without_replacement(60, 60, random_state=rng)  # the anchors are drawn before the codes
    H0 = signs(rng.normal(size=(60, 4)))
    A = dense_affinity(X, X, 2)
    H, steps = dense_posh(X, indicator(y), A, H0, hasher.gamma, hasher.eta, hasher.lam, hasher.n_iter_)
    assert np.array_equal(hasher.codes_, H)
    assert np.allclose(hasher.projection_, without_constant_bits(ridge(X, H, 1.0), H))
    assert np.allclose(hasher.objective_, steps[2::3])


@pytest.mark.parametrize("weights", [(1.0, 10.0, 0.01), tuple(LIVELY.values())], ids=["paper", "lively"])
def test_no_step_raises_the_objective(data, weights, seed):
    X, y = data
    H0 = signs(np.random.default_rng(seed).normal(size=(60, 4)))
    _, steps = dense_posh(X, indicator(y), dense_affinity(X, X[::4], 2), H0, *weights, n_iter=8)
    steps = steps[2:]  # before the first R-step R is 0
    assert np.all(np.diff(steps) <= 1e-9 * np.abs(steps[:-1]))


@pytest.mark.parametrize(("n_anchors", "k"), [(15, 1), (15, 2), (15, 4), (1000, 2)])
def test_the_graph_equals_its_definition(data, n_anchors, k, seed):
    X, y = data
    m = min(n_anchors, 60)
    chosen = posh.sample_without_replacement(60, m, random_state=np.random.RandomState(seed))
    expected = X.T @ dense_affinity(X, X[np.sort(chosen)], k) @ X
    gram = posh._affinity_gram(samples_of(X, y), n_anchors, k, np.random.RandomState(seed))
    assert np.allclose(gram, expected)
    assert np.linalg.eigvalsh(X.T @ X - gram).min() > -1e-9  # no affinity exceeds 1, so smoothness costs


def test_equal_rows_have_a_graph_too(blobs):
    """Repeated rows are all at distance 0 of their anchors."""
    X, y = np.repeat(scale(blobs[0])[:5], 4, axis=0), np.repeat(blobs[1][:5], 4)
    assert np.isfinite(POSH(4, n_neighbors=4, max_iter=30, random_state=0).fit(X, y).projection_).all()


def test_bad_parameters(blobs):
    with pytest.raises(InvalidInput, match="'n_neighbors' parameter of POSH must be an int >= 1"):
        POSH(n_neighbors=0).fit(*blobs)
    with pytest.raises(InvalidInput, match="'lam' parameter of POSH must be a finite float > 0"):
        POSH(lam=0).fit(*blobs)
