r"""Linear posteriors: a log-linear model over label sets, learned towards the means of the label sets; or those alone.

.. math:: p(s \mid x) \propto \exp\Bigl(\tau \bigl(\textstyle\sum_{k \in s} \phi(x) w_k + b_s\bigr)\Bigr), \qquad
    \phi(x) = \sqrt d\, \frac{V'(x - m)}{\lVert V'(x - m) \rVert}, \quad V V' = \Sigma^{-1},

with :math:`\Sigma` the covariance within label sets, half of it shrunk to a multiple of the identity. Weights minimise
the log-loss plus :math:`\frac\lambda2 \lVert W - W_0 \rVert^2`; where every row has one label, :math:`W_0` are the
directions of the class means, so that few rows give little more than prototypes, and many rows logistic regression.
Label sets share the weights of the labels they have in common.

``fit_soft`` learns from posteriors T of another feature space instead of labels: every label set is a class, rows
are whitened by their own covariance, shrunk, and weights are drawn towards 0.

``fit_prototypes`` fits no weights: logits are cosines to the means :math:`\mu_s` of the label sets,

.. math:: p(s \mid x) \propto \exp(t \cos(V'(x - m), V'(\mu_s - m))), \qquad V V' = \Sigma^{-1} \text{ on the means}.

These posteriors are slightly worse, but they place a class that was never learned among those it resembles, because
nothing is fitted to tell the known classes apart.

Legend: X (n, d), ids (n,) label set of every row, Yg (u, c) label rows of the sets, Z (n, d) rows in the space of
:math:`\phi`, S (n, u) logits, T (n, u) targets.

Written by hand although scikit-learn has multinomial logistic regression: it has no log-linear model over label sets,
no start to be drawn towards, and no warm starts along the penalties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize

from shorthash._arrays import Features, Floats, namespace
from shorthash._rounding import FEW, UNIT, Rounded, Scored, linear, normalised, shifted_product
from shorthash.learners.posteriors.folds import (
    FEW_ROWS,
    SCALE_GAIN,
    SMALLEST,
    Fitted,
    Folds,
    PosteriorModel,
    Posteriors,
    calibrate,
    in_threads,
    log,
    softmax,
    uneven_scales,
)

SHRINKAGE = 0.5  # of the covariance within label sets
EXPECTED_PULL = 0.8  # scale of the class means towards which weights are drawn, before few rows are looked at
PENALTIES = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6)  # in this order until the OOF loss rises
BIAS_PENALTY = 0.1  # of the biases, against that of the weights
MOST_ITERATIONS = 60  # of L-BFGS
TOLERANCE, PATH_TOLERANCE = 1e-5, 1e-4  # relative gain below which it stops, and where penalties are compared
BLOCK_ROWS = 4096  # rows whose logits are held at once
TRIAL_ROWS, TRIAL_HELD_OUT, TRIAL_PENALTY = 4000, 1000, 0.03  # with which scales of columns are tried
WIDE, FLAT = 1024, 1e-9  # columns from which on few rows are treated apart; eigenvalues below this share are rounding
LARGE = 5e8  # rows times features times label sets from which on one fold chooses the penalty


@dataclass(frozen=True)
class LogLinear(PosteriorModel):
    """Log-linear model over label sets."""

    center: Floats  # (d,)
    spread: float  # what rows are divided by, in models of version 0.1
    weights: Floats  # (d, c)
    bias: Floats  # (u,)
    label_rows: NDArray[np.uint8]  # (u, c)
    temperature: float
    penalty: float
    whitening: Floats | None = None  # (d, d) V, scales of columns included; None in models of version 0.1

    @property
    def n_sets(self) -> int:
        """Number of label sets."""
        return len(self.label_rows)

    def logits(self, X: Rounded, *, exact: bool) -> Scored:
        """Logits of the label sets, (n, u)."""
        Z = self._mapped(X, exact=exact)
        if is_one_hot(self.label_rows):
            S = linear(Z, self.weights, self.bias, exact=exact)
        else:
            by_class = linear(Z, self.weights, 0.0, exact=exact)
            worst = namespace(by_class.values).max(by_class.bound, axis=1, keepdims=True)
            error = Rounded(by_class.values, worst * self.weights.shape[1] ** 0.5)
            S = linear(error, self.label_rows.T.astype(np.float64), self.bias, exact=exact)
        return Scored(self.temperature * S.values, self.temperature * (1 + FEW * UNIT) * S.bound)

    def _mapped(self, X: Rounded, *, exact: bool) -> Rounded:
        """phi(x) with a bound of its rounding error."""
        if self.whitening is None:
            return shifted_product(X, self.center, np.eye(len(self.center)) / self.spread, exact=exact)
        Z = normalised(shifted_product(X, self.center, self.whitening, exact=exact), exact=exact)
        root = len(self.whitening) ** 0.5
        return Rounded(root * Z.values, root * (Z.error + UNIT))

    def scaled(self, X: Features) -> NDArray[np.float32]:
        """Phi of rows in float32, for learning."""
        if self.whitening is None:
            return np.asarray((X - self.center) / self.spread, dtype=np.float32)
        Z = np.asarray(X - self.center.astype(np.float32), dtype=np.float32) @ self.whitening.astype(np.float32)
        Z *= np.sqrt(Z.shape[1]) / np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), SMALLEST)
        return Z

    def scores(self, Z: NDArray[np.float32]) -> NDArray[np.float32]:
        """Logits of scaled rows in float32, for learning; the temperature is left out."""
        S = Z @ self.weights.astype(np.float32)
        if not is_one_hot(self.label_rows):
            S = S @ self.label_rows.T.astype(np.float32)
        S += self.bias.astype(np.float32)
        return np.asarray(S)


def fit_logistic(X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8], folds: Folds) -> Fitted:
    """Penalty and temperature by out-of-fold log-loss, then a fit on all rows.

    Where fits are large the penalty is chosen on the first fold, and the others are learned with it alone.
    """
    large = X.size * len(Yg) > LARGE
    scales = column_scales(X, ids, Yg, folds)
    best: Step | None = None
    for step in logistic_path(X, ids, Yg, folds.first() if large else folds, scales=scales):
        if best is not None and not step.loss < best.loss:
            break
        best = step
    assert best is not None
    if large:
        options: Any = {"scales": scales, "tolerance": TOLERANCE, "start": best.models[0]}
        [best] = logistic_path(X, ids, Yg, folds, (best.penalty,), **options)
    return finished(best, X, ids, Yg)


def column_scales(X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8], folds: Folds) -> Floats | None:
    """Scales of the columns, (d,), where some rows of the first fold are predicted better with them; else None."""
    scales = uneven_scales(X)
    if scales is None:
        return None
    seen, held, _ = next(iter(folds))
    seen, held = _some(seen, TRIAL_ROWS), _some(held, TRIAL_HELD_OUT)
    rows = np.concatenate([seen, held])
    trial = Folds.one(np.arange(len(rows)) >= len(seen))
    paths = [logistic_path(X[rows], ids[rows], Yg, trial, (TRIAL_PENALTY,), scales=each) for each in (None, scales)]
    [plain], [tried] = paths
    return scales if tried.loss < (1 - SCALE_GAIN) * plain.loss else None


def _some(rows: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """At most so many of the rows, evenly spread over them."""
    return rows[:: -(-len(rows) // most)]


@dataclass(frozen=True)
class Step:
    """One penalty: its out-of-fold posteriors, and the parameters of a fit on all rows."""

    penalty: float
    temperature: float
    pull: float  # scale of the class means towards which weights are drawn
    oof: Posteriors
    loss: float
    models: list[LogLinear]  # of every fold
    scales: Floats | None  # of the columns


def finished(step: Step, X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8]) -> Fitted:
    """The model of a penalty, learned from all rows."""
    [(target, Z)] = in_threads(lambda scales: _in_space(X, ids, Yg, scales), [step.scales])
    towards = replace(target, weights=step.pull * target.weights, penalty=step.penalty)
    weights, bias = (np.mean([getattr(m, name) for m in step.models], axis=0) for name in ("weights", "bias"))
    start = replace(towards, weights=weights, bias=bias)  # close to the outcome: folds share most of their rows
    model = minimise(Z, ids, start, towards, TOLERANCE, in_threads)
    return Fitted(replace(model, temperature=step.temperature), step.oof, step.loss, step.scales is not None)


def logistic_path(
    X: Features,
    ids: NDArray[np.intp],
    Yg: NDArray[np.uint8],
    folds: Folds,
    penalties: tuple[float, ...] | None = None,
    *,
    scales: Floats | None = None,
    tolerance: float | None = None,
    start: LogLinear | None = None,
) -> Iterator[Step]:
    """Out-of-fold posteriors for one penalty after the other, from strong to weak, each starting from the one before.

    Parameters
    ----------
    X, ids, Yg : rows, their label sets, and the label rows of those
    folds : which rows are held out together
    penalties : ``PENALTIES`` if not given
    scales : (d,) what columns are multiplied by before anything else; None for columns as they are
    tolerance : relative gain below which L-BFGS stops; larger by default where there are many steps to start from
    start : the model that the first fold starts from, which must not have seen its rows; the others start from the one
        that the penalty draws towards
    """

    def prepared(part: Any) -> tuple[LogLinear, Any, Any]:
        seen, held, _ = part
        target, Z = _in_space(X[seen], ids[seen], Yg, scales)
        return target, Z, target.scaled(X[held])

    parts, labels, judged = list(folds), ids[folds.rows], folds.judged(ids)
    found = in_threads(prepared, parts)
    S = np.empty((len(labels), len(Yg)), dtype=np.float32)
    for (_, _, places), (target, _, held) in zip(parts, found, strict=True):
        S[places] = target.scores(held)
    expected = EXPECTED_PULL if len(X) <= FEW_ROWS else None
    pull = calibrate(S, labels, judged, expected=expected)[0] if is_one_hot(Yg) else 1.0
    targets = [replace(target, weights=pull * target.weights) for target, _, _ in found]
    models = list(targets)
    if start is not None:
        models[0] = replace(models[0], weights=start.weights, bias=start.bias)
    tolerance = PATH_TOLERANCE if tolerance is None else tolerance
    by_folds, by_rows = (in_threads, one_by_one) if len(parts) > 1 else (one_by_one, in_threads)
    for penalty in PENALTIES if penalties is None else penalties:

        def learn(k: int, penalty: float = penalty, models: list[LogLinear] = models) -> LogLinear:
            (seen, _, places), (_, Z, held) = parts[k], found[k]
            before = replace(models[k], penalty=penalty)
            model = minimise(Z, ids[seen], before, targets[k], tolerance, by_rows)
            S[places] = model.scores(held)
            return model

        models = by_folds(learn, range(len(parts)))
        temperature, loss = calibrate(S, labels, judged, expected=1.0)
        yield Step(penalty, temperature, pull, softmax(temperature * S), loss, models, scales)


def _in_space(
    X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8], scales: Floats | None
) -> tuple[LogLinear, NDArray[np.float32]]:
    """The weights and biases that a penalty draws towards, and the rows in their space."""
    means, counts = class_means(X, ids, len(Yg))
    center = means[counts > 0].mean(axis=0)
    V = whitening_of(within_sets(X, ids, means, scales))
    if scales is not None:
        V *= scales[:, None]
    d, c = X.shape[1], Yg.shape[1]
    model = LogLinear(center, 1.0, np.zeros((d, c)), np.zeros(len(Yg)), Yg, 1.0, 0.0, V)
    Z = model.scaled(X)
    if not is_one_hot(Yg):
        return replace(model, bias=np.log((counts + 0.5) / len(ids))), Z
    directions, _ = class_means(Z, ids, len(Yg))
    length = np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), SMALLEST)
    return replace(model, weights=(directions / length).T), Z


def class_means(X: Features, ids: NDArray[np.intp], u: int) -> tuple[Floats, NDArray[np.intp]]:
    """Mean of the rows of every label set, (u, d), and their number; the mean of a set without rows is 0."""
    order, counts = np.argsort(ids, kind="stable"), np.bincount(ids, minlength=u)
    filled, starts = counts > 0, np.cumsum(counts) - counts
    Mu = np.zeros((u, X.shape[1]))
    Mu[filled] = np.add.reduceat(X[order].astype(np.float64), starts[filled], axis=0) / counts[filled, None]
    return Mu, counts


@dataclass(frozen=True)
class Spread:
    """The shrunk covariance of rows with mean 0, by its eigenvalues.

    Attributes
    ----------
    values, vectors : (r,) eigenvalues and (d, r) eigenvectors
    rest : eigenvalue of all directions beside these
    """

    values: Floats
    vectors: Floats
    rest: float = 0.0

    @classmethod
    def of_rows(cls, R: Features) -> Spread:
        """Of few rows with many columns by their products, which takes less time."""
        n, d = R.shape
        if not is_wide(R):
            return cls(*np.linalg.eigh(shrunk(R.T @ R / n)))
        values, vectors = np.linalg.eigh(R @ R.T / n)
        rest = SHRINKAGE * max(float(values.sum()) / d, SMALLEST)
        some = values > FLAT * values[-1]
        vectors = R.T @ (vectors[:, some] / np.sqrt(n * values[some]))
        return cls((1 - SHRINKAGE) * values[some] + rest, vectors, rest)

    def times(self, factor: float) -> Spread:
        """The covariance multiplied by a number."""
        return Spread(factor * self.values, self.vectors, factor * self.rest)

    def power(self, exponent: float) -> Floats:
        """A power of the covariance, (d, d)."""
        if not self.rest:
            return np.asarray((self.vectors * self.values**exponent) @ self.vectors.T)
        beside = self.rest**exponent
        return np.asarray(
            (self.vectors * (self.values**exponent - beside)) @ self.vectors.T + beside * np.eye(len(self.vectors))
        )

    def distances(self, A: Floats) -> Floats:
        """Squared lengths of rows in units of the covariance, (n,)."""
        along = (A @ self.vectors) ** 2
        found = (along / self.values).sum(axis=1)
        if self.rest:
            found += np.maximum(np.einsum("ij,ij->i", A, A) - along.sum(axis=1), 0.0) / self.rest
        return np.asarray(found)


def is_wide(R: Features) -> bool:
    """Whether rows are few and columns many."""
    return bool(WIDE <= R.shape[1] > len(R))


def within_sets(X: Features, ids: NDArray[np.intp], means: Floats, scales: Floats | None = None) -> Floats:
    """Rows less the means of their label sets, in scaled columns where there are ``scales``."""
    R = X - means[ids]
    return np.asarray(R if scales is None else R * scales)


def whitening_of(R: Floats) -> Floats:
    """V with V V' the inverse of the shrunk covariance of rows with mean 0, (d, d)."""
    return Spread.of_rows(R).power(-0.5) if is_wide(R) else whitening(shrunk(R.T @ R / len(R)))


