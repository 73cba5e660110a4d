"""The HTML routes: search page, code map, bits, model, and the files they need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from shorthash.codes import as_packed
from shorthash.errors import InvalidInput
from shorthash.images import BitExplanation, Collection, Found
from shorthash.web.map_views import bucket_view, map_view
from shorthash.web.model_views import model_view
from shorthash.web.settings import Settings
from shorthash.web.uploads import content_type, images_of, read_form
from shorthash.web.views import (
    Asked,
    as_id,
    cards,
    counted,
    explanation_views,
    read_asked,
    read_code,
    results_view,
    sample_ids,
    settings_view,
)

__all__ = ["router"]

HERE = Path(__file__).parent
SAMPLES = 48
PER_SIDE = 8
NO_VECTOR = (
    "Re-ranking compares pictures, and a code is none: these are the nearest codes. Search by a picture to re-rank."
)

router = APIRouter(include_in_schema=False)
files = StaticFiles(directory=HERE / "static")
environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@router.get("/static/{name}")
async def static(name: str, request: Request) -> Response:
    """Style and scripts."""
    answer = await files.get_response(name, request.scope)
    answer.headers["Cache-Control"] = "no-cache"  # asked for again, and answered 304 if unchanged
    return answer


@router.get("/", response_class=HTMLResponse)
def search_page(request: Request) -> HTMLResponse:
    """Samples to start from, or the neighbours of the item or code in the address."""
    collection = _collection(request)
    asked = read_asked(request.query_params, collection.n_bits)
    try:
        shown, status = _searched(collection, request.app.state.settings, asked, _root(request)), 200
    except InvalidInput as error:
        shown, status = {"problem": str(error)}, 404 if asked.id else 422
    return _search_answer(request, asked, shown, status)


@router.post("/", response_class=HTMLResponse)
async def upload_page(request: Request) -> HTMLResponse:
    """The neighbours of an uploaded image."""
    collection, settings = _collection(request), request.app.state.settings
    asked = read_asked(request.query_params, collection.n_bits)
    try:
        octets = await _uploaded(request, collection, settings)
        found = await request.app.state.service.run(lambda: _by_image(collection, settings, asked, octets))
        shown, status = _neighbours(collection, found, asked, _root(request)), 200
        shown["uploaded"] = True
    except HTTPException as refused:
        shown, status = {"problem": str(refused.detail)}, refused.status_code
    except InvalidInput as error:
        shown, status = {"problem": str(error)}, 422
    return _search_answer(request, asked, shown, status)


@router.get("/map", response_class=HTMLResponse)
def map_page(request: Request, code: str = "") -> HTMLResponse:
    """All buckets in Gray order; one of them may be open."""
    collection, root = _collection(request), _root(request)
    asked = read_asked({}, collection.n_bits)
    shown: dict[str, Any] = {"bucket": None, "problem": ""}
    opened, status = None, 200
    try:
        opened = read_code(code, collection.n_bits) if code else None
        if opened is not None:
            shown["bucket"] = bucket_view(collection, opened, root, asked)
    except InvalidInput as error:
        shown["problem"], status = str(error), 422
    if "part" in request.query_params:
        return _render(request, "bucket.html", shown, status)
    shown["map"] = map_view(collection, root, opened, request.query_params.get("class", ""))
    return _render(request, "map.html", shown, status)


@router.get("/bits", response_class=HTMLResponse)
def bits_page(request: Request) -> HTMLResponse:
    """What every bit looks at."""
    collection = _collection(request)
    asked = read_asked({}, collection.n_bits)
    try:
        bits = explanation_views(collection, _explained(request, collection), asked, _root(request))
        shown: dict[str, Any] = {"bits": bits, "problem": ""}
    except InvalidInput as error:
        shown = {"bits": [], "problem": str(error)}
    return _render(request, "bits.html", shown)


@router.get("/model", response_class=HTMLResponse)
def model_page(request: Request) -> HTMLResponse:
    """Method, bits, features, what was measured, and how healthy the codes are."""
    collection = _collection(request)
    return _render(request, "model.html", {"model": model_view(collection.facts(), collection.classes)})


def _collection(request: Request) -> Collection:
    collection: Collection = request.app.state.collection
    return collection


def _root(request: Request) -> str:
    """Prefix of all addresses, where a proxy adds one."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _searched(collection: Collection, settings: Settings, asked: Asked, root: str) -> dict[str, Any]:
    """What the address asks for: neighbours of an item, of a code, or samples."""
    how: dict[str, Any] = {"k": asked.k, "radius": asked.radius}
    if asked.id:
        own = as_id(asked.id, collection.ids)
        if asked.rerank:
            _check_rerank(collection, settings, asked, int(collection.codes_of([own])[0]))
        found = collection.search(id=own, rerank=asked.rerank, **how)
        return _neighbours(collection, found, asked, root, own)
    if asked.code:
        found = collection.search(code=read_code(asked.code, collection.n_bits), **how)
        shown = _neighbours(collection, found, asked, root)
        shown["note"] = NO_VECTOR if asked.rerank else ""
        return shown
    samples = cards(collection, sample_ids(collection, SAMPLES, asked.sample), asked, root)
    more = asked.to(sample=asked.sample + 1) if len(collection) > SAMPLES else ""
    return {"samples": samples, "more": f"{root}/{more}" if more else ""}


