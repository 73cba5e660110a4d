import numpy as np
import pytest
from scipy import linalg

from shorthash.codes.signs import sign
from shorthash.errors import InvalidInput
from shorthash.learners.ccaitq import CCAITQ


def slow_directions(X, Y, ridge):
    """All canonical directions and correlations: the eigenproblem of Cxy Cyy^-1 Cyx against Cxx, as published."""
    C = np.cov(np.hstack([X, Y]).T)
    d = X.shape[1]
    Cxx, Cyy, Cxy = C[:d, :d] + ridge * np.eye(d), C[d:, d:] + ridge * np.eye(Y.shape[1]), C[:d, d:]
    values, vectors = linalg.eigh(Cxy @ np.linalg.solve(Cyy, Cxy.T), Cxx)
    return vectors[:, ::-1], np.sqrt(np.maximum(values[::-1], 0))


@pytest.mark.parametrize("ridge", [1e-4, 0.1])
def test_directions_and_correlations_equal_the_slow_ones(blobs, ridge):
    X, y = blobs
    hasher = CCAITQ(4, ridge=ridge, random_state=0).fit(X + 3, y)
    W, correlations = slow_directions(X, np.eye(5)[y], ridge)
    assert np.allclose(hasher.correlations_, correlations[:4], atol=1e-9)
    ours = hasher.projection_ @ hasher.rotation_.T / hasher.correlations_
    signs = np.sign((ours * W[:, :4]).sum(axis=0))
    assert np.allclose(ours, W[:, :4] * signs, atol=1e-6)


def test_several_labels(tagged):
    X, Y = tagged
    hasher = CCAITQ(3, random_state=0).fit(X, Y)
    assert np.allclose(hasher.correlations_, slow_directions(X, Y, 1e-4)[1][:3], atol=1e-9)


def test_the_embedding_is_rotated_to_the_smallest_error(blobs):
    X, y = blobs
    hasher = CCAITQ(4, random_state=0).fit(X, y)
    assert (np.diff(hasher.objective_) <= 1e-9).all()
    Z = hasher.project(X) @ hasher.rotation_.T
    last = np.sum((sign(Z @ hasher.rotation_) - Z @ hasher.rotation_) ** 2)
    assert last <= hasher.objective_[-1] + 1e-9
    assert np.allclose(hasher.project(X).mean(axis=0), 0, atol=1e-9)


def test_a_feature_that_tells_the_classes_is_found():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    X = rng.normal(size=(200, 6)) * 10
    X[:, 2] = y + 1e-3 * rng.normal(size=200)
    hasher = CCAITQ(1, random_state=0).fit(X, y)
    assert hasher.correlations_[0] > 0.99
    assert len(np.unique(hasher.transform(X)[:, 0] * (2 * y - 1))) == 1


def test_fewer_bits_than_classes(blobs):
    X, y = blobs
    assert CCAITQ().max_bits(12, 5) == 4
    assert CCAITQ().max_bits(3, 5) == 3
    with pytest.raises(
        InvalidInput, match=r"at most 4 bits from n_features=12 and n_classes=5: .* such as RSLH or KSH"
    ):
        CCAITQ(5).fit(X, y)


def test_unlabelled_rows_are_dropped_on_request(tagged):
    X, Y = tagged
    bare = Y.copy()
    bare[:7] = 0
    with pytest.raises(InvalidInput, match="7 of 300 samples of CCAITQ have no label"):
        CCAITQ(2).fit(X, bare)
    hasher = CCAITQ(2, drop_unlabelled=True, random_state=0).fit(X, bare)
    assert hasher.n_dropped_ == 7
    assert np.array_equal(hasher.transform(X), CCAITQ(2, random_state=0).fit(X[7:], Y[7:]).transform(X))


def test_bad_ridge(blobs):
    with pytest.raises(InvalidInput, match="'ridge' parameter of CCAITQ must be a finite float > 0"):
        CCAITQ(2, ridge=0).fit(*blobs)
