"""Natural Supervised Hashing (NSH). Q. Liu, H. Lu, IJCAI 2016.

Label vectors already are codes; the learned codes should have their inner products. An orthogonal map between label
vectors and codes keeps inner products, so no matrix of all pairs is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from shorthash._arrays import Floats
from shorthash.learners.samples import LabelCodeHasher
from shorthash.learners.solvers import polar
from shorthash.learners.sums import GroupStatistics


@dataclass(eq=False, repr=False)
class NSH(LabelCodeHasher):
    r"""Natural Supervised Hashing.

    Rotates label vectors onto codes, by alternation on

    .. math::
        \|H - \tilde YR\|^2 + \nu\bigl(\|H - XP\|^2 + \rho\|P\|^2\bigr), \quad H \in \{-1, +1\}^{n \times L}

    where

    - :math:`X` (n, d) are the features,
    - :math:`\tilde Y` (n, c) are the label rows, scaled to length :math:`\sqrt L`, so that
      :math:`\tilde Y\tilde Y^T` has the diagonal of :math:`HH^T`,
    - :math:`R` (c, L) is semi-orthogonal: :math:`RR^T = I` for :math:`L \ge c`, :math:`R^TR = I` for :math:`L < c`,
    - :math:`P` (d, L) projects features on codes, and :math:`\rho` is its ridge.

    The idea is the paper's; of the text we could read only the abstract, so the objective, its weights and the
    alternation are our reconstruction. Training needs one pass over the rows: they can be added (``partial_fit``,
    ``merge``) and removed (``forget``).

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64.
    nu : float, default=1e-5
        Weight of the agreement of codes and projected features.
    ridge : float, default=1e-2
        Ridge on P, during the alternation and for the final hash function.
    max_iter : int, default=20
        Maximum number of iterations; the alternation stops when the codes stop changing.
    drop_unlabelled : bool, int or str, default=False
        Drop rows without a label (None, NaN, "", an empty set, a row of zeros) instead of raising; a value such as -1
        or "unknown" also drops the rows that have it as their label.
    random_state : int, RandomState instance or None, default=None
        Seeds the initial random rotation.

    Attributes
    ----------
    projection_ : (n_features_in, n_bits) the hash function is ``sign(X @ projection_ + intercept_)``
    intercept_ : (n_bits,) 0, or the bit itself if all samples share it
    classes_ : (c,) the classes
    label_sets_ : (u, c) the label rows that occurred; the identity for single-label data
    codewords_ : (u, n_bits) the learned code of every label set; of every class, for single-label data
    codes_ : (n_samples, n_bits) learned codes of the training rows; only after ``fit`` on all rows
    statistics_ : GroupStatistics, the sums
    objective_ : (n_iter_,) the objective after every iteration
    n_iter_ : int, iterations done
    n_samples_seen_ : int, rows learned from and not forgotten
    n_dropped_ : int, rows without label in the last call

    References
    ----------
    Q. Liu, H. Lu. Natural Supervised Hashing. IJCAI 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = NSH(n_bits=4, random_state=0).fit(X - X.mean(axis=0), y)
    >>> hasher.codewords_.shape
    (3, 4)
    """

    n_bits: int = 8
    nu: float = 1e-5
    ridge: float = 1e-2
    max_iter: int = 20
    drop_unlabelled: bool | int | str = False
    random_state: int | np.random.RandomState | None = None

    def _label_term(self, seen: GroupStatistics) -> _Rotation:
        return _Rotation(seen, self.n_bits)


class _Rotation:
    """F = Yt R, the rotated label vectors (Yt: label rows of the sets, (u, c), of length sqrt(L))."""

    def __init__(self, seen: GroupStatistics, n_bits: int) -> None:
        Yg: Any = sparse.csr_array(seen.rows.astype(np.float64))
        self.Yt = Yg * np.sqrt(n_bits / Yg.sum(axis=1))[:, None]
        self.gram = self.Yt.T @ (self.Yt * seen.counts[:, None])  # Yt'Yt, (c, c) sparse
        self.bound = float(abs(self.gram).sum(axis=0).max())  # no eigenvalue of it is larger
        self.n_bits = n_bits

    def start(self, rng: np.random.RandomState) -> Floats:
        """F for a random rotation."""
        self.R = _semi_orthogonal(rng.normal(size=(self.Yt.shape[1], self.n_bits)))
        return np.asarray(self.Yt @ self.R)

    def step(self, EtH: Floats) -> tuple[Floats, float]:
        """R = polar(Yt'H + (a I - Yt'Yt) R_old), with a an upper bound of the eigenvalues of Yt'Yt if L < c.

        For L >= c, and for classes of equal size, ||Yt R||^2 is constant and R = polar(Yt'H) is the exact minimiser.
        Otherwise the second summand majorises that term, so that the objective cannot rise (``test_never_rises``).
        """
        target = self.Yt.T @ EtH
        if self.n_bits < len(target):
            target = target + self.bound * self.R - self.gram @ self.R
        self.R = _semi_orthogonal(np.asarray(target))
        return np.asarray(self.Yt @ self.R), 0.0


def _semi_orthogonal(Q: Floats) -> Floats:
    """The semi-orthogonal matrix nearest to Q."""
    return polar(Q) if Q.shape[0] >= Q.shape[1] else polar(Q.T).T
