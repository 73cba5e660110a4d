"""Store: the contract of an index over a database, with classes, metadata and several versions of the codes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._arrays import PackedCodes
from shorthash.codes import as_packed
from shorthash.errors import InvalidInput, phrase
from shorthash.index.base import HammingIndex, LookupResult, Probes, RadiusResult, Scored, SearchResult
from shorthash.index.items import (
    AnyIds,
    Vectors,
    as_ids,
    as_posteriors,
    as_vectors,
    check_same_kind,
    check_unique,
    next_ids,
    read_only,
    score_codes,
    score_vectors,
    stacked_posteriors,
    stacked_vectors,
    tie_order,
)
from shorthash.store.items import (
    Items,
    Row,
    StoreWhere,
    as_ids_array,
    check_found,
    distances_of,
    from_signed,
    in_order,
    item_columns,
    items_of,
    read_posteriors,
    search_result,
    to_signed,
)
from shorthash.store.sql import Clause, Session, all_of
from shorthash.store.tables import check_column, frame_types
from shorthash.store.versions import Opened


class Store(Opened):
    """Exact search among codes in a database, with the contract of an index.

    A store opens one *collection* in one *version*. Items of a collection have an id (int64 or string), and optionally
    a class, metadata (JSON) and a vector; a version is one encoder's codes of them. ``search``, ``within``, ``counts``
    and the rest see the items that have a code in the opened version.

    Every call is one transaction: when it returns, the change is durable and visible to all processes; when it raises,
    nothing is changed. Every search sees one state of the database.

    ``where`` takes what an index takes, and mappings from fields of the metadata to the values they may have, such as
    ``{"city": ["Rome", "Oslo"], "class": 3}``. ``add_columns`` gives fields separate typed columns.
    """

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
        batch : a name of your choice; a batch of that name is added only once, so the call can be repeated, such as
            after ``OutcomeUnknown``
        """
        fields = {"classes": classes, "metadata": metadata, "vectors": vectors, "posteriors": posteriors}
        return self._put(codes, ids, fields, batch=batch)

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
        fields = {"classes": classes, "metadata": metadata, "vectors": vectors, "posteriors": posteriors}
        return self._put(codes, ids, fields, replacing=True)

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

        The items of a store are those of its opened version.
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
            posteriors=stacked_posteriors([shard.posteriors for shard in shards], [len(shard) for shard in shards]),
        )

    def items(self, ids: ArrayLike, *, skip_missing: bool = False, vectors: bool = True) -> Items:
        """Items by id, in the order of ``ids``; an id that is not in the opened version is an error, or is skipped.

        Vectors are read only if ``vectors`` is true.
        """
        given = as_ids(ids, type(self).__name__)
        check_unique(given, type(self).__name__)
        with self._opened() as session:
            if not skip_missing:
                self._check_kind(session, given)
            found = session.items(given, vectors=vectors)
        return in_order(found, given[np.isin(given, found.ids)] if skip_missing else given)

    def cell_sizes(self, cells: ArrayLike, *, where: StoreWhere | None = None) -> NDArray[np.int64]:
        """The number of items of each of the given codes, (n,), in one statement."""
        wanted = to_signed(as_packed(cells, self.n_bits)).tolist()
        with self._opened() as session:
            sizes = session.sizes(list(dict.fromkeys(wanted)), session.conditions(where))
        return np.array([sizes.get(code, 0) for code in wanted], dtype=np.int64)

    @property
    def columns(self) -> dict[str, str]:
        """Fields of the metadata that have a separate column, and their types."""
        with self._reading() as session:
            return session.declared()

    def add_columns(self, columns: Any, *, index: Collection[str] = ()) -> Self:
        """Give fields of the metadata separate typed columns, all or none.

        Values that items have in these fields are moved. From then on the fields are written to their columns, are read
        back with the metadata, and ``where`` compares columns: also by ``{"price": {"<": 5}}``, with ``<``, ``<=``,
        ``>``, ``>=`` and ``!=``. A value that is not of the type is an error.

        Parameters
        ----------
        columns : a mapping from fields to "int", "float", "text", "bool" or "time"; or a data frame of pandas, polars
            or Arrow whose columns have these types. Times are kept without a zone; those with one are turned into UTC
        index : fields that get a B-tree, for searches that few items fulfil and for your own statements

        Examples
        --------
        >>> from shorthash import SQLiteStore
        >>> store = SQLiteStore(":memory:", n_bits=3).add_columns({"price": "float"}, index=["price"])
        >>> store = store.add([1, 2, 3], metadata=[{"price": 2.5, "city": "Rome"}, {"price": 9}, None])
        >>> store.search([2], k=2, where={"price": {"<": 5}}).ids.tolist()
        [[0]]
        >>> store.items([0]).metadata
        [{'city': 'Rome', 'price': 2.5}]
        """
        owner = f"{type(self).__name__}.add_columns"
        given = dict(columns) if isinstance(columns, Mapping) else frame_types(columns, owner)
        with self._writing() as session:
            known = session.declared()
            for name, kind in given.items():
                check_column(name, kind, owner, session.table_columns() if name not in known else {})
                if known.get(name, kind) != kind:
                    raise InvalidInput(f"The column {name!r} holds {known[name]} already. Got {kind!r} instead.")
            for name in index:
                if name not in {*known, *given}:
                    raise InvalidInput(f"The 'index' of {owner} must name columns of the store. Got {name!r} instead.")
            session.add_columns({name: kind for name, kind in given.items() if name not in known}, index)
        return self

    def drop(self) -> None:
        """Delete the collection with all its items and versions."""
        with self._writing() as session:
            session.drop()

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

    def _codes_by_version(self, codes: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, PackedCodes]:
        if not isinstance(codes, Mapping):
            return {self.version: as_packed(codes, self.n_bits)}
        if self.version not in codes:
            raise InvalidInput(f"Codes by version must name the opened one, {self.version!r}. Got {list(codes)}.")
        with self._reading() as session:
            versions = {name: session.collection.version(name) for name in codes}
        packed = {name: as_packed(values, versions[name].n_bits) for name, values in codes.items()}
        sizes = {name: len(values) for name, values in packed.items()}
        if len(set(sizes.values())) > 1:
            raise InvalidInput(
                f"The codes of {type(self).__name__} must have the same number in every version. Got {sizes}."
            )
        return packed

    def _new_ids(self, session: Session, n: int) -> AnyIds:
        if session.collection.id_kind == "U" and not session.is_empty():
            raise InvalidInput("Items of a collection with string ids cannot be numbered; pass ids=[...] as strings.")
        return next_ids(session.collection.last_id + 1, n)

    def _put(
        self, codes: Any, ids: Any, fields: dict[str, Any], *, batch: str | None = None, replacing: bool = False
    ) -> Self:
        """Check and write items in one transaction, unless the ``batch`` was written before."""
        packed = self._codes_by_version(codes)
        n = len(packed[self.version])
        given = None if ids is None and not replacing else self._ids_for(packed[self.version], ids)
        with self._writing() as session:
            if session.is_new(batch):
                new_ids = self._new_ids(session, n) if given is None else given
                self._write(session, new_ids, packed, fields, replacing=replacing)
        self._after_writing(n)
        return self

    def _write(
        self, session: Session, ids: AnyIds, codes: dict[str, PackedCodes], fields: dict[str, Any], *, replacing: bool
    ) -> None:
        """Check and write items, and what changes about the collection.

        ``fields`` are the arguments "classes", "metadata", "vectors" and "posteriors" of :meth:`add`.
        """
        owner, n, kind = type(self).__name__, len(ids), ids.dtype.kind
        columns = item_columns(ids, fields["classes"], fields["metadata"], owner, session.declared())
        vectors, posteriors = fields["vectors"], fields["posteriors"]
        rows = None if vectors is None else as_vectors(vectors, n, owner, np.float32)
        if posteriors is not None:
            columns[self._version.posterior] = [row.tobytes() for row in as_posteriors(posteriors, n, owner)]
        if not n:
            return
        self._check_kind(session, ids)
        info, known = session.collection, session.known(ids)
        if known and not replacing:
            raise InvalidInput(
                f"Id {known[0]!r} is already in the store; {phrase('use upsert() to replace the item')}, or another id."
            )
        dimension = info.dimension if rows is None else rows.shape[1]
        if info.dimension and dimension != info.dimension:
            raise InvalidInput(f"Vectors in {info.name!r} have dimension {info.dimension}. Got {dimension} instead.")
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
        self._check_version(session)
        if ids.dtype.kind != session.collection.id_kind and not session.is_empty():
            check_same_kind(ids, session.collection.id_kind, type(self).__name__)

    def _check_known(self, session: Session, ids: AnyIds) -> None:
        self._check_kind(session, ids)
        check_found(ids, set(session.known(ids)))


