"""Compiled loops that build a bucket table and find buckets. All run without the GIL and write only where told.

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
    "bucket_of",
    "counting_sort",
    "fill_probed",
    "fill_scanned",
    "list_probed",
    "n_alive",
    "popcount",
    "size_probed",
    "size_ring",
    "size_scanned",
]

Array = np.ndarray[Any, Any]

MAX_RINGS = 65  # distances 0 to 64


def _popcount_intrinsic(_context: Any, _word: Any) -> Any:
    """Set bits of a uint64, one machine instruction."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


popcount: Any = intrinsic(_popcount_intrinsic)
"""Set bits of a uint64, inside compiled loops."""


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
def bucket_of(code: Any, direct: bool, keys: Array, bounds: Array) -> Any:
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
def n_alive(start: Any, stop: Any, order: Array, alive: Array) -> Any:
    """Items of a bucket that may be found."""
    if len(alive) == 0:
        return stop - start
    n = 0
    for i in range(start, stop):
        n += alive[order[i]]
    return n


@njit(nogil=True, cache=True)
def size_ring(query: Any, masks: Array, direct: bool, keys: Array, bounds: Array, order: Array, alive: Array) -> Any:
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
            start, stop = bucket_of(query ^ masks[j], direct, keys, bounds)
            slices += stop > start
            items += n_alive(start, stop, order, alive)
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
            slices, items = size_ring(queries[q], ring, direct, keys, bounds, order, alive)
            n_slices[q] += slices
            n_items[q] += items
            if n_items[q] >= k:
                break


@njit(nogil=True, cache=True)
def _fill_ring(
    query: Any, masks: Array, direct: bool, keys: Array, bounds: Array, at: Any, starts: Array, stops: Array
) -> Any:
    """Write the occupied buckets under some masks from slot ``at`` on; the next free slot."""
    if direct:
        for j in range(len(masks)):
            code = query ^ masks[j]
            start, stop = bounds[code], bounds[code + np.uint64(1)]
            if stop > start:
                starts[at] = start
                stops[at] = stop
                at += 1
    else:
        for j in range(len(masks)):
            start, stop = bucket_of(query ^ masks[j], direct, keys, bounds)
            if stop > start:
                starts[at] = start
                stops[at] = stop
                at += 1
    return at


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
        at = offsets[q]
        t = 0
        while at < offsets[q + 1]:
            ring = masks[rings[t] : rings[t + 1]]
            end = _fill_ring(queries[q], ring, direct, keys, bounds, at, starts, stops)
            distances[at:end] = t
            at = end
            t += 1


@njit(nogil=True, cache=True)
def list_probed(
    queries: Array, masks: Array, rings: Array, bounds: Array, n_slices: Array, buckets: Array, distances: Array
) -> None:
    """Write all occupied buckets of every query, one after another, and how many each has; direct addressing only."""
    at = np.int64(0)
    for q in range(len(queries)):
        n_slices[q] = -at
        for t in range(len(rings) - 1):
            begin = at
            for j in range(rings[t], rings[t + 1]):
                code = queries[q] ^ masks[j]
                buckets[at] = code
                at += bounds[code + np.uint64(1)] > bounds[code]
            distances[begin:at] = t
        n_slices[q] += at


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
            t = np.int64(popcount(keys[i] ^ queries[q]))
            if t > radius:
                continue
            slices[t] += 1
            if len(alive) == 0:  # no call: it would cost more than all the rest
                items[t] += np.int64(bounds[i + 1]) - np.int64(bounds[i])
            else:
                items[t] += n_alive(np.int64(bounds[i]), np.int64(bounds[i + 1]), order, alive)
        n_slices[q] = 0
        n_items[q] = 0
        for ring in range(radius + 1):
            n_slices[q] += slices[ring]
            n_items[q] += items[ring]
            if n_items[q] >= k:
                break


@njit(nogil=True, cache=True)
def fill_scanned(
    queries: Array,
    radius: int,
    keys: Array,
    bounds: Array,
    offsets: Array,
    starts: Array,
    stops: Array,
    distances: Array,
) -> None:
    """The same as ``fill_probed`` by looking at every occupied code."""
    cursors = np.zeros(MAX_RINGS + 1, dtype=np.int64)
    for q in range(len(queries)):
        cursors[:] = 0
        for i in range(len(keys)):
            t = np.int64(popcount(keys[i] ^ queries[q]))
            if t <= radius:
                cursors[t + 1] += 1
        cursors[0] = offsets[q]
        for ring in range(1, MAX_RINGS + 1):
            cursors[ring] += cursors[ring - 1]
        for i in range(len(keys)):
            t = np.int64(popcount(keys[i] ^ queries[q]))
            if t > radius:
                continue
            at = cursors[t]
            if at < offsets[q + 1]:
                starts[at] = bounds[i]
                stops[at] = bounds[i + 1]
                distances[at] = t
                cursors[t] += 1
