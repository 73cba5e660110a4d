"""Results of searches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Distances, PackedCodes
from shorthash._display import html_table

SHOWN_QUERIES, SHOWN_NEIGHBOURS = 10, 10


@dataclass(frozen=True)
class SearchResult:
    """The nearest items of every query, nearest first.

    Attributes
    ----------
    ids : (n_queries, k') int64 or str; k' is k, or the number of items if there are fewer
    distances : (n_queries, k') uint8
    """

    ids: NDArray[Any]
    distances: Distances

    def __len__(self) -> int:
        return len(self.ids)

    def _repr_html_(self) -> str:
        """A table for notebooks: id and distance of the first neighbours of the first queries."""
        n_queries, k = self.ids.shape
        shown, near = min(n_queries, SHOWN_QUERIES), min(k, SHOWN_NEIGHBOURS)
        rows = [
            (query, *(f"{self.ids[query, i]} ({self.distances[query, i]})" for i in range(near)))
            for query in range(shown)
        ]
        part = "" if (shown, near) == (n_queries, k) else f"; the first {near} of {shown} queries are shown"
        head = ("query", *(f"{i + 1}." for i in range(near)))
        return html_table(head, rows, f"{n_queries} queries, {k} neighbours each: id (distance){part}")


class ByQuery:
    """Flat arrays with the hits of the first query, then those of the second, ...; ``offsets`` separates them."""

    offsets: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of hits (or buckets) of every query, (n_queries,)."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Any]:
        return (self[query] for query in range(len(self)))

    def __getitem__(self, query: int) -> Any:
        """The hits of one query."""
        raise NotImplementedError

    def _rows_of(self, query: int) -> slice:
        """The range that one query owns; negative numbers count from the end."""
        row = range(len(self))[query]
        return slice(self.offsets[row], self.offsets[row + 1])


@dataclass(frozen=True)
class RadiusResult(ByQuery):
    """All items within a radius of every query, in flat arrays, because queries differ in their number of items.

    Attributes
    ----------
    ids : (n_hits,) int64 or str, the hits of the first query, then those of the second, ...
    distances : (n_hits,) uint8
    offsets : (n_queries + 1,) int64; query i owns ``ids[offsets[i]:offsets[i + 1]]``

    Examples
    --------
    >>> result = RadiusResult(np.array([7, 3, 5]), np.array([0, 1, 2], dtype=np.uint8), np.array([0, 1, 3]))
    >>> [ids.tolist() for ids, _ in result]
    [[7], [3, 5]]
    >>> result.counts.tolist()
    [1, 2]
    """

    ids: NDArray[Any]
    distances: Distances
    offsets: NDArray[np.int64]

    def __getitem__(self, query: int) -> tuple[NDArray[Any], Distances]:
        """Ids and distances of one query, as views."""
        rows = self._rows_of(query)
        return self.ids[rows], self.distances[rows]


@dataclass(frozen=True)
class RerankResult(ByQuery):
    """The items with the best scores of every query, best first, in flat arrays, because a ball may hold fewer than k.

    Attributes
    ----------
    ids : (n_hits,) int64 or str, the hits of the first query, then those of the second, ...
    scores : (n_hits,) float32, larger is better: cosine, inner product, or minus the Euclidean distance
    offsets : (n_queries + 1,) int64; query i owns ``ids[offsets[i]:offsets[i + 1]]``
    """

    ids: NDArray[Any]
    scores: NDArray[np.float32]
    offsets: NDArray[np.int64]

    def __getitem__(self, query: int) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Ids and scores of one query, as views."""
        rows = self._rows_of(query)
        return self.ids[rows], self.scores[rows]


@dataclass(frozen=True)
class Probes:
    """The cells (codes) to look up for every query, in order, and when to stop.

    Attributes
    ----------
    cells : (n_probes,) packed codes: those of the first query, then those of the second, ...; different inside a query
    shares : (n_probes,) float64, the share of items in each that is expected to be relevant
    offsets : (n_queries + 1,) int64; query i owns ``cells[offsets[i]:offsets[i + 1]]``
    enough : a cell is looked up if the cells before it are expected to hold fewer relevant items than this
    """

    cells: PackedCodes
    shares: NDArray[np.float64]
    offsets: NDArray[np.int64]
    enough: float = np.inf

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class LookupResult(ByQuery):
    """The items of the cells that were looked up, by cell in the order of the probes, then by id, in flat arrays.

    Attributes
    ----------
    ids : (n_hits,) int64 or str
    places : (n_hits,) int64, which of its query's cells holds an item, counted from 0
    offsets : (n_queries + 1,) int64; query i owns ``ids[offsets[i]:offsets[i + 1]]``
    n_cells : (n_queries,) int64, how many cells were looked up, empty ones included
    scores : (n_hits,) float32, of the vectors, -infinity without one; None if no vectors were given
    posteriors : (n_hits, n_bytes) uint8, compact posteriors, 0 where none is known; None if they were not requested
    """

    ids: NDArray[Any]
    places: NDArray[np.int64]
    offsets: NDArray[np.int64]
    n_cells: NDArray[np.int64]
    scores: NDArray[np.float32] | None = None
    posteriors: NDArray[np.uint8] | None = None

    def __getitem__(self, query: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Ids and places of one query, as views."""
        rows = self._rows_of(query)
        return self.ids[rows], self.places[rows]


@dataclass(frozen=True)
class BucketSlices(ByQuery):
    """The occupied buckets within a radius of every query, as ranges of one shared array: nothing is copied.

    Attributes
    ----------
    positions : (n_items,) positions of all items in bucket order; ``index.ids[positions]`` are their ids
    bounds : where every bucket begins: bucket b is ``positions[bounds[b]:bounds[b + 1]]``
    buckets : (n_slices,) the bucket of every slice; its code, where codes are addresses
    distances : (n_slices,) uint8, distance of the bucket from its query; ascending inside a query
    offsets : (n_queries + 1,) int64; query i owns slices ``offsets[i]`` to ``offsets[i + 1] - 1``
    """

    positions: NDArray[Any]
    bounds: NDArray[Any]
    buckets: NDArray[Any]
    distances: Distances
    offsets: NDArray[np.int64]

    @property
    def starts(self) -> NDArray[Any]:
        """Where every slice begins in ``positions``, (n_slices,)."""
        return np.asarray(self.bounds[self.buckets])

    @property
    def stops(self) -> NDArray[Any]:
        """Where every slice ends in ``positions``, (n_slices,)."""
        return np.asarray(self.bounds[self.buckets.astype(np.int64) + 1])

    def __getitem__(self, query: int) -> list[tuple[int, NDArray[Any]]]:
        """(distance, positions) of every bucket of one query, as views, nearest first."""
        rows = self._rows_of(query)
        buckets = self.buckets[rows].astype(np.int64)
        ranges = zip(self.distances[rows].tolist(), self.bounds[buckets], self.bounds[buckets + 1], strict=True)
        return [(distance, self.positions[start:stop]) for distance, start, stop in ranges]
