"""The sums that RSLH learns from: over rows, hence mergeable, streamable and reversible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from shorthash._labels import LabelGroups
from shorthash._types import Floats, Labels
from shorthash.errors import InvalidInput
from shorthash.features.rows import Rows

__all__ = ["GroupStatistics"]


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
    (``tests/learners/test_rslh_onepass.py::test_float32_gram_trap``).
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

    def _combine(self, other: GroupStatistics, direction: int) -> GroupStatistics:
        if self.n_features != other.n_features or not np.array_equal(self.classes, other.classes):
            raise InvalidInput(
                f"Statistics can be combined only over the same features and classes. Got {self.n_features} features "
                f"and {len(self.classes)} classes here, {other.n_features} and {len(other.classes)} there; use the "
                "same front end and announce the same classes."
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
        """One pass over the rows."""
        u = len(groups.rows)
        gram: Floats | None = None
        largest = 0.0
        sums = np.zeros((u, 0))
        for part, batch in rows:
            X = np.asarray(batch, dtype=np.float64)  # (b, d)
            ids = groups.ids[part]
            E: Any = sparse.csr_array((np.ones(len(ids)), (ids, np.arange(len(ids)))), shape=(u, len(ids)))
            if gram is None:
                gram, sums = np.zeros((X.shape[1],) * 2), np.zeros((u, X.shape[1]))
            gram += X.T @ X
            sums += E @ X
            largest = max(largest, float(np.einsum("ij,ij->i", X, X).max()))
        if gram is None:
            raise InvalidInput("There are no rows to learn from; give at least one.")
        counts = groups.sizes()
        return cls(groups.classes, groups.rows, counts, np.ascontiguousarray(sums.T), gram, float(np.sqrt(largest)))
