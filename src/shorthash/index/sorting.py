"""Compiled loops that sort distinct positions in linear time, in the way that suits their number.

Where there are many, a bit is set for every position, and the bits are read word by word; where most words would be
empty, the positions are sorted by radix; a few are sorted by insertion. Codes of one byte give 64 bits at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, codegen, config, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from shorthash._arrays import njit
from shorthash.codes.levels import popcount

Array = np.ndarray[Any, Any]

FEW = 48  # up to this many items insertion sort is fastest
DENSE = 80  # with more than one item per this many positions, reading a whole bitmap is faster than the radix sort
DIGIT = 11  # bits per pass of the radix sort at most: its 2048 counters fit the first-level cache
GROUP = 4  # places written at once: one store of 32 bytes
_i8, _i32, _i64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_bytes, _bools, _group = ir.VectorType(_i8, 64), ir.VectorType(ir.IntType(1), 64), ir.VectorType(_i64, GROUP)


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


def _equal_bytes(_typing: Any, codes: Any, _at: Any, _query: Any, _distance: Any) -> Any:
    """How numba types and emits ``_equal``: a vector of 64 bytes, which every processor divides as it can."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        codes, at, query, distance = arguments
        start = builder.gep(context.make_array(signature.args[0])(context, builder, codes).data, [at])
        values = builder.load(builder.bitcast(start, _bytes.as_pointer()), align=1)
        differing = builder.xor(values, _repeated(builder, builder.trunc(query, _i8), _bytes))
        count: Any = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, ir.FunctionType(_bytes, [_bytes]), "llvm.ctpop.v64i8"
        )
        wanted = _repeated(builder, builder.trunc(distance, _i8), _bytes)
        return builder.bitcast(builder.icmp_unsigned("==", builder.call(count, [differing]), wanted), _i64)

    return types.uint64(codes, types.int64, types.uint64, types.int64), generate


_equal: Any = intrinsic(_equal_bytes)
"""A word with a bit for each of the 64 codes from a place on, set if the code has a distance from a query."""


@njit(nogil=True, cache=True)
def set_equal(bits: Array, codes: Array, query: Any, distance: int) -> None:
    """Set the bits of the codes, one byte each, at a distance from a query; the others are cleared."""
    whole = len(codes) // 64
    for i in range(whole):
        bits[i] = _equal(codes, 64 * i, query, distance)
    for i in range(64 * whole, len(codes)):
        if popcount(np.uint64(codes[i]) ^ query) == distance:
            _set(bits, np.uint64(i))


def _trailing_zeros(_typing: Any, _word: Any) -> Any:
    """How numba types and emits ``_first``: one machine instruction."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


_first: Any = intrinsic(_trailing_zeros)
"""The place of the first bit that is set in a word, 64 if none is."""


def has_compress() -> bool:
    """Whether code is compiled for a processor that can gather chosen bytes of a register."""
    chosen, of_host = getattr(config, "CPU_FEATURES", None), codegen.get_host_cpu_features  # NUMBA_CPU_FEATURES
    features: str = of_host() if chosen is None else chosen  # type: ignore[no-untyped-call]
    return "+avx512vbmi2" in features.split(",")


def _compress_places(_typing: Any, _word: Any, _base: Any, values: Any, _at: Any, _most: Any) -> Any:
    """How numba types and emits ``_put_wide``: a register with all places is compressed, by AVX-512 VBMI2."""
    signature = types.void(types.uint64, types.int64, values, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, base, values, at, most = arguments
        start = builder.gep(context.make_array(signature.args[2])(context, builder, values).data, [at])
        places = _compressed(builder, word)
        bases = _repeated(builder, base, _group)
        done = builder.append_basic_block("done")
        for g in range(0, 64, GROUP):
            chosen = ir.Constant(ir.VectorType(_i32, GROUP), list(range(g, g + GROUP)))
            group = builder.zext(builder.shuffle_vector(places, places, chosen), _group)
            target = builder.bitcast(builder.gep(start, [ir.Constant(_i64, g)]), _group.as_pointer())
            builder.store(builder.add(group, bases), target, align=8)
            following = builder.append_basic_block(f"from {g + GROUP}")
            builder.cbranch(builder.icmp_signed(">", most, ir.Constant(_i64, g + GROUP)), following, done)
            builder.position_at_end(following)
        builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return signature, generate


_put_wide: Any = intrinsic(_compress_places)
"""Write ``base`` plus the places of the bits set in ``word``, ascending, to ``values[at:]``; needs ``has_compress()``.

At least ``most`` places are written, in whole groups of GROUP: what follows the places that are set is overwritten.
``most`` must not be less than the number of bits set.
"""


def _repeated(builder: Any, value: Any, kind: Any) -> Any:
    """A vector with one value in all places."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_i32, 0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_i32, kind.count), None))


def _compressed(builder: Any, word: Any) -> Any:
    """64 bytes: the places of the bits set, then zeros."""
    kind = ir.FunctionType(_bytes, [_bytes, _bytes, _bools])
    compress: Any = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module, kind, "llvm.x86.avx512.mask.compress.v64i8"
    )
    every_place = ir.Constant(_bytes, list(range(64)))
    return builder.call(compress, [every_place, ir.Constant(_bytes, None), builder.bitcast(word, _bools)])


@njit(nogil=True, cache=True)
def read_wide(bits: Array, values: Array, usual: int) -> Any:
    """What ``read_any`` does; needs ``has_compress()``."""
    at, i = np.int64(0), np.int64(0)
    while at + 64 <= len(values):
        word = bits[i]
        bits[i] = 0
        count = np.int64(popcount(word))
        _put_wide(word, 64 * i, values, at, max(usual, count))
        at += count
        i += 1
    return i, at


@njit(nogil=True, cache=True)
def read_any(bits: Array, values: Array, usual: int) -> Any:
    """Read words while there is room for 64 places, at least ``usual`` from each; the next word and the next slot."""
    one, room, groups = np.uint64(1), np.uint64(64), usual // GROUP
    at, end, i = np.uint64(0), np.uint64(len(values)), np.int64(0)
    while at + room <= end:
        word, base, place = bits[i], 64 * i, at
        bits[i] = 0
        at += popcount(word)
        for _ in range(groups):
            for _ in range(GROUP):
                values[place] = base + _first(word)
                word &= word - one
                place += one
        while place < at:
            values[place] = base + _first(word)
            word &= word - one
            place += one
        i += 1
    return i, np.int64(at)


_read_whole: Any = read_wide if has_compress() else read_any


@njit(nogil=True, cache=True)
def read_bits(bits: Array, values: Array) -> None:
    """Write the places of the ``len(values)`` bits that are set, ascending; all are zero afterwards.

    A mispredicted branch costs more than writing a few places, so the same number is written for every word, enough for
    nearly all words, and the next word overwrites the surplus. The last words, where that would go beyond the end, are
    read bit by bit.
    """
    share = len(values) / len(bits)
    groups = int(share + np.sqrt(share) + GROUP - 1) // GROUP
    i, at = _read_whole(bits, values, min(64, GROUP * groups))
    while at < len(values):
        word = bits[i]
        bits[i] = 0
        while word:
            values[at] = 64 * i + _first(word)
            word &= word - np.uint64(1)
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
