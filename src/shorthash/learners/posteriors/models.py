"""Posteriors over label sets, learned from the training rows and calibrated on rows they have not seen.

Everything that later steps optimise uses out-of-fold posteriors (OOF): those of models that did not see the row.

Legend: X (n, d), ids (n,) label set of every row, Yg (u, c) label rows of the sets, P (n, u) posteriors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, clone

from shorthash._arrays import to_numpy
from shorthash._progress import shown
from shorthash._rounding import FEW, UNIT, Rounded, Scored, by_itself, norms
from shorthash._types import Features, Floats
from shorthash.kernels.rbf import AnchorRBF
from shorthash.learners.posteriors.folds import (
    SMALLEST,
    Fitted,
    Folds,
    PosteriorModel,
    Posteriors,
    calibrate,
    in_threads,
    log,
    softmax,
)
from shorthash.learners.posteriors.logistic import LogLinear, fit_logistic
from shorthash.learners.posteriors.prototypes import fit_prototypes
from shorthash.learners.posteriors.ridge import KernelRidge, fit_ridge

LEAST_GAIN = 0.01  # share of the log-loss that a second model must take away
MOST_REMEMBERED = 2000  # rows; every row to encode is compared with each of them
NARROW = 0.1  # bandwidth of memory, in median distances of a row to its nearest other row
GAIN = 20.0  # what a remembered row adds to the logit of its own label set
LEAST_POWER = 1e-4  # of this gain, where equal rows contradict each other
SOME_ROWS = 500  # that this median is taken of


@dataclass(frozen=True)
class Combination(PosteriorModel):
    """A product of two models' posteriors, each raised to a power."""

    first: PosteriorModel
    second: PosteriorModel
    powers: Floats  # (2,)

    @property
    def n_sets(self) -> int:
        """Number of label sets."""
        return self.first.n_sets

    def logits(self, X: Rounded, *, exact: bool) -> Scored:
        """Weighted sums of the logits of both."""
        one, two = self.first.logits(X, exact=exact), self.second.logits(X, exact=exact)
        a, b = (float(power) for power in self.powers)
        size = a * abs(one.values) + b * abs(two.values)
        return Scored(a * one.values + b * two.values, a * one.bound + b * two.bound + FEW * UNIT * size)


@dataclass(frozen=True)
class Classified(PosteriorModel):
    """A scikit-learn classifier, its probabilities sharpened or flattened by one temperature."""

    classifier: Any
    temperature: float

    @property
    def n_sets(self) -> int:
        """Number of label sets."""
        return len(self.classifier.classes_)

    def logits(self, X: Rounded, *, exact: bool) -> Scored:
        """Logarithms of the probabilities, times the temperature."""
        rows = np.asarray(to_numpy(X.values), dtype=np.float64)
        P = by_itself(self.classifier.predict_proba, rows, exact=exact)
        logs = np.log(np.maximum(np.asarray(P.values, dtype=np.float64), SMALLEST))
        relative = P.error / norms(np.asarray(P.values, dtype=np.float64))  # assumed of every probability
        return Scored(self.temperature * logs, self.temperature * relative)


@shown("learning posteriors")
def fit_posteriors(
    kind: str | BaseEstimator,
    X: Features,
    ids: NDArray[np.intp],
    Yg: NDArray[np.uint8],
    folds: Folds,
    weaker: int = 0,
) -> list[tuple[str, Fitted]]:
    """Fit a model by name, or any classifier with ``predict_proba``; models and what to call them.

    With ``weaker``, the logistic model of least log-loss is followed by those of so many weaker penalties, which
    remember more of the rows. "auto" gives the parts of "combo" and the whole: codes of the least log-loss are not
    always those of the largest mAP.
    """
    if not isinstance(kind, str):
        return [(type(kind).__name__, _fit_classifier(kind, X, ids, Yg, folds))]
    if kind == "ridge":
        return [(kind, fit_ridge(X, ids, Yg, folds))]
    if kind == "prototypes":
        return [(kind, fit_prototypes(X, ids, Yg, folds))]
    found: list[tuple[str, Fitted]] = []
    for fitted in fit_logistic(X, ids, Yg, folds, weaker):
        assert isinstance(fitted.model, LogLinear)
        found.append((f"logistic, penalty {fitted.model.penalty:g}", fitted))
    if kind == "logistic":
        return found
    ridge = fit_ridge(X, ids, Yg, folds)
    together = combined(found[0][1], ridge, ids[folds.rows], LEAST_GAIN if kind == "combo" else 0.0)
    if kind == "combo":
        return found if together is None else [(f"{found[0][0]}, with a kernel", together), *found[1:]]
    if together is not None:
        found.append((f"{found[0][0]}, with a kernel", together))
    return [*found, ("ridge", ridge)]


POSTERIORS = ["logistic", "ridge", "combo", "prototypes"]
"""Models by name."""


