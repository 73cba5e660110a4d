"""Rankings as groups of tied items, and the named orders inside a tie.

A ranking is a row of groups, nearest first: how many items each group has, how many of them are relevant, how much
gain they carry. Inside a group every order is equally likely. A tie policy only decides which groups there are:

========== ===================================================================================================
expected   one group per distance: metrics become exact means over all orders of tied items
best       the relevant items of a distance, most relevant first, then the others: an upper bound
worst      the others first: a lower bound
stable     one group per item, tied items in database order: what a stable sort shows
========== ===================================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shorthash._types import Counts, Floats
from shorthash._validation import check_choice
from shorthash.codes.levels import popcount

__all__ = [
    "GAINS",
    "TIES",
    "Ranking",
    "gains_by_grade",
    "ideal_ranking",
    "list_by_distance",
    "rank_by_levels",
    "rank_items",
]

TIES = ("expected", "stable", "best", "worst")
GAINS = ("shared", "exponential", "binary")
EVERYTHING = int(np.iinfo(np.int64).max)  # the cut that cuts nothing


@dataclass(frozen=True)
class Ranking:
    """Groups of equally likely order, nearest first; all that a metric needs to know.

    Attributes
    ----------
    total : (m, n_groups) items in every group; groups may be empty
    relevant : (m, n_groups) relevant items in every group
    gain : (m, n_groups) summed gain of every group
    """

    total: Counts
    relevant: Counts
    gain: Floats

    @property
    def n_items(self) -> Counts:
        """Items in every ranking, (m,)."""
        items: Counts = self.total.sum(axis=1)
        return items

    @property
    def n_relevant(self) -> Counts:
        """Relevant items in every ranking, (m,)."""
        relevant: Counts = self.relevant.sum(axis=1)
        return relevant

    def cuts(self, cut: int | Counts | None) -> Counts:
        """How many items of every ranking are shown, (m,): the same for all, one number each, or (None) all of them."""
        if cut is None:
            return np.full(len(self.total), EVERYTHING)
        return np.broadcast_to(np.asarray(cut, dtype=np.int64), len(self.total)).copy()

    def hits(self, cut: int | Counts | None) -> Floats:
        """Expected number of relevant items among those shown, (m,)."""
        hits: Floats = _hits(self.total, self.relevant, self.cuts(cut))
        return hits


def gains_by_grade(rule: str, n_grades: int) -> Floats:
    """The gain of sharing 1, 2, ..., n_grades labels: as many, 2**shared - 1, or 1 whatever the number."""
    check_choice(rule, "gain", "evaluate", GAINS)
    shared = np.arange(1, n_grades + 1, dtype=np.float64)
    if rule == "exponential":
        return np.exp2(shared) - 1.0
    return shared if rule == "shared" else np.ones(n_grades)


def rank_by_levels(total: Counts, graded: Counts, gains: Floats, ties: str) -> Ranking:
    """Rankings from level counts under a tie policy other than "stable".

    Parameters
    ----------
    total : (m, n_levels) items at every distance
    graded : (n_grades, m, n_levels) those that share 1, 2, ... labels with the query
    gains : (n_grades,) the gain of each grade
    """
    if ties == "expected":
        return Ranking(total, graded.sum(axis=0), np.tensordot(gains, graded, axes=1))
    others = total - graded.sum(axis=0)
    parts = np.concatenate([others[None], graded])  # (n_grades + 1, m, n_levels), least relevant first
    weights = np.concatenate([[0.0], gains])
    if ties == "best":
        parts, weights = parts[::-1], weights[::-1]
    flat = np.ascontiguousarray(np.moveaxis(parts, 0, 2)).reshape(len(total), -1)  # each level becomes n_grades + 1
    weight = np.tile(weights, total.shape[1])
    return Ranking(flat, flat * (weight > 0), flat * weight)


def rank_items(grades: NDArray[np.integer[Any]], gains: Floats) -> Ranking:
    """One ranking of known order from the grades of its items, nearest first, (n,)."""
    gain = np.concatenate([[0.0], gains])[grades][None]
    return Ranking(np.ones(gain.shape, dtype=np.int64), (gain > 0).astype(np.int64), gain)


def ideal_ranking(graded: Counts, gains: Floats) -> Ranking:
    """The best order of the whole database: all items of the highest grade first."""
    per_grade = np.ascontiguousarray(graded.sum(axis=2)[::-1].T)  # (m, n_grades)
    return Ranking(per_grade, per_grade, per_grade * gains[::-1])


@njit(cache=True, nogil=True)
def list_by_distance(
    query: np.uint64, items: NDArray[np.uint64], grades: NDArray[np.int64], n_bits: int, skipped: np.intp
) -> NDArray[np.int64]:
    """Grades of all items but one, nearest first and in database order inside ties: a counting sort."""
    starts = np.zeros(n_bits + 2, dtype=np.int64)
    for j in range(items.size):
        if j != skipped:
            starts[popcount(query ^ items[j]) + 1] += 1
    starts = np.cumsum(starts)
    listed = np.empty(starts[-1], dtype=np.int64)
    for j in range(items.size):
        if j != skipped:
            level = popcount(query ^ items[j])
            listed[starts[level]] = grades[j]
            starts[level] += 1
    return listed


@njit(cache=True, nogil=True)
def _hits(total: Counts, relevant: Counts, cuts: Counts) -> Floats:
    """Expected relevant items among the first ``cuts`` of every ranking; a cut group shows an equal share."""
    hits = np.zeros(len(total))
    for i in range(len(total)):
        before = 0
        for t in range(total.shape[1]):
            if before >= cuts[i]:
                break
            if relevant[i, t] > 0:
                hits[i] += relevant[i, t] * (min(total[i, t], cuts[i] - before) / total[i, t])
            before += total[i, t]
    return hits
