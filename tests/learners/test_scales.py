"""Columns of different units, structure finer than the rows are far apart, and classes that are very close."""

import numpy as np
import pytest

from shorthash import evaluate, load, save
from shorthash._rounding import Rounded
from shorthash.learners.eaph.drawing import fit_rows
from shorthash.learners.eaph.estimator import EAPH
from shorthash.learners.posteriors import folds, logistic
from shorthash.learners.posteriors.folds import calibrate, draw_folds, scaled, softmax, uneven_scales
from shorthash.learners.posteriors.logistic import (
    Spread,
    column_scales,
    fit_logistic,
    fit_prototypes,
    shrunk,
    whitening,
    whitening_of,
)
from shorthash.learners.posteriors.ridge import FLOOR, fit_ridge, kernel_tried

UNITS = np.array([1e-3, 1.0, 1e4, 1e4])  # the first two say the class, the others nothing


@pytest.fixture(scope="module")
def measured():
    """Four classes: standardised rows, and the same with what tells classes apart in small units."""
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=600)
    X = np.hstack([2.5 * rng.normal(size=(4, 2))[y] + rng.normal(size=(600, 2)), rng.normal(size=(600, 2))])
    return (X / X.std(axis=0)).astype(np.float32), (X * UNITS).astype(np.float32), y


@pytest.fixture(scope="module")
def hasher(measured):
    return EAPH(4, random_state=0).fit(measured[1][:400], measured[2][:400])


def folded(y, n_classes):
    return y, np.eye(n_classes, dtype=np.uint8), draw_folds(y, np.random.RandomState(0))


def test_scales_are_the_powers_of_two_that_even_columns_out():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4)) * [1e-6, 0.3, 1.0, 1e5]
    found = uneven_scales(X.astype(np.float32))
    assert np.array_equal(np.exp2(np.round(np.log2(found))), found)
    spread = (X * found).std(axis=0)
    assert spread.min() > 0.7
    assert spread.max() < 1.45


def test_columns_that_are_alike_have_no_scales():
    assert uneven_scales(np.random.default_rng(0).normal(size=(500, 3)) * [0.2, 1.0, 2.0]) is None


def test_rounding_of_a_constant_column_is_not_blown_up():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=300), 1e6 + 0.01 * rng.normal(size=300), np.full(300, 7.0)]).astype(np.float32)
    assert uneven_scales(X) is None
    assert uneven_scales(np.zeros((5, 2), dtype=np.float32)) is None


def test_scaled_rows_are_exact(measured):
    X, scales = measured[1], uneven_scales(measured[1])
    assert scaled(X, scales).dtype == X.dtype
    assert np.array_equal(scaled(X, scales).astype(np.float64), X.astype(np.float64) * scales)
    assert scaled(X, None) is X


def test_columns_are_scaled_where_they_were_measured_in_other_units(measured):
    _, X, y = measured
    assert column_scales(X, *folded(y, 4)) is not None


def test_columns_of_noise_are_left_small():
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=500)
    X = np.hstack([3 * rng.normal(size=(4, 3))[y] + rng.normal(size=(500, 3)), 0.01 * rng.normal(size=(500, 60))])
    assert uneven_scales(X) is not None
    assert column_scales(X.astype(np.float32), *folded(y, 4)) is None


@pytest.mark.parametrize("fit", [fit_logistic, fit_ridge], ids=["logistic", "ridge"])
def test_units_do_not_matter_to_a_model(measured, fit):
    plain, units, y = measured
    one, two = (fit(X[:400], *folded(y[:400], 4)) for X in (plain, units))
    assert two.loss == pytest.approx(one.loss, rel=0.1)
    right = [
        (model.predict(X[400:]).argmax(axis=1) == y[400:]).mean()
        for model, X in ((one.model, plain), (two.model, units))
    ]
    assert right[1] > right[0] - 0.02


