"""Locality-Sensitive Hashing (LSH) by random hyperplanes. M. S. Charikar, 2002.

The least one can do: hyperplanes through the mean of the rows, at random. Whatever claims to learn has to beat it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shorthash._types import Floats
from shorthash.data.rows import Rows
from shorthash.learners.base import UnsupervisedHasher


@dataclass(eq=False, repr=False)
class LSH(UnsupervisedHasher):
    r"""Locality-Sensitive Hashing by random hyperplanes.

    Nothing is learned but the mean. Two rows fall on different sides of a random hyperplane with a probability
    proportional to the angle between them,

    .. math:: \Pr[h_l(x) \ne h_l(z)] = \theta(x - m, z - m) / \pi, \quad h_l(x) = \mathrm{sgn}((x - m) p_l)

    where

    - :math:`m` is the training mean,
    - :math:`p_l` is the l-th column of the projection, standard normal,
    - :math:`\theta` is the angle between two rows as seen from the mean,

    so the Hamming distance estimates the angle, the better the longer the code.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64.
    random_state : int, RandomState instance or None, default=None
        Draws the hyperplanes.

    Attributes
    ----------
    projection_ : (n_features_in, n_bits) normals of the hyperplanes
    intercept_ : (n_bits,) puts the hyperplanes through the mean
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
