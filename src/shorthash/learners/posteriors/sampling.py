"""Labels of a stream as numbers of label sets, and a sample of its rows.

Where rows have several labels, frequent label sets stand for rare ones (``_labels.py``); a sample knows both, those
that are learned and those that rows were given with.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Labels, is_foreign, like, to_numpy
from shorthash._labels import LabelGroups, group_labels
from shorthash.data.rows import Rows
from shorthash.data.streams import Block, Stream
from shorthash.learners.posteriors.folds import Folds
from shorthash.learners.posteriors.logistic import is_one_hot
from shorthash.learners.sums import GroupStatistics

HELD_OUT = 16_384  # rows of the sample that are held out
PATH_ROWS, PATH_ROWS_PER_SET = 20_000, 10  # other rows of the sample
SAMPLE_FLOATS = 1 << 27  # numbers that a sample may have: 512 MB in float32
FEWEST = 4  # rows of every label set in the sample, if it has that many
MARGIN = 6  # standard deviations of the number of rows below a limit, so that hardly ever too few are


@dataclass(frozen=True)
class Labelling:
    """How labels of a block become numbers of label sets.

    Attributes
    ----------
    owner : who learns; named in error messages
    classes : (c,) all classes
    given : (v, c) the label sets that occur
    rows : (u, c) those that are learned
    places : (v,) number of the one that stands for every set that occurs
    drop_unlabelled : True, or the class label of rows without one
    """

    owner: str
    classes: Labels
    given: NDArray[np.uint8]
    rows: NDArray[np.uint8]
    places: NDArray[np.intp]
    drop_unlabelled: bool | int | str = True

    @classmethod
    def of(
        cls, owner: str, seen: GroupStatistics, drop_unlabelled: bool | int | str = True
    ) -> tuple[GroupStatistics, Labelling]:
        """The statistics by the label sets to learn, and how labels become those."""
        known, places = seen.merged()
        return known, cls(owner, seen.classes, seen.rows, known.rows, places, drop_unlabelled)

    def __call__(self, block: Block) -> tuple[Any, Any, NDArray[np.int64]]:
        """Rows that have a label, the label sets learned for them, and their numbers."""
        X, ids, numbers = self.as_given(block)
        return X, ids if len(self.rows) == len(self.given) else like(self.places, ids)[ids], numbers

    def as_given(self, block: Block) -> tuple[Any, Any, NDArray[np.int64]]:
        """Rows that have a label, their label sets as given, and their numbers."""
        groups = group_labels(
            block.y,
            owner=self.owner,
            n_samples=len(block.X),
            classes=self.classes,
            drop_unlabelled=self.drop_unlabelled,
            keep_device=is_foreign(block.X),
        )
        if is_one_hot(self.given):
            places = groups.rows.argmax(axis=1)
        else:
            places = np.array([self._numbers[row.tobytes()] for row in groups.rows], dtype=np.intp)
        ids = like(like(places, groups.ids)[groups.ids], block.X)  # labels may lie elsewhere than the rows
        numbers = block.first + np.arange(len(block.X))
        if groups.kept is None:
            return block.X, ids, numbers
        return block.X[groups.kept], ids, numbers[groups.kept]

    def groups_of(self, given: NDArray[np.intp]) -> LabelGroups:
        """Some label sets as given, by their numbers."""
        present, ids = np.unique(given, return_inverse=True)
        return LabelGroups(self.classes, self.given[present], ids.reshape(-1))

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        """Number of a label set by the bytes of its row."""
        return {row.tobytes(): number for number, row in enumerate(self.given)}


@dataclass(frozen=True)
class Sample:
    """Some rows of a stream, in the order of their numbers.

    Attributes
    ----------
    numbers : (m,) of the rows
    X : (m, d) the rows
    ids : (m,) the label sets learned for them
    given : (m,) their label sets as given
    held : (m,) bool, those that are held out
    """

    numbers: NDArray[np.int64]
    X: NDArray[np.float32]
    ids: NDArray[np.intp]
    given: NDArray[np.intp]
    held: NDArray[np.bool_]

    @property
    def judged(self) -> NDArray[np.intp]:
        """Which of the rows that are held out have a label set that others of the sample have."""
        return Folds.one(self.held).judged(self.ids)


def draw_sample(
    stream: Stream, statistics: GroupStatistics, labelling: Labelling, rng: np.random.RandomState
) -> Sample:
    """A uniform sample of rows with labels, with a few rows more of label sets that would hardly be in it."""
    n, u = statistics.n_samples, len(statistics.counts)
    wanted = min(n, HELD_OUT + PATH_ROWS + PATH_ROWS_PER_SET * u, SAMPLE_FLOATS // stream.n_columns)
    drawn = _Drawn.of(n, wanted, rng) if n == len(stream) else _Lots.of(n, wanted, rng)
    rare = statistics.counts * (wanted / n) < FEWEST
    found = stream.total(_Picking(labelling, drawn, np.flatnonzero(rare)), _joined)
    order = np.argsort(found.numbers, kind="stable")
    chosen = order[_first_of_each(found.ids[order], drawn.chosen(found.numbers[order]))]
    ids = found.ids[chosen]
    held = np.zeros(len(ids), dtype=bool)
    spread = np.lexsort((rng.random_sample(len(ids)), ids))  # label sets side by side, rows in random order
    n_held = min(HELD_OUT, len(ids) // 4)
    held[spread[(np.arange(n_held) * len(ids)) // n_held]] = True
    return Sample(found.numbers[chosen], found.X[chosen], ids, found.given[chosen], held)


def labelled_rows(stream: Stream, labelling: Labelling) -> tuple[NDArray[np.int64], NDArray[np.float32], LabelGroups]:
    """All rows that have a label, few enough to be held: their numbers, the rows, and their label sets."""
    numbers, X, given = stream.total(_Labelled(labelling), stacked)
    order = np.argsort(numbers)
    return numbers[order], X[order], labelling.groups_of(given[order])


@dataclass(frozen=True)
class _Drawn:
    """Rows drawn by their numbers, where all rows have labels.

    Attributes
    ----------
    numbers : of the rows, ascending
    """

    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, n: int, wanted: int, rng: np.random.RandomState) -> _Drawn:
        """So many different numbers below n; of many without a list of all."""
        if n < 1 << 24:
            return cls(np.sort(rng.choice(n, size=wanted, replace=False)))
        some = np.unique(rng.randint(n, size=wanted + wanted // 4, dtype=np.int64))
        return cls(np.sort(rng.permutation(some)[:wanted]))

    def possible(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows of a block may be in the sample."""
        return np.isin(numbers, self.numbers, assume_unique=True)

    chosen = possible


