"""Connections of a server: bounds on headers, on the time until they arrive, and on connections per address.

uvicorn's own settings bound the number of connections and the time between two requests of one; its fast parser bounds
neither the size of headers nor the time they take.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shorthash.web.limits import Settings, client_key

HEADER_BYTES = 1 << 15  # of a request's first line and headers
HEADERS = 100  # in one request
HEADER_SECONDS = 10.0  # from the connection, or from the first byte of a request, until its headers are complete
OVERHEAD = 1 << 20  # bytes of a body that are not content: sizes of chunks, trailers; besides so many per byte
PER_BYTE = 8
STATUS = {408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Service Unavailable"}


def protocol_class(settings: Settings) -> type[HttpToolsProtocol]:
    """The protocol of a server with these settings; its connections are counted together."""
    return type("CountedProtocol", (BoundedProtocol,), {"most": settings.connections, "open": Counter()})


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with bounds; a connection that breaks one gets one sentence and is closed."""

    most = 0  # connections of one address; 0: no limit
    open: ClassVar[Counter[str]] = Counter()

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
        """All headers are there."""
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
        if self._header_bytes > HEADER_BYTES or len(self.headers) >= HEADERS:
            rule = f"A request may have {HEADERS} headers of {HEADER_BYTES} bytes together; send less."
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
                head = f"HTTP/1.1 {status} {STATUS[status]}\r\ncontent-type: application/json\r\nconnection: close\r\n"
                self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            self.transport.close()
