"""A store in PostgreSQL 15 or newer: an integer column and a B-tree, no extension needed.

With Citus, distribute a collection by ``id``: every key of its table contains that column, items are looked up by it,
and a search is sent to all shards and merged (docs/guide/store.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from shorthash._types import PackedCodes
from shorthash.index.results import SearchResult
from shorthash.store.base import Store
from shorthash.store.conditions import Allowed, StoreWhere
from shorthash.store.items import to_signed
from shorthash.store.postgres_connection import Handle
from shorthash.store.postgres_session import PostgresSession, create_index, create_tables
from shorthash.store.reranking import Ranked
from shorthash.store.session import Session, Version
from shorthash.store.sql import read_collection
from shorthash.store.versions import check_name, first_version, opened_version, search_result

__all__ = ["PostgresStore"]

BULK = 100_000  # items after which the table is vacuumed at once, so that searches read the B-tree only
LOCK = 0x5348_4F52  # advisory lock for those who make a collection


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
        self._handle = Handle(url)
        super().__init__(collection, self._open(collection, n_bits, version))

    def close(self) -> None:
        """Close the connection."""
        self._handle.close()

    def _open(self, collection: str, n_bits: int | None, version: str | None) -> Version:
        with self._handle.transaction("BEGIN READ ONLY") as run:
            made = run("SELECT to_regclass('shorthash_collections') IS NOT NULL")[0][0]
            known = read_collection(run, collection) if made else None
        if known is None:
            first = first_version(n_bits, version, collection, type(self).__name__)
            with self._handle.transaction("BEGIN") as run:
                run("SELECT pg_advisory_xact_lock(?)", [LOCK])
                known = create_tables(run, collection, first)
        return opened_version(known, n_bits, version)

    def _search(self, queries: PackedCodes, k: int, ties: str, seed: int, where: StoreWhere | None) -> SearchResult:
        """Often the first ring is enough; one statement needs no transaction around it."""
        if len(queries) == 1 and where is None and ties != "shuffle":
            with self._version_explained(), self._handle.outside() as run:
                session = PostgresSession(self._collection, run)
                hits = session.probe(self._version, to_signed(queries).tolist(), Allowed(), ties, k)
            if len(hits) == k:
                return search_result([([hit[0] for hit in hits], [0] * k)], "")
        return super()._search(queries, k, ties, seed, where)

    def _best(
        self,
        session: Session,
        query: int,
        vector: NDArray[np.float32],
        k: int,
        radius: int,
        metric: str,
        allowed: Allowed,
    ) -> Ranked:
        """Ranked by pgvector where the column is one of its vectors."""
        assert isinstance(session, PostgresSession)
        if metric == "asymmetric" or session.collection.vectors_at != "vector":
            return super()._best(session, query, vector, k, radius, metric, allowed)
        return session.best(self._version, query, vector, k, radius, metric, allowed)

    def _prepare(self, version: Version) -> None:
        """Build the B-tree of a version while others read and write."""
        with self._handle.outside() as run:
            create_index(run, self._collection, version, concurrently=True)

    def _after_writing(self, n_items: int) -> None:
        if n_items >= BULK:
            with self._handle.outside() as run:
                run(f"VACUUM (ANALYZE) {self._collection}")

    @contextmanager
    def _reading(self) -> Iterator[PostgresSession]:
        with self._handle.transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as run:
            yield PostgresSession(self._collection, run)

    @contextmanager
    def _writing(self) -> Iterator[PostgresSession]:
        with self._handle.transaction("BEGIN") as run:
            yield PostgresSession(self._collection, run, locking=" FOR UPDATE")
