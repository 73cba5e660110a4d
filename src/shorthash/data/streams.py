"""Streams: rows that need not fit in memory. They are counted, picked by number, and read in blocks.

A :class:`Stream` has the same interface for all sources of rows; :func:`as_stream` creates one:

======================  ============================================================================================
``n_columns``           features per row
``len(stream)``         number of rows
``blocks(start)``       the rows from number ``start`` on, in order; every reading gives the same blocks
``take(indices)``       some rows by number
``total(part, add)``    the sum over all blocks of ``part(block)``
``mapped(function)``    the results of ``function`` for the rows of every block, concatenated
======================  ============================================================================================

Row numbers are drawn as for an array with as many rows, so a learner of sums learns the same model from a stream as
from an array. A new kind of stream defines the first three; the others have default implementations.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._arrays import Features, Labels, is_foreign, namespace
from shorthash._labels import label_rows
from shorthash._validation import require_extra
from shorthash.data.files import read_features, read_labels
from shorthash.data.rows import Rows
from shorthash.errors import InvalidInput, NoLabels

BLOCK_ROWS = 65_536  # 16 batches of rows: adding d x d sums once per block is cheap compared with computing them
SPLIT_EVERY = 4  # values of a Dask collection added up by one task; each is of the size d x d
TABLE_FORMATS = {".parquet": "parquet", ".arrow": "ipc", ".feather": "feather"}

S = TypeVar("S")


class Block(NamedTuple):
    """Consecutive rows of a stream."""

    first: int  # number of the first row
    X: Any  # (n, n_columns)
    y: Any  # labels, or None


class Stream(ABC):
    """Rows that can be counted, picked by number, and read in blocks; a subclass defines these three.

    Examples
    --------
    >>> class Ones(Stream):
    ...     n_columns = 2
    ...
    ...     def __len__(self):
    ...         return 6
    ...
    ...     def blocks(self, start=0):
    ...         for first in range(start, 6, 3):
    ...             yield Block(first, np.ones((3, 2)), None)
    >>> Ones().total(lambda block: block.X.sum(), lambda a, b: a + b)
    np.float64(12.0)
    >>> Ones().take(np.array([5, 0])).shape
    (2, 2)
    """

    distributed = False  # whether ``total`` and ``mapped`` run on other machines

    @property
    @abstractmethod
    def n_columns(self) -> int:
        """Features per row."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows; if it is unknown, the rows are read and counted."""

    @abstractmethod
    def blocks(self, start: int = 0) -> Iterator[Block]:
        """The rows from number ``start`` on, in order; blocks begin and end at the same rows at every reading."""

    @property
    def known_length(self) -> int | None:
        """Number of rows; None if they would have to be read and counted."""
        return len(self)

    def take(self, indices: NDArray[np.intp]) -> Features:
        """Some rows as one array, in ascending order of their number; reads all blocks up to the last of them."""
        numbers = np.sort(indices)
        parts: list[Any] = []
        for block in self.blocks():
            low, high = np.searchsorted(numbers, [block.first, block.first + len(block.X)])
            if high > low:
                parts.append(Rows(block.X, "a stream", first=block.first).take(numbers[low:high] - block.first))
            if high == len(numbers):
                break
        return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(parts)  # type: ignore[no-any-return]

    def mapped(self, function: Callable[[Any], Any], n_columns: int, dtype: Any) -> Any:
        """The results of ``function`` for every block, concatenated; a Dask collection gives a Dask array.

        Parameters
        ----------
        function : pure; takes the rows of a block and returns as many rows
        n_columns, dtype : of the result
        """
        parts = [function(block.X) for block in self.blocks()]
        return namespace(parts[0]).concat(parts) if parts else np.empty((0, n_columns), dtype=dtype)

    def total(self, part: Callable[[Block], S], add: Callable[[S, S], S]) -> S:
        """The sum of ``part(block)`` over all blocks, those without any label left out; both functions must be pure."""
        parts = (_part(part, block) for block in self.blocks())
        first = next(parts, None)
        if first is None:
            raise InvalidInput("The stream has no rows; pass at least one.")
        return _labelled(reduce(lambda one, two: _added(add, [one, two]), parts, first))


class ArrayStream(Stream):
    """An array, a memory map or a device array in blocks.

    Parameters
    ----------
    X : (n_rows, n_columns) features
    y : labels, one per row; None if they are not needed

    Examples
    --------
    >>> stream = ArrayStream(np.ones((100, 3)))
    >>> len(stream), stream.n_columns, [block.first for block in stream.blocks()]
    (100, 3, [0])
    """

    def __init__(self, X: Any, y: ArrayLike | None = None) -> None:
        self.X, self.y = _features_and_labels((X, y))

    @property
    def n_columns(self) -> int:
        """Features per row."""
        return int(self.X.shape[1])

    def __len__(self) -> int:
        return len(self.X)

    def blocks(self, start: int = 0) -> Iterator[Block]:
        """Slices of the array; nothing is copied."""
        for low in range(start, len(self.X), BLOCK_ROWS):
            part = slice(low, min(low + BLOCK_ROWS, len(self.X)))
            yield Block(low, self.X[part], None if self.y is None else self.y[part])

    def take(self, indices: NDArray[np.intp]) -> Features:
        """Some rows, read directly."""
        return Rows(self.X, "a stream").take(indices)


