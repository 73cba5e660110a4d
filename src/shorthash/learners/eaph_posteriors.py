r"""Posteriors over label sets, learned from the training rows and calibrated on rows they have not seen.

The logistic model is log-linear in the labels of a set,

.. math:: p(s \mid x) \propto \exp\bigl(\textstyle\sum_{k \in s} x w_k + b_s\bigr),

so label sets share what they have in common; where every sample has one label it is multinomial logistic regression.
Everything that later steps optimise uses out-of-fold posteriors (OOF): those of models that did not see the row.

Legend: X (n, d), ids (n,) label set of every row, Yg (u, c) label rows of the sets, S (n, u) logits, P (n, u)
posteriors.

The fit is written by hand although scikit-learn has multinomial logistic regression: it has no log-linear model over
label sets, and warm starts along the penalties and float32 products make some twenty fits affordable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from sklearn.base import BaseEstimator, clone

from shorthash._types import Features, Floats
from shorthash.kernels.rbf import AnchorRBF

__all__ = ["POSTERIORS", "Fitted", "PosteriorModel", "finish_logistic", "fit_posteriors", "logistic_path"]

Posteriors = NDArray[np.float32]

N_FOLDS = 5
PENALTIES = (0.1, 0.03, 0.01, 0.003, 0.001)  # of the logistic model, tried in this order until the OOF log-loss rises
WIDTHS = (0.5, 0.7, 1.0)  # bandwidths of the kernel model, in root-mean-square distances between rows
RIDGES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
TEMPERATURES = (0.2, 100.0)
N_ANCHORS = 1000
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


@dataclass(frozen=True)
class Combination:
    """A product of two models' posteriors, each raised to a power."""

    first: PosteriorModel
    second: PosteriorModel
    powers: Floats  # (2,)

    def predict(self, X: Features) -> Posteriors:
        """Posteriors over the label sets."""
        return combine(self.first.predict(X), self.second.predict(X), self.powers)


@dataclass(frozen=True)
class Classified:
    """A scikit-learn classifier, its probabilities sharpened or flattened by one temperature."""

    classifier: Any
    temperature: float

    def predict(self, X: Features) -> Posteriors:
        """Posteriors over the label sets."""
        return softmax(self.temperature * _log(self.classifier.predict_proba(X)))


def fit_posteriors(
    kind: str | BaseEstimator, X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8], rng: np.random.RandomState
) -> Fitted:
    """Fit a model by name, or any classifier with ``predict_proba``."""
    if isinstance(kind, str):
        return POSTERIORS[kind](X, ids, Yg, rng)
    return _fit_classifier(kind, X, ids, Yg, rng)


def _fit_logistic(X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8], rng: np.random.RandomState) -> Fitted:
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
    Z, fold = model.scaled(X), _folds(ids, rng)
    start = [(model.weights, model.bias)] * N_FOLDS
    for penalty in PENALTIES:
        S = np.empty((len(ids), u), dtype=np.float32)
        for k in range(N_FOLDS):
            seen = fold != k
            start[k] = _minimise(Z[seen], ids[seen], Yg, penalty, *start[k], max_iter=30)
            S[~seen] = _logits(Z[~seen], *start[k], Yg)
        temperature, loss = _calibrate(S, ids)
        yield Fitted(replace(model, temperature=temperature, penalty=penalty), softmax(temperature * S), loss)


def finish_logistic(fitted: Fitted, X: Features, ids: NDArray[np.intp]) -> Fitted:
    """The model of a step of the path, with its weights, learned from all rows."""
    model = fitted.model
    assert isinstance(model, LogLinear)
    start = model.weights, model.bias
    weights, bias = _minimise(model.scaled(X), ids, model.label_rows, model.penalty, *start, max_iter=60)
    return replace(fitted, model=replace(model, weights=weights, bias=bias))


def _fit_ridge(X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8], rng: np.random.RandomState) -> Fitted:
    """Bandwidth, ridge and temperature by out-of-fold log-loss, anchors drawn inside each fold; then all rows."""
    u, fold = len(Yg), _folds(ids, rng)
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
            temperature, loss = _calibrate(S, ids)
            if best is None or loss < best[0]:
                best = (loss, width, ridge, temperature, softmax(temperature * S))
    assert best is not None
    loss, width, ridge, temperature, oof = best
    kernel, values, vectors, right, bias = _kernel_system(X, ids, u, width * distance, rng)
    weights = vectors @ (right / (values + ridge)[:, None])
    return Fitted(KernelRidge(kernel, weights, bias, temperature, ridge), oof, loss)


