import numpy as np
import pytest

from shorthash.errors import InvalidInput
from shorthash.learners.pcarr import PCARR


def test_rotated_principal_directions(blobs):
    X, _ = blobs
    hasher = PCARR(4, random_state=0).fit(X)
    R = hasher.rotation_
    assert np.allclose(R.T @ R, np.eye(4))
    V = hasher.projection_ @ R.T
    _, _, Vt = np.linalg.svd(X - X.mean(axis=0))
    assert np.allclose(np.abs(V.T @ Vt[:4].T), np.eye(4), atol=1e-8)
    assert np.allclose(hasher.project(X), (X - X.mean(axis=0)) @ V @ R)


def test_the_rotation_shares_the_variance_out(digits):
    X, _ = digits
    spread = [PCARR(8, random_state=s).fit(X).project(X).var(axis=0) for s in range(20)]
    principal = np.sort(np.linalg.eigvalsh(np.cov(X.T)))[-8:]
    assert np.mean([s.max() / s.min() for s in spread]) < principal.max() / principal.min()
    assert np.allclose([s.sum() for s in spread], principal.sum(), rtol=1e-2)


def test_no_more_bits_than_features(blobs):
    X, _ = blobs
    assert PCARR().max_bits(n_features=12) == 12
    assert PCARR().max_bits(n_features=500) == 64
    with pytest.raises(InvalidInput, match=r"at most 12 bits from n_features=12: it has one .* Got n_bits=13 .* LSH"):
        PCARR(13).fit(X)
