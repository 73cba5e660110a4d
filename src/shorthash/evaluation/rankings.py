"""Scores of other rankings: by real-valued distances, of cells, re-ranked, of a histogram of codes, without labels.

A histogram counts the items of each code and label set. Its size does not depend on the number of items, and
histograms of parts can be merged, so a database of any size is scored exactly. Only the order of tied items is lost, so
``ties="stable"`` is not possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._arrays import Counts, Floats, Labels, PackedCodes
from shorthash._labels import LabelGroups, group_label_pair, group_labels, label_rows
from shorthash._validation import check_choice, check_count, check_finite, check_n_bits
from shorthash.codes.levels import distinct_queries, expected_average_precision, level_counts, list_levels
from shorthash.codes.signs import as_packed, code_length
from shorthash.data.rows import METRICS, nearest_rows
from shorthash.errors import InvalidInput
from shorthash.evaluation.metrics import Convention, convention_rules
from shorthash.evaluation.relevance import CodedItems, count_by_codes, count_by_distances, gains_of, label_groups
from shorthash.evaluation.scores import Scores, score_queries

SHARES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)  # of the database, for recall
OWNER = "evaluate_neighbours"
BELOW_ONE = 1 - 1e-9  # the part of a distance that vectors decide
PIECE = 1 << 22  # items counted at once
DENSE = 1 << 24  # largest table that is filled by counting; for more cells, keys are sorted


def evaluate_distances(
    distances: ArrayLike,
    query_labels: ArrayLike,
    database_labels: ArrayLike,
    *,
    convention: str | Convention = "shorthash",
    ties: str | None = None,
    radius: float | None = None,
    k: int | Sequence[int] | None = None,
    without_relevant: str | None = None,
    gain: str = "shared",
) -> Scores:
    """Score a ranking by real-valued distances, such as one re-ranked by features.

    Parameters
    ----------
    distances : (n_queries, n_database), smaller is nearer; equal values are ties. Negate similarities
    query_labels, database_labels, convention, ties, k, without_relevant, gain : as in :func:`evaluate`
    radius : items at most this far form the ball; without it the scores by radius are nan

    Examples
    --------
    >>> evaluate_distances([[0.1, 0.4, 0.4]], ["cat"], ["cat", "dog", "cat"], k=1).map
    0.9166666666666666
    """
    owner = "evaluate_distances"
    rules = convention_rules(convention, ties=ties, without_relevant=without_relevant, k=k, owner=owner)
    matrix = np.asarray(distances)
    if matrix.ndim != 2 or matrix.dtype.kind not in "iuf" or np.isnan(matrix).any():
        raise InvalidInput(
            "Distances must be real numbers without NaN, of shape (n_queries, n_database). Got "
            f"{matrix.dtype} of shape {matrix.shape} instead; negate similarities so that smaller is nearer."
        )
    n, n_items = matrix.shape
    what = "distance rows", "distance columns"
    groups, items = label_groups(query_labels, n, database_labels, n_items, rules, owner, what=what)
    gains = gains_of(gain, items)
    blocks = count_by_distances(matrix, groups.ids, items, len(gains), radius)
    return score_queries(blocks, rules, gains, np.ones(n, dtype=np.int64), n_database=n_items, n_bits=0, radius=radius)


def evaluate_cells(
    distances: ArrayLike,
    query_labels: ArrayLike,
    item_cells: ArrayLike,
    database_labels: ArrayLike,
    *,
    convention: str | Convention = "shorthash",
    ties: str | None = None,
    k: int | Sequence[int] | None = None,
    without_relevant: str | None = None,
    gain: str = "shared",
) -> Scores:
    """Score a ranking of cells, and so of the items in them; items of one cell are tied.

    The same as :func:`evaluate_distances` with ``distances[:, item_cells]``, but items of the same cell and labels are
    counted once for all queries, so the cost does not grow with the size of the database.

    Parameters
    ----------
    distances : (n_queries, n_cells), smaller is nearer, for instance ``-hasher.relevance(X)``; equal values are ties
    query_labels, database_labels : class labels of any type, (n,), or indicator matrices, (n, n_classes)
    item_cells : (n_database,) the column of every item
    convention, ties, k, without_relevant, gain : as in :func:`evaluate`, except for ``ties="stable"``

    Examples
    --------
    >>> evaluate_cells([[0.1, 0.4]], ["cat"], [0, 1, 1], ["cat", "dog", "cat"], k=1).map
    0.9166666666666666
    """
    owner = "evaluate_cells"
    rules = convention_rules(convention, ties=ties, without_relevant=without_relevant, k=k, owner=owner)
    if rules.ties == "stable":
        raise InvalidInput(
            "evaluate_cells cannot break ties by database order ('stable'), because it counts only the items of every "
            "cell; use ties='expected', or evaluate_distances."
        )
    D, cells = np.asarray(distances, dtype=np.float64), np.asarray(item_cells)
    if D.ndim != 2 or np.isnan(D).any():
        raise InvalidInput(f"Distances to cells must be numbers without NaN, (n_queries, n_cells). Got {D.shape}.")
    out_of_range = cells.dtype.kind not in "iu" or (cells.size and not 0 <= cells.min() <= cells.max() < D.shape[1])
    if cells.ndim != 1 or out_of_range:
        raise InvalidInput(f"The cells of items must be column numbers of the distances, 0 to {D.shape[1] - 1}.")
    what = "distance rows", "cells"
    groups, items = label_groups(query_labels, len(D), database_labels, len(cells), rules, owner, what=what)
    pairs, weights = np.unique(cells * np.int64(len(items.rows)) + items.ids, return_counts=True)
    cells, ids = np.divmod(pairs, len(items.rows))
    entries, gains = LabelGroups(items.classes, items.rows, ids), gains_of(gain, items)
    blocks = count_by_distances(D, groups.ids, entries, len(gains), cells=cells, weights=weights)
    sizes: dict[str, Any] = {"n_database": int(weights.sum()), "n_bits": 0, "radius": None}
    return score_queries(blocks, rules, gains, np.ones(len(D), dtype=np.int64), **sizes)


def evaluate_reranked(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    query_vectors: ArrayLike,
    database_codes: ArrayLike,
    database_labels: ArrayLike,
    database_vectors: ArrayLike,
    *,
    n_bits: int | None = None,
    metric: str = "cosine",
    convention: str | Convention = "shorthash",
    ties: str | None = None,
    radius: int = 2,
    k: int | Sequence[int] | None = None,
    without_relevant: str | None = None,
    gain: str = "shared",
) -> Scores:
    """Score codes whose ties are broken by vectors: Hamming distance first, then the similarity of vectors.

    The ranking is that of an index searched with ``ties="scores"``: the code finds the items, and the vectors (stored
    features, or a classifier's posteriors with ``metric="dot"``) order those at the same distance. The few ties that
    remain follow ``ties``. Scores by radius use the same ball as without vectors.

    Parameters
    ----------
    query_codes, database_codes : (n, n_bits) signs, or (n,) integers, which need ``n_bits``
    query_vectors, database_vectors : (n, dimension) real numbers
    metric : "cosine", "dot" or "euclidean"
    query_labels, database_labels, n_bits, convention, ties, radius, k, without_relevant, gain : as in
        :func:`evaluate`

    Examples
    --------
    >>> codes, vectors = [[1, 1], [1, 1], [1, -1]], [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]
    >>> evaluate_reranked([[1, 1]], ["cat"], [[1.0, 0.2]], codes, ["dog", "cat", "cat"], vectors, k=1).map
    0.8333333333333333
    """
    owner = "evaluate_reranked"
    check_choice(metric, "metric", owner, METRICS)
    rules = convention_rules(convention, ties=ties, without_relevant=without_relevant, k=k, owner=owner)
    n_bits = code_length(query_codes, n_bits, owner)
    queries, database = as_packed(query_codes, n_bits), as_packed(database_codes, n_bits)
    vectors = _checked_vectors(query_vectors, len(queries), "query", metric)
    stored = _checked_vectors(database_vectors, len(database), "database", metric)
    if vectors.shape[1] != stored.shape[1]:
        raise InvalidInput(
            f"Query and database vectors must have the same dimension. Got {vectors.shape[1]} and {stored.shape[1]}; "
            "pass vectors of one model."
        )

    def distances(i: int) -> NDArray[Any]:
        """Hamming distance plus a part below 1 that grows with the dissimilarity of vectors."""
        far = np.linalg.norm(stored - vectors[i], axis=1) if metric == "euclidean" else -(stored @ vectors[i])
        low, high = far.min(), far.max()
        fraction = (far - low) * (BELOW_ONE / (high - low)) if high > low else np.zeros(len(far))
        return np.asarray(np.bitwise_count(database ^ queries[i]) + fraction)

    groups, items = label_groups(query_labels, len(queries), database_labels, len(database), rules, owner)
    radius = min(check_count(radius, "radius", owner, low=0), n_bits)
    gains = gains_of(gain, items)
    rows = (distances(i) for i in range(len(queries)))
    blocks = count_by_distances(rows, groups.ids, items, len(gains), radius + BELOW_ONE)
    sizes: dict[str, Any] = {"n_database": len(database), "n_bits": n_bits, "radius": radius}
    return score_queries(blocks, rules, gains, np.ones(len(queries), dtype=np.int64), **sizes)


@dataclass(frozen=True)
class CodeHistogram:
    """How many items have each code and each label set.

    Attributes
    ----------
    n_bits : length of the codes
    classes : (c,) the classes
    rows : (u, c) uint8, the label rows that occur, in canonical order
    groups : (k,) the label set of every cell, ascending
    codes : (k,) uint64, the code of every cell, ascending inside a label set
    counts : (k,) items, all positive

    Examples
    --------
    >>> first, second = CodeHistogram.of([0, 3, 3], ["a", "b", "b"], 2), CodeHistogram.of([3, 1], ["b", "c"], 2)
    >>> both = first.merge(second)
    >>> both.classes.tolist(), both.codes.tolist(), both.counts.tolist()
    (['a', 'b', 'c'], [0, 3, 1], [1, 3, 1])
    """

    n_bits: int
    classes: Labels
    rows: NDArray[np.uint8]
    groups: NDArray[np.int64]
    codes: NDArray[np.uint64]
    counts: Counts

    @property
    def n_items(self) -> int:
        """Items counted."""
        return int(self.counts.sum())

    @property
    def labels(self) -> Labels:
        """The label sets in the form that labels come in: classes, or an indicator matrix."""
        single = bool(np.all(self.rows.sum(axis=1) == 1))
        return self.classes[self.rows.argmax(axis=1)] if single else self.rows

    @classmethod
    def of(cls, codes: ArrayLike, labels: ArrayLike, n_bits: int) -> CodeHistogram:
        """Count codes, signs or packed integers, and their labels; long arrays are counted in pieces.

        Parameters
        ----------
        codes : (n, n_bits) signs, or (n,) integers
        labels : class labels, (n,), or an indicator matrix, (n, n_classes)
        n_bits : length of the codes
        """
        n_bits = check_n_bits(n_bits, "CodeHistogram")
        values, names = np.asarray(codes), label_rows(labels)
        if not len(values) or len(values) != len(names):
            raise InvalidInput(f"A histogram needs one label per item. Got {len(values)} codes, {len(names)} labels.")
        parts = (slice(low, low + PIECE) for low in range(0, len(values), PIECE))
        return reduce(cls.merge, (cls._of_piece(as_packed(values[p], n_bits), names[p], n_bits) for p in parts))

    @classmethod
    def _of_piece(cls, packed: PackedCodes, labels: Labels, n_bits: int) -> CodeHistogram:
        found = group_labels(labels, owner="CodeHistogram", allow_unlabelled=True)
        u = len(found.rows)
        if u << n_bits <= DENSE:
            cells = np.bincount((found.ids << n_bits) | packed, minlength=u << n_bits)
            keys = np.flatnonzero(cells)
            groups, codes, counts = keys >> n_bits, (keys & ((1 << n_bits) - 1)).astype(np.uint64), cells[keys]
        else:
            groups, codes, counts = _counted(found.ids, packed.astype(np.uint64), np.ones(len(packed), dtype=np.int64))
        return cls(n_bits, found.classes, found.rows, groups.astype(np.int64), codes, counts.astype(np.int64))

    def merge(self, other: CodeHistogram) -> CodeHistogram:
        """The histogram of both sets of items; either may have classes that the other does not have."""
        if self.n_bits != other.n_bits:
            raise InvalidInput(f"Histograms of {self.n_bits} and {other.n_bits} bits cannot be merged; use one model.")
        first, second = group_label_pair(self.labels, other.labels, owner="CodeHistogram.merge")
        groups = np.concatenate([first.ids[self.groups], second.ids[other.groups]])
        codes = np.concatenate([self.codes, other.codes])
        counted = _counted(groups, codes, np.concatenate([self.counts, other.counts]))
        return CodeHistogram(self.n_bits, first.classes, first.rows, *counted)


def evaluate_histogram(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    database: CodeHistogram,
    *,
    convention: str | Convention = "shorthash",
    ties: str | None = None,
    radius: int = 2,
    k: int | Sequence[int] | None = None,
    without_relevant: str | None = None,
    gain: str = "shared",
) -> Scores:
    """Score codes against a database given by its histogram; the scores are those of ``evaluate``.

    Parameters
    ----------
    query_codes : (n, n_bits) signs, or (n,) integers
    query_labels : as the labels of the histogram
    database : the histogram
    convention, ties, radius, k, without_relevant, gain : as in :func:`shorthash.evaluation.evaluate`

    Examples
    --------
    >>> database = CodeHistogram.of([7, 3, 5, 0], ["cat", "dog", "cat", "dog"], n_bits=3)
    >>> evaluate_histogram([[1, 1, 1]], ["cat"], database).map
    0.9166666666666666
    """
    rules = convention_rules(convention, ties=ties, without_relevant=without_relevant, k=k)
    if rules.ties == "stable":
        raise InvalidInput(
            "ties='stable' breaks ties by database order, which a histogram does not keep; use ties='expected', or "
            "evaluate() on the codes themselves."
        )
    codes = as_packed(query_codes, database.n_bits)
    radius = min(check_count(radius, "radius", "evaluate_histogram", low=0), database.n_bits)
    label_sets = database.labels
    groups, known = label_groups(
        query_labels, len(codes), label_sets, len(label_sets), rules, "evaluate_histogram", what=("codes", "label sets")
    )
    queries = distinct_queries(codes, groups)
    cells = LabelGroups(known.classes, known.rows, known.ids[database.groups])
    items = CodedItems(database.codes, cells, database.n_bits, database.counts)
    gains = gains_of(gain, cells)
    blocks = count_by_codes(queries, items, radius=radius, n_grades=len(gains))
    sizes = {"n_database": len(items), "n_bits": database.n_bits, "radius": radius}
    return score_queries(blocks, rules, gains, queries.copies, queries.rows, **sizes)


def _checked_vectors(values: ArrayLike, n: int, side: str, metric: str) -> NDArray[np.float64]:
    """Finite rows, one per code; for the cosine, of unit norm."""
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 2 or len(rows) != n or not np.isfinite(rows).all():
        raise InvalidInput(
            f"The {side} vectors must be finite numbers, one row per code: there are {n} {side} codes, but the vectors "
            f"have shape {rows.shape}{'' if np.isfinite(rows).all() else ' and hold NaN or infinity'}."
        )
    if metric != "cosine":
        return rows
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(np.divide(rows, norms, out=np.zeros_like(rows), where=norms != 0))


def _counted(
    groups: NDArray[np.integer[Any]], codes: NDArray[np.uint64], counts: Counts
) -> tuple[NDArray[np.int64], NDArray[np.uint64], Counts]:
    """Cells in order, equal ones added up."""
    order = np.lexsort((codes, groups))
    groups, codes = groups[order], codes[order]
    starts = np.flatnonzero(np.concatenate([[True], (groups[1:] != groups[:-1]) | (codes[1:] != codes[:-1])]))
    return groups[starts].astype(np.int64), codes[starts], np.add.reduceat(counts[order], starts)


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
        (:func:`shorthash.data.rows.nearest_rows` finds them once for many codes)
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
