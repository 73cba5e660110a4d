import numpy as np
import pytest
from scipy.optimize import check_grad

from shorthash.errors import InvalidInput
from shorthash.learners import kmh
from shorthash.learners.kmh import KMH, _c_step, _cell_step, learn_centers, objective


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(300, 6)) * [4, 3, 2, 1, 1, 1]


def slow_objective(Z, cell, C, scale, lam):
    """The formula, pair by pair."""
    n = [int((cell == i).sum()) for i in range(len(C))]
    error = sum(((z - C[i]) ** 2).sum() for z, i in zip(Z, cell, strict=True)) / len(Z)
    for i in range(len(C)):
        for j in range(len(C)):
            wanted = scale * np.sqrt(bin(i ^ j).count("1"))
            error += lam * n[i] * n[j] / len(Z) ** 2 * (np.linalg.norm(C[i] - C[j]) - wanted) ** 2
    return error


def test_objective_equals_the_formula(rows):
    C, scale, values = learn_centers(rows, 3, 10.0, 20)
    cell = np.array([min(range(8), key=lambda i: ((z - C[i]) ** 2).sum()) for z in rows])
    assert np.array_equal(_cell_step(rows, C), cell)
    assert values[-1] == pytest.approx(slow_objective(rows, cell, C, scale, 10.0))


def test_objective_never_rises(rows):
    """Every update of the centres descends for the cells as they are."""
    C, scale, _ = learn_centers(rows, 3, 10.0, 1)
    H = scale * np.sqrt(np.bitwise_count(np.arange(8)[:, None] ^ np.arange(8)).astype(float))
    for _ in range(5):
        cell = _cell_step(rows, C)
        before = objective(rows, cell, C, H, 10.0)
        C = _c_step(rows, cell, C, H, 10.0)
        assert objective(rows, cell, C, H, 10.0) <= before + 1e-9
    values = learn_centers(rows, 3, 10.0, 50)[2]
    assert values[-1] < values[0]


def test_the_slope_of_the_centres_is_right(rows, monkeypatch):
    seen = {}
    monkeypatch.setattr(kmh, "minimize", lambda loss, v, **_: seen.update(loss=loss, v=v) or type("R", (), {"x": v}))
    C = learn_centers(rows, 2, 10.0, 0)[0]
    _c_step(rows, _cell_step(rows, C), C, np.ones((4, 4)), 7.0)
    v = seen["v"] + np.random.default_rng(0).normal(size=24)
    assert check_grad(lambda v: seen["loss"](v)[0], lambda v: seen["loss"](v)[1], v) < 1e-4


def test_distances_of_centres_follow_their_numbers(rows):
    loose, tight = (learn_centers(rows, 3, lam, 50) for lam in (1e-6, 1e3))
    H = np.sqrt(np.bitwise_count(np.arange(8)[:, None] ^ np.arange(8)).astype(float))

    def misfit(C, scale):
        return np.abs(np.linalg.norm(C[:, None] - C[None], axis=2) - scale * H).mean() / scale

    assert misfit(*tight[:2]) < 0.1 < misfit(*loose[:2])


def test_corners_of_a_cube_get_the_codes_of_the_cube():
    corners = np.array([[a, b, c] for a in (-3, 3) for b in (-2, 2) for c in (-1, 1)], dtype=float)
    X = np.repeat(corners, 20, axis=0) + np.random.default_rng(0).normal(size=(160, 3)) / 20
    codes = KMH(3).fit(X).transform(X)[::20].astype(int)
    differ = (codes[:, None] != codes[None]).sum(axis=2)
    assert np.array_equal(differ, (corners[:, None] != corners[None]).sum(axis=2))


@pytest.mark.parametrize(("n_bits", "sizes"), [(1, [2]), (4, [16]), (5, [8, 4]), (6, [8, 8])])
def test_parts_share_bits_and_features(rows, n_bits, sizes):
    hasher = KMH(n_bits).fit(rows)
    assert [len(C) for C in hasher.centers_] == sizes
    assert hasher.transform(rows).shape == (300, n_bits)
    if len(sizes) == 2:
        assert np.abs(hasher.centers_[0] @ hasher.centers_[1].T).max() < 1e-9  # orthogonal subspaces


def test_parameters(rows):
    with pytest.raises(InvalidInput, match="part_bits"):
        KMH(part_bits=9).fit(rows)
    with pytest.raises(InvalidInput, match="at most 6 bits"):
        KMH(7).fit(rows)
