"""Kernel ridge posteriors: regression of the label sets on 1 000 anchors, scores turned into posteriors.

Legend: X (n, d), ids (n,) label set of every row, u label sets, S (m, u) scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from shorthash._arrays import Features, Floats, is_foreign, like, namespace, to_numpy
from shorthash._rounding import Rounded, Scored, as_double, linear
from shorthash.data.rows import BATCH_ROWS
from shorthash.kernels.rbf import AnchorRBF
from shorthash.learners.posteriors.folds import (
    SCALE_GAIN,
    SMALLEST,
    Fitted,
    Folds,
    PosteriorModel,
    Posteriors,
    calibrate,
    in_threads,
    scaled,
    softmax,
    uneven_scales,
)

WIDTHS = (0.5, 0.7, 1.0)  # bandwidths of the kernel, in root-mean-square distances between rows; if less is better,
NARROWEST = 1 / 64  # the narrowest is halved down to this
RIDGES = (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
N_ANCHORS = 1000
MOST_SETS = 128  # label sets for which a kernel is tried in any case: with more it costs much and adds little,
SETS_PER_COLUMN = 4  # unless there are more than so many for every column, too many for a linear model


@dataclass(frozen=True)
class KernelRidge(PosteriorModel):
    """Ridge regression of the label sets on kernel features, its scores turned into posteriors by one temperature."""

    kernel: AnchorRBF
    weights: Floats  # (m, u)
    bias: Floats  # (u,)
    temperature: float
    ridge: float
    scales: Floats | None = None  # (d,) of the columns of rows

    @property
    def n_sets(self) -> int:
        """Number of label sets."""
        return len(self.bias)

    def logits(self, X: Rounded, *, exact: bool) -> Scored:
        """Scores of the label sets, times the temperature, (n, u)."""
        if self.scales is not None:
            values = as_double(X.values)
            X = Rounded(scaled(values, self.scales), X.error * float(self.scales.max()))
        features = self.kernel.rounded(X, exact=exact)
        return linear(features, self.temperature * self.weights, self.temperature * self.bias, exact=exact)


def kernel_tried(n_sets: int, n_columns: int) -> bool:
    """Whether to try a kernel model in addition to a linear one."""
    return n_sets <= MOST_SETS or n_sets > SETS_PER_COLUMN * n_columns


def fit_ridge(X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8], folds: Folds) -> Fitted:
    """Ridge and temperature by out-of-fold log-loss, bandwidth and scales by that of the first fold; then all rows."""
    u, parts, labels = len(Yg), list(folds), ids[folds.rows]

    def scores(job: tuple[Space, int]) -> dict[float, NDArray[np.float32]]:
        space, k = job
        seen, held, _ = parts[k]
        system = _kernel_system(X[seen], ids[seen], u, space, k)
        left = system.features(X[held]) @ system.vectors
        return {ridge: np.asarray(left @ system.solved(ridge) + system.bias, dtype=np.float32) for ridge in RIDGES}

    def tried(spaces: list[Space]) -> list[Tried]:
        first = in_threads(scores, [(space, 0) for space in spaces])
        held = ids[parts[0][1]]
        losses = [min(calibrate(S, held)[1] for S in by_ridge.values()) for by_ridge in first]
        return [Tried(*each) for each in zip(losses, spaces, first, strict=True)]

    def rest(k: int) -> Any:
        return scores((chosen.space, k)) if k >= 0 else _kernel_system(X, ids, u, chosen.space, k)

    chosen = _best_space(X, tried)
    whole, *others = in_threads(rest, [-1, *range(1, len(parts))])
    found = [chosen.scores, *others]
    best: tuple[float, float, float, Posteriors] | None = None
    for ridge in RIDGES:
        S = np.empty((len(labels), u), dtype=np.float32)
        for (_, _, places), by_ridge in zip(parts, found, strict=True):
            S[places] = by_ridge[ridge]
        temperature, loss = calibrate(S, labels)
        if best is None or loss < best[0]:
            best = (loss, ridge, temperature, softmax(temperature * S))
    assert best is not None
    loss, ridge, temperature, oof = best
    return Fitted(whole.model(ridge, temperature), oof, loss, chosen.space.scales is not None)


class Space(NamedTuple):
    """Where distances are measured: scales of the columns, None for columns as they are; and the bandwidth."""

    scales: Floats | None
    sigma: float


class Tried(NamedTuple):
    """A space, the log-loss of the first fold in it, and the scores of that fold by every penalty."""

    loss: float
    space: Space
    scores: dict[float, NDArray[np.float32]]


def _best_space(X: Features, tried: Callable[[list[Space]], list[Tried]]) -> Tried:
    """The space of least log-loss: a bandwidth, then scales with the same, and other bandwidths with those."""

    def space(scales: Floats | None, width: float) -> Space:
        variance = X.var(axis=0, dtype=np.float64) * (1.0 if scales is None else scales**2)
        return Space(scales, width * float(np.sqrt(2 * variance.sum())))

    def best_of(scales: Floats | None, widths: Sequence[float]) -> tuple[float, Tried]:
        found = tried([space(scales, width) for width in widths])
        return min(zip(widths, found, strict=True), key=lambda each: each[1].loss)

    scales, uneven = None, uneven_scales(X)
    width, best = best_of(None, WIDTHS)
    if uneven is not None and best_of(uneven, [width])[1].loss < (1 - SCALE_GAIN) * best.loss:
        scales = uneven
        width, best = best_of(scales, WIDTHS)
    while NARROWEST < width <= WIDTHS[0]:
        _, other = best_of(scales, [width / 2])
        if other.loss >= (1 - SCALE_GAIN) * best.loss:
            break
        width, best = width / 2, other
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

    def best(self, X: Features, ids: NDArray[np.intp]) -> Fitted:
        """The penalty of least log-loss on other rows, and their posteriors."""
        left, best = self.features(X) @ self.vectors, None
        for ridge in RIDGES:
            S = np.asarray(left @ self.solved(ridge) + self.bias, dtype=np.float32)
            temperature, loss = calibrate(S, ids)
            if best is None or loss < best.loss:
                best = Fitted(self.model(ridge, temperature), softmax(temperature * S), loss)
        assert best is not None
        return best

    def model(self, ridge: float, temperature: float) -> KernelRidge:
        """The model of a penalty."""
        weights = self.vectors @ self.solved(ridge)
        return KernelRidge(self.kernel, weights, self.bias, temperature, ridge, self.scales)


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
