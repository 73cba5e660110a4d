"""Compact posteriors of items: checks, and a table of them by id; ``shorthash.retrieval`` makes and reads the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash.errors import InvalidInput
from shorthash.index.items import AnyIds, find_ids

Rows = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class PosteriorTable:
    """Compact posteriors by id; immutable, so that readers keep what they took.

    Attributes
    ----------
    ids : (n,) ascending
    rows : (n, n_bytes), 0 where the posterior is unknown
    """

    ids: AnyIds = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    rows: Rows = field(default_factory=lambda: np.empty((0, 2), dtype=np.uint8))

    @classmethod
    def of(cls, ids: AnyIds, rows: Rows) -> PosteriorTable:
        """A table of ids in any order."""
        if bool(np.all(ids[1:] > ids[:-1])):
            return cls(ids, rows)
        order = np.argsort(ids, kind="stable")
        return cls(ids[order], rows[order])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.ids.nbytes + self.rows.nbytes)

    def __len__(self) -> int:
        return len(self.ids)

    def without(self, ids: AnyIds) -> PosteriorTable:
        """The table without some ids, which need not be in it."""
        if not len(self) or self.ids.dtype.kind != ids.dtype.kind:
            return self
        kept = ~np.isin(self.ids, ids)
        return PosteriorTable(self.ids[kept], self.rows[kept])

    def with_rows(self, ids: AnyIds, rows: Rows) -> PosteriorTable:
        """The table with more rows; an id that is in it gets the new row."""
        kept = self.without(ids)
        if not len(kept):
            return PosteriorTable.of(ids, rows.copy())
        return PosteriorTable.of(np.concatenate([kept.ids, ids]), np.concatenate([kept.rows, rows]))

    def take(self, ids: AnyIds) -> Rows:
        """Rows of some ids, (n, n_bytes); 0 where none is known."""
        if not len(self) or self.ids.dtype.kind != ids.dtype.kind:
            return np.zeros((len(ids), self.rows.shape[1]), dtype=np.uint8)
        places = find_ids(ids, self.ids, None)
        found: Rows = self.rows[places]
        found[places < 0] = 0
        return found


def as_posteriors(values: ArrayLike, n: int, owner: str) -> Rows:
    """Check that ``values`` are n compact posteriors."""
    rows = np.asarray(values)
    if rows.ndim != 2 or len(rows) != n or not rows.shape[1] or rows.dtype != np.uint8:
        raise InvalidInput(
            f"The 'posteriors' of {owner} must be uint8 of shape ({n}, n_bytes), as Searcher.compact gives them. "
            f"Got {rows.dtype} of shape {rows.shape} instead."
        )
    return rows


def stacked_posteriors(parts: Sequence[Rows | None], sizes: Sequence[int]) -> Rows | None:
    """Compact posteriors of several indexes or stores of these sizes together; None if none has any."""
    known = [rows for rows in parts if rows is not None]
    if not known:
        return None
    if len({rows.shape[1] for rows in known}) > 1:
        raise InvalidInput("Items whose posteriors differ in size cannot be merged; compact them to one size.")
    none = np.zeros((1, known[0].shape[1]), dtype=np.uint8)
    return np.concatenate([none.repeat(n, 0) if rows is None else rows for rows, n in zip(parts, sizes, strict=True)])


def saved_posteriors(state: Mapping[str, Any], ids: AnyIds) -> PosteriorTable:
    """The posteriors in the exported state of an index with these ids; files written before have none."""
    rows = state.get("posteriors")
    return PosteriorTable() if rows is None else PosteriorTable.of(ids, as_posteriors(rows, len(ids), "a saved index"))
