"""A store in one SQLite file: nothing to install, several processes, safe against kill -9."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.errors import DamagedFile, ForeignFile, InvalidInput, PersistenceError
from shorthash.index.items import AnyIds, find_ids
from shorthash.persistence.files import read_file, write_file
from shorthash.store.base import Store
from shorthash.store.example_sql import check_name
from shorthash.store.items import Scalar, as_json_list
from shorthash.store.sql import CATALOGUE, Clause, CollectionInfo, Connection, Session, Version, check_free

BUSY_SECONDS = 30  # how long to wait for another process that writes
SETTINGS = (
    "journal_mode = WAL",
    "synchronous = FULL",  # what is acknowledged survives a power cut
    "cache_size = -65536",  # KiB
    "journal_size_limit = 16777216",  # the log shrinks again after a bulk load
)
OLDEST = (3, 35)  # DROP COLUMN
ALL_BITS = (1 << 64) - 1


class SQLiteStore(Store):
    """Codes and items in one SQLite file.

    Several threads and several processes may read and write; readers never wait, writers wait for each other. Every
    change is forced to disk before the call returns.

    Parameters
    ----------
    path : the file, created if it does not exist; ":memory:" for a store that is deleted when its process ends
    n_bits : length of the codes; needed for a new collection, checked for one that exists
    collection : name of the collection (and of its table)
    version : which codes to open; None opens the current ones, and a new collection begins with "v1"

    Examples
    --------
    >>> store = SQLiteStore(":memory:", n_bits=3)
    >>> store = store.add([[1, 1, 1], [1, 1, -1], [-1, -1, -1]], ids=["ape", "bee", "cat"], classes=[0, 0, 1])
    >>> store.search([[1, 1, 1]], k=2).ids.tolist()
    [['ape', 'bee']]
    >>> store.search([[1, 1, 1]], k=2, where={"class": 1}).ids.tolist()
    [['cat']]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        n_bits: int | None = None,
        *,
        collection: str = "items",
        version: str | None = None,
    ) -> None:
        check_name(collection, "collection")
        name = os.fspath(path)
        if n_bits is None and name != ":memory:" and not Path(name).exists():
            raise PersistenceError(f"There is no store at {name}; check the path, or pass n_bits=... to make one.")
        self._path = name
        super().__init__(SQLiteConnection(name), n_bits, collection, version)

    @property
    def path(self) -> str:
        """The file."""
        return self._path

    def pack_vectors(self) -> None:
        """Move vectors out of the database into one memory-mapped file, those of a bucket side by side.

        Re-ranking is then several times faster. Vectors added later are kept in the database until the next call. The
        file is in the folder FILE-vectors: copy both to move a store.
        """
        if self.path == ":memory:":
            raise InvalidInput("Vectors of a store in memory cannot be packed; give the store a file.")
        with self._reading() as session:
            assert isinstance(session, SQLiteSession)
            self._check_version(session)
            before = session.collection
            code, name = self._version.column, self.collection
            rows = session.run(f"SELECT slot FROM {name} WHERE slot IS NOT NULL ORDER BY {code} IS NULL, {code}, id")
            slots = np.array([row[0] for row in rows], dtype=np.int64)
            vectors = session.read_slots(slots)
        folder = _side_folder(self.path)
        file_name = SideFile.write(folder, self.collection, slots, vectors)
        with self._writing() as session:
            assert isinstance(session, SQLiteSession)
            if session.collection.vectors_at != before.vectors_at or not (folder / file_name).exists():
                raise PersistenceError("Another process has packed the vectors meanwhile; nothing is left to do.")
            session.run(f"DELETE FROM {self.collection}_vectors WHERE slot < ?", [before.next_slot])
            session.save(replace(session.collection, vectors_at=file_name))
        with self._writing() as session:
            kept = {session.collection.vectors_at, before.vectors_at}
            unfinished = folder.glob(f".{self.collection}-*")
            for path in [*folder.glob(f"{self.collection}-*"), *unfinished]:
                if path.name not in kept:
                    path.unlink(missing_ok=True)


