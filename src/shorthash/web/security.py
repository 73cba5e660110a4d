"""Who may write, which names the server answers to, and the headers of every answer."""

from __future__ import annotations

import hmac
import ipaddress
from typing import Annotated

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from shorthash.web.settings import Settings

__all__ = ["HEADERS", "HostCheck", "Writer"]

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
REMEMBERED = 100  # Host headers

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="What `shorthash serve` was started with: `--token` or the environment variable `SHORTHASH_TOKEN`.",
)


def check_writer(request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> None:
    """Raise unless the request carries the token; all comparisons take the same time."""
    settings: Settings = request.app.state.settings
    if request.app.state.collection.readonly:
        raise HTTPException(403, "This collection is served read-only; restart the server without --readonly to write.")
    if settings.token is None:
        raise HTTPException(
            403, "Nobody may write here, since the server has no token; restart it with --token or SHORTHASH_TOKEN."
        )
    sent = "" if given is None else given.credentials
    if not hmac.compare_digest(sent.encode(), settings.token.encode()):
        what = "is wrong" if sent else "is missing"
        raise HTTPException(
            401,
            f"The token {what}; send the one the server was started with as: Authorization: Bearer TOKEN",
            headers={"WWW-Authenticate": 'Bearer realm="shorthash"'},
        )


Writer = Depends(check_writer)
"""Dependency of every route that writes."""


class HostCheck:
    """Against DNS rebinding: a page of strangers may point its own name at this server, but cannot lie about that name.

    Addresses are accepted, since no name is rebound in them; names only if they are known.

    Examples
    --------
    >>> check = HostCheck(("localhost",))
    >>> check("localhost:8000"), check("127.0.0.1"), check("[::1]:8000"), check("evil.example")
    (True, True, True, False)
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = frozenset(name.lower().rstrip(".") for name in names)
        self._known: set[str] = set()  # headers seen and accepted, a handful

    def __call__(self, header: str) -> bool:
        """Whether a Host header is one of ours."""
        if header in self._known:
            return True
        name = _without_port(header).lower().rstrip(".")
        if name not in self.names and not _is_address(name):
            return False
        if len(self._known) < REMEMBERED:
            self._known.add(header)
        return True


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _without_port(header: str) -> str:
    """The host of a Host header.

    Examples
    --------
    >>> _without_port("[::1]:80"), _without_port("a:80"), _without_port("::1")
    ('::1', 'a', '::1')
    """
    if header.startswith("["):
        return header[1:].partition("]")[0]
    name, colon, port = header.rpartition(":")
    return name if colon and ":" not in name and (port.isdecimal() or not port) else header
