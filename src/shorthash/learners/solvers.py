"""What several learners share: ridge regression, polar factors, directions, bits by descent, labels in products.

Rows are read in batches and sums are float64; nothing larger than a d x d matrix is formed. Pairwise similarity is
S_ij = +1 if samples i and j share a label, -1 otherwise. S is the same for samples with the same label row, so with the
indicator E (n x u) of the groups S = E T E', and every product with S follows from u x k sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import lapack

from shorthash._arrays import Codes, Floats
from shorthash._labels import shared_label
from shorthash.codes.signs import sign
from shorthash.data.rows import Rows

EPS = float(np.finfo(np.float64).eps)
MAX_SWEEPS = 10  # as in the SDH authors' code
BLOCK_GROUPS = 2048  # rows of T held at once
LABEL_TOLERANCE = 1e-12  # eigenvalues of Y'Y below this share of the largest count as 0; its entries are counts


class Ridge:
    """(K + penalty I)^-1 for one Gram matrix K = X'X, factored once and applied to many right sides.

    Cholesky, where the matrix is well enough conditioned: its reciprocal condition number, after scaling the diagonal
    to 1, is above the rounding error of the factorisation. Otherwise (penalty 0 and dependent features, or features so
    large that the penalty is lost in rounding) the pseudo-inverse, which is the limit of a vanishing penalty. Whether
    Cholesky succeeds is no criterion: on a singular matrix it depends on the last digit.
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

    The scale removes differences between units of the features, which do not affect Cholesky.
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


def centred(rows: Rows) -> tuple[Floats, Rows]:
    """The mean row, (d,), and the rows with it subtracted, in float64."""
    mean = np.asarray(sum(batch.sum(axis=0, dtype=np.float64) for _, batch in rows) / len(rows))
    return mean, rows.through(lambda batch: batch.astype(np.float64) - mean)


def scatter(rows: Rows) -> Floats:
    """X'X, (d, d); centre first, then sum: the other order loses digits where the mean is large."""
    return np.asarray(sum(batch.T @ batch for _, batch in rows), dtype=np.float64)


def principal_directions(rows: Rows, n: int) -> Floats:
    """The ``n`` orthonormal directions of largest variance of centred rows, (d, n), largest first.

    Signs are arbitrary, so they are fixed: the entry of largest magnitude of every direction is positive. If there are
    fewer directions with variance, directions without variance follow.
    """
    S = scatter(rows)
    d = len(S)
    _, V = linalg.eigh(S, subset_by_index=[d - n, d - 1], check_finite=False)
    V = V[:, ::-1]
    peaks = V[np.abs(V).argmax(axis=0), np.arange(n)]
    return np.asarray(V * np.where(peaks < 0, -1.0, 1.0))


def random_rotation(n: int, rng: np.random.RandomState) -> Floats:
    """An orthogonal matrix, (n, n), uniform over all of them (QR of a Gaussian with the signs of its R fixed)."""
    Q, R = np.linalg.qr(rng.normal(size=(n, n)))
    return np.asarray(Q * np.where(np.diag(R) < 0, -1.0, 1.0))


def dcc(
    H: NDArray[Any],
    Q: Floats,
    A: Floats,
    *,
    weights: Floats | None = None,
    common: Floats | None = None,
    max_sweeps: int = MAX_SWEEPS,
) -> Codes:
    r"""Descend on :math:`\sum_i h_i A_i h_i^T - 2 h_i q_i^T` over signs, until no bit changes.

    Discrete cyclic coordinate descent, introduced with SDH (F. Shen, C. Shen, W. Liu, H. T. Shen, 2015). With all
    other bits fixed, a bit of all samples has a closed form, because its square is 1 and drops out.

    Parameters
    ----------
    H : (n, L) codes to start from; with zeros, every bit of the first sweep depends only on the bits before it
    Q : (n, L) linear part
    A : (L, L) symmetric; :math:`A_i = A` for every sample,
    weights : (n,) or None; with them :math:`A_i = w_i A`
    common : (L, L) symmetric or None; added to every :math:`A_i`
    max_sweeps : maximum number of sweeps over all bits

    Examples
    --------
    Two bits that should differ, the first of which should be +1:

    >>> dcc(np.array([[1, 1]]), Q=np.array([[2.0, 0.0]]), A=np.ones((2, 2))).tolist()
    [[1, -1]]
    """
    bits = np.array(H, dtype=np.float64, order="F")
    for _ in range(max_sweeps):
        changed = False
        for bit in range(bits.shape[1]):
            scores = Q[:, bit] - _pull(bits, A, bit, weights)
            if common is not None:
                scores -= _pull(bits, common, bit, None)
            signs = sign(scores)
            changed = changed or not np.array_equal(signs, bits[:, bit])
            bits[:, bit] = signs
        if not changed:
            break
    return bits.astype(np.int8, order="C")


def _pull(bits: Floats, A: Floats, bit: int, weights: Floats | None) -> Floats:
    """The influence of the other bits on this one: H_-l A_-l,l, row by row, (n,)."""
    column = A[:, bit].copy()
    column[bit] = 0.0
    pulled = bits @ column
    return np.asarray(pulled if weights is None else weights * pulled)


def sign_guard(dropped: Floats, scores: Floats) -> float:
    """Largest dropped term, (L,), over the smallest score of its bit, (u, L); below 1 no sign can change."""
    smallest = np.abs(scores).min(axis=0)
    ratio = np.divide(dropped, smallest, out=np.full(len(dropped), np.inf), where=smallest > 0)
    ratio[dropped == 0] = 0.0
    return float(ratio.max())


def similar_sums(rows: NDArray[np.uint8], V: Floats) -> Floats:
    """T V, (u, k): for every group, the sums of its similar groups minus those of its dissimilar ones."""
    total = V.sum(axis=0)
    if (rows.sum(axis=1) == 1).all():  # single label: a group is similar to itself alone
        return np.asarray(2.0 * V - total)
    similar = [
        shared_label(rows[start : start + BLOCK_GROUPS], rows) @ V for start in range(0, len(rows), BLOCK_GROUPS)
    ]
    return np.asarray(2.0 * np.concatenate(similar) - total)


class LabelGram:
    """Y'Y, (c, c), by its eigenvalues: the class sizes themselves where every sample has one label.

    Parameters
    ----------
    Yg : (u, c) sparse, the label rows of the groups
    counts : (u,) the group sizes
    """

    def __init__(self, Yg: Any, counts: Floats) -> None:
        self._vectors: Floats | None = None
        if (Yg.sum(axis=1) == 1).all():
            self.values = np.asarray(Yg.T @ counts)
        else:
            values, self._vectors = np.linalg.eigh((Yg.T @ (Yg * counts[:, None])).toarray())
            self.values = np.maximum(values, 0.0)

    def to_basis(self, right: Floats) -> Floats:
        """V' right for the eigenvectors V, (c, k)."""
        return right if self._vectors is None else self._vectors.T @ right

    def from_basis(self, right: Floats) -> Floats:
        """V right for the eigenvectors V, (c, k)."""
        return right if self._vectors is None else self._vectors @ right

    def solve(self, right: Floats, shift: float = 0.0) -> Floats:
        """(Y'Y + shift I)^-1 right, or the pseudo-inverse."""
        spectrum = self.values + shift
        kept = spectrum > LABEL_TOLERANCE * max(spectrum.max(), np.finfo(float).tiny)
        inverse = np.divide(1.0, spectrum, out=np.zeros_like(spectrum), where=kept)
        return self.from_basis(inverse[:, None] * self.to_basis(right))