class SQLiteConnection(Connection):
    """A connection to a SQLite file, and its opened side files."""

    def __init__(self, path: str) -> None:
        if sqlite3.sqlite_version_info < OLDEST:
            raise PersistenceError(f"SQLiteStore needs SQLite 3.35 or newer. Got {sqlite3.sqlite_version} instead.")
        self.path = path
        self.side_files: dict[str, SideFile] = {}
        super().__init__()
        with self.explained():
            for statement in CATALOGUE:
                self.run(statement)

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        for setting in SETTINGS:
            connection.execute(f"PRAGMA {setting}")
        connection.create_function("hamming", 2, lambda a, b: ((a ^ b) & ALL_BITS).bit_count(), deterministic=True)
        return connection

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement with ``?`` for every value, and return its rows."""
        rows: list[Any] = self.raw.execute(sql, values).fetchall()
        return rows

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for every row of values."""
        self.raw.executemany(sql, rows)

    def _in_transaction(self) -> bool:
        return bool(self.raw.in_transaction)

    def close(self) -> None:
        """Close the connection."""
        self.side_files.clear()
        super().close()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn errors of SQLite into errors of shorthash: what, where, and the way out."""
        try:
            yield
        except sqlite3.ProgrammingError as error:
            if "closed" not in str(error):
                raise
            raise InvalidInput(f"The store {self.path} is closed; open it again.") from error
        except sqlite3.DatabaseError as error:
            raise _explanation(error, self.path) from error


def _explanation(error: sqlite3.DatabaseError, path: str) -> PersistenceError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_NOTADB"):
        return ForeignFile(f"{path} is not a SQLite database, so it is not changed; choose another file.")
    if name.startswith("SQLITE_CORRUPT"):
        return DamagedFile(f"{path} is damaged: {error}; restore it from a copy, or build the store again.")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return PersistenceError(
            f"Cannot write to {path}: another process has been writing for {BUSY_SECONDS} seconds; nothing was "
            "changed, so try again."
        )
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return PersistenceError(f"Cannot write to {path}: {error}; nothing was changed; free disk space.")
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return PersistenceError(
            f"Cannot open or write {path}: {error}; nothing was changed; choose a folder that exists and that you may "
            "write to (SQLite writes beside its file, even to read)."
        )
    return PersistenceError(
        f"The store {path} failed: {error}; check that no other program changes its tables, and open it again."
    )


class SQLiteSession(Session):
    """A session in SQLite's dialect. Vectors are numbered (slots): in a table of their own, or in a side file."""

    owner = "SQLiteStore"
    begin_writing = "BEGIN IMMEDIATE"
    vector_column = "slot"
    connection: SQLiteConnection

    @property
    def distance(self) -> str:
        """The Hamming distance of an item's code from a parameter."""
        return f"hamming({self.version.column}, ?)"

    def among_codes(self, codes: Sequence[int]) -> Clause:
        """The code is one of some, all of them in one parameter."""
        if len(codes) == 1:
            return f"{self.version.column} = ?", list(codes)
        return f"{self.version.column} IN (SELECT value FROM json_each(?))", [as_json_list(codes)]

    def among_ids(self, ids: AnyIds) -> Clause:
        """The id is one of some, all of them in one parameter."""
        return "id IN (SELECT value FROM json_each(?))", [as_json_list(ids.tolist())]

    def holds(self, field: str, values: Sequence[Scalar]) -> Clause:
        """A field of the metadata, or the class, has one of some values."""
        parts = [_class_is(value) if field == "class" else _field_is(field, value) for value in values]
        return f"({' OR '.join(sql for sql, _ in parts) or '0'})", [v for _, given in parts for v in given]

    def sorted_by(self, sql: str, column: str, several: bool) -> str:
        """A query with its rows in order."""
        return f"{sql} ORDER BY {'+' if several else ''}{column}"  # with a plus the planner sorts what it found

    def read_vectors(self, values: Sequence[Any]) -> NDArray[np.float32]:
        """Vectors from slots, (n, dimension), nan where the slot is None."""
        return self.read_slots(np.array([-1 if value is None else value for value in values], dtype=np.int64))

    def read_slots(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """Vectors by slot, (n, dimension); nan for -1."""
        vectors = np.full((len(slots), self.collection.dimension), np.nan, dtype=np.float32)
        name, opened = self.collection.vectors_at, self.connection.side_files
        if name:
            if name not in opened:
                opened[name] = SideFile(_side_folder(self.connection.path) / name)
            opened[name].read(slots, vectors)
        row_of = {slot: row for row, slot in enumerate(slots.tolist()) if slot >= 0 and np.isnan(vectors[row, 0])}
        if row_of:
            sql = f"SELECT slot, vector FROM {self._name}_vectors WHERE slot IN (SELECT value FROM json_each(?))"
            for slot, blob in self.run(sql, [as_json_list(list(row_of))]):
                vectors[row_of[slot]] = np.frombuffer(blob, dtype="<f4")
        return vectors

    def create(self, version: Version) -> CollectionInfo:
        """Make the tables of a new collection, unless another process has made them."""
        name, known = self._name, self.find()
        if known is not None:
            return known
        check_free(self.run("SELECT 1 FROM sqlite_master WHERE name IN (?, ?)", [name, f"{name}_vectors"]), name)
        self.run(
            f"CREATE TABLE {name}(id NOT NULL PRIMARY KEY, place INTEGER NOT NULL, class, metadata TEXT, slot INTEGER,"
            f" {version.column} INTEGER) WITHOUT ROWID"
        )
        self.run(f"CREATE TABLE {name}_vectors(slot INTEGER PRIMARY KEY, vector BLOB NOT NULL)")
        self._create_index(version)
        return self.register(version)

    def insert(self, columns: dict[str, Iterable[Any]], vectors: NDArray[np.float32] | None, first_slot: int) -> None:
        """Write new items, and their vectors to a table of their own."""
        if vectors is not None:
            slots = columns["slot"] = range(first_slot, first_slot + len(vectors))
            blobs = (vector.astype("<f4").tobytes() for vector in vectors)
            sql = f"INSERT INTO {self._name}_vectors(slot, vector) VALUES (?, ?)"
            self.connection.run_many(sql, zip(slots, blobs, strict=True))
        places = ", ".join("?" * len(columns))
        sql = f"INSERT INTO {self._name}({', '.join(columns)}) VALUES ({places})"
        self.connection.run_many(sql, zip(*columns.values(), strict=True))

    def delete(self, ids: AnyIds) -> None:
        """Delete items, and vectors that are not in a side file."""
        if self.collection.dimension:
            among, values = self.among_ids(ids)
            slots = f"SELECT slot FROM {self._name} WHERE {among}"
            self.run(f"DELETE FROM {self._name}_vectors WHERE slot IN ({slots})", values)
        super().delete(ids)

    def add_version(self, version: Version) -> None:
        """Add a column and its B-tree."""
        self.run(f"ALTER TABLE {self._name} ADD COLUMN {version.column} INTEGER")
        self._create_index(version)

    def drop_version(self, version: Version) -> None:
        """Drop a column and its B-tree."""
        self.run(f"DROP INDEX {self._name}_{version.column}")
        self.run(f"ALTER TABLE {self._name} DROP COLUMN {version.column}")

    def drop(self) -> None:
        """Delete the collection with all items."""
        super().drop()
        self.run(f"DROP TABLE {self._name}_vectors")

    def _create_index(self, version: Version) -> None:
        """The B-tree that searches probe; it holds all they read, and its rows are in bucket order."""
        name, column = self._name, version.column
        self.run(f"CREATE INDEX {name}_{column} ON {name}({column}, id, class, slot) WHERE {column} IS NOT NULL")


SQLiteStore._session_type = SQLiteSession


def _class_is(value: Scalar) -> Clause:
    if value is None:
        return "class IS NULL", []
    return ("0", []) if isinstance(value, bool) else ("class = ?", [value])


def _field_is(field: str, value: Scalar) -> Clause:
    """Equality as in JSON: true is not 1, and "1" is not 1."""
    path = f'$."{field}"'
    if value is None or isinstance(value, bool):
        return "json_type(metadata, ?) = ?", [path, json.dumps(value)]
    kinds = "('text')" if isinstance(value, str) else "('integer', 'real')"
    return f"(json_type(metadata, ?) IN {kinds} AND json_extract(metadata, ?) = ?)", [path, path, value]


class SideFile:
    """Vectors beside a database: one memory-mapped file in bucket order, so that the vectors of a ball are together.

    A file is written completely, under a name of its own, before the database names it, and is never changed
    afterwards, so after a crash the old file or the new one is in use.

    Parameters
    ----------
    path : a file that ``write`` made
    """

    def __init__(self, path: Path) -> None:
        _, arrays = read_file(path, mmap=True)
        self._slots: NDArray[np.int64] = arrays["slots"]
        self._rows: NDArray[np.int64] = arrays["rows"]
        self._vectors: NDArray[np.float32] = arrays["vectors"]

    def read(self, slots: NDArray[np.int64], into: NDArray[np.float32]) -> None:
        """Copy the vectors of this file into their rows of ``into``."""
        place = find_ids(slots, self._slots, None)
        found = np.flatnonzero(place >= 0)
        into[found] = self._vectors[self._rows[place[found]]]

    @staticmethod
    def write(folder: Path, collection: str, slots: NDArray[np.int64], vectors: NDArray[np.float32]) -> str:
        """Write vectors in the order given, and return the name of the file."""
        name = f"{collection}-{secrets.token_hex(8)}.safetensors"
        order = np.argsort(slots, kind="stable")
        arrays: dict[str, NDArray[Any]] = {
            "slots": slots[order],
            "rows": order.astype(np.int64),
            "vectors": np.ascontiguousarray(vectors),
        }
        write_file(folder / name, {"kind": "vectors"}, arrays)
        return name


def _side_folder(database: str) -> Path:
    """The folder of the side files of a database file."""
    return Path(f"{database}-vectors")
