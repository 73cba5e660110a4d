"""Evaluation from a histogram: scores need only the number of items of each code and label set.

A histogram is small whatever the number of items, can be made in parts, and parts can be merged, so a database of any
size is scored exactly. Only the order of tied items is lost, so ``ties="stable"`` is not possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._labels import LabelGroups, group_label_pair, group_labels
from shorthash._types import Counts, Labels, PackedCodes
from shorthash._validation import check_count, check_n_bits
from shorthash.codes.levels import distinct_queries
from shorthash.codes.signs import as_packed
from shorthash.errors import InvalidInput
from shorthash.evaluation.conventions import Convention, convention_rules
from shorthash.evaluation.counting import CodedItems, count_by_codes, gains_of, label_groups
from shorthash.evaluation.scores import Scores, score_queries

__all__ = ["CodeHistogram", "evaluate_histogram"]

PIECE = 1 << 22  # items counted at once
DENSE = 1 << 24  # largest table that is filled by counting; for more cells, keys are sorted


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
        """The histogram of both sets of items; either may have classes that the other does not have."""
        if self.n_bits != other.n_bits:
            raise InvalidInput(
                f"Histograms of {self.n_bits} and {other.n_bits} bits cannot be merged; encode all items alike."
            )
        first, second = group_label_pair(self.labels, other.labels, owner="CodeHistogram.merge")
        groups = np.concatenate([first.ids[self.groups], second.ids[other.groups]])
        codes = np.concatenate([self.codes, other.codes])
        counted = _counted(groups, codes, np.concatenate([self.counts, other.counts]))
        return CodeHistogram(self.n_bits, first.classes, first.rows, *counted)


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
    """Score codes against a database given by its histogram; the scores are those of ``evaluate``.

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
    radius = min(check_count(radius, "radius", "evaluate_histogram", low=0), database.n_bits)
    label_sets = database.labels
    groups, known = label_groups(
        query_labels, len(codes), label_sets, len(label_sets), rules, "evaluate_histogram", what=("codes", "label sets")
    )
    queries = distinct_queries(codes, groups)
    cells = LabelGroups(known.classes, known.rows, known.ids[database.groups])
    items = CodedItems(database.codes, cells, database.n_bits, database.counts)
    gains = gains_of(gain, cells)
    blocks = count_by_codes(queries, items, radius=radius, n_grades=len(gains))
    sizes = {"n_database": len(items), "n_bits": database.n_bits, "radius": radius}
    return score_queries(blocks, rules, gains, queries.copies, queries.rows, **sizes)


def _counted(
    groups: NDArray[np.integer[Any]], codes: NDArray[np.uint64], counts: Counts
) -> tuple[NDArray[np.int64], NDArray[np.uint64], Counts]:
    """Cells in order, equal ones added up."""
    order = np.lexsort((codes, groups))
    groups, codes = groups[order], codes[order]
    starts = np.flatnonzero(np.concatenate([[True], (groups[1:] != groups[:-1]) | (codes[1:] != codes[:-1])]))
    return groups[starts].astype(np.int64), codes[starts], np.add.reduceat(counts[order], starts)
