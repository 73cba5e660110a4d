"""Feature, label and code files: .npy, .npz, .csv and .parquet in, arrays out; codes out, files in.

Inside a .npz file the array is found by name: ``X`` for features, ``y`` or ``Y`` for labels, ``codes`` for codes, or
the only array there is; ``file.npz:name`` picks any other. Where a scalar ``scale`` stands beside an ``X`` of integers,
features are ``X * scale``. A .csv file may begin with a header line. Files of pickled objects are refused.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._types import Codes, Labels
from shorthash._validation import check_n_bits, require_extra
from shorthash.codes import as_codes, pack, unpack
from shorthash.data.formats import is_number, npz_names, read_csv, read_npy, read_npz, read_parquet, text_rows
from shorthash.errors import DataFileError, InvalidInput

__all__ = ["ENDINGS", "check_target", "read_codes", "read_features", "read_labels", "replacing", "write_codes"]

FEATURE_KEYS = ("X",)
LABEL_KEYS = ("y", "Y")
CODE_KEYS = ("codes",)
LABEL_HEADERS = ("class", "id", "label", "labels", "name", "target", "y")  # first lines that are names, not labels


def read_features(path: str | Path) -> NDArray[Any]:
    """Feature rows of a file, (n_samples, n_features), numbers of any type; a .npy file stays on disk until read.

    Parameters
    ----------
    path : a .npy, .npz, .csv or .parquet file; ``file.npz:name`` picks an array
    """
    file, key = _locate(path)
    if file.suffix.lower() == ".npz":
        values = _npz_features(file, key)
    elif file.suffix.lower() == ".npy":
        values = read_npy(file)
    elif file.suffix.lower() == ".csv":
        values = read_csv(file)
    else:
        values = _as_matrix(file, read_parquet(file))
    if values.dtype.kind not in "biuf":
        raise DataFileError(f"Features in {path} must be numbers. Got type {values.dtype} instead; convert them.")
    if values.ndim != 2:
        raise DataFileError(
            f"Features in {path} must have shape (n_samples, n_features). Got shape {values.shape} instead; "
            "reshape them to one row per sample (X.reshape(len(X), -1))."
        )
    return _not_empty(values, path)


def read_labels(path: str | Path) -> Labels:
    """Labels of a file: (n_samples,) numbers or strings, or an (n_samples, n_classes) indicator matrix.

    A .csv file of one column may hold text; its first line is taken for a header where it is no number but all others
    are, or where it is a usual name of such a column ("label", "class", "y", ...).

    Parameters
    ----------
    path : a .npy, .npz, .csv or .parquet file; ``file.npz:name`` picks an array
    """
    file, key = _locate(path)
    if file.suffix.lower() == ".npz":
        values = read_npz(file, _pick(file, key, LABEL_KEYS))
    elif file.suffix.lower() == ".npy":
        values = np.array(read_npy(file))
    elif file.suffix.lower() == ".csv":
        values = _csv_labels(file)
    else:
        columns = read_parquet(file)
        values = next(iter(columns.values())) if len(columns) == 1 else _as_matrix(file, columns)
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
    path : a .npy, .npz, .csv or .parquet file, for instance from :func:`write_codes`
    n_bits : length of packed codes; a .npz file of :func:`write_codes` knows it by itself
    """
    file, key = _locate(path)
    if file.suffix.lower() == ".npz":
        values = read_npz(file, _pick(file, key, CODE_KEYS, beside="n_bits"))
        if n_bits is None and "n_bits" in npz_names(file):
            n_bits = int(read_npz(file, "n_bits"))
    elif file.suffix.lower() == ".npy":
        values = read_npy(file)
    elif file.suffix.lower() == ".csv":
        one = len(next(text_rows(file), [])) == 1
        values = read_csv(file, np.uint64 if one else np.int64)
    else:
        values = np.stack(list(read_parquet(file).values()), axis=1)
    if values.ndim == 2 and values.shape[1] == 1 and n_bits != 1:
        values = values[:, 0]
    values = _not_empty(values, path)
    if values.ndim == 1 and n_bits is None:
        raise InvalidInput(
            f"Codes in {path} are packed integers, whose length cannot be seen; say how many bits they have."
        )
    try:
        return unpack(values, int(n_bits or 0)) if values.ndim == 1 else as_codes(values, n_bits)
    except InvalidInput as error:
        raise DataFileError(f"{path} does not hold such codes: {error}") from error


def write_codes(path: str | Path, codes: ArrayLike, *, signs: bool = False) -> Path:
    """Write codes, packed into the smallest unsigned integers, or as signs; the file appears whole or not at all.

    Parameters
    ----------
    path : a .npy, .npz, .csv or .parquet file; a .npz also remembers the length, as ``n_bits``
    codes : (n_samples, n_bits) signs
    signs : write them as -1 and +1 instead of packing them
    """
    target = Path(path)
    check_target(target)
    values = as_codes(codes)
    n_bits = check_n_bits(values.shape[1], "write_codes")
    table = values if signs else pack(values)
    with replacing(target) as temporary:
        _WRITERS[target.suffix.lower()](temporary, table, n_bits)
    return target


