"""Settings of a server, its metrics, and its limits: on host, rate, size and time of requests, and on connections.

Starlette's ``TrustedHostMiddleware`` is not used: it would refuse every IP address that is not listed, and its answer
does not say what to do. uvicorn's own settings bound the number of connections and the time between two requests of
one; its fast parser bounds neither the size of headers nor the time they take.
"""

from __future__ import annotations

import asyncio
import html
import ipaddress
import logging
import math
import os
import time
from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from typing import Any, ClassVar
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shorthash._validation import check_count, check_weight
from shorthash.errors import InvalidInput

MIB = 1 << 20
LOOPBACK = ("localhost",)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
WORK_SECONDS = (0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)

DEADLINE = "shorthash.deadline"  # where routes find the asyncio.Timeout of their request
UNLIMITED = ("/static/", "/thumbnails/", "/healthz")  # a page of results requests many of these at once
BODIES = 8  # bodies of the largest size that may be in memory at once
CLIENTS = 10_000  # clients whose rates are known; the one not seen for longest is dropped first
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
CLOSED = 499  # status in the metrics if the client closed the connection
HEADER_BYTES = 1 << 15  # of a request's first line and headers
MOST_HEADERS = 100  # in one request
HEADER_SECONDS = 10.0  # from the connection, or from the first byte of a request, until its headers are complete
OVERHEAD = 1 << 20  # bytes of a body that are not content: sizes of chunks, trailers; and PER_BYTE per byte of content
PER_BYTE = 8

log = logging.getLogger("shorthash.web")


@dataclass(frozen=True)
class Settings:
    """Limits of a server.

    Attributes
    ----------
    token : what writers must send as ``Authorization: Bearer TOKEN``; None: writing is disabled
    hosts : names the server answers to; IP addresses are always accepted
    max_body : bytes of a request's body
    max_pixels : pixels of an image
    max_images : images in one request
    max_items : vectors in one request to add
    max_k : neighbours in one answer
    max_rerank : vectors that one search may compare
    rate : requests per second of one client; 0: no limit
    burst : requests that may come at once; None: twice the rate, and at least 20
    timeout : seconds until a request is aborted
    connections : of one client at once; 0: no limit
    cache_bytes : bytes of answers that are cached until the next write; 0: none
    threads : searches and decodings that run at the same time

    Examples
    --------
    >>> Settings(rate=5).burst_size, Settings().writable
    (20.0, False)
    """

    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = LOOPBACK
    max_body: int = 32 * MIB
    max_pixels: int = 40_000_000
    max_images: int = 100
    max_items: int = 10_000
    max_k: int = 1000
    max_rerank: int = 200_000
    rate: float = 200.0
    burst: int | None = None
    timeout: float = 30.0
    connections: int = 100
    cache_bytes: int = 64 * MIB
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)

    def __post_init__(self) -> None:
        for name in ("max_body", "max_pixels", "max_images", "max_items", "max_k", "max_rerank", "threads"):
            check_count(getattr(self, name), name, "Settings")
        check_count(self.cache_bytes, "cache_bytes", "Settings", low=0)
        check_count(self.connections, "connections", "Settings", low=0)
        check_weight(self.rate, "rate", "Settings")
        check_weight(self.timeout, "timeout", "Settings", positive=True)
        if self.burst is not None:
            check_count(self.burst, "burst", "Settings")
        if self.token is not None and (not self.token.isascii() or not self.token.isprintable() or not self.token):
            raise InvalidInput("The token must be printable ASCII and not empty; make one with: openssl rand -hex 32")

    @property
    def writable(self) -> bool:
        """Whether there is a token to write with."""
        return self.token is not None

    @property
    def burst_size(self) -> float:
        """Number of requests that may come at once."""
        return float(self.burst if self.burst is not None else max(2 * self.rate, 20))


