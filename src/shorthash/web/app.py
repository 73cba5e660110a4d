"""The application: API and pages behind the limits of a server; and the process that runs it."""

from __future__ import annotations

import gc
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any, NoReturn

from anyio.to_thread import current_default_thread_limiter
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from shorthash import __version__
from shorthash._validation import check_count
from shorthash.errors import InvalidInput, MissingExtra, ShorthashError
from shorthash.images import Collection
from shorthash.store import Store
from shorthash.web.api import api_router, store_router
from shorthash.web.limits import Limits, Settings, log, problem, protocol_class
from shorthash.web.pages import router as page_router
from shorthash.web.schema import broken_rule, keep_in_memory
from shorthash.web.service import Service, StoreService

ABOUT = """Search items by extremely short binary codes, add and remove them.

Errors are JSON objects with one sentence in `detail`. Writes need the token of the server as a bearer token."""
BACKLOG = 1024
CONNECTIONS = 512  # at once; more are answered 503
SHUTDOWN_SECONDS = 10  # that requests have to finish when the server stops


def create_app(collection: Collection, settings: Settings | None = None) -> FastAPI:
    """A server for a collection; the caller closes the collection.

    Parameters
    ----------
    collection : to search; and to write, if it was not opened read-only and the settings have a token
    settings : limits; None: those of ``Settings()``

    Returns
    -------
    app : an ASGI application; ``app.state.service`` has the collection and the settings

    Examples
    --------
    >>> import tempfile
    >>> from fastapi.testclient import TestClient
    >>> from shorthash import make_hasher
    >>> X = [[0, 1], [1, 0], [2, 2], [3, 1]]
    >>> hasher = make_hasher("pcaitq", n_bits=2, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder, Collection.create(f"{folder}/points", hasher) as points:
    ...     ids = points.add_vectors(X)
    ...     client = TestClient(create_app(points), base_url="http://localhost")
    ...     answer = client.post("/search", json={"vector": X[2], "k": 1}).json()
    >>> [item["id"] for group in answer["groups"] for item in group["items"]]
    [2]
    """
    service = Service(collection, settings or Settings())
    keep_in_memory(service.settings.max_body)
    return _application(service, [api_router(service), page_router], (str(collection.path), collection.path.name))


def create_store_app(hasher: Any, opener: Callable[[], Store], settings: Settings | None = None) -> FastAPI:
    """A server over a store: searches, items, health and metrics; no page, and nothing is written.

    It keeps no state, so any number of servers may use one database, each with any number of threads.

    Parameters
    ----------
    hasher : the fitted encoder of the codes
    opener : opens the store, in one version; called for every thread, such as
        ``lambda: open_store("postgresql://...", version="v1")``
    settings : limits; None: those of ``Settings()``

    Returns
    -------
    app : an ASGI application

    Examples
    --------
    >>> import tempfile
    >>> from fastapi.testclient import TestClient
    >>> from shorthash import make_hasher, open_store
    >>> X = [[0, 1], [1, 0], [2, 2], [3, 1]]
    >>> hasher = make_hasher("pcaitq", n_bits=2, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     url = f"sqlite:///{folder}/points.db"
    ...     with open_store(url, n_bits=2) as store:
    ...         ids = store.add(hasher.transform(X), vectors=X).ids
    ...     app = create_store_app(hasher, lambda: open_store(url, version="v1"))
    ...     with TestClient(app, base_url="http://localhost") as client:
    ...         answer = client.post("/search", json={"vector": X[2], "k": 1}).json()
    >>> [item["id"] for item in answer["items"]]
    [2]
    """
    service = StoreService(hasher, opener, settings or Settings())
    return _application(service, [store_router(service)])


def _application(service: Service | StoreService, routers: list[APIRouter], hidden: tuple[str, ...] = ()) -> FastAPI:
    """Routes behind the limits; no answer contains a ``hidden`` text."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = max(service.settings.threads, 4)  # of the pages
        yield
        service.close()

    app = FastAPI(
        title="shorthash",
        version=__version__,
        description=ABOUT,
        docs_url=None,  # its scripts would be loaded from another server
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.service, app.state.hidden = service, hidden
    app.state.routes = [route for router in routers for route in router.routes]
    for router in routers:
        app.include_router(router)
    app.add_middleware(Limits, settings=service.settings, metrics=service.metrics)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(ValidationError, _invalid)
    app.add_exception_handler(ShorthashError, _failed)
    return app


async def _refused(request: Request, error: Any) -> Response:
    """An HTTP error as one sentence: a page for people, JSON for programs."""
    headers = dict(error.headers or {})
    detail = error.detail
    if error.status_code == 405:
        headers["Allow"] = ", ".join(sorted(_methods(request)))
        detail = f"{request.url.path[:60]} takes {headers['Allow']} only; see /openapi.json."
    elif error.status_code == 404 and detail == "Not Found":
        detail = "There is nothing at this address; see /openapi.json."
    return problem(request.scope, error.status_code, detail, headers)


async def _invalid(request: Request, error: Any) -> Response:
    """The first broken rule as one sentence."""
    return problem(request.scope, 422, broken_rule(error.errors()))


async def _failed(request: Request, error: Any) -> Response:
    """What the collection refused; a sentence that names a path of the server goes to the log only."""
    sentence = str(error)
    if isinstance(error, InvalidInput) and not any(text in sentence for text in request.app.state.hidden):
        return problem(request.scope, 422, sentence)
    if isinstance(error, MissingExtra):
        log.error("%s", sentence)
        return problem(request.scope, 503, "A package that this needs is not installed on the server; see its log.")
    log.error("a request failed", exc_info=error)
    return problem(request.scope, 500, "The collection could not be read or written; the server's log has the details.")


def _methods(request: Request) -> set[str]:
    """The methods that an address takes."""
    found: set[str] = set()
    for route in request.app.state.routes:
        if route.path_regex.match(request.url.path):
            found |= route.methods
    return found | ({"HEAD"} if "GET" in found else set())


@contextmanager
def listen(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket."""
    check_count(port, "port", "serve", low=0, high=65535)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        opened = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInput(
            f"Cannot listen on {host}, port {port} ({reason}); choose others with --host, --port."
        ) from error
    with opened:
        yield opened


def run(app: FastAPI, settings: Settings, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM; requests that have begun are answered first."""
    import uvicorn

    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # else a client could choose the address that its rate is counted for
        ws="none",
        http=protocol_class(settings),
        lifespan="on",
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    signal.signal(signal.SIGTERM, _exit)  # uvicorn raises the signal again when it is done
    gc.collect()
    gc.freeze()  # long-lived objects need not be scanned again, which would delay requests
    uvicorn.Server(config).run(sockets=[listener])


def _exit(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)
