"""Average precision when distances tie: the exact mean over all orders of the tied items.

At 4 to 16 bits nearly every distance is shared by thousands of items, and the order among them, which nothing in the
codes decides, moves average precision by tenths. The mean over all such orders has a closed form in the level counts
(McSherry and Najork 2008; He, Cakir, Bargal and Sclaroff 2018), so it costs no more than one order.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import ArrayLike

from shorthash._labels import LabelGroups, group_label_pair
from shorthash._types import Counts, Floats
from shorthash._validation import check_same_length
from shorthash.codes.levels import level_blocks
from shorthash.codes.packing import as_packed
from shorthash.errors import InvalidInput

__all__ = [
    "expected_average_precision",
    "harmonic_gap",
    "leave_one_out_map",
    "level_precision_sum",
    "precision_sums",
]

EVERYTHING = int(np.iinfo(np.int64).max)  # the cut that cuts nothing
DIRECT_TERMS = 64  # up to here the harmonic numbers are summed term by term; beyond, the series is exact to 1e-16


def leave_one_out_map(codes: ArrayLike, y: ArrayLike, n_bits: int | None = None) -> float:
    """Tie-aware mAP where every row queries all the others.

    Two rows are relevant to each other if they share a label. Rows without any relevant other row are no queries; they
    remain in everyone's database. The cost depends on the number of different codes, not on the number of pairs.

    Parameters
    ----------
    codes : (n, n_bits) signs, or (n,) integers, which need ``n_bits``
    y : (n,) class labels, or an (n, n_classes) indicator matrix

    Returns
    -------
    float
        nan if no row has a relevant other row.

    Examples
    --------
    >>> leave_one_out_map([[1, 1], [1, 1], [-1, -1], [-1, -1]], y=["a", "a", "b", "b"])
    1.0
    >>> leave_one_out_map([[1, 1], [1, 1], [1, 1]], y=["a", "a", "b"])
    0.75
    """
    n_bits = n_bits if n_bits is not None else np.shape(codes)[-1] if np.ndim(codes) == 2 else None
    if n_bits is None:
        raise InvalidInput("leave_one_out_map needs n_bits when codes are packed integers; pass n_bits=...")
    packed = as_packed(codes, n_bits)
    check_same_length(packed, y, "leave_one_out_map")
    groups, _ = group_label_pair(y, np.asarray(y)[:0], owner="leave_one_out_map")
    distinct, code_ids = np.unique(packed, return_inverse=True)
    pairs, copies = np.unique(groups.ids * len(distinct) + code_ids.reshape(-1), return_counts=True)
    pair_groups = LabelGroups(groups.classes, groups.rows, pairs // max(1, len(distinct)))
    queries = distinct[pairs % max(1, len(distinct))]
    labelled = groups.rows.max(axis=1, initial=0)[pair_groups.ids]
    total, weight = 0.0, 0
    for block in level_blocks(queries, pair_groups, packed, groups, n_bits):
        everyone, relevant = block.total, block.relevant
        everyone[:, 0] -= 1  # the query itself
        relevant[:, 0] -= labelled[block.rows]
        precision = expected_average_precision(everyone, relevant)
        scored = ~np.isnan(precision)
        total += float(precision[scored] @ copies[block.rows][scored])
        weight += int(copies[block.rows][scored].sum())
    return total / weight if weight else float("nan")


def expected_average_precision(total: Counts, relevant: Counts) -> Floats:
    r"""Mean average precision over all orders of tied items, (m,).

    .. math:: \mathrm{AP} = \frac{1}{R} \sum_t \frac{r_t}{n_t} \sum_{j=1}^{n_t}
              \frac{R_t + 1 + (j - 1) \rho_t}{N_t + j}, \qquad \rho_t = \frac{r_t - 1}{n_t - 1}

    where

    - :math:`n_t`, :math:`r_t` are the items, and the relevant ones, at the t-th distance (``total``, ``relevant``);
    - :math:`N_t`, :math:`R_t` are the items, and the relevant ones, at smaller distances;
    - :math:`R` is the number of relevant items; a query without any gets nan.

    Parameters
    ----------
    total, relevant : (m, n_levels) counts, nearest level first; levels may be empty

    Examples
    --------
    >>> expected_average_precision(np.array([[2, 1]]), np.array([[1, 1]])).round(4)  # (1 + 2/3) / 2 or (1/2 + 2/3) / 2
    array([0.7083])
    """
    sums: Floats = precision_sums(total, relevant, np.full(len(total), EVERYTHING))
    R = relevant.sum(axis=1)
    precision: Floats = np.divide(sums, R, out=np.full(len(R), np.nan), where=R > 0)
    return precision


@njit(cache=True, nogil=True)
def harmonic_gap(start: int, count: int) -> float:
    """The harmonic number of start + count less that of start, without cancellation and without a table."""
    stop = start + count
    gap = 0.0
    while start < stop and (start < DIRECT_TERMS or stop - start <= DIRECT_TERMS):
        start += 1
        gap += 1.0 / start
    if start == stop:
        return gap
    a, b = 1.0 / start, 1.0 / stop  # Euler-Maclaurin, differences only
    a2, b2 = a * a, b * b
    gap += math.log1p((stop - start) * a) + 0.5 * (b - a) - (b2 - a2) / 12.0
    return gap + (b2 * b2 - a2 * a2) / 120.0 - (b2 * b2 * b2 - a2 * a2 * a2) / 252.0


@njit(cache=True, nogil=True)
def level_precision_sum(before: int, relevant_before: int, total: int, relevant: int, shown: int) -> float:
    """Expected sum of the precisions at the relevant ones among the first ``shown`` items of a level.

    The inner sum of the formula above, up to j = ``shown``: precisions only look backwards, so a cut inside a level
    stays exact.
    """
    if relevant == 0 or shown == 0:
        return 0.0
    rho = (relevant - 1.0) / (total - 1.0) if total > 1 else 0.0
    gap = harmonic_gap(before, shown)
    return relevant / total * (rho * shown + (relevant_before + 1.0 - rho * (before + 1.0)) * gap)


@njit(cache=True, nogil=True)
def precision_sums(total: Counts, relevant: Counts, cuts: Counts) -> Floats:
    """Expected sum of the precisions at relevant items among the first ``cuts`` of every ranking, (m,)."""
    sums = np.zeros(len(total))
    for i in range(len(total)):
        before, relevant_before = 0, 0
        for t in range(total.shape[1]):
            if before >= cuts[i]:
                break
            shown = min(total[i, t], cuts[i] - before)
            sums[i] += level_precision_sum(before, relevant_before, total[i, t], relevant[i, t], shown)
            before += total[i, t]
            relevant_before += relevant[i, t]
    return sums
