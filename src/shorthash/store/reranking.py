"""Exact ranking of candidates by their vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shorthash.index.ids import AnyIds
from shorthash.store.items import as_ids_array

__all__ = ["METRICS", "RerankResult", "best"]

METRICS = ("cosine", "dot", "euclidean")


@dataclass(frozen=True)
class RerankResult:
    """The best items of every query, best first; ragged, because a ball may hold fewer than k items.

    Attributes
    ----------
    ids : (n_hits,) int64 or str, the hits of the first query, then those of the second, ...
    scores : (n_hits,) float32, larger is better: cosine, inner product, or minus the Euclidean distance
    offsets : (n_queries + 1,) int64; query i owns ``ids[offsets[i]:offsets[i + 1]]``
    """

    ids: AnyIds
    scores: NDArray[np.float32]
    offsets: NDArray[np.int64]

    @classmethod
    def from_rows(cls, rows: Sequence[tuple[list[Any], list[float]]], kind: str) -> Self:
        """From ids and scores of every query; ``kind`` of the ids where there are none."""
        ids = as_ids_array([item for found, _ in rows for item in found], kind)
        scores = np.array([score for _, found in rows for score in found], dtype=np.float32)
        return cls(ids, scores, np.cumsum([0, *(len(found) for found, _ in rows)], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, query: int) -> tuple[AnyIds, NDArray[np.float32]]:
        """Ids and scores of one query, as views."""
        row = range(len(self))[query]
        start, stop = self.offsets[row], self.offsets[row + 1]
        return self.ids[start:stop], self.scores[start:stop]

    def __iter__(self) -> Iterator[tuple[AnyIds, NDArray[np.float32]]]:
        return (self[query] for query in range(len(self)))


def best(
    ids: list[Any], vectors: NDArray[np.float32], query: NDArray[np.float32], k: int, metric: str
) -> tuple[list[Any], list[float]]:
    """The k candidates with the best scores, equal scores by id; rows of nan are left out.

    Parameters
    ----------
    ids : n ids
    vectors : (n, dimension)
    query : (dimension,)
    """
    scores = _scores(vectors, query, metric)
    kept = np.flatnonzero(~np.isnan(scores))
    if len(kept) > k:  # only those that can be among the best are sorted
        least = np.partition(scores[kept], len(kept) - k)[len(kept) - k]
        kept = kept[scores[kept] >= least]
    ranked = sorted((-float(scores[i]), ids[i]) for i in kept)[:k]
    return [item for _, item in ranked], [-score for score, _ in ranked]


def _scores(vectors: NDArray[np.float32], query: NDArray[np.float32], metric: str) -> NDArray[np.float32]:
    """Scores, larger is better, (n,); a vector of zeros has cosine 0."""
    if metric == "euclidean":
        distances: NDArray[np.float32] = np.linalg.norm(vectors - query, axis=1)
        return -distances
    scores: NDArray[np.float32] = vectors @ query
    if metric == "cosine":
        norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
        scores = np.divide(scores, norms, out=np.zeros_like(scores), where=norms != 0)
        scores[np.isnan(norms)] = np.nan
    return scores
