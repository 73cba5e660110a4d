"""A store in PostgreSQL 15 or newer: an integer column and a B-tree, no extension needed.

With Citus, distribute a collection by ``id``: every key of its table contains that column, items are looked up by it,
and a search is sent to all shards and merged (docs/guide/store.md).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import PackedCodes
from shorthash._validation import require_extra
from shorthash.errors import InvalidInput, PersistenceError
from shorthash.index.base import Scored
from shorthash.index.items import Vectors
from shorthash.index.results import SearchResult
from shorthash.store.base import Store
from shorthash.store.example_sql import check_name, integer_type
from shorthash.store.items import Allowed, Rows, Scalar, StoreWhere, as_ids_array, search_result, to_signed
from shorthash.store.sql import (
    CATALOGUE,
    ORDERS,
    Clause,
    CollectionInfo,
    Connection,
    Row,
    Session,
    Version,
    ball_codes,
    check_free,
    distances_of,
)

__all__ = ["PostgresStore"]

OLDEST = 150_000
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
    """

    def __init__(
        self, url: str, n_bits: int | None = None, *, collection: str = "items", version: str | None = None
    ) -> None:
        check_name(collection, "collection")
        super().__init__(PostgresConnection(url), n_bits, collection, version)

    def _search(self, queries: PackedCodes, k: int, ties: str, seed: int, where: StoreWhere | None) -> SearchResult:
        """Often the first ring is enough; one statement needs no transaction around it."""
        if len(queries) == 1 and where is None and ties != "shuffle":
            with self._version_explained(), self._connection.statements():
                session = PostgresSession(self._collection, self._connection)
                rows = session.probe(self._version, to_signed(queries).tolist(), Allowed(), ORDERS.get(ties, ""), k)
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
                allowed = self._allowed(session, where)
                pairs = zip(to_signed(queries).tolist(), vectors.astype(np.float32), strict=True)
                return [session.best(self._version, q, v, k, radius, metric, allowed) for q, v in pairs]
        return super()._rerank(queries, vectors, k, radius, metric, where)

    def _prepare(self, version: Version) -> None:
        """Build the B-tree of a version while other processes read and write."""
        with self._connection.statements():
            PostgresSession(self._collection, self._connection).create_index(version, concurrently=True)

    def _after_writing(self, n_items: int) -> None:
        if n_items >= BULK:
            with self._connection.statements() as run:
                run(f"VACUUM (ANALYZE) {self._collection}")


class PostgresConnection(Connection):
    """A connection to a PostgreSQL server; a lost connection is made again by the next call."""

    def __init__(self, url: str) -> None:
        self._psycopg = require_extra("psycopg", "postgres", "PostgresStore")
        self._url = url
        self._closed = False
        super().__init__()
        version = self.raw.info.server_version
        if version < OLDEST:
            self.close()
            raise PersistenceError(
                f"PostgresStore needs PostgreSQL 15 or newer. Got {version // 10_000} instead; upgrade the server."
            )

    def _open(self) -> Any:
        # a prepared statement fails once another connection has changed the type of the ids
        return self._psycopg.connect(self._url, autocommit=True, prepare_threshold=None)

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement with ``?`` for every value, and return its rows."""
        cursor = self.raw.execute(sql.replace("?", "%s"), values or None)
        return cursor.fetchall() if cursor.description else []

    def _in_transaction(self) -> bool:
        return not self.raw.closed and self.raw.info.transaction_status != self._psycopg.pq.TransactionStatus.IDLE

    def close(self) -> None:
        """Close the connection."""
        self._closed = True
        super().close()

    @contextmanager
    def statements(self) -> Iterator[Callable[..., list[Any]]]:
        """The function ``run``, for statements that are transactions of their own."""
        if self._closed:
            raise InvalidInput("The store is closed; open it again.")
        with super().statements():
            if self.raw.closed:
                self._connect()
            yield self.run

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn errors of PostgreSQL into errors of shorthash; never with the URL, which may hold a password."""
        try:
            yield
        except self._psycopg.Error as error:
            reason = error.diag.message_primary or str(error).partition("\n")[0] or type(error).__name__
            raise PersistenceError(
                f"PostgreSQL refused: {reason}; nothing was changed; check the server, the URL and your rights."
            ) from error


