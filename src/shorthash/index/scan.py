"""Exhaustive scan: short, plain NumPy, and the reference that the other indexes are tested against."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Distances, PackedCodes
from shorthash.codes import as_packed, packed_dtype
from shorthash.errors import InvalidInput
from shorthash.index.base import Hits, MemoryIndex
from shorthash.index.items import (
    AnyIds,
    Vectors,
    Where,
    allowed_items,
    check_same_kind,
    next_ids,
    read_only,
    saved_vectors,
    shuffle_keys,
)
from shorthash.index.results import RadiusResult, SearchResult

__all__ = ["ScanIndex"]

BLOCK = 1 << 22  # distances held at once, unless a single query has more


class ScanIndex(MemoryIndex):
    """Search by computing every distance.

    Parameters
    ----------
    n_bits : length of the codes, 1 to 64

    Examples
    --------
    >>> index = ScanIndex(n_bits=3).add([[1, 1, 1], [1, 1, -1], [-1, -1, -1]], ids=[30, 10, 20])
    >>> result = index.search([[1, 1, 1]], k=2)
    >>> result.ids.tolist(), result.distances.tolist()
    ([[30, 10]], [[0, 1]])
    """

    def __init__(self, n_bits: int) -> None:
        super().__init__(n_bits)
        self._codes: PackedCodes = np.empty(0, dtype=packed_dtype(self.n_bits))
        self._ids: AnyIds = np.empty(0, dtype=np.int64)
        self._next_id = 0
        self._vectors: Vectors | None = None

    @property
    def codes(self) -> PackedCodes:
        """Packed codes of all items in insertion order, (n_items,), read-only."""
        return read_only(self._codes)

    @property
    def ids(self) -> AnyIds:
        """Ids of all items in insertion order, (n_items,), read-only."""
        return read_only(self._ids)

    @property
    def vectors(self) -> Vectors | None:
        """Vectors of all items in insertion order, (n_items, dimension), read-only; None if items have none."""
        return None if self._vectors is None else read_only(self._vectors)

    @property
    def dimension(self) -> int | None:
        """Columns of the vectors; None if items have none."""
        return None if self._vectors is None else int(self._vectors.shape[1])

    def __len__(self) -> int:
        return len(self._codes)

    def _has(self, ids: AnyIds) -> bool:
        return ids.dtype.kind == self._ids.dtype.kind and bool(np.isin(ids, self._ids).all())

    def _add(self, codes: PackedCodes, ids: AnyIds | None, vectors: Vectors | None) -> None:
        if not len(codes):
            return
        self._check_vectors(vectors)
        if ids is None:
            if len(self) and self._ids.dtype.kind == "U":
                raise InvalidInput("Items of an index with string ids cannot be numbered; pass ids=[...] as strings.")
            ids = next_ids(self._next_id, len(codes))
        if len(self):
            check_same_kind(ids, self._ids.dtype.kind, type(self).__name__)
            twice = ids[np.isin(ids, self._ids)]
            if len(twice):
                raise InvalidInput(
                    f"Id {twice[0].item()!r} is already in the index; use update() to change its code, or another id."
                )
        known = self._vectors if len(self) else None
        if vectors is not None:
            vectors = vectors.copy() if known is None else np.concatenate([known, vectors.astype(known.dtype)])
        self._vectors = vectors
        self._ids = np.concatenate([self._ids, ids]) if len(self) else ids.copy()
        self._codes = np.concatenate([self._codes, codes])
        if ids.dtype.kind == "i":
            self._next_id = max(self._next_id, int(ids.max()) + 1)

    def _remove(self, ids: AnyIds, verb: str = "remove") -> None:
        if len(self):
            check_same_kind(ids, self._ids.dtype.kind, type(self).__name__)
        missing = ids[~np.isin(ids, self._ids)]
        if len(missing):
            raise InvalidInput(f"Id {missing[0].item()!r} is not in the index; {verb} only ids that were added.")
        kept = ~np.isin(self._ids, ids)
        self._ids, self._codes = self._ids[kept], self._codes[kept]
        self._vectors = None if self._vectors is None or not kept.any() else self._vectors[kept]

    def _update(self, ids: AnyIds, codes: PackedCodes, vectors: Vectors | None) -> None:
        if vectors is not None:
            self._check_vectors(vectors)
        old_ids, old_vectors = self._ids, self._vectors
        self._remove(ids, "update")
        if vectors is None and old_vectors is not None:
            vectors = old_vectors[[np.flatnonzero(old_ids == i)[0] for i in ids]]
        self._add(codes, ids, vectors)

    def _search(self, queries: PackedCodes, k: int, ties: str, seed: int, where: Where | None) -> SearchResult:
        items = self._items(ties, seed, where)
        k = min(k, len(items))
        ids = np.empty((len(queries), k), dtype=self._ids.dtype)
        distances = np.empty((len(queries), k), dtype=np.uint8)
        for row, d in self._rows(queries, items):
            nearest = np.argsort(d, kind="stable")[:k]
            ids[row], distances[row] = self._ids[items[nearest]], d[nearest]
        return SearchResult(ids, distances)

    def _within(self, queries: PackedCodes, radius: int, ties: str, seed: int, where: Where | None) -> RadiusResult:
        positions, distances, offsets = self._near(queries, radius, self._items(ties, seed, where))
        return RadiusResult(self._ids[positions], distances, offsets)

    def _counts(self, queries: PackedCodes, radius: int, where: Where | None) -> NDArray[np.int64]:
        counts = np.zeros(len(queries), dtype=np.int64)
        for row, d in self._rows(queries, self._items("any", 0, where)):
            counts[row] = np.count_nonzero(d <= radius)
        return counts

    def _iterate(self, query: PackedCodes) -> Iterator[tuple[int, AnyIds]]:
        ids, d = self._within(query, self.n_bits, "id", 0, None)[0]
        for distance in np.unique(d):
            yield int(distance), ids[d == distance]

    def _frozen(self, n_queries: int) -> Self:  # noqa: ARG002
        return copy.copy(self)  # writing replaces arrays and changes none

    def _hits(self, queries: PackedCodes, radius: int, where: Where | None) -> Hits:
        return self._near(queries, radius, self._items("any", 0, where))

    def _take_ids(self, positions: NDArray[np.int64]) -> AnyIds:
        return self._ids[positions]

    def _take_codes(self, positions: NDArray[np.int64]) -> PackedCodes:
        return self._codes[positions]

    def _take_vectors(self, positions: NDArray[np.int64]) -> Vectors:
        assert self._vectors is not None
        return np.asarray(self._vectors[positions])

    def _near(self, queries: PackedCodes, radius: int, items: NDArray[np.intp]) -> Hits:
        """Those of ``items`` within ``radius`` of every query, by distance, and in the given order inside it."""
        positions, distances, counts = [items[:0]], [np.empty(0, dtype=np.uint8)], [0]
        for _, d in self._rows(queries, items):
            hits = np.flatnonzero(d <= radius)
            hits = hits[np.argsort(d[hits], kind="stable")]
            positions.append(items[hits])
            distances.append(d[hits])
            counts.append(len(hits))
        return np.concatenate(positions), np.concatenate(distances), np.cumsum(counts, dtype=np.int64)

    def _items(self, ties: str, seed: int, where: Where | None) -> NDArray[np.intp]:
        """Positions of the items that may be found, in the order of ``ties``."""
        items = np.arange(len(self))
        if where is not None:
            items = np.flatnonzero(allowed_items(where, self.ids, type(self).__name__))
        if ties == "id":
            items = items[np.argsort(self._ids[items], kind="stable")]
        elif ties == "shuffle":
            ids = self._ids[items]
            items = items[np.lexsort((ids, shuffle_keys(ids, seed)))]
        return items

    def _rows(self, queries: PackedCodes, items: NDArray[np.intp]) -> Iterator[tuple[int, Distances]]:
        """Every query with its distances to ``items``."""
        codes = self._codes[items]
        step = max(1, BLOCK // max(1, len(codes)))
        for start in range(0, len(queries), step):
            block = np.bitwise_count(queries[start : start + step, None] ^ codes[None, :])
            for i, d in enumerate(block):
                yield start + i, d

    def export_state(self) -> dict[str, Any]:
        """Everything the index holds, as numbers and arrays, for :mod:`shorthash.persistence`."""
        return {"codes": self._codes, "ids": self._ids, "next_id": self._next_id, "vectors": self._vectors}

    @classmethod
    def from_state(cls, n_bits: int, state: dict[str, Any], *, thorough: bool = True) -> Self:
        """Rebuild an index from ``export_state``; raises InvalidInput if the state contradicts itself.

        ``thorough`` looks at every entry; otherwise only at sizes and types.
        """
        index = cls(n_bits)
        codes, ids = np.asarray(state["codes"]), np.asarray(state["ids"])
        if thorough:
            codes, ids = as_packed(codes, index.n_bits), index._ids_for(codes, ids)
        if codes.dtype != packed_dtype(index.n_bits) or codes.shape != ids.shape or ids.dtype.kind not in "iU":
            raise InvalidInput("The arrays of a saved index contradict each other; build the index again.")
        index._codes, index._ids = codes, ids
        index._next_id = int(state["next_id"])
        index._vectors = saved_vectors(state, len(codes))
        return index