def open_store(
    url: str,
    n_bits: int | None = None,
    *,
    collection: str = "items",
    version: str | None = None,
    partitions: int = 1,
) -> Store:
    """Open a store, or make one.

    Parameters
    ----------
    url : "sqlite:///file.db" (relative), "sqlite:////folder/file.db" (absolute), "sqlite://:memory:" or
        "postgresql://user:password@host/database"
    n_bits : length of the codes; needed for a new collection, checked for one that exists
    collection : name of the collection (and of its table)
    version : which codes to open; None opens the current ones, and a new collection begins with "v1"
    partitions : of a new collection in PostgreSQL: how many tables the codes are divided among, by ranges of the code

    Examples
    --------
    >>> with open_store("sqlite://:memory:", n_bits=8) as store:
    ...     store.add([1, 2, 3, 250]).search([2], k=2).ids.tolist()
    [[1, 2]]
    """
    from shorthash.store.postgres import PostgresStore
    from shorthash.store.sqlite import SQLiteStore

    scheme, separator, rest = str(url).partition("://")
    if scheme in ("postgresql", "postgres") and separator:
        return PostgresStore(url, n_bits, collection=collection, version=version, partitions=partitions)
    if scheme != "sqlite" or not separator:
        shown = f"{scheme}://..." if separator else str(url)  # the rest may hold a password
        raise InvalidInput(
            f"The URL of a store must begin with one of sqlite://, postgresql://, postgres://. Got {shown!r} instead."
        )
    if partitions != 1:
        raise InvalidInput("A store in SQLite is one table; leave out partitions, or use PostgreSQL.")
    if rest == ":memory:":
        return SQLiteStore(rest, n_bits, collection=collection, version=version)
    if not rest.startswith("/") or len(rest) < 2:
        raise InvalidInput(f"The URL of a SQLite store must be sqlite:///FILE, three slashes. Got {url!r} instead.")
    return SQLiteStore(rest[1:], n_bits, collection=collection, version=version)


