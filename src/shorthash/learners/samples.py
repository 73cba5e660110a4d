"""Learning from samples: the products that solvers need, and the base classes of their learners.

The counterpart of sums.py, for methods whose codes may differ between samples with the same labels; and ``KeptRows``,
the memory of a learner that is trained further and needs rows again.

The alternation that FSDH and NSH share descends on::

    J = ||H - E F||^2 + penalty(F) + nu (||H - X P||^2 + ridge ||P||^2),    H-step: H = sgn(E F + nu X P).

F (u, L) holds one row of scores per label set, and is the only difference between the two methods. The features have a
tiny weight, so the samples of a label set get the same code, and then every step needs only sums over rows. Solved *by
set*, nu X P is dropped from the H-step, and a guard proves that it could not have changed a sign. If the proof fails
and the rows are available, the alternation is solved *by sample*, from the same start.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import check_random_state

from shorthash._arrays import Codes, Floats
from shorthash._labels import LabelGroups
from shorthash._progress import reporting
from shorthash.codes.signs import sign
from shorthash.data.rows import Rows
from shorthash.errors import GuardWarning
from shorthash.learners.base import SupervisedHasher
from shorthash.learners.solvers import Ridge, sign_guard
from shorthash.learners.sums import GroupStatistics, SumHasher


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


# codes that follow the labels -----------------------------------------------------------------------------------------


class LabelTerm(Protocol):
    """How a method computes the scores of label sets; it may keep state between steps."""

    def start(self, rng: np.random.RandomState) -> Floats:
        """F before the first H-step, (u, L)."""

    def step(self, EtH: Floats) -> tuple[Floats, float]:
        """F for codes whose sums over label sets are E'H, and its penalty, without ``||H - E F||^2``."""


class LabelCodeHasher(SumHasher):
    """A learner of sums whose codes follow the labels. A learner defines ``_label_term``."""

    nu: float
    ridge: float
    max_iter: int

    @abstractmethod
    def _label_term(self, seen: GroupStatistics) -> LabelTerm:
        """F of the method."""

    def _learn(self, rows: Rows | None = None, groups: LabelGroups | None = None) -> Self:
        """Solve from the statistics (by sample if necessary) and set every fitted attribute."""
        seen = self.statistics_
        run = self._run(seen, _BySet(seen, self.nu))
        if run.guard >= 1 and rows is not None and groups is not None:
            run = self._run(seen, _BySample(seen, self.nu, rows, groups))
        elif run.guard >= 1:
            warnings.warn(
                f"{self._name} cannot prove from sums that samples with equal labels get equal codes (guard "
                f"{run.guard:.3g}, should be below 1) and assumes it; call fit on all rows, or use a smaller nu.",
                GuardWarning,
                stacklevel=4,
            )
        codes = run.codewords[groups.ids] if groups is not None and run.H is None else run.H
        self._keep(run.P, run.codewords, codes)
        self.objective_ = run.objective
        self.n_iter_ = len(run.objective)
        if not run.converged:
            self._warn_not_converged(self.max_iter, stacklevel=4)
        return self

    def _run(self, seen: GroupStatistics, space: _BySet | _BySample) -> _Run:
        """H -> F -> P until the codes stop changing; P starts at 0."""
        term = self._label_term(seen)
        F = term.start(np.random.RandomState(self._seed))
        p_ridge = Ridge(seen.gram, self.ridge)
        P = np.zeros((seen.n_features, F.shape[1]))
        codes: Codes | None = None
        values: list[float] = []
        converged = False
        while len(values) < self.max_iter and not converged:
            previous = codes
            codes = space.h_step(F, P)
            EtH, XtH = space.sums(codes)
            F, penalty = term.step(EtH)
            P = p_ridge.solve(XtH)
            n_entries = seen.n_samples * F.shape[1]
            labels = n_entries - 2 * np.sum(F * EtH) + np.sum(seen.counts[:, None] * F**2) + penalty
            features = n_entries - 2 * np.sum(P * XtH) + np.sum(P * (seen.gram @ P)) + self.ridge * np.sum(P**2)
            values.append(float(labels + self.nu * features))
            converged = previous is not None and np.array_equal(codes, previous)
        H = codes if isinstance(space, _BySample) else None
        return _Run(sign(EtH), H, P, np.array(values), converged, space.guard)


@dataclass(frozen=True)
class _Run:
    """The result of the alternation."""

    codewords: Codes  # (u, L)
    H: Codes | None  # (n, L) by sample, None by set
    P: Floats
    objective: Floats
    converged: bool
    guard: float  # largest dropped term over smallest kept one; below 1 the codes are proven


class _BySet:
    """One code per label set: H = E C, and nu X P is dropped from the H-step."""

    def __init__(self, seen: GroupStatistics, nu: float) -> None:
        self.seen = seen
        self.nu = nu
        self.guard = 0.0

    def h_step(self, F: Floats, P: Floats) -> Codes:
        """C = sgn(F), (u, L)."""
        self.guard = max(self.guard, sign_guard(self.nu * self.seen.largest_products(P), F))
        return sign(F)

    def sums(self, C: Codes) -> tuple[Floats, Floats]:
        """E'H and X'H."""
        return self.seen.counts[:, None] * C, self.seen.sums @ C


class _BySample:
    """One code per sample."""

    guard = float("nan")  # nothing is dropped

    def __init__(self, seen: GroupStatistics, nu: float, X: Rows, groups: LabelGroups) -> None:
        self.nu = nu
        self.X = X
        self.ids = groups.ids
        n = len(groups.ids)
        self.Et: Any = sparse.csr_array((np.ones(n), (groups.ids, np.arange(n))), shape=(len(seen.counts), n))

    def h_step(self, F: Floats, P: Floats) -> Codes:
        """H = sgn(E F + nu X P), (n, L)."""
        return sign(F[self.ids] + self.nu * self.X.times(P))

    def sums(self, H: Codes) -> tuple[Floats, Floats]:
        """E'H and X'H."""
        return np.asarray(self.Et @ H), self.X.transposed_times(H)


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
