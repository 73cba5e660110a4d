"""A store in one SQLite file: nothing to install, several processes, safe against kill -9."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from shorthash.errors import InvalidInput, PersistenceError
from shorthash.store.base import Store
from shorthash.store.session import Version
from shorthash.store.side_file import SideFile, remove_others, side_folder
from shorthash.store.sql import read_collection
from shorthash.store.sqlite_connection import Handle
from shorthash.store.sqlite_session import SQLiteSession, create_tables
from shorthash.store.versions import check_name, first_version, opened_version

__all__ = ["SQLiteStore"]


class SQLiteStore(Store):
    """Codes and items in one SQLite file.

    Several threads and several processes may read and write; readers never wait, writers wait for each other. Every
    change is forced to disk before the call returns.

    Parameters
    ----------
    path : the file, made if there is none; ":memory:" for a store that vanishes with its process
    n_bits : length of the codes; needed for a new collection, checked for one that exists
    collection : name of the collection (and of its table)
    version : which codes to open; None opens the current ones, and a new collection begins with "v1"

    Examples
    --------
    >>> store = SQLiteStore(":memory:", n_bits=3)
    >>> store = store.add([[1, 1, 1], [1, 1, -1], [-1, -1, -1]], ids=["ape", "bee", "cat"], classes=[0, 0, 1])
    >>> store.search([[1, 1, 1]], k=2).ids.tolist()
    [['ape', 'bee']]
    >>> store.search([[1, 1, 1]], k=2, where={"class": 1}).ids.tolist()
    [['cat']]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        n_bits: int | None = None,
        *,
        collection: str = "items",
        version: str | None = None,
    ) -> None:
        check_name(collection, "collection")
        self._handle = Handle(_existing(os.fspath(path), n_bits))
        super().__init__(collection, self._open(collection, n_bits, version))

    def _open(self, collection: str, n_bits: int | None, version: str | None) -> Version:
        with self._handle.transaction("BEGIN") as run:
            known = read_collection(run, collection)
        if known is None:
            first = first_version(n_bits, version, collection, type(self).__name__)
            with self._handle.transaction("BEGIN IMMEDIATE") as run:
                known = read_collection(run, collection) or create_tables(run, collection, first)
        return opened_version(known, n_bits, version)

    @property
    def path(self) -> str:
        """The file."""
        return self._handle.path

    def close(self) -> None:
        """Let go of the file."""
        self._handle.close()

    def pack_vectors(self) -> None:
        """Move vectors out of the database into one memory-mapped file, those of a bucket side by side.

        Re-ranking is then several times faster. Vectors added later stand in the database until the next call. The
        file lies in the folder FILE-vectors: copy both to move a store.
        """
        if self.path == ":memory:":
            raise InvalidInput("Vectors of a store in memory cannot be packed; give the store a file.")
        with self._reading() as session:
            self._check_version(session)
            before = session.collection
            slots = session.slots_in_bucket_order(self._version)
            vectors = session.read_vectors(slots)
        folder = side_folder(self.path)
        name = SideFile.write(folder, self.collection, slots, vectors)
        with self._writing() as session:
            if session.collection.vectors_at != before.vectors_at or not (folder / name).exists():
                raise PersistenceError("Another process has packed the vectors meanwhile; nothing is left to do.")
            session.forget_vectors(before.next_slot)
            session.save(replace(session.collection, vectors_at=name))
        with self._writing() as session:
            remove_others(folder, self.collection, {session.collection.vectors_at, before.vectors_at})

    @contextmanager
    def _reading(self) -> Iterator[SQLiteSession]:
        with self._handle.transaction("BEGIN") as run:
            yield SQLiteSession(self._collection, run, self._handle)

    @contextmanager
    def _writing(self) -> Iterator[SQLiteSession]:
        with self._handle.transaction("BEGIN IMMEDIATE") as run:
            yield SQLiteSession(self._collection, run, self._handle)


def _existing(path: str, n_bits: int | None) -> str:
    """The path, unless it leads nowhere and nothing is to be made there."""
    if n_bits is None and path != ":memory:" and not Path(path).exists():
        raise PersistenceError(f"There is no store at {path}; check the path, or pass n_bits=... to make one.")
    return path
