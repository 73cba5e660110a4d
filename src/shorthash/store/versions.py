"""One collection of a database, opened in one version: sessions, versions side by side, and the way to the next one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._validation import check_count, check_n_bits
from shorthash.codes import as_packed
from shorthash.errors import InvalidInput, PersistenceError, phrase
from shorthash.index.base import HammingIndex, SearchResult, check_k
from shorthash.index.items import as_posteriors
from shorthash.store.connection import Connection
from shorthash.store.example_sql import check_name
from shorthash.store.items import Items, StoreWhere, as_ids_array, search_result, to_signed
from shorthash.store.sql import Session
from shorthash.store.tables import Version

Encode = Callable[[Items], ArrayLike | tuple[ArrayLike, ArrayLike | None]]
"""From items to their codes in another version, or to codes and compact posteriors."""


class Opened(HammingIndex):
    """The half of a ``Store`` that opens collections and versions; the other half writes and searches items."""

    _session_type: ClassVar[type[Session]]

    def __init__(
        self, connection: Connection, n_bits: int | None, collection: str, version: str | None, partitions: int = 1
    ) -> None:
        self._connection = connection
        self._collection = collection
        self._version = self._open(collection, n_bits, version, partitions)
        super().__init__(self._version.n_bits)

    def _open(self, collection: str, n_bits: int | None, version: str | None, partitions: int = 1) -> Version:
        """Find a collection, or make it, and return the version to open."""
        with self._reading(collection) as session:
            info = session.find() if session.has_catalogue() else None
        if info is None:
            owner = type(self).__name__
            if n_bits is None:
                raise InvalidInput(
                    f"{owner} finds no collection {collection!r} in this database; "
                    f"{phrase('pass n_bits=... to make it')}."
                )
            first = Version(check_name(version or "v1", "version"), 1, check_n_bits(n_bits, owner))
            with self._writing(collection) as session:
                info = session.create(first, partitions)
        opened = info.version(info.current_version if version is None else version)
        if n_bits is not None and opened.n_bits != n_bits:
            raise InvalidInput(
                f"Version {opened.name!r} of collection {info.name!r} has codes of {opened.n_bits} bits. "
                f"Got n_bits={n_bits} instead; leave it out to open the existing one."
            )
        return opened

    def close(self) -> None:
        """Close the connection; other processes are not affected."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def collection(self) -> str:
        """Name of the collection."""
        return self._collection

    @property
    def version(self) -> str:
        """Name of the version whose codes are searched."""
        return self._version.name

    # versions

    @property
    def versions(self) -> dict[str, int]:
        """All versions of the collection, oldest first, and the length of their codes."""
        with self._reading() as session:
            return {name: version.n_bits for name, version in session.collection.versions.items()}

    @property
    def current_version(self) -> str:
        """The version that is opened when none is named."""
        with self._reading() as session:
            return session.collection.current_version

    def sibling(self, collection: str, n_bits: int | None = None, version: str | None = None) -> Self:
        """Another collection in the same database; shares the connection. Arguments are those of the store."""
        other = copy.copy(self)
        other._collection = check_name(collection, "collection")
        other._version = self._open(collection, n_bits, version)
        other._n_bits = other._version.n_bits
        return other

    def at(self, version: str) -> Self:
        """The same collection in another version; shares the connection."""
        with self._reading() as session:
            found = session.collection.version(version)
        other = copy.copy(self)
        other._version, other._n_bits = found, found.n_bits
        return other

    def add_version(self, name: str, n_bits: int) -> Self:
        """Add a version for another encoder's codes, and return the store opened in it; no item has such a code yet."""
        check_name(name, "version")
        n_bits = check_n_bits(n_bits, f"{type(self).__name__}.add_version")
        with self._writing() as session:
            info = session.collection
            if name in info.versions:
                raise InvalidInput(f"Collection {info.name!r} already has a version {name!r}; choose another name.")
            version = Version(name, info.next_number, n_bits)
            session.add_version(version)
            versions = {**info.versions, name: version}
            session.save(replace(info, versions=versions, next_number=info.next_number + 1))
        self._prepare(version)
        return self.at(name)

    def drop_version(self, version: str) -> Self:
        """Delete the codes of a version that is not the current one."""
        with self._writing() as session:
            info = session.collection
            dropped = info.version(version)
            if version == info.current_version:
                raise InvalidInput(f"Version {version!r} is the current one; switch() to another before dropping it.")
            session.save(replace(info, versions={n: v for n, v in info.versions.items() if n != version}))
            session.drop_version(dropped)
        return self

    def migrate(self, target: str, encode: Encode, *, batch_size: int = 10_000) -> int:
        """Give every item of the opened version a code in the version ``target``, batch by batch.

        Other processes can read and write meanwhile. Every batch is a transaction; after a crash, call it again and it
        continues. Items that are changed while their batch is being encoded are encoded again.

        Parameters
        ----------
        target : a version made by ``add_version``
        encode : takes ``Items`` and returns their new codes, or codes and compact posteriors, as
            ``Searcher.encode_items`` does
        batch_size : items per transaction

        Returns
        -------
        n_items : how many codes were written
        """
        batch_size = check_count(batch_size, "batch_size", f"{type(self).__name__}.migrate")
        with self._reading() as session:
            to = session.collection.version(target)
        self._prepare(to)
        total, in_this_pass, after = 0, 0, None
        while True:
            with self._opened() as session:
                place = dict(session.lacking(to, after, batch_size))
                batch = session.items(as_ids_array(list(place))) if place else None
            if batch is None:
                if not in_this_pass:
                    return total
                in_this_pass, after = 0, None  # one more pass: items may have been added or changed behind this one
                continue
            encoded = encode(batch)
            codes, posteriors = encoded if isinstance(encoded, tuple) else (encoded, None)
            packed, found = as_packed(codes, to.n_bits), batch.ids.tolist()
            if len(packed) != len(batch):
                raise InvalidInput(f"encode() must return one code per item. Got {len(packed)} for {len(batch)} items.")
            rows = (
                None if posteriors is None else as_posteriors(posteriors, len(batch), f"{type(self).__name__}.migrate")
            )
            with self._writing() as session:
                session.at(to).fill(found, [place[item] for item in found], to_signed(packed), rows)
            total, in_this_pass, after = total + len(found), in_this_pass + len(found), list(place)[-1]

    def n_lacking(self, version: str) -> int:
        """How many items of the collection have no code in a version yet."""
        with self._reading() as session:
            return session.n_lacking(session.collection.version(version))

    def switch(self, version: str) -> Self:
        """Make a version the one that is opened by default; an error while an item has no code in it."""
        with self._writing() as session:
            lacking = session.n_lacking(session.collection.version(version))
            if lacking:
                raise InvalidInput(
                    f"{lacking} items have no code in version {version!r}; call migrate({version!r}, encode) first."
                )
            session.save(replace(session.collection, current_version=version))
        return self.at(version)

    def dual_search(
        self, codes: Mapping[str, ArrayLike], k: int, *, where: StoreWhere | None = None
    ) -> tuple[SearchResult, NDArray[np.bool_]]:
        """Find the k nearest items during a migration: every item is searched once.

        Items that have a code in the new version are ranked by it, the others by the old one; all of them by the share
        of bits that differ, then by id. Before a migration this is a search in the old version, after it one in the
        new.

        Parameters
        ----------
        codes : the queries in both versions, the old one first: ``{"v1": codes, "v2": codes}``
        k : number of items to find, at least 1
        where : only these items may be found

        Returns
        -------
        result : ids and distances, each distance in the version that found the item
        by_new : (n_queries, k') whether the new version found it
        """
        owner = f"{type(self).__name__}.dual_search"
        k = check_k(k, owner)
        if len(codes) != 2:
            raise InvalidInput(f"{owner} takes codes of two versions. Got {len(codes)} instead.")
        with self._reading() as session:
            old, new = (session.collection.version(name) for name in codes)
            packed = [as_packed(given, v.n_bits) for given, v in zip(codes.values(), (old, new), strict=True)]
            conditions = session.conditions(where)
            not_migrated = [(f"{new.column} IS NULL", []), *conditions]
            best = []
            for by_old, by_new in zip(*(to_signed(given).tolist() for given in packed), strict=True):
                left = session.at(old).nearest(by_old, k, "id", 0, not_migrated)
                done = session.at(new).nearest(by_new, k, "id", 0, conditions)
                hits = [(d * new.n_bits, item, d, False) for item, d in zip(*left, strict=True)]
                hits += [(d * old.n_bits, item, d, True) for item, d in zip(*done, strict=True)]
                best.append(sorted(hits)[:k])
            kind = session.collection.id_kind
        result = search_result([([i for _, i, _, _ in row], [d for _, _, d, _ in row]) for row in best], kind)
        found_by_new = np.array([[is_new for _, _, _, is_new in row] for row in best], dtype=np.bool_)
        return result, found_by_new.reshape(result.distances.shape)

    def _prepare(self, version: Version) -> None:
        """What a new version needs outside a transaction."""

    def _after_writing(self, n_items: int) -> None:
        """What a database needs after many items were written."""

    # sessions

    def _session(self, collection: str | None = None, *, writing: bool = False) -> Session:
        """A session for the opened version; or, before that, for a ``collection``."""
        if collection is None:
            return self._session_type(self._connection, self._collection, self._version, writing=writing)
        return self._session_type(self._connection, collection, None, writing=writing)

    @contextmanager
    def _reading(self, collection: str | None = None) -> Iterator[Session]:
        """One state of the database, to read."""
        with self._connection.transaction(self._session_type.begin_reading):
            yield self._session(collection)

    @contextmanager
    def _writing(self, collection: str | None = None) -> Iterator[Session]:
        """One transaction, to read and write."""
        with self._connection.transaction(self._session_type.begin_writing):
            yield self._session(collection, writing=True)

    @contextmanager
    def _opened(self) -> Iterator[Session]:
        """One state of the database, to read the opened version."""
        with self._version_explained(), self._reading() as session:
            yield session

    @contextmanager
    def _version_explained(self) -> Iterator[None]:
        """If the database fails because another process has dropped the opened version, say so."""
        try:
            yield
        except PersistenceError:
            with suppress(PersistenceError), self._reading() as session:
                self._check_version(session)
            raise

    def _check_version(self, session: Session) -> None:
        """Raise unless the opened version still exists."""
        if session.collection.versions.get(self.version) != self._version:
            raise InvalidInput(f"Version {self.version!r} was dropped by another process; open the store again.")
