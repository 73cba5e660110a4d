"""Any number of rows: fit hashers on streams and Dask collections, save and merge their sums, encode and score.

Streams are defined in :mod:`shorthash.data.streams`; ``as_stream`` makes one of a file, a folder, batches or an array.
Sums over kernel features are meaningful only with the anchors they were made with, so :class:`Collected`, and a file
of it, holds both. Such a file is also the checkpoint of an interrupted pass. Files are written completely or not at
all, carry checksums, and hold no code.
"""

from __future__ import annotations

import copy
import operator
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from shorthash._arrays import Codes, PackedCodes, to_numpy
from shorthash._progress import OnStep, with_progress
from shorthash._validation import check_n_bits, require_extra, steps_of
from shorthash.codes import as_packed, pack, packed_dtype
from shorthash.codes.signs import code_length
from shorthash.data.files import check_target, replacing
from shorthash.data.streams import ArrayStream as ArrayStream
from shorthash.data.streams import BatchStream as BatchStream
from shorthash.data.streams import Block
from shorthash.data.streams import Stream as Stream
from shorthash.data.streams import as_stream as as_stream
from shorthash.data.tables import TableStream as TableStream
from shorthash.errors import DamagedFile, DataFileError, ForeignFile, InvalidInput, NoLabels, PersistenceError
from shorthash.evaluation import CodeHistogram, Scores, evaluate_histogram
from shorthash.index.buckets import BucketIndex
from shorthash.kernels.rbf import AnchorRBF
from shorthash.learners.eaph.estimator import EAPH
from shorthash.learners.sums import BlockSums, GroupStatistics, SumHasher
from shorthash.methods import RECIPES
from shorthash.persistence.files import is_save, read_save, write_file
from shorthash.persistence.saves import Decoder, Encoder
from shorthash.pipeline import HasherPipeline

KIND = "statistics"
MAX_COUNTED_BITS = 24  # distinct codes are counted in a table of at most 16 MiB

Hasher = TypeVar("Hasher", bound=BaseEstimator)


@dataclass(frozen=True)
class Collected:
    """Sums over the rows of one or more streams.

    Attributes
    ----------
    kernel : the kernel whose features were summed; None if the rows themselves were summed
    sums : GroupStatistics
    n_rows : rows read, including those without label
    n_total : rows of the stream that is being read; equal to ``n_rows`` at its end, None if not known
    """

    kernel: AnchorRBF | None
    sums: GroupStatistics
    n_rows: int
    n_total: int | None

    def merge(self, other: Collected) -> Collected:
        """The sums of both sets of rows; either may have classes that the other does not have."""
        self._check_same_kernel(other)
        n_rows = self.n_rows + other.n_rows
        return replace(self, sums=self.sums.join(other.sums), n_rows=n_rows, n_total=n_rows)

    def subtract(self, other: Collected) -> Collected:
        """The sums of these rows without the others, which must have been among them."""
        self._check_same_kernel(other)
        unknown = np.setdiff1d(other.sums.classes, self.sums.classes)
        if len(unknown):
            raise InvalidInput(
                f"Sums can be subtracted only from sums that contain them, but class {unknown.tolist()[0]!r} is not in "
                "them; check the order of the two."
            )
        remaining = self.sums.subtract(other.sums.over(self.sums.classes))
        if not len(remaining.counts):
            raise InvalidInput("Nothing is left after subtracting these sums; keep some rows.")
        n_rows = self.n_rows - other.n_rows
        return replace(self, sums=remaining, n_rows=n_rows, n_total=n_rows)

    def _check_same_kernel(self, other: Collected) -> None:
        a, b = self.kernel, other.kernel
        if a is None or b is None:
            same = a is b
        else:
            same = a.bandwidth_ == b.bandwidth_ and a.center == b.center and np.array_equal(a.anchors_, b.anchors_)
        if not same:
            raise InvalidInput(
                "Only sums over the same anchors and bandwidth can be combined; collect every part with the kernel of "
                "the first."
            )


