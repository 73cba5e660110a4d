"""Checksums of the rows of a SQLite file: SQLite itself has none, so a changed byte could be another item.

The column is NULL in rows that a version without checksums wrote.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from shorthash.store.catalogue import COLUMNS, CollectionInfo

CRC = "crc"  # name of the column


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
    filled = [pair for pair in zip(names.split(","), values, strict=True) if pair[1] is not None]
    return zlib.crc32(ascii(filled).encode())


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
