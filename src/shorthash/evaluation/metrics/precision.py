"""Precision: of the first k items, or of a Hamming ball."""

from __future__ import annotations

import numpy as np

from shorthash._types import Counts, Floats
from shorthash.evaluation.ranking import Ranking

__all__ = ["precision"]


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
    values: Floats = np.divide(ranking.hits(cut), shown, out=np.zeros(len(shown)), where=shown > 0)
    return values
