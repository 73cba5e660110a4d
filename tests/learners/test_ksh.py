from dataclasses import replace

import numpy as np
import pytest
from scipy import linalg
from scipy.optimize import approx_fprime

from shorthash._labels import group_labels
from shorthash.errors import InvalidInput
from shorthash.learners.ksh import KSH, _ascend, _leading_direction, _Residual, _smooth, _smooth_value, _whitening


def dense_similarity(Y):
    return np.where(Y @ Y.T > 0, 1.0, -1.0)


@pytest.fixture(params=["single", "several"])
def problem(request, seed):
    """Centred rows, the residual after two bits, and the same as a dense matrix."""
    rng = np.random.default_rng(seed)
    if request.param == "single":
        labels = rng.integers(3, size=40)
        Y = np.eye(3)[labels]
    else:
        labels = Y = (rng.random((40, 4)) < 0.4).astype(int)
        Y[Y.sum(axis=1) == 0, 0] = 1
    K = Y @ rng.normal(size=(Y.shape[1], 6)) + 0.5 * rng.normal(size=(40, 6))
    H = np.sign(rng.normal(size=(40, 2)))
    residual = _Residual.of(group_labels(labels, owner="test"), np.arange(40), 5)
    for h in H.T:
        residual = residual.without(h)
    return K - K.mean(axis=0), residual, 5 * dense_similarity(Y) - H @ H.T


@pytest.mark.parametrize("held", [True, False])
def test_products_equal_those_with_the_full_matrix(problem, held):
    K, residual, S = problem
    residual = residual if held else replace(residual, T=None)
    assert np.allclose(residual.times(K), S @ K)
    assert np.allclose(residual.form(K), K.T @ S @ K)
    assert residual.value(K[:, 0]) == pytest.approx(K[:, 0] @ S @ K[:, 0])


def test_the_gradient_is_that_of_the_smooth_value(problem, seed):
    K, residual, S = problem
    a = np.random.default_rng(seed).normal(size=6)

    def value(a):
        s = 2 / (1 + np.exp(-K @ a)) - 1
        return s @ S @ s

    here, gradient = _smooth(K, residual, a)
    assert here == pytest.approx(value(a))
    assert _smooth_value(K, residual, a) == pytest.approx(value(a))
    assert np.allclose(gradient, approx_fprime(a, value, 1e-7), atol=1e-3)


def test_a_bit_starts_at_the_leading_generalised_eigenvector(problem):
    K, residual, S = problem
    a = _leading_direction(K, residual, _whitening(K))
    _, vectors = linalg.eigh(K.T @ S @ K, K.T @ K)
    assert a @ K.T @ K @ a == pytest.approx(40)
    best = vectors[:, -1] * np.sqrt(40)
    assert np.allclose(a, best) or np.allclose(a, -best)
    assert a[np.abs(a).argmax()] > 0


def test_the_ascent_climbs(problem):
    K, residual, _ = problem
    start = _leading_direction(K, residual, _whitening(K))
    values = [_smooth(K, residual, start)[0]]
    for steps in (1, 5, 50):
        end, done = _ascend(K, residual, start, steps, tol=0)
        assert done == steps
        values.append(_smooth(K, residual, end)[0])
    assert values == sorted(values)
    assert values[-1] > values[0]


def test_the_objective_is_its_definition(blobs, tagged):
    for X, y in (blobs, tagged):
        Y = np.eye(5)[y] if y.ndim == 1 else y
        hasher = KSH(4, random_state=0).fit(X, y)
        H = hasher.transform(X).astype(float)
        expected = [np.sum((4 * dense_similarity(Y) - H[:, : bit + 1] @ H[:, : bit + 1].T) ** 2) for bit in range(4)]
        assert np.allclose(hasher.objective_, expected)
        assert expected[-1] < expected[0]


def test_the_ascent_is_kept_only_where_its_signs_are_better(blobs):
    X, y = blobs
    with_steps, almost_none = KSH(1, random_state=0).fit(X, y), KSH(1, max_iter=1, tol=1e9, random_state=0).fit(X, y)
    assert with_steps.objective_[0] <= almost_none.objective_[0]


def test_two_far_classes_get_opposite_codes():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 50)
    X = rng.normal(size=(100, 3)) + 20 * y[:, None]
    codes = KSH(3, random_state=0).fit(X, y).transform(X)
    assert (codes[:50] == codes[0]).all()
    assert (codes[50:] == -codes[0]).all()


def test_only_so_many_rows_are_looked_at(blobs):
    X, y = blobs
    few = KSH(2, n_labelled=50, random_state=0).fit(X, y)
    assert few.objective_[0] <= 4 * 50**2
    assert np.allclose(few.mean_, X.mean(axis=0))  # the mean is that of all rows
    assert np.array_equal(
        KSH(2, n_labelled=None, random_state=0).fit(X, y).projection_, KSH(2, random_state=0).fit(X, y).projection_
    )


def test_features_without_variance_do_no_harm(blobs):
    X, y = blobs
    wide = np.hstack([X, X[:, :2], np.ones((300, 1))])
    assert KSH(4, random_state=0).fit(wide, y).score(wide, y) == pytest.approx(
        KSH(4, random_state=0).fit(X, y).score(X, y), abs=0.02
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_labelled": 1}, "'n_labelled' parameter of KSH must be an int >= 2"),
        ({"max_iter": 0}, "'max_iter' parameter of KSH must be an int >= 1"),
        ({"tol": -1}, "'tol' parameter of KSH must be a finite float >= 0"),
    ],
)
def test_bad_parameters(blobs, settings, message):
    with pytest.raises(InvalidInput, match=message):
        KSH(**settings).fit(*blobs)
