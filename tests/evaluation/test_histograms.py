"""Scores from a histogram are those from the codes, however the histogram was put together."""

import numpy as np
import pytest

from shorthash.errors import InvalidInput
from shorthash.evaluation import CodeHistogram, evaluate, evaluate_histogram, rankings


def problem(n_bits, several, seed=0):
    rng = np.random.default_rng(seed)
    top = 2 ** min(n_bits, 6)
    labels = rng.integers(0, 2, (460, 4)) if several else rng.integers(0, 9, 460)
    codes = rng.integers(0, top, 460).astype(np.uint64)
    if not several:
        labels[labels == 8] = 7
        labels[0] = 8  # a query whose class is not in the database
    return codes[:60], labels[:60], codes[60:], labels[60:]


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("n_bits", [3, 12, 24, 64])
def test_scores_equal_those_of_the_codes(n_bits, several):
    query_codes, query_labels, codes, labels = problem(n_bits if n_bits > 3 else 6, several)
    query_codes, codes = query_codes % 2 ** min(n_bits, 6), codes % 2 ** min(n_bits, 6)
    expected = evaluate(query_codes, query_labels, codes, labels, n_bits=n_bits, k=[1, 30])
    found = evaluate_histogram(query_codes, query_labels, CodeHistogram.of(codes, labels, n_bits), k=[1, 30])
    assert {k: v for k, v in found.to_dict().items() if v == v} == {
        k: v for k, v in expected.to_dict().items() if v == v
    }
    for name, column in expected.per_query.items():
        np.testing.assert_array_equal(found.per_query[name], column, err_msg=name)


@pytest.mark.parametrize("several", [False, True])
def test_parts_add_up(monkeypatch, several):
    _, _, codes, labels = problem(10, several)
    whole = CodeHistogram.of(codes, labels, 10)
    monkeypatch.setattr(rankings, "PIECE", 70)
    monkeypatch.setattr(rankings, "DENSE", 0)
    for found in (
        CodeHistogram.of(codes, labels, 10),
        CodeHistogram.of(codes[200:], labels[200:], 10).merge(CodeHistogram.of(codes[:200], labels[:200], 10)),
    ):
        for name in ("classes", "rows", "groups", "codes", "counts"):
            np.testing.assert_array_equal(getattr(found, name), getattr(whole, name), err_msg=name)


def test_names_and_signs():
    codes = np.array([[1, -1], [1, 1], [1, 1]])
    found = CodeHistogram.of(codes, ["cat", "dog", "dog"], 2)
    assert (found.codes.tolist(), found.counts.tolist(), found.labels.tolist()) == ([1, 3], [1, 2], ["cat", "dog"])
    assert found.n_items == 3


def test_errors():
    found = CodeHistogram.of([0, 1], [0, 1], 2)
    with pytest.raises(InvalidInput, match="database order, which a histogram does not keep"):
        evaluate_histogram([0], [0], found, ties="stable")
    with pytest.raises(InvalidInput, match="query must have at least one row"):
        evaluate_histogram(np.zeros(0, dtype=int), [], found)
    with pytest.raises(InvalidInput, match=r"for each of its 2 codes\. Got 1 instead"):
        evaluate_histogram([0, 1], [0], found)
    with pytest.raises(InvalidInput, match="Histograms of 2 and 3 bits"):
        found.merge(CodeHistogram.of([0], [0], 3))
    with pytest.raises(InvalidInput, match="one label per item"):
        CodeHistogram.of([0, 1], [0], 2)
