"""Normalised discounted cumulative gain, with graded relevance."""

from __future__ import annotations

import numpy as np
from numba import njit

from shorthash._types import Counts, Floats
from shorthash.evaluation.ranking import Ranking

__all__ = ["ndcg"]


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
    values: Floats = np.divide(gained, best, out=np.full(len(best), np.nan), where=best > 0)
    return values


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
