"""Latent Factor Hashing (LFH). P. Zhang, W. Zhang, W.-J. Li, M. Guo, SIGIR 2014.

Every sample has a latent real factor; the inner product of two factors gives the probability that the samples share a
label. Every step uses a few sampled columns of the similarity; codes are the signs of the factors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.utils.random import sample_without_replacement

from shorthash._arrays import Floats
from shorthash._labels import shared_label
from shorthash.codes.signs import sign
from shorthash.learners.samples import Outcome, SampleHasher, Samples
from shorthash.learners.solvers import Ridge


@dataclass(eq=False, repr=False)
class LFH(SampleHasher):
    r"""Latent Factor Hashing.

    Maximises the posterior of the latent factors,

    .. math::
        \sum_{i,j} \bigl(s_{ij}\theta_{ij} - \log(1 + e^{\theta_{ij}})\bigr) - \tfrac{1}{2b}\|U\|^2,
        \quad \theta_{ij} = \tfrac12 u_iu_j^T

    where

    - :math:`u_i` (L) is the latent factor of a sample, a row of U; its signs are the code,
    - :math:`s_{ij}` is 1 for a shared label, 0 for none,
    - :math:`b = \beta / L` is the variance of the prior.

    A step draws L samples and moves the factors of all others to the maximum of a quadratic bound, given those L; no
    step lowers the posterior of the sampled columns. The hash function regresses the factors on the features. Most
    pairs are dissimilar and all have the same weight, so at short lengths classes collide.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64.
    beta : float, default=30
        Variance of the prior times the code length, above 0.
    lam : float, default=1
        Ridge of the hash function, in units of n_samples / n_features.
    max_iter : int, default=50
        Number of steps.
    drop_unlabelled : bool, int or str, default=False
        Drop rows without a label (None, NaN, "", an empty set, a row of zeros) instead of raising; a value such as -1
        or "unknown" also drops the rows that have it as their label.
    random_state : int, RandomState instance or None, default=None
        Draws the sampled columns.

    Attributes
    ----------
    projection_ : (n_features_in, n_bits) the hash function is ``sign(X @ projection_ + intercept_)``
    intercept_ : (n_bits,) 0, or the bit itself if all samples share it
    classes_ : (c,) the classes
    label_sets_ : (u, c) the label rows that occurred; the identity for single-label data
    codewords_ : (u, n_bits) for every label set, the majority bits of its samples
    codes_ : (n_samples, n_bits) learned codes of the training rows
    n_iter_ : int, steps done
    n_dropped_ : int, rows without label

    References
    ----------
    P. Zhang, W. Zhang, W.-J. Li, M. Guo. Supervised Hashing with Latent Factor Models. SIGIR 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = LFH(n_bits=2, random_state=0).fit(scale(X), y)
    >>> hasher.transform(scale(X)).shape
    (150, 2)
    """

    n_bits: int = 8
    beta: float = 30
    lam: float = 1
    max_iter: int = 50
    drop_unlabelled: bool | int | str = False
    random_state: int | np.random.RandomState | None = None

    _positive: ClassVar[tuple[str, ...]] = ("beta",)

    def _solve(self, samples: Samples, rng: np.random.RandomState) -> Outcome:
        U = _start(samples, self.n_bits)
        n_columns = min(self.n_bits, samples.n)
        for _ in range(self.max_iter):
            columns = np.asarray(sample_without_replacement(samples.n, n_columns, random_state=rng))
            U = _u_step(U, columns, _similarity(samples, columns), self.beta / self.n_bits)
        penalty = self.lam * samples.n / len(samples.K)
        P = Ridge(samples.K, penalty).solve(samples.X.transposed_times(U))
        return Outcome(P, sign(U), self.max_iter)


def _start(samples: Samples, n_bits: int) -> Floats:
    """The scores on the first L principal directions, (n, L); with too few features, the features are repeated."""
    d = len(samples.K)
    if d <= n_bits:
        return samples.X.times(np.eye(d)[:, np.arange(n_bits) % d])
    mean = samples.statistics.mean()
    _, vectors = np.linalg.eigh(samples.statistics.centred(mean).gram)
    V = vectors[:, : -n_bits - 1 : -1]
    V = V * np.sign(V[np.abs(V).argmax(axis=0), np.arange(n_bits)])  # the sign of an eigenvector is arbitrary
    return np.asarray(samples.X.times(V) - mean @ V)


def _similarity(samples: Samples, columns: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Columns of S, (n, k): which samples share a label with the sampled ones."""
    label_rows = samples.statistics.rows
    by_set = shared_label(label_rows, label_rows[samples.ids[columns]])
    return np.asarray(by_set[samples.ids])


def _u_step(U: Floats, columns: NDArray[np.intp], S: NDArray[np.bool_], b: float) -> Floats:
    """U <- U - grad Hess^-1 for all rows but the sampled ones, O.

    grad = (S_O - sigma(U U_O' / 2)) U_O - U / b, and Hess = -U_O'U_O / 8 - I / b bounds the second derivative from
    below, because sigma (1 - sigma) <= 1/4.
    """
    U_O = U[columns]
    grad = (S - expit(U @ U_O.T / 2)) @ U_O - U / b
    Hess = -U_O.T @ U_O / 8 - np.eye(U.shape[1]) / b
    moved = U - np.linalg.solve(Hess, grad.T).T
    moved[columns] = U_O
    return np.asarray(moved)
