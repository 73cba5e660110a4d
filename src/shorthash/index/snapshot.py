"""The immutable state of a bucket index: settled items in a table, pending ones in a list, removed ones masked out.

A reader takes one snapshot and works on it; a writer never changes a snapshot, it publishes a new one. Positions
number the items in insertion order, removed ones included: settled items first, pending ones after them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Distances, PackedCodes
from shorthash.codes import packed_dtype
from shorthash.index.ids import AnyIds, find_ids, tie_order
from shorthash.index.table import ALL_ALIVE, BucketTable, Counts, Mask, Words
from shorthash.index.vectors import VectorRows

__all__ = ["Findable", "Settled", "Snapshot", "empty_snapshot"]

NEVER = 255  # a distance beyond every radius


@dataclass(frozen=True)
class Findable:
    """Masks of the settled and the pending items that a search may find, and how many there are in all.

    An empty mask of settled items stands for all of them.
    """

    settled: Mask
    pending: Mask
    n_items: int


@dataclass(frozen=True, eq=False)
class Settled:
    """A bucket table and the ids of its positions; None: the id is the position."""

    table: BucketTable
    ids: AnyIds | None = None

    @cached_property
    def ascending(self) -> bool:
        """Whether ids rise with position, so that both give the same order."""
        return self.ids is None or bool(np.all(self.ids[1:] > self.ids[:-1]))

    @cached_property
    def _sorter(self) -> NDArray[np.intp] | None:
        return None if self.ids is None or self.ascending else np.argsort(self.ids, kind="stable")

    def find(self, wanted: AnyIds) -> Counts:
        """Positions of ids, -1 where absent."""
        if self.ids is None:  # only reached with items that have ids by an empty table
            return np.full(len(wanted), -1, dtype=np.int64)
        return find_ids(wanted, self.ids, self._sorter)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One state of a bucket index.

    Attributes
    ----------
    settled : the table; positions from 0
    pending : (p,) packed codes added since the table was built; positions go on after the table's
    pending_ids : (p,) their ids; None: the id is the position
    alive : (n,) mask of the settled items that were not removed; empty: all of them
    pending_alive : (p,) mask of the pending items that were not removed
    n_alive : number of items
    next_id : the next number for an item without id
    vectors : the vectors of all positions; None: items have none
    """

    settled: Settled
    pending: PackedCodes
    pending_ids: AnyIds | None
    alive: Mask
    pending_alive: Mask
    n_alive: int
    next_id: int
    vectors: VectorRows | None = None

    @property
    def n_positions(self) -> int:
        """Items, removed ones included."""
        return len(self.settled.table) + len(self.pending)

    @property
    def implicit(self) -> bool:
        """Whether every id is its position."""
        return self.settled.ids is None and self.pending_ids is None

    @property
    def id_dtype(self) -> np.dtype[Any]:
        """Type that holds every id."""
        parts = [a.dtype for a in (self.settled.ids, self.pending_ids) if a is not None and len(a)]
        return np.result_type(*parts) if parts else np.dtype(np.int64)

    def positions(self) -> NDArray[np.int64]:
        """Positions of the items that were not removed, ascending."""
        n = len(self.settled.table)
        settled = np.flatnonzero(self.alive) if len(self.alive) else np.arange(n)
        return np.concatenate([settled, np.flatnonzero(self.pending_alive) + n])

    def is_alive(self, positions: NDArray[np.int64]) -> Mask:
        """Which positions hold an item that was not removed; -1 holds none."""
        n = len(self.settled.table)
        alive = positions >= 0
        if len(self.alive):
            settled = alive & (positions < n)
            alive[settled] = self.alive[positions[settled]]
        late = positions >= n
        alive[late] = self.pending_alive[positions[late] - n]
        return alive

    def take_ids(self, positions: NDArray[np.int64]) -> AnyIds:
        """Ids of positions of any shape."""
        if self.implicit:
            return positions
        n = len(self.settled.table)
        if not len(self.pending):
            assert self.settled.ids is not None
            return self.settled.ids[positions]
        late = positions >= n
        ids = np.empty(positions.shape, dtype=self.id_dtype)
        ids[~late] = positions[~late] if self.settled.ids is None else self.settled.ids[positions[~late]]
        ids[late] = positions[late] if self.pending_ids is None else self.pending_ids[positions[late] - n]
        return ids

    def take_codes(self, positions: NDArray[np.int64]) -> PackedCodes:
        """Packed codes of some positions, (m,)."""
        n = len(self.settled.table)
        late = positions >= n
        codes = np.empty(len(positions), dtype=packed_dtype(self.settled.table.n_bits))
        codes[~late] = self.settled.table.codes_by_position[positions[~late]]
        codes[late] = self.pending[positions[late] - n]
        return codes

    def ids(self) -> AnyIds:
        """Ids of all items in insertion order."""
        return self.take_ids(self.positions())

    def codes(self) -> PackedCodes:
        """Packed codes of all items in insertion order."""
        settled = self.settled.table.codes()
        if len(self.alive):
            settled = settled[self.alive]
        return np.concatenate([settled, self.pending[self.pending_alive]])

    def explicit(self) -> Snapshot:
        """The same items, settled, with every id written down."""
        state = self.merged()
        return replace(state, settled=Settled(state.settled.table, state.ids()), pending_ids=None)

    def merged(self) -> Snapshot:
        """The same items, all of them settled."""
        n_bits = self.settled.table.n_bits
        if self.n_positions == len(self.settled.table) and not len(self.alive):
            return self
        ids = None if self.implicit and self.n_alive == self.n_positions else self.ids()
        settled = Settled(BucketTable.build(self.codes(), n_bits), ids)
        vectors = None if self.vectors is None else self.vectors.renumbered(self.positions())
        return replace(empty_snapshot(n_bits, self.next_id), settled=settled, n_alive=self.n_alive, vectors=vectors)

    def may_find(self, allowed: Mask | None) -> Findable:
        """What a search may find: everything, or what ``allowed``, a mask over the items, admits."""
        if allowed is None:
            return Findable(self.alive, self.pending_alive, self.n_alive)
        mask = np.zeros(self.n_positions, dtype=np.bool_)
        mask[self.positions()] = allowed
        n = len(self.settled.table)
        return Findable(mask[:n], mask[n:], int(np.count_nonzero(allowed)))

    def counts(self, queries: PackedCodes, radius: int, only: Findable) -> Counts:
        """Items within ``radius`` of every query."""
        counts = self.settled.table.counts(_words(queries), radius, only.settled)
        if len(self.pending):
            counts += np.count_nonzero(self._pending_distances(queries, only) <= radius, axis=1)
        return counts

    def within(
        self, queries: PackedCodes, radius: int, only: Findable, ties: str, seed: int
    ) -> tuple[AnyIds, Distances, Counts]:
        """Ids, distances and offsets of all items within ``radius`` of every query."""
        table = self.settled.table
        if not len(self.pending) and self._by_position(ties):
            positions, distances, offsets = table.within(_words(queries), radius, only.settled, ordered=ties != "any")
            return self.take_ids(positions), distances, offsets
        positions, distances, offsets = table.within(_words(queries), radius, only.settled, ordered=False)
        rows = np.repeat(np.arange(len(queries)), offsets[1:] - offsets[:-1])
        late = self._pending_distances(queries, only)
        rows, ids, distances = self._ordered(rows, positions, distances, late, late <= radius, ties, seed)
        return ids, distances, np.searchsorted(rows, np.arange(len(queries) + 1)).astype(np.int64)

    def hits(self, queries: PackedCodes, radius: int, only: Findable) -> tuple[Counts, Distances, Counts]:
        """Positions, distances and offsets of all items within ``radius``, by distance, in no order inside it."""
        found = self.settled.table.within(_words(queries), radius, only.settled, ordered=False)
        if not len(self.pending):
            return found
        late = self._pending_distances(queries, only)
        late_rows, late_items = np.nonzero(late <= radius)
        rows = np.concatenate([np.repeat(np.arange(len(queries)), found[2][1:] - found[2][:-1]), late_rows])
        positions = np.concatenate([found[0], late_items + len(self.settled.table)])
        distances = np.concatenate([found[1], late[late <= radius]])
        order = np.lexsort((distances, rows))
        offsets = np.searchsorted(rows[order], np.arange(len(queries) + 1)).astype(np.int64)
        return positions[order], distances[order], offsets

    def nearest(self, queries: PackedCodes, k: int, only: Findable, ties: str, seed: int) -> tuple[AnyIds, Distances]:
        """Ids and distances, (m, k), of the k nearest items of every query; k items must be there to find."""
        table, m = self.settled.table, len(queries)
        settled_k = min(k, int(np.count_nonzero(only.settled)) if len(only.settled) else len(table))
        if self._by_position(ties):
            found, d = table.nearest(_words(queries), settled_k, only.settled)
            if not len(self.pending):
                return self.take_ids(found), d
            rows, positions, distances = np.repeat(np.arange(m), settled_k), found.ravel(), d.ravel()
        else:
            rows, positions, distances = table.candidates(_words(queries), settled_k, only.settled)
        late = self._pending_distances(queries, only)
        farthest = np.full(m, table.n_bits, dtype=np.uint8)
        if settled_k == k:  # what lies beyond the k-th settled item is not among the k nearest
            farthest[:] = 0
            np.maximum.at(farthest, rows, distances)
        rows, ids, distances = self._ordered(rows, positions, distances, late, late <= farthest[:, None], ties, seed)
        first = np.searchsorted(rows, np.arange(m))[:, None] + np.arange(k)
        return ids[first], distances[first]

    def _by_position(self, ties: str) -> bool:
        """Whether a tie policy asks for nothing but the order of the settled positions."""
        return ties in ("insertion", "any") or (ties == "id" and self.settled.ascending)

    def _pending_distances(self, queries: PackedCodes, only: Findable) -> Distances:
        """Distances of the pending items from every query, (m, p); NEVER for those that may not be found."""
        distances: Distances = np.bitwise_count(queries[:, None] ^ self.pending[None, :])
        distances[:, ~only.pending] = NEVER
        return distances

    def _ordered(
        self,
        rows: NDArray[np.intp],
        positions: Counts,
        distances: Distances,
        late: Distances,
        hits: Mask,
        ties: str,
        seed: int,
    ) -> tuple[NDArray[np.intp], AnyIds, Distances]:
        """Join settled hits with the pending ones and sort them by query, distance and tie policy."""
        late_rows, late_items = np.nonzero(hits)
        rows = np.concatenate([rows, late_rows])
        positions = np.concatenate([positions, late_items + len(self.settled.table)])
        distances = np.concatenate([distances, late[hits]])
        ids = self.take_ids(positions)
        order = tie_order(rows, distances, positions, ids, ties, seed)
        return rows[order], ids[order], distances[order]


def empty_snapshot(n_bits: int, next_id: int = 0) -> Snapshot:
    """A state without items."""
    none = np.empty(0, dtype=packed_dtype(n_bits))
    return Snapshot(Settled(BucketTable.build(none, n_bits)), none, None, ALL_ALIVE, ALL_ALIVE, 0, next_id)


def _words(queries: PackedCodes) -> Words:
    return queries.astype(np.uint64)
