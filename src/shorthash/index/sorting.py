"""Compiled loops that sort distinct positions in linear time, in the way that suits their number.

A bit is set for every position, and the bits are read word by word. Where most words would be empty, a mark is kept for
every word that is not. Where even the marks are too many, the positions are sorted by radix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shorthash.codes.levels import popcount

Array = np.ndarray[Any, Any]

FEW = 48  # up to this many items insertion sort is fastest
SPARSE = 1 << 15  # with more than one item in so many positions, a bitmap is faster than the radix sort
MARKED = 128  # with more than one item in so many positions, reading every word is faster than finding those with bits
DIGIT = 11  # bits per pass of the radix sort: its 2048 counters fit the first-level cache


def sort_space(n: int) -> NDArray[np.uint64]:
    """Zeros for sorting positions below n, and zeros afterwards: bits and marks, or values and counters of a radix."""
    n_words = (n >> 6) + 1
    return np.zeros(max(n_words + (n_words >> 6) + 1, n // SPARSE + FEW + 1 + (1 << DIGIT)), dtype=np.uint64)


@njit(nogil=True, cache=True)
def is_sparse(count: int, n: int) -> bool:
    """Whether the radix sort orders ``count`` positions below n faster than a bitmap does."""
    return count * SPARSE < n


@njit(nogil=True, cache=True)
def bitmap(scratch: Array, count: int, n: int) -> Any:
    """A bit for each of n positions, and a mark for every word of bits; no marks if most words will have a bit."""
    n_words = (n >> 6) + 1
    n_marks = 0 if count * MARKED > n else (n_words >> 6) + 1
    return scratch[:n_words], scratch[n_words : n_words + n_marks]


@njit(nogil=True, cache=True)
def sort(values: Array, scratch: Array, n: int) -> None:
    """Sort distinct positions below n in the way that suits their number."""
    if len(values) <= FEW:
        _sort_few(values)
    elif is_sparse(len(values), n):
        _sort_sparse(values, scratch[1 << DIGIT :], scratch[: 1 << DIGIT], n)
        scratch[: len(values) + (1 << DIGIT)] = 0
    else:
        bits, marks = bitmap(scratch, len(values), n)
        set_all(bits, marks, values)
        read_bits(bits, marks, values)


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


@njit(nogil=True, cache=True, inline="always")
def _set(bits: Array, place: Any) -> None:
    """Set one bit; unsigned subscripts need no check for negative ones."""
    bits[place >> np.uint64(6)] |= np.uint64(1) << (place & np.uint64(63))


@njit(nogil=True, cache=True)
def set_all(bits: Array, marks: Array, places: Array) -> None:
    """Set bits, and the marks of their words if there are any.

    Without marks from four runs at once: where places ascend, two in a row often fall in one word and would wait.
    """
    if len(marks):
        for i in range(len(places)):
            place = np.uint64(places[i])
            _set(bits, place)
            _set(marks, place >> np.uint64(6))
        return
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
def read_bits(bits: Array, marks: Array, values: Array) -> None:
    """Write the places of the ``len(values)`` bits that are set, ascending; all are zero afterwards."""
    one = np.uint64(1)
    if len(marks) == 0:
        _read_words(bits, values)
        return
    at = 0
    for m in range(len(marks)):
        mark = marks[m]
        marks[m] = 0
        while mark:
            i = np.uint64(64 * m + _first(mark))
            mark &= mark - one
            word = bits[i]
            bits[i] = 0
            while word:
                values[at] = np.int64(64 * i) + _first(word)
                word &= word - one
                at += 1


@njit(nogil=True, cache=True)
def _read_words(bits: Array, values: Array) -> None:
    """The same, word by word.

    A wrong guess of a branch costs more than a few places: so many are written for every word as nearly all words have
    bits, in groups of four, set or not, and the next word overwrites what was too much. The last words, where that
    would go beyond the end, are read bit by bit.
    """
    one, share = np.uint64(1), len(values) / len(bits)
    groups = min(16, int((share + 2.0 * np.sqrt(share)) / 4.0) + 1)
    at: Any = 0
    i = 0
    while at + 64 <= len(values):
        word = bits[i]
        bits[i] = 0
        base, place = 64 * i, np.uint64(at)
        at += np.int64(popcount(word))
        left = groups
        while left > 0 or word:
            for _ in range(4):
                values[place] = base + _first(word)
                word &= word - one
                place += one
            left -= 1
        i += 1
    while at < len(values):
        word = bits[i]
        bits[i] = 0
        while word:
            values[at] = 64 * i + _first(word)
            word &= word - one
            at += 1
        i += 1


@njit(nogil=True, cache=True)
def _sort_sparse(values: Array, scratch: Array, counters: Array, n: int) -> None:
    """Sort integers below n by radix, in passes of equal width."""
    one = np.uint64(1)
    width = 1
    while n >> width:
        width += 1
    passes = (width + DIGIT - 1) // DIGIT
    digit = (width + passes - 1) // passes
    last = np.uint64((1 << digit) - 1)
    counters = counters[: 1 << digit]
    for k in range(passes):
        shift = np.uint64(k * digit)
        counters[:] = 0
        for i in range(len(values)):
            counters[(np.uint64(values[i]) >> shift) & last] += one
        total = np.uint64(0)
        for d in range(len(counters)):
            count = counters[d]
            counters[d] = total
            total += count
        for i in range(len(values)):
            place = (np.uint64(values[i]) >> shift) & last
            scratch[counters[place]] = values[i]
            counters[place] += one
        for i in range(len(values)):
            values[i] = np.int64(scratch[i])
