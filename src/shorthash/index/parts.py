"""Find codes near a query by comparing codes in full: all of them, or (multi-index hashing) those that share a part.

Long codes are cut into parts, each part short enough to be an address. Two codes within distance r of each other agree
to within r // m in at least one of m parts. So the codes that can be near a query are those that share a part with it,
nearly or fully; only these are compared in full. Every such code is kept by the first part that finds it, so none is
found twice.

Legend, shared by all functions:

=======  ==========================================================================================================
parts    the tuple (keys, shifts, widths, bounds, order, masks, rings, reach)
keys     (u,) uint64, the occupied codes
shifts   (m,) uint64, part j of a code begins at bit ``shifts[j]``
widths   (m,) uint64, and has ``widths[j]`` bits
bounds   (m, 2**b + 1) the codes whose part j is v are ``order[j, bounds[j, v]:bounds[j, v + 1]]``
order    (m, u) places in ``keys``
masks    the ball around zero over b bits, by distance; ``masks[:rings[t + 1]]`` have at most t set bits
reach    (m,) how far a code may be from the query in part j to be found there; -1: part j is skipped
=======  ==========================================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import njit
from shorthash.codes import ball_size
from shorthash.codes.levels import popcount
from shorthash.index.kernels import ball, counting_sort, n_alive

Array = np.ndarray[Any, Any]

MAX_RINGS = 65  # distances 0 to 64
SCATTERED = 4  # comparing one code out of order costs as much as comparing this many in order


@dataclass(frozen=True, eq=False)
class CodeParts:
    """The occupied codes of a table, addressed by part.

    Attributes
    ----------
    keys : (u,) uint64, the codes
    shifts, widths, bounds, order : see the legend of this module
    """

    keys: NDArray[np.uint64]
    shifts: NDArray[np.uint64]
    widths: NDArray[np.uint64]
    bounds: NDArray[np.uint32]
    order: NDArray[np.uint32]

    @classmethod
    def build(cls, keys: NDArray[np.uint64], n_bits: int, m: int) -> CodeParts:
        """Cut codes into m parts; with 0 parts every search compares all codes."""
        b = -(-n_bits // m) if m else 0
        shifts = np.arange(m, dtype=np.uint64) * np.uint64(b)
        widths = np.minimum(np.uint64(b), np.uint64(n_bits) - shifts)
        bounds = np.zeros((m, (1 << b) + 1), dtype=np.uint32)
        order = np.empty((m, len(keys)), dtype=np.uint32)
        for j in range(m):
            values = (keys >> shifts[j]) & ((np.uint64(1) << widths[j]) - np.uint64(1))
            counting_sort(values, bounds[j], order[j])
        return cls(keys, shifts, widths, bounds, order)

    def within(self, radius: int) -> tuple[Array, ...]:
        """The tuple ``parts`` that the compiled loops take, for a search within ``radius``."""
        reach, masks, rings = _reach(len(self.shifts), int(self.widths.max(initial=0)), radius)
        return self.keys, self.shifts, self.widths, self.bounds, self.order, masks, rings, reach


def n_parts(n_bits: int, n_codes: int) -> int:
    """How many parts: as many bits in each as it takes to count the codes, 24 at most."""
    bits = min(24, max(8, n_codes.bit_length()))
    return -(-n_bits // bits)


def expected_looks(n_bits: int, n_codes: int, radius: int) -> float:
    """Codes and addresses that a search looks at if codes are spread evenly."""
    m = n_parts(n_bits, n_codes)
    b = -(-n_bits // m)
    reach, _, _ = _reach(m, b, radius)
    return sum(ball_size(b, int(t)) * (2 + SCATTERED * n_codes / (1 << b)) for t in reach if t >= 0)


@lru_cache(maxsize=256)
def _reach(m: int, b: int, radius: int) -> tuple[Array, Array, Array]:
    """How far to look in every part, and the masks for that.

    With r = s m + a, it cannot be that each of the first a + 1 parts differs by more than s and every other part by
    more than s - 1: that would make (a + 1)(s + 1) + (m - a - 1) s = r + 1 in all.
    """
    s, a = divmod(radius, max(1, m))
    reach = np.array([s if j <= a else s - 1 for j in range(m)], dtype=np.int64)
    return reach, *ball(max(1, b), min(s, b))


@njit(nogil=True, cache=True)
def _n_candidates(
    query: Any, shifts: Array, widths: Array, bounds: Array, masks: Array, rings: Array, reach: Array
) -> Any:
    """Codes to be compared in full, with repetitions."""
    total = np.int64(0)
    for j in range(len(shifts)):
        part = (query >> shifts[j]) & ((np.uint64(1) << widths[j]) - np.uint64(1))
        for i in range(rings[min(reach[j] + 1, len(rings) - 1)]):
            value = part ^ masks[i]
            if value >> widths[j] == 0:
                total += np.int64(bounds[j, value + np.uint64(1)]) - np.int64(bounds[j, value])
    return total


@njit(nogil=True, cache=True)
def _found_before(different: Any, j: int, shifts: Array, widths: Array, reach: Array) -> Any:
    """Whether a code was within reach in a part before part j."""
    for i in range(j):
        bits = (different >> shifts[i]) & ((np.uint64(1) << widths[i]) - np.uint64(1))
        if np.int64(popcount(bits)) <= reach[i]:
            return True
    return False


@njit(nogil=True, cache=True)
def _collect(query: Any, radius: int, parts: Any, found: Array, distances: Array) -> Any:
    """Write places and distances of all codes within ``radius``, and return how many there are."""
    keys, shifts, widths, bounds, order, masks, rings, reach = parts
    n = np.int64(0)
    if len(shifts) == 0 or SCATTERED * _n_candidates(query, shifts, widths, bounds, masks, rings, reach) > len(keys):
        for i in range(len(keys)):
            distance = np.int64(popcount(keys[i] ^ query))
            found[n] = i  # overwritten by the next code if this one is too far
            distances[n] = distance
            n += distance <= radius
        return n
    for j in range(len(shifts)):
        part = (query >> shifts[j]) & ((np.uint64(1) << widths[j]) - np.uint64(1))
        for i in range(rings[min(reach[j] + 1, len(rings) - 1)]):  # none if reach is -1: rings begins with 0
            value = part ^ masks[i]
            if value >> widths[j] != 0:
                continue
            for place in range(bounds[j, value], bounds[j, value + np.uint64(1)]):
                different = keys[order[j, place]] ^ query
                distance = np.int64(popcount(different))
                if distance <= radius and not _found_before(different, j, shifts, widths, reach):
                    found[n] = order[j, place]
                    distances[n] = distance
                    n += 1
    return n


@njit(nogil=True, cache=True)
def size_compared(
    queries: Array,
    radius: int,
    parts: Any,
    bounds: Array,
    order: Array,
    alive: Array,
    k: int,
    n_slices: Array,
    n_items: Array,
) -> None:
    """Count buckets and items as ``size_probed`` does; ``bounds`` are those of the buckets of ``keys``."""
    found = np.empty(len(parts[0]) + 1, dtype=np.uint32)
    distances = np.empty(len(parts[0]) + 1, dtype=np.uint8)
    slices = np.zeros(MAX_RINGS, dtype=np.int64)
    items = np.zeros(MAX_RINGS, dtype=np.int64)
    for q in range(len(queries)):
        n = _collect(queries[q], radius, parts, found, distances)
        slices[:] = 0
        items[:] = 0
        for j in range(n):
            i = found[j]
            slices[distances[j]] += 1
            if len(alive) == 0:  # no call: it would cost more than all the rest
                items[distances[j]] += np.int64(bounds[i + 1]) - np.int64(bounds[i])
            else:
                items[distances[j]] += n_alive(np.int64(bounds[i]), np.int64(bounds[i + 1]), order, alive)
        n_slices[q] = 0
        n_items[q] = 0
        for ring in range(radius + 1):
            n_slices[q] += slices[ring]
            n_items[q] += items[ring]
            if n_items[q] >= k:
                break


@njit(nogil=True, cache=True)
def fill_compared(queries: Array, radius: int, parts: Any, bounds: Array, result: Any) -> None:
    """Write the nearest occupied buckets of every query as ``fill_probed`` does."""
    offsets, starts, stops, slice_distances = result
    found = np.empty(len(parts[0]) + 1, dtype=np.uint32)
    distances = np.empty(len(parts[0]) + 1, dtype=np.uint8)
    cursors = np.zeros(MAX_RINGS + 1, dtype=np.int64)
    for q in range(len(queries)):
        n = _collect(queries[q], radius, parts, found, distances)
        cursors[:] = 0
        for j in range(n):
            cursors[distances[j] + 1] += 1
        cursors[0] = offsets[q]
        for ring in range(1, MAX_RINGS + 1):
            cursors[ring] += cursors[ring - 1]
        for j in range(n):
            at = cursors[distances[j]]
            if at < offsets[q + 1]:
                starts[at] = bounds[found[j]]
                stops[at] = bounds[found[j] + 1]
                slice_distances[at] = distances[j]
                cursors[distances[j]] += 1
