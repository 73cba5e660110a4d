"""Precision and recall by Hamming radius, averaged per query and pooled over all pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shorthash._types import Counts, Floats

__all__ = ["PRCurve", "RadiusSums", "pr_curve"]


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


@dataclass(frozen=True)
class RadiusSums:
    """What a PR curve needs of some queries; the sums of all queries are the sums of their blocks.

    Attributes
    ----------
    queries : number of queries
    precision, recall, empty : (n_levels,) sums over queries
    items, hits : (n_levels,) items, and relevant ones, within every radius, over all queries
    """

    queries: int
    precision: Floats
    recall: Floats
    empty: Floats
    items: Floats
    hits: Floats

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

    def __add__(self, other: RadiusSums) -> RadiusSums:
        return RadiusSums(
            self.queries + other.queries,
            self.precision + other.precision,
            self.recall + other.recall,
            self.empty + other.empty,
            self.items + other.items,
            self.hits + other.hits,
        )


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