# look up named cells --------------------------------------------------------------------------------------------------


def look_up(
    session: Session,
    probes: Probes,
    where: StoreWhere | None,
    vectors: Vectors | None,
    metric: str,
    *,
    posteriors: bool,
) -> LookupResult:
    """The items of some cells, in one session; what ``HammingIndex.lookup`` returns."""
    conditions, scores = session.conditions(where), None
    if posteriors and not session.has_posteriors():
        raise InvalidInput(f"No item of this {session.owner} has a posterior; add them with posteriors=...")
    if vectors is None:
        found = cell_rows(session, probes, conditions, (session.version.posterior if posteriors else "NULL", []))
    else:
        found, scores = _scored_rows(session, probes, conditions, vectors.astype(np.float32), metric)
    n_cells = np.zeros(len(probes), dtype=np.int64)
    for row in found:
        n_cells[row[0]] = row[1] + 1
    hits = [i for i, row in enumerate(found) if row[2] is not None]
    rows = [found[i] for i in hits]
    counts = np.bincount(np.array([row[0] for row in rows], dtype=np.int64), minlength=len(probes))
    return LookupResult(
        as_ids_array([row[2] for row in rows], "i" if rows else session.collection.id_kind),
        np.array([row[1] for row in rows], dtype=np.int64),
        np.append(0, np.cumsum(counts)).astype(np.int64),
        n_cells,
        None if scores is None else scores[hits],
        read_posteriors([row[3] for row in rows]) if posteriors else None,
    )


