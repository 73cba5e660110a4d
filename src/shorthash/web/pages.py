"""The HTML pages: search, code map, bits, model; and their static files.

The code map has buckets in Gray order, so that adjacent cells differ in one bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from shorthash._display import templates
from shorthash.errors import InvalidInput
from shorthash.images import BitExplanation, Bucket, Collection
from shorthash.web import views
from shorthash.web.schema import content_type, read_form
from shorthash.web.service import Service, as_bits, parse_id

FOLDER = Path(__file__).parent
SAMPLES = 48
PER_SIDE = 8
# values of the search page; a page has some of them
PARTS = ("results", "item", "samples", "matches", "more", "learned", "problem", "note", "uploaded")
NO_VECTOR = "Re-ranking and probes need an item or a picture, not a code; these are the nearest codes."
CELL = 40.0  # side of a cell, in units of the drawing
LETTER = 8.2  # width of a digit in the codes of rows and columns
WHOLE_BITS = 12  # up to this length every code has a cell
LARGEST_MAP = 600  # of longer codes, this many buckets are shown, the fullest ones
COLOURS, SHAPES = 8, 3  # together 24 marks
SMALLEST = 0.26  # side of the smallest mark, in cells
NAMED = 0.62  # a mark of at least this side has room for letters
SHOWN = 60  # items of an open bucket
PER_CLASS_BARS = 12
LISTED = 12  # buckets of the list before "more"

router = APIRouter(include_in_schema=False)
files = StaticFiles(directory=FOLDER / "static")
environment = templates(FOLDER / "templates")


@router.get("/static/{name}")
async def static(name: str, request: Request) -> Response:
    """Style and scripts."""
    answer = await files.get_response(name, request.scope)
    answer.headers["Cache-Control"] = "no-cache"  # the browser revalidates, and gets 304 if unchanged
    return answer


@router.get("/", response_class=HTMLResponse)
def search_page(request: Request) -> HTMLResponse:
    """Samples to start from, or the neighbours of the item or code in the address."""
    query = _query(request)
    try:
        return _render_search(request, query, _search(request, query))
    except InvalidInput as error:
        return _render_search(request, query, {"problem": str(error)}, 404 if query.id else 422)


@router.post("/", response_class=HTMLResponse)
async def upload_page(request: Request) -> HTMLResponse:
    """The neighbours of an uploaded image."""
    service, query = _service(request), _query(request)
    try:
        if content_type(request, service.collection.takes_images) != "form":
            raise HTTPException(415, "This page takes a picture as a form; JSON is for POST /search.")
        [(_, octets)], _ = await read_form(request, [], 1)
        code, vector = await service.decode(lambda: service.image_code(octets))
        collection = request.state.collection = await service.current()
        found = await service.run(lambda: service.find(collection, code, query.how, vector=vector))
        results = views.results_view(collection, found, query, _root(request))
        return _render_search(request, query, {"results": results, "uploaded": True})
    except HTTPException as error:
        return _render_search(request, query, {"problem": str(error.detail)}, error.status_code)
    except InvalidInput as error:
        return _render_search(request, query, {"problem": str(error)}, 422)


@router.get("/map", response_class=HTMLResponse)
def map_page(request: Request, code: str = "", looked: str = "") -> HTMLResponse:
    """All buckets in Gray order; one of them may be open, and those that a search looked up are framed."""
    collection, root = _collection(request), _root(request)
    values: dict[str, Any] = {"bucket": None, "problem": ""}
    opened, status, cells = None, 200, []
    try:
        cells = [views.read_code(text, collection.n_bits) for text in looked.split(".")[: views.MOST_LOOKED] if text]
        if code:
            opened = views.read_code(code, collection.n_bits)
            values["bucket"] = bucket_view(collection, opened, root, views.PageQuery.read({}, collection.n_bits))
    except InvalidInput as error:
        values["problem"], status = str(error), 422
    if "part" in request.query_params:
        return _render(request, "bucket.html", values, status)
    values["map"] = map_view(collection, root, opened, request.query_params.get("class", ""), cells)
    return _render(request, "map.html", values, status)


@router.get("/item", response_class=HTMLResponse)
def item_page(request: Request, id: str = "", near: str = "") -> HTMLResponse:  # noqa: A002
    """Everything about one item, and what can be done with it."""
    collection, root = _collection(request), _root(request)
    template = "item.html" if "part" in request.query_params else "item_page.html"
    try:
        [item] = collection.items([parse_id(id, collection.ids)])
        query = views.PageQuery.read({}, collection.n_bits)
        values = {"item": views.item_view(collection, item, query, root, near), "problem": ""}
        return _render(request, template, values)
    except InvalidInput as error:
        return _render(request, template, {"item": None, "problem": str(error)}, 404)


@router.get("/bits", response_class=HTMLResponse)
def bits_page(request: Request) -> HTMLResponse:
    """What every bit separates."""
    collection = _collection(request)
    query = views.PageQuery.read({}, collection.n_bits)
    try:
        bits = views.explanation_views(collection, _explained(request), query, _root(request))
        return _render(request, "bits.html", {"bits": bits, "problem": ""})
    except InvalidInput as error:
        return _render(request, "bits.html", {"bits": [], "problem": str(error)})


@router.get("/model", response_class=HTMLResponse)
def model_page(request: Request) -> HTMLResponse:
    """Method, bits, features, evaluation, and statistics of the codes."""
    collection = _collection(request)
    return _render(request, "model.html", {"model": views.model_view(collection.facts(), collection.classes)})


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _collection(request: Request) -> Collection:
    """The collection as this request sees it: one state from beginning to end."""
    if not hasattr(request.state, "collection"):
        request.state.collection = _service(request).fresh()
    collection: Collection = request.state.collection
    return collection


def _query(request: Request) -> views.PageQuery:
    return views.PageQuery.read(request.query_params, _service(request).collection.n_bits)


def _root(request: Request) -> str:
    """Prefix of all addresses, if a proxy adds one."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _search(request: Request, query: views.PageQuery) -> dict[str, Any]:
    """What the address requests: neighbours of an item or of a code, or samples."""
    service, collection, root = _service(request), _collection(request), _root(request)
    if query.id:
        [item] = collection.items([parse_id(query.id, collection.ids)])
        found = service.find(collection, item.code, query.how, item.id)
        shown: dict[str, Any] = {"results": views.results_view(collection, found, query, root, item)}
        if query.how["rerank"]:
            plain = service.find(collection, item.code, {**query.how, "rerank": False, "probes": None}, item.id)
            shown["note"] = views.rerank_note(found, plain, item)
        details = f"{root}/item?{urlencode({'id': item.id})}"
        return {**shown, "item": views.card(item, query, root, details=details)}
    if query.code:
        how = {"k": query.k, "radius": query.radius, "rerank": False, "probes": None}
        found = service.find(collection, views.read_code(query.code, collection.n_bits), how)
        results = views.results_view(collection, found, query, root)
        return {"results": results, "note": NO_VECTOR if query.how["rerank"] or query.probes else ""}
    if query.q:
        ids = collection.find_text(query.q)
        tiles = views.cards(collection, ids[: views.K_MAX], query, root)
        return {"matches": {"items": tiles, "summary": views.counted(len(ids), "item") + " found", "n": len(ids)}}
    samples = views.cards(collection, views.sample_ids(collection, SAMPLES, query.sample, query.new), query, root)
    more = f"{root}/{query.to(sample=query.sample + 1)}" if len(samples) == SAMPLES < len(collection) else ""
    return {"samples": samples, "more": more, "learned": views.learned_view(collection, query, root)}


