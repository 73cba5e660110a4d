"""A collection behind a server: short work runs in the event loop, long work in threads, writes one after another.

A server over a store keeps no state, so there may be any number. Every thread that searches has a connection of its
own; a search whose connection is lost is repeated once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import numpy as np
import orjson
from fastapi import HTTPException
from numpy.typing import NDArray

from shorthash._validation import steps_of
from shorthash.codes import as_packed
from shorthash.errors import InvalidInput, PersistenceError, UnreadableImage
from shorthash.images import AddReport, Collection, Found, Item
from shorthash.images.collection import THUMBNAIL
from shorthash.images.decoding import SECONDS, Extracted, Workers, extract, memory_for, shared_workers
from shorthash.index.items import AnyIds
from shorthash.retrieval import RERANK_RADIUS, Searcher
from shorthash.store import Items, Store
from shorthash.web.limits import Metrics, Settings
from shorthash.web.schema import shortened

# Up to 16 bits a search looks at no more than 65 536 buckets, which takes less time than starting a thread.
QUICK_BITS = 16
LARGEST_BATCH = 64  # vectors encoded together
NUMBERS = np.empty(0, dtype=np.int64)  # ids of a collection that numbers its items
RETRY = {"Retry-After": "1"}
FOLLOW_SECONDS = 1.0  # that a request waits until the changes of another process are read

T = TypeVar("T")
Vector = NDArray[np.float32]


class Service:
    """Searches and changes a collection for the routes.

    Parameters
    ----------
    collection : to search and, if open for writing, to change
    settings : limits
    """

    def __init__(self, collection: Collection, settings: Settings) -> None:
        self.collection, self.settings, self.metrics = collection, settings, Metrics()
        self.answers = AnswerCache(settings.cache_bytes)
        self._waiting: list[tuple[Vector, asyncio.Future[int]]] = []  # vectors to encode
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="shorthash-search")
        self._decoders = ThreadPoolExecutor(settings.threads, thread_name_prefix="shorthash-image")  # wait for workers
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="shorthash-write")
        self._writing = asyncio.Lock()
        self._following: asyncio.Future[None] | None = None
        self._known_fresh = False

    async def current(self) -> Collection:
        """The collection as a request sees it: one state, with all that other processes have written.

        A collection that takes long to read again is answered from the state before; reading goes on.
        """
        if self._is_stale():
            if self._following is None or self._following.done():
                self._following = asyncio.ensure_future(self._follow())
            await asyncio.wait({self._following}, timeout=FOLLOW_SECONDS)
            if self._following.done():
                self._following.result()
        return self.collection.snapshot()

    def _is_stale(self) -> bool:
        """Whether another process has written; read once for all requests that the event loop works on together."""
        if self._known_fresh:
            return False
        if self.collection.stale:
            return True
        self._known_fresh = True
        loop = asyncio.get_running_loop()
        loop.call_soon(setattr, self, "_known_fresh", False)  # before any request that has not arrived yet
        return False

    async def _follow(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, self.collection.refresh)
        self.answers = AnswerCache(self.settings.cache_bytes)

    def fresh(self) -> Collection:
        """As ``current``, for a thread, which may wait."""
        if self.collection.stale and self.collection.refresh():
            self.answers = AnswerCache(self.settings.cache_bytes)
        return self.collection.snapshot()

    def close(self) -> None:
        """Finish the writes that have begun."""
        self._writer.shutdown()
        self._decoders.shutdown(cancel_futures=True)
        self._threads.shutdown(cancel_futures=True)

    @property
    def writable(self) -> bool:
        """Whether items can be added and removed with the token."""
        return self.settings.writable and not self.collection.readonly

    @property
    def workers(self) -> Workers:
        """The processes that decode images."""
        settings = self.settings
        return shared_workers(settings.threads, min(SECONDS, settings.timeout), memory_for(settings.max_pixels))

    async def run(self, work: Callable[[], T]) -> T:
        """Run a function in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def decode(self, work: Callable[[], T]) -> T:
        """Run a function that waits for images to be decoded; searches have other threads."""
        return await asyncio.get_running_loop().run_in_executor(self._decoders, work)

    async def write(self, deadline: asyncio.Timeout, work: Callable[[], T]) -> T:
        """Change the collection, one request after another.

        Waiting counts towards the time limit; a write that has begun is always finished.
        """
        async with self._writing:
            deadline.reschedule(None)
            try:
                return await asyncio.get_running_loop().run_in_executor(self._writer, work)
            finally:
                self.answers = AnswerCache(self.settings.cache_bytes)

    async def search(
        self,
        how: Mapping[str, Any],
        *,
        vector: Vector | None = None,
        item: int | str | None = None,
        code: int | None = None,
        image: bytes | None = None,
    ) -> dict[str, Any]:
        """The neighbours of one query, as a value that orjson takes.

        Up to 16 bits there are few codes, so answers are cached by code. A write replaces the cache; an answer found
        before it goes into the old one.

        Parameters
        ----------
        how : k, radius, rerank and probes, as ``Collection.search`` takes them
        vector, item, code, image : the query, one of them
        """
        start = time.perf_counter()
        if vector is not None:
            code = await self._encoded(vector)
        elif image is not None:
            code, vector = await self.decode(lambda: self.image_code(image))
        collection, cache = await self.current(), self.answers
        if item is not None:
            if item not in collection:
                raise _unknown(item)
            code = int(collection.codes_of([item])[0])
        assert code is not None
        by_code = not how["rerank"] and how["probes"] is None
        key = (code, how["k"], how["radius"]) if by_code and item is None else None
        answer = cache.get(key)
        if answer is not None:
            self.metrics.cached.inc()
        else:
            find = partial(self._timed_find, collection, code, how, item, vector)
            quick = by_code and collection.n_bits <= QUICK_BITS
            answer = search_value(*(find() if quick else await self.run(find)))
            cache.put(key, answer)
        seconds = round(time.perf_counter() - start, 6)
        return {**answer, "groups": orjson.Fragment(answer["groups"]), "seconds": seconds}

    def _timed_find(self, collection: Collection, code: int, *search: Any) -> tuple[Found, NDArray[np.int64]]:
        start = time.perf_counter()
        found, ring_sizes = self.find(collection, code, *search), collection.ring_sizes(code)
        self.metrics.search.observe(time.perf_counter() - start)
        return found, ring_sizes

    def find(
        self,
        collection: Collection,
        code: int,
        how: Mapping[str, Any],
        item: int | str | None = None,
        vector: Vector | None = None,
    ) -> Found:
        """The neighbours of a code, or of an item, without itself; re-ranking and probes need an item or a vector."""
        query: dict[str, Any] = {"code": code}
        if item is not None:
            query = {"id": item}
        elif how["rerank"] or how["probes"] is not None:
            query = {"vector": vector}
        if how["rerank"]:
            if how["probes"] is None:
                reach = RERANK_RADIUS if how["radius"] is None else how["radius"]
                n = int(collection.ring_sizes(code)[: reach + 1].sum())
            else:
                loads = {bucket.code: bucket.load for bucket in collection.buckets()}
                n = sum(loads.get(cell, 0) for cell in collection.search(**query, k=1, probes=how["probes"]).looked_up)
            if n > self.settings.max_rerank:
                raise InvalidInput(
                    f"Re-ranking would compare {n} items, more than {self.settings.max_rerank}; use a smaller radius "
                    "or fewer probes."
                )
        return collection.search(**query, **how)

    def image_code(self, octets: bytes) -> tuple[int, Vector]:
        """Code and vector of an image; InvalidInput if it cannot be used."""
        try:
            vector = self.collection.image_vector(octets, max_pixels=self.settings.max_pixels, workers=self.workers)
        except UnreadableImage as error:
            raise InvalidInput(str(error)) from error
        return int(as_packed(self.collection.encode(vector[None]), self.collection.n_bits)[0]), vector

    async def _encoded(self, vector: Vector) -> int:
        """The code of a vector; vectors that arrive together are encoded together, which costs little more than one."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        self._waiting.append((vector, future))
        if len(self._waiting) == 1:
            loop.call_soon(self._encode_waiting)
        return await future

    def _encode_waiting(self) -> None:
        batch, self._waiting = self._waiting[:LARGEST_BATCH], self._waiting[LARGEST_BATCH:]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._encode_waiting)
        batch = [(vector, future) for vector, future in batch if not future.done()]  # others were aborted
        if not batch:
            return
        start = time.perf_counter()
        try:
            codes = self.collection.encode(np.stack([vector for vector, _ in batch]))
        except Exception as error:
            for _, future in batch:
                future.set_exception(error)
            return
        self.metrics.encode.observe(time.perf_counter() - start)
        self.metrics.encoded.inc(len(batch))
        for (_, future), code in zip(batch, as_packed(codes, self.collection.n_bits).tolist(), strict=True):
            future.set_result(code)

    def item(self, collection: Collection, text: str) -> Item:
        """The item with an id, given as text, or 404."""
        try:
            item = parse_id(text, collection.ids)
        except InvalidInput as error:
            raise HTTPException(404, str(error)) from None
        found = collection.items([item], skip_missing=True)
        if not found:
            raise _unknown(item)
        return found[0]

    def add_vectors(self, items: Sequence[Any]) -> list[Any]:
        """Add items of a request, all or none, and return their ids."""
        ids = [item.id for item in items] if items[0].id is not None else None
        used = next((item for item in ids or () if item in self.collection), None)
        if used is not None:
            raise HTTPException(409, f"Id {used!r} is already used; send no ids, or delete that item first.")
        added = self.collection.add_vectors(
            np.array([item.vector for item in items], dtype=np.float32),
            ids=ids,
            labels=[item.label for item in items],
            names=[item.name or "" for item in items],
        )
        return list(added.tolist())

    def extracted(self, images: Sequence[tuple[str, bytes]]) -> list[Extracted]:
        """Images with their features and thumbnails; this takes long, and changes nothing."""
        pixels, features = self.settings.max_pixels, self.collection.features
        batches = extract(images, features, thumbnail=THUMBNAIL, max_pixels=pixels, workers=self.workers)
        return [image for batch in batches for image in batch]

    def add_images(self, images: Sequence[Extracted], label: str | None) -> AddReport:
        """Add images, in one transaction."""
        report = AddReport()
        self.collection.add_extracted(images, [label] * len(images), report)
        return report

    def relabel(self, text: str, label: int | str | None) -> None:
        """Give the item with an id, given as text, another label, or 404."""
        self.collection.relabel([self.item(self.collection, text).id], [label])

    def remove(self, text: str) -> None:
        """Remove the item with an id, given as text, or 404."""
        self.collection.remove([self.item(self.collection, text).id])


class AnswerCache:
    """Answers to searches; when they take too much memory, the oldest is dropped.

    Parameters
    ----------
    largest : bytes of all answers; 0: nothing is cached

    Examples
    --------
    >>> cache = AnswerCache(10)
    >>> for code in (1, 2):
    ...     cache.put(code, {"groups": b"123456"})
    >>> cache.get(1), cache.get(2)
    (None, {'groups': b'123456'})
    """

    def __init__(self, largest: int) -> None:
        self._largest, self._size = largest, 0
        self._answers: dict[Any, dict[str, Any]] = {}

    def get(self, key: Any) -> dict[str, Any] | None:
        """The answer to a query, if it is cached; a key of None never is."""
        return self._answers.get(key)

    def put(self, key: Any, answer: dict[str, Any]) -> None:
        """Cache an answer, unless its key is None."""
        size = len(answer["groups"])
        if key is None or size > self._largest or key in self._answers:
            return
        self._answers[key] = answer
        self._size += size
        while self._size > self._largest:
            oldest = self._answers.pop(next(iter(self._answers)))
            self._size -= len(oldest["groups"])


def as_bits(code: int, n_bits: int) -> str:
    """A code as zeros and ones, highest bit first.

    Examples
    --------
    >>> as_bits(5, 4)
    '0101'
    """
    return f"{code:0{n_bits}b}"


def item_value(item: Item, n_bits: int) -> dict[str, Any]:
    """An item as the API shows it."""
    return {
        "id": item.id,
        "label": item.label,
        "name": item.name,
        "code": item.code,
        "bits": as_bits(item.code, n_bits),
        "thumbnail": f"/thumbnails/{item.content}.jpg" if item.content else None,
    }


def search_value(found: Found, ring_sizes: NDArray[np.int64]) -> dict[str, Any]:
    """Neighbours as the API shows them, grouped by distance; the groups are JSON already."""
    bits = {code: as_bits(code, found.n_bits) for code in set(found.codes.tolist())}
    scores = [None] * len(found) if found.scores is None else found.scores.tolist()
    columns = (found.ids.tolist(), found.labels, found.names, found.codes.tolist(), found.contents)
    items = [
        {
            "id": item,
            "label": label,
            "name": name,
            "code": code,
            "bits": bits[code],
            "thumbnail": f"/thumbnails/{content}.jpg" if content else None,
            "distance": distance,
            "score": score,
        }
        for item, label, name, code, content, distance, score in zip(
            *columns, found.distances.tolist(), scores, strict=True
        )
    ]
    groups = [
        {"distance": distance, "items": [items[row] for row in rows.tolist()]} for distance, rows in found.groups()
    ]
    return {
        "query": {"code": found.code, "bits": as_bits(found.code, found.n_bits)},
        "n_bits": found.n_bits,
        "count": len(found),
        "looked_up": list(found.looked_up),
        "expected_precision": found.expected,
        "ring_sizes": ring_sizes.tolist(),
        "groups": orjson.dumps(groups),
    }


def parse_id(text: str, ids: AnyIds) -> int | str:
    """An id from an address: an integer if the ids of the collection are integers; else InvalidInput."""
    if ids.dtype.kind != "i":
        return text
    with suppress(ValueError):
        number = int(text)
        if str(number) == text and -(1 << 63) <= number < 1 << 63:  # only one text for every id
            return number
    example = ids[len(ids) // 2] if len(ids) else "one after adding items"
    raise InvalidInput(f"There is no item {shortened(text)}: ids are integers here; try {example}.")


def _unknown(item: int | str) -> HTTPException:
    return HTTPException(404, f"There is no item {shortened(item)}; check the id.")


# a store behind a server ---------------------------------------------------------------------------------------------


class StoreService:
    """Searches a store for the routes.

    Parameters
    ----------
    hasher : the fitted encoder of the store's codes
    opener : opens the store; called once for every thread
    settings : limits
    """

    def __init__(self, hasher: Any, opener: Callable[[], Store], settings: Settings) -> None:
        self.settings, self.metrics = settings, Metrics()
        self._hasher, self._opener = hasher, opener
        self._own = threading.local()
        self._stores: list[Store] = []
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="shorthash-store")
        self.n_bits, self.n_features = int(steps_of(hasher)[-1].n_bits), int(hasher.n_features_in_)
        self._threads.submit(self._with_store, lambda store: Searcher(hasher, store).check_codes()).result()

    def close(self) -> None:
        """Close all connections."""
        self._threads.shutdown(cancel_futures=True)
        for store in self._stores:
            store.close()

    async def run(self, work: Callable[[Store], T]) -> T:
        """Run a function with the store of a thread; once more if the connection was lost."""
        loop = asyncio.get_running_loop()
        try:
            with suppress(PersistenceError):
                return await loop.run_in_executor(self._threads, self._with_store, work)
            return await loop.run_in_executor(self._threads, self._with_store, work)
        except PersistenceError as error:
            raise HTTPException(503, "The database cannot be reached at the moment; try again.", RETRY) from error

    def _with_store(self, work: Callable[[Store], T]) -> T:
        if not hasattr(self._own, "store"):
            self._own.store = self._opener()
            self._stores.append(self._own.store)
        return work(self._own.store)

    def search(self, query: Any, store: Store) -> dict[str, Any]:
        """The answer to a request."""
        start = time.perf_counter()
        vector = None if query.vector is None else np.array([query.vector], dtype=np.float32)
        code, by_features = query.code, query.probes is not None or query.rerank is not None
        if query.id is not None:
            item = found_item(store, query.id, vectors=True)
            code, vector = int(item.codes[0]), _vector_of(item)
            query.id = item.ids[0].item()
            if vector is None and by_features:
                raise InvalidInput(f"Item {query.id!r} has no vector; search without probes and rerank.")
        if vector is not None:
            code = int(as_packed(np.asarray(self._hasher.transform(vector)), self.n_bits)[0])
        answer = self._by_features(query, code, vector, store) if by_features else self._by_code(query, code, store)
        self.metrics.search.observe(time.perf_counter() - start)
        facts = {"query": {"code": code, "bits": as_bits(code, self.n_bits)}, "n_bits": self.n_bits}
        return {**facts, **answer, "seconds": round(time.perf_counter() - start, 6)}

    def _by_features(self, query: Any, code: int, vector: Any, store: Store) -> dict[str, Any]:
        """By learned probes, or a ball that is re-ranked."""
        found = Searcher(self._hasher, store).search(
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

    def _by_code(self, query: Any, code: int, store: Store) -> dict[str, Any]:
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

    def cell(self, code: int, offset: int, limit: int, store: Store) -> dict[str, Any]:
        """The items of one code."""
        packed = np.array([code], dtype=np.uint64)
        load, rows = int(store.cell_sizes(packed)[0]), []
        if offset < load and limit:
            ids = store.search(packed, min(offset + limit, load)).ids[0][offset:]
            rows = item_values(store.items(ids, skip_missing=True, vectors=False), self.n_bits)
        shown = [row for row in rows if row["code"] == code]
        return {"code": code, "bits": as_bits(code, self.n_bits), "load": load, "offset": offset, "items": shown}

    def health(self, store: Store) -> dict[str, Any]:
        """That the database answers, and that it still has the version."""
        if store.version not in store.versions:
            raise HTTPException(503, f"Version {store.version!r} was dropped; restart the server with another model.")
        facts = {"collection": store.collection, "version": store.version, "current_version": store.current_version}
        return {"status": "ok", **facts, "n_bits": self.n_bits, "n_features": self.n_features}


def item_values(items: Items, n_bits: int) -> list[dict[str, Any]]:
    """Items as the API shows them."""
    columns = (items.ids.tolist(), items.classes, items.metadata, items.codes.tolist())
    return [
        {"id": item, "label": label, "metadata": metadata, "code": code, "bits": as_bits(code, n_bits)}
        for item, label, metadata, code in zip(*columns, strict=True)
    ]


def found_item(store: Store, item: int | str, *, vectors: bool = False) -> Items:
    """One item by its id, or by the text of it; 404 if there is none."""
    candidates = [item]
    with suppress(InvalidInput):
        candidates += [parse_id(item, NUMBERS)] if isinstance(item, str) else []
    for one in candidates:
        found = store.items([one], skip_missing=True, vectors=vectors)
        if len(found):
            return found
    raise HTTPException(404, f"There is no item {item!r:.60}; check the id.")


def _vector_of(items: Items) -> NDArray[np.float32] | None:
    vectors = items.vectors
    return None if vectors is None or np.isnan(vectors[0, 0]) else vectors
