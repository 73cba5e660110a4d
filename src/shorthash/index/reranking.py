"""Real-valued scores that order items inside a distance, or inside a whole ball."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Distances, PackedCodes
from shorthash.index.ids import AnyIds
from shorthash.index.vectors import Vectors

__all__ = ["METRICS", "ranked", "score_codes", "score_vectors"]

Scores = NDArray[np.float32]

METRICS = ("cosine", "dot", "euclidean", "asymmetric")
"""Cosine, inner product or Euclidean distance of vectors; or the query's real scores against the signs of the codes."""

SCORED_AT_ONCE = 1 << 16  # rows gathered at a time


def score_vectors(
    take: Callable[[NDArray[np.int64]], Vectors], positions: NDArray[np.int64], query: Vectors, metric: str
) -> Scores:
    """Scores of the items at some positions, larger is better, (n,).

    Parameters
    ----------
    take : gives the vectors of positions
    query : (dimension,)
    metric : "cosine" (of a vector of zeros: 0), "dot" or "euclidean" (minus the distance)
    """
    scores = np.empty(len(positions), dtype=np.float32)
    wide = np.result_type(query.dtype, np.float32)
    asked = query.astype(wide, copy=False)
    for start in range(0, len(positions), SCORED_AT_ONCE):
        part = slice(start, start + SCORED_AT_ONCE)
        rows = take(positions[part]).astype(wide, copy=False)
        scores[part] = _VECTOR_SCORES[metric](rows, asked)
    return scores


def score_codes(codes: PackedCodes, query: NDArray[Any], n_bits: int) -> Scores:
    """Inner products of real scores with the signs of codes, (n,): every byte of a code is looked up.

    Examples
    --------
    >>> score_codes(np.array([0b11, 0b01], dtype=np.uint8), np.array([2.0, 0.5]), 2).tolist()
    [2.5, 1.5]
    """
    weights = np.zeros(-(-n_bits // 8) * 8)
    weights[:n_bits] = query
    signs = 2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little") - 1  # (256, 8)
    total = np.zeros(len(codes))
    for byte, part in enumerate(weights.reshape(-1, 8)):
        values = (codes >> codes.dtype.type(8 * byte)) & codes.dtype.type(255)
        total += (signs @ part)[values]
    return total.astype(np.float32)


def ranked(scores: Scores, ids: AnyIds, k: int | None, distances: Distances | None = None) -> NDArray[np.intp]:
    """Order of the k best (None: all): by distance if given, then by score, then by id."""
    if distances is None and k is not None and len(scores) > k:
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        kept = np.flatnonzero(scores >= least)  # only those that can be among the best are sorted
        return kept[np.lexsort((ids[kept], -scores[kept]))][:k]
    keys = (ids, -scores) if distances is None else (ids, -scores, distances)
    return np.lexsort(keys)[:k]


def _cosine(rows: Vectors, query: Vectors) -> Any:
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(query)
    return np.divide(rows @ query, norms, out=np.zeros(len(rows), dtype=rows.dtype), where=norms != 0)


_VECTOR_SCORES: dict[str, Callable[[Any, Any], Any]] = {
    "cosine": _cosine,
    "dot": lambda rows, query: rows @ query,
    "euclidean": lambda rows, query: -np.linalg.norm(rows - query, axis=1),
}
