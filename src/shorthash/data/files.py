"""Files of features, labels and codes: .npy, .npz, .csv and .parquet files become arrays, codes become files.

In a .npz file the array is found by name: ``X`` for features, ``y`` or ``Y`` for labels, ``codes`` for codes, or the
only array in the file; ``file.npz:name`` picks any other. If a scalar ``scale`` is stored with integer features
``X``, the features are ``X * scale``. A .csv file may begin with a header line. Pickled objects are never loaded.
"""

from __future__ import annotations

import csv
import json
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from shorthash._arrays import Codes, Labels
from shorthash._labels import label_rows
from shorthash._validation import check_n_bits, require_extra
from shorthash.codes import as_codes, pack, unpack
from shorthash.errors import DataFileError, InvalidInput, phrase

ENDINGS = (".npy", ".npz", ".csv", ".parquet")
WRITTEN_ENDINGS = (".csv", ".parquet", ".jsonl")
CODE_ENDINGS = (*ENDINGS, ".jsonl")
# of np.load
NUMPY_ERRORS = (ValueError, TypeError, OSError, EOFError, MemoryError, RuntimeError, SyntaxError, tokenize.TokenError)
LABEL_HEADERS = ("class", "id", "label", "labels", "name", "target", "y")  # a first line like these is a header


def read_features(path: str | Path) -> NDArray[Any]:
    r"""Feature rows of a file, (n_samples, n_features), of any numeric type; a .npy file is memory-mapped.

    Parameters
    ----------
    path : a .npy, .npz, .csv or .parquet file; ``file.npz:name`` picks an array

    Examples
    --------
    >>> file = Path(tempfile.mkdtemp()) / "rows.csv"
    >>> _ = file.write_text("height,width\n1,2\n3,4\n")
    >>> read_features(file)
    array([[1., 2.],
           [3., 4.]])
    """
    file, key = _locate(path)
    ending = file.suffix.lower()
    if ending == ".npz":
        values = _npz_features(file, key)
    elif ending == ".npy":
        values = _read_npy(file)
    elif ending == ".csv":
        values = _read_csv(file)
    else:
        values = as_matrix(file, read_parquet(file))
    if values.dtype.kind not in "biuf":
        raise DataFileError(f"Features in {path} must be numbers. Got type {values.dtype} instead; convert them.")
    if values.ndim != 2:
        raise DataFileError(
            f"Features in {path} must have shape (n_samples, n_features). Got shape {values.shape} instead; "
            "reshape them to one row per sample (X.reshape(len(X), -1))."
        )
    return _not_empty(values, path)


def read_labels(path: str | Path) -> Labels:
    r"""Labels of a file: (n_samples,) numbers or strings, or an (n_samples, n_classes) indicator matrix.

    A .csv file of one column may hold text. An empty cell, or a missing one of a .parquet file, is a row without a
    label: None. The first line is a header if it is the only one that is not a number, or
    if it is a usual name of such a column ("label", "class", "y", ...).

    Parameters
    ----------
    path : a .npy, .npz, .csv or .parquet file; ``file.npz:name`` picks an array

    Examples
    --------
    >>> file = Path(tempfile.mkdtemp()) / "labels.csv"
    >>> _ = file.write_text("label\ncat\ndog\n")
    >>> read_labels(file).tolist()
    ['cat', 'dog']
    """
    file, key = _locate(path)
    ending = file.suffix.lower()
    if ending == ".npz":
        values = _npz_pick(file, key, ("y", "Y"))[1]
    elif ending == ".npy":
        values = np.array(_read_npy(file))
    elif ending == ".csv":
        values = _csv_labels(file)
    else:
        columns = read_parquet(file)
        values = label_rows(next(iter(columns.values()))) if len(columns) == 1 else as_matrix(file, columns)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    if values.dtype.kind not in "biufUO" or values.ndim not in (1, 2):
        raise DataFileError(
            f"Labels in {path} must be one number or name per row, or an indicator matrix. Got {values.dtype} of shape "
            f"{values.shape} instead; save them as a 1-d array."
        )
    return _not_empty(values, path)


