"""Fitting a stream on one machine: anchors from the whole of it, then one pass that can be broken off and resumed."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from shorthash.data.streams import BatchStream, Stream, as_stream
from shorthash.errors import InvalidInput
from shorthash.kernels.rbf import AnchorRBF
from shorthash.learners.statistics import GroupStatistics
from shorthash.learners.sums import BlockSums, SumHasher
from shorthash.methods import RECIPES
from shorthash.recipes import HasherPipeline
from shorthash.scale.collected import Collected, load_collected, save_collected

__all__ = ["Tell", "collect", "fit_collected", "fit_stream"]

Tell = Callable[[str, int, int], None]
"""A function of what is being done, rows done, rows in all (0 if not known)."""

Hasher = TypeVar("Hasher", bound=BaseEstimator)


def fit_stream(
    hasher: Hasher,
    source: Any,
    y: Any = None,
    *,
    label: str | list[str] | None = None,
    keep_front: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60,
    tell: Tell | None = None,
) -> Hasher:
    """Fit a hasher on rows that need not fit in memory; the outcome is that of ``fit`` on all of them.

    Parameters
    ----------
    hasher : a pipeline of kernel and learner of sums, as ``make_hasher("rslh")`` gives, or such a learner alone
    source : a Parquet or Arrow file or folder, a .npy file, an array or memory map, batches (X, y), a Dask collection
    y : the labels, or a file of them, where the source does not bring them
    label : the column, or columns, of a table that hold the labels
    keep_front : use the anchors of the fitted front end instead of drawing them from the stream
    checkpoint : file to keep the sums in while reading; where it exists, reading goes on after what it holds. It is
        removed at the end
    checkpoint_seconds : least time between two checkpoints
    tell : called with what is being done, rows done and rows in all

    Examples
    --------
    >>> import numpy as np
    >>> from shorthash import make_hasher
    >>> rng = np.random.default_rng(0)
    >>> def batches():
    ...     rng = np.random.default_rng(0)
    ...     for _ in range(5):
    ...         y = rng.integers(3, size=100)
    ...         yield np.eye(3)[y] + rng.normal(size=(100, 3)) / 9, y
    >>> hasher = make_hasher("rslh", n_bits=4, random_state=0, front_end={"n_anchors": 20})
    >>> fit_stream(hasher, batches)[-1].n_samples_seen_
    500
    """
    stream = as_stream(source, y, label=label)
    front, learner = _parts(hasher)
    learner._check_params()
    collected = collect(
        stream,
        front if keep_front or front is None else _unfitted(front),
        owner=type(learner).__name__,
        drop_unlabelled=learner.drop_unlabelled,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
        tell=tell,
    )
    if tell is not None:
        tell("solving", 0, 0)
    fit_collected(hasher, collected)
    if checkpoint is not None:
        Path(checkpoint).unlink(missing_ok=True)
    return hasher


def collect(
    source: Any,
    front: AnchorRBF | None = None,
    *,
    owner: str = "collect",
    drop_unlabelled: bool = False,
    classes: ArrayLike | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60,
    tell: Tell | None = None,
) -> Collected:
    """Add up the sums of a stream.

    Parameters
    ----------
    source : a stream, or what ``as_stream`` makes one of
    front : the kernel; fitted, it is used as it is, otherwise its anchors are drawn from the stream; None sums the rows
        as they come
    owner : who learns; named in error messages
    drop_unlabelled : drop rows without any label instead of raising
    classes : every class that may occur; None where any may
    checkpoint, checkpoint_seconds, tell : as in :func:`fit_stream`
    """
    stream = as_stream(source)
    before = _resumed(checkpoint, stream, front)
    if before is not None:
        front = before.front
    elif front is not None and not hasattr(front, "anchors_"):
        if tell is not None:
            tell("drawing anchors", 0, 0)
        front.fit_anchors_of(stream, stream.n_columns)
    if front is not None and stream.n_columns != front.n_features_in_:
        raise InvalidInput(
            f"The stream has {stream.n_columns} features per row, but the front end was fitted on "
            f"{front.n_features_in_}; give rows made the same way."
        )
    part = BlockSums(owner, None if front is None else front.features(), drop_unlabelled, classes)
    if type(stream).total is not Stream.total:  # an engine that adds up by itself
        if checkpoint is not None:
            raise InvalidInput("A Dask collection takes no checkpoint: its scheduler repeats what was lost.")
        return Collected(front, stream.total(part, GroupStatistics.join), len(stream), len(stream))
    keeper = _Keeper(front, checkpoint, checkpoint_seconds, tell, _length(stream), before)
    for block in stream.blocks(keeper.n_rows):
        keeper.add(part(block), len(block.X))
    return keeper.finished()


def fit_collected(hasher: Hasher, collected: Collected) -> Hasher:
    """Fit a hasher from sums; any number of bits, and any learner of sums, can be fitted from the same."""
    front, learner = _parts(hasher)
    if (front is None) != (collected.front is None):
        has = "kernel features" if collected.front is not None else "rows as they came"
        raise InvalidInput(
            f"These statistics are sums over {has}, which is not what {type(learner).__name__} gets here; collect them "
            "with the front end that the hasher has."
        )
    if isinstance(hasher, HasherPipeline) and collected.front is not None:
        hasher.fit_statistics(collected.front, collected.sums)
    else:
        learner.fit_statistics(collected.sums)
    learner.n_dropped_ = collected.n_rows - collected.sums.n_samples
    return hasher


class _Keeper:
    """The sums so far, written to a file now and then."""

    def __init__(
        self,
        front: AnchorRBF | None,
        checkpoint: str | Path | None,
        seconds: float,
        tell: Tell | None,
        n_total: int | None,
        before: Collected | None,
    ) -> None:
        self.front = front
        self.checkpoint = checkpoint
        self.seconds = seconds
        self.tell = tell
        self.n_total = n_total
        self.sums = None if before is None else before.sums
        self.n_rows = self.n_before = 0 if before is None else before.n_rows
        self.started = self.saved = time.monotonic()

    def add(self, sums: GroupStatistics, n_rows: int) -> None:
        """Take in the sums of a block."""
        self.sums = sums if self.sums is None else self.sums.join(sums)
        self.n_rows += n_rows
        now = time.monotonic()
        if self.tell is not None:
            rate = (self.n_rows - self.n_before) / max(now - self.started, 1e-9)
            self.tell(f"adding up rows, {rate:,.0f} rows/s", self.n_rows, self.n_total or 0)
        if self.checkpoint is not None and now - self.saved >= self.seconds:
            save_collected(self._collected(self.sums), self.checkpoint)
            self.saved = time.monotonic()

    def finished(self) -> Collected:
        """The sums of the whole stream."""
        if self.sums is None:
            raise InvalidInput("The stream has no rows; give at least one.")
        self.n_total = self.n_rows
        return self._collected(self.sums)

    def _collected(self, sums: GroupStatistics) -> Collected:
        return Collected(self.front, sums, self.n_rows, self.n_total)


def _parts(hasher: BaseEstimator) -> tuple[AnchorRBF | None, SumHasher]:
    """Front end and learner; raises unless the learner needs only sums."""
    steps = [step for _, step in getattr(hasher, "steps", [("", hasher)])]
    if isinstance(steps[-1], SumHasher) and len(steps) == 1:
        return None, steps[-1]
    if isinstance(steps[-1], SumHasher) and len(steps) == 2 and isinstance(steps[0], AnchorRBF):
        return steps[0], steps[-1]
    names = " -> ".join(type(step).__name__ for step in steps)
    raise InvalidInput(
        f"{names} needs all its rows at once, so it cannot learn from a stream; read them into memory, or use a method "
        f"that learns from sums: {', '.join(_sum_methods())}."
    )


def _unfitted(front: AnchorRBF) -> AnchorRBF:
    """The same front end without its anchors; not a clone, because a RandomState must be the same one."""
    fresh = copy.copy(front)
    fresh.__dict__.pop("anchors_", None)
    return fresh


def _sum_methods() -> list[str]:
    """Names of the methods that can be streamed."""
    found = (name for name, recipe in RECIPES.items() if issubclass(recipe.learner_class(), SumHasher))
    return [name for name in found if RECIPES[name].front_end in ((), ("kernel",))]


def _length(stream: Stream) -> int | None:
    """Number of rows, unless it takes a reading to find out."""
    return None if isinstance(stream, BatchStream) and not stream.length_known else len(stream)


def _resumed(checkpoint: str | Path | None, stream: Stream, front: AnchorRBF | None) -> Collected | None:
    """What a checkpoint holds; raises if it belongs to something else."""
    if checkpoint is None or not Path(checkpoint).exists():
        return None
    before = load_collected(checkpoint)
    n_total = _length(stream)
    same = before.n_total is None or n_total is None or before.n_total == n_total
    same = same and (front is None) == (before.front is None)
    if front is not None and before.front is not None:
        same = same and _told(front) == _told(before.front) and before.front.n_features_in_ == stream.n_columns
    if not same:
        raise InvalidInput(
            f"The checkpoint {checkpoint} belongs to other rows or to another front end; remove it to begin anew, or "
            "name another file."
        )
    return before


def _told(front: AnchorRBF) -> dict[str, Any]:
    """Parameters that can be compared."""
    return {name: value for name, value in front.get_params().items() if name != "random_state"}
