"""Hamming distances, and all codes within a radius in order of distance."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._types import Distances, PackedCodes
from shorthash._validation import check_count, check_n_bits
from shorthash.codes.signs import as_packed, code_length, packed_dtype
from shorthash.errors import InvalidInput

__all__ = ["ball_masks", "ball_size", "codes_within", "hamming_distances", "ring_masks"]

MAX_BALL = 1 << 24  # masks held at once: 128 MiB of 64-bit integers


def hamming_distances(codes: ArrayLike, others: ArrayLike, n_bits: int | None = None) -> Distances:
    """Distances between every code and every other, (n, m).

    Parameters
    ----------
    codes, others : signs of shape (n, n_bits), or integers of shape (n,), which need ``n_bits``
    n_bits : code length of integers

    Examples
    --------
    >>> hamming_distances([[1, 1, -1]], [[1, 1, 1], [-1, -1, 1]]).tolist()
    [[1, 3]]
    """
    n_bits = code_length(others, n_bits, "hamming_distances")
    a, b = as_packed(codes, n_bits), as_packed(others, n_bits)
    distances: Distances = np.bitwise_count(a[:, None] ^ b[None, :])
    return distances


def ball_size(n_bits: int, radius: int) -> int:
    """Count the codes within ``radius`` of any code of ``n_bits`` bits.

    Examples
    --------
    >>> [ball_size(n, 2) for n in (4, 8, 12, 16)]
    [11, 37, 79, 137]
    """
    return sum(comb(n_bits, t) for t in range(min(radius, n_bits) + 1))


def ring_masks(n_bits: int, distance: int) -> PackedCodes:
    """All masks with exactly ``distance`` set bits, ascending.

    Examples
    --------
    >>> [f"{mask:04b}" for mask in ring_masks(4, 1)]
    ['0001', '0010', '0100', '1000']
    """
    n_bits = check_n_bits(n_bits, "ring_masks")
    distance = check_count(distance, "distance", "ring_masks", low=0)
    dtype = packed_dtype(n_bits)
    if distance > n_bits:
        return np.empty(0, dtype=dtype)
    if comb(n_bits, distance) > MAX_BALL:
        raise InvalidInput(
            f"{comb(n_bits, distance)} codes lie at distance {distance} of {n_bits}-bit codes, too many to enumerate; "
            "scan the items instead, or use a smaller radius."
        )
    sums = (sum(1 << bit for bit in bits) for bits in combinations(range(n_bits), distance))
    masks = np.fromiter(sums, dtype=dtype, count=comb(n_bits, distance))
    masks.sort()
    return masks


def ball_masks(n_bits: int, radius: int) -> tuple[PackedCodes, NDArray[np.intp]]:
    """All masks within ``radius`` in order of distance, and where each distance starts.

    Returns
    -------
    masks : (ball_size,) XOR with a code gives its ball, nearest first; ascending inside a distance
    offsets : (radius + 2,) masks[offsets[t]:offsets[t + 1]] have exactly t set bits

    Examples
    --------
    >>> masks, offsets = ball_masks(3, 1)
    >>> masks.tolist(), offsets.tolist()
    ([0, 1, 2, 4], [0, 1, 4])
    """
    n_bits = check_n_bits(n_bits, "ball_masks")
    radius = min(check_count(radius, "radius", "ball_masks", low=0), n_bits)
    if ball_size(n_bits, radius) > MAX_BALL:
        raise InvalidInput(
            f"{ball_size(n_bits, radius)} codes lie within radius {radius} of {n_bits}-bit codes, too many to "
            "enumerate; scan the items instead, or use a smaller radius."
        )
    rings = [ring_masks(n_bits, t) for t in range(radius + 1)]
    offsets = np.concatenate([[0], np.cumsum([len(r) for r in rings])])
    return np.concatenate(rings), offsets.astype(np.intp)


def codes_within(code: int, n_bits: int, radius: int) -> tuple[PackedCodes, Distances]:
    """All codes within ``radius`` of a packed code, nearest first, with their distances.

    Examples
    --------
    >>> codes, distances = codes_within(0b01, n_bits=2, radius=1)
    >>> codes.tolist(), distances.tolist()
    ([1, 0, 3], [0, 1, 1])
    """
    masks, _ = ball_masks(n_bits, radius)
    center = as_packed(np.array([code], dtype=np.uint64), n_bits)[0]
    return masks ^ center, np.bitwise_count(masks)