def read_codes(path: str | Path, n_bits: int | None = None) -> Codes:
    """Codes of a file as signs, (n_samples, n_bits), whether it holds signs or packed integers.

    Parameters
    ----------
    path : a .npy, .npz, .csv, .parquet or .jsonl file, for instance from :func:`write_codes`
    n_bits : length of packed codes; a .npz file from :func:`write_codes` holds it

    Examples
    --------
    >>> import tempfile
    >>> path = write_codes(tempfile.mkdtemp() + "/codes.npz", [[1, -1], [1, 1]])
    >>> read_codes(path).tolist()
    [[1, -1], [1, 1]]
    """
    file, key = _locate(path, CODE_ENDINGS)
    ending = file.suffix.lower()
    if ending == ".npz":
        values = _npz_pick(file, key, ("codes",), besides="n_bits")[1]
        stored = npz_array(file, "n_bits")
        n_bits = int(stored) if n_bits is None and stored is not None else n_bits
    elif ending == ".npy":
        values = _read_npy(file)
    elif ending == ".csv":
        values = _csv_codes(file)
    elif ending == ".jsonl":
        values = _jsonl_codes(file)
    else:
        columns = read_parquet(file)
        values = np.stack([columns[name] for name in _code_columns(list(columns))], axis=1)
    if values.ndim == 2 and values.shape[1] == 1 and n_bits != 1:
        values = values[:, 0]
    values = _not_empty(values, path)
    if values.ndim == 1 and n_bits is None:
        raise InvalidInput(
            f"Codes in {path} are packed integers, which do not show their length; {phrase('give the number of bits')}."
        )
    try:
        return unpack(values, int(n_bits or 0)) if values.ndim == 1 else as_codes(values, n_bits)
    except InvalidInput as error:
        raise DataFileError(f"{path} does not hold valid codes: {error}") from error


def read_ids(path: str | Path) -> Labels | None:
    """The ids that were written with codes: the array ``id`` of a .npz file, the column ``id`` of a table; else None.

    Examples
    --------
    >>> path = write_codes(Path(tempfile.mkdtemp()) / "codes.csv", [[1, -1]], ids=["a7"])
    >>> read_ids(path).tolist()
    ['a7']
    """
    file, _ = _locate(path, CODE_ENDINGS)
    ending = file.suffix.lower()
    if ending == ".npz":
        return npz_array(file, "id")
    if ending == ".parquet":
        return read_parquet(file).get("id")
    if ending == ".jsonl":
        rows = [row.get("id") for _, row in _jsonl_rows(file)]
        return None if None in rows else np.array(rows)
    if ending == ".csv":
        line, names = next(csv_lines(file), (0, []))
        if "id" in names:
            place = names.index("id")
            return parse_column([cells[place] for _, cells in csv_lines(file, line)])
    return None


def write_codes(path: str | Path, codes: ArrayLike, *, signs: bool = False, ids: ArrayLike | None = None) -> Path:
    """Write codes, packed into the smallest unsigned integers or as signs; a failure leaves no partial file.

    Parameters
    ----------
    path : a .npy, .npz, .csv, .parquet or .jsonl file; a .npz file also holds the length, as ``n_bits``
    codes : (n_samples, n_bits) signs
    signs : write -1 and +1, one column per bit, instead of packed integers
    ids : (n_samples,) ids to write with the codes, as a column or an array; not to .npy

    Examples
    --------
    >>> path = write_codes(Path(tempfile.mkdtemp()) / "codes.npz", [[1, -1, -1, 1]])
    >>> read_codes(path).tolist()
    [[1, -1, -1, 1]]
    """
    target = Path(path)
    check_target(target, ids=ids is not None)
    values = as_codes(codes)
    n_bits = check_n_bits(values.shape[1], "write_codes")
    table = values if signs else pack(values)
    named = {} if ids is None else {"id": np.asarray(ids)}
    ending = target.suffix.lower()
    if ending in WRITTEN_ENDINGS:
        bits = {f"bit{j}": table[:, j] for j in range(n_bits)} if signs else {"code": table}
        return write_table(target, named | bits)
    with replacing(target) as temporary:
        if ending == ".npz":
            np.savez(temporary, codes=table, n_bits=np.array(n_bits), **named)  # type: ignore[arg-type]
        else:
            np.save(temporary, table, allow_pickle=False)
    return target


def check_target(path: str | Path, *, ids: bool = False) -> None:
    """Raise if :func:`write_codes` could not write to ``path``; call it before computing the codes."""
    target = Path(path)
    if target.suffix.lower() not in CODE_ENDINGS:
        raise DataFileError(f"Codes can be written to files that end in {', '.join(CODE_ENDINGS)}. Got {path} instead.")
    if ids and target.suffix.lower() == ".npy":
        raise DataFileError(f"{target} has no place for ids; write a .npz, .csv, .parquet or .jsonl file.")
    check_place(target)


