"""The middleware around every request: limits of host, rate, size and time, security headers, and metrics.

Starlette's ``TrustedHostMiddleware`` is not used: it would refuse every IP address that is not listed, and its answer
does not say what to do.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import orjson
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shorthash.web.metrics import Metrics
from shorthash.web.settings import Settings

__all__ = ["DEADLINE", "HEADERS", "Body", "Limits", "RateLimit", "client_key", "is_known_host", "log"]

DEADLINE = "shorthash.deadline"  # where routes find the asyncio.Timeout of their request
UNLIMITED = ("/static/", "/thumbnails/", "/healthz")  # a page of results requests many of these at once
BODIES = 8  # bodies of the largest size that may be in memory at once
CLIENTS = 10_000  # clients whose rates are known; the one not seen for longest is forgotten first
CONTENT_POLICY = (
    "default-src 'none'; img-src 'self' data:; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: list[tuple[bytes, bytes]] = [
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
NO_STORE = (b"cache-control", b"no-store")
CLOSE = {"Connection": "close"}
log = logging.getLogger("shorthash.web")


class Limits:
    """ASGI middleware: checks requests, completes answers, and turns every failure into one sentence.

    Parameters
    ----------
    app : the application
    settings : limits
    metrics : where requests are counted
    """

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.hosts = frozenset(name.lower().rstrip(".") for name in settings.hosts)
        self.rate = RateLimit(settings.rate, settings.burst_size)
        self.body_bytes = 0  # of all bodies in memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        method = scope["method"]
        if method == "HEAD":  # the answer to GET, without its body
            scope = {**scope, "method": "GET"}
        answer = _Answer(send, with_body=method != "HEAD")
        try:
            await self._answer(scope, receive, answer)
        finally:
            route = getattr(scope.get("route"), "path", "(none)")
            self.metrics.observe(method, route, answer.status, time.perf_counter() - start)

    async def _answer(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        body = Body(receive, self)
        seconds = f"{self.settings.timeout:g} seconds"
        try:
            self._check(scope)
            async with asyncio.timeout(self.settings.timeout) as deadline:
                scope[DEADLINE] = deadline
                await self.app(scope, body.receive, answer.send)
        except HTTPException as error:
            await answer.refuse(error.status_code, error.detail, error.headers)
        except TimeoutError:
            if body.awaited:
                await answer.refuse(408, f"The request did not arrive within {seconds}; send less at once.", CLOSE)
            else:
                await answer.refuse(503, f"The request took longer than {seconds}; request less at once.")
        except Exception:
            log.exception("a request failed")
            await answer.refuse(500, "The server failed; its log has the details.")
        finally:
            self.body_bytes -= body.size

    def _check(self, scope: Scope) -> None:
        """Raise if the first line or the headers of a request break a rule."""
        headers = {name: value for name, value in scope["headers"] if name in (b"host", b"content-length")}
        host = headers.get(b"host", b"").decode("latin-1")
        if not is_known_host(host, self.hosts):
            raise HTTPException(
                421,
                f"This server does not answer to the name {host[:100]!r}; use its address, or restart it with "
                "--allow-host NAME.",
            )
        if not scope["path"].startswith(UNLIMITED):
            client = scope.get("client")
            seconds = self.rate.wait(client_key(client[0] if client else ""))
            if seconds:
                rule = f"At most {self.settings.rate:g} requests per second are answered; wait a moment."
                raise HTTPException(429, rule, headers={"Retry-After": str(math.ceil(seconds))})
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length[:20]) > self.settings.max_body:
            raise _too_large(self.settings.max_body)


class _Answer:
    """Sends an answer: adds headers, and leaves out the body of answers to HEAD."""

    def __init__(self, send: Send, *, with_body: bool) -> None:
        self._send, self._with_body = send, with_body
        self.status = 0

    async def send(self, message: Message) -> None:
        """Send a message of the application."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = message["headers"] = [*message.get("headers", ()), *HEADERS]
            if not any(name == b"cache-control" for name, _ in headers):
                headers.append(NO_STORE)
        elif not self._with_body and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await self._send(message)

    async def refuse(self, status: int, detail: Any, headers: Any = None) -> None:
        """Answer with one sentence, unless an answer has begun."""
        if self.status:
            return
        content = orjson.dumps({"detail": detail})
        lines = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        lines += [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await self.send({"type": "http.response.start", "status": status, "headers": lines})
        await self.send({"type": "http.response.body", "body": content})


class Body:
    """The body of one request, counted as it arrives.

    Attributes
    ----------
    size : bytes that have arrived
    awaited : whether the next ones are being waited for
    """

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self._receive, self._limits = receive, limits
        self._complete = False
        self.size, self.awaited = 0, False

    async def receive(self) -> Message:
        """The next message; 413 if the body becomes too long, 503 if all bodies together do."""
        self.awaited = not self._complete
        message = await self._receive()
        self.awaited = False
        if message["type"] == "http.request":
            n = len(message.get("body", b""))
            self.size += n
            self._limits.body_bytes += n
            self._complete = not message.get("more_body", False)
            largest = self._limits.settings.max_body
            if self.size > largest:
                raise _too_large(largest)
            if self._limits.body_bytes > BODIES * largest:
                raise HTTPException(
                    503, "The server is busy with large requests; try again soon.", headers={"Retry-After": "1"}
                )
        return message


def _too_large(largest: int) -> HTTPException:
    return HTTPException(413, f"The body of a request may have {largest} bytes at most; send less at once.", CLOSE)


class RateLimit:
    """A token bucket per client, in bounded memory.

    Parameters
    ----------
    rate : tokens per second; 0: no limit
    burst : tokens in a full bucket
    clients : largest number of clients
    clock : returns the time in seconds

    Examples
    --------
    >>> limit = RateLimit(1, 2, clock=lambda: 0.0)
    >>> limit.wait("a"), limit.wait("a"), limit.wait("a"), limit.wait("b")
    (0.0, 0.0, 1.0, 0.0)
    """

    def __init__(
        self, rate: float, burst: float, *, clients: int = CLIENTS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate, self.burst, self.clients, self.clock = rate, burst, clients, clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def wait(self, client: str) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        if not self.rate:
            return 0.0
        now = self.clock()
        tokens, before = self._buckets.pop(client, (self.burst, now))
        tokens = min(self.burst, tokens + (now - before) * self.rate)
        seconds = 0.0 if tokens >= 1 else (1 - tokens) / self.rate
        self._buckets[client] = (tokens - 1 if not seconds else tokens, now)
        if len(self._buckets) > self.clients:
            del self._buckets[next(iter(self._buckets))]
        return seconds


def client_key(address: str) -> str:
    """What counts as one client: an IPv4 address, or a /64 network of IPv6, the usual size of one household.

    Examples
    --------
    >>> client_key("10.0.0.1"), client_key("2001:db8::1"), client_key("2001:db8::2")
    ('10.0.0.1', '2001:db8::/64', '2001:db8::/64')
    """
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address


@lru_cache(maxsize=100)
def is_known_host(header: str, names: frozenset[str]) -> bool:
    """Whether a Host header has one of the names, or an IP address; prevents DNS rebinding, which needs a name.

    Examples
    --------
    >>> [is_known_host(header, frozenset({"localhost"})) for header in ("localhost:8000", "[::1]:80", "evil.example")]
    [True, True, False]
    """
    try:
        host = urlsplit(f"//{header}").hostname or ""
        if host.rstrip(".") not in names:
            ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
