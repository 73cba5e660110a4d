"""The JSON routes of servers for a collection and over a store: search, items, buckets, thumbnails, health, metrics."""

import hmac
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

import numpy as np
import orjson
from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import TypeAdapter
from starlette.convertors import PathConvertor, register_url_convertor

from shorthash.images import AddReport, Bucket
from shorthash.store.items import LONGEST, check_field, check_values
from shorthash.web.limits import CONTENT_TYPE, DEADLINE
from shorthash.web.schema import (
    FIELDS,
    Added,
    BucketList,
    BucketPage,
    Health,
    ItemInfo,
    Problem,
    Relabel,
    SearchAnswer,
    StoredAnswer,
    StoredCell,
    StoredHealth,
    StoredItem,
    Text,
    content_type,
    json_body,
    problems,
    read_form,
    read_json,
    request_bodies,
    request_models,
)
from shorthash.web.service import Service, StoreService, as_bits, found_item, item_value, item_values

MOST_BUCKETS, MOST_ITEMS = 1 << 16, 1000
FOREVER = "private, max-age=31536000, immutable"  # a content never changes; private: not for shared caches

ItemId = Annotated[
    str, Path(alias="id", description="Id of an item, as text; it may contain slashes.", examples=["17"], min_length=1)
]
Content = Annotated[
    str, Path(pattern="^[0-9a-f]{32}$", description="Hash of the image's content.", examples=["0" * 32])
]
Offset = Annotated[int, Query(ge=0, le=1 << 62, description="How many to skip.")]
ItemLimit = Annotated[int, Query(ge=0, le=MOST_ITEMS, description="How many items to show.")]
BucketLimit = Annotated[int, Query(ge=1, le=MOST_BUCKETS, description="How many buckets to list.")]
LABEL = TypeAdapter(Text)
_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="The token of `shorthash serve`: `--token` or the environment variable `SHORTHASH_TOKEN`.",
)


class _Anything(PathConvertor):
    """The rest of an address, line ends and slashes included; Starlette's ``path`` ends at a line end."""

    regex = r"[\s\S]*"


register_url_convertor("anything", _Anything())


class Json(JSONResponse):
    """An answer in JSON."""

    def render(self, content: Any) -> bytes:
        """The bytes of a value."""
        return orjson.dumps(content)