def _render_search(request: Request, query: views.PageQuery, values: dict[str, Any], status: int = 200) -> HTMLResponse:
    """The whole page, or only its results if a script requests a ``part``."""
    settings = {
        "query": query,
        "k_max": views.K_MAX,
        "k_default": views.K_DEFAULT,
        "radius_default": views.default_radius(query.n_bits),
        "title": _title(query, values),
    }
    template = "results.html" if "part" in request.query_params else "search.html"
    return _render(request, template, {**dict.fromkeys(PARTS), **settings, **values}, status)


def _title(query: views.PageQuery, values: dict[str, Any]) -> str:
    """What the page shows, for the title of the window."""
    if values.get("problem"):
        return "Not found"
    if values.get("item"):
        return f"Near {values['item']['alt']}"
    if values.get("uploaded"):
        return "Near your picture"
    if query.code:
        return f"Near code {query.code}"
    return f"“{query.q}”" if query.q else "Search"


def _render(request: Request, template: str, values: dict[str, Any], status: int = 200) -> HTMLResponse:
    collection = _collection(request)
    common = {
        "root": _root(request),
        "here": request.url.path,
        "name": collection.path.name,
        "n_items": len(collection),
        "n_bits": collection.n_bits,
        "takes_images": collection.takes_images,
        "has_posteriors": collection.has_posteriors,
        "writable": _service(request).writable,
    }
    html = environment.get_template(template).render({**common, **values})
    return HTMLResponse(html, status_code=status, headers={"Cache-Control": "no-store"})