@with_progress
def fit_stream(
    hasher: Hasher,
    source: Any,
    y: Any = None,
    *,
    label: str | list[str] | None = None,
    keep_kernel: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60,
    progress: OnStep | None = None,
) -> Hasher:
    """Fit a hasher on rows that need not fit in memory; the result is that of ``fit`` on all of them.

    Parameters
    ----------
    hasher : ``make_hasher("auto")``; or a pipeline of kernel and learner of sums, as ``make_hasher("rslh")`` gives, or
        such a learner alone
    source : a Parquet or Arrow file or folder, a .npy file, an array or memory map, batches (X, y), a Dask collection
    y : the labels, or a file of them, if the source does not contain them
    label : the column, or columns, of a table that hold the labels
    keep_kernel : use the anchors of the fitted kernel instead of drawing them from the stream
    checkpoint : file that keeps the sums while reading. If it exists, reading is resumed after the rows it covers. It
        is removed at the end
    checkpoint_seconds : least time between two checkpoints
    progress : called with (what is being done, rows done, rows in all or 0)

    Examples
    --------
    >>> from shorthash import make_hasher
    >>> def batches():
    ...     rng = np.random.default_rng(0)
    ...     for _ in range(5):
    ...         y = rng.integers(3, size=100)
    ...         yield np.eye(3)[y] + rng.normal(size=(100, 3)) / 9, y
    >>> hasher = make_hasher("rslh", n_bits=4, random_state=0, kernel__n_anchors=20)
    >>> fit_stream(hasher, batches)[-1].n_samples_seen_
    500
    """
    stream = as_stream(source, y, label=label)
    last, *before = reversed(steps_of(hasher))
    if isinstance(last, EAPH) and not before:
        if checkpoint is not None:
            raise InvalidInput(
                "The method auto (EAPH) reads a stream repeatedly and takes no checkpoint; leave the checkpoint out, "
                "or use the method sumeaph, which learns from sums."
            )
        last.fit_stream(stream, progress=progress)
        return hasher
    kernel, learner = _steps(hasher)
    learner._check_params()
    if kernel is not None and not keep_kernel:
        kernel = copy.copy(kernel)  # not a clone: a RandomState must be the same one
        kernel.__dict__.pop("anchors_", None)
    collected = collect(
        stream,
        kernel,
        owner=type(learner).__name__,
        drop_unlabelled=learner.drop_unlabelled,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
        progress=progress,
    )
    assert progress is not None
    progress("solving", 0, 0)
    fit_collected(hasher, collected)
    if checkpoint is not None:
        Path(checkpoint).unlink(missing_ok=True)
    return hasher


@with_progress
def collect(
    source: Any,
    kernel: AnchorRBF | None = None,
    *,
    owner: str = "collect",
    drop_unlabelled: bool | int | str = False,
    classes: ArrayLike | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60,
    progress: OnStep | None = None,
) -> Collected:
    """Add up the sums of a stream.

    Parameters
    ----------
    source : a stream, or anything that ``as_stream`` accepts
    kernel : the kernel; if it is not fitted, its anchors are drawn from the stream; None sums the rows as they are
    owner : the learner, named in error messages
    drop_unlabelled : drop rows without any label instead of raising
    classes : every class that may occur; None if any may
    checkpoint, checkpoint_seconds, progress : as in :func:`fit_stream`

    Examples
    --------
    >>> y = np.arange(60) % 3
    >>> monday, tuesday = collect([(np.eye(3)[y], y)]), collect([(np.eye(3)[y[:5]], y[:5])])
    >>> monday.merge(tuesday).n_rows, monday.subtract(tuesday).n_rows
    (65, 55)
    """
    stream = as_stream(source)
    assert progress is not None
    before = _resumed(checkpoint, stream, kernel)
    if before is not None:
        kernel = before.kernel
    elif kernel is not None and not hasattr(kernel, "anchors_"):
        progress("drawing anchors", 0, 0)
        kernel.fit_anchors_of(stream, stream.n_columns)
    if kernel is not None and stream.n_columns != kernel.n_features_in_:
        raise InvalidInput(
            f"The stream has {stream.n_columns} features per row, but the kernel was fitted on "
            f"{kernel.n_features_in_}; give rows made the same way."
        )
    part = BlockSums(owner, None if kernel is None else kernel.features(), drop_unlabelled, classes)
    if not stream.distributed:
        return _add_up(stream, part, kernel, before, progress, checkpoint, checkpoint_seconds)
    if checkpoint is not None:
        raise InvalidInput("A Dask collection takes no checkpoint: its scheduler repeats what was lost.")
    return Collected(kernel, stream.total(part, GroupStatistics.join), len(stream), len(stream))


