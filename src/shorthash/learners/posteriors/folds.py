"""What all posterior models share: folds, a temperature, and posteriors of rows by models that did not see them.

Legend: ids (n,) label set of every row, S (n, u) logits, P (n, u) posteriors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from shorthash._types import Features

__all__ = ["N_FOLDS", "SMALLEST", "Fitted", "PosteriorModel", "Posteriors", "calibrate", "folds", "log", "softmax"]

Posteriors = NDArray[np.float32]

N_FOLDS = 5
TEMPERATURES = (0.2, 100.0)
SMALLEST = 1e-12  # keeps logarithms of posteriors finite


class PosteriorModel(Protocol):
    """What remains of a fit: a map of rows to posteriors."""

    def predict(self, X: Features) -> Posteriors:
        """Posteriors over the label sets, (n, u)."""


@dataclass(frozen=True)
class Fitted:
    """A model, its out-of-fold posteriors of the training rows, and their log-loss."""

    model: PosteriorModel
    oof: Posteriors
    loss: float


def softmax(S: NDArray[Any]) -> Posteriors:
    """Rows of logits as posteriors."""
    P = np.asarray(S - S.max(axis=1, keepdims=True), dtype=np.float32)
    np.exp(P, out=P)
    P /= P.sum(axis=1, keepdims=True)
    return P


def log(P: NDArray[Any]) -> NDArray[np.float32]:
    """Logarithms, none of them infinite."""
    return np.asarray(np.log(np.maximum(P, SMALLEST)), dtype=np.float32)


def folds(ids: NDArray[np.intp], rng: np.random.RandomState) -> NDArray[np.intp]:
    """Fold of every row, label sets spread evenly."""
    order = rng.permutation(len(ids))
    order = order[np.argsort(ids[order], kind="stable")]
    fold = np.empty(len(ids), dtype=np.intp)
    fold[order] = np.arange(len(ids)) % N_FOLDS
    return fold


def calibrate(S: NDArray[np.float32], ids: NDArray[np.intp]) -> tuple[float, float]:
    """The temperature of least log-loss (convex in it), and that loss."""
    rows = np.arange(len(ids))

    def loss(log_t: float) -> float:
        return -float(np.mean(log(softmax(np.exp(log_t) * S)[rows, ids]), dtype=np.float64))

    low, high = np.log(TEMPERATURES)
    found = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 0.01})
    return float(np.exp(found.x)), float(found.fun)
