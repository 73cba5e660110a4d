"""Dask arrays and data frames as streams: sums added up as a tree by whatever scheduler there is.

Every task is a pure function of its block, so a block that is computed again, because a worker died, counts once. What
leaves the workers is one set of sums; row numbers are drawn here, and the rows themselves are picked where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Features
from shorthash._validation import require_extra
from shorthash.data.streams import Block, Stream
from shorthash.errors import InvalidInput

__all__ = ["DaskStream", "added_up", "stream_of"]

SPLIT_EVERY = 4  # sums added up by one task; each is of the size d x d

S = TypeVar("S")


def stream_of(X: Any, y: Any = None) -> DaskStream:
    """A Dask array or data frame with its labels as a stream.

    Parameters
    ----------
    X : array (n_rows, n_columns), or data frame of numbers
    y : array, or series of the same partitions; for a data frame also the name of its column (or columns)
    """
    return DaskStream(X, y)


class DaskStream(Stream):
    """Rows of a Dask collection, a block or partition at a time."""

    def __init__(self, X: Any, y: Any = None) -> None:
        self._dask = require_extra("dask", "dask", "Fitting Dask collections")
        self._X, self._y = _as_arrays(X, y)
        self._chunks = [int(n) for n in self._X.chunks[0]]
        self._starts = np.concatenate([[0], np.cumsum(self._chunks)]).astype(np.int64)

    @property
    def n_columns(self) -> int:
        """Features per row."""
        return int(self._X.shape[1])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def blocks(self, start: int = 0) -> Iterator[Block]:
        """Every block in turn, computed one at a time; for what cannot be left to the workers."""
        for first, X, y in self._parts():
            if first >= start:
                yield Block(first, *self._dask.compute(X, y))

    def take(self, indices: NDArray[np.intp]) -> Features:
        """Some rows, picked by the workers."""
        wanted = np.sort(indices)
        pick = self._dask.delayed(_pick, pure=True)
        edges = np.searchsorted(wanted, self._starts)
        parts = [
            pick(X, wanted[low:high] - first)
            for (first, X, _), low, high in zip(self._parts(), edges[:-1], edges[1:], strict=True)
            if high > low
        ]
        return np.concatenate(self._dask.compute(*parts))

    def total(self, part: Callable[[Block], S], add: Callable[[S, S], S]) -> S:
        """The sum over all blocks, added up as a tree."""
        make = self._dask.delayed(_sums_of, pure=True)
        function = self._dask.delayed(part, pure=True, traverse=False)  # sent to every worker once
        leaves = [make(function, first, X, y) for first, X, y in self._parts()]
        return added_up(leaves, add)  # type: ignore[no-any-return]

    def mapped(self, function: Callable[[Any], Any], n_columns: int, dtype: Any) -> Any:
        """A Dask array of what ``function`` makes of every block; nothing is computed yet."""
        return self._X.map_blocks(
            function, dtype=dtype, chunks=(self._X.chunks[0], (n_columns,)), meta=np.empty((0, 0), dtype=dtype)
        )

    def _parts(self) -> list[tuple[int, Any, Any]]:
        """First row, features and labels of every block that has rows, not computed."""
        X = self._X.to_delayed().ravel().tolist()
        y = [None] * len(X) if self._y is None else self._y.to_delayed().ravel().tolist()
        firsts = self._starts[:-1].tolist()
        return [part for part, n in zip(zip(firsts, X, y, strict=True), self._chunks, strict=True) if n]


def added_up(leaves: Sequence[Any], add: Callable[[Any, Any], Any]) -> Any:
    """Compute delayed values and add them up, a few at a time, as a tree."""
    dask = require_extra("dask", "dask", "Adding up on Dask")
    if not leaves:
        raise InvalidInput("The collection has no rows; give at least one.")
    join = dask.delayed(_folded, pure=True)
    level = list(leaves)
    while len(level) > 1:
        level = [join(add, level[i : i + SPLIT_EVERY]) for i in range(0, len(level), SPLIT_EVERY)]
    return level[0].compute()


def _as_arrays(X: Any, y: Any) -> tuple[Any, Any]:
    """Features as one array with whole rows in its blocks, labels cut in the same places."""
    da = require_extra("dask.array", "dask", "Fitting Dask collections")
    if hasattr(X, "to_dask_array"):
        if isinstance(y, str) or (isinstance(y, list) and all(isinstance(name, str) for name in y)):
            names = [y] if isinstance(y, str) else y
            X, y = X.drop(columns=names), X[y]
        X = X.to_dask_array(lengths=True)
    if hasattr(y, "to_dask_array"):
        y = y.to_dask_array(lengths=True)
    if X.ndim != 2:
        raise InvalidInput(f"A Dask collection of features must have 2 dimensions. Got shape {X.shape} instead.")
    if any(np.isnan(n) for n in X.chunks[0]):
        X = X.compute_chunk_sizes()
    X = X.rechunk({1: -1})
    if y is None:
        return X, None
    if not hasattr(y, "chunks"):
        y = da.from_array(np.asarray(y), chunks=(X.chunks[0], -1)[: np.ndim(y)])
    elif any(np.isnan(n) for n in y.chunks[0]):
        y = y.compute_chunk_sizes()
    if y.shape[0] != X.shape[0]:
        raise InvalidInput(
            f"Found input variables with inconsistent numbers of samples: X has {X.shape[0]} rows and y has "
            f"{y.shape[0]}; give one label per row."
        )
    return X, y.rechunk((X.chunks[0], -1)[: y.ndim])


def _sums_of(part: Callable[[Block], S], first: int, X: Any, y: Any) -> S:
    return part(Block(first, np.asarray(X), None if y is None else np.asarray(y)))


def _pick(X: Any, numbers: NDArray[np.intp]) -> Features:
    return np.asarray(X)[numbers]


def _folded(add: Callable[[S, S], S], values: Sequence[S]) -> S:
    """Add up a few values, in order."""
    total = values[0]
    for value in values[1:]:
        total = add(total, value)
    return total
