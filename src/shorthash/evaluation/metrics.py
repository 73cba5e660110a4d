"""Metrics of rankings with ties, each exact: the mean over all orders of the tied items.

A ranking is a row of groups, nearest first: how many items each group has, how many of them are relevant, and how much
gain they carry. Inside a group every order is equally likely. A tie policy decides only which groups there are:

========== ===================================================================================================
expected   one group per distance: metrics are exact means over all orders of tied items
best       the relevant items of a distance, most relevant first, then the others: an upper bound
worst      the others first: a lower bound
stable     one group per item, tied items in database order: what a stable sort shows
========== ===================================================================================================

The same codes get different numbers from different evaluation scripts. A :class:`Convention` fixes every choice that
such a script makes, so that a published number can be compared under the same rules.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Counts, Floats, njit
from shorthash._validation import check_choice, check_count
from shorthash.codes.levels import EVERYTHING, level_precision_sum, popcount, precision_sums

TIES = ("expected", "stable", "best", "worst")
GAINS = ("shared", "exponential", "binary")
DIVISORS = ("all", "possible", "retrieved")
WITHOUT_RELEVANT = ("drop", "zero")
NEGLIGIBLE = 1e-20  # a probability, relative to the largest one, that does not change a double-precision sum


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
        return np.asarray(self.total.sum(axis=1))

    @property
    def n_relevant(self) -> Counts:
        """Relevant items in every ranking, (m,)."""
        return np.asarray(self.relevant.sum(axis=1))

    def cuts(self, cut: int | Counts | None) -> Counts:
        """How many items of every ranking are shown, (m,): the same for all, one number each, or (None) all of them."""
        if cut is None:
            return np.full(len(self.total), EVERYTHING)
        return np.broadcast_to(np.asarray(cut, dtype=np.int64), len(self.total)).copy()

    def hits(self, cut: int | Counts | None) -> Floats:
        """Expected number of relevant items among those shown, (m,)."""
        return np.asarray(_hits(self.total, self.relevant, self.cuts(cut)))


def gains_by_grade(rule: str, n_grades: int) -> Floats:
    """The gain of sharing 1, 2, ..., n_grades labels: that number, 2**shared - 1, or 1."""
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


def average_precision(ranking: Ranking, cut: int | Counts | None = None, divisor: str = "all") -> Floats:
    r"""Mean over tie orders of the average precision of the items shown, (m,).

    .. math:: \mathrm{AP} = \mathbb{E} \, \frac{1}{D} \sum_{j=1}^{k} \mathrm{rel}_j \,
              \frac{\mathrm{rel}_1 + \dots + \mathrm{rel}_j}{j}

    where

    - :math:`k` is the number of items shown (``cut``: the same for all rankings, one each, or None for all items);
    - :math:`\mathrm{rel}_j` is 1 if the j-th item is relevant, else 0;
    - :math:`D` is the divisor: "all" relevant items :math:`R`; the "possible" ones, :math:`\min(k, R)`; or those
      "retrieved" among the first k, so that a single hit can be a perfect score;
    - the expectation :math:`\mathbb{E}` runs over all orders of tied items. A cut through a tie is exact too: for
      "retrieved" the divisor is random, and the sum runs over the hypergeometric number of relevant items above it.

    A ranking without any relevant item gets nan; one that shows none gets 0.

    Examples
    --------
    >>> ranking = Ranking(np.array([[1, 2]]), np.array([[0, 1]]), np.array([[0.0, 1.0]]))  # one miss, then a tie
    >>> average_precision(ranking).round(4)  # 1/2 or 1/3
    array([0.4167])
    >>> average_precision(ranking, cut=2, divisor="retrieved")  # 1/2 or nothing
    array([0.25])
    """
    check_choice(divisor, "divisor", "average_precision", DIVISORS)
    cuts, R = ranking.cuts(cut), ranking.n_relevant
    if divisor == "retrieved":
        values: Floats = _retrieved_average(ranking.total, ranking.relevant, cuts)
    else:
        possible = np.minimum(cuts, R) if divisor == "possible" else R
        sums = precision_sums(ranking.total, ranking.relevant, cuts)
        values = np.divide(sums, possible, out=np.zeros(len(R)), where=possible > 0)
    return np.where(R > 0, values, np.nan)


def precision(ranking: Ranking, cut: int | Counts | None) -> Floats:
    r"""Mean over tie orders of the share of relevant items among those shown, (m,).

    .. math:: P = \mathbb{E} \, \frac{1}{\min(k, n)} \sum_{j=1}^{\min(k, n)} \mathrm{rel}_j

    where

    - :math:`k` is the number of items shown (``cut``), :math:`n` the size of the database;
    - :math:`\mathrm{rel}_j` is 1 if the j-th item is relevant, else 0.

    Where nothing is shown, as in an empty Hamming ball, precision is 0.

    Examples
    --------
    >>> ranking = Ranking(np.array([[1, 2]]), np.array([[1, 1]]), np.array([[1.0, 1.0]]))
    >>> precision(ranking, cut=2)  # one hit, and half of another
    array([0.75])
    """
    shown = np.minimum(ranking.cuts(cut), ranking.n_items)
    return np.asarray(np.divide(ranking.hits(cut), shown, out=np.zeros(len(shown)), where=shown > 0))


def recall(ranking: Ranking, cut: int | Counts | None) -> Floats:
    r"""Mean over tie orders of the share of all relevant items that are shown, (m,).

    .. math:: \mathrm{Recall} = \mathbb{E} \, \frac{1}{R} \sum_{j=1}^{k} \mathrm{rel}_j

    where

    - :math:`k` is the number of items shown (``cut``);
    - :math:`\mathrm{rel}_j` is 1 if the j-th item is relevant, else 0;
    - :math:`R` is the number of relevant items in the database; a query without any gets nan.

    Examples
    --------
    >>> ranking = Ranking(np.array([[1, 2]]), np.array([[1, 1]]), np.array([[1.0, 1.0]]))
    >>> recall(ranking, cut=2)
    array([0.75])
    """
    R = ranking.n_relevant
    return np.asarray(np.divide(ranking.hits(cut), R, out=np.full(len(R), np.nan), where=R > 0))


def ndcg(ranking: Ranking, ideal: Ranking, cut: int) -> Floats:
    r"""Mean over tie orders of the discounted gain of the first items, relative to the best possible, (m,).

    .. math:: \mathrm{nDCG@}k = \frac{1}{Z} \, \mathbb{E} \sum_{j=1}^{k} \frac{g_j}{\log_2 (j + 1)}

    where

    - :math:`k` is the number of items shown (``cut``);
    - :math:`g_j` is the gain of the j-th item: the number of labels it shares with the query, :math:`2^{shared} - 1`,
      or 1;
    - :math:`Z` is the same sum for the database in its best order (``ideal``); a query without relevant items has
      none and gets nan.

    Examples
    --------
    >>> ranking = Ranking(np.array([[2]]), np.array([[1]]), np.array([[1.0]]))
    >>> ideal = Ranking(np.array([[1]]), np.array([[1]]), np.array([[1.0]]))
    >>> ndcg(ranking, ideal, cut=1)
    array([0.5])
    """
    longest = int(min(cut, max(ranking.n_items.max(initial=0), ideal.n_items.max(initial=0))))
    discounts = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(2, longest + 2)))])
    gained = _discounted(ranking.total, ranking.gain, discounts)
    best = _discounted(ideal.total, ideal.gain, discounts)
    return np.asarray(np.divide(gained, best, out=np.full(len(best), np.nan), where=best > 0))


@dataclass(frozen=True)
class PRCurve:
    """Precision and recall at every radius.

    Attributes
    ----------
    radius : (n_bits + 1,) 0, 1, ..., n_bits
    precision, recall : (n_bits + 1,) means over queries; an empty ball has precision 0
    pooled_precision, pooled_recall : (n_bits + 1,) over all query-item pairs at once
    empty_balls : (n_bits + 1,) share of queries that find nothing at all within the radius
    area : trapezoid area under the pooled curve, as some toolkits report it under the name of mAP
    """

    radius: Counts
    precision: Floats
    recall: Floats
    pooled_precision: Floats
    pooled_recall: Floats
    empty_balls: Floats
    area: float


class RadiusSums(NamedTuple):
    """What a PR curve needs of some queries; the sums of all queries are the sums of their blocks."""

    queries: int  # number of queries
    precision: Floats  # (n_levels,) sum over queries
    recall: Floats  # (n_levels,) sum over queries
    empty: Floats  # (n_levels,) queries that find nothing
    items: Floats  # (n_levels,) items within every radius, over all queries
    hits: Floats  # (n_levels,) relevant ones among them

    @classmethod
    def of(cls, total: Counts, relevant: Counts, copies: Counts) -> RadiusSums:
        """Sums over queries with the given level counts, (m, n_levels), each occurring ``copies`` times."""
        items, hits = total.cumsum(axis=1), relevant.cumsum(axis=1)
        R = relevant.sum(axis=1, keepdims=True)
        precision = np.divide(hits, items, out=np.zeros(items.shape), where=items > 0)
        recall = np.divide(hits, R, out=np.zeros(items.shape), where=R > 0)
        return cls(
            int(copies.sum()), copies @ precision, copies @ recall, copies @ (items == 0), copies @ items, copies @ hits
        )

    def plus(self, other: RadiusSums) -> RadiusSums:
        """The sums over both sets of queries."""
        return RadiusSums(*map(operator.add, self, other))


def pr_curve(sums: RadiusSums) -> PRCurve:
    r"""Precision and recall by radius from the sums over queries.

    .. math:: P_t = \frac{1}{q} \sum_i \frac{h_{it}}{n_{it}}, \qquad
              \bar P_t = \frac{\sum_i h_{it}}{\sum_i n_{it}}

    where

    - :math:`n_{it}`, :math:`h_{it}` are the items, and the relevant ones, within radius t of query i;
    - :math:`q` is the number of queries; :math:`P` is ``precision``, :math:`\bar P` is ``pooled_precision``.

    Recall divides :math:`h_{it}` by the relevant items of the query, pooled recall by those of all queries. Sums go up
    to 2**53 pairs exactly.
    """
    queries = max(1, sums.queries)
    pooled_precision = np.divide(sums.hits, sums.items, out=np.zeros(len(sums.items)), where=sums.items > 0)
    pooled_recall = sums.hits / max(1.0, float(sums.hits[-1]))
    return PRCurve(
        radius=np.arange(len(sums.items)),
        precision=sums.precision / queries,
        recall=sums.recall / queries,
        pooled_precision=pooled_precision,
        pooled_recall=pooled_recall,
        empty_balls=sums.empty / queries,
        area=_area(pooled_recall, pooled_precision, sums.items),
    )


def _area(recall: Floats, precision: Floats, items: Floats) -> float:
    """Trapezoid area under the pooled curve.

    The toolkits that call this mAP stop one radius before the largest distance that occurs, begin the curve at recall
    0 with the first precision, and keep the first of several points with the same recall.
    """
    stop = int(np.searchsorted(items, items[-1]))  # the largest distance that occurs
    if stop == 0:
        return 0.0
    recall, first = np.unique(recall[:stop], return_index=True)
    precision = precision[first]
    if recall[0] > 0:
        recall, precision = np.concatenate([[0.0], recall]), np.concatenate([precision[:1], precision])
    return float(np.trapezoid(precision, recall))


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


@njit(cache=True, nogil=True)
def _retrieved_average(total: Counts, relevant: Counts, cuts: Counts) -> Floats:
    """Average precision divided by the relevant items shown, (m,)."""
    values = np.zeros(len(total))
    for i in range(len(total)):
        before, hits, summed = 0, 0, 0.0
        cut_level = -1
        for t in range(total.shape[1]):
            if before >= cuts[i]:
                break
            if before + total[i, t] > cuts[i]:
                cut_level = t
                break
            summed += level_precision_sum(before, hits, total[i, t], relevant[i, t], total[i, t])
            before += total[i, t]
            hits += relevant[i, t]
        if cut_level >= 0:
            n, r = total[i, cut_level], relevant[i, cut_level]
            values[i] = _over_cut_level(before, hits, summed, n, r, cuts[i] - before)
        elif hits > 0:
            values[i] = summed / hits
    return values


@njit(cache=True, nogil=True)
def _over_cut_level(before: int, hits: int, summed: float, total: int, relevant: int, shown: int) -> float:
    """Mean over the number h of relevant items among the ``shown`` ones of a level.

    The hypergeometric probability of h is taken relative to that of the most likely h and normalised at the end.
    """
    others = total - relevant
    low, high = max(0, shown - others), min(relevant, shown)
    mode = min(max((shown + 1) * (relevant + 1) // (total + 2), low), high)
    weights, mean, weight = 0.0, 0.0, 1.0
    for h in range(mode, high + 1):
        weights += weight
        mean += weight * _average_with(h, before, hits, summed, shown)
        weight *= (relevant - h) * (shown - h) / ((h + 1.0) * (others - shown + h + 1.0))
        if weight < NEGLIGIBLE:
            break
    weight = 1.0
    for h in range(mode - 1, low - 1, -1):
        weight *= (h + 1.0) * (others - shown + h + 1.0) / ((relevant - h) * (shown - h))
        weights += weight
        mean += weight * _average_with(h, before, hits, summed, shown)
        if weight < NEGLIGIBLE:
            break
    return mean / weights


@njit(cache=True, nogil=True)
def _average_with(h: int, before: int, hits: int, summed: float, shown: int) -> float:
    """Average precision if h of the ``shown`` items of the cut level are relevant, in any order."""
    if hits + h == 0:
        return 0.0
    return (summed + level_precision_sum(before, hits, shown, h, shown)) / (hits + h)


@njit(cache=True, nogil=True)
def _discounted(total: Counts, gain: Floats, discounts: Floats) -> Floats:
    """Expected discounted gain of as many items as there are discounts; all orders of a group are equally likely."""
    sums = np.zeros(len(total))
    cut = len(discounts) - 1
    for i in range(len(total)):
        before = 0
        for t in range(total.shape[1]):
            if before >= cut:
                break
            after = before + total[i, t]
            if gain[i, t] > 0:
                sums[i] += gain[i, t] / total[i, t] * (discounts[min(after, cut)] - discounts[before])
            before = after
    return sums


# conventions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Convention:
    """The choices behind a number.

    Attributes
    ----------
    name : its name
    headline : which score the convention calls its mAP: "map", "map_at_k", "map_at_radius" or "pr_area"
    ties : order of items at the same distance, see :mod:`shorthash.evaluation.metrics`
    without_relevant : queries for which the database has no relevant item are left out ("drop") or score 0 ("zero")
    no_hit : the same for queries that show no relevant item among the first k or in a ball that is not empty
    divisor_at_k : what average precision at k is divided by, see
        :func:`shorthash.evaluation.metrics.average_precision`
    k : list lengths to report by default
    family : published code that uses it
    divisor_at_radius : what average precision inside the radius is divided by

    Examples
    --------
    >>> own = replace(CONVENTIONS["hashnet"], name="own", no_hit="zero")
    >>> own.ties, own.no_hit
    ('stable', 'zero')
    """

    name: str
    headline: str
    ties: str
    without_relevant: str
    no_hit: str
    divisor_at_k: str
    k: tuple[int, ...]
    family: str
    divisor_at_radius: str = "retrieved"


_FAMILIES = {
    "shorthash": "this library: nothing depends on the order of the database",
    "sdh": "SDH, SSLH and RSLH in MATLAB: stable sort of the whole database",
    "fssh": "FSSH, LFH and COSDISH in MATLAB (calcMAP): stable sort, queries without a hit are left out",
    "hashnet": "HashNet and DeepHash (TensorFlow): mAP of the first k, queries without a hit are left out",
    "deephash": "DeepHash-pytorch: mAP of the first k, queries without a hit score 0",
    "dch": "DCH: mAP inside Hamming radius 2, empty balls score 0, balls without a hit are left out",
    "habir": "HABIR: area under the precision-recall curve by radius, pooled over all pairs",
}

_RULES: dict[str, tuple[str, str, str, str, str, tuple[int, ...]]] = {
    # name: headline, ties, without_relevant, no_hit, divisor_at_k, k
    "shorthash": ("map", "expected", "drop", "zero", "possible", (10, 100, 1000)),
    "sdh": ("map", "stable", "zero", "zero", "retrieved", (5000,)),
    "fssh": ("map", "stable", "drop", "drop", "retrieved", (5000,)),
    "hashnet": ("map_at_k", "stable", "drop", "drop", "retrieved", (1000,)),
    "deephash": ("map_at_k", "stable", "zero", "zero", "retrieved", (1000,)),
    "dch": ("map_at_radius", "expected", "drop", "drop", "retrieved", (1000,)),
    "habir": ("pr_area", "expected", "zero", "zero", "possible", (1000,)),
}

CONVENTIONS = {name: Convention(name, *rules, _FAMILIES[name]) for name, rules in _RULES.items()}
"""Conventions by name."""


def convention_rules(
    convention: str | Convention,
    *,
    ties: str | None = None,
    without_relevant: str | None = None,
    k: int | Sequence[int] | None = None,
    owner: str = "evaluate",
) -> Convention:
    """A convention by name, with the explicit arguments in place of its own choices.

    Examples
    --------
    >>> convention_rules("hashnet", k=[100, 1000]).k
    (100, 1000)
    >>> convention_rules("sdh", ties="expected").ties
    'expected'
    """
    if not isinstance(convention, Convention):
        check_choice(convention, "convention", owner, CONVENTIONS)
        convention = CONVENTIONS[convention]
    rules = replace(
        convention,
        ties=convention.ties if ties is None else ties,
        without_relevant=convention.without_relevant if without_relevant is None else without_relevant,
        k=convention.k if k is None else _list_lengths(k, owner),
    )
    check_choice(rules.ties, "ties", owner, TIES)
    for name in ("without_relevant", "no_hit"):
        check_choice(getattr(rules, name), name, owner, WITHOUT_RELEVANT)
    for name in ("divisor_at_k", "divisor_at_radius"):
        check_choice(getattr(rules, name), name, owner, DIVISORS)
    return rules


def _list_lengths(k: int | Sequence[int], owner: str) -> tuple[int, ...]:
    """One or several list lengths, each once, ascending."""
    lengths = list(k) if hasattr(k, "__iter__") else [k]
    return tuple(sorted({check_count(length, "k", owner) for length in lengths}))
