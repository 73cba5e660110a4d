"""The contract of everything that can be searched, in memory or in a database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._arrays import Distances, PackedCodes
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
from shorthash.index.results import LookupResult, Probes, RadiusResult, RerankResult, SearchResult

ALL_TIES = (*TIES, "scores")
LARGEST_SEED = 2**64 - 1
REPORTED_QUERIES = 1000  # fewer queries are too quick to show progress
MOST = 2**62  # more items than any index holds, and a number that every database takes

Scored = tuple[AnyIds, Distances, NDArray[np.float32]]
"""Ids, distances and scores of the items of one query; the score of an item without a vector is -infinity."""


class HammingIndex(ABC):
    """Exact search among binary codes of ``n_bits`` bits, 1 to 64; the contract of every index and every store.

    Codes are given as signs, int8 of shape (n, n_bits), or as packed integers of shape (n,). Every item has an id that
    never changes: an int64 or a string (one kind per index), unique. Items added without ids are numbered from the
    largest id so far plus one, starting at 0; the number of a removed item is not used again. An item may have a
    vector.

    Distances are Hamming distances, radii are inclusive, and results are exact. The order of items at equal distance is
    chosen by ``ties``: ``"id"`` (smallest first), ``"insertion"`` (oldest first; an updated item counts as new),
    ``"shuffle"`` (a shuffle that depends only on the ids and ``seed``), ``"any"`` (no promise, fastest) or ``"scores"``
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
        if len(queries) > REPORTED_QUERIES:
            with reporting() as step:
                step(f"searching {len(self)} codes with {len(queries)} queries", 0, 0)
                return self._found(queries, k, ties, seed, where, vectors, metric)
        return self._found(queries, k, ties, seed, where, vectors, metric)

    def _found(
        self,
        queries: PackedCodes,
        k: int,
        ties: str,
        seed: int,
        where: Where | None,
        vectors: ArrayLike | None,
        metric: str,
    ) -> SearchResult:
        """What ``search`` finds with checked arguments."""
        if ties != "scores" or not len(queries):
            return self._search(queries, k, "any" if ties == "scores" else ties, seed, where)
        given = _query_vectors(vectors, len(queries), metric, f"{type(self).__name__}.search")
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
        """Those that hold items; raises unless codes and ids are of one kind."""
        for other in others:
            if other.n_bits != self.n_bits:
                raise InvalidInput(
                    f"Only indexes of the same code length can be merged. Got {other.n_bits} bits instead of "
                    f"{self.n_bits}."
                )
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
                f"{named('ids', owner, 'of')} must be as many as the codes. "
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
        raise InvalidInput(
            f"ties='scores' of {owner} needs the vectors of the queries; pass {phrase('vectors=...')} too."
        )
    if ties != "scores" and vectors is not None:
        raise InvalidInput(f"The 'vectors' of {owner} are used with ties='scores' only; pass that, or leave them out.")
    return check_count(seed, "seed", owner, low=0, high=LARGEST_SEED)


def check_k(k: object, owner: str) -> int:
    """Return the number of items to find, at least 1; a huge one means all."""
    return min(check_count(k, "k", owner), MOST)
