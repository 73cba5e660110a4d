"""What SQLite and PostgreSQL share: the tables of a collection, and search ring by ring.

::

    items(id, place, class, metadata, ..., code, posterior, code_2, posterior_2, ...)      one row per item, key id
    items_code ON items(code, id, class, posterior, ...)             what a search probes; nothing else is read
    shorthash_collections, shorthash_versions                        facts about collections and versions

A search looks up the code itself, then the codes at distance 1, then 2, until it has enough items. A ring is probed as
long as it has no more codes than the collection may have items; from that distance on, one scan of all items is
cheaper and covers all larger distances at once.

Values are always passed as parameters. Names of tables come from the name of the collection, checked by ``check_name``.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import comb
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shorthash.codes import ball_size
from shorthash.errors import InvalidInput
from shorthash.index.base import Probes
from shorthash.index.items import AnyIds, allowed_items, as_ids, check_same_kind, shuffle_keys
from shorthash.store import tables as typed
from shorthash.store.connection import Connection
from shorthash.store.items import (
    LONGEST,
    Items,
    Row,
    Scalar,
    StoreWhere,
    as_ids_array,
    ball_codes,
    check_field,
    check_values,
    damage_explained,
    distances_of,
    from_signed,
    read_posteriors,
    ring_codes,
)
from shorthash.store.tables import BATCHES, COLUMNS, CollectionInfo, Version

Clause = tuple[str, list[Any]]
"""A condition and its parameters."""

ALL: Clause = ("1 = 1", [])

ORDERS = {"id": "id", "insertion": "place"}  # columns that an order of ties sorts by
ALWAYS_PROBED = 512  # codes that are cheap to probe however few items there are
NEVER_PROBED = 100_000  # codes that are too many for a statement however many items there are


class Session(ABC):
    """One transaction, or one snapshot, of one collection; subclasses hold what their SQL dialect does differently.

    Everything a session reads belongs to one state of the database, and everything it writes is committed when it ends
    without an error, or not at all.

    Parameters
    ----------
    connection : an open connection, in a transaction
    name : name of the collection, and of its table
    version : the version whose codes are searched; None before the collection is opened
    writing : whether the transaction may write
    """

    owner = "Store"  # the class that errors name
    begin_reading = begin_writing = "BEGIN"
    bytes_type = "BLOB"
    dialect = 0  # place of its types in TYPES
    locking = ""  # appended to a SELECT to lock out other writers

    def __init__(self, connection: Connection, name: str, version: Version | None, *, writing: bool = False) -> None:
        self.connection = connection
        self.run = connection.run
        self.name, self._version, self._writing = name, version, writing
        self._known: CollectionInfo | None = None

    def at(self, version: Version) -> Self:
        """The same transaction for another version."""
        other = copy.copy(self)
        other._version = version
        return other

    @property
    def version(self) -> Version:
        """The version whose codes are searched."""
        assert self._version is not None
        return self._version

    @property
    @abstractmethod
    def vector_column(self) -> str:
        """The column that holds the vector, or leads to it."""

    @abstractmethod
    def read_vectors(self, values: Sequence[Any]) -> NDArray[np.float32]:
        """Vectors from values of ``vector_column``, (n, dimension), nan in rows without one."""

    @property
    @abstractmethod
    def distance(self) -> str:
        """The Hamming distance of an item's code from a parameter."""

    @abstractmethod
    def among_codes(self, codes: Sequence[int]) -> Clause:
        """The condition that the code is one of ``codes``."""

    @abstractmethod
    def among_ids(self, ids: AnyIds) -> Clause:
        """The condition that the id is one of ``ids``."""

    @abstractmethod
    def holds(self, field: str, values: Sequence[Scalar]) -> Clause:
        """The condition that a field of the metadata, or the class, has one of ``values``."""

    @abstractmethod
    def probe_rows(self, probes: Probes) -> Clause:
        """A query for the rows (query_no, probe_no, cell, share) of ``probes``, all of them in a few parameters."""

    @abstractmethod
    def table_columns(self) -> dict[str, str]:
        """All columns of the table, and their types in SQL."""

    def has_column(self, column: str) -> bool:
        """Whether the table has a column."""
        return column in self.table_columns()

    def declared(self) -> dict[str, str]:
        """Columns that ``add_columns`` declared, and their types."""
        return typed.declared_columns(self.table_columns(), self.dialect)

    def add_columns(self, columns: Mapping[str, str], index: Collection[str]) -> None:
        """Declare columns, and move what items have in these fields."""
        if columns:
            with self.changing():
                for name, kind in columns.items():
                    sql_type = typed.TYPES[kind][self.dialect]
                    self.run(f"ALTER TABLE {self.name} ADD COLUMN {typed.quoted(name)} {sql_type}")
                typed.move_fields(self, columns)
        for name in index:
            self.run(
                f"CREATE INDEX IF NOT EXISTS {typed.index_name(self.name, name)} ON {self.name}({typed.quoted(name)})"
            )

    @abstractmethod
    def sorted_by(self, sql: str, column: str, several: bool) -> str:
        """A query with its rows in order; if ``several`` codes are probed, the B-tree does not give that order."""

    @abstractmethod
    def create(self, version: Version, partitions: int) -> CollectionInfo:
        """Make the tables of a new collection, unless another process has made them; ``partitions`` for PostgreSQL."""

    @abstractmethod
    def insert(self, columns: dict[str, Iterable[Any]], vectors: NDArray[np.float32] | None, first_slot: int) -> None:
        """Write new items: values by column, and their vectors."""

    @abstractmethod
    def add_version(self, version: Version) -> None:
        """Add a column for the codes of a version."""

    @abstractmethod
    def drop_version(self, version: Version) -> None:
        """Drop the codes of a version."""

    def set_id_kind(self, kind: str) -> None:  # noqa: B027
        """Prepare for ids of another kind; the collection is empty."""

    def has_posteriors(self) -> bool:
        """Whether the table has a column of compact posteriors; remembered, since it is dropped with its version."""
        known, column = self.connection.with_posteriors, (self.name, self.version.posterior)
        if column not in known and self.has_column(self.version.posterior):
            known.add(column)
        return column in known

    def add_posteriors(self) -> None:
        """Add the column of compact posteriors to a table that an older version of shorthash made."""
        if not self.has_posteriors():
            self.run(f"ALTER TABLE {self.name} ADD COLUMN {self.version.posterior} {self.bytes_type}")

    def set_dimension(self, dimension: int) -> None:  # noqa: B027
        """Prepare for vectors; the collection has none yet."""

    # facts about the collection

    @property
    def collection(self) -> CollectionInfo:
        """The collection as this session sees it."""
        if self._known is None:
            self._known = self.find()
            if self._known is None:
                raise InvalidInput(f"The collection {self.name!r} no longer exists; another process dropped it.")
        return self._known

    def score_column(self, vector: NDArray[np.float32], metric: str) -> Clause | None:  # noqa: ARG002
        """The score of an item's vector where the database computes it; None where it does not."""
        return None

    def has_catalogue(self) -> bool:
        """Whether the database has the tables of facts about collections."""
        return True

    def find(self) -> CollectionInfo | None:
        """The collection; None if it does not exist."""
        locking = self.locking if self._writing else ""
        rows = self.run(f"SELECT {', '.join(COLUMNS)} FROM shorthash_collections WHERE name = ?{locking}", [self.name])
        if not rows:
            return None
        sql = "SELECT name, number, n_bits FROM shorthash_versions WHERE collection = ? ORDER BY number"
        rows_of = self.run(sql, [self.name])
        versions = {name: Version(name, number, n_bits, self._numbered()) for name, number, n_bits in rows_of}
        return replace(CollectionInfo(*rows[0]), versions=versions)

    def _numbered(self) -> bool:
        """Whether the table was made when the first column of codes was called code_1; remembered."""
        known = self.connection.numbered
        if self.name not in known:
            known[self.name] = self.has_column("code_1")
        return known[self.name]

    def register(self, version: Version) -> CollectionInfo:
        """Write the facts about a new collection with one version."""
        self._known = CollectionInfo(self.name, version.name, next_number=version.number + 1)
        self.save(replace(self._known, versions={version.name: version}))
        return self.collection

    def save(self, info: CollectionInfo) -> None:
        """Write new or changed facts about the collection."""
        before, after = self.collection.versions, info.versions
        places = ", ".join("?" * len(COLUMNS))
        changes = ", ".join(f"{column} = excluded.{column}" for column in COLUMNS[1:])
        self.run(
            f"INSERT INTO shorthash_collections({', '.join(COLUMNS)}) VALUES ({places})"
            f" ON CONFLICT (name) DO UPDATE SET {changes}",
            [getattr(info, column) for column in COLUMNS],
        )
        for name in before.keys() - after.keys():
            self.run("DELETE FROM shorthash_versions WHERE collection = ? AND name = ?", [self.name, name])
        for name in after.keys() - before.keys():
            self.run(
                "INSERT INTO shorthash_versions(collection, name, number, n_bits) VALUES (?, ?, ?, ?)",
                [self.name, name, after[name].number, after[name].n_bits],
            )
        self._known = info

    def drop(self) -> None:
        """Delete the collection with all items."""
        self.connection.numbered.pop(self.name, None)
        self.run(f"DROP TABLE {self.name}")
        self.run("DELETE FROM shorthash_versions WHERE collection = ?", [self.name])
        self.run("DELETE FROM shorthash_collections WHERE name = ?", [self.name])
        self.run(BATCHES)
        self.run("DELETE FROM shorthash_batches WHERE collection = ?", [self.name])

    def is_new(self, batch: str | None) -> bool:
        """Whether a batch was never written; it counts as written from now on. One without a name is always new."""
        if batch is None:
            return True
        if not isinstance(batch, str) or not 0 < len(batch.encode()) <= LONGEST or "\0" in batch:
            raise InvalidInput(f"The 'batch' of {self.owner} must be text of 1 to {LONGEST} bytes. Got {batch!r:.50}.")
        self.collection  # noqa: B018 - locks the collection, where the database needs that
        self.run(BATCHES)
        if self.run("SELECT 1 FROM shorthash_batches WHERE collection = ? AND name = ?", [self.name, batch]):
            return False
        self.run("INSERT INTO shorthash_batches(collection, name) VALUES (?, ?)", [self.name, batch])
        return True

    # items

    def is_empty(self) -> bool:
        """Whether the collection has no item in any version."""
        return not self.run(f"SELECT 1 FROM {self.name} LIMIT 1")

    def known(self, ids: AnyIds) -> list[Any]:
        """The ``ids`` that are in the collection, in any version."""
        if ids.dtype.kind != self.collection.id_kind:
            return []
        among, values = self.among_ids(ids)
        return [item for (item,) in self.run(f"SELECT id FROM {self.name} WHERE {among}", values)]

    def listing(self) -> tuple[AnyIds, NDArray[Any]]:
        """Ids and packed codes of all items in insertion order."""
        column = self.version.column
        rows = self.run(f"SELECT id, {column} FROM {self.name} WHERE {column} IS NOT NULL ORDER BY place")
        ids = as_ids_array([row[0] for row in rows], self.collection.id_kind)
        return ids, from_signed([row[1] for row in rows], self.version.n_bits)

    def items(self, ids: AnyIds, *, vectors: bool = True) -> Items:
        """The items among ``ids`` that have a code, in any order."""
        if ids.dtype.kind != self.collection.id_kind:
            ids = as_ids_array([], self.collection.id_kind)
        among, values = self.among_ids(ids)
        column, declared = self.version.column, self.declared()
        posterior = self.version.posterior if self.has_posteriors() else "NULL"
        more = "".join(f", {typed.quoted(name)}" for name in declared)
        rows = self.run(
            f"SELECT id, {column}, class, metadata, {self.vector_column if vectors else 'NULL'}, {posterior}{more}"
            f" FROM {self.name}"
            f" WHERE {among} AND {column} IS NOT NULL",
            values,
        )
        return Items(
            as_ids_array([row[0] for row in rows], self.collection.id_kind),
            from_signed([row[1] for row in rows], self.version.n_bits),
            [row[2] for row in rows],
            [typed.with_columns(typed.as_metadata(row[3]), row[6:], declared) for row in rows],
            self.read_vectors([row[4] for row in rows]) if vectors and self.collection.dimension else None,
            read_posteriors([row[5] for row in rows]),
            declared,
        )

    def lacking(self, target: Version, after: Any, limit: int) -> list[Any]:
        """(id, place) of items without a code in ``target``, by id, beyond the id ``after``."""
        column, beyond = self.version.column, "" if after is None else " AND id > ?"
        return self.run(
            f"SELECT id, place FROM {self.name} WHERE {column} IS NOT NULL AND {target.column} IS NULL{beyond}"
            " ORDER BY id LIMIT ?",
            [limit] if after is None else [after, limit],
        )

    def n_lacking(self, target: Version) -> int:
        """How many items have no code in ``target``."""
        return int(self.run(f"SELECT count(*) FROM {self.name} WHERE {target.column} IS NULL")[0][0])

    @contextmanager
    def changing(self, among: Clause = ALL) -> Iterator[None]:  # noqa: ARG002
        """Change some items; a database without its own checksums compares and renews those of the rows."""
        yield

    def delete(self, ids: AnyIds) -> None:
        """Delete items."""
        among, values = self.among_ids(ids)
        self.run(f"DELETE FROM {self.name} WHERE {among}", values)

    def recode(self, ids: AnyIds, codes: NDArray[np.int64], first_place: int) -> None:
        """Give items new codes and places; their codes in other versions, and their posteriors, are deleted."""
        others = [v.column for v in self.collection.versions.values() if v != self.version]
        others += [self.version.posterior] if self.has_posteriors() else []
        cleared = "".join(f", {column} = NULL" for column in others)
        sql = f"UPDATE {self.name} SET {self.version.column} = ?, place = ?{cleared} WHERE id = ?"
        places = range(first_place, first_place + len(ids))
        with self.changing(self.among_ids(ids)):
            self.connection.run_many(sql, zip(codes.tolist(), places, ids.tolist(), strict=True))

    def fill(
        self,
        ids: Sequence[Any],
        places: Sequence[int],
        codes: NDArray[np.int64],
        posteriors: NDArray[np.uint8] | None = None,
    ) -> None:
        """Write codes, and posteriors if given, of items that are still at their place and still have no code."""
        column, also, more = self.version.column, "", []
        if posteriors is not None:
            self.add_posteriors()
            also, more = f", {self.version.posterior} = ?", [[row.tobytes() for row in posteriors]]
        sql = f"UPDATE {self.name} SET {column} = ?{also} WHERE id = ? AND place = ? AND {column} IS NULL"
        with self.changing(self.among_ids(as_ids_array(ids))):
            self.connection.run_many(sql, zip(codes.tolist(), *more, ids, places, strict=True))

    # search

    def conditions(self, where: StoreWhere | None) -> list[Clause]:
        """The conditions that ``where`` states."""
        if where is None:
            return []
        if isinstance(where, Mapping):
            declared = self.declared() if any(name != "class" for name in where) else {}
            return [
                self.compared(name, declared[name], values)
                if name in declared
                else self.holds(check_field(name, self.owner), check_values(name, values, self.owner))
                for name, values in where.items()
            ]
        if not callable(where):
            where = where if isinstance(where, np.ndarray) else np.asarray(list(where))
            if where.dtype.kind != "b":
                ids = as_ids(where, self.owner)
                check_same_kind(ids, self.collection.id_kind, self.owner)
                return [self.among_ids(ids)]
        ids = self.listing()[0]
        return [self.among_ids(ids[allowed_items(where, ids, self.owner)])]

    def compared(self, name: str, kind: str, given: Any) -> Clause:
        """What ``where`` states of a declared column."""
        return typed.compared(name, kind, given, self.owner)

    def nearest(
        self, query: int, k: int, ties: str, seed: int, conditions: list[Clause]
    ) -> tuple[list[Any], list[int]]:
        """Ids and distances of the k nearest items, or of all if there are fewer."""
        ids: list[Any] = []
        distances: list[int] = []
        for distance, rows in self.rings(query, ties, seed, conditions, k):
            taken = [row[0] for row in rows[: k - len(ids)]]
            ids += taken
            distances += [distance] * len(taken)
        return ids, distances

    def rings(
        self, query: int, ties: str, seed: int, conditions: list[Clause], k: int, column: str = ""
    ) -> Iterator[tuple[int, list[Row]]]:
        """(distance, rows) by increasing distance, only distances that occur, until there are k rows.

        With ``ties`` "id", "insertion" or "any" the last rings may be cut after k rows; other rings are complete.
        ``column`` is read besides id and code.
        """
        n_bits, order, found = self.version.n_bits, ORDERS.get(ties, ""), 0
        column = column or (order if order == "place" else "")
        cut = ties in (*ORDERS, "any")
        for distance in range(n_bits + 1):
            if not self._few(comb(n_bits, distance)):
                break
            codes = (ring_codes(n_bits, distance) ^ query).tolist()
            rows = self.probe(codes, conditions, order, k - found if cut else None, column)
            if rows:
                yield distance, _in_order(rows, ties, seed)
            found += len(rows)
            if found >= k:
                return
        else:
            return
        rows = self.scan(query, n_bits, conditions, order, k if cut else None, column)
        distances = distances_of(rows, query)
        for d in np.unique(distances[distances >= distance]).tolist():
            ring = [rows[i] for i in np.flatnonzero(distances == d)]
            yield d, _in_order(ring, ties, seed)
            found += len(ring)
            if found >= k:
                return

    def ball(self, query: int, radius: int, conditions: list[Clause], column: str = "") -> list[Row]:
        """All items within ``radius``, in any order; ``column`` is read besides id and code."""
        if not self.worth_probing(radius):
            return self.scan(query, radius, conditions, column=column)
        return self.probe(ball_codes(self.version.n_bits, radius, query), conditions, column=column)

    def n_within(self, query: int, radius: int, conditions: list[Clause]) -> int:
        """How many items lie within ``radius``."""
        if radius >= self.version.n_bits:
            return self.count(conditions)
        if self.worth_probing(radius):
            return self.count([self.among_codes(ball_codes(self.version.n_bits, radius, query)), *conditions])
        return self.count([(f"{self.distance} <= ?", [query, radius]), *conditions])

    def worth_probing(self, radius: int) -> bool:
        """Whether to probe the codes within ``radius`` rather than scan all items."""
        return self._few(ball_size(self.version.n_bits, radius))

    def _few(self, n_codes: int) -> bool:
        return n_codes <= ALWAYS_PROBED or (n_codes <= NEVER_PROBED and n_codes <= self.collection.next_place)

    def probe(
        self,
        codes: Sequence[int],
        conditions: list[Clause],
        order: str = "",
        limit: int | None = None,
        column: str = "",
    ) -> list[Row]:
        """Items whose code is one of ``codes``; with a ``limit``, the first of them by the column ``order``."""
        sql, values = self._select([self.among_codes(codes), *conditions], column)
        if limit is None:
            return self.run(sql, values)
        sql = self.sorted_by(sql, order, len(codes) > 1) if order else sql
        return self.run(f"{sql} LIMIT ?", [*values, limit])

    def scan(
        self,
        query: int,
        radius: int,
        conditions: list[Clause],
        order: str = "",
        limit: int | None = None,
        column: str = "",
    ) -> list[Row]:
        """Items within ``radius``, or the nearest ``limit`` items, of equally near ones the first by ``order``."""
        if limit is None:
            near = [(f"{self.distance} <= ?", [query, radius])] if radius < self.version.n_bits else []
            return self.run(*self._select([self._has_code, *near, *conditions], column))
        sql, values = self._select([self._has_code, *conditions], column)
        by = ", ".join([self.distance, *([order] if order else [])])
        return self.run(f"{sql} ORDER BY {by} LIMIT ?", [*values, query, limit])

    def sizes(self, codes: Sequence[int], conditions: list[Clause]) -> dict[int, int]:
        """The number of items of each code that fulfil all conditions; codes without any are left out."""
        condition, values = all_of([self.among_codes(codes), *conditions])
        column = self.version.column
        return dict(self.run(f"SELECT {column}, count(*) FROM {self.name} WHERE {condition} GROUP BY 1", values))

    def count(self, conditions: list[Clause]) -> int:
        """How many items have a code and fulfil all conditions."""
        condition, values = all_of([self._has_code, *conditions])
        return int(self.run(f"SELECT count(*) FROM {self.name} WHERE {condition}", values)[0][0])

    @property
    def _has_code(self) -> Clause:
        return f"{self.version.column} IS NOT NULL", []

    def _select(self, conditions: list[Clause], column: str) -> Clause:
        """A query for id, code and another column of items that fulfil all conditions."""
        columns = ", ".join(["id", self.version.column, *([column] if column else [])])
        condition, values = all_of(conditions)
        return f"SELECT {columns} FROM {self.name} WHERE {condition}", values


def all_of(conditions: list[Clause]) -> Clause:
    """The conjunction of conditions."""
    return " AND ".join(sql for sql, _ in conditions), [value for _, values in conditions for value in values]


def _in_order(rows: list[Row], ties: str, seed: int) -> list[Row]:
    """Items at equal distance in the order of ``ties``."""
    if ties == "id":
        with damage_explained("id"):
            return sorted(rows)
    if ties == "insertion":
        return sorted(rows, key=lambda row: row[2])
    if ties == "shuffle":
        ids = as_ids_array([row[0] for row in rows])
        return [rows[i] for i in np.lexsort((ids, shuffle_keys(ids, seed)))]
    return rows