class Metrics:
    """Counters of one application, in a separate registry.

    Attributes
    ----------
    search : histogram of seconds from a code to its neighbours
    encode : histogram of seconds from vectors to codes; concurrent requests are encoded together
    encoded : counter of vectors encoded
    cached : counter of searches answered from the cache
    """

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("shorthash_requests", "Requests.", ("method", "route", "status"), registry=registry)
        self._seconds = Histogram(
            "shorthash_request_seconds",
            "Seconds from request to answer.",
            ("route",),
            registry=registry,
            buckets=REQUEST_SECONDS,
        )
        self.search = Histogram(
            "shorthash_search_seconds", "Seconds from code to neighbours.", registry=registry, buckets=WORK_SECONDS
        )
        self.encode = Histogram(
            "shorthash_encode_seconds",
            "Seconds from vectors to codes; concurrent requests are encoded together.",
            registry=registry,
            buckets=WORK_SECONDS,
        )
        self.encoded = Counter("shorthash_encoded_vectors", "Vectors of queries encoded.", registry=registry)
        self.cached = Counter("shorthash_cached_answers", "Searches answered from the cache.", registry=registry)
        self._items = Gauge("shorthash_items", "Items in the collection.", registry=registry)
        self._buckets = Gauge("shorthash_buckets", "Codes that occur in the collection.", registry=registry)
        self._n_bits = Gauge("shorthash_code_bits", "Length of the codes.", registry=registry)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request by its route template, so that the number of labels is bounded."""
        method = method if method in METHODS else "other"
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self, n_items: float = math.nan, n_buckets: float = math.nan, *, n_bits: int) -> bytes:
        """All metrics in the text format of Prometheus; a store does not count its items and buckets."""
        self._items.set(n_items)
        self._buckets.set(n_buckets)
        self._n_bits.set(n_bits)
        return generate_latest(self._registry)


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
        answer = _Answer(scope, send, with_body=method != "HEAD")
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
        except ClientDisconnect:
            answer.status = answer.status or CLOSED  # the client has closed the connection
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

    def __init__(self, scope: Scope, send: Send, *, with_body: bool) -> None:
        self._scope, self._send, self._with_body = scope, send, with_body
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
        response = problem(self._scope, status, detail, headers)
        await self.send({"type": "http.response.start", "status": status, "headers": response.raw_headers})
        await self.send({"type": "http.response.body", "body": response.body})


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
    size = f"{largest / MIB:.3g} MB" if largest >= MIB else f"{largest} bytes"
    return HTTPException(413, f"A request may have {size} at most; send less at once.", CLOSE)


def problem(scope: Scope, status: int, detail: Any, headers: Any = None) -> Response:
    """One sentence about what went wrong: a page for people, whose browsers request HTML, and JSON for programs."""
    accepted = b"".join(value for name, value in scope["headers"] if name == b"accept")
    if scope["method"] != "GET" or b"text/html" not in accepted:
        return JSONResponse({"detail": detail}, status, headers)
    title, root = HTTPStatus(status).phrase, html.escape(str(scope.get("root_path", "")).rstrip("/"))
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<title>{title}</title><link rel="stylesheet" href="{root}/static/page.css"></head><body>'
        f'<main class="problem-page"><h1>{title}</h1><p class="problem">{html.escape(str(detail))}</p>'
        f'<p><a href="{root}/">Back to the search</a></p></main></body></html>'
    )
    return HTMLResponse(page, status, headers)


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


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host.lower() in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def protocol_class(settings: Settings) -> type[HttpToolsProtocol]:
    """The protocol of a server with these settings; its connections are counted together."""
    return type("CountedProtocol", (BoundedProtocol,), {"most": settings.connections, "open": Tally()})


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with bounds; a connection that breaks one gets one sentence and is closed."""

    most = 0  # connections of one address; 0: no limit
    open: ClassVar[Tally[str]] = Tally()

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._address = ""
        self._timer: asyncio.TimerHandle | None = None
        self._in_headers, self._refused = True, False
        self._raw = self._content = self._header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and wait for headers."""
        super().connection_made(transport)
        self._address = client_key(self.client[0]) if self.client else ""
        self.open[self._address] += 1
        if self.most and self._address and self.open[self._address] > self.most:
            self._refuse(503, f"At most {self.most} connections of one address are open at once; close others.")
        else:
            self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.open[self._address] -= 1
        if not self.open[self._address]:
            del self.open[self._address]
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the next bytes, unless they are too many."""
        if self._refused:
            return
        self._raw += len(data)
        super().data_received(data)
        if self._in_headers:
            if self._raw > HEADER_BYTES:
                self._refuse(431, f"The headers of a request may have {HEADER_BYTES} bytes at most; send less.")
            elif self._timer is None and not self.transport.is_closing():
                self._wait_for_headers()
        elif self._raw - PER_BYTE * self._content > OVERHEAD:
            self._refuse(431, "The body of a request has too little content for its size; send it in larger chunks.")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_headers = True
        self._raw = self._content = self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        """A part of the address."""
        self._count_header(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        self._count_header(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The headers are complete."""
        self._in_headers = False
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._content += len(body)
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """What uvicorn answers if parsing failed, which it also does if a header was refused."""
        if not self._refused:
            self._refused = True
            super().send_400_response(msg)

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > HEADER_BYTES or len(self.headers) >= MOST_HEADERS:
            rule = f"A request may have {MOST_HEADERS} headers of {HEADER_BYTES} bytes together; send less."
            self._refuse(431, rule)
            raise ValueError(rule)  # ends the parsing

    def _wait_for_headers(self) -> None:
        self._timer = self.loop.call_later(HEADER_SECONDS, self._too_late)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        self._timer = None
        self._refuse(408, f"The headers of a request must arrive within {HEADER_SECONDS:g} seconds.")

    def _refuse(self, status: int, detail: str) -> None:
        """Answer with one sentence, unless an answer has begun, and close the connection."""
        if self._refused:
            return
        self._refused = True
        self._stop_waiting()
        if not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete:
                body = f'{{"detail":"{detail}"}}'.encode()
                head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nconnection: close\r\n"
                head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
                self.transport.write(head.encode() + body)
            self.transport.close()
