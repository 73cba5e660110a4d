"""PostgreSQL's dialect of a session."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.errors import PersistenceError
from shorthash.store.conditions import Allowed, Scalar
from shorthash.store.items import Rows
from shorthash.store.postgres_connection import Run
from shorthash.store.ranking import ball_codes, worth_probing
from shorthash.store.session import Collection, Hit, Version
from shorthash.store.sql import CATALOGUE, Clause, SQLSession, create_collection, read_collection

__all__ = ["PostgresSession", "create_index", "create_tables"]

PGVECTOR_MOST = 16_000  # dimensions
OPERATORS = {"cosine": "<=>", "dot": "<#>", "euclidean": "<->"}


class PostgresSession(SQLSession):
    """A session in PostgreSQL's dialect."""

    def __init__(self, name: str, run: Run, locking: str = "") -> None:
        super().__init__(name)
        self._run, self.locking = run, locking

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement and return its rows."""
        return self._run(sql, values)

    def stream(self, sql: str, values: Sequence[Any], size: int) -> Iterator[list[Any]]:  # noqa: ARG002
        """All rows in one block; ``scan`` asks only for what is near."""
        yield self.run(sql, values)

    def among_codes(self, column: str, codes: Sequence[int]) -> Clause:
        """The column holds one of some codes."""
        return (f"{column} = ?", list(codes)) if len(codes) == 1 else (f"{column} = ANY(?)", [list(codes)])

    def among_ids(self, ids: Sequence[Any]) -> Clause:
        """The id is one of some, all of them in one parameter."""
        kind = "text" if self.collection.id_kind == "U" else "bigint"
        return f"id = ANY(?::{kind}[])", [list(ids)]

    def holds(self, field: str, values: Sequence[Scalar]) -> Clause:
        """A field of the metadata, or the class, has one of some values."""
        texts = [json.dumps(value, ensure_ascii=False) for value in values]
        one = "?::jsonb" if len(texts) == 1 else "ANY(?::text[]::jsonb[])"
        given = texts[0] if len(texts) == 1 else texts
        if field == "class":
            nothing = " OR class IS NULL" if None in values else ""
            return f"(class = {one}{nothing})", [given]
        return f"metadata -> ? = {one}", [field, given]

    def sorted_by(self, sql: str, column: str, several: bool) -> str:
        """A query with its rows in order; OFFSET 0 keeps the planner from walking the whole table in that order."""
        return f"SELECT * FROM ({sql} OFFSET 0) AS found ORDER BY {column}" if several else f"{sql} ORDER BY {column}"

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
        """Items whose distance from ``query`` lies in ``reach``, found by counting bits in the database."""
        distance = f"bit_count(({version.column}::bigint # ?::bigint)::bit(64))"
        near = (f"{distance} BETWEEN ? AND ?", [query, reach.start, reach.stop - 1])
        clause, values = self._conditions([(f"{version.column} IS NOT NULL", []), near], allowed, skip)
        sql = f"SELECT id, {version.column}, {self.extra.get(order, '0')} FROM {self._name} WHERE {clause}"
        if limit is None:
            return self.run(sql, values)
        then = f", {self.order_by[order]}" if order in self.order_by else ""
        return self.run(f"{sql} ORDER BY {distance}{then} LIMIT ?", [*values, query, limit])

    @property
    def detail(self) -> str:  # type: ignore[override]
        """The column of the vector, if there is one."""
        return "vector" if self.collection.dimension else "NULL"

    def details(self, rows: Sequence[Any]) -> tuple[list[Any], list[Any], NDArray[np.float32] | None]:
        """Classes, metadata and vectors from rows."""
        vectors = self._vectors([row[4] for row in rows]) if self.collection.dimension else None
        return [row[2] for row in rows], [row[3] for row in rows], vectors

    def vectors_of(self, hits: Sequence[Hit]) -> NDArray[np.float32]:
        """Vectors of items, nan in rows without one."""
        among, values = self.among_ids([hit[0] for hit in hits])
        found = dict(self.run(f"SELECT id, vector FROM {self._name} WHERE {among}", values))
        return self._vectors([found[hit[0]] for hit in hits])

    def best(
        self,
        version: Version,
        query: int,
        vector: NDArray[np.float32],
        k: int,
        radius: int,
        metric: str,
        allowed: Allowed,
    ) -> tuple[list[Any], list[float]]:
        """Ids and scores of the best vectors within ``radius``, ranked by pgvector."""
        if worth_probing(self, version.n_bits, radius):
            near = self.among_codes(version.column, ball_codes(version.n_bits, radius, query))
        else:
            distance = f"bit_count(({version.column}::bigint # ?::bigint)::bit(64))"
            near = (f"{distance} <= ?", [query, radius])
        clause, values = self._conditions([near, ("vector IS NOT NULL", [])], allowed, "")
        rows = self.run(
            f"SELECT id, CASE WHEN d = 'NaN' THEN 1 ELSE d END AS d FROM"
            f" (SELECT id, vector {OPERATORS[metric]} ?::vector AS d FROM {self._name} WHERE {clause}) AS found"
            " ORDER BY d, id LIMIT ?",
            [_vector_text(vector), *values, k],
        )
        shift = 1.0 if metric == "cosine" else 0.0
        return [row[0] for row in rows], [shift - row[1] for row in rows]

    def insert(self, rows: Rows, first_place: int, first_slot: int) -> None:  # noqa: ARG002
        """Write new items with COPY."""
        versions = [self.collection.versions[name].column for name in rows.codes]
        columns = ["id", "place", "class", "metadata", *versions]
        classes = (None if value is None else json.dumps(value, ensure_ascii=False) for value in rows.classes)
        values: list[Any] = [rows.ids, itertools.count(first_place), classes, rows.metadata, *rows.codes.values()]
        if rows.vectors is not None:
            columns.append("vector")
            as_vector = _vector_text if self.collection.vectors_at == "vector" else _octets
            values.append(map(as_vector, rows.vectors))
        with self._run.connection.cursor().copy(f"COPY {self._name}({', '.join(columns)}) FROM STDIN") as copy:
            for row in zip(*values, strict=False):
                copy.write_row(row)

    def recode(self, version: Version, ids: Sequence[Any], codes: Sequence[int], first_place: int) -> None:
        """Give items new codes and places; their codes in other versions are forgotten."""
        others = [v.column for v in self.collection.versions.values() if v != version]
        forgotten = "".join(f", {column} = NULL" for column in others)
        places = range(first_place, first_place + len(ids))
        self.run(
            f"UPDATE {self._name} AS item SET {version.column} = new.code, place = new.place{forgotten}"
            f" FROM unnest({self._id_array}, ?::bigint[], ?::bigint[]) AS new(id, code, place) WHERE item.id = new.id",
            [list(ids), list(codes), list(places)],
        )

    def fill(self, target: Version, ids: Sequence[Any], places: Sequence[int], codes: Sequence[int]) -> None:
        """Write codes of items that are still at their place and still have none."""
        column = target.column
        self.run(
            f"UPDATE {self._name} AS item SET {column} = new.code"
            f" FROM unnest({self._id_array}, ?::bigint[], ?::bigint[]) AS new(id, code, place)"
            f" WHERE item.id = new.id AND item.place = new.place AND item.{column} IS NULL",
            [list(ids), list(codes), list(places)],
        )

    def set_id_kind(self, kind: str) -> None:
        """Change the type of the empty column; strings are ordered by their letters' numbers, as Python does."""
        to = 'text COLLATE "C"' if kind == "U" else "bigint"
        how = "id::text" if kind == "U" else "NULL"
        self.run(f"ALTER TABLE {self._name} ALTER COLUMN id TYPE {to} USING {how}")

    def set_dimension(self, dimension: int) -> None:
        """Add a column for vectors: of pgvector's type where that is installed, else octets."""
        installed = self.run("SELECT 1 FROM pg_extension WHERE extname = 'vector'")
        kind = "vector" if installed and dimension <= PGVECTOR_MOST else "bytea"
        of = f"({int(dimension)})" if kind == "vector" else ""
        self.run(f"ALTER TABLE {self._name} ADD COLUMN vector {kind}{of}")
        self.save(replace(self.collection, vectors_at=kind))

    def add_version(self, version: Version) -> None:
        """Add a column; its B-tree is built outside the transaction."""
        self.run(f"ALTER TABLE {self._name} ADD COLUMN {version.column} {_integer(version)}")

    def drop_version(self, version: Version) -> None:
        """Drop a column and with it its B-tree."""
        self.run(f"ALTER TABLE {self._name} DROP COLUMN {version.column}")

    @property
    def _id_array(self) -> str:
        return "?::text[]" if self.collection.id_kind == "U" else "?::bigint[]"

    def _vectors(self, values: Sequence[Any]) -> NDArray[np.float32]:
        vectors = np.full((len(values), self.collection.dimension), np.nan, dtype=np.float32)
        for row, value in enumerate(values):
            if value is not None:
                text = isinstance(value, str)
                vectors[row] = np.fromstring(value[1:-1], sep=",") if text else np.frombuffer(value, dtype="<f4")
        return vectors


