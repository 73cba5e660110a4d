"""A store in PostgreSQL 15 or newer: an integer column and a B-tree, no extension needed.

With Citus, distribute a collection by ``id``: every key of its table contains that column, items are looked up by it,
and a search is sent to all shards and merged (docs/guide/servers.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import PackedCodes
from shorthash._validation import check_count
from shorthash.errors import InvalidInput
from shorthash.index.base import LookupResult, Probes, Scored, SearchResult
from shorthash.index.items import AnyIds, Vectors
from shorthash.store.base import Store, look_up
from shorthash.store.connection import PostgresConnection
from shorthash.store.example_sql import MOST_PARTITIONS, check_name, integer_type, partitioned_table
from shorthash.store.items import (
    Scalar,
    StoreWhere,
    as_ids_array,
    ball_codes,
    distances_of,
    probe_columns,
    search_result,
    to_signed,
)
from shorthash.store.sql import ORDERS, Clause, Session
from shorthash.store.tables import CATALOGUE, TYPES, CollectionInfo, Version, check_free, compared, quoted

BULK = 100_000  # items after which the table is vacuumed at once, so that searches read the B-tree only
LOCK = 0x5348_4F52  # advisory lock of processes that make a collection
PGVECTOR_MOST = 16_000  # dimensions
OPERATORS = {"cosine": "<=>", "dot": "<#>", "euclidean": "<->"}


class PostgresStore(Store):
    """Codes and items in a PostgreSQL database.

    Any number of processes may read and write; readers never wait, and writers to one collection wait for each other.

    Parameters
    ----------
    url : a connection URL, "postgresql://user:password@host/database"
    n_bits : length of the codes; needed for a new collection, checked for one that exists
    collection : name of the collection (and of its table)
    version : which codes to open; None opens the current ones, and a new collection begins with "v1"
    partitions : of a new collection: how many tables the codes are divided among, by equal ranges of the code; 1: one
        table. A collection that exists keeps its own

    Examples
    --------
    >>> from shorthash.errors import PersistenceError
    >>> try:  # doctest: +ELLIPSIS
    ...     with PostgresStore("postgresql://localhost:1/photos", n_bits=8) as store:
    ...         print(store.add([1, 2, 3, 250]).search([2], k=2).ids.tolist())
    ... except PersistenceError as error:  # no server listens at port 1
    ...     print(error)
    PostgreSQL reports: ...; nothing was changed; check the server, the URL and your permissions.
    """

    _facts: CollectionInfo | None = None  # as last read; where vectors are changes once only

    def __init__(
        self,
        url: str,
        n_bits: int | None = None,
        *,
        collection: str = "items",
        version: str | None = None,
        partitions: int = 1,
    ) -> None:
        check_name(collection, "collection")
        check_count(partitions, "partitions", "PostgresStore", high=MOST_PARTITIONS)
        super().__init__(PostgresConnection(url), n_bits, collection, version, partitions)

    def _search(self, queries: PackedCodes, k: int, ties: str, seed: int, where: StoreWhere | None) -> SearchResult:
        """Try the first ring alone: it is often enough, and one statement needs no transaction."""
        if len(queries) == 1 and where is None and ties != "shuffle":
            with self._version_explained(), self._connection.statements():
                rows = self._session().probe(to_signed(queries).tolist(), [], ORDERS.get(ties, ""), k)
            if len(rows) == k:
                return search_result([([row[0] for row in rows], [0] * k)])
        return super()._search(queries, k, ties, seed, where)

    def _rerank(
        self, queries: PackedCodes, vectors: Vectors, k: int, radius: int, metric: str, where: StoreWhere | None
    ) -> list[Scored]:
        """Ranked by pgvector where the column is one of its vectors."""
        if metric == "asymmetric":
            return super()._rerank(queries, vectors, k, radius, metric, where)
        with self._opened() as session:
            assert isinstance(session, PostgresSession)
            if session.collection.vectors_at == "vector":
                self._check_columns(vectors, metric, session.collection.dimension)
                conditions = session.conditions(where)
                pairs = zip(to_signed(queries).tolist(), vectors.astype(np.float32), strict=True)
                return [session.best(query, vector, k, radius, metric, conditions) for query, vector in pairs]
        return super()._rerank(queries, vectors, k, radius, metric, where)

    def _lookup(
        self, probes: Probes, where: StoreWhere | None, vectors: Vectors | None, metric: str, posteriors: bool
    ) -> LookupResult:
        """One statement, so one round trip and no transaction, unless ``where`` has to be read first."""
        if len(probes) != 1 or not (where is None or isinstance(where, Mapping)):
            return super()._lookup(probes, where, vectors, metric, posteriors)
        with self._version_explained(), self._connection.statements():
            session = self._session()
            if self._facts is None or (vectors is not None and not self._facts.dimension):
                self._facts = session.collection
            session._known = self._facts
            self._check_given(session, vectors, metric)
            return look_up(session, probes, where, vectors, metric, posteriors=posteriors)

    def _prepare(self, version: Version) -> None:
        """Build the B-tree of a version while other processes read and write."""
        with self._connection.statements():
            session = self._session()
            assert isinstance(session, PostgresSession)
            session.create_index(version, concurrently=True)

    def _after_writing(self, n_items: int) -> None:
        if n_items >= BULK:
            with self._connection.statements() as run:
                run(f"VACUUM (ANALYZE) {self._collection}")


class PostgresSession(Session):
    """A session in PostgreSQL's dialect."""

    owner = "PostgresStore"
    begin_reading = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    bytes_type = "bytea"
    dialect = 1
    locking = " FOR UPDATE"

    @property
    def vector_column(self) -> str:
        """The column of the vector, if there is one."""
        return "vector" if self.collection.dimension else "NULL"

    def has_catalogue(self) -> bool:
        """Whether the database has the tables of facts about collections."""
        return bool(self.run("SELECT to_regclass('shorthash_collections') IS NOT NULL")[0][0])

    @property
    def distance(self) -> str:
        """The Hamming distance of an item's code from a parameter."""
        return f"bit_count(({self.version.column}::bigint # ?::bigint)::bit(64))"

    def among_codes(self, codes: Sequence[int]) -> Clause:
        """The condition that the code is one of ``codes``, which are one parameter."""
        column = self.version.column
        return (f"{column} = ?", list(codes)) if len(codes) == 1 else (f"{column} = ANY(?)", [list(codes)])

    def among_ids(self, ids: AnyIds) -> Clause:
        """The condition that the id is one of ``ids``, which are one parameter."""
        kind = "text" if self.collection.id_kind == "U" else "bigint"
        return f"id = ANY(?::{kind}[])", [ids.tolist()]

    def holds(self, field: str, values: Sequence[Scalar]) -> Clause:
        """The condition that a field of the metadata, or the class, has one of ``values``."""
        texts = [json.dumps(value, ensure_ascii=False) for value in values]
        one = "?::jsonb" if len(texts) == 1 else "ANY(?::text[]::jsonb[])"
        given = texts[0] if len(texts) == 1 else texts
        if field == "class":
            or_none = " OR class IS NULL" if None in values else ""
            return f"(class = {one}{or_none})", [given]
        return f"metadata -> ? = {one}", [field, given]

    def probe_rows(self, probes: Probes) -> Clause:
        """A query for the rows of ``probes``, a parameter for every column."""
        return "SELECT * FROM unnest(?::int[], ?::int[], ?::bigint[], ?::float8[])", probe_columns(probes)

    def table_columns(self) -> dict[str, str]:
        """All columns of the table, and their types."""
        sql = (
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        return dict(self.run(sql, [self.name]))

    def compared(self, name: str, kind: str, given: Any) -> Clause:
        """What ``where`` states of a declared column."""
        return compared(name, kind, given, self.owner, f"?::{TYPES[kind][self.dialect]}")

    def sorted_by(self, sql: str, column: str, several: bool) -> str:
        """A query with its rows in order; OFFSET 0 keeps the planner from walking the whole table in that order."""
        return f"SELECT * FROM ({sql} OFFSET 0) AS found ORDER BY {column}" if several else f"{sql} ORDER BY {column}"

    def best(
        self, query: int, vector: NDArray[np.float32], k: int, radius: int, metric: str, conditions: list[Clause]
    ) -> Scored:
        """Ids, distances and scores of the best vectors within ``radius``, ranked by pgvector."""
        near = (f"{self.distance} <= ?", [query, radius])
        if self.worth_probing(radius):
            near = self.among_codes(ball_codes(self.version.n_bits, radius, query))
        operator = OPERATORS[metric]
        sql, values = self._select([near, ("vector IS NOT NULL", []), *conditions], f"vector {operator} ?::vector AS d")
        rows = self.run(
            f"SELECT id, {self.version.column}, CASE WHEN d = 'NaN' THEN 1 ELSE d END AS d FROM ({sql}) AS found"
            " ORDER BY d, id LIMIT ?",
            [_vector_text(vector), *values, k],
        )
        shift = 1.0 if metric == "cosine" else 0.0
        scores = np.array([shift - row[2] for row in rows], dtype=np.float32)
        return as_ids_array([row[0] for row in rows], self.collection.id_kind), distances_of(rows, query), scores

    def score_column(self, vector: NDArray[np.float32], metric: str) -> Clause | None:
        """The score of an item's vector, computed by pgvector; None where vectors are bytes."""
        if self.collection.vectors_at != "vector":
            return None
        shift = "1 -" if metric == "cosine" else "-"
        return f"{shift} (vector {OPERATORS[metric]} ?::vector)", [_vector_text(vector)]

    def read_vectors(self, values: Sequence[Any]) -> NDArray[np.float32]:
        """Vectors from values of their column, (n, dimension), nan in rows without one."""
        vectors = np.full((len(values), self.collection.dimension), np.nan, dtype=np.float32)
        for row, value in enumerate(values):
            if value is not None:
                text = isinstance(value, str)
                vectors[row] = np.fromstring(value[1:-1], sep=",") if text else np.frombuffer(value, dtype="<f4")
        return vectors

    def create(self, version: Version, partitions: int) -> CollectionInfo:
        """Make the tables of a new collection, unless another process has made them."""
        self.run("SELECT pg_advisory_xact_lock(?)", [LOCK])
        for statement in CATALOGUE:
            self.run(statement)
        known = self.find()
        if known is not None:
            return known
        check_free(self.run("SELECT 1 WHERE to_regclass(?) IS NOT NULL", [self.name]), self.name)
        key = "PRIMARY KEY" if partitions == 1 else "NOT NULL"
        columns = (
            f"id bigint {key}, place bigint NOT NULL, class jsonb, metadata jsonb, {version.posterior} bytea,"
            f" {version.column} {integer_type(version.n_bits)}"
        )
        for statement in partitioned_table(self.name, columns, version.column, version.n_bits, partitions):
            self.run(statement)
        if partitions > 1:  # a key would have to contain the code; writers look for ids under a lock instead
            self.run(f"CREATE TABLE {self.name}_rest PARTITION OF {self.name} DEFAULT")  # items without such a code
            self.run(f"CREATE INDEX {self.name}_id ON {self.name}(id)")
        self.create_index(version)
        return self.register(version)

    def create_index(self, version: Version, *, concurrently: bool = False) -> None:
        """The B-tree that searches probe; it holds all they read. One of a partitioned table is one per partition."""
        column, session = version.column, self.at(version)
        also = f", {version.posterior}" if session.has_posteriors() else ""
        found = self.run(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = to_regclass(?)", [self.name]
        )
        how = "CONCURRENTLY " if concurrently else ""
        tables = {part: how for (part,) in found if concurrently}
        tables[self.name] = "" if found else how  # PostgreSQL attaches the B-trees of the partitions to this one
        for table, way in tables.items():
            self.run(
                f"CREATE INDEX {way}IF NOT EXISTS {table}_{column} ON {table}({column}, id) INCLUDE (class{also})"
                f" WHERE {column} IS NOT NULL"
            )

    def insert(self, columns: dict[str, Iterable[Any]], vectors: NDArray[np.float32] | None, first_slot: int) -> None:  # noqa: ARG002
        """Write new items with COPY."""
        classes = (None if value is None else json.dumps(value, ensure_ascii=False) for value in columns["class"])
        columns = {**columns, "class": classes}
        if vectors is not None:
            packed = (vector.astype("<f4").tobytes() for vector in vectors)
            columns["vector"] = map(_vector_text, vectors) if self.collection.vectors_at == "vector" else packed
        names = ", ".join(map(quoted, columns))
        with self.connection.raw.cursor().copy(f"COPY {self.name}({names}) FROM STDIN") as copy:
            for row in zip(*columns.values(), strict=True):
                copy.write_row(row)

    def set_id_kind(self, kind: str) -> None:
        """Change the type of the empty column; strings are ordered by code point, as in Python."""
        to = 'text COLLATE "C"' if kind == "U" else "bigint"
        how = "id::text" if kind == "U" else "NULL"
        self.run(f"ALTER TABLE {self.name} ALTER COLUMN id TYPE {to} USING {how}")

    def set_dimension(self, dimension: int) -> None:
        """Add a column for vectors: of pgvector's type where that is installed, else bytes."""
        installed = self.run("SELECT 1 FROM pg_extension WHERE extname = 'vector'")
        kind = "vector" if installed and dimension <= PGVECTOR_MOST else "bytea"
        size = f"({int(dimension)})" if kind == "vector" else ""
        self.run(f"ALTER TABLE {self.name} ADD COLUMN vector {kind}{size}")
        self.save(replace(self.collection, vectors_at=kind))

    def add_version(self, version: Version) -> None:
        """Add columns for codes and posteriors; the B-tree is built outside the transaction."""
        self.run(
            f"ALTER TABLE {self.name} ADD COLUMN {version.column} {integer_type(version.n_bits)},"
            f" ADD COLUMN {version.posterior} bytea"
        )

    def drop_version(self, version: Version) -> None:
        """Drop the columns and with them the B-tree; an error if the table is partitioned by these codes."""
        sql = (
            "SELECT 1 FROM pg_partitioned_table JOIN pg_attribute ON attrelid = partrelid AND attnum = ANY(partattrs)"
            " WHERE partrelid = to_regclass(?) AND attname = ?"
        )
        if self.run(sql, [self.name, version.column]):
            raise InvalidInput(
                f"Collection {self.name!r} is partitioned by the codes of version {version.name!r}, so these stay; to "
                "drop them, merge() the items into a new collection."
            )
        self.run(f"ALTER TABLE {self.name} DROP COLUMN {version.column}, DROP COLUMN IF EXISTS {version.posterior}")


PostgresStore._session_type = PostgresSession


def _vector_text(vector: NDArray[np.float32]) -> str:
    return f"[{','.join(map(repr, vector.tolist()))}]"