def whitening(covariance: Floats) -> Floats:
    """V with V V' the inverse of a covariance, (d, d); upper triangular, which takes less time than a symmetric one."""
    L = cholesky(covariance, lower=True, check_finite=False)
    return np.asarray(solve_triangular(L, np.eye(len(L)), lower=True, overwrite_b=True, check_finite=False).T)


def shrunk(within: Floats) -> Floats:
    """Half of a covariance and half a multiple of the identity."""
    scale = max(float(np.trace(within)) / len(within), SMALLEST)
    return np.asarray((1 - SHRINKAGE) * within + SHRINKAGE * scale * np.eye(len(within)))


def is_one_hot(Yg: NDArray[np.uint8]) -> bool:
    """Whether label sets are the classes, in their order."""
    return Yg.shape[0] == Yg.shape[1] and bool(np.array_equal(Yg, np.eye(len(Yg), dtype=np.uint8)))


def minimise(
    Z: NDArray[np.float32],
    ids: NDArray[np.intp],
    start: LogLinear,
    target: LogLinear,
    tolerance: float,
    each: Callable[..., list[Any]] = in_threads,
) -> LogLinear:
    """The model of least log-loss of rows, drawn towards ``target`` with the penalty of ``start``.

    Sums are added up over blocks of rows, always in the same order; ``each`` is how a function is called for all
    blocks: ``in_threads`` or ``one_by_one``.
    """
    n, single = len(ids), is_one_hot(target.label_rows)
    label_rows = target.label_rows.astype(np.float32)
    blocks = [slice(first, first + BLOCK_ROWS) for first in range(0, n, BLOCK_ROWS)]

    def loss(model: LogLinear) -> tuple[float, Floats, Floats]:
        def terms(part: slice) -> tuple[float, Floats, Floats]:
            S, own = model.scores(Z[part]), ids[part]
            rows = np.arange(len(own))
            S -= S.max(axis=1, keepdims=True)
            known = S[rows, own].sum(dtype=np.float64)
            np.exp(S, out=S)
            total = S.sum(axis=1)
            value = np.log(total).sum(dtype=np.float64) - known
            S /= total[:, None]
            S[rows, own] -= 1
            slope = Z[part].T @ (S if single else S @ label_rows)
            return float(value), slope.astype(np.float64), S.sum(axis=0, dtype=np.float64)

        value, slope, bias = (sum(parts) / n for parts in zip(*each(terms, blocks), strict=True))
        return value, slope, bias

    return descend(loss, start, replace(target, penalty=start.penalty), tolerance, MOST_ITERATIONS)