class BatchStream(Stream):
    """Batches (X, y), or X alone, from an iterable, or from a function that returns a new iterator at every call.

    An iterator can be read only once. That is enough for a hasher whose kernel is fitted; otherwise drawing the anchors
    takes a separate reading, and counting the rows another, unless ``n_rows`` is given.

    Parameters
    ----------
    source : function without arguments that returns an iterator of batches, or an iterable of batches
    n_rows : number of rows, if known

    Examples
    --------
    >>> stream = BatchStream(lambda: ((np.ones((3, 2)), np.zeros(3)) for _ in range(4)))
    >>> len(stream), stream.n_columns
    (12, 2)
    """

    def __init__(self, source: Callable[[], Iterable[Any]] | Iterable[Any], n_rows: int | None = None) -> None:
        self._source = source
        self._once = not callable(source) and iter(source) is source
        self._spent = False
        self._n_rows = n_rows
        self._n_columns: int | None = None

    @property
    def n_columns(self) -> int:
        """Features per row, as in the first batch."""
        if self._n_columns is None:
            batches = self._batches()
            first = next(batches, None)
            if first is None:
                raise InvalidInput("The stream has no batches; pass at least one.")
            self._n_columns = int(_features_and_labels(first)[0].shape[1])
            if self._once:
                self._source, self._spent = chain([first], batches), False
        return self._n_columns

    def __len__(self) -> int:
        if self._n_rows is None:
            self._check_repeatable("counted")
            self._n_rows = sum(len(_features_and_labels(batch)[0]) for batch in self._batches())
        return self._n_rows

    @property
    def known_length(self) -> int | None:
        """Number of rows; None if it was neither given nor counted."""
        return self._n_rows

    def blocks(self, start: int = 0) -> Iterator[Block]:
        """Batches, small ones concatenated."""
        seen = start
        for block in joined_blocks(self._rows_from(start, self.n_columns), start):
            yield block
            seen = block.first + len(block.X)
        if self._n_rows is not None and seen != self._n_rows:
            raise InvalidInput(
                f"The stream should have {self._n_rows} rows, but {seen} were read; pass the right n_rows, or none, "
                "and make sure that every reading gives the same rows."
            )
        self._n_rows = seen

    def take(self, indices: NDArray[np.intp]) -> Features:
        """Some rows, found by reading the batches."""
        self._check_repeatable("sampled")
        return super().take(indices)

    def _rows_from(self, start: int, n_columns: int) -> Iterator[tuple[Any, Any]]:
        """Features and labels of the batches, from a row on."""
        first, labelled = 0, None
        for batch in self._batches():
            X, y = _features_and_labels(batch)
            if labelled not in (None, y is not None):
                one, two = ("labels", "none") if labelled else ("no labels", "some")
                raise InvalidInput(
                    f"Either all batches of a stream have labels, or none has. Got {one} before row {first} and {two} "
                    "in the batch of that row; give rows without a label the label None, with drop_unlabelled=True."
                )
            labelled = y is not None
            if X.shape[1] != n_columns:
                raise InvalidInput(
                    f"Every batch of a stream must have {n_columns} features, like the first. Got {X.shape[1]} in the "
                    f"batch of row {first}; use the same features in all batches."
                )
            skip = max(start - first, 0)
            first += len(X)
            if skip < len(X):
                yield X[skip:], None if y is None else y[skip:]

    def _batches(self) -> Iterator[Any]:
        if self._once:
            if self._spent:
                self._check_repeatable("read a second time")
            self._spent = True
        return iter(self._source() if callable(self._source) else self._source)

    def _check_repeatable(self, verb: str) -> None:
        if self._once:
            raise InvalidInput(
                f"Batches that can be read only once cannot be {verb}, as drawing anchors needs; give a function that "
                "returns a new iterator, or fit the kernel on a sample first (hasher[0].fit(sample)) and keep it."
            )


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
        return _labelled(level[0].compute())  # type: ignore[no-any-return]

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


def known_stream(X: Any, y: Any = None) -> Stream | None:
    """``X`` as a stream if it is a stream or a Dask collection; else None."""
    if isinstance(X, Stream):
        return X
    if type(X).__module__.partition(".")[0] != "dask":
        return None
    return DaskStream(X, y)


