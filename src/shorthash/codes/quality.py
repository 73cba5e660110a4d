"""How good a set of codes is before it is searched: balance, correlation, buckets, classes per bucket."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._arrays import Counts, Floats, Labels, PackedCodes
from shorthash._labels import group_labels
from shorthash.codes.signs import as_codes, as_packed, code_length, pack
from shorthash.errors import InvalidInput


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
