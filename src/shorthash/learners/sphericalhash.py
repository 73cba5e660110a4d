"""Spherical Hashing (SpH). J.-P. Heo, Y. Lee, J. He, S.-F. Chang, S.-E. Yoon, 2012.

A bit says whether a row lies inside a sphere. Spheres hold half of the rows each, and any two of them share a quarter:
their centres attract each other where they share too little, and repel each other where they share too much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shorthash._arrays import Floats
from shorthash._rounding import FEW, UNIT, Rounded, Scored, as_double, linear, norms
from shorthash.data.rows import Rows
from shorthash.learners.base import UnsupervisedHasher

MOST_ROWS = 10_000  # a sample that spheres are learned from, of more rows
MEAN_TOLERANCE, SPREAD_TOLERANCE = 0.10, 0.15  # of shared counts around m / 4, against m / 4; as in the paper


@dataclass(eq=False, repr=False)
class SphericalHash(UnsupervisedHasher):
    r"""Spherical Hashing.

    .. math:: h_k(x) = \mathrm{sgn}(t_k^2 - \|x - p_k\|^2)

    with centres p and radii t such that of m rows

    .. math:: o_k = m / 2, \qquad o_{kl} \approx m / 4,

    where

    - :math:`o_k` is the number of rows inside sphere k: t is the median distance to its centre,
    - :math:`o_{kl}` is the number of rows inside both spheres k and l.

    Centres move by the mean of the forces
    :math:`f_{kl} = \frac12 \frac{o_{kl} - m/4}{m/4} (p_k - p_l)` until the mean of :math:`|o_{kl} - m/4|` is at most
    10 % of m/4, and their standard deviation 15 %.

    Codes are compared by Hamming distance. Hash functions are not linear and have no ``projection_``.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64.
    max_iter : int, default=100
        Maximum number of moves of all centres.
    random_state : int, RandomState instance or None, default=None
        Draws the first centres, and a sample of more than 10 000 rows.

    Attributes
    ----------
    mean_ : (n_features_in,) the training mean
    centers_ : (n_bits, n_features_in) centres of the spheres, less the mean
    radii_ : (n_bits,) their radii
    shared_ : (n_bits, n_bits) share of the rows in two spheres
    n_iter_ : int, moves done

    References
    ----------
    J.-P. Heo, Y. Lee, J. He, S.-F. Chang, S.-E. Yoon. Spherical Hashing. CVPR 2012, pages 2957-2964.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, _ = load_iris(return_X_y=True)
    >>> hasher = SphericalHash(n_bits=4, random_state=0).fit(X)
    >>> hasher.transform(X).shape, (hasher.transform(X) > 0).mean(axis=0).round(1).tolist()
    ((150, 4), [0.5, 0.5, 0.5, 0.5])
    """

    # Paper: codes are compared by the spherical Hamming distance, the bits in which two codes differ over the bits that
    # both have set. We compare them by Hamming distance, as all others: index and search need one distance, and that
    # one is no metric (test_bits_say_what_lies_inside guards the codes themselves).

    n_bits: int = 8
    max_iter: int = 100
    random_state: int | np.random.RandomState | None = None

    def _learn(self, rows: Rows, mean: Floats, rng: np.random.RandomState) -> None:
        """Draw the centres and move them."""
        sample = rng.permutation(len(rows))[:MOST_ROWS]
        X = np.asarray(rows.take(np.sort(sample)), dtype=np.float64)
        P = X[rng.permutation(len(X))[np.arange(self.n_bits) % len(X)]]
        n_iter = 0
        squared, N = _spheres(X, P)
        while n_iter < self.max_iter and not _balanced(N, len(X)):
            P = P + _forces(P, N, len(X))
            squared, N = _spheres(X, P)
            n_iter += 1
        self.mean_, self.centers_, self.n_iter_ = mean, P, n_iter
        self.radii_, self.shared_ = np.sqrt(squared), N / len(X)

    def _scores(self, X: Rounded, *, exact: bool) -> Scored:
        """t^2 - |x - p|^2, (n_samples, n_bits)."""
        rows = as_double(X.values)
        moved = rows - self.mean_
        error = X.error + 2 * UNIT * (norms(rows) + float(np.linalg.norm(self.mean_)))
        P = self.centers_
        S = linear(Rounded(moved, error), 2 * P.T, self.radii_**2 - np.einsum("ij,ij->i", P, P), exact=exact)
        squares = np.array([[math.fsum(moved[0] ** 2)]]) if exact else np.einsum("ij,ij->i", moved, moved)[:, None]
        size = np.abs(S.values) + squares + self.radii_**2
        bound = S.bound + 2 * norms(moved) * error + error**2 + (len(self.mean_) + FEW) * UNIT * size
        return Scored(S.values - squares, bound)

    @property
    def _n_features_out(self) -> int:
        return len(self.centers_)


# Legend: X (m, d) rows, P (L, d) centres, N (L, L) numbers of rows in two spheres, in one on the diagonal.


def _spheres(X: Floats, P: Floats) -> tuple[Floats, Floats]:
    """Squared radii that put half of the rows into every sphere, (L,), and N."""
    D = np.einsum("ij,ij->i", X, X)[:, None] - 2 * X @ P.T + np.einsum("ij,ij->i", P, P)
    squared = np.maximum(np.median(D, axis=0), 0.0)
    inside = (squared >= D).astype(np.float64)
    return squared, np.asarray(inside.T @ inside)


def _balanced(N: Floats, m: int) -> bool:
    """Whether any two spheres share about a quarter of the rows."""
    shared = N[np.triu_indices(len(N), 1)]
    if not len(shared):
        return True
    quarter = m / 4
    return bool(
        np.abs(shared - quarter).mean() <= MEAN_TOLERANCE * quarter and shared.std() <= SPREAD_TOLERANCE * quarter
    )


def _forces(P: Floats, N: Floats, m: int) -> Floats:
    """The mean force on every centre, (L, d)."""
    quarter = m / 4
    F = 0.5 * (N - quarter) / quarter
    np.fill_diagonal(F, 0.0)
    return np.asarray((F.sum(axis=1, keepdims=True) * P - F @ P) / len(P))
