"""Rows drawn to design codes with, and what few rows may say against a table or against posteriors."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from shorthash import evaluate, load, save
from shorthash._labels import LabelGroups
from shorthash.learners.eaph import choosing, drawing
from shorthash.learners.eaph.choosing import Candidate, Choice, Judged
from shorthash.learners.eaph.drawing import fit_rows
from shorthash.learners.eaph.estimator import EAPH
from shorthash.learners.posteriors.folds import Fitted, log, softmax
from shorthash.learners.posteriors.logistic import LogLinear
from shorthash.learners.posteriors.models import EXPECTED_POWER

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
        size = np.abs(self.centers).max()
        return softmax(
            -(size**2) * ((X[:, None] / size - self.centers / size) ** 2).sum(axis=2).clip(0, 1e30 / size**2)
        )


@pytest.fixture
def three_sets():
    rng = np.random.default_rng(0)
    centers = np.array([[0.0, 0.0], [4.0, 1.0], [-1.0, 3.0]])
    return (centers[IDS] + rng.normal(size=(16, 2)) @ [[1.0, 0.3], [0.0, 0.6]]).astype(np.float32)


def drawn_rows(model, loss=0.0):
    """The rows that a model draws where rows held out have a loss."""
    recording = Recording(model.center + model.means)
    P = model.posteriors(Fitted(recording, np.full((1, 3), 1 / 3, dtype=np.float32), loss))
    return recording.rows[-1], P


@pytest.mark.parametrize("size", [1.0, 0.3])  # of the distances of the means: at 0.3 they are hardly known
def test_directions_have_the_predictive_distribution_of_their_label_set(three_sets, size, monkeypatch):
    monkeypatch.setattr(drawing, "LEAST_DRAWN", 60_000)
    X = three_sets - (1 - np.float32(size)) * np.array([three_sets[s == IDS].mean(axis=0) for s in IDS])
    model = fit_rows(X, IDS, EYE, 0)
    rows, _ = drawn_rows(model)
    means = np.array([X[s == IDS].mean(axis=0) for s in range(3)], dtype=np.float64)
    within = sum(np.outer(x - means[s], x - means[s]) for x, s in zip(X, IDS, strict=True)) / len(IDS)
    shrunk = (within / 2 + np.eye(2) * np.trace(within) / 4) * 16 / 13
    away = means - means.mean(axis=0)
    between = sum(a @ np.linalg.solve(shrunk, a) for a in away) / (2 * 2) - np.mean(1 / COUNTS)
    rng = np.random.default_rng(1)
    for s, n in enumerate(COUNTS):
        own = rows[model.ids == s].astype(np.float64) - means.mean(axis=0)
        expected = between / (between + 1 / n) * away[s]
        np.testing.assert_allclose(model.means[s], expected, rtol=1e-5, atol=1e-6)
        assert model.spread[s] ** 2 == pytest.approx(1 + 1 / (1 / between + n), rel=1e-5)
        drawn = rng.multivariate_normal(expected, (1 + 1 / (1 / between + n)) * shrunk, size=len(own))
        one, two = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (own, drawn))
        np.testing.assert_allclose(one.mean(axis=0), two.mean(axis=0), atol=0.02)
        np.testing.assert_allclose(np.cov(one.T), np.cov(two.T), atol=0.02)


def test_rows_are_as_far_from_the_mean_as_training_rows_of_their_label_set(three_sets):
    model = fit_rows(three_sets, IDS, EYE, 0)
    center = np.mean([three_sets[s == IDS].mean(axis=0, dtype=np.float64) for s in range(3)], axis=0)
    for loss in (0.0, 1.5):  # however large the noise is
        found = np.linalg.norm(drawn_rows(model, loss)[0] - center, axis=1)
        for s, n in enumerate(COUNTS):
            known = np.sort(np.linalg.norm(three_sets[s == IDS] - center, axis=1))
            places = np.searchsorted((known[1:] + known[:-1]) / 2, found[model.ids == s])
            np.testing.assert_allclose(found[model.ids == s], known[places], rtol=1e-5)
            share = np.bincount(places, minlength=n) / len(places)
            np.testing.assert_allclose(share, 1 / n, atol=0.05)


@pytest.mark.parametrize(("counts", "drawn"), [([4, 6, 5, 5], [500] * 4), ([2, 98, 100], [41, 970, 989])])
def test_rows_are_drawn_in_the_shares_that_are_expected_of_other_rows(counts, drawn):
    ids = np.repeat(np.arange(len(counts)), counts)
    X = np.random.default_rng(0).normal(size=(len(ids), 3)).astype(np.float32)
    assert np.bincount(fit_rows(X, ids, np.eye(len(counts), dtype=np.uint8), 0).ids).tolist() == drawn


def test_every_label_set_has_drawn_rows():
    ids = np.repeat(np.arange(1200), 2)
    X = np.random.default_rng(0).normal(size=(2400, 3)).astype(np.float32)
    drawn = fit_rows(X, ids, np.eye(1200, dtype=np.uint8), 0)
    assert np.bincount(drawn.ids).tolist() == [2] * 1200
    lopsided = np.concatenate([np.zeros(3000, dtype=np.intp), np.arange(1, 101), [1]])
    few = fit_rows(np.resize(X, (3101, 3)), lopsided, np.eye(101, dtype=np.uint8), 0)
    assert np.bincount(few.ids).min() == 1


@pytest.mark.parametrize("loss", [0.0, 0.2, 0.8])
def test_noise_is_raised_half_way_to_the_loss_of_rows_held_out(three_sets, loss, monkeypatch):
    monkeypatch.setattr(drawing, "LEAST_DRAWN", 20_000)
    monkeypatch.setattr(drawing, "EVERY", 1)
    model = fit_rows(three_sets, IDS, EYE, 0)
    own = np.arange(len(model.ids)), model.ids
    easiest, found = (-float(log(drawn_rows(model, each)[1][own]).mean()) for each in (0.0, loss))
    assert easiest < 0.3
    assert found == pytest.approx(np.sqrt(easiest * max(easiest, loss)), rel=0.1)


@pytest.mark.parametrize(("share", "loss", "drawn"), [(0.31, 1.0, True), (0.29, 1.0, False), (0.29, 0.0, True)])
def test_rows_are_drawn_only_if_they_are_about_as_sure_as_rows_held_out(three_sets, share, loss, drawn):
    model = fit_rows(three_sets, IDS, EYE, 0)
    sure = float(drawn_rows(model, loss)[1].max(axis=1).mean()) / share
    P = model.posteriors(Fitted(Recording(model.center + model.means), np.full((5, 3), sure), loss))
    assert (P is not None) == drawn


def test_units_of_columns_do_not_matter(three_sets):
    units = np.array([1.0, 1024.0], dtype=np.float32)
    deviations = three_sets.std(axis=0)
    X = three_sets / (2.0 ** np.round(np.log2(deviations))).astype(np.float32)  # what scales would do
    plain, measured = (fit_rows(rows, IDS, EYE, 0) for rows in (X, X * units))
    assert measured.scales is not None
    noise = [np.random.RandomState(0).normal(size=(9, 2)) @ model.root for model in (plain, measured)]
    np.testing.assert_allclose(*(n / n.std(axis=0) for n in noise), rtol=1e-5)
    np.testing.assert_allclose(drawn_rows(plain)[0], drawn_rows(measured)[0] / units, rtol=1e-4, atol=1e-4)


def test_where_no_label_set_has_a_second_row_half_of_all_variance_is_within(three_sets):
    model = fit_rows(three_sets, np.arange(16, dtype=np.intp), np.eye(16, dtype=np.uint8), 0)
    of_all = np.cov(three_sets.T.astype(np.float64), bias=True)
    shrunk = (of_all / 2 + np.eye(2) * np.trace(of_all) / 4) * 16 / 15
    np.testing.assert_allclose(model.root @ model.root, shrunk / 2, rtol=1e-5)
    center = three_sets.mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(
        model.means, (three_sets - center) / 2, rtol=1e-4, atol=1e-6
    )  # as much between as within
    np.testing.assert_allclose(model.spread, 1.5**0.5)
    np.testing.assert_allclose(model.center, center, rtol=1e-5)
    distances = np.linalg.norm(three_sets - center, axis=1)
    rows, _ = drawn_rows(model)
    np.testing.assert_allclose(np.linalg.norm(rows - center, axis=1), distances[model.ids], rtol=1e-4)


def test_codes_of_one_row_per_class_are_designed_for_rows_that_were_never_seen(digits, monkeypatch):
    scores = {"drawn": [], "not": []}
    for way, found in scores.items():
        if way == "not":
            monkeypatch.setattr(choosing, "fit_rows", lambda *_: None)
        for seed in range(3):
            X, y, others, labels = few_digits(digits, 1, seed)
            hasher = EAPH(8, random_state=0).fit(X, y)
            codes = hasher.transform(others)
            found.append(evaluate(codes[:500], labels[:500], codes[500:], labels[500:]).map)
            assert {line["codes"] for line in hasher.report_ if line["taken"]} == {
                "table" if way == "drawn" else "codewords"
            }
    assert np.mean(scores["drawn"]) > np.mean(scores["not"]) + 0.03


def test_both_models_have_the_power_that_is_expected_where_no_row_may_be_judged(digits):
    X, y, others, labels = few_digits(digits, 1, 0)
    hasher = EAPH(8, database="disjoint", random_state=0).fit(X, y)
    assert hasher.report_[-1]["posteriors"].endswith("with a kernel")
    assert hasher.posterior_.powers[0] == hasher.posterior_.powers[1] >= EXPECTED_POWER
    assert (hasher.posterior_.predict(others).argmax(axis=1) == labels).mean() > 0.5


@pytest.mark.parametrize("posterior", ["auto", "logistic", "ridge"])
def test_models_are_as_sure_as_drawn_rows_allow_where_no_row_may_be_judged(posterior):
    """Classes that are easily told apart are, although nothing but the distances of their rows says so."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(120, 32))
    X, others = (centers + 0.5 * rng.normal(size=(2, 120, 32))).astype(np.float32)
    hasher = EAPH(9, posterior=posterior, random_state=0).fit(X, np.arange(120))
    own = hasher.posterior_.predict(others)[np.arange(120), np.arange(120)]
    assert own.mean() > 0.8
    assert evaluate(hasher.transform(others), np.arange(120), hasher.transform(X), np.arange(120)).map > 0.9


