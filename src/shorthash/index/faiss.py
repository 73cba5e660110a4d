"""FAISS with the contract of an index. FAISS takes whole bytes only, so codes are padded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import PackedCodes
from shorthash._validation import require_extra
from shorthash.index.base import Hits
from shorthash.index.items import AnyIds, Where, tie_order
from shorthash.index.results import RadiusResult, SearchResult
from shorthash.index.scan import ScanIndex

__all__ = ["FaissIndex", "codes_from_bytes", "codes_to_bytes"]


class FaissIndex(ScanIndex):
    """Exact search by ``faiss.IndexBinaryFlat``, which compares a query with every item; needs the extra ``faiss``.

    Tie orders, filters, ids and vectors are those of every index. FAISS cannot remove cheaply or filter, so its index
    is rebuilt by the first search after a change, and for every search with a filter.

    Parameters
    ----------
    n_bits : length of the codes, 1 to 64

    Examples
    --------
    >>> index = FaissIndex(n_bits=3).add([[1, 1, 1], [1, 1, -1], [-1, -1, -1]])
    >>> index.search([[1, 1, 1]], k=2).ids.tolist()
    [[0, 1]]
    """

    def __init__(self, n_bits: int) -> None:
        super().__init__(n_bits)
        self._built: tuple[PackedCodes, Any] | None = None  # codes, and the FAISS index built from them

    def _search(self, queries: PackedCodes, k: int, ties: str, seed: int, where: Where | None) -> SearchResult:
        items = self._items("any", 0, where)
        k = min(k, len(items))
        if not k or not len(queries):
            shape = (len(queries), k)
            return SearchResult(np.empty(shape, dtype=self._ids.dtype), np.empty(shape, dtype=np.uint8))
        found, places = self._structure(items).search(codes_to_bytes(queries, self.n_bits), k)
        ids, distances = self._ids[items[places]], found.astype(np.uint8)
        if ties == "any":
            return SearchResult(ids, distances)
        for radius in np.unique(distances[:, -1]).tolist():  # all that tie for the last places are needed
            rows = np.flatnonzero(distances[:, -1] == radius)
            near = self._ordered(self._near(queries[rows], radius, items), ties, seed)
            for row, (i, d) in zip(rows, near, strict=True):
                ids[row], distances[row] = i[:k], d[:k]
        return SearchResult(ids, distances)

    def _within(self, queries: PackedCodes, radius: int, ties: str, seed: int, where: Where | None) -> RadiusResult:
        return self._ordered(self._hits(queries, radius, where), ties, seed)

    def _counts(self, queries: PackedCodes, radius: int, where: Where | None) -> NDArray[np.int64]:
        return np.diff(self._hits(queries, radius, where)[2])

    def _iterate(self, query: PackedCodes) -> Iterator[tuple[int, AnyIds]]:
        view = self._frozen(1)
        for distance in range(self.n_bits + 1):
            ids, d = view._within(query, distance, "id", 0, None)[0]
            if np.any(d == distance):
                yield distance, ids[d == distance]
            if len(ids) == len(view):
                return

    def _near(self, queries: PackedCodes, radius: int, items: NDArray[np.intp]) -> Hits:
        """Everything within ``radius``; FAISS takes the first distance that is too far."""
        if not len(items) or not len(queries):
            return items[:0], np.empty(0, dtype=np.uint8), np.zeros(len(queries) + 1, dtype=np.int64)
        octets = codes_to_bytes(queries, self.n_bits)
        limits, distances, places = self._structure(items).range_search(octets, radius + 1)
        return items[places], distances.astype(np.uint8), limits.astype(np.int64)

    def _ordered(self, hits: Hits, ties: str, seed: int) -> RadiusResult:
        positions, distances, offsets = hits
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        ids = self._ids[positions]
        order = tie_order(rows, distances, positions, ids, ties, seed)
        return RadiusResult(ids[order], distances[order], offsets)

    def _structure(self, items: NDArray[np.intp]) -> Any:
        """FAISS's index of the codes of some items; that of all items is kept."""
        codes = self._codes
        if len(items) < len(codes):
            return _build(codes[items], self.n_bits)
        if self._built is None or self._built[0] is not codes:
            self._built = codes, _build(codes, self.n_bits)
        return self._built[1]


def codes_to_bytes(codes: PackedCodes, n_bits: int) -> NDArray[np.uint8]:
    """Packed codes as whole bytes, low bits first, (n, n_bytes); bits beyond n_bits are 0."""
    little = codes.astype(codes.dtype.newbyteorder("<"), copy=False)
    octets = np.ascontiguousarray(little).view(np.uint8).reshape(len(codes), codes.dtype.itemsize)
    return np.ascontiguousarray(octets[:, : -(-n_bits // 8)])


def codes_from_bytes(octets: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Packed codes of whole bytes, low bits first, (n,)."""
    wide = np.zeros((len(octets), 8), dtype=np.uint8)
    wide[:, : octets.shape[1]] = octets
    return wide.view("<u8").reshape(-1).astype(np.uint64)


def _build(codes: PackedCodes, n_bits: int) -> Any:
    faiss = require_extra("faiss", "faiss", "FaissIndex")
    structure = faiss.IndexBinaryFlat(-(-n_bits // 8) * 8)
    structure.add(codes_to_bytes(codes, n_bits))
    return structure
