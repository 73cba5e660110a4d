"""Tables with columns of ids, labels and features: .csv and .parquet files read whole, Parquet and Arrow in blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Features, Labels
from shorthash._labels import label_rows
from shorthash._validation import require_extra
from shorthash.data.files import (
    arrow_values,
    as_matrix,
    csv_lines,
    csv_numbers,
    existing_file,
    parse_column,
    read_parquet,
    table_errors,
)
from shorthash.data.streams import BLOCK_ROWS, TABLE_FORMATS, Block, Stream, joined_blocks
from shorthash.errors import DataFileError, InvalidInput

TABLE_ENDINGS = (".csv", ".parquet")
LISTED = 8  # columns named in an error
CACHED_ROWS = 1024  # rows of a table transposed at once; 256 columns of float32 are 1 MiB


@dataclass(frozen=True)
class Columns:
    """What the columns of a table are.

    Attributes
    ----------
    id : the column of ids
    label : the column of labels, or several columns of 0/1, one per class
    features : columns of features, as :func:`feature_columns` takes them; None: all but ids and labels
    separator : text between the labels of a row that has several; None: a cell is one label
    """

    id: str | None = None
    label: str | Sequence[str] | None = None
    features: str | None = None
    separator: str | None = None

    @property
    def labels(self) -> list[str]:
        """The columns of labels."""
        return [self.label] if isinstance(self.label, str) else list(self.label or [])

    @property
    def besides(self) -> list[str]:
        """The columns that are no features."""
        return [*([] if self.id is None else [self.id]), *self.labels]

    def __bool__(self) -> bool:
        return bool(self.besides) or self.features is not None


@dataclass(frozen=True)
class TableRows:
    """Rows of a table.

    Attributes
    ----------
    X : (n, d) features
    names : d names of columns, or the one of a column of vectors
    ids : (n,) integers or text; None without a column of ids
    labels : (n,) labels, or an indicator matrix; None without a column of labels
    """

    X: NDArray[Any]
    names: list[str]
    ids: Labels | None = None
    labels: Labels | None = None


def read_table(path: str | Path, columns: Columns | None = None, *, lenient: bool = False) -> TableRows:
    r"""Ids, labels and features of a .csv file with a header, or of a .parquet file.

    Parameters
    ----------
    path : the file
    columns : what its columns are
    lenient : a column of ids or labels may be missing

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "items.csv"
    >>> _ = file.write_text("sku,kind,x1,x2\na7,cat,0.5,1\nb2,,2,0.25\n")
    >>> rows = read_table(file, Columns(id="sku", label="kind"))
    >>> rows.X.tolist(), rows.ids.tolist(), rows.labels.tolist()
    ([[0.5, 1.0], [2.0, 0.25]], ['a7', 'b2'], ['cat', None])
    """
    columns = columns or Columns()
    file = existing_file(path)
    if file.suffix.lower() not in TABLE_ENDINGS:
        raise DataFileError(
            f"{file} has no columns with names; only {' and '.join(TABLE_ENDINGS)} files have, so give ids and labels "
            "of other files as separate files."
        )
    table = _CsvTable(file) if file.suffix.lower() == ".csv" else _ParquetTable(file)
    if lenient:
        columns = _present(columns, table.names)
    for name in columns.besides:
        check_column(name, table.names, file)
    names = feature_columns(table.names, columns.features, columns.besides, str(file))
    return TableRows(
        X=table.features(names),
        names=names,
        ids=None if columns.id is None else _checked_ids(table.column(columns.id), columns.id, file),
        labels=_labels(table, columns),
    )


def read_pairs(path: str | Path, ids: Sequence[Any] | NDArray[Any] | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
    r"""Pairs of rows and their weights, of a .csv file of two columns, or three with a weight; a header is skipped.

    Parameters
    ----------
    path : the file
    ids : ids of all rows, if the file names rows by them, compared as text; else it has row numbers from 0

    Returns
    -------
    pairs, weights : (n, 2) row numbers, (n,) weights, 1 where there is none

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "clicks.csv"
    >>> _ = file.write_text("query,clicked,clicks\na7,b2,3\nb2,c1,1\n")
    >>> pairs, weights = read_pairs(file, ids=["a7", "b2", "c1"])
    >>> pairs.tolist(), weights.tolist()
    ([[0, 1], [1, 2]], [3.0, 1.0])
    """
    file = existing_file(path)
    if file.suffix.lower() != ".csv":
        raise DataFileError(f"Pairs are read from a .csv file with two columns, and a third of weights. Got {file}.")
    rows = None if ids is None else {str(name): number for number, name in enumerate(ids)}
    pairs: list[list[int]] = []
    weights: list[float] = []
    for place, (line, cells) in enumerate(csv_lines(file)):
        try:
            if len(cells) not in (2, 3):
                raise ValueError
            numbers = [int(cell) if rows is None else rows[cell] for cell in cells[:2]]
            weight = float(cells[2]) if len(cells) == 3 else 1.0
        except (ValueError, KeyError):
            if place == 0:
                continue  # a header
            what = "row numbers" if rows is None else "ids of rows"
            raise DataFileError(
                f"{file}, line {line} must be two {what} and, if wanted, a weight. Got {','.join(cells)!r}; "
                + ("name rows by their ids with --id, or " if rows is None else "")
                + "correct or drop the line."
            ) from None
        pairs.append(numbers)
        weights.append(weight)
    if not pairs:
        raise DataFileError(f"{file} has no pairs; write one per line: two rows, separated by a comma.")
    return np.array(pairs), np.array(weights)


def feature_columns(names: Sequence[str], chosen: str | None, besides: Sequence[str], table: str) -> list[str]:
    """The columns that hold features, in the order of the table.

    Parameters
    ----------
    names : all columns of the table
    chosen : names, ranges ``first:last`` and patterns like ``x*``, separated by commas; None: all but ``besides``
    besides : columns of ids and labels
    table : its name, for error messages

    Examples
    --------
    >>> feature_columns(["id", "x1", "x2", "x3", "y"], "x1:x2,y", ["id"], "a table")
    ['x1', 'x2', 'y']
    >>> feature_columns(["id", "x1", "x2", "x3", "y"], "x*", ["id"], "a table")
    ['x1', 'x2', 'x3']
    """
    if chosen is None:
        found = [name for name in names if name not in besides]
    else:
        wanted: set[str] = set()
        for part in (text.strip() for text in chosen.split(",")):
            wanted.update(_matching(part, names, table))
        found = [name for name in names if name in wanted]
    if not found:
        raise DataFileError(f"{table} has no columns of features besides {', '.join(besides)}; write one per feature.")
    return found


# tables in blocks -----------------------------------------------------------------------------------------------------


class TableStream(Stream):
    """Rows of a Parquet or Arrow file, or of a folder of such files, read one row group at a time.

    Memory is bounded by the largest row group. Rows are numbered in the order of the files that pyarrow gives, which
    for a folder is the order of their names.

    Parameters
    ----------
    source : a .parquet, .arrow or .feather file, a folder of them, or a ``pyarrow.dataset.Dataset``
    label : the column that holds the labels; a list of columns for an indicator matrix
    features : the columns that hold the features, default: all others; or one column of lists, all of one length;
        names, or text as :func:`feature_columns` takes it
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
        return joined_blocks(self._rows_from(start), start)

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
            raise DataFileError(f"{path} must hold files of one kind, {' or '.join(TABLE_FORMATS)}. Got {kinds}.")
        with table_errors(path):
            return dataset.dataset(path, format=TABLE_FORMATS[endings[0]])

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


