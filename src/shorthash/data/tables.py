"""Tables with columns of ids, labels and features of .csv and .parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Labels
from shorthash._labels import label_rows
from shorthash.data.files import (
    as_matrix,
    csv_lines,
    csv_numbers,
    existing_file,
    parse_column,
    read_parquet,
)
from shorthash.errors import DataFileError, InvalidInput

TABLE_ENDINGS = (".csv", ".parquet")
LISTED = 8  # columns named in an error


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
            "of other files as files of their own."
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


class _CsvTable:
    """A .csv file with a header."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.line, self.names = next(csv_lines(file), (0, []))
        repeated = sorted({name for name in self.names if self.names.count(name) > 1})
        if repeated:
            raise DataFileError(f"{file} has several columns {repeated[0]!r}; give every column a name of its own.")
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
    text = cell.strip("[]() ")
    for mark in (",", ";"):
        text = text.replace(mark, " ")
    try:
        return [float(word) for word in text.split()]
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
