"""Supervised Discrete Hashing (SDH). F. Shen, C. Shen, W. Liu, H. T. Shen, CVPR 2015.

Good codes make classes linearly separable: labels are regressed on codes, codes are learned under their binary
constraint bit by bit (``dcc``), and the features are regressed on the codes. Here with the least-squares loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shorthash._arrays import Codes, Floats
from shorthash.codes.signs import sign
from shorthash.learners.samples import AlternatingHasher, Samples
from shorthash.learners.solvers import MAX_SWEEPS, Ridge, dcc


@dataclass(eq=False, repr=False)
class SDH(AlternatingHasher):
    r"""Supervised Discrete Hashing.

    Learns codes from which a linear classifier reads the labels, by alternation on

    .. math::
        \|Y - HW\|^2 + \lambda\|W\|^2 + \nu\bigl(\|H - XP\|^2 + \rho\|P\|^2\bigr), \quad H \in \{-1, +1\}^{n \times L}

    where

    - :math:`X` (n, d) are the features and :math:`Y` (n, c) the labels,
    - :math:`H` (n, L) are the codes,
    - :math:`W` (L, c) classifies codes,
    - :math:`P` (d, L) projects features on codes, and :math:`\rho` is its ridge.

    Every step is the exact minimiser of its part, the H-step bit by bit. The features have so little weight that in
    practice all samples of a class get the same code. The hinge-loss variant of the paper is not included.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64.
    lam : float, default=1
        Ridge on W.
    nu : float, default=1e-5
        Weight of the agreement of codes and projected features.
    ridge : float, default=1e-2
        Ridge on P, during the alternation and for the final hash function.
    max_iter : int, default=5
        Maximum number of iterations; the alternation stops when the codes stop changing.
    max_sweeps : int, default=10
        Maximum number of sweeps over all bits per iteration.
    drop_unlabelled : bool, int or str, default=False
        Drop rows without a label (None, NaN, "", an empty set, a row of zeros) instead of raising; a value such as -1
        or "unknown" also drops the rows that have it as their label.
    random_state : int, RandomState instance or None, default=None
        Seeds the initial random codes.

    Attributes
    ----------
    projection_ : (n_features_in, n_bits) the hash function is ``sign(X @ projection_ + intercept_)``
    intercept_ : (n_bits,) 0, or the bit itself if all samples share it
    classes_ : (c,) the classes
    label_sets_ : (u, c) the label rows that occurred; the identity for single-label data
    codewords_ : (u, n_bits) for every label set, the majority bits of its samples
    codes_ : (n_samples, n_bits) learned codes of the training rows
    objective_ : (n_iter_,) the objective after every iteration
    n_iter_ : int, iterations done
    n_dropped_ : int, rows without label

    References
    ----------
    F. Shen, C. Shen, W. Liu, H. T. Shen. Supervised Discrete Hashing. CVPR 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = SDH(n_bits=4, random_state=0).fit(X - X.mean(axis=0), y)
    >>> hasher.transform(X - X.mean(axis=0)).shape
    (150, 4)
    """

    n_bits: int = 8
    lam: float = 1
    nu: float = 1e-5
    ridge: float = 1e-2
    max_iter: int = 5
    max_sweeps: int = MAX_SWEEPS
    drop_unlabelled: bool | int | str = False
    random_state: int | np.random.RandomState | None = None

    def _iterate(self, samples: Samples, rng: np.random.RandomState) -> Iterator[tuple[Codes, Floats, float]]:
        p_ridge = Ridge(samples.K, self.ridge)
        H = sign(rng.normal(size=(samples.n, self.n_bits)))
        W, P = _w_step(samples, H, self.lam), p_ridge.solve(samples.X.transposed_times(H))
        while True:
            H = _h_step(samples, H, W, P, self.nu, self.max_sweeps)
            W = _w_step(samples, H, self.lam)
            XtH = samples.X.transposed_times(H)
            P = p_ridge.solve(XtH)
            # Paper: the authors' code stops when P stops changing, which it does when the codes do.
            yield H, P, _objective(samples, H, W, P, XtH, self.lam, self.nu, self.ridge)


def _h_step(samples: Samples, H: Codes, W: Floats, P: Floats, nu: float, max_sweeps: int) -> Codes:
    """argmin_H tr(W'H'H W) - 2 tr(H'Q) with Q = Y W' + nu X P, bit by bit (paper, eq. 12)."""
    Q = samples.by_label(W.T) + nu * samples.X.times(P)
    return dcc(H, Q, W @ W.T, max_sweeps=max_sweeps)


def _w_step(samples: Samples, H: Codes, lam: float) -> Floats:
    """W = (H'H + lam I)^-1 H'Y, (L, c)."""
    Hf = H.astype(np.float64)
    return Ridge(Hf.T @ Hf, lam).solve(samples.label_sums(Hf).T)


def _objective(
    samples: Samples, H: Codes, W: Floats, P: Floats, XtH: Floats, lam: float, nu: float, ridge: float
) -> float:
    """The objective, expanded into sums."""
    Hf = H.astype(np.float64)
    labels = float(samples.N @ samples.Yg.sum(axis=1))  # ||Y||^2
    labels += float(-2 * np.sum(W.T * samples.label_sums(Hf)) + np.sum((Hf.T @ Hf) * (W @ W.T)))
    features = samples.projection_error(XtH, P) + ridge * float(np.sum(P**2))
    return labels + lam * float(np.sum(W**2)) + nu * features
