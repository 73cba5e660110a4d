"""Connections to databases: a lock, transactions, and a connection of its own for a forked process."""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any


class Connection(ABC):
    """A connection to a database and its lock; a forked process gets a connection of its own."""

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
                self._commit()
            finally:
                if self._in_transaction():
                    self.run("ROLLBACK")


def _close_in(process: int, connection: Any) -> None:
    """Close a connection in the process that opened it, not in a fork."""
    if os.getpid() == process:
        connection.close()
