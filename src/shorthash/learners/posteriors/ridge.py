"""Kernel ridge posteriors: regression of the label sets on 1 000 anchors, scores turned into posteriors.

A score estimates a probability, and is near 0 for most of many label sets; so a logit is a multiple of the score, as
suits few label sets, and a multiple of its logarithm, as suits many. Both are found by the log-loss, which is convex in
them.

Legend: X (n, d), ids (n,) label set of every row, u label sets, S (m, u) scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from shorthash._arrays import Features, Floats, is_foreign, like, namespace, to_numpy
from shorthash._rounding import FEW, UNIT, Rounded, Scored, as_double, linear
from shorthash.data.rows import BATCH_ROWS
from shorthash.errors import InvalidInput
from shorthash.kernels.rbf import AnchorRBF
from shorthash.learners.posteriors.folds import (
    EXPECTED_ROWS,
    FEW_ROWS,
    FOLDED_ROWS,
    SCALE_GAIN,
    SMALLEST,
    Fitted,
    Folds,
    PosteriorModel,
    Posteriors,
    in_threads,
    scaled,
    softmax,
    uneven_scales,
)

WIDTHS = (0.5, 0.7, 1.0)  # bandwidths of the kernel, in root-mean-square distances between rows; if the first is best,
NARROWEST = 1 / 64  # it is halved down to this, while that is hardly worse
RIDGES = (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
N_ANCHORS = 1000
LEAST_ROWS = 3
FLOOR = 0.01  # a smaller score counts as this in the logarithm
LINK_BOUNDS = ((0.01, 1e4), (0.0, 20.0))  # of the multiples of a score and of its logarithm
EXPECTED_MULTIPLE, EXPECTED_LOG = 5.0, 0.5  # the same before rows are looked at: give or take a factor of e,
LOG_ERROR = 0.5  # and this
LINK_ROWS = 4096  # of more rows, so many decide about the multiples
EXPECTED_WIDTH, EXPECTED_RIDGE = 0.7, 0.01  # bandwidth and penalty likewise: give or take factors of e and 10
CHOICE_ROWS = 10  # held-out rows that this counts as up to FEW_ROWS; then all folds decide about bandwidth and scales
MOST_SETS = 128  # label sets of FOLDED_ROWS rows, or of more, for which a kernel is tried; of fewer rows, more sets:
# with more it costs much and adds little,
SETS_PER_COLUMN = 4  # unless there are more than so many for every column, too many for a linear model

Scores = dict[float, NDArray[np.float32]]  # by penalty, (m, u)


@dataclass(frozen=True)
class KernelRidge(PosteriorModel):
    """Ridge regression of the label sets on kernel features, its scores turned into posteriors by their link."""

    kernel: AnchorRBF
    weights: Floats  # (m, u)
    bias: Floats  # (u,)
    temperature: float  # multiple of a score in its logit
    ridge: float
    scales: Floats | None = None  # (d,) of the columns of rows
    power: float = 0.0  # multiple of the logarithm of a score in its logit

    @property
    def n_sets(self) -> int:
        """Number of label sets."""
        return len(self.bias)

    def logits(self, X: Rounded, *, exact: bool) -> Scored:
        """Multiples of the scores of the label sets and of their logarithms, (n, u)."""
        if self.scales is not None:
            values = as_double(X.values)
            X = Rounded(scaled(values, self.scales), X.error * float(self.scales.max()))
        features = self.kernel.rounded(X, exact=exact)
        if not self.power:
            return linear(features, self.temperature * self.weights, self.temperature * self.bias, exact=exact)
        return self._linked(linear(features, self.weights, self.bias, exact=exact))

    def _linked(self, S: Scored) -> Scored:
        """Logits of scores: the logarithm of a score above the floor changes with it by no more than its inverse."""
        xp = namespace(S.values)
        logs = xp.log(xp.clip(S.values, FLOOR, None))
        slope = self.temperature + self.power / xp.clip(S.values - S.bound, FLOOR, None)
        size = abs(self.temperature * S.values) + abs(self.power * logs)
        return Scored(self.temperature * S.values + self.power * logs, slope * S.bound + FEW * UNIT * size)


def kernel_tried(n_rows: int, n_sets: int, n_columns: int) -> bool:
    """Whether to try a kernel model in addition to a linear one."""
    cheap = min(n_rows, FOLDED_ROWS) * n_sets <= FOLDED_ROWS * MOST_SETS
    return cheap or n_sets > SETS_PER_COLUMN * n_columns


def fit_ridge(X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8], folds: Folds) -> Fitted:
    """Bandwidth, scales, penalty and link by out-of-fold log-loss; then all rows."""
    if len(X) < LEAST_ROWS:
        raise InvalidInput(
            f"A kernel model as posterior of EAPH needs at least {LEAST_ROWS} rows, because one is held out and two "
            f"have a distance. Got {len(X)} instead; use posterior='auto' or 'logistic'."
        )
    u, parts = len(Yg), list(folds)
    few = len(X) <= FEW_ROWS

    def scores(job: tuple[Space, int]) -> Scores:
        space, k = job
        seen, held, _ = parts[k]
        return _kernel_system(X[seen], ids[seen], u, space, k).scores(X[held])

    def tried(spaces: list[Space], trial: Folds) -> list[Tried]:
        n_trial = len(list(trial))
        found = in_threads(scores, [(space, k) for space in spaces for k in range(n_trial)])
        of_space = [found[i : i + n_trial] for i in range(0, len(found), n_trial)]
        judged = trial.judged(ids)

        def loss(each: list[Scores]) -> float:
            return best_link(_joined(each, trial), ids[trial.rows], judged, few=few).loss

        losses = in_threads(loss, of_space)
        return [Tried(*each) for each in zip(losses, spaces, of_space, strict=True)]

    def rest(k: int) -> Any:
        return scores((chosen.space, k)) if k >= 0 else _kernel_system(X, ids, u, chosen.space, k)

    chosen = _best_space(X, folds, tried)
    whole, *others = in_threads(rest, [-1, *range(len(chosen.scores), len(parts))])
    by_ridge = _joined([*chosen.scores, *others], folds)
    link = best_link(by_ridge, ids[folds.rows], folds.judged(ids), few=few)
    scaled_columns = chosen.space.scales is not None
    return Fitted(whole.model(link), link.posteriors(by_ridge[link.ridge]), link.loss, scaled_columns)


def _joined(of_folds: list[Scores], folds: Folds) -> Scores:
    """Scores of every fold as scores of the rows of all."""
    joined = {ridge: np.empty((len(folds.rows), S.shape[1]), dtype=np.float32) for ridge, S in of_folds[0].items()}
    for (_, _, places), scores in zip(folds, of_folds, strict=True):
        for ridge, S in scores.items():
            joined[ridge][places] = S
    return joined


class Link(NamedTuple):
    """How scores of a penalty become logits, and the log-loss of that: multiples of a score and of its logarithm."""

    loss: float
    ridge: float
    temperature: float
    power: float

    def posteriors(self, S: NDArray[np.float32]) -> Posteriors:
        """Posteriors of scores."""
        return softmax(self.temperature * S + self.power * np.log(np.maximum(S, FLOOR)))


def best_link(
    by_ridge: Scores, ids: NDArray[np.intp], judged: NDArray[np.intp] | None = None, *, few: bool = False
) -> Link:
    """The penalty and the link of least log-loss, from scores by penalty; ``judged`` as in ``calibrate``.

    With ``few`` rows the penalty is near the one that is expected.
    """
    judged = np.arange(len(ids)) if judged is None else judged
    judged = judged[:: max(1, -(-len(judged) // LINK_ROWS))]
    own, start = ids[judged], np.array([EXPECTED_MULTIPLE, EXPECTED_LOG])
    if not len(judged):
        return Link(0.0, EXPECTED_RIDGE, EXPECTED_MULTIPLE, EXPECTED_LOG)
    found = []
    for ridge, scores in by_ridge.items():
        loss, start = fit_link(scores[judged], own, start)
        found.append(Link(loss, ridge, *(float(value) for value in start)))
    weight = CHOICE_ROWS / len(judged) if few else 0.0
    return min(found, key=lambda link: link.loss + weight * np.log10(link.ridge / EXPECTED_RIDGE) ** 2 / 2)


def fit_link(S: NDArray[np.float32], own: NDArray[np.intp], start: Floats) -> tuple[float, Floats]:
    """The least log-loss, and the multiples of scores and of their logarithms that have it.

    The fewer rows there are, the nearer are the multiples to those that are expected; the loss is that of the rows.
    """
    terms, rows = (S, np.log(np.maximum(S, FLOOR))), np.arange(len(own))
    known = [float(term[rows, own].mean(dtype=np.float64)) for term in terms]

    def loss(multiples: Floats) -> tuple[float, Floats]:
        E = np.float32(multiples[0]) * terms[0] + np.float32(multiples[1]) * terms[1]
        E -= E.max(axis=1, keepdims=True)
        likelihood = float(E[rows, own].mean(dtype=np.float64))
        np.exp(E, out=E)
        total = E.sum(axis=1)
        E /= total[:, None]
        slope = [np.einsum("ij,ij->i", E, term).mean(dtype=np.float64) for term in terms]
        return float(np.log(total).mean(dtype=np.float64)) - likelihood, np.subtract(slope, known)

    def penalised(multiples: Floats) -> tuple[float, Floats]:
        value, slope = loss(multiples)
        away = np.array([np.log(multiples[0] / EXPECTED_MULTIPLE), (multiples[1] - EXPECTED_LOG) / LOG_ERROR])
        weight = EXPECTED_ROWS / len(own)
        return value + weight * float(away @ away) / 2, slope + weight * away / np.array([multiples[0], LOG_ERROR])

    best = minimize(penalised, start, jac=True, bounds=LINK_BOUNDS, method="L-BFGS-B")
    return loss(best.x)[0], best.x


class Space(NamedTuple):
    """Where distances are measured: scales of the columns, None for columns as they are; and the bandwidth."""

    scales: Floats | None
    sigma: float


class Tried(NamedTuple):
    """A space, the log-loss of the folds that it was tried on, and the scores of each by penalty."""

    loss: float
    space: Space
    scores: list[Scores]


def _best_space(X: Features, folds: Folds, tried: Callable[[list[Space], Folds], list[Tried]]) -> Tried:
    """The space of least log-loss: a bandwidth, then scales with the same, and other bandwidths with those.

    All is chosen on the first fold, of few rows on all folds. Where the narrowest bandwidth is best, narrower ones are
    tried on all folds: they differ little, until anchors are too far apart.
    """
    few = len(X) <= FEW_ROWS
    trial = folds if few else folds.first()

    def space(scales: Floats | None, width: float) -> Space:
        variance = X.var(axis=0, dtype=np.float64) * (1.0 if scales is None else scales**2)
        return Space(scales, width * float(np.sqrt(2 * variance.sum())))

    def best_of(scales: Floats | None, widths: Sequence[float], trial: Folds) -> tuple[float, Tried]:
        found = tried([space(scales, width) for width in widths], trial)
        weight = CHOICE_ROWS / len(X) if few else 0.0

        def penalised(each: tuple[float, Tried]) -> float:
            return each[1].loss + weight * float(np.log(each[0] / EXPECTED_WIDTH)) ** 2 / 2

        return min(zip(widths, found, strict=True), key=penalised)

    scales, uneven = None, uneven_scales(X)
    width, best = best_of(None, WIDTHS, trial)
    if uneven is not None and best_of(uneven, [width], trial)[1].loss < (1 - SCALE_GAIN) * best.loss:
        scales = uneven
        width, best = best_of(scales, WIDTHS, trial)
    if width > WIDTHS[0]:
        return best
    best = best if few else best_of(scales, [width], folds)[1]
    while width > NARROWEST:
        width /= 2
        other = best_of(scales, [width], folds)[1]
        if other.loss >= (1 + SCALE_GAIN) * best.loss:
            break
        best = min(best, other, key=lambda found: found.loss)
    return best


@dataclass(frozen=True)
class KernelSystem:
    """A kernel, eigenvalues and -vectors of the Gram matrix of its features, right side, class shares, scales."""

    kernel: AnchorRBF
    values: Floats
    vectors: Floats
    right: Floats
    bias: Floats
    scales: Floats | None  # (d,) of the columns of rows

    @classmethod
    def of(
        cls, kernel: AnchorRBF, gram: Floats, sums: Floats, counts: NDArray[Any], scales: Floats | None
    ) -> KernelSystem:
        """From F'F (m, m), sums of the features F of every label set (m, u), and the numbers of their rows (u,)."""
        bias = counts / counts.sum()
        values, vectors = np.linalg.eigh(gram)
        right = sums - np.outer(sums.sum(axis=1), bias)
        return cls(kernel, np.maximum(values, 0.0), vectors, vectors.T @ right, bias, scales)

    def features(self, X: Features) -> Floats:
        """Kernel features of rows."""
        return self.kernel.transform(scaled(X, self.scales))

    def solved(self, ridge: float) -> Floats:
        """Weights at a penalty, in the basis of the eigenvectors."""
        return np.asarray(self.right / (self.values + ridge)[:, None])

    def scores(self, X: Features) -> Scores:
        """Scores of rows by every penalty."""
        left = self.features(X) @ self.vectors
        return {ridge: np.asarray(left @ self.solved(ridge) + self.bias, dtype=np.float32) for ridge in RIDGES}

    def model(self, link: Link) -> KernelRidge:
        """The model of a penalty and a link."""
        weights = self.vectors @ self.solved(link.ridge)
        return KernelRidge(self.kernel, weights, self.bias, link.temperature, link.ridge, self.scales, link.power)


