"""The application: routes of the API and the page behind one door."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from shorthash import __version__
from shorthash.errors import InvalidInput, MissingExtra, ShorthashError
from shorthash.images import Collection
from shorthash.web.answers import Json
from shorthash.web.api_buckets import buckets_router
from shorthash.web.api_items import items_router
from shorthash.web.api_search import search_router
from shorthash.web.api_state import state_router
from shorthash.web.door import Door, log
from shorthash.web.metrics import Metrics
from shorthash.web.pages import router as page_router
from shorthash.web.service import Service
from shorthash.web.settings import Settings
from shorthash.web.uploads import keep_in_memory

__all__ = ["create_app"]

ABOUT = """Search items by extremely short binary codes, add and remove them.

Errors are JSON objects with one sentence in `detail`. Writes need the token of the server as a bearer token."""


def create_app(collection: Collection, settings: Settings | None = None) -> FastAPI:
    """A server for a collection; whoever opened the collection closes it.

    Parameters
    ----------
    collection : to search; to write, too, if it was not opened read-only and the settings have a token
    settings : limits; None: those of ``Settings()``

    Returns
    -------
    app : an ASGI application; ``app.state.collection``, ``app.state.settings``
    """
    settings = Settings() if settings is None else settings
    metrics = Metrics()
    service = Service(collection, settings, metrics)
    keep_in_memory(settings.max_body)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = max(settings.threads, 4)  # of the page, which decodes, too
        yield
        service.close()

    app = FastAPI(
        title="shorthash",
        version=__version__,
        description=ABOUT,
        docs_url=None,  # its scripts would come from strangers
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.collection, app.state.settings, app.state.service = collection, settings, service
    routers = (
        search_router(collection, settings, service),
        items_router(collection, settings, service),
        buckets_router(collection, service),
        state_router(collection, settings, service, metrics),
        page_router,
    )
    for router in routers:
        app.include_router(router)
    app.state.routes = [route for router in routers for route in router.routes]
    app.add_middleware(Door, settings=settings, metrics=metrics)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(ShorthashError, _failed)
    return app


async def _refused(request: Request, error: Any) -> Json:
    """A refusal as one sentence."""
    headers = dict(error.headers or {})
    detail = error.detail
    if error.status_code == 405:
        headers["Allow"] = ", ".join(sorted(_methods(request)))
        detail = f"{request.url.path[:60]} takes {headers['Allow']} only; see /openapi.json."
    elif error.status_code == 404 and detail == "Not Found":
        detail = "There is nothing at this address; see /openapi.json."
    return Json({"detail": detail}, error.status_code, headers)


async def _invalid(_: Request, error: Any) -> Json:
    """The first broken rule as one sentence."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    return Json({"detail": f"{where} breaks a rule: {first['msg']}."}, 422)


async def _failed(request: Request, error: Any) -> Json:
    """What the collection refused; sentences that name a place on this machine stay in the log."""
    sentence, home = str(error), request.app.state.collection.path
    if isinstance(error, InvalidInput) and str(home) not in sentence and home.name not in sentence:
        return Json({"detail": sentence}, 422)
    if isinstance(error, MissingExtra):
        log.error("%s", sentence)
        return Json({"detail": "The server lacks a package that this needs; its log tells which."}, 503)
    log.error("a request failed", exc_info=error)
    return Json({"detail": "The collection could not be read or written; the log of the server tells more."}, 500)


def _methods(request: Request) -> set[str]:
    """What an address can be asked."""
    found: set[str] = set()
    for route in request.app.state.routes:
        if route.path_regex.match(request.url.path):
            found |= route.methods
    return found | ({"HEAD"} if "GET" in found else set())
