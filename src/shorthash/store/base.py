"""The contract of every store: an index that is durable and shared, and keeps more than codes."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._types import PackedCodes
from shorthash._validation import check_choice
from shorthash.codes import as_packed
from shorthash.errors import InvalidInput
from shorthash.index.base import HammingIndex, check_k
from shorthash.index.items import AnyIds, as_ids, check_same_kind, check_unique, next_ids, tie_order
from shorthash.index.results import RadiusResult, RerankResult, SearchResult
from shorthash.store import ranking
from shorthash.store.conditions import Allowed, StoreWhere
from shorthash.store.items import (
    Items,
    Rows,
    as_ids_array,
    as_vectors,
    check_rows,
    from_signed,
    index_items,
    merged_items,
    to_signed,
)
from shorthash.store.reranking import METRICS, Ranked, best_by_codes, best_by_vectors, rerank_result
from shorthash.store.session import Session
from shorthash.store.versions import Versions, search_result

__all__ = ["Store"]


class Store(Versions):
    """Exact search among codes in a database, with the contract of an index.

    A store opens one *collection* in one *version*. Items of a collection have an id (int64 or string), and optionally
    a class, metadata (JSON) and a vector; a version is one encoder's codes of them. ``search``, ``within``, ``counts``
    and the rest see the items that have a code in the opened version.

    Every call is one transaction: it is done when it returns, for good and for all processes, or it raises and nothing
    is changed. Every search sees one state of the database.

    ``where`` takes what an index takes, and mappings from fields of the metadata to the values they may have, such as
    ``{"city": ["Rome", "Oslo"], "class": 3}``.
    """

    @property
    def codes(self) -> PackedCodes:
        """Packed codes of all items in insertion order, (n_items,), read-only."""
        with self._opened() as session:
            return _read_only(from_signed(session.listing(self._version)[1], self.n_bits))

    @property
    def ids(self) -> AnyIds:
        """Ids of all items in insertion order, (n_items,), read-only."""
        with self._opened() as session:
            return _read_only(self._all_ids(session))

    @property
    def vectors(self) -> NDArray[np.float32] | None:
        """Vectors of all items in insertion order, (n_items, dimension), read-only, nan in rows without one.

        None if no item has one.
        """
        with self._opened() as session:
            ids = self._all_ids(session)
            if not session.collection.dimension or not len(ids):
                return None
            found = _in_order(session.items(self._version, ids), ids).vectors
        return None if found is None or np.isnan(found).all() else _read_only(found)

    def __len__(self) -> int:
        with self._opened() as session:
            return session.count(self._version, None, Allowed())

    def add(
        self,
        codes: ArrayLike | Mapping[str, ArrayLike],
        ids: ArrayLike | None = None,
        *,
        classes: Sequence[Any] | NDArray[Any] | None = None,
        metadata: Sequence[Mapping[str, Any] | None] | None = None,
        vectors: ArrayLike | None = None,
    ) -> Self:
        """Add items, all or none.

        Parameters
        ----------
        codes : signs of shape (n, n_bits) or packed integers of shape (n,); or a mapping from versions to such codes,
            which must name the opened version
        ids : (n,) integers or strings not yet in the collection; None numbers the items on
        classes : (n,) integers, strings or None
        metadata : n dictionaries (or None) that JSON can hold
        vectors : (n, dimension) numbers, kept as float32 for re-ranking
        """
        packed = self._codes_by_version(codes)
        n = len(packed[self.version])
        given = None if ids is None else self._ids_for(packed[self.version], ids)
        with self._writing() as session:
            wanted = self._new_ids(session, n) if given is None else given
            rows = check_rows(wanted, packed, classes, metadata, vectors, type(self).__name__)
            if n:
                self._check_new(session, wanted)
                _insert(session, rows, wanted)
        self._after_writing(n)
        return self

    def upsert(
        self,
        codes: ArrayLike | Mapping[str, ArrayLike],
        ids: ArrayLike,
        *,
        classes: Sequence[Any] | NDArray[Any] | None = None,
        metadata: Sequence[Mapping[str, Any] | None] | None = None,
        vectors: ArrayLike | None = None,
    ) -> Self:
        """Add items, or replace them whole (class, metadata, vector, all codes) where the id is known; all or none."""
        packed = self._codes_by_version(codes)
        wanted = self._ids_for(packed[self.version], ids)
        rows = check_rows(wanted, packed, classes, metadata, vectors, type(self).__name__)
        with self._writing() as session:
            if len(rows):
                self._check_kind(session, wanted)
                known = session.known(wanted) if session.collection.id_kind == wanted.dtype.kind else []
                session.delete(as_ids_array(known))
                _insert(session, rows, wanted)
        self._after_writing(len(rows))
        return self

    def update(self, ids: ArrayLike, codes: ArrayLike) -> Self:
        """Give items new codes, all or none; in insertion order they become the newest."""
        packed = as_packed(codes, self.n_bits)
        known = self._ids_for(packed, ids)
        if len(known):
            with self._writing() as session:
                self._check_known(session, known)
                place = session.collection.next_place
                session.recode(self._version, known.tolist(), to_signed(packed).tolist(), place)
                session.save(replace(session.collection, next_place=place + len(known)))
        return self

    def items(self, ids: ArrayLike) -> Items:
        """Everything about some items, in the order of ``ids``; an id that is not in the opened version is an error."""
        wanted = as_ids(ids, type(self).__name__)
        check_unique(wanted, type(self).__name__)
        with self._opened() as session:
            self._check_kind(session, wanted)
            same = wanted.dtype.kind == session.collection.id_kind
            found = session.items(self._version, wanted if same else wanted[:0])
        return _in_order(found, wanted)

    def rerank(
        self,
        codes: ArrayLike,
        vectors: ArrayLike,
        k: int,
        *,
        radius: int,
        metric: str = "cosine",
        where: StoreWhere | None = None,
    ) -> RerankResult:
        """Of all items within ``radius`` of every query, the k whose vectors are best; exact.

        Items without a vector are left out.

        Parameters
        ----------
        codes : the queries, signs of shape (n_queries, n_bits) or packed integers of shape (n_queries,)
        vectors : (n_queries, dimension) vectors of the queries, or (n_queries, n_bits) real scores for
            ``metric="asymmetric"``
        k : number of items wanted, at least 1
        radius : largest Hamming distance (inclusive)
        metric : "cosine", "dot" or "euclidean" of vectors, or "asymmetric": real scores against the signs of the codes
        where : only these items may be found
        """
        owner = f"{type(self).__name__}.rerank"
        k, radius = check_k(k, owner), self._radius(radius, owner)
        check_choice(metric, "metric", owner, METRICS)
        queries, asked = to_signed(as_packed(codes, self.n_bits)).tolist(), as_vectors(vectors, owner)
        if len(queries) != len(asked):
            raise InvalidInput(
                f"The 'vectors' of {owner} must be as many as the codes. Got {len(asked)} for {len(queries)} codes."
            )
        with self._opened() as session:
            expected = self.n_bits if metric == "asymmetric" else session.collection.dimension
            if asked.shape[1] != expected:
                raise InvalidInput(
                    f"The 'vectors' of {owner} must have dimension {expected} for metric={metric!r} in this store "
                    f"(0: it has no vectors). Got {asked.shape[1]} instead."
                )
            allowed = self._allowed(session, where)
            rows = [self._best(session, q, v, k, radius, metric, allowed) for q, v in zip(queries, asked, strict=True)]
            return rerank_result(rows, session.collection.id_kind)

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
        """Ids and scores of one query; stores that can rank by themselves do."""
        if metric == "asymmetric":
            hits = ranking.ball(session, self._version, query, radius, allowed, "any")
            return best_by_codes(hits, self.n_bits, vector, k)
        hits = ranking.ball(session, self._version, query, radius, allowed, "vectors")
        return best_by_vectors(hits, session.vectors_of(hits), vector, k, metric)

    def merge(self, *others: HammingIndex) -> Self:
        """Take in all items of other indexes or stores with all they hold, all or none; ids must not collide.

        Of a store, the items of its opened version are taken.
        """
        filled = self._mergeable(others)
        if not filled:
            return self
        parts = [other.items(other.ids) if isinstance(other, Store) else index_items(other) for other in filled]
        merged = merged_items(parts)
        return self.add(
            merged.codes, merged.ids, classes=merged.classes, metadata=merged.metadata, vectors=merged.vectors
        )

    def drop(self) -> None:
        """Delete the collection with all its items and versions."""
        with self._writing() as session:
            session.drop()

    def _after_writing(self, n_items: int) -> None:
        """What a database needs after many items were written."""

    def _has(self, ids: AnyIds) -> bool:
        with self._opened() as session:
            if ids.dtype.kind != session.collection.id_kind:
                return False
            return len(session.items(self._version, ids)) == len(ids)

    def _remove(self, ids: AnyIds) -> None:
        with self._writing() as session:
            self._check_known(session, ids)
            session.delete(ids)

    def _search(self, queries: PackedCodes, k: int, ties: str, seed: int, where: StoreWhere | None) -> SearchResult:
        with self._opened() as session:
            allowed = self._allowed(session, where)
            rows = [
                ranking.nearest(session, self._version, query, k, ties, seed, allowed)
                for query in to_signed(queries).tolist()
            ]
            if rows and rows[0][0]:
                return search_result(rows, "")
            width = 0 if rows else min(k, session.count(self._version, None, allowed))
            return search_result(rows, session.collection.id_kind, width)

    def _within(
        self, queries: PackedCodes, radius: int, ties: str, seed: int, where: StoreWhere | None
    ) -> RadiusResult:
        with self._opened() as session:
            allowed = self._allowed(session, where)
            signed = to_signed(queries).tolist()
            order = "insertion" if ties == "insertion" else "any"
            balls = [ranking.ball(session, self._version, query, radius, allowed, order) for query in signed]
            hits = [hit for found in balls for hit in found]
            kind = "" if hits else session.collection.id_kind
        ids = as_ids_array([hit[0] for hit in hits], kind)
        places = np.array([hit[2] for hit in hits]) if order == "insertion" else np.arange(len(hits))
        none = [np.empty(0, dtype=np.uint8)]
        distances = np.concatenate(none + [ranking.distances_of(b, q) for b, q in zip(balls, signed, strict=True)])
        counts = np.array([len(found) for found in balls], dtype=np.int64)
        best_first = tie_order(np.repeat(np.arange(len(balls)), counts), distances, places, ids, ties, seed)
        offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)
        return RadiusResult(ids[best_first], distances[best_first], offsets)

    def _counts(self, queries: PackedCodes, radius: int, where: StoreWhere | None) -> NDArray[np.int64]:
        with self._opened() as session:
            allowed = self._allowed(session, where)
            counts = [ranking.count(session, self._version, q, radius, allowed) for q in to_signed(queries).tolist()]
        return np.array(counts, dtype=np.int64)

    def _iterate(self, query: PackedCodes) -> Iterator[tuple[int, AnyIds]]:
        """All rings belong to one state of the database, so they are read before the first is handed out."""
        with self._opened() as session:
            found = list(ranking.rings(session, self._version, int(to_signed(query)[0]), "id", 0, Allowed(), None))
        return ((distance, as_ids_array([hit[0] for hit in hits])) for distance, hits in found)

    def export_state(self) -> dict[str, Any]:
        """Codes and ids in insertion order, and the next id; a store itself needs no saving."""
        with self._opened() as session:
            ids, codes = session.listing(self._version)
            known = session.collection
        return {
            "codes": from_signed(codes, self.n_bits),
            "ids": as_ids_array(ids, known.id_kind),
            "next_id": known.last_id + 1,
        }

    @classmethod
    def from_state(cls, n_bits: int, state: dict[str, Any], *, thorough: bool = True) -> Self:  # noqa: ARG003
        """Refused: a store lives in its database."""
        raise InvalidInput(f"A {cls.__name__} is not loaded from a folder; open its database with open_store(url).")

    def _codes_by_version(self, codes: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, PackedCodes]:
        if not isinstance(codes, Mapping):
            return {self.version: as_packed(codes, self.n_bits)}
        owner = type(self).__name__
        if self.version not in codes:
            raise InvalidInput(
                f"Codes by version must name the opened one, {self.version!r}. Got {list(codes)} instead."
            )
        with self._reading() as session:
            versions = {name: session.collection.version(name) for name in codes}
        packed = {name: as_packed(values, versions[name].n_bits) for name, values in codes.items()}
        if len({len(values) for values in packed.values()}) > 1:
            sizes = {name: len(values) for name, values in packed.items()}
            raise InvalidInput(f"The codes of {owner} must be as many in every version. Got {sizes}.")
        return packed

    def _new_ids(self, session: Session, n: int) -> AnyIds:
        if session.collection.id_kind == "U" and not session.is_empty():
            raise InvalidInput("Items of a collection with string ids cannot be numbered; pass ids=[...] as strings.")
        return next_ids(session.collection.last_id + 1, n)

    def _check_kind(self, session: Session, ids: AnyIds) -> None:
        """Raise unless the opened version is still there and the ids are of its kind."""
        kind = session.collection.id_kind
        self._check_version(session)
        if ids.dtype.kind != kind and not session.is_empty():
            check_same_kind(ids, kind, type(self).__name__)

    def _check_new(self, session: Session, ids: AnyIds) -> None:
        self._check_kind(session, ids)
        if ids.dtype.kind != session.collection.id_kind or session.is_empty():
            return
        known = session.known(ids)
        if known:
            raise InvalidInput(
                f"Id {known[0]!r} is already in the store; use upsert() to replace the item, or another id."
            )

    def _check_known(self, session: Session, ids: AnyIds) -> None:
        self._check_kind(session, ids)
        same = ids.dtype.kind == session.collection.id_kind
        _check_found(ids, set(session.known(ids)) if same and len(ids) else set())


def _check_found(ids: AnyIds, known: Container[Any]) -> None:
    missing = [item for item in ids.tolist() if item not in known]
    if missing:
        raise InvalidInput(f"Id {missing[0]!r} is not in the store; name only ids that were added.")


def _in_order(found: Items, ids: AnyIds) -> Items:
    """Items in the order of ``ids``; one that was not found is an error."""
    place = {item: row for row, item in enumerate(found.ids.tolist())}
    _check_found(ids, place)
    return found.take([place[item] for item in ids.tolist()])


def _insert(session: Session, rows: Rows, ids: AnyIds) -> None:
    """Write new items, and what is remembered about the collection."""
    known = session.collection
    kind = ids.dtype.kind
    dimension = known.dimension if rows.vectors is None else rows.vectors.shape[1]
    if known.dimension and dimension != known.dimension:
        raise InvalidInput(
            f"Vectors in collection {known.name!r} have dimension {known.dimension}. Got {dimension} instead."
        )
    if kind != known.id_kind:
        session.set_id_kind(kind)
    if dimension and not known.dimension:
        session.set_dimension(dimension)
    last_id = max(known.last_id, int(ids.max())) if kind == "i" else known.last_id
    n_slots = 0 if rows.vectors is None else len(rows)
    changed = replace(
        session.collection,
        id_kind=kind,
        last_id=last_id,
        next_place=known.next_place + len(rows),
        next_slot=known.next_slot + n_slots,
        dimension=dimension,
    )
    session.save(changed)
    session.insert(rows, known.next_place, known.next_slot)


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    values.flags.writeable = False
    return values
