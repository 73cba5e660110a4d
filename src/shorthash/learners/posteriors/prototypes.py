r"""Prototype posteriors: cosines to the means of the label sets, after whitening the spread within them.

.. math:: p(s \mid x) \propto \exp(t \cos(V'(x - m), V'(\mu_s - m))), \qquad V V' = \Sigma^{-1} \text{ on the means},

with :math:`\Sigma` the covariance within label sets, half of it shrunk to a multiple of the identity. Slightly worse
posteriors than a logistic model's, but they place a class that was never learned among those it resembles, because
nothing here is fitted to tell the known classes apart.

Legend: X (n, d), ids (n,) label set of every row, Mu (u, d) means, V (d, r) map to the space of the cosines, S (m, u).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from shorthash._arrays import Features, Floats
from shorthash._rounding import Rounded, Scored, linear, normalised, shifted_product
from shorthash.learners.posteriors.folds import SMALLEST, Fitted, Folds, PosteriorModel, calibrate, in_threads, softmax

SHRINKAGE = 0.5  # of the covariance within label sets


@dataclass(frozen=True)
class Prototypes(PosteriorModel):
    """Cosines to the means of the label sets, turned into posteriors by one temperature."""

    center: Floats  # (d,)
    directions: Floats  # (d, r)
    means: Floats  # (r, u), of unit length
    temperature: float

    @property
    def n_sets(self) -> int:
        """Number of label sets."""
        return int(self.means.shape[1])

    def logits(self, X: Rounded, *, exact: bool) -> Scored:
        """Cosine of every row with the mean of every label set, times the temperature, (n, u)."""
        Z = normalised(shifted_product(X, self.center, self.directions, exact=exact), exact=exact)
        return linear(Z, self.temperature * self.means, 0.0, exact=exact)

    def cosines(self, X: Features) -> NDArray[np.float32]:
        """Cosine of every row with the mean of every label set, (n, u), for learning."""
        Z = (X - self.center) @ self.directions
        length = np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), SMALLEST)
        return np.asarray(Z / length @ self.means, dtype=np.float32)


def fit_prototypes(X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8], folds: Folds) -> Fitted:
    """The temperature by out-of-fold log-loss, then the means of all rows."""
    S = np.empty((len(folds.rows), len(Yg)), dtype=np.float32)
    parts = list(folds)
    models = in_threads(lambda part: _prototypes(X[part[0]], ids[part[0]], len(Yg)), parts)
    for (_, held, places), model in zip(parts, models, strict=True):
        S[places] = model.cosines(X[held])
    temperature, loss = calibrate(S, ids[folds.rows])
    whole = _prototypes(X, ids, len(Yg))
    model = Prototypes(whole.center, whole.directions, whole.means, temperature)
    return Fitted(model, softmax(temperature * S), loss)


def class_means(X: Features, ids: NDArray[np.intp], u: int) -> tuple[Floats, NDArray[np.intp]]:
    """Mean of the rows of every label set, (u, d), and their number; the mean of a set without rows is 0."""
    order, counts = np.argsort(ids, kind="stable"), np.bincount(ids, minlength=u)
    filled, starts = counts > 0, np.cumsum(counts) - counts
    Mu = np.zeros((u, X.shape[1]))
    Mu[filled] = np.add.reduceat(X[order].astype(np.float64), starts[filled], axis=0) / counts[filled, None]
    return Mu, counts


def within_covariance(X: Features, ids: NDArray[np.intp], means: Floats, scales: Floats | None = None) -> Floats:
    """Covariance within label sets, shrunk, (d, d); that of scaled columns where there are ``scales``."""
    R = X - means[ids]
    if scales is not None:
        R *= scales
    return shrunk(R.T @ R / len(X))


def whitening(covariance: Floats) -> Floats:
    """The symmetric V with V V' the inverse of a covariance, (d, d)."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T)


def shrunk(within: Floats) -> Floats:
    """Half of a covariance and half a multiple of the identity."""
    scale = max(float(np.trace(within)) / len(within), SMALLEST)
    return np.asarray((1 - SHRINKAGE) * within + SHRINKAGE * scale * np.eye(len(within)))


def _prototypes(X: Features, ids: NDArray[np.intp], u: int) -> Prototypes:
    """Means, and the directions in which they differ, scaled by the spread within label sets."""
    Mu, counts = class_means(X, ids, u)
    L = cholesky(within_covariance(X, ids, Mu), lower=True)
    center = Mu[counts > 0].mean(axis=0)
    Mu[counts == 0] = center  # a label set that no row has: as far from everything
    A = solve_triangular(L, (Mu - center).T, lower=True)  # (d, u), whitened means
    basis, values, _ = np.linalg.svd(A, full_matrices=False)
    basis = basis[:, values > SMALLEST * max(float(values[0]), SMALLEST)]
    directions = solve_triangular(L, basis, lower=True, trans="T")
    means = (basis.T @ A) / np.maximum(np.linalg.norm(A, axis=0), SMALLEST)
    return Prototypes(center, directions, means, 1.0)
