"""Facts about collections and versions, the tables that hold them, and checksums of rows in SQLite files.

SQLite has no checksums itself, so a changed byte could be another item. The column of checksums is NULL in rows that a
version without checksums wrote.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from shorthash.errors import InvalidInput, PersistenceError

CATALOGUE = (
    """CREATE TABLE IF NOT EXISTS shorthash_collections(
        name TEXT PRIMARY KEY, current_version TEXT NOT NULL, id_kind TEXT NOT NULL, last_id BIGINT NOT NULL,
        next_place BIGINT NOT NULL, next_number INTEGER NOT NULL, next_slot BIGINT NOT NULL,
        dimension INTEGER NOT NULL, vectors_at TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS shorthash_versions(
        collection TEXT NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL, n_bits INTEGER NOT NULL,
        PRIMARY KEY (collection, name))""",
)
BATCHES = (
    "CREATE TABLE IF NOT EXISTS shorthash_batches(collection TEXT NOT NULL, name TEXT NOT NULL,"
    " PRIMARY KEY (collection, name))"
)
CRC = "crc"  # name of the column of checksums


@dataclass(frozen=True)
class Version:
    """One encoder's codes of a collection.

    Attributes
    ----------
    name : chosen by the user
    number : used in the name of the column; never used twice
    n_bits : length of its codes
    numbered : whether the column of the first version has a number, too, as older stores have it
    """

    name: str
    number: int
    n_bits: int
    numbered: bool = False

    @property
    def column(self) -> str:
        """The column of its codes."""
        return f"code_{self.number}" if self.number > 1 or self.numbered else "code"

    @property
    def posterior(self) -> str:
        """The column of the compact posteriors that its encoder gives."""
        return "posterior" if self.number == 1 else f"posterior_{self.number}"


@dataclass(frozen=True)
class CollectionInfo:
    """Facts about a collection besides its items: one row of ``shorthash_collections``, and its versions.

    Attributes
    ----------
    name : also the name of its table
    current_version : the version that is opened when none is named
    id_kind : "i" for integers, "U" for strings
    last_id : largest integer id ever used, -1 before the first
    next_place : place of the next item in insertion order; so no more items than this were ever added
    next_number : number of the next version
    next_slot : number of the next vector
    dimension : of the vectors, 0 before the first
    vectors_at : where vectors are: the side file (SQLite) or the type of the column (PostgreSQL)
    versions : by name; rows of ``shorthash_versions``
    """

    name: str
    current_version: str
    id_kind: str = "i"
    last_id: int = -1
    next_place: int = 0
    next_number: int = 1
    next_slot: int = 0
    dimension: int = 0
    vectors_at: str = ""
    versions: dict[str, Version] = field(default_factory=dict)

    def version(self, name: str) -> Version:
        """A version by name."""
        if name not in self.versions:
            known = ", ".join(repr(v) for v in self.versions)
            raise InvalidInput(f"Collection {self.name!r} has no version {name!r}; it has {known}.")
        return self.versions[name]


COLUMNS = [column.name for column in fields(CollectionInfo)][:-1]


def check_free(taken: object, name: str) -> None:
    """Raise if another program has made a table of this name."""
    if taken:
        raise PersistenceError(
            f"The database already has a table {name!r} that shorthash did not make; choose another collection=..."
        )


def row_crc(names: str, *values: Any) -> int:
    """Checksum of the columns of a row that are not NULL; ``names`` are separated by commas, in alphabetical order.

    Columns that are NULL do not count, so that a column can be added to a table. SQLite passes integers, floats, text
    and bytes, of which ``ascii`` makes the same text in every Python: decimal digits, the shortest digits that give the
    float, and escapes for all letters beyond ASCII.

    Examples
    --------
    >>> row_crc("class,id", None, 7) == row_crc("id", 7) != row_crc("id", 8)
    True
    """
    filled = [f"{head}{value!a})" for head, value in zip(_heads(names), values, strict=True) if value is not None]
    return zlib.crc32(f"[{', '.join(filled)}]".encode())  # the text of a list of names and values


@lru_cache(maxsize=256)
def _heads(names: str) -> list[str]:
    """How the pairs of names and values begin."""
    return [f"({name!a}, " for name in names.split(",")]


def crc_call(columns: Sequence[tuple[str, str]]) -> str:
    """The call of ``row_crc`` in SQL, from names and expressions of columns in alphabetical order."""
    names = ",".join(name for name, _ in columns).replace("'", "''")
    return f"row_crc('{names}', {', '.join(value for _, value in columns)})"


def vector_crc(slot: int, blob: bytes) -> int:
    """Checksum of a vector and its number."""
    return zlib.crc32(blob, slot & 0xFFFFFFFF)


def facts_crc(info: CollectionInfo) -> int:
    """Checksum of the facts about a collection."""
    versions = sorted((v.name, v.number, v.n_bits) for v in info.versions.values())
    return zlib.crc32(ascii([*(getattr(info, column) for column in COLUMNS), versions]).encode())
