"""Compiled loops: build a bucket table, find buckets around queries, and copy their items. All release the GIL.

Legend, shared by all functions:

===============  ======================================================================================================
queries          (m,) uint64, packed codes
masks            (b,) uint64, the ball around zero by distance; ``masks[rings[t]:rings[t + 1]]`` have t set bits
table            the tuple (direct, keys, bounds, order)
keys             (u,) uint64, the occupied codes, ascending; not used if ``direct``
bounds           bucket i is ``order[bounds[i]:bounds[i + 1]]``; i is the code if ``direct``, else its place in ``keys``
order            (n,) positions of the items, bucket by bucket, ascending inside a bucket
alive            (n',) bool by position, items that may be found; empty: all of them
k                a query is finished with the first distance at which it has k items
slices           the tuple (offsets, starts, stops, distances): query q owns the slices ``offsets[q]`` to
                 ``offsets[q + 1] - 1``, by distance; slice j is ``order[starts[j]:stops[j]]``
scratch          what ``sort_space`` returns, if items are to be sorted inside a distance; else empty
codes            (n,) uint8 by position, the codes of up to 8 bits, which may help to sort; else empty
===============  ======================================================================================================
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import njit
from shorthash.codes import ball_masks
from shorthash.index.sorting import bitmap, is_dense, read_bits, set_all, set_equal, sort

Array = np.ndarray[Any, Any]

SHORT = 48  # items up to which a bucket is copied one by one


@lru_cache(maxsize=64)
def ball(n_bits: int, radius: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Masks of the Hamming ball as uint64, by distance, and where each distance starts."""
    masks, rings = ball_masks(n_bits, radius)
    return masks.astype(np.uint64), rings.astype(np.int64)


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


# finding buckets ------------------------------------------------------------------------------------------------------


@njit(inner=True, nogil=True, cache=True, allocates=False)
def _bucket_of(code: Any, direct: bool, keys: Array, bounds: Array) -> Any:
    """Range of the bucket of a code; empty if the code does not occur."""
    if direct:  # unsigned subscripts need no check for negative ones
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


@njit(inner=True, nogil=True, cache=True, allocates=False)
def n_alive(start: Any, stop: Any, order: Array, alive: Array) -> Any:
    """Items of a bucket that may be found."""
    if len(alive) == 0:
        return stop - start
    n = 0
    for i in range(start, stop):
        n += alive[order[i]]
    return n


@njit(inner=True, nogil=True, cache=True, allocates=False)
def _size_ring(query: Any, masks: Array, table: Any, alive: Array) -> Any:
    """Occupied buckets and items under some masks."""
    direct, keys, bounds, order = table
    slices = items = np.int64(0)
    if direct and len(alive) == 0:  # the common case has a separate loop, so that the compiler can vectorise it
        for j in range(len(masks)):
            code = query ^ masks[j]
            n = np.int64(bounds[code + np.uint64(1)]) - np.int64(bounds[code])
            slices += n > 0
            items += n
    else:
        for j in range(len(masks)):
            start, stop = _bucket_of(query ^ masks[j], direct, keys, bounds)
            slices += stop > start
            items += n_alive(start, stop, order, alive)
    return slices, items


@njit(nogil=True, cache=True, allocates=False)
def size_probed(
    queries: Array, masks: Array, rings: Array, table: Any, alive: Array, k: int, n_slices: Array, n_items: Array
) -> None:
    """Count the occupied buckets and items in the ball of every query, up to the distance that finishes it."""
    for q in range(len(queries)):
        n_slices[q] = 0
        n_items[q] = 0
        for t in range(len(rings) - 1):
            slices, items = _size_ring(queries[q], masks[rings[t] : rings[t + 1]], table, alive)
            n_slices[q] += slices
            n_items[q] += items
            if n_items[q] >= k:
                break


