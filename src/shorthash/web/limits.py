"""How much one client may ask for: a rate per client, and bytes per request, counted while they arrive."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

__all__ = ["Body", "RateLimit", "client_key", "too_large"]

CLIENTS = 10_000  # clients remembered; the one unseen for longest is forgotten first


class RateLimit:
    """A token bucket per client; memory is bounded.

    Parameters
    ----------
    rate : tokens per second; 0: no limit
    burst : tokens in a full bucket
    clock : what tells the time, in seconds

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
    """Who counts as one client: an IPv4 address, or a /64 network of IPv6, which is what one household has.

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


class Body:
    """The body of one request, counted as it arrives.

    Parameters
    ----------
    receive : the server's
    most : bytes allowed
    held : a list of one number: the bytes that all requests hold together
    most_held : bytes they may hold

    Attributes
    ----------
    size : bytes that have arrived
    complete : whether all have
    awaited : whether the next ones are being waited for
    """

    def __init__(self, receive: Receive, most: int, held: list[int], most_held: int) -> None:
        self._receive, self._most, self._held, self._most_held = receive, most, held, most_held
        self.size, self.complete, self.awaited = 0, False, False

    async def receive(self) -> Message:
        """The next message; 413 if the body grows too long, 503 if all bodies together do."""
        self.awaited = not self.complete
        message = await self._receive()
        self.awaited = False
        if message["type"] == "http.request":
            n = len(message.get("body", b""))
            self.size += n
            self._held[0] += n
            self.complete = not message.get("more_body", False)
            if self.size > self._most:
                raise HTTPException(413, too_large(self._most), headers={"Connection": "close"})
            if self._held[0] > self._most_held:
                raise HTTPException(
                    503, "The server is busy with large requests; try again soon.", headers={"Retry-After": "1"}
                )
        return message

    def release(self) -> None:
        """Forget the bytes."""
        self._held[0] -= self.size


def too_large(most: int) -> str:
    """What to tell about a body that is too long."""
    return f"The body of a request may have {most} bytes at most; send less at once."