def check_target(path: str | Path) -> None:
    """Raise if :func:`write_codes` could not write to ``path``; good to know before the codes are computed."""
    target = Path(path)
    if target.suffix.lower() not in ENDINGS:
        raise DataFileError(
            f"Codes can be written to files that end in one of {', '.join(ENDINGS)}. Got {path} instead."
        )
    _check_place(target)


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path beside ``path`` to write to; it takes the place of ``path`` if nothing goes wrong.

    Examples
    --------
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "note.txt") as temporary:
    ...     written = temporary.write_text("whole")
    >>> [file.name for file in folder.iterdir()]
    ['note.txt']
    """
    target = Path(path)
    _check_place(target)
    with tempfile.TemporaryDirectory(prefix=".shorthash-", dir=target.parent) as folder:
        temporary = Path(folder) / target.name
        yield temporary
        temporary.replace(target)


def _locate(path: str | Path) -> tuple[Path, str | None]:
    """The file and, for ``file.npz:name``, the name; raises unless there is such a file with a known ending."""
    text, key = str(path), None
    before, colon, after = text.rpartition(":")
    if colon and before.lower().endswith(".npz"):
        text, key = before, after
    file = Path(text)
    if file.suffix.lower() not in ENDINGS:
        raise DataFileError(f"{file} must end in one of {', '.join(ENDINGS)}; convert it, or rename it to what it is.")
    if file.is_dir():
        raise DataFileError(f"{file} is a folder, but a file is needed here; name a file inside it.")
    if not file.exists():
        raise DataFileError(f"There is no file {file}; check the path.")
    if file.stat().st_size == 0:
        raise DataFileError(f"{file} is empty; write at least one row to it.")
    return file, key


def _check_place(target: Path) -> None:
    if not target.parent.is_dir():
        raise DataFileError(f"{target} cannot be written because there is no folder {target.parent}; create it first.")
    if target.is_dir():
        raise DataFileError(f"{target} cannot be written because it is a folder; choose another name.")


def _pick(file: Path, key: str | None, usual: tuple[str, ...], beside: str = "") -> str:
    """Name of the array of a .npz file that was asked for, or has a usual name, or is the only one but ``beside``."""
    names = npz_names(file)
    if key is not None and key not in names:
        raise DataFileError(f"{file} has no array {key!r}; it has {', '.join(names) or 'none at all'}.")
    others = [name for name in names if name != beside]
    found = [name for name in (key, *usual) if name in names] or (others if len(others) == 1 else [])
    if not found:
        raise DataFileError(
            f"{file} has no array named {' or '.join(usual)}, only {', '.join(names) or 'none at all'}; pick one with "
            f"{file.name}:NAME."
        )
    return str(found[0])


def _npz_features(file: Path, key: str | None) -> NDArray[Any]:
    """Features of a .npz file, multiplied by the ``scale`` beside an ``X`` of integers."""
    name = _pick(file, key, FEATURE_KEYS, beside="scale")
    values = read_npz(file, name)
    if name in FEATURE_KEYS and values.dtype.kind in "iu" and "scale" in npz_names(file):
        scale = read_npz(file, "scale")
        if scale.ndim == 0:
            values = values.astype(np.float32) * scale.astype(np.float32)
    return values


def _csv_labels(file: Path) -> Labels:
    """Labels of a .csv file: a column of numbers or names, or a matrix of numbers."""
    rows = list(text_rows(file))
    if not rows:
        raise DataFileError(f"{file} holds blank lines only; write one label per line.")
    if max(len(row) for row in rows) > 1:
        return read_csv(file)
    column = [row[0] for row in rows]
    rest_numbers = len(column) > 1 and all(is_number(cell) for cell in column[1:])
    if (rest_numbers and not is_number(column[0])) or (len(column) > 1 and column[0].lower() in LABEL_HEADERS):
        column = column[1:]
    for convert in (int, float):
        try:
            return np.array([convert(cell) for cell in column])
        except ValueError:
            continue
    return np.array(column)


def _as_matrix(file: Path, columns: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Columns of numbers side by side."""
    for name, values in columns.items():
        if values.dtype.kind not in "biuf":
            raise DataFileError(
                f"{file}, column {name!r} holds {values[:1].tolist()[0]!r}, but every column must be numbers; "
                "drop this column or turn it into numbers."
            )
    if not columns:
        raise DataFileError(f"{file} has no columns; write one column per feature.")
    return np.stack(list(columns.values()), axis=1)


def _not_empty(values: NDArray[Any], path: str | Path) -> NDArray[Any]:
    if values.size == 0:
        raise DataFileError(f"{path} holds no rows (shape {values.shape}); write at least one row to it.")
    return values


def _write_npy(path: Path, table: NDArray[Any], n_bits: int) -> None:  # noqa: ARG001
    np.save(path, table, allow_pickle=False)


def _write_npz(path: Path, table: NDArray[Any], n_bits: int) -> None:
    np.savez(path, codes=table, n_bits=np.array(n_bits))


def _write_csv(path: Path, table: NDArray[Any], n_bits: int) -> None:
    np.savetxt(path, table, fmt="%d", delimiter=",", header=",".join(_columns(table, n_bits)), comments="")


def _write_parquet(path: Path, table: NDArray[Any], n_bits: int) -> None:
    arrow = require_extra("pyarrow", "tables", "Writing .parquet files")
    parquet = require_extra("pyarrow.parquet", "tables", "Writing .parquet files")
    columns = [table] if table.ndim == 1 else list(table.T)
    names = _columns(table, n_bits)
    parquet.write_table(arrow.table(dict(zip(names, columns, strict=True))), path)


def _columns(table: NDArray[Any], n_bits: int) -> list[str]:
    return ["code"] if table.ndim == 1 else [f"bit{j}" for j in range(n_bits)]


_WRITERS: dict[str, Callable[[Path, NDArray[Any], int], None]] = {
    ".npy": _write_npy,
    ".npz": _write_npz,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
ENDINGS = tuple(_WRITERS)
