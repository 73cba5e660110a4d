"""The only place where a name becomes a method: ``make_hasher("rslh")`` is front end and learner, paper settings."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from shorthash._arrays import is_foreign, namespace, to_numpy
from shorthash._labels import group_labels
from shorthash._rounding import UNIT, Rounded, Scored, by_itself, norms, product, settled
from shorthash._types import Codes, Floats
from shorthash._validation import check_choice, check_finite, check_same_length
from shorthash.codes.levels import leave_one_out_map
from shorthash.codes.signs import sign
from shorthash.data.rows import BATCH_ROWS, Rows, validated
from shorthash.data.streams import Stream, known_stream
from shorthash.errors import InvalidInput, ShorthashWarning
from shorthash.kernels.bias import Bias
from shorthash.kernels.fused import FusedScores, remembered
from shorthash.kernels.rbf import AnchorRBF
from shorthash.learners.base import BaseHasher
from shorthash.learners.statistics import GroupStatistics
from shorthash.learners.sums import SumHasher, Summed
from shorthash.methods import RECIPES, Recipe, import_class

__all__ = ["RECIPES", "HasherPipeline", "Recipe", "make_hasher", "method_facts", "recipes"]


class HasherPipeline(Pipeline):  # type: ignore[misc]
    """A front end and a hasher that stream: the n x d matrix of kernel features never exists.

    An ordinary scikit-learn ``Pipeline`` (slicing, ``set_params``, ``clone`` and grid search work) that encodes in
    batches. Where the front end is an ``AnchorRBF`` and the learner needs only sums over rows (``SumHasher``), ``fit``
    and ``partial_fit`` read the rows in batches too, and the mean that centres the kernel features comes out of the
    same single pass as the learner's sums. Other learners get all their rows at once, as in any pipeline.

    Rows may be an array, a memory map, an array of torch or CuPy on a GPU (all work on rows is done there), a
    ``Stream``, or a Dask collection (done by its workers); codes come back likewise.
    """

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, **params: Any) -> Self:
        """Fit front end and learner in one pass over the rows."""
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

        Parameters
        ----------
        stream : rows with labels
        keep_kernel : use the anchors and bandwidth of the fitted kernel
        """
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
        kernel, learner = self._streaming_copies("partial_fit")
        self._check_labels(X, y)
        rows = self._rows(X) if hasattr(kernel, "anchors_") else kernel.fit_anchors(X)
        more = learner.sum_up_more(rows.through(kernel.features()), y, classes)
        if not hasattr(learner, "statistics_"):
            kernel.mean_ = np.zeros(len(kernel.anchors_))
            return self._learn_from(kernel, learner, more.statistics, more)
        return self._learn_from(kernel, learner, learner.statistics_.merge(more.centred(kernel.mean_).statistics), more)

    def forget(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Take back rows learned before."""
        kernel, learner = self._streaming_copies("forget")
        check_is_fitted(learner)
        less = learner.sum_up_more(self._rows(X).through(kernel.features()), y)
        return self._learn_from(kernel, learner, learner.remaining(less.centred(kernel.mean_)), less)

    def merge(self, other: HasherPipeline) -> Self:
        """Take in everything another pipeline with the same anchors and bandwidth has learned from."""
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
            return learner.project(X)
        if type(learner).project is not BaseHasher.project:
            parts = [learner.project(self._mapped(batch, exact=False).values) for batch in self._batches(X)]
        else:
            fused = self._fused(X)
            batches = self._batches(X, at_once=fused is not None)
            parts = [settled(batch, self._scores_of, fused) for batch in batches]
        return namespace(parts[0]).concat(parts)  # type: ignore[no-any-return]

    def transform(self, X: ArrayLike) -> Codes:
        """Codes, (n_samples, n_bits), int8, -1 or +1, computed batch by batch."""
        if not isinstance(self.steps[-1][1], BaseHasher):
            return np.asarray(super().transform(X))
        stream = known_stream(X)
        if stream is not None:
            return stream.mapped(self.transform, self._learner.n_bits, np.int8)  # type: ignore[no-any-return]
        if len(self.steps) == 1:
            return self._learner.transform(X)
        return self._learner.transform(X, scores=self.project(X))

    def fit_transform(self, X: ArrayLike, y: ArrayLike | None = None, **params: Any) -> Codes:
        """``fit``, then ``transform``."""
        return self.fit(X, y, **params).transform(X)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: None = None, **params: Any) -> float:  # noqa: ARG002
        """Tie-aware mean average precision on ``X``: every row queries all the others."""
        return leave_one_out_map(sign(self.project(X)), y)

    def _batches(self, X: Any, *, at_once: bool = False) -> Iterator[Any]:
        """Rows in batches: validated, where the first step is ours, or left for the first step to validate."""
        if isinstance(self.steps[0][1], AnchorRBF):
            rows = self._rows(X)
            for _, batch in rows.by(len(rows)) if at_once else rows:
                yield batch
            return
        whole = X if hasattr(X, "iloc") else to_numpy(X)
        place = whole.iloc if hasattr(whole, "iloc") else whole
        for start in range(0, max(len(whole), 1), BATCH_ROWS):
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

    def _scores_of(self, rows: Any, *, exact: bool) -> Scored:
        X = self._mapped(rows, exact=exact)
        if is_foreign(X.values) and not self._learner._is_linear():
            X = Rounded(to_numpy(X.values), to_numpy(X.error))
        return self._learner._scores(X, exact=exact)

    def _fused(self, X: Any) -> FusedScores | None:
        """Kernel and linear learner in one go, where the rows are on a GPU that can."""
        front, learner = self._front, self._learner
        if len(self.steps) != 2 or not isinstance(front, AnchorRBF) or not learner._is_linear():
            return None
        if not FusedScores.usable(X):
            return None
        P = learner.projection_
        intercept = learner.intercept_ - product(front.mean_[None], P, exact=True)[0]

        def make() -> FusedScores:
            features = front.features()
            return FusedScores(features.shift, features.weights, front.mean_, P, intercept)

        parts = (front.anchors_, front.bandwidth_, front.mean_, P, intercept)
        return remembered(parts, make)  # type: ignore[no-any-return]

    @property
    def _front(self) -> AnchorRBF:
        return self.steps[0][1]  # type: ignore[no-any-return]

    @property
    def _learner(self) -> SumHasher:
        return self.steps[-1][1]  # type: ignore[no-any-return]

    def _streams(self) -> bool:
        """Whether the steps are a kernel and a learner of sums."""
        return len(self.steps) == 2 and isinstance(self._front, AnchorRBF) and isinstance(self._learner, SumHasher)

    def _streaming_copies(self, verb: str) -> tuple[AnchorRBF, SumHasher]:
        """Kernel and learner to work on, so that a call that fails leaves the fitted ones as they were."""
        if not self._streams():
            names = " -> ".join(type(step).__name__ for _, step in self.steps)
            raise InvalidInput(
                f"{verb} needs a pipeline of AnchorRBF and a learner of sums, such as RSLH, NSH or HCSDH. Got "
                f"{names} instead, which needs all rows at once; use one of those, or fit it on rows in memory."
            )
        return copy.copy(self._front), copy.copy(self._learner)

    def _rows(self, X: ArrayLike) -> Rows:
        """Validated rows for a fitted kernel."""
        values = validated(self._front, X, reset=False, keep_device=True)
        return Rows(values, "AnchorRBF")

    def _check_labels(self, X: ArrayLike, y: ArrayLike | None) -> None:
        """Raise for wrong parameters or missing labels before anything is drawn or computed."""
        self._learner._check_params()
        if y is None:
            group_labels(None, owner=type(self._learner).__name__)
        check_same_length(X, y, type(self._learner).__name__)

    def _fit_sums(self, kernel: AnchorRBF, learner: SumHasher, summed: Summed) -> Self:
        """Fit the learner to sums over uncentred features; their mean becomes the mean of the kernel."""
        kernel.mean_ = summed.statistics.mean() if kernel.center else np.zeros(len(kernel.anchors_))
        learner.fit_sums(summed.centred(kernel.mean_) if kernel.center else summed)
        return self._adopt(kernel, learner)

    def _learn_from(
        self, kernel: AnchorRBF, learner: SumHasher, statistics: GroupStatistics, change: Summed | None = None
    ) -> Self:
        """Solve from other sums over features centred by the kernel, whose mean moves with the rows."""
        if kernel.center:
            moved = statistics.mean()
            kernel.mean_ = kernel.mean_ + moved
            statistics = statistics.centred(moved)
        learner.learn_from(statistics, change)
        return self._adopt(kernel, learner)

    def _adopt(self, *fitted: BaseEstimator) -> Self:
        """Take over what copies of the steps have learned."""
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


# what a front end is made of; only the kernel has parameters to set
FRONT_STEPS = {
    "kernel": "shorthash.kernels.rbf:AnchorRBF",
    "bias": "shorthash.kernels.bias:Bias",
    "zscore": "sklearn.preprocessing:StandardScaler",
}


def recipes() -> dict[str, Recipe]:
    """Every method by name: ours, and those that installed packages offer under ``shorthash.methods``."""
    found = dict(RECIPES)
    for point in sorted(entry_points(group="shorthash.methods"), key=lambda point: point.name):
        if point.name in RECIPES:
            continue
        try:
            found[point.name] = point.load()
        except Exception as error:  # whatever a stranger's package does wrong must not take ours with it
            warnings.warn(
                f"The method {point.name!r} that an installed package offers cannot be loaded ({error!r}) and is left "
                "out; mend or uninstall the package.",
                ShorthashWarning,
                stacklevel=2,
            )
    return found


def method_facts(name: str) -> dict[str, Any]:
    """What there is to know about a method, as plain values: for listings.

    Examples
    --------
    >>> facts = method_facts("ksh")
    >>> facts["full_name"], facts["front_end"], facts["parameters"]["n_labelled"]
    ('Supervised Hashing with Kernels', ['AnchorRBF(n_anchors=300)'], 2000)
    """
    known = recipes()
    check_choice(name, "name", "method_facts", list(known))
    recipe = known[name]
    defaults = inspect.signature(recipe.learner_class()).parameters
    own = {key: p.default for key, p in defaults.items() if key not in ("n_bits", "random_state")}
    kernel = ", ".join(f"{key}={value!r}" for key, value in recipe.front_settings.items())
    steps = {step: FRONT_STEPS[step].partition(":")[2] for step in recipe.front_end}
    return {
        "full_name": recipe.full_name,
        "year": recipe.year,
        "supervised": recipe.supervised,
        "multilabel": recipe.multilabel,
        "front_end": [f"{cls}({kernel})" if step == "kernel" else cls for step, cls in steps.items()],
        "parameters": {**own, **recipe.settings},
        "presets": {preset: dict(changes) for preset, changes in recipe.presets.items()},
        "reference": recipe.reference,
    }


def make_hasher(
    name: str,
    n_bits: int = 8,
    *,
    preset: str = "paper",
    front_end: Mapping[str, Any] | None = None,
    random_state: int | np.random.RandomState | None = None,
    **params: Any,
) -> HasherPipeline:
    """Front end and learner of a method, with the settings of its paper.

    Parameters
    ----------
    name : a key of ``recipes()``
    n_bits : code length, 1 to 64
    preset : "paper", or one that the recipe offers, such as "authors-code": the settings of the authors' released code
    front_end : parameters of the kernel, for instance ``{"n_anchors": 500}``
    random_state : given to front end and learner
    **params : parameters of the learner, by name

    Examples
    --------
    >>> hasher = make_hasher("rslh", n_bits=6, random_state=0, front_end={"n_anchors": 100}, boosting="ob")
    >>> hasher[0].n_anchors, hasher[-1].n_bits, hasher[-1].boosting
    (100, 6, 'ob')
    """
    known = RECIPES if name in RECIPES else recipes()  # ours need nobody else's
    check_choice(name, "name", "make_hasher", list(known))
    recipe = known[name]
    check_choice(preset, "preset", f"make_hasher({name!r})", ["paper", *recipe.presets])
    chosen = recipe.presets.get(preset, {})
    settings = {**recipe.settings, **chosen.get("settings", {}), **params}
    kernel = {**recipe.front_settings, **chosen.get("front_settings", {}), **(front_end or {})}
    if front_end and "kernel" not in recipe.front_end:
        raise InvalidInput(f"{name} has no kernel in its front end, so front_end={dict(front_end)} has nothing to set.")
    steps: list[tuple[str, BaseEstimator]] = []
    for step in recipe.front_end:
        given = {**kernel, "random_state": kernel.get("random_state", random_state)} if step == "kernel" else {}
        steps.append((step, _build(import_class(FRONT_STEPS[step]), given, f"the front end of {name}")))
    learner_class = recipe.learner_class()
    if "random_state" in _parameters(learner_class):
        settings = {"random_state": random_state, **settings}
    steps.append(("hasher", _build(learner_class, {"n_bits": n_bits, **settings}, learner_class.__name__)))
    return HasherPipeline(steps)


def _parameters(cls: type[BaseEstimator]) -> list[str]:
    return [p for p in inspect.signature(cls.__init__).parameters if p != "self"]


def _build(cls: type[BaseEstimator], given: Mapping[str, Any], owner: str) -> BaseEstimator:
    """An instance, or an error that names the parameters there are."""
    known = _parameters(cls)
    for name in given:
        if name not in known:
            raise InvalidInput(f"{owner} has no parameter {name!r} to set here. It has: {', '.join(known)}.")
    return cls(**given)
