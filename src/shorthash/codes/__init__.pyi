from .signs import CodeQuality as CodeQuality
from .signs import Occupancy as Occupancy
from .signs import as_codes as as_codes
from .signs import as_packed as as_packed
from .signs import ball_masks as ball_masks
from .signs import ball_size as ball_size
from .signs import code_quality as code_quality
from .signs import codes_within as codes_within
from .signs import from_bool as from_bool
from .signs import hamming_distances as hamming_distances
from .signs import occupancy as occupancy
from .signs import pack as pack
from .signs import packed_dtype as packed_dtype
from .signs import ring_masks as ring_masks
from .signs import sign as sign
from .signs import to_bool as to_bool
from .signs import unpack as unpack

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
