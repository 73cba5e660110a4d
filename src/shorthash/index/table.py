"""An immutable bucket table: positions sorted by code, and where the bucket of every code begins.

With few bits a code is an address: bucket ``c`` is ``order[bounds[c]:bounds[c + 1]]``, found by one lookup. With many
bits most codes do not occur: the occupied ones are kept sorted and found by bisection. Either way the items around a
query are found by probing the codes of its Hamming ball, nearest first, or, where that takes fewer steps, by comparing
the query with the codes that occur.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Counts, Distances, PackedCodes
from shorthash.codes import ball_size, packed_dtype, ring_masks
from shorthash.errors import InvalidInput
from shorthash.index import kernels, parts
from shorthash.index.base import Probes
from shorthash.index.items import AnyIds, find_ids
from shorthash.index.kernels import ball
from shorthash.index.sorting import sort_space

Words = NDArray[np.uint64]
Mask = NDArray[np.bool_]

ALL_ALIVE: Mask = np.empty(0, dtype=np.bool_)
"""What the compiled loops take for "every item may be found"."""

MAX_DIRECT_BITS = 24  # 2**24 bounds of 4 bytes: 64 MiB at most
SPARSEST = 4  # direct addressing may keep this many bounds per item ...
ALWAYS_DIRECT = 4096  # ... or this many in all
BISECTION = 8  # one bisection costs about as much as comparing this many codes
MAX_SEARCH_MASKS = 1 << 14  # probes of a top-k search before it compares every code instead
ONE_BYTE = 8  # up to this many bits the code of every item is kept too, to find all at a distance in one pass
FEW_CODES = 4096  # up to this many occupied codes are compared one by one rather than in parts

NO_SCRATCH: Words = np.empty(0, dtype=np.uint64)
NO_CODES: PackedCodes = np.empty(0, dtype=np.uint8)
_kept = threading.local()

EVERYTHING = int(np.iinfo(np.int64).max)  # a k that no query reaches
PROBE = 8  # steps (items copied) that one probe of a bucket costs
MERGE = 64  # steps that one item of a top-k search costs
MAX_SLICES = 1 << 20  # bucket ranges held at once by one thread
SORT = 8  # steps that it costs to copy an item in order
WORTH_THREADS = 1 << 20  # steps below which threads cost more than they save


@dataclass(frozen=True)
class Plan:
    """How to find the buckets within ``radius``: compare ``codes`` or, if None, probe ``masks``, ring by ring."""

    radius: int
    masks: Words = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    rings: Counts = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    codes: parts.CodeParts | None = None

    @property
    def in_parts(self) -> bool:
        """Whether only codes that share a part with the query are compared."""
        return self.codes is not None and len(self.codes.shifts) > 0


@dataclass(frozen=True, eq=False)
class BucketTable:
    """Positions 0..n-1 in bucket order, and the ids of the positions.

    Attributes
    ----------
    n_bits : length of the codes
    keys : (u,) uint64, the occupied codes, ascending; empty when codes are addressed directly
    bounds : bucket i is ``order[bounds[i]:bounds[i + 1]]``, i the code or its place in ``keys``
    order : (n,) positions, bucket by bucket, ascending inside a bucket
    ids : (n,) by position; None: the id is the position
    """

    n_bits: int
    keys: Words
    bounds: NDArray[Any]
    order: NDArray[Any]
    ids: AnyIds | None = None

    @classmethod
    def build(cls, codes: PackedCodes, n_bits: int, ids: AnyIds | None = None) -> BucketTable:
        """Sort positions by code: by counting if codes are addressed directly, else by comparing."""
        n = len(codes)
        dtype = np.dtype(np.uint32 if n < 1 << 32 else np.int64)
        if n_bits <= MAX_DIRECT_BITS and 1 << n_bits <= max(ALWAYS_DIRECT, SPARSEST * n):
            bounds = np.zeros((1 << n_bits) + 1, dtype=dtype)
            order = np.empty(n, dtype=dtype)
            kernels.counting_sort(codes, bounds, order)
            return cls(n_bits, np.empty(0, dtype=np.uint64), bounds, order, ids)
        order = np.argsort(codes, kind="stable").astype(dtype)
        keys, first = np.unique(codes[order], return_index=True)
        return cls(n_bits, keys.astype(np.uint64), np.append(first, n).astype(dtype), order, ids)

    def __len__(self) -> int:
        return len(self.order)

    def check(self, *, thorough: bool = True) -> None:
        """Raise InvalidInput if the arrays, which may come from a file, are inconsistent.

        The compiled loops trust subscripts, so this is checked however a table is opened: bounds rise from 0 to the
        number of items, keys rise and fit the code length, every entry of ``order`` is a position. ``thorough`` also
        checks that every position occurs once.
        """
        keys, bounds, order = self.keys, self.bounds, self.order
        n_buckets = len(keys) if len(keys) or len(bounds) == 1 else 1 << self.n_bits
        fits = (
            keys.dtype == np.uint64
            and order.dtype == bounds.dtype
            and order.dtype in (np.dtype(np.uint32), np.dtype(np.int64))
            and keys.ndim == bounds.ndim == order.ndim == 1
            and len(bounds) == n_buckets + 1
            and (len(keys) > 0 or not len(order) or self.n_bits <= MAX_DIRECT_BITS)
            and bounds[0] == 0
            and bounds[-1] == len(order)
            and bool(np.all(bounds[1:] >= bounds[:-1]))
            and bool(np.all(keys[1:] > keys[:-1]))
            and (not len(keys) or int(keys[-1]) >> self.n_bits == 0)
            and (not len(order) or (int(order.min()) >= 0 and int(order.max()) < len(order)))
        )
        if fits and thorough:
            seen = np.zeros(len(order), dtype=np.bool_)
            seen[order] = True
            fits = bool(seen.all())
        if not fits:
            raise InvalidInput("The arrays of a bucket table are inconsistent; build the index again.")

    @cached_property
    def direct(self) -> bool:
        """Whether ``bounds`` is indexed by the code itself."""
        return len(self.keys) == 0 and len(self.bounds) > 1

    @cached_property
    def occupied(self) -> tuple[Words, NDArray[Any]]:
        """The occupied codes, ascending, and their bounds."""
        if not self.direct:
            return self.keys, self.bounds
        keys = np.flatnonzero(self.bounds[1:] > self.bounds[:-1])
        return keys.astype(np.uint64), np.append(self.bounds[keys], self.bounds[-1])

    @cached_property
    def codes_by_position(self) -> PackedCodes:
        """The code of every position, (n,), kept after the first use."""
        return self.codes()

    def codes(self) -> PackedCodes:
        """The code of every position, (n,)."""
        keys, bounds = self.occupied
        codes = np.empty(len(self), dtype=packed_dtype(self.n_bits))
        codes[self.order] = np.repeat(keys.astype(codes.dtype), bounds[1:] - bounds[:-1])
        return codes

    @cached_property
    def ids_ascend(self) -> bool:
        """Whether ids rise with position, so that both give the same order."""
        return self.ids is None or bool(np.all(self.ids[1:] > self.ids[:-1]))

    @cached_property
    def _id_order(self) -> NDArray[np.intp] | None:
        return None if self.ids is None or self.ids_ascend else np.argsort(self.ids, kind="stable")

    def find(self, ids: AnyIds) -> Counts:
        """Positions of ids, -1 where absent; the table has ids or is empty."""
        return find_ids(ids, self.order[:0] if self.ids is None else self.ids, self._id_order)

    def counts(self, queries: Words, radius: int, alive: Mask = ALL_ALIVE) -> Counts:
        """Items within ``radius`` of every query."""
        if self.direct and not len(alive):
            if radius == 0:
                return np.asarray(self.bounds[queries + np.uint64(1)] - self.bounds[queries], dtype=np.int64)
            everywhere = self.n_bits * (radius + 1) << self.n_bits  # steps that count around every code at once
            if radius in self._ball_counts or len(queries) * ball_size(self.n_bits, radius) > everywhere:
                return self.ball_counts(radius)[queries]
        return self._sizes(queries, self._plan(radius), alive, EVERYTHING)[1]

    def ball_counts(self, radius: int) -> Counts:
        """Items within ``radius`` of every possible code, (2**n_bits,); only with direct addressing.

        One bit at a time: at distance t from a code over some bits are the items at distance t over the bits before,
        and those at distance t - 1 from the code with the new bit flipped.
        """
        if radius not in self._ball_counts:
            rings = np.zeros((radius + 1, 1 << self.n_bits), dtype=np.int64)
            rings[0] = self.bounds[1:].astype(np.int64) - self.bounds[:-1]
            for bit in range(self.n_bits):
                halves = rings.reshape(radius + 1, -1, 2, 1 << bit)
                halves[1:] += halves[:-1, :, ::-1].copy()
            self._ball_counts[radius] = rings.sum(axis=0)
        return self._ball_counts[radius]

    @cached_property
    def _ball_counts(self) -> dict[int, Counts]:
        return {}

    def slices(self, queries: Words, radius: int) -> tuple[Counts, NDArray[Any], Distances]:
        """Offsets of the queries, and the occupied buckets of their balls (places in ``bounds``) with distances."""
        plan = self._plan(radius)
        if plan.codes is not None or not self.direct:
            offsets, starts, _, distances = self._slices(
                queries, plan, self._sizes(queries, plan, ALL_ALIVE, EVERYTHING)[0]
            )
            return offsets, np.searchsorted(self.bounds, starts, side="right") - 1, distances
        masks = plan.masks
        if len(self.occupied[0]) == 1 << self.n_bits:
            buckets = (queries.astype(np.uint32)[:, None] ^ masks.astype(np.uint32)).reshape(-1)
            rings = np.repeat(np.arange(radius + 1, dtype=np.uint8), np.diff(plan.rings))
            distances = np.broadcast_to(rings, (len(queries), len(masks))).reshape(-1)
            return np.arange(len(queries) + 1) * len(masks), buckets, distances
        most = len(queries) * len(masks) + 1  # memory that is never written to costs nothing
        buckets, distances = np.empty(most, dtype=np.uint32), np.empty(most, dtype=np.uint8)
        n_slices = np.empty(len(queries), dtype=np.int64)
        kernels.list_probed(queries, masks, plan.rings, self.bounds, n_slices, buckets, distances)
        offsets = _offsets(n_slices)
        return offsets, buckets[: offsets[-1]], distances[: offsets[-1]]

    def within(
        self, queries: Words, radius: int, alive: Mask = ALL_ALIVE, *, ordered: bool = True
    ) -> tuple[Counts, Distances, Counts]:
        """Positions, distances and offsets of all items within ``radius``, by distance and (``ordered``) position."""
        plan = self._plan(radius)
        if plan.codes is None and PROBE * len(queries) * len(plan.masks) < WORTH_THREADS:
            most = EVERYTHING if len(queries) == 1 else WORTH_THREADS // (SORT if ordered else 1)
            positions, distances, offsets = kernels.gather_probed(
                queries, plan.masks, plan.rings, self._table, alive, *self._sorting(ordered=ordered), most
            )
            if len(positions) == offsets[-1]:
                return positions, distances, offsets
        n_slices, n_items = self._sizes(queries, plan, alive, EVERYTHING)
        return self._copy(queries, plan, n_slices, n_items, alive, ordered=ordered)

    def lookup(self, probes: Probes, pending: Words, alive: Mask) -> tuple[Counts, Counts, Counts, Counts]:
        """Positions and places of the items of some cells, offsets of the queries, and how many cells each looked up.

        ``pending`` are the codes of the positions behind the table.
        """
        cells, m = probes.cells.astype(np.uint64), len(probes)
        sizes = np.empty(m, dtype=np.int64), np.empty(m, dtype=np.int64)
        given = cells, probes.shares, probes.offsets, probes.enough
        kernels.size_cells(*given, self._table, pending, alive, sizes)
        offsets = _offsets(sizes[1])
        positions, places = np.empty(offsets[-1], dtype=np.int64), np.empty(offsets[-1], dtype=np.int64)

        def work(a: int, b: int) -> None:
            part = slice(offsets[a], offsets[b])
            some = sizes[0][a:b], sizes[1][a:b]
            out = positions[part], places[part]
            kernels.copy_cells(cells, probes.offsets[a : b + 1], self._table, pending, alive, some, *out)

        _in_chunks(work, m, int(sizes[0].sum()), int(offsets[-1]))
        return positions, places, offsets, sizes[0]

    def nearest(self, queries: Words, k: int, alive: Mask = ALL_ALIVE) -> tuple[Counts, Distances]:
        """Positions and distances, (m, k), of the k nearest items by distance and position; k items must be alive."""
        positions = np.empty((len(queries), k), dtype=np.int64)
        distances = np.empty((len(queries), k), dtype=np.uint8)
        plan = self._search_plans[0]
        steps = PROBE * self._expected_looks(plan, k) + MERGE * k  # of one query
        if plan.codes is None and steps * len(queries) < WORTH_THREADS:
            out = positions, distances
            if kernels.take_probed(queries, plan.masks, plan.rings, self._table, alive, *out) == len(queries):
                return positions, distances
        for rows, plan, n_slices, _ in self._finished(queries, k, alive):
            positions[rows], distances[rows] = self._take(queries[rows], plan, n_slices, k, alive)
        return positions, distances

    def candidates(self, queries: Words, k: int, alive: Mask = ALL_ALIVE) -> tuple[NDArray[np.intp], Counts, Distances]:
        """Queries, positions and distances, flat, of all items up to the distance at which a query has k of them."""
        found = []
        for rows, plan, n_slices, n_items in self._finished(queries, k, alive):
            positions, distances, _ = self._copy(queries[rows], plan, n_slices, n_items, alive, ordered=False)
            found.append((np.repeat(rows, n_items), positions, distances))
        owners, positions, distances = (np.concatenate(column) for column in zip(*found, strict=True))
        return owners, positions, distances

    def rings(self, query: Words) -> Iterator[tuple[int, NDArray[Any]]]:
        """(distance, positions) of one query by increasing distance, lazily; only distances that occur."""
        keys, bounds = self.occupied
        distances = None
        left = len(self)
        for t in range(self.n_bits + 1):
            if self._worth_probing(comb(self.n_bits, t)):
                ring = ring_masks(self.n_bits, t).astype(np.uint64) ^ query[0]
                places = find_ids(np.sort(ring), keys, None)
            else:
                distances = np.bitwise_count(keys ^ query[0]) if distances is None else distances
                places = np.flatnonzero(distances == t)
            buckets = [self.order[bounds[i] : bounds[i + 1]] for i in places if i >= 0]
            if buckets:
                positions = np.sort(np.concatenate(buckets))
                yield t, positions
                left -= len(positions)
            if not left:
                return

    def _finished(self, queries: Words, k: int, alive: Mask) -> Iterator[tuple[NDArray[np.intp], Plan, Counts, Counts]]:
        """(queries, plan, slices, items): in turn, the queries for which a plan finds k items, and what it finds."""
        rows = np.arange(len(queries))
        for plan in self._search_plans:
            n_slices, n_items = self._sizes(queries[rows], plan, alive, k)
            done = n_items >= k
            yield rows[done], plan, n_slices[done], n_items[done]
            rows = rows[~done]
            if not len(rows):
                return

    def _copy(
        self, queries: Words, plan: Plan, n_slices: Counts, n_items: Counts, alive: Mask, *, ordered: bool
    ) -> tuple[Counts, Distances, Counts]:
        """Positions, distances and offsets of the items counted before; equal queries are searched once."""
        offsets = _offsets(n_items)
        positions = np.empty(offsets[-1], dtype=np.int64)
        distances = np.empty(offsets[-1], dtype=np.uint8)
        rows = np.argsort(queries, kind="stable")
        sets = np.append(np.flatnonzero(_firsts(queries[rows])), len(rows))
        starts, distinct = offsets[rows], rows[sets[:-1]]

        def work(a: int, b: int) -> None:
            some = distinct[a:b]
            slices = self._slices(queries[some], plan, n_slices[some])
            items = sets[a : b + 1], starts, positions, distances
            sorting = self._sorting(ordered=ordered)
            kernels.copy_items(queries[some], slices, self.order, alive, items, *sorting)

        steps = (SORT if ordered else 1) * int(n_items[distinct].sum()) + int(offsets[-1])
        _in_chunks(work, len(distinct), int(n_slices[distinct].sum()), steps)
        return positions, distances, offsets

    def _take(self, queries: Words, plan: Plan, n_slices: Counts, k: int, alive: Mask) -> tuple[Counts, Distances]:
        """Positions and distances of the k nearest of the items counted before."""
        positions = np.empty((len(queries), k), dtype=np.int64)
        distances = np.empty((len(queries), k), dtype=np.uint8)

        def work(a: int, b: int) -> None:
            slices = self._slices(queries[a:b], plan, n_slices[a:b])
            kernels.take_nearest(slices, self.order, alive, positions[a:b], distances[a:b])

        _in_chunks(work, len(queries), int(n_slices.sum()), MERGE * k * len(queries))
        return positions, distances

    def _sorting(self, *, ordered: bool) -> tuple[Words, PackedCodes]:
        """Room to sort items in, kept by every thread for the last table it has searched, and codes of one byte."""
        if not ordered:
            return NO_SCRATCH, NO_CODES
        if getattr(_kept, "n", -1) != len(self):
            _kept.n, _kept.scratch = len(self), sort_space(len(self))
        return _kept.scratch, self.codes_by_position if self.n_bits <= ONE_BYTE else NO_CODES

    @cached_property
    def _table(self) -> tuple[Any, ...]:
        """The table as the compiled loops take it."""
        return self.direct, self.keys, self.bounds, self.order

    def _sizes(self, queries: Words, plan: Plan, alive: Mask, k: int) -> tuple[Counts, Counts]:
        """Slices and items of every query."""
        n_slices, n_items = np.empty(len(queries), dtype=np.int64), np.empty(len(queries), dtype=np.int64)

        def work(a: int, b: int) -> None:
            out = (alive, k, n_slices[a:b], n_items[a:b])
            if plan.codes is None:
                kernels.size_probed(queries[a:b], plan.masks, plan.rings, self._table, *out)
            else:
                codes, bounds = plan.codes.within(plan.radius), self.occupied[1]
                parts.size_compared(queries[a:b], plan.radius, codes, bounds, self.order, *out)

        _in_chunks(work, len(queries), 0, PROBE * self._expected_looks(plan, k) * len(queries))
        return n_slices, n_items

    def _slices(self, queries: Words, plan: Plan, n_slices: Counts) -> tuple[Counts, Counts, Counts, Distances]:
        """Offsets, starts, stops and distances of the buckets counted before."""
        offsets = _offsets(n_slices)
        starts, stops = np.empty(offsets[-1], dtype=np.int64), np.empty(offsets[-1], dtype=np.int64)
        slices = offsets, starts, stops, np.empty(offsets[-1], dtype=np.uint8)
        if plan.codes is None:
            kernels.fill_probed(queries, plan.masks, plan.rings, self._table, slices)
        else:
            parts.fill_compared(queries, plan.radius, plan.codes.within(plan.radius), self.occupied[1], slices)
        return slices

    @cached_property
    def _plans(self) -> dict[int, Plan]:
        return {}

    def _plan(self, radius: int) -> Plan:
        """Probe the ball, or compare the codes that share a part with the query, or all: whichever takes least."""
        if radius not in self._plans:
            if self._worth_parts(radius):
                plan = Plan(radius, codes=self._code_parts)
            elif self._worth_probing(ball_size(self.n_bits, radius)):
                plan = Plan(radius, *ball(self.n_bits, radius))
            else:
                plan = Plan(radius, codes=self._all_codes)
            self._plans[radius] = plan
        return self._plans[radius]

    @cached_property
    def _search_plans(self) -> list[Plan]:
        """Plans for a top-k search, tried in turn: probe or compare in parts as far as that pays, then compare all."""
        every_code = Plan(self.n_bits, codes=self._all_codes)
        far = [radius for radius in range(self.n_bits) if self._worth_parts(radius)]
        if far:
            step = parts.n_parts(self.n_bits, len(self.keys))
            radii = sorted({*range(step - 1, far[-1], step), far[-1]})
            return [*(Plan(radius, codes=self._code_parts) for radius in radii), every_code]
        sizes = [ball_size(self.n_bits, radius) for radius in range(self.n_bits + 1)]
        probed = sum(size <= MAX_SEARCH_MASKS and self._worth_probing(size) for size in sizes)
        return [Plan(probed - 1, *ball(self.n_bits, probed - 1)), every_code] if probed else [every_code]

    @cached_property
    def _code_parts(self) -> parts.CodeParts:
        return parts.CodeParts.build(self.keys, self.n_bits, parts.n_parts(self.n_bits, len(self.keys)))

    @cached_property
    def _all_codes(self) -> parts.CodeParts:
        return parts.CodeParts.build(self.occupied[0], self.n_bits, 0)

    def _worth_probing(self, n_masks: int) -> bool:
        """Whether looking up ``n_masks`` codes costs less than comparing every occupied one."""
        return n_masks * (1 if self.direct else BISECTION) <= max(1, len(self.occupied[0]))

    def _worth_parts(self, radius: int) -> bool:
        """Whether comparing the codes that share a part costs less than probing, and than comparing every code."""
        n = len(self.keys)
        if self.n_bits <= MAX_DIRECT_BITS or n < FEW_CODES:
            return False
        looks = parts.expected_looks(self.n_bits, n, radius)
        return 2 * looks < n and looks < BISECTION * ball_size(self.n_bits, radius)

    def _expected_looks(self, plan: Plan, k: int) -> int:
        """Codes that a query looks at; when probing, until it has probably found k items."""
        if plan.codes is None:
            return min(len(plan.masks), 4 * k * len(self.occupied[0]) // max(1, len(self)) + self.n_bits + 1)
        if plan.in_parts:
            return int(parts.expected_looks(self.n_bits, len(self.keys), plan.radius))
        return len(self.occupied[0])


def _offsets(sizes: Counts) -> Counts:
    """Where each of several runs of these sizes begins, and where the last one ends."""
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def _firsts(values: Words) -> Mask:
    """Which values of a sorted array differ from the one before."""
    firsts = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=firsts[1:])
    return firsts


def _in_chunks(work: Callable[[int, int], None], n_queries: int, slices: int, steps: int) -> None:
    """Call ``work`` on runs of queries of bounded memory; on several threads if the work is worth it.

    ``slices`` and further ``steps`` are what all queries need together. This thread takes its share, so that it waits
    for others only while they are at work.
    """
    n_chunks = slices // MAX_SLICES + 1
    if PROBE * slices + steps >= WORTH_THREADS:
        n_chunks = max(n_chunks, 4 * _n_threads())
    size = max(1, -(-n_queries // n_chunks))
    runs = deque((a, min(a + size, n_queries)) for a in range(0, n_queries, size))

    def take_runs() -> None:
        while True:
            try:
                a, b = runs.popleft()
            except IndexError:
                return
            work(a, b)

    helpers = [_pool().submit(take_runs) for _ in range(min(len(runs), _n_threads()) - 1)]
    take_runs()
    for helper in helpers:
        if not helper.cancel():
            helper.result()


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    """Threads that all searches of this process share; work on them never waits for other work on them."""
    return ThreadPoolExecutor(_n_threads(), thread_name_prefix="shorthash-index")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads


@lru_cache(maxsize=1)
def _n_threads() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
