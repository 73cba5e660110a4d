"""FAISS behind the contract of an index; it knows whole bytes only, so codes are padded, and nobody sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import PackedCodes
from shorthash._validation import require_extra
from shorthash.index.filters import Where
from shorthash.index.ids import AnyIds, tie_order
from shorthash.index.memory import Hits
from shorthash.index.results import RadiusResult, SearchResult
from shorthash.index.scan import ScanIndex

__all__ = ["FaissIndex", "as_octets", "from_octets"]


class FaissIndex(ScanIndex):
    """Exact search by ``faiss.IndexBinaryFlat``, which compares a query with every item; needs the extra ``faiss``.

    Tie orders, filters, ids and vectors are those of every index. FAISS cannot remove cheaply or filter, so its part
    is built anew by the first search after a change, and for every search with a filter.

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
        self._built: tuple[PackedCodes, Any] | None = None  # the codes it was built from, and what FAISS made of them

    def _search(self, queries: PackedCodes, k: int, ties: str, seed: int, where: Where | None) -> SearchResult:
        items, structure = self._structure(where)
        k = min(k, len(items))
        if not k or not len(queries):
            shape = (len(queries), k)
            return SearchResult(np.empty(shape, dtype=self._ids.dtype), np.empty(shape, dtype=np.uint8))
        found, places = structure.search(as_octets(queries, self.n_bits), k)
        ids, distances = self._ids[items[places]], found.astype(np.uint8)
        if ties == "any":
            return SearchResult(ids, distances)
        for radius in np.unique(distances[:, -1]).tolist():  # all that tie for the last places must be seen
            rows = np.flatnonzero(distances[:, -1] == radius)
            near = self._ordered(self._near(queries[rows], radius, items, structure), ties, seed)
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

    def _hits(self, queries: PackedCodes, radius: int, where: Where | None) -> Hits:
        return self._near(queries, radius, *self._structure(where))

    def _near(self, queries: PackedCodes, radius: int, items: NDArray[np.intp], structure: Any) -> Hits:
        """Everything within ``radius``; FAISS means less than the number it is given."""
        if not len(items) or not len(queries):
            return items[:0], np.empty(0, dtype=np.uint8), np.zeros(len(queries) + 1, dtype=np.int64)
        limits, distances, places = structure.range_search(as_octets(queries, self.n_bits), radius + 1)
        return items[places], distances.astype(np.uint8), limits.astype(np.int64)

    def _ordered(self, hits: Hits, ties: str, seed: int) -> RadiusResult:
        positions, distances, offsets = hits
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        ids = self._ids[positions]
        order = tie_order(rows, distances, positions, ids, ties, seed)
        return RadiusResult(ids[order], distances[order], offsets)

    def _structure(self, where: Where | None) -> tuple[NDArray[np.intp], Any]:
        """Positions of the items that may be found, and FAISS's index of their codes."""
        items, codes = self._items("insertion", 0, where), self._codes
        if where is not None:
            return items, _build(codes[items], self.n_bits)
        if self._built is None or self._built[0] is not codes:
            self._built = codes, _build(codes, self.n_bits)
        return items, self._built[1]


def as_octets(codes: PackedCodes, n_bits: int) -> NDArray[np.uint8]:
    """Packed codes as whole bytes, low bits first, (n, n_bytes); what is too much is 0."""
    wide = codes.astype(codes.dtype.newbyteorder("<"), copy=False)
    octets = np.ascontiguousarray(wide).view(np.uint8).reshape(len(codes), codes.dtype.itemsize)
    return np.ascontiguousarray(octets[:, : -(-n_bits // 8)])


def from_octets(octets: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Packed codes of whole bytes, low bits first, (n,)."""
    wide = np.zeros((len(octets), 8), dtype=np.uint8)
    wide[:, : octets.shape[1]] = octets
    return wide.view("<u8").reshape(-1).astype(np.uint64)


def _build(codes: PackedCodes, n_bits: int) -> Any:
    faiss = require_extra("faiss", "faiss", "FaissIndex")
    structure = faiss.IndexBinaryFlat(-(-n_bits // 8) * 8)
    structure.add(as_octets(codes, n_bits))
    return structure
