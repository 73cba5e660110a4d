"""One reader per file ending: a path becomes plain arrays, or one sentence about what is wrong with the file.

Nothing here knows what the numbers mean; :mod:`shorthash.data.files` does.
"""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from shorthash._validation import require_extra
from shorthash.errors import DataFileError

__all__ = ["header_lines", "is_number", "npz_names", "read_csv", "read_npy", "read_npz", "read_parquet", "text_rows"]


def read_npy(path: Path) -> NDArray[Any]:
    """The array of a .npy file as a read-only memory map: rows are read when they are needed."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise _unreadable(path, error) from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise DataFileError(f"{path} is a .npz archive under the name of a .npy file; rename it to end in .npz.")
    return array


def npz_names(path: Path) -> list[str]:
    """Names of the arrays in a .npz file."""
    with _archive(path) as archive:
        return list(archive.files)


def read_npz(path: Path, name: str) -> NDArray[Any]:
    """One array of a .npz file; the others stay unread."""
    with _archive(path) as archive:
        return np.asarray(archive[name])


def read_csv(path: Path, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """The numbers of a comma-separated file, (n_rows, n_columns); its first line may be a header."""
    skip = header_lines(path)
    if next(_lines(path, skip), None) is None:
        raise DataFileError(f"{path} has no rows of numbers; write at least one.")
    try:
        return np.loadtxt(
            path, dtype, delimiter=",", skiprows=skip, ndmin=2, comments=None, quotechar='"', encoding="utf-8-sig"
        )
    except ValueError as error:
        raise _bad_cell(path, skip, error) from error


def read_parquet(path: Path) -> dict[str, NDArray[Any]]:
    """The columns of a .parquet file by name; missing numbers become NaN."""
    parquet = require_extra("pyarrow.parquet", "tables", "Reading .parquet files")
    arrow = require_extra("pyarrow", "tables", "Reading .parquet files")
    try:
        table = parquet.read_table(path)
    except (arrow.ArrowException, OSError) as error:
        raise DataFileError(f"{path} is not a readable .parquet file ({_first_line(error)}); write it anew.") from error
    return {name: table.column(name).to_numpy() for name in table.column_names}


def header_lines(path: Path) -> int:
    """How many lines of a .csv file come before the numbers: those up to a first line without any number.

    A first line 0, 1, 2, ... is a header too: data frames without column names write it.
    """
    number, first = next(_lines(path), (0, []))
    counted = len(first) > 1 and first == [str(i) for i in range(len(first))]
    return number if counted or not any(is_number(cell) for cell in first) else 0


def text_rows(path: Path) -> Iterator[list[str]]:
    """The lines of a .csv file that are not blank, as stripped cells."""
    return (cells for _, cells in _lines(path))


def is_number(text: str) -> bool:
    """Whether a cell can be read as a number.

    Examples
    --------
    >>> is_number("-1.5e3"), is_number("nan"), is_number("cat"), is_number("")
    (True, True, False, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return True


@contextmanager
def _archive(path: Path) -> Iterator[Any]:
    """An open .npz file; whatever goes wrong inside becomes one sentence."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            yield archive
    except (ValueError, OSError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise _unreadable(path, error) from error


def _lines(path: Path, skip: int = 0) -> Iterator[tuple[int, list[str]]]:
    """Line numbers, from 1, and stripped cells of the lines after the first ``skip`` that are not blank."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            for cells in reader:
                stripped = [cell.strip() for cell in cells]
                if any(stripped) and reader.line_num > skip:
                    yield reader.line_num, stripped
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataFileError(
            f"{path} is not a text file in UTF-8 ({_first_line(error)}); save it as UTF-8, comma-separated."
        ) from error


def _bad_cell(path: Path, skip: int, error: ValueError) -> DataFileError:
    """What exactly is wrong with a .csv file that could not be read as numbers."""
    width = None
    for number, cells in _lines(path, skip):
        for column, cell in enumerate(cells, 1):
            where = f"{path}, line {number}, column {column}"
            if not cell:
                return DataFileError(f"{where} is empty, but every cell must be a number; fill it or drop the line.")
            if not is_number(cell):
                hint = "separate the numbers by commas" if _other_separator(cell) else _text_advice(number)
                return DataFileError(f"{where} holds the text {cell!r}, but every cell must be a number; {hint}.")
        if width is not None and len(cells) != width:
            return DataFileError(
                f"{path}, line {number} has {len(cells)} columns, but the lines before it have {width}; "
                "give every line the same number of cells."
            )
        width = len(cells)
    return DataFileError(
        f"{path} cannot be read as numbers ({_first_line(error)}); write plain numbers, comma-separated."
    )


def _text_advice(line: int) -> str:
    if line == 1:
        return "give a header line names only, or drop this column"
    return "drop this column or turn it into numbers (labels belong in a file of their own)"


def _other_separator(cell: str) -> bool:
    """Whether a cell looks like several numbers with another separator between them."""
    return any(mark in cell and all(is_number(part) for part in cell.split(mark) if part) for mark in (";", "\t", " "))


def _unreadable(path: Path, error: Exception) -> DataFileError:
    """Why numpy refused a file."""
    if "Object arrays" in str(error) or "Python objects" in str(error):
        return DataFileError(
            f"{path} holds pickled Python objects, which are never loaded because a pickle can run any code; "
            "save plain numbers instead, for instance np.save(path, np.stack(rows).astype(np.float32))."
        )
    reason = "it holds something else" if "pickle" in str(error) else _first_line(error)
    return DataFileError(f"{path} is not a readable {path.suffix.lower()} file ({reason}); write it anew.")


def _first_line(error: Exception) -> str:
    """The first line of a foreign message, without its full stop."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
