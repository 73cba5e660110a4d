"""Exact ranking of candidates in a store by their vectors or codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.index.items import METRICS, best_order, score_codes, score_vectors
from shorthash.index.results import RerankResult
from shorthash.store.items import as_ids_array, from_signed
from shorthash.store.session import Hit

__all__ = ["METRICS", "VECTOR_METRICS", "Ranked", "best_by_codes", "best_by_vectors", "rerank_result"]

VECTOR_METRICS = tuple(metric for metric in METRICS if metric != "asymmetric")
"""Metrics that compare vectors."""

Ranked = tuple[list[Any], list[float]]
"""Ids and scores, best first."""


def best_by_vectors(
    hits: Sequence[Hit], vectors: NDArray[np.float32], query: NDArray[np.float32], k: int, metric: str
) -> Ranked:
    """The k candidates whose vectors are best, equal scores by id; rows of nan are left out.

    Parameters
    ----------
    hits : n candidates
    vectors : (n, dimension) their vectors
    query : (dimension,)
    """
    there = np.flatnonzero(~np.isnan(vectors[:, 0]))
    scores = score_vectors(lambda positions: vectors[positions], there, query, metric)
    return _first([hits[i] for i in there.tolist()], scores, k)


def best_by_codes(hits: Sequence[Hit], n_bits: int, query: NDArray[np.float32], k: int) -> Ranked:
    """The k candidates whose signs agree best with the real scores of a query, (n_bits,)."""
    codes = from_signed([hit[1] for hit in hits], n_bits)
    return _first(hits, score_codes(codes, query, n_bits), k)


def rerank_result(rows: Sequence[Ranked], kind: str) -> RerankResult:
    """The answers to all queries together; ``kind`` of the ids where there are none."""
    ids = as_ids_array([item for found, _ in rows for item in found], kind)
    scores = np.array([score for _, found in rows for score in found], dtype=np.float32)
    return RerankResult(ids, scores, np.cumsum([0, *(len(found) for found, _ in rows)], dtype=np.int64))


def _first(hits: Sequence[Hit], scores: NDArray[np.float32], k: int) -> Ranked:
    order = best_order(scores, as_ids_array([hit[0] for hit in hits]), k)
    return [hits[i][0] for i in order.tolist()], scores[order].tolist()
