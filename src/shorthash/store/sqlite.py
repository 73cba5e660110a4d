"""A store in one SQLite file: nothing to install, several processes, safe against kill -9."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.errors import DamagedFile, ForeignFile, InvalidInput, PersistenceError, phrase
from shorthash.index.base import Probes
from shorthash.index.items import AnyIds, find_ids
from shorthash.persistence.files import ADVICE, check_arrays, read_file, write_file
from shorthash.store.base import Store
from shorthash.store.connection import SQLiteConnection
from shorthash.store.example_sql import check_name
from shorthash.store.items import Items, Scalar, as_json_list, damage_explained, probe_columns
from shorthash.store.sql import ALL, Clause, Session
from shorthash.store.tables import (
    CRC,
    SPECIAL,
    CollectionInfo,
    Version,
    check_free,
    crc_call,
    facts_crc,
    quoted,
    vector_crc,
)

PLAIN = "CREATE TABLE "  # not a virtual table
CALL = re.compile(r"(\w+)\s*\(")
CATALOGUE_TABLES = ("shorthash_collections", "shorthash_versions", "shorthash_batches")
STORED = {"int": "'integer'", "bool": "'integer'", "float": "'real'", "text": "'text'", "time": "'text'"}
VECTORS_AT_ONCE = 1024  # that are checked at a time


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
    readonly : refuse to write, and write nothing beside the file, so that it may be on a read-only or full disk

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
        readonly: bool = False,
    ) -> None:
        check_name(collection, "collection")
        name = os.fspath(path)
        if (n_bits is None or readonly) and name != ":memory:" and not Path(name).exists():
            raise PersistenceError(
                f"There is no store at {name}; check the path, or {phrase('pass n_bits=... to make one')}."
            )
        self.path = name
        super().__init__(SQLiteConnection(name, readonly=readonly), n_bits, collection, version)

    def verify(self) -> None:
        """Read everything, and raise DamagedFile unless it is as it was written: pages, B-trees, items, vectors."""
        with self._opened() as session:
            assert isinstance(session, SQLiteSession)
            found = [row[0] for row in session.run("PRAGMA integrity_check(3)")]
            if found != ["ok"]:
                raise DamagedFile(f"{self.path} is damaged: {'; '.join(found)}; restore it from a copy.")
            session.check_items()
            if session.collection.vectors_at:
                session.side_file().verify()

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
        folder = side_folder(self.path)
        file_name = SideFile.write(folder, self.collection, slots, vectors)
        with self._writing() as session:
            assert isinstance(session, SQLiteSession)
            if session.collection.vectors_at != before.vectors_at or not (folder / file_name).exists():
                raise PersistenceError("Another process has packed the vectors in the meantime; nothing was changed.")
            session.run(f"DELETE FROM {self.collection}_vectors WHERE slot < ?", [before.next_slot])
            session.save(replace(session.collection, vectors_at=file_name))
        with self._writing() as session:
            kept = {session.collection.vectors_at, before.vectors_at}
            unfinished = folder.glob(f".{self.collection}-*")
            for path in [*folder.glob(f"{self.collection}-*"), *unfinished]:
                if path.name not in kept:
                    path.unlink(missing_ok=True)


class SQLiteSession(Session):
    """A session in SQLite's dialect. Vectors are numbered (slots): in a separate table, or in a side file."""

    owner = "SQLiteStore"
    begin_writing = "BEGIN IMMEDIATE"
    vector_column = "slot"
    connection: SQLiteConnection

    def has_catalogue(self) -> bool:
        """Whether the file has collections; raises ForeignFile if shorthash did not make its tables."""
        self._check_schema()
        return bool(self.run("SELECT 1 FROM sqlite_master WHERE name = ?", [CATALOGUE_TABLES[0]]))

    def find(self) -> CollectionInfo | None:
        """The collection; None if it does not exist."""
        info = super().find()
        if info is not None and not (_is_plain(info) and all(map(_is_plain, info.versions.values()))):
            raise DamagedFile(f"{self.connection.path} is damaged: invalid facts about {self.name!r}; {ADVICE}")
        if info is not None and self.connection.has_crc(CATALOGUE_TABLES[0]):
            [(crc,)] = self.run(f"SELECT {CRC} FROM {CATALOGUE_TABLES[0]} WHERE name = ?", [self.name])
            if crc not in (None, facts_crc(info)):
                raise DamagedFile(f"{self.connection.path} is damaged: facts about {self.name!r} differ; {ADVICE}")
        return info

    def save(self, info: CollectionInfo) -> None:
        """Write new or changed facts about the collection, with their checksum."""
        super().save(info)
        if self.connection.has_crc(CATALOGUE_TABLES[0]):
            self.run(f"UPDATE {CATALOGUE_TABLES[0]} SET {CRC} = ? WHERE name = ?", [facts_crc(info), self.name])

    def _crc_sql(self, besides: Sequence[str] = ()) -> str:
        """The checksum of a row, of all columns but one."""
        rows = self.run("SELECT name FROM pragma_table_info(?) ORDER BY name", [self.name])
        return crc_call([(name, quoted(name)) for (name,) in rows if name not in (CRC, *besides)])

    def check_rows(self, condition: str = "1", values: Sequence[Any] = ()) -> None:
        """Raise DamagedFile unless the items that fulfil a condition are as they were written."""
        if self.connection.has_crc(self.name):
            sql = f"SELECT id FROM {self.name} WHERE {condition} AND {CRC} <> {self._crc_sql()} LIMIT 1"
            self._refuse("item", self.run(sql, values))

    def _refuse(self, what: str, rows: Sequence[Any]) -> None:
        for (name,) in rows:
            raise DamagedFile(f"{self.connection.path} is damaged: {what} {name!r} is not as it was written; {ADVICE}")

    def items(self, ids: AnyIds, *, vectors: bool = True) -> Items:
        """The items among ``ids`` that have a code, in any order; each is compared with its checksum."""
        self.check_rows(*self.among_ids(ids))
        return super().items(ids, vectors=vectors)

    @contextmanager
    def changing(self, among: Clause = ALL) -> Iterator[None]:
        """Change some items: each must be as it was written, and gets a new checksum."""
        self.check_rows(*among)
        yield
        self.renew_crc(*among)

    def renew_crc(self, condition: str = "1", values: Sequence[Any] = (), besides: Sequence[str] = ()) -> None:
        """Write the checksums of items that were changed, or will lose columns."""
        if self.connection.has_crc(self.name):
            crc = self._crc_sql(besides)
            self.run(f"UPDATE {self.name} SET {CRC} = {crc} WHERE {condition} AND {CRC} IS NOT NULL", values)

    def _check_schema(self) -> None:
        """Raise ForeignFile unless the tables of this collection are plain ones, with B-trees of shorthash.

        A view, a trigger or an expression in a file of unknown origin could run any code. Other tables of the
        database are not checked, since nothing reads them.
        """
        ours = (*CATALOGUE_TABLES, self.name, f"{self.name}_vectors")
        places = ", ".join("?" * len(ours))
        sql = f"SELECT type, name, sql FROM sqlite_master WHERE lower(tbl_name) IN ({places})"
        for kind, name, text in self.run(sql, [name.lower() for name in ours]):
            if not _is_ours(kind, str(text or "")):
                raise ForeignFile(
                    f"{self.connection.path} has the {kind} {name!r}, which shorthash did not make; do not use files "
                    f"of unknown origin, or choose another {phrase('collection=...')}"
                )
        self.run("PRAGMA trusted_schema = ON")  # some versions of SQLite distrust json_extract, which our B-trees use

    @property
    def distance(self) -> str:
        """The Hamming distance of an item's code from a parameter."""
        return f"hamming({self.version.column}, ?)"

    def among_codes(self, codes: Sequence[int]) -> Clause:
        """The condition that the code is one of ``codes``, which are one parameter."""
        if len(codes) == 1:
            return f"{self.version.column} = ?", list(codes)
        return f"{self.version.column} IN (SELECT value FROM json_each(?))", [as_json_list(codes)]

    def among_ids(self, ids: AnyIds) -> Clause:
        """The condition that the id is one of ``ids``, which are one parameter."""
        return "id IN (SELECT value FROM json_each(?))", [as_json_list(ids.tolist())]

    def holds(self, field: str, values: Sequence[Scalar]) -> Clause:
        """The condition that a field of the metadata, or the class, has one of ``values``."""
        parts = [_class_is(value) if field == "class" else _field_is(field, value) for value in values]
        return f"({' OR '.join(sql for sql, _ in parts) or '0'})", [v for _, given in parts for v in given]

    def probe_rows(self, probes: Probes) -> Clause:
        """A query for the rows of ``probes``, all of them in one parameter."""
        columns = ", ".join(f"json_extract(value, '$[{i}]')" for i in range(4))
        return f"SELECT {columns} FROM json_each(?)", [as_json_list(list(zip(*probe_columns(probes), strict=True)))]

    def table_columns(self) -> dict[str, str]:
        """All columns of the table, and their types."""
        return dict(self.run("SELECT name, type FROM pragma_table_info(?)", [self.name]))

    def sorted_by(self, sql: str, column: str, several: bool) -> str:
        """A query with its rows in order."""
        return f"{sql} ORDER BY {'+' if several else ''}{column}"  # with a plus the planner sorts what it found

    def read_vectors(self, values: Sequence[Any]) -> NDArray[np.float32]:
        """Vectors from slots, (n, dimension), nan where the slot is None."""
        with damage_explained("slot"):
            slots = np.array([-1 if value is None else value for value in values], dtype=np.int64)
        return self.read_slots(slots)

    def read_slots(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """Vectors by slot, (n, dimension); nan for -1."""
        vectors = np.full((len(slots), self.collection.dimension), np.nan, dtype=np.float32)
        if self.collection.vectors_at:
            self.side_file().read(slots, vectors)
        row_of = {slot: row for row, slot in enumerate(slots.tolist()) if slot >= 0 and np.isnan(vectors[row, 0])}
        if row_of:
            table = f"{self.name}_vectors"
            crc_column = CRC if self.connection.has_crc(table) else "NULL"
            sql = f"SELECT slot, vector, {crc_column} FROM {table} WHERE slot IN (SELECT value FROM json_each(?))"
            size = 4 * self.collection.dimension
            for slot, blob, crc in self.run(sql, [as_json_list(list(row_of))]):
                if not isinstance(blob, bytes) or len(blob) != size or crc not in (None, vector_crc(slot, blob)):
                    self._refuse("vector", [(slot,)])
                vectors[row_of.pop(slot)] = np.frombuffer(blob, dtype="<f4")
            self._refuse("vector", [(slot,) for slot in row_of])
        return vectors

    def side_file(self) -> SideFile:
        """The file of packed vectors."""
        name, opened = self.collection.vectors_at, self.connection.side_files
        if name not in opened:
            path = side_folder(self.connection.path) / name
            if path.name != name or path.is_symlink():
                raise DamagedFile(
                    f"{self.connection.path} refers to {name!r}, which is not one of its files of vectors."
                )
            opened[name] = SideFile(path, self.collection.dimension)
        return opened[name]

    def check_items(self) -> None:
        """Raise DamagedFile unless every row of the collection is an item."""
        kind = {"i": "integer", "U": "text"}[self.collection.id_kind]
        codes = " OR ".join(
            f"typeof({v.column}) NOT IN ('integer', 'null')"
            + (f" OR {v.column} >> {v.n_bits} <> 0" if v.n_bits < 64 else "")
            for v in self.collection.versions.values()
        )
        wrong = (
            f"typeof(id) <> '{kind}' OR typeof(place) <> 'integer' OR typeof(class) NOT IN ('integer', 'text', 'null')"
            f" OR (metadata IS NOT NULL AND NOT json_valid(metadata)) OR typeof(slot) NOT IN ('integer', 'null')"
            f" OR {codes}"
            + "".join(
                f" OR typeof({quoted(name)}) NOT IN ({STORED[kind]}, 'null')" for name, kind in self.declared().items()
            )
        )
        self._refuse("item", self.run(f"SELECT id FROM {self.name} WHERE {wrong} LIMIT 1"))
        self.check_rows()
        cursor = self.connection.raw.execute(f"SELECT slot FROM {self.name} WHERE slot IS NOT NULL")
        while block := cursor.fetchmany(VECTORS_AT_ONCE):
            self.read_vectors([slot for (slot,) in block])

    def create(self, version: Version, partitions: int) -> CollectionInfo:  # noqa: ARG002
        """Make the tables of a new collection, unless another process has made them."""
        name, known = self.name, self.find()
        if known is not None:
            return known
        check_free(self.run("SELECT 1 FROM sqlite_master WHERE name IN (?, ?)", [name, f"{name}_vectors"]), name)
        self.run(
            f"CREATE TABLE {name}(id NOT NULL PRIMARY KEY, place INTEGER NOT NULL, class, metadata TEXT, slot INTEGER,"
            f" {version.posterior} BLOB, {CRC} INTEGER, {version.column} INTEGER) WITHOUT ROWID"
        )
        self.run(f"CREATE TABLE {name}_vectors(slot INTEGER PRIMARY KEY, vector BLOB NOT NULL, {CRC} INTEGER)")
        self._create_index(version)
        return self.register(version)

    def insert(self, columns: dict[str, Iterable[Any]], vectors: NDArray[np.float32] | None, first_slot: int) -> None:
        """Write new items, and their vectors to a separate table, with checksums if the tables have them."""
        if vectors is not None:
            slots = columns["slot"] = range(first_slot, first_slot + len(vectors))
            blobs = [vector.astype("<f4").tobytes() for vector in vectors]
            given: dict[str, Iterable[Any]] = {"slot": slots, "vector": blobs}
            if self.connection.has_crc(f"{self.name}_vectors"):
                given[CRC] = map(vector_crc, slots, blobs)
            places = ", ".join("?" * len(given))
            sql = f"INSERT INTO {self.name}_vectors({', '.join(given)}) VALUES ({places})"
            self.connection.run_many(sql, zip(*given.values(), strict=True))
        values = {name: f"?{place}" for place, name in enumerate(columns, 1)}
        if self.connection.has_crc(self.name):
            values[CRC] = crc_call(sorted(values.items()))
        sql = f"INSERT INTO {self.name}({', '.join(map(quoted, values))}) VALUES ({', '.join(values.values())})"
        self.connection.run_many(sql, zip(*columns.values(), strict=True))

    def delete(self, ids: AnyIds) -> None:
        """Delete items, and vectors that are not in a side file."""
        if self.collection.dimension:
            among, values = self.among_ids(ids)
            slots = f"SELECT slot FROM {self.name} WHERE {among}"
            self.run(f"DELETE FROM {self.name}_vectors WHERE slot IN ({slots})", values)
        super().delete(ids)

    def add_version(self, version: Version) -> None:
        """Add columns for codes and posteriors, and the B-tree."""
        self.run(f"ALTER TABLE {self.name} ADD COLUMN {version.column} INTEGER")
        self.run(f"ALTER TABLE {self.name} ADD COLUMN {version.posterior} BLOB")
        self._create_index(version)

    def drop_version(self, version: Version) -> None:
        """Drop the columns and the B-tree."""
        dropped = [version.column, *([version.posterior] if self.at(version).has_posteriors() else [])]
        self.check_rows()
        self.renew_crc(besides=dropped)
        self.run(f"DROP INDEX {self.name}_{version.column}")
        for column in dropped:
            self.run(f"ALTER TABLE {self.name} DROP COLUMN {column}")

    def drop(self) -> None:
        """Delete the collection with all items."""
        super().drop()
        self.run(f"DROP TABLE {self.name}_vectors")

    def _create_index(self, version: Version) -> None:
        """The B-tree that searches probe; it holds all they read, and its rows are in bucket order."""
        name, column = self.name, version.column
        also = f", {version.posterior}" if self.at(version).has_posteriors() else ""
        self.run(f"CREATE INDEX {name}_{column} ON {name}({column}, id, class, slot{also}) WHERE {column} IS NOT NULL")


SQLiteStore._session_type = SQLiteSession


class SideFile:
    """Vectors beside a database: one memory-mapped file in bucket order, so that the vectors of a ball are together.

    A file is written completely, under a new name, before the database names it, and is never changed
    afterwards, so after a crash the old file or the new one is in use.

    Parameters
    ----------
    path : a file that ``write`` made
    dimension : of its vectors
    """

    def __init__(self, path: Path, dimension: int) -> None:
        self._path = path
        self._meta, self._arrays = read_file(path, mmap=True)
        types = {name: (array.dtype.name, array.shape) for name, array in self._arrays.items()}
        n = len(self._arrays.get("slots", ()))
        if types != {"slots": ("int64", (n,)), "rows": ("int64", (n,)), "vectors": ("float32", (n, dimension))}:
            raise DamagedFile(f"{path} is damaged: it does not hold vectors of {dimension} numbers; {ADVICE}")
        self._slots: NDArray[np.int64] = self._arrays["slots"]
        self._rows: NDArray[np.int64] = self._arrays["rows"]
        self._vectors: NDArray[np.float32] = self._arrays["vectors"]
        small = {name: self._arrays[name] for name in ("slots", "rows")}
        check_arrays(path, self._meta, small)
        if n and not (bool(np.all(np.diff(self._slots) > 0)) and np.array_equal(np.sort(self._rows), np.arange(n))):
            raise DamagedFile(f"{path} is damaged: its numbers of vectors are inconsistent; {ADVICE}")

    def verify(self) -> None:
        """Raise DamagedFile unless every vector has the checksum it was written with."""
        check_arrays(self._path, self._meta, self._arrays)

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


def side_folder(database: str) -> Path:
    """The folder of the side files of a database file."""
    return Path(f"{database}-vectors")


def _is_ours(kind: str, text: str) -> bool:
    """Whether a statement in the schema makes a plain table, or a B-tree over columns and fields of metadata."""
    rest = text.partition("(")[2]
    if kind == "table":
        return text[: len(PLAIN)].upper() == PLAIN and not SPECIAL.search(rest)
    return kind == "index" and set(CALL.findall(rest.lower())) <= {"json_extract"}


def _is_plain(facts: CollectionInfo | Version) -> bool:
    """Whether every fact has its type, so that none can be part of a statement, and lengths are possible."""
    kinds = {"str": str, "int": int}
    if any(type(getattr(facts, f.name)) is not kinds[str(f.type)] for f in fields(facts) if str(f.type) in kinds):
        return False
    if isinstance(facts, Version):
        return 1 <= facts.n_bits <= 64
    return facts.id_kind in ("i", "U") and 0 <= facts.dimension < 1 << 24 and facts.current_version in facts.versions


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