def as_stream(
    X: Any,
    y: Any = None,
    *,
    label: str | Sequence[str] | None = None,
    features: str | None = None,
    besides: Sequence[str] = (),
) -> Stream:
    """A stream of rows from any supported source.

    Parameters
    ----------
    X : array, memory map, file or folder, iterable of batches or function that returns one, Dask collection, or stream
    y : labels of an array or file: an array, or a file of them
    label : column or columns of a table that hold the labels
    features : columns of a table that hold the features: names, ranges and patterns; None: all others
    besides : columns of a table that are neither

    Examples
    --------
    >>> as_stream([[1.0, 2.0], [3.0, 4.0]]).n_columns
    2
    """
    known = known_stream(X, y)
    if known is not None:
        return known
    if isinstance(X, str | os.PathLike):
        return _file_stream(Path(X), y, label, features, besides)
    if label is not None or features is not None or besides:
        raise InvalidInput("Only a table has columns with names; give the labels of an array as y.")
    if hasattr(X, "shape") or hasattr(X, "__array__") or _is_list_of_rows(X):
        return ArrayStream(X if hasattr(X, "shape") else np.asarray(X), y)
    if y is not None:
        raise InvalidInput("Batches contain their labels, as pairs (X, y); do not pass y.")
    return BatchStream(X)


def _file_stream(
    path: Path, y: Any, label: str | Sequence[str] | None, features: str | None, besides: Sequence[str]
) -> Stream:
    """A stream of a file or folder."""
    labels: Labels | None = read_labels(Path(y)) if isinstance(y, str | os.PathLike) else y
    if path.is_dir() or path.suffix.lower() in TABLE_FORMATS:
        from shorthash.data.tables import TableStream

        return TableStream(path, label=label, features=features, y=labels, besides=besides)
    if label is not None or features is not None or besides:
        named = label or features or ", ".join(besides)
        raise InvalidInput(
            f"{path} is not a table of {' or '.join(TABLE_FORMATS)}, so it has no column {named!r} to read in blocks; "
            "give labels as a file."
        )
    return ArrayStream(read_features(path), labels)


def _is_list_of_rows(X: Any) -> bool:
    """Whether ``X`` is a list of rows rather than of batches: the cells of its first entry are numbers."""
    return isinstance(X, list) and bool(X) and np.iterable(X[0]) and all(np.ndim(cell) == 0 for cell in X[0])


def _features_and_labels(batch: Any) -> tuple[Any, Any]:
    """Features and labels of a batch; labels are None where a batch is features alone."""
    X, y = batch if isinstance(batch, tuple) and len(batch) == 2 else (batch, None)
    values = X if is_foreign(X) else np.asanyarray(X)
    if len(values.shape) != 2:
        raise InvalidInput(f"A stream needs rows of shape (n_rows, n_columns). Got {tuple(values.shape)} instead.")
    labels = y if y is None or is_foreign(y) else label_rows(y)
    if labels is not None and len(labels) != len(values):
        raise InvalidInput(f"A stream of {len(values)} rows needs one label per row. Got {len(labels)} labels.")
    return values, labels


def joined_blocks(batches: Iterable[tuple[Any, Any]], first: int) -> Iterator[Block]:
    """Blocks of BLOCK_ROWS rows or more: small batches are concatenated, large ones are not cut."""
    held: list[tuple[Any, Any]] = []
    n = 0
    for batch in batches:
        held.append(batch)
        n += len(batch[0])
        if n >= BLOCK_ROWS:
            yield Block(first, *_concatenated(held))
            held, n, first = [], 0, first + n
    if held:
        yield Block(first, *_concatenated(held))


def _concatenated(batches: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Features and labels of several batches as one."""
    if len(batches) == 1:
        return batches[0]
    X, y = zip(*batches, strict=True)
    return namespace(X[0]).concat(X), None if y[0] is None else namespace(y[0]).concat(y)


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


def _part(part: Callable[[Block], S], block: Block) -> S | NoLabels:
    """What is computed of a block; the error where it has no labels."""
    try:
        return part(block)
    except NoLabels as error:
        return error


def _part_of_block(part: Callable[[Block], S], first: int, X: Any, y: Any) -> S | NoLabels:
    return _part(part, Block(first, np.asarray(X), None if y is None else np.asarray(y)))


def _pick(X: Any, numbers: NDArray[np.intp]) -> Features:
    return np.asarray(X)[numbers]


def _added(add: Callable[[S, S], S], values: Sequence[S | NoLabels]) -> S | NoLabels:
    labelled = [value for value in values if not isinstance(value, NoLabels)]
    return reduce(add, labelled) if labelled else values[0]


def _labelled(found: S | NoLabels) -> S:
    """A sum over blocks; raises where none has labels."""
    if isinstance(found, NoLabels):
        raise found
    return found
