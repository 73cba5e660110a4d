"""Evaluation from a histogram: how many items have each code and each label set is all that a score needs.

Only the order inside ties is lost, which ``ties="stable"`` alone would look at. A histogram is small whatever the
number of items, can be made piece by piece, and two of them add up: so a database of any size, in any number of places,
is scored exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._labels import LabelGroups, group_label_pair, group_labels
from shorthash._types import Counts, Labels, PackedCodes
from shorthash._validation import check_count, check_n_bits
from shorthash.codes.levels import BLOCK_COUNTS, MAX_TABLE_BITS, level_transform
from shorthash.codes.signs import as_packed
from shorthash.errors import InvalidInput
from shorthash.evaluation.conventions import Convention, convention_rules
from shorthash.evaluation.counting import gains_of, grades_of
from shorthash.evaluation.measure import CountedQueries, measure_all
from shorthash.evaluation.relevance import Queries, distinct_queries
from shorthash.evaluation.scores import Scores, scores_of

__all__ = ["CodeHistogram", "evaluate_histogram"]

PIECE = 1 << 22  # items counted at once
DENSE = 1 << 24  # cells of a table that is filled by counting; beyond, keys are sorted


@dataclass(frozen=True)
class CodeHistogram:
    """How many items have each code and each label set.

    Attributes
    ----------
    n_bits : length of the codes
    classes : (c,) the classes
    rows : (u, c) uint8, the label rows that occur, in canonical order
    groups : (k,) the label set of every cell, ascending
    codes : (k,) uint64, the code of every cell, ascending inside a label set
    counts : (k,) items, all positive

    Examples
    --------
    >>> first, second = CodeHistogram.of([0, 3, 3], ["a", "b", "b"], 2), CodeHistogram.of([3, 1], ["b", "c"], 2)
    >>> both = first.merge(second)
    >>> both.classes.tolist(), both.codes.tolist(), both.counts.tolist()
    (['a', 'b', 'c'], [0, 3, 1], [1, 3, 1])
    """

    n_bits: int
    classes: Labels
    rows: NDArray[np.uint8]
    groups: NDArray[np.int64]
    codes: NDArray[np.uint64]
    counts: Counts

    @property
    def n_items(self) -> int:
        """Items counted."""
        return int(self.counts.sum())

    @property
    def labels(self) -> Labels:
        """The label sets in the form that labels come in: classes, or an indicator matrix."""
        single = bool(np.all(self.rows.sum(axis=1) == 1))
        return self.classes[self.rows.argmax(axis=1)] if single else self.rows

    @classmethod
    def of(cls, codes: ArrayLike, labels: ArrayLike, n_bits: int) -> CodeHistogram:
        """Count codes, signs or packed integers, and their labels; long arrays are counted in pieces.

        Parameters
        ----------
        codes : (n, n_bits) signs, or (n,) integers
        labels : class labels, (n,), or an indicator matrix, (n, n_classes)
        n_bits : length of the codes
        """
        n_bits = check_n_bits(n_bits, "CodeHistogram")
        values, names = np.asarray(codes), np.asarray(labels)
        if not len(values) or len(values) != len(names):
            raise InvalidInput(
                f"A histogram needs items, and one label for each. Got {len(values)} codes and {len(names)} labels."
            )
        total: CodeHistogram | None = None
        for low in range(0, len(values), PIECE):
            part = slice(low, low + PIECE)
            piece = cls._of_piece(as_packed(values[part], n_bits), names[part], n_bits)
            total = piece if total is None else total.merge(piece)
        assert total is not None  # there are items
        return total

    @classmethod
    def _of_piece(cls, packed: PackedCodes, labels: Labels, n_bits: int) -> CodeHistogram:
        found = group_labels(labels, owner="CodeHistogram", allow_unlabelled=True)
        u = len(found.rows)
        if u << n_bits <= DENSE:
            cells = np.bincount((found.ids << n_bits) | packed, minlength=u << n_bits)
            keys = np.flatnonzero(cells)
            groups, codes, counts = keys >> n_bits, (keys & ((1 << n_bits) - 1)).astype(np.uint64), cells[keys]
        else:
            groups, codes, counts = _counted(found.ids, packed.astype(np.uint64), np.ones(len(packed), dtype=np.int64))
        return cls(n_bits, found.classes, found.rows, groups.astype(np.int64), codes, counts.astype(np.int64))

    def merge(self, other: CodeHistogram) -> CodeHistogram:
        """Both sets of items together; either may know classes that the other has never seen."""
        if self.n_bits != other.n_bits:
            raise InvalidInput(
                f"Histograms of {self.n_bits} and {other.n_bits} bits cannot be added up; encode all items alike."
            )
        mine, theirs = group_label_pair(self.labels, other.labels, owner="CodeHistogram.merge")
        groups = np.concatenate([mine.ids[self.groups], theirs.ids[other.groups]])
        codes = np.concatenate([self.codes, other.codes])
        counted = _counted(groups, codes, np.concatenate([self.counts, other.counts]))
        return CodeHistogram(self.n_bits, mine.classes, mine.rows, *counted)


def evaluate_histogram(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    database: CodeHistogram,
    *,
    convention: str | Convention = "shorthash",
    ties: str | None = None,
    radius: int = 2,
    k: int | Sequence[int] | None = None,
    without_relevant: str | None = None,
    gain: str = "shared",
) -> Scores:
    """Score codes against a database of which only the histogram is known; exactly what ``evaluate`` gives.

    Parameters
    ----------
    query_codes : (n, n_bits) signs, or (n,) integers
    query_labels : as the labels of the histogram
    database : the histogram
    convention, ties, radius, k, without_relevant, gain : as in :func:`shorthash.evaluation.evaluate`

    Examples
    --------
    >>> database = CodeHistogram.of([7, 3, 5, 0], ["cat", "dog", "cat", "dog"], n_bits=3)
    >>> evaluate_histogram([[1, 1, 1]], ["cat"], database).map
    0.9166666666666666
    """
    rules = convention_rules(convention, ties=ties, without_relevant=without_relevant, k=k)
    if rules.ties == "stable":
        raise InvalidInput(
            "ties='stable' breaks ties by database order, which a histogram does not keep; use ties='expected', or "
            "evaluate() on the codes themselves."
        )
    codes = as_packed(query_codes, database.n_bits)
    if not len(codes):
        raise InvalidInput("There must be at least one query; encode some rows first.")
    radius = min(check_count(radius, "radius", "evaluate_histogram", low=0), database.n_bits)
    mine, theirs = group_label_pair(query_labels, database.labels, owner="evaluate_histogram")
    if len(mine.ids) != len(codes):
        raise InvalidInput(f"There are {len(codes)} queries, but {len(mine.ids)} labels; give one label per query.")
    queries = distinct_queries(codes, mine)
    gains, graded = gains_of(gain, theirs)
    blocks = _count(queries, database, theirs, radius, graded=graded)
    columns, lost, sums = measure_all(blocks, rules, gains, queries.copies)
    return scores_of(
        {name: columns.pop(name)[queries.rows] for name in list(columns)},
        sums,
        rules,
        n_database=database.n_items,
        n_bits=database.n_bits,
        n_without_relevant=int(lost[queries.rows].sum()),
        radius=radius,
    )


def _count(
    queries: Queries, database: CodeHistogram, known: LabelGroups, radius: int, *, graded: bool
) -> Iterator[CountedQueries]:
    """Level counts in blocks of queries; queries stand in order of their label sets."""
    n_bits = database.n_bits
    n_grades = int(known.rows.sum(axis=1).max(initial=1)) if graded else 1
    of_cell = known.ids[database.groups]  # the label set of every cell, among those of both sides
    size = max(1, BLOCK_COUNTS // (n_grades * (n_bits + 1)))
    for low in range(0, len(queries.codes), size):
        rows = slice(low, min(low + size, len(queries.codes)))
        codes, ids = queries.codes[rows], queries.groups.ids[rows]
        total = _levels(codes, database.codes, database.counts, n_bits)
        counts = np.zeros((n_grades, len(codes), n_bits + 1), dtype=np.int64)
        for group in np.unique(ids):
            here = ids == group
            grades = grades_of(int(group), known, graded)[of_cell]
            for grade in np.unique(grades[grades > 0]).tolist():
                cells = grades == grade
                counts[grade - 1, here] = _levels(codes[here], database.codes[cells], database.counts[cells], n_bits)
        yield CountedQueries(rows, total, counts, total[:, : radius + 1].sum(axis=1), True, _no_order)


def _levels(queries: PackedCodes, codes: NDArray[np.uint64], counts: Counts, n_bits: int) -> Counts:
    """How many items lie at every distance from every query, (m, n_bits + 1)."""
    if n_bits <= MAX_TABLE_BITS:
        histogram = np.zeros(1 << n_bits, dtype=np.int64)
        np.add.at(histogram, codes.astype(np.int64), counts)
        return level_transform(histogram)[queries]
    out = np.zeros((len(queries), n_bits + 1), dtype=np.int64)
    for i, query in enumerate(queries.astype(np.uint64)):
        np.add.at(out[i], np.bitwise_count(codes ^ query), counts)
    return out


def _counted(
    groups: NDArray[np.integer[Any]], codes: NDArray[np.uint64], counts: Counts
) -> tuple[NDArray[np.int64], NDArray[np.uint64], Counts]:
    """Cells in order, equal ones added up."""
    order = np.lexsort((codes, groups))
    groups, codes = groups[order], codes[order]
    starts = np.flatnonzero(np.concatenate([[True], (groups[1:] != groups[:-1]) | (codes[1:] != codes[:-1])]))
    return groups[starts].astype(np.int64), codes[starts], np.add.reduceat(counts[order], starts)


def _no_order(_: int) -> NDArray[np.int64]:
    raise AssertionError("a histogram has no database order, and nobody may ask for it")
