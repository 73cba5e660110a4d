"""Locality-Sensitive Hashing (LSH) by random hyperplanes. M. S. Charikar, 2002.

The least one can do: hyperplanes through the mean of the rows, at random. Whatever claims to learn has to beat it.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from shorthash.learners.base import BaseHasher
from shorthash.learners.directions import centred

__all__ = ["LSH"]


class LSH(BaseHasher):
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

    def __init__(self, n_bits: int = 8, random_state: int | np.random.RandomState | None = None) -> None:
        self.n_bits = n_bits
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None) -> Self:  # noqa: ARG002
        """Measure the mean and draw the hyperplanes.

        Parameters
        ----------
        X : (n_samples, n_features) training rows
        y : ignored
        """
        rows = self._training_rows(X)
        n_bits = self._check_length(self.n_features_in_)
        rng = check_random_state(self.random_state)
        mean, _ = centred(rows)
        P = rng.normal(size=(self.n_features_in_, n_bits))
        self.mean_ = mean
        self.projection_ = P
        self.intercept_ = -mean @ P
        return self
