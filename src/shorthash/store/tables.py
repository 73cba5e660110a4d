"""Tables of a database: facts about collections and versions, checksums of rows, metadata in separate columns.

SQLite has no checksums itself, so a changed byte could be another item. The column of checksums is NULL in rows that a
version without checksums wrote.

A store has columns for fields of the metadata if ``add_columns`` declared them; the table itself shows which. Names
become part of statements, so only names that ``FIELD`` allows are declared columns, and they are always quoted.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from shorthash.errors import DamagedFile, InvalidInput, PersistenceError, phrase

if TYPE_CHECKING:
    from shorthash.store.sql import Session

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
TYPES = {  # type -> type in SQLite, in PostgreSQL, as pandas and polars begin their names, as Arrow does
    "bool": ("BOOLEAN", "boolean", ("bool",), ("bool",)),
    "int": ("INTEGER", "bigint", ("int", "uint"), ("int", "uint")),
    "float": ("REAL", "double precision", ("float", "decimal"), ("float", "double", "halffloat", "decimal")),
    "time": ("TIMESTAMP", "timestamp without time zone", ("datetime", "date"), ("timestamp", "date")),
    "text": ("TEXT", "text", ("object", "str", "utf8", "category", "enum"), ("string", "large_string", "dictionary")),
}
FIELD = re.compile(r"[A-Za-z0-9_ -]+")
FIXED = re.compile(r"id|place|class|metadata|slot|posterior|posterior_\d+|crc|vector|code|code_\d+", re.IGNORECASE)
SPECIAL = re.compile(r"\b(CHECK|GENERATED|REFERENCES|DEFAULT|COLLATE|AS)\b", re.IGNORECASE)  # never in our schemas
LONGEST_NAME = 40
OPERATORS = ("<", "<=", ">", ">=", "!=")


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
            f"The database already has a table {name!r} that shorthash did not make; "
            f"choose another {phrase('collection=...')}"
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


# fields of the metadata in columns ------------------------------------------------------------------------------------


def frame_types(frame: Any, owner: str) -> dict[str, str]:
    """The type of every column of a data frame of pandas, polars or Arrow.

    Examples
    --------
    >>> import pandas as pd
    >>> frame_types(pd.DataFrame({"price": np.float32([1.5]), "day": pd.to_datetime(["2024-02-01"])}), "here")
    {'price': 'float', 'day': 'time'}
    """
    arrow = hasattr(frame, "to_pylist") and hasattr(frame, "schema")
    if arrow:
        found = {name: str(kind) for name, kind in zip(frame.schema.names, frame.schema.types, strict=True)}
    elif hasattr(frame, "columns") and hasattr(frame, "dtypes"):
        found = {str(name): str(kind) for name, kind in zip(frame.columns, frame.dtypes, strict=True)}
    else:
        raise InvalidInput(
            f"The 'columns' of {owner} must be a mapping from fields to types, or a data frame. Got {frame!r} instead."
        )
    types = {}
    for name, text in found.items():
        begins = [kind for kind, words in TYPES.items() if text.lower().startswith(words[3 if arrow else 2])]
        if not begins:
            raise InvalidInput(
                f"The column {name!r} has the type {text}, which {owner} cannot keep; convert it to one of "
                f"{', '.join(TYPES)}, or leave it in the metadata."
            )
        types[name] = begins[0]
    return types


def check_column(name: Any, kind: Any, owner: str, taken: Mapping[str, str]) -> None:
    """Raise unless a column may have this name and type; ``taken`` are the columns of the table."""
    if kind not in TYPES:
        raise InvalidInput(f"The type of a column of {owner} must be one of {', '.join(TYPES)}. Got {kind!r} instead.")
    fits = isinstance(name, str) and FIELD.fullmatch(name) and len(name) <= LONGEST_NAME
    if not fits or FIXED.fullmatch(name) or SPECIAL.search(name) or name.lower() in map(str.lower, taken):
        raise InvalidInput(
            f"The name of a column of {owner} must be at most {LONGEST_NAME} letters, digits, spaces, '_' and '-', and "
            f"not one that the table has or that SQL needs. Got {name!r} instead; rename the field."
        )


def declared_columns(columns: Mapping[str, str], place: int) -> dict[str, str]:
    """Which columns of a table are declared ones, and their types, from names and types in SQL.

    Parameters
    ----------
    columns : all columns of the table
    place : 0 for types of SQLite, 1 for PostgreSQL
    """
    kinds = {words[place]: kind for kind, words in TYPES.items()}
    return {
        name: kinds[text]
        for name, text in columns.items()
        if text in kinds and FIELD.fullmatch(name) and not FIXED.fullmatch(name)
    }


def quoted(name: str) -> str:
    """The name of a column in a statement."""
    return '"{}"'.format(name.replace('"', '""'))


def index_name(table: str, column: str) -> str:
    """The quoted name of the B-tree of a column; no collection can have it."""
    return quoted(f"{column} {zlib.crc32(table.encode()):08x}")


def as_cell(value: Any, kind: str, name: str, owner: str) -> Any:
    """A value as its column holds it; missing values are None, times are text in the form of ISO 8601.

    Examples
    --------
    >>> as_cell(np.float32(0.5), "float", "price", "here"), as_cell(3.0, "int", "n", "here")
    (0.5, 3)
    >>> as_cell(dt.date(2024, 2, 1), "time", "day", "here")
    '2024-02-01T00:00:00'
    """
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]")
    value = value.item() if isinstance(value, np.generic) else float(value) if isinstance(value, Decimal) else value
    missing = value is None or type(value).__name__ in ("NAType", "NaTType")
    if missing or (isinstance(value, float) and math.isnan(value)):
        return None
    cell = _CELLS[kind](value)
    if cell is None:
        raise InvalidInput(f"The column {name!r} of {owner} holds {kind}. Got {value!r} instead.")
    return cell


def _as_int(value: Any) -> int | None:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return int(value) if whole and not isinstance(value, bool) and -(2**63) <= value < 2**63 else None


def _as_float(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if number else None


def _as_bool(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _as_text(value: Any) -> str | None:
    try:
        return value if isinstance(value, str) and "\0" not in value and value.encode() is not None else None
    except UnicodeEncodeError:
        return None


def _as_time(value: Any) -> str | None:
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    if not isinstance(value, dt.datetime):
        return None
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return dt.datetime.fromisoformat(value.isoformat(timespec="microseconds")).isoformat()


_CELLS: dict[str, Callable[[Any], Any]] = {
    "int": _as_int,
    "float": _as_float,
    "bool": _as_bool,
    "text": _as_text,
    "time": _as_time,
}


def from_cell(value: Any, kind: str) -> Any:
    """A value from a database, as the metadata hold it."""
    if value is None:
        return None
    if kind == "bool" and value in (0, 1) and isinstance(value, int):
        return bool(value)
    found = _CELLS[kind](value)
    if found is None:
        raise DamagedFile(f"The store is damaged: a column of {kind} holds {value!r}; restore it from a copy.")
    return found


def split_metadata(
    records: Sequence[Any] | None, declared: Mapping[str, str], n: int, owner: str
) -> tuple[list[Any] | None, dict[str, list[Any]]]:
    """Metadata without the fields that have columns, and the values of those columns, of n items."""
    cells: dict[str, list[Any]] = {name: [None] * n for name in declared}
    if records is None or not declared:
        return records if records is None else list(records), cells
    rest: list[Any] = []
    for row, record in enumerate(records):
        if not isinstance(record, Mapping):
            rest.append(record)
            continue
        for name in declared.keys() & record.keys():
            cells[name][row] = as_cell(record[name], declared[name], name, owner)
        rest.append({name: value for name, value in record.items() if name not in declared} or None)
    return rest, cells


def compared(name: str, kind: str, given: Any, owner: str, parameter: str = "?") -> tuple[str, list[Any]]:
    """The condition that ``where`` states of a column: one value, several, or a mapping from operators to values."""
    column = quoted(name)
    if isinstance(given, Mapping):
        wrong = [sign for sign in given if sign not in OPERATORS]
        if wrong or not given:
            raise InvalidInput(f"Column {name!r} in 'where' is compared by {', '.join(OPERATORS)}. Got {wrong}.")
        limits = [as_cell(value, kind, name, owner) for value in given.values()]
        return " AND ".join(f"{column} {sign} {parameter}" for sign in given), limits
    several = isinstance(given, Collection) and not isinstance(given, str | bytes)
    cells = [as_cell(value, kind, name, owner) for value in (given if several else [given])]
    values = [cell for cell in cells if cell is not None]
    parts = [f"{column} IN ({', '.join([parameter] * len(values))})"] if values else []
    parts += [f"{column} IS NULL"] if None in cells else []
    return f"({' OR '.join(parts) or '1 = 0'})", values


def as_metadata(value: Any) -> dict[str, Any] | None:
    """The metadata of an item; PostgreSQL has decoded them already."""
    try:
        found = json.loads(value) if isinstance(value, str | bytes) else value
    except (ValueError, RecursionError):
        found = ""
    if found is not None and not isinstance(found, dict):
        raise DamagedFile("The store is damaged: the metadata of an item is not a JSON object; restore it from a copy.")
    return found


def with_columns(
    metadata: dict[str, Any] | None, cells: Sequence[Any], declared: Mapping[str, str]
) -> dict[str, Any] | None:
    """Metadata and the fields that have separate columns; missing ones are left out."""
    found = {name: from_cell(cell, declared[name]) for name, cell in zip(declared, cells, strict=True)}
    filled = {name: value for name, value in found.items() if value is not None}
    return {**(metadata or {}), **filled} if filled else metadata


def move_fields(session: Session, columns: Mapping[str, str]) -> None:
    """Write what items have in some fields into the columns of these names."""
    rows = session.run(f"SELECT id, metadata FROM {session.name} WHERE metadata IS NOT NULL")
    given = [as_metadata(row[1]) for row in rows]
    left, cells = split_metadata(given, columns, len(rows), session.owner)
    texts = [None if value is None else json.dumps(value, ensure_ascii=False) for value in left or []]
    changed = [place for place, record in enumerate(given) if columns.keys() & (record or {}).keys()]
    changes = ", ".join(f"{quoted(name)} = ?" for name in columns)
    session.connection.run_many(
        f"UPDATE {session.name} SET metadata = ?, {changes} WHERE id = ?",
        [(texts[i], *(column[i] for column in cells.values()), rows[i][0]) for i in changed],
    )
