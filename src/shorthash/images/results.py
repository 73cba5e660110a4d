"""What a collection hands over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Codes, Distances, PackedCodes
from shorthash.index.ids import AnyIds

__all__ = ["AddReport", "BitExplanation", "Bucket", "Encoded", "Found", "Item", "Label", "split_label"]

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
    """What a collection knows about an item.

    Attributes
    ----------
    id : int or string
    code : the packed code
    label : class, or classes joined by ";", or None
    name : what it is called: for images their path below the folder they came from; "" without a name
    content : hash of the bytes of the image; "" if the item is no image
    source : where the image was read from, on this machine, at that time; not meant for strangers; "" if unknown
    thumbnail : path of its thumbnail, or None
    """

    id: int | str
    code: int
    label: Label
    name: str = ""
    content: str = ""
    source: str = ""
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
    labels : (n,) classes
    scores : (n,) float32 cosines between vectors, if re-ranked; else None
    """

    code: int
    n_bits: int
    ids: AnyIds
    distances: Distances
    codes: PackedCodes
    labels: list[Label]
    scores: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def groups(self) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Yield (distance, rows) by increasing distance; inside a group the rows keep their order, bucket by bucket.

        Without re-ranking, rows of one bucket stand together; ``codes[rows]`` tells the buckets.
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
    load : how many items
    classes : class -> how many of them, most frequent first; an item with several classes counts for each
    """

    code: int
    load: int
    classes: Mapping[int | str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class BitExplanation:
    """Which items switch a bit.

    Attributes
    ----------
    bit : its number; bit 0 is the lowest of the packed code
    share : share of the items looked at whose bit is on
    on, off : ids of the items that are surest on either side, surest first
    border : ids of the items nearest to the decision border, nearest first
    border_scores : their signed scores: positive is on
    """

    bit: int
    share: float
    on: AnyIds
    off: AnyIds
    border: AnyIds
    border_scores: NDArray[np.float64]


@dataclass(frozen=True)
class AddReport:
    """What became of images that were to be added.

    Attributes
    ----------
    added : ids of the new items, in order
    names : their names
    duplicates : (name, id of the item with the same content)
    failed : (name, reason)
    """

    added: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    duplicates: list[tuple[str, Any]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Encoded:
    """Images as vectors and codes.

    Attributes
    ----------
    names : (n,) of the images that could be read
    vectors : (n, dimension) float32
    codes : (n, n_bits) signs
    failed : (name, reason) of the others
    """

    names: list[str]
    vectors: NDArray[np.float32]
    codes: Codes
    failed: list[tuple[str, str]]
