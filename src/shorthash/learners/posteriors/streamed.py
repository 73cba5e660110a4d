r"""Logistic posteriors of any number of rows: the model of logistic.py, learned by reading a stream repeatedly.

Nothing but the passes grows with the number of rows. A sample of the rows is kept: one part of it is held out, for the
temperature and the posteriors that codes are designed with; the other chooses the penalty, which is then scaled to the
number of rows (a prior of fixed strength), and gives the start. The weights minimise the same log-loss as in memory,
added up in float64 over the blocks of the stream, by L-BFGS; every evaluation is one pass. Arrays of torch or CuPy are
summed up where they are.

Legend: V (d, d) whitening, W (d, c) weights, A = V W, r = sqrt(d) / |V'(x - m)|, S = r (x - m) A + b logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Floats, is_foreign, like, namespace, to_numpy
from shorthash.data.rows import BATCH_ROWS
from shorthash.data.streams import ArrayStream, Block, Stream
from shorthash.kernels.rbf import AnchorRBF
from shorthash.learners.posteriors.folds import (
    FOLDED_ROWS,
    SMALLEST,
    Fitted,
    Folds,
    calibrate,
    in_threads,
    scaled,
    softmax,
)
from shorthash.learners.posteriors.logistic import (
    PATH_TOLERANCE,
    PENALTIES,
    TOLERANCE,
    LogLinear,
    column_scales,
    descend,
    is_one_hot,
    shrunk,
    whitening,
)
from shorthash.learners.posteriors.memory import Remembered, Sketching
from shorthash.learners.posteriors.models import combined
from shorthash.learners.posteriors.ridge import (
    N_ANCHORS,
    KernelRidge,
    KernelSystem,
    best_link,
    feature_sums,
    fit_ridge,
    kernel_tried,
)
from shorthash.learners.posteriors.sampling import Labelling, Sample, stacked
from shorthash.learners.sums import GroupStatistics

MOST_PASSES = 40
TRIAL_ROWS = 10_000  # rows of the sample that it is tried on
KNOWN_ROWS = 1 << 26  # rows of which label set and length are kept from the first pass on: 12 bytes each
REFIT = 0.02  # share of the rows held out from which on they are learned from in the end

Progress = Callable[[str, int, int], None]


def _silent(_what: str, _done: int, _total: int) -> None:
    pass


def fit_streamed(
    stream: Stream, statistics: GroupStatistics, labelling: Labelling, sample: Sample, progress: Progress
) -> tuple[str, Fitted]:
    """Name and model of all rows, with posteriors of held-out rows by a model that did not see them.

    A kernel model is added where it takes away enough of the log-loss, first on the sample.
    """
    held = sample.held
    scales = column_scales(sample.X, sample.ids, labelling.rows, Folds.one(held))
    space = _space(statistics, labelling.rows, scales)
    Z, ids = space.scaled(sample.X[held]), sample.ids[held]
    path = Passes(_beside(stream, sample), _known_sets, np.flatnonzero(held), space)
    start, pull = _best_penalty(path, Z, ids, sample.judged)
    passes = Passes(stream, labelling, np.sort(sample.numbers[held]), space, progress)
    learned = passes.fitted(start, pull, n_before=(~held).sum())
    fitted = replace(_calibrated(learned, Z, ids, sample.judged), scaled=scales is not None)
    model = fitted.model
    assert isinstance(model, LogLinear)
    name = fitted.called(f"logistic, penalty {model.penalty:.2g}")
    refit = held.sum() >= REFIT * statistics.counts.sum()
    if refit:
        everything = replace(passes, held=np.empty(0, dtype=np.int64), lengths=Lengths())
        whole = everything.fitted(replace(model, penalty=start.penalty), pull, n_before=(~held).sum())
        fitted = replace(fitted, model=replace(whole, temperature=model.temperature))
    worth = _trial(_calibrated(start, Z, ids, sample.judged), sample, labelling.rows)
    if worth is None:
        return name, fitted
    kernel, scales = worth
    counts = statistics.counts - np.bincount(ids, minlength=len(statistics.counts))
    sums = passes.total(_KernelSums(passes, kernel, scales))
    system = KernelSystem.of(kernel, sums.slope, sums.bias, counts, scales)
    scores = system.scores(sample.X[held])
    link = best_link(scores, ids, sample.judged)
    if refit:
        more = feature_sums(kernel, scaled(sample.X[held], scales), ids, len(counts))
        system = KernelSystem.of(kernel, sums.slope + more[0], sums.bias + more[1], statistics.counts, scales)
    second = Fitted(system.model(link), link.posteriors(scores[link.ridge]), link.loss)
    together = combined(fitted, second, ids, sample.judged)
    return (name, fitted) if together is None else (f"{name}, with a kernel", together)


def remembered_stream(stream: Stream, labelling: Labelling, sample: Sample) -> Remembered:
    """All rows of a stream, remembered; those of the sample that are held out, by the others."""
    sketching = Sketching.of_rows(sample.X)
    numbers, sketches, ids = stream.total(_Sketches(labelling, sketching), stacked)
    order = np.argsort(numbers)
    folds = Folds.one(np.isin(numbers[order], sample.numbers[sample.held]))
    return Remembered.of_rows(sketching, sketches[order], ids[order], len(labelling.rows), folds)


@dataclass(frozen=True)
class _Sketches:
    """Numbers, sketches and label sets of the rows of a block."""

    labelling: Labelling
    sketching: Sketching

    def __call__(self, block: Block) -> tuple[NDArray[Any], ...]:
        X, ids, numbers = self.labelling(block)
        return numbers, self.sketching.sketches(to_numpy(X)), to_numpy(ids)


def _calibrated(model: LogLinear, Z: NDArray[np.float32], ids: NDArray[np.intp], judged: NDArray[np.intp]) -> Fitted:
    """A model with the temperature of least log-loss on held-out rows, and their posteriors."""
    S = model.scores(Z)
    temperature, loss = calibrate(S, ids, judged)
    return Fitted(replace(model, temperature=temperature), softmax(temperature * S), loss)


def _trial(first: Fitted, sample: Sample, Yg: NDArray[np.uint8]) -> tuple[AnchorRBF, Floats | None] | None:
    """Kernel and scales of a second model that is worth its time, judged on the sample; None where there is none."""
    if not kernel_tried(FOLDED_ROWS, len(Yg), sample.X.shape[1]):
        return None
    seen = np.flatnonzero(~sample.held)[:TRIAL_ROWS]
    held = np.flatnonzero(sample.held)
    rows = np.concatenate([seen, held])
    folds = Folds.one(np.arange(len(rows)) >= len(seen))
    second = fit_ridge(sample.X[rows], sample.ids[rows], Yg, folds)
    ridge = second.model
    assert isinstance(ridge, KernelRidge)
    if combined(first, second, sample.ids[held], sample.judged) is None:
        return None
    fresh: AnchorRBF = AnchorRBF(min(N_ANCHORS, len(seen)), bandwidth=ridge.kernel.bandwidth_, random_state=0)
    return fresh.fit(scaled(sample.X[seen], ridge.scales)), ridge.scales


def _beside(stream: Stream, sample: Sample) -> Stream:
    """The sample as a stream, on the device of the rows."""
    block = None if stream.distributed else next(iter(stream.blocks()), None)
    if block is None or not is_foreign(block.X):
        return ArrayStream(sample.X, sample.ids)
    return ArrayStream(like(sample.X, block.X), like(sample.ids, block.X))


def _known_sets(block: Block) -> tuple[Any, Any, NDArray[np.int64]]:
    """The labelling of a sample, whose labels are numbers of label sets."""
    return block.X, block.y, block.first + np.arange(len(block.X))


def _best_penalty(
    path: Passes, Z: NDArray[np.float32], ids: NDArray[np.intp], judged: NDArray[np.intp]
) -> tuple[LogLinear, float]:
    """The model of the penalty of least log-loss on held-out rows, from strong to weak; and how far to pull."""
    target, _ = path.target()
    pull = calibrate(target.scores(Z), ids, judged)[0] if is_one_hot(target.label_rows) else 1.0
    model = target = replace(target, weights=pull * target.weights)
    best, least = model, np.inf
    for penalty in PENALTIES:
        model = path.minimised(replace(target, penalty=penalty), model, PATH_TOLERANCE)
        loss = calibrate(model.scores(Z), ids, judged)[1]
        if loss >= least:
            break
        best, least = model, loss
    return best, pull


def _space(statistics: GroupStatistics, Yg: NDArray[np.uint8], scales: Floats | None = None) -> LogLinear:
    """Centre and whitening of all rows, from their sums; weights and biases still 0."""
    N, n = statistics.counts, statistics.counts.sum()
    means = statistics.sums / N  # (d, u)
    center = means.mean(axis=1)
    moved = statistics.centred(center)
    within = (moved.gram - (moved.sums / N) @ moved.sums.T) / n
    scales = np.ones(len(center)) if scales is None else scales
    V = scales[:, None] * whitening(shrunk((within + within.T) / 2 * np.outer(scales, scales)))
    d, (u, c) = len(center), Yg.shape
    bias = np.zeros(u) if is_one_hot(Yg) else np.log((N + 0.5) / n)
    return LogLinear(center, 1.0, np.zeros((d, c)), bias, Yg, 1.0, 0.0, V)


@dataclass(frozen=True)
class Passes:
    """A stream that is read repeatedly.

    Attributes
    ----------
    stream : the rows and their labels
    labelling : what turns labels into label sets
    held : numbers of the rows that are left out, ascending
    space : centre, whitening and label sets
    progress : called at every block
    lengths : label sets and r of the rows of every block, kept from the first pass on
    """

    stream: Stream
    labelling: Callable[[Block], tuple[Any, Any, NDArray[np.int64]]]
    held: NDArray[np.int64]
    space: LogLinear
    progress: Progress = _silent
    lengths: Lengths = field(default_factory=lambda: Lengths())

    def fitted(self, start: LogLinear, pull: float, *, n_before: int) -> LogLinear:
        """The model of least log-loss, from a model of fewer rows, whose penalty is scaled to the number of rows."""
        target, n = self.target()
        target = replace(target, weights=pull * target.weights, penalty=start.penalty * n_before / n)
        return self.minimised(target, start, TOLERANCE)

    def target(self) -> tuple[LogLinear, int]:
        """Directions of the means of the label sets, which a penalty draws towards; and the number of rows."""
        found = self.total(_Directions(self))
        if not is_one_hot(self.space.label_rows):
            return self.space, found.n
        length = np.maximum(np.linalg.norm(found.slope, axis=0), SMALLEST)
        return replace(self.space, weights=found.slope / length), found.n

    def minimised(self, target: LogLinear, start: LogLinear, tolerance: float) -> LogLinear:
        """The model of least log-loss and penalty; every evaluation is a pass."""
        V = target.whitening
        assert V is not None

        def loss(model: LogLinear) -> tuple[float, Floats, Floats]:
            A, b = V @ model.weights, model.bias
            found = self.total(_Slope(self, A.astype(np.float32), b.astype(np.float32)))
            return found.value / found.n, V.T @ found.slope / found.n, found.bias / found.n

        return descend(loss, start, target, tolerance, MOST_PASSES)

    def total(self, part: Callable[[Block], Sums]) -> Sums:
        """The sums of all blocks."""
        if self.stream.distributed:
            return self.stream.total(part, Sums.plus)
        n = self.stream.known_length or 0

        def reported(block: Block) -> Sums:
            self.progress("learning posteriors", block.first, n)
            return part(block)

        return self.stream.total(reported, Sums.plus)

    def rows(self, block: Block) -> tuple[Any, Any, Any]:
        """Rows of a block that are learned from, less the centre, as float32; their r; and their label sets."""
        known = self.lengths.of(block.first, len(self.held))
        places, ids = (known.places, known.ids) if known else self._places(block)
        X = block.X if places is None else block.X[places]
        xp = namespace(X)
        D = xp.astype(X, xp.float32, copy=False) - like(self.space.center.astype(np.float32), X)
        if known:
            return D, known.r, ids
        assert self.space.whitening is not None
        V = like(self.space.whitening.astype(np.float32), X)
        squares = [xp.sum((D[i : i + BATCH_ROWS] @ V) ** 2, axis=1) for i in range(0, len(D), BATCH_ROWS)]
        r = D.shape[1] ** 0.5 / xp.sqrt(xp.clip(xp.concat(squares), SMALLEST**2, None))
        self.lengths.keep(block.first, len(self.held), KnownBlock(places, ids, r))
        return D, r, ids

    def kept(self, block: Block) -> tuple[Any, Any]:
        """Rows of a block that are learned from, as they are, and their label sets."""
        known = self.lengths.of(block.first, len(self.held))
        places, ids = (known.places, known.ids) if known else self._places(block)
        return block.X if places is None else block.X[places], ids

    def _places(self, block: Block) -> tuple[Any, Any]:
        """Which rows of a block are learned from, None for all; and their label sets."""
        _, ids, numbers = self.labelling(block)
        low, high = np.searchsorted(self.held, [block.first, block.first + len(block.X)])
        if high == low and len(numbers) == len(block.X):
            return None, ids
        left = np.flatnonzero(~np.isin(numbers, self.held[low:high], assume_unique=True))
        return like(numbers[left] - block.first, ids), ids[like(left, ids)]


class KnownBlock(NamedTuple):
    """What is the same in every pass."""

    places: Any
    ids: Any
    r: Any


class Lengths:
    """What is known of every block, up to a number of rows; a copy that is sent to another process knows nothing."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], KnownBlock] = {}
        self._n_rows = 0

    def of(self, first: int, n_held: int) -> KnownBlock | None:
        """What is known of the block that begins with a row."""
        return self._known.get((first, n_held))

    def keep(self, first: int, n_held: int, block: KnownBlock) -> None:
        """Remember a block."""
        self._n_rows += len(block.ids)
        if self._n_rows <= KNOWN_ROWS:
            self._known[first, n_held] = block

    def __reduce__(self) -> Any:
        return Lengths, ()