def create_tables(run: Run, name: str, version: Version) -> Collection:
    """Make the tables of a new collection, unless another process was faster."""
    for statement in CATALOGUE:
        run(statement)
    known = read_collection(run, name)
    if known is not None:
        return known
    if run("SELECT to_regclass(?) IS NOT NULL", [name])[0][0]:
        raise PersistenceError(
            f"The database already has a table {name!r} that shorthash did not make; choose another collection=..."
        )
    run(
        f"CREATE TABLE {name}(id bigint PRIMARY KEY, place bigint NOT NULL, class jsonb, metadata jsonb,"
        f" {version.column} {_integer(version)})"
    )
    create_index(run, name, version)
    return create_collection(run, name, version)


def create_index(run: Run, name: str, version: Version, *, concurrently: bool = False) -> None:
    """The B-tree that searches probe; it holds all they read."""
    column = version.column
    how = "CONCURRENTLY " if concurrently else ""
    run(
        f"CREATE INDEX {how}IF NOT EXISTS {name}_{column} ON {name}({column}, id) INCLUDE (class)"
        f" WHERE {column} IS NOT NULL"
    )


def _integer(version: Version) -> str:
    """The smallest type that holds codes as they are; 64 bits use the sign."""
    return "smallint" if version.n_bits <= 15 else "integer" if version.n_bits <= 31 else "bigint"


def _octets(vector: NDArray[np.float32]) -> bytes:
    return vector.astype("<f4").tobytes()


def _vector_text(vector: NDArray[np.float32]) -> str:
    return f"[{','.join(map(repr, vector.tolist()))}]"
