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
from functools import cached_property, reduce
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._arrays import Features, Labels, is_foreign, namespace
from shorthash._labels import label_rows
from shorthash._validation import require_extra
from shorthash.data.files import arrow_values, read_features, read_labels, table_errors
from shorthash.data.rows import Rows
from shorthash.data.tables import check_column, feature_columns
from shorthash.errors import DataFileError, InvalidInput

BLOCK_ROWS = 65_536  # 16 batches of rows: adding d x d sums once per block is cheap compared with computing them
CACHED_ROWS = 1024  # rows of a table transposed at once; 256 columns of float32 are 1 MiB
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
        """The sum over all blocks of ``part(block)``; both functions must be pure."""
        parts = map(part, self.blocks())
        first = next(parts, None)
        if first is None:
            raise InvalidInput("The stream has no rows; pass at least one.")
        return reduce(add, parts, first)


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
        self.X = X if is_foreign(X) else np.asanyarray(X)
        labels: Any = y
        self.y = labels if labels is None or is_foreign(labels) else label_rows(labels)
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
        for block in _joined_blocks(self._rows_from(start, self.n_columns), start):
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
        first = 0
        for batch in self._batches():
            X, y = _features_and_labels(batch)
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


class TableStream(Stream):
    """Rows of a Parquet or Arrow file, or of a folder of such files, read one row group at a time.

    Memory is bounded by the largest row group. Rows are numbered in the order of the files that pyarrow gives, which
    for a folder is the order of their names.

    Parameters
    ----------
    source : a .parquet, .arrow or .feather file, a folder of them, or a ``pyarrow.dataset.Dataset``
    label : the column that holds the labels; a list of columns for an indicator matrix
    features : the columns that hold the features, default: all others; or one column of lists, all of one length;
        names, or text as :func:`shorthash.data.tables.feature_columns` takes it
    y : labels as an array, instead of ``label``
    besides : columns that are neither features nor labels

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> file = tempfile.mkdtemp() + "/rows.parquet"
    >>> pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0], "kind": ["x", "y", "x"]}).to_parquet(file)
    >>> stream = TableStream(file, label="kind")
    >>> len(stream), stream.n_columns, [block.y.tolist() for block in stream.blocks()]
    (3, 2, [['x', 'y', 'x']])
    """

    def __init__(
        self,
        source: Any,
        *,
        label: str | Sequence[str] | None = None,
        features: list[str] | str | None = None,
        y: Labels | None = None,
        besides: Sequence[str] = (),
    ) -> None:
        if label is not None and y is not None:
            raise InvalidInput(f"Labels come from a column or from an array. Got column {label!r} and an array too.")
        self.source = source
        self.name = str(source) if isinstance(source, str | Path) else "The table"
        self.y = None if y is None else label_rows(y)
        self._label_names = [label] if isinstance(label, str) else list(label or [])
        self._one_label = isinstance(label, str)
        names = self._dataset.schema.names
        for name in [*self._label_names, *besides, *(features if isinstance(features, list) else [])]:
            check_column(name, names, self.name)
        chosen = features if isinstance(features, str) else None
        others = [*self._label_names, *besides]
        self._feature_names = (
            features if isinstance(features, list) else feature_columns(names, chosen, others, self.name)
        )
        self._check_features()
        self._width = self._count_features()
        if self.y is not None and len(self.y) != len(self):
            n = len(self.y)
            raise InvalidInput(f"{self.name} has {len(self)} rows, but there are {n} labels; give one per row.")

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("_dataset", "_pieces")}

    @property
    def n_columns(self) -> int:
        """Features per row."""
        return self._width

    def __len__(self) -> int:
        return sum(n for _, n in self._pieces)

    def blocks(self, start: int = 0) -> Iterator[Block]:
        """Row groups cut into blocks, small ones concatenated; row groups before ``start`` are not read."""
        return _joined_blocks(self._rows_from(start), start)

    def column(self, name: str) -> NDArray[Any]:
        """A whole column, for instance of ids."""
        check_column(name, self._dataset.schema.names, self.name)
        parts = [arrow_values(batch.column(0)) for _, batch in self._batches([name], lambda _low, _stop: True)]
        return np.concatenate(parts)

    def take(self, indices: NDArray[np.intp]) -> Features:
        """Some rows; reads the row groups that hold them."""
        numbers = np.sort(indices)

        def inside(first: int, stop: int) -> NDArray[np.intp]:
            return numbers[np.searchsorted(numbers, first) : np.searchsorted(numbers, stop)]

        parts = []
        for first, batch in self._batches(self._feature_names, lambda first, stop: len(inside(first, stop)) > 0):
            chosen = inside(first, first + len(batch)) - first
            if len(chosen):
                parts.append(self._matrix(batch.take(chosen)))
        return np.concatenate(parts)

    @cached_property
    def _dataset(self) -> Any:
        """The data set, opened on first use, so that a stream can be sent to another process."""
        arrow = require_extra("pyarrow", "tables", "Streaming tables")
        dataset = require_extra("pyarrow.dataset", "tables", "Streaming tables")
        if not isinstance(self.source, str | Path):
            return self.source
        path = Path(self.source)
        if not path.exists():
            raise DataFileError(f"There is no file or folder {path}; check the path.")
        files = path.rglob("*") if path.is_dir() else [path]
        endings = sorted({ending for file in files if (ending := file.suffix.lower()) in TABLE_FORMATS})
        if len(endings) != 1:
            kinds = " and ".join(endings) or "none of them"
            raise DataFileError(
                f"{path} must hold files of one kind that ends in {', '.join(TABLE_FORMATS)}. Got {kinds}."
            )
        form = TABLE_FORMATS[endings[0]]
        try:
            return dataset.dataset(path, format=form)
        except (arrow.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise DataFileError(f"{path} is not readable as {form} ({reason}); write it again.") from error

    @cached_property
    def _pieces(self) -> list[tuple[Any, int]]:
        """Row groups, or whole files of a format without them, and their numbers of rows."""
        pieces: list[tuple[Any, int]] = []
        with table_errors(self.name):
            for fragment in self._dataset.get_fragments():
                if hasattr(fragment, "split_by_row_group"):
                    fragment.ensure_complete_metadata()
                    groups = fragment.split_by_row_group()  # whose count_rows() counts the whole file's
                    pieces += [(group, group.row_groups[0].num_rows) for group in groups]
                else:
                    pieces.append((fragment, fragment.count_rows()))
        return [(piece, n) for piece, n in pieces if n]

    def _rows_from(self, start: int) -> Iterator[tuple[Features, Any]]:
        """Features and labels of the record batches, from a row on."""
        for first, batch in self._batches(self._feature_names + self._label_names, lambda _, stop: stop > start):
            low, stop = max(start, first), first + len(batch)
            if low < stop:
                rest = batch.slice(low - first)
                yield self._matrix(rest), self._labels(rest) if self.y is None else self.y[low:stop]

    def _batches(self, columns: list[str], needed: Callable[[int, int], bool]) -> Iterator[tuple[int, Any]]:
        """Record batches and the number of their first row, from the row groups whose rows are ``needed``."""
        first = 0
        for piece, n in self._pieces:
            if needed(first, first + n):
                low = first
                with table_errors(self.name):
                    batches = iter(piece.to_batches(columns=columns, batch_size=BLOCK_ROWS, use_threads=False))
                while True:
                    with table_errors(self.name):
                        batch = next(batches, None)
                    if batch is None:
                        break
                    yield low, batch
                    low += len(batch)
            first += n

    def _check_features(self) -> None:
        """Raise unless there are rows, and features that are numbers or one column of lists."""
        types = require_extra("pyarrow.types", "tables", "Streaming tables")
        for name in self._feature_names:
            kind = self._dataset.schema.field(name).type
            numbers = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
            if not numbers and not (len(self._feature_names) == 1 and _is_list(kind)):
                raise DataFileError(
                    f"{self.name}, column {name!r} holds {kind}, but features must be numbers, or one column of lists "
                    "of numbers; name the columns to use, and the one that holds labels."
                )
        if not len(self):
            raise DataFileError(f"{self.name} holds no rows; write at least one row to it.")
        if not self._feature_names:
            raise DataFileError(f"{self.name} has no columns except the labels; write one column per feature.")

    def _count_features(self) -> int:
        """The number of columns, or the length of the first list."""
        if not _is_list(self._dataset.schema.field(self._feature_names[0]).type):
            return len(self._feature_names)
        with table_errors(self.name):
            batches = self._pieces[0][0].to_batches(columns=self._feature_names, batch_size=1)
            return len(next(batch for batch in batches if len(batch)).column(0)[0].as_py())

    def _matrix(self, batch: Any) -> Features:
        """The features of a batch, (n, n_columns)."""
        columns = [batch.column(name) for name in self._feature_names]
        if len(columns) > 1 or not _is_list(columns[0].type):
            return _transposed([column.to_numpy(zero_copy_only=False) for column in columns])
        values = columns[0].flatten().to_numpy(zero_copy_only=False)
        if len(values) != len(batch) * self._width:
            raise DataFileError(
                f"{self.name}, column {self._feature_names[0]!r} must hold {self._width} numbers in every row, like "
                "the first; make all lists of one length."
            )
        return np.asarray(values.reshape(len(batch), self._width))

    def _labels(self, batch: Any) -> Any:
        """The labels of a batch: None, one per row, or a matrix."""
        if not self._label_names:
            return None
        columns = [batch.column(name) for name in self._label_names]
        columns = [c.dictionary_decode() if hasattr(c, "dictionary_decode") else c for c in columns]
        if self._one_label and _is_list(columns[0].type):
            return label_rows(columns[0].to_pylist())
        values = [arrow_values(column) for column in columns]
        return values[0] if self._one_label else np.stack(values, axis=1)


def known_stream(X: Any, y: Any = None) -> Stream | None:
    """``X`` as a stream if it is a stream or a Dask collection; else None."""
    if isinstance(X, Stream):
        return X
    if type(X).__module__.partition(".")[0] != "dask":
        return None
    from shorthash.data.dask_stream import DaskStream

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
    values = X if is_foreign(X) else np.asarray(X)
    if len(values.shape) != 2:
        raise InvalidInput(
            "Every batch of a stream must be rows of features, (n_rows, n_columns), or a pair of such rows and their "
            f"labels. Got shape {tuple(values.shape)} instead."
        )
    labels = y if y is None or is_foreign(y) else label_rows(y)
    if labels is not None and len(labels) != len(values):
        raise InvalidInput(f"A batch of {len(values)} rows needs as many labels. Got {len(labels)}; give one per row.")
    return values, labels


def _joined_blocks(batches: Iterable[tuple[Any, Any]], first: int) -> Iterator[Block]:
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


def _transposed(columns: list[NDArray[Any]]) -> Features:
    """Columns as a matrix of rows, written a few rows at a time, which fit in the cache."""
    n = len(columns[0])
    matrix = np.empty((n, len(columns)), dtype=np.result_type(*columns))
    for low in range(0, n, CACHED_ROWS):
        rows = slice(low, low + CACHED_ROWS)
        for j, column in enumerate(columns):
            matrix[rows, j] = column[rows]
    return matrix


def _is_list(kind: Any) -> bool:
    types = require_extra("pyarrow.types", "tables", "Streaming tables")
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