def _explained(request: Request) -> list[BitExplanation]:
    """Explanations of the bits, computed again only when items have changed."""
    collection = _collection(request)
    ids = collection.ids
    kept = getattr(request.app.state, "explained", None)
    if kept is None or kept[0] is not ids:
        kept = (ids, collection.explain_bits(PER_SIDE))
        request.app.state.explained = kept
    explained: list[BitExplanation] = kept[1]
    return explained


# the code map, as plain values ----------------------------------------------------------------------------------------


def gray(number: int) -> int:
    """The code at a position in Gray order.

    Examples
    --------
    >>> [f"{gray(i):02b}" for i in range(4)]
    ['00', '01', '11', '10']
    """
    return number ^ (number >> 1)


def gray_rank(code: int) -> int:
    """The position of a code in Gray order: the inverse of ``gray``.

    Examples
    --------
    >>> [gray_rank(gray(i)) for i in range(5)]
    [0, 1, 2, 3, 4]
    """
    rank = 0
    while code:
        rank ^= code
        code >>= 1
    return rank


def place_of(code: int, n_bits: int) -> tuple[int, int]:
    """Row and column of a code: Gray ranks of the high and of the low half of its bits.

    Examples
    --------
    >>> place_of(0b1011, 4)
    (3, 2)
    """
    low = (n_bits + 1) // 2
    return gray_rank(code >> low), gray_rank(code & ((1 << low) - 1))


def marks_of(classes: Sequence[int | str]) -> dict[int | str, dict[str, Any]]:
    """A colour, a shape and up to three letters for every class; letters are unique as long as possible.

    Examples
    --------
    >>> [mark["letters"] for mark in marks_of(["cat", "car", "catfish", 7]).values()]
    ['cat', 'car', 'caf', '7']
    """
    used: set[str] = set()
    marks: dict[int | str, dict[str, Any]] = {}
    for number, name in enumerate(classes):
        letters = next((text for text in _short_forms(str(name)) if text not in used), str(number))
        used.add(letters)
        shape = number // COLOURS % SHAPES
        marks[name] = {"colour": number % COLOURS, "shape": shape, "letters": letters, "name": str(name)}
    return marks


def _short_forms(name: str) -> list[str]:
    letters = "".join(c for c in name if c.isalnum()) or "?"
    number = letters[len(letters.rstrip("0123456789")) :][-2:]  # class 7: c7
    numbered = [letters[0] + number] if number and not letters[0].isdigit() else []
    return [*numbered, letters[:3]] + [letters[:1] + "".join(pair) for pair in combinations(letters[1:12], 2)]


