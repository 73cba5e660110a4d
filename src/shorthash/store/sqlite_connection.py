"""A connection to a SQLite file: transactions, threads, forks, and errors in words."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shorthash.errors import DamagedFile, ForeignFile, InvalidInput, PersistenceError
from shorthash.store.side_file import SideFile
from shorthash.store.sql import CATALOGUE

__all__ = ["Handle", "Run"]

BUSY_SECONDS = 30  # how long to wait for another process that writes
SETTINGS = (
    "journal_mode = WAL",
    "synchronous = FULL",  # what is acknowledged survives a power cut
    "cache_size = -65536",  # KiB
    "journal_size_limit = 16777216",  # the log shrinks again after a bulk load
)
OLDEST = (3, 35)  # DROP COLUMN


class Handle:
    """A connection and its lock; a forked process gets a connection of its own."""

    def __init__(self, path: str) -> None:
        if sqlite3.sqlite_version_info < OLDEST:
            raise PersistenceError(f"SQLiteStore needs SQLite 3.35 or newer. Got {sqlite3.sqlite_version} instead.")
        self.path = path
        self.lock = threading.RLock()
        self.side_files: dict[str, SideFile] = {}
        self._inherited: list[sqlite3.Connection] = []
        with self._explained():
            self._connect()
            for statement in CATALOGUE:
                self._connection.execute(statement)

    def _connect(self) -> None:
        self._connection = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        self._process = os.getpid()
        weakref.finalize(self, _close_here, self._connection, self._process)
        for setting in SETTINGS:
            self._connection.execute(f"PRAGMA {setting}")

    def close(self) -> None:
        """Close the connection."""
        with self.lock:
            self.side_files.clear()
            self._connection.close()

    @contextmanager
    def transaction(self, begin: str) -> Iterator[Run]:
        """A transaction; everything in it is undone if it raises."""
        with self.lock, self._explained():
            if self._process != os.getpid():
                self._inherited.append(self._connection)  # closing it here would disturb the parent
                self._connect()
            connection = self._connection
            connection.execute(begin)
            try:
                yield Run(connection)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What went wrong, in words."""
        try:
            yield
        except sqlite3.ProgrammingError as error:
            if "closed" not in str(error):
                raise
            raise InvalidInput(f"The store {self.path} is closed; open it again.") from error
        except sqlite3.DatabaseError as error:
            raise _explanation(error, self.path) from error


class Run:
    """Statements of one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __call__(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement with ``?`` for every value, and return its rows."""
        return self.connection.execute(sql, values).fetchall()


def _close_here(connection: sqlite3.Connection, process: int) -> None:
    """Close a connection in the process that opened it; in a fork it is not ours."""
    if os.getpid() == process:
        connection.close()


def _explanation(error: sqlite3.DatabaseError, path: str) -> PersistenceError:
    """An error of SQLite as one of ours: what, where, and the way out."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_NOTADB"):
        return ForeignFile(f"{path} is not a SQLite database, so it is left alone; choose another file.")
    if name.startswith("SQLITE_CORRUPT"):
        return DamagedFile(f"{path} is damaged: {error}; restore it from a copy, or build the store again.")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return PersistenceError(
            f"Cannot write to {path}: another process has been writing for {BUSY_SECONDS} seconds; nothing was "
            "changed, so try again."
        )
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return PersistenceError(f"Cannot write to {path}: {error}; nothing was changed; make room on the disk.")
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return PersistenceError(
            f"Cannot open or write {path}: {error}; nothing was changed; choose a folder that exists and that you may "
            "write to (SQLite writes beside its file, even to read)."
        )
    return PersistenceError(
        f"The store {path} failed: {error}; check that no other program changes its tables, and open it again."
    )
