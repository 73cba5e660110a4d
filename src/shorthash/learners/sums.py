"""Learning from sums over rows: what such a learner can do beyond ``fit``, whatever it solves."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from shorthash._arrays import like, to_numpy
from shorthash._labels import LabelGroups, group_labels
from shorthash._types import Codes, Floats, Labels
from shorthash.data.rows import Rows, validated
from shorthash.data.streams import Block, Stream, known_stream
from shorthash.errors import InvalidInput
from shorthash.learners.base import SupervisedHasher
from shorthash.learners.statistics import GroupStatistics

__all__ = ["BlockSums", "SumHasher", "Summed"]


@dataclass(frozen=True)
class BlockSums:
    """Statistics of one block of a stream: a pure function, so a block that is computed twice counts once.

    Attributes
    ----------
    owner : who learns; named in error messages
    features : the map that rows pass through first; None where they are used as they come
    drop_unlabelled : drop rows without any label instead of raising
    classes : every class that may occur; None where any may
    """

    owner: str
    features: Callable[[Any], Any] | None = None
    drop_unlabelled: bool = False
    classes: ArrayLike | None = None

    def __call__(self, block: Block) -> GroupStatistics:
        """Statistics of a block."""
        if block.y is None:
            raise InvalidInput(
                f"{self.owner} learns from labels, but the stream has none; name the column that holds them, or give "
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
        return GroupStatistics.of(rows if groups.kept is None else rows.keep(groups.kept), groups)


@dataclass(frozen=True)
class Summed:
    """Sums over labelled rows, and the rows themselves where they are at hand.

    Attributes
    ----------
    statistics : GroupStatistics, the sums
    n_dropped : rows without label, which are not in the sums
    rows, groups : the rows that are in the sums, and their label sets; None where the rows are gone
    """

    statistics: GroupStatistics
    n_dropped: int = 0
    rows: Rows | None = None
    groups: LabelGroups | None = None

    def centred(self, mean: Floats) -> Summed:
        """The same of the rows with ``mean`` subtracted from each."""
        rows = None if self.rows is None else self.rows.through(lambda batch: batch - like(mean, batch))
        return replace(self, statistics=self.statistics.centred(mean), rows=rows)


class SumHasher(SupervisedHasher):
    """A supervised hasher that needs only sums over rows.

    So rows may come in batches, be added (``partial_fit``, ``merge``) and be taken back (``forget``), and the outcome
    is always that of ``fit`` on the rows that remain. A learner supplies ``_check_params`` and ``_learn``.

    Attributes
    ----------
    classes_ : (c,) the classes
    statistics_ : GroupStatistics, the sums over the rows as the learner gets them: the model's memory
    codewords_ : (u, n_bits) the learned code of every label set
    label_sets_ : (u, c) the label rows that occurred
    codes_ : (n_samples, n_bits) learned codes of the training rows; only after ``fit``, which has seen them all
    n_samples_seen_ : int, rows learned from and not forgotten
    n_dropped_ : int, rows without label in the last call
    """

    classes_: Labels
    statistics_: GroupStatistics
    codes_: Codes
    n_bits: int
    drop_unlabelled: bool
    random_state: int | np.random.RandomState | None

    @abstractmethod
    def _check_params(self) -> Any:
        """Validate every parameter and return what ``_learn`` wants to know of them."""

    @abstractmethod
    def _learn(self, weights: Any, rows: Rows | None = None, groups: LabelGroups | None = None) -> Self:
        """Solve from ``statistics_`` (and the rows, where they are at hand) and set every fitted attribute."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from all rows at once.

        Parameters
        ----------
        X : (n_samples, n_features) features, for instance from ``AnchorRBF``; a memory map is read in batches, an array
            on a GPU is summed up there, a collection of Dask by its workers
        y : (n_samples,) class labels, or an (n_samples, n_classes) indicator matrix of 0/1 or -1/+1
        """
        stream = known_stream(X, y)
        if stream is not None:
            return self.fit_stream(stream)
        values = validated(self, X, reset=True, min_samples=2, keep_device=True)
        return self.fit_sums(self.sum_up(Rows(values, self._name), y))

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Learn from more rows; the outcome is that of ``fit`` on all rows so far.

        Parameters
        ----------
        X : (n_samples, n_features) features
        y : labels, as in ``fit``
        classes : every class that will occur; at the first call, where the classes of ``y`` are taken if it is missing
        """
        self._check_memory()
        values = validated(self, X, reset=not hasattr(self, "statistics_"), keep_device=True)
        more = self.sum_up_more(Rows(values, self._name), y, classes)
        first = not hasattr(self, "statistics_")
        return self.learn_from(more.statistics if first else self.statistics_.merge(more.statistics), more)

    def forget(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Take back rows learned before; the outcome is that of ``fit`` on the rows that remain."""
        check_is_fitted(self)
        values = validated(self, X, reset=False, keep_device=True)
        less = self.sum_up_more(Rows(values, self._name), y)
        return self.learn_from(self.remaining(less), less)

    def merge(self, other: Self) -> Self:
        """Take in everything another such learner has learned from, on the same features and classes."""
        check_is_fitted(self)
        check_is_fitted(other)
        self._check_memory()
        other._check_memory()
        return self.learn_from(self.statistics_.merge(other.statistics_))

    def fit_stream(self, stream: Stream) -> Self:
        """``fit`` on a stream, whose blocks are added up wherever they are."""
        self._check_params()
        return self.fit_sums(self.sum_up_stream(stream))

    def fit_statistics(self, statistics: GroupStatistics) -> Self:
        """``fit`` from sums that have been added up elsewhere: any that ``merge``, ``join`` or ``subtract`` gives."""
        return self.fit_sums(Summed(statistics))

    def sum_up(self, rows: Rows, y: ArrayLike | None) -> Summed:
        """Sums over all training rows, read in batches; whatever is wrong with rows or labels shows here."""
        self._check_params()
        groups = self._training_groups(y, len(rows), drop_unlabelled=self.drop_unlabelled, keep_device=True)
        self._check_groups(groups)
        rows.check_varied()
        kept = rows if groups.kept is None else rows.keep(groups.kept)
        statistics = GroupStatistics.of(kept, groups)
        return Summed(statistics, len(rows) - len(kept), kept, replace(groups, ids=to_numpy(groups.ids)))

    def sum_up_stream(self, stream: Stream, features: Callable[[Any], Any] | None = None) -> Summed:
        """The same for a stream, whose rows pass through ``features``."""
        statistics = stream.total(self.block_sums(features), GroupStatistics.join)
        return Summed(statistics, len(stream) - statistics.n_samples)

    def sum_up_more(self, rows: Rows, y: ArrayLike, classes: ArrayLike | None = None) -> Summed:
        """Sums over rows that are to be added or taken back."""
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
        statistics = GroupStatistics.of(rows if groups.kept is None else rows.keep(groups.kept), groups)
        return Summed(statistics, len(rows) - groups.n_samples)

    def remaining(self, less: Summed) -> GroupStatistics:
        """The sums learned from without some of them."""
        left = self.statistics_.subtract(less.statistics)
        if not len(left.counts):
            raise InvalidInput("Forgetting these rows would leave nothing to learn from; keep some, or fit again.")
        return left

    def fit_sums(self, summed: Summed) -> Self:
        """``fit`` from sums, and from the rows where they are at hand."""
        weights, seen = self._check_params(), summed.statistics
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
        return self._learn(weights, summed.rows, summed.groups)

    def learn_from(self, statistics: GroupStatistics, change: Summed | None = None) -> Self:
        """Solve from other sums than before; ``change`` is what was added or taken back."""
        weights = self._check_params()
        if not hasattr(self, "statistics_"):
            self._warn_of_collisions(len(statistics.classes), stacklevel=4)
            self.n_features_in_, self.classes_ = statistics.n_features, statistics.classes
            self._draw_seed()
        if change is not None:
            self.n_dropped_ = change.n_dropped
        self.statistics_ = statistics
        return self._learn(weights)

    def block_sums(self, features: Callable[[Any], Any] | None, classes: ArrayLike | None = None) -> BlockSums:
        """The function that makes statistics of one block of a stream."""
        return BlockSums(self._name, features, self.drop_unlabelled, classes)

    def _check_groups(self, groups: LabelGroups) -> None:
        """Raise where a method cannot learn from such labels; here anything goes."""

    def _keep(self, projection: Floats, codewords: Codes, codes: Codes | None) -> None:
        """Set what every learner of sums leaves behind; ``codes`` are those of the rows, where they are at hand."""
        self._set_hash_function(projection, codewords if codes is None else codes)
        self.codewords_ = codewords
        self.label_sets_ = self.statistics_.rows
        self.n_samples_seen_ = self.statistics_.n_samples
        if codes is not None:
            self.codes_ = codes
        elif hasattr(self, "codes_"):
            del self.codes_  # they were the codes of other rows

    def _check_classes(self, classes: ArrayLike | None, *, first: bool) -> None:
        """Raise if fewer than two classes are announced, or others than at the first call."""
        if classes is None:
            return
        announced = np.unique(np.asarray(classes))
        if first and len(announced) < 2:
            raise InvalidInput(
                f"The 'classes' of partial_fit of {self._name} must name 2 classes or more. Got {announced.tolist()} "
                "instead; name every class that will occur."
            )
        if not first and not np.array_equal(announced, self.classes_):
            raise InvalidInput(
                f"The 'classes' of partial_fit of {self._name} must be those of the first call, "
                f"{self.classes_.tolist()}. Got {announced.tolist()} instead; leave them out, or fit anew."
            )

    def _draw_seed(self) -> None:
        """One number from which every later solve starts again, so that adding rows cannot change the random start."""
        self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _check_memory(self) -> None:
        """Raise if the sums are gone."""
        if hasattr(self, "projection_") and not hasattr(self, "statistics_"):
            raise InvalidInput(
                f"This {self._name} was saved without its statistics, so it cannot learn further; fit it anew, or save "
                "it with statistics=True."
            )

    def _after_load(self) -> None:
        """Version 0.1 saved the sums of uncentred rows, and their mean; now sums are those of the rows as they come."""
        mean = self.__dict__.pop("offset_", None)
        if mean is not None and hasattr(self, "statistics_"):
            self.statistics_ = self.statistics_.centred(mean)

    @property
    def _name(self) -> str:
        return type(self).__name__
