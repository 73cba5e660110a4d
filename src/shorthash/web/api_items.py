"""/items: add, show, remove."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Request, Response

from shorthash.images import AddReport, Collection
from shorthash.web.answers import Json, item_value
from shorthash.web.door import DEADLINE
from shorthash.web.queries import parsed, read_label, read_new_items
from shorthash.web.schema import Added, ItemInfo, add_request, problems
from shorthash.web.security import Writer
from shorthash.web.service import Service, unknown
from shorthash.web.settings import Settings
from shorthash.web.uploads import content_type, images_of, read_form, texts_of

__all__ = ["items_router"]

ItemId = Annotated[
    str, Path(alias="id", description="Id of an item, as text; slashes are welcome.", examples=["17"], min_length=1)
]


def items_router(collection: Collection, settings: Settings, service: Service) -> APIRouter:
    """The routes of items."""
    router = APIRouter(tags=["api"], default_response_class=Json)

    @router.post(
        "/items",
        summary="Add items",
        status_code=201,
        dependencies=[Writer],
        responses={
            201: {"model": Added, "description": "Items were added, and are on disk."},
            200: {"model": Added, "description": "Nothing was new."},
            **problems(400, 401, 403, 408, 409, 413, 415),
            422: {"model": Added | problems(422)[422]["model"], "description": "Nothing could be used, and why."},
        },
        openapi_extra=add_request(collection, settings),
    )
    async def add(request: Request) -> Json:
        """Add vectors (all or none), or images (those that can be used).

        What is answered with 201 is on disk. Images whose content is there already are left out.
        """
        deadline = request.scope[DEADLINE]
        if content_type(request, collection.takes_images) == "json":
            new = read_new_items(parsed(await request.body()), collection.n_features, settings)
            ids = await service.write(deadline, lambda: service.add_vectors(new))
            return Json({"added": ids, "duplicates": [], "failed": []}, 201)
        images, label = await _images(request, collection, settings)
        return _answer(await service.write(deadline, lambda: service.add_images(images, label)))

    @router.get("/items/{id:path}", summary="Show an item", responses={200: {"model": ItemInfo}, **problems(404, 422)})
    async def show(item: ItemId) -> Json:
        """What is known about an item, but for where its file lies."""
        known = as_id(collection, item)
        return Json(item_value(await service.run(lambda: service.item(known)), collection.n_bits))

    @router.delete(
        "/items/{id:path}",
        summary="Remove an item",
        status_code=204,
        dependencies=[Writer],
        response_class=Response,
        responses=problems(401, 403, 404, 422),
    )
    async def remove(request: Request, item: ItemId) -> Response:
        """Remove an item, and its thumbnail; when this is answered, it is gone from disk."""
        known = as_id(collection, item)
        await service.write(request.scope[DEADLINE], lambda: service.remove(known))
        return Response(status_code=204)

    return router


def as_id(collection: Collection, text: str) -> int | str:
    """An id as an address writes it; 404 if no item can have it."""
    if collection.ids.dtype.kind != "i":
        return text
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and len(digits) < 20 and str(int(text)) == text:
        number = int(text)
        if -(1 << 63) <= number < 1 << 63:
            return number
    raise unknown(text)


async def _images(
    request: Request, collection: Collection, settings: Settings
) -> tuple[list[tuple[str, bytes]], int | str | None]:
    """Files and label of a form."""
    form = await read_form(request, settings)
    try:
        texts = texts_of(form, {"label"})
        images = await images_of(form, settings.max_images)
    finally:
        await form.close()
    if len(collection) and collection.ids.dtype.kind != "i":
        raise HTTPException(
            409, "Images are numbered, and the ids of this collection are strings; add vectors instead."
        )
    return images, read_label(texts.get("label"))


def _answer(report: AddReport) -> Json:
    """201 if something is new, 200 if all was there, 422 if nothing could be used."""
    content: dict[str, Any] = {
        "added": report.added,
        "duplicates": [{"name": name, "id": item} for name, item in report.duplicates],
        "failed": [{"name": name, "reason": reason} for name, reason in report.failed],
    }
    if report.added:
        return Json(content, 201)
    if not report.failed:
        return Json({**content, "detail": "Nothing was added, since all of it is there already."}, 200)
    name, reason = report.failed[0]
    return Json({**content, "detail": f"Nothing was added; the first reason: {name}: {reason}"}, 422)
