"""Exports for other programs: ids and codes of an index, which can be imported again, and hashers as NumPy code.

An index becomes a FAISS, Parquet or SQL file. Every format holds ids and packed codes. Parquet keeps vectors too; FAISS
takes integer ids only. The SQL formats, a script and an SQLite file, hold one table, ``items (id, code)``, with an
index on the code; codes of 64 bits are written as signed integers with the same bits.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from shorthash import __version__
from shorthash._validation import check_n_bits, require_extra, steps_of
from shorthash.codes.signs import codes_from_bytes, codes_to_bytes
from shorthash.errors import DataFileError, InvalidInput, PersistenceError, phrase
from shorthash.index import BucketIndex, HammingIndex
from shorthash.kernels.rbf import AnchorRBF, Bias
from shorthash.learners.base import BaseHasher
from shorthash.persistence.files import replacing

ROWS_AT_ONCE = 500  # rows of one INSERT; SQLite takes at most 500 by default in a compound statement
TRAILER = b"\nshorthash sha256 "  # after the bytes of FAISS, which it does not read
CHECKED = "; the last line is a checksum"
LAST_LINE = "-- sha256 "
FIRST_LINE = re.compile(r"-- shorthash: codes of (\d+) bits")


class Contents(NamedTuple):
    """What an exported file holds."""

    codes: NDArray[Any]  # packed
    ids: NDArray[Any]
    vectors: NDArray[Any] | None = None
    n_bits: int | None = None  # None if the file does not state it


def export_index(index: HammingIndex, path: str | os.PathLike[str], *, replace: bool = False) -> Path:
    """Write ids and codes of an index for another program; the file is written completely or not at all.

    Parameters
    ----------
    index : any index
    path : the ending decides: ``.faiss`` (a binary index of FAISS), ``.parquet`` (columns id, code and, where there are
        vectors, vector: nan for items without one), ``.sql`` (statements that create and fill a table ``items`` with
        an index on the code) or ``.db``, ``.sqlite``, ``.sqlite3`` (an SQLite file with that table)
    replace : whether an existing file may be overwritten; a store never is

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
    write, _ = _format(target)
    if target.exists() and not replace:
        raise PersistenceError(
            f"{target} exists, so it is not overwritten; choose another name, or {phrase('pass replace=True')}."
        )
    if target.is_file() and _is_store(target):
        raise PersistenceError(f"{target} is a store, so it is not overwritten; choose another name.")
    with replacing(target) as temporary:
        write(index, temporary)
    return target


def import_index(path: str | os.PathLike[str], n_bits: int | None = None) -> BucketIndex:
    """Read ids and codes that ``export_index`` or another program wrote.

    Parameters
    ----------
    path : a file with an ending that ``export_index`` knows
    n_bits : length of the codes; needed where the file does not state it, as FAISS files never do (whole bytes only)

    Examples
    --------
    >>> import tempfile
    >>> from shorthash.persistence import export_index
    >>> file = tempfile.mkdtemp() + "/codes.sqlite"
    >>> _ = export_index(BucketIndex(8).add([3, 5], ids=[70, 71]), file)
    >>> import_index(file).search([5], k=1).ids.tolist()
    [[71]]
    """
    source = Path(path)
    _, read = _format(source)
    if not source.is_file():
        raise DataFileError(f"There is no file {source}; check the path.")
    found = read(source)
    known = found.n_bits if n_bits is None else check_n_bits(n_bits, "import_index")
    if known is None:
        raise InvalidInput(f"{source} does not state how many bits its codes have; pass n_bits=...")
    return BucketIndex(known).add(found.codes, found.ids, vectors=found.vectors)


