"""Scores without labels: relevant to a query are the rows nearest to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._types import Counts, Floats, PackedCodes
from shorthash._validation import check_choice, check_count, check_finite
from shorthash.codes.levels import expected_average_precision, level_counts
from shorthash.codes.neighbours import METRICS, list_levels, nearest_rows
from shorthash.codes.signs import as_packed, code_length
from shorthash.errors import InvalidInput

SHARES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
OWNER = "evaluate_neighbours"


@dataclass(frozen=True)
class NeighbourScores:
    """How well codes find the nearest rows.

    Attributes
    ----------
    map : tie-aware mean average precision, the ``k`` nearest rows being relevant
    recall : by share of the database that is read, the share of the nearest rows that is found
    per_query : "map", (n_queries,), and "recall", (n_queries, n_shares)
    n_queries, n_database, k, metric : what was scored
    """

    map: float
    recall: Mapping[float, float]
    per_query: Mapping[str, Floats] = field(repr=False)
    n_queries: int
    n_database: int
    k: int
    metric: str

    def to_dict(self) -> dict[str, Any]:
        """Means and sizes, flat: one row of a table."""
        recall = {f"recall_at_{share:g}": value for share, value in self.recall.items()}
        sizes = {name: getattr(self, name) for name in ("n_queries", "n_database", "k", "metric")}
        return {"map": self.map, **recall, **sizes}

    def __str__(self) -> str:
        lines = [
            f"{self.n_queries} queries against {self.n_database} items; relevant: the {self.k} nearest ({self.metric})",
            f"  {'mAP':<22}{self.map:.4f}",
            *(f"  {f'recall in {100 * share:g} %':<22}{value:.4f}" for share, value in self.recall.items()),
        ]
        return "\n".join(lines)


def evaluate_neighbours(
    query_codes: ArrayLike,
    database_codes: ArrayLike,
    X_query: ArrayLike | None = None,
    X_database: ArrayLike | None = None,
    k: int = 100,
    *,
    n_bits: int | None = None,
    metric: str = "cosine",
    shares: Sequence[float] = SHARES,
    neighbours: ArrayLike | None = None,
    relevance: ArrayLike | None = None,
    cells: ArrayLike | None = None,
) -> NeighbourScores:
    """Score codes by whether they find the nearest rows: mAP, and recall by share of the database read.

    Items at the same distance are read in random order, and every number is the expectation over it.

    Parameters
    ----------
    query_codes, database_codes : (n, n_bits) signs, or (n,) integers, which need ``n_bits``
    X_query, X_database : rows of the queries and of the database; the nearest are found in blocks
    k : how many nearest rows are relevant
    n_bits : code length, for integers
    metric : "cosine", "dot" or "euclidean"
    shares : shares of the database for ``recall``
    neighbours : (n_queries, k) numbers of the nearest rows, if they are known, instead of the rows
        (:func:`shorthash.codes.neighbours.nearest_rows` finds them once for many codes)
    relevance, cells : buckets are read by descending ``relevance``, (n_queries, n_cells), instead of by Hamming
        distance; ``cells``, (n_cells,), are the codes of its columns: ``hasher.relevance(X)`` and ``hasher.cells_``

    Examples
    --------
    >>> X = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> codes = [[1, 1], [1, -1], [-1, -1], [-1, -1]]
    >>> scores = evaluate_neighbours([[1, 1]], codes, [[1.0, 0.2]], X, k=2, shares=[0.25])
    >>> scores.map, scores.recall
    (1.0, {0.25: 0.5})
    """
    n_bits = code_length(query_codes, n_bits, OWNER)
    queries, items = as_packed(query_codes, n_bits), as_packed(database_codes, n_bits)
    lists = _lists(len(queries), len(items), X_query, X_database, k, metric, neighbours)
    limits = _checked_shares(shares)
    if (relevance is None) != (cells is None):
        raise InvalidInput("evaluate_neighbours needs 'relevance' and 'cells' together; pass both, or neither.")
    if relevance is None:
        total, found = level_counts(queries, items, n_bits), list_levels(queries, items, lists, n_bits)
    else:
        total, found = _by_cells(np.asarray(relevance, dtype=np.float64), np.asarray(cells), items, lists)
    precision = expected_average_precision(total, found)
    recall = _recall(total, found, limits * len(items))
    means = {float(share): float(value) for share, value in zip(limits, recall.mean(axis=0), strict=True)}
    columns = {"map": precision, "recall": recall}
    return NeighbourScores(
        float(precision.mean()), means, columns, len(queries), len(items), int(lists.shape[1]), metric
    )


def _lists(
    n: int, n_items: int, X_query: Any, X_database: Any, k: int, metric: str, neighbours: ArrayLike | None
) -> NDArray[np.intp]:
    """The nearest items of every query, given or computed."""
    check_choice(metric, "metric", OWNER, METRICS)
    if neighbours is not None:
        lists = np.asarray(neighbours)
        fits = lists.ndim == 2 and len(lists) == n and lists.size and lists.dtype.kind in "iu"
        if not fits or lists.min() < 0 or lists.max() >= n_items:
            raise InvalidInput(
                f"'neighbours' of {OWNER} must be row numbers of the database, 0 to {n_items - 1}, of shape ({n}, k). "
                f"Got {lists.dtype} of shape {lists.shape} instead."
            )
        return lists.astype(np.intp)
    if X_query is None or X_database is None:
        raise InvalidInput(f"{OWNER} needs X_query and X_database, or 'neighbours'; pass the rows behind the codes.")
    rows, stored = np.asarray(X_query), np.asarray(X_database)
    for values, count, side in ((rows, n, "X_query"), (stored, n_items, "X_database")):
        if values.ndim != 2 or len(values) != count:
            raise InvalidInput(f"{side} of {OWNER} must have {count} rows, one per code. Got shape {values.shape}.")
        check_finite(values, OWNER)
    check_count(k, "k", OWNER, high=n_items)
    return nearest_rows(rows, stored, k, metric)


def _checked_shares(shares: Sequence[float]) -> Floats:
    limits = np.asarray(shares, dtype=np.float64)
    if limits.ndim != 1 or not ((limits > 0) & (limits <= 1)).all():
        raise InvalidInput(f"The 'shares' of {OWNER} must be numbers above 0 and up to 1. Got {shares!r} instead.")
    return limits


def _by_cells(
    relevance: Floats, cells: PackedCodes, items: PackedCodes, lists: NDArray[np.intp]
) -> tuple[Counts, Counts]:
    """Items, and relevant items, in every cell, in the order in which a query reads them, (m, n_cells)."""
    m, n_cells = relevance.shape if relevance.ndim == 2 else (0, 0)
    if m != len(lists) or cells.shape != (n_cells,) or np.isnan(relevance).any():
        raise InvalidInput(
            f"'relevance' of {OWNER} must be numbers of shape ({len(lists)}, n_cells), and 'cells' must have n_cells "
            f"codes. Got shapes {relevance.shape} and {cells.shape} instead."
        )
    by_code = np.argsort(cells, kind="stable")
    column = by_code[np.minimum(np.searchsorted(cells[by_code], items), n_cells - 1)]
    if not np.array_equal(cells[column], items):
        raise InvalidInput(f"{OWNER}: some items have codes that are not among 'cells'; pass every code in use.")
    order = np.argsort(-relevance, axis=1, kind="stable")
    counts = np.bincount(column, minlength=n_cells)
    found = np.zeros((m, n_cells), dtype=np.int64)
    np.add.at(found, (np.arange(m)[:, None], column[lists]), 1)
    return counts[order], np.take_along_axis(found, order, axis=1)


def _recall(total: Counts, found: Counts, cuts: Floats) -> Floats:
    """Expected share of the relevant items among the first ones, (m, n_cuts)."""
    before = np.cumsum(total, axis=1) - total
    size = np.maximum(total, 1)
    hits = [(found * np.clip((cut - before) / size, 0.0, 1.0)).sum(axis=1) for cut in cuts]
    return np.asarray(np.stack(hits, axis=1) / found.sum(axis=1, keepdims=True))
