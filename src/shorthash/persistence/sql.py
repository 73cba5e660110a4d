"""Ids and codes as SQL: a script for any database, or an SQLite file.

Both hold one table, ``items (id, code)``, with an index on the code. Codes are the packed integers; those of 64 bits
are written as signed integers with the same bits.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import PackedCodes
from shorthash.errors import DataFileError

__all__ = ["is_store", "read_database", "read_statements", "write_database", "write_statements"]

Read = tuple[PackedCodes, NDArray[Any], int | None]
"""Codes, ids, and the length of the codes where it is known."""

ROWS_AT_ONCE = 500  # rows of one INSERT; SQLite takes at most 500 by default in a compound statement
FIRST_LINE = re.compile(r"-- shorthash: codes of (\d+) bits")


def write_statements(path: Path, ids: NDArray[Any], codes: PackedCodes, n_bits: int) -> None:
    """A script that creates and fills the table in one transaction."""
    with path.open("w", encoding="utf-8", newline="") as file:  # ids keep their line ends
        file.write(f"-- shorthash: codes of {n_bits} bits\nBEGIN;\n{_table(ids, n_bits)};\n")
        for rows in _rows(ids, codes):
            values = ",\n".join(f"({_literal(i)}, {code})" for i, code in rows)
            file.write(f"INSERT INTO items (id, code) VALUES\n{values};\n")
        file.write("CREATE INDEX items_code ON items (code);\nCOMMIT;\n")


def read_statements(path: Path) -> Read:
    """Run such a script in a database in memory that allows nothing but tables and rows."""
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataFileError(
            f"{path} is not a script of export_index: it is not text in UTF-8; write it anew."
        ) from error
    told = FIRST_LINE.match(text)
    with closing(sqlite3.connect(":memory:")) as database:
        database.set_authorizer(_allow)
        try:
            database.executescript(text)
        except sqlite3.Error as error:
            raise DataFileError(f"{path} is not a script of export_index ({error}); write it anew.") from error
        database.set_authorizer(None)
        codes, ids, _ = _read(database, path)
    return codes, ids, int(told.group(1)) if told else None


def write_database(path: Path, ids: NDArray[Any], codes: PackedCodes, n_bits: int) -> None:
    """A new SQLite file; its ``user_version`` is the length of the codes. Raises OSError if it cannot be written."""
    try:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("PRAGMA journal_mode = OFF")  # a file that fails is thrown away
            database.execute(f"PRAGMA user_version = {n_bits:d}")
            database.execute(_table(ids, n_bits))
            for rows in _rows(ids, codes):
                database.executemany("INSERT INTO items (id, code) VALUES (?, ?)", rows)
            database.execute("CREATE INDEX items_code ON items (code)")
    except sqlite3.OperationalError as error:
        raise OSError(str(error)) from error


def read_database(path: Path) -> Read:
    """Ids and codes of an SQLite file with a table ``items``."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        return _read(database, path)


def is_store(path: Path) -> bool:
    """Whether a file is a database with collections of a store, or one that cannot be looked into."""
    try:  # SQLite opens the file, for closing it in another way would drop the locks of a store opened here
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            found = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'shorthash_collections'").fetchall()
    except sqlite3.DatabaseError as error:
        return getattr(error, "sqlite_errorname", "") != "SQLITE_NOTADB"
    return bool(found)


def _table(ids: NDArray[Any], n_bits: int) -> str:
    kind = "TEXT" if ids.dtype.kind == "U" else "BIGINT"
    width = "SMALLINT" if n_bits <= 15 else "INTEGER" if n_bits <= 31 else "BIGINT"
    return f"CREATE TABLE items (id {kind} PRIMARY KEY, code {width} NOT NULL)"


def _rows(ids: NDArray[Any], codes: PackedCodes) -> Iterator[list[tuple[Any, int]]]:
    signed = codes.astype(np.uint64).view(np.int64)
    for start in range(0, len(ids), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        yield list(zip(ids[part].tolist(), signed[part].tolist(), strict=True))


def _literal(value: int | str) -> str:
    """An id inside a statement."""
    if isinstance(value, int):
        return str(value)
    if "\0" in value:
        raise DataFileError(f"The id {value!r} holds a zero character, which SQL text cannot hold; rename it.")
    return "'" + value.replace("'", "''") + "'"


def _read(database: sqlite3.Connection, path: Path) -> Read:
    try:
        rows = database.execute("SELECT id, code FROM items ORDER BY rowid").fetchall()
        n_bits = int(database.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error as error:
        raise DataFileError(f"{path} has no table items with id and code ({error}); write it anew.") from error
    ids = np.array([i for i, _ in rows]) if rows else np.empty(0, dtype=np.int64)
    codes = np.array([code for _, code in rows], dtype=np.int64).view(np.uint64)
    return codes, ids, n_bits or None


def _allow(action: int, *names: str | None) -> int:
    """What a script may do: create tables and indexes, and insert rows."""
    allowed = {
        sqlite3.SQLITE_CREATE_INDEX,
        sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_REINDEX,
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_TRANSACTION,
    }
    internal = action == sqlite3.SQLITE_UPDATE and names[0] == "sqlite_master"
    return sqlite3.SQLITE_OK if action in allowed or internal else sqlite3.SQLITE_DENY
