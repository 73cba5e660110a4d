"""Scores as the authors' code computes them: a stable sort of the whole database, ties in database order.

The same numbers as ``evaluate(..., convention="sdh")``, without the others: thousands of runs need two of them. The
database must be in random order, or its order would be scored too.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from shorthash._labels import group_label_pair, shared_label
from shorthash._types import Codes, Floats
from shorthash.codes.levels import popcount
from shorthash.codes.signs import as_packed

__all__ = ["stable_scores"]


def stable_scores(
    query_codes: Codes, query_labels: ArrayLike, database_codes: Codes, database_labels: ArrayLike, k: int
) -> tuple[Floats, Floats]:
    """Average precision and precision of the first k, per query.

    Parameters
    ----------
    query_codes, database_codes : (n, n_bits) signs
    query_labels, database_labels : class labels, (n,), or indicator matrices, (n, n_classes)
    k : list length; beyond the database, the whole of it
    """
    n_bits = query_codes.shape[1]
    queries, groups = group_label_pair(query_labels, database_labels, owner="stable_scores")
    relevant = shared_label(queries.rows, groups.rows)  # (u, v)
    words = as_packed(query_codes, n_bits).astype(np.uint64)
    distinct, place = np.unique(words, return_inverse=True)
    order = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[order], np.arange(len(distinct) + 1))
    average, precision = _by_code(
        distinct,
        order,
        starts,
        queries.ids.astype(np.int64),
        as_packed(database_codes, n_bits).astype(np.uint64),
        groups.ids.astype(np.int64),
        np.ascontiguousarray(relevant, dtype=np.bool_),
        n_bits,
        min(k, len(database_codes)),
    )
    return average, precision


@njit(cache=True, nogil=True)
def _by_code(
    codes: NDArray[np.uint64],
    order: NDArray[np.int64],
    starts: NDArray[np.int64],
    query_groups: NDArray[np.int64],
    items: NDArray[np.uint64],
    item_groups: NDArray[np.int64],
    relevant: NDArray[np.bool_],
    n_bits: int,
    k: int,
) -> tuple[Floats, Floats]:
    """One counting sort per distinct query code; one walk along it per distinct query group there."""
    n, u = items.size, len(relevant)
    average, precision = np.zeros(query_groups.size), np.zeros(query_groups.size)
    levels = np.empty(n, dtype=np.uint8)
    listed = np.empty(n, dtype=np.int64)
    value, head, done = np.empty(u), np.empty(u), np.empty(u, dtype=np.bool_)
    for c in range(codes.size):
        places = np.zeros(n_bits + 2, dtype=np.int64)
        for j in range(n):
            levels[j] = popcount(codes[c] ^ items[j])
            places[levels[j] + 1] += 1
        places = np.cumsum(places)
        for j in range(n):
            listed[places[levels[j]]] = item_groups[j]
            places[levels[j]] += 1
        done[:] = False
        for q in order[starts[c] : starts[c + 1]]:
            g = query_groups[q]
            if not done[g]:
                done[g] = True
                value[g], head[g] = _walk(listed, relevant[g], k)
            average[q], precision[q] = value[g], head[g]
    return average, precision


@njit(cache=True, nogil=True)
def _walk(listed: NDArray[np.int64], relevant: NDArray[np.bool_], k: int) -> tuple[float, float]:
    """Average precision, 0 without relevant items, and precision of the first k."""
    hits, total, head = 0, 0.0, 0
    for rank in range(listed.size):
        if relevant[listed[rank]]:
            hits += 1
            total += hits / (rank + 1)
            if rank < k:
                head += 1
    return (total / hits if hits else 0.0), head / k
