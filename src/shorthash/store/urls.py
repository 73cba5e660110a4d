"""The one place where a URL becomes a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from shorthash.errors import InvalidInput
from shorthash.store.base import Store
from shorthash.store.postgres import PostgresStore
from shorthash.store.sqlite import SQLiteStore

__all__ = ["SCHEMES", "open_store"]


def open_store(url: str, n_bits: int | None = None, *, collection: str = "items", version: str | None = None) -> Store:
    """Open a store, or make one.

    Parameters
    ----------
    url : "sqlite:///file.db" (relative), "sqlite:////folder/file.db" (absolute), "sqlite://:memory:" or
        "postgresql://user:password@host/database"
    n_bits : length of the codes; needed for a new collection, checked for one that exists
    collection : name of the collection (and of its table)
    version : which codes to open; None opens the current ones, and a new collection begins with "v1"

    Examples
    --------
    >>> with open_store("sqlite://:memory:", n_bits=8) as store:
    ...     store.add([1, 2, 3, 250]).search([2], k=2).ids.tolist()
    [[1, 2]]
    """
    scheme = urlsplit(url).scheme if isinstance(url, str) else ""
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise InvalidInput(f"The URL of a store must begin with one of {known}. Got {_hidden(url)} instead.")
    return SCHEMES[scheme](url, n_bits, collection=collection, version=version)


def _sqlite(url: str, n_bits: int | None, **options: Any) -> Store:
    path = url.partition("://")[2]
    if path == ":memory:":
        return SQLiteStore(path, n_bits, **options)
    if not path.startswith("/") or len(path) < 2:
        raise InvalidInput(
            f"The URL of a SQLite store must be sqlite:///FILE, with three slashes. Got {url!r} instead."
        )
    return SQLiteStore(path[1:], n_bits, **options)


def _hidden(url: object) -> str:
    """A URL without what may be a password."""
    text = str(url)
    return repr(f"{text.partition('://')[0]}://..." if "://" in text else text)


SCHEMES: dict[str, Callable[..., Store]] = {
    "sqlite": _sqlite,
    "postgresql": PostgresStore,
    "postgres": PostgresStore,
}
"""What makes a store from a URL, by its first part."""
