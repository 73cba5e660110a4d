"""PCA with a Random Rotation (PCA-RR). The baseline of Y. Gong and S. Lazebnik, 2011; idea of H. Jegou et al., 2010.

Principal directions have very different variances, but every direction gets one bit. A random rotation distributes the
variance evenly. PCA-ITQ learns that rotation; here it is random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shorthash._arrays import Floats
from shorthash._validation import MAX_BITS
from shorthash.data.rows import Rows
from shorthash.learners.base import UnsupervisedHasher
from shorthash.learners.solvers import principal_directions, random_rotation

PCA_LIMIT = (
    "it has one principal direction per feature",
    "use fewer bits, or a method without that limit, such as LSH, SH or MFH",
)


@dataclass(eq=False, repr=False)
class PCARR(UnsupervisedHasher):
    r"""PCA with a random rotation.

    .. math:: h(x) = \mathrm{sgn}((x - m) V R)

    where

    - :math:`m` is the training mean,
    - :math:`V` (d, L) holds the principal directions,
    - :math:`R` (L, L) is a random orthogonal matrix.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64, and at most the number of features.
    random_state : int, RandomState instance or None, default=None
        Draws the rotation.

    Attributes
    ----------
    projection_ : (n_features_in, n_bits) the rotated principal directions
    intercept_ : (n_bits,) -mean_ @ projection_
    mean_ : (n_features_in,) the training mean
    rotation_ : (n_bits, n_bits) R

    References
    ----------
    Y. Gong, S. Lazebnik. Iterative Quantization: A Procrustean Approach to Learning Binary Codes. CVPR 2011,
    pages 817-824.

    H. Jegou, M. Douze, C. Schmid, P. Perez. Aggregating Local Descriptors into a Compact Image Representation.
    CVPR 2010, pages 3304-3311.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, _ = load_iris(return_X_y=True)
    >>> PCARR(n_bits=3, random_state=0).fit_transform(X).shape
    (150, 3)
    """

    _limit: ClassVar[tuple[str, str]] = PCA_LIMIT

    n_bits: int = 8
    random_state: int | np.random.RandomState | None = None

    def max_bits(self, n_features: int, n_classes: int | None = None) -> int:  # noqa: ARG002
        """One bit per principal direction."""
        return min(MAX_BITS, n_features)

    def _learn(self, rows: Rows, mean: Floats, rng: np.random.RandomState) -> None:
        """Find the principal directions and rotate them at random."""
        R = random_rotation(self.n_bits, rng)
        self._set_hyperplanes(mean, principal_directions(rows, self.n_bits) @ R)
        self.rotation_ = R
