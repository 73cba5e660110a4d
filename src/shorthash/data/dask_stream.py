"""Dask arrays and data frames as streams: blocks are reduced by the workers, and their sums are added as a tree.

Every task is a pure function of its block, so a block that is computed twice because a worker died is counted
once. Only the sums leave the workers; row numbers are drawn here, and the rows are picked by the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Features
from shorthash._labels import label_rows
from shorthash._validation import require_extra
from shorthash.data.streams import Block, Stream
from shorthash.errors import InvalidInput

SPLIT_EVERY = 4  # values added up by one task; each is of the size d x d

S = TypeVar("S")


class DaskStream(Stream):
    """Rows of a Dask array or data frame, one block or partition at a time.

    Parameters
    ----------
    X : array (n_rows, n_columns), or data frame of numbers
    y : array, or series with the same partitions; for a data frame also the name of its column (or columns)
    """

    distributed = True

    def __init__(self, X: Any, y: Any = None) -> None:
        self._dask = require_extra("dask", "dask", "Fitting Dask collections")
        if hasattr(X, "to_dask_array"):
            if isinstance(y, str) or (isinstance(y, list) and all(isinstance(name, str) for name in y)):
                X, y = X.drop(columns=[y] if isinstance(y, str) else y), X[y]
            X = X.to_dask_array(lengths=True)
        if X.ndim != 2:
            raise InvalidInput(f"A Dask collection of features must have 2 dimensions. Got shape {X.shape} instead.")
        if any(np.isnan(n) for n in X.chunks[0]):
            X = X.compute_chunk_sizes()
        self._X = X.rechunk({1: -1})
        self._y = None if y is None else _aligned(y, self._X)
        self._starts = np.concatenate([[0], np.cumsum(self._X.chunks[0])]).astype(np.int64)

    @property
    def n_columns(self) -> int:
        """Features per row."""
        return int(self._X.shape[1])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def blocks(self, start: int = 0) -> Iterator[Block]:
        """The blocks that begin at ``start`` or later, computed one at a time."""
        for first, X, y in self._parts():
            if first >= start:
                yield Block(first, *self._dask.compute(X, y))

    def take(self, indices: NDArray[np.intp]) -> Features:
        """Some rows, picked by the workers."""
        numbers = np.sort(indices)
        pick = self._dask.delayed(_pick, pure=True)
        edges = np.searchsorted(numbers, self._starts)
        blocks = zip(self._X.to_delayed().ravel(), self._starts[:-1], edges[:-1], edges[1:], strict=True)
        parts = [pick(X, numbers[low:high] - first) for X, first, low, high in blocks if high > low]
        return np.concatenate(self._dask.compute(*parts))

    def total(self, part: Callable[[Block], S], add: Callable[[S, S], S]) -> S:
        """The sum over all blocks, added up as a tree."""
        compute = self._dask.delayed(_part_of_block, pure=True)
        function = self._dask.delayed(part, pure=True, traverse=False)  # sent to every worker once
        level = [compute(function, *block) for block in self._parts()]
        if not level:
            raise InvalidInput("The collection has no rows; pass at least one.")
        join = self._dask.delayed(_added, pure=True)
        while len(level) > 1:
            level = [join(add, level[i : i + SPLIT_EVERY]) for i in range(0, len(level), SPLIT_EVERY)]
        return level[0].compute()  # type: ignore[no-any-return]

    def mapped(self, function: Callable[[Any], Any], n_columns: int, dtype: Any) -> Any:
        """A Dask array of the results of ``function`` for every block; nothing is computed yet."""
        return self._X.map_blocks(
            function, dtype=dtype, chunks=(self._X.chunks[0], (n_columns,)), meta=np.empty((0, 0), dtype=dtype)
        )

    def _parts(self) -> list[tuple[int, Any, Any]]:
        """First row, features and labels of every block that has rows, not computed."""
        X = self._X.to_delayed().ravel().tolist()
        y = [None] * len(X) if self._y is None else self._y.to_delayed().ravel().tolist()
        firsts, sizes = self._starts[:-1].tolist(), self._X.chunks[0]
        return [(first, rows, labels) for first, rows, labels, n in zip(firsts, X, y, sizes, strict=True) if n]


def _aligned(y: Any, X: Any) -> Any:
    """Labels as a Dask array with the same blocks of rows as the features."""
    da = require_extra("dask.array", "dask", "Fitting Dask collections")
    if hasattr(y, "to_dask_array"):
        y = y.to_dask_array(lengths=True)
    if not hasattr(y, "chunks"):
        y = da.from_array(label_rows(y))
    elif any(np.isnan(n) for n in y.chunks[0]):
        y = y.compute_chunk_sizes()
    if y.shape[0] != X.shape[0]:
        raise InvalidInput(
            f"Found input variables with inconsistent numbers of samples: X has {X.shape[0]} rows and y has "
            f"{y.shape[0]}; give one label per row."
        )
    return y.rechunk((X.chunks[0], -1)[: y.ndim])


def _part_of_block(part: Callable[[Block], S], first: int, X: Any, y: Any) -> S:
    return part(Block(first, np.asarray(X), None if y is None else np.asarray(y)))


def _pick(X: Any, numbers: NDArray[np.intp]) -> Features:
    return np.asarray(X)[numbers]


def _added(add: Callable[[S, S], S], values: Sequence[S]) -> S:
    return reduce(add, values)
