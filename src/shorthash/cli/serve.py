"""shorthash serve: a page and an HTTP API to search a collection of images."""

from __future__ import annotations

import os
import sys
from typing import Annotated

from shorthash.cli import output
from shorthash.cli.images import CollectionFolder
from shorthash.cli.options import flag, option

__all__ = ["serve"]

TOKEN = "SHORTHASH_TOKEN"
SHORT_TOKEN = 16  # characters; fewer can be guessed


def serve(
    model: CollectionFolder,
    host: Annotated[str, option("--host", "ADDRESS", "Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option("--port", "N", "Port; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None, option("--token", "TEXT", "Token that writers must send.", f"${TOKEN}; else no writes")
    ] = None,
    readonly: Annotated[bool, flag("--readonly", "Allow no writes, so that another process can write.")] = False,
    allow_host: Annotated[
        list[str] | None, option("--allow-host", "NAME", "Also answer requests to this host name; repeatable.")
    ] = None,
    max_body: Annotated[float, option("--max-body", "MIB", "Largest request.")] = 32,
    max_pixels: Annotated[int, option("--max-pixels", "N", "Largest image, in pixels.")] = 40_000_000,
    rate: Annotated[float, option("--rate", "N", "Requests per second of a client; 0: no limit.")] = 200,
    remember: Annotated[int, option("--remember", "MIB", "Size of the cache of answers.")] = 64,
    timeout: Annotated[float, option("--timeout", "SECONDS", "Longest time for a request.")] = 30,
) -> None:
    """Serve a search page and an HTTP API; Ctrl+C stops.

    Only this machine can reach the server unless --host says otherwise. Adding and removing items needs a token; put it
    in the environment, since other users of the machine can see arguments. The API is described by /openapi.json.

    \b
    Examples:
      shorthash serve photos.model
      SHORTHASH_TOKEN=$(openssl rand -hex 32) shorthash serve photos.model --port 9000
    """
    from shorthash._validation import require_extra

    require_extra("uvicorn", "web", "Serving a collection")
    from shorthash.images import Collection
    from shorthash.web import Settings
    from shorthash.web.app import listen, run
    from shorthash.web.settings import is_loopback

    settings = Settings(
        token=token or os.environ.get(TOKEN) or None,
        hosts=("localhost", host, *(allow_host or ())),
        max_body=int(max_body * (1 << 20)),
        max_pixels=max_pixels,
        rate=rate,
        remembered=remember << 20 if remember >= 0 else remember,
        timeout=timeout,
    )
    writable = settings.writable and not readonly
    with Collection.open(model, readonly=not writable) as collection, listen(host, port) as socket:
        address = f"[{host}]" if ":" in host else host
        output.say(f"{model.name}: {len(collection)} items, {collection.n_bits} bits")
        output.say(f"http://{address}:{socket.getsockname()[1]}/  (Ctrl+C stops)")
        output.say("writes need the token" if writable else f"read-only (--token or {TOKEN} allows writes)")
        if not is_loopback(host):
            output.complain(
                "warning", f"{address} can be reached by other machines, and nothing is encrypted; see SECURITY.md"
            )
        if settings.token is not None and len(settings.token) < SHORT_TOKEN:
            output.complain("warning", "the token is short enough to be guessed; use: openssl rand -hex 32")
        sys.stdout.flush()
        run(collection, settings, socket)
