"""Nearest rows and their levels, against all distances sorted."""

import numpy as np
import pytest

from shorthash.codes.levels import list_levels
from shorthash.data import rows
from shorthash.data.rows import METRICS, nearest_rows


def slow_nearest(queries, items, k, metric, own=None):
    found = []
    for i, q in enumerate(queries.astype(np.float64)):
        if metric == "cosine":
            far = [-float(q @ y) / (np.linalg.norm(q) * np.linalg.norm(y)) for y in items.astype(np.float64)]
        elif metric == "dot":
            far = [-float(q @ y) for y in items.astype(np.float64)]
        else:
            far = [float(np.linalg.norm(q - y)) for y in items.astype(np.float64)]
        order = sorted(range(len(items)), key=lambda j: (far[j], j))
        found.append([j for j in order if own is None or j != own[i]][:k])
    return np.array(found)


@pytest.mark.parametrize("metric", METRICS)
def test_nearest_rows_in_blocks(metric, monkeypatch):
    rng = np.random.default_rng(0)
    items = rng.normal(size=(60, 5)) * rng.uniform(1, 3, size=(60, 1))
    queries = rng.normal(size=(17, 5))
    monkeypatch.setattr(rows, "NEAREST_BLOCK", 4 * len(items))
    assert np.array_equal(nearest_rows(queries, items, 7, metric), slow_nearest(queries, items, 7, metric))
    own = np.arange(10)
    assert np.array_equal(
        nearest_rows(items[:10], items, 5, metric, own), slow_nearest(items[:10], items, 5, metric, own)
    )


def test_equally_near_rows_come_in_order():
    items = np.repeat(np.eye(2), [3, 4], axis=0)
    assert nearest_rows(np.array([[0.0, 1.0]]), items, 2, "euclidean").tolist() == [[3, 4]]


def test_levels_of_lists():
    rng = np.random.default_rng(1)
    queries, items = rng.integers(32, size=6).astype(np.uint8), rng.integers(32, size=40).astype(np.uint8)
    lists = np.array([rng.permutation(40)[:9] for _ in range(6)])
    levels = list_levels(queries, items, lists, 5)
    for q, some, row in zip(queries, lists, levels, strict=True):
        distances = [int(q ^ items[j]).bit_count() for j in some]
        assert row.tolist() == [distances.count(t) for t in range(6)]
