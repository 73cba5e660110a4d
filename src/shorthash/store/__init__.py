"""Codes in a database: durable, shared by processes, with classes, metadata and vectors.

In: codes as an index takes them. Out: what an index gives; ``open_store`` turns a URL into a store.
"""

from shorthash.errors import InvalidInput
from shorthash.store.base import Store
from shorthash.store.items import Items
from shorthash.store.postgres import PostgresStore
from shorthash.store.sqlite import SQLiteStore

__all__ = ["Items", "PostgresStore", "SQLiteStore", "Store", "open_store"]


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
    scheme, separator, rest = str(url).partition("://")
    if scheme in ("postgresql", "postgres") and separator:
        return PostgresStore(url, n_bits, collection=collection, version=version)
    if scheme != "sqlite" or not separator:
        shown = f"{scheme}://..." if separator else str(url)  # the rest may hold a password
        raise InvalidInput(
            f"The URL of a store must begin with one of sqlite://, postgresql://, postgres://. Got {shown!r} instead."
        )
    if rest == ":memory:":
        return SQLiteStore(rest, n_bits, collection=collection, version=version)
    if not rest.startswith("/") or len(rest) < 2:
        raise InvalidInput(
            f"The URL of a SQLite store must be sqlite:///FILE, with three slashes. Got {url!r} instead."
        )
    return SQLiteStore(rest[1:], n_bits, collection=collection, version=version)