def write_table(path: str | Path, columns: Mapping[str, NDArray[Any]]) -> Path:
    r"""Write columns of equal length to a .csv, .parquet or .jsonl file; a failure leaves no partial file.

    Examples
    --------
    >>> path = write_table(Path(tempfile.mkdtemp()) / "found.jsonl", {"id": np.array(["a7"]), "code": np.array([5])})
    >>> path.read_text()
    '{"id": "a7", "code": 5}\n'
    """
    target = Path(path)
    ending = target.suffix.lower()
    if ending not in WRITTEN_ENDINGS:
        raise DataFileError(f"A table can be written to files that end in {', '.join(WRITTEN_ENDINGS)}. Got {path}.")
    with replacing(target) as temporary:
        if ending == ".parquet":
            arrow = require_extra("pyarrow", "tables", "Writing .parquet files")
            parquet = require_extra("pyarrow.parquet", "tables", "Writing .parquet files")
            parquet.write_table(arrow.table(dict(columns)), temporary)
            return target
        rows = zip(*(values.tolist() for values in columns.values()), strict=True)
        with temporary.open("w", encoding="utf-8", newline="") as file:
            if ending == ".csv":
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(columns)
                writer.writerows(rows)
            else:
                file.writelines(
                    json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n" for row in rows
                )
    return target


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path to write to; it replaces ``path`` at the end of the block, unless an exception is raised.

    Examples
    --------
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "note.txt") as temporary:
    ...     written = temporary.write_text("whole")
    >>> [file.name for file in folder.iterdir()]
    ['note.txt']
    """
    target = Path(path)
    check_place(target)
    with tempfile.TemporaryDirectory(prefix=".shorthash-", dir=target.parent) as folder:
        temporary = Path(folder) / target.name
        yield temporary
        temporary.replace(target)


def npz_array(path: Path, name: str) -> NDArray[Any] | None:
    """One array of a .npz file; None if it has no array of that name. The other arrays are not read."""
    with _archive(path) as archive:
        return np.asarray(archive[name]) if name in archive.files else None


def existing_file(path: str | Path) -> Path:
    """The file of a table; raises unless it exists and has a known ending."""
    return _locate(path)[0]


def _locate(path: str | Path, endings: Sequence[str] = ENDINGS) -> tuple[Path, str | None]:
    """The file and, for ``file.npz:name``, the name; raises unless the file exists and has a known ending."""
    text, key = str(path), None
    before, colon, after = text.rpartition(":")
    if colon and before.lower().endswith(".npz"):
        text, key = before, after
    file = Path(text)
    if file.suffix.lower() not in endings:
        raise DataFileError(f"{file} must end in one of {', '.join(endings)}; convert it, or rename it to what it is.")
    if file.is_dir():
        raise DataFileError(f"{file} is a folder, but a file is needed here; name a file inside it.")
    if not file.exists():
        raise DataFileError(f"There is no file {file}; check the path.")
    if file.stat().st_size == 0:
        raise DataFileError(f"{file} is empty; write at least one row to it.")
    return file, key


def check_place(target: Path) -> None:
    """Raise if no file can be written there, because of its folder, or because it is a folder itself."""
    if not target.parent.is_dir():
        raise DataFileError(f"{target} cannot be written because there is no folder {target.parent}; create it first.")
    if target.is_dir():
        raise DataFileError(f"{target} cannot be written because it is a folder; choose another name.")


def _not_empty(values: NDArray[Any], path: str | Path) -> NDArray[Any]:
    if values.size == 0:
        raise DataFileError(f"{path} holds no rows (shape {values.shape}); write at least one row to it.")
    return values


def _read_npy(path: Path) -> NDArray[Any]:
    """The array of a .npy file as a read-only memory map."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except NUMPY_ERRORS as error:
        raise _unreadable(path, error) from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise DataFileError(f"{path} is a .npz archive with the name of a .npy file; rename it to end in .npz.")
    return array