def combined(one: Fitted, two: Fitted, labels: NDArray[np.intp], least_gain: float = LEAST_GAIN) -> Fitted | None:
    """Two models together; their powers by out-of-fold log-loss, which is convex in them.

    None where the second model does not take away a share of ``least_gain``, which pays for the time to encode with it.
    """
    judged = np.flatnonzero(np.bincount(labels)[labels] > 1)  # a set of one row was never seen out of fold
    if not len(judged):
        return None
    logs, labels, rows = (log(one.oof[judged]), log(two.oof[judged])), labels[judged], np.arange(len(judged))

    def loss(powers: Floats) -> tuple[float, Floats]:
        P = softmax(powers[0] * logs[0] + powers[1] * logs[1])
        value = -float(np.mean(log(P[rows, labels])))
        slope = [float(np.mean(np.sum(P * q, axis=1) - q[rows, labels])) for q in logs]
        return value, np.array(slope)

    found = minimize(loss, np.array([0.7, 0.3]), jac=True, bounds=[(0.0, 2.0)] * 2, method="L-BFGS-B")
    if float(found.fun) >= (1 - least_gain) * loss(np.array([1.0, 0.0]))[0]:
        return None
    model = Combination(one.model, two.model, np.asarray(found.x, dtype=np.float64))
    return Fitted(model, combine(one.oof, two.oof, model.powers), float(found.fun))


def _fit_classifier(
    classifier: BaseEstimator, X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8], folds: Folds
) -> Fitted:
    """Any classifier: out-of-fold probabilities, one temperature, then a fit on all rows."""
    P = np.zeros((len(folds.rows), len(Yg)), dtype=np.float32)
    for seen, held, places in folds:
        model = clone(classifier).fit(X[seen], ids[seen])
        P[np.ix_(places, model.classes_)] = model.predict_proba(X[held])
    temperature, loss = calibrate(log(P), ids[folds.rows])
    fitted = clone(classifier).fit(X, ids)
    return Fitted(Classified(fitted, temperature), softmax(temperature * log(P)), loss)


def combine(P: Posteriors, Q: Posteriors, powers: Floats) -> Posteriors:
    """p^a q^b, normalised."""
    return softmax(powers[0] * log(P) + powers[1] * log(Q))


def fit_remembered(fitted: Fitted, X: Features, ids: NDArray[np.intp], u: int, folds: Folds) -> Fitted:
    r"""The model with the rows remembered; its out-of-fold posteriors with those of the other folds.

    .. math:: p(s \mid x) \propto q(s \mid x)
        \exp\Bigl(g \sum_{i : s_i = s} e^{-\lVert x - x_i \rVert^2 / 2\sigma^2}\Bigr)

    with :math:`q` the model and :math:`\sigma` a tenth of the median distance of a row to its nearest other row. At a
    row that was learned its own label set prevails; half that distance away, less than 0.0001 is added to a logit. So
    training rows that are searched are found by their labels, which are known, and rows that were never seen are coded
    as without it. Equal rows of different label sets lower :math:`g`.
    """
    width, parts = NARROW * nearest_distance(X), list(folds)

    def added(part: Any) -> Floats:
        seen, held, _ = part
        K = np.exp(cdist(X[held], X[seen], "sqeuclidean") / (-2 * width**2))
        return np.asarray(K @ (GAIN * np.eye(u)[ids[seen]]))

    S = np.zeros((len(folds.rows), u), dtype=np.float32)
    for (_, _, places), more in zip(parts, in_threads(added, parts), strict=True):
        S[places] = more
    oof, power, loss = _trusted(log(fitted.oof), S, ids[folds.rows])
    return Fitted(Combination(fitted.model, _memory(X, ids, u, width), np.array([1.0, power])), oof, loss)


def _trusted(
    logs: NDArray[np.float32], S: NDArray[np.float32], labels: NDArray[np.intp]
) -> tuple[Posteriors, float, float]:
    """Out-of-fold posteriors with memory, its power, and their log-loss.

    The power is 1 unless equal rows contradict each other so often that memory harms: then that of least log-loss.
    """
    rows = np.arange(len(labels))

    def loss(power: float) -> float:
        return -float(np.mean(log(softmax(logs + power * S)[rows, labels]), dtype=np.float64))

    power = 1.0
    if loss(power) > (1 + LEAST_GAIN) * loss(0.0):
        found = minimize_scalar(lambda log_p: loss(np.exp(log_p)), bounds=(np.log(LEAST_POWER), 0.0), method="bounded")
        power = float(np.exp(found.x))
    return softmax(logs + power * S), power, loss(power)


def nearest_distance(X: Features) -> float:
    """Median distance of a row to its nearest other row, of those that are not equal; of some rows."""
    some = np.arange(0, len(X), -(-len(X) // SOME_ROWS))
    D: Floats = cdist(X[some], X)
    D[D == 0] = np.inf
    nearest = D.min(axis=1)
    return float(np.median(nearest[np.isfinite(nearest)]))


def _memory(X: Features, ids: NDArray[np.intp], u: int, width: float) -> KernelRidge:
    """Every row is an anchor, whose feature counts for its label set."""
    kernel: AnchorRBF = AnchorRBF(len(X), bandwidth=width, center=False, random_state=0).fit(X)
    return KernelRidge(kernel, GAIN * np.eye(u)[ids], np.zeros(u), 1.0, 0.0)
