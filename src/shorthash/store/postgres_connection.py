"""A connection to PostgreSQL: transactions, threads, forks, and errors in words."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shorthash._validation import require_extra
from shorthash.errors import InvalidInput, PersistenceError

__all__ = ["Handle", "Run"]

OLDEST = 150_000


class Handle:
    """A connection and its lock; a lost connection is made again by the next call, and a fork gets one of its own."""

    def __init__(self, url: str) -> None:
        self._psycopg = require_extra("psycopg", "postgres", "PostgresStore")
        self._url = url
        self._open = True
        self._inherited: list[Any] = []
        self.lock = threading.RLock()
        with self._explained():
            self._connect()
        version = self._connection.info.server_version
        if version < OLDEST:
            self.close()
            raise PersistenceError(
                f"PostgresStore needs PostgreSQL 15 or newer. Got {version // 10_000} instead; upgrade the server."
            )

    def _connect(self) -> None:
        # a prepared statement fails once another connection has changed the type of the ids
        self._connection = self._psycopg.connect(self._url, autocommit=True, prepare_threshold=None)
        self._process = os.getpid()
        weakref.finalize(self, _close_here, self._connection, self._process)

    def close(self) -> None:
        """Close the connection."""
        with self.lock:
            self._open = False
            self._connection.close()

    @contextmanager
    def transaction(self, begin: str) -> Iterator[Run]:
        """A transaction; everything in it is undone if it raises."""
        with self.outside() as run:
            run(begin)
            try:
                yield run
                run("COMMIT")
            except BaseException:
                if not run.connection.closed:
                    run("ROLLBACK")
                raise

    @contextmanager
    def outside(self) -> Iterator[Run]:
        """Statements that are transactions of their own."""
        if not self._open:
            raise InvalidInput("The store is closed; open it again.")
        with self.lock, self._explained():
            if self._process != os.getpid():
                self._inherited.append(self._connection)  # closing it here would disturb the parent
                self._connect()
            elif self._connection.closed:
                self._connect()
            yield Run(self._connection)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What went wrong, in words; never with the URL, which may hold a password."""
        try:
            yield
        except self._psycopg.Error as error:
            reason = error.diag.message_primary or str(error).partition("\n")[0] or type(error).__name__
            raise PersistenceError(
                f"PostgreSQL refused: {reason}; nothing was changed; check the server, the URL and your rights."
            ) from error


class Run:
    """Statements of one connection."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def __call__(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement with ``?`` for every value, and return its rows."""
        cursor = self.connection.execute(sql.replace("?", "%s"), values or None)
        return cursor.fetchall() if cursor.description else []


def _close_here(connection: Any, process: int) -> None:
    """Close a connection in the process that opened it; in a fork it is not ours."""
    if os.getpid() == process:
        connection.close()
