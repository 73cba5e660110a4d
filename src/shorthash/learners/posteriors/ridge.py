"""Kernel ridge posteriors: regression of the label sets on 1 000 anchors, scores turned into posteriors.

Legend: X (n, d), ids (n,) label set of every row, u label sets, S (m, u) scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from shorthash._arrays import is_foreign, like, namespace, to_numpy
from shorthash._rounding import Rounded, Scored, linear
from shorthash._types import Features, Floats
from shorthash.data.rows import BATCH_ROWS
from shorthash.kernels.rbf import AnchorRBF
from shorthash.learners.posteriors.folds import (
    SMALLEST,
    Fitted,
    Folds,
    PosteriorModel,
    Posteriors,
    calibrate,
    in_threads,
    softmax,
)

WIDTHS = (0.5, 0.7, 1.0)  # bandwidths of the kernel, in root-mean-square distances between rows
RIDGES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
N_ANCHORS = 1000


@dataclass(frozen=True)
class KernelRidge(PosteriorModel):
    """Ridge regression of the label sets on kernel features, its scores turned into posteriors by one temperature."""

    kernel: AnchorRBF
    weights: Floats  # (m, u)
    bias: Floats  # (u,)
    temperature: float
    ridge: float

    @property
    def n_sets(self) -> int:
        """Number of label sets."""
        return len(self.bias)

    def logits(self, X: Rounded, *, exact: bool) -> Scored:
        """Scores of the label sets, times the temperature, (n, u)."""
        features = self.kernel.rounded(X, exact=exact)
        return linear(features, self.temperature * self.weights, self.temperature * self.bias, exact=exact)


def fit_ridge(X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8], folds: Folds) -> Fitted:
    """Ridge and temperature by out-of-fold log-loss, the bandwidth by that of the first fold; then all rows."""
    u, parts, labels = len(Yg), list(folds), ids[folds.rows]
    distance = float(np.sqrt(2 * X.var(axis=0, dtype=np.float64).sum()))

    def scores(job: tuple[float, int]) -> dict[float, NDArray[np.float32]]:
        width, k = job
        seen, held, _ = parts[k]
        system = _kernel_system(X[seen], ids[seen], u, width * distance, k)
        left = system.kernel.transform(X[held]) @ system.vectors
        return {ridge: np.asarray(left @ system.solved(ridge) + system.bias, dtype=np.float32) for ridge in RIDGES}

    first = in_threads(scores, [(width, 0) for width in WIDTHS])
    losses = [min(calibrate(S, ids[parts[0][1]])[1] for S in found.values()) for found in first]
    chosen = int(np.argmin(losses))
    found = [first[chosen], *in_threads(scores, [(WIDTHS[chosen], k) for k in range(1, len(parts))])]
    best: tuple[float, float, float, Posteriors] | None = None
    for ridge in RIDGES:
        S = np.empty((len(labels), u), dtype=np.float32)
        for (_, _, places), by_ridge in zip(parts, found, strict=True):
            S[places] = by_ridge[ridge]
        temperature, loss = calibrate(S, labels)
        if best is None or loss < best[0]:
            best = (loss, ridge, temperature, softmax(temperature * S))
    assert best is not None
    loss, ridge, temperature, oof = best
    [whole] = in_threads(lambda width: _kernel_system(X, ids, u, width * distance, -1), [WIDTHS[chosen]])
    return Fitted(whole.model(ridge, temperature), oof, loss)


@dataclass(frozen=True)
class KernelSystem:
    """A kernel, eigenvalues and -vectors of the Gram matrix of its features, right side, class shares."""

    kernel: AnchorRBF
    values: Floats
    vectors: Floats
    right: Floats
    bias: Floats

    @classmethod
    def of(cls, kernel: AnchorRBF, gram: Floats, sums: Floats, counts: NDArray[Any]) -> KernelSystem:
        """From F'F (m, m), sums of the features F of every label set (m, u), and the numbers of their rows (u,)."""
        bias = counts / counts.sum()
        values, vectors = np.linalg.eigh(gram)
        right = sums - np.outer(sums.sum(axis=1), bias)
        return cls(kernel, np.maximum(values, 0.0), vectors, vectors.T @ right, bias)

    def solved(self, ridge: float) -> Floats:
        """Weights at a penalty, in the basis of the eigenvectors."""
        return np.asarray(self.right / (self.values + ridge)[:, None])

    def best(self, X: Features, ids: NDArray[np.intp]) -> Fitted:
        """The penalty of least log-loss on other rows, and their posteriors."""
        left, best = self.kernel.transform(X) @ self.vectors, None
        for ridge in RIDGES:
            S = np.asarray(left @ self.solved(ridge) + self.bias, dtype=np.float32)
            temperature, loss = calibrate(S, ids)
            if best is None or loss < best.loss:
                best = Fitted(self.model(ridge, temperature), softmax(temperature * S), loss)
        assert best is not None
        return best

    def model(self, ridge: float, temperature: float) -> KernelRidge:
        """The model of a penalty."""
        return KernelRidge(self.kernel, self.vectors @ self.solved(ridge), self.bias, temperature, ridge)


def feature_sums(kernel: AnchorRBF, X: Any, ids: Any, u: int) -> tuple[Floats, Floats]:
    """F'F and the sums of the features F of every label set, of one batch; on the device of the rows."""
    F = kernel.transform(X)
    if is_foreign(F):
        xp = namespace(F)
        E = xp.astype(ids[:, None] == like(np.arange(u), F)[None, :], F.dtype)
        return to_numpy(F.T @ F), to_numpy(F.T @ E)
    members: Any = sparse.csr_array((np.ones(len(ids)), (ids, np.arange(len(ids)))), shape=(u, len(ids)))
    return F.T @ F, (members @ F).T


def _kernel_system(X: Features, ids: NDArray[np.intp], u: int, sigma: float, seed: int) -> KernelSystem:
    """The normal equations of the regression, added up over batches; anchors are drawn from the rows given."""
    kernel: Any = AnchorRBF(min(N_ANCHORS, len(X)), bandwidth=max(sigma, SMALLEST), random_state=seed + 1).fit(X)
    m = len(kernel.anchors_)
    gram, sums = np.zeros((m, m)), np.zeros((m, u))
    for start in range(0, len(X), BATCH_ROWS):
        part = slice(start, start + BATCH_ROWS)
        for total, more in zip((gram, sums), feature_sums(kernel, X[part], ids[part], u), strict=True):
            total += more
    return KernelSystem.of(kernel, gram, sums, np.bincount(ids, minlength=u))
