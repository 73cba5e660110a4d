"""The sums that learners of sums need: over rows, hence mergeable, streamable and reversible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from shorthash._arrays import is_foreign, like, namespace, to_numpy
from shorthash._labels import LabelGroups
from shorthash._types import Floats, Labels
from shorthash.data.rows import Rows
from shorthash.errors import InvalidInput

__all__ = ["GroupStatistics"]

ROUNDED_UP = 1 + 1e-5  # a norm summed in float32 stays an upper bound


@dataclass(frozen=True)
class GroupStatistics:
    """Sufficient statistics of labelled rows, grouped by identical label row.

    Attributes
    ----------
    classes : (c,) the classes
    rows : (u, c) uint8, the label rows of the groups, in canonical order (descending), none empty
    counts : (u,) N, rows per group
    sums : (d, u) M = X'E, sum of the rows of every group
    gram : (d, d) K = X'X
    largest_norm : an upper bound of the norm of any row

    All sums are float64. With float32 products of uncentred kernel features the ridge solution is silently destroyed
    (``tests/learners/test_rslh_onepass.py::test_the_ridge_solution_survives_uncentred_kernel_features``).
    """

    classes: Labels
    rows: NDArray[np.uint8]
    counts: Floats
    sums: Floats
    gram: Floats
    largest_norm: float

    @property
    def n_samples(self) -> int:
        """Rows seen and not forgotten."""
        return round(float(self.counts.sum()))

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return len(self.gram)

    def mean(self) -> Floats:
        """Mean row, (d,)."""
        mean: Floats = self.sums.sum(axis=1) / self.counts.sum()
        return mean

    def centred(self, mean: Floats) -> GroupStatistics:
        """The statistics of the same rows with ``mean`` subtracted from each; the rows themselves are not needed."""
        n = self.counts.sum()
        total = self.sums.sum(axis=1)
        gram = self.gram - np.outer(mean, total) - np.outer(total - n * mean, mean)
        return replace(
            self,
            sums=self.sums - np.outer(mean, self.counts),
            gram=(gram + gram.T) / 2,
            largest_norm=self.largest_norm + float(np.linalg.norm(mean)),
        )

    def largest_products(self, P: Floats) -> Floats:
        """A bound of max_i |x_i p| for every column p of P, (L,): by norms of row and column, or by the norm of X p."""
        by_norms = self.largest_norm * np.linalg.norm(P, axis=0)
        by_column = np.sqrt(np.maximum(np.sum(P * (self.gram @ P), axis=0), 0.0))
        return np.asarray(np.minimum(by_norms, by_column))

    def merge(self, other: GroupStatistics) -> GroupStatistics:
        """The statistics of both sets of rows together."""
        return self._combine(other, +1)

    def subtract(self, other: GroupStatistics) -> GroupStatistics:
        """The statistics of these rows without the others, which must have been among them."""
        return self._combine(other, -1)

    def join(self, other: GroupStatistics) -> GroupStatistics:
        """The same as ``merge``, where either side may know classes that the other has never seen."""
        if np.array_equal(self.classes, other.classes):
            return self.merge(other)
        if (self.classes.dtype.kind in "OUS") != (other.classes.dtype.kind in "OUS"):
            raise InvalidInput(
                f"Labels must be of one type throughout. Got {self.classes.dtype} and {other.classes.dtype}; convert "
                "one of them."
            )
        classes = np.union1d(self.classes, other.classes)
        return self.over(classes).merge(other.over(classes))

    def over(self, classes: Labels) -> GroupStatistics:
        """The same statistics, told over more classes; possible where every row has one label."""
        if np.array_equal(self.classes, classes):
            return self
        if (self.rows.sum(axis=1) != 1).any():
            raise InvalidInput(
                "Statistics of rows with several labels can be combined only over the same classes. Got "
                f"{len(self.classes)} classes here and {len(classes)} in all; build every label matrix with the same "
                "columns."
            )
        rows = np.zeros((len(self.rows), len(classes)), dtype=np.uint8)
        rows[np.arange(len(rows)), np.searchsorted(classes, self.classes[self.rows.argmax(axis=1)])] = 1
        order = np.argsort(rows.argmax(axis=1), kind="stable")
        return replace(self, classes=classes, rows=rows[order], counts=self.counts[order], sums=self.sums[:, order])

    def _combine(self, other: GroupStatistics, direction: int) -> GroupStatistics:
        if self.n_features != other.n_features or not np.array_equal(self.classes, other.classes):
            raise InvalidInput(
                f"Statistics can be combined only over the same features and classes. Got {self.n_features} features "
                f"and {len(self.classes)} classes here, {other.n_features} and {len(other.classes)} there; use the "
                "same kernel and announce the same classes."
            )
        both = np.concatenate([self.rows, other.rows])
        distinct, home = np.unique(both, axis=0, return_inverse=True)
        home = len(distinct) - 1 - home.reshape(-1)
        counts = np.zeros(len(distinct))
        sums = np.zeros((self.n_features, len(distinct)))
        for side, places, factor in ((self, home[: len(self.rows)], 1), (other, home[len(self.rows) :], direction)):
            counts[places] += factor * side.counts
            sums[:, places] += factor * side.sums
        if counts.min() < 0:
            raise InvalidInput(
                "Rows can be forgotten only if they were learned before, but the given rows hold "
                f"{round(-counts.min())} more samples of one label set than were ever seen; check the labels."
            )
        kept = counts > 0
        return replace(
            self,
            rows=distinct[::-1][kept],
            counts=counts[kept],
            sums=sums[:, kept],
            gram=self.gram + direction * other.gram,
            largest_norm=max(self.largest_norm, other.largest_norm),
        )

    @classmethod
    def of(cls, rows: Rows, groups: LabelGroups) -> GroupStatistics:
        """One pass over the rows, where they are; what comes back is of the size of the sums."""
        total: _Sums | None = None
        for part, batch in rows:
            more = _Sums.of(batch, groups.ids[part], len(groups.rows))
            total = more if total is None else total.add(more)
        if total is None:
            raise InvalidInput("There are no rows to learn from; give at least one.")
        sums = np.ascontiguousarray(to_numpy(total.sums).T)
        counts = to_numpy(total.counts).astype(np.float64)
        return cls(groups.classes, groups.rows, counts, sums, to_numpy(total.gram), float(total.largest_norm))


@dataclass
class _Sums:
    """Sums over one batch after the other, of the kind of array that the rows are."""

    counts: Any  # (u,)
    sums: Any  # (u, d)
    gram: Any  # (d, d)
    largest_norm: Any

    @classmethod
    def of(cls, batch: Any, ids: Any, u: int) -> _Sums:
        """Sums over the rows of a batch and the groups that they belong to."""
        if is_foreign(batch):
            return cls._elsewhere(batch, ids, u)
        X = np.asarray(batch, dtype=np.float64)  # (b, d)
        E: Any = sparse.csr_array((np.ones(len(ids)), (ids, np.arange(len(ids)))), shape=(u, len(ids)))
        largest = float(np.sqrt(np.einsum("ij,ij->i", X, X).max()))
        return cls(np.bincount(ids, minlength=u), E @ X, X.T @ X, largest)

    @classmethod
    def _elsewhere(cls, batch: Any, ids: Any, u: int) -> _Sums:
        xp = namespace(batch)
        X = xp.astype(batch, xp.float64, copy=False)
        groups = like(np.arange(u), batch)
        own = ids if is_foreign(ids) else like(ids, batch)
        E = xp.astype(own[:, None] == groups[None, :], xp.float64)  # (b, u)
        largest = xp.max(xp.linalg.vector_norm(batch, axis=1)) * ROUNDED_UP
        return cls(xp.sum(E, axis=0), E.T @ X, X.T @ X, largest)

    def add(self, other: _Sums) -> _Sums:
        """These sums, with others added to them in place."""
        self.counts += other.counts
        self.sums += other.sums
        self.gram += other.gram
        if is_foreign(self.gram):
            self.largest_norm = namespace(self.gram).maximum(self.largest_norm, other.largest_norm)
        else:
            self.largest_norm = max(self.largest_norm, other.largest_norm)
        return self
