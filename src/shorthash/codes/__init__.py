"""What a hasher emits: signs, their packed form, distances between them, and how good they are.

In: real scores. Out: codes as int8 signs, (n_samples, n_bits), or as packed integers.
"""

from shorthash.codes.hamming import ball_masks, ball_size, codes_within, hamming_distances, ring_masks
from shorthash.codes.packing import as_codes, as_packed, pack, packed_dtype, unpack
from shorthash.codes.quality import CodeQuality, code_quality
from shorthash.codes.signs import from_bool, sign, to_bool

__all__ = [
    "CodeQuality",
    "as_codes",
    "as_packed",
    "ball_masks",
    "ball_size",
    "code_quality",
    "codes_within",
    "from_bool",
    "hamming_distances",
    "pack",
    "packed_dtype",
    "ring_masks",
    "sign",
    "to_bool",
    "unpack",
]
