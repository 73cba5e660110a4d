"""From codes or distances, and labels, to level counts: how many items lie at each distance, block by block.

An item is relevant to a query if they share a label; class labels are the case of one label each. The number of shared
labels is the *grade* of an item, which only nDCG uses.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._labels import LabelGroups, group_label_pair, label_rows
from shorthash._types import Counts, Floats, PackedCodes
from shorthash._validation import check_choice
from shorthash.codes.levels import ENGINES, Queries, grades_of, level_blocks
from shorthash.errors import InvalidInput, TieOrderWarning
from shorthash.evaluation.conventions import Convention
from shorthash.evaluation.metrics import gains_by_grade, list_by_distance

CHANCE_LIMIT = 6.0  # standard deviations: one random order in a billion has as many equal neighbours


@dataclass(frozen=True)
class CountedQueries:
    """Some queries with their level counts.

    Attributes
    ----------
    rows : which queries
    total : (m, n_levels) items at every distance, nearest first
    graded : (n_grades, m, n_levels) those that share 1, 2, ... labels with the query
    ball : (m,) items within the radius; None if there is no radius
    by_radius : whether level t holds the items at distance t exactly, so that radii can be summed over queries
    listed : function of i: the grades of all items for the i-th of these queries, nearest first, ties in database order
    """

    rows: slice
    total: Counts
    graded: Counts
    ball: Counts | None
    by_radius: bool
    listed: Callable[[int], NDArray[np.integer[Any]]]


@dataclass(frozen=True)
class CodedItems:
    """The database of a ranking by Hamming distance.

    Attributes
    ----------
    codes : (n,) packed codes
    groups : their label groups
    n_bits : code length
    weights : (n,) number of items of each entry; None for one
    """

    codes: PackedCodes
    groups: LabelGroups
    n_bits: int
    weights: Counts | None = None

    def __len__(self) -> int:
        return len(self.codes) if self.weights is None else int(self.weights.sum())


def label_groups(
    query_labels: ArrayLike | None,
    n_queries: int,
    database_labels: ArrayLike | None,
    n_items: int,
    rules: Convention,
    owner: str,
    *,
    what: tuple[str, str] = ("codes", "codes"),
) -> tuple[LabelGroups, LabelGroups]:
    """Label groups of queries and database, checked; warns if ties in database order would leak the labels."""
    sides = (("query", n_queries, query_labels, what[0]), ("database", n_items, database_labels, what[1]))
    for side, n, labels, kind in sides:
        if n == 0:
            raise InvalidInput(f"The {side} must have at least one row. Got 0 {kind}; encode some rows first.")
        rows = label_rows(labels)
        if rows.ndim == 0 or len(rows) != n:
            found = "none" if rows.ndim == 0 else str(len(rows))
            raise InvalidInput(
                f"The {side} must have one label (or one indicator row) for each of its {n} {kind}. Got {found} "
                "instead."
            )
    alone = database_labels is query_labels
    other_labels = label_rows(query_labels)[:0] if alone else database_labels
    groups, item_groups = group_label_pair(label_rows(query_labels), label_rows(other_labels), owner=owner)
    item_groups = groups if alone else item_groups
    if rules.ties == "stable" and order_follows_labels(item_groups.ids):
        warnings.warn(
            "ties='stable' breaks ties by database order, and this database is ordered by its labels, so scores "
            "measure the order too; shuffle the database, or use ties='expected'.",
            TieOrderWarning,
            stacklevel=3,
        )
    return groups, item_groups


def gains_of(gain: str, groups: LabelGroups) -> Floats:
    """The gain of every grade; a single grade if the number of shared labels does not matter."""
    graded = gain != "binary" and not groups.single
    return gains_by_grade(gain, int(groups.rows.sum(axis=1).max(initial=1)) if graded else 1)


def count_by_codes(
    queries: Queries, items: CodedItems, *, radius: int, n_grades: int, alone: bool = False, engine: str = "auto"
) -> Iterator[CountedQueries]:
    """Level counts by Hamming distance, in blocks of queries.

    Parameters
    ----------
    queries, items : the two sides, with label groups made together
    radius : radius of the ball
    n_grades : number of grades to distinguish
    alone : whether the queries are the database, each without itself
    engine : as in :func:`shorthash.codes.levels.level_blocks`
    """
    check_choice(engine, "engine", "evaluate", ENGINES)
    words = items.codes.astype(np.uint64)
    own_grade = np.minimum(items.groups.rows.sum(axis=1, dtype=np.int64), n_grades)  # what a query shares with itself
    sides = queries.codes, queries.groups, items.codes, items.groups, items.n_bits
    for block in level_blocks(*sides, weights=items.weights, n_grades=n_grades, engine=engine):
        ids, low = queries.groups.ids[block.rows], block.rows.start
        if alone:
            block.total[:, 0] -= 1
            labelled = np.flatnonzero(own_grade[ids])
            block.graded[own_grade[ids][labelled] - 1, labelled, 0] -= 1

        def listed(i: int, ids: NDArray[np.intp] = ids, low: int = low) -> NDArray[np.int64]:
            grades = grades_of(int(ids[i]), items.groups, n_grades)[items.groups.ids].astype(np.int64)
            query = np.uint64(queries.codes[low + i])
            return np.asarray(list_by_distance(query, words, grades, items.n_bits, queries.own[low + i]))

        ball = block.total[:, : radius + 1].sum(axis=1)
        yield CountedQueries(block.rows, block.total, block.graded, ball, True, listed)


def count_by_distances(
    distances: Iterable[NDArray[Any]],
    query_ids: NDArray[np.intp],
    items: LabelGroups,
    n_grades: int,
    radius: float | None = None,
    *,
    cells: NDArray[np.intp] | None = None,
    weights: Counts | None = None,
) -> Iterator[CountedQueries]:
    """Level counts by real-valued distance, one query at a time: a level per different distance.

    Parameters
    ----------
    distances : for every query, the distances of all items, or of all cells
    query_ids : the label group of every query
    items : label groups of the items
    n_grades : number of grades to distinguish
    radius : radius of the ball; None for none
    cells : the cell of every item; None if every item has its own distance
    weights : number of items of each entry; None for one
    """
    for i, row in enumerate(distances):
        order = np.argsort(row, kind="stable")
        near = row[order]
        level = np.empty(len(row), dtype=np.int64)
        level[order] = np.concatenate([[0], np.cumsum(near[1:] != near[:-1])])
        n_levels = int(level.max()) + 1
        grades = grades_of(int(query_ids[i]), items, n_grades)[items.ids].astype(np.int64)
        keys = grades * n_levels + (level if cells is None else level[cells])
        table = np.bincount(keys, weights, minlength=(n_grades + 1) * n_levels).astype(np.int64)
        table = table.reshape(n_grades + 1, 1, n_levels)
        ball = None if radius is None else np.array([np.count_nonzero(row <= radius)])
        listed = partial(_first, grades[order] if cells is None else grades)
        yield CountedQueries(slice(i, i + 1), table.sum(axis=0), table[1:], ball, False, listed)


def _first(grades: NDArray[np.int64], _: int) -> NDArray[np.int64]:
    return grades


def order_follows_labels(ids: NDArray[Any]) -> bool:
    """Whether neighbours in the database have the same labels far more often than by chance.

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