def fit_collected(hasher: Hasher, collected: Collected) -> Hasher:
    """Fit a hasher from sums; any number of bits, and any learner of sums, can be fitted from the same sums.

    Parameters
    ----------
    hasher : a learner of sums, or a pipeline of a kernel and one
    collected : sums, as :func:`collect` gives

    Examples
    --------
    >>> from shorthash import RSLH
    >>> y = np.arange(60) % 3
    >>> sums = collect([(np.eye(3)[y], y)])
    >>> fit_collected(RSLH(n_bits=4, random_state=0), sums).n_samples_seen_
    60
    """
    kernel, learner = _steps(hasher)
    if (kernel is None) != (collected.kernel is None):
        summed = "kernel features" if collected.kernel is not None else "rows as they are"
        raise InvalidInput(
            f"These are sums over {summed}, which is not what {type(learner).__name__} needs here; collect them with "
            "the kernel of the hasher."
        )
    if isinstance(hasher, HasherPipeline) and collected.kernel is not None:
        hasher.fit_statistics(collected.kernel, collected.sums)
    else:
        learner.fit_statistics(collected.sums)
    learner.n_dropped_ = collected.n_rows - collected.sums.n_samples
    return hasher


def save_collected(collected: Collected, path: str | Path) -> Path:
    """Write sums and kernel to one file; an existing file is replaced in one step.

    Parameters
    ----------
    collected : sums, as :func:`collect` gives
    path : the file

    Examples
    --------
    >>> import tempfile
    >>> sums = collect([(np.eye(3), ["a", "b", "c"])])
    >>> load_collected(save_collected(sums, Path(tempfile.mkdtemp()) / "three.sums")).n_rows
    3
    """
    encoder = Encoder()
    fields = {
        "front": collected.kernel,
        "sums": collected.sums,
        "n_rows": collected.n_rows,
        "n_total": collected.n_total,
    }
    meta = {
        "kind": KIND,
        "class": "Statistics",
        "statistics": True,
        "summary": {
            "n_rows": collected.n_rows,
            "n_features": collected.sums.n_features,
            "n_classes": len(collected.sums.classes),
        },
        "value": encoder.encode(fields, "Collected"),
    }
    write_file(Path(path), meta, encoder.arrays)
    return Path(path)


def load_collected(path: str | Path) -> Collected:
    """Read what :func:`save_collected` wrote.

    Parameters
    ----------
    path : the file

    Examples
    --------
    >>> import tempfile
    >>> path = save_collected(collect([(np.eye(3), ["a", "b", "c"])]), Path(tempfile.mkdtemp()) / "three.sums")
    >>> load_collected(path).n_rows
    3
    """
    file = Path(path)
    if not file.exists():
        raise PersistenceError(f"There is no file {file}; check the path.")
    if not is_save(file):
        raise ForeignFile(f"{file} holds no sums of shorthash; give a file of shorthash sums collect.")
    meta, arrays = read_save(file, mmap=False)
    if meta.get("kind") != KIND:
        held = meta.get("class")
        raise ForeignFile(f"{file} holds {held}, but sums are needed; give a file of shorthash sums collect.")
    try:
        fields: dict[str, Any] = Decoder(arrays).decode(meta["value"])
        collected = Collected(kernel=fields.pop("front"), **fields)
        kernel, sums = collected.kernel, collected.sums
        if type(sums) is not GroupStatistics or type(kernel) not in (AnchorRBF, type(None)):
            raise ValueError("it holds other objects than sums and a kernel")
        sums.check_loaded(collected.n_rows)
        if kernel is not None:
            kernel.check_loaded(sums.n_features)
        return collected
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise DamagedFile(f"{file} cannot be read back: {error}; collect the sums again.") from error


