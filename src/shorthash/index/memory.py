"""What indexes in memory share: checks of writes, scores of vectors, saving."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._arrays import Counts, Distances, PackedCodes
from shorthash.codes import as_packed
from shorthash.errors import InvalidInput, phrase
from shorthash.index.base import HammingIndex, LookupResult, Probes, Scored
from shorthash.index.items import (
    AnyIds,
    PosteriorTable,
    Rows,
    Vectors,
    Where,
    as_ids,
    as_posteriors,
    as_vectors,
    check_same_kind,
    next_ids,
    score_codes,
    score_vectors,
    stacked_posteriors,
    stacked_vectors,
)

NONE: NDArray[np.int64] = np.empty(0, dtype=np.int64)

Hits = tuple[NDArray[np.int64], Distances, NDArray[np.int64]]
"""Positions, distances and offsets of the items within a radius of every query."""

Looked = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Positions and places of the items of some cells, offsets of the queries, and how many cells each looked up."""


class MemoryIndex(HammingIndex):
    """An index in memory, which can be saved to a file.

    Either every item has a vector or none has; all have the dimension and the type of the first. An item may have a
    compact posterior, for ``Searcher``; all have the same number of bytes.
    """

    _check_source: Callable[[], None] | None = None

    @property
    @abstractmethod
    def dimension(self) -> int | None:
        """Columns of the vectors; None if items have none."""

    def __init__(self, n_bits: int) -> None:
        super().__init__(n_bits)
        self._writing = threading.RLock()
        self._posteriors = PosteriorTable()

    @property
    def posterior_bytes(self) -> int:
        """Bytes of the compact posterior of an item; 0 if items have none."""
        return self._posteriors.rows.shape[1] if len(self._posteriors) else 0

    @property
    def posteriors(self) -> Rows | None:
        """Compact posteriors of all items in insertion order, (n_items, posterior_bytes), 0 where none is known."""
        return self._posteriors.take(self.ids) if self.posterior_bytes else None

    def add(
        self,
        codes: ArrayLike,
        ids: ArrayLike | None = None,
        *,
        vectors: ArrayLike | None = None,
        posteriors: ArrayLike | None = None,
    ) -> Self:
        """Add items, all or none.

        Parameters
        ----------
        codes : signs of shape (n, n_bits) or packed integers of shape (n,)
        ids : (n,) integers or strings not yet in the index; None numbers the items
        vectors : (n, dimension) numbers, for ranking by scores
        posteriors : (n, n_bytes) uint8, compact posteriors as ``Searcher.compact`` gives them
        """
        return self._put(codes, ids, vectors, posteriors, "add")

    def upsert(
        self,
        codes: ArrayLike,
        ids: ArrayLike,
        *,
        vectors: ArrayLike | None = None,
        posteriors: ArrayLike | None = None,
    ) -> Self:
        """Add items, and replace those whose ids are in the index, all or none.

        Parameters
        ----------
        codes, vectors, posteriors : as for ``add``
        ids : (n,) integers or strings
        """
        return self._put(codes, ids, vectors, posteriors, "upsert")

    def _put(
        self,
        codes: ArrayLike,
        ids: Any,
        vectors: ArrayLike | None,
        posteriors: ArrayLike | None,
        verb: Literal["add", "upsert"],
    ) -> Self:
        """Check and write items; an id that is in the index is an error ("add") or is replaced ("upsert")."""
        owner = type(self).__name__
        packed = as_packed(codes, self.n_bits)
        rows = None if vectors is None else as_vectors(vectors, len(packed), f"{owner}.{verb}")
        given = None if ids is None and verb == "add" else self._ids_for(packed, ids)
        if not len(packed):
            return self
        with self._writing:
            self._check_vectors(rows)
            found = NONE
            if len(self) and given is None and self._id_kind == "U":
                raise InvalidInput("Items of an index with string ids cannot be numbered; pass ids=[...] as strings.")
            if len(self) and given is not None:
                check_same_kind(given, self._id_kind, owner)
                found = self._find(given)
                if verb == "add" and np.any(found >= 0):
                    raise InvalidInput(
                        f"Id {given[found >= 0][0].item()!r} is already in the index; "
                        f"{phrase('use update() to change its code')}, or another id."
                    )
            posterior = self._checked_posteriors(posteriors, len(packed), owner)
            first = self._first_free
            self._write(found[found >= 0], packed, given, rows)
            if verb == "upsert" and given is not None:
                self._posteriors = self._posteriors.without(given)
            if posterior is not None:
                new = next_ids(first, len(packed)) if given is None else given
                self._posteriors = self._posteriors.with_rows(new, posterior)
        return self

    def keep_posteriors(self, ids: ArrayLike, posteriors: ArrayLike) -> Self:
        """Give items compact posteriors, all or none.

        Parameters
        ----------
        ids : (n,) ids that are in the index
        posteriors : (n, n_bytes) uint8, as ``Searcher.compact`` gives them
        """
        given = as_ids(ids, type(self).__name__)
        with self._writing:
            self._positions(given, "keep the posteriors of")
            rows = self._checked_posteriors(posteriors, len(given), f"{type(self).__name__}.keep_posteriors")
            assert rows is not None
            self._posteriors = self._posteriors.with_rows(given, rows)
        return self

    def update(self, ids: ArrayLike, codes: ArrayLike, *, vectors: ArrayLike | None = None) -> Self:
        """Give items new codes, all or none; in insertion order they become the newest, and lose their posteriors.

        Parameters
        ----------
        ids : (n,) ids that are in the index
        codes : signs of shape (n, n_bits) or packed integers of shape (n,)
        vectors : (n, dimension) new vectors; None keeps those they have
        """
        packed = as_packed(codes, self.n_bits)
        rows = None if vectors is None else as_vectors(vectors, len(packed), f"{type(self).__name__}.update")
        given = self._ids_for(packed, ids)
        if not len(packed):
            return self
        with self._writing:
            if rows is not None:
                self._check_vectors(rows)
            positions = self._positions(given, "update")
            if rows is None and self.dimension is not None:
                rows = self._take_vectors(positions)
            self._write(positions, packed, given, rows)
            self._posteriors = self._posteriors.without(given)
        return self

    def _remove(self, ids: AnyIds) -> None:
        with self._writing:
            positions = self._positions(ids, "remove")
            self._write(positions, self._take_codes(positions[:0]), None, None)
            self._posteriors = self._posteriors.without(ids)

    def _has(self, ids: AnyIds) -> bool:
        return bool(np.all(self._find(ids) >= 0))

    def _positions(self, ids: AnyIds, verb: str) -> NDArray[np.int64]:
        """Positions of ids that must be in the index."""
        if len(self):
            check_same_kind(ids, self._id_kind, type(self).__name__)
        positions = self._find(ids)
        if np.any(positions < 0):
            missing = ids[positions < 0][0].item()
            raise InvalidInput(f"Id {missing!r} is not in the index; {verb} only ids that were added.")
        return positions

    def merge(self, *others: HammingIndex) -> Self:
        """Add all items of other indexes (shards) with all they hold, all or none; ids must not collide.

        Indexes opened from files with ``mmap=True`` are checked against their checksums first.
        """
        for index in (self, *others):
            if isinstance(index, MemoryIndex):
                index.verify()
        filled = self._mergeable(others)
        if not filled:
            return self
        vectors = stacked_vectors([other.vectors for other in filled])
        codes, ids = np.concatenate([o.codes for o in filled]), np.concatenate([o.ids for o in filled])
        known = [other.posteriors if isinstance(other, MemoryIndex) else None for other in filled]
        posteriors = stacked_posteriors(known, [len(other) for other in filled])
        return self.add(codes, ids, vectors=vectors, posteriors=posteriors)

    def verify(self) -> None:
        """Check every byte of the file this index was opened from with ``mmap=True``; raises DamagedFile.

        An index in memory has nothing to check. What was checked once is not checked again.
        """
        if self._check_source is not None:
            self._check_source()
            self._check_source = None

    @abstractmethod
    def export_state(self) -> dict[str, Any]:
        """Everything the index holds, as numbers and arrays, for :mod:`shorthash.persistence`."""

    @classmethod
    @abstractmethod
    def from_state(cls, n_bits: int, state: dict[str, Any], *, thorough: bool = True) -> Self:
        """Rebuild an index from ``export_state``; raises InvalidInput if the state is inconsistent.

        ``thorough`` looks at every entry; otherwise only at sizes and types.
        """

    @property
    @abstractmethod
    def _id_kind(self) -> str:
        """Kind of the ids: "i" or "U"."""

    @property
    @abstractmethod
    def _first_free(self) -> int:
        """The number of the next item without id."""

    @abstractmethod
    def _find(self, ids: AnyIds) -> NDArray[np.int64]:
        """Positions of ids, -1 where absent."""

    @abstractmethod
    def _write(self, removed: Counts, codes: PackedCodes, ids: AnyIds | None, vectors: Vectors | None) -> None:
        """Remove the items at some positions and append new ones, in one step; None numbers the new items."""

    @abstractmethod
    def _frozen(self, n_queries: int) -> Self:
        """An index with the present items, which later changes to this one do not affect."""

    @abstractmethod
    def _hits(self, queries: PackedCodes, radius: int, where: Where | None) -> Hits:
        """Everything within ``radius``, by distance and in no particular order inside it."""

    @abstractmethod
    def _looked_up(self, probes: Probes, where: Where | None) -> Looked:
        """The items of some cells, by id inside a cell."""

    @abstractmethod
    def _take_ids(self, positions: NDArray[np.int64]) -> AnyIds: ...

    @abstractmethod
    def _take_codes(self, positions: NDArray[np.int64]) -> PackedCodes: ...

    @abstractmethod
    def _take_vectors(self, positions: NDArray[np.int64]) -> Vectors: ...

    def _check_vectors(self, vectors: Vectors | None) -> None:
        """Raise unless new items have vectors like those of the present items, or none where these have none."""
        if not len(self) or (vectors is None and self.dimension is None):
            return
        if vectors is None:
            raise InvalidInput(
                f"Every item of this index has a vector of dimension {self.dimension}; "
                f"pass {phrase('vectors=...')} for new ones."
            )
        if vectors.shape[1] != self.dimension:
            raise InvalidInput(
                f"The 'vectors' of {type(self).__name__} must have the dimension of those in the index, "
                f"{self.dimension or 'none at all'}. Got {vectors.shape[1]} instead; put them into another index."
            )

    def _checked_posteriors(self, posteriors: ArrayLike | None, n: int, owner: str) -> Rows | None:
        """Posteriors of n items; raises unless they have the size of the present ones."""
        if posteriors is None:
            return None
        rows, known = as_posteriors(posteriors, n, owner), self.posterior_bytes
        if known and rows.shape[1] != known:
            raise InvalidInput(
                f"The posteriors of this index have {known} bytes. Got {rows.shape[1]} instead; compact them to "
                f"{known} bytes: Searcher(hasher, index, posterior_bytes={known})."
            )
        return rows

    def _lookup(
        self, probes: Probes, where: Where | None, vectors: Vectors | None, metric: str, posteriors: bool
    ) -> LookupResult:
        with self._writing if posteriors else nullcontext():  # no writer between the items and their posteriors
            view = self._frozen(len(probes))
        positions, places, offsets, n_cells = view._looked_up(probes, where)
        scores = None
        if vectors is not None:
            if len(view):
                view._check_columns(vectors, metric, view.dimension)
            scores = np.empty(len(positions), dtype=np.float32)
            for query, (a, b) in enumerate(pairwise(offsets.tolist())):
                scores[a:b] = score_vectors(view._take_vectors, positions[a:b], vectors[query], metric)
        ids = view._take_ids(positions)
        rows = view._posteriors.take(ids) if posteriors else None
        return LookupResult(ids, places, offsets, n_cells, scores, rows)

    def _scored(
        self, queries: PackedCodes, vectors: Vectors, metric: str, where: Where | None, k: int | None, radius: int
    ) -> list[Scored]:
        view = self._frozen(len(queries))
        if len(view):
            view._check_columns(vectors, metric, view.dimension)
        radii = np.full(len(queries), radius)
        if k is not None:
            radii = view._search(queries, k, "any", 0, where).distances.max(axis=1, initial=0)
        found: list[Any] = [None] * len(queries)
        for reach in np.unique(radii).tolist():
            rows = np.flatnonzero(radii == reach)
            positions, distances, offsets = view._hits(queries[rows], reach, where)
            for i, row in enumerate(rows.tolist()):
                owned = slice(offsets[i], offsets[i + 1])
                if metric == "asymmetric":
                    scores = score_codes(view._take_codes(positions[owned]), vectors[row], self.n_bits)
                else:
                    scores = score_vectors(view._take_vectors, positions[owned], vectors[row], metric)
                found[row] = view._take_ids(positions[owned]), distances[owned], scores
        return found
