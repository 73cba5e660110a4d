"""Rows with several labels: sets of labels are many, and other rows will have sets that no training row has."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from shorthash import _labels, evaluate, load, save
from shorthash._labels import frequent_sets, group_labels, most_alike, shared_label
from shorthash.codes.levels import leave_one_out_map
from shorthash.learners.eaph import estimator
from shorthash.learners.eaph.estimator import EAPH
from shorthash.learners.posteriors import models
from shorthash.learners.posteriors.folds import Fitted, log, softmax
from shorthash.learners.posteriors.models import for_other_rows
from shorthash.learners.sumeaph import SumEAPH


class Logits:
    """A model of which the temperature alone matters."""

    temperature = 1.0


@pytest.fixture
def overconfident(monkeypatch):
    """Posteriors of 200 rows over label sets of six labels, twice as sure as they should be."""
    rng = np.random.default_rng(0)
    Yg = np.unique((rng.random((60, 6)) < 0.3).astype(np.uint8), axis=0)
    Yg = Yg[Yg.any(axis=1)]
    S = rng.standard_normal((200, len(Yg))).astype(np.float32) * 1.5
    ids = np.array([rng.choice(len(Yg), p=p / p.sum()) for p in softmax(S).astype(np.float64)])
    monkeypatch.setattr(models, "sharpened", lambda model, times: times)
    return Fitted(Logits(), softmax(2 * S), 1.0), ids, Yg


def slow_temperature(fitted, ids, Yg):
    """Of the least cross-entropy of whether rows share a label, by every pair of two halves."""
    order = np.random.RandomState(0).permutation(len(ids))

    def loss(log_t):
        P, found = softmax(np.exp(log_t) * log(fitted.oof)).astype(np.float64), []
        for i in order[::2]:
            for j in order[1::2]:
                share = np.clip(sum(P[i, s] for s in range(len(Yg)) if (Yg[s] & Yg[ids[j]]).any()), 1e-4, 1 - 1e-4)
                found.append(np.log(share if (Yg[ids[i]] & Yg[ids[j]]).any() else 1 - share))
        return -np.mean(found)

    return np.exp(minimize_scalar(loss, bounds=(-2, 2), method="bounded", options={"xatol": 0.02}).x)


def test_a_model_is_made_as_sure_as_it_may_be_of_what_rows_share(overconfident):
    fitted, ids, Yg = overconfident
    judged = np.arange(0, 200, 3)
    found = for_other_rows(fitted, ids, judged, Yg)
    assert found.model == pytest.approx(slow_temperature(fitted, ids, Yg), abs=0.05)
    assert 0.35 < found.model < 0.75
    assert np.allclose(found.oof, softmax(found.model * log(fitted.oof)), atol=1e-6)
    assert found.loss == pytest.approx(-np.mean(log(found.oof[judged, ids[judged]])), rel=1e-5)


def test_rows_of_sets_that_were_not_seen_count(overconfident):
    fitted, ids, Yg = overconfident
    none, every = (for_other_rows(fitted, ids, judged, Yg) for judged in (np.arange(0), np.arange(200)))
    assert none.model == every.model
    assert none.loss == 0.0


def test_one_label_per_row_needs_no_other_temperature(overconfident):
    fitted, ids, Yg = overconfident
    assert for_other_rows(fitted, ids, np.arange(200), np.eye(len(Yg), dtype=np.uint8)).model is fitted.model


def test_of_many_rows_a_part_decides(overconfident, monkeypatch):
    fitted, ids, Yg = overconfident
    whole = for_other_rows(fitted, ids, np.arange(200), Yg).model
    monkeypatch.setattr(models, "RELEVANCE_ROWS", 25)
    part = for_other_rows(fitted, ids, np.arange(200), Yg).model
    assert part != whole
    assert part == pytest.approx(whole, rel=0.3)


@pytest.mark.usefixtures("overconfident")
def test_the_order_of_rows_does_not_say_how_sure_a_model_is():
    """Where rows of two kinds that share no label take turns, a half of the rows may have one kind only."""
    rng = np.random.default_rng(0)
    sets = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1]], dtype=np.uint8)
    Yg = np.vstack([np.hstack([sets, 0 * sets]), np.hstack([0 * sets, sets])])
    ids = 5 * (np.arange(400) % 2) + rng.integers(5, size=400)
    S = 0.5 * rng.normal(size=(400, 10)) + (np.arange(10) == ids[:, None])
    S -= 6.0 * (np.arange(10) // 5 != ids[:, None] // 5)
    P, orders = softmax(S.astype(np.float32)), (np.arange(400), rng.permutation(400))
    found = [for_other_rows(Fitted(Logits(), P[rows], 1.0), ids[rows], rows, Yg).model for rows in orders]
    assert found[0] == pytest.approx(found[1], rel=0.3)


def test_expected_map_is_found_where_many_label_sets_are_new():
    """More than a fifth of the rows have a set of labels that no other row has."""
    rng = np.random.default_rng(0)
    W = rng.standard_normal((12, 20))
    X = rng.standard_normal((1600, 20)).astype(np.float32)
    Y = (X @ W.T + 2 * rng.standard_normal((1600, 12)) > 4.5).astype(np.uint8)
    X, Y = X[Y.any(axis=1)], Y[Y.any(axis=1)]
    half = len(X) // 2
    hasher = EAPH(6, database="disjoint", random_state=0).fit(X[:half], Y[:half])
    sets, counts = np.unique(Y[:half], axis=0, return_counts=True)
    assert (counts == 1).sum() > 0.2 * half
    codes = hasher.transform(X)
    found = evaluate(codes[half:], Y[half:]).map
    assert hasher.disjoint_map_ == pytest.approx(found, abs=0.03)
    R = hasher.oof_posteriors_ @ shared_label(sets, sets).astype(np.float32)
    truth = shared_label(sets, sets)[hasher.label_set_ids_]
    assert R.mean() == pytest.approx(truth.mean(), abs=0.03)


# more label sets than are learned -------------------------------------------------------------------------------------


@pytest.fixture
def many_sets(monkeypatch):
    """900 rows with sets of nine labels, of which 12 and what lacks a label are learned."""
    monkeypatch.setattr(_labels, "MOST_SETS", 12)
    rng = np.random.default_rng(3)
    Z = rng.standard_normal((900, 5))
    X = (Z @ rng.standard_normal((5, 10)) + 0.3 * rng.standard_normal((900, 10))).astype(np.float32)
    Y = (Z @ rng.standard_normal((5, 9)) + 0.3 * rng.standard_normal((900, 9)) > 1.5).astype(np.uint8)
    Y[:, 8] &= rng.random(900) < 0.1  # a label that is in no frequent set
    Y[~Y.any(axis=1), 0] = 1
    return X, Y


def test_rare_label_sets_are_learned_as_the_frequent_ones_most_like_them(many_sets):
    rows, counts = np.unique(many_sets[1], axis=0, return_counts=True)
    kept, places = frequent_sets(rows, counts)
    order = sorted(range(len(rows)), key=lambda s: (-counts[s], s))
    wanted = set(order[:12])
    for label in range(9):
        if not any(rows[s, label] for s in order[:12]):
            wanted.add(next(s for s in order if rows[s, label]))
    assert set(kept.tolist()) == wanted
    assert 12 < len(kept) < len(rows)
    assert (np.diff(kept) > 0).all()
    for s in range(len(rows)):
        alike = {k: (rows[s] & rows[k]).sum() / (rows[s] | rows[k]).sum() for k in wanted}
        best = max(alike.values())
        assert kept[places[s]] == min(k for k in wanted if alike[k] == best)
    groups = group_labels(many_sets[1], owner="test")
    assert np.array_equal(groups.merged(groups.merged().rows).ids, groups.merged().ids)


def test_of_one_label_per_row_every_set_is_learned(monkeypatch):
    monkeypatch.setattr(_labels, "MOST_SETS", 3)
    groups = group_labels(np.arange(40) % 20, owner="test")
    assert np.array_equal(groups.merged().rows, groups.rows)
    assert np.array_equal(groups.merged(groups.rows[:5]).ids, groups.ids)


def test_sets_that_are_fewer_than_labels_are_learned_whatever_was_known(monkeypatch):
    monkeypatch.setattr(_labels, "MOST_SETS", 12)
    rng = np.random.default_rng(0)
    Y = np.unique((rng.random((60, 40)) < 0.1).astype(np.uint8), axis=0)
    groups = group_labels(Y[Y.any(axis=1)][:30], owner="test")
    assert len(groups.merged(groups.rows[:20]).rows) == 30


def test_blocks_of_label_sets_change_nothing(many_sets, monkeypatch):
    rows = np.unique(many_sets[1], axis=0)
    whole = most_alike(rows, rows[::3])
    monkeypatch.setattr(_labels, "BLOCK_SETS", 7)
    assert np.array_equal(most_alike(rows, rows[::3]), whole)


@pytest.mark.parametrize("learner", [EAPH, SumEAPH])
def test_codes_of_more_label_sets_than_are_learned(many_sets, learner, tmp_path, monkeypatch):
    X, Y = many_sets
    X = X - X[:600].mean(axis=0)
    fewer = learner(6, random_state=0).fit(X[:600], Y[:600])
    codes = fewer.transform(X)
    found = evaluate(codes[600:], Y[600:]).map
    save(fewer, tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").transform(X), codes)
    assert fewer.table_.shape[1] < 20 < len(np.unique(Y[:600], axis=0))
    assert len(fewer.codewords_) == len(fewer.label_sets_)
    monkeypatch.setattr(_labels, "MOST_SETS", 512)
    every = learner(6, random_state=0).fit(X[:600], Y[:600])
    assert found > evaluate(every.transform(X[600:]), Y[600:]).map - 0.08
    if learner is EAPH:
        assert fewer.disjoint_map_ == pytest.approx(leave_one_out_map(fewer.codes_, Y[:600]), abs=1e-9)  # by all labels


def test_posteriors_of_training_rows_are_those_of_the_model_that_is_kept(many_sets, monkeypatch):
    X, Y = many_sets
    hasher = EAPH(6, posterior="logistic", database="disjoint", n_iter=1, random_state=0).fit(X[:600], Y[:600])
    [candidate] = hasher._path
    assert candidate.fitted.model is hasher.posterior_
    np.testing.assert_allclose(candidate.inside, hasher.predict_proba(X[:600]), atol=1e-6)
    monkeypatch.setattr(estimator, "FOLDED_ROWS", 300)
    hasher.fit(X[:600], Y[:600])
    [candidate] = hasher._path
    np.testing.assert_allclose(candidate.inside, hasher.predict_proba(X[hasher.oof_rows_]), atol=1e-6)


def test_streamed_sums_merge_label_sets_as_rows_in_memory(many_sets, monkeypatch):
    X, Y = many_sets
    parts = SumEAPH(6, random_state=0).partial_fit(X[:400], Y[:400]).partial_fit(X[400:], Y[400:])
    whole = SumEAPH(6, random_state=0).fit(X, Y)
    assert np.array_equal(parts.transform(X), whole.transform(X))
    from shorthash.learners.eaph import estimator

    monkeypatch.setattr(estimator, "FOLDED_ROWS", 500)
    hasher = EAPH(6, posterior="logistic", random_state=0).fit(X, Y)
    groups = group_labels(Y, owner="test").merged()
    assert np.array_equal(hasher.label_sets_, groups.rows)
    assert np.array_equal(hasher.label_set_ids_, groups.ids[hasher.oof_rows_])
    assert evaluate(hasher.transform(X), Y).map > evaluate(np.ones((900, 6), dtype=np.int8), Y).map + 0.1


def test_more_rows_bring_no_other_label_sets(many_sets):
    X, Y = many_sets
    hasher = EAPH(6, posterior="logistic", random_state=0).partial_fit(X[:400], Y[:400])
    sets, cells = hasher.label_sets_.copy(), hasher.cells_.copy()
    more = ~(Y[400:].any(axis=0) & ~sets.any(axis=0)).any()
    assert more
    hasher.partial_fit(X[400:], Y[400:])
    assert np.array_equal(hasher.label_sets_, sets)
    assert np.array_equal(hasher.cells_, cells)
