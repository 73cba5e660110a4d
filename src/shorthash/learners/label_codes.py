"""Codes that follow the labels: the alternation that FSDH and NSH share.

It descends on::

    J = ||H - E F||^2 + penalty(F) + nu (||H - X P||^2 + ridge ||P||^2),    H-step: H = sgn(E F + nu X P).

F (u, L) holds one row of scores per label set, and is the only difference between the two methods (legend: samples.py).
The features have a tiny weight, so the samples of a label set get the same code, and then every step needs only sums
over rows. Solved *by set*, nu X P is dropped from the H-step, and a guard proves that it could not have changed a sign.
If the proof fails and the rows are available, the alternation is solved *by sample*, from the same start.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from scipy import sparse

from shorthash._labels import LabelGroups
from shorthash._types import Codes, Floats
from shorthash.codes.signs import sign
from shorthash.data.rows import Rows
from shorthash.errors import GuardWarning
from shorthash.learners.solvers import Ridge, sign_guard
from shorthash.learners.sums import GroupStatistics, SumHasher


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
