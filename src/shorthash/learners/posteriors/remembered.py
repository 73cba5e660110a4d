r"""Posteriors that remember the rows they were learned from, and are those of another model everywhere else.

.. math:: p(s \mid x) \propto q(s \mid x) \exp\Bigl(g \sum_{i : s_i = s} e^{-\lVert x - x_i \rVert^2 / 2\sigma^2}\Bigr)

with :math:`q` the other model and :math:`\sigma` a tenth of the median distance of a row to its nearest other row. At a
row that was learned its own label set prevails; half that distance away, less than 0.0001 is added to a logit. So
training rows that are searched are found by their labels, which are known, and rows that were never seen are coded as
without it.

Legend: X (n, d), ids (n,) label set of every row, u label sets, S (m, u) what is added to the logits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from shorthash._types import Features, Floats
from shorthash.kernels.rbf import AnchorRBF
from shorthash.learners.posteriors.folds import Fitted, Folds, log, softmax
from shorthash.learners.posteriors.models import Combination
from shorthash.learners.posteriors.ridge import KernelRidge

MOST_ROWS = 2000  # that are remembered; every row to encode is compared with each of them
NARROW = 0.1  # bandwidth, in median distances of a row to its nearest other row
GAIN = 20.0  # what a row adds to the logit of its own label set
SOME_ROWS = 500  # that the median is taken of


def fit_remembered(fitted: Fitted, X: Features, ids: NDArray[np.intp], u: int, folds: Folds) -> Fitted:
    """The model and its out-of-fold posteriors, with the rows remembered, those of the other folds out of fold."""
    width = NARROW * nearest_distance(X)
    S = np.zeros((len(folds.rows), u), dtype=np.float32)
    for seen, held, places in folds:
        K = np.exp(cdist(X[held], X[seen], "sqeuclidean") / (-2 * width**2))
        S[places] = K @ (GAIN * np.eye(u)[ids[seen]])
    oof, labels = softmax(log(fitted.oof) + S), ids[folds.rows]
    loss = -float(np.mean(log(oof[np.arange(len(labels)), labels]), dtype=np.float64))
    return Fitted(Combination(fitted.model, _memory(X, ids, u, width), np.ones(2)), oof, loss)


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
