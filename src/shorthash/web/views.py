"""What the pages show, as plain values for the templates: no request, no HTML, no path of this machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any
from urllib.parse import urlencode

import numpy as np

from shorthash.errors import InvalidInput
from shorthash.images import BitExplanation, Collection, Found, Item
from shorthash.images.results import Label, split_label
from shorthash.index.items import AnyIds
from shorthash.methods import RECIPES
from shorthash.web.service import as_bits

K_DEFAULT, K_MAX = 60, 200  # items that fit a page
SWITCHES = ("rerank", "posterior", "probes", "new")  # parameters of the address that are on or off
SAMPLED = 2000  # items among which samples of all classes are chosen
CLASSES_PER_SIDE = 5
MOST_LOOKED = 200  # cells that the address of a map names
LONGEST_CODE = 200  # characters of a wrong code that an error repeats

GOOD, FAIR, POOR = "good", "fair", "poor"
BALANCE = "How evenly each bit splits the items: 100 % if every bit is 1 for half of them, 0 % if no bit varies."
INDEPENDENCE = "How uncorrelated the bits are: 100 % if no bit can be predicted from another."
PURITY = (
    "Share of items whose class is the most frequent one in their bucket: 100 % if every bucket holds one class. An "
    "item that is alone in its bucket counts as pure, so the measure is unreliable for small collections."
)
NOT_LEARNED = "no: it was added after training"
FEATURES = {
    "gist": "GIST: the positions of edges by direction and size",
    "efficientnet-lite0": "EfficientNet-Lite0: a network trained on a million photographs",
    "onnx": "an ONNX network",
    "callable": "a user-defined function",
}


@dataclass(frozen=True)
class PageQuery:
    """The address of the search page.

    Attributes
    ----------
    n_bits : length of the codes
    id : an item as text; "" for none
    code : a code as zeros and ones; "" for none
    q : text to look for in classes and names; "" for none
    k, radius : how many items, and how far
    rerank : whether to order by cosine
    posterior : whether to order by the probability of being relevant instead
    probes : whether to look up the cells where relevant items are expected, instead of Hamming rings
    sample : which page of samples, if nothing is searched
    new : whether samples are only items that the encoder has not learned from
    """

    n_bits: int
    id: str = ""
    code: str = ""
    q: str = ""
    k: int = K_DEFAULT
    radius: int = 0
    rerank: bool = False
    posterior: bool = False
    probes: bool = False
    sample: int = 0
    new: bool = False

    @classmethod
    def read(cls, params: Mapping[str, str], n_bits: int) -> PageQuery:
        """Read an address; an invalid number becomes the default, or the nearest valid one.

        Examples
        --------
        >>> query = PageQuery.read({"id": "7", "k": "1000000", "radius": "many", "rerank": "1"}, 8)
        >>> query.id, query.k, query.radius, query.rerank, query.probes
        ('7', 200, 2, True, False)
        """
        switches: dict[str, Any] = {name: params.get(name, "") in ("1", "on", "true") for name in SWITCHES}
        return cls(
            n_bits,
            id=params.get("id", "").strip(),
            code=params.get("code", "").strip(),
            q=params.get("q", "").strip()[:LONGEST_CODE],
            k=_number(params.get("k", ""), K_DEFAULT, 1, K_MAX),
            radius=_number(params.get("radius", ""), default_radius(n_bits), 0, n_bits),
            sample=_number(params.get("sample", ""), 0, 0, 10**6),
            **switches,
        )

    @property
    def how(self) -> dict[str, Any]:
        """What ``Collection.search`` takes; with probes there is no radius."""
        return {
            "k": self.k,
            "radius": None if self.probes else self.radius,
            "rerank": "posterior" if self.posterior else self.rerank,
            "probes": "auto" if self.probes else None,
        }

    @property
    def url(self) -> str:
        """The query string of the address, without default values."""
        defaults = {"id": "", "code": "", "q": "", "k": K_DEFAULT, "radius": default_radius(self.n_bits), "sample": 0}
        params: dict[str, Any] = {name: v for name, v in vars(self).items() if name in defaults and v != defaults[name]}
        return "?" + urlencode(params | {name: 1 for name in SWITCHES if getattr(self, name)})

    def to(self, **changes: Any) -> str:
        """The query string after changes, at the first page of samples."""
        return replace(self, **{"sample": 0, **changes}).url


def _number(text: str, default: int, low: int, high: int) -> int:
    try:
        return min(max(int(text), low), high)
    except ValueError:
        return default


def default_radius(n_bits: int) -> int:
    """Two bits, or a quarter of a long code.

    Examples
    --------
    >>> default_radius(1), default_radius(8), default_radius(64)
    (1, 2, 16)
    """
    return max(min(2, n_bits), n_bits // 4)


def read_code(text: str, n_bits: int) -> int:
    """A code written as zeros and ones."""
    if len(text) != n_bits or set(text) - {"0", "1"}:
        shown = text if len(text) <= LONGEST_CODE else text[:LONGEST_CODE] + "..."
        raise InvalidInput(f"A code is written as {n_bits} zeros and ones here. Got {shown!r}.")
    return int(text, 2)


def bits_view(code: int, n_bits: int, other: int | None = None) -> dict[str, Any]:
    """A code bit by bit; bits that differ from another code are marked.

    Examples
    --------
    >>> view = bits_view(0b0110, 4, 0b0111)
    >>> view["text"], view["description"], [bit["differs"] for bit in view["cells"]]
    ('0110', 'code 0110, bit 0 differs', [False, False, False, True])
    """
    text = as_bits(code, n_bits)
    differing = 0 if other is None else code ^ other
    numbers = [bit for bit in range(n_bits) if differing >> bit & 1]
    description = f"code {text}"
    if numbers:
        verb = "bit" if len(numbers) == 1 else "bits"
        description += f", {verb} {', '.join(map(str, numbers))} differ{'s' * (len(numbers) == 1)}"
    cells = [{"digit": d, "differs": bool(differing >> (n_bits - 1 - i) & 1)} for i, d in enumerate(text)]
    return {"text": text, "description": description, "cells": cells, "differing": numbers}


def counted(n: int, thing: str, things: str | None = None) -> str:
    """A number with its noun, and spaces between thousands.

    Examples
    --------
    >>> counted(1, "item"), counted(12000, "item"), counted(2, "class", "classes")
    ('1 item', '12 000 items', '2 classes')
    """
    return f"{n:,}".replace(",", " ") + " " + (thing if n == 1 else things or thing + "s")


def card(item: Item, query: PageQuery, root: str = "", **more: Any) -> dict[str, Any]:
    """An item as a tile to click on."""
    query = replace(query, q="", new=False)
    label = ", ".join(map(str, item.labels))
    name = item.name or f"item {item.id}"
    return {
        "id": item.id,
        "name": name,
        "label": label,
        "url": f"{root}/{query.to(id=str(item.id), code='')}",
        "thumbnail": f"{root}/thumbnails/{item.content}.jpg" if item.content else None,
        "alt": f"{label}: {name}" if label else name,
        **more,
    }


def cards(
    collection: Collection, ids: AnyIds | Sequence[Any], query: PageQuery, root: str = ""
) -> list[dict[str, Any]]:
    """Tiles of items, in order; items that were removed are left out."""
    return [card(item, query, root) for item in collection.items(ids, skip_missing=True)]


def item_view(collection: Collection, item: Item, query: PageQuery, root: str = "", near: str = "") -> dict[str, Any]:
    """Everything about one item; its code is compared with the code ``near``."""
    other = read_code(near, collection.n_bits) if near else None
    load = len(collection.bucket(item.code))
    facts = [
        ("Name", item.name or "none"),
        ("Class", ", ".join(map(str, item.labels)) or "none"),
        ("Id", str(item.id)),
        ("Bucket", f"{counted(load - 1, 'other item')} with the same code" if load > 1 else "no other item"),
    ]
    if other is not None:
        facts.append(("Distance", f"{counted((item.code ^ other).bit_count(), 'bit')} from the query"))
    learned = collection.was_trained_on(item.id)
    if learned is not None:
        facts.append(("Learned from", "yes: it is in the training set" if learned else NOT_LEARNED))
    return {
        **card(item, query, root),
        "facts": facts,
        "bits": bits_view(item.code, collection.n_bits, other),
        "map_url": f"{root}/map?code={as_bits(item.code, collection.n_bits)}",
        "label_text": "" if item.label is None else str(item.label),
    }


def learned_view(collection: Collection, query: PageQuery, root: str = "") -> dict[str, str] | None:
    """How many items the codes were learned from, and the address of samples that are new; None if unknown."""
    n_old = _n_learned(collection)
    if n_old is None or not len(collection):
        return None
    n_new = len(collection) - n_old
    if not n_new:
        return {"text": "The codes were learned from all of them.", "url": "", "link": ""}
    url = f"{root}/{query.to(new=not query.new)}"
    text = f"The codes were learned from {n_old:,} of them; {n_new:,} were added later.".replace(",", " ")
    return {"text": text, "url": url, "link": "Show all" if query.new else "Only those added later"}


def _n_learned(collection: Collection) -> int | None:
    """How many of the items there are now the encoder has learned from: those with the smallest ids."""
    if collection.n_trained is None or collection.ids.dtype.kind != "i":
        return None
    return int(np.searchsorted(collection.ids, collection.n_trained))


def sample_ids(collection: Collection, n: int, page: int = 0, new: bool = False) -> list[Any]:
    """Items to start from: one of each class in turn, different ones on every page; only ``new`` ones, if known."""
    ids = collection.ids[(_n_learned(collection) or 0) if new else 0 :]
    if not len(ids):
        return []
    some = ids[np.unique(np.linspace(0, len(ids) - 1, min(len(ids), SAMPLED)).astype(np.intp))]
    by_class: dict[Label, list[Any]] = {}
    for item in collection.items(some, skip_missing=True):
        by_class.setdefault(item.label, []).append(item.id)
    ordered = [item for one_each in zip_longest(*by_class.values()) for item in one_each if item is not None]
    first = page * n % max(len(ordered), 1)
    return (ordered[first:] + ordered[:first])[:n]


def results_view(
    collection: Collection, found: Found, query: PageQuery, root: str = "", item: Item | None = None
) -> dict[str, Any]:
    """Neighbours, ring by ring and bucket by bucket; re-ranked ones in one row, best first.

    Parameters
    ----------
    collection : what was searched
    found : the neighbours
    query : the address
    root : prefix of all addresses
    item : the item that was searched for; it is not counted among its neighbours
    """
    totals = collection.ring_sizes(found.code)
    if item is not None:
        totals[0] -= 1
    classes = set() if item is None else set(item.labels)
    scores = [None] * len(found) if found.scores is None else [f"{score:.3f}" for score in found.scores.tolist()]
    columns = (found.ids.tolist(), found.codes.tolist(), found.labels, found.names, found.contents)
    tiles = []
    near = as_bits(found.code, found.n_bits)
    for neighbour, distance, score in zip(
        (Item(*values) for values in zip(*columns, strict=True)), found.distances.tolist(), scores, strict=True
    ):
        same = bool(classes & set(neighbour.labels)) if classes and neighbour.labels else None
        details = f"{root}/item?{urlencode({'id': neighbour.id, 'near': near})}"
        tiles.append(card(neighbour, query, root, distance=distance, score=score, same=same, details=details))
    rings = []
    if found.scores is None:
        for distance, rows in found.groups():
            buckets = _buckets(collection, found, rows.tolist(), tiles, root, item)
            total = int(totals[distance])
            more = f"{root}/{query.to(k=min(K_MAX, 2 * query.k))}" if len(rows) < total and query.k < K_MAX else ""
            rings.append({**_ring(distance, found.n_bits, total, len(rows), buckets), "more": more})
    return {
        "query": bits_view(found.code, found.n_bits),
        "bucket_url": f"{root}/map?code={as_bits(found.code, found.n_bits)}",
        "rings": rings,
        "row": tiles if found.scores is not None else [],
        "ranked": found.scores is not None,
        "ranked_by": _ranked_by(query),
        "looked": _looked(found, root),
        "bars": _bars(totals.tolist(), query),
        "empty": _why_empty(totals.tolist(), query) if not len(found) else "",
        "summary": _summary(found, [tile["same"] for tile in tiles], item),
    }


def rerank_note(found: Found, plain: Found, item: Item) -> str:
    """Whether re-ranking by features has helped or hurt this query; "" if its class is unknown."""
    share_of = [_same_share(each, item) for each in (found, plain)]
    if None in share_of or not len(found):
        return ""
    after, before = (round(100 * (share or 0)) for share in share_of)
    effect = "re-ranking hurts here" if after < before else "re-ranking helps here" if after > before else "no change"
    why = " The codes were learned from classes; the features measure visual similarity only." if after < before else ""
    return f"{after} % share its class; in the order of the codes {before} % do: {effect}.{why}"


def _same_share(found: Found, item: Item) -> float | None:
    """Share of neighbours that have a class of the item, of those that have a class."""
    known = [set(split_label(label)) for label in found.labels if label is not None]
    return sum(bool(labels & set(item.labels)) for labels in known) / len(known) if known and item.labels else None


def _ranked_by(query: PageQuery) -> str:
    """By what the items of one row are ordered, and among which."""
    order = "by cosine" if query.rerank else "by the expected share of relevant items in their cell"
    if query.posterior:
        order = "by the probability of being relevant"
    return f"{order}, of all items {'in the cells looked up' if query.probes else 'within the radius'}"


def _looked(found: Found, root: str) -> dict[str, str] | None:
    """The cells that were looked up: in words, and where they are on the map."""
    if not found.looked_up:
        return None
    codes = ".".join(as_bits(code, found.n_bits) for code in found.looked_up[:MOST_LOOKED])
    text = f"{counted(len(found.looked_up), 'cell')} looked up"
    if found.expected is not None:
        text += f"; {100 * found.expected:.0f} % of the items are expected to be relevant"
    return {"text": text, "url": f"{root}/map?looked={codes}"}


def _buckets(
    collection: Collection, found: Found, rows: list[int], tiles: list[dict[str, Any]], root: str, item: Item | None
) -> list[dict[str, Any]]:
    """The rows of a ring, bucket by bucket."""
    by_code: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        by_code.setdefault(int(found.codes[row]), []).append(tiles[row])
    made = []
    for code, inside in by_code.items():
        load = len(collection.bucket(code)) - (item is not None and code == found.code)
        made.append(
            {
                "bits": bits_view(code, found.n_bits, found.code),
                "load": load,
                "url": f"{root}/map?code={as_bits(code, found.n_bits)}",
                "items": inside,
                "description": counted(load, "item") if len(inside) == load else f"{len(inside)} of {load} items",
            }
        )
    return made


def _ring(distance: int, n_bits: int, total: int, shown: int, buckets: list[dict[str, Any]]) -> dict[str, Any]:
    title = "Same code" if distance == 0 else f"{counted(distance, 'bit')} away"
    description = counted(total, "item") if shown == total else f"{shown} of {counted(total, 'item')}"
    if distance:
        description += f" in {counted(math.comb(n_bits, distance), 'possible code')}"
    return {
        "distance": distance,
        "shade": min(distance, 5),
        "title": title,
        "description": description,
        "buckets": buckets,
    }


def _bars(totals: list[int], query: PageQuery) -> list[dict[str, Any]]:
    """The number of items in every ring, as bars of at most 100."""
    most = max([*totals, 1])
    return [
        {
            "distance": distance,
            "total": total,
            "height": round(max(100 * total / most, 4), 1) if total else 0,
            "inside": distance <= query.radius,
            "description": f"{counted(total, 'item')} at distance {distance}",
            "url": query.to(radius=distance),
        }
        for distance, total in enumerate(totals)
    ]


def _why_empty(totals: list[int], query: PageQuery) -> str:
    nearest = next((distance for distance, total in enumerate(totals) if total), None)
    if nearest is None:
        return "This collection has no other item yet; add some, and search again."
    return (
        f"No item is within {counted(query.radius, 'bit')} of this code; the nearest is {counted(nearest, 'bit')} "
        "away, so increase the radius."
    )


def _summary(found: Found, same: Sequence[bool | None], item: Item | None) -> str:
    """One sentence about the results; a screen reader reads it out."""
    if not len(found):
        return "Nothing found."
    text = f"{counted(len(found), 'neighbour')} at {counted(len(np.unique(found.distances)), 'distance')}"
    if found.scores is not None:
        text += ", best first" if found.looked_up else ", best cosine first"
    known = [s for s in same if s is not None]
    if known and item is not None:
        which = "share a class with it" if len(item.labels) > 1 else f"are {item.label}"
        text += f"; {sum(known)} of {len(known)} {which}"
    return text + "."


def explanation_views(
    collection: Collection, explained: Sequence[BitExplanation], query: PageQuery, root: str = ""
) -> list[dict[str, Any]]:
    """Every bit with the items that show what it separates; the leftmost digit of a code first."""
    ids = list(dict.fromkeys(i for bit in explained for ids in (bit.off, bit.border, bit.on) for i in ids.tolist()))
    tiles = {tile["id"]: tile for tile in cards(collection, ids, query, root)}

    def shown(ids: AnyIds) -> list[dict[str, Any]]:
        return [tiles[item] for item in ids.tolist() if item in tiles]

    return [
        {
            "bit": bit.bit,
            "place": bits_view(1 << bit.bit, query.n_bits, 0),
            "share": round(100 * bit.share, 1),
            "balance": _balance(bit.share),
            "sides": [
                {"title": "Clearly 0", "items": shown(bit.off), "classes": _shares(bit.classes_off)},
                {
                    "title": "Near the boundary",
                    "classes": [],
                    "items": [
                        {**tiles[item], "side": "1" if score >= 0 else "0"}
                        for item, score in zip(bit.border.tolist(), bit.border_scores.tolist(), strict=True)
                        if item in tiles
                    ],
                },
                {"title": "Clearly 1", "items": shown(bit.on), "classes": _shares(bit.classes_on)},
            ],
        }
        for bit in reversed(explained)
    ]


def _shares(classes: Mapping[int | str, float]) -> list[dict[str, Any]]:
    """The most frequent classes of a side, in percent."""
    return [
        {"name": str(name), "percent": round(100 * share)} for name, share in list(classes.items())[:CLASSES_PER_SIDE]
    ]


def _balance(share: float) -> str:
    off = abs(share - 0.5)
    if off <= 0.1:
        return "splits the items almost in half"
    return "unbalanced" if off <= 0.3 else "nearly constant, so it carries little information"


def model_view(facts: Mapping[str, Any], classes: Mapping[int | str, int]) -> dict[str, Any]:
    """Everything the model page shows.

    Parameters
    ----------
    facts : of ``Collection.facts``
    classes : class -> number of items
    """
    recipe = RECIPES.get(str(facts["method"]).lower())
    protocol = str((facts.get("evaluation") or {}).get("protocol", ""))
    most = max([*classes.values(), 1])
    return {
        "name": facts["name"],
        "method": recipe.full_name if recipe else str(facts["method"]),
        "method_key": str(facts["method"]),
        "reference": f"{recipe.reference}" if recipe else "",
        "features": _features(facts.get("features")),
        "numbers": [
            {"value": f"{facts['n_items']:,}".replace(",", " "), "what": _learned_from(facts)},
            {"value": str(facts["n_bits"]), "what": f"bits per item; {_memory(facts)} for all codes"},
            {"value": str(facts["n_classes"]) if facts["n_classes"] else "no", "what": "classes"},
            _measured(facts.get("evaluation") or {}),
        ],
        "protocol": f"{protocol[:1].upper()}{protocol[1:].rstrip('.')}." if protocol else "",
        "health": [] if facts["codes"] is None else _health(facts["codes"], facts["n_classes"]),
        "classes": [
            {"name": str(name), "count": count, "width": round(100 * count / most, 1)}
            for name, count in classes.items()
        ],
        "n_features": facts["n_features"],
        "version": str(facts.get("shorthash_version") or ""),
    }


def _learned_from(facts: Mapping[str, Any]) -> str:
    n = facts.get("n_trained")
    return "items" if n is None else f"items; the codes were learned from {counted(n, 'item')}"


def _features(recipe: Mapping[str, Any] | None) -> str:
    if recipe is None:
        return "none: the items are vectors"
    kind = str(recipe.get("kind", ""))
    text = FEATURES.get(kind, kind)
    size = recipe.get("size")
    return f"{text}; pictures are scaled to {size} x {size} pixels" if isinstance(size, int) else text


def _memory(facts: Mapping[str, Any]) -> str:
    octets = facts["n_items"] * facts["n_bits"] / 8
    for unit in ("bytes", "kB", "MB"):
        if octets < 1000:
            return f"{octets:.0f} {unit}"
        octets /= 1000
    return f"{octets:.1f} GB"


def _measured(evaluation: Mapping[str, Any]) -> dict[str, str]:
    """The mAP, with an explanation."""
    value, n_queries = evaluation.get("map"), evaluation.get("n_queries")
    if not isinstance(value, int | float) or value != value:
        return {"value": "?", "what": "mAP was not measured when this model was made"}
    by = f" of {counted(n_queries, 'held-out query', 'held-out queries')}" if isinstance(n_queries, int) else ""
    what = f"mean average precision{by}; 1 is best"
    chance = evaluation.get("chance")
    if isinstance(chance, int | float) and chance == chance:
        what += f", and queries of random classes give {chance:.3f}"
    return {"value": f"{value:.3f}", "what": what}


def _health(codes: Mapping[str, Any], n_classes: int) -> list[dict[str, Any]]:
    """Every measure of the codes with a verdict and a sentence."""
    n, n_bits, used = int(codes["n_samples"]), int(codes["n_bits"]), int(codes["occupied_codes"])
    largest = int(codes["largest_bucket"])
    limit = min(float(n_bits), math.log2(n) if n > 1 else 0.0)
    spread = codes["entropy"] / limit if limit else 1.0
    alike = counted(max(1, round(2 ** codes["entropy"])), "equally full bucket")
    spread_text = f"Items are spread as over {alike} ({codes['entropy']:.1f} of at most {limit:.1f} bits of entropy)."
    possible = counted(1 << n_bits, "code").removesuffix(" codes") if n_bits < 40 else f"2^{n_bits}"
    fullest = f"the fullest has {counted(largest, 'item')}, {100 * largest / n:.0f} % of all"
    rows = [
        ("Balance", 1 - codes["imbalance"], _verdict(codes["imbalance"], 0.2, 0.5), BALANCE),
        ("Independence", 1 - codes["mean_correlation"], _verdict(codes["mean_correlation"], 0.2, 0.5), INDEPENDENCE),
        ("Spread", spread, _verdict(1 - spread, 0.5, 0.8), spread_text),
        (
            "Codes in use",
            used / min(1 << n_bits, n),
            "",
            f"{counted(used, 'code')} of {possible} have items; {fullest}.",
        ),
    ]
    if "purity" in codes:
        rows.append(("Purity", codes["purity"], _verdict(1 - codes["purity"], 0.1, 0.4), PURITY))
    measures: list[dict[str, Any]] = [
        {"name": name, "share": round(100 * min(max(value, 0), 1), 1), "verdict": verdict, "description": text}
        for name, value, verdict, text in rows
    ]
    pairs = int(codes.get("class_collisions", -1))
    if n_classes > 1 and pairs >= 0:
        text = "No two classes share their fullest bucket."
        if pairs:
            text = f"{counted(pairs, 'pair')} of classes share their fullest bucket, so the code cannot separate them."
        verdict = FAIR if pairs else GOOD
        measures.append({"name": "Classes apart", "share": None, "verdict": verdict, "description": text})
    return measures


def _verdict(off: float, good: float, fair: float) -> str:
    return GOOD if off <= good else FAIR if off <= fair else POOR