def _fit_combination(X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8], rng: np.random.RandomState) -> Fitted:
    """Logistic and kernel model together; their powers by out-of-fold log-loss, which is convex in them."""
    one, two = _fit_logistic(X, ids, Yg, rng), _fit_ridge(X, ids, Yg, rng)
    logs = _log(one.oof), _log(two.oof)
    rows = np.arange(len(ids))

    def loss(powers: Floats) -> tuple[float, Floats]:
        P = softmax(powers[0] * logs[0] + powers[1] * logs[1])
        value = -float(np.mean(_log(P[rows, ids])))
        slope = [float(np.mean(np.sum(P * q, axis=1) - q[rows, ids])) for q in logs]
        return value, np.array(slope)

    found = minimize(loss, np.array([0.7, 0.3]), jac=True, bounds=[(0.0, 2.0)] * 2, method="L-BFGS-B")
    model = Combination(one.model, two.model, np.asarray(found.x, dtype=np.float64))
    return Fitted(model, combine(one.oof, two.oof, model.powers), float(found.fun))


def _fit_classifier(
    classifier: BaseEstimator,
    X: Features,
    ids: NDArray[np.intp],
    Yg: NDArray[np.uint8],
    rng: np.random.RandomState,
) -> Fitted:
    """Any classifier: out-of-fold probabilities, one temperature, then a fit on all rows."""
    fold = _folds(ids, rng)
    P = np.zeros((len(ids), len(Yg)), dtype=np.float32)
    for k in np.unique(fold):
        seen = fold != k
        model = clone(classifier).fit(X[seen], ids[seen])
        P[np.ix_(~seen, model.classes_)] = model.predict_proba(X[~seen])
    temperature, loss = _calibrate(_log(P), ids)
    fitted = clone(classifier).fit(X, ids)
    return Fitted(Classified(fitted, temperature), softmax(temperature * _log(P)), loss)


POSTERIORS: dict[str, Callable[..., Fitted]] = {
    "logistic": _fit_logistic,
    "ridge": _fit_ridge,
    "combo": _fit_combination,
}


def softmax(S: NDArray[Any]) -> Posteriors:
    """Rows of logits as posteriors."""
    P = np.asarray(S - S.max(axis=1, keepdims=True), dtype=np.float32)
    np.exp(P, out=P)
    P /= P.sum(axis=1, keepdims=True)
    return P


def combine(P: Posteriors, Q: Posteriors, powers: Floats) -> Posteriors:
    """p^a q^b, normalised."""
    return softmax(powers[0] * _log(P) + powers[1] * _log(Q))


def _log(P: NDArray[Any]) -> NDArray[np.float32]:
    return np.asarray(np.log(np.maximum(P, SMALLEST)), dtype=np.float32)


def _folds(ids: NDArray[np.intp], rng: np.random.RandomState) -> NDArray[np.intp]:
    """Fold of every row, label sets spread evenly."""
    order = rng.permutation(len(ids))
    order = order[np.argsort(ids[order], kind="stable")]
    fold = np.empty(len(ids), dtype=np.intp)
    fold[order] = np.arange(len(ids)) % N_FOLDS
    return fold


def _calibrate(S: NDArray[np.float32], ids: NDArray[np.intp]) -> tuple[float, float]:
    """The temperature of least log-loss (convex in it), and that loss."""
    rows = np.arange(len(ids))

    def loss(log_t: float) -> float:
        return -float(np.mean(_log(softmax(np.exp(log_t) * S)[rows, ids]), dtype=np.float64))

    low, high = np.log(TEMPERATURES)
    found = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 0.01})
    return float(np.exp(found.x)), float(found.fun)


def _logits(Z: NDArray[np.float32], W: Floats, b: Floats, Yg: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Logits of the label sets, (n, u)."""
    S = Z @ W.astype(np.float32)
    if not _one_hot(Yg):
        S = S @ Yg.T.astype(np.float32)
    S += b.astype(np.float32)
    return np.asarray(S)


def _one_hot(Yg: NDArray[np.uint8]) -> bool:
    return Yg.shape[0] == Yg.shape[1] and bool(np.array_equal(Yg, np.eye(len(Yg), dtype=np.uint8)))


def _minimise(
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
