"""Closed forms that several learners share: ridge regression and the polar factor."""

from __future__ import annotations

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from shorthash._types import Floats

__all__ = ["Ridge", "polar", "polar_parts"]

EPS = float(np.finfo(np.float64).eps)


class Ridge:
    """(K + penalty I)^-1 for one Gram matrix K = X'X, factored once and applied to many right sides.

    Cholesky, where the matrix is well enough conditioned: its reciprocal condition number, after scaling the diagonal
    to 1, is above the rounding error of the factorisation. Otherwise (penalty 0 and dependent features, or features so
    large that the penalty is lost in rounding) the pseudo-inverse, which is the limit of a vanishing penalty. Whether
    Cholesky happens to succeed says nothing: on a singular matrix that depends on the last digit.
    """

    def __init__(self, K: Floats, penalty: float) -> None:
        A = K.copy()
        A[np.diag_indices_from(A)] += penalty
        self._factor = _well_conditioned_factor(A)
        if self._factor is None:
            values, vectors = linalg.eigh(K, check_finite=False, driver="evd")
            kept = values > max(values[-1], 0.0) * len(K) * EPS
            self._basis: Floats = vectors[:, kept]
            self._inverse: Floats = 1.0 / (values[kept] + penalty)

    def solve(self, right: Floats) -> Floats:
        """(K + penalty I)^-1 right."""
        if self._factor is None:
            return np.asarray(self._basis @ (self._inverse[:, None] * (self._basis.T @ right)))
        factor, scale = self._factor
        return np.asarray(scale * linalg.cho_solve((factor, True), scale * right, check_finite=False))


def _well_conditioned_factor(A: Floats) -> tuple[Floats, Floats] | None:
    """L and the scale s, (d, 1), with LL' = s A s'; None where A is singular to rounding. Overwrites A.

    The scale takes away differences between units of the features, which Cholesky does not mind.
    """
    diagonal = np.diagonal(A)
    scale: Floats = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))[:, None]
    A *= scale
    A *= scale.T
    norm = float(np.abs(A).sum(axis=0).max())
    try:
        factor = linalg.cholesky(A, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError:
        return None
    reciprocal, _ = lapack.dpocon(factor, norm, uplo="L")
    return (factor, scale) if reciprocal > len(A) * EPS else None


def polar(Q: Floats) -> Floats:
    """The matrix with orthonormal columns nearest to Q (n x L, n >= L): argmax tr(B'Q) over B'B = I.

    Thin QR, then the SVD of the small triangle: exactly orthonormal columns even where Q is rank deficient, and no
    n x n factor.
    """
    sure, free = polar_parts(Q, tolerance=0.0)
    return sure + free


def polar_parts(Q: Floats, tolerance: float) -> tuple[Floats, Floats]:
    """The polar factor in two parts: what Q determines, and the orthonormal completion, which is one of many.

    Singular values of at most ``tolerance`` times the largest count as 0.
    """
    Z, T = np.linalg.qr(Q)
    u, s, vt = np.linalg.svd(T, full_matrices=False)
    kept = s > tolerance * s[0]
    return Z @ (u[:, kept] @ vt[kept]), Z @ (u[:, ~kept] @ vt[~kept])
