"""Connections to SQLite files and PostgreSQL servers: a lock, transactions, explained errors.

A forked process opens its own connection.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shorthash._validation import require_extra
from shorthash.errors import DamagedFile, ForeignFile, InvalidInput, OutcomeUnknown, PersistenceError
from shorthash.persistence.files import ADVICE
from shorthash.store.tables import CATALOGUE, CRC, row_crc

if TYPE_CHECKING:
    from shorthash.store.sqlite import SideFile

BUSY_SECONDS = 30  # how long to wait for another process that writes
SETTINGS = (
    "journal_mode = WAL",
    "synchronous = FULL",  # what is acknowledged survives a power cut
    "cache_size = -65536",  # KiB
    "journal_size_limit = 16777216",  # the log shrinks again after a bulk load
)
OLDEST_SQLITE = (3, 35)  # DROP COLUMN
# Files are not trusted. trusted_schema stays on: SQLite 3.40 distrusts json_extract, which a B-tree of shorthash uses;
# _check_schema compares the schema instead.
DEFENSES = ("cell_size_check = ON",)
SWITCHES = {"DEFENSIVE": True, "ENABLE_TRIGGER": False, "ENABLE_VIEW": False}  # settable from Python 3.12 on
ALL_BITS = (1 << 64) - 1
OPENING: dict[str, Any] = {"isolation_level": None, "check_same_thread": False, "cached_statements": 256}
OLDEST_POSTGRES = 150_000


class Connection(ABC):
    """A connection to a database and its lock; a forked process opens its own connection."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._inherited: list[Any] = []
        self.with_posteriors: set[tuple[str, str]] = set()  # tables and their columns that are known to exist
        self.numbered: dict[str, bool] = {}  # whether the first column of codes of a table is called code_1
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
    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for every row of values."""

    @abstractmethod
    def _in_transaction(self) -> bool: ...

    def _commit(self) -> None:
        self.run("COMMIT")

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
        """The function ``run``, for statements that are separate transactions."""
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
                self._commit()
            finally:
                if self._in_transaction():
                    self.run("ROLLBACK")


def _close_in(process: int, connection: Any) -> None:
    """Close a connection in the process that opened it, not in a fork."""
    if os.getpid() == process:
        connection.close()


class SQLiteConnection(Connection):
    """A connection to a SQLite file, and its opened side files."""

    def __init__(self, path: str, *, readonly: bool = False) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise PersistenceError(f"SQLiteStore needs SQLite 3.35 or newer. Got {sqlite3.sqlite_version} instead.")
        self.path, self.readonly, self.immutable = path, readonly, False
        self.side_files: dict[str, SideFile] = {}
        self.with_crc: set[str] = set()
        super().__init__()
        with self.explained():
            for statement in () if readonly else (f"{CATALOGUE[0][:-1]}, {CRC} INTEGER)", *CATALOGUE[1:]):
                self.run(statement)

    def has_crc(self, table: str) -> bool:
        """Whether a table has checksums; remembered, as they are never dropped."""
        if table not in self.with_crc and self.run("SELECT 1 FROM pragma_table_info(?) WHERE name = ?", [table, CRC]):
            self.with_crc.add(table)
        return table in self.with_crc

    def _open(self) -> sqlite3.Connection:
        if not self.readonly:
            return self._prepared(sqlite3.connect(self.path, timeout=BUSY_SECONDS, **OPENING), SETTINGS)
        place = Path(self.path).resolve().as_uri()
        try:
            return self._prepared(sqlite3.connect(f"{place}?mode=ro", uri=True, timeout=BUSY_SECONDS, **OPENING))
        except sqlite3.OperationalError:
            if self.file_state()[2:]:  # what another process has written is in its log, which cannot be read
                raise
            self.immutable = True  # no process writes, and the folder cannot be written to: read the file as it is
            return self._prepared(sqlite3.connect(f"{place}?immutable=1", uri=True, timeout=BUSY_SECONDS, **OPENING))

    @staticmethod
    def _prepared(connection: sqlite3.Connection, settings: Sequence[str] = ()) -> sqlite3.Connection:
        """A connection that reads and writes tables only, whatever else the file holds."""
        for setting in (*DEFENSES, *settings):
            connection.execute(f"PRAGMA {setting}")
        configure: Any = getattr(connection, "setconfig", None)
        for name, value in SWITCHES.items() if configure else ():
            configure(getattr(sqlite3, f"SQLITE_DBCONFIG_{name}"), value)
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()  # fails here, not at the first search
        connection.create_function("hamming", 2, lambda a, b: ((a ^ b) & ALL_BITS).bit_count(), deterministic=True)
        connection.create_function("row_crc", -1, row_crc, deterministic=True)
        return connection

    def generation(self) -> Any:
        """A value that changes whenever another connection has changed the file; takes microseconds."""
        if self.immutable:
            return self.file_state()
        with self.lock, self.explained():
            return self.raw.execute("PRAGMA data_version").fetchone()[0]

    def file_state(self) -> tuple[int, ...]:
        """What a change of the file changes: time, size, and the size of the log if there is one."""
        file, log = Path(self.path), Path(f"{self.path}-wal")
        size = log.stat().st_size if log.exists() else 0
        return (file.stat().st_mtime_ns, file.stat().st_size, *([size] if size else []))

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement with ``?`` for every value, and return its rows."""
        rows: list[Any] = self.raw.execute(sql, values).fetchall()
        return rows

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for every row of values."""
        self.raw.executemany(sql, rows)

    def _in_transaction(self) -> bool:
        return bool(self.raw.in_transaction)

    def close(self) -> None:
        """Close the connection."""
        self.side_files.clear()
        super().close()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn errors of SQLite into errors of shorthash, with the file and what to do."""
        try:
            yield
        except sqlite3.ProgrammingError as error:
            if "closed" not in str(error):
                raise
            raise InvalidInput(f"The store {self.path} is closed; open it again.") from error
        except UnicodeDecodeError as error:  # of text, or of a message that quotes it
            raise DamagedFile(f"{self.path} is damaged: it holds text that is not UTF-8; {ADVICE}") from error
        except MemoryError as error:
            raise PersistenceError(
                f"{self.path} cannot be read: a row is larger than the memory, or damaged; {ADVICE}"
            ) from error
        except sqlite3.DatabaseError as error:
            raise _explanation(error, self.path) from error


