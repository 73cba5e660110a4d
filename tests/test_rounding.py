"""Bounds hold against arithmetic with more digits, and only what is in doubt is computed again."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import special

from shorthash import AnchorRBF, make_hasher
from shorthash._rounding import (
    UNIT,
    Rounded,
    Scored,
    best_word,
    by_itself,
    linear,
    product,
    settled,
    shifted_product,
    softmax,
    table_gains,
)

LONG = np.longdouble
needs_more_digits = pytest.mark.skipif(np.finfo(LONG).eps >= UNIT, reason="long double is double here")


def test_the_ordered_product_adds_up_in_order():
    a, B = np.array([[1e17, 1.0, -1e17, 1.0]]), np.ones((4, 2))
    assert product(a, B, exact=True).tolist() == [[1.0, 1.0]]  # the first 1 is lost, the second is not


@pytest.mark.parametrize("exact", [False, True])
def test_linear_scores_are_within_their_bound(seed, exact):
    rng = np.random.default_rng(seed)
    X, P, b = rng.normal(size=(20, 30)) * 10.0 ** rng.integers(-6, 7, 30), rng.normal(size=(30, 3)), rng.normal(size=3)
    P -= np.linalg.pinv(X[:1]) @ (X[:1] @ P)  # the first row cancels
    for i in range(len(X)):
        found = linear(Rounded(X[i : i + 1]), P, b, exact=exact)
        for k in range(3):
            terms = [Fraction(x) * Fraction(p) for x, p in zip(X[i].tolist(), P[:, k].tolist(), strict=True)]
            true = sum(terms, Fraction(b[k]))
            assert abs(Fraction(found.values[0, k]) - true) <= Fraction(found.bound[0, k])
    assert (found.bound < 1e-6).all()


@pytest.mark.parametrize("exact", [False, True])
def test_shifted_products_are_within_their_bound_which_a_dead_column_does_not_widen(seed, exact):
    rng = np.random.default_rng(seed)
    units = np.array([1.0, 1e-33, 1e6, 1.0, 1e-9])
    X, center = (rng.normal(size=(8, 5)) + 3) * units, 3 * units
    M = rng.normal(size=(5, 4)) / units[:, None]
    for i in range(len(X)):
        found = shifted_product(Rounded(X[i : i + 1]), center, M, exact=exact)
        for k in range(4):
            columns = zip(X[i].tolist(), center.tolist(), M[:, k].tolist(), strict=True)
            true = sum((Fraction(x) - Fraction(c)) * Fraction(m) for x, c, m in columns)
            assert abs(Fraction(found.values[0, k]) - true) <= Fraction(found.error[0, 0])
        assert found.error[0, 0] < 1e-12


@needs_more_digits
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("far", [0.0, 1e5])
def test_kernel_features_are_within_their_bound(blobs, exact, far):
    X = np.concatenate([blobs[0], 20 * blobs[0][:20]]) + far
    kernel = AnchorRBF(40, random_state=0).fit(X)
    A, sigma = kernel.anchors_.astype(LONG), LONG(kernel.bandwidth_)
    true = np.exp(-((X.astype(LONG)[:, None] - A[None]) ** 2).sum(axis=2) / (2 * sigma**2)) - kernel.mean_.astype(LONG)
    parts = [X[i : i + 1] for i in range(len(X))] if exact else [X]
    found = [kernel.rounded(Rounded(part), exact=exact) for part in parts]
    values, error = (np.concatenate([part[i] for part in found]) for i in (0, 1))
    distance = np.sqrt(((values - true) ** 2).sum(axis=1, keepdims=True))
    assert (distance <= error).all()
    assert error.max() < 1e-11


def test_an_error_of_the_rows_reaches_the_features(blobs):
    X = blobs[0]
    kernel = AnchorRBF(40, random_state=0).fit(X)
    moved = X + 1e-3 * np.random.default_rng(0).normal(size=X.shape)
    distance = np.linalg.norm(moved - X, axis=1, keepdims=True)
    error = kernel.rounded(Rounded(X, distance), exact=False).error
    assert (np.linalg.norm(kernel.transform(moved) - kernel.transform(X), axis=1) <= error[:, 0]).all()


def test_rows_too_far_away_for_the_fast_product_are_settled(blobs):
    X = np.concatenate([blobs[0], [[1e9] * 12, [1e9] * 12]])
    kernel = AnchorRBF(302, random_state=0).fit(X)  # two anchors are far away as well
    fast = kernel.rounded(Rounded(X), exact=False)
    assert np.isinf(fast.error[-2:]).all()
    assert fast.error[:-2].max() < 1e-11
    alone = kernel.rounded(Rounded(X[-1:]), exact=True)
    assert alone.error < 1e-13
    assert np.isclose(alone.values[0] + kernel.mean_, (kernel.anchors_[:, 0] == 1e9)).all()


@needs_more_digits
@pytest.mark.parametrize("temperature", [0.1, 1.0, 50.0])
def test_posteriors_and_gains_are_within_their_bounds(temperature):
    rng = np.random.default_rng(0)
    S, off, T = rng.normal(size=(50, 9)), 1e-9, rng.normal(size=(16, 9))
    true = special.softmax(temperature * (S + off * rng.uniform(-1, 1, size=S.shape)).astype(LONG), axis=1)
    P = softmax(Scored(S, off), temperature)
    assert (np.abs(P.values - true).sum(axis=1, keepdims=True) <= P.bound).all()
    gains = table_gains(P, T, exact=False)
    assert (np.abs(gains.values - true @ T.T.astype(LONG)) <= gains.bound).all()
    assert gains.bound.max() < 1e-6


def test_bits_of_the_best_word_are_as_sure_as_its_lead():
    words = np.array([[1, 1, 1], [1, -1, -1], [-1, -1, 1]], dtype=np.int8)
    gain = Scored(np.array([[0.3, 0.9, 0.2]]), 0.01)
    found = best_word(gain, words, exact=False)
    assert np.allclose(found.values, [[0.7, -0.6, -0.6]])
    assert np.allclose(found.bound, 0.02)


def test_of_words_that_cannot_be_told_apart_the_first_is_taken():
    words = np.array([[1, 1], [-1, 1], [-1, -1]], dtype=np.int8)
    gain = Scored(np.array([[0.2, 0.9, 0.9 + 1e-12]]), 1e-12)
    assert np.sign(best_word(gain, words, exact=True).values).tolist() == [[-1, 1]]
    assert best_word(gain, words, exact=True).bound.max() == 0


def test_only_rows_in_doubt_are_scored_again_and_alone():
    seen = []

    def scores(rows, *, exact):
        if exact:
            seen.append(rows.tolist())
            return Scored(np.array([[5.0, -1e-3]]), 1e-2)
        return Scored(rows.copy(), 0.1)

    rows = np.array([[1.0, -2.0], [0.2, 3.0], [-0.4, 0.4], [np.nan, 1.0]])
    found = settled(rows, scores)
    assert seen == [[[0.2, 3.0]], [pytest.approx([np.nan, 1.0], nan_ok=True)]]
    assert found.tolist() == [[1.0, -2.0], [5.0, 0.0], [-0.4, 0.4], [5.0, 0.0]]  # what is within its bound is 0


def test_a_score_without_rounding_error_is_never_in_doubt():
    found = settled(np.zeros((3, 2)), lambda rows, exact: Scored(rows.copy(), 0.0) if not exact else 1 / 0)
    assert not found.any()


def test_foreign_arithmetic_is_exact_for_a_row_alone():
    X = np.random.default_rng(0).normal(size=(5, 4))
    assert by_itself(np.cbrt, X[:1], exact=True).error == 0
    for dtype, relative in ((np.float64, 1e-10), (np.float32, 1e-5)):
        found = by_itself(np.cbrt, X.astype(dtype), exact=False)
        assert np.allclose(found.error[:, 0], relative * np.linalg.norm(np.cbrt(X), axis=1), rtol=1e-5)


def test_rows_whose_squares_overflow_have_a_code_without_a_warning():
    rng = np.random.RandomState(0)
    X, y = rng.normal(size=(60, 4)), np.arange(60) % 3
    hasher = make_hasher("rslh", 4, random_state=0, kernel__n_anchors=10).fit(X, y)
    huge = np.array([[1e200, -1e200, 0.0, 1.0], [1e300, 1e300, 1e300, -1e300]])
    together = hasher.transform(huge)
    assert np.array_equal(together, np.concatenate([hasher.transform(huge[:1]), hasher.transform(huge[1:])]))
