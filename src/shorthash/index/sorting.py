"""Compiled loops that sort distinct positions in linear time, in the way that suits their number.

Where there are many, a bit is set for every position, and the bits are read word by word; where most words would be
empty, the positions are sorted by radix; a few are sorted by insertion.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._compiled import njit
from shorthash.codes.levels import popcount
from shorthash.index import wide
from shorthash.index.wide import GROUP

Array = np.ndarray[Any, Any]

FEW = 48  # up to this many items insertion sort is fastest
DENSE = 80  # with more than one item in so many positions, reading every word of a bitmap is faster than the radix sort
DIGIT = 11  # bits per pass of the radix sort at most: its 2048 counters fit the first-level cache


def sort_space(n: int) -> NDArray[np.uint64]:
    """Room for sorting positions below n: zeros for a bitmap, zeros afterwards; then counters and values of a radix."""
    return np.zeros((n >> 6) + 1 + (1 << DIGIT) + n // DENSE + FEW + 1, dtype=np.uint64)


@njit(nogil=True, cache=True)
def is_dense(count: int, n: int) -> bool:
    """Whether a bitmap orders ``count`` positions below n faster than the radix sort does."""
    return count > FEW and count * DENSE > n


@njit(nogil=True, cache=True)
def bitmap(scratch: Array, n: int) -> Array:
    """A bit for each of n positions, none of them set."""
    return scratch[: (n >> 6) + 1]


@njit(nogil=True, cache=True)
def sort(values: Array, scratch: Array, n: int) -> None:
    """Sort distinct positions below n in the way that suits their number."""
    if len(values) <= FEW:
        _sort_few(values)
    elif is_dense(len(values), n):
        bits = bitmap(scratch, n)
        set_all(bits, values)
        read_bits(bits, values)
    else:
        _sort_sparse(values, scratch[(n >> 6) + 1 :], n)


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


# bitmaps --------------------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True, inline="always")
def _set(bits: Array, place: Any) -> None:
    """Set one bit; unsigned subscripts need no check for negative ones."""
    bits[place >> np.uint64(6)] |= np.uint64(1) << (place & np.uint64(63))


@njit(nogil=True, cache=True)
def set_all(bits: Array, places: Array) -> None:
    """Set bits, from four runs at once: where places ascend, two in a row often fall in one word and would wait."""
    n = len(places) // 4
    a, b, c, d = places[:n], places[n : 2 * n], places[2 * n : 3 * n], places[3 * n : 4 * n]
    for i in range(n):
        _set(bits, np.uint64(a[i]))
        _set(bits, np.uint64(b[i]))
        _set(bits, np.uint64(c[i]))
        _set(bits, np.uint64(d[i]))
    for i in range(4 * n, len(places)):
        _set(bits, np.uint64(places[i]))


@njit(nogil=True, cache=True, inline="always")
def _first(word: Any) -> Any:
    """The place of the first bit that is set: the number of zeros before it."""
    return np.int64(popcount(~word & (word - np.uint64(1))))


@njit(nogil=True, cache=True)
def put_any(word: Any, base: int, values: Array, at: Any, most: int) -> None:
    """What ``wide.put_places`` does, on every processor."""
    one, place = np.uint64(1), np.uint64(at)
    while most > 0:
        for _ in range(GROUP):
            values[place] = base + _first(word)
            word &= word - one
            place += one
        most -= GROUP


put_places: Any = wide.put_places if wide.has_compress() else put_any


@njit(nogil=True, cache=True)
def read_bits(bits: Array, values: Array) -> None:
    """Write the places of the ``len(values)`` bits that are set, ascending; all are zero afterwards.

    A wrong guess of a branch costs more than a few places: so many are written for every word as nearly all words have
    bits, set or not, and the next word overwrites what was too much. The last words, where that would go beyond the
    end, are read bit by bit.
    """
    one, share = np.uint64(1), len(values) / len(bits)
    usual = min(64, int(share + 2.0 * np.sqrt(share)) + 1)
    at = np.int64(0)
    i = 0
    while at + 64 <= len(values):
        word = bits[i]
        bits[i] = 0
        count = np.int64(popcount(word))
        put_places(word, 64 * i, values, at, max(usual, count))
        at += count
        i += 1
    while at < len(values):
        word = bits[i]
        bits[i] = 0
        while word:
            values[at] = 64 * i + _first(word)
            word &= word - one
            at += 1
        i += 1


# radix sort -----------------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def _sort_sparse(values: Array, room: Array, n: int) -> None:
    """Sort integers below n by radix, in passes of equal width: as few as leave not many more counters than values."""
    width = _bits_of(n)
    digit = min(DIGIT, _bits_of(len(values)))
    passes = (width + digit - 1) // digit
    digit = (width + passes - 1) // passes
    counters, other = room[: 1 << digit], room[1 << DIGIT : (1 << DIGIT) + len(values)]
    for k in range(passes):
        shift = np.uint64(k * digit)
        if k % 2 == 0:
            _radix_pass(values, other, counters, shift)
        else:
            _radix_pass(other, values, counters, shift)
    if passes % 2:
        for i in range(len(values)):
            values[i] = other[i]


@njit(nogil=True, cache=True)
def _radix_pass(source: Array, target: Array, counters: Array, shift: Any) -> None:
    """Sort by one digit; stable."""
    one, last = np.uint64(1), np.uint64(len(counters) - 1)
    for d in range(len(counters)):
        counters[d] = 0
    for i in range(len(source)):
        counters[(np.uint64(source[i]) >> shift) & last] += one
    total = np.uint64(0)
    for d in range(len(counters)):
        count = counters[d]
        counters[d] = total
        total += count
    for i in range(len(source)):
        value = np.uint64(source[i])
        place = (value >> shift) & last
        target[counters[place]] = value
        counters[place] += one


@njit(nogil=True, cache=True)
def _bits_of(n: int) -> int:
    """Bits that it takes to write n."""
    width = 0
    while n >> width:
        width += 1
    return width
