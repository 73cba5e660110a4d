"""Labelled rows too many to hold: counted, sampled by number, and read in blocks, always the same ones.

A stream is anything that offers this, wherever its rows are: an array or memory map, batches that a function makes,
a data set of Parquet or Arrow files (tables.py), or a collection of another engine. A learner of sums fits from a
stream as from an array, row numbers drawn alike, so the outcome is that of ``fit`` on all rows at once.
"""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._arrays import is_foreign, like, namespace
from shorthash._types import Features, Labels
from shorthash.data.files import read_features, read_labels
from shorthash.data.rows import Rows
from shorthash.errors import InvalidInput

__all__ = ["BLOCK_ROWS", "ArrayStream", "BatchStream", "Block", "Stream", "as_stream", "gathered", "known_stream"]

BLOCK_ROWS = 65_536  # 16 batches of rows; adding d x d sums once per block costs nothing beside making them

ENGINES = {"dask": "shorthash.scale.dask_rows"}
"""Who knows the collections of another engine, by the package they come from: a module with ``stream_of(X, y)``."""

TABLES = (".parquet", ".arrow", ".feather")

S = TypeVar("S")


class Block(NamedTuple):
    """Some rows of a stream."""

    first: int  # number of the first row
    X: Any  # (b, n_columns)
    y: Any  # labels, or None


class Stream(ABC):
    """Rows that can be counted, picked by number, and read in blocks."""

    @property
    @abstractmethod
    def n_columns(self) -> int:
        """Features per row."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows; a stream that does not know counts them."""

    @abstractmethod
    def blocks(self, start: int = 0) -> Iterator[Block]:
        """The rows from number ``start`` on, in order; blocks begin and end at the same rows every time."""

    def take(self, indices: NDArray[np.intp]) -> Features:
        """Some rows as one array, in ascending order of their number; reads everything before the last of them."""
        wanted = np.sort(indices)
        parts: list[Any] = []
        for block in self.blocks():
            low, high = np.searchsorted(wanted, [block.first, block.first + len(block.X)])
            if high > low:
                parts.append(_picked(block, wanted[low:high]))
            if high == len(wanted):
                break
        return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(parts)  # type: ignore[no-any-return]

    def mapped(self, function: Callable[[Any], Any], n_columns: int, dtype: Any) -> Any:
        """What ``function`` makes of every block, put together; a collection stays one, with its rows where they are.

        Parameters
        ----------
        function : pure; rows in, as many rows out
        n_columns, dtype : of what comes out
        """
        parts = [function(block.X) for block in self.blocks()]
        return namespace(parts[0]).concat(parts) if parts else np.empty((0, n_columns), dtype=dtype)

    def total(self, part: Callable[[Block], S], add: Callable[[S, S], S]) -> S:
        """The sum over all blocks of what ``part`` makes of each; both must be pure."""
        found: S | None = None
        for block in self.blocks():
            found = part(block) if found is None else add(found, part(block))
        if found is None:
            raise InvalidInput("The stream has no rows; give at least one.")
        return found


class ArrayStream(Stream):
    """An array, a memory map or a device array in blocks.

    Parameters
    ----------
    X : (n_rows, n_columns) features
    y : labels, one per row; None where they are not needed
    """

    def __init__(self, X: Any, y: ArrayLike | None = None) -> None:
        self.X = X if is_foreign(X) else np.asanyarray(X)
        labels: Any = y
        self.y = labels if labels is None or is_foreign(labels) else np.asanyarray(labels)
        if len(self.X.shape) != 2:
            raise InvalidInput(f"A stream needs rows of features, (n_rows, n_columns). Got shape {self.X.shape}.")
        if self.y is not None and len(self.y) != len(self.X):
            raise InvalidInput(
                f"A stream of {len(self.X)} rows needs as many labels. Got {len(self.y)}; give one label per row."
            )

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
    """Batches (X, y), or X alone, from a function that starts them anew at every call, or from any iterable.

    What can be read only once (a generator) fits a hasher whose front end is fitted already; otherwise anchors must
    be drawn first, which takes a reading of its own, and another one to count the rows unless ``n_rows`` is given.

    Parameters
    ----------
    source : function without arguments that returns an iterator of batches, or an iterable of them
    n_rows : number of rows, if known

    Examples
    --------
    >>> stream = BatchStream(lambda: ((np.ones((3, 2)), np.zeros(3)) for _ in range(4)))
    >>> len(stream), stream.n_columns
    (12, 2)
    """

    def __init__(self, source: Callable[[], Iterable[Any]] | Iterable[Any], n_rows: int | None = None) -> None:
        self._source = source
        self._n_rows = n_rows
        self._n_columns: int | None = None
        self._once: Iterator[Any] | None = None if callable(source) else iter(source)
        if self._once is not None and self._once is not source:
            self._once = None  # it starts anew whenever it is iterated
        self._spent = False

    @property
    def n_columns(self) -> int:
        """Features per row, as the first batch has them."""
        if self._n_columns is None:
            batches = self._fresh()
            first = next(batches, None)
            if first is None:
                raise InvalidInput("The stream has no batches; give at least one.")
            self._n_columns = int(_pair(first)[0].shape[1])
            if self._once is not None:
                self._once, self._spent = chain([first], batches), False
        return self._n_columns

    def __len__(self) -> int:
        if self._n_rows is None:
            self._check_again("counted")
            self._n_rows = sum(len(_pair(batch)[0]) for batch in self._fresh())
        return self._n_rows

    @property
    def length_known(self) -> bool:
        """Whether the number of rows is known without reading them."""
        return self._n_rows is not None

    def blocks(self, start: int = 0) -> Iterator[Block]:
        """Batches, small ones put together."""
        seen = start
        for X, y in gathered(_from_row(map(_pair, self._fresh()), start)):
            if X.shape[1] != self.n_columns:
                raise InvalidInput(
                    f"Every batch of a stream must have {self.n_columns} features, like the first. Got {X.shape[1]} "
                    f"in the batch of row {seen}; make them all alike."
                )
            yield Block(seen, X, y)
            seen += len(X)
        if self._n_rows is not None and seen != self._n_rows:
            raise InvalidInput(
                f"The stream was said to have {self._n_rows} rows, but {seen} came; give the right n_rows, or none, "
                "and see to it that every reading gives the same rows."
            )
        self._n_rows = seen

    def take(self, indices: NDArray[np.intp]) -> Features:
        """Some rows, found by reading the batches."""
        self._check_again("sampled")
        return super().take(indices)

    def _fresh(self) -> Iterator[Any]:
        if self._once is not None:
            if self._spent:
                self._check_again("read a second time")
            self._spent = True
            return self._once
        return iter(self._source() if callable(self._source) else self._source)

    def _check_again(self, verb: str) -> None:
        if self._once is not None:
            raise InvalidInput(
                f"Batches that can be read only once cannot be {verb}, as drawing anchors needs; give a function that "
                "returns a new iterator, or fit the front end on a sample first (hasher[0].fit(sample)) and keep it."
            )


