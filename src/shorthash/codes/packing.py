"""Codes as signs and as integers.

The bit order, stated once: **column j of a code is bit j of its integer**, worth 2**j; +1 is a set bit. So the code
``[+1, -1, -1, +1]`` is ``0b1001`` = 9.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._types import Codes, PackedCodes
from shorthash._validation import MAX_BITS, check_n_bits
from shorthash.codes.signs import from_bool, to_bool
from shorthash.errors import InvalidInput

__all__ = ["as_codes", "as_packed", "pack", "packed_dtype", "unpack"]


@lru_cache(maxsize=MAX_BITS)
def packed_dtype(n_bits: int) -> np.dtype[np.unsignedinteger[Any]]:
    """Return the smallest unsigned type that holds ``n_bits`` bits.

    Examples
    --------
    >>> [packed_dtype(n).name for n in (4, 10, 24, 64)]
    ['uint8', 'uint16', 'uint32', 'uint64']
    """
    n_bits = check_n_bits(n_bits, "packed_dtype")
    for size in (8, 16, 32, 64):
        if n_bits <= size:
            return np.dtype(f"uint{size}")
    raise AssertionError("n_bits was checked")


def pack(codes: ArrayLike) -> PackedCodes:
    """Turn +-1 codes, (n, n_bits), into integers, (n,).

    Examples
    --------
    >>> pack([[1, -1, -1, 1], [-1, -1, -1, -1]])
    array([9, 0], dtype=uint8)
    """
    return _pack_signs(as_codes(codes))


def unpack(packed: ArrayLike, n_bits: int) -> Codes:
    """Turn integers, (n,), into +-1 codes, (n, n_bits).

    Examples
    --------
    >>> unpack(np.array([9], dtype=np.uint8), 4).tolist()
    [[1, -1, -1, 1]]
    """
    values = as_packed(packed, n_bits)
    wide = values.astype(values.dtype.newbyteorder("<"), copy=False)
    octets = np.ascontiguousarray(wide).view(np.uint8).reshape(len(values), values.dtype.itemsize)
    return from_bool(np.unpackbits(octets, axis=1, bitorder="little", count=n_bits).view(np.bool_))


def as_codes(codes: ArrayLike, n_bits: int | None = None) -> Codes:
    """Check that ``codes`` are signs of shape (n, n_bits) and return them as int8."""
    values = np.asarray(codes)
    if values.ndim != 2 or not 1 <= values.shape[1] <= MAX_BITS:
        raise InvalidInput(
            f"Codes must have shape (n_samples, n_bits) with n_bits from 1 to {MAX_BITS}. Got shape {values.shape} "
            "instead; pack() and unpack() translate between signs and integers."
        )
    if n_bits is not None and values.shape[1] != n_bits:
        raise InvalidInput(f"Codes must have {n_bits} bits here. Got {values.shape[1]} instead.")
    if values.dtype.kind not in "if" or not np.all(np.abs(values) == 1):
        raise InvalidInput("Codes must hold only -1 and +1 (0/1 bits: from_bool() turns them into signs).")
    return values.astype(np.int8, copy=False)


def as_packed(codes: ArrayLike, n_bits: int) -> PackedCodes:
    """Accept codes as signs (2-d) or as unsigned integers (1-d) and return integers of the smallest type."""
    n_bits = check_n_bits(n_bits, "as_packed")
    values = np.asarray(codes)
    if values.ndim == 2:
        return _pack_signs(as_codes(values, n_bits))
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise InvalidInput(
            "Codes must be signs of shape (n_samples, n_bits) or integers of shape (n_samples,). "
            f"Got {values.dtype} of shape {values.shape} instead."
        )
    if len(values) and _out_of_range(values, n_bits):
        raise InvalidInput(f"Packed codes of {n_bits} bits must lie in the range [0, 2**{n_bits} - 1].")
    return values.astype(packed_dtype(n_bits), copy=False)


def _pack_signs(signs: Codes) -> PackedCodes:
    """Checked signs as integers."""
    dtype = packed_dtype(signs.shape[1])
    packed_bytes = np.zeros((len(signs), dtype.itemsize), dtype=np.uint8)
    used = -(-signs.shape[1] // 8)
    packed_bytes[:, :used] = np.packbits(to_bool(signs), axis=1, bitorder="little")
    return packed_bytes.view(dtype.newbyteorder("<")).reshape(-1).astype(dtype, copy=False)


def _out_of_range(values: NDArray[Any], n_bits: int) -> bool:
    """Whether an integer does not fit ``n_bits`` bits."""
    if values.dtype.kind == "i" and int(values.min()) < 0:
        return True
    return int(values.max()) >> n_bits > 0
