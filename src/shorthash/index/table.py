"""An immutable bucket table: positions sorted by code, and where the bucket of every code begins.

With few bits a code is an address: bucket ``c`` is ``order[bounds[c]:bounds[c + 1]]`` and finding it costs one look.
With many bits most codes do not occur: the occupied ones are kept sorted and found by bisection. Either way the items
around a query are found by probing the codes of its Hamming ball, nearest first, or, where the ball holds more codes
than occur, by looking at every code that occurs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Distances, PackedCodes
from shorthash.codes import ball_size, packed_dtype
from shorthash.errors import InvalidInput
from shorthash.index import gathering, parts, probing
from shorthash.index.planning import EVERYTHING, PROBE, WORTH_THREADS, Plan, ball, chunks, in_chunks, mean, offsets_of

__all__ = ["ALL_ALIVE", "BucketTable", "Words"]

Words = NDArray[np.uint64]
Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]

ALL_ALIVE: Mask = np.empty(0, dtype=np.bool_)
"""What the kernels take for "every item may be found"."""

MAX_DIRECT_BITS = 24  # 2**24 bounds of 4 bytes: 64 MiB at most
SPARSEST = 4  # direct addressing may keep this many bounds per item ...
ALWAYS_DIRECT = 4096  # ... or this many in all
BISECTION = 8  # one bisection costs about as much as looking at this many codes
MAX_SEARCH_MASKS = 1 << 14  # probes of a top-k search before it looks at every code instead
MERGE = 64  # steps that one item of a top-k search costs
QUICKLY_READ = (1 << 16) + 1  # bounds that are checked even where opening must be quick
FEW_CODES = 4096  # up to this many occupied codes are looked at one by one rather than in parts


@dataclass(frozen=True, eq=False)
class BucketTable:
    """Positions 0..n-1 in bucket order.

    Attributes
    ----------
    n_bits : length of the codes
    keys : (u,) uint64, the occupied codes, ascending; empty when codes are addressed directly
    bounds : bucket i is ``order[bounds[i]:bounds[i + 1]]``, i the code or its place in ``keys``
    order : (n,) positions, bucket by bucket, ascending inside a bucket
    """

    n_bits: int
    keys: Words
    bounds: NDArray[Any]
    order: NDArray[Any]

    @classmethod
    def build(cls, codes: PackedCodes, n_bits: int) -> BucketTable:
        """Sort positions by code: by counting if codes are addressed directly, else by comparing."""
        n = len(codes)
        dtype = np.dtype(np.uint32 if n < 1 << 32 else np.int64)
        if _address_directly(n_bits, n):
            bounds = np.zeros((1 << n_bits) + 1, dtype=dtype)
            order = np.empty(n, dtype=dtype)
            probing.counting_sort(codes, bounds, order)
            return cls(n_bits, np.empty(0, dtype=np.uint64), bounds, order)
        order = np.argsort(codes, kind="stable").astype(dtype)
        keys, first = np.unique(codes[order], return_index=True)
        return cls(n_bits, keys.astype(np.uint64), np.append(first, n).astype(dtype), order)

    @cached_property
    def direct(self) -> bool:
        """Whether ``bounds`` is indexed by the code itself."""
        return len(self.keys) == 0 and len(self.bounds) > 1

    def check(self, *, every_entry: bool = True) -> None:
        """Raise InvalidInput if the arrays contradict each other; they may come from a file."""
        n_buckets = len(self.keys) if len(self.keys) or len(self.bounds) == 1 else 1 << self.n_bits
        fits = (
            self.keys.dtype == np.uint64
            and self.order.dtype == self.bounds.dtype
            and self.order.dtype in (np.dtype(np.uint32), np.dtype(np.int64))
            and self.keys.ndim == self.bounds.ndim == self.order.ndim == 1
            and len(self.bounds) == n_buckets + 1
            and self.bounds[0] == 0
            and self.bounds[-1] == len(self.order)
        )
        if fits and every_entry:
            fits = self._check_entries()
        elif fits and len(self.bounds) <= QUICKLY_READ:  # then no search leaves the arrays, whatever else is damaged
            fits = bool(np.all(self.bounds[1:] >= self.bounds[:-1]))
        if not fits:
            raise InvalidInput("The arrays of a bucket table contradict each other; build the index again.")

    def _check_entries(self) -> bool:
        """Whether bounds and keys rise, codes have no more bits than they may, and positions exist."""
        keys, bounds, order = self.keys, self.bounds, self.order
        rising = bool(np.all(bounds[1:] >= bounds[:-1])) and bool(np.all(keys[1:] > keys[:-1]))
        in_range = not len(keys) or int(keys[-1]) >> self.n_bits == 0
        return rising and in_range and (not len(order) or (int(order.min()) >= 0 and int(order.max()) < len(order)))

    def __len__(self) -> int:
        return len(self.order)

    @cached_property
    def occupied(self) -> tuple[Words, NDArray[Any]]:
        """The occupied codes, ascending, and their bounds."""
        if not self.direct:
            return self.keys, self.bounds
        keys = np.flatnonzero(self.bounds[1:] > self.bounds[:-1])
        return keys.astype(np.uint64), np.append(self.bounds[keys], self.bounds[-1])

    @cached_property
    def codes_by_position(self) -> PackedCodes:
        """The code of every position, (n,), kept once it was asked for."""
        return self.codes()

    def codes(self) -> PackedCodes:
        """The code of every position, (n,)."""
        keys, bounds = self.occupied
        codes = np.empty(len(self), dtype=packed_dtype(self.n_bits))
        codes[self.order] = np.repeat(keys.astype(codes.dtype), bounds[1:] - bounds[:-1])
        return codes

    def counts(self, queries: Words, radius: int, alive: Mask = ALL_ALIVE) -> Counts:
        """Items within ``radius`` of every query."""
        if self.direct and not len(alive):
            everywhere = self.n_bits * (radius + 1) << self.n_bits  # steps that count around every code at once
            if radius in self._ball_counts or len(queries) * ball_size(self.n_bits, radius) > everywhere:
                return self.ball_counts(radius)[queries]
        return self._sizes(queries, self._plan(radius), alive, EVERYTHING)[1]

    def ball_counts(self, radius: int) -> Counts:
        """Items within ``radius`` of every code there is, (2**n_bits,); only with direct addressing.

        One bit at a time: at distance t from a code over some bits lie the items at distance t over the bits before,
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
        if plan.masks is None or not self.direct:
            found = self._slices(queries, plan, self._sizes(queries, plan, ALL_ALIVE, EVERYTHING)[0])
            return found[0], np.searchsorted(self.bounds, found[1], side="right") - 1, found[3]
        masks, full = plan.masks, len(self.occupied[0]) == 1 << self.n_bits
        rings = np.repeat(np.arange(radius + 1, dtype=np.uint8), np.diff(plan.rings))
        if full:
            buckets = (queries.astype(np.uint32)[:, None] ^ masks.astype(np.uint32)).reshape(-1)
            offsets = np.arange(len(queries) + 1) * len(masks)
            return offsets, buckets, np.broadcast_to(rings, (len(queries), len(masks))).reshape(-1)
        most = len(queries) * len(masks) + 1  # pages that stay empty cost nothing
        buckets, distances = np.empty(most, dtype=np.uint32), np.empty(most, dtype=np.uint8)
        n_slices = np.empty(len(queries), dtype=np.int64)
        probing.list_probed(queries, masks, plan.rings, self.bounds, n_slices, buckets, distances)
        offsets = offsets_of(n_slices)
        return offsets, buckets[: offsets[-1]], distances[: offsets[-1]]

    def within(
        self, queries: Words, radius: int, alive: Mask = ALL_ALIVE, *, ordered: bool = True
    ) -> tuple[Counts, Distances, Counts]:
        """Positions, distances and offsets of all items within ``radius``, by distance and (``ordered``) position."""
        plan = self._plan(radius)
        if plan.masks is not None and PROBE * len(queries) * len(plan.masks) < WORTH_THREADS:
            where = (plan.masks, plan.rings, self.direct, self.keys, self.bounds, self.order, alive)
            positions, distances, offsets = gathering.gather_probed(queries, *where, ordered, WORTH_THREADS)
            if len(positions) == offsets[-1]:
                return positions, distances, offsets
        n_slices, n_items = self._sizes(queries, plan, alive, EVERYTHING)
        return self._copy(queries, plan, n_slices, n_items, alive, ordered=ordered)

    def nearest(self, queries: Words, k: int, alive: Mask = ALL_ALIVE) -> tuple[Counts, Distances]:
        """Positions and distances, (m, k), of the k nearest items by distance and position; k items must be alive."""
        positions = np.empty((len(queries), k), dtype=np.int64)
        distances = np.empty((len(queries), k), dtype=np.uint8)
        rows = np.arange(len(queries))
        for plan in self._search_plans:
            n_slices, n_items = self._sizes(queries[rows], plan, alive, k)
            done = n_items >= k
            self._take(queries, rows[done], plan, n_slices[done], alive, positions, distances)
            rows = rows[~done]
            if not len(rows):
                break
        return positions, distances

    def candidates(self, queries: Words, k: int, alive: Mask = ALL_ALIVE) -> tuple[NDArray[np.intp], Counts, Distances]:
        """Queries, positions and distances, flat, of all items up to the distance at which a query has k of them."""
        found = []
        rows = np.arange(len(queries))
        for plan in self._search_plans:
            n_slices, n_items = self._sizes(queries[rows], plan, alive, k)
            done = n_items >= k
            hits = self._copy(queries[rows[done]], plan, n_slices[done], n_items[done], alive, ordered=False)
            found.append((np.repeat(rows[done], n_items[done]), hits[0], hits[1]))
            rows = rows[~done]
            if not len(rows):
                break
        owners, positions, distances = zip(*found, strict=True)
        return np.concatenate(owners), np.concatenate(positions), np.concatenate(distances)

    def rings(self, query: Words) -> Iterator[tuple[int, NDArray[Any]]]:
        """(distance, positions) of one query by increasing distance, lazily; only distances that occur."""
        left = len(self)
        for t in range(self.n_bits + 1):
            if not left:
                return
            if not self._worth_probing(comb(self.n_bits, t)):
                yield from self._scanned_rings(query, t)
                return
            masks, rings = ball(self.n_bits, t)
            ring = Plan(t, masks, np.array([rings[t], rings[t + 1]]))
            n_slices, n_items = self._sizes(query, ring, ALL_ALIVE, EVERYTHING)
            if n_items[0]:
                _, starts, stops, _ = self._slices(query, ring, n_slices)
                yield t, np.sort(np.concatenate([self.order[a:b] for a, b in zip(starts, stops, strict=True)]))
                left -= int(n_items[0])

    def _scanned_rings(self, query: Words, first: int) -> Iterator[tuple[int, NDArray[Any]]]:
        """The rings from distance ``first`` on, by looking at every occupied code."""
        keys, bounds = self.occupied
        distances = np.bitwise_count(keys ^ query[0])
        for t in range(first, self.n_bits + 1):
            hits = np.flatnonzero(distances == t)
            if len(hits):
                yield t, np.sort(np.concatenate([self.order[bounds[i] : bounds[i + 1]] for i in hits]))

    def _copy(
        self, queries: Words, plan: Plan, n_slices: Counts, n_items: Counts, alive: Mask, *, ordered: bool
    ) -> tuple[Counts, Distances, Counts]:
        """Positions, distances and offsets of the items counted before."""
        offsets = offsets_of(n_items)
        positions = np.empty(offsets[-1], dtype=np.int64)
        distances = np.empty(offsets[-1], dtype=np.uint8)

        def work(a: int, b: int) -> None:
            slices = self._slices(queries[a:b], plan, n_slices[a:b])
            out = (offsets[a : b + 1], positions, distances)
            gathering.copy_items(*slices, self.order, alive, *out, ordered, len(self).bit_length())

        in_chunks(work, chunks(len(queries), mean(n_slices), mean(n_items)))
        return positions, distances, offsets

    def _take(
        self,
        queries: Words,
        rows: NDArray[np.intp],
        plan: Plan,
        n_slices: Counts,
        alive: Mask,
        positions: Counts,
        distances: Distances,
    ) -> None:
        """Write the nearest items of the queries ``rows`` that ``plan`` finishes."""
        k = positions.shape[1]

        def work(a: int, b: int) -> None:
            slices = self._slices(queries[rows[a:b]], plan, n_slices[a:b])
            p, d = np.empty((b - a, k), dtype=np.int64), np.empty((b - a, k), dtype=np.uint8)
            gathering.take_nearest(*slices, self.order, alive, p, d)
            positions[rows[a:b]], distances[rows[a:b]] = p, d

        in_chunks(work, chunks(len(rows), mean(n_slices), MERGE * k))

    def _worth_probing(self, n_masks: int) -> bool:
        """Whether looking up ``n_masks`` codes costs less than looking at every occupied one."""
        cost = 1 if self.direct else BISECTION
        return n_masks * cost <= max(1, len(self.occupied[0]))

    @cached_property
    def _plans(self) -> dict[int, Plan]:
        return {}

    def _plan(self, radius: int) -> Plan:
        """Probe the ball, or look at the codes that share a part with the query, or at all: whichever is least."""
        if radius not in self._plans:
            if self._parts_pay(radius):
                plan = Plan(radius, in_parts=True)
            elif self._worth_probing(ball_size(self.n_bits, radius)):
                plan = Plan(radius, *ball(self.n_bits, radius))
            else:
                plan = Plan(radius)
            self._plans[radius] = plan
        return self._plans[radius]

    @cached_property
    def _search_plans(self) -> list[Plan]:
        """Probe as far as it pays, or take the codes that share a part as far as that pays; then look at every code."""
        far = [radius for radius in range(self.n_bits) if self._parts_pay(radius)]
        if far:
            step = parts.n_parts(self.n_bits, len(self.keys))
            near = range(step - 1, far[-1], step)
            return [*(Plan(radius, in_parts=True) for radius in sorted({*near, far[-1]})), Plan(self.n_bits)]
        sizes = [ball_size(self.n_bits, radius) for radius in range(self.n_bits + 1)]
        probed = sum(size <= MAX_SEARCH_MASKS and self._worth_probing(size) for size in sizes)
        first = [Plan(probed - 1, *ball(self.n_bits, probed - 1))] if probed else []
        return [*first, Plan(self.n_bits)]

    @cached_property
    def _code_parts(self) -> parts.CodeParts:
        return parts.CodeParts.build(self.keys, self.n_bits)

    def _parts_pay(self, radius: int) -> bool:
        """Whether taking the codes that share a part costs less than probing, and than looking at every code."""
        n = len(self.keys)
        if self.n_bits <= MAX_DIRECT_BITS or n < FEW_CODES:
            return False
        looks = parts.expected_looks(self.n_bits, n, radius)
        return 2 * looks < n and looks < BISECTION * ball_size(self.n_bits, radius)

    def _sizes(self, queries: Words, plan: Plan, alive: Mask, k: int) -> tuple[Counts, Counts]:
        """Slices and items of every query."""
        n_slices, n_items = np.empty(len(queries), dtype=np.int64), np.empty(len(queries), dtype=np.int64)
        keys, bounds = (self.keys, self.bounds) if plan.masks is not None else self.occupied

        def work(a: int, b: int) -> None:
            sizes = (self.order, alive, k, n_slices[a:b], n_items[a:b])
            if plan.in_parts:
                self._code_parts.size(queries[a:b], plan.radius, bounds, *sizes)
            elif plan.masks is not None:
                probing.size_probed(queries[a:b], plan.masks, plan.rings, self.direct, keys, bounds, *sizes)
            else:
                probing.size_scanned(queries[a:b], plan.radius, keys, bounds, *sizes)

        looks = self._expected_looks(plan, k)
        in_chunks(work, chunks(len(queries), 0, PROBE * looks))
        return n_slices, n_items

    def _expected_looks(self, plan: Plan, k: int) -> int:
        """Codes that a query looks at; when probing, until it has probably found k items."""
        if plan.in_parts:
            return int(parts.expected_looks(self.n_bits, len(self.keys), plan.radius))
        if plan.masks is None:
            return len(self.occupied[0])
        return min(len(plan.masks), 4 * k * len(self.occupied[0]) // max(1, len(self)) + self.n_bits + 1)

    def _slices(self, queries: Words, plan: Plan, n_slices: Counts) -> tuple[Counts, Counts, Counts, Distances]:
        """Offsets, starts, stops and distances of the buckets counted before."""
        offsets = offsets_of(n_slices)
        starts, stops = np.empty(offsets[-1], dtype=np.int64), np.empty(offsets[-1], dtype=np.int64)
        distances = np.empty(offsets[-1], dtype=np.uint8)
        self._fill(queries, plan, offsets, starts, stops, distances)
        return offsets, starts, stops, distances

    def _fill(
        self, queries: Words, plan: Plan, offsets: Counts, starts: Counts, stops: Counts, distances: Distances
    ) -> None:
        out = (offsets, starts, stops, distances)
        if plan.in_parts:
            self._code_parts.fill(queries, plan.radius, self.bounds, *out)
        elif plan.masks is not None:
            probing.fill_probed(queries, plan.masks, plan.rings, self.direct, self.keys, self.bounds, *out)
        else:
            probing.fill_scanned(queries, plan.radius, *self.occupied, *out)


def _address_directly(n_bits: int, n_items: int) -> bool:
    """Whether a table of so many items is addressed by the code itself."""
    return n_bits <= MAX_DIRECT_BITS and 1 << n_bits <= max(ALWAYS_DIRECT, SPARSEST * n_items)
