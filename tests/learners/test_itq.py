import numpy as np
import pytest

from shorthash.codes.signs import sign
from shorthash.errors import InvalidInput
from shorthash.learners.itq import PCAITQ, learn_rotation
from shorthash.learners.pcarr import PCARR
from shorthash.learners.solvers import random_rotation


@pytest.fixture
def Z(seed):
    return np.random.default_rng(seed).normal(size=(200, 5)) * [3, 2, 1, 1, 0.5]


def test_the_quantisation_error_never_rises(Z, seed):
    R, objective = learn_rotation(Z, 50, np.random.RandomState(seed))
    assert (np.diff(objective) <= 1e-9).all()
    assert objective[-1] < objective[0]
    assert np.allclose(R.T @ R, np.eye(5))


def test_the_error_is_its_definition(Z):
    """One turn: the codes of the random start, and the best rotation for them."""
    R, objective = learn_rotation(Z, 1, np.random.RandomState(3))
    H = sign(Z @ random_rotation(5, np.random.RandomState(3)))
    assert objective == pytest.approx([np.sum((H - Z @ R) ** 2)])


def test_no_other_rotation_is_better_for_these_codes(Z, seed):
    R, _ = learn_rotation(Z, 1, np.random.RandomState(seed))
    H = sign(Z @ R)
    U, _, Vt = np.linalg.svd(H.T @ Z)  # the step as the paper writes it: S and S-hat of H'Z
    best = Vt.T @ U.T
    best_error = np.sum((H - Z @ best) ** 2)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        other, _ = np.linalg.qr(rng.normal(size=(5, 5)))
        assert np.sum((H - Z @ other) ** 2) >= best_error
    R2, _ = learn_rotation(Z, 2, np.random.RandomState(seed))
    assert np.allclose(R2, best)


def test_rows_on_the_corners_of_a_turned_cube_are_found(seed):
    """In two dimensions the cube has no other place to rest."""
    H0 = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]] * 10, dtype=float)
    angle = 0.3 + seed
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    X = H0 @ turn.T + [5, 7]
    hasher = PCAITQ(2, random_state=seed).fit(X)
    assert hasher.objective_[-1] == pytest.approx(0, abs=1e-9)
    assert hasher.n_iter_ < 50
    assert len(np.unique(hasher.transform(X), axis=0)) == 4


def test_turns_end_when_codes_stand_still(Z):
    R, objective = learn_rotation(Z, 10_000, np.random.RandomState(0))
    assert len(objective) < 10_000
    H = sign(Z @ R).astype(float)
    U, _, Vt = np.linalg.svd(H.T @ Z)
    assert np.allclose(R, Vt.T @ U.T)


def test_the_projection_is_rotated_principal_directions_of_centred_rows(blobs):
    X, _ = blobs
    hasher = PCAITQ(3, random_state=0).fit(X + 50)
    V = hasher.projection_ @ hasher.rotation_.T
    _, _, Vt = np.linalg.svd(X - X.mean(axis=0))
    assert np.allclose(np.abs(V.T @ Vt[:3].T), np.eye(3), atol=1e-8)
    assert np.array_equal(hasher.transform(X + 50), PCAITQ(3, random_state=0).fit(X).transform(X))


def test_it_beats_a_random_rotation(digits):
    X, y = digits
    learned, drawn = PCAITQ(8, random_state=0).fit(X), PCARR(8, random_state=0).fit(X)
    assert learned.score(X, y) > drawn.score(X, y)


def test_bad_parameters(blobs):
    X, _ = blobs
    with pytest.raises(InvalidInput, match="'max_iter' parameter of PCAITQ must be an int >= 1"):
        PCAITQ(max_iter=0).fit(X)
    with pytest.raises(InvalidInput, match=r"at most 12 bits from n_features=12: .* such as LSH, SH or MFH"):
        PCAITQ(16).fit(X)