def _add_up(
    stream: Stream,
    part: BlockSums,
    kernel: AnchorRBF | None,
    before: Collected | None,
    report: OnStep,
    checkpoint: str | Path | None,
    checkpoint_seconds: float,
) -> Collected:
    """Add up the sums of the blocks after those of the checkpoint, and write a checkpoint from time to time."""
    sums = None if before is None else before.sums
    n_rows = n_before = 0 if before is None else before.n_rows
    n_total = stream.known_length
    started = saved = time.monotonic()
    nothing = InvalidInput("The stream has no rows; give at least one.")
    for block in stream.blocks(n_before):
        try:
            more = part(block)
        except NoLabels as error:
            nothing = error
        else:
            sums = more if sums is None else sums.join(more)
        n_rows += len(block.X)
        now = time.monotonic()
        rate = (n_rows - n_before) / max(now - started, 1e-9)
        report(f"adding up rows, {rate:,.0f} rows/s", n_rows, n_total or 0)
        if checkpoint is not None and sums is not None and now - saved >= checkpoint_seconds:
            save_collected(Collected(kernel, sums, n_rows, n_total), checkpoint)
            saved = time.monotonic()
    if sums is None:
        raise nothing
    return Collected(kernel, sums, n_rows, n_rows)


def _steps(hasher: BaseEstimator) -> tuple[AnchorRBF | None, SumHasher]:
    """Kernel and learner of a hasher; raises unless the learner needs only sums."""
    steps = steps_of(hasher)
    if isinstance(steps[-1], SumHasher) and len(steps) == 1:
        return None, steps[-1]
    if isinstance(steps[-1], SumHasher) and len(steps) == 2 and isinstance(steps[0], AnchorRBF):
        return steps[0], steps[-1]
    names = " -> ".join(type(step).__name__ for step in steps)
    methods = [
        name
        for name, recipe in RECIPES.items()
        if recipe.preprocessing in ((), ("kernel",)) and issubclass(recipe.learner_class(), SumHasher)
    ]
    raise InvalidInput(
        f"{names} needs all its rows at once, so it cannot learn from a stream; read them into memory, or use a method "
        f"that learns from sums: {', '.join(methods)}."
    )


def _resumed(checkpoint: str | Path | None, stream: Stream, kernel: AnchorRBF | None) -> Collected | None:
    """The contents of a checkpoint; raises if it belongs to other rows or to another kernel."""
    if checkpoint is None or not Path(checkpoint).exists():
        return None
    before = load_collected(checkpoint)
    same = None in (before.n_total, stream.known_length) or before.n_total == stream.known_length
    if kernel is None or before.kernel is None:
        same = same and kernel is before.kernel
    else:
        same = same and _settings(kernel) == _settings(before.kernel)
        same = same and before.kernel.n_features_in_ == stream.n_columns
    if not same:
        raise InvalidInput(
            f"The checkpoint {checkpoint} belongs to other rows or to another kernel; remove it to start again, or "
            "name another file."
        )
    return before


def _settings(kernel: AnchorRBF) -> dict[str, Any]:
    """Parameters of a kernel that can be compared."""
    return {name: value for name, value in kernel.get_params().items() if name != "random_state"}


class EncodedFile(NamedTuple):
    """What :func:`encode_to_file` wrote."""

    n_rows: int
    n_bits: int
    distinct: int | None  # number of different codes; None for codes of more than 24 bits


def encoded(hasher: Any, source: Any, *, progress: OnStep | None = None) -> Iterator[Codes]:
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
    hasher: Any, source: Any, path: str | Path, *, ids: ArrayLike | None = None, progress: OnStep | None = None
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
    n_bits = check_n_bits(steps_of(hasher)[-1].n_bits, "encode_to_file")
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