def one_by_one(function: Callable[..., Any], items: Iterable[Any]) -> list[Any]:
    """``function`` of every item, one after the other."""
    return [function(item) for item in items]


def descend(
    loss: Callable[[LogLinear], tuple[float, Floats, Floats]],
    start: LogLinear,
    target: LogLinear,
    tolerance: float,
    most_steps: int,
) -> LogLinear:
    """The model of least mean log-loss + penalty / 2 (||W - W0||^2 + 0.1 ||b - b0||^2), from a start; L-BFGS.

    Parameters
    ----------
    loss : mean log-loss of a model, and its slopes by weights and biases
    start : the model to begin with
    target : W0, b0 and the penalty
    tolerance : relative gain below which to stop
    most_steps : most iterations; a line search may need another evaluation of the loss
    """
    shape, size, u = target.weights.shape, target.weights.size, len(target.bias)
    penalty = np.concatenate([np.full(size, target.penalty), np.full(u, BIAS_PENALTY * target.penalty)])
    anchor = np.concatenate([target.weights.ravel(), target.bias])

    def model_of(v: Floats) -> LogLinear:
        return replace(target, weights=v[:size].reshape(shape), bias=v[size:])

    def penalised(v: Floats) -> tuple[float, Floats]:
        value, by_weights, by_bias = loss(model_of(v))
        away = v - anchor
        slope = np.concatenate([by_weights.ravel(), by_bias])
        return value + np.sum(penalty * away**2) / 2, slope + penalty * away

    options: Any = {"maxiter": most_steps, "maxfun": 2 * most_steps, "maxcor": 10, "gtol": 1e-6, "ftol": tolerance}
    first = np.concatenate([start.weights.ravel(), start.bias])
    return model_of(minimize(penalised, first, jac=True, method="L-BFGS-B", options=options).x)


