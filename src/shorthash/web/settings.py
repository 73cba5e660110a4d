"""Settings of a server: the token of writers, the host names it answers to, and limits."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field

from shorthash._validation import check_count, check_weight
from shorthash.errors import InvalidInput

__all__ = ["LOOPBACK", "MIB", "Settings", "is_loopback"]

MIB = 1 << 20
LOOPBACK = ("localhost",)


@dataclass(frozen=True)
class Settings:
    """Limits of a server.

    Attributes
    ----------
    token : what writers must send as ``Authorization: Bearer TOKEN``; None: nobody can write
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
    remembered : bytes of answers that are cached until the next write; 0: none
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
    remembered: int = 64 * MIB
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)

    def __post_init__(self) -> None:
        for name in ("max_body", "max_pixels", "max_images", "max_items", "max_k", "max_rerank", "threads"):
            check_count(getattr(self, name), name, "Settings")
        check_count(self.remembered, "remembered", "Settings", low=0)
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