@contextmanager
def _archive(path: Path) -> Iterator[Any]:
    """An open .npz file; errors in reading it become a DataFileError."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            yield archive
    except (*NUMPY_ERRORS, zipfile.BadZipFile, zlib.error) as error:
        raise _unreadable(path, error) from error


def _npz_pick(file: Path, key: str | None, usual: tuple[str, ...], besides: str = "") -> tuple[str, NDArray[Any]]:
    """Name and values of the array named ``key``, or by a usual name, or the only one except ``besides``."""
    with _archive(file) as archive:
        names = list(archive.files)
    others = [name for name in names if name != besides]
    candidates = usual if key is None else (key,)
    if key is None and len(others) == 1:
        candidates = (*usual, others[0])
    for name in candidates:
        values = npz_array(file, name)
        if values is not None:
            return name, values
    present = ", ".join(names) or "none at all"
    if key is not None:
        raise DataFileError(f"{file} has no array {key!r}; it has {present}.")
    raise DataFileError(f"{file} has no array {' or '.join(usual)}, only {present}; pick one with {file.name}:NAME.")


def _npz_features(file: Path, key: str | None) -> NDArray[Any]:
    """Features of a .npz file, multiplied by the ``scale`` of integer features ``X``."""
    name, values = _npz_pick(file, key, ("X",), besides="scale")
    scale = npz_array(file, "scale") if name == "X" and values.dtype.kind in "iu" else None
    if scale is None or scale.ndim:
        return values
    return np.asarray(values.astype(np.float32) * scale.astype(np.float32))


def read_parquet(path: Path) -> dict[str, NDArray[Any]]:
    """The columns of a .parquet file by name; missing numbers become NaN."""
    parquet = require_extra("pyarrow.parquet", "tables", "Reading .parquet files")
    with table_errors(path):
        table = parquet.read_table(path)
        names = table.column_names  # may not be text
    return {name: arrow_values(table.column(name)) for name in names}


@contextmanager
def table_errors(name: str | Path) -> Iterator[None]:
    """Turn errors of pyarrow that reads a file or folder into a DataFileError."""
    arrow = require_extra("pyarrow", "tables", "Reading tables")
    try:
        yield
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataFileError(f"{name} is not a readable table ({_first_line(error)}); write it again.") from error


def arrow_values(column: Any) -> NDArray[Any]:
    """A column of Arrow as an array; integers of which some are missing become objects with None there."""
    types = require_extra("pyarrow.types", "tables", "Reading tables")
    if column.null_count and types.is_integer(column.type):
        return np.array(column.to_pylist(), dtype=object)
    return np.asarray(column.to_numpy(zero_copy_only=False) if hasattr(column, "buffers") else column.to_numpy())


def as_matrix(file: Path, columns: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Columns of numbers as a matrix."""
    for name, values in columns.items():
        if values.dtype.kind not in "biuf":
            raise DataFileError(
                f"{file}, column {name!r} holds {values[:1].tolist()[0]!r}, but every column must be numbers; "
                f"{phrase('drop this column or turn it into numbers')}."
            )
    if not columns:
        raise DataFileError(f"{file} has no columns; write one column per feature.")
    return np.stack(list(columns.values()), axis=1)