# soft targets ---------------------------------------------------------------------------------------------------------


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
            target = replace(start, penalty=penalty)
            return descend(partial(soft_loss, Z, T[seen]), models[k], target, PATH_TOLERANCE, MOST_ITERATIONS)

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
    start, of = replace(start, penalty=penalty), partial(soft_loss, Z, T)
    [model] = in_threads(lambda first: descend(of, first, first, TOLERANCE, MOST_ITERATIONS), [start])
    return Fitted(model, oof, loss)


def cross_entropy(P: Posteriors, T: Posteriors) -> float:
    """Mean of ``-T log P`` over rows."""
    return -float(np.einsum("ij,ij->", T, log(P), dtype=np.float64)) / len(P)


def _prepared(X: Features, T: Posteriors) -> tuple[LogLinear, NDArray[np.float32]]:
    """A model without weights whose biases are the mean targets, and rows in its space."""
    center = X.mean(axis=0, dtype=np.float64)
    V = whitening_of(X - center)
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


# prototypes -----------------------------------------------------------------------------------------------------------


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
    temperature, loss = calibrate(S, ids[folds.rows], folds.judged(ids))
    whole = _prototypes(X, ids, len(Yg))
    model = Prototypes(whole.center, whole.directions, whole.means, temperature)
    return Fitted(model, softmax(temperature * S), loss)


def _prototypes(X: Features, ids: NDArray[np.intp], u: int) -> Prototypes:
    """Means, and the directions in which they differ, scaled by the spread within label sets."""
    Mu, counts = class_means(X, ids, u)
    V = whitening_of(within_sets(X, ids, Mu))
    center = Mu[counts > 0].mean(axis=0)
    Mu[counts == 0] = center  # a label set that no row has: as far from everything
    A = V.T @ (Mu - center).T  # (d, u), whitened means
    basis, values, _ = np.linalg.svd(A, full_matrices=False)
    basis = basis[:, values > SMALLEST * max(float(values[0]), SMALLEST)]
    means = (basis.T @ A) / np.maximum(np.linalg.norm(A, axis=0), SMALLEST)
    return Prototypes(center, V @ basis, means, 1.0)
