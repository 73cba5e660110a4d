"""Bucket index: with few bits a code is an address, so the items around a query are a few ranges of one array."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._arrays import Counts, Distances, PackedCodes
from shorthash.codes import as_packed, packed_dtype
from shorthash.index.base import ByQuery, Probes, RadiusResult, SearchResult
from shorthash.index.items import (
    AnyIds,
    VectorRows,
    Vectors,
    Where,
    allowed_items,
    check_saved_ids,
    grown,
    next_ids,
    read_only,
    saved_posteriors,
    saved_vectors,
    tie_order,
)
from shorthash.index.memory import Hits, Looked, MemoryIndex
from shorthash.index.table import ALL_ALIVE, BucketTable, Mask

FEW_PENDING = 1024  # pending items that are always cheap to compare
PENDING_SHARE = 64  # at most one pending item per this many items of the table
REMOVED_SHARE = 4  # the table is rebuilt when more than one in this many of its items is removed
NEVER = 255  # a distance beyond every radius


class BucketIndex(MemoryIndex):
    """Exact search by bucket: the items around a query are the buckets of the codes around it.

    Items are kept sorted by code (a counting sort). Up to about 24 bits an array says where each bucket begins; beyond
    that the codes that occur are kept sorted and found by bisection. A search probes the codes of the query's Hamming
    ball, nearest first, or compares every code that occurs where these are fewer. Batches of queries are shared among
    the processors.

    Added items wait in a list that every search compares; when it gets long, the next search sorts it into the table.
    So single adds are cheap, and so is loading in batches. Removed items are masked, and
    dropped when there are many.

    Threads may search while one thread adds, removes or updates. A search sees the state between two such calls, never
    half of one: it finds whatever was added before the search began, and nothing that is added during it. Several
    writers wait for each other.

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
        self._snapshot = _empty_snapshot(self.n_bits)
        self._reset_buffers()

    @property
    def codes(self) -> PackedCodes:
        """Packed codes of all items in insertion order, (n_items,), read-only."""
        return read_only(self._snapshot.codes())

    @property
    def ids(self) -> AnyIds:
        """Ids of all items in insertion order, (n_items,), read-only."""
        state = self._snapshot
        return read_only(state.take_ids(state.positions()))

    @property
    def vectors(self) -> Vectors | None:
        """Vectors of all items in insertion order, (n_items, dimension), read-only; None if items have none."""
        state = self._snapshot
        if state.vectors is None or not state.n_alive:
            return None
        whole = state.n_alive == state.n_positions
        return read_only(state.vectors.all_rows() if whole else state.vectors.take(state.positions()))

    @property
    def dimension(self) -> int | None:
        """Columns of the vectors; None if items have none."""
        state = self._snapshot
        return None if state.vectors is None or not state.n_alive else state.vectors.dimension

    @property
    def nbytes(self) -> int:
        """Bytes held for the items."""
        state = self._snapshot
        table = state.table
        held = (table.keys, table.bounds, table.order, table.ids, state.vectors, self._codes, self._ids, self._alive)
        kept = vars(table).get("codes_by_position")  # after the first search that needs them
        return sum(part.nbytes for part in (*held, kept) if part is not None) + self._posteriors.nbytes

    def __len__(self) -> int:
        return self._snapshot.n_alive

    def slices(self, codes: ArrayLike, radius: int) -> BucketSlices:
        """The occupied buckets within ``radius`` (inclusive) of every query, as ranges: no item is copied.

        Pending items are sorted in and removed ones dropped first. The ranges belong to the state at the time of the
        call.

        Examples
        --------
        >>> index = BucketIndex(n_bits=2).add([[1, 1], [-1, -1], [1, 1]])
        >>> [(distance, positions.tolist()) for distance, positions in index.slices([[1, 1]], radius=2)[0]]
        [(0, [0, 2]), (2, [1])]
        """
        radius = self._radius(radius, "BucketIndex.slices")
        queries = as_packed(codes, self.n_bits)
        table = self._settle().table
        offsets, buckets, distances = table.slices(queries.astype(np.uint64), radius)
        return BucketSlices(read_only(table.order), read_only(table.bounds), buckets, distances, offsets)

    def buckets(self) -> tuple[PackedCodes, NDArray[np.int64]]:
        """The codes that occur, ascending, and how many items have each."""
        codes, bounds = self._settle().table.occupied
        return codes.astype(packed_dtype(self.n_bits)), bounds[1:].astype(np.int64) - bounds[:-1]

    @property
    def _id_kind(self) -> str:
        return self._snapshot.id_dtype.kind

    @property
    def _first_free(self) -> int:
        return self._snapshot.next_id

    def _write(self, removed: Counts, codes: PackedCodes, ids: AnyIds | None, vectors: Vectors | None) -> None:
        state = self._without(self._snapshot, removed) if len(removed) else self._snapshot
        self._snapshot = self._with(state, codes, ids, vectors) if len(codes) else state

    def _search(self, queries: PackedCodes, k: int, ties: str, seed: int, where: Where | None) -> SearchResult:
        state = self._state_for(len(queries))
        only = state.may_find(where)
        k = min(k, int(np.count_nonzero(only)) if len(only) else state.n_alive)
        if not len(queries) or not k:
            shape = (len(queries), k)
            return SearchResult(np.empty(shape, dtype=state.id_dtype), np.empty(shape, dtype=np.uint8))
        return SearchResult(*state.nearest(queries, k, only, ties, seed))

    def _within(self, queries: PackedCodes, radius: int, ties: str, seed: int, where: Where | None) -> RadiusResult:
        state = self._state_for(len(queries))
        return RadiusResult(*state.within(queries, radius, state.may_find(where), ties, seed))

    def _counts(self, queries: PackedCodes, radius: int, where: Where | None) -> NDArray[np.int64]:
        state = self._state_for(len(queries))
        return state.counts(queries, radius, state.may_find(where))

    def _iterate(self, query: PackedCodes) -> Iterator[tuple[int, AnyIds]]:
        state = self._settle()
        rings = state.table.rings(query.astype(np.uint64))
        return ((distance, np.sort(state.take_ids(positions.astype(np.int64)))) for distance, positions in rings)

    def _frozen(self, n_queries: int) -> Self:
        state = self._state_for(n_queries)
        view = copy.copy(self)  # snapshots are immutable, so sharing one is enough
        view._snapshot = state
        return view

    def _hits(self, queries: PackedCodes, radius: int, where: Where | None) -> Hits:
        return self._snapshot.hits(queries, radius, self._snapshot.may_find(where))

    def _looked_up(self, probes: Probes, where: Where | None) -> Looked:
        return self._snapshot.lookup(probes, self._snapshot.may_find(where))

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
        return {
            "keys": state.table.keys,
            "bounds": state.table.bounds,
            "order": state.table.order,
            "ids": state.table.ids,
            "next_id": state.next_id,
            "vectors": None if state.vectors is None or not state.n_alive else state.vectors.all_rows(),
            "posteriors": self.posteriors,
        }

    @classmethod
    def from_state(cls, n_bits: int, state: dict[str, Any], *, thorough: bool = True) -> Self:
        """Rebuild an index from ``export_state``; raises InvalidInput if the state is inconsistent.

        ``thorough`` looks at every entry; otherwise only at what a search relies on, which takes no ids or vectors.
        """
        index = cls(n_bits)
        ids = check_saved_ids(state["ids"], state["next_id"], len(state["order"]), thorough=thorough)
        table = BucketTable(index.n_bits, state["keys"], state["bounds"], state["order"], ids)
        table.check(thorough=thorough)
        vectors = saved_vectors(state, len(table))
        rows = None if vectors is None else VectorRows.of(vectors)
        empty = _empty_snapshot(index.n_bits, int(state["next_id"]))
        index._snapshot = replace(empty, table=table, ids=table.ids, n_alive=len(table), vectors=rows)
        index._posteriors = saved_posteriors(state, index.ids)
        return index

    def _reset_buffers(self) -> None:
        """New buffers for pending items; readers keep what they hold of the old ones."""
        self._codes: PackedCodes = np.empty(0, dtype=packed_dtype(self.n_bits))
        self._ids: AnyIds = np.empty(0, dtype=np.int64)
        self._alive: Mask = ALL_ALIVE
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
        """The current state, settled if that costs less than searching beside pending and removed items."""
        state = self._snapshot
        if not len(state.pending) and not len(state.alive):
            return state
        n, pending, removed = len(state.table), len(state.pending), state.n_positions - state.n_alive
        many = pending > max(FEW_PENDING, n // PENDING_SHARE) or removed * REMOVED_SHARE > state.n_positions
        if many or n_queries * pending > max(n, FEW_PENDING):
            return self._settle()
        return state

    def _find(self, ids: AnyIds) -> Counts:
        """Positions of ids, -1 where absent or removed."""
        with self._writing:
            state = self._snapshot
            if ids.dtype.kind != state.id_dtype.kind:
                return np.full(len(ids), -1, dtype=np.int64)
            if state.ids is None:
                positions = np.where((ids >= 0) & (ids < state.n_positions), ids, -1)
            else:
                positions = state.table.find(ids)
            if len(state.alive):
                positions[~state.alive[positions]] = -1
            for row, item in enumerate(ids.tolist() if self._pending_position else ()):
                positions[row] = self._pending_position.get(item, positions[row])
            return positions

    def _without(self, state: Snapshot, removed: Counts) -> Snapshot:
        """``state`` without the items at the positions ``removed``."""
        for item in state.take_ids(removed).tolist() if self._pending_position else ():
            self._pending_position.pop(item, None)
        self._alive = state.alive.copy() if len(state.alive) else np.ones(state.n_positions, dtype=np.bool_)
        self._alive[removed] = False
        return replace(state, alive=self._alive, n_alive=state.n_alive - len(removed))

    def _with(self, state: Snapshot, codes: PackedCodes, ids: AnyIds | None, vectors: Vectors | None) -> Snapshot:
        """``state`` with new items at its end; None numbers them."""
        if not state.n_alive:  # an empty index may get another kind of ids, and other vectors
            self._reset_buffers()
            state = _empty_snapshot(self.n_bits, state.next_id)
        if ids is None and (state.ids is not None or state.next_id != state.n_positions):
            ids = next_ids(state.next_id, len(codes))
        if ids is not None and state.ids is None and state.n_positions:  # from now on ids are kept
            self._reset_buffers()
            state = state.merged()
            known = np.arange(state.n_positions) if state.ids is None else state.ids
            state = replace(state, table=replace(state.table, ids=known), ids=known)
        n, p, m = state.n_positions, len(state.pending), len(codes)
        next_id = state.next_id + m
        if ids is not None:
            self._ids = grown(self._ids if state.ids is None or len(self._ids) else state.ids, n, ids)
            self._pending_position.update(zip(ids.tolist(), range(n, n + m), strict=True))
            next_id = max(state.next_id, int(ids.max()) + 1) if ids.dtype.kind == "i" else state.next_id
        if len(state.alive):
            self._alive = grown(self._alive, n, np.ones(m, dtype=np.bool_))
        self._codes = grown(self._codes, p, codes)
        rows = None
        if vectors is not None:
            rows = VectorRows.of(vectors.copy()) if state.vectors is None else state.vectors.appended(vectors)
        return replace(
            state,
            pending=self._codes[: p + m],
            ids=None if ids is None else self._ids[: n + m],
            alive=self._alive[: n + m],
            n_alive=state.n_alive + m,
            next_id=next_id,
            vectors=rows,
        )


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


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One immutable state of a bucket index: items in the table, pending items in a list, removed items masked.

    A reader takes one snapshot and works on it; a writer publishes a new one. Positions number the items in insertion
    order, removed ones included: those of the table first, pending ones after them.

    Attributes
    ----------
    table : the first positions, and their ids
    pending : (p,) packed codes added since the table was built; positions follow those of the table
    ids : (n,) by position; None: the id is the position
    alive : (n,) mask of the positions that were not removed; empty: all of them
    n_alive : number of items
    next_id : the next number for an item without id
    vectors : the vectors of all positions; None: items have none
    """

    table: BucketTable
    pending: PackedCodes
    ids: AnyIds | None
    alive: Mask
    n_alive: int
    next_id: int
    vectors: VectorRows | None = None

    @property
    def n_positions(self) -> int:
        """Items, removed ones included."""
        return len(self.table) + len(self.pending)

    @property
    def id_dtype(self) -> np.dtype[Any]:
        """Type of the ids."""
        return np.dtype(np.int64) if self.ids is None else self.ids.dtype

    def positions(self) -> NDArray[np.int64]:
        """Positions of the items that were not removed, ascending."""
        return np.flatnonzero(self.alive) if len(self.alive) else np.arange(self.n_positions)

    def take_ids(self, positions: NDArray[np.int64]) -> AnyIds:
        """Ids of positions of any shape."""
        return positions if self.ids is None else self.ids[positions]

    def take_codes(self, positions: NDArray[np.int64]) -> PackedCodes:
        """Packed codes of some positions, (m,)."""
        n = len(self.table)
        late = positions >= n
        codes = np.empty(len(positions), dtype=packed_dtype(self.table.n_bits))
        codes[~late] = self.table.codes_by_position[positions[~late]]
        codes[late] = self.pending[positions[late] - n]
        return codes

    def codes(self) -> PackedCodes:
        """Packed codes of all items in insertion order."""
        codes = np.concatenate([self.table.codes(), self.pending])
        return codes[self.alive] if len(self.alive) else codes

    def merged(self) -> Snapshot:
        """The same items, all in the table."""
        if not len(self.pending) and not len(self.alive):
            return self
        n_bits, positions = self.table.n_bits, self.positions()
        ids = None if self.ids is None and len(positions) == self.n_positions else self.take_ids(positions)
        table = BucketTable.build(self.codes(), n_bits, ids)
        vectors = None if self.vectors is None else self.vectors.renumbered(positions)
        empty = _empty_snapshot(n_bits, self.next_id)
        return replace(empty, table=table, ids=ids, n_alive=self.n_alive, vectors=vectors)

    def may_find(self, where: Where | None) -> Mask:
        """Mask of the positions that a search restricted by ``where`` may find; empty: all of them."""
        if where is None:
            return self.alive
        positions = self.positions()
        mask = np.zeros(self.n_positions, dtype=np.bool_)
        mask[positions] = allowed_items(where, self.take_ids(positions), "BucketIndex")
        return mask

    def counts(self, queries: PackedCodes, radius: int, only: Mask) -> Counts:
        """Items within ``radius`` of every query."""
        counts = self.table.counts(queries.astype(np.uint64), radius, only[: len(self.table)])
        if len(self.pending):
            counts += np.count_nonzero(self._pending_distances(queries, only) <= radius, axis=1)
        return counts

    def within(
        self, queries: PackedCodes, radius: int, only: Mask, ties: str, seed: int
    ) -> tuple[AnyIds, Distances, Counts]:
        """Ids, distances and offsets of all items within ``radius`` of every query."""
        if not len(self.pending) and self._by_position(ties):
            words, ordered = queries.astype(np.uint64), ties != "any"
            positions, distances, offsets = self.table.within(words, radius, only[: len(self.table)], ordered=ordered)
            return self.take_ids(positions), distances, offsets
        positions, distances, offsets = self.hits(queries, radius, only)
        ids = self.take_ids(positions)
        rows = np.repeat(np.arange(len(queries)), np.diff(offsets))
        order = tie_order(rows, distances, positions, ids, ties, seed)
        return ids[order], distances[order], offsets

    def hits(self, queries: PackedCodes, radius: int, only: Mask) -> Hits:
        """Positions, distances and offsets of all items within ``radius``, by distance, in no order inside it."""
        found = self.table.within(queries.astype(np.uint64), radius, only[: len(self.table)], ordered=False)
        if not len(self.pending):
            return found
        rows = np.repeat(np.arange(len(queries)), np.diff(found[2]))
        late = self._pending_distances(queries, only)
        rows, positions, distances = self._with_pending(rows, found[0], found[1], late, late <= radius)
        order = np.lexsort((distances, rows))
        offsets = np.searchsorted(rows[order], np.arange(len(queries) + 1)).astype(np.int64)
        return positions[order], distances[order], offsets

    def lookup(self, probes: Probes, only: Mask) -> Looked:
        """Positions and places of the items of the cells, by id inside a cell; offsets, and cells looked up."""
        pending = self.pending.astype(np.uint64)
        positions, places, offsets, n_cells = self.table.lookup(probes, pending, only)
        if self.ids is not None and (len(pending) or not self.table.ids_ascend):
            rows = np.repeat(np.arange(len(probes)), np.diff(offsets))
            order = np.lexsort((self.take_ids(positions), places, rows))
            positions, places = positions[order], places[order]
        return positions, places, offsets, n_cells

    def nearest(self, queries: PackedCodes, k: int, only: Mask, ties: str, seed: int) -> tuple[AnyIds, Distances]:
        """Ids and distances, (m, k), of the k nearest items of every query; there must be k items to find."""
        table, m, words = self.table, len(queries), queries.astype(np.uint64)
        settled = only[: len(table)]
        settled_k = min(k, int(np.count_nonzero(settled)) if len(settled) else len(table))
        if self._by_position(ties):
            found, d = table.nearest(words, settled_k, settled)
            if not len(self.pending):
                return self.take_ids(found), d
            rows, positions, distances = np.repeat(np.arange(m), settled_k), found.ravel(), d.ravel()
        else:
            rows, positions, distances = table.candidates(words, settled_k, settled)
        late = self._pending_distances(queries, only)
        farthest = np.full(m, table.n_bits, dtype=np.uint8)
        if settled_k == k:  # what is farther than the k-th item of the table is not among the k nearest
            farthest[:] = 0
            np.maximum.at(farthest, rows, distances)
        rows, positions, distances = self._with_pending(rows, positions, distances, late, late <= farthest[:, None])
        ids = self.take_ids(positions)
        order = tie_order(rows, distances, positions, ids, ties, seed)
        first = np.searchsorted(rows[order], np.arange(m))[:, None] + np.arange(k)
        return ids[order[first]], distances[order[first]]

    def _by_position(self, ties: str) -> bool:
        """Whether an order of ties needs nothing but the order of the positions in the table."""
        return ties in ("insertion", "any") or (ties == "id" and self.table.ids_ascend)

    def _pending_distances(self, queries: PackedCodes, only: Mask) -> Distances:
        """Distances of the pending items from every query, (m, p); NEVER for those that may not be found."""
        distances: Distances = np.bitwise_count(queries[:, None] ^ self.pending[None, :])
        if len(only):
            distances[:, ~only[len(self.table) :]] = NEVER
        return distances

    def _with_pending(
        self, rows: NDArray[np.intp], positions: Counts, distances: Distances, late: Distances, hits: Mask
    ) -> tuple[NDArray[np.intp], Counts, Distances]:
        """Queries, positions and distances of hits in the table, then those of the pending ``hits``, (m, p)."""
        late_rows, late_items = np.nonzero(hits)
        return (
            np.concatenate([rows, late_rows]),
            np.concatenate([positions, late_items + len(self.table)]),
            np.concatenate([distances, late[hits]]),
        )


def _empty_snapshot(n_bits: int, next_id: int = 0) -> Snapshot:
    """A state without items."""
    none = np.empty(0, dtype=packed_dtype(n_bits))
    return Snapshot(BucketTable.build(none, n_bits), none, None, ALL_ALIVE, 0, next_id)
