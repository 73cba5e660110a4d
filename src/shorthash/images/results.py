"""What a collection returns: items, neighbours, buckets, explanations of bits, reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Distances, Floats, PackedCodes
from shorthash.index.items import AnyIds

Label = int | str | None
"""A class; several classes of one item are joined by ';'. None: no label."""


def split_label(label: Label) -> tuple[int | str, ...]:
    """The classes of an item.

    Examples
    --------
    >>> split_label("cat;dog"), split_label(3), split_label(None)
    (('cat', 'dog'), (3,), ())
    """
    if label is None:
        return ()
    return tuple(label.split(";")) if isinstance(label, str) else (label,)


@dataclass(frozen=True)
class Item:
    """An item of a collection.

    Attributes
    ----------
    id : int or string
    code : the packed code
    label : class, or classes joined by ";", or None
    name : for images, their path relative to the folder they were read from; "" without a name
    content : hash of the bytes of the image; "" if the item is not an image
    thumbnail : path of its thumbnail, or None
    """

    id: int | str
    code: int
    label: Label
    name: str = ""
    content: str = ""
    thumbnail: Path | None = None

    @property
    def labels(self) -> tuple[int | str, ...]:
        """Its classes."""
        return split_label(self.label)


@dataclass(frozen=True)
class Found:
    """The neighbours of one query, nearest first (or best first, if re-ranked).

    Attributes
    ----------
    code : the query's code, packed
    n_bits : its length
    ids : (n,) int64 or str
    distances : (n,) uint8, Hamming distances
    codes : (n,) packed codes of the items
    labels : n classes
    names : n names
    contents : n content hashes, "" for items that are not images
    scores : (n,) float32 cosines between vectors or probabilities of being relevant, if re-ranked; expected shares of
        relevant items, if cells were looked up; else None
    looked_up : codes of the cells that were looked up, in order; none if Hamming rings were searched
    expected : expected share of relevant items among the neighbours, if cells were looked up or they were ordered by
        posterior; else None
    """

    code: int
    n_bits: int
    ids: AnyIds
    distances: Distances
    codes: PackedCodes
    labels: list[Label]
    names: list[str]
    contents: list[str]
    scores: NDArray[np.float32] | None = None
    looked_up: tuple[int, ...] = ()
    expected: float | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def groups(self) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Yield (distance, rows) by increasing distance; within a group, items of the same bucket are adjacent.

        Re-ranked items keep their order instead.
        """
        for distance in np.unique(self.distances):
            rows = np.flatnonzero(self.distances == distance)
            yield int(distance), rows if self.scores is not None else rows[np.argsort(self.codes[rows], kind="stable")]


@dataclass(frozen=True)
class Bucket:
    """Items that share a code.

    Attributes
    ----------
    code : packed
    load : number of items
    classes : class -> number of items, most frequent first; an item with several classes counts for each
    """

    code: int
    load: int
    classes: Mapping[int | str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class BitExplanation:
    """Items that show what one bit separates.

    Attributes
    ----------
    bit : its number; bit 0 is the lowest of the packed code
    share : share of the examined items whose bit is on
    on, off : ids of items with large scores on either side, of different classes
    classes_on, classes_off : class -> share of the examined items on that side, most frequent first
    border : ids of the items nearest to the decision border, nearest first
    border_scores : their signed scores: positive is on
    """

    bit: int
    share: float
    on: AnyIds
    off: AnyIds
    border: AnyIds
    border_scores: NDArray[np.float64]
    classes_on: Mapping[int | str, float] = field(default_factory=dict)
    classes_off: Mapping[int | str, float] = field(default_factory=dict)


def explain_bits(
    ids: AnyIds, scores: Floats, per_side: int, labels: Sequence[Label] | None = None
) -> list[BitExplanation]:
    """Explain every bit by items with large scores on either side and those nearest to its border.

    Parameters
    ----------
    ids : (n,) items
    scores : (n, n_bits) as ``hasher.project`` gives them; the sign is the bit
    per_side : number of items on either side and at the border
    labels : n classes; the items of a side are then of different classes, as far as there are

    Examples
    --------
    >>> [bit] = explain_bits(np.array([7, 8, 9]), np.array([[0.5], [-2.0], [3.0]]), 1)
    >>> bit.on.tolist(), bit.off.tolist(), bit.border.tolist(), round(bit.share, 2)
    ([9], [8], [7], 0.67)
    """
    found = []
    known = [None] * len(ids) if labels is None else list(labels)
    for bit, column in enumerate(scores.T):
        order = np.argsort(-column, kind="stable")
        rows_on, rows_off = order[column[order] >= 0].tolist(), order[::-1][column[order[::-1]] < 0].tolist()
        on, off = _diverse(rows_on, known, per_side), _diverse(rows_off, known, per_side)
        border = np.argsort(np.abs(column), kind="stable")[:per_side]
        share = float(np.mean(column >= 0)) if len(column) else 0.0
        shares = [_class_shares([known[row] for row in rows]) for rows in (rows_on, rows_off)]
        found.append(BitExplanation(bit, share, ids[on], ids[off], ids[border], column[border], *shares))
    return found


def _diverse(rows: list[int], labels: Sequence[Label], n: int) -> list[int]:
    """Up to n rows: the first of every class, then the second of every class, and so on.

    Examples
    --------
    >>> _diverse([4, 3, 2, 1, 0], ["b", "a", "a", "a", "a"], 3)
    [4, 0, 3]
    """
    by_class: dict[Label, list[int]] = {}
    for row in rows:
        by_class.setdefault(labels[row], []).append(row)
    rounds = zip_longest(*by_class.values())
    return [row for each in rounds for row in each if row is not None][:n]


def _class_shares(labels: Sequence[Label]) -> dict[int | str, float]:
    """Class -> share of the items, most frequent first."""
    counts = Counter(part for label in labels for part in split_label(label))
    return {name: n / len(labels) for name, n in counts.most_common()}


@dataclass(frozen=True)
class AddReport:
    """What was added, what was skipped, and what failed.

    Attributes
    ----------
    added : ids of the new items, in order
    names : their names
    duplicates : (name, id of the item with the same content)
    failed : (name, reason)
    skipped : kind -> names of the files that were not added, but for duplicates: those that failed, and those in
        folders that are not read
    """

    added: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    duplicates: list[tuple[str, Any]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    skipped: dict[str, list[str]] = field(default_factory=dict)
