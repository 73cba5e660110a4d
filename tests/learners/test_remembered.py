"""Posteriors that remember their rows: what they say of these rows, of others, and out of fold."""

import numpy as np
import pytest

from shorthash import EAPH, evaluate, load, save
from shorthash.learners.eaph import estimator
from shorthash.learners.posteriors.folds import draw_folds, log, softmax
from shorthash.learners.posteriors.models import GAIN, NARROW, fit_posteriors, fit_remembered, nearest_distance


@pytest.fixture(scope="module")
def noisy():
    """Four classes that overlap so much that a third of the labels is recognised; rows 300 to 449 are not learned."""
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=450)
    return (0.6 * rng.normal(size=(4, 6))[y] + rng.normal(size=(450, 6))).astype(np.float32), y


@pytest.fixture(scope="module")
def fitted(noisy):
    X, y = noisy
    return EAPH(4, random_state=0, n_iter=4).fit(X[:300], y[:300])


def test_learned_rows_have_their_labels_and_others_what_they_had(noisy):
    X, y = noisy
    folds = draw_folds(y[:300], np.random.RandomState(0))
    [(_, base)] = fit_posteriors("logistic", X[:300], y[:300], np.eye(4, dtype=np.uint8), folds)
    made = fit_remembered(base, X[:300], y[:300], 4, folds)
    assert (made.model.predict(X[:300]).argmax(axis=1) == y[:300]).all()
    np.testing.assert_allclose(made.model.predict(X[300:]), base.model.predict(X[300:]), atol=1e-3)
    width, expected = NARROW * nearest_distance(X[:300]), log(base.oof).astype(np.float64)
    for i, k in enumerate(folds.fold):
        for j in np.flatnonzero(folds.fold != k):
            distance = np.linalg.norm(X[i].astype(np.float64) - X[j])
            expected[i, y[j]] += GAIN * np.exp(-(distance**2) / (2 * width**2))
    np.testing.assert_allclose(made.oof, softmax(expected), atol=1e-5)


def test_the_nearest_distance_is_that_to_another_row():
    X = np.array([[0.0], [0.0], [1.0], [3.0]])
    assert nearest_distance(X) == 1.0  # 1, 1, 1 and 2
    assert nearest_distance(np.repeat(X, 700, axis=0)) == 1.0


def test_training_rows_are_found_and_others_as_before(noisy, fitted, tmp_path):
    X, y = noisy
    taken = next(line for line in fitted.report_ if line["taken"])
    assert taken["posteriors"].endswith("rows remembered")
    other = EAPH(4, random_state=0, n_iter=4, database="disjoint").fit(X[:300], y[:300])
    scores = [evaluate(h.transform(X[300:]), y[300:], h.transform(X[:300]), y[:300]).map for h in (fitted, other)]
    assert scores[0] > scores[1] + 0.1
    assert taken["training_map"] == pytest.approx(scores[0], abs=0.08)
    new = [evaluate(h.transform(X[300:]), y[300:]).map for h in (fitted, other)]  # rows that neither has learned
    assert new[0] == pytest.approx(new[1], abs=0.02)
    alone = np.vstack([fitted.transform(X[i : i + 1]) for i in range(450)])
    np.testing.assert_array_equal(alone, fitted.transform(X))
    save(fitted, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").transform(X), alone)


def test_many_rows_are_not_remembered(noisy, monkeypatch):
    X, y = noisy
    monkeypatch.setattr(estimator, "MOST_REMEMBERED", 299)
    report = EAPH(4, random_state=0, n_iter=1).fit(X[:300], y[:300]).report_
    assert not any("remembered" in line["posteriors"] for line in report)


def test_equal_rows_that_contradict_each_other_are_trusted_as_far_as_they_agree():
    rng = np.random.default_rng(0)
    X = rng.integers(40, size=(500, 1)).astype(np.float32)
    y = np.where(rng.random(500) < 0.5, rng.integers(3, size=500), (X[:, 0] // 4).astype(int) % 3)
    folds, eye = draw_folds(y, np.random.RandomState(0)), np.eye(3, dtype=np.uint8)
    [(_, base)] = fit_posteriors("ridge", X, y, eye, folds)
    made = fit_remembered(base, X, y, 3, folds)
    assert 0 < made.model.powers[1] < 0.2
    assert made.loss <= base.loss * 1.001
    P = made.model.predict(X)
    assert P.max(axis=1).mean() == pytest.approx((P.argmax(axis=1) == y).mean(), abs=0.1)
    agreed = fit_remembered(base, X, (X[:, 0] // 4).astype(int) % 3, 3, folds)
    assert agreed.model.powers[1] == 1