# tables read whole ----------------------------------------------------------------------------------------------------


class _CsvTable:
    """A .csv file with a header."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.line, self.names = next(csv_lines(file), (0, []))
        repeated = sorted({name for name in self.names if self.names.count(name) > 1})
        if repeated:
            raise DataFileError(f"{file} has several columns {repeated[0]!r}; give every column a different name.")
        self._rows: list[list[str]] | None = None

    def column(self, name: str) -> NDArray[Any]:
        """A column of numbers or text; an empty cell is None."""
        return parse_column(self.cells(name))

    def cells(self, name: str) -> list[str]:
        """The text of a column."""
        place = self.names.index(name)
        if self._rows is None:
            self._rows = [cells for _, cells in csv_lines(self.file, self.line)]
        return [cells[place] if place < len(cells) else "" for cells in self._rows]

    def features(self, names: list[str]) -> NDArray[Any]:
        """Columns of numbers, or one of vectors, as a matrix."""
        if len(names) == 1:
            cells = self.cells(names[0])
            if any(_is_vector(cell) for cell in cells[:1]):
                return _vectors([_parsed_vector(cell) for cell in cells], names[0], self.file)
        return csv_numbers(self.file, self.line, [self.names.index(name) for name in names])


class _ParquetTable:
    """A .parquet file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.columns = read_parquet(file)
        self.names = list(self.columns)

    def column(self, name: str) -> NDArray[Any]:
        """A column."""
        return label_rows(self.columns[name])

    def cells(self, name: str) -> list[str]:
        """The text of a column."""
        return ["" if value is None else str(value) for value in self.columns[name].tolist()]

    def features(self, names: list[str]) -> NDArray[Any]:
        """Columns of numbers, or one of vectors, as a matrix."""
        values = self.columns[names[0]]
        if len(names) == 1 and values.dtype == object and len(values) and np.iterable(values[0]):
            return _vectors(list(values), names[0], self.file)
        return as_matrix(self.file, {name: self.columns[name] for name in names})


