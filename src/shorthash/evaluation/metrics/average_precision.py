"""Average precision: of a whole ranking, of its first k items, of a Hamming ball."""

from __future__ import annotations

import numpy as np
from numba import njit

from shorthash._types import Counts, Floats
from shorthash._validation import check_choice
from shorthash.codes.levels import level_precision_sum, precision_sums
from shorthash.evaluation.ranking import Ranking

__all__ = ["DIVISORS", "average_precision"]

DIVISORS = ("all", "possible", "retrieved")
NEGLIGIBLE = 1e-20  # a probability, relative to the most likely one, that no double sum can feel


def average_precision(ranking: Ranking, cut: int | Counts | None = None, divisor: str = "all") -> Floats:
    r"""Mean over tie orders of the average precision of the items shown, (m,).

    .. math:: \mathrm{AP} = \mathbb{E} \, \frac{1}{D} \sum_{j=1}^{k} \mathrm{rel}_j \,
              \frac{\mathrm{rel}_1 + \dots + \mathrm{rel}_j}{j}

    where

    - :math:`k` is the number of items shown (``cut``: the same for all rankings, one each, or None for all items);
    - :math:`\mathrm{rel}_j` is 1 if the j-th item is relevant, else 0;
    - :math:`D` is the divisor: "all" relevant items :math:`R`; the "possible" ones, :math:`\min(k, R)`; or those
      "retrieved" among the first k, which makes one lucky hit a perfect score;
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
