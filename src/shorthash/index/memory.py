"""What indexes in memory offer beyond the contract: vectors, ranking by scores, and a check of the file behind them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._types import Distances, PackedCodes
from shorthash._validation import check_choice
from shorthash.codes import as_packed
from shorthash.errors import InvalidInput
from shorthash.index.base import HammingIndex, check_k
from shorthash.index.filters import Where
from shorthash.index.ids import TIES, AnyIds
from shorthash.index.reranking import METRICS, ranked, score_codes, score_vectors
from shorthash.index.results import RadiusResult, RerankResult, SearchResult
from shorthash.index.vectors import Vectors, as_vectors

__all__ = ["MemoryIndex"]

Hits = tuple[NDArray[np.int64], Distances, NDArray[np.int64]]
"""Positions, distances and offsets of what lies within a radius of every query."""


class MemoryIndex(HammingIndex):
    """An index that can keep a vector with every item and order what it finds by real-valued scores.

    Either every item has a vector or none has; all have the dimension and the type of the first. ``ties="scores"``
    orders items at equal distance by a score (best first, then smallest id), ``rerank`` orders a whole ball by it. The
    score compares the vector given with a query, in the ``metric`` "cosine", "dot" or "euclidean", with those of the
    items; or, in the metric "asymmetric", the real scores of the query (``hasher.project(X)``) with the signs of the
    codes, for which the index needs no vectors.
    """

    _check_source: Callable[[], None] | None = None

    @property
    @abstractmethod
    def vectors(self) -> Vectors | None:
        """Vectors of all items in insertion order, (n_items, dimension), read-only; None if items have none."""

    @property
    @abstractmethod
    def dimension(self) -> int | None:
        """Columns of the vectors; None if items have none."""

    def add(self, codes: ArrayLike, ids: ArrayLike | None = None, *, vectors: ArrayLike | None = None) -> Self:
        """Add items, all or none.

        Parameters
        ----------
        codes : signs of shape (n, n_bits) or packed integers of shape (n,)
        ids : (n,) integers or strings not yet in the index; None numbers the items on
        vectors : (n, dimension) numbers, for ranking by scores
        """
        packed = as_packed(codes, self.n_bits)
        rows = None if vectors is None else as_vectors(vectors, len(packed), f"{type(self).__name__}.add")
        self._add_rows(packed, None if ids is None else self._ids_for(packed, ids), rows)
        return self

    def update(self, ids: ArrayLike, codes: ArrayLike, *, vectors: ArrayLike | None = None) -> Self:
        """Give items new codes, all or none; in insertion order they become the newest.

        Parameters
        ----------
        ids : (n,) ids that are in the index
        codes : signs of shape (n, n_bits) or packed integers of shape (n,)
        vectors : (n, dimension) new vectors; None keeps those they have
        """
        packed = as_packed(codes, self.n_bits)
        rows = None if vectors is None else as_vectors(vectors, len(packed), f"{type(self).__name__}.update")
        self._update_rows(self._ids_for(packed, ids), packed, rows)
        return self

    def merge(self, *others: HammingIndex) -> Self:
        """Take in all items of other indexes (shards) with their ids and vectors, all or none; ids must not collide.

        Indexes opened from files with ``mmap=True`` are checked against their checksums first.
        """
        for index in (self, *others):
            if isinstance(index, MemoryIndex):
                index.verify()
        filled = self._mergeable(others)
        if not filled:
            return self
        vectors = [getattr(other, "vectors", None) for other in filled]
        given = [rows for rows in vectors if rows is not None]
        if given and (len(given) < len(filled) or any(np.isnan(rows[:, 0]).any() for rows in given)):
            raise InvalidInput("Indexes with and without vectors cannot be merged; build all of them in the same way.")
        if len({rows.shape[1] for rows in given}) > 1:
            raise InvalidInput(
                "Indexes whose vectors differ in dimension cannot be merged; build them in the same way."
            )
        codes, ids = np.concatenate([o.codes for o in filled]), np.concatenate([o.ids for o in filled])
        return self.add(codes, ids, vectors=np.concatenate(given) if given else None)

    def verify(self) -> None:
        """Check every byte of the file this index was opened from with ``mmap=True``; raises DamagedFile.

        An index in memory has nothing to check. What was checked once is not checked again.
        """
        if self._check_source is not None:
            self._check_source()
            self._check_source = None

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
        k : number of items wanted, at least 1
        ties : order inside equal distance, which also decides who is cut off: "id", "insertion", "shuffle", "any" or
            "scores"
        seed : seed of ``ties="shuffle"``
        where : only these items may be found: a mask in insertion order, a collection of ids, or a function of the ids
        vectors : of the queries, for ``ties="scores"``: (n_queries, dimension), or (n_queries, n_bits) real scores for
            ``metric="asymmetric"``
        metric : "cosine", "dot", "euclidean" or "asymmetric"
        """
        owner = f"{type(self).__name__}.search"
        if not _by_scores(ties, vectors, owner):
            return super().search(codes, k, ties=ties, seed=seed, where=where)
        k, queries = check_k(k, owner), as_packed(codes, self.n_bits)
        view = self._frozen(len(queries))
        asked = view._asked(queries, vectors, metric, owner)
        found = view._search(queries, k, "any", 0, where)
        ids, distances = found.ids.copy(), found.distances.copy()
        last = distances[:, -1] if distances.shape[1] else distances[:, :0]
        for radius in np.unique(last).tolist():
            rows = np.flatnonzero(last == radius)
            hits = view._hits(queries[rows], radius, where)
            for row, i, d, _ in view._ranked(rows, hits, asked, metric, k, by_distance=True):
                ids[row], distances[row] = i, d
        return SearchResult(ids, distances)

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
        radius : largest distance, at least 0; from n_bits on everything is found
        ties : order inside equal distance: "id", "insertion", "shuffle", "any" or "scores"
        seed : seed of ``ties="shuffle"``
        where : only these items may be found: a mask in insertion order, a collection of ids, or a function of the ids
        vectors : of the queries, for ``ties="scores"``; see ``search``
        metric : "cosine", "dot", "euclidean" or "asymmetric"
        """
        owner = f"{type(self).__name__}.within"
        if not _by_scores(ties, vectors, owner):
            return super().within(codes, radius, ties=ties, seed=seed, where=where)
        radius, queries = self._radius(radius, owner), as_packed(codes, self.n_bits)
        view = self._frozen(len(queries))
        asked = view._asked(queries, vectors, metric, owner)
        hits = view._hits(queries, radius, where)
        rows = list(view._ranked(np.arange(len(queries)), hits, asked, metric, None, by_distance=True))
        ids = np.concatenate([view._take_ids(hits[0][:0]), *(i for _, i, _, _ in rows)])
        return RadiusResult(ids, np.concatenate([hits[1][:0], *(d for _, _, d, _ in rows)]), hits[2])

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
        """Of all items within ``radius`` of every query, the k with the best scores; exact.

        Parameters
        ----------
        codes : the queries, signs of shape (n_queries, n_bits) or packed integers of shape (n_queries,)
        vectors : (n_queries, dimension) vectors of the queries, or (n_queries, n_bits) real scores for
            ``metric="asymmetric"``
        k : number of items wanted, at least 1
        radius : largest Hamming distance (inclusive)
        metric : "cosine", "dot", "euclidean" or "asymmetric"
        where : only these items may be found: a mask in insertion order, a collection of ids, or a function of the ids
        """
        owner = f"{type(self).__name__}.rerank"
        k, radius = check_k(k, owner), self._radius(radius, owner)
        queries = as_packed(codes, self.n_bits)
        view = self._frozen(len(queries))
        asked = view._asked(queries, vectors, metric, owner)
        hits = view._hits(queries, radius, where)
        rows = list(view._ranked(np.arange(len(queries)), hits, asked, metric, k, by_distance=False))
        ids = np.concatenate([view._take_ids(hits[0][:0]), *(i for _, i, _, _ in rows)])
        scores = np.concatenate([np.empty(0, dtype=np.float32), *(s for _, _, _, s in rows)])
        return RerankResult(ids, scores, np.cumsum([0, *(len(i) for _, i, _, _ in rows)], dtype=np.int64))

    @abstractmethod
    def _add_rows(self, codes: PackedCodes, ids: AnyIds | None, vectors: Vectors | None) -> None: ...

    @abstractmethod
    def _update_rows(self, ids: AnyIds, codes: PackedCodes, vectors: Vectors | None) -> None: ...

    @abstractmethod
    def _frozen(self, n_queries: int) -> Self:
        """An index that holds what this one holds now, whatever is written to this one later."""

    @abstractmethod
    def _hits(self, queries: PackedCodes, radius: int, where: Where | None) -> Hits:
        """Everything within ``radius``, by distance and in no particular order inside it."""

    @abstractmethod
    def _take_ids(self, positions: NDArray[np.int64]) -> AnyIds: ...

    @abstractmethod
    def _take_codes(self, positions: NDArray[np.int64]) -> PackedCodes: ...

    @abstractmethod
    def _take_vectors(self, positions: NDArray[np.int64]) -> Vectors: ...

    def _add(self, codes: PackedCodes, ids: AnyIds | None) -> None:
        self._add_rows(codes, ids, None)

    def _update(self, ids: AnyIds, codes: PackedCodes) -> None:
        self._update_rows(ids, codes, None)

    def _check_vectors(self, vectors: Vectors | None) -> None:
        """Raise unless new items have what the items here have."""
        if not len(self) or (vectors is None and self.dimension is None):
            return
        if vectors is None:
            raise InvalidInput(
                f"Every item of this index has a vector of dimension {self.dimension}; pass vectors=... for new ones."
            )
        if vectors.shape[1] != self.dimension:
            raise InvalidInput(
                f"The 'vectors' of {type(self).__name__} must have the dimension of those in the index, "
                f"{self.dimension or 'none at all'}. Got {vectors.shape[1]} instead; put them into another index."
            )

    def _asked(self, queries: PackedCodes, vectors: ArrayLike | None, metric: str, owner: str) -> Vectors:
        """Vectors of the queries, checked against the metric and the items."""
        check_choice(metric, "metric", owner, METRICS)
        asked = as_vectors(np.empty((0, 1)) if vectors is None else vectors, len(queries), owner)
        dimension = self.n_bits if metric == "asymmetric" else self.dimension
        if dimension is None and len(self):
            raise InvalidInput(
                f"{owner} with metric={metric!r} needs items with vectors, and those of this index have none; add them "
                "with add(codes, vectors=...), or use metric='asymmetric'."
            )
        if dimension is not None and asked.shape[1] != dimension:
            raise InvalidInput(
                f"The 'vectors' of {owner} must have {dimension} columns for metric={metric!r}. "
                f"Got {asked.shape[1]} instead."
            )
        return asked

    def _ranked(
        self, rows: NDArray[np.intp], hits: Hits, asked: Vectors, metric: str, k: int | None, *, by_distance: bool
    ) -> Any:
        """For every query (its number in ``rows``): number, ids, distances and scores of its best hits."""
        positions, distances, offsets = hits
        for place, row in enumerate(rows.tolist()):
            here = slice(offsets[place], offsets[place + 1])
            if metric == "asymmetric":
                scores = score_codes(self._take_codes(positions[here]), asked[row], self.n_bits)
            else:
                scores = score_vectors(self._take_vectors, positions[here], asked[row], metric)
            ids, d = self._take_ids(positions[here]), distances[here]
            best = ranked(scores, ids, k, d if by_distance else None)
            yield row, ids[best], d[best], scores[best]


def _by_scores(ties: str, vectors: ArrayLike | None, owner: str) -> bool:
    """Whether ties are ordered by scores; raises if the query's vectors are missing, or given for nothing."""
    check_choice(ties, "ties", owner, (*TIES, "scores"))
    if ties == "scores" and vectors is None:
        raise InvalidInput(f"ties='scores' of {owner} needs the vectors of the queries; pass vectors=... too.")
    if ties != "scores" and vectors is not None:
        raise InvalidInput(f"The 'vectors' of {owner} are used with ties='scores' only; pass that, or leave them out.")
    return ties == "scores"
