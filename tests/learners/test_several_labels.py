"""Rows with several labels: sets of labels are many, and other rows will have sets that no training row has."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from shorthash import evaluate
from shorthash._labels import shared_label
from shorthash.learners.eaph.estimator import EAPH
from shorthash.learners.posteriors import models
from shorthash.learners.posteriors.folds import Fitted, log, softmax
from shorthash.learners.posteriors.models import for_other_rows


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
    """Of the least cross-entropy of whether rows share a label, by every pair."""

    def loss(log_t):
        P, found = softmax(np.exp(log_t) * log(fitted.oof)).astype(np.float64), []
        for i in range(0, len(ids), 2):
            for j in range(1, len(ids), 2):
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
    some = for_other_rows(Fitted(Logits(), fitted.oof[::4], 1.0), ids[::4], np.arange(50), Yg).model
    assert part == some != whole


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
