"""A collection behind a server: what is quick runs in the event loop, the rest in threads, writes one after another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from fastapi import HTTPException
from numpy.typing import NDArray

from shorthash.codes import as_packed
from shorthash.errors import InvalidInput
from shorthash.images import AddReport, Collection, Found, Item
from shorthash.images.collection import RERANK_RADIUS
from shorthash.web.answers import item_json, search_json, timed
from shorthash.web.batching import BatchEncoder
from shorthash.web.known import KnownAnswers, KnownItems
from shorthash.web.metrics import Metrics
from shorthash.web.queries import NewItems, Query
from shorthash.web.settings import Settings

__all__ = ["Service"]

QUICK_BITS = (
    16  # up to here no search looks at more than 65 536 buckets: tens of microseconds, less than a thread costs
)
TRIES = 3  # of a lookup that a removal overtook

T = TypeVar("T")


class Service:
    """What the routes ask.

    Parameters
    ----------
    collection : to search and, if open for writing, to change
    settings : limits
    metrics : where times are kept
    """

    def __init__(self, collection: Collection, settings: Settings, metrics: Metrics) -> None:
        self.collection, self.settings, self.metrics = collection, settings, metrics
        self.known = KnownItems(self._items_json)
        self.answers = KnownAnswers(settings.remembered)
        self._encoder = BatchEncoder(self._encode)
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="shorthash-search")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="shorthash-write")
        self._writing = asyncio.Lock()

    def close(self) -> None:
        """Finish what was begun."""
        self._writer.shutdown()
        self._threads.shutdown(cancel_futures=True)

    async def run(self, work: Callable[[], T]) -> T:
        """Do something slow in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def write(self, deadline: asyncio.Timeout | None, work: Callable[[], T]) -> T:
        """Change the collection; one request after another.

        Waiting counts against the time limit; what has begun is finished and told, however long it takes.
        """
        async with self._writing:
            if deadline is not None:
                deadline.reschedule(None)
            try:
                return await asyncio.get_running_loop().run_in_executor(self._writer, work)
            finally:
                self.answers.forget()

    async def search(self, query: Query) -> bytes:
        """Neighbours of a query, as JSON."""
        start = time.perf_counter()
        code, vector = await self._code(query)
        if query.rerank or query.kind == "id":
            answer = await self._answer(query, code, vector)
        else:
            key, changes = (code, query.k, query.radius), self.answers.changes
            known = self.answers.get(key)
            if known is None:
                answer = await self._answer(query, code, vector)
                self.answers.put(key, answer, changes)
            else:
                answer = known
                self.metrics.remembered.inc()
        return timed(answer, time.perf_counter() - start)

    async def _answer(self, query: Query, code: int, vector: NDArray[np.float32] | None) -> bytes:
        """Search, and tell what was found."""
        if query.rerank:
            self._check_rerank(code, query.radius)
        if query.rerank or self.collection.n_bits > QUICK_BITS:
            found, rings = await self.run(lambda: self._find(query, code, vector))
        else:
            found, rings = self._find(query, code, vector)
        ids = found.ids.tolist()
        items = self.known.get(ids)
        if items is None:
            told = await self.run(lambda: self.known.fetch(ids))
            found = _still_there(found, told)
            items = [told[item] for item in found.ids.tolist()]
        return search_json(found, items, rings)

    async def _code(self, query: Query) -> tuple[int, NDArray[np.float32] | None]:
        """The code of a query, and its vector if it has one."""
        if query.kind == "vector":
            return await self._encoder.code(query.value), query.value
        if query.kind == "code":
            return int(query.value), None
        if query.kind == "id":
            if query.value not in self.collection:
                raise unknown(query.value)
            return int(self.collection.codes_of([query.value])[0]), None
        return await self.run(lambda: self._image_code(query.value))

    def _find(self, query: Query, code: int, vector: NDArray[np.float32] | None) -> tuple[Found, NDArray[np.int64]]:
        start = time.perf_counter()
        asked: dict[str, Any] = {"code": code}
        if query.kind == "id":
            asked = {"id": query.value}
        elif query.rerank:
            asked = {"vector": vector}
        found = self.collection.search(**asked, k=query.k, radius=query.radius, rerank=query.rerank)
        rings = self.collection.ring_sizes(code)
        self.metrics.search.observe(time.perf_counter() - start)
        return found, rings

    def _check_rerank(self, code: int, radius: int | None) -> None:
        reach = RERANK_RADIUS if radius is None else radius
        n = int(self.collection.ring_sizes(code)[: reach + 1].sum())
        if n > self.settings.max_rerank:
            raise HTTPException(
                422,
                f"Re-ranking within radius {reach} compares {n} vectors, and at most {self.settings.max_rerank} are "
                "allowed; take a smaller radius.",
            )

    def _encode(self, vectors: NDArray[np.float32]) -> NDArray[np.integer]:
        start = time.perf_counter()
        codes = as_packed(self.collection.encode(vectors), self.collection.n_bits)
        self.metrics.encode.observe(time.perf_counter() - start)
        self.metrics.encoded.inc(len(vectors))
        return codes

    def _image_code(self, octets: bytes) -> tuple[int, NDArray[np.float32]]:
        encoded = self.collection.encode_images([("image", octets)], max_pixels=self.settings.max_pixels)
        if encoded.failed:
            raise HTTPException(422, f"The image cannot be used: {encoded.failed[0][1]}")
        return int(as_packed(encoded.codes, self.collection.n_bits)[0]), encoded.vectors[0]

    def _items_json(self, ids: Sequence[Any]) -> dict[Any, bytes]:
        return {item.id: item_json(item, self.collection.n_bits) for item in self.items(ids)}

    def items(self, ids: Sequence[Any]) -> list[Item]:
        """Items that are there; some of them may have gone since they were found."""
        for _ in range(TRIES):
            there = [item for item in ids if item in self.collection]
            try:
                return self.collection.items(there)
            except InvalidInput:
                continue
        return []

    def item(self, item: int | str) -> Item:
        """One item, or 404."""
        found = self.items([item])
        if not found:
            raise unknown(item)
        return found[0]

    def add_vectors(self, new: NewItems) -> list[Any]:
        """Add vectors, all or none; their ids."""
        if new.ids is not None:
            taken = next((item for item in new.ids if item in self.collection), None)
            if taken is not None:
                raise HTTPException(409, f"Id {taken!r} is taken; leave ids away, or delete that item first.")
        ids = self.collection.add_vectors(new.vectors, ids=new.ids, labels=new.labels, names=new.names).tolist()
        self.known.forget(ids)
        return list(ids)

    def add_images(self, images: Sequence[tuple[str, bytes]], label: int | str | None) -> AddReport:
        """Add images; what became of each."""
        labels = [label] * len(images)
        return self.collection.add_images(images, labels=labels, max_pixels=self.settings.max_pixels)

    def remove(self, item: int | str) -> None:
        """Remove an item, or 404."""
        if item not in self.collection:
            raise unknown(item)
        self.collection.remove([item])
        self.known.forget([item])


def _still_there(found: Found, told: Mapping[Any, bytes]) -> Found:
    """What was found, less items that were removed meanwhile."""
    if len(told) == len(found):
        return found
    rows = [row for row, item in enumerate(found.ids.tolist()) if item in told]
    return replace(
        found,
        ids=found.ids[rows],
        distances=found.distances[rows],
        codes=found.codes[rows],
        labels=[found.labels[row] for row in rows],
        scores=None if found.scores is None else found.scores[rows],
    )


def unknown(item: int | str) -> HTTPException:
    """The answer to an id that is not there."""
    text = repr(item)
    return HTTPException(404, f"There is no item {text if len(text) <= 60 else text[:57] + '...'}; check the id.")
