"""evaluate_neighbours against rankings that are written out and shuffled."""

import numpy as np
import pytest

from shorthash import evaluate_neighbours
from shorthash.codes.signs import pack
from shorthash.errors import InvalidInput

SHARES = [0.1, 0.35, 1.0]


@pytest.fixture(scope="module")
def made():
    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(40, 4)), rng.normal(size=(6, 4))
    codes, queries = (np.where(rows[:, :3] > 0, 1, -1).astype(np.int8) for rows in (X, Q))
    return queries, codes, Q, X


def slow(distances, near, shares, n_orders=4000):
    """Mean AP and recall over random orders of tied items."""
    rng = np.random.default_rng(1)
    precision, recall = [], []
    for _ in range(n_orders):
        order = np.lexsort([rng.random(len(distances)), distances])
        hit = np.isin(order, near)
        precision.append((np.cumsum(hit) / np.arange(1, len(hit) + 1))[hit].mean())
        recall.append([hit[: round(share * len(hit))].sum() / len(near) for share in shares])
    return np.mean(precision), np.mean(recall, axis=0)


def test_rings_against_shuffled_rankings(made):
    queries, codes, Q, X = made
    scores = evaluate_neighbours(queries, codes, Q, X, k=5, shares=SHARES)
    for i in range(2):
        cosine = X @ Q[i] / np.linalg.norm(X, axis=1)
        expected = slow((codes != queries[i]).sum(axis=1), np.argsort(-cosine)[:5], SHARES)
        assert scores.per_query["map"][i] == pytest.approx(expected[0], abs=0.01)
        assert scores.per_query["recall"][i] == pytest.approx(expected[1], abs=0.02)
    assert scores.recall[1.0] == 1.0
    assert scores.map == scores.per_query["map"].mean()
    assert "mAP" in str(scores)
    assert scores.to_dict()["recall_at_0.1"] == scores.recall[0.1]


def test_cells_in_order_of_relevance(made):
    queries, codes, Q, X = made
    cells = np.arange(8, dtype=np.uint8)
    relevance = np.random.default_rng(2).random((6, 8))
    options = {"k": 5, "shares": SHARES, "metric": "euclidean"}
    scores = evaluate_neighbours(queries, codes, Q, X, relevance=relevance, cells=cells, **options)
    near = np.argsort(np.linalg.norm(X - Q[0], axis=1))[:5]
    expected = slow(-relevance[0, pack(codes)], near, SHARES)
    assert scores.per_query["map"][0] == pytest.approx(expected[0], abs=0.01)
    assert scores.per_query["recall"][0] == pytest.approx(expected[1], abs=0.02)
    distance = np.bitwise_count(pack(queries)[:, None] ^ cells).astype(float)
    swapped = np.random.default_rng(3).permutation(8)
    again = evaluate_neighbours(
        queries, codes, Q, X, relevance=-distance[:, swapped], cells=cells[swapped], **(options | {"shares": [1.0]})
    )
    assert again.recall == {1.0: 1.0}


def test_known_neighbours(made):
    queries, codes, Q, X = made
    lists = np.argsort(-X @ Q.T, axis=0)[:7].T
    one = evaluate_neighbours(queries, codes, neighbours=lists)
    two = evaluate_neighbours(queries, codes, Q, X, k=7, metric="dot")
    assert one.map == two.map
    assert one.k == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X_query": None}, "needs X_query and X_database"),
        ({"X_query": np.ones((3, 4))}, "must have 6 rows"),
        ({"k": 41}, "k"),
        ({"shares": [0.0]}, "above 0"),
        ({"metric": "cityblock"}, "metric"),
        ({"neighbours": [[40]] * 6}, "0 to 39"),
        ({"relevance": np.ones((6, 8))}, "together"),
        ({"relevance": np.ones((5, 8)), "cells": np.arange(8)}, "shape"),
        ({"relevance": np.ones((6, 2)), "cells": np.arange(2)}, "not among"),
    ],
)
def test_errors(made, change, message):
    queries, codes, Q, X = made
    with pytest.raises(InvalidInput, match=message):
        evaluate_neighbours(queries, codes, **({"X_query": Q, "X_database": X, "k": 5} | change))
