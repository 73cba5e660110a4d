"""Canonical Correlation Analysis with Iterative Quantization (CCA-ITQ).

Y. Gong, S. Lazebnik, A. Gordo, F. Perronnin, 2013.

ITQ on the directions in which features and labels correlate most, instead of the principal directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.utils import check_random_state

from shorthash._arrays import Floats
from shorthash._validation import MAX_BITS
from shorthash.learners.base import SupervisedHasher
from shorthash.learners.itq import learn_rotation
from shorthash.learners.solvers import centred
from shorthash.learners.sums import GroupStatistics


@dataclass(eq=False, repr=False)
class CCAITQ(SupervisedHasher):
    r"""Canonical Correlation Analysis with Iterative Quantization.

    The l-th direction has the largest correlation with the labels that is left,

    .. math::
        \rho_l = \max_{w, v} \frac{w^T C_{xy} v}{\sqrt{w^T (C_{xx} + \epsilon I) w \cdot v^T (C_{yy} + \epsilon I) v}},
        \quad w \perp_{C_{xx} + \epsilon I} w_1, \dots, w_{l-1}

    and the rows, embedded as :math:`Z = (X - m)\,[\rho_1 w_1, \dots, \rho_L w_L]`, are rotated to minimise
    :math:`\|H - ZR\|^2`, where

    - :math:`C_{xx}, C_{yy}, C_{xy}` are the covariances of features, labels (0/1), and between them,
    - :math:`\epsilon` is the ridge,
    - :math:`m` is the training mean, :math:`R` (L, L) a rotation and :math:`H` (n, L) the codes.

    Labels of c classes have at most c - 1 directions, so codes are shorter than the number of classes.

    Parameters
    ----------
    n_bits : int, default=8
        Code length: less than the number of classes, and at most the number of features.
    ridge : float, default=1e-4
        Added to the variances of features and labels.
    max_iter : int, default=50
        Maximum number of iterations of ITQ; fewer if the codes stop changing.
    drop_unlabelled : bool, int or str, default=False
        Drop rows without a label (None, NaN, "", an empty set, a row of zeros) instead of raising; a value such as -1
        or "unknown" also drops the rows that have it as their label.
    random_state : int, RandomState instance or None, default=None
        Draws the first rotation.

    Attributes
    ----------
    projection_ : (n_features_in, n_bits) the rotated canonical directions
    intercept_ : (n_bits,) -mean_ @ projection_
    mean_ : (n_features_in,) the training mean
    classes_ : (c,) the classes
    correlations_ : (n_bits,) canonical correlations, descending
    rotation_ : (n_bits, n_bits) R
    objective_ : (n_iter_,) the quantisation error after every iteration
    n_iter_ : int, iterations of ITQ
    n_dropped_ : int, rows without label

    References
    ----------
    Y. Gong, S. Lazebnik, A. Gordo, F. Perronnin. Iterative Quantization: A Procrustean Approach to Learning Binary
    Codes for Large-Scale Image Retrieval. IEEE TPAMI 35(12), 2013, pages 2916-2929.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = CCAITQ(n_bits=2, random_state=0).fit(X, y)
    >>> hasher.correlations_.round(2).tolist()
    [0.98, 0.47]
    """

    _positive: ClassVar[tuple[str, ...]] = ("ridge",)
    _limit: ClassVar[tuple[str, str]] = (
        "it has one canonical direction per feature at most, and one per class less one",
        "use fewer bits, or a supervised method without that limit, such as RSLH or KSH",
    )

    n_bits: int = 8
    ridge: float = 1e-4
    max_iter: int = 50
    drop_unlabelled: bool | int | str = False
    random_state: int | np.random.RandomState | None = None

    def max_bits(self, n_features: int, n_classes: int | None = None) -> int:
        """One bit per canonical direction: fewer than classes, no more than features."""
        return min(MAX_BITS, n_features, MAX_BITS if n_classes is None else n_classes - 1)

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Find the canonical directions and the rotation.

        Parameters
        ----------
        X : (n_samples, n_features) training rows
        y : (n_samples,) class labels, or an (n_samples, n_classes) indicator matrix of 0/1 or -1/+1
        """
        self._check_params()
        rows = self._training_rows(X)
        groups = self._training_groups(y, len(rows), drop_unlabelled=self.drop_unlabelled)
        n_bits = self._check_length(self.n_features_in_, len(groups.classes))
        rng = check_random_state(self.random_state)
        n_dropped = len(rows) - groups.n_samples
        mean, rows = centred(rows.keep(groups.kept))
        W, correlations = _canonical_directions(GroupStatistics.of(rows, groups), n_bits, self.ridge)
        V = W * correlations
        R, objective = learn_rotation(rows.times(V), self.max_iter, rng)
        self.n_dropped_ = n_dropped
        self.classes_ = groups.classes
        self.correlations_ = correlations
        self.rotation_ = R
        self.objective_ = objective
        self.n_iter_ = len(objective)
        self._set_hyperplanes(mean, V @ R)
        return self


def _canonical_directions(statistics: GroupStatistics, n: int, ridge: float) -> tuple[Floats, Floats]:
    """Directions w, (d, n), and correlations, (n,), from the sums over centred rows.

    Legend: Cxx (d, d), Cyy (c, c) regularised covariances, Cxy (d, c); Rx'Rx = Cxx and Ry'Ry = Cyy are Cholesky
    factors. The singular triplets of Rx^-T Cxy Ry^-1 are the correlations and the directions Rx w, Ry v.
    """
    Yg, N = statistics.rows.astype(np.float64), statistics.counts
    freedom = max(statistics.n_samples - 1, 1)
    share = N @ Yg / N.sum()  # (c,) mean of the labels
    Cxx = statistics.gram / freedom + ridge * np.eye(statistics.n_features)
    Cyy = (Yg - share).T @ (N[:, None] * (Yg - share)) / freedom + ridge * np.eye(len(share))
    Cxy = statistics.sums @ (Yg - share) / freedom
    Rx, Ry = linalg.cholesky(Cxx, check_finite=False), linalg.cholesky(Cyy, check_finite=False)
    left = linalg.solve_triangular(Rx, Cxy, trans="T", check_finite=False)
    whitened = linalg.solve_triangular(Ry, left.T, trans="T", check_finite=False).T
    U, s, _ = linalg.svd(whitened, full_matrices=False, check_finite=False)
    U = U[:, :n]
    peaks = U[np.abs(U).argmax(axis=0), np.arange(n)]
    W = linalg.solve_triangular(Rx, U * np.where(peaks < 0, -1.0, 1.0), check_finite=False)
    return np.asarray(W), np.asarray(s[:n])
