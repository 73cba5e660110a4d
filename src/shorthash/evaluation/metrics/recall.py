"""Recall: of the first k items, or of a Hamming ball."""

from __future__ import annotations

import numpy as np

from shorthash._types import Counts, Floats
from shorthash.evaluation.ranking import Ranking

__all__ = ["recall"]


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
    values: Floats = np.divide(ranking.hits(cut), R, out=np.full(len(R), np.nan), where=R > 0)
    return values