@dataclass(frozen=True)
class Sums:
    """Sums over rows: of the log-loss, of its slope by A and b, and of 1."""

    value: float
    slope: Floats  # (d, c)
    bias: Floats  # (u,)
    n: int

    def plus(self, other: Sums) -> Sums:
        """The sums of both."""
        return Sums(self.value + other.value, self.slope + other.slope, self.bias + other.bias, self.n + other.n)


@dataclass(frozen=True)
class _Directions:
    """Sums of the normalised whitened rows of every label set, as ``slope``."""

    passes: Passes

    def __call__(self, block: Block) -> Sums:
        space = self.passes.space
        D, r, ids = self.passes.rows(block)
        d, u = D.shape[1], len(space.label_rows)
        if not is_one_hot(space.label_rows):
            return Sums(0.0, np.zeros((d, 1)), np.zeros(u), len(D))
        xp = namespace(D)
        assert space.whitening is not None
        if is_foreign(D):
            E = xp.astype(ids[:, None] == like(np.arange(u), D)[None, :], xp.float64)
            sums = to_numpy(E.T @ xp.astype(D * r[:, None], xp.float64))
            return Sums(0.0, space.whitening.T @ sums.T, np.zeros(u), len(D))
        order = np.argsort(ids, kind="stable")
        filled = np.unique(ids)
        starts = np.searchsorted(ids[order], filled)
        sums = np.zeros((u, d))
        sums[filled] = np.add.reduceat((D * r[:, None])[order], starts, axis=0, dtype=np.float64)
        return Sums(0.0, space.whitening.T @ sums.T, np.zeros(u), len(D))


