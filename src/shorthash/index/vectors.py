"""Vectors of items, for ranking candidates exactly: append-only rows that readers share with one writer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash.errors import InvalidInput

__all__ = ["VectorRows", "Vectors", "as_vectors", "saved_vectors"]

Vectors = NDArray[np.floating[Any]]
"""Vectors, (n, dimension), float16, float32 or float64."""

SMALL_TAIL = 64
KEPT = ("float16", "float32", "float64")  # other types become float32


def as_vectors(values: ArrayLike, n: int, owner: str) -> Vectors:
    """Check that ``values`` are n finite vectors; integers become float32."""
    vectors = np.asarray(values)
    if vectors.ndim != 2 or len(vectors) != n or vectors.shape[1] == 0 or vectors.dtype.kind not in "fiu":
        raise InvalidInput(
            f"The 'vectors' of {owner} must be numbers of shape ({n}, dimension), one row per code. "
            f"Got {vectors.dtype} of shape {vectors.shape} instead."
        )
    if vectors.dtype.name not in KEPT:
        vectors = vectors.astype(np.float32)
    if not np.isfinite(np.sum(vectors, dtype=np.float64)):
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(bad):
            raise InvalidInput(
                f"The 'vectors' of {owner} must be finite, but row {bad[0]} holds NaN or infinity; drop or repair it."
            )
    return np.ascontiguousarray(vectors)


def saved_vectors(state: Mapping[str, Any], n_items: int) -> Vectors | None:
    """The vectors in the exported state of an index; raises InvalidInput if they do not fit its items."""
    vectors = state.get("vectors")
    if vectors is None:
        return None
    if vectors.ndim != 2 or len(vectors) != n_items or vectors.dtype.name not in KEPT:
        raise InvalidInput(
            f"A saved index of {n_items} items has vectors of shape {vectors.shape}; build the index again."
        )
    return np.asarray(vectors)


@dataclass(frozen=True, eq=False)
class VectorRows:
    """Rows by position; growing one leaves those that readers hold as they are.

    Rows are never moved: the first stand where they were loaded (perhaps on disk), later ones in a buffer with room
    to grow. When positions are renumbered because items were dropped, ``slots`` says where their rows stand.

    Attributes
    ----------
    base : (n0, dimension) the first rows
    tail : (capacity, dimension) buffer for further rows
    n_rows : rows in use, in ``base`` and ``tail`` together
    slots : (n,) rows of the first n positions, further positions have the rows from ``next_slot`` on; None: position
        and row are the same
    next_slot : rows in use when ``slots`` was made
    """

    base: Vectors
    tail: Vectors
    n_rows: int
    slots: NDArray[np.int64] | None = None
    next_slot: int = 0

    @classmethod
    def of(cls, rows: Vectors) -> VectorRows:
        """Rows that may be kept as they are."""
        return cls(rows, rows[:0], len(rows))

    @property
    def dimension(self) -> int:
        """Columns of a row."""
        return int(self.base.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.base.nbytes + self.tail.nbytes + (0 if self.slots is None else self.slots.nbytes)

    def appended(self, rows: Vectors) -> VectorRows:
        """With more rows at the end; only the writer may call it, and only on the newest state."""
        used = self.n_rows - len(self.base)
        tail = self.tail
        if used + len(rows) > len(tail):
            tail = np.empty((max(SMALL_TAIL, 2 * (used + len(rows))), self.dimension), dtype=self.base.dtype)
            tail[:used] = self.tail[:used]
        tail[used : used + len(rows)] = rows
        return replace(self, tail=tail, n_rows=self.n_rows + len(rows))

    def take(self, positions: NDArray[np.int64]) -> Vectors:
        """Rows of some positions, (n, dimension)."""
        slots = self._slots_of(positions)
        late = slots >= len(self.base)
        if not late.any():
            return np.asarray(self.base[slots])
        rows = np.empty((len(slots), self.dimension), dtype=self.base.dtype)
        rows[~late] = self.base[slots[~late]]
        rows[late] = self.tail[slots[late] - len(self.base)]
        return rows

    def renumbered(self, positions: NDArray[np.int64]) -> VectorRows:
        """For new positions 0, 1, ... that were these ``positions``; drops rows once most of them are not needed."""
        slots = self._slots_of(positions)
        if 2 * len(slots) < self.n_rows:
            return VectorRows.of(self.take(positions))
        same = len(slots) == self.n_rows and bool(np.all(slots == np.arange(len(slots))))
        return replace(self, slots=None if same else slots, next_slot=self.n_rows)

    def all_rows(self) -> Vectors:
        """All rows by position, not copied where they stand in one piece."""
        if self.slots is None and self.n_rows == len(self.base):
            return self.base
        n = self.n_rows if self.slots is None else len(self.slots) + self.n_rows - self.next_slot
        return self.take(np.arange(n))

    def _slots_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.slots is None:
            return positions
        n = len(self.slots)
        slots = positions + (self.next_slot - n)
        early = positions < n
        slots[early] = self.slots[positions[early]]
        return slots
