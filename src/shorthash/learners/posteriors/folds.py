"""What all posterior models share: folds, a temperature, posteriors of rows by models that did not see them, scales.

Columns may be in units of their own spread, for rows whose columns were measured in different units. Shrinkage,
penalties and kernels treat all columns alike, so a column of prices would hide one of weights. In features of one kind,
such as those of a network, a column of small spread says less than the others and is better left as it is. So every
model tries both on rows held out, where spreads differ much. Scales are powers of two: scaled rows are exact.

Legend: ids (n,) label set of every row, S (m, u) logits, P (m, u) posteriors of the m rows that were held out once.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from shorthash import _rounding
from shorthash._arrays import Features, Floats, like, namespace
from shorthash._rounding import Rounded, Scored, thread_pools
from shorthash.data.rows import BATCH_ROWS

Posteriors = NDArray[np.float32]

N_FOLDS = 5
FOLDED_ROWS = 20_000  # with more rows one sample is held out, which is enough to choose by and to design codes with
HELD_OUT = 16_384  # rows of that sample
TEMPERATURES, HOTTEST = (0.01, 100.0), 1e6  # the range searched, and how far it is moved up where its end is best
EXPECTED_ROWS = 3  # held-out rows that what is expected of temperatures counts as
FEW_ROWS = 1000  # up to so many rows, what is expected of penalties, bandwidths and the scale of weights counts, too
LONE_SHARE = 0.5  # posterior of its own label set for every row, where no set has a second row
SMALLEST = 1e-12  # keeps logarithms of posteriors finite

Item = TypeVar("Item")
Result = TypeVar("Result")
UNEVEN = 16.0  # largest scale over the smallest from which on scales are tried
SCALE_GAIN = 0.01  # relative decrease of the log-loss that scales must bring
MOST_EXPONENT = 100  # of a scale, so that float32 holds it


class PosteriorModel(ABC):
    """A fitted model that maps rows to posteriors."""

    @abstractmethod
    def logits(self, X: Rounded, *, exact: bool) -> Scored:
        """Logarithms of the posteriors, but for a constant per row, (n, u), with a bound of their rounding error."""

    def predict(self, X: Features) -> Posteriors:
        """Posteriors over the label sets, (n, u)."""
        P = np.empty((len(X), self.n_sets), dtype=np.float32)
        for start in range(0, len(X), BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            P[part] = _rounding.softmax(self.logits(Rounded(X[part]), exact=False)).values
        return P

    @property
    @abstractmethod
    def n_sets(self) -> int:
        """Number of label sets u."""


@dataclass(frozen=True)
class Fitted:
    """A model, and the posteriors of rows by models that did not see them.

    Attributes
    ----------
    model : fitted on all rows
    oof : (m, u) out-of-fold posteriors
    loss : their log-loss
    scaled : whether columns were scaled (``uneven_scales``)
    """

    model: PosteriorModel
    oof: Posteriors
    loss: float
    scaled: bool = False

    def called(self, name: str) -> str:
        """A name for the report, which says whether columns were scaled."""
        return f"{name}, columns scaled" if self.scaled else name


@dataclass(frozen=True)
class Folds:
    """Which rows are held out together.

    Attributes
    ----------
    fold : (n,) number of the fold of every row; -1 for rows that are never held out
    rows : (m,) the rows that are held out once, ascending
    """

    fold: NDArray[np.intp]
    rows: NDArray[np.intp]

    @classmethod
    def one(cls, held: NDArray[np.bool_]) -> Folds:
        """A single fold."""
        return cls(np.where(held, 0, -1), np.flatnonzero(held))

    def first(self) -> Folds:
        """The first fold alone."""
        return Folds.one(self.fold == 0)

    def judged(self, ids: NDArray[np.intp]) -> NDArray[np.intp]:
        """Which of ``rows`` have a label set that the models of their folds have seen."""
        seen = [places[np.isin(ids[held], ids[known])] for known, held, places in self]
        return np.sort(np.concatenate(seen))

    def __iter__(self) -> Any:
        """For every fold the rows to learn from, the rows held out, and where those stand among ``rows``."""
        for k in range(int(self.fold.max()) + 1):
            held = self.fold == k
            yield np.flatnonzero(~held), np.flatnonzero(held), np.flatnonzero(held[self.rows])


def draw_folds(ids: NDArray[np.intp], rng: np.random.RandomState, *, every: bool = False) -> Folds:
    """Five folds, label sets spread evenly; with many rows one fold of a sample, unless every row is to be held out."""
    n = len(ids)
    order = rng.permutation(n)
    order = order[np.argsort(ids[order], kind="stable")]
    fold = np.full(n, -1, dtype=np.intp)
    if every or n <= FOLDED_ROWS:
        fold[order] = np.arange(n) % N_FOLDS
    else:
        n_held = min(n // N_FOLDS, HELD_OUT)
        fold[order[(np.arange(n_held) * n) // n_held]] = 0
    return Folds(fold, np.flatnonzero(fold >= 0))


def in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """``function`` of every item, some at the same time, each on one thread of BLAS.

    Products of a few thousand rows are too small to share among threads, and their last bits would depend on how many
    there are.
    """
    work = list(items)
    n_threads = min(len(work), os.cpu_count() or 1)
    with thread_pools().limit(limits=1):
        if n_threads < 2:
            return [function(item) for item in work]
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(function, work))


def softmax(S: NDArray[Any]) -> Posteriors:
    """Rows of logits as posteriors."""
    P = np.asarray(S - S.max(axis=1, keepdims=True), dtype=np.float32)
    np.exp(P, out=P)
    P /= P.sum(axis=1, keepdims=True)
    return P


def log(P: NDArray[Any]) -> NDArray[np.float32]:
    """Logarithms, none of them infinite."""
    return np.asarray(np.log(np.maximum(P, SMALLEST)), dtype=np.float32)


def calibrate(
    S: NDArray[np.float32],
    ids: NDArray[np.intp],
    judged: NDArray[np.intp] | None = None,
    *,
    expected: float | None = None,
) -> tuple[float, float]:
    """The temperature of least log-loss (convex in it), and that loss.

    Only rows whose label set was seen where they were held out say something about either (``judged``; if not given,
    all rows); where there are none the temperature is 1. Before rows are looked at, its logarithm is that of what is
    ``expected``, give or take 1, and the fewer rows there are, the nearer to that it stays; the loss is of rows alone.
    """
    judged = np.arange(len(ids)) if judged is None else judged
    if not len(judged):
        return 1.0, 0.0
    S, own, rows = S[judged], ids[judged], np.arange(len(judged))

    def loss(log_t: float) -> float:
        return -float(np.mean(log(softmax(np.exp(log_t) * S)[rows, own]), dtype=np.float64))

    def penalised(log_t: float) -> float:
        away = 0.0 if expected is None else log_t - np.log(expected)
        return loss(log_t) + EXPECTED_ROWS / len(judged) * away**2 / 2

    low, high = np.log(TEMPERATURES)
    found = minimize_scalar(penalised, bounds=(low, high), method="bounded", options={"xatol": 0.01})
    while found.x > high - 0.1 and high < np.log(HOTTEST):  # many label sets that are close together
        low, high = high - 1, high + np.log(TEMPERATURES[1])
        found = minimize_scalar(penalised, bounds=(low, high), method="bounded", options={"xatol": 0.01})
    return float(np.exp(found.x)), loss(found.x)


def with_lone_rows(P: Posteriors, ids: NDArray[np.intp], judged: NDArray[np.intp], Yg: NDArray[np.uint8]) -> Posteriors:
    """Out-of-fold posteriors in which a label that was not seen is recognised as often as label sets that were.

    The model that is used knows it: it is in a label set of one row, which was held out. A label set that was not seen,
    but has labels that others have, stays as it was found: other rows will have sets that no training row has, too.
    """
    lone = np.setdiff1d(np.arange(len(ids)), judged)
    lone = lone[Yg[ids[lone]][:, Yg.sum(axis=0) == 1].any(axis=1)]
    if not len(lone):
        return P
    own = P[judged, ids[judged]]
    share = np.float32(own.mean() if len(judged) else LONE_SHARE)
    P = P.copy()
    P[lone] *= 1 - share
    P[lone, ids[lone]] += share
    return P


# scales of columns ----------------------------------------------------------------------------------------------------


def uneven_scales(X: Features) -> Floats | None:
    """The power of two nearest to one over the standard deviation of every column; None where they are much alike.

    Columns that are constant, up to rounding in float32, get the scale of the widest.
    """
    largest, deviation = np.abs(X).max(axis=0), X.std(axis=0, dtype=np.float64)
    varied = deviation > np.finfo(np.float32).eps * largest
    exponents = np.round(np.log2(np.where(varied, deviation, deviation.max() or 1.0)))
    scales = 2.0 ** -np.clip(exponents, -MOST_EXPONENT, MOST_EXPONENT)
    return np.asarray(scales) if scales.max() >= UNEVEN * scales.min() else None


def scaled(X: Any, scales: Floats | None) -> Any:
    """Rows with their columns multiplied by scales, in their own type and on their device."""
    if scales is None:
        return X
    xp = namespace(X)
    return X * xp.astype(like(scales, X), X.dtype, copy=False)