def _read_csv(path: Path, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """The numbers of a comma-separated file, (n_rows, n_columns); its first line may be a header.

    A first line without any number is a header, and so is 0, 1, 2, ..., which data frames without column names write.
    """
    number, first = next(csv_lines(path), (0, []))
    counted = len(first) > 1 and first == [str(i) for i in range(len(first))]
    skip = number if counted or not any(_is_number(cell) for cell in first) else 0
    return csv_numbers(path, skip, None, dtype)


def csv_numbers(path: Path, skip: int, columns: Sequence[int] | None, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Numbers after the first ``skip`` lines, of some columns or of all, (n_rows, n_columns)."""
    if next(csv_lines(path, skip), None) is None:
        raise DataFileError(f"{path} has no rows of numbers; write at least one.")
    style: dict[str, Any] = {"delimiter": ",", "comments": None, "quotechar": '"', "encoding": "utf-8-sig"}
    try:
        return np.loadtxt(path, dtype, skiprows=skip, ndmin=2, usecols=columns, **style)
    except ValueError as error:
        raise _bad_cell(path, skip, columns, error) from error


def _csv_codes(file: Path) -> NDArray[Any]:
    """Codes of a .csv file, packed or as signs; a header may name columns besides them."""
    line, first = next(csv_lines(file), (0, []))
    columns = _code_columns(first)
    kind: DTypeLike = np.uint64 if len(columns) == 1 else np.int64
    if len(columns) == len(first):
        return _read_csv(file, kind)
    return csv_numbers(file, line, [first.index(name) for name in columns], kind)


def _jsonl_rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Objects of a file of JSON lines, and the numbers of their lines."""
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise DataFileError(f"Line {number} of {file} is not a JSON object; write one object per line.")
            yield number, row


def _jsonl_codes(file: Path) -> NDArray[Any]:
    """Codes of a file of JSON lines, packed or as signs; objects may have other fields, too."""
    names: list[str] = []
    rows = []
    for number, row in _jsonl_rows(file):
        names = names or _code_columns(list(row))
        cells = [row.get(name) for name in names]
        if not all(isinstance(cell, int) and -1 <= cell < 2**64 for cell in cells):
            raise DataFileError(f"Line {number} of {file} has no code; every object needs {', '.join(names)}.")
        rows.append(cells)
    try:
        return np.array(rows, dtype=np.uint64 if len(names) == 1 else np.int64)
    except OverflowError as error:
        raise DataFileError(f"{file} does not hold codes: {error}.") from error


def _code_columns(names: list[str]) -> list[str]:
    """The columns that hold codes: ``code``, or ``bit0``, ``bit1`` and so on, or all."""
    bits = [name for name in names if name.startswith("bit") and name[3:].isdecimal()]
    return ["code"] if "code" in names else bits or names


def _csv_labels(file: Path) -> Labels:
    """Labels of a .csv file: a column of numbers or names, or a matrix of numbers."""
    rows = [cells for _, cells in csv_lines(file, blank=True)]
    while rows and not rows[-1]:  # blank lines at the end; an empty cell in quotes is a missing label
        rows.pop()
    if not any(any(row) for row in rows):
        raise DataFileError(f"{file} holds blank lines only; write one label per line.")
    if max(len(row) for row in rows) > 1:
        return _read_csv(file)
    first, *rest = [row[0] if row else "" for row in rows]
    only_text = not _is_number(first) and all(_is_number(cell) for cell in rest if cell)
    has_header = bool(rest) and bool(first) and (only_text or first.lower() in LABEL_HEADERS)
    return parse_column(rest if has_header else [first, *rest])


def parse_column(cells: Sequence[str]) -> NDArray[Any]:
    """Cells of a text file as integers, else as floats, else as text; where some are empty, objects with None there.

    Examples
    --------
    >>> parse_column(["1", "2"]).dtype.kind, parse_column(["1", "b"]).tolist(), parse_column(["1", ""]).tolist()
    ('i', ['1', 'b'], [1, None])
    """
    present = np.array([bool(cell) for cell in cells], dtype=bool)
    found: list[Any] = [cell for cell in cells if cell]
    for convert in (int, float):
        try:
            found = [convert(cell) for cell in found]
            break
        except ValueError:
            continue
    if present.all():
        return np.array(found)
    values = np.full(len(cells), None, dtype=object)
    values[present] = found
    return values


def csv_lines(path: Path, skip: int = 0, *, blank: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Line numbers, from 1, and stripped cells of the lines after the first ``skip``; blank ones only on request."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            for cells in reader:
                stripped = [cell.strip() for cell in cells]
                if (blank or any(stripped)) and reader.line_num > skip:
                    yield reader.line_num, stripped
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataFileError(f"{path} is not text in UTF-8 ({_first_line(error)}); save it as UTF-8.") from error


def _bad_cell(path: Path, skip: int, columns: Sequence[int] | None, error: ValueError) -> DataFileError:
    """The error for a .csv file that cannot be read as numbers; it names the first bad cell or line."""
    width = None
    for number, cells in csv_lines(path, skip):
        for column, cell in enumerate(cells, 1):
            if columns is not None and column - 1 not in columns:
                continue
            where = f"{path}, line {number}, column {column}"
            if not cell:
                return DataFileError(f"{where} is empty, but every cell must be a number; fill it or drop the line.")
            if not _is_number(cell):
                hint = _text_hint(cell, number)
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


def _text_hint(cell: str, line: int) -> str:
    """What to do about a cell that is not a number."""
    if any(mark in cell and all(_is_number(part) for part in cell.split(mark) if part) for mark in (";", "\t", " ")):
        return "separate the numbers by commas"
    if line == 1:
        return "give a header line names only, or drop this column"
    return phrase("drop this column or turn it into numbers (ids and labels are read from columns that are named)")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _unreadable(path: Path, error: Exception) -> DataFileError:
    """The error for a file that NumPy could not read."""
    if "Object arrays" in str(error) or "Python objects" in str(error):
        return DataFileError(
            f"{path} holds pickled Python objects, which are never loaded because a pickle can run any code; "
            "save plain numbers instead, for instance np.save(path, np.stack(rows).astype(np.float32))."
        )
    reason = "it holds something else" if "pickle" in str(error) else _first_line(error)
    return DataFileError(f"{path} is not a readable {path.suffix.lower()} file ({reason}); write it again.")


def _first_line(error: Exception) -> str:
    """The first line of an error message, without its full stop."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
