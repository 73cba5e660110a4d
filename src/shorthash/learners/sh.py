"""Spectral Hashing (SH). Y. Weiss, A. Torralba, R. Fergus, 2008.

A box is fitted to the rows in their principal directions. Were the rows uniform in that box, the smoothest functions on
it would be cosines along its axes; their signs are the bits. Wide axes get several bits of growing frequency, narrow
ones none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Floats
from shorthash._rounding import FEW, UNIT, Rounded, Scored, linear, product
from shorthash.data.rows import Rows
from shorthash.learners.base import UnsupervisedHasher
from shorthash.learners.solvers import principal_directions

EPS = float(np.finfo(np.float64).eps)  # margin of the box, as in the authors' code: no axis has width 0


@dataclass(eq=False, repr=False)
class SH(UnsupervisedHasher):
    r"""Spectral Hashing.

    Of the eigenfunctions of the Laplacian on a box, those of the L smallest eigenvalues, the constant one left out:

    .. math::
        u_l(x) = \cos\Bigl(\pi k_l \frac{z_{j_l} - a_{j_l}}{b_{j_l} - a_{j_l}}\Bigr),
        \quad \lambda_l = \Bigl(\frac{\pi k_l}{b_{j_l} - a_{j_l}}\Bigr)^2, \quad z = (x - m) V

    where

    - :math:`m` is the training mean and :math:`V` holds the first min(L, d) principal directions,
    - :math:`a_j, b_j` are the smallest and largest training value in direction j,
    - :math:`k_l \ge 1` is the mode and :math:`j_l` the axis of the l-th bit.

    There are no parameters to choose and nothing is random. An axis can have several bits, so any length is defined.
    Hash functions are not linear and have no ``projection_``.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64.

    Attributes
    ----------
    mean_ : (n_features_in,) the training mean
    directions_ : (n_features_in, p) the principal directions, p the lesser of n_bits and n_features_in
    lower_ : (p,) lower corner of the box
    width_ : (p,) its edges
    modes_ : (n_bits, p) int, the mode of every bit on every axis; one entry per bit is not 0

    References
    ----------
    Y. Weiss, A. Torralba, R. Fergus. Spectral Hashing. NIPS 2008, pages 1753-1760.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, _ = load_iris(return_X_y=True)
    >>> hasher = SH(n_bits=4).fit(X)
    >>> hasher.modes_.tolist()  # two half waves on the longest axis come before one on the second
    [[1, 0, 0, 0], [2, 0, 0, 0], [0, 1, 0, 0], [3, 0, 0, 0]]
    """

    n_bits: int = 8

    def _learn(self, rows: Rows, mean: Floats, rng: np.random.RandomState) -> None:  # noqa: ARG002
        """Fit the box and choose the modes."""
        self.directions_ = principal_directions(rows, min(self.n_bits, len(mean)))
        self.lower_, upper = _box(rows, self.directions_)
        self.mean_ = mean
        self.width_ = upper - self.lower_
        self.modes_ = _smoothest_modes(self.width_, self.n_bits)

    def _scores(self, X: Rounded, *, exact: bool) -> Scored:
        """The cosines, (n_samples, n_bits); outside the box the cosine continues."""
        axes = self.modes_.argmax(axis=1)  # (L,)
        frequencies = np.pi * self.modes_.max(axis=1) / self.width_[axes]
        Z = linear(X, self.directions_, -product(self.mean_[None], self.directions_, exact=True), exact=exact)
        place = Z.values[:, axes] - self.lower_[axes]
        phase = frequencies * place
        rounding = FEW * UNIT * (1 + np.abs(phase) + frequencies * np.abs(self.lower_[axes]))
        return Scored(np.cos(phase), frequencies * np.broadcast_to(Z.bound, Z.values.shape)[:, axes] + rounding)

    @property
    def _n_features_out(self) -> int:
        return len(self.modes_)


def _box(rows: Rows, directions: Floats) -> tuple[Floats, Floats]:
    """Lower and upper corner, (p,) each, of the rows in the given directions."""
    lower = np.full(directions.shape[1], np.inf)
    upper = -lower
    for _, batch in rows:
        Z = batch @ directions
        lower = np.minimum(lower, Z.min(axis=0))
        upper = np.maximum(upper, Z.max(axis=0))
    return lower - EPS, upper + EPS


def _smoothest_modes(width: Floats, n_bits: int) -> NDArray[np.intp]:
    """The ``n_bits`` modes of smallest eigenvalue, (n_bits, p); equal ones in order of axis, then of mode.

    On axis j no mode above (n_bits + 1) width_j / max(width) can be among them: the widest axis alone has n_bits modes
    below that frequency.
    """
    most = np.ceil((n_bits + 1) * width / width.max()).astype(np.intp) - 1  # modes 1 to this, per axis
    axes = np.repeat(np.arange(len(width)), most)
    modes = np.concatenate([np.arange(1, count + 1) for count in most])
    chosen = np.argsort(modes / width[axes], kind="stable")[:n_bits]
    table = np.zeros((n_bits, len(width)), dtype=np.intp)
    table[np.arange(n_bits), axes[chosen]] = modes[chosen]
    return table
