"""Judgements in place of labels: equal to labels where both say the same, and to loops where only they can say it."""

import numpy as np
import pytest
from scipy import sparse

from shorthash.errors import DataFileError, InvalidInput, ShorthashWarning
from shorthash.evaluation import evaluate, read_qrels


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    codes, queries = rng.choice([-1, 1], (60, 5)), rng.choice([-1, 1], (12, 5))
    Y, Q = ((rng.random((n, 4)) < 0.3).astype(int) for n in (60, 12))
    return queries, Q, codes, Y


def assert_same(one, two):
    for name, values in one.per_query.items():
        np.testing.assert_allclose(two.per_query[name], values, atol=1e-12, equal_nan=True)
    assert one.to_dict() == pytest.approx(two.to_dict(), nan_ok=True)


@pytest.mark.parametrize("ties", ["expected", "best", "worst", "stable"])
@pytest.mark.parametrize("gain", ["shared", "exponential", "binary"])
def test_shared_labels_as_judgements(problem, ties, gain):
    queries, Q, codes, Y = problem
    options = {"ties": ties, "gain": gain, "k": (1, 5, 30), "radius": 1}
    expected = evaluate(queries, Q, codes, Y, **options)
    for R in (Q @ Y.T, sparse.coo_array(Q @ Y.T), np.where(Q @ Y.T > 0, Q @ Y.T, -2)):
        assert_same(evaluate(queries, None, codes, relevance=R, **options), expected)


@pytest.mark.parametrize("ties", ["expected", "stable"])
def test_every_row_queries_the_others(problem, ties):
    _, _, codes, Y = problem
    assert_same(evaluate(codes, relevance=Y @ Y.T, ties=ties), evaluate(codes, Y, ties=ties))


def test_blocks_change_nothing(problem, monkeypatch):
    queries, Q, codes, Y = problem
    whole = evaluate(queries, None, codes, relevance=Q @ Y.T, ties="stable")
    monkeypatch.setattr("shorthash.evaluation.relevance.BLOCK_QUERIES", 5)
    assert_same(evaluate(queries, None, codes, relevance=Q @ Y.T, ties="stable"), whole)


def test_grades_that_no_labels_give():
    """Query 0 finds grades 0, 3, 1 in this order: by hand."""
    scores = evaluate([[1, 1]], None, [[1, 1], [1, -1], [-1, -1]], relevance=[[0, 3, 1]], k=3)
    discounts = 1 / np.log2([2, 3, 4])
    assert scores.map == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert scores.ndcg_at_k[3] == pytest.approx((0, 3, 1) @ discounts / ((3, 1, 0) @ discounts))


def test_qrels_by_ids(tmp_path, problem):
    _, Q, _, Y = problem
    R = Q @ Y.T
    lines = [f"q{i} 0 item{j} {R[i, j]}" for i in range(12) for j in range(60) if R[i, j] or j % 3]
    (tmp_path / "qrels").write_text("\n".join(["other 0 item1 1", *lines, ""]))
    found = read_qrels(tmp_path / "qrels", [f"q{i}" for i in range(12)], [f"item{j}" for j in range(60)])
    assert np.array_equal(found.toarray(), R)
    with pytest.warns(ShorthashWarning, match=r"\d+ relevant items of .* are not in the database"):
        fewer = read_qrels(tmp_path / "qrels", [f"q{i}" for i in range(12)], [f"item{j}" for j in range(50)])
    assert np.array_equal(fewer.toarray(), R[:, :50])


def test_mistakes(tmp_path):
    codes = [[1, 1], [1, -1]]
    for relevance, message in [
        (np.eye(3), r"must have shape \(2, 2\), a row per query. Got \(3, 3\)"),
        ([[0.5, 0], [0, 1]], "whole numbers"),
        ([[1000, 0], [0, 1]], "grades up to 100. Got 1000"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            evaluate(codes, None, codes, relevance=relevance)
    with pytest.raises(InvalidInput, match=r"labels or relevance=..., not both"):
        evaluate(codes, [0, 1], codes, relevance=np.eye(2))
    (tmp_path / "bad").write_text("q1 0 a\n")
    with pytest.raises(DataFileError, match="line 1 must be of the form QUERY 0 ITEM GRADE"):
        read_qrels(tmp_path / "bad", ["q1"], ["a"])
    (tmp_path / "others").write_text("q9 0 a 1\n")
    with pytest.raises(DataFileError, match="None of the 1 lines"):
        read_qrels(tmp_path / "others", ["q1"], ["a"])
    with pytest.raises(DataFileError, match="There is no file"):
        read_qrels(tmp_path / "none", ["q1"], ["a"])
