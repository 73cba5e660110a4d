"""Encoding a stream: codes block by block, into a file or to whoever asks for them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from shorthash._arrays import to_numpy
from shorthash._types import Codes, PackedCodes
from shorthash._validation import check_n_bits, require_extra
from shorthash.codes import pack, packed_dtype
from shorthash.data.files import check_target, replacing
from shorthash.data.streams import BatchStream, as_stream
from shorthash.errors import DataFileError, InvalidInput
from shorthash.scale.streaming import Tell

__all__ = ["CodeCounts", "encode_to_file", "encoded"]

MOST_COUNTED_BITS = 24  # codes in use are counted in a table of at most 16 MiB


class CodeCounts:
    """How many rows were written, and how many different codes."""

    def __init__(self, n_bits: int) -> None:
        self.n_bits = n_bits
        self.n_rows = 0
        self._used = np.zeros(1 << n_bits, dtype=bool) if n_bits <= MOST_COUNTED_BITS else None

    def add(self, codes: PackedCodes) -> None:
        """Take in some codes."""
        self.n_rows += len(codes)
        if self._used is not None:
            self._used[codes] = True

    @property
    def distinct(self) -> int | None:
        """Different codes so far; None for codes too long to keep a table of."""
        return None if self._used is None else int(np.count_nonzero(self._used))


def encoded(hasher: Any, source: Any, *, tell: Tell | None = None) -> Iterator[Codes]:
    """Codes of a stream, block by block, as signs, int8 of shape (n, n_bits).

    Parameters
    ----------
    hasher : any fitted hasher
    source : a stream, or what ``as_stream`` makes one of
    tell : called with what is being done, rows done and rows in all
    """
    stream = as_stream(source)
    n_total = 0 if isinstance(stream, BatchStream) and not stream.length_known else len(stream)
    if stream.n_columns != hasher.n_features_in_:
        raise InvalidInput(
            f"The stream has {stream.n_columns} features per row, but the model was learned from "
            f"{hasher.n_features_in_}; give features made in the same way, and say which columns are labels."
        )
    start, done = time.monotonic(), 0
    for block in stream.blocks():
        yield np.asarray(to_numpy(hasher.transform(block.X)))
        done += len(block.X)
        if tell is not None:
            tell(f"encoding, {done / max(time.monotonic() - start, 1e-9):,.0f} rows/s", done, n_total)


def encode_to_file(hasher: Any, source: Any, path: str | Path, *, tell: Tell | None = None) -> CodeCounts:
    """Write the codes of a stream as packed integers of the smallest unsigned type; the file appears whole or not.

    Parameters
    ----------
    hasher : any fitted hasher
    source : a stream, or what ``as_stream`` makes one of
    path : a .parquet file (one column, ``code``) or a .npy file
    tell : called with what is being done, rows done and rows in all
    """
    target = Path(path)
    check_target(target)
    writers = {".parquet": _write_parquet, ".npy": _write_npy}
    if target.suffix.lower() not in writers:
        raise DataFileError(f"Codes of a stream can be written to {' or '.join(writers)} files. Got {path} instead.")
    n_bits = check_n_bits(hasher[-1].n_bits if hasattr(hasher, "steps") else hasher.n_bits, "encode_to_file")
    counts = CodeCounts(n_bits)

    def packed() -> Iterator[PackedCodes]:
        for signs in encoded(hasher, source, tell=tell):
            codes = pack(signs)
            counts.add(codes)
            yield codes

    with replacing(target) as temporary:
        writers[target.suffix.lower()](temporary, packed(), packed_dtype(n_bits))
    return counts


def _write_parquet(path: Path, blocks: Iterator[PackedCodes], dtype: Any) -> None:
    arrow = require_extra("pyarrow", "tables", "Writing .parquet files")
    parquet = require_extra("pyarrow.parquet", "tables", "Writing .parquet files")
    schema = arrow.schema([("code", arrow.from_numpy_dtype(dtype))])
    with parquet.ParquetWriter(path, schema) as writer:
        for codes in blocks:
            writer.write_table(arrow.table({"code": codes}, schema=schema))


def _write_npy(path: Path, blocks: Iterator[PackedCodes], dtype: Any) -> None:
    """A .npy file whose length is written last; NumPy's headers leave room for it."""
    n = 0
    with path.open("wb") as file:
        file.write(_npy_header(dtype, 0))
        for codes in blocks:
            file.write(np.ascontiguousarray(codes).data)
            n += len(codes)
        file.seek(0)
        file.write(_npy_header(dtype, n))


def _npy_header(dtype: Any, n: int) -> bytes:
    buffer = BytesIO()
    contents = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": (n,)}
    np.lib.format.write_array_header_1_0(buffer, contents)
    return buffer.getvalue()