def map_view(
    collection: Collection, root: str = "", code: int | None = None, chosen: str = "", looked: Sequence[int] = ()
) -> dict[str, Any]:
    """Every bucket as a mark: its class by colour, shape and letters, its load by size.

    Parameters
    ----------
    collection : whose buckets
    root : prefix of all addresses
    code : the bucket that is open
    chosen : a class; buckets without it are pale
    looked : codes of the cells that a search has looked up, in order; they are framed
    """
    n_bits, buckets, classes = collection.n_bits, collection.buckets(), collection.classes
    marks = marks_of(list(classes))
    whole = n_bits <= WHOLE_BITS
    shown = buckets if whole else _fullest(buckets)
    n_columns = 1 << (n_bits + 1) // 2 if whole else max(1, math.ceil(math.sqrt(1.4 * len(shown))))
    n_rows = 1 << n_bits // 2 if whole else max(1, math.ceil(len(shown) / n_columns))
    most = max((bucket.load for bucket in shown), default=1)
    cells = []
    for rank, bucket in enumerate(shown):
        row, column = place_of(bucket.code, n_bits) if whole else _snake(rank, n_columns)
        pale = bool(chosen) and all(str(name) != chosen for name in bucket.classes)
        cell: dict[str, Any] = {
            "row": row,
            "column": column,
            "open": bucket.code == code,
            "pale": pale,
            "looked": 0,
            "load": bucket.load,
        }
        cell |= _mark_view(bucket, n_bits, most, marks, root, chosen)
        if bucket.code in looked:
            cell["looked"] = looked.index(bucket.code) + 1
            cell["description"] += f"; looked up as number {cell['looked']}"
        cells.append(cell)
    margin = 16 + LETTER * ((n_bits + 1) // 2) if whole else 4.0
    return {
        "cells": sorted(cells, key=lambda cell: (cell["row"], cell["column"])),
        "list": _as_list(cells),
        "listed": LISTED,
        "n_rows": n_rows,
        "n_columns": n_columns,
        "cell": CELL,
        "margin": margin,
        "width": margin + n_columns * CELL + 4,
        "height": margin + n_rows * CELL + 4,
        "rows": _axis(n_rows, n_bits // 2) if whole else [],
        "columns": _axis(n_columns, (n_bits + 1) // 2) if whole else [],
        "size": "wide" if n_columns > 32 else "small" if n_columns <= 8 else "",
        "description": _description(n_bits, len(buckets), len(shown), whole),
        "legend": [
            {
                **mark,
                "count": classes[name],
                "chosen": str(name) == chosen,
                "url": f"{root}/map" if str(name) == chosen else f"{root}/map?{urlencode({'class': str(name)})}",
            }
            for name, mark in marks.items()
        ],
        "chosen": chosen,
        "looked": f"Framed: {views.counted(len(looked), 'cell')} that the search has looked up." if looked else "",
    }


def _fullest(buckets: Sequence[Bucket]) -> list[Bucket]:
    """The fullest buckets, in Gray order."""
    kept = sorted(buckets, key=lambda bucket: (-bucket.load, bucket.code))[:LARGEST_MAP]
    return sorted(kept, key=lambda bucket: gray_rank(bucket.code))


def _as_list(cells: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Buckets without those of other classes: looked up ones in their order, then the fullest."""
    kept = [cell for cell in cells if not cell["pale"]]
    return sorted(kept, key=lambda cell: (not cell["looked"], cell["looked"], -cell["load"], cell["code"]))


def _snake(rank: int, n_columns: int) -> tuple[int, int]:
    """Rows alternately to the right and to the left, so that neighbours in Gray order are adjacent."""
    row, column = divmod(rank, n_columns)
    return row, column if row % 2 == 0 else n_columns - 1 - column


def _mark_view(
    bucket: Bucket, n_bits: int, most: int, marks: Mapping[int | str, Mapping[str, Any]], root: str, chosen: str = ""
) -> dict[str, Any]:
    """A bucket as a mark of its main class; if a class is ``chosen``, of that one, large enough for its letters."""
    text = as_bits(bucket.code, n_bits)
    side = SMALLEST + (0.9 - SMALLEST) * math.sqrt(bucket.load / most)
    main = next(iter(bucket.classes), None)
    if chosen:
        main = next((name for name in bucket.classes if str(name) == chosen), main)
        side = max(side, NAMED) if str(main) == chosen else side
    mark = {"colour": "none", "shape": 0, "letters": ""} if main is None else marks[main]
    description = f"{text}: {views.counted(bucket.load, 'item')}"
    if bucket.classes:
        description += f", {_listed(bucket.classes)}"
    return {
        "code": text,
        "side": round(side * CELL, 2),
        "colour": mark["colour"],
        "shape": mark["shape"],
        "letters": mark["letters"] if side >= NAMED and chosen in ("", str(main)) else "",
        "description": description,
        "url": f"{root}/map?code={text}",
    }


def _listed(classes: Mapping[int | str, int], most: int = 3) -> str:
    """The first classes of a bucket, and how many others there are."""
    named = [f"{name} {count}" for name, count in list(classes.items())[:most]]
    more = len(classes) - most
    return ", ".join(named) + (f" and {views.counted(more, 'more class', 'more classes')}" if more > 0 else "")


def _axis(n: int, n_bits: int) -> list[dict[str, Any]]:
    return [{"place": place, "text": as_bits(gray(place), n_bits) if n_bits else ""} for place in range(n)]


def _description(n_bits: int, used: int, shown: int, whole: bool) -> str:
    total = views.counted(1 << n_bits, "code") if n_bits < 40 else f"2^{n_bits} codes"
    if whole:
        return f"{used:,} of {total} are in use.".replace(",", " ")
    which = "the buckets in use" if shown == used else f"the {shown} fullest of {views.counted(used, 'bucket')}"
    return f"{total} are too many to draw: these are {which}, in Gray order."


def bucket_view(collection: Collection, code: int, root: str, query: views.PageQuery) -> dict[str, Any]:
    """One bucket: its items, its classes, and the buckets one bit away."""
    n_bits = collection.n_bits
    by_code = {bucket.code: bucket for bucket in collection.buckets()}
    marks = marks_of(list(collection.classes))
    bucket = by_code.get(code, Bucket(code, 0))
    most = max([*bucket.classes.values(), 1])
    ids = collection.bucket(code)
    others = [by_code.get(code ^ 1 << bit, Bucket(code ^ 1 << bit, 0)) for bit in reversed(range(n_bits))]
    return {
        "bits": views.bits_view(code, n_bits),
        "load": bucket.load,
        "description": views.counted(bucket.load, "item") if bucket.load else "empty: no item has this code",
        "classes": [
            {**marks[name], "count": count, "width": round(100 * count / most, 1)}
            for name, count in list(bucket.classes.items())[:PER_CLASS_BARS]
            if name in marks
        ],
        "more_classes": max(0, len(bucket.classes) - PER_CLASS_BARS),
        "neighbours": [
            {
                "bits": views.bits_view(other.code, n_bits, code),
                "load": other.load,
                "description": _listed(other.classes, 2) if other.classes else views.counted(other.load, "item"),
                "url": f"{root}/map?code={as_bits(other.code, n_bits)}",
            }
            for other in others
        ],
        "items": views.cards(collection, ids[:SHOWN], query, root),
        "more": max(0, len(ids) - SHOWN),
        "search_url": f"{root}/{query.to(code=as_bits(code, n_bits), id='')}",
    }
