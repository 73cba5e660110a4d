"""SQLite's dialect of a session."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.errors import PersistenceError
from shorthash.index.items import AnyIds
from shorthash.store.conditions import Scalar
from shorthash.store.items import Rows
from shorthash.store.session import Collection, Hit, Version
from shorthash.store.side_file import SideFile, side_folder
from shorthash.store.sql import Clause, SQLSession, as_json_list, create_collection
from shorthash.store.sqlite_connection import Handle, Run

__all__ = ["SQLiteSession", "create_tables"]


class SQLiteSession(SQLSession):
    """A session in SQLite's dialect."""

    max_values = 30_000
    extra = {"insertion": "place", "vectors": "slot"}  # noqa: RUF012

    def __init__(self, name: str, run: Run, handle: Handle) -> None:
        super().__init__(name)
        self._run, self._handle = run, handle

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement and return its rows."""
        return self._run(sql, values)

    def stream(self, sql: str, values: Sequence[Any], size: int) -> Iterator[list[Any]]:
        """Run a query and return its rows in blocks."""
        cursor = self._run.connection.execute(sql, values)
        while block := cursor.fetchmany(size):
            yield block

    def many(self, sql: str, rows: Any) -> None:
        """Run a statement once per row."""
        self._run.connection.executemany(sql, rows)

    def among_codes(self, column: str, codes: Sequence[int]) -> Clause:
        """The column holds one of some codes."""
        if len(codes) == 1:
            return f"{column} = ?", list(codes)
        return f"{column} IN ({','.join('?' * len(codes))})", list(codes)

    def among_ids(self, ids: Sequence[Any]) -> Clause:
        """The id is one of some, all of them in one parameter."""
        return "id IN (SELECT value FROM json_each(?))", [as_json_list(ids)]

    def holds(self, field: str, values: Sequence[Scalar]) -> Clause:
        """A field of the metadata, or the class, has one of some values."""
        either = _class_is if field == "class" else _field_is
        parts = [either(field, value) for value in values]
        return f"({' OR '.join(sql for sql, _ in parts) or '0'})", [v for _, given in parts for v in given]

    def sorted_by(self, sql: str, column: str, several: bool) -> str:
        """A query with its rows in order."""
        return f"{sql} ORDER BY {'+' if several else ''}{column}"  # with a plus the planner sorts what it found

    def details(self, rows: Sequence[Any]) -> tuple[list[Any], list[Any], NDArray[np.float32] | None]:
        """Classes, metadata and vectors from rows."""
        metadata = [None if row[3] is None else json.loads(row[3]) for row in rows]
        vectors = None
        if self.collection.dimension:
            vectors = self.read_vectors(_slots([row[4] for row in rows]))
        return [row[2] for row in rows], metadata, vectors

    def vectors_of(self, hits: Sequence[Hit]) -> NDArray[np.float32]:
        """Vectors of items, nan in rows without one."""
        return self.read_vectors(_slots([hit[2] for hit in hits]))

    def insert(self, rows: Rows, first_place: int, first_slot: int) -> None:
        """Write new items, and their vectors beside them."""
        columns = [self.collection.versions[name].column for name in rows.codes]
        slots: Any = itertools.repeat(None) if rows.vectors is None else itertools.count(first_slot)
        sql = (
            f"INSERT INTO {self._name}(id, place, class, metadata, slot, {', '.join(columns)})"
            f" VALUES ({', '.join('?' * (5 + len(columns)))})"
        )
        places = itertools.count(first_place)
        self.many(sql, zip(rows.ids, places, rows.classes, rows.metadata, slots, *rows.codes.values(), strict=False))
        if rows.vectors is not None:
            sql = f"INSERT INTO {self._name}_vectors(slot, vector) VALUES (?, ?)"
            self.many(sql, ((first_slot + i, _blob(vector)) for i, vector in enumerate(rows.vectors)))

    def delete(self, ids: AnyIds) -> None:
        """Delete items, and vectors that are not in a side file."""
        if self.collection.dimension and len(ids):
            among, values = self.among_ids(ids.tolist())
            slots = f"SELECT slot FROM {self._name} WHERE {among}"
            self.run(f"DELETE FROM {self._name}_vectors WHERE slot IN ({slots})", values)
        super().delete(ids)

    def recode(self, version: Version, ids: Sequence[Any], codes: Sequence[int], first_place: int) -> None:
        """Give items new codes and places; their codes in other versions are forgotten."""
        others = [v.column for v in self.collection.versions.values() if v != version]
        forgotten = "".join(f", {column} = NULL" for column in others)
        sql = f"UPDATE {self._name} SET {version.column} = ?, place = ?{forgotten} WHERE id = ?"
        self.many(sql, zip(codes, itertools.count(first_place), ids, strict=False))

    def fill(self, target: Version, ids: Sequence[Any], places: Sequence[int], codes: Sequence[int]) -> None:
        """Write codes of items that are still at their place and still have none."""
        column = target.column
        sql = f"UPDATE {self._name} SET {column} = ? WHERE id = ? AND place = ? AND {column} IS NULL"
        self.many(sql, zip(codes, ids, places, strict=True))

    def set_id_kind(self, kind: str) -> None:
        """Nothing to do: a column of SQLite holds both kinds."""

    def set_dimension(self, dimension: int) -> None:
        """Nothing to do: vectors have a table of their own."""

    def add_version(self, version: Version) -> None:
        """Add a column and its B-tree."""
        self.run(f"ALTER TABLE {self._name} ADD COLUMN {version.column} INTEGER")
        _create_index(self._run, self._name, version)

    def drop_version(self, version: Version) -> None:
        """Drop a column and its B-tree."""
        self.run(f"DROP INDEX {self._name}_{version.column}")
        self.run(f"ALTER TABLE {self._name} DROP COLUMN {version.column}")

    def drop(self) -> None:
        """Delete the collection with all items."""
        super().drop()
        self.run(f"DROP TABLE {self._name}_vectors")

    def slots_in_bucket_order(self, version: Version) -> NDArray[np.int64]:
        """Numbers of all vectors; those of a bucket together, items without a code last."""
        column = version.column
        rows = self.run(f"SELECT slot FROM {self._name} WHERE slot IS NOT NULL ORDER BY {column} IS NULL, {column}, id")
        return np.array([row[0] for row in rows], dtype=np.int64)

    def read_vectors(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """Vectors by number, (n, dimension); nan for -1."""
        vectors = np.full((len(slots), self.collection.dimension), np.nan, dtype=np.float32)
        side_file = self._side_file()
        if side_file is not None:
            side_file.read(slots, vectors)
        row_of = {slot: row for row, slot in enumerate(slots.tolist()) if slot >= 0 and np.isnan(vectors[row, 0])}
        if row_of:
            sql = f"SELECT slot, vector FROM {self._name}_vectors WHERE slot IN (SELECT value FROM json_each(?))"
            for slot, blob in self.run(sql, [as_json_list(list(row_of))]):
                vectors[row_of[slot]] = np.frombuffer(blob, dtype="<f4")
        return vectors

    def forget_vectors(self, before: int) -> None:
        """Delete vectors that are in a side file now."""
        self.run(f"DELETE FROM {self._name}_vectors WHERE slot < ?", [before])

    def _side_file(self) -> SideFile | None:
        name, opened = self.collection.vectors_at, self._handle.side_files
        if not name:
            return None
        if name not in opened:
            opened[name] = SideFile(side_folder(self._handle.path) / name)
        return opened[name]


def create_tables(run: Run, name: str, version: Version) -> Collection:
    """Make the tables of a new collection."""
    if run("SELECT 1 FROM sqlite_master WHERE name IN (?, ?)", [name, f"{name}_vectors"]):
        raise PersistenceError(
            f"The database already has a table {name!r} that shorthash did not make; choose another collection=..."
        )
    run(
        f"CREATE TABLE {name}(id NOT NULL PRIMARY KEY, place INTEGER NOT NULL, class, metadata TEXT, slot INTEGER,"
        f" {version.column} INTEGER) WITHOUT ROWID"
    )
    run(f"CREATE TABLE {name}_vectors(slot INTEGER PRIMARY KEY, vector BLOB NOT NULL)")
    _create_index(run, name, version)
    return create_collection(run, name, version)


def _create_index(run: Run, name: str, version: Version) -> None:
    """The B-tree that searches probe; it holds all they read, and its rows are in bucket order."""
    column = version.column
    run(f"CREATE INDEX {name}_{column} ON {name}({column}, id, class, slot) WHERE {column} IS NOT NULL")


def _slots(values: Sequence[int | None]) -> NDArray[np.int64]:
    return np.array([-1 if value is None else value for value in values], dtype=np.int64)


def _blob(vector: NDArray[np.float32]) -> bytes:
    return vector.astype("<f4").tobytes()


def _class_is(_: str, value: Scalar) -> Clause:
    if value is None:
        return "class IS NULL", []
    return ("0", []) if isinstance(value, bool) else ("class = ?", [value])


def _field_is(field: str, value: Scalar) -> Clause:
    """Equality as JSON understands it: true is not 1, and "1" is not 1."""
    path = f'$."{field}"'
    if value is None or isinstance(value, bool):
        return "json_type(metadata, ?) = ?", [path, json.dumps(value)]
    kinds = "('text')" if isinstance(value, str) else "('integer', 'real')"
    return f"(json_type(metadata, ?) IN {kinds} AND json_extract(metadata, ?) = ?)", [path, path, value]
