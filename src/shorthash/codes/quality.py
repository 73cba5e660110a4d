"""How good a set of codes is, before anyone searches with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shorthash._labels import group_labels
from shorthash._types import Floats, PackedCodes
from shorthash.codes.packing import as_codes, pack
from shorthash.errors import InvalidInput

__all__ = ["CodeQuality", "code_quality"]


@dataclass(frozen=True)
class CodeQuality:
    """Health of a set of codes.

    Attributes
    ----------
    n_samples, n_bits : shape of the codes
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
    occupancy: np.ndarray[Any, np.dtype[np.intp]]
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
        """The figures that fit in a table."""
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
        table = _cross_table(inverse.reshape(-1), group_labels(y, owner="code_quality", n_samples=n).ids, len(occupied))
        home = table.argmax(axis=0)  # the most frequent code of every class
        sharing = np.bincount(home, minlength=len(occupied))
        collisions = int((sharing * (sharing - 1) // 2).sum())
        purity = float(table.max(axis=1).sum() / n)
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


def _cross_table(
    code_ids: np.ndarray[Any, np.dtype[np.intp]], class_ids: np.ndarray[Any, np.dtype[np.intp]], n_codes: int
) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Samples per (occupied code, class)."""
    n_classes = int(class_ids.max()) + 1
    return np.bincount(code_ids * n_classes + class_ids, minlength=n_codes * n_classes).reshape(n_codes, n_classes)
