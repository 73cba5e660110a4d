"""Rows drawn to design codes with: their distribution, their difficulty, and what few rows may say against a table."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from shorthash import evaluate, load, save
from shorthash.learners.eaph import choosing, drawing, estimator
from shorthash.learners.eaph.choosing import Judged
from shorthash.learners.eaph.drawing import fit_rows
from shorthash.learners.eaph.estimator import EAPH
from shorthash.learners.posteriors.folds import Fitted, log, softmax

COUNTS = np.array([2, 5, 9])
IDS = np.repeat(np.arange(3), COUNTS)
EYE = np.eye(3, dtype=np.uint8)


@dataclass
class Recording:
    """Posteriors by distances to centers; keeps the rows."""

    centers: np.ndarray
    rows: list = field(default_factory=list)

    def predict(self, X):
        self.rows.append(X)
        return softmax(-((X[:, None] - self.centers) ** 2).sum(axis=2))


@pytest.fixture
def three_sets():
    rng = np.random.default_rng(0)
    centers = np.array([[0.0, 0.0], [4.0, 1.0], [-1.0, 3.0]])
    return (centers[IDS] + rng.normal(size=(16, 2)) @ [[1.0, 0.3], [0.0, 0.6]]).astype(np.float32)


def drawn_rows(model, loss=0.0):
    """The rows that a model draws where rows held out have a loss."""
    recording = Recording(model.centers)
    P = model.posteriors(Fitted(recording, None, loss))
    return recording.rows[-1], P


def test_rows_have_the_predictive_distribution_of_their_label_set(three_sets, monkeypatch):
    monkeypatch.setattr(drawing, "LEAST_DRAWN", 60_000)
    model = fit_rows(three_sets, IDS, EYE, 0)
    rows, _ = drawn_rows(model)
    means = np.array([three_sets[s == IDS].mean(axis=0) for s in range(3)], dtype=np.float64)
    within = sum(np.outer(x - means[s], x - means[s]) for x, s in zip(three_sets, IDS, strict=True)) / len(IDS)
    shrunk = (within / 2 + np.eye(2) * np.trace(within) / 4) * 16 / 13
    away = means - means.mean(axis=0)
    between = sum(a @ np.linalg.solve(shrunk, a) for a in away) / (2 * 2) - np.mean(1 / COUNTS)
    assert np.array_equal(np.bincount(model.ids), np.round(60_000 * COUNTS / 16))
    for s, n in enumerate(COUNTS):
        own = rows[model.ids == s].astype(np.float64)
        expected = means.mean(axis=0) + between / (between + 1 / n) * away[s]
        np.testing.assert_allclose(own.mean(axis=0), expected, atol=0.05)
        np.testing.assert_allclose(np.cov(own.T), (1 + 1 / (1 / between + n)) * shrunk, atol=0.05)


@pytest.mark.parametrize("loss", [0.0, 0.2, 0.8])
def test_noise_is_raised_half_way_to_the_loss_of_rows_held_out(three_sets, loss, monkeypatch):
    monkeypatch.setattr(drawing, "LEAST_DRAWN", 20_000)
    monkeypatch.setattr(drawing, "EVERY", 1)
    model = fit_rows(three_sets, IDS, EYE, 0)
    own = np.arange(len(model.ids)), model.ids
    easiest, found = (-float(log(drawn_rows(model, each)[1][own]).mean()) for each in (0.0, loss))
    assert easiest < 0.2
    assert found == pytest.approx(np.sqrt(easiest * max(easiest, loss)), rel=0.1)


def test_units_of_columns_do_not_matter(three_sets):
    units = np.array([1.0, 1024.0], dtype=np.float32)
    deviations = three_sets.std(axis=0)
    X = three_sets / (2.0 ** np.round(np.log2(deviations))).astype(np.float32)  # what scales would do
    plain, measured = (fit_rows(rows, IDS, EYE, 0) for rows in (X, X * units))
    assert measured.scales is not None
    noise = [np.random.RandomState(0).normal(size=(9, 2)) @ model.root for model in (plain, measured)]
    np.testing.assert_allclose(*(n / n.std(axis=0) for n in noise), rtol=1e-5)
    np.testing.assert_allclose(drawn_rows(plain)[0], drawn_rows(measured)[0] / units, rtol=1e-4, atol=1e-4)


def test_no_rows_are_drawn_where_there_are_many_or_no_two_of_a_label_set(three_sets):
    few = np.arange(16, dtype=np.intp)
    assert fit_rows(three_sets, few, np.eye(16, dtype=np.uint8), 0) is None
    many = np.tile(three_sets, (20, 1))
    assert fit_rows(many[:300], np.arange(300) % 3, EYE, 0) is not None
    assert fit_rows(many[:303], np.arange(303) % 3, EYE, 0) is None
    sets = np.array([[1, 0], [0, 1], [1, 1]], dtype=np.uint8)  # four labels for every three rows
    assert fit_rows(many[:150], np.arange(150) % 3, sets, 0) is not None
    assert fit_rows(many[:156], np.arange(156) % 3, sets, 0) is None


def few_digits(digits, per_class, seed):
    """Some training rows of every class, and the other rows."""
    X, y = digits
    order = np.random.default_rng(seed).permutation(len(y))
    train = np.concatenate([order[y[order] == c][:per_class] for c in range(10)])
    rest = np.setdiff1d(order, train)
    return X[train], y[train], X[rest], y[rest]


def test_codes_of_few_rows_are_better_with_drawn_rows(digits, monkeypatch):
    scores = {"drawn": [], "not": []}
    for way, found in scores.items():
        if way == "not":
            monkeypatch.setattr(estimator, "fit_rows", lambda *_: None)
        for seed in range(3):
            X, y, others, labels = few_digits(digits, 4, seed)
            codes = EAPH(10, random_state=0).fit(X, y).transform(others)
            found.append(evaluate(codes[:500], labels[:500], codes[500:], labels[500:]).map)
    assert np.mean(scores["drawn"]) > np.mean(scores["not"]) + 0.02


def test_a_saved_model_designs_the_same_codes(digits, tmp_path):
    X, y, others, _ = few_digits(digits, 5, 0)
    hasher = EAPH(7, posterior="logistic", database="disjoint", random_state=0).fit(X, y)
    assert hasher.drawn_posteriors_.shape == (2000, 10)
    loaded = load(save(hasher, tmp_path / "model"))
    codes = hasher.set_params(n_bits=9).update_codes().transform(others)
    np.testing.assert_array_equal(loaded.set_params(n_bits=9).update_codes().transform(others), codes)
    again = hasher.fit(*(np.tile(a, (25, 1) if a.ndim == 2 else 25) for a in (X, y)))
    assert not hasattr(again, "drawn_posteriors_")  # of 125 rows per class none are drawn


def test_drawn_rows_are_no_candidates_where_posteriors_or_places_are_given(digits):
    X, y, _, _ = few_digits(digits, 5, 0)
    P = softmax(5 * np.eye(10)[y] + np.random.default_rng(0).normal(size=(50, 10))).astype(np.float64)
    P /= P.sum(axis=1, keepdims=True)
    for hasher in (EAPH(6, posterior="precomputed").fit(P, y), EAPH(6, expect_new_classes=True).fit(X, y)):
        assert not hasattr(hasher, "drawn_posteriors_")


@pytest.mark.parametrize(
    ("n", "mean", "deviation", "worse"),
    [
        (20, -0.1, 0.3, False),  # 0.1 +- 0.07: outweighed by what is expected
        (20, -0.7, 0.3, True),
        (1000, -0.02, 0.3, True),  # 0.02 +- 0.01
        (1000, -0.01, 0.3, False),
        (100_000, -0.001, 0.3, True),  # any loss counts
        (100_000, 0.001, 0.3, False),
    ],
)
def test_the_fewer_rows_the_less_they_count_against_a_table(n, mean, deviation, worse):
    difference = mean + deviation * np.where(np.arange(n) % 2, 1.0, -1.0)
    unknown = np.full(7, np.nan)
    codewords = Judged(None, None, np.concatenate([np.zeros(n), unknown]), np.zeros(n + 7))
    table = Judged(None, None, np.concatenate([difference, unknown]), np.zeros(n + 7))
    assert table.is_worse(codewords, "disjoint") is worse
    assert table.is_worse(codewords, "disjoint", allowed=1.0) is False
    posterior = (mean / (deviation**2 / n) + choosing.GAIN / choosing.GAIN_ERROR**2) < 0  # times its precision
    assert posterior == worse
    assert not Judged(None, None, unknown, unknown).is_worse(Judged(None, None, unknown, unknown), "auto")