@njit(inner=True, nogil=True, cache=True, allocates=False)
def _fill_ring(query: Any, masks: Array, table: Any, at: Any, starts: Array, stops: Array) -> Any:
    """Write the occupied buckets under some masks from slot ``at`` on; the next free slot."""
    direct, keys, bounds, _ = table
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
            start, stop = _bucket_of(query ^ masks[j], direct, keys, bounds)
            if stop > start:
                starts[at] = start
                stops[at] = stop
                at += 1
    return at


@njit(nogil=True, cache=True, allocates=False)
def fill_probed(queries: Array, masks: Array, rings: Array, table: Any, slices: Any) -> None:
    """Write the ``offsets[q + 1] - offsets[q]`` nearest occupied buckets of every query, by distance."""
    offsets, starts, stops, distances = slices
    for q in range(len(queries)):
        at = offsets[q]
        t = 0
        while at < offsets[q + 1]:
            end = _fill_ring(queries[q], masks[rings[t] : rings[t + 1]], table, at, starts, stops)
            distances[at:end] = t
            at = end
            t += 1


@njit(nogil=True, cache=True, allocates=False)
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


# copying items --------------------------------------------------------------------------------------------------------


@njit(inner=True, nogil=True, cache=True, allocates=False)
def _copy_bucket(start: int, stop: int, order: Array, alive: Array, positions: Array, at: Any) -> Any:
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
    queries: Array, slices: Any, order: Array, alive: Array, items: Any, scratch: Array, codes: Array
) -> None:
    """Copy the items of all slices of every query, sorted inside every distance if there is ``scratch``.

    ``items`` is the tuple (sets, starts, positions, distances): what query q finds is written to ``positions`` and
    ``distances`` from each of ``starts[sets[q]:sets[q + 1]]`` on.
    """
    offsets, starts, stops, slice_distances = slices
    sets, targets, positions, distances = items
    for q in range(len(offsets) - 1):
        top = at = targets[sets[q]]
        first = offsets[q]
        while first < offsets[q + 1]:
            begin = at
            last = first
            while last < offsets[q + 1] and slice_distances[last] == slice_distances[first]:
                last += 1
            ring = queries[q], np.int64(slice_distances[first]), starts[first:last], stops[first:last]
            at = _copy_ring(ring, order, alive, positions, at, scratch, codes)
            distances[begin:at] = slice_distances[first]
            first = last
        for j in range(sets[q] + 1, sets[q + 1]):
            _copy_run(positions, top, targets[j], at - top)
            _copy_run(distances, top, targets[j], at - top)


@njit(nogil=True, cache=True, allocates=False)
def _copy_run(values: Array, start: Any, target: Any, count: Any) -> None:
    """Copy values of an array to another place in it."""
    source, to = values[start : start + count], values[target : target + count]
    for i in range(count):
        to[i] = source[i]


@njit(inner=True, nogil=True, cache=True)
def _copy_ring(ring: Any, order: Array, alive: Array, positions: Array, at: Any, scratch: Array, codes: Array) -> Any:
    """Copy the buckets of one distance from slot ``at`` on, sorted if there is ``scratch``; the next free slot.

    ``ring`` is the tuple (query, distance, starts, stops).
    """
    query, distance, starts, stops = ring
    ordered = len(scratch) > 0 and len(starts) > 1
    if ordered and len(alive) == 0:
        count = (stops - starts).sum()
        if is_dense(count, len(order)):
            bits = bitmap(scratch, len(order))
            if len(codes):
                set_equal(bits, codes, query, distance)
            else:
                for j in range(len(starts)):
                    set_all(bits, order[starts[j] : stops[j]])
            read_bits(bits, positions[at : at + count])
            return at + count
    begin = at
    for j in range(len(starts)):
        at = _copy_bucket(starts[j], stops[j], order, alive, positions, at)
    if ordered:
        sort(positions[begin:at], scratch, len(order))
    return at