def _write_faiss(index: HammingIndex, path: Path) -> None:
    faiss = require_extra("faiss", "faiss", "Exporting to FAISS")
    if index.ids.dtype.kind != "i":
        raise InvalidInput("FAISS takes integer ids only, and this index has strings; export it to .parquet or .sql.")
    flat = faiss.IndexBinaryFlat(-(-index.n_bits // 8) * 8)
    mapped = faiss.IndexBinaryIDMap(flat)
    if len(index):
        mapped.add_with_ids(codes_to_bytes(index.codes, index.n_bits), np.ascontiguousarray(index.ids))
    octets = faiss.serialize_index_binary(mapped).tobytes()  # faiss.write_index_binary ignores a full disk
    path.write_bytes(octets + TRAILER + hashlib.sha256(octets).digest())  # FAISS reads up to its own end


def _read_faiss(path: Path) -> Contents:
    faiss = require_extra("faiss", "faiss", "Importing from FAISS")
    contents, trailer, checksum = path.read_bytes().rpartition(TRAILER)
    if trailer and hashlib.sha256(contents).digest() != checksum:
        raise DataFileError(f"{path} is damaged: its checksum differs; export it again.")
    try:
        owner = faiss.read_index_binary(str(path))  # must outlive the objects made from it below
    except (RuntimeError, MemoryError) as error:
        raise DataFileError(f"{path} is not a binary index of FAISS; use faiss.write_index_binary.") from error
    # without a trailer, or with a damaged one, the file must end where the index ends
    if not trailer and path.stat().st_size != len(faiss.serialize_index_binary(owner)):
        raise DataFileError(f"{path} is damaged: it does not end where its index ends; export it again.")
    structure = faiss.downcast_IndexBinary(owner)
    ids = np.arange(structure.ntotal, dtype=np.int64)
    if hasattr(structure, "id_map"):
        ids = faiss.vector_to_array(structure.id_map).astype(np.int64)
        structure = faiss.downcast_IndexBinary(structure.index)
    if not hasattr(structure, "xb"):
        kind = type(structure).__name__
        raise DataFileError(f"{path} is a FAISS {kind}, which does not keep codes in order; export an IndexBinaryFlat.")
    if structure.d > 64 or structure.d % 8 or structure.d < 8:
        raise DataFileError(f"{path} holds codes of {structure.d} bits; shorthash takes 8 to 64, in whole bytes.")
    octets = faiss.vector_to_array(structure.xb)
    if octets.size != len(ids) * (structure.d // 8):
        raise DataFileError(f"{path} is damaged: {octets.size} bytes of codes for {len(ids)} ids; export it again.")
    octets = octets.reshape(len(ids), structure.d // 8)
    return Contents(codes_from_bytes(octets, 64), ids)


def _write_parquet(index: HammingIndex, path: Path) -> None:
    arrow = require_extra("pyarrow", "tables", "Exporting to Parquet")
    parquet = require_extra("pyarrow.parquet", "tables", "Exporting to Parquet")
    strings = index.ids.dtype.kind == "U"
    ids = arrow.array(index.ids.tolist(), type=arrow.string()) if strings else arrow.array(index.ids)
    columns = {"id": ids, "code": arrow.array(index.codes)}
    vectors = getattr(index, "vectors", None)
    if vectors is not None:
        columns["vector"] = arrow.FixedSizeListArray.from_arrays(arrow.array(vectors.reshape(-1)), vectors.shape[1])
    table = arrow.table(columns).replace_schema_metadata({"shorthash.n_bits": str(index.n_bits)})
    parquet.write_table(table, path, write_page_checksum=True)


def _read_parquet(path: Path) -> Contents:
    arrow = require_extra("pyarrow", "tables", "Importing from Parquet")
    parquet = require_extra("pyarrow.parquet", "tables", "Importing from Parquet")
    try:
        table = parquet.read_table(path, page_checksum_verification=True)
        names = table.column_names  # may not be text
    except (arrow.ArrowException, OSError, MemoryError, UnicodeDecodeError) as error:
        raise DataFileError(f"{path} is not a readable .parquet file; write it again.") from error
    if "code" not in names:
        raise DataFileError(f"{path} has the columns {', '.join(names)}, but none named code; rename one.")
    with _damage_explained(path, ArithmeticError, arrow.ArrowException):
        codes = table.column("code").to_numpy()
        ids = np.arange(len(codes), dtype=np.int64)
        if "id" in names:
            ids = np.array(table.column("id").to_pylist())
        vectors = None
        if "vector" in names and len(codes):
            flat = table.column("vector").combine_chunks().flatten()
            vectors = flat.to_numpy(zero_copy_only=False).reshape(len(codes), -1)
        n_bits = (table.schema.metadata or {}).get(b"shorthash.n_bits")
        return Contents(codes, ids, vectors, None if n_bits is None else int(n_bits))


def _write_sql(index: HammingIndex, path: Path) -> None:
    """A script that creates and fills the table in one transaction."""
    with path.open("w", encoding="utf-8", newline="") as file:  # line ends inside ids are kept
        file.write(f"-- shorthash: codes of {index.n_bits} bits{CHECKED}\nBEGIN;\n{_create_table(index)};\n")
        for rows in _rows(index):
            values = ",\n".join(f"({_literal(i)}, {code})" for i, code in rows)
            file.write(f"INSERT INTO items (id, code) VALUES\n{values};\n")
        file.write("CREATE INDEX items_code ON items (code);\nCOMMIT;\n")
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(f"{LAST_LINE}{checksum}\n")


def _check_script(path: Path, octets: bytes) -> None:
    """Raise DataFileError if a script of shorthash is not as it was written, or another one is incomplete."""
    body, last_line, checksum = octets.rpartition(LAST_LINE.encode())
    sound = octets.rstrip().endswith((b";", b"--")) or not octets.strip()
    if CHECKED.encode() in octets.partition(b"\n")[0] or last_line:
        sound = hashlib.sha256(body).hexdigest().encode() == checksum.strip()
    if not sound:
        raise DataFileError(f"{path} is damaged or incomplete: its end, or its checksum, is wrong; export it again.")


def _read_sql(path: Path) -> Contents:
    """Run a script in a database in memory that allows nothing but tables and rows."""
    octets = path.read_bytes()
    _check_script(path, octets)
    try:
        text = octets.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataFileError(f"{path} is not a script of export_index: not UTF-8; export it again.") from error
    first_line = FIRST_LINE.match(text)
    with closing(sqlite3.connect(":memory:")) as database:
        database.set_authorizer(_authorize)
        try:
            database.executescript(text)
        except (sqlite3.Error, ValueError) as error:
            raise DataFileError(f"{path} is not a script of export_index ({error}); export it again.") from error
        database.set_authorizer(None)
        return _read_items(database, path, int(first_line.group(1)) if first_line else None)


def _write_sqlite(index: HammingIndex, path: Path) -> None:
    """A new SQLite file; its ``user_version`` is the length of the codes."""
    try:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("PRAGMA journal_mode = OFF")  # a file that fails is removed anyway
            database.execute(f"PRAGMA user_version = {index.n_bits:d}")
            database.execute(_create_table(index))
            for rows in _rows(index):
                database.executemany("INSERT INTO items (id, code) VALUES (?, ?)", rows)
            database.execute("CREATE INDEX items_code ON items (code)")
            database.execute(f"PRAGMA application_id = {_row_check(_all_rows(database)):d}")
    except sqlite3.OperationalError as error:
        raise OSError(str(error)) from error


def _read_sqlite(path: Path) -> Contents:
    with closing(_open_to_read(path)) as database:
        try:
            n_bits = int(database.execute("PRAGMA user_version").fetchone()[0])
        except sqlite3.Error:  # not a database: reading its items says so
            n_bits = 0
        contents = _read_items(database, path, n_bits or None)
        expected = int(database.execute("PRAGMA application_id").fetchone()[0])
        if n_bits and expected and not any(expected == _row_check(_all_rows(database), text) for text in (ascii, repr)):
            raise DataFileError(f"{path} is damaged: its checksum differs; export it again.")
        return contents


def _all_rows(database: sqlite3.Connection) -> list[tuple[Any, Any]]:
    return database.execute("SELECT id, code FROM items ORDER BY rowid").fetchall()


def _row_check(rows: list[tuple[Any, Any]], text: Callable[[Any], str] = ascii) -> int:
    """Checksum of exported rows, as a signed integer that is not 0.

    ``ascii`` escapes all letters beyond ASCII; files written before have ``repr``, whose letters depend on the Unicode
    tables of the Python that wrote them.
    """
    return (zlib.crc32(text(rows).encode("utf-8", "surrogatepass")) or 1) - (1 << 31) or 1


def _open_to_read(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


def _is_store(path: Path) -> bool:
    """Whether a file is a database with collections of a store, or one that cannot be read."""
    try:  # SQLite opens the file; closing it in another way would drop the locks of a store opened by this process
        with closing(_open_to_read(path)) as database:
            found = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'shorthash_collections'").fetchall()
    except sqlite3.DatabaseError as error:
        return getattr(error, "sqlite_errorname", "") != "SQLITE_NOTADB"
    return bool(found)


def _create_table(index: HammingIndex) -> str:
    id_type = "TEXT" if index.ids.dtype.kind == "U" else "BIGINT"
    code_type = "SMALLINT" if index.n_bits <= 15 else "INTEGER" if index.n_bits <= 31 else "BIGINT"
    return f"CREATE TABLE items (id {id_type} PRIMARY KEY, code {code_type} NOT NULL)"


def _rows(index: HammingIndex) -> Iterator[list[tuple[Any, int]]]:
    ids, signed = index.ids, index.codes.astype(np.uint64).view(np.int64)
    for start in range(0, len(ids), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        yield list(zip(ids[part].tolist(), signed[part].tolist(), strict=True))


def _literal(value: int | str) -> str:
    """An id inside a statement."""
    if isinstance(value, int):
        return str(value)
    if "\0" in value:
        raise DataFileError(f"The id {value!r} holds a zero character, which SQL text cannot hold; rename it.")
    return "'" + value.replace("'", "''") + "'"


def _read_items(database: sqlite3.Connection, path: Path, n_bits: int | None) -> Contents:
    try:
        views = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'items' AND type <> 'table'").fetchall()
        rows = [] if views else _all_rows(database)
    except (sqlite3.Error, UnicodeDecodeError, MemoryError) as error:
        reason = str(error) or "a row is larger than the memory"
        raise DataFileError(f"{path} has no table items with id and code ({reason}); export it again.") from error
    if views:
        raise DataFileError(f"{path} has a view named items, not a table; export it again.")
    with _damage_explained(path):
        ids = np.array([i for i, _ in rows]) if rows else np.empty(0, dtype=np.int64)
        codes = np.array([code for _, code in rows], dtype=np.int64).view(np.uint64)
    return Contents(codes, ids, n_bits=n_bits)


@contextmanager
def _damage_explained(path: Path, *errors: type[Exception]) -> Iterator[None]:
    """Turn the errors of values that an export never holds into DataFileError."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, (TypeError, ValueError, OverflowError, KeyError, *errors)):
            raise
        reason = " ".join(str(error).split())[:100]
        raise DataFileError(
            f"{path} holds values that are neither ids nor codes ({reason}); export it again."
        ) from error


def _authorize(action: int, *names: str | None) -> int:
    """What a script may do: create tables and indexes, and insert rows."""
    allowed = {
        sqlite3.SQLITE_CREATE_INDEX,
        sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_REINDEX,
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_TRANSACTION,
    }
    internal = action == sqlite3.SQLITE_UPDATE and names[0] == "sqlite_master"
    return sqlite3.SQLITE_OK if action in allowed or internal else sqlite3.SQLITE_DENY


Writer = Callable[[HammingIndex, Path], None]
Reader = Callable[[Path], Contents]

FORMATS: dict[str, tuple[Writer, Reader]] = {
    ".faiss": (_write_faiss, _read_faiss),
    ".parquet": (_write_parquet, _read_parquet),
    ".sql": (_write_sql, _read_sql),
    ".db": (_write_sqlite, _read_sqlite),
    ".sqlite": (_write_sqlite, _read_sqlite),
    ".sqlite3": (_write_sqlite, _read_sqlite),
}


def _format(path: Path) -> tuple[Writer, Reader]:
    if path.suffix.lower() not in FORMATS:
        raise InvalidInput(f"An exported index must end in one of {', '.join(FORMATS)}. Got {path} instead.")
    return FORMATS[path.suffix.lower()]


Arrays = dict[str, NDArray[Any]]

PAGE = '''"""Feature rows become {n_bits}-bit codes; needs NumPy only. Made by shorthash {version} from {steps}."""

from pathlib import Path

import numpy as np

W = dict(np.load(Path(__file__).with_suffix(".npz")))


def project(X):
    """Real scores, (n_samples, {n_bits}), of rows with {n_features} features; their signs are the code."""
    X = np.asarray(X)
    X = X if X.dtype.kind == "f" else X.astype(np.float64)
{lines}
    return X


def encode(X):
    """Codes as integers, (n_samples,): bit j is set where score j is not negative."""
    bits = (project(X) >= 0).astype(np.uint64)
    return (bits << np.arange({n_bits}, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
'''


def export_encoder(hasher: Any, path: str | os.PathLike[str]) -> Path:
    """Write a fitted hasher as a Python file that needs only NumPy, and its arrays beside it as ``.npz``.

    The file has two functions: ``project(X)``, the real scores, and ``encode(X)``, packed codes, as
    ``pack(hasher.transform(X))`` gives them. Both take all rows at once; give large inputs in batches.

    Parameters
    ----------
    hasher : a fitted hasher with a linear hash function, alone or in a pipeline behind ``AnchorRBF``, ``Bias`` or
        ``StandardScaler``
    path : the file to write, ending in ``.py``

    Returns
    -------
    path : the file

    Examples
    --------
    >>> import runpy, tempfile
    >>> from shorthash import make_hasher
    >>> X = np.random.default_rng(0).normal(size=(50, 4))
    >>> hasher = make_hasher("lsh", n_bits=3, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     encode = runpy.run_path(str(export_encoder(hasher, f"{folder}/encoder.py")))["encode"]
    >>> (hasher.transform(X) > 0).dot([1, 2, 4]).tolist() == encode(X).tolist()
    True
    """
    target = Path(path)
    if target.suffix != ".py":
        raise InvalidInput(f"An encoder is a Python file, so its name must end in .py. Got {target} instead.")
    steps = steps_of(hasher)
    arrays: Arrays = {}
    lines: list[str] = []
    for number, step in enumerate(steps):
        check_is_fitted(step)
        code, named = _translated(step)
        arrays |= {f"{name}_{number}": array for name, array in named.items()}
        places = {name: f'W["{name}_{number}"]' for name in named}
        lines += [f"    {line.format(**places)}" for line in code]
    page = PAGE.format(
        n_bits=arrays[f"projection_{len(steps) - 1}"].shape[1],
        n_features=steps[0].n_features_in_,
        version=__version__,
        steps=", ".join(type(step).__name__ for step in steps),
        lines="\n".join(lines),
    )
    with replacing(target.with_suffix(".npz")) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    with replacing(target) as temporary:
        temporary.write_bytes(page.encode())
    return target


def _translated(step: Any) -> tuple[list[str], Arrays]:
    """A step of a pipeline as lines of code, and the arrays that they name in braces."""
    if isinstance(step, AnchorRBF):
        features: Any = step.features()
        lines = [
            "X = X - {shift}",
            "X = np.hstack([X, (X * X).sum(axis=1, keepdims=True), np.ones((len(X), 1))])",
            "X = np.exp(np.minimum(X @ {weights}, 0)) - {mean}",
        ]
        return lines, {"shift": features.shift, "weights": features.weights, "mean": step.mean_}
    if isinstance(step, Bias):
        return ["X = np.hstack([X, np.ones((len(X), 1))])"], {}
    if isinstance(step, StandardScaler):
        centre = np.zeros(step.n_features_in_) if step.mean_ is None else step.mean_
        width = np.ones(step.n_features_in_) if step.scale_ is None else step.scale_
        return ["X = (X - {centre}) / {width}"], {"centre": centre, "width": width}
    if isinstance(step, BaseHasher) and step._is_linear:
        arrays = {"projection": step.projection_, "intercept": np.asarray(step.intercept_)}
        return ["X = X @ {projection} + {intercept}"], arrays
    raise InvalidInput(
        "An encoder can be written for AnchorRBF, Bias, StandardScaler and hashers with a linear hash function. Got "
        f"{type(step).__name__} instead; save the model with save() and encode with this package."
    )
