"""POST /search."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from shorthash.images import Collection
from shorthash.web.answers import Json
from shorthash.web.queries import Query, parsed, read_extent, read_query, read_texts
from shorthash.web.schema import SearchAnswer, problems, search_request
from shorthash.web.service import Service
from shorthash.web.settings import Settings
from shorthash.web.uploads import content_type, images_of, read_form, texts_of

__all__ = ["search_router"]

EXTENT = {"k", "radius", "rerank"}


def search_router(collection: Collection, settings: Settings, service: Service) -> APIRouter:
    """The route of searches."""
    router = APIRouter(tags=["api"])

    @router.post(
        "/search",
        summary="Find neighbours",
        response_class=Json,
        responses={200: {"model": SearchAnswer}, **problems(400, 404, 408, 413, 415, 422)},
        openapi_extra=search_request(collection, settings),
    )
    async def search(request: Request) -> Json:
        """Find the items whose codes differ least from that of a query, grouped by Hamming distance.

        A query is exactly one of: a vector, the id of an item, a code; or, as multipart/form-data, one image.
        """
        if content_type(request, collection.takes_images) == "json":
            data = parsed(await request.body())
            query = read_query(data, collection.n_features, collection.n_bits, settings)
        else:
            query = await _form_query(request, collection.n_bits, settings)
        return Json(await service.search(query))

    return router


async def _form_query(request: Request, n_bits: int, settings: Settings) -> Query:
    """A search by image."""
    form = await read_form(request, settings)
    try:
        texts: dict[str, Any] = read_texts(texts_of(form, EXTENT))
        [(_, octets)] = await images_of(form, 1)
    finally:
        await form.close()
    return Query("image", octets, *read_extent(texts, n_bits, settings))
