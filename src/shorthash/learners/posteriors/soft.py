"""Posteriors of one feature space learned from those of another: a log-linear model of soft targets.

The model is that of ``logistic.py`` with label sets as classes; targets are posteriors in the place of labels, rows are
whitened by their own covariance, shrunk, and weights are drawn towards 0. The penalty is that of least cross-entropy
out of fold.

Legend: X (n, d), T (n, u) targets, Z (n, d) rows in the space of the model, S (n, u) logits.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Features, Floats
from shorthash.learners.posteriors.folds import Fitted, Folds, Posteriors, in_threads, log, softmax
from shorthash.learners.posteriors.logistic import (
    MOST_ITERATIONS,
    PATH_TOLERANCE,
    PENALTIES,
    TOLERANCE,
    LogLinear,
    descend,
)
from shorthash.learners.posteriors.prototypes import shrunk, whitening


def fit_soft(X: Features, T: Posteriors, folds: Folds) -> Fitted:
    """The penalty of least cross-entropy out of fold, then a fit on all rows.

    Parameters
    ----------
    X : (n, d) rows
    T : (n, u) their targets, rows that sum to 1
    folds : which rows are held out together
    """
    parts = list(folds)
    prepared = in_threads(lambda part: _prepared(X[part[0]], T[part[0]]), parts)
    models = [start for start, _ in prepared]
    oof = np.empty((len(folds.rows), T.shape[1]), dtype=np.float32)
    best: tuple[float, float, Posteriors] | None = None
    for penalty in PENALTIES:

        def learned(k: int, penalty: float = penalty, models: list[LogLinear] = models) -> LogLinear:
            (start, Z), seen = prepared[k], parts[k][0]
            return _minimised(Z, T[seen], models[k], replace(start, penalty=penalty), PATH_TOLERANCE)

        models = in_threads(learned, range(len(parts)))
        for (_, held, places), model in zip(parts, models, strict=True):
            oof[places] = softmax(model.scores(model.scaled(X[held])))
        loss = cross_entropy(oof, T[folds.rows])
        if best is not None and loss >= best[0]:
            break
        best = loss, penalty, oof.copy()
    assert best is not None
    loss, penalty, oof = best
    start, Z = _prepared(X, T)
    start = replace(start, penalty=penalty)
    [model] = in_threads(lambda _: _minimised(Z, T, start, start, TOLERANCE), [None])
    return Fitted(model, oof, loss)


def cross_entropy(P: Posteriors, T: Posteriors) -> float:
    """Mean of ``-T log P`` over rows."""
    return -float(np.einsum("ij,ij->", T, log(P), dtype=np.float64)) / len(P)


def _prepared(X: Features, T: Posteriors) -> tuple[LogLinear, NDArray[np.float32]]:
    """A model without weights whose biases are the mean targets, and rows in its space."""
    center = X.mean(axis=0, dtype=np.float64)
    moved = X - center
    V = whitening(shrunk(moved.T @ moved / len(X)))
    d, u = X.shape[1], T.shape[1]
    bias = log(T.mean(axis=0, dtype=np.float64)).astype(np.float64)
    model = LogLinear(center, 1.0, np.zeros((d, u)), bias, np.eye(u, dtype=np.uint8), 1.0, 0.0, V)
    return model, model.scaled(X)


def soft_loss(Z: NDArray[np.float32], T: Posteriors, model: LogLinear) -> tuple[float, Floats, Floats]:
    """Mean cross-entropy of a model, and its slopes by weights and biases."""
    value, away = soft_gap(model.scores(Z), T)
    return value, (Z.T @ away).astype(np.float64) / len(Z), away.mean(axis=0, dtype=np.float64)


def soft_gap(S: NDArray[Any], T: Posteriors) -> tuple[float, NDArray[Any]]:
    """Mean cross-entropy of the softmax of logits S, and how far that softmax is from the targets, (n, u)."""
    S = S - S.max(axis=1, keepdims=True)
    total = np.log(np.exp(S).sum(axis=1, keepdims=True))
    value = float((total.sum(dtype=np.float64) - np.einsum("ij,ij->", T, S, dtype=np.float64)) / len(S))
    return value, np.exp(S - total) - T


def _minimised(
    Z: NDArray[np.float32], T: Posteriors, first: LogLinear, target: LogLinear, tolerance: float
) -> LogLinear:
    """The model of least cross-entropy, drawn towards ``target``."""
    return descend(partial(soft_loss, Z, T), first, target, tolerance, MOST_ITERATIONS)
