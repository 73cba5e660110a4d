"""The door every request passes: host, rate, size and time limits; every answer leaves with safe headers, counted."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shorthash.web.limits import Body, RateLimit, client_key, too_large
from shorthash.web.metrics import Metrics
from shorthash.web.security import HEADERS, HostCheck
from shorthash.web.settings import Settings

__all__ = ["DEADLINE", "Door"]

DEADLINE = "shorthash.deadline"  # where handlers find the asyncio.Timeout of their request
FREE = ("/static/", "/thumbnails/", "/healthz")  # files and signs of life: a page of results asks for many at once
BODIES = 8  # full bodies that may be in memory at once
NO_STORE = (b"cache-control", b"no-store")
log = logging.getLogger("shorthash.web")


class Door:
    """ASGI middleware around everything.

    Parameters
    ----------
    app : what is behind the door
    settings : limits
    metrics : where requests are counted
    """

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.known_host = HostCheck(settings.hosts)
        self.rate = RateLimit(settings.rate, settings.bucket)
        self.held = [0]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        method = scope["method"]
        if method == "HEAD":  # what GET would answer, without its body
            scope = {**scope, "method": "GET"}
        answer = _Answer(send, bodiless=method == "HEAD")
        try:
            await self._answer(scope, receive, answer)
        finally:
            route = getattr(scope.get("route"), "path", "(none)")
            self.metrics.observe(method, route, answer.status, time.perf_counter() - start)

    async def _answer(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        """Let a request in, unless it breaks a rule; whatever goes wrong inside becomes one sentence."""
        body = Body(receive, self.settings.max_body, self.held, BODIES * self.settings.max_body)
        try:
            self._check(scope)
            async with asyncio.timeout(self.settings.timeout) as deadline:
                scope[DEADLINE] = deadline
                await self.app(scope, body.receive, answer.send)
        except HTTPException as refused:
            await answer.refuse(refused.status_code, refused.detail, refused.headers)
        except TimeoutError:
            if body.awaited:
                late = f"The request did not arrive within {self.settings.timeout:g} seconds; send less at once."
                await answer.refuse(408, late, {"Connection": "close"})
            else:
                await answer.refuse(503, f"It took longer than {self.settings.timeout:g} seconds; ask for less.")
        except Exception:
            log.exception("a request failed")
            await answer.refuse(500, "The server made a mistake; its log tells more.")
        finally:
            body.release()

    def _check(self, scope: Scope) -> None:
        """Raise if a request breaks a rule that its head tells."""
        headers = {name: value for name, value in scope["headers"] if name in (b"host", b"content-length")}
        host = headers.get(b"host", b"").decode("latin-1")
        if not self.known_host(host):
            raise HTTPException(
                421,
                f"This server does not answer to the name {host[:100]!r}; use its address, or restart it with "
                "--allow-host NAME.",
            )
        if not scope["path"].startswith(FREE):
            client = scope.get("client")
            seconds = self.rate.wait(client_key(client[0] if client else ""))
            if seconds:
                told = f"More than {self.settings.rate:g} requests per second came from you; wait a moment."
                raise HTTPException(429, told, headers={"Retry-After": str(math.ceil(seconds))})
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length[:20]) > self.settings.max_body:
            raise HTTPException(413, too_large(self.settings.max_body), headers={"Connection": "close"})


class _Answer:
    """The way out: adds headers, and drops the body where there must be none."""

    def __init__(self, send: Send, *, bodiless: bool) -> None:
        self._send, self._bodiless = send, bodiless
        self.status = 0

    async def send(self, message: Message) -> None:
        """Pass a message of the application on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = message["headers"] = [*message.get("headers", ()), *HEADERS]
            if not any(name == b"cache-control" for name, _ in headers):
                headers.append(NO_STORE)
        elif self._bodiless and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await self._send(message)

    async def refuse(self, status: int, detail: Any, headers: Any = None) -> None:
        """Answer with one sentence, if nothing was answered yet."""
        if self.status:
            return
        content = orjson.dumps({"detail": detail})
        told = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        told += [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await self.send({"type": "http.response.start", "status": status, "headers": told})
        await self.send({"type": "http.response.body", "body": content})