def test_a_model_is_never_made_less_sure(three_sets):
    eye = np.eye(16, dtype=np.uint8)
    model = fit_rows(three_sets, np.arange(16, dtype=np.intp), eye, 0)
    weights = (three_sets - model.center).T
    oof = np.full((3, 16), 1 / 16, dtype=np.float32)
    for temperature, surer in ((1e-3, True), (1e3, False)):
        plain = LogLinear(model.center, 1.0, weights, np.zeros(16), eye, temperature, 0.0)
        found = model.sharpened(Fitted(plain, oof, 0.0)).model.temperature
        assert found > 10 * temperature if surer else found == temperature


def test_no_rows_are_drawn_where_there_are_many_or_one_label_set(three_sets):
    single = np.random.default_rng(0).normal(size=(501, 2)).astype(np.float32)
    for n in (500, 501):  # of one row each
        drawn = fit_rows(single[:n], np.arange(n, dtype=np.intp), np.eye(n, dtype=np.uint8), 0)
        assert (drawn is None) == (n > 500)
    many = np.tile(three_sets, (20, 1))
    assert fit_rows(many[:300], np.arange(300) % 3, EYE, 0) is not None
    assert fit_rows(many[:303], np.arange(303) % 3, EYE, 0) is None
    sets = np.array([[1, 0], [0, 1], [1, 1]], dtype=np.uint8)  # four labels for every three rows
    assert fit_rows(many[:150], np.arange(150) % 3, sets, 0) is not None
    assert fit_rows(many[:156], np.arange(156) % 3, sets, 0) is None
    absent = np.pad(EYE, [(0, 0), (0, 97)])  # classes without rows do not count
    assert fit_rows(many[:303], np.arange(303) % 3, absent, 0) is None
    assert fit_rows(three_sets, np.zeros(16, dtype=np.intp), np.ones((1, 1), dtype=np.uint8), 0) is None


