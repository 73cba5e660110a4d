"""Data sets of Parquet or Arrow files as streams: a row group at a time, features in columns or in one list column."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Features, Labels
from shorthash._validation import require_extra
from shorthash.data.streams import BLOCK_ROWS, Block, Stream, gathered
from shorthash.errors import DataFileError, InvalidInput

__all__ = ["TableStream"]

CACHED_ROWS = 1024  # of 256 columns of float32: 1 MiB
FORMATS = {".parquet": "parquet", ".arrow": "ipc", ".feather": "feather"}


class TableStream(Stream):
    """Rows of a Parquet or Arrow file, or of a folder of such files.

    Memory is bounded by the largest row group. Row numbers are those of the files in the order that pyarrow gives
    them, which for a folder is the order of their names.

    Parameters
    ----------
    source : a .parquet, .arrow or .feather file, a folder of them, or a ``pyarrow.dataset.Dataset``
    label : the column that holds the labels; a list of columns for an indicator matrix
    features : the columns that hold the features; by default all others. One column of lists, all of one length, will
        do as well: a vector per row
    y : labels in an array of their own, instead of ``label``
    """

    def __init__(
        self,
        source: Any,
        *,
        label: str | list[str] | None = None,
        features: list[str] | None = None,
        y: Labels | None = None,
    ) -> None:
        if label is not None and y is not None:
            raise InvalidInput(f"Labels come from a column or from an array. Got column {label!r} and an array too.")
        self.source = source
        self._label_names = [label] if isinstance(label, str) else list(label or [])
        self._one_label = isinstance(label, str)
        self.y = y
        names = self._dataset.schema.names
        for name in [*self._label_names, *(features or [])]:
            if name not in names:
                raise DataFileError(f"{self._place} has no column {name!r}; it has {_listing(names)}.")
        self._feature_names = features or [name for name in names if name not in self._label_names]
        self._check_features()
        if y is not None and len(y) != len(self):
            raise InvalidInput(f"{self._place} has {len(self)} rows, but there are {len(y)} labels; give one per row.")

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("_dataset", "_pieces")}

    @property
    def n_columns(self) -> int:
        """Features per row."""
        return self._width

    def __len__(self) -> int:
        return sum(n for _, n in self._pieces)

    def blocks(self, start: int = 0) -> Iterator[Block]:
        """Row groups cut into blocks, small ones put together; those before ``start`` are not read."""
        seen = start
        for X, y in gathered(self._batches(start)):
            labels = self.y[seen : seen + len(X)] if self.y is not None else y
            yield Block(seen, X, labels)
            seen += len(X)

    def take(self, indices: NDArray[np.intp]) -> Features:
        """Some rows; reads the row groups that hold them."""
        wanted = np.sort(indices)
        parts = []
        low = 0
        for piece, n in self._pieces:
            here = wanted[(wanted >= low) & (wanted < low + n)] - low
            if len(here):
                parts += list(self._picked(piece, here))
            low += n
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
        form = FORMATS.get(path.suffix.lower(), "parquet")
        if path.is_dir():
            found = sorted({file.suffix.lower() for file in path.rglob("*") if file.suffix.lower() in FORMATS})
            if len(found) != 1:
                kinds = "none of them" if not found else " and ".join(found)
                raise DataFileError(
                    f"{path} must hold files of one kind that ends in {', '.join(FORMATS)}. Got {kinds}."
                )
            form = FORMATS[found[0]]
        try:
            return dataset.dataset(path, format=form)
        except (arrow.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise DataFileError(f"{path} is not readable as {form} ({reason}); write it anew.") from error

    @cached_property
    def _pieces(self) -> list[tuple[Any, int]]:
        """Row groups, or whole files where the format has none, and how many rows each has."""
        pieces: list[tuple[Any, int]] = []
        for fragment in self._dataset.get_fragments():
            if hasattr(fragment, "split_by_row_group"):
                fragment.ensure_complete_metadata()
                groups = fragment.split_by_row_group()
                pieces += [(group, group.row_groups[0].num_rows) for group in groups]  # count_rows() counts the file's
            else:
                pieces.append((fragment, fragment.count_rows()))
        return [(piece, n) for piece, n in pieces if n]

    @property
    def _place(self) -> str:
        return str(self.source) if isinstance(self.source, str | Path) else "The table"

    def _check_features(self) -> None:
        """Raise unless features are numbers, or one column of lists; and find how many there are."""
        types = require_extra("pyarrow.types", "tables", "Streaming tables")
        fields = [self._dataset.schema.field(name) for name in self._feature_names]
        for field in fields:
            numbers = types.is_integer(field.type) or types.is_floating(field.type) or types.is_boolean(field.type)
            if not numbers and not (len(fields) == 1 and _is_list(types, field.type)):
                raise DataFileError(
                    f"{self._place}, column {field.name!r} holds {field.type}, but features must be numbers, or one "
                    "column of lists of numbers; name the columns to use, and the one that holds labels."
                )
        if not len(self):
            raise DataFileError(f"{self._place} holds no rows; write at least one row to it.")
        if not fields:
            raise DataFileError(f"{self._place} has no columns beside the labels; write one column per feature.")
        self._width = len(fields) if not _is_list(types, fields[0].type) else self._list_width()

    def _list_width(self) -> int:
        batch = next(b for b in self._pieces[0][0].to_batches(columns=self._feature_names, batch_size=1) if len(b))
        return len(batch.column(0)[0].as_py())

    def _batches(self, start: int) -> Iterator[tuple[Features, Any]]:
        """Features and labels, batch by batch, from a row on."""
        columns = self._feature_names + self._label_names
        low = 0
        for piece, n in self._pieces:
            if low + n > start:
                seen = low
                for batch in _batches_of(piece, columns):
                    skip = min(max(start - seen, 0), len(batch))
                    seen += len(batch)
                    if skip < len(batch):
                        rest = batch.slice(skip)
                        yield self._matrix(rest), self._labels(rest)
            low += n

    def _picked(self, piece: Any, numbers: NDArray[np.intp]) -> Iterator[Features]:
        """Rows of a piece by number."""
        low = 0
        for batch in _batches_of(piece, self._feature_names):
            here = numbers[(numbers >= low) & (numbers < low + len(batch))] - low
            if len(here):
                yield self._matrix(batch.take(here))
            low += len(batch)

    def _matrix(self, batch: Any) -> Features:
        """The features of a batch, (n, n_columns)."""
        columns = [batch.column(name) for name in self._feature_names]
        if len(columns) == 1 and hasattr(columns[0], "flatten") and hasattr(columns[0].type, "value_type"):
            values = columns[0].flatten().to_numpy(zero_copy_only=False)
            if len(values) != len(batch) * self._width:
                raise DataFileError(
                    f"{self._place}, column {self._feature_names[0]!r} must hold {self._width} numbers in every row, "
                    "like the first; make all lists of one length."
                )
            return np.asarray(values.reshape(len(batch), self._width))
        return _side_by_side([column.to_numpy(zero_copy_only=False) for column in columns])

    def _labels(self, batch: Any) -> Any:
        """The labels of a batch: None, one per row, or a matrix."""
        if not self._label_names:
            return None
        columns = [batch.column(name) for name in self._label_names]
        columns = [c.dictionary_decode() if hasattr(c, "dictionary_decode") else c for c in columns]
        if self._one_label and hasattr(columns[0].type, "value_type"):
            return np.array(columns[0].to_pylist())
        values = [column.to_numpy(zero_copy_only=False) for column in columns]
        return values[0] if self._one_label else np.stack(values, axis=1)


def _batches_of(piece: Any, columns: list[str]) -> Any:
    """Record batches of a row group; without threads, which here cost more than they save."""
    return piece.to_batches(columns=columns, batch_size=BLOCK_ROWS, use_threads=False)


def _side_by_side(columns: list[NDArray[Any]]) -> Features:
    """Columns as a matrix of rows; a few rows at a time, so that what is written stays in the cache."""
    n = len(columns[0])
    matrix = np.empty((n, len(columns)), dtype=np.result_type(*columns))
    for low in range(0, n, CACHED_ROWS):
        rows = slice(low, low + CACHED_ROWS)
        for j, column in enumerate(columns):
            matrix[rows, j] = column[rows]
    return matrix


def _is_list(types: Any, kind: Any) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _listing(names: list[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
