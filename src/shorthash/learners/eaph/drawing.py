r"""Rows drawn from a normal distribution per label set, to design codes with where there are few rows.

A table that is refined on the posteriors of few rows serves those rows. So rows are drawn,

.. math:: x = m + r \frac{y}{\lVert y \rVert}, \qquad
    y = \Sigma^{1/2} \bigl(f_s z_s + \sqrt{1 + v_s}\, a g\bigr), \qquad
    f_s = \frac{b}{b + 1 / n_s}, \quad v_s = \frac{1}{1 / b + n_s},

with :math:`\Sigma` the shrunk covariance within label sets, :math:`z_s` the mean of the :math:`n_s` rows of a label
set, and g normal, all whitened; :math:`f_s z_s` and :math:`v_s` are the mean and variance of the true mean if means
have the variance b around :math:`m`. The distance r from m is that of a training row of the label set: in many columns,
noise takes rows to where there are none, and a model that has seen none there gives them all to one label set. Rows of
real data are harder to recognise than these, and rows that were held out are harder than rows will be, because their
models learned from fewer. So the noise a is raised above 1 until the log-loss of drawn rows is the geometric mean of
that at a = 1 and the out-of-fold log-loss. Where posteriors of drawn rows are then far from being as sure as those of
rows held out, a normal distribution describes rows badly, and none are used. Where no label set has a second row, half
of the covariance of all rows is taken to be within label sets, and a is 1; then a model is made as sure as drawn rows
allow (``sharpened``).

Legend: X (n, d), ids (n,) label set of every row, Yg (u, c) label rows of the sets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Features, Floats
from shorthash._rounding import thread_pools
from shorthash.learners.posteriors.folds import (
    SMALLEST,
    Fitted,
    Posteriors,
    calibrate,
    log,
    scaled,
    softmax,
    uneven_scales,
)
from shorthash.learners.posteriors.logistic import Spread, class_means, within_sets
from shorthash.learners.posteriors.models import sharpened

PRIOR_ROWS = 10  # rows per class that drawn ones count as
MOST_PER_CLASS = 100  # with more rows per class, none are drawn
LEAST_DRAWN, DRAWN_PER_SET = 2000, 2  # rows drawn
MOST_NOISE, STEPS = 8.0, 6  # largest a, and bisections of its logarithm
EVERY = 4  # of the drawn rows, every fourth chooses it
LEAST_VARIANCE = 1e-3  # of means, against that within label sets
ALONE_SHARE = 0.5  # of the variance of all rows that is within label sets, where no set has a second row
MOST_ALONE = 500  # of more sets of one row each, too few rows would be drawn to design codes by what is guessed
LEAST_SURE = 0.3  # mean posterior of the likeliest label set of drawn rows, over that of rows held out
LEAST_LOSS = 1e-6  # of drawn rows
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class RowModel:
    """Where rows are drawn from.

    Attributes
    ----------
    center : (d,) m, the mean of the means of the label sets
    means : (u, d) expected means of the label sets, less m
    root : (d, d) square root of the covariance within label sets
    spread : (u,) standard deviation of rows of a label set, the mean not being known, in units of ``root``
    ids : (m,) label sets of the rows to draw
    distances : (m,) how far they are from m
    scales : (d,) what columns were multiplied by, or None
    seed : of the rows
    """

    center: Floats
    means: Floats
    root: Floats
    spread: Floats
    ids: NDArray[np.intp]
    distances: Floats
    scales: Floats | None
    seed: int

    def __len__(self) -> int:
        return len(self.ids)

    def posteriors(self, fitted: Fitted) -> Posteriors | None:
        """Posteriors of drawn rows, (m, u); None where they are far from being as sure as those of rows held out."""
        noise, some = self._noise(), slice(None, None, EVERY)

        def loss(size: float) -> float:
            own = self.ids[some]
            logs = log(fitted.model.predict(self._rows(noise, size, some))[np.arange(len(own)), own])
            return -float(np.mean(logs, dtype=np.float64))

        size = 1.0
        easiest = max(loss(size), LEAST_LOSS)
        wanted = np.sqrt(easiest * max(fitted.loss, easiest))
        low, high = 0.0, np.log(MOST_NOISE)
        for _ in range(STEPS if wanted > easiest else 0):
            size = float(np.exp((low + high) / 2))
            low, high = (np.log(size), high) if loss(size) < wanted else (low, np.log(size))
        P = fitted.model.predict(self._rows(noise, size))
        unlike = fitted.loss > 0 and sureness(P) < LEAST_SURE * sureness(fitted.oof)
        return None if unlike else P

    def sharpened(self, fitted: Fitted) -> Fitted:
        """A model that no row held out has calibrated, made as sure of drawn rows as it may be; never less sure."""
        logs = log(fitted.model.predict(self._rows(self._noise(), 1.0)))
        times = max(calibrate(logs, self.ids)[0], 1.0)
        return replace(fitted, model=sharpened(fitted.model, times), oof=softmax(times * log(fitted.oof)))

    def _noise(self) -> Floats:
        noise = np.random.RandomState(self.seed).normal(size=(len(self.ids), len(self.root))) @ self.root
        noise *= self.spread[self.ids, None]
        return np.asarray(noise)

    def _rows(self, noise: Floats, size: float, part: slice = slice(None)) -> NDArray[np.float32]:
        """Some of the rows, with noise of a size."""
        Y = self.means[self.ids[part]] + size * noise[part]
        X = self.center + Y * (self.distances[part] / np.maximum(np.linalg.norm(Y, axis=1), SMALLEST))[:, None]
        return np.asarray(np.clip(X if self.scales is None else X / self.scales, -LARGEST, LARGEST), np.float32)


def fit_rows(X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8], seed: int) -> RowModel | None:
    """The model of rows whose classes have few rows; None where they have many, or too little is known of them."""
    n, u, counts = len(ids), len(Yg), np.bincount(ids, minlength=len(Yg))
    if rows_per_class(Yg, ids) > MOST_PER_CLASS or u < 2 or n == u > MOST_ALONE:
        return None
    scales = uneven_scales(X)
    Z = scaled(X, scales)
    means, _ = class_means(Z, ids, u)
    center = means.mean(axis=0)
    alone = n == u
    with thread_pools().limit(limits=1):
        if alone:
            spread = Spread.of_rows(Z - center).times(ALONE_SHARE * n / (n - 1))
        else:
            spread = Spread.of_rows(within_sets(Z, ids, means)).times(n / (n - u))
        root = spread.power(0.5)
        squares = float(spread.distances(means - center).sum()) / ((u - 1) * X.shape[1])
    between = 1 / ALONE_SHARE - 1 if alone else max(squares - float(np.mean(1 / counts)), LEAST_VARIANCE)
    expected = (between / (between + 1 / counts))[:, None] * (means - center)
    share = max(LEAST_DRAWN, DRAWN_PER_SET * u) / n
    drawn = np.repeat(np.arange(u), np.maximum(1, np.round(share * expected_counts(counts))).astype(np.intp))
    some = np.random.RandomState(seed).random_sample(len(drawn)) * counts[drawn]
    rows = np.argsort(ids, kind="stable")[(np.cumsum(counts) - counts)[drawn] + some.astype(np.intp)]
    distances = np.linalg.norm(Z[rows] - center, axis=1)
    return RowModel(center, expected, root, np.sqrt(1 + 1 / (1 / between + counts)), drawn, distances, scales, seed)


def sureness(P: Posteriors) -> float:
    """Mean posterior of the likeliest label set."""
    return float(P.max(axis=1).mean(dtype=np.float64))


def rows_per_class(Yg: NDArray[np.uint8], ids: NDArray[np.intp]) -> float:
    """How many rows have a class, on average over the classes that occur."""
    return float(np.bincount(ids, minlength=len(Yg)) @ Yg.sum(axis=1, dtype=np.int64)) / int(Yg.any(axis=0).sum())


def expected_counts(counts: NDArray[np.intp]) -> Floats:
    """Rows of the label sets, (u,), as many as are expected in the same number of other rows.

    Label sets that are equally frequent have different numbers of rows by chance, and codes would be designed for the
    chance. As far as the numbers vary no more than chance makes them (their variance is their mean), they are drawn
    towards their mean.
    """
    present = counts[counts > 0]
    mean = present.mean()
    beyond_chance = max(float(present.var()) - mean, 0.0)
    return np.asarray(mean + beyond_chance / (beyond_chance + mean) * (counts - mean))