class PostgresSession(Session):
    """A session in PostgreSQL's dialect."""

    begin_reading = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    locking = " FOR UPDATE"

    @property
    def vector_column(self) -> str:
        """The column of the vector, if there is one."""
        return "vector" if self.collection.dimension else "NULL"

    def has_catalogue(self) -> bool:
        """Whether the database has the tables of facts about collections."""
        return bool(self.run("SELECT to_regclass('shorthash_collections') IS NOT NULL")[0][0])

    def among_codes(self, column: str, codes: Sequence[int]) -> Clause:
        """The column holds one of some codes."""
        return (f"{column} = ?", list(codes)) if len(codes) == 1 else (f"{column} = ANY(?)", [list(codes)])

    def among_ids(self, ids: Sequence[Any]) -> Clause:
        """The id is one of some, all of them in one parameter."""
        return f"id = ANY({self._id_array})", [list(ids)]

    def holds(self, field: str, values: Sequence[Scalar]) -> Clause:
        """A field of the metadata, or the class, has one of some values."""
        texts = [json.dumps(value, ensure_ascii=False) for value in values]
        one = "?::jsonb" if len(texts) == 1 else "ANY(?::text[]::jsonb[])"
        given = texts[0] if len(texts) == 1 else texts
        if field == "class":
            or_none = " OR class IS NULL" if None in values else ""
            return f"(class = {one}{or_none})", [given]
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
        order: str = "",
        limit: int | None = None,
        column: str = "",
    ) -> list[Row]:
        """Items whose distance from ``query`` lies in ``reach``, found by counting bits in the database."""
        distance = _distance(version)
        near = (f"{distance} BETWEEN ? AND ?", [query, reach.start, reach.stop - 1])
        sql, values = self._select(version, [(f"{version.column} IS NOT NULL", []), near], allowed, column)
        if limit is None:
            return self.run(sql, values)
        return self.run(f"{sql} ORDER BY {distance}{', ' if order else ''}{order} LIMIT ?", [*values, query, limit])

    def best(
        self,
        version: Version,
        query: int,
        vector: NDArray[np.float32],
        k: int,
        radius: int,
        metric: str,
        allowed: Allowed,
    ) -> Scored:
        """Ids, distances and scores of the best vectors within ``radius``, ranked by pgvector."""
        near = (f"{_distance(version)} <= ?", [query, radius])
        if self.worth_probing(version, radius):
            near = self.among_codes(version.column, ball_codes(version.n_bits, radius, query))
        clause, values = self._conditions([near, ("vector IS NOT NULL", [])], allowed)
        rows = self.run(
            f"SELECT id, code, CASE WHEN d = 'NaN' THEN 1 ELSE d END AS d FROM (SELECT id, {version.column} AS code,"
            f" vector {OPERATORS[metric]} ?::vector AS d FROM {self._name} WHERE {clause}) AS found"
            " ORDER BY d, id LIMIT ?",
            [_vector_text(vector), *values, k],
        )
        shift = 1.0 if metric == "cosine" else 0.0
        scores = np.array([shift - row[2] for row in rows], dtype=np.float32)
        return as_ids_array([row[0] for row in rows], self.collection.id_kind), distances_of(rows, query), scores

    def as_metadata(self, value: Any) -> dict[str, Any] | None:
        """Metadata from a value of their column, which the driver has decoded."""
        return value  # type: ignore[no-any-return]

    def read_vectors(self, values: Sequence[Any]) -> NDArray[np.float32]:
        """Vectors from values of their column, (n, dimension), nan in rows without one."""
        vectors = np.full((len(values), self.collection.dimension), np.nan, dtype=np.float32)
        for row, value in enumerate(values):
            if value is not None:
                text = isinstance(value, str)
                vectors[row] = np.fromstring(value[1:-1], sep=",") if text else np.frombuffer(value, dtype="<f4")
        return vectors

    def create(self, version: Version) -> CollectionInfo:
        """Make the tables of a new collection, unless another process was faster."""
        self.run("SELECT pg_advisory_xact_lock(?)", [LOCK])
        for statement in CATALOGUE:
            self.run(statement)
        known = self.find()
        if known is not None:
            return known
        check_free(self.run("SELECT 1 WHERE to_regclass(?) IS NOT NULL", [self._name]), self._name)
        self.run(
            f"CREATE TABLE {self._name}(id bigint PRIMARY KEY, place bigint NOT NULL, class jsonb, metadata jsonb,"
            f" {version.column} {integer_type(version.n_bits)})"
        )
        self.create_index(version)
        return self.register(version)

    def create_index(self, version: Version, *, concurrently: bool = False) -> None:
        """The B-tree that searches probe; it holds all they read."""
        name, column = self._name, version.column
        how = "CONCURRENTLY " if concurrently else ""
        self.run(
            f"CREATE INDEX {how}IF NOT EXISTS {name}_{column} ON {name}({column}, id) INCLUDE (class)"
            f" WHERE {column} IS NOT NULL"
        )

    def insert(self, rows: Rows, first_place: int, first_slot: int) -> None:  # noqa: ARG002
        """Write new items with COPY."""
        versions = [self.collection.versions[name].column for name in rows.codes]
        columns = ["id", "place", "class", "metadata", *versions]
        classes = (None if value is None else json.dumps(value, ensure_ascii=False) for value in rows.classes)
        values: list[Any] = [rows.ids, itertools.count(first_place), classes, rows.metadata, *rows.codes.values()]
        if rows.vectors is not None:
            columns.append("vector")
            as_vector = _vector_text if self.collection.vectors_at == "vector" else _vector_bytes
            values.append(map(as_vector, rows.vectors))
        cursor = self.connection.raw.cursor()
        with cursor.copy(f"COPY {self._name}({', '.join(columns)}) FROM STDIN") as copy:
            for row in zip(*values, strict=False):
                copy.write_row(row)

    def recode(self, version: Version, ids: Sequence[Any], codes: Sequence[int], first_place: int) -> None:
        """Give items new codes and places; their codes in other versions are deleted."""
        others = [v.column for v in self.collection.versions.values() if v != version]
        cleared = "".join(f", {column} = NULL" for column in others)
        places = range(first_place, first_place + len(ids))
        self.run(
            f"UPDATE {self._name} AS item SET {version.column} = new.code, place = new.place{cleared}"
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
        """Change the type of the empty column; strings are ordered by code point, as in Python."""
        to = 'text COLLATE "C"' if kind == "U" else "bigint"
        how = "id::text" if kind == "U" else "NULL"
        self.run(f"ALTER TABLE {self._name} ALTER COLUMN id TYPE {to} USING {how}")

    def set_dimension(self, dimension: int) -> None:
        """Add a column for vectors: of pgvector's type where that is installed, else bytes."""
        installed = self.run("SELECT 1 FROM pg_extension WHERE extname = 'vector'")
        kind = "vector" if installed and dimension <= PGVECTOR_MOST else "bytea"
        size = f"({int(dimension)})" if kind == "vector" else ""
        self.run(f"ALTER TABLE {self._name} ADD COLUMN vector {kind}{size}")
        self.save(replace(self.collection, vectors_at=kind))

    def add_version(self, version: Version) -> None:
        """Add a column; its B-tree is built outside the transaction."""
        self.run(f"ALTER TABLE {self._name} ADD COLUMN {version.column} {integer_type(version.n_bits)}")

    def drop_version(self, version: Version) -> None:
        """Drop a column and with it its B-tree."""
        self.run(f"ALTER TABLE {self._name} DROP COLUMN {version.column}")

    @property
    def _id_array(self) -> str:
        return "?::text[]" if self.collection.id_kind == "U" else "?::bigint[]"


PostgresStore._session_type = PostgresSession


def _distance(version: Version) -> str:
    """The Hamming distance of a code from a parameter."""
    return f"bit_count(({version.column}::bigint # ?::bigint)::bit(64))"


def _vector_bytes(vector: NDArray[np.float32]) -> bytes:
    return vector.astype("<f4").tobytes()


def _vector_text(vector: NDArray[np.float32]) -> str:
    return f"[{','.join(map(repr, vector.tolist()))}]"
