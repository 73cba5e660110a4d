"""The one-pass solver against the per-sample solver, its guard, its rank rule and its numerical trap."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from shorthash import RSLH, AnchorRBF, make_hasher
from shorthash.codes.signs import sign
from shorthash.errors import CollisionWarning, GuardWarning

PER_SAMPLE_WEIGHTS = {"alpha": 1e-6, "beta": 1.0, "gamma": 0.0, "mu": 1e3, "lam": 1e-3}  # features decide bits
LENGTHS = [4, 6, 8, 10, 16, 32]


def assert_same_outcome(one, two):
    assert np.array_equal(one.codes_, two.codes_)
    assert np.array_equal(one.codewords_, two.codewords_)
    largest = np.abs(two.projection_).max()
    assert np.abs(one.projection_ - two.projection_).max() <= 1e-8 * largest


def both(X, y, **parameters):
    one = RSLH(random_state=0, **parameters).fit(X, y)
    two = RSLH(random_state=0, solver="per-sample", **parameters).fit(X, y)
    assert {c.solver for c in one.convergence_} == {"one-pass"}
    assert {c.solver for c in two.convergence_} == {"per-sample"}
    return one, two


@pytest.mark.parametrize("n_bits", LENGTHS)
@pytest.mark.parametrize("similarity", ["G", "S"])
@pytest.mark.parametrize("variant", ["paper", "authors-code"])
def test_same_codes_and_projections_on_digits(digits, n_bits, similarity, variant):
    X, y = digits
    X = AnchorRBF(n_anchors=200, random_state=0).fit_transform(X[:900])
    assert_same_outcome(*both(X, y[:900], n_bits=n_bits, similarity=similarity, variant=variant))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_bits", LENGTHS)
@pytest.mark.parametrize("similarity", ["G", "S"])
@pytest.mark.parametrize("constraint", ["I", "nI"])
def test_same_codes_and_projections_with_many_labels(tagged, n_bits, similarity, constraint):
    X, Y = tagged
    assert_same_outcome(*both(X, Y, n_bits=n_bits, similarity=similarity, constraint=constraint, boosting="ob"))


@pytest.mark.parametrize("shared_projection", [True, False])
def test_objectives_agree(blobs, shared_projection):
    one, two = both(*blobs, n_bits=3, shared_projection=shared_projection, boosting=None)
    assert np.linalg.matrix_rank(one.codewords_) == 3  # else B is one of many, and so is its share of J
    assert np.allclose(one.objective_, two.objective_, rtol=1e-10)
    assert np.all(np.diff(one.objective_) <= 1e-10 * one.objective_[:-1])


def test_more_bits_than_label_sets_leave_no_orthonormal_Q(blobs):
    """32 bits on 5 classes: Q has rank 5, its inverse root does not exist, and the codes must not care."""
    one, two = both(*blobs, n_bits=32)
    assert_same_outcome(one, two)
    assert np.isfinite(one.objective_).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_failing_guard_falls_back_and_says_so(tagged):
    """With beta far above alpha the part that differs between samples decides bits."""
    X, Y = tagged
    parameters = {**PER_SAMPLE_WEIGHTS, "n_bits": 6, "boosting": None, "random_state": 0, "max_iter": 100}
    with pytest.warns(GuardWarning, match="falls back to the per-sample solver"):
        fallen = RSLH(**parameters).fit(X, Y)
    reference = RSLH(solver="per-sample", **parameters).fit(X, Y)
    assert fallen.convergence_[0].solver == "per-sample"
    assert_same_outcome(fallen, reference)
    distinct = {(label.tobytes(), code.tobytes()) for label, code in zip(Y, reference.codes_, strict=True)}
    assert len(distinct) > len(np.unique(Y, axis=0)), (
        "the codes of a label set should differ here, or nothing is tested"
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_failing_guard_without_rows_keeps_group_codes_and_says_so(tagged):
    X, Y = tagged
    hasher = RSLH(**PER_SAMPLE_WEIGHTS, n_bits=6, boosting=None, random_state=0, max_iter=100)
    with pytest.warns(GuardWarning, match="call fit on all rows with solver='per-sample'"):
        hasher.partial_fit(X, Y)
    assert hasher.convergence_[0].solver == "one-pass"


def test_the_ridge_solution_survives_uncentred_kernel_features(digits):
    """Features near 0.6 leave little of a small eigenvalue in their sums; float64 sums keep enough of it.

    The reference solves the regression on the centred rows themselves, by QR, and forms no Gram matrix.
    """
    X, y = digits
    X = np.repeat(X, 8, axis=0) + np.random.default_rng(0).normal(scale=0.5, size=(8 * len(X), X.shape[1]))
    y = np.repeat(y, 8)
    hasher = make_hasher("rslh", n_bits=8, random_state=0, kernel={"n_anchors": 300, "bandwidth": 60.0}).fit(X, y)
    uncentred = AnchorRBF(n_anchors=300, bandwidth=60.0, center=False, random_state=0).fit_transform(X)
    assert uncentred.mean() > 0.6
    Z = uncentred.astype(np.float64)
    Z -= Z.mean(axis=0)
    H = hasher[-1].codes_.astype(np.float64)
    augmented = np.vstack([Z, np.sqrt(hasher[-1].ridge) * np.eye(Z.shape[1])])
    Q, R = np.linalg.qr(augmented)
    expected = Z @ np.linalg.solve(R, Q[: len(Z)].T @ H)
    scores = hasher.project(X)
    assert np.abs(scores - expected).max() < 1e-6
    assert (sign(scores) == hasher[-1].codes_).mean() > 0.97


@pytest.mark.data
@pytest.mark.parametrize("n_bits", [4, 10, 32])
def test_same_codes_and_projections_on_cifar10(real_features, n_bits):
    X, y = real_features("cifar10_cnn256")
    rows = np.random.default_rng(0).permutation(len(X))[:2000]
    Z = AnchorRBF(n_anchors=400, random_state=0).fit_transform(X[rows])
    assert_same_outcome(*both(Z, y[rows], n_bits=n_bits))


@pytest.mark.data
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::shorthash.errors.CollisionWarning")
@pytest.mark.parametrize("n_bits", [4, 8, 32])
def test_same_codes_and_projections_on_voc2012(real_features, n_bits):
    X, Y = real_features("voc2012_cnn256")
    Z = AnchorRBF(n_anchors=400, random_state=0).fit_transform(X[:2000])
    assert_same_outcome(*both(Z, Y[:2000], n_bits=n_bits))


def test_codes_still_moving_at_the_end_are_a_warning(tagged):
    X, Y = tagged
    with pytest.warns(ConvergenceWarning, match="max_iter=1 iterations with codes still changing; increase max_iter"):
        hasher = RSLH(n_bits=8, max_iter=1, random_state=0).fit(X, Y)
    assert "still changing" in hasher.convergence_[0].reason
    settled = RSLH(n_bits=8, max_iter=100, random_state=0).fit(X, Y)
    assert "stopped changing" in settled.convergence_[0].reason


def test_too_few_bits_for_the_classes_is_a_warning(blobs):
    with pytest.warns(CollisionWarning, match=r"5 classes .* n_bits=2 \(4 codes\): some must collide; use n_bits >= 3"):
        RSLH(n_bits=2, random_state=0).fit(*blobs)