def check_writer(request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> None:
    """Raise unless the request has the token; the comparison takes constant time."""
    service: Service = request.app.state.service
    if service.settings.token is None:
        raise HTTPException(
            403,
            "Writing is disabled, since the server was started without a token; set SHORTHASH_TOKEN, or use "
            "--token, and start it again.",
        )
    if service.collection.readonly:
        raise HTTPException(
            403,
            "This collection is served read-only, since --readonly was given; start the server without it to write.",
        )
    sent = "" if given is None else given.credentials
    if not hmac.compare_digest(sent.encode(), service.settings.token.encode()):
        raise HTTPException(
            401,
            f"The token is {'wrong' if sent else 'missing'}; send the one the server was started with as: "
            "Authorization: Bearer TOKEN",
            headers={"WWW-Authenticate": 'Bearer realm="shorthash"'},
        )


def api_router(service: Service) -> APIRouter:
    """All JSON routes of a server."""
    router = APIRouter(tags=["api"], default_response_class=Json)
    _add_search_and_items(router, service)
    _add_buckets(router, service)
    _add_state(router, service)
    return router


def _add_search_and_items(router: APIRouter, service: Service) -> None:
    collection, settings = service.collection, service.settings
    models = request_models(collection.n_features, collection.n_bits, settings)
    search_body, add_body = request_bodies(models, collection, settings)
    row = collection.n_features + FIELDS  # values of one item

    @router.post(
        "/search",
        summary="Find neighbours",
        responses={200: {"model": SearchAnswer}, **problems(400, 404, 408, 413, 415, 422)},
        openapi_extra=search_body,
    )
    async def search(request: Request) -> Json:
        """Find the items whose codes differ least from that of a query, grouped by Hamming distance.

        A query is exactly one of: a vector, the id of an item, a code; or, as multipart/form-data, one image.
        """
        if content_type(request, collection.takes_images) == "json":
            query = await read_json(request, models.search, row + LONGEST)
            vector = None if query.vector is None else np.array(query.vector, dtype=np.float32)
            how = query.model_dump(include=set(models.options.model_fields))
            return Json(await service.search(how, vector=vector, item=query.id, code=query.code))
        [(_, image)], texts = await read_form(request, list(models.options.model_fields), 1)
        given = {name: text for name, text in texts.items() if text.lower() not in ("", "null")}
        options = models.options.model_validate_strings(given)
        return Json(await service.search(options.model_dump(), image=image))

    @router.post(
        "/items",
        summary="Add items",
        status_code=201,
        dependencies=[Depends(check_writer)],
        responses={
            201: {"model": Added, "description": "Items were added, and are on disk."},
            200: {"model": Added, "description": "Nothing was new."},
            **problems(400, 401, 403, 408, 409, 413, 415),
            422: {"model": Added | Problem, "description": "Nothing could be used, and why."},
        },
        openapi_extra=add_body,
    )
    async def add(request: Request) -> Json:
        """Add vectors (all or none), or images (those that can be used).

        When 201 is answered, the items are on disk. Images whose content is already in the collection are skipped.
        """
        deadline = request.scope[DEADLINE]
        if content_type(request, collection.takes_images) == "json":
            new = await read_json(request, models.add, settings.max_items * row)
            ids = await service.write(deadline, lambda: service.add_vectors(new.items))
            return Json({"added": ids, "duplicates": [], "failed": []}, 201)
        images, texts = await read_form(request, ["label"], settings.max_images)
        label = LABEL.validate_python(texts["label"]) if "label" in texts else None
        if len(collection) and collection.ids.dtype.kind != "i":
            raise HTTPException(
                409, "Images are numbered, and the ids of this collection are strings; add vectors instead."
            )
        decoded = await service.decode(lambda: service.extracted(images))
        return _added(await service.write(deadline, lambda: service.add_images(decoded, label)))

    @router.get(
        "/items/{id:anything}", summary="Show an item", responses={200: {"model": ItemInfo}, **problems(404, 422)}
    )
    async def show(item: ItemId) -> Json:
        """Everything about an item, except where its file was read from."""
        return Json(item_value(service.item(await service.current(), item), collection.n_bits))

    @router.patch(
        "/items/{id:anything}",
        summary="Label an item",
        dependencies=[Depends(check_writer)],
        responses={200: {"model": ItemInfo}, **problems(400, 401, 403, 404, 408, 413, 415, 422)},
        openapi_extra=json_body(Relabel),
    )
    async def relabel(request: Request, item: ItemId) -> Json:
        """Give an item another label; when 200 is answered, it is on disk. The code stays as it is."""
        new = await read_json(request, Relabel, FIELDS)
        await service.write(request.scope[DEADLINE], lambda: service.relabel(item, new.label))
        return Json(item_value(service.item(await service.current(), item), collection.n_bits))

    @router.delete(
        "/items/{id:anything}",
        summary="Remove an item",
        status_code=204,
        dependencies=[Depends(check_writer)],
        response_class=Response,
        responses=problems(401, 403, 404, 422),
    )
    async def remove(request: Request, item: ItemId) -> Response:
        """Remove an item and its thumbnail; when 204 is answered, it is removed from disk."""
        await service.write(request.scope[DEADLINE], lambda: service.remove(item))
        return Response(status_code=204)


def _added(report: AddReport) -> Json:
    """201 if something is new, 200 if everything was a duplicate, 422 if nothing could be used."""
    content: dict[str, Any] = {
        "added": report.added,
        "duplicates": [{"name": name, "id": item} for name, item in report.duplicates],
        "failed": [{"name": name, "reason": reason} for name, reason in report.failed],
    }
    if report.added:
        return Json(content, 201)
    if not report.failed:
        return Json({**content, "detail": "Nothing was added, since everything is in the collection already."}, 200)
    name, reason = report.failed[0]
    return Json({**content, "detail": f"Nothing was added; the first reason: {name}: {reason}"}, 422)


def _add_buckets(router: APIRouter, service: Service) -> None:
    collection = service.collection
    in_range = Path(ge=0, le=(1 << collection.n_bits) - 1, description="A code as an integer.", examples=[0])

    @router.get("/buckets", summary="List buckets", responses={200: {"model": BucketList}, **problems(422)})
    async def buckets(offset: Offset = 0, limit: BucketLimit = MOST_BUCKETS) -> Json:
        """Every code that occurs, ascending, with its load and its items by class."""
        now = await service.current()
        found = await service.run(now.buckets)
        shown = [_bucket_value(bucket) for bucket in found[offset : offset + limit]]
        return Json({"n_bits": now.n_bits, "count": len(found), "buckets": shown})

    @router.get("/buckets/{code}", summary="Show a bucket", responses={200: {"model": BucketPage}, **problems(422)})
    async def bucket(code: Annotated[int, in_range], offset: Offset = 0, limit: ItemLimit = 100) -> Json:
        """Items that share a code; a code that does not occur is an empty bucket."""
        now = await service.current()
        known = await service.run(now.buckets)
        found = next((bucket for bucket in known if bucket.code == code), Bucket(code, 0))
        items = [item_value(item, now.n_bits) for item in now.items(now.bucket(code)[offset : offset + limit])]
        return Json({**_bucket_value(found), "bits": as_bits(code, now.n_bits), "offset": offset, "items": items})


def _bucket_value(bucket: Bucket) -> dict[str, Any]:
    return {"code": bucket.code, "load": bucket.load, "classes": {str(c): n for c, n in bucket.classes.items()}}


def _add_state(router: APIRouter, service: Service) -> None:
    collection = service.collection

    @router.get("/healthz", summary="State of the server", responses={200: {"model": Health}, **problems()})
    async def healthz() -> Json:
        """Whether the server is running, and what it serves."""
        return Json(
            {
                "status": "ok",
                "items": len(await service.current()),
                "n_bits": collection.n_bits,
                "n_features": collection.n_features,
                "takes_images": collection.takes_images,
                "writable": service.writable,
            }
        )

    async def metrics() -> bytes:
        now = await service.current()
        return service.metrics.text(len(now), len(await service.run(now.buckets)), n_bits=now.n_bits)

    add_metrics(router, metrics)

    @router.get(
        "/thumbnails/{content}.jpg",
        summary="A thumbnail",
        response_class=Response,
        responses={
            200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}},
            304: {"description": "The browser has it already."},
            **problems(404, 422),
        },
    )
    async def thumbnail(request: Request, content: Content) -> Response:
        """A small JPEG of an image."""
        octets = await service.run(lambda: collection.thumbnail_bytes(content))
        if not octets:
            raise HTTPException(404, "There is no such thumbnail; its item may have been removed.")
        headers = {"Cache-Control": FOREVER, "ETag": f'"{content}"'}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(octets, media_type="image/jpeg", headers=headers)


