"""Scores of codes whose ties are broken by vectors: what a code and a re-ranking achieve together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._validation import check_choice
from shorthash.codes.signs import as_packed
from shorthash.errors import InvalidInput
from shorthash.evaluation.conventions import Convention, convention_rules
from shorthash.evaluation.counting import count_rows
from shorthash.evaluation.measure import measure_all
from shorthash.evaluation.scores import Scores, scores_of

__all__ = ["evaluate_reranked"]

METRICS = ("cosine", "dot", "euclidean")
BELOW_ONE = 1 - 1e-9  # the part of a distance that vectors decide


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
    """Score codes together with a re-ranking: Hamming distance first, and inside a distance the likeness of vectors.

    The ranking is the one of an index searched with ``ties="scores"``: the code finds the items, the vectors (stored
    features, or a classifier's posteriors with ``metric="dot"``) put those at the same distance in order. Few ties are
    left, but those there are follow ``ties``. Scores by radius look at the same ball as without vectors.

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
    length = np.shape(query_codes)[1] if n_bits is None and np.ndim(query_codes) == 2 else n_bits
    if length is None:
        raise InvalidInput("evaluate_reranked needs n_bits for packed codes; pass the code length.")
    queries, items = as_packed(query_codes, length), as_packed(database_codes, length)
    asked = _vectors(query_vectors, len(queries), "query", metric)
    stored = _vectors(database_vectors, len(items), "database", metric)
    if asked.shape[1] != stored.shape[1]:
        raise InvalidInput(
            f"Query and database vectors must have the same dimension. Got {asked.shape[1]} and {stored.shape[1]}; "
            "pass vectors of one model."
        )

    def distances(i: int) -> NDArray[Any]:
        far = _unlikeness(asked[i], stored, metric)
        low, high = far.min(), far.max()
        inside = (far - low) * (BELOW_ONE / (high - low)) if high > low else np.zeros(len(far))
        return np.asarray(np.bitwise_count(items ^ queries[i]) + inside)

    shape = len(queries), len(items)
    radius = min(radius, length)
    blocks, gains, _ = count_rows(
        distances, shape, query_labels, database_labels, rules, radius + BELOW_ONE, gain, owner=owner
    )
    columns, lost, _ = measure_all(blocks, rules, gains, np.ones(shape[0], dtype=np.int64))
    sizes = {"n_database": shape[1], "n_bits": length, "n_without_relevant": int(lost.sum()), "radius": radius}
    return scores_of(columns, None, rules, **sizes)


def _vectors(values: ArrayLike, n: int, side: str, metric: str) -> NDArray[np.float64]:
    """Checked rows; for the cosine, of unit length."""
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


def _unlikeness(query: NDArray[np.float64], rows: NDArray[np.float64], metric: str) -> NDArray[np.float64]:
    """Smaller is more alike, (n,)."""
    if metric == "euclidean":
        return np.asarray(np.linalg.norm(rows - query, axis=1))
    return np.asarray(-(rows @ query))
