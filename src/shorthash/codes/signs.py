"""Codes as signs and as integers, Hamming distances, all codes within a radius, and how good a set of codes is.

The bit order: **column j of a code is bit j of its integer**, worth 2**j, and +1 is a set bit. So the code
``[+1, -1, -1, +1]`` is ``0b1001`` = 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._arrays import Codes, Counts, Distances, Floats, Labels, PackedCodes, is_foreign, namespace
from shorthash._labels import group_labels
from shorthash._validation import MAX_BITS, check_count, check_n_bits
from shorthash.errors import InvalidInput

FEW = 32  # integers up to which Python's min and max are quicker than NumPy's
MAX_BALL = 1 << 24  # masks held at once: 128 MiB of 64-bit integers


def sign(scores: NDArray[Any]) -> Codes:
    """Signs of real scores as int8: +1 where ``scores >= 0``, -1 elsewhere; a torch or CuPy array gives the same kind.

    The paper does not define ``sgn`` at 0, and MATLAB's ``sign(0)`` is 0, which is not a bit. Here 0 always becomes +1.

    Parameters
    ----------
    scores : (..., n_bits) real scores; 0 counts as positive

    Examples
    --------
    >>> sign(np.array([-2.0, 0.0, 3.0])).tolist()
    [-1, 1, 1]
    """
    if is_foreign(scores):
        xp = namespace(scores)
        codes: Codes = 2 * xp.astype(scores >= 0, xp.int8) - 1
        return codes
    return from_bool(np.asarray(scores) >= 0)


def from_bool(bits: NDArray[np.bool_]) -> Codes:
    """True becomes +1, False -1.

    Parameters
    ----------
    bits : array of any shape; True becomes +1

    Examples
    --------
    >>> from_bool(np.array([True, False])).tolist()
    [1, -1]
    """
    codes = np.asarray(bits, dtype=bool).astype(np.int8)
    codes <<= 1
    codes -= 1
    return codes


def to_bool(codes: NDArray[Any]) -> NDArray[np.bool_]:
    """+1 becomes True, -1 False.

    Parameters
    ----------
    codes : array of -1 and +1

    Examples
    --------
    >>> to_bool(np.array([1, -1])).tolist()
    [True, False]
    """
    return np.asarray(codes) > 0


@lru_cache(maxsize=MAX_BITS)
def packed_dtype(n_bits: int) -> np.dtype[np.unsignedinteger[Any]]:
    """The smallest unsigned type that holds ``n_bits`` bits.

    Parameters
    ----------
    n_bits : code length, 1 to 64

    Examples
    --------
    >>> [packed_dtype(n).name for n in (4, 10, 24, 64)]
    ['uint8', 'uint16', 'uint32', 'uint64']
    """
    n_bits = check_n_bits(n_bits, "packed_dtype")
    return np.min_scalar_type((1 << n_bits) - 1)


def pack(codes: ArrayLike) -> PackedCodes:
    """Turn +-1 codes, (n, n_bits), into integers, (n,).

    Parameters
    ----------
    codes : (n, n_bits) signs

    Examples
    --------
    >>> pack([[1, -1, -1, 1], [-1, -1, -1, -1]])
    array([9, 0], dtype=uint8)
    """
    return _pack_signs(as_codes(codes))


def unpack(packed: ArrayLike, n_bits: int) -> Codes:
    """Turn integers, (n,), into +-1 codes, (n, n_bits).

    Parameters
    ----------
    packed : (n,) integers
    n_bits : code length

    Examples
    --------
    >>> unpack(np.array([9], dtype=np.uint8), 4).tolist()
    [[1, -1, -1, 1]]
    """
    values = as_packed(packed, n_bits)
    octets = codes_to_bytes(values, n_bits)
    return from_bool(np.unpackbits(octets, axis=1, bitorder="little", count=n_bits).view(np.bool_))


def codes_to_bytes(codes: PackedCodes, n_bits: int) -> NDArray[np.uint8]:
    """Packed codes as whole bytes, low bits first, (n, n_bytes); bits beyond n_bits are 0."""
    little = codes.astype(codes.dtype.newbyteorder("<"), copy=False)
    octets = np.ascontiguousarray(little).view(np.uint8).reshape(len(codes), codes.dtype.itemsize)
    return np.ascontiguousarray(octets[:, : -(-n_bits // 8)])


def codes_from_bytes(octets: NDArray[np.uint8], n_bits: int) -> PackedCodes:
    """Packed codes of whole bytes, low bits first, (n,)."""
    dtype = packed_dtype(n_bits)
    padded = np.zeros((len(octets), dtype.itemsize), dtype=np.uint8)
    padded[:, : octets.shape[1]] = octets
    return padded.view(dtype.newbyteorder("<")).reshape(-1).astype(dtype, copy=False)


def as_codes(codes: ArrayLike, n_bits: int | None = None) -> Codes:
    """Codes as int8 signs of shape (n, n_bits); raises if they are anything else.

    Parameters
    ----------
    codes : (n, n_bits) signs, or (n,) integers
    n_bits : code length; needed for integers

    Examples
    --------
    >>> as_codes([[1.0, -1.0]]).dtype
    dtype('int8')
    """
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
    """Codes given as signs (2-d) or as integers (1-d), as integers of the smallest unsigned type.

    Parameters
    ----------
    codes : (n, n_bits) signs, or (n,) integers
    n_bits : code length

    Examples
    --------
    >>> as_packed([[1, -1, -1, 1]], 4), as_packed([9], 4)
    (array([9], dtype=uint8), array([9], dtype=uint8))
    """
    n_bits = check_n_bits(n_bits, "as_packed")
    values = np.asarray(codes)
    if values.ndim == 2:
        return _pack_signs(as_codes(values, n_bits))
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise InvalidInput(
            "Codes must be signs of shape (n_samples, n_bits) or integers of shape (n_samples,). "
            f"Got {values.dtype} of shape {values.shape} instead."
        )
    if len(values) and not _in_range(values, n_bits):
        raise InvalidInput(f"Packed codes of {n_bits} bits must lie in the range [0, 2**{n_bits} - 1].")
    return values.astype(packed_dtype(n_bits), copy=False)


def _in_range(values: NDArray[Any], n_bits: int) -> bool:
    """Whether integers fit a code length."""
    if len(values) <= FEW:
        listed: list[int] = values.tolist()
        return min(listed) >= 0 and max(listed) >> n_bits == 0
    return (values.dtype.kind == "u" or int(values.min()) >= 0) and int(values.max()) >> n_bits == 0


def code_length(codes: ArrayLike, n_bits: int | None, owner: str) -> int:
    """The number of bits of codes: the width of signs, or ``n_bits``, which packed integers need.

    Examples
    --------
    >>> code_length([[1, -1, 1]], None, "example"), code_length([5], 3, "example")
    (3, 3)
    """
    if n_bits is None and np.ndim(codes) != 2:
        raise InvalidInput(f"{owner} needs n_bits when codes are packed integers; pass n_bits=...")
    return int(np.shape(codes)[1]) if n_bits is None else check_n_bits(n_bits, owner)


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
    return np.asarray(np.bitwise_count(a[:, None] ^ b[None, :]))


def ball_size(n_bits: int, radius: int) -> int:
    """Count the codes within ``radius`` of any code of ``n_bits`` bits.

    Parameters
    ----------
    n_bits : code length
    radius : largest distance

    Examples
    --------
    >>> [ball_size(n, 2) for n in (4, 8, 12, 16)]
    [11, 37, 79, 137]
    """
    return sum(comb(n_bits, t) for t in range(min(radius, n_bits) + 1))


def ring_masks(n_bits: int, distance: int) -> PackedCodes:
    """All masks with exactly ``distance`` set bits, ascending.

    Parameters
    ----------
    n_bits : code length
    distance : number of bits that differ

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

    Parameters
    ----------
    n_bits : code length
    radius : largest distance

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

    Parameters
    ----------
    code : the centre, packed
    n_bits : code length
    radius : largest distance

    Examples
    --------
    >>> codes, distances = codes_within(0b01, n_bits=2, radius=1)
    >>> codes.tolist(), distances.tolist()
    ([1, 0, 3], [0, 1, 1])
    """
    masks, _ = ball_masks(n_bits, radius)
    center = as_packed(np.array([code], dtype=np.uint64), n_bits)[0]
    return masks ^ center, np.bitwise_count(masks)


def _pack_signs(signs: Codes) -> PackedCodes:
    """Checked signs as integers."""
    return codes_from_bytes(np.packbits(to_bool(signs), axis=1, bitorder="little"), signs.shape[1])


# quality of a set of codes --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CodeQuality:
    """Measures of a set of codes.

    Attributes
    ----------
    n_samples, n_bits : number of codes, and their length
    balance_degree : (n_bits,) |sum of the signs| of every bit; 0 is perfectly balanced (paper, section 2.2)
    bit_correlation : (n_bits, n_bits) mean product of two bits; the identity is perfectly uncorrelated (paper, eq. 5)
    entropy : entropy of the distribution over codes, in bits; at most ``min(n_bits, log2 n_samples)``
    occupied : the distinct codes, ascending, packed
    occupancy : samples per occupied code
    class_collisions : pairs of classes (label sets) whose most frequent code is the same; -1 without labels
    purity : share of samples that belong to the most frequent class of their code; nan without labels
    """

    n_samples: int
    n_bits: int
    balance_degree: Floats
    bit_correlation: Floats
    entropy: float
    occupied: PackedCodes
    occupancy: NDArray[np.intp]
    class_collisions: int
    purity: float

    @property
    def mean_correlation(self) -> float:
        """Mean absolute correlation between different bits (0 for a single bit)."""
        if self.n_bits == 1:
            return 0.0
        off = np.abs(self.bit_correlation) - np.eye(self.n_bits) * np.abs(np.diag(self.bit_correlation))
        return float(off.sum() / (self.n_bits * (self.n_bits - 1)))

    @property
    def imbalance(self) -> float:
        """Mean over bits of balance degree per sample: 0 is balanced, 1 is constant bits."""
        return float(self.balance_degree.mean() / self.n_samples)

    def to_dict(self) -> dict[str, float | int]:
        """The numbers that fit in a table."""
        return {
            "n_samples": self.n_samples,
            "n_bits": self.n_bits,
            "imbalance": self.imbalance,
            "mean_correlation": self.mean_correlation,
            "entropy": self.entropy,
            "occupied_codes": len(self.occupied),
            "largest_bucket": int(self.occupancy.max()),
            "class_collisions": self.class_collisions,
            "purity": self.purity,
        }


def code_quality(codes: ArrayLike, y: ArrayLike | None = None) -> CodeQuality:
    """Measure balance, correlation, entropy, occupancy and collisions between classes.

    Rows without a label count for all but the collisions and the purity.

    Parameters
    ----------
    codes : (n, n_bits) signs
    y : (n,) classes, for purity and collisions

    Examples
    --------
    >>> quality = code_quality([[1, 1], [1, -1], [-1, 1], [-1, -1]], y=["a", "a", "b", "b"])
    >>> quality.imbalance, quality.mean_correlation, quality.entropy, quality.purity
    (0.0, 0.0, 2.0, 1.0)
    """
    signs = as_codes(codes)
    n, n_bits = signs.shape
    if n == 0:
        raise InvalidInput("code_quality needs at least one code. Got none; encode some rows first.")
    H = signs.astype(np.float64)
    occupied, inverse, occupancy = np.unique(pack(signs), return_inverse=True, return_counts=True)
    p = occupancy / n
    collisions, purity = -1, float("nan")
    if y is not None:
        groups = group_labels(y, owner="code_quality", n_samples=n, drop_unlabelled=True)
        labelled = inverse.reshape(-1) if groups.kept is None else inverse.reshape(-1)[groups.kept]
        table = _items_per_code_and_group(labelled, groups.ids, (len(occupied), len(groups.rows)))
        home = table.argmax(axis=0)  # the most frequent code of every class
        sharing = np.bincount(home, minlength=len(occupied))
        collisions = int((sharing * (sharing - 1) // 2).sum())
        purity = float(table.max(axis=1).sum() / len(labelled))
    return CodeQuality(
        n_samples=n,
        n_bits=n_bits,
        balance_degree=np.abs(H.sum(axis=0)),
        bit_correlation=H.T @ H / n,
        entropy=float(-(p * np.log2(p)).sum()) + 0.0,
        occupied=occupied,
        occupancy=occupancy,
        class_collisions=collisions,
        purity=purity,
    )


@dataclass(frozen=True)
class Occupancy:
    """Items per bucket and class.

    Attributes
    ----------
    codes : (b,) occupied codes, packed, fullest first
    items : (b,) items in each
    by_class : (b, n_classes) items of each class in each; an item with several labels counts for each of them
    classes : (n_classes,) class names
    """

    codes: PackedCodes
    items: Counts
    by_class: Counts
    classes: Labels


def occupancy(codes: ArrayLike, labels: ArrayLike, n_bits: int | None = None) -> Occupancy:
    """Count the items of every occupied bucket, in all and by class.

    Parameters
    ----------
    codes : (n, n_bits) signs, or (n,) integers, which need ``n_bits``
    labels : (n,) class labels, or an (n, n_classes) indicator matrix
    n_bits : code length; needed for integers

    Examples
    --------
    >>> found = occupancy([[1, 1], [1, 1], [-1, 1]], ["cat", "dog", "dog"])
    >>> found.codes.tolist(), found.items.tolist(), found.by_class.tolist()
    ([3, 2], [2, 1], [[1, 1], [0, 1]])
    """
    packed = as_packed(codes, code_length(codes, n_bits, "occupancy"))
    groups = group_labels(labels, owner="occupancy", n_samples=len(packed), allow_unlabelled=True)
    occupied, inverse, items = np.unique(packed, return_inverse=True, return_counts=True)
    table = _items_per_code_and_group(inverse, groups.ids, (len(occupied), len(groups.rows)))
    order = np.argsort(-items, kind="stable")
    by_class = table[order] @ groups.rows.astype(np.int64)
    return Occupancy(occupied[order], items[order], by_class, np.asarray(groups.classes))


def _items_per_code_and_group(
    code_ids: NDArray[np.intp], group_ids: NDArray[np.intp], shape: tuple[int, int]
) -> NDArray[np.intp]:
    """Number of items of every (occupied code, label group)."""
    cells = code_ids.reshape(-1) * shape[1] + group_ids
    return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)