@dataclass(frozen=True)
class _Lots:
    """Rows drawn by lots, where some rows have no label: the lot of a row follows from its number.

    Attributes
    ----------
    seed : of the lots
    wanted : number of rows
    limit : lots of some more rows than that are smaller
    """

    seed: int
    wanted: int
    limit: float

    @classmethod
    def of(cls, n: int, wanted: int, rng: np.random.RandomState) -> _Lots:
        """Lots for n rows, of which so many are wanted."""
        seed = int(rng.randint(np.iinfo(np.int64).max, dtype=np.int64))
        return cls(seed, wanted, (wanted + MARGIN * np.sqrt(wanted)) / n)

    def possible(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows of a block, all with labels, may be in the sample."""
        return np.asarray(self._lots(numbers) < self.limit)

    def chosen(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of all rows that may be in the sample are: those with the smallest lots."""
        lots = self._lots(numbers)
        chosen = np.zeros(len(numbers), dtype=bool)
        chosen[np.argsort(lots, kind="stable")[: self.wanted]] = True
        return chosen & (lots < self.limit)

    def _lots(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Numbers from 0 to 1 (SplitMix64)."""
        z = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(self.seed)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray((z ^ (z >> np.uint64(31))) * 2.0**-64)


def _first_of_each(ids: NDArray[np.intp], picked: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Rows that were picked, and the first others of every label set that has fewer than ``FEWEST`` of them."""
    missing = FEWEST - np.bincount(ids[picked], minlength=ids.max() + 1)
    others = np.flatnonzero(~picked)
    more = others[_ranks(ids[others]) < missing[ids[others]]]
    return np.sort(np.concatenate([np.flatnonzero(picked), more]))


def _ranks(ids: NDArray[np.intp]) -> NDArray[np.intp]:
    """How many equal entries precede each entry."""
    order, counts = np.argsort(ids, kind="stable"), np.bincount(ids)
    ranks = np.empty(len(ids), dtype=np.intp)
    ranks[order] = np.arange(len(ids)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranks


@dataclass(frozen=True)
class _Labelled:
    """Numbers of the rows of a block that have a label, the rows, and their label sets as given."""

    labelling: Labelling

    def __call__(self, block: Block) -> tuple[NDArray[Any], ...]:
        X, given, numbers = self.labelling.as_given(block)
        return numbers, np.asarray(to_numpy(X), dtype=np.float32), to_numpy(given)


def stacked(one: tuple[NDArray[Any], ...], two: tuple[NDArray[Any], ...]) -> tuple[NDArray[Any], ...]:
    """What was found in two blocks, one below the other."""
    return tuple(map(np.concatenate, zip(one, two, strict=True)))


@dataclass(frozen=True)
class _Picking:
    """Rows of a block that are in the sample, and some rows of every rare label set."""

    labelling: Labelling
    drawn: _Drawn | _Lots
    rare: NDArray[np.intp]

    def __call__(self, block: Block) -> Sample:
        X, given, numbers = self.labelling.as_given(block)
        given = to_numpy(given)
        ids = self.labelling.places[given]
        picked = self.drawn.possible(numbers)
        others = np.flatnonzero(~picked & np.isin(ids, self.rare))
        candidates = np.concatenate([np.flatnonzero(picked), others[_ranks(ids[others]) < FEWEST]])
        candidates.sort()
        rows = to_numpy(Rows(X, self.labelling.owner, first=block.first).take(candidates)).astype(np.float32)
        held = np.zeros(len(candidates), dtype=bool)
        return Sample(numbers[candidates], rows, ids[candidates], given[candidates], held)


def _joined(one: Sample, two: Sample) -> Sample:
    names = ("numbers", "X", "ids", "given", "held")
    return Sample(*(np.concatenate([getattr(s, name) for s in (one, two)]) for name in names))
