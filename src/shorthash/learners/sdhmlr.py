"""Supervised Discrete Hashing with Mutual Linear Regression (SDHMLR). X. Liu, X. Nie, Q. Zhou, Y. Yin, 2019.

SDH with one matrix for both directions: codes are regressed on labels and labels on codes by the same W, whose step
is a Sylvester equation. RSLH is what its authors made of it next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shorthash._arrays import Codes, Floats
from shorthash.codes.signs import sign
from shorthash.learners.samples import AlternatingHasher, Samples
from shorthash.learners.solvers import MAX_SWEEPS, LabelGram, Ridge, dcc


@dataclass(eq=False, repr=False)
class SDHMLR(AlternatingHasher):
    r"""Supervised Discrete Hashing with Mutual Linear Regression.

    Learns codes and labels that predict each other through one shared matrix, by alternation on

    .. math::
        \|Y - HW\|^2 + \alpha\|H - YW^T\|^2 + \lambda\|W\|^2 + \nu\bigl(\|H - XP\|^2 + \rho\|P\|^2\bigr),
        \quad H \in \{-1, +1\}^{n \times L}

    where

    - :math:`X` (n, d) are the features and :math:`Y` (n, c) the labels,
    - :math:`H` (n, L) are the codes,
    - :math:`W` (L, c) regresses labels on codes and, transposed, codes on labels,
    - :math:`P` (d, L) projects features on codes, and :math:`\rho` is its ridge.

    The structure follows the paper's abstract and what later papers say of it: one shared projection, a Sylvester
    equation, several runs fused. The default weights and the number of iterations are our reconstruction. The fusion of
    runs is not part of this class: ``BitBoost(SDHMLR(...), n_runs=3, strategy="ob")`` does it.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64.
    alpha : float, default=1
        Weight of the regression of codes on labels.
    nu : float, default=1e-5
        Weight of the agreement of codes and projected features.
    lam : float, default=1e-6
        Ridge on W, above 0.
    ridge : float, default=1e-2
        Ridge on P, during the alternation and for the final hash function.
    max_iter : int, default=6
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
    X. Liu, X. Nie, Q. Zhou, Y. Yin. Supervised Discrete Hashing With Mutual Linear Regression. ACM Multimedia 2019;
    preprint: Mutual Linear Regression-based Discrete Hashing. arXiv:1904.00744.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = SDHMLR(n_bits=4, random_state=0).fit(X - X.mean(axis=0), y)
    >>> hasher.transform(X - X.mean(axis=0)).shape
    (150, 4)
    """

    n_bits: int = 8
    alpha: float = 1
    nu: float = 1e-5
    lam: float = 1e-6
    ridge: float = 1e-2
    max_iter: int = 6
    max_sweeps: int = MAX_SWEEPS
    drop_unlabelled: bool | int | str = False
    random_state: int | np.random.RandomState | None = None

    _positive: ClassVar[tuple[str, ...]] = ("lam",)

    def _iterate(self, samples: Samples, rng: np.random.RandomState) -> Iterator[tuple[Codes, Floats, float]]:
        gram = LabelGram(samples.Yg, samples.N)
        p_ridge = Ridge(samples.K, self.ridge)
        H = sign(rng.normal(size=(samples.n, self.n_bits)))
        P = p_ridge.solve(samples.X.transposed_times(H))
        while True:
            W = _w_step(samples, gram, H, self.alpha, self.lam)
            H = _h_step(samples, H, W, P, self.alpha, self.nu, self.max_sweeps)
            XtH = samples.X.transposed_times(H)
            P = p_ridge.solve(XtH)
            features = samples.projection_error(XtH, P) + self.ridge * float(np.sum(P**2))
            yield H, P, _label_terms(samples, H, W, self.alpha, self.lam) + self.nu * features


def _w_step(samples: Samples, gram: LabelGram, H: Codes, alpha: float, lam: float) -> Floats:
    """The W (L, c) with (H'H + lam I) W + alpha W Y'Y = (1 + alpha) H'Y.

    Both coefficients are symmetric, so in their eigenbases the Sylvester equation falls apart into single numbers.
    """
    Hf = H.astype(np.float64)
    values, vectors = np.linalg.eigh(Hf.T @ Hf)
    HtY = gram.to_basis(samples.label_sums(Hf)).T  # (L, c)
    divisor = np.maximum(values, 0.0)[:, None] + lam + alpha * gram.values[None, :]
    W = vectors @ ((1 + alpha) * (vectors.T @ HtY) / divisor)
    return gram.from_basis(W.T).T


def _h_step(samples: Samples, H: Codes, W: Floats, P: Floats, alpha: float, nu: float, max_sweeps: int) -> Codes:
    """argmin_H tr(W'H'H W) - 2 tr(H'Q) with Q = (1 + alpha) Y W' + nu X P, bit by bit."""
    Q = (1 + alpha) * samples.by_label(W.T) + nu * samples.X.times(P)
    return dcc(H, Q, W @ W.T, max_sweeps=max_sweeps)


def _label_terms(samples: Samples, H: Codes, W: Floats, alpha: float, lam: float) -> float:
    """The three terms with W, expanded into sums."""
    Hf = H.astype(np.float64)
    YWt = samples.Yg @ W.T  # (u, L)
    agreement = float(np.sum(W.T * samples.label_sums(Hf)))  # tr(W'H'Y)
    to_labels = float(samples.N @ samples.Yg.sum(axis=1)) - 2 * agreement + float(np.sum((Hf.T @ Hf) * (W @ W.T)))
    to_codes = float(Hf.size) - 2 * agreement + float(np.sum(samples.N[:, None] * YWt**2))
    return to_labels + alpha * to_codes + lam * float(np.sum(W**2))
