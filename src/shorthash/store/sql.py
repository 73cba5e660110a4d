"""What SQLite and PostgreSQL share: connections, the tables of a collection, and search ring by ring.

::

    items(id, place, class, metadata, ..., code_1, code_2, ...)      one row per item, primary key id
    items_code_1 ON items(code_1, id, ...)                           what a search probes; nothing else is read
    shorthash_collections, shorthash_versions                        facts about collections and versions

A search looks up the code itself, then the codes at distance 1, then 2, until it has enough items. A ring is probed as
long as it has no more codes than the collection may have items; from there on one scan of all items is cheaper, and
answers for all larger distances at once.

Values are always passed as parameters. Names of tables come from the name of the collection, checked by ``check_name``.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.codes import ball_size, ring_masks
from shorthash.errors import InvalidInput, PersistenceError
from shorthash.index.items import AnyIds, shuffle_keys
from shorthash.store.items import Allowed, Items, Rows, Scalar, as_ids_array, from_signed, to_signed

__all__ = [
    "CATALOGUE",
    "ORDERS",
    "Clause",
    "CollectionInfo",
    "Connection",
    "Row",
    "Session",
    "Version",
    "as_json_list",
    "ball_codes",
    "check_free",
    "distances_of",
]

Clause = tuple[str, list[Any]]
"""A condition and its parameters."""

Row = tuple[Any, ...]
"""Id and signed code of an item, and the value of one more column where that was asked for."""

CATALOGUE = (
    """CREATE TABLE IF NOT EXISTS shorthash_collections(
        name TEXT PRIMARY KEY, current_version TEXT NOT NULL, id_kind TEXT NOT NULL, last_id BIGINT NOT NULL,
        next_place BIGINT NOT NULL, next_number INTEGER NOT NULL, next_slot BIGINT NOT NULL,
        dimension INTEGER NOT NULL, vectors_at TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS shorthash_versions(
        collection TEXT NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL, n_bits INTEGER NOT NULL,
        PRIMARY KEY (collection, name))""",
)
COLUMNS = (
    "current_version",
    "id_kind",
    "last_id",
    "next_place",
    "next_number",
    "next_slot",
    "dimension",
    "vectors_at",
)
ORDERS = {"id": "id", "insertion": "place"}  # columns that an order of ties sorts by
ALWAYS_PROBED = 512  # codes that are cheap to probe however few items there are
NEVER_PROBED = 100_000  # codes that are too many for a statement however many items there are


@dataclass(frozen=True)
class Version:
    """One encoder's codes of a collection.

    Attributes
    ----------
    name : chosen by the user
    number : used in the name of the column; never used twice
    n_bits : length of its codes
    """

    name: str
    number: int
    n_bits: int

    @property
    def column(self) -> str:
        """The column of its codes."""
        return f"code_{self.number}"


@dataclass(frozen=True)
class CollectionInfo:
    """Facts about a collection besides its items: one row of ``shorthash_collections``, and its versions.

    Attributes
    ----------
    name : also the name of its table
    current : the version that is opened when none is named
    id_kind : "i" for integers, "U" for strings
    last_id : largest integer id ever used, -1 before the first
    next_place : place of the next item in insertion order; so no more items than this were ever added
    next_number : number of the next version
    next_slot : number of the next vector
    dimension : of the vectors, 0 before the first
    vectors_at : where vectors are: the side file (SQLite) or the type of the column (PostgreSQL)
    versions : by name
    """

    name: str
    current: str
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


class Connection(ABC):
    """A connection to a database and its lock; a forked process gets a connection of its own."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._inherited: list[Any] = []
        with self.explained():
            self._connect()

    @abstractmethod
    def _open(self) -> Any:
        """A new connection of the database library."""

    @abstractmethod
    def explained(self) -> AbstractContextManager[None]:
        """Turn errors of the database into errors of shorthash."""

    @abstractmethod
    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement with ``?`` for every value, and return its rows."""

    @abstractmethod
    def _in_transaction(self) -> bool: ...

    def _connect(self) -> None:
        self.raw = self._open()
        self._process = os.getpid()
        weakref.finalize(self, _close_in, self._process, self.raw)

    def close(self) -> None:
        """Close the connection."""
        with self.lock:
            self.raw.close()

    @contextmanager
    def statements(self) -> Iterator[Callable[..., list[Any]]]:
        """The function ``run``, for statements that are transactions of their own."""
        with self.lock, self.explained():
            if self._process != os.getpid():
                self._inherited.append(self.raw)  # closing it here would disturb the parent
                self._connect()
            yield self.run

    @contextmanager
    def transaction(self, begin: str) -> Iterator[None]:
        """A transaction; everything in it is undone if it raises."""
        with self.statements():
            self.run(begin)
            try:
                yield
                self.run("COMMIT")
            finally:
                if self._in_transaction():
                    self.run("ROLLBACK")


def _close_in(process: int, connection: Any) -> None:
    """Close a connection in the process that opened it, not in a fork."""
    if os.getpid() == process:
        connection.close()


class Session(ABC):
    """One transaction, or one snapshot, of one collection; subclasses hold what their SQL dialect does differently.

    Everything a session reads belongs to one state of the database, and everything it writes is committed when it ends
    without an error, or not at all.
    """

    begin_reading = begin_writing = "BEGIN"
    locking = ""  # appended to a SELECT to keep other writers out
    max_values = 1 << 30  # how many values a statement may compare a column with

    def __init__(self, name: str, connection: Connection, *, writing: bool = False) -> None:
        self.connection = connection
        self.run = connection.run
        self._name, self._writing = name, writing
        self._known: CollectionInfo | None = None

    @property
    @abstractmethod
    def vector_column(self) -> str:
        """The column that holds the vector, or leads to it."""

    @abstractmethod
    def read_vectors(self, values: Sequence[Any]) -> NDArray[np.float32]:
        """Vectors from values of ``vector_column``, (n, dimension), nan in rows without one."""

    @abstractmethod
    def as_metadata(self, value: Any) -> dict[str, Any] | None:
        """Metadata from a value of their column."""

    @abstractmethod
    def scan(
        self,
        version: Version,
        query: int,
        reach: range,
        allowed: Allowed,
        order: str = "",
        limit: int | None = None,
        column: str = "",
    ) -> list[Row]:
        """Items whose distance from ``query`` lies in ``reach``, not sorted.

        The nearest ``limit`` are enough, and of equally near items the first by the column ``order``.
        """

    def stream(self, sql: str, values: Sequence[Any], size: int) -> Iterator[list[Any]]:  # noqa: ARG002
        """Run a query and return its rows in blocks of about this size."""
        yield self.run(sql, values)

    @abstractmethod
    def among_codes(self, column: str, codes: Sequence[int]) -> Clause:
        """The column holds one of some codes."""

    @abstractmethod
    def among_ids(self, ids: Sequence[Any]) -> Clause:
        """The id is one of some."""

    @abstractmethod
    def holds(self, field: str, values: Sequence[Scalar]) -> Clause:
        """A field of the metadata, or the class, has one of some values."""

    @abstractmethod
    def sorted_by(self, sql: str, column: str, several: bool) -> str:
        """A query with its rows in order; if ``several`` codes are probed, the B-tree does not give that order."""

    @abstractmethod
    def create(self, version: Version) -> CollectionInfo:
        """Make the tables of a new collection, unless another process was faster."""

    @abstractmethod
    def insert(self, rows: Rows, first_place: int, first_slot: int) -> None:
        """Write new items."""

    @abstractmethod
    def recode(self, version: Version, ids: Sequence[Any], codes: Sequence[int], first_place: int) -> None:
        """Give items new codes and places; their codes in other versions are deleted."""

    @abstractmethod
    def fill(self, target: Version, ids: Sequence[Any], places: Sequence[int], codes: Sequence[int]) -> None:
        """Write codes of items that are still at their place and still have none."""

    @abstractmethod
    def set_id_kind(self, kind: str) -> None:
        """Prepare for ids of another kind; the collection is empty."""

    @abstractmethod
    def set_dimension(self, dimension: int) -> None:
        """Prepare for vectors; there are none yet."""

    @abstractmethod
    def add_version(self, version: Version) -> None:
        """Add a column for the codes of a version."""

    @abstractmethod
    def drop_version(self, version: Version) -> None:
        """Drop the codes of a version."""

    # facts about the collection

    @property
    def collection(self) -> CollectionInfo:
        """The collection as this session sees it."""
        if self._known is None:
            self._known = self.find()
            if self._known is None:
                raise InvalidInput(f"There is no collection {self._name!r} any more; another process dropped it.")
        return self._known

    def has_catalogue(self) -> bool:
        """Whether the database has the tables of facts about collections."""
        return True

    def find(self) -> CollectionInfo | None:
        """The collection; None if it does not exist."""
        locking = self.locking if self._writing else ""
        rows = self.run(f"SELECT {', '.join(COLUMNS)} FROM shorthash_collections WHERE name = ?{locking}", [self._name])
        if not rows:
            return None
        sql = "SELECT name, number, n_bits FROM shorthash_versions WHERE collection = ? ORDER BY number"
        versions = {row[0]: Version(*row) for row in self.run(sql, [self._name])}
        return replace(CollectionInfo(self._name, *rows[0]), versions=versions)

    def register(self, version: Version) -> CollectionInfo:
        """Write the facts about a new collection with one version."""
        info = CollectionInfo(self._name, version.name, next_number=version.number + 1)
        places = ", ".join("?" * (1 + len(COLUMNS)))
        self.run(
            f"INSERT INTO shorthash_collections(name, {', '.join(COLUMNS)}) VALUES ({places})",
            [self._name, *_column_values(info)],
        )
        self._known = info
        self.save(replace(info, versions={version.name: version}))
        return self.collection

    def save(self, info: CollectionInfo) -> None:
        """Write changed facts about the collection."""
        before, after = self.collection.versions, info.versions
        settings = ", ".join(f"{column} = ?" for column in COLUMNS)
        self.run(f"UPDATE shorthash_collections SET {settings} WHERE name = ?", [*_column_values(info), self._name])
        for name in before.keys() - after.keys():
            self.run("DELETE FROM shorthash_versions WHERE collection = ? AND name = ?", [self._name, name])
        for name in after.keys() - before.keys():
            self.run(
                "INSERT INTO shorthash_versions(collection, name, number, n_bits) VALUES (?, ?, ?, ?)",
                [self._name, name, after[name].number, after[name].n_bits],
            )
        self._known = info

    def drop(self) -> None:
        """Delete the collection with all items."""
        self.run(f"DROP TABLE {self._name}")
        self.run("DELETE FROM shorthash_versions WHERE collection = ?", [self._name])
        self.run("DELETE FROM shorthash_collections WHERE name = ?", [self._name])

    # items

    def is_empty(self) -> bool:
        """Whether the collection has no item in any version."""
        return not self.run(f"SELECT 1 FROM {self._name} LIMIT 1")

    def known(self, ids: AnyIds) -> list[Any]:
        """Those of ``ids`` that are in the collection, in any version; the kind of the ids fits."""
        among, values = self.among_ids(ids.tolist())
        return [item for (item,) in self.run(f"SELECT id FROM {self._name} WHERE {among}", values)]

    def listing(self, version: Version) -> tuple[AnyIds, NDArray[Any]]:
        """Ids and packed codes of all items of a version in insertion order."""
        column = version.column
        rows = self.run(f"SELECT id, {column} FROM {self._name} WHERE {column} IS NOT NULL ORDER BY place")
        ids = as_ids_array([row[0] for row in rows], self.collection.id_kind)
        return ids, from_signed([row[1] for row in rows], version.n_bits)

    def items(self, version: Version, ids: AnyIds) -> Items:
        """Those of some items that have a code in ``version``, in any order."""
        among, values = self.among_ids(ids.tolist())
        column = version.column
        rows = self.run(
            f"SELECT id, {column}, class, metadata, {self.vector_column} FROM {self._name}"
            f" WHERE {among} AND {column} IS NOT NULL",
            values,
        )
        return Items(
            as_ids_array([row[0] for row in rows], self.collection.id_kind),
            from_signed([row[1] for row in rows], version.n_bits),
            [row[2] for row in rows],
            [self.as_metadata(row[3]) for row in rows],
            self.read_vectors([row[4] for row in rows]) if self.collection.dimension else None,
        )

    def lacking(self, version: Version, target: Version, after: Any, limit: int) -> list[Any]:
        """(id, place) of items of ``version`` without a code in ``target``, by id, beyond the id ``after``."""
        beyond = "" if after is None else " AND id > ?"
        return self.run(
            f"SELECT id, place FROM {self._name} WHERE {version.column} IS NOT NULL AND {target.column} IS NULL{beyond}"
            " ORDER BY id LIMIT ?",
            [limit] if after is None else [after, limit],
        )

    def n_lacking(self, target: Version) -> int:
        """How many items have no code in ``target``."""
        return int(self.run(f"SELECT count(*) FROM {self._name} WHERE {target.column} IS NULL")[0][0])

    def delete(self, ids: AnyIds) -> None:
        """Delete items."""
        if len(ids):
            among, values = self.among_ids(ids.tolist())
            self.run(f"DELETE FROM {self._name} WHERE {among}", values)

    # search

    def nearest(
        self, version: Version, query: int, k: int, ties: str, seed: int, allowed: Allowed
    ) -> tuple[list[Any], list[int]]:
        """Ids and distances of the k nearest items, or of all if there are fewer."""
        ids: list[Any] = []
        distances: list[int] = []
        for distance, rows in self.rings(version, query, ties, seed, allowed, k):
            taken = [row[0] for row in rows[: k - len(ids)]]
            ids += taken
            distances += [distance] * len(taken)
            if len(ids) == k:
                break
        return ids, distances

    def rings(
        self, version: Version, query: int, ties: str, seed: int, allowed: Allowed, k: int | None, column: str = ""
    ) -> Iterator[tuple[int, list[Row]]]:
        """(distance, rows) by increasing distance, only distances that occur, until there are k rows.

        With ``ties`` "id", "insertion" or "any" the last rings may be cut after k rows; other rings are complete.
        ``column`` is read besides id and code.
        """
        order, left = ORDERS.get(ties, ""), k
        column = column or (order if order == "place" else "")
        for distance in range(version.n_bits + 1):
            limit = left if ties in (*ORDERS, "any") else None
            if not self._few(comb(version.n_bits, distance)):
                rows = self.scan(version, query, range(distance, version.n_bits + 1), allowed, order, limit, column)
                distances = distances_of(rows, query)
                for d in np.unique(distances).tolist():
                    ring = [rows[i] for i in np.flatnonzero(distances == d)]
                    yield d, _in_order(ring, ties, seed)
                    left = None if left is None else left - len(ring)
                    if left is not None and left <= 0:
                        return
                return
            rows = self.probe(
                version, (_ring(version.n_bits, distance) ^ query).tolist(), allowed, order, limit, column
            )
            if rows:
                yield distance, _in_order(rows, ties, seed)
            if left is not None:
                left -= len(rows)
                if left <= 0:
                    return

    def ball(self, version: Version, query: int, radius: int, allowed: Allowed, column: str = "") -> list[Row]:
        """All items within ``radius``, in any order; ``column`` is read besides id and code."""
        if not self.worth_probing(version, radius):
            return self.scan(version, query, range(radius + 1), allowed, column=column)
        return self.probe(version, ball_codes(version.n_bits, radius, query), allowed, column=column)

    def n_within(self, version: Version, query: int, radius: int, allowed: Allowed) -> int:
        """How many items lie within ``radius``."""
        if radius >= version.n_bits:
            return self.count(version, None, allowed)
        if not self.worth_probing(version, radius):
            return len(self.scan(version, query, range(radius + 1), allowed))
        return self.count(version, ball_codes(version.n_bits, radius, query), allowed)

    def worth_probing(self, version: Version, radius: int) -> bool:
        """Whether to probe the codes within ``radius`` rather than scan all items."""
        return self._few(ball_size(version.n_bits, radius))

    def _few(self, n_codes: int) -> bool:
        return n_codes <= ALWAYS_PROBED or (n_codes <= NEVER_PROBED and n_codes <= self.collection.next_place)

    def probe(
        self,
        version: Version,
        codes: Sequence[int],
        allowed: Allowed,
        order: str = "",
        limit: int | None = None,
        column: str = "",
    ) -> list[Row]:
        """Items whose code is one of ``codes``; with a ``limit``, the first of them by the column ``order``."""
        rows: list[Row] = []
        for start in range(0, len(codes), self.max_values):
            part = codes[start : start + self.max_values]
            sql, values = self._select(version, [self.among_codes(version.column, part)], allowed, column)
            if limit is not None:
                sql = self.sorted_by(sql, order, len(part) > 1) if order else sql
                sql, values = f"{sql} LIMIT ?", [*values, limit]
            rows += self.run(sql, values)
        if limit is not None and order and len(codes) > self.max_values:
            rows.sort(key=lambda row: row[0] if order == "id" else row[2])
        return rows[:limit]

    def count(self, version: Version, codes: Sequence[int] | None, allowed: Allowed) -> int:
        """How many items have one of ``codes``; None counts all items of the version."""
        clauses: list[Clause] = [(f"{version.column} IS NOT NULL", [])]
        if codes is not None:
            step = self.max_values
            clauses = [self.among_codes(version.column, codes[i : i + step]) for i in range(0, len(codes), step)]
        total = 0
        for clause in clauses:
            condition, values = self._conditions([clause], allowed)
            total += int(self.run(f"SELECT count(*) FROM {self._name} WHERE {condition}", values)[0][0])
        return total

    def _select(self, version: Version, clauses: list[Clause], allowed: Allowed, column: str) -> Clause:
        """A query for id, code and another column of items that fulfil all conditions."""
        columns = ", ".join(["id", version.column, *([column] if column else [])])
        condition, values = self._conditions(clauses, allowed)
        return f"SELECT {columns} FROM {self._name} WHERE {condition}", values

    def _conditions(self, clauses: list[Clause], allowed: Allowed) -> Clause:
        parts = list(clauses)
        if allowed.ids is not None:
            parts.append(self.among_ids(allowed.ids.tolist()))
        parts += [self.holds(field, values) for field, values in allowed.fields]
        if allowed.lacking:
            parts.append((f"{allowed.lacking} IS NULL", []))
        return " AND ".join(sql for sql, _ in parts), [value for _, values in parts for value in values]


def _column_values(info: CollectionInfo) -> list[Any]:
    """The facts in the order of COLUMNS."""
    return [info.current, *(getattr(info, column) for column in COLUMNS[1:])]


def distances_of(rows: Sequence[Row], query: int) -> NDArray[np.uint8]:
    """Distance of every item from a signed query."""
    codes = np.fromiter((row[1] for row in rows), dtype=np.int64, count=len(rows))
    distances: NDArray[np.uint8] = np.bitwise_count((codes ^ query).view(np.uint64))
    return distances


def ball_codes(n_bits: int, radius: int, query: int) -> list[int]:
    """The signed codes within ``radius`` of a signed code, nearest first."""
    codes = np.concatenate([_ring(n_bits, t) for t in range(min(radius, n_bits) + 1)]) ^ query
    signed: list[int] = codes.tolist()
    return signed


@lru_cache(maxsize=128)
def _ring(n_bits: int, distance: int) -> NDArray[np.int64]:
    return to_signed(ring_masks(n_bits, distance))


def _in_order(rows: list[Row], ties: str, seed: int) -> list[Row]:
    """Items at equal distance in the order of ``ties``."""
    if ties == "id":
        return sorted(rows)
    if ties == "insertion":
        return sorted(rows, key=lambda row: row[2])
    if ties == "shuffle":
        ids = as_ids_array([row[0] for row in rows])
        return [rows[i] for i in np.lexsort((ids, shuffle_keys(ids, seed)))]
    return rows


def as_json_list(values: Sequence[Any]) -> str:
    """Values as one parameter."""
    return json.dumps(list(values), ensure_ascii=False)


def check_free(taken: object, name: str) -> None:
    """Raise if another program has made a table of this name."""
    if taken:
        raise PersistenceError(
            f"The database already has a table {name!r} that shorthash did not make; choose another collection=..."
        )