def cell_rows(session: Session, probes: Probes, conditions: list[Clause], column: Clause) -> list[Row]:
    """(query_no, probe_no, id, ``column``) of the items of the cells that are looked up, in that order.

    One statement: the database counts the items of the cells and stops. A cell without items is a row
    without id.
    """
    name, code, rows = session.name, session.version.column, session.probe_rows(probes)
    condition, values = all_of(conditions)
    also = f" AND {condition}" if condition else ""
    steps, given = [f"probe(query_no, probe_no, cell, share) AS ({rows[0]})"], [*rows[1]]
    source, stop = "probe", ""
    if np.isfinite(probes.enough):
        n = f"SELECT count(*) FROM {name} WHERE {code} = cell{also}"
        before = "OVER (PARTITION BY query_no ORDER BY probe_no ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        steps += [
            f"sized AS (SELECT query_no, probe_no, cell, share * ({n}) AS expected FROM probe)",
            f"looked AS (SELECT query_no, probe_no, cell, coalesce(sum(expected) {before}, 0) AS found FROM sized)",
        ]
        source, stop, given = "looked", " WHERE found < ?", [*given, *values]
    return session.run(
        f"WITH {', '.join(steps)} SELECT query_no, probe_no, id, {column[0]} FROM {source}"
        f" LEFT JOIN {name} ON {code} = cell{also}{stop} ORDER BY query_no, probe_no, id",
        [*given, *column[1], *values, *([probes.enough] if stop else [])],
    )


def _scored_rows(
    session: Session, probes: Probes, conditions: list[Clause], vectors: NDArray[np.float32], metric: str
) -> tuple[list[Row], NDArray[np.float32]]:
    """Rows of the items of some cells, and scores of their vectors, computed by the database where it can."""
    found: list[Row] = []
    scores = [np.empty(0, dtype=np.float32)]
    for query, vector in enumerate(vectors):
        part = slice(probes.offsets[query], probes.offsets[query + 1])
        one = Probes(probes.cells[part], probes.shares[part], np.array([0, part.stop - part.start]), probes.enough)
        computed = session.score_column(vector, metric)
        rows = cell_rows(session, one, conditions, computed or (session.vector_column, []))
        found += [(query, *row[1:]) for row in rows]
        if computed is None:
            scores.append(scores_of(session, [row[1:] for row in rows], vector, metric))
        else:  # pgvector has no cosine of a vector of zeros
            given = np.array([-np.inf if row[3] is None else row[3] for row in rows], dtype=np.float32)
            scores.append(np.where(np.isnan(given), np.float32(0), given))
    return found, np.concatenate(scores)


def scores_of(session: Session, rows: list[Row], vector: Vectors, metric: str) -> NDArray[np.float32]:
    """Scores of items, (id or more, code, vector column); -infinity for those without a vector."""
    if metric == "asymmetric":
        n_bits = session.version.n_bits
        return score_codes(from_signed([row[1] for row in rows], n_bits), vector, n_bits)
    vectors = session.read_vectors([row[2] for row in rows])
    scores = np.full(len(rows), -np.inf, dtype=np.float32)
    known = np.flatnonzero(~np.isnan(vectors[:, 0])) if vectors.size else np.empty(0, dtype=np.int64)
    scores[known] = score_vectors(lambda positions: vectors[positions], known, vector.astype(np.float32), metric)
    return scores
