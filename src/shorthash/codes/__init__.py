"""Binary codes: signs, packed integers, Hamming distances, and how good a set of codes is.

A code is a row of int8 signs, (n_samples, n_bits), or the integer that these signs pack into. Level counts and the
average precision that follows from them are in :mod:`shorthash.codes.levels`.
"""

from shorthash.codes.quality import CodeQuality, Occupancy, code_quality, occupancy
from shorthash.codes.signs import (
    as_codes,
    as_packed,
    ball_masks,
    ball_size,
    codes_within,
    from_bool,
    hamming_distances,
    pack,
    packed_dtype,
    ring_masks,
    sign,
    to_bool,
    unpack,
)

__all__ = [
    "CodeQuality",
    "Occupancy",
    "as_codes",
    "as_packed",
    "ball_masks",
    "ball_size",
    "code_quality",
    "codes_within",
    "from_bool",
    "hamming_distances",
    "occupancy",
    "pack",
    "packed_dtype",
    "ring_masks",
    "sign",
    "to_bool",
    "unpack",
]
