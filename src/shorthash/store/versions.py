"""Several encoders' codes of the same items side by side, and the way from one to the next without a pause."""

from __future__ import annotations

import copy
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._validation import check_count, check_n_bits
from shorthash.codes import as_packed
from shorthash.errors import InvalidInput, PersistenceError
from shorthash.index.base import HammingIndex, check_k
from shorthash.index.results import SearchResult
from shorthash.store import ranking
from shorthash.store.conditions import Allowed, StoreWhere, as_allowed
from shorthash.store.items import Items, as_ids_array, to_signed
from shorthash.store.session import Collection, Session, Version

__all__ = ["Versions", "check_name", "first_version", "opened_version", "search_result"]

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
RESERVED = re.compile(r"(shorthash|sqlite|pg)_.*|.*_vectors")


class Versions(HammingIndex):
    """A collection opened in one of its versions, and what can be done with versions."""

    def __init__(self, collection: str, version: Version) -> None:
        super().__init__(version.n_bits)
        self._collection, self._version = collection, version

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Session]:
        """One state of the database, to read."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Session]:
        """One transaction, to read and write."""

    @contextmanager
    def _opened(self) -> Iterator[Session]:
        """One state of the database, to read the opened version."""
        with self._version_explained(), self._reading() as session:
            yield session

    @contextmanager
    def _version_explained(self) -> Iterator[None]:
        """If the database fails because another has dropped the opened version, say so."""
        try:
            yield
        except PersistenceError:
            with suppress(PersistenceError), self._reading() as session:
                self._check_version(session)
            raise

    def _check_version(self, session: Session) -> None:
        """Raise unless the opened version is still there."""
        if session.collection.versions.get(self.version) != self._version:
            raise InvalidInput(f"Version {self.version!r} was dropped meanwhile; open the store again.")

    @abstractmethod
    def close(self) -> None:
        """Let go of the database; other processes are not concerned."""

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

    @property
    def versions(self) -> dict[str, int]:
        """All versions of the collection, oldest first, and the length of their codes."""
        with self._reading() as session:
            return {name: version.n_bits for name, version in session.collection.versions.items()}

    @property
    def current_version(self) -> str:
        """The version that is opened when none is named."""
        with self._reading() as session:
            return session.collection.current

    @abstractmethod
    def _open(self, collection: str, n_bits: int | None, version: str | None) -> Version:
        """Find a collection, or make it, and return the version to open."""

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
        """Make room for another encoder's codes, and return the store opened there; so far no item has one."""
        check_name(name, "version")
        n_bits = check_n_bits(n_bits, f"{type(self).__name__}.add_version")
        with self._writing() as session:
            known = session.collection
            if name in known.versions:
                raise InvalidInput(f"Collection {known.name!r} already has a version {name!r}; choose another name.")
            version = Version(name, known.next_number, n_bits)
            session.add_version(version)
            versions = {**known.versions, name: version}
            session.save(replace(known, versions=versions, next_number=known.next_number + 1))
        self._prepare(version)
        return self.at(name)

    def _prepare(self, version: Version) -> None:
        """What a new version needs outside a transaction."""

    def migrate(self, target: str, encode: Callable[[Items], ArrayLike], *, batch_size: int = 10_000) -> int:
        """Give every item of the opened version a code in the version ``target``, batch by batch.

        Readers and writers go on meanwhile. Every batch is a transaction; after a crash, call it again and it goes on
        where it was. Items that are changed while their batch is being encoded are done again.

        Parameters
        ----------
        target : a version made by ``add_version``
        encode : takes ``Items`` and returns their new codes
        batch_size : items per transaction

        Returns
        -------
        n_items : how many codes were made
        """
        batch_size = check_count(batch_size, "batch_size", f"{type(self).__name__}.migrate")
        with self._reading() as session:
            to = session.collection.version(target)
        self._prepare(to)
        written, after, again = 0, None, 0
        while True:
            with self._opened() as session:
                ids, places = session.lacking(self._version, to, after, batch_size)
                batch = session.items(self._version, as_ids_array(ids)) if ids else None
            if batch is None and (after is None or not again):
                return written
            if batch is None:
                after, again = None, 0  # items may have come in behind us
                continue
            place = dict(zip(ids, places, strict=True))
            codes = as_packed(encode(batch), to.n_bits)
            if len(codes) != len(batch):
                raise InvalidInput(f"encode() must return one code per item. Got {len(codes)} for {len(batch)} items.")
            found = batch.ids.tolist()
            with self._writing() as session:
                session.fill(to, found, [place[item] for item in found], to_signed(codes).tolist())
            written, again, after = written + len(found), again + len(found), ids[-1]

    def n_lacking(self, version: str) -> int:
        """How many items of the collection have no code in a version yet."""
        with self._reading() as session:
            return session.n_lacking(session.collection.version(version))

    def switch(self, version: str) -> Self:
        """Make a version the one that is opened by default; refused while an item lacks a code in it."""
        with self._writing() as session:
            target = session.collection.version(version)
            lacking = session.n_lacking(target)
            if lacking:
                raise InvalidInput(
                    f"{lacking} items have no code in version {version!r}; call migrate({version!r}, encode) first."
                )
            session.save(replace(session.collection, current=version))
        return self.at(version)

    def drop_version(self, version: str) -> Self:
        """Forget the codes of a version; not of the current one."""
        with self._writing() as session:
            known = session.collection
            gone = known.version(version)
            if version == known.current:
                raise InvalidInput(f"Version {version!r} is the current one; switch() to another before dropping it.")
            session.save(replace(known, versions={n: v for n, v in known.versions.items() if n != version}))
            session.drop_version(gone)
        return self

    def dual_search(
        self, codes: Mapping[str, ArrayLike], k: int, *, where: StoreWhere | None = None
    ) -> tuple[SearchResult, NDArray[np.bool_]]:
        """Find the k nearest items while a migration is under way: every item is searched once.

        Items that have a code in the new version are ranked by it, the others by the old one; both together by the
        share of bits that differ, then by id. Before a migration this is a search in the old version, after it one in
        the new.

        Parameters
        ----------
        codes : the queries in both versions, the old one first: ``{"v1": codes, "v2": codes}``
        k : number of items wanted, at least 1
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
            asked = [as_packed(c, v.n_bits) for c, v in zip(codes.values(), (old, new), strict=True)]
            allowed = self._allowed(session, where)
            rows = [
                _merged(
                    ranking.nearest(session, old, p, k, "id", 0, allowed, skip=new.column),
                    ranking.nearest(session, new, q, k, "id", 0, allowed),
                    (old.n_bits, new.n_bits),
                    k,
                )
                for p, q in zip(*(to_signed(a).tolist() for a in asked), strict=True)
            ]
            kind = session.collection.id_kind
        result = search_result([([i for i, _, _ in row], [d for _, d, _ in row]) for row in rows], kind)
        by_new = np.array([[new for _, _, new in row] for row in rows], dtype=np.bool_)
        return result, by_new.reshape(result.distances.shape)

    def _all_ids(self, session: Session) -> Any:
        return as_ids_array(session.listing(self._version)[0], session.collection.id_kind)

    def _allowed(self, session: Session, where: StoreWhere | None) -> Allowed:
        return as_allowed(
            where, lambda: session.collection.id_kind, lambda: self._all_ids(session), type(self).__name__
        )


def check_name(name: object, what: str) -> str:
    """Raise unless a collection or a version may be called so; only such names ever become part of a statement."""
    if not isinstance(name, str) or not NAME.fullmatch(name) or RESERVED.fullmatch(name):
        raise InvalidInput(
            f"The name of a {what} must be at most 40 lower-case letters, digits and '_', begin with a letter, and not "
            f"look like shorthash_..., sqlite_..., pg_... or ..._vectors. Got {name!r} instead."
        )
    return name


def first_version(n_bits: int | None, name: str | None, collection: str, owner: str) -> Version:
    """The version that a new collection begins with."""
    if n_bits is None:
        raise InvalidInput(f"{owner} finds no collection {collection!r} in this database; pass n_bits=... to make it.")
    return Version(check_name(name or "v1", "version"), 1, check_n_bits(n_bits, owner))


def opened_version(known: Collection, n_bits: int | None, name: str | None) -> Version:
    """The version to open in a collection that exists."""
    version = known.version(known.current if name is None else name)
    if n_bits is not None and version.n_bits != n_bits:
        raise InvalidInput(
            f"Version {version.name!r} of collection {known.name!r} has codes of {version.n_bits} bits. "
            f"Got n_bits={n_bits} instead; leave it out to open what is there."
        )
    return version


def search_result(rows: list[tuple[list[Any], list[int]]], kind: str, width: int = 0) -> SearchResult:
    """Rows of equal length as arrays; ``width`` is their length where there is no row."""
    n = len(rows[0][0]) if rows else width
    ids = as_ids_array([item for row, _ in rows for item in row], kind).reshape(len(rows), n)
    distances = np.array([row for _, row in rows], dtype=np.uint8).reshape(len(rows), n)
    return SearchResult(ids, distances)


def _merged(
    by_old: tuple[list[Any], list[int]], by_new: tuple[list[Any], list[int]], n_bits: tuple[int, int], k: int
) -> list[tuple[Any, int, bool]]:
    """The k best of two rankings by share of differing bits, then by id."""
    hits = [(d * n_bits[1], item, d, False) for item, d in zip(*by_old, strict=True)]
    hits += [(d * n_bits[0], item, d, True) for item, d in zip(*by_new, strict=True)]
    return [(item, d, new) for _, item, d, new in sorted(hits)[:k]]