def _explanation(error: sqlite3.DatabaseError, path: str) -> PersistenceError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_NOTADB"):
        return ForeignFile(f"{path} is not a SQLite database, so it is not changed; choose another file.")
    if name.startswith("SQLITE_CORRUPT"):
        return DamagedFile(f"{path} is damaged: {error}; restore it from a copy, or build the store again.")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return PersistenceError(
            f"Cannot write to {path}: another process has been writing for {BUSY_SECONDS} seconds; nothing was "
            "changed, so try again."
        )
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return PersistenceError(f"Cannot write to {path}: {error}; nothing was changed; free disk space.")
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return PersistenceError(
            f"Cannot open or write {path}: {error}; nothing was changed; choose a folder that exists and that you may "
            "write to, or open it read-only."
        )
    return PersistenceError(
        f"The store {path} failed: {error}; check that no other program changes its tables, and open it again."
    )


class PostgresConnection(Connection):
    """A connection to a PostgreSQL server; a lost connection is opened again by the next call."""

    def __init__(self, url: str) -> None:
        self._psycopg = require_extra("psycopg", "postgres", "PostgresStore")
        self._url = url
        self._closed = False
        super().__init__()
        version = self.raw.info.server_version
        if version < OLDEST_POSTGRES:
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

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for every row of values."""
        self.raw.cursor().executemany(sql.replace("?", "%s"), rows)

    def _in_transaction(self) -> bool:
        return not self.raw.closed and self.raw.info.transaction_status != self._psycopg.pq.TransactionStatus.IDLE

    def _commit(self) -> None:
        wrote = self.run("SELECT pg_current_xact_id_if_assigned() IS NOT NULL")[0][0]
        try:
            super()._commit()
        except self._psycopg.Error as error:
            if not wrote or not self.raw.closed:  # an error of a server that still answers means that it rolled back
                raise
            raise OutcomeUnknown(
                "The connection to PostgreSQL was lost while a change was committed, so it is unknown whether it was "
                "made; look for it, or repeat an add() that has a batch=..., which is safe."
            ) from error

    def close(self) -> None:
        """Close the connection."""
        self._closed = True
        super().close()

    @contextmanager
    def statements(self) -> Iterator[Callable[..., list[Any]]]:
        """The function ``run``, for statements that are separate transactions."""
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
                f"PostgreSQL reports: {reason}; nothing was changed; check the server, the URL and your permissions."
            ) from error
