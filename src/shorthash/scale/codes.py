"""Codes of any number of rows: encoded block by block, written to a file, counted, scored and indexed."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from shorthash._arrays import Codes, PackedCodes, to_numpy
from shorthash._progress import with_progress
from shorthash._validation import check_n_bits, require_extra
from shorthash.codes import as_packed, pack, packed_dtype
from shorthash.codes.signs import code_length
from shorthash.data.files import check_target, replacing
from shorthash.data.streams import Block, Stream, as_stream
from shorthash.errors import DataFileError, InvalidInput
from shorthash.evaluation import CodeHistogram, Scores, evaluate_histogram
from shorthash.index.buckets import BucketIndex

MAX_COUNTED_BITS = 24  # distinct codes are counted in a table of at most 16 MiB

Progress = Callable[[str, int, int], None]


class EncodedFile(NamedTuple):
    """What :func:`encode_to_file` wrote."""

    n_rows: int
    n_bits: int
    distinct: int | None  # number of different codes; None for codes of more than 24 bits


def encoded(hasher: Any, source: Any, *, progress: Progress | None = None) -> Iterator[Codes]:
    """Codes of a stream, block by block, as signs, int8 of shape (n, n_bits).

    Parameters
    ----------
    hasher : any fitted hasher
    source : a stream, or anything that ``as_stream`` accepts
    progress : called with (what is being done, rows done, rows in all or 0)

    Yields
    ------
    ndarray
        The codes of a block.

    Examples
    --------
    >>> from shorthash import RSLH
    >>> hasher = RSLH(n_bits=4, random_state=0).fit(np.eye(3)[np.arange(60) % 3], np.arange(60) % 3)
    >>> [codes.shape for codes in encoded(hasher, np.eye(3))]
    [(3, 4)]
    """
    stream = as_stream(source)
    if stream.n_columns != hasher.n_features_in_:
        raise InvalidInput(
            f"The stream has {stream.n_columns} features per row, but the model was fitted on "
            f"{hasher.n_features_in_}; give features made in the same way, and say which columns are labels."
        )
    n_total = stream.known_length or 0
    start, done = time.monotonic(), 0
    for block in stream.blocks():
        yield np.asarray(to_numpy(hasher.transform(block.X)))
        done += len(block.X)
        if progress is not None:
            progress(f"encoding, {done / max(time.monotonic() - start, 1e-9):,.0f} rows/s", done, n_total)


@with_progress
def encode_to_file(
    hasher: Any, source: Any, path: str | Path, *, ids: ArrayLike | None = None, progress: Progress | None = None
) -> EncodedFile:
    """Write the codes of a stream as packed integers of the smallest unsigned type; a failure leaves no partial file.

    Parameters
    ----------
    hasher : any fitted hasher
    source : a stream, or anything that ``as_stream`` accepts
    path : a .parquet file (column ``code``) or a .npy file
    ids : (n_rows,) ids, written as column ``id`` of a .parquet file
    progress : called with (what is being done, rows done, rows in all or 0)

    Examples
    --------
    >>> import tempfile
    >>> from shorthash import RSLH
    >>> hasher = RSLH(n_bits=4, random_state=0).fit(np.eye(3)[np.arange(60) % 3], np.arange(60) % 3)
    >>> encode_to_file(hasher, np.eye(3), Path(tempfile.mkdtemp()) / "codes.npy")
    EncodedFile(n_rows=3, n_bits=4, distinct=3)
    """
    target = Path(path)
    check_target(target, ids=ids is not None)
    writers: dict[str, Callable[..., None]] = {".parquet": _write_parquet, ".npy": _write_npy}
    if target.suffix.lower() not in writers:
        raise DataFileError(f"Codes of a stream can be written to {' or '.join(writers)} files. Got {path} instead.")
    n_bits = check_n_bits(hasher[-1].n_bits if hasattr(hasher, "steps") else hasher.n_bits, "encode_to_file")
    used = np.zeros(1 << n_bits, dtype=bool) if n_bits <= MAX_COUNTED_BITS else None
    n_rows = 0

    def packed() -> Iterator[PackedCodes]:
        nonlocal n_rows
        for signs in encoded(hasher, source, progress=progress):
            codes = pack(signs)
            n_rows += len(codes)
            if used is not None:
                used[codes] = True
            yield codes

    with replacing(target) as temporary:
        writers[target.suffix.lower()](temporary, packed(), packed_dtype(n_bits), ids)
    return EncodedFile(n_rows, n_bits, None if used is None else int(np.count_nonzero(used)))


def code_histogram(codes: Any, labels: Any, n_bits: int | None = None) -> CodeHistogram:
    """How many items have each code and label set; a Dask array is counted by the workers.

    Parameters
    ----------
    codes : array or Dask array, (n, n_bits) signs, or (n,) integers, which need ``n_bits``
    labels : as many labels: an array, or a Dask array or series
    n_bits : length of packed codes

    Examples
    --------
    >>> code_histogram(np.array([[1, 1], [1, 1], [1, -1]]), ["a", "a", "b"]).counts.tolist()
    [2, 1]
    """
    length = code_length(codes, n_bits, "code_histogram")
    part = partial(_block_histogram, n_bits=length, packed=codes.ndim == 1)
    return _code_stream(codes, labels).total(part, CodeHistogram.merge)


def evaluate_collection(
    query_codes: ArrayLike, query_labels: ArrayLike, codes: Any, labels: Any, n_bits: int | None = None, **options: Any
) -> Scores:
    """Score queries against a database in Dask arrays; only its histogram leaves the workers.

    Parameters
    ----------
    query_codes, query_labels : the queries, in memory
    codes, labels, n_bits : the database, as for :func:`code_histogram`
    **options : as in :func:`shorthash.evaluation.evaluate`; ``ties="stable"`` is not possible

    Examples
    --------
    >>> codes = np.array([[1, 1], [1, 1], [1, -1]])
    >>> evaluate_collection([[1, 1]], ["a"], codes, ["a", "a", "b"]).map
    1.0
    """
    return evaluate_histogram(query_codes, query_labels, code_histogram(codes, labels, n_bits), **options)


def bucket_index(codes: Any, n_bits: int | None = None, ids: ArrayLike | None = None) -> BucketIndex:
    """An index of all items; codes in a Dask array are packed by the workers.

    Parameters
    ----------
    codes : array or Dask array, (n, n_bits) signs, or (n,) integers, which need ``n_bits``
    n_bits : length of packed codes
    ids : (n,) ids; default: the items are numbered

    Examples
    --------
    >>> len(bucket_index(np.array([[1, 1], [1, -1]])))
    2
    """
    length = code_length(codes, n_bits, "bucket_index")
    part = partial(_block_codes, n_bits=length, packed=codes.ndim == 1)
    return BucketIndex(length).add(np.concatenate(_code_stream(codes, None).total(part, operator.add)), ids=ids)


def _code_stream(codes: Any, labels: Any) -> Stream:
    """Codes as the rows of a stream; packed codes become one column."""
    return as_stream(codes if codes.ndim == 2 else codes[:, None], labels)


def _block_codes(block: Block, n_bits: int, packed: bool) -> list[PackedCodes]:
    """The packed codes of a block, in a list: lists add up without copying the codes."""
    return [as_packed(block.X[:, 0] if packed else block.X, n_bits)]


def _block_histogram(block: Block, n_bits: int, packed: bool) -> CodeHistogram:
    return CodeHistogram.of(_block_codes(block, n_bits, packed)[0], block.y, n_bits)


def _write_parquet(path: Path, blocks: Iterator[PackedCodes], dtype: Any, ids: ArrayLike | None) -> None:
    arrow = require_extra("pyarrow", "tables", "Writing .parquet files")
    parquet = require_extra("pyarrow.parquet", "tables", "Writing .parquet files")
    names = None if ids is None else arrow.array(np.asarray(ids))
    columns = [] if names is None else [("id", names.type)]
    schema = arrow.schema([*columns, ("code", arrow.from_numpy_dtype(dtype))])
    done = 0
    with parquet.ParquetWriter(path, schema) as writer:
        for codes in blocks:
            named = {} if names is None else {"id": names.slice(done, len(codes))}
            writer.write_table(arrow.table({**named, "code": codes}, schema=schema))
            done += len(codes)


def _write_npy(path: Path, blocks: Iterator[PackedCodes], dtype: Any, _ids: None) -> None:
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
