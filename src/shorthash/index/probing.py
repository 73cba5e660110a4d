"""Compiled loops of the bucket table. All run without the GIL and write only into arrays they are given.

Legend, shared by all kernels:

========  =====================================================================================================
queries   (m,) uint64, packed codes
masks     (b,) uint64, the ball around zero by distance; ``masks[rings[t]:rings[t + 1]]`` have t set bits
keys      (u,) uint64, the occupied codes, ascending; not looked at when ``direct``
bounds    bucket i is ``order[bounds[i]:bounds[i + 1]]``; i is the code if ``direct``, else its place in ``keys``
order     (n,) positions of the items, bucket by bucket, ascending inside a bucket
alive     (n',) bool by position, items that may be found; empty: all of them
k         a query is finished with the first distance at which it has k items
========  =====================================================================================================
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

__all__ = [
    "copy_items",
    "counting_sort",
    "fill_probed",
    "fill_scanned",
    "size_probed",
    "size_scanned",
    "sort_rings",
    "take_nearest",
]

Array = np.ndarray[Any, Any]

MAX_RINGS = 65  # distances 0 to 64
DIGIT = 11  # bits per pass of the radix sort: its 2048 counters stay in the first-level cache
SHORT = 48  # below this many items insertion sort wins


def _popcount_intrinsic(_context: Any, _word: Any) -> Any:
    """Set bits of a uint64, one machine instruction."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


_popcount: Any = intrinsic(_popcount_intrinsic)


@njit(nogil=True, cache=True)
def counting_sort(codes: Array, bounds: Array, order: Array) -> None:
    """Fill ``bounds`` (2**n_bits + 1, zeros) and ``order`` for direct addressing; stable."""
    for i in range(len(codes)):
        bounds[np.int64(codes[i]) + 1] += 1
    for i in range(1, len(bounds)):
        bounds[i] += bounds[i - 1]
    cursors = bounds[:-1].copy()
    for i in range(len(codes)):
        code = np.int64(codes[i])
        order[cursors[code]] = i
        cursors[code] += 1


@njit(nogil=True, cache=True)
def _bucket(code: Any, direct: bool, keys: Array, bounds: Array) -> Any:
    """Range of the bucket of a code; empty if the code does not occur."""
    if direct:  # unsigned subscripts spare a check for negative ones
        return np.int64(bounds[code]), np.int64(bounds[code + np.uint64(1)])
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < code:
            low = middle + 1
        else:
            high = middle
    if low < len(keys) and keys[low] == code:
        return np.int64(bounds[low]), np.int64(bounds[low + 1])
    return np.int64(0), np.int64(0)


@njit(nogil=True, cache=True)
def _n_alive(start: Any, stop: Any, order: Array, alive: Array) -> Any:
    """Items of a bucket that may be found."""
    if len(alive) == 0:
        return stop - start
    n = 0
    for i in range(start, stop):
        n += alive[order[i]]
    return n


@njit(nogil=True, cache=True)
def _size_ring(query: Any, masks: Array, direct: bool, keys: Array, bounds: Array, order: Array, alive: Array) -> Any:
    """Occupied buckets and items under some masks."""
    slices = items = np.int64(0)
    if direct and len(alive) == 0:  # the common case, kept bare so that the compiler can use wide instructions
        for j in range(len(masks)):
            code = query ^ masks[j]
            n = np.int64(bounds[code + np.uint64(1)]) - np.int64(bounds[code])
            slices += n > 0
            items += n
    else:
        for j in range(len(masks)):
            start, stop = _bucket(query ^ masks[j], direct, keys, bounds)
            slices += stop > start
            items += _n_alive(start, stop, order, alive)
    return slices, items


@njit(nogil=True, cache=True)
def size_probed(
    queries: Array,
    masks: Array,
    rings: Array,
    direct: bool,
    keys: Array,
    bounds: Array,
    order: Array,
    alive: Array,
    k: int,
    n_slices: Array,
    n_items: Array,
) -> None:
    """Occupied buckets and items in the ball of every query, up to the distance that finishes it."""
    for q in range(len(queries)):
        n_slices[q] = 0
        n_items[q] = 0
        for t in range(len(rings) - 1):
            ring = masks[rings[t] : rings[t + 1]]
            slices, items = _size_ring(queries[q], ring, direct, keys, bounds, order, alive)
            n_slices[q] += slices
            n_items[q] += items
            if n_items[q] >= k:
                break


@njit(nogil=True, cache=True)
def fill_probed(
    queries: Array,
    masks: Array,
    rings: Array,
    direct: bool,
    keys: Array,
    bounds: Array,
    offsets: Array,
    starts: Array,
    stops: Array,
    distances: Array,
) -> None:
    """Write the ``offsets[q + 1] - offsets[q]`` nearest occupied buckets of every query, by distance."""
    for q in range(len(queries)):
        query = queries[q]
        at = offsets[q]
        end = offsets[q + 1]
        t = 0
        while at < end:
            for j in range(rings[t], rings[t + 1]):
                start, stop = _bucket(query ^ masks[j], direct, keys, bounds)
                if stop > start:
                    starts[at] = start
                    stops[at] = stop
                    distances[at] = t
                    at += 1
            t += 1


