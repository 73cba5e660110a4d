"""Locality-Sensitive Hashing (LSH) by random hyperplanes. M. S. Charikar, 2002.

Random hyperplanes through the mean of the rows: the baseline that every learned method should beat.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shorthash._arrays import Floats
from shorthash.data.rows import Rows
from shorthash.learners.base import UnsupervisedHasher


@dataclass(eq=False, repr=False)
class LSH(UnsupervisedHasher):
    r"""Locality-Sensitive Hashing by random hyperplanes.

    Only the mean is learned. Two rows fall on different sides of a random hyperplane with a probability
    proportional to the angle between them,

    .. math:: \Pr[h_l(x) \ne h_l(z)] = \theta(x - m, z - m) / \pi, \quad h_l(x) = \mathrm{sgn}((x - m) p_l)

    where

    - :math:`m` is the training mean,
    - :math:`p_l` is the l-th column of the projection, standard normal,
    - :math:`\theta` is the angle between two rows, measured at the mean,

    so the Hamming distance estimates the angle; longer codes estimate it better.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64.
    random_state : int, RandomState instance or None, default=None
        Draws the hyperplanes.

    Attributes
    ----------
    projection_ : (n_features_in, n_bits) normals of the hyperplanes
    intercept_ : (n_bits,) -mean_ @ projection_
    mean_ : (n_features_in,) the training mean

    References
    ----------
    M. S. Charikar. Similarity Estimation Techniques from Rounding Algorithms. STOC 2002, pages 380-388.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, _ = load_iris(return_X_y=True)
    >>> LSH(n_bits=6, random_state=0).fit_transform(X).shape
    (150, 6)
    """

    n_bits: int = 8
    random_state: int | np.random.RandomState | None = None

    def _learn(self, rows: Rows, mean: Floats, rng: np.random.RandomState) -> None:  # noqa: ARG002
        """Draw the hyperplanes."""
        self._set_hyperplanes(mean, rng.normal(size=(len(mean), self.n_bits)))
