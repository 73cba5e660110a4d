"""What SQLite and PostgreSQL have in common: one table per collection, one column and one B-tree per version.

::

    items(id, place, class, metadata, ..., code_1, code_2, ...)      one row per item, primary key id
    items_code_1 ON items(code_1, id, ...)                           what a search probes; nothing else is read
    shorthash_collections, shorthash_versions                        what is remembered besides

Values always travel as parameters. Names of tables come from the collection's name, which ``check_name`` has seen.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.errors import InvalidInput
from shorthash.index.items import AnyIds
from shorthash.store.conditions import Allowed, Scalar
from shorthash.store.items import Items, as_ids_array, from_signed
from shorthash.store.ranking import distances_of
from shorthash.store.session import Collection, Hit, Session, Version

__all__ = ["CATALOGUE", "SQLSession", "create_collection"]

Clause = tuple[str, list[Any]]
"""A condition and its parameters."""

CATALOGUE = (
    """CREATE TABLE IF NOT EXISTS shorthash_collections(
        name TEXT PRIMARY KEY, current_version TEXT NOT NULL, id_kind TEXT NOT NULL, last_id BIGINT NOT NULL,
        next_place BIGINT NOT NULL, next_number INTEGER NOT NULL, next_slot BIGINT NOT NULL,
        dimension INTEGER NOT NULL, vectors_at TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS shorthash_versions(
        collection TEXT NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL, n_bits INTEGER NOT NULL,
        PRIMARY KEY (collection, name))""",
)
COLUMNS = "name, current_version, id_kind, last_id, next_place, next_number, next_slot, dimension, vectors_at"
SCAN_BLOCK = 1 << 16  # rows held at once while scanning


class SQLSession(Session):
    """A session in SQL; subclasses say how to run a statement, and what their dialect does differently."""

    max_values = 1 << 30  # how many values a statement may compare a column with

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: Collection | None = None

    @abstractmethod
    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement with ``?`` for every value, and return its rows."""

    @abstractmethod
    def stream(self, sql: str, values: Sequence[Any], size: int) -> Iterable[list[Any]]:
        """Run a query and return its rows in blocks."""

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
    def details(self, rows: Sequence[Any]) -> tuple[list[Any], list[Any], NDArray[np.float32] | None]:
        """Classes, metadata and vectors from rows of (id, code, class, metadata, vector or its number)."""

    order_by = {"id": "id", "insertion": "place"}  # noqa: RUF012
    extra = {"insertion": "place"}  # noqa: RUF012
    detail = "slot"  # the column that leads to the vector

    @property
    def collection(self) -> Collection:
        """The collection as this session sees it."""
        if self._known is None:
            found = read_collection(self.run, self._name, self.locking)
            if found is None:
                raise InvalidInput(f"There is no collection {self._name!r} any more; it was dropped meanwhile.")
            self._known = found
        return self._known

    locking = ""  # what to append to keep other writers out

    def save(self, collection: Collection) -> None:
        """Write back what is remembered about the collection."""
        before, after = self.collection.versions, collection.versions
        c = collection
        self.run(
            "UPDATE shorthash_collections SET current_version = ?, id_kind = ?, last_id = ?, next_place = ?,"
            " next_number = ?, next_slot = ?, dimension = ?, vectors_at = ? WHERE name = ?",
            [
                c.current,
                c.id_kind,
                c.last_id,
                c.next_place,
                c.next_number,
                c.next_slot,
                c.dimension,
                c.vectors_at,
                c.name,
            ],
        )
        for name in before.keys() - after.keys():
            self.run("DELETE FROM shorthash_versions WHERE collection = ? AND name = ?", [c.name, name])
        for name in after.keys() - before.keys():
            write_version(self.run, c.name, after[name])
        self._known = collection

    def is_empty(self) -> bool:
        """Whether the collection has no item in any version."""
        return not self.run(f"SELECT 1 FROM {self._name} LIMIT 1")

    def known(self, ids: AnyIds) -> list[Any]:
        """Those of ``ids`` that are in the collection, in any version."""
        among, values = self.among_ids(ids.tolist())
        return [item for (item,) in self.run(f"SELECT id FROM {self._name} WHERE {among}", values)]

    def probe(
        self, version: Version, codes: Sequence[int], allowed: Allowed, order: str, limit: int | None, skip: str = ""
    ) -> list[Hit]:
        """Items whose code is one of ``codes``."""
        hits: list[Hit] = []
        for start in range(0, len(codes), self.max_values):
            part = codes[start : start + self.max_values]
            clause, values = self._conditions([self.among_codes(version.column, part)], allowed, skip)
            hits += self._select(version, clause, values, order, limit, several=len(part) > 1)
        if limit is None or len(codes) <= self.max_values or order not in self.order_by:
            return hits if limit is None else hits[:limit]
        key = 0 if order == "id" else 2
        return sorted(hits, key=lambda hit: hit[key])[:limit]

    def _select(
        self, version: Version, clause: str, values: list[Any], order: str, limit: int | None, *, several: bool
    ) -> list[Hit]:
        sql = f"SELECT id, {version.column}, {self.extra.get(order, '0')} FROM {self._name} WHERE {clause}"
        if limit is None:
            return self.run(sql, values)
        if order in self.order_by:
            sql = self.sorted_by(sql, self.order_by[order], several)
        return self.run(f"{sql} LIMIT ?", [*values, limit])

    @abstractmethod
    def sorted_by(self, sql: str, column: str, several: bool) -> str:
        """A query with its rows in order; if ``several`` codes are probed, the B-tree does not give that order."""

    def scan(
        self,
        version: Version,
        query: int,
        reach: range,
        allowed: Allowed,
        order: str,
        limit: int | None,
        skip: str = "",
    ) -> list[Hit]:
        """Items whose distance from ``query`` lies in ``reach``; what lies beyond the nearest ``limit`` is dropped."""
        clause, values = self._conditions([(f"{version.column} IS NOT NULL", [])], allowed, skip)
        sql = f"SELECT id, {version.column}, {self.extra.get(order, '0')} FROM {self._name} WHERE {clause}"
        hits: list[Hit] = []
        farthest, counts = reach.stop - 1, np.zeros(version.n_bits + 1, dtype=np.int64)
        for block in self.stream(sql, values, SCAN_BLOCK):
            distances = distances_of(block, query)
            here = np.flatnonzero((distances >= reach.start) & (distances <= farthest))
            hits += [block[i] for i in here]
            counts += np.bincount(distances[here], minlength=len(counts))
            if limit is not None and counts[: farthest + 1].sum() >= limit:
                farthest = int(np.searchsorted(np.cumsum(counts), limit))
        return hits

    def count(self, version: Version, codes: Sequence[int] | None, allowed: Allowed) -> int:
        """How many items have one of ``codes``; None counts all items of the version."""
        if codes is None:
            clauses: list[list[Clause]] = [[(f"{version.column} IS NOT NULL", [])]]
        else:
            step = self.max_values
            clauses = [
                [self.among_codes(version.column, codes[start : start + step])] for start in range(0, len(codes), step)
            ]
        total = 0
        for clause in clauses:
            where, values = self._conditions(clause, allowed, "")
            total += int(self.run(f"SELECT count(*) FROM {self._name} WHERE {where}", values)[0][0])
        return total

    def listing(self, version: Version) -> tuple[list[Any], list[int]]:
        """Ids and codes of all items of a version in insertion order."""
        column = version.column
        rows = self.run(f"SELECT id, {column} FROM {self._name} WHERE {column} IS NOT NULL ORDER BY place")
        return [row[0] for row in rows], [row[1] for row in rows]

    def items(self, version: Version, ids: AnyIds) -> Items:
        """Everything about some items that have a code in ``version``, in any order."""
        among, values = self.among_ids(ids.tolist())
        column = version.column
        rows = self.run(
            f"SELECT id, {column}, class, metadata, {self.detail} FROM {self._name}"
            f" WHERE {among} AND {column} IS NOT NULL",
            values,
        )
        classes, metadata, vectors = self.details(rows)
        found = as_ids_array([row[0] for row in rows], self.collection.id_kind)
        return Items(found, from_signed([row[1] for row in rows], version.n_bits), classes, metadata, vectors)

    def lacking(self, version: Version, target: Version, after: Any, limit: int) -> tuple[list[Any], list[int]]:
        """Ids and places of items of ``version`` without a code in ``target``, by id, beyond the id ``after``."""
        beyond = "" if after is None else " AND id > ?"
        rows = self.run(
            f"SELECT id, place FROM {self._name} WHERE {version.column} IS NOT NULL AND {target.column} IS NULL{beyond}"
            " ORDER BY id LIMIT ?",
            [limit] if after is None else [after, limit],
        )
        return [row[0] for row in rows], [row[1] for row in rows]

    def n_lacking(self, target: Version) -> int:
        """How many items have no code in ``target``."""
        return int(self.run(f"SELECT count(*) FROM {self._name} WHERE {target.column} IS NULL")[0][0])

    def delete(self, ids: AnyIds) -> None:
        """Delete items."""
        if len(ids):
            among, values = self.among_ids(ids.tolist())
            self.run(f"DELETE FROM {self._name} WHERE {among}", values)

    def drop(self) -> None:
        """Delete the collection with all items."""
        self.run(f"DROP TABLE {self._name}")
        self.run("DELETE FROM shorthash_versions WHERE collection = ?", [self._name])
        self.run("DELETE FROM shorthash_collections WHERE name = ?", [self._name])

    def _conditions(self, clauses: list[Clause], allowed: Allowed, skip: str) -> Clause:
        """All conditions together."""
        parts = list(clauses)
        if allowed.ids is not None:
            parts.append(self.among_ids(allowed.ids.tolist()))
        parts += [self.holds(field, values) for field, values in allowed.fields]
        if skip:
            parts.append((f"{skip} IS NULL", []))
        return " AND ".join(sql for sql, _ in parts), [value for _, values in parts for value in values]


Run = Callable[..., list[Any]]


def read_collection(run: Run, name: str, locking: str = "") -> Collection | None:
    """What is remembered about a collection, if there is one."""
    rows = run(f"SELECT {COLUMNS} FROM shorthash_collections WHERE name = ?{locking}", [name])
    if not rows:
        return None
    found = run("SELECT name, number, n_bits FROM shorthash_versions WHERE collection = ? ORDER BY number", [name])
    versions = {row[0]: Version(*row) for row in found}
    return replace(Collection(*rows[0][:9]), versions=versions)


def create_collection(run: Run, name: str, version: Version) -> Collection:
    """Remember a new collection with one version."""
    places = ", ".join("?" * 9)
    run(
        f"INSERT INTO shorthash_collections({COLUMNS}) VALUES ({places})",
        [name, version.name, "i", -1, 0, version.number + 1, 0, 0, ""],
    )
    write_version(run, name, version)
    return Collection(name, version.name, next_number=version.number + 1, versions={version.name: version})


def write_version(run: Run, collection: str, version: Version) -> None:
    """Remember a version."""
    run(
        "INSERT INTO shorthash_versions(collection, name, number, n_bits) VALUES (?, ?, ?, ?)",
        [collection, version.name, version.number, version.n_bits],
    )


def as_json_list(values: Sequence[Any]) -> str:
    """Values as one parameter."""
    return json.dumps(list(values), ensure_ascii=False)
