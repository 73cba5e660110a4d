"""From codes or distances, and labels, to level counts: the checks, the bookkeeping and the two ways of counting."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._labels import LabelGroups, group_label_pair
from shorthash._types import Floats, PackedCodes
from shorthash._validation import check_choice, check_count
from shorthash.codes.levels import ENGINES, level_blocks
from shorthash.codes.signs import as_packed
from shorthash.errors import InvalidInput, TieOrderWarning
from shorthash.evaluation.conventions import Convention
from shorthash.evaluation.measure import CountedQueries
from shorthash.evaluation.ranking import gains_by_grade, list_by_distance
from shorthash.evaluation.relevance import Queries, distinct_queries, order_follows_labels, shared_with

__all__ = ["Problem", "count_by_codes", "count_by_distances", "count_rows", "gains_of", "grades_of", "prepare"]


@dataclass(frozen=True)
class Problem:
    """Checked input of an evaluation.

    Attributes
    ----------
    queries : the queries that can score differently
    items : (n,) packed codes of the database
    groups : label groups of the database
    n_bits, radius : code length; radius of the ball
    gains : (n_grades,) gain of sharing 1, 2, ... labels
    graded : whether the number of shared labels counts
    alone : whether the queries are the database, each without itself
    """

    queries: Queries
    items: PackedCodes
    groups: LabelGroups
    n_bits: int
    radius: int
    gains: Floats
    graded: bool
    alone: bool


def prepare(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    database_codes: ArrayLike | None,
    database_labels: ArrayLike | None,
    n_bits: int | None,
    rules: Convention,
    radius: int,
    gain: str,
) -> Problem:
    """Check codes, labels and radius, and group them."""
    if (database_codes is None) != (database_labels is None):
        raise InvalidInput(
            "evaluate needs database codes and database labels together, or neither; without a database every row "
            "queries all the others."
        )
    alone = database_codes is None
    n_bits = _code_length(query_codes, database_codes, n_bits)
    codes = as_packed(query_codes, n_bits)
    _check_rows("query", len(codes), query_labels, "codes")
    if database_codes is None or database_labels is None:
        items = codes
        groups, _ = group_label_pair(query_labels, np.asarray(query_labels)[:0], owner="evaluate")
        others = groups
    else:
        items = as_packed(database_codes, n_bits)
        _check_rows("database", len(items), database_labels, "codes")
        groups, others = group_label_pair(query_labels, database_labels, owner="evaluate")
    if rules.ties == "stable":
        _warn_of_order(others)
    queries = distinct_queries(codes, groups, each_row=alone and rules.ties == "stable")
    radius = min(check_count(radius, "radius", "evaluate", low=0), n_bits)
    gains, graded = gains_of(gain, others)
    return Problem(queries, items, others, n_bits, radius, gains, graded, alone)


def count_by_codes(problem: Problem, engine: str) -> Iterator[CountedQueries]:
    """Level counts by Hamming distance, in blocks of queries."""
    check_choice(engine, "engine", "evaluate", ENGINES)
    queries, groups = problem.queries, problem.groups
    words = problem.items.astype(np.uint64)
    labels_each = groups.rows.sum(axis=1, dtype=np.int64)
    for block in level_blocks(
        queries.codes, queries.groups, problem.items, groups, problem.n_bits, engine=engine, graded=problem.graded
    ):
        ids, low = queries.groups.ids[block.rows], block.rows.start
        total, graded = block.total, block.graded
        if problem.alone:
            total[:, 0] -= 1
            grade = labels_each[ids] if problem.graded else np.minimum(labels_each[ids], 1)
            labelled = np.flatnonzero(grade)
            graded[grade[labelled] - 1, labelled, 0] -= 1

        def listed(i: int, ids: NDArray[np.intp] = ids, low: int = low) -> NDArray[np.int64]:
            grades = grades_of(int(ids[i]), groups, problem.graded)[groups.ids]
            query = np.uint64(queries.codes[low + i])
            order: NDArray[np.int64] = list_by_distance(query, words, grades, problem.n_bits, queries.own[low + i])
            return order

        ball = total[:, : problem.radius + 1].sum(axis=1)
        yield CountedQueries(block.rows, total, graded, ball, True, listed)


def count_by_distances(
    distances: ArrayLike,
    query_labels: ArrayLike,
    database_labels: ArrayLike,
    rules: Convention,
    radius: float | None,
    gain: str,
) -> tuple[Iterator[CountedQueries], Floats, tuple[int, int]]:
    """Level counts by real-valued distance, one query at a time; the gains; queries and items."""
    matrix = np.asarray(distances)
    if matrix.ndim != 2 or matrix.dtype.kind not in "iuf" or np.isnan(matrix).any():
        raise InvalidInput(
            "Distances must be real numbers without NaN, of shape (n_queries, n_database). Got "
            f"{matrix.dtype} of shape {matrix.shape} instead; negate similarities so that smaller is nearer."
        )
    return count_rows(matrix.__getitem__, matrix.shape, query_labels, database_labels, rules, radius, gain)


def count_rows(
    distances: Callable[[int], NDArray[Any]],
    shape: tuple[int, ...],
    query_labels: ArrayLike,
    database_labels: ArrayLike,
    rules: Convention,
    radius: float | None,
    gain: str,
    *,
    owner: str = "evaluate_distances",
) -> tuple[Iterator[CountedQueries], Floats, tuple[int, int]]:
    """The same where distances are made row by row."""
    _check_rows("query", shape[0], query_labels, "distance rows")
    _check_rows("database", shape[1], database_labels, "distance columns")
    groups, others = group_label_pair(query_labels, database_labels, owner=owner)
    if rules.ties == "stable":
        _warn_of_order(others)
    gains, graded = gains_of(gain, others)
    blocks = (
        _count_row(i, distances(i), grades_of(int(groups.ids[i]), others, graded)[others.ids], len(gains), radius)
        for i in range(shape[0])
    )
    return blocks, gains, (shape[0], shape[1])


def _count_row(
    row: int, distances: NDArray[Any], grades: NDArray[np.int64], n_grades: int, radius: float | None
) -> CountedQueries:
    """Level counts of one query: a level per different distance."""
    order = np.argsort(distances, kind="stable")
    near, listed = distances[order], grades[order]
    level = np.concatenate([[0], np.cumsum(near[1:] != near[:-1])])
    size = int(level[-1]) + 1
    table = np.bincount(listed * size + level, minlength=(n_grades + 1) * size).reshape(n_grades + 1, 1, size)
    ball = None if radius is None else np.array([np.count_nonzero(distances <= radius)])
    return CountedQueries(slice(row, row + 1), table.sum(axis=0), table[1:], ball, False, lambda _: listed)


def grades_of(group: int, groups: LabelGroups, graded: bool) -> NDArray[np.int64]:
    """The grade of every group for a query of one of them, (u,)."""
    shared = shared_with(group, groups)
    return shared if graded else np.minimum(shared, 1)


def gains_of(gain: str, groups: LabelGroups) -> tuple[Floats, bool]:
    """The gains, and whether the number of shared labels matters: not if all have one label."""
    graded = gain != "binary" and not groups.single
    n_grades = int(groups.rows.sum(axis=1).max(initial=1)) if graded else 1
    return gains_by_grade(gain, n_grades), graded


def _code_length(codes: ArrayLike, others: ArrayLike | None, n_bits: int | None) -> int:
    """The common code length of signs, or the one given for packed codes."""
    lengths = [np.shape(a)[1] for a in (codes, others) if a is not None and np.ndim(a) == 2]
    if len(lengths) == 2 and lengths[0] != lengths[1]:
        raise InvalidInput(
            f"Query codes and database codes must have the same length, but one has {lengths[0]} bits and the other "
            f"{lengths[1]}; encode both with the same hasher."
        )
    if n_bits is not None:
        return n_bits
    if not lengths:
        raise InvalidInput("evaluate needs n_bits when codes are packed integers; pass n_bits=...")
    return int(lengths[0])


def _check_rows(side: str, n: int, labels: ArrayLike, what: str) -> None:
    """Raise unless there are some rows, and one label for each."""
    if n == 0:
        raise InvalidInput(f"The {side} must have at least one row. Got 0 {what}; encode some rows first.")
    if np.ndim(labels) == 0 or len(np.asarray(labels)) != n:
        found = "none" if np.ndim(labels) == 0 else str(len(np.asarray(labels)))
        raise InvalidInput(
            f"The {side} must have one label (or one indicator row) for each of its {n} {what}. Got {found} instead."
        )


def _warn_of_order(groups: LabelGroups) -> None:
    """Warn if breaking ties by database order would leak the labels."""
    if order_follows_labels(groups.ids):
        warnings.warn(
            "ties='stable' breaks ties by database order, and this database is ordered by its labels, so scores "
            "measure the order too; shuffle the database, or use ties='expected'.",
            TieOrderWarning,
            stacklevel=4,
        )