@njit(nogil=True, cache=True)
def size_scanned(
    queries: Array,
    radius: int,
    keys: Array,
    bounds: Array,
    order: Array,
    alive: Array,
    k: int,
    n_slices: Array,
    n_items: Array,
) -> None:
    """The same as ``size_probed`` by looking at every occupied code."""
    slices = np.zeros(MAX_RINGS, dtype=np.int64)
    items = np.zeros(MAX_RINGS, dtype=np.int64)
    for q in range(len(queries)):
        slices[:] = 0
        items[:] = 0
        for i in range(len(keys)):
            t = np.int64(_popcount(keys[i] ^ queries[q]))
            slices[t] += 1
            if t <= radius:
                items[t] += _n_alive(np.int64(bounds[i]), np.int64(bounds[i + 1]), order, alive)
        n_slices[q] = 0
        n_items[q] = 0
        for ring in range(radius + 1):
            n_slices[q] += slices[ring]
            n_items[q] += items[ring]
            if n_items[q] >= k:
                break


@njit(nogil=True, cache=True)
def fill_scanned(
    queries: Array, keys: Array, bounds: Array, offsets: Array, starts: Array, stops: Array, distances: Array
) -> None:
    """The same as ``fill_probed`` by looking at every occupied code."""
    cursors = np.zeros(MAX_RINGS + 1, dtype=np.int64)
    for q in range(len(queries)):
        cursors[:] = 0
        for i in range(len(keys)):
            cursors[np.int64(_popcount(keys[i] ^ queries[q])) + 1] += 1
        cursors[0] = offsets[q]
        for ring in range(1, MAX_RINGS + 1):
            cursors[ring] += cursors[ring - 1]
        for i in range(len(keys)):
            t = np.int64(_popcount(keys[i] ^ queries[q]))
            at = cursors[t]
            if at < offsets[q + 1]:
                starts[at] = bounds[i]
                stops[at] = bounds[i + 1]
                distances[at] = t
                cursors[t] += 1


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
) -> None:
    """Copy the items of all buckets of every query."""
    for q in range(len(slice_offsets) - 1):
        at = item_offsets[q]
        for j in range(slice_offsets[q], slice_offsets[q + 1]):
            first = at
            if len(alive) == 0:
                n = stops[j] - starts[j]
                source = order[starts[j] : stops[j]]
                target = positions[at : at + n]
                for i in range(n):
                    target[i] = source[i]
                at += n
            else:
                for i in range(starts[j], stops[j]):
                    if alive[order[i]]:
                        positions[at] = order[i]
                        at += 1
            distances[first:at] = slice_distances[j]


@njit(nogil=True, cache=True)
def _sort_positions(values: Array, scratch: Array, n_bits: int) -> None:
    """Sort integers below 2**n_bits in place: by insertion if short, else radix passes."""
    n = len(values)
    if n < SHORT:
        for i in range(1, n):
            value = values[i]
            j = i - 1
            while j >= 0 and values[j] > value:
                values[j + 1] = values[j]
                j -= 1
            values[j + 1] = value
        return
    counters = np.empty(1 << DIGIT, dtype=np.int64)
    for shift in range(0, n_bits, DIGIT):
        counters[:] = 0
        for i in range(n):
            counters[(values[i] >> shift) & ((1 << DIGIT) - 1)] += 1
        total = 0
        for d in range(1 << DIGIT):
            count = counters[d]
            counters[d] = total
            total += count
        for i in range(n):
            d = (values[i] >> shift) & ((1 << DIGIT) - 1)
            scratch[counters[d]] = values[i]
            counters[d] += 1
        values[:] = scratch[:n]


@njit(nogil=True, cache=True)
def sort_rings(item_offsets: Array, positions: Array, distances: Array, n_bits: int) -> None:
    """Sort positions (below 2**n_bits) inside every distance of every query."""
    longest = 0
    for q in range(len(item_offsets) - 1):
        longest = max(longest, item_offsets[q + 1] - item_offsets[q])
    scratch = np.empty(longest, dtype=np.int64)
    for q in range(len(item_offsets) - 1):
        start = item_offsets[q]
        while start < item_offsets[q + 1]:
            stop = start + 1
            ascending = True
            while stop < item_offsets[q + 1] and distances[stop] == distances[start]:
                ascending &= positions[stop] > positions[stop - 1]
                stop += 1
            if not ascending:
                _sort_positions(positions[start:stop], scratch, n_bits)
            start = stop


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
