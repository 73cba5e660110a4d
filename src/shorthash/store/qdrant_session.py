"""Qdrant's way to be a session: payload for everything, an integer index on every version's code."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.errors import InvalidInput
from shorthash.index.ids import AnyIds
from shorthash.store.conditions import Allowed, Scalar
from shorthash.store.items import Items, Rows, as_ids_array, from_signed
from shorthash.store.ranking import ball_codes, distances_of, worth_probing
from shorthash.store.session import Collection, Hit, Session, Version

__all__ = ["QdrantSession", "create_collection", "read_collection"]

CATALOGUE = "shorthash_collections"
VECTOR = "vector"
PAGE = 10_000  # points per request when reading
BATCH = 1_000  # points per request when writing
NAMES = uuid.UUID("6d2a3c1e-4f0b-5e8d-9a7c-51b0c0de5afe")  # point ids are made from item ids under this name
EXACT = 2**53  # up to here numbers are compared as floats
DISTANCES = {"cosine": "Cosine", "dot": "Dot", "euclidean": "Euclid"}


class QdrantSession(Session):
    """Requests to one collection; nothing holds them together."""

    def __init__(self, client: Any, name: str) -> None:
        from qdrant_client import models

        self._client, self._name, self._models = client, name, models
        self._known: Collection | None = None

    @property
    def collection(self) -> Collection:
        """The collection as this session sees it."""
        if self._known is None:
            self._known = read_collection(self._client, self._name)
        if self._known is None:
            raise InvalidInput(f"There is no collection {self._name!r} any more; it was dropped meanwhile.")
        return self._known

    def save(self, collection: Collection) -> None:
        """Write back what is remembered about the collection."""
        write_collection(self._client, collection)
        self._known = collection

    def is_empty(self) -> bool:
        """Whether the collection has no item in any version."""
        return not self._client.scroll(self._name, limit=1, with_payload=False)[0]

    def known(self, ids: AnyIds) -> list[Any]:
        """Those of ``ids`` that are in the collection, in any version."""
        return [point.payload["id"] for point in self._retrieve(ids.tolist(), payload=["id"])]

    def probe(
        self, version: Version, codes: Sequence[int], allowed: Allowed, order: str, limit: int | None, skip: str = ""
    ) -> list[Hit]:
        """Items whose code is one of ``codes``."""
        m = self._models
        near = m.FieldCondition(key=version.column, match=m.MatchAny(any=list(codes)))
        condition = self._filter([near], allowed, skip)
        return self._hits(version, condition, limit if order == "any" else None)

    def scan(
        self,
        version: Version,
        query: int,
        reach: range,
        allowed: Allowed,
        order: str,  # noqa: ARG002
        limit: int | None,  # noqa: ARG002
        skip: str = "",
    ) -> list[Hit]:
        """Items whose distance from ``query`` lies in ``reach``, found by reading all."""
        hits = self._hits(version, self._filter([], allowed, skip, present=version.column), None)
        distances = distances_of(hits, query)
        return [hits[i] for i in np.flatnonzero((distances >= reach.start) & (distances < reach.stop))]

    def count(self, version: Version, codes: Sequence[int] | None, allowed: Allowed) -> int:
        """How many items have one of ``codes``; None counts all items of the version."""
        m = self._models
        near = [] if codes is None else [m.FieldCondition(key=version.column, match=m.MatchAny(any=list(codes)))]
        condition = self._filter(near, allowed, "", present=version.column)
        return 0 if condition is None else int(self._client.count(self._name, condition, exact=True).count)

    def listing(self, version: Version) -> tuple[list[Any], list[int]]:
        """Ids and codes of all items of a version in insertion order."""
        hits = self._hits(version, self._filter([], Allowed(), "", present=version.column), None)
        hits.sort(key=lambda hit: hit[2])
        return [hit[0] for hit in hits], [hit[1] for hit in hits]

    def items(self, version: Version, ids: AnyIds) -> Items:
        """Everything about some items that have a code in ``version``, in any order."""
        found = [p for p in self._retrieve(ids.tolist(), vectors=True) if p.payload.get(version.column) is not None]
        payloads = [point.payload for point in found]
        return Items(
            as_ids_array([payload["id"] for payload in payloads], self.collection.id_kind),
            from_signed([payload[version.column] for payload in payloads], version.n_bits),
            [payload.get("class") for payload in payloads],
            [payload.get("metadata") for payload in payloads],
            self._vectors(found) if self.collection.dimension else None,
        )

    def lacking(self, version: Version, target: Version, after: Any, limit: int) -> tuple[list[Any], list[int]]:  # noqa: ARG002
        """Ids and places of items of ``version`` without a code in ``target``; there is no order to go on in."""
        hits = self._hits(version, self._filter([], Allowed(), target.column, present=version.column), limit)
        return [hit[0] for hit in hits], [hit[2] for hit in hits]

    def n_lacking(self, target: Version) -> int:
        """How many items have no code in ``target``."""
        condition = self._filter([], Allowed(), target.column)
        return int(self._client.count(self._name, condition, exact=True).count)

    def vectors_of(self, hits: Sequence[Hit]) -> NDArray[np.float32]:
        """Vectors of items, nan in rows without one."""
        found = {point.payload["id"]: point for point in self._retrieve([hit[0] for hit in hits], vectors=True)}
        return self._vectors([found[hit[0]] for hit in hits])

    def best(
        self,
        version: Version,
        query: int,
        vector: NDArray[np.float32],
        k: int,
        radius: int,
        metric: str,
        allowed: Allowed,
    ) -> tuple[list[Any], list[float]]:
        """Ids and scores of the best vectors within ``radius``."""
        m = self._models
        if worth_probing(self, version.n_bits, radius):
            codes = ball_codes(version.n_bits, radius, query)
        else:
            codes = sorted({hit[1] for hit in self.scan(version, query, range(radius + 1), allowed, "any", None)})
        near = m.FieldCondition(key=version.column, match=m.MatchAny(any=codes))
        condition = self._filter([near], allowed, "")
        if condition is None:
            return [], []
        found = self._client.query_points(
            self._name,
            query=vector.tolist(),
            using=VECTOR,
            query_filter=condition,
            limit=k,
            with_payload=["id"],
            search_params=None if _in_process(self._client) else m.SearchParams(exact=True),
        ).points
        sign = -1.0 if metric == "euclidean" else 1.0
        ranked = sorted((-sign * point.score, point.payload["id"]) for point in found)
        return [item for _, item in ranked], [-score for score, _ in ranked]

    def insert(self, rows: Rows, first_place: int, first_slot: int) -> None:  # noqa: ARG002
        """Write new items, batch by batch."""
        columns = {self.collection.versions[name].column: codes for name, codes in rows.codes.items()}
        points = []
        for i, item in enumerate(rows.ids):
            metadata = rows.metadata[i]
            payload = {
                "id": item,
                "place": first_place + i,
                "class": rows.classes[i],
                "metadata": None if metadata is None else json.loads(metadata),
                **{column: codes[i] for column, codes in columns.items()},
            }
            vector = {} if rows.vectors is None else {VECTOR: rows.vectors[i].tolist()}
            points.append(self._models.PointStruct(id=_point(item), payload=payload, vector=vector))
        for start in range(0, len(points), BATCH):
            self._client.upsert(self._name, points[start : start + BATCH], wait=True)

    def delete(self, ids: AnyIds) -> None:
        """Delete items."""
        if len(ids):
            points = self._models.PointIdsList(points=[_point(item) for item in ids.tolist()])
            self._client.delete(self._name, points, wait=True)

    def recode(self, version: Version, ids: Sequence[Any], codes: Sequence[int], first_place: int) -> None:
        """Give items new codes and places; their codes in other versions are forgotten."""
        others = [v.column for v in self.collection.versions.values() if v != version]
        payloads = [{version.column: code, "place": first_place + i} for i, code in enumerate(codes)]
        self._set([_point(item) for item in ids], [{**dict.fromkeys(others), **payload} for payload in payloads])

    def fill(self, target: Version, ids: Sequence[Any], places: Sequence[int], codes: Sequence[int]) -> None:
        """Write codes of items that are still at their place and still have none."""
        column = target.column
        now = {p.payload["id"]: p.payload for p in self._retrieve(ids, payload=["id", "place", column])}
        points, payloads = [], []
        for item, place, code in zip(ids, places, codes, strict=True):
            known = now.get(item)
            if known is not None and known["place"] == place and known.get(column) is None:
                points.append(_point(item))
                payloads.append({column: code})
        self._set(points, payloads)

    def set_id_kind(self, kind: str) -> None:
        """Nothing to do: a payload holds both kinds."""

    def set_dimension(self, dimension: int) -> None:
        """Refused: Qdrant wants to know when the collection is made."""
        raise InvalidInput(
            f"Collection {self._name!r} was made without vectors; make another one with "
            f"QdrantStore(..., dimension={dimension})."
        )

    def add_version(self, version: Version) -> None:
        """Index the payload field of a version."""
        _index(self._client, self._name, version)

    def drop_version(self, version: Version) -> None:
        """Delete the payload field of a version."""
        m = self._models
        self._client.delete_payload(self._name, keys=[version.column], points=m.Filter(), wait=True)
        if not _in_process(self._client):
            self._client.delete_payload_index(self._name, version.column)

    def drop(self) -> None:
        """Delete the collection with all items."""
        self._client.delete_collection(self._name)
        self._client.delete(CATALOGUE, self._models.PointIdsList(points=[_point(self._name)]), wait=True)

    def _filter(self, must: list[Any], allowed: Allowed, skip: str, present: str = "") -> Any:
        """All conditions together; None if nothing can meet them."""
        m = self._models
        must, must_not = list(must), []
        if allowed.ids is not None:
            if not len(allowed.ids):
                return None
            must.append(m.HasIdCondition(has_id=[_point(item) for item in allowed.ids.tolist()]))
        for field, values in allowed.fields:
            if not values:
                return None
            key = field if field == "class" else f'metadata."{field}"'
            must.append(m.Filter(should=[self._is(key, value) for value in values]))
        if skip:
            must.append(m.IsEmptyCondition(is_empty=m.PayloadField(key=skip)))
        if present:
            must_not.append(m.IsEmptyCondition(is_empty=m.PayloadField(key=present)))
        return m.Filter(must=must or None, must_not=must_not or None)

    def _is(self, key: str, value: Scalar) -> Any:
        m = self._models
        if value is None:
            return m.IsNullCondition(is_null=m.PayloadField(key=key))
        if isinstance(value, str | bool) or (isinstance(value, int) and abs(value) > EXACT):
            return m.FieldCondition(key=key, match=m.MatchValue(value=value))
        return m.FieldCondition(key=key, range=m.Range(gte=value, lte=value))

    def _hits(self, version: Version, condition: Any, limit: int | None) -> list[Hit]:
        """Id, code and place of what meets a condition."""
        if condition is None:
            return []
        wanted = ["id", version.column, "place"]
        payloads = (point.payload for point in self._scroll(condition, wanted, limit))
        return [(payload["id"], payload[version.column], payload["place"]) for payload in payloads]

    def _scroll(self, condition: Any, payload: list[str], limit: int | None) -> Iterator[Any]:
        left, offset = limit, None
        while True:
            size = PAGE if left is None else min(left, PAGE)
            points, offset = self._client.scroll(
                self._name, scroll_filter=condition, limit=size, offset=offset, with_payload=payload
            )
            yield from points
            left = None if left is None else left - len(points)
            if offset is None or left == 0:
                return

    def _retrieve(self, ids: Sequence[Any], payload: list[str] | bool = True, vectors: bool = False) -> list[Any]:
        points: list[Any] = []
        for start in range(0, len(ids), PAGE):
            names = [_point(item) for item in ids[start : start + PAGE]]
            points += self._client.retrieve(self._name, names, with_payload=payload, with_vectors=vectors)
        return points

    def _vectors(self, points: Sequence[Any]) -> NDArray[np.float32]:
        vectors = np.full((len(points), self.collection.dimension), np.nan, dtype=np.float32)
        for row, point in enumerate(points):
            if point.vector and VECTOR in point.vector:
                vectors[row] = point.vector[VECTOR]
        return vectors

    def _set(self, points: Sequence[str], payloads: Sequence[dict[str, Any]]) -> None:
        """Change some payload fields of points."""
        m = self._models
        steps = [
            m.SetPayloadOperation(set_payload=m.SetPayload(payload=payload, points=[point]))
            for point, payload in zip(points, payloads, strict=True)
        ]
        for start in range(0, len(steps), BATCH):
            self._client.batch_update_points(self._name, steps[start : start + BATCH], wait=True)


def read_collection(client: Any, name: str) -> Collection | None:
    """What is remembered about a collection, if there is one."""
    if not client.collection_exists(CATALOGUE):
        return None
    found = client.retrieve(CATALOGUE, [_point(name)], with_payload=True)
    if not found:
        return None
    fields = dict(found[0].payload)
    versions = {version["name"]: Version(**version) for version in fields.pop("versions")}
    return replace(Collection(**fields), versions=versions)


def write_collection(client: Any, collection: Collection) -> None:
    """Remember a collection."""
    from qdrant_client import models

    fields = {**asdict(collection), "versions": [asdict(version) for version in collection.versions.values()]}
    client.upsert(CATALOGUE, [models.PointStruct(id=_point(collection.name), payload=fields, vector={})], wait=True)


def create_collection(client: Any, name: str, version: Version, dimension: int, metric: str) -> Collection:
    """Make a collection with one version."""
    from qdrant_client import models

    if not client.collection_exists(CATALOGUE):
        client.create_collection(CATALOGUE, vectors_config={})
    vectors = {}
    if dimension:
        vectors[VECTOR] = models.VectorParams(size=dimension, distance=models.Distance(DISTANCES[metric]))
    if client.collection_exists(name):
        raise InvalidInput(
            f"Qdrant already has a collection {name!r} that shorthash did not make; choose another name."
        )
    client.create_collection(name, vectors_config=vectors)
    _index(client, name, version)
    made = Collection(
        name,
        version.name,
        next_number=version.number + 1,
        dimension=dimension,
        vectors_at=metric,
        versions={version.name: version},
    )
    write_collection(client, made)
    return made


def _index(client: Any, name: str, version: Version) -> None:
    from qdrant_client import models

    if not _in_process(client):
        client.create_payload_index(name, version.column, field_schema=models.PayloadSchemaType.INTEGER, wait=True)


def _in_process(client: Any) -> bool:
    """Whether the client does the work itself, exactly and without indexes, and would warn about being told so."""
    options = client.init_options
    return options.get("location") == ":memory:" or options.get("path") is not None


def _point(item: Any) -> str:
    """The point that holds an item."""
    return str(uuid.uuid5(NAMES, f"{type(item).__name__}:{item}"))
