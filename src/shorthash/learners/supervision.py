"""Labels and pairwise similarity seen from the groups, so that the n x n matrix S never exists.

S_ij = +1 if samples i and j share a label, -1 otherwise. Samples with the same label row are alike to S, so with the
indicator E (n x u) of the groups S = E T E', and everything a learner needs from S follows from u x k sums.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shorthash._labels import shared_label
from shorthash._types import Floats

__all__ = ["FullSimilarity", "LabelGram", "ReducedSimilarity", "Similarity", "similar_sums"]

BLOCK_GROUPS = 2048  # rows of T held at once
RANK_TOLERANCE = 1e-9  # singular values below this share of the first count as 0
LABEL_TOLERANCE = 1e-12  # the same for eigenvalues of Y'Y, whose entries are counts


class Similarity(Protocol):
    """What the RSLH steps ask of S, or of its reduction G = S R; V and U are group sums E'H and E'B, (u, L)."""

    def b_term(self, V: Floats) -> Floats:
        """Group rows of G R' H, (u, L)."""

    def h_term(self, U: Floats) -> Floats:
        """Group rows of R G' B, (u, L)."""

    def captured(self, V: Floats) -> Floats | None:
        """Group rows of R R' H, (u, L); None where R R' is the identity."""

    def squared_norm(self) -> float:
        """``||G||^2``."""


def similar_sums(rows: NDArray[np.uint8], V: Floats) -> Floats:
    """T V, (u, k): for every group, the sums of its similar groups minus those of its dissimilar ones."""
    total = V.sum(axis=0)
    if (rows.sum(axis=1) == 1).all():  # single label: a group is similar to itself alone
        return np.asarray(2.0 * V - total)
    similar = [
        shared_label(rows[start : start + BLOCK_GROUPS], rows) @ V for start in range(0, len(rows), BLOCK_GROUPS)
    ]
    return np.asarray(2.0 * np.concatenate(similar) - total)


class FullSimilarity:
    """S itself (R = I, G = S)."""

    def __init__(self, rows: NDArray[np.uint8], counts: Floats) -> None:
        self.rows = rows
        self.counts = counts

    def b_term(self, V: Floats) -> Floats:
        """S H."""
        return similar_sums(self.rows, V)

    def h_term(self, U: Floats) -> Floats:
        """S B."""
        return similar_sums(self.rows, U)

    def captured(self, V: Floats) -> None:
        """R R' is the identity."""

    def squared_norm(self) -> float:
        """Every entry of S is -1 or +1."""
        return float(self.counts.sum() ** 2)


class ReducedSimilarity:
    """G = S R with R the polar factor of S X (paper, eq. 12), as the partial isometry R = E A v'.

    With N the group sizes and M = X'E, S X = E (T M'); N^1/2 T M' = u s v' gives A = N^-1/2 u for the singular values
    that are not 0. Only R R' = E A A' E' is ever needed.

    Paper: R is asked to satisfy R R' = I_n, which no n x k matrix does; G R' = S holds if range(S) lies in range(R).
    """

    def __init__(self, rows: NDArray[np.uint8], counts: Floats, M: Floats) -> None:
        self.rows = rows
        self.counts = counts
        root = np.sqrt(counts)[:, None]
        u, s, _ = np.linalg.svd(root * similar_sums(rows, M.T), full_matrices=False)
        kept = s > RANK_TOLERANCE * max(s[0], np.finfo(float).tiny)
        self.A = u[:, kept] / root  # (u, r)

    def _project(self, V: Floats) -> Floats:
        """A A' V."""
        return self.A @ (self.A.T @ V)

    def b_term(self, V: Floats) -> Floats:
        """S R R' H."""
        return similar_sums(self.rows, self.counts[:, None] * self._project(V))

    def h_term(self, U: Floats) -> Floats:
        """R R' S B."""
        return self._project(self.counts[:, None] * similar_sums(self.rows, U))

    def captured(self, V: Floats) -> Floats:
        """R R' H."""
        return self._project(V)

    def squared_norm(self) -> float:
        """``||S R||^2``, with R'R the identity on r directions."""
        SR = similar_sums(self.rows, self.counts[:, None] * self.A)
        return float((self.counts[:, None] * SR**2).sum())


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
        """(Y'Y + shift I)^-1 right, the pseudo-inverse where that does not exist."""
        spectrum = self.values + shift
        kept = spectrum > LABEL_TOLERANCE * max(spectrum.max(), np.finfo(float).tiny)
        inverse = np.divide(1.0, spectrum, out=np.zeros_like(spectrum), where=kept)
        return self.from_basis(inverse[:, None] * self.to_basis(right))
