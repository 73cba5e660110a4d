r"""Scores of the label sets for every row: what an encoder makes codes of.

Ridge scores are ``s(x) = x P`` with ``P = (K + ridge I)^-1 X'E``, the regression of the indicator E of the label sets
on the features. Ridge regression is linear in its target, so ``s(x) C`` is the regression of the codewords C: the
linear hash function of every learner that ends with one. Logistic scores are log-posteriors, less their mean.

Whatever an encoder chooses on the training rows, it chooses on *held-out* scores: those of a model that did not see the
row. For ridge they are exact and cost no further fit: with h = x (K + ridge I)^-1 x', the scores of a row that was left
out are ``(s - h e) / (1 - h)``, e being the indicator of its own label set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from shorthash._labels import LabelGroups
from shorthash._types import Features, Floats
from shorthash.data.rows import Rows
from shorthash.learners.posteriors.folds import PosteriorModel, draw_folds
from shorthash.learners.posteriors.models import fit_posteriors
from shorthash.learners.solvers import Ridge
from shorthash.learners.statistics import GroupStatistics

__all__ = ["SCORES", "ClassScores", "HeldOut", "LogPosterior", "RidgeScores"]

NEARLY_ONE = 1e-8  # a row that determines its own scores has no others: 1 - h is kept above
SMALLEST = 1e-12  # keeps logarithms of posteriors finite


class ClassScores(Protocol):
    """What remains of a fit: a map of rows to scores."""

    def predict(self, X: Features) -> Floats:
        """Scores of the label sets, (n, u)."""


@dataclass(frozen=True)
class HeldOut:
    """Scores that are fitted, and how to get those of the training rows as if each had been left out."""

    model: ClassScores
    of_training_rows: Callable[[], Floats]  # (n, u)


@dataclass(frozen=True)
class RidgeScores:
    """Ridge regression of the indicator of the label sets."""

    weights: Floats  # (d, u)

    def predict(self, X: Features) -> Floats:
        """Scores of the label sets."""
        return np.asarray(X @ self.weights)


@dataclass(frozen=True)
class LogPosterior:
    """Logarithms of calibrated posteriors, less their mean over the label sets."""

    posterior: PosteriorModel

    def predict(self, X: Features) -> Floats:
        """Scores of the label sets."""
        return _centred_log(self.posterior.predict(np.asarray(X, dtype=np.float32)))


def fit_ridge(rows: Rows, groups: LabelGroups, ridge: float, rng: np.random.RandomState) -> HeldOut:  # noqa: ARG001
    """One pass for the regression; a second one, on demand, for the held-out scores."""
    seen = GroupStatistics.of(rows, groups)
    solver = Ridge(seen.gram, ridge)
    model = RidgeScores(solver.solve(seen.sums))

    def held_out() -> Floats:
        scores = np.empty((len(rows), len(groups.rows)))
        for part, batch in rows:
            X, ids = batch.astype(np.float64), groups.ids[part]
            h = np.einsum("ij,ji->i", X, solver.solve(X.T))
            S = model.predict(X)
            S[np.arange(len(ids)), ids] -= h
            scores[part] = S / np.maximum(1 - h, NEARLY_ONE)[:, None]
        return scores

    return HeldOut(model, held_out)


def fit_logistic(rows: Rows, groups: LabelGroups, ridge: float, rng: np.random.RandomState) -> HeldOut:  # noqa: ARG001
    """A log-linear model, which chooses its own penalty; held-out scores are out-of-fold."""
    X = np.concatenate([np.asarray(batch, dtype=np.float32) for _, batch in rows])
    folds = draw_folds(groups.ids, rng, every=True)
    [(_, fitted)] = fit_posteriors("logistic", X, groups.ids, groups.rows, folds)
    return HeldOut(LogPosterior(fitted.model), lambda: _centred_log(fitted.oof))


SCORES: dict[str, Callable[[Rows, LabelGroups, float, np.random.RandomState], HeldOut]] = {
    "ridge": fit_ridge,
    "logistic": fit_logistic,
}
"""Scores by name: functions of rows, label sets, ridge penalty and a source of random numbers."""


def _centred_log(P: Features) -> Floats:
    logs = np.log(np.maximum(P.astype(np.float64), SMALLEST))
    return np.asarray(logs - logs.mean(axis=1, keepdims=True))
