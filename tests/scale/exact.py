"""Rows that every test of this folder learns from, and what it means that two hashers are the same."""

import numpy as np

from shorthash import make_hasher

TOLERANCE = 1e-8


def rows(n=3000, seed=0, n_classes=6, n_columns=12):
    """Noisy clusters, float32."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(n_classes, n_columns))
    y = rng.integers(n_classes, size=n)
    X = (centres[y] + rng.normal(size=(n, n_columns))).astype(np.float32)
    X.setflags(write=False)
    y.setflags(write=False)
    return X, y


def hasher(method="rslh", **kernel):
    return make_hasher(method, 6, random_state=0, kernel={"n_anchors": 40, **kernel})


def assert_same(first, second, X, tolerance=TOLERANCE):
    """Equal kernels and codewords, projections equal to rounding, and no row with another code."""
    np.testing.assert_array_equal(first[0].anchors_, second[0].anchors_)
    assert first[0].bandwidth_ == second[0].bandwidth_
    P, Q = first[-1].projection_, second[-1].projection_
    assert np.abs(P - Q).max() <= tolerance * np.abs(P).max()
    np.testing.assert_array_equal(first[-1].codewords_, second[-1].codewords_)
    np.testing.assert_array_equal(first[-1].classes_, second[-1].classes_)
    assert first[-1].n_samples_seen_ == second[-1].n_samples_seen_
    assert np.count_nonzero((first.transform(X) != second.transform(X)).any(axis=1)) == 0