def test_units_do_not_matter_to_codes(measured, hasher, monkeypatch):
    plain, units, y = measured

    def map_of(fitted, X):
        return evaluate(fitted.transform(X[400:]), y[400:], fitted.transform(X[:400]), y[:400]).map

    expected = map_of(EAPH(4, random_state=0).fit(plain[:400], y[:400]), plain)
    assert map_of(hasher, units) > expected - 0.04
    monkeypatch.setattr(folds, "UNEVEN", np.inf)
    assert map_of(EAPH(4, random_state=0).fit(units[:400], y[:400]), units) < expected - 0.1


def test_the_report_says_that_columns_were_scaled(measured, hasher):
    plain, _, y = measured
    other = EAPH(4, random_state=0).fit(plain[:400], y[:400])
    for fitted, expected in ((hasher, True), (other, False)):
        names = [line["posteriors"] for line in fitted.report_]
        assert any("columns scaled" in name for name in names) == expected


def test_a_kernel_of_scaled_rows_is_that_of_the_rows_times_the_scales(measured):
    _, X, y = measured
    model = fit_ridge(X, *folded(y, 4)).model
    assert model.scales is not None
    features = model.kernel.transform(X[:50].astype(np.float64) * model.scales)
    scores = features @ model.weights + model.bias
    slow = model.temperature * scores + model.power * np.log(np.maximum(scores, FLOOR))
    fast = model.logits(Rounded(X[:50]), exact=False)
    assert np.allclose(fast.values, slow, rtol=1e-10, atol=1e-10)
    for row in range(5):
        exact = model.logits(Rounded(X[row : row + 1]), exact=True).values
        assert np.all(np.abs(exact - fast.values[row]) <= np.broadcast_to(fast.bound, fast.values.shape)[row])


def test_codes_of_scaled_rows_do_not_depend_on_the_batch_and_are_saved(measured, hasher, tmp_path):
    X = measured[1]
    codes = hasher.transform(X)
    assert np.array_equal(np.vstack([hasher.transform(X[i : i + 1]) for i in range(40)]), codes[:40])
    save(hasher, tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").transform(X), codes)


@pytest.mark.parametrize("labels", [True, False])
def test_dead_columns_of_a_network_change_no_score(measured, labels):
    """Some networks have outputs of 1e-33, or nearly constant ones, which are rows of noise when scaled."""
    even, _, y = measured
    dead = np.random.default_rng(1).normal(size=(len(y), 2)) * [1e-33, 2e-9] + [1e-33, 1e-8]
    X = np.hstack([even, dead]).astype(np.float32)
    scores = []
    for rows in (even, X):
        hasher = EAPH(4, random_state=0).fit(rows[:400], y[:400] if labels else None)
        codes = hasher.transform(rows)
        assert np.array_equal(np.vstack([hasher.transform(rows[i : i + 1]) for i in range(20)]), codes[:20])
        scores.append(evaluate(codes[400:], y[400:], codes[:400], y[:400]).map)
    assert scores[1] == pytest.approx(scores[0], abs=0.05)


def test_fine_structure_gets_a_narrow_kernel():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(600, 2)).astype(np.float32)
    y = (np.floor(4 * X).sum(axis=1) % 2).astype(np.intp)  # a chessboard
    fitted = fit_ridge(X, *folded(y, 2))
    distance = np.sqrt(2 * X.var(axis=0).sum())
    assert fitted.model.kernel.bandwidth_ < 0.3 * distance
    assert (fitted.oof.argmax(axis=1) == y).mean() > 0.8


def test_a_kernel_is_tried_with_few_scores_or_few_columns():
    many = {(10**6, 128, 256): True, (20_000, 129, 256): False, (20_000, 1025, 256): True, (20_000, 129, 3): True}
    few = {(10_000, 256, 256): True, (10_000, 257, 256): False, (1194, 597, 192): True, (13_722, 597, 192): False}
    tried = many | few
    assert {case: kernel_tried(*case) for case in tried} == tried


