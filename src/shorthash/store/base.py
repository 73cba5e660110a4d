"""Store: the contract of an index over a database, with classes, metadata and several versions of the codes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._types import PackedCodes
from shorthash._validation import check_count, check_n_bits
from shorthash.codes import as_packed
from shorthash.errors import InvalidInput, PersistenceError
from shorthash.index.base import HammingIndex, Scored, check_k
from shorthash.index.items import (
    AnyIds,
    Vectors,
    as_ids,
    as_vectors,
    check_same_kind,
    check_unique,
    next_ids,
    read_only,
    stacked_vectors,
    tie_order,
)
from shorthash.index.results import LookupResult, Probes, RadiusResult, SearchResult
from shorthash.store.connection import Connection
from shorthash.store.example_sql import check_name
from shorthash.store.items import (
    Items,
    StoreWhere,
    as_ids_array,
    as_posteriors,
    check_found,
    distances_of,
    in_order,
    item_columns,
    items_of,
    search_result,
    stacked_posteriors,
    to_signed,
)
from shorthash.store.lookup import look_up, scores_of
from shorthash.store.sql import Session, Version


class Store(HammingIndex):
    """Exact search among codes in a database, with the contract of an index.

    A store opens one *collection* in one *version*. Items of a collection have an id (int64 or string), and optionally
    a class, metadata (JSON) and a vector; a version is one encoder's codes of them. ``search``, ``within``, ``counts``
    and the rest see the items that have a code in the opened version.

    Every call is one transaction: when it returns, the change is durable and visible to all processes; when it raises,
    nothing is changed. Every search sees one state of the database.

    ``where`` takes what an index takes, and mappings from fields of the metadata to the values they may have, such as
    ``{"city": ["Rome", "Oslo"], "class": 3}``.
    """

    _session_type: ClassVar[type[Session]]

    def __init__(self, connection: Connection, n_bits: int | None, collection: str, version: str | None) -> None:
        self._connection = connection
        self._collection = collection
        self._version = self._open(collection, n_bits, version)
        super().__init__(self._version.n_bits)

    def _open(self, collection: str, n_bits: int | None, version: str | None) -> Version:
        """Find a collection, or make it, and return the version to open."""
        with self._reading(collection) as session:
            info = session.find() if session.has_catalogue() else None
        if info is None:
            owner = type(self).__name__
            if n_bits is None:
                raise InvalidInput(
                    f"{owner} finds no collection {collection!r} in this database; pass n_bits=... to make it."
                )
            first = Version(check_name(version or "v1", "version"), 1, check_n_bits(n_bits, owner))
            with self._writing(collection) as session:
                info = session.create(first)
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

    @property
    def codes(self) -> PackedCodes:
        """Packed codes of all items in insertion order, (n_items,), read-only."""
        with self._opened() as session:
            return read_only(session.listing()[1])

    @property
    def ids(self) -> AnyIds:
        """Ids of all items in insertion order, (n_items,), read-only."""
        with self._opened() as session:
            return read_only(session.listing()[0])

    @property
    def vectors(self) -> NDArray[np.float32] | None:
        """Vectors of all items in insertion order, (n_items, dimension), read-only, nan in rows without one.

        None if no item has one.
        """
        with self._opened() as session:
            ids, _ = session.listing()
            if not session.collection.dimension or not len(ids):
                return None
            found = in_order(session.items(ids), ids).vectors
        return None if found is None or np.isnan(found).all() else read_only(found)

    def __len__(self) -> int:
        with self._opened() as session:
            return session.count([])

    def add(
        self,
        codes: ArrayLike | Mapping[str, ArrayLike],
        ids: ArrayLike | None = None,
        *,
        classes: Sequence[Any] | NDArray[Any] | None = None,
        metadata: Any = None,
        vectors: ArrayLike | None = None,
        posteriors: ArrayLike | None = None,
        batch: str | None = None,
    ) -> Self:
        """Add items, all or none.

        Parameters
        ----------
        codes : signs of shape (n, n_bits) or packed integers of shape (n,); or a mapping from versions to such codes,
            which must name the opened version
        ids : (n,) integers or strings not yet in the collection; None numbers the items
        classes : (n,) integers, strings or None
        metadata : n dictionaries (or None) that JSON can hold, or a data frame of pandas, polars or Arrow
        vectors : (n, dimension) numbers, kept as float32 for ranking by scores
        posteriors : (n, n_bytes) uint8, compact posteriors as ``Searcher.compact`` gives them
        batch : a name of your choice; a batch of that name is added once, however often the call is repeated, so that
            it can be repeated after ``OutcomeUnknown``
        """
        packed = self._codes_by_version(codes)
        n = len(packed[self.version])
        given = None if ids is None else self._ids_for(packed[self.version], ids)
        with self._writing() as session:
            if session.is_new(batch):
                new_ids = self._new_ids(session, n) if given is None else given
                self._write(session, new_ids, packed, classes, metadata, vectors, posteriors, replacing=False)
        self._after_writing(n)
        return self

    def upsert(
        self,
        codes: ArrayLike | Mapping[str, ArrayLike],
        ids: ArrayLike,
        *,
        classes: Sequence[Any] | NDArray[Any] | None = None,
        metadata: Any = None,
        vectors: ArrayLike | None = None,
        posteriors: ArrayLike | None = None,
    ) -> Self:
        """Add items; an item whose id is known is replaced completely (class, metadata, vector, all codes)."""
        packed = self._codes_by_version(codes)
        given = self._ids_for(packed[self.version], ids)
        with self._writing() as session:
            self._write(session, given, packed, classes, metadata, vectors, posteriors, replacing=True)
        self._after_writing(len(given))
        return self

    def update(self, ids: ArrayLike, codes: ArrayLike) -> Self:
        """Give items new codes, all or none; in insertion order they become the newest.

        Their codes in other versions are deleted, because a new code means new content.
        """
        packed = as_packed(codes, self.n_bits)
        given = self._ids_for(packed, ids)
        if len(given):
            with self._writing() as session:
                self._check_known(session, given)
                place = session.collection.next_place
                session.recode(given, to_signed(packed), place)
                session.save(replace(session.collection, next_place=place + len(given)))
        return self

    def merge(self, *others: HammingIndex) -> Self:
        """Add all items of other indexes or stores with all they hold, all or none; ids must not collide.

        Of a store, the items of its opened version are added.
        """
        filled = self._mergeable(others)
        if not filled:
            return self
        shards = [other.items(other.ids) if isinstance(other, Store) else items_of(other) for other in filled]
        return self.add(
            np.concatenate([shard.codes for shard in shards]),
            np.concatenate([shard.ids for shard in shards]),
            classes=[value for shard in shards for value in shard.classes],
            metadata=[value for shard in shards for value in shard.metadata],
            vectors=stacked_vectors([shard.vectors for shard in shards]),
            posteriors=stacked_posteriors(shards),
        )

    def items(self, ids: ArrayLike) -> Items:
        """Items by id, in the order of ``ids``; an id that is not in the opened version is an error."""
        given = as_ids(ids, type(self).__name__)
        check_unique(given, type(self).__name__)
        with self._opened() as session:
            self._check_kind(session, given)
            return in_order(session.items(given), given)

    def drop(self) -> None:
        """Delete the collection with all its items and versions."""
        with self._writing() as session:
            session.drop()

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

    def migrate(self, target: str, encode: Callable[[Items], ArrayLike], *, batch_size: int = 10_000) -> int:
        """Give every item of the opened version a code in the version ``target``, batch by batch.

        Other processes can read and write meanwhile. Every batch is a transaction; after a crash, call it again and it
        continues. Items that are changed while their batch is being encoded are encoded again.

        Parameters
        ----------
        target : a version made by ``add_version``
        encode : takes ``Items`` and returns their new codes
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
            codes = as_packed(encode(batch), to.n_bits)
            if len(codes) != len(batch):
                raise InvalidInput(f"encode() must return one code per item. Got {len(codes)} for {len(batch)} items.")
            found = batch.ids.tolist()
            with self._writing() as session:
                session.at(to).fill(found, [place[item] for item in found], to_signed(codes))
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

    # the contract of an index

    def _has(self, ids: AnyIds) -> bool:
        with self._opened() as session:
            return len(session.items(ids)) == len(ids)

    def _remove(self, ids: AnyIds) -> None:
        with self._writing() as session:
            self._check_known(session, ids)
            session.delete(ids)

    def _search(self, queries: PackedCodes, k: int, ties: str, seed: int, where: StoreWhere | None) -> SearchResult:
        with self._opened() as session:
            conditions = session.conditions(where)
            rows = [session.nearest(query, k, ties, seed, conditions) for query in to_signed(queries).tolist()]
            if rows and rows[0][0]:
                return search_result(rows)
            width = 0 if rows else min(k, session.count(conditions))
            return search_result(rows, session.collection.id_kind, width)

    def _within(
        self, queries: PackedCodes, radius: int, ties: str, seed: int, where: StoreWhere | None
    ) -> RadiusResult:
        column = "place" if ties == "insertion" else ""
        with self._opened() as session:
            conditions = session.conditions(where)
            signed = to_signed(queries).tolist()
            balls = [session.ball(query, radius, conditions, column) for query in signed]
            rows = [row for ball in balls for row in ball]
            kind = "i" if rows else session.collection.id_kind
        ids = as_ids_array([row[0] for row in rows], kind)
        places = np.array([row[2] for row in rows]) if column else np.arange(len(rows))
        none = [np.empty(0, dtype=np.uint8)]
        distances = np.concatenate(none + [distances_of(ball, q) for ball, q in zip(balls, signed, strict=True)])
        counts = np.array([len(ball) for ball in balls], dtype=np.int64)
        order = tie_order(np.repeat(np.arange(len(balls)), counts), distances, places, ids, ties, seed)
        return RadiusResult(ids[order], distances[order], np.append(0, np.cumsum(counts)).astype(np.int64))

    def _counts(self, queries: PackedCodes, radius: int, where: StoreWhere | None) -> NDArray[np.int64]:
        with self._opened() as session:
            conditions = session.conditions(where)
            counts = [session.n_within(query, radius, conditions) for query in to_signed(queries).tolist()]
        return np.array(counts, dtype=np.int64)

    def _scored(
        self, queries: PackedCodes, vectors: Vectors, metric: str, where: StoreWhere | None, k: int | None, radius: int
    ) -> list[Scored]:
        with self._opened() as session:
            self._check_given(session, vectors, metric)
            conditions = session.conditions(where)
            found = []
            for query, vector in zip(to_signed(queries).tolist(), vectors, strict=True):
                column = "" if metric == "asymmetric" else session.vector_column
                if k is None:
                    rows = session.ball(query, radius, conditions, column)
                else:
                    rings = session.rings(query, "scores", 0, conditions, k, column)
                    rows = [row for _, ring in rings for row in ring]
                ids = as_ids_array([row[0] for row in rows], session.collection.id_kind)
                scores = scores_of(session, rows, vector, metric)
                found.append((ids, distances_of(rows, query), scores))
        return found

    def _lookup(
        self, probes: Probes, where: StoreWhere | None, vectors: Vectors | None, metric: str, posteriors: bool
    ) -> LookupResult:
        with self._opened() as session:
            self._check_given(session, vectors, metric)
            return look_up(session, probes, where, vectors, metric, posteriors=posteriors)

    # sessions and checks

    def _check_given(self, session: Session, vectors: Vectors | None, metric: str) -> None:
        """Raise unless vectors of queries fit those of the items."""
        dimension = session.collection.dimension or None
        if vectors is not None and (dimension is not None or not session.is_empty()):
            self._check_columns(vectors, metric, dimension)

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

    def _codes_by_version(self, codes: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, PackedCodes]:
        if not isinstance(codes, Mapping):
            return {self.version: as_packed(codes, self.n_bits)}
        if self.version not in codes:
            raise InvalidInput(
                f"Codes by version must name the opened one, {self.version!r}. Got {list(codes)} instead."
            )
        with self._reading() as session:
            versions = {name: session.collection.version(name) for name in codes}
        packed = {name: as_packed(values, versions[name].n_bits) for name, values in codes.items()}
        sizes = {name: len(values) for name, values in packed.items()}
        if len(set(sizes.values())) > 1:
            raise InvalidInput(f"The codes of {type(self).__name__} must be as many in every version. Got {sizes}.")
        return packed

    def _new_ids(self, session: Session, n: int) -> AnyIds:
        if session.collection.id_kind == "U" and not session.is_empty():
            raise InvalidInput("Items of a collection with string ids cannot be numbered; pass ids=[...] as strings.")
        return next_ids(session.collection.last_id + 1, n)

    def _write(
        self,
        session: Session,
        ids: AnyIds,
        codes: dict[str, PackedCodes],
        classes: Sequence[Any] | NDArray[Any] | None,
        metadata: Sequence[Mapping[str, Any] | None] | None,
        vectors: ArrayLike | None,
        posteriors: ArrayLike | None,
        *,
        replacing: bool,
    ) -> None:
        """Check and write items, and what changes about the collection."""
        columns = item_columns(ids, classes, metadata, type(self).__name__)
        n, kind = len(ids), ids.dtype.kind
        rows = None if vectors is None else as_vectors(vectors, n, type(self).__name__, np.float32)
        if posteriors is not None:
            columns["posterior"] = [row.tobytes() for row in as_posteriors(posteriors, n, type(self).__name__)]
        if not n:
            return
        self._check_kind(session, ids)
        info, known = session.collection, session.known(ids)
        if known and not replacing:
            raise InvalidInput(
                f"Id {known[0]!r} is already in the store; use upsert() to replace the item, or another id."
            )
        dimension = info.dimension if rows is None else rows.shape[1]
        if info.dimension and dimension != info.dimension:
            raise InvalidInput(
                f"Vectors in collection {info.name!r} have dimension {info.dimension}. Got {dimension} instead."
            )
        if known:
            session.delete(as_ids_array(known))
        if kind != info.id_kind:
            session.set_id_kind(kind)
        if dimension and not info.dimension:
            session.set_dimension(dimension)
        if posteriors is not None:
            session.add_posteriors()
        session.save(
            replace(
                session.collection,
                id_kind=kind,
                last_id=max(info.last_id, int(ids.max())) if kind == "i" else info.last_id,
                next_place=info.next_place + n,
                next_slot=info.next_slot + (0 if rows is None else n),
                dimension=dimension,
            )
        )
        columns["place"] = range(info.next_place, info.next_place + n)
        columns |= {info.versions[name].column: to_signed(values).tolist() for name, values in codes.items()}
        session.insert(columns, rows, info.next_slot)

    def _check_kind(self, session: Session, ids: AnyIds) -> None:
        """Raise unless the opened version still exists and the ids are of its kind."""
        kind = session.collection.id_kind
        self._check_version(session)
        if ids.dtype.kind != kind and not session.is_empty():
            check_same_kind(ids, kind, type(self).__name__)

    def _check_known(self, session: Session, ids: AnyIds) -> None:
        self._check_kind(session, ids)
        check_found(ids, set(session.known(ids)))
