"""Vectors that arrive together are encoded together: most of the cost of an encoding is paid once per call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["BatchEncoder"]

LARGEST_BATCH = 64


class BatchEncoder:
    """Collects vectors until the event loop has read what has arrived, and encodes them at once.

    Parameters
    ----------
    encode : (n, n_features) -> (n,) packed codes; called in the event loop
    """

    def __init__(self, encode: Callable[[NDArray[np.float32]], NDArray[np.integer]]) -> None:
        self._encode = encode
        self._waiting: list[tuple[NDArray[np.float32], asyncio.Future[int]]] = []

    async def code(self, vector: NDArray[np.float32]) -> int:
        """The packed code of a vector."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        self._waiting.append((vector, future))
        if len(self._waiting) == 1:
            loop.call_soon(self._flush)
        return await future

    def _flush(self) -> None:
        batch, self._waiting = self._waiting[:LARGEST_BATCH], self._waiting[LARGEST_BATCH:]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        try:
            codes = self._encode(np.stack([vector for vector, _ in batch])).tolist()
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), code in zip(batch, codes, strict=True):
            if not future.done():
                future.set_result(code)