@njit(nogil=True, cache=True)
def gather_probed(
    queries: Array, masks: Array, rings: Array, table: Any, alive: Array, scratch: Array, codes: Array, most: int
) -> Any:
    """Positions, distances and offsets of all items under some masks, in one call; only offsets if beyond ``most``."""
    direct, _, bounds, order = table
    offsets = np.zeros(len(queries) + 1, dtype=np.int64)
    for q in range(len(queries)):
        offsets[q + 1] = offsets[q] + _size_ring(queries[q], masks, table, alive)[1]
    total = offsets[-1] if offsets[-1] <= most else 0
    positions = np.empty(total, dtype=np.int64)
    distances = np.empty(total, dtype=np.uint8)
    if total == 0:
        return positions, distances, offsets
    ordered = len(scratch) > 0
    # a call costs more than copying a few items, and less than copying many without wide instructions
    bare = direct and len(alive) == 0 and total < SHORT * len(masks) * len(queries)
    starts = np.empty(0 if bare else len(masks), dtype=np.int64)
    stops = np.empty(len(starts), dtype=np.int64)
    at = np.int64(0)
    for q in range(len(queries)):
        for t in range(len(rings) - 1):
            begin = at
            if bare:
                for j in range(rings[t], rings[t + 1]):
                    code = queries[q] ^ masks[j]
                    for i in range(np.uint64(bounds[code]), np.uint64(bounds[code + np.uint64(1)])):
                        positions[at] = order[i]
                        at += 1
                if ordered and t > 0 and at > begin + 1:
                    sort(positions[begin:at], scratch, len(order))
            else:
                n = _fill_ring(queries[q], masks[rings[t] : rings[t + 1]], table, np.int64(0), starts, stops)
                ring = queries[q], t, starts[:n], stops[:n]
                at = _copy_ring(ring, order, alive, positions, at, scratch, codes)
            distances[begin:at] = t
    return positions, distances, offsets


@njit(nogil=True, cache=True, allocates=False)
def size_cells(
    cells: Array, shares: Array, offsets: Array, enough: float, table: Any, pending: Array, alive: Array, sizes: Any
) -> None:
    """Count the cells that are looked up and their items, for every query.

    Parameters
    ----------
    cells, shares, offsets, enough : the fields of ``Probes``; ``cells`` as uint64
    pending : (p,) uint64, codes of the items behind those of the table
    sizes : the tuple (n_cells, n_items), (m,) each, to be written
    """
    direct, keys, bounds, order = table
    n_cells, n_items = sizes
    for q in range(len(offsets) - 1):
        expected = 0.0
        n_cells[q] = 0
        n_items[q] = 0
        for j in range(offsets[q], offsets[q + 1]):
            if expected >= enough:
                break
            start, stop = _bucket_of(cells[j], direct, keys, bounds)
            n = n_alive(start, stop, order, alive)
            for i in range(len(pending)):
                n += pending[i] == cells[j] and (len(alive) == 0 or alive[len(order) + i])
            expected += n * shares[j]
            n_cells[q] += 1
            n_items[q] += n


@njit(nogil=True, cache=True, allocates=False)
def copy_cells(
    cells: Array, offsets: Array, table: Any, pending: Array, alive: Array, sizes: Any, positions: Array, places: Array
) -> None:
    """Copy the items counted by ``size_cells``: ``positions`` and ``places``, both (n_items in all,)."""
    direct, keys, bounds, order = table
    n_cells, _ = sizes
    at = np.int64(0)
    for q in range(len(offsets) - 1):
        for place in range(n_cells[q]):
            begin = at
            cell = cells[offsets[q] + place]
            start, stop = _bucket_of(cell, direct, keys, bounds)
            at = _copy_bucket(start, stop, order, alive, positions, at)
            for i in range(len(pending)):
                if pending[i] == cell and (len(alive) == 0 or alive[len(order) + i]):
                    positions[at] = len(order) + i
                    at += 1
            places[begin:at] = place