def _labels(table: _CsvTable | _ParquetTable, columns: Columns) -> Labels | None:
    """One label per row, several, or columns of 0/1."""
    if columns.label is None or not columns.labels:
        return None
    if len(columns.labels) > 1:
        return np.stack([table.column(name) for name in columns.labels], axis=1)
    if columns.separator is None:
        return table.column(columns.labels[0])
    cells = table.cells(columns.labels[0])
    return label_rows([{part.strip() for part in cell.split(columns.separator)} for cell in cells])


def _checked_ids(ids: NDArray[Any], name: str, file: Path) -> Labels:
    """Integers or text, none of them missing."""
    if ids.dtype == object and all(isinstance(value, str) for value in ids):
        return ids.astype(np.str_)
    if ids.dtype.kind not in "iuU" or ids.ndim != 1:
        raise DataFileError(f"{file}, column {name!r} must hold an integer or text in every row, to be ids; fill it.")
    return ids


def _matching(part: str, names: Sequence[str], table: str) -> list[str]:
    """The columns that a name, a range or a pattern stands for."""
    if part in names:
        return [part]
    first, colon, last = part.partition(":")
    if colon:
        for name in (first, last):
            check_column(name, names, table)
        low, high = names.index(first), names.index(last)
        if low > high:
            raise InvalidInput(f"The range of columns {part} is empty: {first} comes after {last} in {table}.")
        return list(names[low : high + 1])
    found = [name for name in names if fnmatchcase(name, part)]
    if not found:
        check_column(part, names, table)
    return found


def _present(columns: Columns, names: Sequence[str]) -> Columns:
    """The columns that a table has."""
    labels = [name for name in columns.labels if name in names]
    label = columns.label if len(labels) == len(columns.labels) else None
    return Columns(columns.id if columns.id in names else None, label, columns.features, columns.separator)


def check_column(name: str, names: Sequence[str], table: str | Path) -> None:
    """Raise unless a table has a column of this name."""
    if name not in names:
        listing = ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "")
        raise DataFileError(f"{table} has no column {name!r}; it has {listing}.")


def _is_vector(cell: str) -> bool:
    """Whether a cell holds several numbers: in brackets, or separated by spaces or semicolons."""
    return cell[:1] in ("[", "(") or len(cell.replace(";", " ").split()) > 1


def _parsed_vector(cell: str) -> list[float]:
    try:
        return [float(word) for word in re.findall(r"[^\s,;]+", cell.strip("[]() "))]
    except ValueError:
        return []


def _vectors(rows: list[Any], name: str, file: Path) -> NDArray[Any]:
    """Vectors of one length as a matrix."""
    for number, row in enumerate(rows):
        if row is None or len(row) != len(rows[0]) or not len(row):
            n = "no numbers" if row is None or not len(row) else f"{len(row)} numbers"
            raise DataFileError(
                f"{file}, column {name!r} must hold vectors of one length, but row {number} has {n} and row 0 has "
                f"{len(rows[0])}; drop or complete it."
            )
    return np.array([np.asarray(row) for row in rows])


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
