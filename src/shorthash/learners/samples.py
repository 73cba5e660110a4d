"""Learning from samples: the products that solvers need, and the base class of their learners.

The counterpart of sums.py, for methods whose codes may differ between samples with the same labels; and ``KeptRows``,
the memory of a learner that is trained further and needs rows again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import check_random_state

from shorthash._labels import LabelGroups
from shorthash._progress import reporting
from shorthash._types import Codes, Floats
from shorthash.codes.signs import sign
from shorthash.data.rows import Rows
from shorthash.learners.base import SupervisedHasher
from shorthash.learners.sums import GroupStatistics


@dataclass(frozen=True)
class Samples:
    """Labelled samples and products with them; no matrix of the size of X or Y is formed.

    Legend, for all solvers that take samples: X (n, d) features, Y = E Yg (n, c) labels 0/1, E (n, u) the indicator
    of the label sets, Yg (u, c) their label rows, N (u,) their sizes, K = X'X, H (n, L) binary codes -1/+1.
    """

    X: Rows
    statistics: GroupStatistics
    ids: NDArray[np.intp]  # (n,) the label set of every sample
    Et: Any  # (u, n) sparse
    Yg: Any  # (u, c) sparse

    @classmethod
    def of(cls, rows: Rows, groups: LabelGroups) -> Samples:
        """One pass over the rows."""
        n, u = groups.n_samples, len(groups.rows)
        Et = sparse.csr_array((np.ones(n), (groups.ids, np.arange(n))), shape=(u, n))
        Yg = sparse.csr_array(groups.rows.astype(np.float64))
        return cls(rows, GroupStatistics.of(rows, groups), groups.ids, Et, Yg)

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.ids)

    @property
    def N(self) -> Floats:
        """Sizes of the label sets, (u,)."""
        return self.statistics.counts

    @property
    def K(self) -> Floats:
        """X'X, (d, d)."""
        return self.statistics.gram

    def label_sums(self, H: NDArray[Any]) -> Floats:
        """Y'H, (c, L)."""
        return np.asarray(self.Yg.T @ (self.Et @ H))

    def by_label(self, V: Floats) -> Floats:
        """Y V, (n, L), for V (c, L)."""
        return np.asarray((self.Yg @ V)[self.ids])

    def projection_error(self, XtH: Floats, P: Floats) -> float:
        """``||H - X P||^2`` for binary H, from X'H."""
        return float(self.n * P.shape[1] - 2 * np.sum(P * XtH) + np.sum(P * (self.K @ P)))


@dataclass(frozen=True)
class Outcome:
    """The result of a solver.

    Attributes
    ----------
    projection : (d, L) the hash function
    codes : (n, L) the learned codes of the samples
    n_iter : iterations done
    objective : its value after every iteration, if the method has one
    converged : whether the codes had stopped changing; None for methods that need not converge
    """

    projection: Floats
    codes: Codes
    n_iter: int
    objective: Floats | None = None
    converged: bool | None = None


class SampleHasher(SupervisedHasher):
    """A supervised hasher that needs all samples in memory or in a memory map. A learner defines ``_solve``.

    Attributes
    ----------
    projection_ : (n_features_in, n_bits) the hash function is ``sign(X @ projection_ + intercept_)``
    intercept_ : (n_bits,) 0, or the bit itself if all samples share it
    classes_ : (c,) the classes
    label_sets_ : (u, c) the label rows that occurred
    codewords_ : (u, n_bits) for every label set, the majority bits of its samples
    codes_ : (n_samples, n_bits) learned codes of the training rows
    objective_ : (n_iter_,) the objective after every iteration, if there is one
    n_iter_ : int, iterations done
    n_dropped_ : int, rows without label
    """

    drop_unlabelled: bool | int | str

    @abstractmethod
    def _solve(self, samples: Samples, rng: np.random.RandomState) -> Outcome:
        """Learn codes and hash function; parameters are valid."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from feature rows and their labels.

        Parameters
        ----------
        X : (n_samples, n_features) features, for instance from ``AnchorRBF``
        y : (n_samples,) class labels, or an (n_samples, n_classes) indicator matrix of 0/1 or -1/+1
        """
        self._check_params()
        rows = self._training_rows(X)
        groups = self._training_groups(y, len(rows), drop_unlabelled=self.drop_unlabelled)
        self._warn_of_collisions(len(groups.classes))
        kept = rows.keep(groups.kept)
        samples = Samples.of(kept, groups)
        outcome = self._solve(samples, check_random_state(self.random_state))
        self._set_hash_function(outcome.projection, outcome.codes)
        self.codes_ = outcome.codes
        self.codewords_ = sign(samples.Et @ outcome.codes)
        self.label_sets_ = groups.rows
        self.classes_ = groups.classes
        self.n_iter_ = outcome.n_iter
        self.n_dropped_ = len(rows) - len(kept)
        if outcome.objective is not None:
            self.objective_ = outcome.objective
        if outcome.converged is False:
            self._warn_not_converged(outcome.n_iter, stacklevel=2)
        return self


class AlternatingHasher(SampleHasher):
    """A hasher that alternates between steps until the codes stop changing. A learner defines ``_iterate``."""

    max_iter: int
    _converges: ClassVar[bool] = True  # whether to warn if the codes still change after ``max_iter`` iterations

    @abstractmethod
    def _iterate(self, samples: Samples, rng: np.random.RandomState) -> Iterator[tuple[Codes, Floats, float]]:
        """Codes H (n, L), hash function P (d, L) and objective after every iteration; parameters are valid."""

    def _solve(self, samples: Samples, rng: np.random.RandomState) -> Outcome:
        values: list[float] = []
        previous: Codes | None = None
        with reporting() as step:
            for iteration in islice(self._iterate(samples, rng), self.max_iter):
                H, P, value = iteration
                values.append(value)
                step(f"{type(self).__name__}: iteration", len(values), self.max_iter)
                if converged := previous is not None and np.array_equal(H, previous):
                    break
                previous = H
        return Outcome(P, H, len(values), np.array(values), converged if self._converges else None)


# rows of a stream -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeptRows:
    """A uniform sample of all rows seen so far, of bounded size.

    Every row draws a random number when it is added; those with the smallest are kept, in the order of adding.

    Attributes
    ----------
    X : (m, d) the rows
    Y : (m, c) their labels, 0 or 1
    numbers : (m,) their random numbers
    seen : rows added so far
    capacity : largest number of rows kept
    """

    X: NDArray[np.float32]
    Y: NDArray[np.uint8]
    numbers: Floats
    seen: int
    capacity: int

    @classmethod
    def none(cls, n_features: int, n_classes: int, capacity: int) -> Self:
        """No rows yet."""
        X, Y = np.empty((0, n_features), dtype=np.float32), np.empty((0, n_classes), dtype=np.uint8)
        return cls(X, Y, np.empty(0), 0, capacity)

    def add(self, X: NDArray[np.float32], Y: NDArray[np.uint8], rng: np.random.RandomState) -> Self:
        """With more rows."""
        return self.join(type(self)(X, Y, rng.random_sample(len(X)), len(X), self.capacity))

    def join(self, other: Self) -> Self:
        """The sample of the rows of both."""
        numbers = np.concatenate([self.numbers, other.numbers])
        rows, labels = np.concatenate([self.X, other.X]), np.concatenate([self.Y, other.Y])
        if len(numbers) > self.capacity:
            kept = np.sort(np.argpartition(numbers, self.capacity)[: self.capacity])
            rows, labels, numbers = rows[kept], labels[kept], numbers[kept]
        return type(self)(rows, labels, numbers, self.seen + other.seen, self.capacity)
