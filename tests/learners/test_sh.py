from itertools import product

import numpy as np
import pytest

from shorthash.learners.sh import SH, _smoothest_modes


def enumerated(width, n_bits):
    """All single-axis modes up to a generous bound, sorted by eigenvalue: the definition, without the shortcut."""
    candidates = [(j, k) for j in range(len(width)) for k in range(1, 5 * n_bits)]
    candidates.sort(key=lambda jk: (jk[1] * np.pi / width[jk[0]]) ** 2)
    table = np.zeros((n_bits, len(width)), dtype=int)
    for bit, (axis, mode) in enumerate(candidates[:n_bits]):
        table[bit, axis] = mode
    return table


@pytest.mark.parametrize("n_bits", [1, 2, 5, 16, 64])
def test_modes_equal_a_full_enumeration(n_bits, seed):
    for s in range(10):
        width = np.random.default_rng(10 * seed + s).uniform(0.05, 3, size=min(n_bits, 6))
        assert np.array_equal(_smoothest_modes(width, n_bits), enumerated(width, n_bits))


def test_equal_axes_take_turns():
    assert _smoothest_modes(np.ones(3), 4).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [2, 0, 0]]


def test_scores_are_the_product_of_sines_over_all_axes(blobs):
    """The hash function as published: a factor per axis, of which all but one are sin(pi / 2) = 1."""
    X, _ = blobs
    hasher = SH(10).fit(X)
    _, _, Vt = np.linalg.svd(X - X.mean(axis=0))
    V = Vt[:10].T
    V = V * np.sign((V * hasher.directions_).sum(axis=0))
    Z = (X - X.mean(axis=0)) @ V
    expected = np.ones((300, 10))
    for bit, j in product(range(10), range(10)):
        omega = hasher.modes_[bit, j] * np.pi / (Z[:, j].max() - Z[:, j].min())
        expected[:, bit] *= np.sin(np.pi / 2 + omega * (Z[:, j] - Z[:, j].min()))
    assert np.allclose(hasher.project(X), expected, atol=1e-9)


def test_one_feature_is_cut_into_halves_quarters_eighths():
    X = np.linspace(0, 1, 9)[:, None]
    codes = SH(2).fit(X).transform(X)
    assert SH(2).fit(X).modes_.tolist() == [[1], [2]]
    # mode 1 changes sign in the middle; mode 2 at one and three quarters
    assert codes[[0, 3, 5, 8], 0].tolist() in ([1, 1, -1, -1], [-1, -1, 1, 1])
    assert codes[[0, 1, 3, 5, 7, 8], 1].tolist() == [1, 1, -1, -1, 1, 1]


def test_outside_the_box_the_wave_goes_on():
    X = np.linspace(0, 1, 9)[:, None]
    hasher = SH(1).fit(X)
    assert np.allclose(hasher.project(X + 2), hasher.project(X))  # one period of the first mode
    assert np.allclose(hasher.project(X + 1), -hasher.project(X))


def test_directions_without_variance_get_no_bit():
    X = np.outer(np.arange(20.0), [3.0, 4.0, 0.0])
    hasher = SH(8).fit(X)
    assert hasher.modes_[:, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert not hasher.modes_[:, 1:].any()


def test_it_is_deterministic_and_ignores_the_mean(digits):
    X, y = digits
    assert np.array_equal(SH(8).fit(X).transform(X), SH(8).fit(X + 100).transform(X + 100))
    assert SH(8).fit(X).score(X, y) > 0.2
