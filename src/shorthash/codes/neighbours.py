"""Exact nearest rows, in blocks, and where they lie among codes: retrieval without labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Counts, Features, PackedCodes

METRICS = ("cosine", "dot", "euclidean")
BLOCK = 1 << 24  # similarities held at once: 64 MB
SMALLEST = 1e-30  # keeps rows of zeros finite


def unit_rows(X: Features) -> NDArray[np.float32]:
    """Rows divided by their Euclidean norm; a row of zeros stays one."""
    values = np.asarray(X, dtype=np.float32)
    return np.asarray(values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), np.float32(SMALLEST)))


def nearest_rows(
    queries: Features, items: Features, k: int, metric: str = "cosine", own: NDArray[np.integer] | None = None
) -> NDArray[np.intp]:
    """Numbers of the k items nearest to every query, nearest first, (m, k); of equally near ones the first.

    Parameters
    ----------
    queries, items : (m, d), (n, d) rows
    k : number of items, at most n (n - 1 with ``own``)
    metric : "cosine", "dot" (largest product) or "euclidean"
    own : (m,) the item that every query is itself and that is left out; -1 if there is none

    Examples
    --------
    >>> nearest_rows(np.array([[1.0, 0.1]]), np.array([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]]), k=2)
    array([[1, 2]])
    """
    Q, Y = (unit_rows(rows) if metric == "cosine" else np.asarray(rows, dtype=np.float32) for rows in (queries, items))
    shift = 0.5 * np.einsum("ij,ij->i", Y, Y) if metric == "euclidean" else np.zeros(len(Y), dtype=np.float32)
    found = np.empty((len(Q), k), dtype=np.intp)
    step = max(1, BLOCK // max(len(Y), 1))
    for start in range(0, len(Q), step):
        part = slice(start, start + step)
        distance = shift - Q[part] @ Y.T
        if own is not None:
            known = np.flatnonzero(own[part] >= 0)
            distance[known, own[part][known]] = np.inf
        limits = np.partition(distance, k - 1, axis=1)[:, k - 1]
        for i, (row, limit) in enumerate(zip(distance, limits, strict=True), start):
            near = np.flatnonzero(row <= limit)
            found[i] = near[np.argsort(row[near], kind="stable")[:k]]
    return found


def list_levels(queries: PackedCodes, items: PackedCodes, lists: NDArray[np.integer], n_bits: int) -> Counts:
    """How many of the items in the list of every query lie at distance 0, 1, ..., n_bits from it, (m, n_bits + 1).

    Examples
    --------
    >>> items = np.array([0b11, 0b10, 0b00], dtype=np.uint8)
    >>> list_levels(np.array([0b11], dtype=np.uint8), items, np.array([[0, 2]]), n_bits=2)
    array([[1, 0, 1]])
    """
    distance = np.bitwise_count(items[lists] ^ queries[:, None]).astype(np.int64)
    places = distance + np.arange(len(queries))[:, None] * (n_bits + 1)
    return np.bincount(places.ravel(), minlength=len(queries) * (n_bits + 1)).reshape(len(queries), n_bits + 1)
