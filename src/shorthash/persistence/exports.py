"""Codes that travel: an index as a FAISS, Parquet or SQL file, and back.

What every form holds is ids and packed codes. Parquet keeps vectors too; FAISS knows integer ids only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import PackedCodes
from shorthash._validation import check_n_bits, require_extra
from shorthash.errors import DataFileError, InvalidInput, PersistenceError
from shorthash.index import BucketIndex, HammingIndex
from shorthash.index.faiss_index import as_octets, from_octets
from shorthash.persistence import sql
from shorthash.persistence.places import force, working_place

__all__ = ["EXPORTS", "export_index", "import_index"]


@dataclass(frozen=True)
class _Items:
    """What a file told: packed codes, ids and vectors (or None), and the length of the codes where it knows it."""

    codes: NDArray[Any]
    ids: NDArray[Any]
    vectors: NDArray[Any] | None = None
    n_bits: int | None = None


def export_index(index: HammingIndex, path: str | os.PathLike[str], *, replace: bool = False) -> Path:
    """Write ids and codes of an index for another program; the file appears whole or not at all.

    Parameters
    ----------
    index : any index
    path : the ending decides: ``.faiss`` (a binary index of FAISS), ``.parquet`` (columns id, code and, where there are
        vectors, vector: nan for items without one), ``.sql`` (statements that create and fill a table ``items`` with
        an index on the code) or ``.db``, ``.sqlite``, ``.sqlite3`` (an SQLite file with that table)
    replace : whether a file that is there may be overwritten; a store never is

    Returns
    -------
    path : the file

    Examples
    --------
    >>> import tempfile
    >>> index = BucketIndex(n_bits=3).add([[1, 1, 1], [1, -1, 1]], ids=["ape", "bee"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = import_index(export_index(index, f"{folder}/codes.db"))
    >>> again.search([[1, 1, 1]], k=1).ids.tolist()
    [['ape']]
    """
    target = Path(path)
    write = _form(target)[0]
    _check_target(target, replace=replace)
    with _replacing(target) as place:
        write(index, place)
    return target


def import_index(path: str | os.PathLike[str], n_bits: int | None = None) -> BucketIndex:
    """Read ids and codes that ``export_index`` or another program wrote.

    Parameters
    ----------
    path : a file with an ending that ``export_index`` knows
    n_bits : length of the codes; needed where the file does not tell, as FAISS never does (it knows whole bytes only)
    """
    source = Path(path)
    read = _form(source)[1]
    if not source.is_file():
        raise DataFileError(f"There is no file {source}; check the path.")
    items = read(source)
    known = items.n_bits if n_bits is None else check_n_bits(n_bits, "import_index")
    if known is None:
        raise InvalidInput(f"{source} does not tell how many bits its codes have; pass n_bits=...")
    return BucketIndex(known).add(items.codes, items.ids, vectors=items.vectors)


def _check_target(path: Path, *, replace: bool) -> None:
    """Raise if the file is there and must not be overwritten."""
    if path.exists() and not replace:
        raise PersistenceError(
            f"{path} exists, so it is not overwritten; choose another name, or pass replace=True "
            "(--replace on the command line)."
        )
    if path.is_file() and sql.is_store(path):
        raise PersistenceError(f"{path} is a store, so it is not overwritten; choose another name.")


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A place to write to that becomes ``path``."""
    try:
        with working_place(path) as place:
            yield place
            with place.open("rb+") as file:
                os.fsync(file.fileno())
            place.replace(path)
            force(path.parent)
    except OSError as error:
        raise PersistenceError(
            f"Cannot write {path}: {error.strerror or error}; choose a folder with room that you may write to."
        ) from error


def _write_faiss(index: HammingIndex, path: Path) -> None:
    faiss = require_extra("faiss", "faiss", "Exporting to FAISS")
    if index.ids.dtype.kind != "i":
        raise InvalidInput("FAISS knows integer ids only, and this index has strings; export it to .parquet or .sql.")
    flat = faiss.IndexBinaryFlat(-(-index.n_bits // 8) * 8)
    mapped = faiss.IndexBinaryIDMap(flat)
    if len(index):
        mapped.add_with_ids(as_octets(index.codes, index.n_bits), np.ascontiguousarray(index.ids))
    path.write_bytes(faiss.serialize_index_binary(mapped).data)  # FAISS itself may overlook that a disk is full


def _read_faiss(path: Path) -> _Items:
    faiss = require_extra("faiss", "faiss", "Importing from FAISS")
    try:
        owner = faiss.read_index_binary(str(path))  # what is made of it below dies with it
    except RuntimeError as error:
        raise DataFileError(
            f"{path} is not a binary index of FAISS; write it with faiss.write_index_binary."
        ) from error
    structure = faiss.downcast_IndexBinary(owner)
    ids = np.arange(structure.ntotal, dtype=np.int64)
    if hasattr(structure, "id_map"):
        ids = faiss.vector_to_array(structure.id_map).astype(np.int64)
        structure = faiss.downcast_IndexBinary(structure.index)
    if not hasattr(structure, "xb"):
        kind = type(structure).__name__
        raise DataFileError(f"{path} is a FAISS {kind}, which does not keep codes in order; export an IndexBinaryFlat.")
    octets = faiss.vector_to_array(structure.xb).reshape(len(ids), structure.d // 8)
    if structure.d > 64:
        raise DataFileError(f"{path} holds codes of {structure.d} bits; shorthash takes up to 64.")
    return _Items(from_octets(octets), ids)


def _write_parquet(index: HammingIndex, path: Path) -> None:
    arrow = require_extra("pyarrow", "tables", "Exporting to Parquet")
    parquet = require_extra("pyarrow.parquet", "tables", "Exporting to Parquet")
    columns = {"id": index.ids.tolist() if index.ids.dtype.kind == "U" else index.ids, "code": index.codes}
    types = {"id": arrow.string() if index.ids.dtype.kind == "U" else arrow.int64(), "code": None}
    arrays = {name: arrow.array(values, type=types[name]) for name, values in columns.items()}
    vectors = getattr(index, "vectors", None)
    if vectors is not None:
        arrays["vector"] = arrow.FixedSizeListArray.from_arrays(arrow.array(vectors.reshape(-1)), vectors.shape[1])
    table = arrow.table(arrays).replace_schema_metadata({"shorthash.n_bits": str(index.n_bits)})
    parquet.write_table(table, path)


def _read_parquet(path: Path) -> _Items:
    arrow = require_extra("pyarrow", "tables", "Importing from Parquet")
    parquet = require_extra("pyarrow.parquet", "tables", "Importing from Parquet")
    try:
        table = parquet.read_table(path)
    except (arrow.ArrowException, OSError) as error:
        raise DataFileError(f"{path} is not a readable .parquet file; write it anew.") from error
    if "code" not in table.column_names:
        raise DataFileError(f"{path} has the columns {', '.join(table.column_names)}, but none named code; rename one.")
    codes = table.column("code").to_numpy()
    ids = np.arange(len(codes), dtype=np.int64)
    if "id" in table.column_names:
        ids = np.array(table.column("id").to_pylist())
    vectors = None
    if "vector" in table.column_names:
        flat = table.column("vector").combine_chunks()
        vectors = flat.flatten().to_numpy(zero_copy_only=False).reshape(len(codes), -1) if len(codes) else None
    n_bits = (table.schema.metadata or {}).get(b"shorthash.n_bits")
    return _Items(codes, ids, vectors, None if n_bits is None else int(n_bits))


def _write_sql(index: HammingIndex, path: Path) -> None:
    sql.write_statements(path, index.ids, index.codes, index.n_bits)


def _read_sql(path: Path) -> _Items:
    return _Items(*_split(sql.read_statements(path)))


def _write_sqlite(index: HammingIndex, path: Path) -> None:
    sql.write_database(path, index.ids, index.codes, index.n_bits)


def _read_sqlite(path: Path) -> _Items:
    return _Items(*_split(sql.read_database(path)))


def _split(read: tuple[PackedCodes, NDArray[Any], int | None]) -> tuple[Any, Any, None, int | None]:
    codes, ids, n_bits = read
    return codes, ids, None, n_bits


def _form(path: Path) -> tuple[Callable[[HammingIndex, Path], None], Callable[[Path], _Items]]:
    """How to write and read files of this ending."""
    if path.suffix.lower() not in EXPORTS:
        raise InvalidInput(f"Indexes travel in files that end in one of {', '.join(EXPORTS)}. Got {path} instead.")
    return EXPORTS[path.suffix.lower()]


EXPORTS: dict[str, tuple[Callable[[HammingIndex, Path], None], Callable[[Path], _Items]]] = {
    ".faiss": (_write_faiss, _read_faiss),
    ".parquet": (_write_parquet, _read_parquet),
    ".sql": (_write_sql, _read_sql),
    ".db": (_write_sqlite, _read_sqlite),
    ".sqlite": (_write_sqlite, _read_sqlite),
    ".sqlite3": (_write_sqlite, _read_sqlite),
}
"""Ending -> writer and reader."""