def add_metrics(router: APIRouter, text: Callable[[], Awaitable[bytes]]) -> None:
    """The route of the metrics, whose text a function gives."""

    @router.get(
        "/metrics",
        summary="Metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems()},
    )
    async def metrics() -> Response:
        """Requests, times and sizes in Prometheus' text format."""
        return Response(await text(), media_type=CONTENT_TYPE)


def store_router(service: StoreService) -> APIRouter:
    """The routes of a server over a store."""
    router = APIRouter(tags=["api"], default_response_class=Json)
    body = request_models(service.n_features, service.n_bits, service.settings).stored
    most = service.n_features + FIELDS + LONGEST
    in_range = Path(ge=0, lt=1 << service.n_bits, description="A code as an integer.", examples=[0])

    @router.post(
        "/search",
        summary="Find items",
        responses={200: {"model": StoredAnswer}, **problems(400, 404, 408, 413, 422)},
        openapi_extra=json_body(body),
    )
    async def search(request: Request) -> Json:
        """Find the best items of a vector, of an item or of a code: by Hamming rings or by learned probes."""
        query = await read_json(request, body, most)
        for name, values in (query.where or {}).items():
            check_values(check_field(name, "search"), values, "search")
        return Json(await service.run(partial(service.search, query)))

    @router.get(
        "/items/{id:anything}", summary="Show an item", responses={200: {"model": StoredItem}, **problems(404, 422)}
    )
    async def show(item: ItemId) -> Json:
        """Everything about an item, except its vector."""
        return Json(await service.run(lambda store: item_values(found_item(store, item), service.n_bits)[0]))

    @router.get("/buckets/{code}", summary="Show a bucket", responses={200: {"model": StoredCell}, **problems(422)})
    async def cell(code: Annotated[int, in_range], offset: Offset = 0, limit: ItemLimit = 100) -> Json:
        """Items that share a code; a code that does not occur is an empty bucket."""
        return Json(await service.run(partial(service.cell, code, offset, limit)))

    @router.get("/healthz", summary="State of the server", responses={200: {"model": StoredHealth}, **problems()})
    async def healthz() -> Json:
        """Whether the server and its database are available, and what is served; 503 if not."""
        return Json(await service.run(service.health))

    async def metrics() -> bytes:
        return service.metrics.text(n_bits=service.n_bits)

    add_metrics(router, metrics)
    return router
