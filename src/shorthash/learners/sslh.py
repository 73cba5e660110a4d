"""Supervised Short-Length Hashing (SSLH). X. Liu, X. Nie, Q. Zhou, X. Xi, L. Zhu, Y. Yin, IJCAI 2019.

Labels are regressed on codes with a loss that is robust to outliers, codes and features reconstruct each other, and the
bits of every code should be balanced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from shorthash._arrays import Codes, Floats
from shorthash.codes.signs import sign
from shorthash.learners.samples import AlternatingHasher, Samples
from shorthash.learners.solvers import MAX_SWEEPS, Ridge, dcc


@dataclass(eq=False, repr=False)
class SSLH(AlternatingHasher):
    r"""Supervised Short-Length Hashing.

    Alternates on the objective of the authors' code:

    .. math::
        \sum_i \rho\bigl(\|y_i - h_iW\|\bigr) + \nu\bigl(\|H - XP\|^2 + \lambda\|P\|^2\bigr)
        + \gamma\bigl(\|X - HU^T\|^2 + \lambda\|U\|^2\bigr) + \theta\|H1\|^2 + \lambda\|W\|^2,
        \quad H \in \{-1, +1\}^{n \times L}

    where

    - :math:`X` (n, d) are the features and :math:`Y` (n, c) the labels, with rows :math:`y_i`,
    - :math:`\rho(r) = \delta^2(1 - e^{-r^2/\delta^2})` is Welsch's loss, handled by weights
      :math:`D_i = e^{-r_i^2/\delta^2}`,
    - :math:`W` (L, c) reads labels from codes, :math:`P` (d, L) codes from features, :math:`U` (d, L) features from
      codes,
    - :math:`H1` holds the sum of the bits of every code.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64.
    lam : float, default=1e-4
        Ridge on W, P and U.
    nu : float, default=1e-4
        Weight of the agreement of codes and projected features.
    gamma : float, default=1e-4
        Weight of the reconstruction of the features.
    theta : float, default=1e-4
        Weight of the balance of the bits of each code.
    delta : float, default=2
        Scale of the loss: residuals well beyond it hardly count.
    mode : {"code", "paper"}, default="code"
        - "code": the H-step of the authors' code. It starts from zeros and passes over the bits once, leaves the
          features out of the linear part, and couples bits by the first L rows of U in place of U'U;
        - "paper": the H-step of the objective, started from zeros and swept until no bit changes.
    max_iter : int, default=6
        Maximum number of iterations; the alternation stops when the codes stop changing. They need not: the H-step
        starts from zeros in every iteration, so the objective may rise.
    drop_unlabelled : bool, int or str, default=False
        Drop rows without a label (None, NaN, "", an empty set, a row of zeros) instead of raising; a value such as -1
        or "unknown" also drops the rows that have it as their label.
    random_state : int, RandomState instance or None, default=None
        Seeds the initial random codes, from which the first W, P and U are computed.

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
    X. Liu, X. Nie, Q. Zhou, X. Xi, L. Zhu, Y. Yin. Supervised Short-Length Hashing. IJCAI 2019.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = SSLH(n_bits=4, random_state=0).fit(X - X.mean(axis=0), y)
    >>> hasher.transform(X - X.mean(axis=0)).shape
    (150, 4)
    """

    n_bits: int = 8
    lam: float = 1e-4
    nu: float = 1e-4
    gamma: float = 1e-4
    theta: float = 1e-4
    delta: float = 2
    mode: Literal["code", "paper"] = "code"
    max_iter: int = 6
    drop_unlabelled: bool | int | str = False
    random_state: int | np.random.RandomState | None = None

    _positive: ClassVar[tuple[str, ...]] = ("delta",)
    _converges: ClassVar[bool] = False  # the H-step starts from zeros, so codes need not converge

    def _iterate(self, samples: Samples, rng: np.random.RandomState) -> Iterator[tuple[Codes, Floats, float]]:
        p_ridge = Ridge(samples.K, self.lam)
        H = sign(rng.uniform(-0.5, 0.5, size=(samples.n, self.n_bits)))
        D = np.ones(samples.n)
        W = _w_step(samples, H, D, self)
        P = U = p_ridge.solve(samples.X.transposed_times(H))
        while True:
            H = _h_step(samples, D, W, P, U, self)
            W = _w_step(samples, H, D, self)
            XtH = samples.X.transposed_times(H)
            P, U = p_ridge.solve(XtH), _u_step(H, XtH, self)
            D = _d_step(samples, H, W, self)
            yield H, P, _objective(samples, H, W, P, U, D, XtH, self)


def _h_step(samples: Samples, D: Floats, W: Floats, P: Floats, U: Floats, w: SSLH) -> Codes:
    """argmin_H sum_i h_i (D_i W W' + gamma U'U + theta 1 1') h_i' - 2 h_i q_i', bit by bit from zeros.

    The linear part is Q = D Y W' + nu X P + gamma X U.

    Paper: the authors' code resets H to zeros before every one of its ten sweeps, so that they are all the same and
    amount to one; omits gamma X U; and takes rows of U for its columns (``test_code_mode_has_the_quirks``). Starting
    from zeros is worth keeping: a start from the random codes is much worse.
    """
    Q = D[:, None] * samples.by_label(W.T) + samples.X.times(w.nu * P)
    UtU = U.T @ U
    if w.mode == "code":
        rows = np.zeros(UtU.shape)
        rows[: len(U)] = U[: len(UtU)]
        UtU = rows @ rows.T
    else:
        Q += samples.X.times(w.gamma * U)
    sweeps = 1 if w.mode == "code" else 1 + MAX_SWEEPS
    return dcc(np.zeros(Q.shape), Q, W @ W.T, weights=D, common=w.gamma * UtU + w.theta, max_sweeps=sweeps)


def _w_step(samples: Samples, H: Codes, D: Floats, w: SSLH) -> Floats:
    """W = (H'D H + lam I)^-1 H'D Y, (L, c)."""
    DH = D[:, None] * H
    return Ridge(H.T @ DH, w.lam).solve(samples.label_sums(DH).T)


def _u_step(H: Codes, XtH: Floats, w: SSLH) -> Floats:
    """U = X'H (H'H + lam I)^-1, (d, L)."""
    Hf = H.astype(np.float64)
    return Ridge(Hf.T @ Hf, w.lam).solve(XtH.T).T


def _d_step(samples: Samples, H: Codes, W: Floats, w: SSLH) -> Floats:
    """D_i = exp(-||y_i - h_i W||^2 / delta^2), (n,)."""
    labels = np.asarray(samples.Yg.sum(axis=1))[samples.ids]  # ||y_i||^2
    squares = labels - 2 * np.sum(samples.by_label(W.T) * H, axis=1) + np.sum((H @ (W @ W.T)) * H, axis=1)
    return np.asarray(np.exp(-np.maximum(squares, 0.0) / w.delta**2))


def _objective(samples: Samples, H: Codes, W: Floats, P: Floats, U: Floats, D: Floats, XtH: Floats, w: SSLH) -> float:
    """The objective, expanded into sums; D belongs to H and W."""
    Hf = H.astype(np.float64)
    loss = w.delta**2 * float(np.sum(1 - D))
    projection = samples.projection_error(XtH, P) + w.lam * float(np.sum(P**2))
    rebuilt = float(np.trace(samples.K) - 2 * np.sum(U * XtH) + np.sum((U.T @ U) * (Hf.T @ Hf)))
    rebuilt += w.lam * float(np.sum(U**2))
    balance = float(np.sum(Hf.sum(axis=1) ** 2))
    return loss + w.nu * projection + w.gamma * rebuilt + w.theta * balance + w.lam * float(np.sum(W**2))
