import numpy as np
import pytest

from shorthash.learners import sphericalhash
from shorthash.learners.sphericalhash import SphericalHash, _balanced, _forces, _spheres


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(200, 5)) * [3, 2, 1, 1, 1]


def test_radii_are_medians_and_shared_counts_are_counts(rows):
    P = rows[:4]
    squared, N = _spheres(rows, P)
    for k in range(4):
        distances = [float(np.sqrt(((x - P[k]) ** 2).sum())) for x in rows]
        assert np.sqrt(squared[k]) ** 2 == pytest.approx(np.median(np.square(distances)))
        for j in range(4):
            both = sum(((x - P[k]) ** 2).sum() <= squared[k] and ((x - P[j]) ** 2).sum() <= squared[j] for x in rows)
            assert N[k, j] == both
    assert np.diag(N).tolist() == [100.0] * 4


def test_forces_are_the_mean_over_pairs(rows):
    P = rows[:4]
    N = np.array([[100, 60, 40, 50], [60, 100, 50, 50], [40, 50, 100, 30], [50, 50, 30, 100.0]])
    for i in range(4):
        force = np.zeros(5)
        for j in range(4):
            if i != j:
                force += 0.5 * (N[i, j] - 50) / 50 * (P[i] - P[j])
        assert _forces(P, N, 200)[i] == pytest.approx(force / 4)
    assert (_forces(P, N, 200)[0] - _forces(P, np.full((4, 4), 50.0), 200)[0]).any()


def test_spheres_that_share_too_much_move_apart():
    P = np.array([[0.0, 0.0], [1.0, 0.0]])
    moved = P + _forces(P, np.array([[50.0, 45], [45, 50]]), 100)
    assert moved[1, 0] - moved[0, 0] > 1


def test_balance_is_the_rule_of_the_paper():
    assert _balanced(np.full((3, 3), 25.0), 100)
    assert not _balanced(np.full((3, 3), 28.0), 100)
    uneven = np.full((4, 4), 25.0)
    uneven[0, 1] = uneven[1, 0] = 37
    assert np.abs(uneven[np.triu_indices(4, 1)] - 25).mean() < 2.5
    assert not _balanced(uneven, 100)


def test_learned_spheres_hold_half_and_share_a_quarter(rows):
    hasher = SphericalHash(6, random_state=0).fit(rows)
    inside = hasher.transform(rows) > 0
    assert np.abs(inside.mean(axis=0) - 0.5).max() < 0.02
    assert hasher.n_iter_ < 100
    shared = (inside.T.astype(float) @ inside / 200)[np.triu_indices(6, 1)]
    assert shared == pytest.approx(hasher.shared_[np.triu_indices(6, 1)], abs=0.01)
    assert np.abs(shared - 0.25).mean() < 0.03


def test_bits_say_what_lies_inside(rows):
    hasher = SphericalHash(6, random_state=0).fit(rows)
    centers = hasher.centers_ + rows.mean(axis=0)
    expected = [[hasher.radii_[k] ** 2 - ((x - centers[k]) ** 2).sum() for k in range(6)] for x in rows]
    assert hasher.project(rows) == pytest.approx(np.array(expected), abs=1e-9)
    far = hasher.transform(rows[:1] + 1e6)
    assert (far == -1).all()


def test_many_rows_are_sampled_and_one_bit_needs_no_move(rows, monkeypatch):
    monkeypatch.setattr(sphericalhash, "MOST_ROWS", 50)
    assert SphericalHash(1, random_state=0).fit(rows).n_iter_ == 0
    assert (SphericalHash(4, random_state=0).fit(rows).shared_ * 50 % 1 < 1e-9).all()