def test_drawn_rows_are_finite_where_rows_are_huge():
    largest = np.finfo(np.float32).max
    X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    huge = X * np.float32(0.999 * largest / np.abs(X).max())
    rows, _ = drawn_rows(fit_rows(huge, np.repeat([0, 1], 4), np.eye(2, dtype=np.uint8), 0))
    assert np.isfinite(rows).all()
    assert (np.abs(rows) == largest).any()


def test_rows_drawn_at_the_centre_stay_there(three_sets):
    model = fit_rows(three_sets, IDS, EYE, 0)
    rows, _ = drawn_rows(replace(model, means=0 * model.means, root=0 * model.root))
    np.testing.assert_allclose(rows, np.broadcast_to(model.center, rows.shape), rtol=1e-6)


@pytest.mark.parametrize("labels", [1, 2])
def test_drawn_rows_weigh_as_ten_rows_per_class(labels, monkeypatch):
    rows = np.eye(3, dtype=np.uint8) if labels == 1 else 1 - np.eye(3, dtype=np.uint8)
    groups = LabelGroups(np.arange(3), rows, np.repeat(np.arange(3), 4))  # 4 rows per class, or 8
    oof, drawn = np.full((12, 3), 1 / 3, dtype=np.float32), np.full((50, 3), 1 / 3, dtype=np.float32)
    given = []
    monkeypatch.setattr(choosing, "design_codes", lambda P, *_, **options: given.append((P, options)) or [])
    candidate = Candidate("any", Fitted(None, oof, 0.0), oof, source=drawn)
    options = {"rows_per_class": 4 * labels, "new_classes": False}
    for refine, new in ((True, False), (False, False), (True, True)):
        Choice(groups, groups, None, 2, 0, "auto", {**options, "new_classes": new}).judged(candidate, refine=refine)
    (P, used), *others = given
    assert P[12:].sum() / P[:12].sum() == pytest.approx(10 / (4 * labels), rel=1e-5)
    assert used["rows_per_class"] == 4 * labels + 10
    assert all(len(P) == 12 and used["rows_per_class"] == 4 * labels for P, used in others)


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
            monkeypatch.setattr(choosing, "fit_rows", lambda *_: None)
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


