"""A server over a store: searches by vector, items by id and by code. It keeps no state, so there may be any number.

Every thread that searches has a connection of its own. A search whose connection is lost is repeated once.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import APIRouter, HTTPException, Path, Request
from numpy.typing import NDArray
from pydantic import Field

from shorthash.codes import as_packed
from shorthash.errors import InvalidInput, PersistenceError
from shorthash.retrieval import Searcher
from shorthash.store import Items, Store
from shorthash.store.items import LONGEST, check_field, check_values
from shorthash.web.api import ItemId, ItemLimit, Json, Offset, add_metrics
from shorthash.web.limits import Metrics, Settings
from shorthash.web.schema import (
    FIELDS,
    Bits,
    Code,
    Exact,
    Id,
    Label,
    QueryCode,
    problems,
    read_json,
    request_models,
)
from shorthash.web.service import as_bits, parse_id

NUMBERS = np.empty(0, dtype=np.int64)  # ids of a collection that numbers its items
RETRY = {"Retry-After": "1"}
T = TypeVar("T")


class StoredItem(Exact):
    """An item of a store."""

    id: Id
    label: Label
    metadata: dict[str, Any] | None = Field(description="What was stored with it.")
    code: Code
    bits: Bits


class Hit(StoredItem):
    """An item that was found."""

    distance: int = Field(ge=0, le=64, description="Bits that differ from the query.")
    score: float | None = Field(description="Cosine or probability of being relevant if re-ranked, else null.")


class StoredAnswer(Exact):
    """The best items of a query."""

    query: QueryCode
    n_bits: int = Field(ge=1, le=64)
    count: int = Field(ge=0, description="Items found.")
    items: list[Hit] = Field(description="Best first.")
    looked_up: list[int] = Field(description="Codes that were looked up by probes or within a radius, in order.")
    looked_at: int = Field(ge=0, description="Items that these codes hold.")
    expected_precision: float | None = Field(description="Expected share of relevant items; null without posteriors.")
    seconds: float = Field(ge=0, description="Duration of the search on the server.")


class StoredCell(Exact):
    """The items that share a code."""

    code: Code
    bits: Bits
    load: int = Field(ge=0, description="Number of items with this code.")
    offset: int
    items: list[StoredItem] = Field(description="From offset on, by id.")


class StoredHealth(Exact):
    """The state of the server."""

    status: str = Field(examples=["ok"])
    collection: str
    version: str = Field(description="Whose codes are searched; the model of the server made them.")
    current_version: str = Field(description="What the store opens by default: another one after a migration.")
    n_bits: int
    n_features: int


class StoreService:
    """Searches a store for the routes.

    Parameters
    ----------
    hasher : the fitted encoder of the store's codes
    opener : opens the store; called once for every thread
    settings : limits
    metrics : where times are recorded
    """

    def __init__(self, hasher: Any, opener: Callable[[], Store], settings: Settings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self._hasher, self._opener = hasher, opener
        self._own = threading.local()
        self._stores: list[Store] = []
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="shorthash-store")
        first = self._threads.submit(self._searcher).result()
        first.check_codes()
        self.n_bits, self.n_features = first.index.n_bits, int(hasher.n_features_in_)

    def close(self) -> None:
        """Close all connections."""
        self._threads.shutdown(cancel_futures=True)
        for store in self._stores:
            store.close()

    async def run(self, work: Callable[[Searcher, Store], T]) -> T:
        """Run a function with the searcher and the store of a thread; once more if the connection was lost."""
        loop = asyncio.get_running_loop()
        try:
            with suppress(PersistenceError):
                return await loop.run_in_executor(self._threads, self._work, work)
            return await loop.run_in_executor(self._threads, self._work, work)
        except PersistenceError as error:
            raise HTTPException(503, "The database cannot be reached at the moment; try again.", RETRY) from error

    def _work(self, work: Callable[[Searcher, Store], T]) -> T:
        searcher = self._searcher()
        assert isinstance(searcher.index, Store)
        return work(searcher, searcher.index)

    def _searcher(self) -> Searcher:
        if not hasattr(self._own, "searcher"):
            store = self._opener()
            self._stores.append(store)
            self._own.searcher = Searcher(self._hasher, store)
        found: Searcher = self._own.searcher
        return found

    def search(self, query: Any, searcher: Searcher, store: Store) -> dict[str, Any]:
        """The answer to a request."""
        start = time.perf_counter()
        vector = None if query.vector is None else np.array([query.vector], dtype=np.float32)
        code = query.code
        if query.id is not None:
            item = _found(store, query.id, vectors=True)
            code, vector = int(item.codes[0]), _vector_of(item)
            query.id = item.ids[0].item()
            if vector is None and (query.probes is not None or query.rerank is not None):
                raise InvalidInput(f"Item {query.id!r} has no vector; search without probes and rerank.")
        if vector is not None:
            code = int(as_packed(np.asarray(searcher.hasher.transform(vector)), self.n_bits)[0])
        by_features = vector is not None and (query.probes is not None or query.rerank is not None)
        find = self._by_features if by_features else self._by_code
        answer = find(query, code, vector, searcher, store)
        self.metrics.search.observe(time.perf_counter() - start)
        facts = {"query": {"code": code, "bits": as_bits(code, self.n_bits)}, "n_bits": self.n_bits}
        return {**facts, **answer, "seconds": round(time.perf_counter() - start, 6)}

    def _by_features(self, query: Any, code: int, vector: Any, searcher: Searcher, store: Store) -> dict[str, Any]:
        """By learned probes, or a ball that is re-ranked."""
        found = searcher.search(
            vector,
            query.k + (query.id is not None),
            probes=query.probes,
            radius=query.radius,
            rerank=query.rerank,
            where=query.where,
            most=self.settings.max_rerank,
        )
        scores = found.scores.tolist() if query.rerank is not None else [None] * len(found.ids)
        expected = float(found.precision[0])
        return {
            **self._hits(query, code, found.ids, scores, store),
            "looked_up": found.looked_up(0).tolist(),
            "looked_at": int(found.n_items[0]),
            "expected_precision": None if np.isnan(expected) else round(expected, 4),
        }

    def _by_code(self, query: Any, code: int, _vector: Any, _searcher: Searcher, store: Store) -> dict[str, Any]:
        """By Hamming rings, the nearest first."""
        packed = np.array([code], dtype=np.uint64)
        found = store.search(packed, query.k + (query.id is not None), where=query.where)
        near = found.distances[0] <= (self.n_bits if query.radius is None else query.radius)
        answer = self._hits(query, code, found.ids[0][near], [None] * int(near.sum()), store)
        return {**answer, "looked_up": [], "looked_at": int(near.sum()), "expected_precision": None}

    def _hits(self, query: Any, code: int, ids: NDArray[Any], scores: list[Any], store: Store) -> dict[str, Any]:
        """Items with their distances and scores; an item that was removed meanwhile is left out."""
        score = dict(zip(ids.tolist(), scores, strict=True))
        rows = item_values(store.items(ids, skip_missing=True, vectors=False), self.n_bits) if len(ids) else []
        hits = [
            {**row, "distance": (row["code"] ^ code).bit_count(), "score": score[row["id"]]}
            for row in rows
            if row["id"] != query.id
        ][: query.k]
        return {"count": len(hits), "items": hits}

    def cell(self, code: int, offset: int, limit: int, _searcher: Searcher, store: Store) -> dict[str, Any]:
        """The items of one code."""
        packed = np.array([code], dtype=np.uint64)
        load, rows = int(store.cell_sizes(packed)[0]), []
        if offset < load and limit:
            ids = store.search(packed, min(offset + limit, load)).ids[0][offset:]
            rows = item_values(store.items(ids, skip_missing=True, vectors=False), self.n_bits)
        shown = [row for row in rows if row["code"] == code]
        return {"code": code, "bits": as_bits(code, self.n_bits), "load": load, "offset": offset, "items": shown}

    def health(self, _searcher: Searcher, store: Store) -> dict[str, Any]:
        """That the database answers, and that it still has the version."""
        known = store.versions
        if store.version not in known:
            raise HTTPException(503, f"Version {store.version!r} was dropped; restart the server with another model.")
        facts = {"collection": store.collection, "version": store.version, "current_version": store.current_version}
        return {"status": "ok", **facts, "n_bits": self.n_bits, "n_features": self.n_features}


def store_router(service: StoreService) -> APIRouter:
    """The routes of a server over a store."""
    router = APIRouter(tags=["api"], default_response_class=Json)
    body = request_models(service.n_features, service.n_bits, service.settings).stored
    most = service.n_features + FIELDS + LONGEST
    schema = {"application/json": {"schema": body.model_json_schema()}}
    in_range = Path(ge=0, lt=1 << service.n_bits, description="A code as an integer.", examples=[0])

    @router.post(
        "/search",
        summary="Find items",
        responses={200: {"model": StoredAnswer}, **problems(400, 404, 408, 413, 422)},
        openapi_extra={"requestBody": {"required": True, "content": schema}},
    )
    async def search(request: Request) -> Json:
        """Find the best items of a vector, of an item or of a code: by Hamming rings or by learned probes."""
        query = await read_json(request, body, most)
        for name, values in (query.where or {}).items():
            check_values(check_field(name, "search"), values, "search")
        return Json(await service.run(lambda *with_store: service.search(query, *with_store)))

    @router.get(
        "/items/{id:anything}", summary="Show an item", responses={200: {"model": StoredItem}, **problems(404, 422)}
    )
    async def show(item: ItemId) -> Json:
        """Everything about an item, except its vector."""
        return Json(await service.run(lambda _, store: item_values(_found(store, item), service.n_bits)[0]))

    @router.get("/buckets/{code}", summary="Show a bucket", responses={200: {"model": StoredCell}, **problems(422)})
    async def cell(code: Annotated[int, in_range], offset: Offset = 0, limit: ItemLimit = 100) -> Json:
        """Items that share a code; a code that does not occur is an empty bucket."""
        return Json(await service.run(lambda *with_store: service.cell(code, offset, limit, *with_store)))

    @router.get("/healthz", summary="State of the server", responses={200: {"model": StoredHealth}, **problems()})
    async def healthz() -> Json:
        """That the server and its database work, and what is served; 503 if not."""
        return Json(await service.run(service.health))

    async def metrics() -> bytes:
        return service.metrics.text(n_bits=service.n_bits)

    add_metrics(router, metrics)
    return router


def item_values(items: Items, n_bits: int) -> list[dict[str, Any]]:
    """Items as the API shows them."""
    columns = (items.ids.tolist(), items.classes, items.metadata, items.codes.tolist())
    return [
        {"id": item, "label": label, "metadata": metadata, "code": code, "bits": as_bits(code, n_bits)}
        for item, label, metadata, code in zip(*columns, strict=True)
    ]


def _found(store: Store, item: int | str, *, vectors: bool = False) -> Items:
    """One item by its id, or by the text of it; 404 if there is none."""
    meant = [item]
    with suppress(InvalidInput):
        meant += [parse_id(item, NUMBERS)] if isinstance(item, str) else []
    for one in meant:
        found = store.items([one], skip_missing=True, vectors=vectors)
        if len(found):
            return found
    raise HTTPException(404, f"There is no item {item!r:.60}; check the id.")


def _vector_of(items: Items) -> NDArray[np.float32] | None:
    vectors = items.vectors
    return None if vectors is None or np.isnan(vectors[0, 0]) else vectors
