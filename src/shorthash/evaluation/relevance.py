"""Who is relevant to whom: an item is relevant to a query if they share a label.

Class labels are the special case of one label each. The number of shared labels is the *grade* of an item, which only
nDCG looks at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._labels import LabelGroups
from shorthash._types import Counts, PackedCodes

__all__ = ["Queries", "distinct_queries", "order_follows_labels", "shared_with"]

CHANCE_LIMIT = 6.0  # standard deviations: one random order in a billion has so many equal neighbours


@dataclass(frozen=True)
class Queries:
    """Queries reduced to those that can score differently: each (code, label group) once.

    Attributes
    ----------
    codes : (m,) packed codes, in order of their groups
    groups : their label groups
    rows : (n,) for every query given, which of these it is
    copies : (m,) how many of the given queries each stands for
    own : (m,) the database row that each query is itself, -1 if none
    """

    codes: PackedCodes
    groups: LabelGroups
    rows: NDArray[np.intp]
    copies: Counts
    own: NDArray[np.intp]


def distinct_queries(codes: PackedCodes, groups: LabelGroups, *, each_row: bool = False) -> Queries:
    """Put queries in order of their groups and keep one of every (code, group); with ``each_row`` keep them all.

    With ``each_row`` a query remembers its row number, for rankings that leave out the query itself.
    """
    distinct, code_ids = np.unique(codes, return_inverse=True)
    keys = groups.ids * max(1, len(distinct)) + code_ids.reshape(-1)
    if each_row:
        first = np.argsort(keys, kind="stable")
        rows = np.empty_like(first)
        rows[first] = np.arange(len(first))
        copies = np.ones(len(first), dtype=np.int64)
        own = first
    else:
        _, first, rows, copies = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        own = np.full(len(first), -1)
    kept = LabelGroups(groups.classes, groups.rows, groups.ids[first])
    return Queries(codes[first], kept, rows.reshape(-1), copies.astype(np.int64), own)


def shared_with(group: int, groups: LabelGroups) -> NDArray[np.int64]:
    """How many labels every group shares with one of them, (u,)."""
    shared: NDArray[np.int64] = groups.rows.astype(np.int64) @ groups.rows[group].astype(np.int64)
    return shared


def order_follows_labels(ids: NDArray[Any]) -> bool:
    """Whether neighbours in the database carry the same labels far more often than by chance.

    Examples
    --------
    >>> order_follows_labels(np.repeat([0, 1], 50)), order_follows_labels(np.random.default_rng(0).integers(0, 2, 100))
    (True, False)
    """
    n = len(ids)
    if n < 3:
        return False
    share = np.bincount(ids) / n
    chance = float(share @ share)
    spread = np.sqrt(max(1.0, (n - 1) * chance * (1.0 - chance)))
    same = int(np.count_nonzero(ids[1:] == ids[:-1]))
    return bool(same - (n - 1) * chance > CHANCE_LIMIT * spread)