@njit(nogil=True, cache=True)
def take_nearest(slices: Any, order: Array, alive: Array, positions: Array, distances: Array) -> None:
    """The first ``positions.shape[1]`` items of every query by distance, then position; ``starts`` is overwritten."""
    offsets, starts, stops, slice_distances = slices
    heap = np.empty(max(1, len(starts)), dtype=np.int64)
    for q in range(len(offsets) - 1):
        at = np.int64(0)
        first = offsets[q]
        while at < positions.shape[1] and first < offsets[q + 1]:
            last = first
            while last < offsets[q + 1] and slice_distances[last] == slice_distances[first]:
                last += 1
            begin = at
            at = _merge_ring(starts[first:last], stops[first:last], order, alive, heap, positions[q], at)
            distances[q, begin:at] = slice_distances[first]
            first = last


@njit(nogil=True, cache=True)
def take_probed(
    queries: Array, masks: Array, rings: Array, table: Any, alive: Array, positions: Array, distances: Array
) -> Any:
    """The same by probing, in one call; how many of the first queries were finished within the masks."""
    starts = np.empty(len(masks), dtype=np.int64)
    stops = np.empty(len(masks), dtype=np.int64)
    heap = np.empty(len(masks), dtype=np.int64)
    order = table[3]
    for q in range(len(queries)):
        at = np.int64(0)
        for t in range(len(rings) - 1):
            n = _fill_ring(queries[q], masks[rings[t] : rings[t + 1]], table, np.int64(0), starts, stops)
            begin = at
            at = _merge_ring(starts[:n], stops[:n], order, alive, heap, positions[q], at)
            distances[q, begin:at] = t
            if at == positions.shape[1]:
                break
        if at < positions.shape[1]:
            return q
    return len(queries)


@njit(inner=True, nogil=True, cache=True, allocates=False)
def _merge_ring(starts: Array, stops: Array, order: Array, alive: Array, heap: Array, positions: Array, at: Any) -> Any:
    """Fill ``positions`` from slot ``at`` with the smallest positions of some buckets; the next free slot.

    A heap holds the buckets, the one with the smallest next position on top; ``starts`` is overwritten.
    """
    if len(starts) == 1 and len(alive) == 0:
        n = min(stops[0] - starts[0], len(positions) - at)
        for i in range(n):
            positions[at + i] = order[starts[0] + i]
        return at + n
    size = np.int64(0)
    for j in range(len(starts)):
        starts[j] = _advance(starts[j], stops[j], order, alive)
        if starts[j] < stops[j]:
            heap[size] = j
            size += 1
    for parent in range(size // 2 - 1, -1, -1):
        _sift_down(heap, parent, size, order, starts)
    while at < len(positions) and size > 0:
        top = heap[0]
        positions[at] = order[starts[top]]
        at += 1
        starts[top] = _advance(starts[top] + 1, stops[top], order, alive)
        if starts[top] == stops[top]:
            size -= 1
            heap[0] = heap[size]
        if size > 1:
            _sift_down(heap, np.int64(0), size, order, starts)
    return at


@njit(inner=True, nogil=True, cache=True, allocates=False)
def _advance(cursor: int, stop: int, order: Array, alive: Array) -> int:
    """The next item of a bucket that may be found."""
    if len(alive):
        while cursor < stop and not alive[order[cursor]]:
            cursor += 1
    return cursor


@njit(inner=True, nogil=True, cache=True, allocates=False)
def _sift_down(heap: Array, parent: Any, size: Any, order: Array, cursors: Array) -> None:
    """Restore the heap, of slices by their next position, under a place that has changed."""
    moving = heap[parent]
    value = order[cursors[moving]]
    child = 2 * parent + 1
    while child < size:
        if child + 1 < size and order[cursors[heap[child + 1]]] < order[cursors[heap[child]]]:
            child += 1
        if order[cursors[heap[child]]] >= value:
            break
        heap[parent] = heap[child]
        parent = child
        child = 2 * parent + 1
    heap[parent] = moving
