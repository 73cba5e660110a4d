"""Scores of other rankings than by Hamming distance: real-valued distances, cells, codes re-ranked by vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._labels import LabelGroups
from shorthash._validation import check_choice, check_count
from shorthash.codes.signs import as_packed, code_length
from shorthash.errors import InvalidInput
from shorthash.evaluation.conventions import Convention, convention_rules
from shorthash.evaluation.counting import count_by_distances, gains_of, label_groups
from shorthash.evaluation.scores import Scores, score_queries

__all__ = ["evaluate_cells", "evaluate_distances", "evaluate_reranked"]

METRICS = ("cosine", "dot", "euclidean")
BELOW_ONE = 1 - 1e-9  # the part of a distance that vectors decide


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
        raise InvalidInput(
            f"Distances to cells must be numbers without NaN of shape (n_queries, n_cells). Got shape {D.shape}."
        )
    out_of_range = cells.dtype.kind not in "iu" or (cells.size and not 0 <= cells.min() <= cells.max() < D.shape[1])
    if cells.ndim != 1 or out_of_range:
        raise InvalidInput(f"The cells of items must be column numbers of the distances, 0 to {D.shape[1] - 1}.")
    what = "distance rows", "cells"
    groups, items = label_groups(query_labels, len(D), database_labels, len(cells), rules, owner, what=what)
    gains = gains_of(gain, items)
    pairs, weights = np.unique(cells * np.int64(len(items.rows)) + items.ids, return_counts=True)
    cells, ids = np.divmod(pairs, len(items.rows))
    entries = LabelGroups(items.classes, items.rows, ids)
    blocks = count_by_distances(D, groups.ids, entries, len(gains), cells=cells, weights=weights)
    n_database = int(weights.sum())
    return score_queries(
        blocks, rules, gains, np.ones(len(D), dtype=np.int64), n_database=n_database, n_bits=0, radius=None
    )


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
    query_labels, database_labels, convention, ties, radius, k, without_relevant, gain : as in :func:`evaluate`

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
    gains = gains_of(gain, items)
    radius = min(check_count(radius, "radius", owner, low=0), n_bits)
    rows = (distances(i) for i in range(len(queries)))
    blocks = count_by_distances(rows, groups.ids, items, len(gains), radius + BELOW_ONE)
    copies = np.ones(len(queries), dtype=np.int64)
    return score_queries(blocks, rules, gains, copies, n_database=len(database), n_bits=n_bits, radius=radius)


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
