"""A kernel and a hasher that stream: scikit-learn's ``Pipeline`` with codes that do not depend on the batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from shorthash._arrays import Codes, Floats, is_foreign, namespace, returned, to_numpy
from shorthash._labels import group_labels, label_rows
from shorthash._progress import reporting
from shorthash._rounding import UNIT, Rounded, Scored, by_itself, norms, product, settled
from shorthash._validation import check_finite, check_same_length
from shorthash.codes.levels import leave_one_out_map
from shorthash.data.rows import BATCH_ROWS, Rows, validated
from shorthash.data.streams import Stream, known_stream
from shorthash.errors import InvalidInput
from shorthash.kernels.fused import FusedScores, cached
from shorthash.kernels.rbf import AnchorRBF, Bias
from shorthash.learners.base import BaseHasher
from shorthash.learners.sums import GroupStatistics, SumHasher, Summed


class HasherPipeline(Pipeline):  # type: ignore[misc]
    """A kernel and a hasher that stream: the n x d matrix of kernel features never exists.

    An ordinary scikit-learn ``Pipeline`` (slicing, ``set_params``, ``clone`` and grid search work) that encodes in
    batches. Where the steps are an ``AnchorRBF`` and a learner that needs only sums over rows (``SumHasher``), ``fit``
    and ``partial_fit`` read the rows in batches too, and the mean that centres the kernel features comes out of the
    same single pass as the learner's sums. Other learners get all their rows at once, as in any pipeline.

    The same steps in scikit-learn's ``Pipeline`` give the same codes, except that there the kernel matrix exists.

    Rows may be an array, a memory map, an array of torch or CuPy on a GPU (all work on rows is done there), a
    ``Stream``, or a Dask collection (done by its workers); codes are returned as the same kind of array.

    Parameters
    ----------
    steps : list of tuple
        Names and estimators, the hasher last.
    transform_input, memory, verbose : object
        As in :class:`sklearn.pipeline.Pipeline`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shorthash import RSLH, AnchorRBF, HasherPipeline
    >>> X, y = load_iris(return_X_y=True)
    >>> steps = [("kernel", AnchorRBF(n_anchors=20, random_state=0)), ("hasher", RSLH(n_bits=4, random_state=0))]
    >>> HasherPipeline(steps).fit(X, y).transform(X).shape
    (150, 4)
    """

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, **params: Any) -> Self:
        """Fit kernel and learner in one pass over the rows."""
        stream = known_stream(X, y)
        if stream is not None:
            return self.fit_stream(stream)
        if not self._streams():
            super().fit(X, y, **params)
            return self
        kernel, learner = self._streaming_copies("fit")
        self._check_labels(X, y)
        rows = kernel.fit_anchors(X)
        return self._fit_sums(kernel, learner, learner.sum_up(rows.through(kernel.features()), y))

    def fit_stream(self, stream: Stream, *, keep_kernel: bool = False) -> Self:
        """``fit`` on a stream: one reading to draw anchors from the whole of it, one to add up the sums.

        A learner alone reads the stream as it needs to: EAPH some 20 times.

        Parameters
        ----------
        stream : rows with labels
        keep_kernel : use the anchors and bandwidth of the fitted kernel
        """
        if len(self.steps) == 1 and hasattr(self._learner, "fit_stream"):
            self._learner.fit_stream(stream)
            return self
        kernel, learner = self._streaming_copies("Fitting a stream")
        learner._check_params()
        if keep_kernel:
            check_is_fitted(kernel)
        else:
            kernel.fit_anchors_of(stream, stream.n_columns)
        return self._fit_sums(kernel, learner, learner.sum_up_stream(stream, kernel.features()))

    def fit_statistics(self, kernel: AnchorRBF, statistics: GroupStatistics) -> Self:
        """``fit`` from sums over the uncentred features of ``kernel``, added up elsewhere."""
        _, learner = self._streaming_copies("fit_statistics")
        return self._fit_sums(copy.copy(kernel), learner, Summed(statistics))

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Learn from more rows.

        The kernel is fitted at the first call, on the rows of that call, and its anchors stay: give a first batch that
        is representative of the whole, or fit the kernel beforehand (``pipeline[0].fit(sample)``).
        """
        if len(self.steps) == 1 and hasattr(self._learner, "partial_fit"):
            self._learner.partial_fit(X, y, classes)
            return self
        kernel, learner = self._streaming_copies("partial_fit")
        self._check_labels(X, y)
        rows = self._rows(X) if hasattr(kernel, "anchors_") else kernel.fit_anchors(X)
        more = learner.sum_up_more(rows.through(kernel.features()), y, classes)
        if not hasattr(learner, "statistics_"):
            kernel.mean_ = np.zeros(len(kernel.anchors_))
            return self._learn_from(kernel, learner, more.statistics, more)
        merged = learner.statistics_.merge(more.centred(kernel.mean_).statistics)
        return self._learn_from(kernel, learner, merged, more, added=True)

    def forget(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Undo learning from rows that were learned from before."""
        kernel, learner = self._streaming_copies("forget")
        check_is_fitted(learner)
        less = learner.sum_up_more(self._rows(X).through(kernel.features()), y)
        return self._learn_from(kernel, learner, learner.remaining(less.centred(kernel.mean_)), less)

    def merge(self, other: HasherPipeline) -> Self:
        """Learn from all rows that another pipeline with the same anchors and bandwidth has learned from."""
        kernel, learner = self._streaming_copies("merge")
        other_kernel, other_learner = other._streaming_copies("merge")
        for fitted in (learner, other_learner):
            check_is_fitted(fitted)
            fitted._check_memory()
        if kernel.bandwidth_ != other_kernel.bandwidth_ or not np.array_equal(kernel.anchors_, other_kernel.anchors_):
            raise InvalidInput(
                "Only pipelines with the same anchors and bandwidth can be merged; fit the kernel once, clone the "
                "pipeline with it (copy.deepcopy), and partial_fit each copy on its share of the rows."
            )
        added = other_learner.statistics_.centred(kernel.mean_ - other_kernel.mean_)
        return self._learn_from(kernel, learner, learner.statistics_.merge(added))

    def align(self, X: ArrayLike, y: ArrayLike | None = None, *, rows: ArrayLike | None = None) -> HasherPipeline:
        """A hasher for another feature space whose codes can be compared with those of this one (:meth:`EAPH.align`).

        Parameters
        ----------
        X : (n_samples, n_features) rows of the other space
        y : their labels
        rows : instead of labels, rows of this space that show the same things as ``X``
        """
        learner = self.steps[-1][1]
        if len(self.steps) > 1 or not hasattr(learner, "align"):
            names = " -> ".join(type(step).__name__ for _, step in self.steps)
            raise InvalidInput(f"Only models of the methods auto and eaph can be aligned. Got {names}; fit one.")
        return HasherPipeline([(self.steps[-1][0], learner.align(X, y, rows=rows))])

    def project(self, X: ArrayLike) -> Floats:
        """Real-valued scores, (n_samples, n_bits), computed batch by batch."""
        check_is_fitted(self)
        learner = self.steps[-1][1]
        if not isinstance(learner, BaseHasher):
            raise InvalidInput(f"The last step must be a hasher to give codes. Got {type(learner).__name__} instead.")
        stream = known_stream(X)
        if stream is not None:
            return stream.mapped(self.project, self._learner.n_bits, np.float64)  # type: ignore[no-any-return]
        if len(self.steps) == 1:
            return returned(learner.project(X), X)  # type: ignore[no-any-return]
        if type(learner).project is not BaseHasher.project:
            parts = [learner.project(self._mapped(batch, exact=False).values) for batch in self._batches(X)]
            return returned(namespace(parts[0]).concat(parts), X)  # type: ignore[no-any-return]
        return self._settled(X, learner._scores)  # type: ignore[no-any-return]

    def _settled(self, X: ArrayLike, first: Callable[..., Scored]) -> Any:
        """Scores whose signs depend on the row alone; ``first`` makes them of all rows of a batch that is mapped."""
        fused = self._fused(X)

        def fast(rows: Any) -> Scored:
            return self._scores_of(rows, first, exact=False)

        batches = self._batches(X, at_once=fused is not None)
        parts = [settled(batch, self._scores_of, fused or fast) for batch in batches]
        return returned(namespace(parts[0]).concat(parts), X)

    def transform(self, X: ArrayLike) -> Codes:
        """Codes, (n_samples, n_bits), int8, -1 or +1, computed batch by batch."""
        if not isinstance(self.steps[-1][1], BaseHasher):
            return np.asarray(super().transform(X))
        stream = known_stream(X)
        if stream is not None:
            return stream.mapped(self.transform, self._learner.n_bits, np.int8)  # type: ignore[no-any-return]
        if len(self.steps) == 1:
            return self._learner.transform(X)
        if type(self._learner).project is not BaseHasher.project:
            return self._learner.transform(X, scores=self.project(X))
        check_is_fitted(self)
        return self._learner.transform(X, scores=self._settled(X, self._learner._signs))

    def fit_transform(self, X: ArrayLike, y: ArrayLike | None = None, **params: Any) -> Codes:
        """``fit``, then ``transform``."""
        return self.fit(X, y, **params).transform(X)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: None = None, **params: Any) -> float:  # noqa: ARG002
        """Tie-aware mean average precision on ``X``: every row queries all the others."""
        return leave_one_out_map(self.transform(X), y)

    def _batches(self, X: Any, *, at_once: bool = False) -> Iterator[Any]:
        """Rows in batches: validated, where the first step is ours, or left for the first step to validate."""
        if isinstance(self.steps[0][1], AnchorRBF):
            rows = self._rows(X)
            for _, batch in (rows.by(len(rows)) if at_once else rows).reported("encoding"):
                yield batch
            return
        whole = X if hasattr(X, "iloc") else to_numpy(X)
        place = whole.iloc if hasattr(whole, "iloc") else whole
        with reporting() as step:
            for start in range(0, max(len(whole), 1), BATCH_ROWS):
                step("encoding", start, len(whole))
                yield place[start : start + BATCH_ROWS]

    def _mapped(self, rows: Any, *, exact: bool) -> Rounded:
        """What reaches the learner, with a bound of its rounding error."""
        X = Rounded(rows)
        for _, step in self.steps[:-1]:
            X = _mapped(step, X, exact=exact)
        if isinstance(self.steps[0][1], AnchorRBF) and isinstance(self.steps[-2][1], AnchorRBF | Bias):
            return X  # the rows were validated
        values = validated(self._learner, X.values, reset=False)
        check_finite(values, type(self._learner).__name__)
        return Rounded(values, X.error)

    def _scores_of(self, rows: Any, scores: Callable[..., Scored] | None = None, *, exact: bool) -> Scored:
        X = self._mapped(rows, exact=exact)
        if is_foreign(X.values) and not self._learner._on_device:
            X = Rounded(to_numpy(X.values), to_numpy(X.error))
        return (scores or self._learner._scores)(X, exact=exact)

    def _fused(self, X: Any) -> FusedScores | None:
        """Kernel and linear learner in one step, if the rows are on a GPU that supports it; else None."""
        kernel, learner = self._kernel, self._learner
        if len(self.steps) != 2 or not isinstance(kernel, AnchorRBF) or not learner._is_linear:
            return None
        if not FusedScores.usable(X):
            return None
        P = learner.projection_
        intercept = learner.intercept_ - product(kernel.mean_[None], P, exact=True)[0]

        def make() -> FusedScores:
            features = kernel.features()
            return FusedScores(features.shift, features.weights, kernel.mean_, P, intercept)

        parts = (kernel.anchors_, kernel.bandwidth_, kernel.mean_, P, intercept)
        return cached(parts, make)  # type: ignore[no-any-return]

    @property
    def _kernel(self) -> AnchorRBF:
        return self.steps[0][1]  # type: ignore[no-any-return]

    @property
    def _learner(self) -> SumHasher:
        return self.steps[-1][1]  # type: ignore[no-any-return]

    def _streams(self) -> bool:
        """Whether the steps are a kernel and a learner of sums."""
        return len(self.steps) == 2 and isinstance(self._kernel, AnchorRBF) and isinstance(self._learner, SumHasher)

    def _streaming_copies(self, verb: str) -> tuple[AnchorRBF, SumHasher]:
        """Kernel and learner to work on, so that a call that fails leaves the fitted ones as they were."""
        if not self._streams():
            names = " -> ".join(type(step).__name__ for _, step in self.steps)
            raise InvalidInput(
                f"{verb} needs a pipeline of AnchorRBF and a learner of sums, such as RSLH, NSH or HCSDH. Got "
                f"{names} instead, which needs all rows at once; use one of those, or fit it on rows in memory."
            )
        return copy.copy(self._kernel), copy.copy(self._learner)

    def _rows(self, X: ArrayLike) -> Rows:
        """Validated rows for a fitted kernel."""
        values = validated(self._kernel, X, reset=False, keep_device=True)
        return Rows(values, "AnchorRBF")

    def _check_labels(self, X: Any, y: Any) -> None:
        """Raise for wrong parameters or missing labels before anything is drawn or computed."""
        self._learner._check_params()
        if y is None:
            group_labels(None, owner=type(self._learner).__name__)
        n_labels = len(y) if is_foreign(y) else len(label_rows(y))
        check_same_length(np.shape(X)[0], n_labels, type(self._learner).__name__)

    def _fit_sums(self, kernel: AnchorRBF, learner: SumHasher, summed: Summed) -> Self:
        """Fit the learner to sums over uncentred features; their mean becomes the mean of the kernel."""
        kernel.mean_ = summed.statistics.mean() if kernel.center else np.zeros(len(kernel.anchors_))
        learner.fit_sums(summed.centred(kernel.mean_) if kernel.center else summed)
        return self._adopt(kernel, learner)

    def _learn_from(
        self,
        kernel: AnchorRBF,
        learner: SumHasher,
        statistics: GroupStatistics,
        change: Summed | None = None,
        *,
        added: bool = False,
    ) -> Self:
        """Solve from other sums over features centred by the kernel, whose mean moves with the rows."""
        if kernel.center:
            moved = statistics.mean()
            kernel.mean_ = kernel.mean_ + moved
            statistics = statistics.centred(moved)
        if added and change is not None:
            learner.learn_more(statistics, change, stacklevel=4)
        else:
            learner.learn_from(statistics, change)
        return self._adopt(kernel, learner)

    def _adopt(self, *fitted: BaseEstimator) -> Self:
        """Replace the state of the steps by that of their fitted copies."""
        for (_, step), copied in zip(self.steps, fitted, strict=True):
            state = dict(vars(copied))
            vars(step).clear()
            vars(step).update(state)
        return self


def _mapped(step: Any, X: Rounded, *, exact: bool) -> Rounded:
    """Rows passed through a step, with a bound of their rounding error."""
    if step is None or (isinstance(step, str) and step == "passthrough"):
        return X
    if isinstance(step, AnchorRBF | Bias):
        return step.rounded(X, exact=exact)
    rows = to_numpy(X.values) if is_foreign(X.values) else X.values
    if isinstance(rows, np.ndarray) and rows.dtype == np.float32:
        rows = rows.astype(np.float64)  # most transformers compute in the precision of their rows
    if not isinstance(step, StandardScaler) or not isinstance(rows, np.ndarray):
        return by_itself(step.transform, rows, exact=exact)
    error = to_numpy(X.error) + 3 * UNIT * (norms(rows) + (0.0 if step.mean_ is None else np.linalg.norm(step.mean_)))
    return Rounded(step.transform(rows), error / (1.0 if step.scale_ is None else step.scale_.min()))
