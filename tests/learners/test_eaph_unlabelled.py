"""EAPH with few labels: spreading them, when it is done, and what it is worth."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.semi_supervised import LabelSpreading

from shorthash import EAPH, evaluate
from shorthash.errors import InvalidInput
from shorthash.learners.eaph import unlabelled
from shorthash.learners.eaph.unlabelled import missing_in, spread_labels


@pytest.fixture(scope="module")
def rods():
    """Long, thin clusters: one label per class says little about the class, its neighbours do."""
    rng = np.random.default_rng(0)
    X, y = make_blobs(600, n_features=6, centers=8, cluster_std=0.5, random_state=0)
    long = rng.normal(size=(8, 6)) * 3
    X = X + rng.uniform(-1, 1, size=(600, 1)) * long[y]
    return X.astype(np.float32), y


def few(y, per_class, fill=None):
    kept = np.concatenate([np.flatnonzero(y == c)[:per_class] for c in np.unique(y)])
    labels = np.full(len(y), fill, dtype=object)
    labels[kept] = y[kept]
    return labels, kept


def test_unlabelled_rows_help(rods):
    X, y = rods
    labels, kept = few(y, 1)
    alone = EAPH(4, random_state=0, metric="euclidean").fit(X[kept], y[kept])
    both = EAPH(4, random_state=0, metric="euclidean").fit(X, labels)
    assert both.n_unlabelled_ == 600 - 8
    assert both.classes_.tolist() == list(range(8))
    assert evaluate(both.transform(X), y).map > evaluate(alone.transform(X), y).map + 0.05


@pytest.mark.parametrize("fill", [None, float("nan"), ""])
def test_every_kind_of_missing_label_is_the_same(rods, fill):
    X, y = rods
    names = np.array([f"c{c}" for c in y], dtype=object)
    known = np.arange(600) % 50 == 0
    labels = np.where(known, names, fill)
    assert np.array_equal(missing_in(labels), ~known)
    _, found, spread = spread_labels(X, labels, ~known, "euclidean", np.random.RandomState(0))
    again = spread_labels(X, np.where(known, names, None), ~known, "euclidean", np.random.RandomState(0))
    assert spread
    assert np.array_equal(found, again[1])
    assert np.isin(found, names[known]).all()


def test_labels_that_do_not_follow_neighbours_are_not_spread(rods):
    """The class is the sign of a direction that neighbours hardly share: a model of the labelled rows finds it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 12)).astype(np.float32)
    X[:, 1:] *= 4
    y = (X[:, 0] > 0).astype(int)
    labels, kept = few(y, 60)
    fitted = EAPH(2, random_state=0).fit(X, labels)
    assert fitted.n_unlabelled_ == 0
    assert fitted.n_dropped_ == 400 - 120
    assert np.array_equal(
        fitted.transform(X), EAPH(2, random_state=0).fit(X[np.sort(kept)], y[np.sort(kept)]).transform(X)
    )


def test_dropping_is_still_possible(rods):
    X, y = rods
    labels, _ = few(y, 3)
    fitted = EAPH(4, random_state=0, drop_unlabelled=True).fit(X, labels)
    assert fitted.n_dropped_ == 600 - 24
    assert not hasattr(fitted, "n_unlabelled_")


def test_spreading_agrees_with_scikit_learn(rods, monkeypatch):
    X, y = rods
    labels, kept = few(y, 2)
    monkeypatch.setattr(unlabelled, "STEPS", 500)
    rows, found, spread = spread_labels(X, labels, missing_in(labels), "euclidean", np.random.RandomState(0))
    assert spread
    reference = LabelSpreading("knn", n_neighbors=11, alpha=0.95, max_iter=500, tol=1e-9)
    numbers = np.where(missing_in(labels), -1, y)
    assert (found.astype(int) == reference.fit(X, numbers).transduction_).mean() > 0.95
    assert np.array_equal(rows, np.arange(600))
    assert np.array_equal(found[kept], labels[kept])


def test_what_spreads_and_a_model_know_more_together(monkeypatch):
    """Neighbours show which pair of classes a row has, a model which of the two."""
    y = np.arange(400) % 8
    X = np.hstack([y[:, None], np.random.default_rng(0).normal(size=(400, 2))]).astype(np.float32)
    labels, kept = few(y, 6)
    pairs = (y[:, None] // 2 == np.arange(8) // 2) + 0.01 * (np.arange(8) % 2)

    class Parity:
        def predict(self, rows):
            return (rows[:, :1] % 2 == np.arange(8) % 2) + 0.1

    monkeypatch.setattr(unlabelled, "_spread", lambda *_: pairs.copy())
    monkeypatch.setattr(unlabelled, "_model", lambda *_: Parity())
    rows, found, spread = spread_labels(X, labels, missing_in(labels), "euclidean", np.random.RandomState(0))
    assert spread
    assert np.array_equal(found.astype(int), y[rows])
    assert np.isin(kept, rows).all()


def test_rows_that_nothing_spreads_to_have_equal_shares(rods):
    X, _ = rods
    apart = np.vstack([X[:30], X[:30] + 1000])
    F = unlabelled._spread(unlabelled._graph(apart, "euclidean"), np.array([0, 1]), np.array([0, 1]), 2)
    assert np.allclose(F.sum(axis=1), 1)
    assert np.allclose(F[30:], 0.5)


def test_many_unlabelled_rows_are_sampled(rods, monkeypatch):
    X, y = rods
    labels, kept = few(y, 2)
    monkeypatch.setattr(unlabelled, "MOST_ROWS", 100)
    rows, found, _ = spread_labels(X, labels, missing_in(labels), "euclidean", np.random.RandomState(0))
    assert len(rows) == len(found) == 100
    assert np.isin(kept, rows).all()


def test_sets_of_labels(rods):
    X, y = rods
    labels, _ = few(y, 2)
    labels[:] = [None if label is None else {"a", f"c{label}"} for label in labels]
    fitted = EAPH(4, random_state=0, metric="euclidean").fit(X, labels)
    assert fitted.n_unlabelled_ == 600 - 16
    assert len(fitted.classes_) == 9


def test_no_label_at_all_is_an_error_that_says_so(rods):
    with pytest.raises(InvalidInput, match="label"):
        EAPH(4).fit(rods[0][:20], np.full(20, None))
