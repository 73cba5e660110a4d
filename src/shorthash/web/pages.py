"""The HTML pages: search, code map, bits, model; and their static files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from shorthash._display import templates
from shorthash.errors import InvalidInput
from shorthash.images import BitExplanation, Collection
from shorthash.web.map_views import bucket_view, map_view
from shorthash.web.schema import content_type, read_form
from shorthash.web.service import Service, parse_id
from shorthash.web.views import (
    K_DEFAULT,
    K_MAX,
    MOST_LOOKED,
    PageQuery,
    card,
    cards,
    counted,
    default_radius,
    explanation_views,
    item_view,
    learned_view,
    model_view,
    read_code,
    rerank_note,
    results_view,
    sample_ids,
)

FOLDER = Path(__file__).parent
SAMPLES = 48
PER_SIDE = 8
NO_VECTOR = (
    "Re-ranking and probes take a picture, and a code has none: these are the nearest codes. Search by a picture."
)

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
        search = (collection, code, query.k, *_how(query))
        found = await service.run(lambda: service.find(*search, vector=vector, probes=_probes(query)))
        results = results_view(collection, found, query, _root(request))
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
        cells = [read_code(text, collection.n_bits) for text in looked.split(".")[:MOST_LOOKED] if text]
        if code:
            opened = read_code(code, collection.n_bits)
            values["bucket"] = bucket_view(collection, opened, root, PageQuery.read({}, collection.n_bits))
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
        query = PageQuery.read({}, collection.n_bits)
        values = {"item": item_view(collection, item, query, root, near), "problem": ""}
        return _render(request, template, values)
    except InvalidInput as error:
        return _render(request, template, {"item": None, "problem": str(error)}, 404)


@router.get("/bits", response_class=HTMLResponse)
def bits_page(request: Request) -> HTMLResponse:
    """What every bit separates."""
    collection = _collection(request)
    query = PageQuery.read({}, collection.n_bits)
    try:
        bits = explanation_views(collection, _explained(request), query, _root(request))
        return _render(request, "bits.html", {"bits": bits, "problem": ""})
    except InvalidInput as error:
        return _render(request, "bits.html", {"bits": [], "problem": str(error)})


@router.get("/model", response_class=HTMLResponse)
def model_page(request: Request) -> HTMLResponse:
    """Method, bits, features, evaluation, and statistics of the codes."""
    collection = _collection(request)
    return _render(request, "model.html", {"model": model_view(collection.facts(), collection.classes)})


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _collection(request: Request) -> Collection:
    """The collection as this request sees it: one state from beginning to end."""
    if not hasattr(request.state, "collection"):
        request.state.collection = _service(request).fresh()
    collection: Collection = request.state.collection
    return collection


def _query(request: Request) -> PageQuery:
    return PageQuery.read(request.query_params, _service(request).collection.n_bits)


def _root(request: Request) -> str:
    """Prefix of all addresses, if a proxy adds one."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _search(request: Request, query: PageQuery) -> dict[str, Any]:
    """What the address requests: neighbours of an item or of a code, or samples."""
    service, collection, root = _service(request), _collection(request), _root(request)
    if query.id:
        [item] = collection.items([parse_id(query.id, collection.ids)])
        found = service.find(collection, item.code, query.k, *_how(query), item.id, probes=_probes(query))
        shown: dict[str, Any] = {"results": results_view(collection, found, query, root, item)}
        if query.order:
            plain_query = replace(query, rerank=False, posterior=False)
            plain = service.find(collection, item.code, query.k, *_how(plain_query), item.id)
            shown["note"] = rerank_note(found, plain, item)
        details = f"{root}/item?{urlencode({'id': item.id})}"
        return {**shown, "item": card(item, query, root, details=details)}
    if query.code:
        found = service.find(collection, read_code(query.code, collection.n_bits), query.k, query.radius, rerank=False)
        results = results_view(collection, found, query, root)
        return {"results": results, "note": NO_VECTOR if query.order or query.probes else ""}
    if query.q:
        ids = collection.find_text(query.q)
        tiles = cards(collection, ids[:K_MAX], query, root)
        return {"matches": {"items": tiles, "summary": counted(len(ids), "item") + " found", "n": len(ids)}}
    samples = cards(collection, sample_ids(collection, SAMPLES, query.sample, query.new), query, root)
    more = f"{root}/{query.to(sample=query.sample + 1)}" if len(samples) == SAMPLES < len(collection) else ""
    return {"samples": samples, "more": more, "learned": learned_view(collection, query, root)}


def _probes(query: PageQuery) -> str | None:
    return "auto" if query.probes else None


def _how(query: PageQuery) -> tuple[int | None, bool | str]:
    """Radius and re-ranking; with probes there is no radius."""
    return None if query.probes else query.radius, query.order


def _render_search(request: Request, query: PageQuery, values: dict[str, Any], status: int = 200) -> HTMLResponse:
    """The whole page, or only its results if a script requests a ``part``."""
    defaults: dict[str, Any] = {
        "results": None,
        "item": None,
        "samples": [],
        "matches": None,
        "more": "",
        "learned": None,
        "problem": "",
        "note": "",
        "uploaded": False,
        "query": query,
        "k_max": K_MAX,
        "k_default": K_DEFAULT,
        "radius_default": default_radius(query.n_bits),
    }
    defaults["title"] = _title(query, values)
    template = "results.html" if "part" in request.query_params else "search.html"
    return _render(request, template, {**defaults, **values}, status)


def _title(query: PageQuery, values: dict[str, Any]) -> str:
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
