"""Closed forms that several learners share: ridge regression and the polar factor."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from shorthash._types import Floats

__all__ = ["Ridge", "polar", "polar_parts"]


class Ridge:
    """(K + penalty I)^-1 for one Gram matrix K = X'X, factored once and applied to many right sides.

    Cholesky where the matrix is numerically positive definite; otherwise (penalty 0 and dependent features, or
    features so large that the penalty drowns in rounding) the pseudo-inverse, which is the limit of vanishing penalty.
    """

    def __init__(self, K: Floats, penalty: float) -> None:
        A = K.copy()
        A[np.diag_indices_from(A)] += penalty
        self._basis: Floats | None = None
        try:
            self._factor = linalg.cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            values, vectors = linalg.eigh(K, check_finite=False)
            kept = values > max(values[-1], 0.0) * len(K) * np.finfo(float).eps
            self._basis = vectors[:, kept]
            self._inverse = 1.0 / (values[kept] + penalty)

    def solve(self, right: Floats) -> Floats:
        """(K + penalty I)^-1 right."""
        if self._basis is None:
            return np.asarray(linalg.cho_solve(self._factor, right, check_finite=False))
        return np.asarray(self._basis @ (self._inverse[:, None] * (self._basis.T @ right)))


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
