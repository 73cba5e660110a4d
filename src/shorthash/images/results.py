"""What a collection returns: items, neighbours, buckets, explanations of bits, reports; and contact sheets of them.

A contact sheet is one HTML file with thumbnails inside, which needs no server and no other file.
"""

from __future__ import annotations

import base64
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Distances, Floats, PackedCodes
from shorthash.data.files import replacing
from shorthash.index.items import AnyIds

Label = int | str | None
"""A class; several classes of one item are joined by ';'. None: no label."""

MOST_PICTURES = 2000  # of a sheet; a thumbnail takes about 15 kB

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem; color: #1c2530; background: #fff; }
h1 { font-size: 1.4rem; }
h2 { font-size: 1rem; margin: 2rem 0 .6rem; border-top: 1px solid #d5dae0; padding-top: .8rem; }
.row { display: flex; flex-wrap: wrap; gap: 14px; }
figure { margin: 0; width: 200px; }
img, .none { width: 200px; height: 150px; object-fit: contain; background: #f0f2f4; }
.none { display: grid; place-items: center; color: #6b7683; }
figcaption { overflow-wrap: anywhere; font-size: 13px; } figcaption b { display: block; font-weight: 600; }
@media (prefers-color-scheme: dark) {
  body { color: #e4e8ec; background: #14181d; } h2 { border-color: #39424c; } img, .none { background: #20262d; }
}
"""


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
    labels : n classes; the items of a side are then of different classes, if possible

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
    skipped : kind -> names of the files that were not added, except duplicates: those that failed, and those in
        folders that are not read
    """

    added: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    duplicates: list[tuple[str, Any]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    skipped: dict[str, list[str]] = field(default_factory=dict)


# contact sheets -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Picture:
    """A picture of a sheet.

    Attributes
    ----------
    title : its name
    note : a line below it
    thumbnail : a JPEG, or None
    """

    title: str
    note: str = ""
    thumbnail: bytes | None = None


def write_sheet(
    path: str | os.PathLike[str], title: str, about: str, sections: Sequence[tuple[str, Sequence[Picture]]]
) -> Path:
    """Write a contact sheet; a failure leaves no partial file.

    Parameters
    ----------
    path : the .html file
    title, about : headline, and the line below it
    sections : (headline, pictures); those beyond 2 000 pictures are left out, with a note

    Examples
    --------
    >>> import tempfile
    >>> path = write_sheet(tempfile.mkdtemp() + "/sheet.html", "<Rome>", "", [("1", [Picture("a&b.jpg")])])
    >>> "&lt;Rome&gt;" in path.read_text(), "a&amp;b.jpg" in path.read_text()
    (True, True)
    """
    shown, n_pictures = [], 0
    for headline, pictures in sections:
        if n_pictures and n_pictures + len(pictures) > MOST_PICTURES:
            break
        n_pictures += len(pictures)
        shown.append(f"<h2>{escape(headline)}</h2>\n<div class=row>{''.join(map(_figure, pictures))}</div>")
    left_out = len(sections) - len(shown)
    note = f"<p>{left_out} more are not on this sheet.</p>" if left_out else ""
    page = (
        f"<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style>\n<h1>{escape(title)}</h1>\n<p>{escape(about)}</p>\n"
        + "\n".join(shown)
        + f"\n{note}</html>\n"
    )
    target = Path(path)
    with replacing(target) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="replace")
    return target


def _figure(picture: Picture) -> str:
    image = "<div class=none>no thumbnail</div>"
    if picture.thumbnail is not None:
        data = base64.b64encode(picture.thumbnail).decode("ascii")
        image = f'<img alt="" src="data:image/jpeg;base64,{data}">'
    return f"<figure>{image}<figcaption><b>{escape(picture.title)}</b>{escape(picture.note)}</figcaption></figure>"
