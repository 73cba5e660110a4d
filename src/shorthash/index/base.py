"""The contract of everything that can be searched, in memory or in a database, and the results of searches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._arrays import Distances, PackedCodes
from shorthash._display import html_table
from shorthash._progress import reporting
from shorthash._validation import check_choice, check_count, check_n_bits
from shorthash.codes import as_packed
from shorthash.errors import InvalidInput, named, phrase, setting
from shorthash.index.items import (
    METRICS,
    TIES,
    AnyIds,
    Vectors,
    Where,
    as_ids,
    as_vectors,
    best_order,
    check_unique,
)

SHOWN_QUERIES, SHOWN_NEIGHBOURS = 10, 10  # in the table for notebooks
ALL_TIES = (*TIES, "scores")
LARGEST_SEED = 2**64 - 1
REPORTED_QUERIES = 1000  # fewer queries are too quick to show progress
SILENT = nullcontext()
MOST = 2**62  # more items than any index holds, and a number that every database takes

Scored = tuple[AnyIds, Distances, NDArray[np.float32]]
"""Ids, distances and scores of the items of one query; the score of an item without a vector is -infinity."""


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


class HammingIndex(ABC):
    """Exact search among binary codes of ``n_bits`` bits, 1 to 64; the contract of every index and every store.

    Codes are given as signs, int8 of shape (n, n_bits), or as packed integers of shape (n,). Every item has an id that
    never changes: an int64 or a string (one kind per index), unique. Items added without ids are numbered from the
    largest id so far plus one, starting at 0; the number of a removed item is not used again. An item may have a
    vector.

    Distances are Hamming distances, radii are inclusive, and results are exact. The order of items at equal distance is
    chosen by ``ties``: ``"id"`` (smallest first), ``"insertion"`` (oldest first; an updated item counts as new),
    ``"shuffle"`` (a shuffle that depends only on ids and ``seed``), ``"any"`` (unspecified, fastest) or ``"scores"``
    (best score first, then smallest id); ``rerank`` orders a whole ball by score. The score compares the vector given
    with a query, in the ``metric`` "cosine", "dot" or "euclidean", with those of the items; or, in the metric
    "asymmetric", the real scores of the query (``hasher.project(X)``) with the signs of the codes, for which items need
    no vectors.

    ``where`` restricts a search to some items: a boolean mask in insertion order, a collection of ids, or a function
    that takes the array of all ids and returns such a mask.
    """

    def __init__(self, n_bits: int) -> None:
        self._n_bits = check_n_bits(n_bits, type(self).__name__)

    @property
    def n_bits(self) -> int:
        """Length of the codes."""
        return self._n_bits

    @property
    @abstractmethod
    def codes(self) -> PackedCodes:
        """Packed codes of all items in insertion order, (n_items,), read-only."""

    @property
    @abstractmethod
    def ids(self) -> AnyIds:
        """Ids of all items in insertion order, (n_items,), read-only."""

    @property
    @abstractmethod
    def vectors(self) -> Vectors | None:
        """Vectors of all items in insertion order, (n_items, dimension), read-only; None if items have none."""

    @abstractmethod
    def __len__(self) -> int: ...

    def __contains__(self, item: object) -> bool:
        if isinstance(item, bool | np.bool_) or not isinstance(item, int | np.integer | str):
            return False
        if isinstance(item, str) and "\0" in item:
            return False
        ids = np.asarray([item])
        return ids.dtype.kind in "iU" and self._has(as_ids(ids, type(self).__name__))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_bits={self.n_bits}): {len(self)} items"

    @abstractmethod
    def add(self, codes: ArrayLike, ids: ArrayLike | None = None, *, vectors: ArrayLike | None = None) -> Self:
        """Add items, all or none.

        Parameters
        ----------
        codes : signs of shape (n, n_bits) or packed integers of shape (n,)
        ids : (n,) integers or strings not yet in the index; None numbers the items
        vectors : (n, dimension) numbers, for ranking by scores
        """

    @abstractmethod
    def update(self, ids: ArrayLike, codes: ArrayLike) -> Self:
        """Give items new codes, all or none; in insertion order they become the newest."""

    def remove(self, ids: ArrayLike) -> Self:
        """Remove items, all or none; an id that is not in the index is an error."""
        removed = as_ids(ids, type(self).__name__)
        check_unique(removed, type(self).__name__)
        self._remove(removed)
        return self

    @abstractmethod
    def merge(self, *others: HammingIndex) -> Self:
        """Add all items of other indexes (shards) with their ids and vectors, all or none; ids must not collide."""

    def search(
        self,
        codes: ArrayLike,
        k: int,
        *,
        ties: str = "id",
        seed: int = 0,
        where: Where | None = None,
        vectors: ArrayLike | None = None,
        metric: str = "cosine",
    ) -> SearchResult:
        """Find the k nearest items of every query; all of them if there are fewer than k.

        Parameters
        ----------
        codes : the queries, signs of shape (n_queries, n_bits) or packed integers of shape (n_queries,)
        k : number of items to find, at least 1
        ties : order inside equal distance, which also decides which items are cut off: "id", "insertion", "shuffle",
            "any" or "scores"
        seed : seed of ``ties="shuffle"``
        where : only these items may be found: a mask in insertion order, a collection of ids, or a function of the ids
        vectors : of the queries, for ``ties="scores"``: (n_queries, dimension), or (n_queries, n_bits) real scores for
            ``metric="asymmetric"``
        metric : "cosine", "dot", "euclidean" or "asymmetric"
        """
        owner = f"{type(self).__name__}.search"
        k, seed = check_k(k, owner), _check_ties(ties, seed, vectors, owner)
        queries = as_packed(codes, self.n_bits)
        with reporting() if len(queries) > REPORTED_QUERIES else SILENT as step:
            if step is not None:
                step(f"searching {len(self)} codes with {len(queries)} queries", 0, 0)
            if ties != "scores" or not len(queries):
                return self._search(queries, k, "any" if ties == "scores" else ties, seed, where)
            given = _query_vectors(vectors, len(queries), metric, owner)
            found = _best(self._scored(queries, given, metric, where, k, self.n_bits), k, by_distance=True)
        return SearchResult(np.stack([ids for ids, _, _ in found]), np.stack([d for _, d, _ in found]))

    def within(
        self,
        codes: ArrayLike,
        radius: int,
        *,
        ties: str = "id",
        seed: int = 0,
        where: Where | None = None,
        vectors: ArrayLike | None = None,
        metric: str = "cosine",
    ) -> RadiusResult:
        """Find all items within ``radius`` (inclusive) of every query, nearest first.

        Parameters
        ----------
        codes : the queries, signs of shape (n_queries, n_bits) or packed integers of shape (n_queries,)
        radius : largest distance, at least 0; n_bits and more find everything
        ties : order inside equal distance: "id", "insertion", "shuffle", "any" or "scores"
        seed : seed of ``ties="shuffle"``
        where : only these items may be found: a mask in insertion order, a collection of ids, or a function of the ids
        vectors : of the queries, for ``ties="scores"``; see ``search``
        metric : "cosine", "dot", "euclidean" or "asymmetric"
        """
        owner = f"{type(self).__name__}.within"
        radius, seed = self._radius(radius, owner), _check_ties(ties, seed, vectors, owner)
        queries = as_packed(codes, self.n_bits)
        if ties != "scores" or not len(queries):
            return self._within(queries, radius, "any" if ties == "scores" else ties, seed, where)
        given = _query_vectors(vectors, len(queries), metric, owner)
        found = _best(self._scored(queries, given, metric, where, None, radius), None, by_distance=True)
        ids, distances = np.concatenate([i for i, _, _ in found]), np.concatenate([d for _, d, _ in found])
        return RadiusResult(ids, distances, _offsets(found))

    def counts(self, codes: ArrayLike, radius: int, *, where: Where | None = None) -> NDArray[np.int64]:
        """Count the items within ``radius`` (inclusive) of every query, (n_queries,)."""
        radius = self._radius(radius, f"{type(self).__name__}.counts")
        return self._counts(as_packed(codes, self.n_bits), radius, where)

    def iterate(self, code: ArrayLike) -> Iterator[tuple[int, AnyIds]]:
        """Yield (distance, ids) of one query by increasing distance, ids ascending; only distances that occur.

        Parameters
        ----------
        code : one query: signs of shape (n_bits,) or (1, n_bits), or one packed integer
        """
        values = np.asarray(code)
        signs = values.ndim == 1 and len(values) == self.n_bits and bool(np.all(np.abs(values) == 1))
        if values.ndim == 0 or signs:
            values = values[None]
        packed = as_packed(values, self.n_bits)
        if len(packed) != 1:
            raise InvalidInput(f"{type(self).__name__}.iterate takes one query. Got {len(packed)} instead.")
        return self._iterate(packed)

    def rerank(
        self,
        codes: ArrayLike,
        vectors: ArrayLike,
        k: int,
        *,
        radius: int,
        metric: str = "cosine",
        where: Where | None = None,
    ) -> RerankResult:
        """Of all items within ``radius`` of every query, find the k with the best scores; exact.

        Items without a vector are left out, unless ``metric`` is "asymmetric".

        Parameters
        ----------
        codes : the queries, signs of shape (n_queries, n_bits) or packed integers of shape (n_queries,)
        vectors : (n_queries, dimension) vectors of the queries, or (n_queries, n_bits) real scores for
            ``metric="asymmetric"``
        k : number of items to find, at least 1
        radius : largest Hamming distance (inclusive)
        metric : "cosine", "dot" or "euclidean" of vectors, or "asymmetric": real scores against the signs of the codes
        where : only these items may be found: a mask in insertion order, a collection of ids, or a function of the ids
        """
        owner = f"{type(self).__name__}.rerank"
        k, radius = check_k(k, owner), self._radius(radius, owner)
        queries = as_packed(codes, self.n_bits)
        given = _query_vectors(vectors, len(queries), metric, owner)
        found = self._rerank(queries, given, k, radius, metric, where)
        ids = np.concatenate([i for i, _, _ in found]) if found else self.ids[:0]
        scores = np.concatenate([np.empty(0, dtype=np.float32), *(s for _, _, s in found)])
        return RerankResult(ids, scores, _offsets(found))

    def lookup(
        self,
        probes: Probes,
        *,
        where: Where | None = None,
        vectors: ArrayLike | None = None,
        metric: str = "cosine",
        posteriors: bool = False,
    ) -> LookupResult:
        """The items of named cells, in the order of the cells; what :class:`shorthash.Searcher` is built on.

        Parameters
        ----------
        probes : the cells of every query, and when to stop
        where : only these items may be found: a mask in insertion order, a collection of ids, or a function of the ids
        vectors : (n_queries, dimension) vectors of the queries, to score the items by; None: no scores
        metric : "cosine", "dot" or "euclidean"
        posteriors : read the compact posteriors of the items

        Examples
        --------
        >>> import numpy as np
        >>> from shorthash import BucketIndex
        >>> from shorthash.index import Probes
        >>> index = BucketIndex(n_bits=3).add([5, 2, 5, 7])
        >>> found = index.lookup(Probes(np.array([2, 5]), np.array([0.9, 0.4]), np.array([0, 2])))
        >>> found.ids.tolist(), found.places.tolist(), found.n_cells.tolist()
        ([1, 0, 2], [0, 1, 1], [2])
        """
        owner = f"{type(self).__name__}.lookup"
        check_choice(metric, "metric", owner, METRICS[:3])
        given = None if vectors is None else _query_vectors(vectors, len(probes), metric, owner)
        checked = replace(probes, cells=as_packed(probes.cells, self.n_bits))
        return self._lookup(checked, where, given, metric, posteriors)

    def buckets(self) -> tuple[PackedCodes, NDArray[np.int64]]:
        """The codes that occur, ascending, and how many items have each."""
        codes, counts = np.unique(self.codes, return_counts=True)
        return codes, counts.astype(np.int64)

    @abstractmethod
    def _has(self, ids: AnyIds) -> bool: ...

    @abstractmethod
    def _remove(self, ids: AnyIds) -> None: ...

    @abstractmethod
    def _search(self, queries: PackedCodes, k: int, ties: str, seed: int, where: Where | None) -> SearchResult: ...

    @abstractmethod
    def _within(self, queries: PackedCodes, radius: int, ties: str, seed: int, where: Where | None) -> RadiusResult: ...

    def _counts(self, queries: PackedCodes, radius: int, where: Where | None) -> NDArray[np.int64]:
        return self._within(queries, radius, "any", 0, where).counts

    def _iterate(self, query: PackedCodes) -> Iterator[tuple[int, AnyIds]]:
        ids, distances = self._within(query, self.n_bits, "id", 0, None)[0]
        return ((distance, ids[distances == distance]) for distance in np.unique(distances).tolist())

    @abstractmethod
    def _scored(
        self, queries: PackedCodes, vectors: Vectors, metric: str, where: Where | None, k: int | None, radius: int
    ) -> list[Scored]:
        """Items of every query and their scores: up to the distance of the k-th or, if k is None, within ``radius``."""

    @abstractmethod
    def _lookup(
        self, probes: Probes, where: Where | None, vectors: Vectors | None, metric: str, posteriors: bool
    ) -> LookupResult: ...

    def _rerank(
        self, queries: PackedCodes, vectors: Vectors, k: int, radius: int, metric: str, where: Where | None
    ) -> list[Scored]:
        return _best(self._scored(queries, vectors, metric, where, None, radius), k, by_distance=False)

    def _check_columns(self, vectors: Vectors, metric: str, dimension: int | None) -> None:
        """Raise unless vectors of queries fit the metric and the ``dimension`` of the items (None: they have none)."""
        owner = type(self).__name__
        if metric == "asymmetric":
            dimension = self.n_bits
        if dimension is None:
            raise InvalidInput(
                f"{setting('metric', metric, owner)} needs items with vectors, and this one has none; add them with "
                f"{phrase('add(codes, vectors=...)')}, or use {setting('metric', 'asymmetric')}."
            )
        if vectors.shape[1] != dimension:
            raise InvalidInput(
                f"The 'vectors' of {owner} must have {dimension} columns for {setting('metric', metric)}. "
                f"Got {vectors.shape[1]} instead."
            )

    def _mergeable(self, others: Sequence[HammingIndex]) -> list[HammingIndex]:
        """The indexes that hold items; raises unless their codes and ids are of one kind."""
        for other in others:
            if other.n_bits != self.n_bits:
                raise InvalidInput(f"Indexes of {other.n_bits} and {self.n_bits} bits cannot be merged; use one model.")
        filled = [other for other in others if len(other)]
        if len({other.ids.dtype.kind for other in filled}) > 1:
            raise InvalidInput("Indexes with integer and with string ids cannot be merged; convert them to one kind.")
        return filled

    def _ids_for(self, codes: PackedCodes, ids: ArrayLike) -> AnyIds:
        """Ids given by a user, checked against the codes they belong to."""
        owner = type(self).__name__
        values = as_ids(ids, owner)
        if len(values) != len(codes):
            raise InvalidInput(
                f"{named('ids', owner, 'of')} must have one entry per code. "
                f"Got {len(values)} ids for {len(codes)} codes."
            )
        check_unique(values, owner)
        return values

    def _radius(self, radius: int, owner: str) -> int:
        return min(check_count(radius, "radius", owner, low=0), self.n_bits)


def _query_vectors(vectors: ArrayLike | None, n_queries: int, metric: str, owner: str) -> Vectors:
    check_choice(metric, "metric", owner, METRICS)
    return as_vectors(np.empty((0, 1)) if vectors is None else vectors, n_queries, owner)


def _best(found: list[Scored], k: int | None, *, by_distance: bool) -> list[Scored]:
    """The k best items of every query, in order; ``by_distance`` first, or items without a score left out."""
    best = []
    for ids, distances, scores in found:
        if by_distance:
            order = best_order(scores, ids, k, distances)
        else:
            scored = np.flatnonzero(scores > -np.inf)
            order = scored[best_order(scores[scored], ids[scored], k)]
        best.append((ids[order], distances[order], scores[order]))
    return best


def _offsets(found: list[Scored]) -> NDArray[np.int64]:
    return np.cumsum([0, *(len(ids) for ids, _, _ in found)], dtype=np.int64)


def _check_ties(ties: str, seed: int, vectors: ArrayLike | None, owner: str) -> int:
    """The checked seed; raises if ``ties`` is unknown, or vectors of the queries are missing or would not be used."""
    check_choice(ties, "ties", owner, ALL_TIES)
    if ties == "scores" and vectors is None:
        raise InvalidInput(f"ties='scores' of {owner} needs the vectors of queries; pass {phrase('vectors=...')} too.")
    if ties != "scores" and vectors is not None:
        raise InvalidInput(f"The 'vectors' of {owner} are used with ties='scores' only; pass that, or leave them out.")
    return check_count(seed, "seed", owner, low=0, high=LARGEST_SEED)


def check_k(k: object, owner: str) -> int:
    """Return the number of items to find, at least 1; a huge one means all."""
    return min(check_count(k, "k", owner), MOST)