@dataclass(frozen=True)
class _Slope:
    """Log-loss of a block and its slope, at A and b."""

    passes: Passes
    A: NDArray[np.float32]
    b: NDArray[np.float32]

    def __call__(self, block: Block) -> Sums:
        D, r, ids = self.passes.rows(block)
        size = len(D) if is_foreign(D) else BATCH_ROWS
        A, b = like(self.A, D), like(self.b, D)
        Yg = self.passes.space.label_rows
        L = None if is_one_hot(Yg) else like(Yg.astype(np.float32), D)

        def batch(start: int) -> Sums:
            part = slice(start, start + size)
            return _batch_sums(D[part], r[part], ids[part], A, b, L)

        starts = range(0, len(D), size)
        parts = [batch(start) for start in starts] if is_foreign(D) else in_threads(batch, starts)
        return reduce(Sums.plus, parts)


@dataclass(frozen=True)
class _KernelSums:
    """Products of the kernel features of a block as ``slope``, and their sums of every label set as ``bias``."""

    passes: Passes
    kernel: AnchorRBF
    scales: Floats | None

    def __call__(self, block: Block) -> Sums:
        X, ids = self.passes.kept(block)
        u = len(self.passes.space.label_rows)

        def batch(start: int) -> Sums:
            part = slice(start, start + BATCH_ROWS)
            rows = scaled(X[part], self.scales)
            return Sums(0.0, *feature_sums(self.kernel, rows, ids[part], u), len(ids[part]))

        starts = range(0, len(X), BATCH_ROWS)
        parts = [batch(start) for start in starts] if is_foreign(X) else in_threads(batch, starts)
        return reduce(Sums.plus, parts)


def _batch_sums(D: Any, r: Any, ids: Any, A: Any, b: Any, L: Any) -> Sums:
    """Sums of a batch, computed in float32, added up in float64; L (u, c) label sets, None if they are the classes."""
    xp = namespace(D)
    S = (D @ A) * r[:, None]
    if L is not None:
        S = S @ L.T
    S += b
    S -= xp.max(S, axis=1, keepdims=True)
    rows = xp.arange(len(D), device=D.device) if is_foreign(D) else np.arange(len(D))
    own = xp.sum(S[rows, ids], dtype=xp.float64)
    S = xp.exp(S) if is_foreign(S) else np.exp(S, out=S)
    total = xp.sum(S, axis=1)
    value = xp.sum(xp.log(total), dtype=xp.float64) - own
    S /= total[:, None]
    S[rows, ids] -= 1
    bias = xp.sum(S, axis=0, dtype=xp.float64)
    G = S if L is None else S @ L
    G *= r[:, None]
    slope = xp.astype(D.T @ G, xp.float64)
    return Sums(float(value), to_numpy(slope), to_numpy(bias), len(D))