async def _uploaded(request: Request, collection: Collection, settings: Settings) -> bytes:
    """The one image of a form."""
    if content_type(request, collection.takes_images) != "form":
        raise HTTPException(415, "A picture comes as a form here; JSON is for POST /search.")
    form = await read_form(request, settings)
    try:
        [(_, octets)] = await images_of(form, 1)
    finally:
        await form.close()
    return octets


def _by_image(collection: Collection, settings: Settings, asked: Asked, octets: bytes) -> Found:
    """Neighbours of an image."""
    encoded = collection.encode_images([("the picture", octets)], max_pixels=settings.max_pixels)
    if encoded.failed:
        raise InvalidInput(f"This picture cannot be used: {encoded.failed[0][1]}")
    code = int(as_packed(encoded.codes, collection.n_bits)[0])
    if not asked.rerank:
        return collection.search(code=code, k=asked.k, radius=asked.radius)
    _check_rerank(collection, settings, asked, code)
    return collection.search(vector=encoded.vectors[0], k=asked.k, radius=asked.radius, rerank=True)


def _check_rerank(collection: Collection, settings: Settings, asked: Asked, code: int) -> None:
    """Raise if too many vectors would have to be compared."""
    n = int(np.sum(collection.ring_sizes(code)[: asked.radius + 1]))
    if n > settings.max_rerank:
        raise InvalidInput(
            f"Re-ranking within {counted(asked.radius, 'bit')} would compare {counted(n, 'item')}, and at most "
            f"{settings.max_rerank} are allowed; take a smaller radius."
        )


def _neighbours(
    collection: Collection, found: Found, asked: Asked, root: str, own: int | str | None = None
) -> dict[str, Any]:
    item = None if own is None else cards(collection, [own], asked, root)[0]
    return {"results": results_view(collection, found, asked, root, own), "item": item}


def _search_answer(request: Request, asked: Asked, shown: dict[str, Any], status: int) -> HTMLResponse:
    """The whole page, or only its results where a script asks for ``part``."""
    usual: dict[str, Any] = {
        "results": None,
        "item": None,
        "samples": [],
        "more": "",
        "problem": "",
        "note": "",
        "uploaded": False,
    }
    template = "results.html" if "part" in request.query_params else "search.html"
    return _render(request, template, {**usual, **shown, "asked": asked, "settings": settings_view(asked)}, status)


def _render(request: Request, template: str, shown: dict[str, Any], status: int = 200) -> HTMLResponse:
    collection = _collection(request)
    common = {
        "root": _root(request),
        "here": request.url.path,
        "name": collection.path.name,
        "n_items": len(collection),
        "n_bits": collection.n_bits,
        "takes_images": collection.takes_images,
    }
    html = environment.get_template(template).render({**common, **shown})
    return HTMLResponse(html, status_code=status, headers={"Cache-Control": "no-store"})


def _explained(request: Request, collection: Collection) -> list[BitExplanation]:
    """Explanations of the bits, made anew only when items have changed."""
    ids = collection.ids
    kept = getattr(request.app.state, "explained", None)
    if kept is None or kept[0] is not ids:
        kept = (ids, collection.explain_bits(PER_SIDE))
        request.app.state.explained = kept
    explained: list[BitExplanation] = kept[1]
    return explained
