"""Learning from sums over rows: the sums, and the base class of learners that need nothing else.

Sums can be added, merged, subtracted and streamed, and so can such a learner: ``partial_fit``, ``merge``, ``forget``.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from shorthash._arrays import Codes, Floats, Labels, is_foreign, like, namespace, to_numpy
from shorthash._labels import LabelGroups, frequent_sets, group_labels
from shorthash.data.rows import Rows, validated
from shorthash.data.streams import Block, Stream, known_stream
from shorthash.errors import CodesChangedWarning, InvalidInput
from shorthash.learners.base import SupervisedHasher

ROUNDED_UP = 1 + 1e-5  # a norm summed in float32 stays an upper bound


@dataclass(frozen=True)
class GroupStatistics:
    """Sufficient statistics of labelled rows, grouped by identical label row.

    Attributes
    ----------
    classes : (c,) the classes
    rows : (u, c) uint8, the label rows of the groups, in canonical order (descending), none empty
    counts : (u,) N, rows per group
    sums : (d, u) M = X'E, sum of the rows of every group
    gram : (d, d) K = X'X
    largest_norm : an upper bound of the norm of any row

    All sums are float64. With float32 products of uncentred kernel features the ridge solution is silently destroyed
    (``tests/learners/test_rslh_onepass.py::test_the_ridge_solution_survives_uncentred_kernel_features``).
    """

    classes: Labels
    rows: NDArray[np.uint8]
    counts: Floats
    sums: Floats
    gram: Floats
    largest_norm: float

    @property
    def n_samples(self) -> int:
        """Rows seen and not forgotten."""
        return round(float(self.counts.sum()))

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return len(self.gram)

    def check_loaded(self, n_rows: Any) -> None:
        """Raise ValueError unless what a file held can be sums over rows whose norm has the bound that it states."""
        d, u, c = len(self.gram), len(self.counts), len(self.classes)
        shapes = [self.classes.ndim, self.rows.shape, self.counts.shape, self.sums.shape, self.gram.shape]
        if not u or shapes != [1, (u, c), (u,), (d, u), (d, d)]:
            raise ValueError("its arrays do not fit each other")
        if self.rows.dtype != np.uint8 or self.rows.max(initial=0) > 1 or not self.rows.any(axis=1).all():
            raise ValueError("its label rows are invalid")
        if type(n_rows) is not int or not (self.counts >= 1).all() or not self.counts.sum() <= n_rows:
            raise ValueError("its numbers of rows contradict each other")
        norm = (1 + 1e-9) * self.largest_norm + 1e-300
        within = np.abs(self.sums) <= self.counts * norm
        if not (norm < np.inf and within.all() and (np.abs(self.gram) <= self.counts.sum() * norm**2).all()):
            raise ValueError("its sums are larger than rows of this norm can give")

    def mean(self) -> Floats:
        """Mean row, (d,)."""
        return np.asarray(self.sums.sum(axis=1) / self.counts.sum())

    def centred(self, mean: Floats) -> GroupStatistics:
        """The statistics of the same rows with ``mean`` subtracted from each; the rows themselves are not needed."""
        n = self.counts.sum()
        total = self.sums.sum(axis=1)
        gram = self.gram - np.outer(mean, total) - np.outer(total - n * mean, mean)
        return replace(
            self,
            sums=self.sums - np.outer(mean, self.counts),
            gram=(gram + gram.T) / 2,
            largest_norm=self.largest_norm + float(np.linalg.norm(mean)),
        )

    def merged(self) -> tuple[GroupStatistics, NDArray[np.intp]]:
        """The statistics by the label sets to learn, and the place of each set among those (``frequent_sets``)."""
        kept, places = frequent_sets(self.rows, self.counts)
        if len(kept) == len(self.rows):
            return self, places
        counts, sums = np.zeros(len(kept)), np.zeros((len(kept), self.n_features))
        np.add.at(counts, places, self.counts)
        np.add.at(sums, places, self.sums.T)
        return replace(self, rows=self.rows[kept], counts=counts, sums=np.ascontiguousarray(sums.T)), places

    def largest_products(self, P: Floats) -> Floats:
        """A bound of max_i |x_i p| for every column p of P, (L,): by norms of row and column, or by the norm of X p."""
        by_norms = self.largest_norm * np.linalg.norm(P, axis=0)
        by_column = np.sqrt(np.maximum(np.sum(P * (self.gram @ P), axis=0), 0.0))
        return np.asarray(np.minimum(by_norms, by_column))

    def merge(self, other: GroupStatistics) -> GroupStatistics:
        """The statistics of both sets of rows together."""
        return self._combine(other, +1)

    def subtract(self, other: GroupStatistics) -> GroupStatistics:
        """The statistics without the other rows, which must be among these."""
        return self._combine(other, -1)

    def join(self, other: GroupStatistics) -> GroupStatistics:
        """Like ``merge``, but either side may have classes that the other does not have."""
        if np.array_equal(self.classes, other.classes):
            return self.merge(other)
        if (self.classes.dtype.kind in "OUS") != (other.classes.dtype.kind in "OUS"):
            raise InvalidInput(
                f"Labels must be of one type throughout. Got {self.classes.dtype} and {other.classes.dtype}; convert "
                "one of them."
            )
        classes = np.union1d(self.classes, other.classes)
        return self.over(classes).merge(other.over(classes))

    def over(self, classes: Labels) -> GroupStatistics:
        """The same statistics over more classes; possible if classes have names, or every row has one label."""
        if np.array_equal(self.classes, classes):
            return self
        if self.classes.dtype.kind not in "US" and (self.rows.sum(axis=1) != 1).any():
            raise InvalidInput(
                "Statistics of rows with several labels can be combined only over the same classes. Got "
                f"{len(self.classes)} classes here and {len(classes)} in all; build every label matrix with the same "
                "columns."
            )
        rows = np.zeros((len(self.rows), len(classes)), dtype=np.uint8)
        rows[:, np.searchsorted(classes, self.classes)] = self.rows
        order = np.lexsort(rows.T[::-1])[::-1]  # descending, as group_labels orders them
        return replace(self, classes=classes, rows=rows[order], counts=self.counts[order], sums=self.sums[:, order])

    def _combine(self, other: GroupStatistics, direction: int) -> GroupStatistics:
        if self.n_features != other.n_features or not np.array_equal(self.classes, other.classes):
            raise InvalidInput(
                f"Statistics can be combined only over the same features and classes. Got {self.n_features} features "
                f"and {len(self.classes)} classes, and {other.n_features} and {len(other.classes)}; use the same "
                "kernel and pass the same classes."
            )
        distinct, home = self.rows, np.tile(np.arange(len(self.rows)), 2)
        if not np.array_equal(self.rows, other.rows):
            both = np.packbits(np.concatenate([self.rows, other.rows]), axis=1)  # keeps the lexicographic order
            packed, home = np.unique(both, axis=0, return_inverse=True)
            distinct = np.unpackbits(packed[::-1], axis=1, count=len(self.classes))
            home = len(distinct) - 1 - home.reshape(-1)
        counts = np.zeros(len(distinct))
        sums = np.zeros((self.n_features, len(distinct)))
        for side, places, factor in ((self, home[: len(self.rows)], 1), (other, home[len(self.rows) :], direction)):
            counts[places] += factor * side.counts
            sums[:, places] += factor * side.sums
        if counts.min() < 0:
            raise InvalidInput(
                "Rows can be forgotten only if they were learned before, but the given rows have "
                f"{round(-counts.min())} more samples of one label set than were learned; check the labels."
            )
        kept = counts > 0
        return replace(
            self,
            rows=distinct[kept],
            counts=counts[kept],
            sums=sums[:, kept],
            gram=self.gram + direction * other.gram,
            largest_norm=max(self.largest_norm, other.largest_norm),
        )

    @classmethod
    def of(cls, rows: Rows, groups: LabelGroups) -> GroupStatistics:
        """One pass over the rows, on their device; only the sums are copied back."""
        total: _Sums | None = None
        for part, batch in rows.reported("adding up rows"):
            more = _Sums.of(batch, groups.ids[part], len(groups.rows))
            total = more if total is None else total.add(more)
        if total is None:
            raise InvalidInput("There are no rows to learn from; pass at least one.")
        sums = np.ascontiguousarray(to_numpy(total.sums).T)
        counts = to_numpy(total.counts).astype(np.float64)
        return cls(groups.classes, groups.rows, counts, sums, to_numpy(total.gram), float(total.largest_norm))


@dataclass
class _Sums:
    """Sums over batches, as arrays of the same package as the rows."""

    counts: Any  # (u,)
    sums: Any  # (u, d)
    gram: Any  # (d, d)
    largest_norm: Any

    @classmethod
    def of(cls, batch: Any, ids: Any, u: int) -> _Sums:
        """Sums over the rows of a batch."""
        if is_foreign(batch):
            return cls._on_device(batch, ids, u)
        X = np.asarray(batch, dtype=np.float64)  # (b, d)
        E: Any = sparse.csr_array((np.ones(len(ids)), (ids, np.arange(len(ids)))), shape=(u, len(ids)))
        largest = float(np.sqrt(np.einsum("ij,ij->i", X, X).max()))
        return cls(np.bincount(ids, minlength=u), E @ X, X.T @ X, largest)

    @classmethod
    def _on_device(cls, batch: Any, ids: Any, u: int) -> _Sums:
        xp = namespace(batch)
        X = xp.astype(batch, xp.float64, copy=False)
        groups = like(np.arange(u), batch)
        own = ids if is_foreign(ids) else like(ids, batch)
        E = xp.astype(own[:, None] == groups[None, :], xp.float64)  # (b, u)
        largest = xp.max(xp.linalg.vector_norm(batch, axis=1)) * ROUNDED_UP
        return cls(xp.sum(E, axis=0), E.T @ X, X.T @ X, largest)

    def add(self, other: _Sums) -> _Sums:
        """Add other sums in place."""
        self.counts += other.counts
        self.sums += other.sums
        self.gram += other.gram
        if is_foreign(self.gram):
            self.largest_norm = namespace(self.gram).maximum(self.largest_norm, other.largest_norm)
        else:
            self.largest_norm = max(self.largest_norm, other.largest_norm)
        return self


@dataclass(frozen=True)
class BlockSums:
    """Statistics of one block of a stream: a pure function, so a block that is computed twice is counted once.

    Attributes
    ----------
    owner : the estimator that learns, for error messages
    features : a map that is applied to the rows first; None for none
    drop_unlabelled : drop rows without any label instead of raising
    classes : all classes that may occur; None for any
    """

    owner: str
    features: Callable[[Any], Any] | None = None
    drop_unlabelled: bool | int | str = False
    classes: ArrayLike | None = None

    def __call__(self, block: Block) -> GroupStatistics:
        """Statistics of a block."""
        if block.y is None:
            raise InvalidInput(
                f"{self.owner} learns from labels, but the stream has none; name the column that holds them, or pass "
                "batches as pairs (X, y)."
            )
        groups = group_labels(
            block.y,
            owner=self.owner,
            n_samples=len(block.X),
            classes=self.classes,
            drop_unlabelled=self.drop_unlabelled,
            keep_device=True,
        )
        rows = Rows(block.X, self.owner, () if self.features is None else (self.features,), first=block.first)
        return GroupStatistics.of(rows.keep(groups.kept), groups)


@dataclass(frozen=True)
class Summed:
    """Sums over labelled rows, and the rows themselves if they are available.

    Attributes
    ----------
    statistics : GroupStatistics, the sums
    n_dropped : rows without label, which are not in the sums
    rows, groups : the rows that are in the sums, and their label sets; None if the rows are not available
    """

    statistics: GroupStatistics
    n_dropped: int = 0
    rows: Rows | None = None
    groups: LabelGroups | None = None

    def centred(self, mean: Floats) -> Summed:
        """The same with ``mean`` subtracted from every row."""
        rows = None if self.rows is None else self.rows.through(lambda batch: batch - like(mean, batch))
        return replace(self, statistics=self.statistics.centred(mean), rows=rows)


class SumHasher(SupervisedHasher):
    """A supervised hasher that needs only sums over rows.

    Rows may come in batches, be added (``partial_fit``, ``merge``) and be removed (``forget``), and the result is
    always that of ``fit`` on the remaining rows. A learner defines ``_learn``.

    Attributes
    ----------
    classes_ : (c,) the classes
    statistics_ : GroupStatistics, the sums over the rows that the learner gets
    codewords_ : (u, n_bits) the learned code of every label set
    label_sets_ : (u, c) the label rows that occurred
    codes_ : (n_samples, n_bits) learned codes of the training rows; only after ``fit`` on all rows
    n_samples_seen_ : int, rows learned from and not forgotten
    n_dropped_ : int, rows without label in the last call

    Examples
    --------
    >>> from shorthash import RSLH
    >>> from shorthash.learners import SumHasher
    >>> X, y = np.eye(3)[[0, 1, 2] * 8], np.array([0, 1, 2] * 8)
    >>> hasher = RSLH(n_bits=4, random_state=0).partial_fit(X[:12], y[:12], classes=[0, 1, 2])
    >>> hasher = hasher.partial_fit(X[12:], y[12:])
    >>> isinstance(hasher, SumHasher), hasher.n_samples_seen_
    (True, 24)
    """

    statistics_: GroupStatistics
    drop_unlabelled: bool | int | str

    @abstractmethod
    def _learn(self, rows: Rows | None = None, groups: LabelGroups | None = None) -> Self:
        """Solve from ``statistics_`` (and the rows, if they are available) and set every fitted attribute."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from all rows at once.

        Parameters
        ----------
        X : (n_samples, n_features) features, for instance from ``AnchorRBF``; a memory map is read in batches, an array
            on a GPU is summed on the GPU, a Dask collection by its workers
        y : (n_samples,) class labels, or an (n_samples, n_classes) indicator matrix of 0/1 or -1/+1
        """
        stream = known_stream(X, y)
        if stream is not None:
            return self.fit_stream(stream)
        values = validated(self, X, reset=True, min_samples=2, keep_device=True)
        return self.fit_sums(self.sum_up(Rows(values, self._name), y))

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Learn from more rows; the result is that of ``fit`` on all rows so far.

        Parameters
        ----------
        X : (n_samples, n_features) features
        y : labels, as in ``fit``
        classes : all classes that will occur; used at the first call, default: the classes of ``y``
        """
        self._check_memory()
        values = validated(self, X, reset=not hasattr(self, "statistics_"), keep_device=True)
        more = self.sum_up_more(Rows(values, self._name), y, classes)
        first = not hasattr(self, "statistics_")
        return self.learn_more(more.statistics if first else self.statistics_.merge(more.statistics), more)

    def forget(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Remove rows learned before; the result is that of ``fit`` on the remaining rows."""
        check_is_fitted(self)
        values = validated(self, X, reset=False, keep_device=True)
        less = self.sum_up_more(Rows(values, self._name), y)
        return self.learn_from(self.remaining(less), less)

    def merge(self, other: Self) -> Self:
        """Add the rows that another such learner has learned from, with the same features and classes."""
        check_is_fitted(self)
        check_is_fitted(other)
        self._check_memory()
        other._check_memory()
        return self.learn_from(self.statistics_.merge(other.statistics_))

    def fit_stream(self, stream: Stream) -> Self:
        """``fit`` on a stream."""
        self._check_params()
        return self.fit_sums(self.sum_up_stream(stream))

    def fit_statistics(self, statistics: GroupStatistics) -> Self:
        """``fit`` from sums that were computed before, also with ``merge``, ``join`` or ``subtract``."""
        return self.fit_sums(Summed(statistics))

    def sum_up(self, rows: Rows, y: ArrayLike | None) -> Summed:
        """Sums over all training rows, read in batches; rows and labels are checked."""
        self._check_params()
        groups = self._training_groups(y, len(rows), drop_unlabelled=self.drop_unlabelled, keep_device=True)
        self._check_groups(groups)
        rows.check_varied()
        kept = rows.keep(groups.kept)
        statistics = GroupStatistics.of(kept, groups)
        return Summed(statistics, len(rows) - len(kept), kept, replace(groups, ids=to_numpy(groups.ids)))

    def sum_up_stream(self, stream: Stream, features: Callable[[Any], Any] | None = None) -> Summed:
        """The same for a stream; ``features`` is applied to its rows."""
        statistics = stream.total(self.block_sums(features), GroupStatistics.join)
        return Summed(statistics, len(stream) - statistics.n_samples)

    def sum_up_more(self, rows: Rows, y: ArrayLike, classes: ArrayLike | None = None) -> Summed:
        """Sums over rows to be added or removed."""
        self._check_memory()
        self._check_params()
        first = not hasattr(self, "statistics_")
        self._check_classes(classes, first=first)
        groups = group_labels(
            y,
            owner=self._name,
            n_samples=len(rows),
            classes=classes if first else self.classes_,
            drop_unlabelled=self.drop_unlabelled,
        )
        self._check_groups(groups)
        statistics = GroupStatistics.of(rows.keep(groups.kept), groups)
        return Summed(statistics, len(rows) - groups.n_samples)

    def remaining(self, less: Summed) -> GroupStatistics:
        """The sums without some of the rows."""
        left = self.statistics_.subtract(less.statistics)
        if not len(left.counts):
            raise InvalidInput("Forgetting these rows would leave no rows to learn from; keep some, or fit again.")
        return left

    def fit_sums(self, summed: Summed) -> Self:
        """``fit`` from sums, and from the rows if they are available."""
        self._check_params()
        seen = summed.statistics
        self._check_groups(LabelGroups(seen.classes, seen.rows, np.arange(len(seen.rows))))
        if len(seen.rows) < 2:
            raise InvalidInput(
                f"The statistics for {self._name} hold {len(seen.rows)} label set only, but a code can be learned from "
                "2 or more; add rows of another class, or use an unsupervised method."
            )
        self._warn_of_collisions(len(seen.classes), stacklevel=4)
        self.n_features_in_ = seen.n_features
        self.n_dropped_ = summed.n_dropped
        self.classes_, self.statistics_ = seen.classes, seen
        self._draw_seed()
        return self._learn(summed.rows, summed.groups)

    def learn_from(self, statistics: GroupStatistics, change: Summed | None = None) -> Self:
        """Solve from new sums; ``change`` is what was added or removed."""
        self._check_params()
        if not hasattr(self, "statistics_"):
            self._warn_of_collisions(len(statistics.classes), stacklevel=4)
            self.n_features_in_, self.classes_ = statistics.n_features, statistics.classes
            self._draw_seed()
        if change is not None:
            self.n_dropped_ = change.n_dropped
        self.statistics_ = statistics
        return self._learn()

    def learn_more(self, statistics: GroupStatistics, change: Summed, stacklevel: int = 3) -> Self:
        """``learn_from`` after rows were added; sets ``codes_changed_``, and warns the first time that codes change."""
        before = None if not hasattr(self, "codewords_") else (self.label_sets_, self.codewords_, self.statistics_)
        self.learn_from(statistics, change)
        self.codes_changed_ = 0.0 if before is None else self._changed_share(*before)
        if self.codes_changed_ and not getattr(self, "_told_of_change", False):
            self._told_of_change = True
            warnings.warn(
                f"partial_fit of {self._name} gave other codewords to the classes of {100 * self.codes_changed_:.0f} % "
                "of the rows learned from before; encode stored rows again (codes_changed_ has the share after every "
                "call), or use RSLH with freeze_codewords=True.",
                CodesChangedWarning,
                stacklevel=stacklevel,
            )
        return self

    def _changed_share(self, sets: NDArray[np.uint8], codewords: Codes, before: GroupStatistics) -> float:
        """Share of the rows before whose label set has another codeword now."""
        now = {row.tobytes(): word.tobytes() for row, word in zip(self.label_sets_, self.codewords_, strict=True)}
        same = [now.get(row.tobytes()) == word.tobytes() for row, word in zip(sets, codewords, strict=True)]
        return 1.0 - float(before.counts[np.array(same)].sum() / before.counts.sum())

    def block_sums(self, features: Callable[[Any], Any] | None) -> BlockSums:
        """The function that computes the statistics of one block of a stream."""
        return BlockSums(self._name, features, self.drop_unlabelled)

    def _keep(self, projection: Floats, codewords: Codes, codes: Codes | None) -> None:
        """Set the attributes that all learners of sums have; ``codes`` are those of the rows, if they are available."""
        self._set_hash_function(projection, codewords if codes is None else codes)
        self.codewords_ = codewords
        self.label_sets_ = self.statistics_.rows
        self.n_samples_seen_ = self.statistics_.n_samples
        if codes is not None:
            self.codes_ = codes
        elif hasattr(self, "codes_"):
            del self.codes_  # codes of other rows

    def _check_classes(self, classes: ArrayLike | None, *, first: bool) -> None:
        """Raise if fewer than two classes are given, or others than at the first call."""
        if classes is None:
            return
        announced = np.unique(np.asarray(classes))
        if first and len(announced) < 2:
            raise InvalidInput(
                f"The 'classes' of partial_fit of {self._name} must name 2 classes or more. Got {announced.tolist()} "
                "instead; name all classes that will occur."
            )
        if not first and not np.array_equal(announced, self.classes_):
            raise InvalidInput(
                f"The 'classes' of partial_fit of {self._name} must be those of the first call, "
                f"{self.classes_.tolist()}. Got {announced.tolist()} instead; leave them out, or fit again."
            )

    def _draw_seed(self) -> None:
        """One seed for every later solve, so that adding rows does not change the random start."""
        self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _check_memory(self) -> None:
        """Raise if there are no sums."""
        if hasattr(self, "projection_") and not hasattr(self, "statistics_"):
            raise InvalidInput(
                f"This {self._name} was saved without its statistics, so it cannot learn more; fit it again, or save "
                "it with statistics=True."
            )

    def _after_load(self) -> None:
        """Version 0.1.0 saved the sums of uncentred rows, and their mean; now the sums are those of centred rows."""
        mean = self.__dict__.pop("offset_", None)
        if mean is not None and hasattr(self, "statistics_"):
            self.statistics_ = self.statistics_.centred(mean)

    @property
    def _name(self) -> str:
        return type(self).__name__
