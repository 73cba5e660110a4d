"""Kernel ridge posteriors: regression of the label sets on 1 000 anchors, scores turned into posteriors.

Legend: X (n, d), ids (n,) label set of every row, u label sets, S (n, u) scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Features, Floats
from shorthash.kernels.rbf import AnchorRBF
from shorthash.learners.posteriors.folds import N_FOLDS, SMALLEST, Fitted, Posteriors, calibrate, folds, softmax

__all__ = ["KernelRidge", "fit_ridge"]

WIDTHS = (0.5, 0.7, 1.0)  # bandwidths of the kernel, in root-mean-square distances between rows
RIDGES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
N_ANCHORS = 1000


@dataclass(frozen=True)
class KernelRidge:
    """Ridge regression of the label sets on kernel features, its scores turned into posteriors by one temperature."""

    kernel: AnchorRBF
    weights: Floats  # (m, u)
    bias: Floats  # (u,)
    temperature: float
    ridge: float

    def predict(self, X: Features) -> Posteriors:
        """Posteriors over the label sets."""
        return softmax(np.asarray(self.temperature * (self.kernel.transform(X) @ self.weights + self.bias), np.float32))


def fit_ridge(X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8], rng: np.random.RandomState) -> Fitted:
    """Bandwidth, ridge and temperature by out-of-fold log-loss, anchors drawn inside each fold; then all rows."""
    u, fold = len(Yg), folds(ids, rng)
    distance = float(np.sqrt(2 * X.var(axis=0, dtype=np.float64).sum()))
    best: tuple[float, float, float, float, Posteriors] | None = None
    for width in WIDTHS:
        scores = {ridge: np.empty((len(ids), u), dtype=np.float32) for ridge in RIDGES}
        for k in range(N_FOLDS):
            seen = fold != k
            kernel, values, vectors, right, bias = _kernel_system(X[seen], ids[seen], u, width * distance, rng)
            left = kernel.transform(X[~seen]) @ vectors
            for ridge in RIDGES:
                scores[ridge][~seen] = left @ (right / (values + ridge)[:, None]) + bias
        for ridge, S in scores.items():
            temperature, loss = calibrate(S, ids)
            if best is None or loss < best[0]:
                best = (loss, width, ridge, temperature, softmax(temperature * S))
    assert best is not None
    loss, width, ridge, temperature, oof = best
    kernel, values, vectors, right, bias = _kernel_system(X, ids, u, width * distance, rng)
    weights = vectors @ (right / (values + ridge)[:, None])
    return Fitted(KernelRidge(kernel, weights, bias, temperature, ridge), oof, loss)


def _kernel_system(
    X: Features, ids: NDArray[np.intp], u: int, sigma: float, rng: np.random.RandomState
) -> tuple[AnchorRBF, Floats, Floats, Floats, Floats]:
    """The kernel, eigenvalues and -vectors of the Gram matrix of its features, right side, class means."""
    seed = int(rng.randint(np.iinfo(np.int32).max))
    kernel = AnchorRBF(min(N_ANCHORS, len(X)), bandwidth=max(sigma, SMALLEST), random_state=seed).fit(X)
    F = kernel.transform(X).astype(np.float64)
    bias = np.bincount(ids, minlength=u) / len(ids)
    Y = -np.tile(bias, (len(ids), 1))
    Y[np.arange(len(ids)), ids] += 1
    values, vectors = np.linalg.eigh(F.T @ F)
    return kernel, np.maximum(values, 0.0), vectors, vectors.T @ (F.T @ Y), bias
