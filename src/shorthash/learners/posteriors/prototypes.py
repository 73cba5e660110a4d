r"""Prototype posteriors: cosines to the means of the label sets, after whitening the spread within them.

.. math:: p(s \mid x) \propto \exp(t \cos(V'(x - m), V'(\mu_s - m))), \qquad V V' = \Sigma^{-1} \text{ on the means},

with :math:`\Sigma` the covariance within label sets, half of it shrunk to a multiple of the identity. Slightly worse
posteriors than a logistic model's, but they place a class that was never learned among those it resembles, because
nothing here is fitted to tell the known classes apart.

Legend: X (n, d), ids (n,) label set of every row, Mu (u, d) means, V (d, r) map to the space of the cosines, S (n, u).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from shorthash._types import Features, Floats
from shorthash.learners.posteriors.folds import N_FOLDS, SMALLEST, Fitted, Posteriors, calibrate, folds, softmax

__all__ = ["Prototypes", "fit_prototypes"]

SHRINKAGE = 0.5  # of the covariance within label sets


@dataclass(frozen=True)
class Prototypes:
    """Cosines to the means of the label sets, turned into posteriors by one temperature."""

    center: Floats  # (d,)
    directions: Floats  # (d, r)
    means: Floats  # (r, u), of unit length
    temperature: float

    def cosines(self, X: Features) -> NDArray[np.float32]:
        """Cosine of every row with the mean of every label set, (n, u)."""
        Z = (X - self.center) @ self.directions
        length = np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), SMALLEST)
        return np.asarray(Z / length @ self.means, dtype=np.float32)

    def predict(self, X: Features) -> Posteriors:
        """Posteriors over the label sets."""
        return softmax(self.temperature * self.cosines(X))


def fit_prototypes(X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8], rng: np.random.RandomState) -> Fitted:
    """The temperature by out-of-fold log-loss, then the means of all rows."""
    u, fold = len(Yg), folds(ids, rng)
    S = np.empty((len(ids), u), dtype=np.float32)
    for k in range(N_FOLDS):
        seen = fold != k
        if not seen.all():
            S[~seen] = _prototypes(X[seen], ids[seen], u).cosines(X[~seen])
    temperature, loss = calibrate(S, ids)
    whole = _prototypes(X, ids, u)
    model = Prototypes(whole.center, whole.directions, whole.means, temperature)
    return Fitted(model, softmax(temperature * S), loss)


def _prototypes(X: Features, ids: NDArray[np.intp], u: int) -> Prototypes:
    """Means, and the directions in which they differ, scaled by the spread within label sets."""
    counts = np.bincount(ids, minlength=u)
    Mu = np.zeros((u, X.shape[1]))
    np.add.at(Mu, ids, X)
    Mu /= np.maximum(counts, 1)[:, None]
    center = Mu[counts > 0].mean(axis=0)
    Mu[counts == 0] = center  # a label set that no row has: as far from everything
    R = X - Mu[ids]
    within = R.T @ R / len(X)
    scale = max(float(np.trace(within)) / len(within), SMALLEST)
    within = (1 - SHRINKAGE) * within + SHRINKAGE * scale * np.eye(len(within))
    L = cholesky(within, lower=True)
    A = solve_triangular(L, (Mu - center).T, lower=True)  # (d, u), whitened means
    basis, values, _ = np.linalg.svd(A, full_matrices=False)
    basis = basis[:, values > SMALLEST * max(float(values[0]), SMALLEST)]
    directions = solve_triangular(L, basis, lower=True, trans="T")
    means = (basis.T @ A) / np.maximum(np.linalg.norm(A, axis=0), SMALLEST)
    return Prototypes(center, directions, means, 1.0)
