"""What the search page shows, as plain dicts for templates: no request, no HTML, no path of this machine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import numpy as np

from shorthash.errors import InvalidInput
from shorthash.images import BitExplanation, Collection, Found, Item
from shorthash.images.results import Label, split_label
from shorthash.index.items import AnyIds

__all__ = [
    "K_MAX",
    "Asked",
    "as_id",
    "bits_view",
    "card",
    "cards",
    "counted",
    "default_radius",
    "explanation_views",
    "read_asked",
    "results_view",
    "sample_ids",
    "settings_view",
    "text_of",
]

K_DEFAULT, K_MAX = 60, 200  # what fits a page
SAMPLED = 2000  # items looked at to find samples of all classes
LONGEST_ID = 200  # characters of an id that are repeated in a sentence


@dataclass(frozen=True)
class Asked:
    """What an address asks of the search page.

    Attributes
    ----------
    n_bits : length of the codes
    id : an item as text; "" for none
    code : a code as zeros and ones; "" for none
    k, radius : how many items, and how far
    rerank : whether to order by cosine
    sample : which page of samples, if nothing is searched
    """

    n_bits: int
    id: str = ""
    code: str = ""
    k: int = K_DEFAULT
    radius: int = 0
    rerank: bool = False
    sample: int = 0

    @property
    def url(self) -> str:
        """The query of the address, without what is usual anyway."""
        usual = {"id": "", "code": "", "k": K_DEFAULT, "radius": default_radius(self.n_bits), "sample": 0}
        told: dict[str, Any] = {name: v for name, v in vars(self).items() if name in usual and v != usual[name]}
        if self.rerank:
            told["rerank"] = 1
        return "?" + urlencode(told) if told else "?"

    def to(self, **changes: Any) -> str:
        """The address after changes, at the first page of samples."""
        return replace(self, sample=changes.pop("sample", 0), **changes).url


def default_radius(n_bits: int) -> int:
    """Two bits, or a quarter of a long code.

    Examples
    --------
    >>> default_radius(1), default_radius(8), default_radius(64)
    (1, 2, 16)
    """
    return max(min(2, n_bits), n_bits // 4)


def read_asked(params: Mapping[str, str], n_bits: int) -> Asked:
    """Read an address; a number that makes no sense is the usual one, or the nearest that does.

    Examples
    --------
    >>> read_asked({"id": "7", "k": "1000000", "radius": "many", "rerank": "1"}, 8)
    Asked(n_bits=8, id='7', code='', k=200, radius=2, rerank=True, sample=0)
    """
    return Asked(
        n_bits,
        id=params.get("id", "").strip(),
        code=params.get("code", "").strip(),
        k=_number(params.get("k"), K_DEFAULT, 1, K_MAX),
        radius=_number(params.get("radius"), default_radius(n_bits), 0, n_bits),
        rerank=params.get("rerank", "") in {"1", "on", "true"},
        sample=_number(params.get("sample"), 0, 0, 10**6),
    )


def _number(text: str | None, usual: int, low: int, high: int) -> int:
    digits = (text or "").removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        return usual
    return min(max(int(text or ""), low), high)


def as_id(text: str, ids: AnyIds) -> int | str:
    """An id of an address, as the collection has it: a number where its ids are numbers."""
    if ids.dtype.kind != "i":
        return text
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        shown = text if len(text) <= LONGEST_ID else text[:LONGEST_ID] + "..."
        raise InvalidInput(f"There is no item {shown!r}: ids are whole numbers here; try {_some_id(ids)}.")
    return int(text)


def _some_id(ids: AnyIds) -> str:
    return str(ids[len(ids) // 2]) if len(ids) else "one after adding items"


def read_code(text: str, n_bits: int) -> int:
    """A code written as zeros and ones."""
    if len(text) != n_bits or set(text) - {"0", "1"}:
        shown = text if len(text) <= LONGEST_ID else text[:LONGEST_ID] + "..."
        raise InvalidInput(f"A code is written as {n_bits} zeros and ones here. Got {shown!r}.")
    return int(text, 2)


def text_of(code: int, n_bits: int) -> str:
    """A code as zeros and ones, bit 0 last.

    Examples
    --------
    >>> text_of(5, 4)
    '0101'
    """
    return f"{code:0{n_bits}b}"


def bits_view(code: int, n_bits: int, other: int | None = None) -> dict[str, Any]:
    """A code bit by bit, those that differ from another code marked.

    Examples
    --------
    >>> view = bits_view(0b0110, 4, 0b0111)
    >>> view["text"], view["said"], [bit["differs"] for bit in view["cells"]]
    ('0110', 'code 0110, bit 0 differs', [False, False, False, True])
    """
    text = text_of(code, n_bits)
    differing = 0 if other is None else code ^ other
    numbers = [bit for bit in range(n_bits) if differing >> bit & 1]
    said = f"code {text}"
    if numbers:
        said += f", bit{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))} differ{'s' * (len(numbers) == 1)}"
    cells = [{"digit": d, "differs": bool(differing >> (n_bits - 1 - i) & 1)} for i, d in enumerate(text)]
    return {"text": text, "said": said, "cells": cells, "differing": numbers}


def counted(n: int, thing: str, things: str | None = None) -> str:
    """A number with its noun; thousands apart.

    Examples
    --------
    >>> counted(1, "item"), counted(12000, "item"), counted(2, "class", "classes")
    ('1 item', '12 000 items', '2 classes')
    """
    return f"{n:,}".replace(",", " ") + " " + (thing if n == 1 else things or thing + "s")


def card(item: Item, asked: Asked, root: str = "", **more: Any) -> dict[str, Any]:
    """An item as a tile to click on: never with the path it was read from."""
    label = "" if item.label is None else ", ".join(map(str, split_label(item.label)))
    name = item.name or f"item {item.id}"
    return {
        "id": item.id,
        "name": name,
        "label": label,
        "url": f"{root}/{asked.to(id=str(item.id), code='')}",
        "thumbnail": f"{root}/thumbnails/{item.content}.jpg" if item.thumbnail is not None else None,
        "alt": f"{label}: {name}" if label else name,
        **more,
    }


def cards(collection: Collection, ids: AnyIds | Sequence[Any], asked: Asked, root: str = "") -> list[dict[str, Any]]:
    """Tiles of items, in order."""
    return [card(item, asked, root) for item in collection.items(ids)]


def sample_ids(collection: Collection, n: int, page: int = 0) -> list[Any]:
    """Items to start from: one of every class after the other, other ones on every page."""
    ids = collection.ids
    spread = np.unique(np.linspace(0, len(ids) - 1, min(len(ids), SAMPLED)).astype(np.intp))
    some = ids[spread]
    by_class: dict[Label, list[Any]] = {}
    for item, label in zip(some.tolist(), collection.labels_of(some), strict=True):
        by_class.setdefault(label, []).append(item)
    queues = list(by_class.values())
    rounds = max((len(queue) for queue in queues), default=0)
    turns = [queue[turn] for turn in range(rounds) for queue in queues if turn < len(queue)]
    first = page * n % max(len(turns), 1)
    return (turns[first:] + turns[:first])[:n]


def settings_view(asked: Asked) -> dict[str, Any]:
    """The sliders."""
    return {
        "k": asked.k,
        "k_max": K_MAX,
        "usual": {"k": K_DEFAULT, "radius": default_radius(asked.n_bits)},
        "radius": asked.radius,
        "n_bits": asked.n_bits,
        "rerank": asked.rerank,
        "id": asked.id,
        "code": asked.code,
        "radius_said": f"{asked.radius} of {counted(asked.n_bits, 'bit')}",
    }


def results_view(
    collection: Collection, found: Found, asked: Asked, root: str = "", own: int | str | None = None
) -> dict[str, Any]:
    """Neighbours, ring by ring and bucket by bucket; re-ranked ones in one row, best first.

    Parameters
    ----------
    collection : what was searched
    found : the neighbours
    asked : the address
    root : prefix of all addresses
    own : the item that asked; it is not counted among its neighbours
    """
    totals = collection.ring_sizes(found.code)
    if own is not None:
        totals[0] -= 1
    own_label = None if own is None else collection.labels_of([own])[0]
    mine = set(split_label(own_label))
    tiles = []
    for row, item in enumerate(collection.items(found.ids)):
        distance = int(found.distances[row])
        score = None if found.scores is None else f"{float(found.scores[row]):.3f}"
        same = bool(mine & set(item.labels)) if mine and item.labels else None
        tiles.append(card(item, asked, root, distance=distance, score=score, same=same))
    rings = []
    if found.scores is None:
        for distance, rows in found.groups():
            buckets = _buckets(collection, found, rows.tolist(), tiles, root, own)
            rings.append(_ring(distance, found.n_bits, int(totals[distance]), len(rows), buckets))
    return {
        "query": bits_view(found.code, found.n_bits),
        "bucket_url": f"{root}/map?code={text_of(found.code, found.n_bits)}",
        "rings": rings,
        "row": tiles if found.scores is not None else [],
        "ranked": found.scores is not None,
        "bars": _bars(totals.tolist(), asked, found),
        "empty": _why_empty(totals.tolist(), asked) if not len(found) else "",
        "summary": _summary(found, [tile["same"] for tile in tiles], own_label),
    }


def _buckets(
    collection: Collection, found: Found, rows: list[int], tiles: list[dict[str, Any]], root: str, own: Any
) -> list[dict[str, Any]]:
    """The rows of a ring, bucket by bucket."""
    made: dict[int, dict[str, Any]] = {}
    for row in rows:
        code = int(found.codes[row])
        if code not in made:
            load = len(collection.bucket(code)) - (own is not None and code == found.code)
            text = text_of(code, found.n_bits)
            made[code] = {
                "bits": bits_view(code, found.n_bits, found.code),
                "load": load,
                "url": f"{root}/map?code={text}",
                "items": [],
            }
        made[code]["items"].append(tiles[row])
    for bucket in made.values():
        shown = len(bucket["items"])
        bucket["said"] = counted(shown, "item") if shown == bucket["load"] else f"{shown} of {bucket['load']} items"
    return list(made.values())


def _ring(distance: int, n_bits: int, total: int, shown: int, buckets: list[dict[str, Any]]) -> dict[str, Any]:
    title = "Same code" if distance == 0 else f"{counted(distance, 'bit')} away"
    n_codes = math.comb(n_bits, distance)
    where = "" if distance == 0 else f" in {counted(n_codes, 'possible code')}"
    which = counted(total, "item") + where if shown == total else f"{shown} of {counted(total, 'item')}{where}"
    return {"distance": distance, "shade": min(distance, 5), "title": title, "said": which, "buckets": buckets}


def _bars(totals: list[int], asked: Asked, found: Found) -> list[dict[str, Any]]:
    """How many items every ring holds: bars of at most 100."""
    most = max([*totals, 1])
    reached = int(found.distances.max()) if len(found) else -1
    bars = []
    for distance, total in enumerate(totals):
        bars.append(
            {
                "distance": distance,
                "total": total,
                "height": round(max(100 * total / most, 4), 1) if total else 0,
                "inside": distance <= asked.radius,
                "reached": distance <= reached,
                "said": f"{counted(total, 'item')} at distance {distance}",
                "url": asked.to(radius=distance),
            }
        )
    return bars


def _why_empty(totals: list[int], asked: Asked) -> str:
    nearest = next((distance for distance, total in enumerate(totals) if total), None)
    if nearest is None:
        return "This collection holds no other item yet; add some, and search again."
    return (
        f"No item lies within {counted(asked.radius, 'bit')} of this code; the nearest is {counted(nearest, 'bit')} "
        "away, so widen the radius."
    )


def _summary(found: Found, same: Iterable[bool | None], label: Label) -> str:
    """One sentence for everybody, and what a screen reader says."""
    known = [s for s in same if s is not None]
    if not len(found):
        return "Nothing found."
    rings = len(np.unique(found.distances))
    text = f"{counted(len(found), 'neighbour')} at {counted(rings, 'distance')}"
    if found.scores is not None:
        text += ", best cosine first"
    if known:
        text += (
            f"; {sum(known)} of {len(known)} {'share a class with it' if ';' in str(label) else 'are ' + str(label)}"
        )
    return text + "."


def explanation_views(
    collection: Collection, explained: Sequence[BitExplanation], asked: Asked, root: str = ""
) -> list[dict[str, Any]]:
    """Every bit with the items that tell what it looks at; the leftmost digit of a code first."""
    wanted = list(dict.fromkeys(i for bit in explained for ids in (bit.on, bit.off, bit.border) for i in ids.tolist()))
    tiles = dict(zip(wanted, cards(collection, wanted, asked, root), strict=True))
    views = []
    for bit in reversed(explained):
        border = [
            {**tiles[item], "side": "1" if score >= 0 else "0"}
            for item, score in zip(bit.border.tolist(), bit.border_scores.tolist(), strict=True)
        ]
        views.append(
            {
                "bit": bit.bit,
                "place": bits_view(1 << bit.bit, asked.n_bits, 0),
                "share": round(100 * bit.share, 1),
                "balance": _balance(bit.share),
                "sides": [
                    {"title": "Surely 0", "items": [tiles[i] for i in bit.off.tolist()]},
                    {"title": "At the border", "items": border},
                    {"title": "Surely 1", "items": [tiles[i] for i in bit.on.tolist()]},
                ],
            }
        )
    return views


def _balance(share: float) -> str:
    off = abs(share - 0.5)
    if off <= 0.1:
        return "splits the items nearly in half"
    return "leans to one side" if off <= 0.3 else "nearly always the same, so it tells little"
