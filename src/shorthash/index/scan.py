"""Search by comparing a query with every item: in NumPy, the reference for the other indexes, or by FAISS."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Counts, Distances, PackedCodes
from shorthash._validation import require_extra
from shorthash.codes import as_packed, packed_dtype
from shorthash.codes.signs import codes_to_bytes
from shorthash.errors import InvalidInput
from shorthash.index.base import Probes, RadiusResult, SearchResult
from shorthash.index.items import (
    AnyIds,
    Vectors,
    Where,
    allowed_items,
    check_saved_ids,
    find_ids,
    next_ids,
    read_only,
    saved_posteriors,
    saved_vectors,
    shuffle_keys,
    tie_order,
)
from shorthash.index.memory import NONE, Hits, Looked, MemoryIndex

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

    @property
    def _id_kind(self) -> str:
        return self._ids.dtype.kind

    @property
    def _first_free(self) -> int:
        return self._next_id

    def _find(self, ids: AnyIds) -> NDArray[np.int64]:
        if ids.dtype.kind != self._id_kind:
            return np.full(len(ids), -1, dtype=np.int64)
        return find_ids(ids, self._ids, np.argsort(self._ids, kind="stable"))

    def _write(self, removed: Counts, codes: PackedCodes, ids: AnyIds | None, vectors: Vectors | None) -> None:
        kept = np.delete(np.arange(len(self)), removed)
        known = None if self._vectors is None or not len(kept) else self._vectors[kept]
        self._codes, self._ids, self._vectors = self._codes[kept], self._ids[kept], known
        if not len(codes):
            return
        ids = next_ids(self._next_id, len(codes)) if ids is None else ids
        if ids.dtype.kind == "i":
            self._next_id = max(self._next_id, int(ids.max()) + 1)
        if known is not None and vectors is not None:
            vectors = np.concatenate([known, vectors.astype(known.dtype)])
        self._vectors = None if vectors is None else vectors.copy()
        self._ids = np.concatenate([self._ids, ids]) if len(kept) else ids.copy()
        self._codes = np.concatenate([self._codes, codes])

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

    def _frozen(self, n_queries: int) -> Self:  # noqa: ARG002
        return copy.copy(self)  # writing replaces arrays and changes none

    def _hits(self, queries: PackedCodes, radius: int, where: Where | None) -> Hits:
        return self._near(queries, radius, self._items("any", 0, where))

    def _looked_up(self, probes: Probes, where: Where | None) -> Looked:
        items, positions, places, offsets = self._items("id", 0, where), [NONE], [NONE], [0]
        n_cells = np.zeros(len(probes), dtype=np.int64)
        for query, begin in enumerate(probes.offsets[:-1].tolist()):
            expected = 0.0
            for j in range(begin, int(probes.offsets[query + 1])):
                if expected >= probes.enough:
                    break
                found = items[self._codes[items] == probes.cells[j]]
                positions.append(found)
                places.append(np.full(len(found), j - begin))
                expected += len(found) * float(probes.shares[j])
                n_cells[query] += 1
            offsets.append(sum(map(len, positions)))
        return np.concatenate(positions), np.concatenate(places), np.array(offsets, dtype=np.int64), n_cells

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
        state = {"codes": self._codes, "ids": self._ids, "next_id": self._next_id, "vectors": self._vectors}
        return {**state, "posteriors": self.posteriors}

    @classmethod
    def from_state(cls, n_bits: int, state: dict[str, Any], *, thorough: bool = True) -> Self:
        """Rebuild an index from ``export_state``; raises InvalidInput if the state is inconsistent.

        ``thorough`` looks at every entry; otherwise only at what a search relies on.
        """
        index = cls(n_bits)
        codes, ids = np.asarray(state["codes"]), np.asarray(state["ids"])
        check_saved_ids(ids, state["next_id"], len(codes), thorough=thorough)
        if codes.dtype != packed_dtype(index.n_bits) or codes.shape != ids.shape:
            raise InvalidInput("The arrays of a saved index are inconsistent; build the index again.")
        codes = as_packed(codes, index.n_bits)
        index._codes, index._ids = codes, ids
        index._next_id = int(state["next_id"])
        index._vectors = saved_vectors(state, len(codes))
        index._posteriors = saved_posteriors(state, ids)
        return index


class FaissIndex(ScanIndex):
    """Exact search by ``faiss.IndexBinaryFlat``, which compares a query with every item; needs the extra ``faiss``.

    Tie orders, filters, ids and vectors are those of every index. FAISS cannot remove cheaply or filter, so its index
    is rebuilt by the first search after a change, and for every search with a filter.

    Parameters
    ----------
    n_bits : length of the codes, 1 to 64

    Examples
    --------
    >>> index = FaissIndex(n_bits=3).add([[1, 1, 1], [1, 1, -1], [-1, -1, -1]])
    >>> index.search([[1, 1, 1]], k=2).ids.tolist()
    [[0, 1]]
    """

    def __init__(self, n_bits: int) -> None:
        super().__init__(n_bits)
        self._built: tuple[PackedCodes, Any] | None = None  # codes, and the FAISS index built from them

    def _search(self, queries: PackedCodes, k: int, ties: str, seed: int, where: Where | None) -> SearchResult:
        items = self._items("any", 0, where)
        k = min(k, len(items))
        if not k or not len(queries):
            shape = (len(queries), k)
            return SearchResult(np.empty(shape, dtype=self._ids.dtype), np.empty(shape, dtype=np.uint8))
        found, places = self._structure(items).search(codes_to_bytes(queries, self.n_bits), k)
        ids, distances = self._ids[items[places]], found.astype(np.uint8)
        if ties == "any":
            return SearchResult(ids, distances)
        for radius in np.unique(distances[:, -1]).tolist():  # all that tie for the last places are needed
            rows = np.flatnonzero(distances[:, -1] == radius)
            near = self._ordered(self._near(queries[rows], radius, items), ties, seed)
            for row, (i, d) in zip(rows, near, strict=True):
                ids[row], distances[row] = i[:k], d[:k]
        return SearchResult(ids, distances)

    def _within(self, queries: PackedCodes, radius: int, ties: str, seed: int, where: Where | None) -> RadiusResult:
        return self._ordered(self._hits(queries, radius, where), ties, seed)

    def _near(self, queries: PackedCodes, radius: int, items: NDArray[np.intp]) -> Hits:
        """Everything within ``radius``; FAISS takes the first distance that is too far."""
        if not len(items) or not len(queries):
            return items[:0], np.empty(0, dtype=np.uint8), np.zeros(len(queries) + 1, dtype=np.int64)
        octets = codes_to_bytes(queries, self.n_bits)
        limits, distances, places = self._structure(items).range_search(octets, radius + 1)
        return items[places], distances.astype(np.uint8), limits.astype(np.int64)

    def _ordered(self, hits: Hits, ties: str, seed: int) -> RadiusResult:
        positions, distances, offsets = hits
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        ids = self._ids[positions]
        order = tie_order(rows, distances, positions, ids, ties, seed)
        return RadiusResult(ids[order], distances[order], offsets)

    def _structure(self, items: NDArray[np.intp]) -> Any:
        """FAISS's index of the codes of some items; that of all items is kept."""
        codes = self._codes
        if len(items) < len(codes):
            return _build(codes[items], self.n_bits)
        if self._built is None or self._built[0] is not codes:
            self._built = codes, _build(codes, self.n_bits)
        return self._built[1]


def _build(codes: PackedCodes, n_bits: int) -> Any:
    faiss = require_extra("faiss", "faiss", "FaissIndex")
    structure = faiss.IndexBinaryFlat(-(-n_bits // 8) * 8)
    structure.add(codes_to_bytes(codes, n_bits))
    return structure
