r"""Logistic posteriors: a log-linear model over label sets.

.. math:: p(s \mid x) \propto \exp\bigl(\textstyle\sum_{k \in s} x w_k + b_s\bigr),

so label sets share what they have in common; where every sample has one label it is multinomial logistic regression.

Legend: X (n, d), ids (n,) label set of every row, Yg (u, c) label rows of the sets, S (n, u) logits.

Written by hand although scikit-learn has multinomial logistic regression: it has no log-linear model over label sets,
and warm starts along the penalties and float32 products make some twenty fits affordable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from shorthash._types import Features, Floats
from shorthash.learners.posteriors.folds import N_FOLDS, SMALLEST, Fitted, Posteriors, calibrate, folds, softmax

__all__ = ["LogLinear", "finish_logistic", "fit_logistic", "logistic_path", "minimise"]

PENALTIES = (0.1, 0.03, 0.01, 0.003, 0.001)  # tried in this order until the OOF log-loss rises


@dataclass(frozen=True)
class LogLinear:
    """Log-linear model over label sets."""

    center: Floats  # (d,)
    spread: float
    weights: Floats  # (d, c)
    bias: Floats  # (u,)
    label_rows: NDArray[np.uint8]  # (u, c)
    temperature: float
    penalty: float

    def scaled(self, X: Features) -> NDArray[np.float32]:
        """Rows, centred and divided by one number."""
        return np.asarray((X - self.center) / self.spread, dtype=np.float32)

    def predict(self, X: Features) -> Posteriors:
        """Posteriors over the label sets."""
        S = _logits(self.scaled(X), self.weights, self.bias, self.label_rows)
        return softmax(self.temperature * S)


def fit_logistic(X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8], rng: np.random.RandomState) -> Fitted:
    """Penalty and temperature by out-of-fold log-loss, then a fit on all rows."""
    best: Fitted | None = None
    for fitted in logistic_path(X, ids, Yg, rng):
        if best is not None and fitted.loss >= best.loss:
            break
        best = fitted
    assert best is not None
    return finish_logistic(best, X, ids)


def logistic_path(
    X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8], rng: np.random.RandomState
) -> Iterator[Fitted]:
    """Out-of-fold posteriors for one penalty after the other, from strong to weak; the models still lack weights."""
    center, spread = X.mean(axis=0, dtype=np.float64), max(float(X.std(dtype=np.float64)), SMALLEST)
    u, c = Yg.shape
    model = LogLinear(center, spread, np.zeros((X.shape[1], c)), np.zeros(u), Yg, 1.0, PENALTIES[0])
    Z, fold = model.scaled(X), folds(ids, rng)
    start = [(model.weights, model.bias)] * N_FOLDS
    for penalty in PENALTIES:
        S = np.empty((len(ids), u), dtype=np.float32)
        for k in range(N_FOLDS):
            seen = fold != k
            start[k] = minimise(Z[seen], ids[seen], Yg, penalty, *start[k], max_iter=30)
            S[~seen] = _logits(Z[~seen], *start[k], Yg)
        temperature, loss = calibrate(S, ids)
        yield Fitted(replace(model, temperature=temperature, penalty=penalty), softmax(temperature * S), loss)


def finish_logistic(fitted: Fitted, X: Features, ids: NDArray[np.intp]) -> Fitted:
    """The model of a step of the path, with its weights, learned from all rows."""
    model = fitted.model
    assert isinstance(model, LogLinear)
    start = model.weights, model.bias
    weights, bias = minimise(model.scaled(X), ids, model.label_rows, model.penalty, *start, max_iter=60)
    return replace(fitted, model=replace(model, weights=weights, bias=bias))


def _logits(Z: NDArray[np.float32], W: Floats, b: Floats, Yg: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Logits of the label sets, (n, u)."""
    S = Z @ W.astype(np.float32)
    if not _one_hot(Yg):
        S = S @ Yg.T.astype(np.float32)
    S += b.astype(np.float32)
    return np.asarray(S)


def _one_hot(Yg: NDArray[np.uint8]) -> bool:
    return Yg.shape[0] == Yg.shape[1] and bool(np.array_equal(Yg, np.eye(len(Yg), dtype=np.uint8)))


def minimise(
    Z: NDArray[np.float32],
    ids: NDArray[np.intp],
    Yg: NDArray[np.uint8],
    penalty: float,
    W: Floats,
    b: Floats,
    *,
    max_iter: int,
) -> tuple[Floats, Floats]:
    """Weights and biases of least mean log-loss + penalty / 2 ||W||^2, from a start; L-BFGS."""
    n, rows, single = len(ids), np.arange(len(ids)), _one_hot(Yg)

    def loss(v: Floats) -> tuple[float, Floats]:
        weights, bias = v[: W.size].reshape(W.shape), v[W.size :]
        S = _logits(Z, weights, bias, Yg)
        S -= S.max(axis=1, keepdims=True)
        own = S[rows, ids].sum(dtype=np.float64)
        np.exp(S, out=S)
        total = S.sum(axis=1)
        value = (np.log(total).sum(dtype=np.float64) - own) / n + penalty / 2 * np.sum(weights**2)
        S /= total[:, None]
        S[rows, ids] -= 1
        by_label = S if single else S @ Yg.astype(np.float32)
        slope = (Z.T @ by_label).astype(np.float64) / n + penalty * weights
        return float(value), np.concatenate([slope.ravel(), S.sum(axis=0, dtype=np.float64) / n])

    options: Any = {"maxiter": max_iter, "maxcor": 10, "gtol": 1e-5}
    found = minimize(loss, np.concatenate([W.ravel(), b]), jac=True, method="L-BFGS-B", options=options)
    return found.x[: W.size].reshape(W.shape), found.x[W.size :]