@pytest.mark.parametrize("per_class", [1, 5])
@pytest.mark.parametrize("setting", ["expect_new_classes", "refine"])
def test_codes_are_those_of_fit_after_a_setting_was_changed(digits, setting, per_class):
    X, y, others, _ = few_digits(digits, per_class, 0)
    for value in (True, False):
        settings = {"posterior": "logistic", "database": "disjoint", "random_state": 0}
        direct = EAPH(8, **settings, **{setting: value}).fit(X, y)
        changed = EAPH(8, **settings, **{setting: not value}).fit(X, y).set_params(**{setting: value}).update_codes()
        np.testing.assert_array_equal(changed.transform(others), direct.transform(others))
        assert hasattr(changed, "drawn_posteriors_") == hasattr(direct, "drawn_posteriors_")


def test_no_rows_are_drawn_where_posteriors_or_places_are_given(digits):
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
    codewords, table = (
        Judged(None, None, np.concatenate([0.5 + each, unknown]), np.zeros(n + 7))
        for each in (0 * difference, difference)
    )
    assert table.is_worse(codewords, "disjoint") is worse
    assert table.is_worse(codewords, "disjoint", allowed=1.0) is False
    assert not Judged(None, None, unknown, unknown).is_worse(Judged(None, None, unknown, unknown), "auto")


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_nothing_is_expected_of_a_table_where_nothing_can_be_gained(level):
    codewords, table = (Judged(None, None, np.full(20, value), np.zeros(20)) for value in (level, level - 0.001))
    assert table.is_worse(codewords, "disjoint")


@pytest.mark.parametrize(("n", "second"), [(20, False), (5000, True)])
def test_the_first_posteriors_are_taken_unless_rows_speak_against_them(n, second):
    chance = np.where(np.arange(n) % 2, 0.3, -0.3)
    first, other, third = (Judged(None, None, 0.5 + gain + chance * gain, np.zeros(n)) for gain in (0.0, 0.05, 0.02))
    choice = Choice(None, None, None, 2, 0, "auto", {})
    tried = [first, other, third]
    best, why = choice._best(tried, "disjoint")
    assert best is (other if second else first)
    assert why[0] == choosing.EXPECTED
    found, needed = (float(word) for word in why[1].split() if word[0] == "0")
    assert why[1] == f"disjoint_map {found:.4f} above what is preferred, {needed:.4f} needed"
    assert found == pytest.approx(0.05, abs=1e-4)
    assert (found > needed) is second
    little = Judged(None, None, 0.504 + 0 * chance, np.zeros(n))  # less than is worth a change
    assert choice._best([first, little], "disjoint")[0] is first


@pytest.mark.parametrize("database", ["auto", "training"])
@pytest.mark.parametrize("remembers", [False, True])
def test_rows_that_can_be_remembered_do_not_count_as_searched(database, remembers, monkeypatch):
    """Posteriors are then chosen for rows not seen, whatever is searched."""
    plain = Candidate("plain", None, None) if remembers else None
    candidates = [Candidate(name, None, None, plain=plain) for name in ("first", "second")]
    searched = {"first": np.full(5000, 0.5), "second": np.full(5000, 0.9)}
    found = {each.name: Judged(each, None, np.full(5000, 0.5), searched[each.name]) for each in candidates}
    monkeypatch.setattr(Choice, "judged", lambda _, candidate, refine: [found[candidate.name]])
    best, _ = Choice(None, None, None, 2, 0, database, {}).posteriors(candidates)
    assert best.name == ("first" if remembers else "second")


def test_the_product_of_both_models_comes_first(digits):
    X, y, _, _ = few_digits(digits, 3, 0)
    names = [candidate.name for candidate in EAPH(6, database="disjoint", random_state=0).fit(X, y)._path]
    assert [name.endswith("with a kernel") for name in names] == [True, False, False]


def test_equal_losses_of_few_rows_are_no_certain_loss():
    codewords, table = (Judged(None, None, np.full(3, value), np.zeros(3)) for value in (0.5, 0.49))
    assert not table.is_worse(codewords, "disjoint")
