"""shorthash serve: a page and an HTTP API to search a collection."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shorthash.cli import output
from shorthash.cli.images_options import CollectionFolder
from shorthash.cli.options import flag, option

if TYPE_CHECKING:
    from shorthash.web import Settings

__all__ = ["serve"]

TOKEN = "SHORTHASH_TOKEN"
SHORT_TOKEN = 16  # characters; fewer can be guessed


def serve(
    model: CollectionFolder,
    host: Annotated[str, option("--host", metavar="ADDRESS", text="Where to listen.", default=True)] = "127.0.0.1",
    port: Annotated[int, option("--port", metavar="N", text="Port; 0 takes a free one.", default=True)] = 8000,
    token: Annotated[
        str | None,
        option("--token", metavar="TEXT", text="What writers must send.", default=f"${TOKEN}; else no writes"),
    ] = None,
    readonly: Annotated[bool, flag("--readonly", "Never write, and let another process do so.")] = False,
    allow_host: Annotated[
        list[str] | None, option("--allow-host", metavar="NAME", text="A name to answer to, too; repeatable.")
    ] = None,
    max_body: Annotated[float, option("--max-body", metavar="MIB", text="Largest request.", default=True)] = 32,
    max_pixels: Annotated[
        int, option("--max-pixels", metavar="N", text="Largest image, in pixels.", default=True)
    ] = 40_000_000,
    rate: Annotated[
        float, option("--rate", metavar="N", text="Requests per second of a client; 0: any number.", default=True)
    ] = 200,
    remember: Annotated[
        int, option("--remember", metavar="MIB", text="Answers kept until something is written.", default=True)
    ] = 64,
    timeout: Annotated[
        float, option("--timeout", metavar="SECONDS", text="Until a request is given up.", default=True)
    ] = 30,
) -> None:
    """Serve a page to search on, and an HTTP API; Ctrl+C stops.

    Only this machine can reach the server unless --host says otherwise. Adding and removing items needs a token; best
    put it in the environment, since other users of a machine see arguments. The API is described by /openapi.json.

    \b
    Examples:
      shorthash serve photos.model
      SHORTHASH_TOKEN=$(openssl rand -hex 32) shorthash serve photos.model --port 9000
    """
    from shorthash._validation import require_extra

    require_extra("uvicorn", "web", "Serving a collection")
    from shorthash.images import Collection
    from shorthash.web import Settings
    from shorthash.web.serving import listen, run

    settings = Settings(
        token=token or os.environ.get(TOKEN) or None,
        hosts=("localhost", host, *(allow_host or ())),
        max_body=int(max_body * (1 << 20)),
        max_pixels=max_pixels,
        rate=rate,
        remembered=remember << 20 if remember >= 0 else remember,
        timeout=timeout,
    )
    writes = settings.writable and not readonly
    with Collection.open(model, readonly=not writes) as collection, listen(host, port) as socket:
        _tell(model, collection, settings, host, socket.getsockname()[1], writes)
        run(collection, settings, socket)


def _tell(model: Path, collection: Any, settings: Settings, host: str, port: int, writes: bool) -> None:
    """Where the server is, and what it allows."""
    from shorthash.web.settings import is_loopback

    named = f"[{host}]" if ":" in host else host
    output.say(f"{model.name}: {len(collection)} items, {collection.n_bits} bits")
    output.say(f"http://{named}:{port}/  (Ctrl+C stops)")
    output.say("writes need the token" if writes else f"nobody may write (--token or {TOKEN} allows it)")
    if not is_loopback(host):
        output.complain(
            "warning", f"{named} can be reached by other machines, and nothing is encrypted; see SECURITY.md"
        )
    if settings.token is not None and len(settings.token) < SHORT_TOKEN:
        output.complain("warning", "the token is short enough to be guessed; take: openssl rand -hex 32")
    typer.get_text_stream("stdout").flush()