def feature_sums(kernel: AnchorRBF, X: Any, ids: Any, u: int) -> tuple[Floats, Floats]:
    """F'F and the sums of the features F of every label set, of one batch; on the device of the rows."""
    F = kernel.transform(X)
    if is_foreign(F):
        xp = namespace(F)
        E = xp.astype(ids[:, None] == like(np.arange(u), F)[None, :], F.dtype)
        return to_numpy(F.T @ F), to_numpy(F.T @ E)
    members: Any = sparse.csr_array((np.ones(len(ids)), (ids, np.arange(len(ids)))), shape=(u, len(ids)))
    return F.T @ F, (members @ F).T


def _kernel_system(X: Features, ids: NDArray[np.intp], u: int, space: Space, seed: int) -> KernelSystem:
    """The normal equations of the regression, added up over batches; anchors are drawn from the rows given."""
    X, sigma = scaled(X, space.scales), max(space.sigma, SMALLEST)
    kernel: Any = AnchorRBF(min(N_ANCHORS, len(X)), bandwidth=sigma, random_state=seed + 1).fit(X)
    m = len(kernel.anchors_)
    gram, sums = np.zeros((m, m)), np.zeros((m, u))
    for start in range(0, len(X), BATCH_ROWS):
        part = slice(start, start + BATCH_ROWS)
        for total, more in zip((gram, sums), feature_sums(kernel, X[part], ids[part], u), strict=True):
            total += more
    return KernelSystem.of(kernel, gram, sums, np.bincount(ids, minlength=u), space.scales)
