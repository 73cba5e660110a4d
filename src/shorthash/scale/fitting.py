"""Fitting from sums: one pass over a stream, which can be interrupted and resumed; sums can be saved and merged.

Sums over kernel features mean something only together with the anchors they were made with, so :class:`Collected` holds
both, and one file holds both. Such a file is also the checkpoint of an interrupted pass. Files are written completely
or not at all, carry checksums, and hold no code.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from shorthash._progress import with_progress
from shorthash.data.streams import Stream, as_stream
from shorthash.errors import DamagedFile, ForeignFile, InvalidInput, PersistenceError
from shorthash.kernels.rbf import AnchorRBF
from shorthash.learners.eaph.estimator import EAPH
from shorthash.learners.sums import BlockSums, GroupStatistics, SumHasher
from shorthash.methods import RECIPES
from shorthash.persistence.files import is_save, read_save, write_file
from shorthash.persistence.saves import Decoder, Encoder
from shorthash.pipeline import HasherPipeline

KIND = "statistics"

Progress = Callable[[str, int, int], None]
"""A function of what is being done, rows done, and rows in all (0 if not known)."""

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
    progress: Progress | None = None,
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
    last = getattr(hasher, "steps", [("", hasher)])[-1][1]
    if isinstance(last, EAPH) and len(getattr(hasher, "steps", [last])) == 1:
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
    progress: Progress | None = None,
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
        _check_kernel(collected.kernel, collected.sums)
        _check_sums(collected.sums, collected.n_rows)
        return collected
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise DamagedFile(f"{file} cannot be read back: {error}; collect the sums again.") from error


def _check_kernel(kernel: Any, sums: GroupStatistics) -> None:
    """Raise ValueError unless what a file held is a fitted kernel whose features were summed, or None."""
    if kernel is None:
        return
    if type(kernel) is not AnchorRBF or type(kernel.bandwidth_) is not float or type(kernel.center) is not bool:
        raise ValueError("its kernel is invalid")
    m = sums.n_features
    if kernel.anchors_.ndim != 2 or len(kernel.anchors_) != m or kernel.mean_.shape != (m,):
        raise ValueError("its kernel does not fit its sums")
    if kernel.n_features_in_ != kernel.anchors_.shape[1] or not 0 < kernel.bandwidth_ < np.inf:
        raise ValueError("its kernel is invalid")
    if not (np.isfinite(kernel.anchors_).all() and np.isfinite(kernel.mean_).all()):
        raise ValueError("its anchors are not finite")


def _check_sums(sums: Any, n_rows: Any) -> None:
    """Raise ValueError unless what a file held can be sums over rows whose norm has the bound that it states."""
    d, u, c = len(sums.gram), len(sums.counts), len(sums.classes)
    shapes = [sums.classes.ndim, sums.rows.shape, sums.counts.shape, sums.sums.shape, sums.gram.shape]
    if type(sums) is not GroupStatistics or not u or shapes != [1, (u, c), (u,), (d, u), (d, d)]:
        raise ValueError("its arrays do not fit each other")
    if sums.rows.dtype != np.uint8 or sums.rows.max(initial=0) > 1 or not sums.rows.any(axis=1).all():
        raise ValueError("its label rows are invalid")
    if type(n_rows) is not int or not (sums.counts >= 1).all() or not sums.counts.sum() <= n_rows:
        raise ValueError("its numbers of rows contradict each other")
    norm = (1 + 1e-9) * sums.largest_norm + 1e-300
    within = np.abs(sums.sums) <= sums.counts * norm
    if not (norm < np.inf and within.all() and (np.abs(sums.gram) <= sums.counts.sum() * norm**2).all()):
        raise ValueError("its sums are larger than rows of this norm can give")


def _add_up(
    stream: Stream,
    part: BlockSums,
    kernel: AnchorRBF | None,
    before: Collected | None,
    report: Progress,
    checkpoint: str | Path | None,
    checkpoint_seconds: float,
) -> Collected:
    """Add up the sums of the blocks after those of the checkpoint, and write a checkpoint from time to time."""
    sums = None if before is None else before.sums
    n_rows = n_before = 0 if before is None else before.n_rows
    n_total = stream.known_length
    started = saved = time.monotonic()
    for block in stream.blocks(n_before):
        more = part(block)
        sums = more if sums is None else sums.join(more)
        n_rows += len(block.X)
        now = time.monotonic()
        rate = (n_rows - n_before) / max(now - started, 1e-9)
        report(f"adding up rows, {rate:,.0f} rows/s", n_rows, n_total or 0)
        if checkpoint is not None and now - saved >= checkpoint_seconds:
            save_collected(Collected(kernel, sums, n_rows, n_total), checkpoint)
            saved = time.monotonic()
    if sums is None:
        raise InvalidInput("The stream has no rows; give at least one.")
    return Collected(kernel, sums, n_rows, n_rows)


def _steps(hasher: BaseEstimator) -> tuple[AnchorRBF | None, SumHasher]:
    """Kernel and learner of a hasher; raises unless the learner needs only sums."""
    steps = [step for _, step in getattr(hasher, "steps", [("", hasher)])]
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
