"""Bucket index: with few bits a code is an address, so the items around a query are a few ranges of one array."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._types import PackedCodes
from shorthash.codes import as_packed, packed_dtype
from shorthash.errors import InvalidInput
from shorthash.index.filters import Where, allowed_items
from shorthash.index.ids import AnyIds, check_same_kind, number_on
from shorthash.index.memory import Hits, MemoryIndex
from shorthash.index.results import BucketSlices, RadiusResult, SearchResult
from shorthash.index.snapshot import Findable, Settled, Snapshot, empty_snapshot
from shorthash.index.table import ALL_ALIVE, BucketTable
from shorthash.index.vectors import VectorRows, Vectors, saved_vectors

__all__ = ["BucketIndex"]

FEW_PENDING = 1024  # pending items that are always cheap to look at
PENDING_SHARE = 64  # one pending item per so many settled ones is left alone
REMOVED_SHARE = 4  # more than one removed item in so many: rebuild without them
SMALL_BUFFER = 64


class BucketIndex(MemoryIndex):
    """Exact search by bucket: the items around a query are the buckets of the codes around it.

    Items are kept sorted by code (a counting sort). Up to about 24 bits a table tells where each bucket begins; beyond
    that the codes that occur are kept sorted and found by bisection. A search probes the codes of the query's Hamming
    ball, nearest first, or looks at every code that occurs where these are fewer. Batches of queries share the
    processors.

    Added items wait in a list that searches look through; when it gets long, the next search sorts it in. So single
    adds are cheap, and so is loading in batches. Removed items are masked, and dropped when they become many.

    Threads may search while one thread adds, removes or updates. A search sees the state between two such calls, never
    half of one: whatever was added before the search began is found, and what is added during it is not. Several
    writers are served one after another.

    Parameters
    ----------
    n_bits : length of the codes, 1 to 64

    Examples
    --------
    >>> index = BucketIndex(n_bits=3).add([[1, 1, 1], [1, 1, -1], [-1, -1, -1]])
    >>> index.search([[1, 1, 1]], k=2).ids.tolist()
    [[0, 1]]
    >>> index.within([[1, 1, 1]], radius=1).distances.tolist()
    [0, 1]
    >>> index.counts([[1, 1, 1], [1, 1, -1]], radius=2).tolist()
    [2, 3]
    >>> len(index.remove([1]))
    2
    """

    def __init__(self, n_bits: int) -> None:
        super().__init__(n_bits)
        self._writing = threading.RLock()
        self._snapshot = empty_snapshot(self.n_bits)
        self._reset_buffers()

    @property
    def codes(self) -> PackedCodes:
        """Packed codes of all items in insertion order, (n_items,), read-only."""
        return _read_only(self._snapshot.codes())

    @property
    def ids(self) -> AnyIds:
        """Ids of all items in insertion order, (n_items,), read-only."""
        return _read_only(self._snapshot.ids())

    @property
    def vectors(self) -> Vectors | None:
        """Vectors of all items in insertion order, (n_items, dimension), read-only; None if items have none."""
        state = self._snapshot
        if state.vectors is None or not state.n_alive:
            return None
        whole = state.n_alive == state.n_positions
        return _read_only(state.vectors.all_rows() if whole else state.vectors.take(state.positions()))

    @property
    def dimension(self) -> int | None:
        """Columns of the vectors; None if items have none."""
        state = self._snapshot
        return None if state.vectors is None or not state.n_alive else state.vectors.dimension

    @property
    def nbytes(self) -> int:
        """Bytes held for the items."""
        state = self._snapshot
        table = state.settled.table
        parts = (
            table.keys,
            table.bounds,
            table.order,
            state.settled.ids,
            state.alive,
            self._codes,
            self._ids,
            self._alive,
            state.vectors,
        )
        return sum(part.nbytes for part in parts if part is not None)

    def __len__(self) -> int:
        return self._snapshot.n_alive

    def slices(self, codes: ArrayLike, radius: int) -> BucketSlices:
        """The occupied buckets within ``radius`` (inclusive) of every query, as ranges: no item is copied.

        Pending and removed items are settled first. The ranges belong to the state at the time of the call.

        Examples
        --------
        >>> index = BucketIndex(n_bits=2).add([[1, 1], [-1, -1], [1, 1]])
        >>> [(distance, positions.tolist()) for distance, positions in index.slices([[1, 1]], radius=2)[0]]
        [(0, [0, 2]), (2, [1])]
        """
        radius = self._radius(radius, "BucketIndex.slices")
        queries = as_packed(codes, self.n_bits)
        table = self._settle().settled.table
        offsets, buckets, distances = table.slices(queries.astype(np.uint64), radius)
        return BucketSlices(_read_only(table.order), _read_only(table.bounds), buckets, distances, offsets)

    def buckets(self) -> tuple[PackedCodes, NDArray[np.int64]]:
        """The codes that occur, ascending, and how many items have each; pending and removed items are settled."""
        codes, bounds = self._settle().settled.table.occupied
        return codes.astype(packed_dtype(self.n_bits)), bounds[1:].astype(np.int64) - bounds[:-1]

    def _has(self, ids: AnyIds) -> bool:
        return bool(np.all(self._find(ids) >= 0))

    def _add_rows(self, codes: PackedCodes, ids: AnyIds | None, vectors: Vectors | None) -> None:
        if not len(codes):
            return
        with self._writing:
            self._check_vectors(vectors)
            if ids is not None:
                self._check_new(ids)
            self._snapshot = self._with(self._snapshot, codes, ids, vectors)

    def _remove(self, ids: AnyIds) -> None:
        with self._writing:
            self._snapshot = self._without(self._snapshot, ids)

    def _update_rows(self, ids: AnyIds, codes: PackedCodes, vectors: Vectors | None) -> None:
        if not len(codes):
            return
        with self._writing:
            known = self._snapshot.vectors
            if vectors is None and known is not None:
                positions = self._find(ids)
                vectors = known.take(positions[positions >= 0])  # a missing id is an error below
            elif vectors is not None:
                self._check_vectors(vectors)
            self._snapshot = self._with(self._without(self._snapshot, ids, "update"), codes, ids, vectors)

    def _search(self, queries: PackedCodes, k: int, ties: str, seed: int, where: Where | None) -> SearchResult:
        state = self._state_for(len(queries))
        only = self._may_find(state, where)
        k = min(k, only.n_items)
        if not len(queries) or not k:
            shape = (len(queries), k)
            return SearchResult(np.empty(shape, dtype=state.id_dtype), np.empty(shape, dtype=np.uint8))
        return SearchResult(*state.nearest(queries, k, only, ties, seed))

    def _within(self, queries: PackedCodes, radius: int, ties: str, seed: int, where: Where | None) -> RadiusResult:
        state = self._state_for(len(queries))
        return RadiusResult(*state.within(queries, radius, self._may_find(state, where), ties, seed))

    def _counts(self, queries: PackedCodes, radius: int, where: Where | None) -> NDArray[np.int64]:
        state = self._state_for(len(queries))
        return state.counts(queries, radius, self._may_find(state, where))

    def _iterate(self, query: PackedCodes) -> Iterator[tuple[int, AnyIds]]:
        state = self._settle()
        rings = state.settled.table.rings(query.astype(np.uint64))
        return ((distance, np.sort(state.take_ids(positions.astype(np.int64)))) for distance, positions in rings)

    def _frozen(self, n_queries: int) -> Self:
        state = self._state_for(n_queries)
        view = copy.copy(self)  # snapshots are immutable, so sharing one is enough
        view._snapshot = state
        return view

    def _hits(self, queries: PackedCodes, radius: int, where: Where | None) -> Hits:
        state = self._snapshot
        return state.hits(queries, radius, self._may_find(state, where))

    def _take_ids(self, positions: NDArray[np.int64]) -> AnyIds:
        return self._snapshot.take_ids(positions)

    def _take_codes(self, positions: NDArray[np.int64]) -> PackedCodes:
        return self._snapshot.take_codes(positions)

    def _take_vectors(self, positions: NDArray[np.int64]) -> Vectors:
        assert self._snapshot.vectors is not None
        return self._snapshot.vectors.take(positions)

    def export_state(self) -> dict[str, Any]:
        """Everything the index holds, as numbers and arrays, for :mod:`shorthash.persistence`."""
        state = self._settle()
        table = state.settled.table
        return {
            "keys": table.keys,
            "bounds": table.bounds,
            "order": table.order,
            "ids": state.settled.ids,
            "next_id": state.next_id,
            "vectors": None if state.vectors is None or not state.n_alive else state.vectors.all_rows(),
        }

    @classmethod
    def from_state(cls, n_bits: int, state: dict[str, Any], *, thorough: bool = True) -> Self:
        """Rebuild an index from ``export_state``; raises InvalidInput if the state contradicts itself.

        ``thorough`` looks at every entry; otherwise only at sizes and types.
        """
        index = cls(n_bits)
        table = BucketTable(index.n_bits, state["keys"], state["bounds"], state["order"])
        table.check(every_entry=thorough)
        ids = state["ids"]
        if ids is not None and len(ids) != len(table):
            raise InvalidInput(f"A saved index of {len(table)} items has {len(ids)} ids; build it again.")
        vectors = saved_vectors(state, len(table))
        empty = empty_snapshot(index.n_bits, int(state["next_id"]))
        rows = None if vectors is None else VectorRows.of(vectors)
        index._snapshot = replace(empty, settled=Settled(table, ids), n_alive=len(table), vectors=rows)
        return index

    def _reset_buffers(self) -> None:
        """Fresh buffers for pending items; what readers hold of the old ones stays as it is."""
        self._codes: PackedCodes = np.empty(0, dtype=packed_dtype(self.n_bits))
        self._ids: AnyIds = np.empty(0, dtype=np.int64)
        self._alive: NDArray[np.bool_] = ALL_ALIVE
        self._pending_position: dict[Any, int] = {}

    def _settle(self) -> Snapshot:
        """The current state with all items in the table."""
        state = self._snapshot
        if len(state.pending) or len(state.alive):
            with self._writing:
                state = self._snapshot = self._snapshot.merged()
                self._reset_buffers()
        return state

    def _state_for(self, n_queries: int) -> Snapshot:
        """The current state, settled if that costs less than looking past pending and removed items."""
        state = self._snapshot
        n, pending, removed = len(state.settled.table), len(state.pending), state.n_positions - state.n_alive
        many = pending > max(FEW_PENDING, n // PENDING_SHARE) or removed * REMOVED_SHARE > state.n_positions
        if many or n_queries * pending > max(n, FEW_PENDING):
            return self._settle()
        return state

    def _may_find(self, state: Snapshot, where: Where | None) -> Findable:
        return state.may_find(None if where is None else allowed_items(where, state.ids(), "BucketIndex"))

    def _find(self, ids: AnyIds) -> NDArray[np.int64]:
        """Positions of ids, -1 where absent or removed."""
        with self._writing:
            state = self._snapshot
            if ids.dtype.kind != state.id_dtype.kind:
                return np.full(len(ids), -1, dtype=np.int64)
            if state.implicit:
                positions = np.where((ids >= 0) & (ids < state.n_positions), ids, -1)
            else:
                positions = state.settled.find(ids)
            positions[~state.is_alive(positions)] = -1
            for row, item in enumerate(ids.tolist() if self._pending_position else ()):
                positions[row] = self._pending_position.get(item, positions[row])
            return positions

    def _without(self, state: Snapshot, ids: AnyIds, verb: str = "remove") -> Snapshot:
        """The current state less some items."""
        if state.n_alive:
            check_same_kind(ids, np.empty(0, dtype=state.id_dtype), "BucketIndex")
        positions = self._find(ids)
        if np.any(positions < 0):
            missing = ids[positions < 0][0].item()
            raise InvalidInput(f"Id {missing!r} is not in the index; {verb} only ids that were added.")
        n = len(state.settled.table)
        alive, late = state.alive, positions[positions >= n] - n
        if len(late) < len(positions):
            alive = alive.copy() if len(alive) else np.ones(n, dtype=np.bool_)
            alive[positions[positions < n]] = False
        if len(late):
            self._alive = self._alive.copy()
            self._alive[late] = False
        for i in ids.tolist() if self._pending_position else ():
            self._pending_position.pop(i, None)
        pending_alive = self._alive[: len(state.pending)]
        return replace(state, alive=alive, pending_alive=pending_alive, n_alive=state.n_alive - len(ids))

    def _with(self, state: Snapshot, codes: PackedCodes, ids: AnyIds | None, vectors: Vectors | None) -> Snapshot:
        """``state`` with new items at its end; None numbers them."""
        if not state.n_alive:  # begin anew, perhaps with other ids and vectors
            self._reset_buffers()
            state = empty_snapshot(self.n_bits, state.next_id)
        if ids is None:
            ids = self._new_ids(state, len(codes))
        if ids is not None and state.implicit and state.n_positions:
            self._reset_buffers()
            state = state.explicit()
        p, m = len(state.pending), len(codes)
        next_id = state.next_id + m
        if ids is not None:
            self._ids = _grown(self._ids, p, ids)
            self._pending_position.update(
                zip(ids.tolist(), range(state.n_positions, state.n_positions + m), strict=True)
            )
            next_id = max(state.next_id, int(ids.max()) + 1) if ids.dtype.kind == "i" else state.next_id
        self._codes = _grown(self._codes, p, codes)
        self._alive = _grown(self._alive, p, np.ones(m, dtype=np.bool_))
        return replace(
            state,
            pending=self._codes[: p + m],
            pending_ids=None if ids is None else self._ids[: p + m],
            pending_alive=self._alive[: p + m],
            n_alive=state.n_alive + m,
            next_id=next_id,
            vectors=_more_vectors(state.vectors, vectors),
        )

    def _new_ids(self, state: Snapshot, n: int) -> AnyIds | None:
        """Numbers for new items; None while numbers and positions agree."""
        if state.id_dtype.kind == "U":
            raise InvalidInput("Items of an index with string ids cannot be numbered; pass ids=[...] as strings.")
        if state.implicit and state.next_id == state.n_positions:
            return None
        return number_on(state.next_id, n)

    def _check_new(self, ids: AnyIds) -> None:
        if not len(self):
            return
        check_same_kind(ids, np.empty(0, dtype=self._snapshot.id_dtype), "BucketIndex")
        known = ids[self._find(ids) >= 0]
        if len(known):
            raise InvalidInput(
                f"Id {known[0].item()!r} is already in the index; use update() to change its code, or another id."
            )


def _grown(buffer: NDArray[Any], used: int, values: NDArray[Any]) -> NDArray[Any]:
    """Append to a buffer, in place if it has room; what readers hold, ``buffer[:used]``, never changes."""
    dtype = np.result_type(buffer.dtype, values.dtype) if used else values.dtype
    if dtype != buffer.dtype or used + len(values) > len(buffer):
        grown = np.empty(max(SMALL_BUFFER, 2 * (used + len(values))), dtype=dtype)
        grown[:used] = buffer[:used]
        buffer = grown
    buffer[used : used + len(values)] = values
    return buffer


def _more_vectors(known: VectorRows | None, vectors: Vectors | None) -> VectorRows | None:
    if vectors is None:
        return None
    return VectorRows.of(vectors.copy()) if known is None else known.appended(vectors)


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view
