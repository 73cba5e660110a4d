"""Running the application: one process, one event loop, a clean end."""

from __future__ import annotations

import gc
import logging
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import uvicorn

from shorthash._validation import check_count
from shorthash.errors import InvalidInput
from shorthash.images import Collection
from shorthash.web.app import create_app
from shorthash.web.settings import Settings

__all__ = ["listen", "run"]

BACKLOG = 1024
CONNECTIONS = 512  # at once; more are answered 503
FAREWELL = 10  # seconds that requests have to finish once the server is told to stop


@contextmanager
def listen(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens; one sentence if it cannot."""
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


def run(collection: Collection, settings: Settings, listener: socket.socket) -> None:
    """Serve until told to stop (SIGINT, SIGTERM); requests that are being answered are answered first."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    config = uvicorn.Config(
        create_app(collection, settings),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # else a client could choose the address that its rate is counted for
        ws="none",
        lifespan="on",
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=FAREWELL,
    )
    signal.signal(signal.SIGTERM, _leave)  # uvicorn raises the signal once more when it is done
    gc.collect()
    gc.freeze()  # what is there now stays until the end; looking through it again and again may stop requests
    uvicorn.Server(config).run(sockets=[listener])


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)