def known_stream(X: Any, y: Any = None) -> Stream | None:
    """A stream for what only streams can be made of: a stream itself, a collection of another engine; else None."""
    if isinstance(X, Stream):
        return X
    engine = type(X).__module__.partition(".")[0]
    if engine not in ENGINES:
        return None
    return importlib.import_module(ENGINES[engine]).stream_of(X, y)  # type: ignore[no-any-return]


def as_stream(X: Any, y: Any = None, *, label: str | list[str] | None = None) -> Stream:
    """Whatever holds rows, as a stream.

    Parameters
    ----------
    X : array, memory map, file or folder, iterable of batches or function that returns one, collection, or stream
    y : labels: an array, or a file of them, for rows that are an array or a file
    label : column or columns of a table that hold the labels
    """
    known = known_stream(X, y)
    if known is not None:
        return known
    if isinstance(X, str | os.PathLike):
        return _of_path(Path(X), y, label)
    if label is not None:
        raise InvalidInput(f"Only a table has a column {label!r} of labels; give the labels of an array as y.")
    if callable(X) or (isinstance(X, Iterator | Iterable) and not hasattr(X, "shape") and not hasattr(X, "__array__")):
        if y is None and not _is_rows(X):
            return BatchStream(X)
        if callable(X) or isinstance(X, Iterator):
            raise InvalidInput("Batches bring their labels with them, as pairs (X, y); leave y out.")
    return ArrayStream(X if hasattr(X, "shape") else np.asarray(X), y)


def gathered(batches: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Batches put together until there are BLOCK_ROWS rows or more; large ones pass as they are."""
    held: list[tuple[Any, Any]] = []
    n = 0
    for batch in batches:
        held.append(batch)
        n += len(batch[0])
        if n >= BLOCK_ROWS:
            yield _joined(held)
            held, n = [], 0
    if held:
        yield _joined(held)


def _of_path(path: Path, y: Any, label: str | list[str] | None) -> Stream:
    """A stream of a file or folder."""
    labels: Labels | None = read_labels(Path(y)) if isinstance(y, str | os.PathLike) else y
    if path.is_dir() or path.suffix.lower() in TABLES:
        from shorthash.data.tables import TableStream

        return TableStream(path, label=label, y=labels)
    if label is not None:
        raise InvalidInput(
            f"{path} is no table, so it has no column {label!r}; give the labels as a file of their own."
        )
    return ArrayStream(read_features(path), labels)


def _is_rows(X: Any) -> bool:
    """Whether a list is one of rows rather than of batches: its first entry is no pair and holds plain numbers."""
    if not isinstance(X, list) or not X:
        return False
    return not isinstance(X[0], tuple) and np.ndim(X[0]) == 1


def _pair(batch: Any) -> tuple[Any, Any]:
    """Features and labels of a batch, as arrays."""
    X, y = batch if isinstance(batch, tuple) and len(batch) == 2 else (batch, None)
    values = X if is_foreign(X) else np.asarray(X)
    if len(values.shape) != 2:
        raise InvalidInput(
            "Every batch of a stream must be rows of features, (n_rows, n_columns), or a pair of such rows and their "
            f"labels. Got shape {tuple(values.shape)} instead."
        )
    if y is not None and len(y) != len(values):
        raise InvalidInput(f"A batch of {len(values)} rows needs as many labels. Got {len(y)}; give one per row.")
    return values, y


def _joined(batches: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    if len(batches) == 1:
        return batches[0]
    X, y = zip(*batches, strict=True)
    labels = (
        None if y[0] is None else namespace(y[0]).concat([part if is_foreign(part) else np.asarray(part) for part in y])
    )
    return namespace(X[0]).concat(X), labels


def _from_row(batches: Iterable[tuple[Any, Any]], start: int) -> Iterator[tuple[Any, Any]]:
    """Batches from a row on."""
    seen = 0
    for X, y in batches:
        skip = min(max(start - seen, 0), len(X))
        seen += len(X)
        if skip < len(X):
            yield (X, y) if not skip else (X[skip:], None if y is None else y[skip:])


def _picked(block: Block, numbers: NDArray[np.intp]) -> Any:
    """Rows of a block by their number in the stream, checked like any other."""
    rows = Rows(block.X, "a stream", first=block.first)
    return rows.take(np.asarray(like(numbers - block.first, numbers)))