def test_many_classes_in_few_columns(monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr("shorthash.learners.posteriors.ridge.MOST_SETS", 10)
    y = np.repeat(np.arange(30), 14)
    X = (rng.uniform(size=(30, 2))[y] + 0.02 * rng.normal(size=(len(y), 2))).astype(np.float32)
    fitted = EAPH(6, random_state=0).fit(X, y)
    assert any(line["posteriors"].startswith("ridge") for line in fitted.report_)
    assert fitted.disjoint_map_ > 0.7


def test_a_temperature_beyond_the_range_is_found():
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=400)
    S = (rng.normal(size=(400, 5)) + 2 * np.eye(5)[y]).astype(np.float32)
    expected = calibrate(S, y)
    temperature, loss = calibrate(S / 1000, y)
    assert temperature == pytest.approx(1000 * expected[0], rel=0.05)
    assert loss == pytest.approx(expected[1], rel=1e-3)
    assert softmax(temperature * S / 1000).max() > 0.9


@pytest.fixture
def wide():
    """30 rows of three classes in 40 columns; three rows are there twice."""
    rng = np.random.default_rng(0)
    ids = np.arange(30) % 3
    X = 0.5 * rng.normal(size=(3, 40))[ids] + rng.normal(size=(30, 40))
    X[27:] = X[:3]
    return X.astype(np.float32), ids


def test_the_spread_of_few_rows_with_many_columns_is_that_of_their_covariance(wide, monkeypatch):
    R = wide[0] - wide[0].mean(axis=0, dtype=np.float64)
    covariance = shrunk(R.T @ R / len(R))
    monkeypatch.setattr(logistic, "WIDE", 1)
    spread = Spread.of_rows(R)
    assert len(spread.values) == 26
    np.testing.assert_allclose(spread.power(1.0), covariance, atol=1e-12)
    np.testing.assert_allclose(spread.times(3.0).power(0.5) @ spread.times(3.0).power(0.5), 3 * covariance, atol=1e-12)
    V = whitening(covariance)
    for inverse in (spread.power(-1.0), V @ V.T, whitening_of(R) @ whitening_of(R).T):
        np.testing.assert_allclose(inverse, np.linalg.inv(covariance), atol=1e-10)
    A = np.random.default_rng(1).normal(size=(5, 40))
    np.testing.assert_allclose(spread.distances(A), [a @ np.linalg.solve(covariance, a) for a in A], rtol=1e-9)
    none = Spread.of_rows(np.zeros((3, 40)))
    np.testing.assert_array_equal(none.power(1.0), shrunk(np.zeros((40, 40))))


@pytest.mark.parametrize("fit", [fit_logistic, fit_prototypes])
def test_models_of_few_rows_with_many_columns_are_as_with_their_covariance(wide, fit, monkeypatch):
    X, ids = wide
    folds = draw_folds(ids, np.random.RandomState(0))
    found = fit(X, ids, np.eye(3, dtype=np.uint8), folds)
    monkeypatch.setattr(logistic, "WIDE", 1)
    quick = fit(X, ids, np.eye(3, dtype=np.uint8), folds)
    np.testing.assert_allclose(quick.oof, found.oof, atol=5e-3)
    np.testing.assert_allclose(quick.model.predict(-X), found.model.predict(-X), atol=5e-3)


def test_rows_drawn_of_few_with_many_columns_are_as_with_their_covariance(wide, monkeypatch):
    X, ids = wide
    found = fit_rows(X, ids, np.eye(3, dtype=np.uint8), 0)
    monkeypatch.setattr(logistic, "WIDE", 1)
    quick = fit_rows(X, ids, np.eye(3, dtype=np.uint8), 0)
    np.testing.assert_allclose(quick.root, found.root, atol=1e-10)
    np.testing.assert_allclose(quick.spread, found.spread, rtol=1e-9)
    np.testing.assert_allclose(quick.means, found.means, atol=1e-10)
