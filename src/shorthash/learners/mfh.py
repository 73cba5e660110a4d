"""Matrix Factorization Hashing (MFH). G. Ding, Y. Guo, J. Zhou, 2014 (Collective MFH, here on one view).

The rows are factorised into latent rows times a basis, and the latent rows are regressed on the rows at the same time;
the regression is the hash function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import linalg

from shorthash._arrays import Floats
from shorthash.data.rows import Rows
from shorthash.learners.base import UnsupervisedHasher
from shorthash.learners.solvers import Ridge, scatter


@dataclass(eq=False, repr=False)
class MFH(UnsupervisedHasher):
    r"""Matrix Factorization Hashing: collective matrix factorisation on a single view.

    .. math:: \lambda\|X - VU\|^2 + \mu\|V - XP\|^2 + \gamma(\|V\|^2 + \|P\|^2 + \|U\|^2)

    where

    - :math:`X` (n, d) are the centred rows,
    - :math:`V` (n, L) are the latent rows and :math:`U` (L, d) their basis,
    - :math:`P` (d, L) projects rows on latent rows; its sign is the code.

    The steps for U, and for V together with P, are exact. After the first iteration V is linear in X, so an iteration
    needs only X'X and no row. The published hash function thresholds the projection at the mean of V; with centred rows
    that is 0.

    The publication has two views. That "MFH" means its restriction to one, with these weights, is our reading of the
    toolkits in which a method of this name occurs; they solve for V and P one after the other, which at ``mu=100``
    moves both by about a hundredth per iteration. One of them (HABIR) has 2 mu where the V-step of one view has mu, and
    so shrinks P away from its random start faster than the objective would; ``habir=True`` takes its steps, in its
    order, with gamma where exact ridges have gamma / lam and gamma / mu.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64.
    lam : float, default=1
        Weight of the factorisation.
    mu : float, default=100
        Weight of the projection.
    gamma : float, default=1e-3
        Ridge on all three matrices.
    habir : bool, default=False
        Use the steps of the HABIR toolkit instead of the exact minimisers.
    max_iter : int, default=25
        Maximum number of iterations; it is part of the method, so reaching it gives no warning.
    tol : float, default=1e-6
        Stop when an iteration lowers the objective by less than this share of it.
    random_state : int, RandomState instance or None, default=None
        Draws the start of V (and of P, with ``habir=True``), uniform on [0, 1).

    Attributes
    ----------
    projection_ : (n_features_in, n_bits) P
    intercept_ : (n_bits,) -mean_ @ projection_
    mean_ : (n_features_in,) the training mean
    basis_ : (n_bits, n_features_in) U
    objective_ : (n_iter_,) the objective after every iteration
    n_iter_ : int, iterations done

    References
    ----------
    G. Ding, Y. Guo, J. Zhou. Collective Matrix Factorization Hashing for Multimodal Data. CVPR 2014, pages 2075-2082.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, _ = load_iris(return_X_y=True)
    >>> hasher = MFH(n_bits=6, random_state=0).fit(X)
    >>> hasher.transform(X).shape, bool(hasher.objective_[-1] < hasher.objective_[0])
    ((150, 6), True)
    """

    n_bits: int = 8
    lam: float = 1
    mu: float = 100
    gamma: float = 1e-3
    habir: bool = False
    max_iter: int = 25
    tol: float = 1e-6
    random_state: int | np.random.RandomState | None = None

    _positive: ClassVar[tuple[str, ...]] = ("lam", "mu")

    def _learn(self, rows: Rows, mean: Floats, rng: np.random.RandomState) -> None:
        """Factorise the centred rows."""
        P, self.basis_, self.objective_ = _solve(rows, self, rng)
        self.n_iter_ = len(self.objective_)
        self._set_hyperplanes(mean, P)


# Legend, samples as rows (the paper has them as columns):
#
#   code  paper  shape   is
#   X     X      (n, d)  centred rows; only K = X'X is ever used
#   V     V      (n, L)  latent rows; V = X A after the first turn
#   U     U      (L, d)  basis
#   P     P      (d, L)  projection


def _solve(rows: Rows, weights: MFH, rng: np.random.RandomState) -> tuple[Floats, Floats, Floats]:
    """P, U and the objective after every iteration."""
    K = scatter(rows)
    VtV, VtX = _start(rows, weights.n_bits, rng)
    step = _HabirStep(K, weights, rng) if weights.habir else _JointStep(K, weights)
    objective: list[float] = []
    while len(objective) < weights.max_iter:
        U = _u_step(VtV, VtX, weights)
        A, P = step(U)
        KA = K @ A
        VtV, VtX = A.T @ KA, KA.T
        objective.append(_objective(K, U, P, VtV, VtX, weights))
        if len(objective) > 1 and objective[-2] - objective[-1] <= weights.tol * objective[-2]:
            break
    return P, U, np.array(objective)


def _start(rows: Rows, n_bits: int, rng: np.random.RandomState) -> tuple[Floats, Floats]:
    """V'V and V'X for V uniform on [0, 1)."""
    VtV: Floats | float = 0.0
    VtX: Floats | float = 0.0
    for _, batch in rows:
        V = rng.uniform(size=(len(batch), n_bits))
        VtV = VtV + V.T @ V
        VtX = VtX + V.T @ batch
    return np.asarray(VtV), np.asarray(VtX)


def _u_step(VtV: Floats, VtX: Floats, weights: MFH) -> Floats:
    """U = (V'V + gamma / lam I)^-1 V'X."""
    return Ridge(VtV, weights.gamma if weights.habir else weights.gamma / weights.lam).solve(VtX)


class _JointStep:
    """A and P that minimise the objective together, for given U.

    Stationarity in P is P = (K + gamma / mu I)^-1 K A, in A it is A (lam U U' + (mu + gamma) I) = lam U' + mu P. In the
    eigenvectors Q of K = Q diag(k) Q' both are diagonal in the rows of A: with b = k / (k + gamma / mu)::

        row i of Q'A = lam (row i of Q'U') (lam U U' + (mu (1 - b_i) + gamma) I)^-1,    Q'P = diag(b) Q'A
    """

    def __init__(self, K: Floats, weights: MFH) -> None:
        k, self.Q = linalg.eigh(K, check_finite=False)
        k = np.maximum(k, 0.0)
        self.lam = weights.lam
        self.b = np.divide(k, k + weights.gamma / weights.mu, out=np.zeros_like(k), where=k > 0)
        self.shift = weights.mu * (1.0 - self.b) + weights.gamma  # (d,)

    def __call__(self, U: Floats) -> tuple[Floats, Floats]:
        s, F = linalg.eigh(self.lam * (U @ U.T), check_finite=False)
        divisor = np.maximum(s, 0.0)[None, :] + self.shift[:, None]  # (d, L)
        right = self.lam * (self.Q.T @ U.T @ F)
        QtA = np.divide(right, divisor, out=np.zeros_like(right), where=divisor > 0) @ F.T
        return self.Q @ QtA, self.Q @ (self.b[:, None] * QtA)


class _HabirStep:
    """A for given U and P, then P for given A, as the HABIR toolkit has them."""

    def __init__(self, K: Floats, weights: MFH, rng: np.random.RandomState) -> None:
        self.K = K
        self.weights = weights
        self.ridge = Ridge(K, weights.gamma)
        self.P = rng.uniform(size=(len(K), weights.n_bits))

    def __call__(self, U: Floats) -> tuple[Floats, Floats]:
        w = self.weights
        inner = w.lam * (U @ U.T)
        inner[np.diag_indices_from(inner)] += 2 * w.mu + w.gamma
        A = np.asarray(np.linalg.solve(inner, (w.lam * U.T + w.mu * self.P).T)).T
        self.P = self.ridge.solve(self.K @ A)
        return A, self.P


def _objective(K: Floats, U: Floats, P: Floats, VtV: Floats, VtX: Floats, weights: MFH) -> float:
    """The objective, expanded into sums over rows."""
    factorisation = np.trace(K) - 2 * np.sum(U * VtX) + np.sum(U * (VtV @ U))
    projection = np.trace(VtV) - 2 * np.sum(P * VtX.T) + np.sum(P * (K @ P))
    sizes = np.trace(VtV) + np.sum(P**2) + np.sum(U**2)
    return float(weights.lam * factorisation + weights.mu * projection + weights.gamma * sizes)
