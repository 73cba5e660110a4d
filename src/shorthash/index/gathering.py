"""Compiled loops that take items out of the buckets found. All run without the GIL and write only where told.

Legend, shared by all kernels:

===============  ==============================================================================================
slice_offsets    (m + 1,) query q owns the buckets ``slice_offsets[q]`` to ``slice_offsets[q + 1] - 1``, by distance
starts, stops    bucket j is ``order[starts[j]:stops[j]]``
slice_distances  distance of bucket j from its query
order            (n,) positions of the items, bucket by bucket, ascending inside a bucket
alive            (n',) bool by position, items that may be found; empty: all of them
item_offsets     (m + 1,) query q owns the items ``item_offsets[q]`` to ``item_offsets[q + 1] - 1``
===============  ==============================================================================================
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from shorthash.index.probing import bucket_of, popcount, size_ring

__all__ = ["copy_items", "gather_probed", "take_nearest"]

Array = np.ndarray[Any, Any]

SHORT = 48  # items up to which a bucket is copied one by one
FEW = 48  # up to this many items insertion sort wins
SPARSE = 16  # from one item in so many positions on, reading bits off beats the radix sort
DIGIT = 11  # bits per pass of the radix sort: its 2048 counters stay in the first-level cache
LAST_DIGIT = np.uint64((1 << DIGIT) - 1)


@njit(nogil=True, cache=True)
def _copy_bucket(start: int, stop: int, order: Array, alive: Array, positions: Array, at: int) -> int:
    """Copy the items of one bucket to ``positions`` from slot ``at`` on; the next free slot."""
    if len(alive) == 0:
        target = positions[at : at + stop - start]
        source = order[start:stop]
        for i in range(len(source)):
            target[i] = source[i]
        return at + stop - start
    for i in range(start, stop):
        if alive[order[i]]:
            positions[at] = order[i]
            at += 1
    return at


@njit(nogil=True, cache=True)
def copy_items(
    slice_offsets: Array,
    starts: Array,
    stops: Array,
    slice_distances: Array,
    order: Array,
    alive: Array,
    item_offsets: Array,
    positions: Array,
    distances: Array,
    ordered: bool,
    n_bits: int,
) -> None:
    """Copy the items of all buckets of every query; ``ordered`` sorts them (n_bits bits) inside every distance."""
    scratch = _sort_space(len(order), item_offsets, ordered)
    for q in range(len(slice_offsets) - 1):
        at = item_offsets[q]
        first = slice_offsets[q]
        while first < slice_offsets[q + 1]:
            begin = at
            last = first
            while last < slice_offsets[q + 1] and slice_distances[last] == slice_distances[first]:
                at = _copy_bucket(starts[last], stops[last], order, alive, positions, at)
                last += 1
            distances[begin:at] = slice_distances[first]
            if ordered and last > first + 1:
                _sort(positions[begin:at], scratch, len(order), n_bits)
            first = last


@njit(nogil=True, cache=True)
def gather_probed(
    queries: Array,
    masks: Array,
    rings: Array,
    direct: bool,
    keys: Array,
    bounds: Array,
    order: Array,
    alive: Array,
    ordered: bool,
    most: int,
) -> Any:
    """Positions, distances and offsets of all items under some masks, in one call; only offsets if beyond ``most``.

    Legend of what is not in this module's: see ``probing``.
    """
    offsets = np.zeros(len(queries) + 1, dtype=np.int64)
    for q in range(len(queries)):
        offsets[q + 1] = offsets[q] + size_ring(queries[q], masks, direct, keys, bounds, order, alive)[1]
    total = offsets[-1] if offsets[-1] <= most else 0
    positions = np.empty(total, dtype=np.int64)
    distances = np.empty(total, dtype=np.uint8)
    if total == 0:
        return positions, distances, offsets
    scratch = _sort_space(len(order), offsets, ordered)
    # a call costs more than copying a few items, and less than copying many without wide instructions
    bare = direct and len(alive) == 0 and total < SHORT * len(masks) * len(queries)
    at = 0
    for q in range(len(queries)):
        for t in range(len(rings) - 1):
            begin = at
            if bare:
                for j in range(rings[t], rings[t + 1]):
                    code = queries[q] ^ masks[j]
                    for i in range(np.uint64(bounds[code]), np.uint64(bounds[code + np.uint64(1)])):
                        positions[at] = order[i]
                        at += 1
            else:
                for j in range(rings[t], rings[t + 1]):
                    start, stop = bucket_of(queries[q] ^ masks[j], direct, keys, bounds)
                    at = _copy_bucket(start, stop, order, alive, positions, at)
            distances[begin:at] = t
            if ordered and t > 0 and at > begin + 1:
                _sort(positions[begin:at], scratch, len(order), _bit_length(len(order)))
    return positions, distances, offsets


@njit(nogil=True, cache=True)
def _bit_length(n: int) -> int:
    """Bits it takes to count to n."""
    bits = 0
    while n >> bits:
        bits += 1
    return bits


@njit(nogil=True, cache=True)
def _sort_space(n: int, item_offsets: Array, ordered: bool) -> Array:
    """Zeros for sorting: one bit per position, or room for the longest result and the counters of a radix pass."""
    longest = 0
    for q in range(len(item_offsets) - 1 if ordered else 0):
        longest = max(longest, item_offsets[q + 1] - item_offsets[q])
    return np.zeros(max((n >> 6) + 1, longest + (1 << DIGIT)) if longest > FEW else 0, dtype=np.uint64)


@njit(nogil=True, cache=True)
def _sort(values: Array, scratch: Array, n: int, n_bits: int) -> None:
    """Sort distinct positions below n in the way that suits their number."""
    if len(values) <= FEW:
        _sort_few(values)
    elif len(values) * SPARSE > n:
        _sort_dense(values, scratch[: (n >> 6) + 1])
    else:
        _sort_sparse(values, scratch[1 << DIGIT :], scratch[: 1 << DIGIT], n_bits)
        scratch[: len(values) + (1 << DIGIT)] = 0


@njit(nogil=True, cache=True)
def _sort_few(values: Array) -> None:
    """Sort by insertion."""
    for i in range(1, len(values)):
        value = values[i]
        j = i - 1
        while j >= 0 and values[j] > value:
            values[j + 1] = values[j]
            j -= 1
        values[j + 1] = value


@njit(nogil=True, cache=True)
def _sort_dense(values: Array, bits: Array) -> None:
    """Sort distinct integers by setting a bit for each and reading the bits off; ``bits`` is zero before and after."""
    for i in range(len(values)):
        value = np.uint64(values[i])  # unsigned subscripts spare a check for negative ones
        bits[value >> np.uint64(6)] |= np.uint64(1) << (value & np.uint64(63))
    at = 0
    for i in range(len(bits)):
        word = bits[i]
        bits[i] = 0
        while word:
            rest = word & (word - np.uint64(1))
            values[at] = 64 * i + np.int64(popcount((word ^ rest) - np.uint64(1)))
            word = rest
            at += 1


@njit(nogil=True, cache=True)
def _sort_sparse(values: Array, scratch: Array, counters: Array, n_bits: int) -> None:
    """Sort integers below 2**n_bits by radix."""
    one = np.uint64(1)
    for shift in range(0, n_bits, DIGIT):
        counters[:] = 0
        for i in range(len(values)):
            counters[(np.uint64(values[i]) >> np.uint64(shift)) & LAST_DIGIT] += one
        total = np.uint64(0)
        for d in range(len(counters)):
            count = counters[d]
            counters[d] = total
            total += count
        for i in range(len(values)):
            digit = (np.uint64(values[i]) >> np.uint64(shift)) & LAST_DIGIT
            scratch[counters[digit]] = values[i]
            counters[digit] += one
        for i in range(len(values)):
            values[i] = np.int64(scratch[i])


@njit(nogil=True, cache=True)
def _sift_down(heap: Array, size: int, order: Array, cursors: Array) -> None:
    """Restore the heap of buckets, smallest next position on top, after its top has changed."""
    parent = 0
    moving = heap[0]
    value = order[cursors[moving]]
    while 2 * parent + 1 < size:
        child = 2 * parent + 1
        if child + 1 < size and order[cursors[heap[child + 1]]] < order[cursors[heap[child]]]:
            child += 1
        if order[cursors[heap[child]]] >= value:
            break
        heap[parent] = heap[child]
        parent = child
    heap[parent] = moving


@njit(nogil=True, cache=True)
def _advance(cursor: int, stop: int, order: Array, alive: Array) -> int:
    """The next item of a bucket that may be found."""
    if len(alive):
        while cursor < stop and not alive[order[cursor]]:
            cursor += 1
    return cursor


@njit(nogil=True, cache=True)
def take_nearest(
    slice_offsets: Array,
    starts: Array,
    stops: Array,
    slice_distances: Array,
    order: Array,
    alive: Array,
    positions: Array,
    distances: Array,
) -> None:
    """The first ``positions.shape[1]`` items of every query by distance, then position; ``starts`` is used up."""
    k = positions.shape[1]
    heap = np.empty(max(1, len(starts)), dtype=np.int64)
    for q in range(len(slice_offsets) - 1):
        at = 0
        first = slice_offsets[q]
        while at < k and first < slice_offsets[q + 1]:
            last = first
            size = 0
            while last < slice_offsets[q + 1] and slice_distances[last] == slice_distances[first]:
                starts[last] = _advance(starts[last], stops[last], order, alive)
                if starts[last] < stops[last]:
                    heap[size] = last
                    size += 1
                last += 1
            _heapify(heap, size, order, starts)
            while at < k and size > 0:
                top = heap[0]
                positions[q, at] = order[starts[top]]
                distances[q, at] = slice_distances[first]
                at += 1
                starts[top] = _advance(starts[top] + 1, stops[top], order, alive)
                if starts[top] == stops[top]:
                    size -= 1
                    heap[0] = heap[size]
                if size > 1:
                    _sift_down(heap, size, order, starts)
            first = last


@njit(nogil=True, cache=True)
def _heapify(heap: Array, size: int, order: Array, cursors: Array) -> None:
    """Order a fresh heap of buckets by their next position."""
    for i in range(1, size):  # few buckets, each sifted up once
        child = i
        moving = heap[i]
        value = order[cursors[moving]]
        while child > 0 and order[cursors[heap[(child - 1) // 2]]] > value:
            heap[child] = heap[(child - 1) // 2]
            child = (child - 1) // 2
        heap[child] = moving
