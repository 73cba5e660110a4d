"""Strongly Constrained Discrete Hashing (SCDH). Y. Chen, Z. Tian, H. Zhang, J. Wang, D. Zhang, TIP 2020.

Pairwise similarity is factored into codes and real-valued codes that are exactly balanced and exactly uncorrelated. At
4 to 8 bits it is the best of the simple methods, because balance spreads the codewords.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Codes, Floats
from shorthash.codes.signs import sign
from shorthash.learners.samples import AlternatingHasher, Samples
from shorthash.learners.solvers import Ridge

RANK_TOLERANCE = 1e-7  # singular values below this share of the largest count as 0


@dataclass(eq=False, repr=False)
class SCDH(AlternatingHasher):
    r"""Strongly Constrained Discrete Hashing.

    Learns codes H and balanced, uncorrelated real codes Z by alternation on

    .. math::
        \|L S - ZH^T\|^2 + \lambda\|H - XP\|^2 + \alpha\|H - Z\|^2 + \beta\|P\|^2,
        \quad Z^TZ = nI,\ Z^T1 = 0,\ H \in \{-1, +1\}^{n \times L}

    where

    - :math:`X` (n, d) are the features,
    - :math:`S = 2\tilde Y\tilde Y^T - 11^T` is the similarity of the label rows, scaled to unit length,
    - :math:`P` (d, L) projects features on codes.

    No n x n matrix is formed. Where the codes leave directions of Z free (more bits than classes - 1), random balanced
    directions fill them.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64.
    alpha : float, default=0.1
        Weight of the agreement of H and Z.
    beta : float, default=1
        Ridge on P (its penalty is ``beta / lam``).
    lam : float, default=10
        Weight of the agreement of codes and projected features, above 0.
    max_iter : int, default=10
        Maximum number of iterations; the alternation stops when the codes stop changing.
    drop_unlabelled : bool, int or str, default=False
        Drop rows without a label (None, NaN, "", an empty set, a row of zeros) instead of raising; a value such as -1
        or "unknown" also drops the rows that have it as their label.
    random_state : int, RandomState instance or None, default=None
        Seeds the initial random codes and the directions that fill Z.

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
    Y. Chen, Z. Tian, H. Zhang, J. Wang, D. Zhang. Strongly Constrained Discrete Hashing. IEEE Transactions on Image
    Processing 29, 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = SCDH(n_bits=2, random_state=0).fit(X - X.mean(axis=0), y)
    >>> hasher.transform(X - X.mean(axis=0)).shape
    (150, 2)
    """

    n_bits: int = 8
    alpha: float = 0.1
    beta: float = 1
    lam: float = 10
    max_iter: int = 10
    drop_unlabelled: bool | int | str = False
    random_state: int | np.random.RandomState | None = None

    _positive: ClassVar[tuple[str, ...]] = ("lam",)

    def _iterate(self, samples: Samples, rng: np.random.RandomState) -> Iterator[tuple[Codes, Floats, float]]:
        pairs = _Pairs(samples, self.n_bits)
        p_ridge = Ridge(samples.K, self.beta / self.lam)
        H = sign(rng.normal(size=(samples.n, self.n_bits)))
        XtH = samples.X.transposed_times(H)
        P = p_ridge.solve(XtH)
        while True:
            Z = _z_step(pairs, H, self.alpha, rng)
            H = _h_step(pairs, Z, samples.X.times(P), self.alpha, self.lam)
            # Paper: the authors' code has the P-step first, so that its hash function regresses the codes of the last
            # but one iteration. Here P follows H, and regresses the codes that are returned.
            XtH = samples.X.transposed_times(H)
            P = p_ridge.solve(XtH)
            features = self.lam * samples.projection_error(XtH, P) + self.beta * float(np.sum(P**2))
            yield H, P, pairs.error(Z, H) + self.alpha * float(np.sum((H - Z) ** 2)) + features


class _Pairs:
    """L S with S = 2 Yt Yt' - 1 1', as an operator; the matrix is not formed."""

    def __init__(self, samples: Samples, n_bits: int) -> None:
        self.samples = samples
        self.n_bits = n_bits
        lengths = np.sqrt(samples.Yg.sum(axis=1))
        self.Yt: Any = samples.Yg / lengths[:, None]  # (u, c) label rows of unit length

    def times(self, M: NDArray[Any]) -> Floats:
        """L S M, (n, k)."""
        sums = self.samples.Et @ M
        by_set = 2.0 * (self.Yt @ (self.Yt.T @ sums)) - sums.sum(axis=0)
        return np.asarray(self.n_bits * by_set[self.samples.ids])

    def error(self, Z: Floats, H: Codes) -> float:
        """``||L S - Z H'||^2``."""
        N = self.samples.N
        T2 = (self.Yt.T @ (self.Yt * N[:, None])).power(2).sum()  # ||Yt Yt'||^2
        total = np.asarray(self.Yt.T @ N)
        square = 4 * float(T2) - 4 * float(total @ total) + float(N.sum()) ** 2  # ||S||^2
        Hf = H.astype(np.float64)
        fitted = float(np.sum((Z.T @ Z) * (Hf.T @ Hf)))
        return self.n_bits**2 * square - 2 * float(np.sum(self.times(Hf) * Z)) + fitted


def _z_step(pairs: _Pairs, H: Codes, alpha: float, rng: np.random.RandomState) -> Floats:
    """Z = sqrt(n) polar(J C) with C = L S H + alpha H, J the centring."""
    Hf = H.astype(np.float64)
    C = pairs.times(Hf) + alpha * Hf
    return np.asarray(np.sqrt(len(H)) * _balanced_polar(C - C.mean(axis=0), rng))


def _h_step(pairs: _Pairs, Z: Floats, XP: Floats, alpha: float, lam: float) -> Codes:
    """H = sgn(L S Z + lam X P + alpha Z)."""
    return sign(pairs.times(Z) + lam * XP + alpha * Z)


def _balanced_polar(Q: Floats, rng: np.random.RandomState) -> Floats:
    """The polar factor of a matrix with zero column sums, completed by random columns with zero sums where needed."""
    U, s, Vt = np.linalg.svd(Q, full_matrices=False)
    kept = s > RANK_TOLERANCE * max(s[0], np.finfo(float).tiny)
    sure, n_free = U[:, kept], Q.shape[1] - int(kept.sum())
    if not n_free:
        return np.asarray(U @ Vt)
    V_free = _null_space(Vt[kept])  # (L, n_free)
    free = rng.normal(size=(len(Q), n_free))
    for _ in range(2):  # for numerical orthogonality
        free -= free.mean(axis=0)
        free -= sure @ (sure.T @ free)
        free = _orthonormal(free)
    return np.asarray(sure @ Vt[kept] + free @ V_free.T)


def _null_space(rows: Floats) -> Floats:
    """An orthonormal basis, in columns, of what orthonormal rows do not span."""
    full = np.linalg.qr(rows.T, mode="complete")[0]
    return np.asarray(full[:, len(rows) :])


def _orthonormal(A: Floats) -> Floats:
    """Orthonormal columns spanning those of A; 0 where A has fewer dimensions than columns."""
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    kept = s > RANK_TOLERANCE * max(s[0], np.finfo(float).tiny)
    return np.asarray(U[:, kept] @ Vt[kept])
