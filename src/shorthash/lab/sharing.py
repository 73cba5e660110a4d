"""One split of a data set, and what the runs on it share: kernel features, sums over rows, class posteriors.

``make_hasher`` gives kernel and learner the same seed, so a kernel fitted once is the one that every method would have
fitted itself, sums over its rows are the same for all learners of sums, and posteriors do not depend on the code
length. Codes are those of ``make_hasher(...).fit(...)`` alone, bit by bit (``test_shared_work_changes_no_code``).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator

from shorthash._arrays import Codes, Floats, Labels
from shorthash._labels import LabelGroups, group_labels, label_rows
from shorthash.data.datasets import Dataset
from shorthash.data.rows import BATCH_ROWS, Rows, nearest_rows
from shorthash.data.splits import Split, protocol_from_dict
from shorthash.errors import AnchorWarning, CollisionWarning, InvalidInput
from shorthash.kernels.rbf import AnchorRBF
from shorthash.lab.spec import RunSpec, canonical
from shorthash.learners.classifier import ClassifierCode
from shorthash.learners.eaph.estimator import EAPH
from shorthash.learners.encoders import CodewordHasher
from shorthash.learners.sums import GroupStatistics, SumHasher, Summed
from shorthash.methods import make_hasher
from shorthash.pipeline import HasherPipeline

Maps = NDArray[np.float64]


@dataclass(frozen=True)
class FittedRun:
    """A fitted pipeline, codes of queries and database, and CPU seconds.

    Attributes
    ----------
    hasher : the pipeline
    query, database : codes
    fit_seconds : time of a fit without sharing: its own and that of everything it shares
    encode_seconds : the same for encoding the queries and the database
    """

    hasher: HasherPipeline
    query: Codes
    database: Codes
    fit_seconds: float
    encode_seconds: float


@dataclass
class _Kernel:
    """A kernel without centring, and its features of the three parts of a split; seconds to fit and to map."""

    kernel: AnchorRBF
    train: Maps
    query: Maps
    database: Maps
    mean: Floats
    fit_seconds: float
    encode_seconds: float
    statistics: GroupStatistics | None = None
    statistics_seconds: float = 0.0


@dataclass
class SharedSplit:
    """Queries, training rows and database of one split.

    Parameters
    ----------
    data : the data set
    protocol : of the split, as a plain dict
    given : the split itself, in place of one that the protocol draws
    labelled : whether methods are given the labels
    """

    data: Dataset
    protocol: Mapping[str, Any]
    given: Split | None = None
    labelled: bool = True
    _kernel: tuple[str, _Kernel] | None = field(default=None, repr=False)
    _posteriors: dict[str, tuple[Any, float]] = field(default_factory=dict, repr=False)
    _nearest: NDArray[np.intp] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        drawn = self.given or protocol_from_dict(self.protocol).split(self.data.y, self.data.test)
        self.rows: Split = drawn
        self.X_train, self.y_train = self.data.X[self.rows.train], self.data.y[self.rows.train]
        self.X_query, self.y_query = self.data.X[self.rows.query], self.data.y[self.rows.query]
        self.X_database, self.y_database = self.data.X[self.rows.database], self.data.y[self.rows.database]

    def nearest(self, k: int) -> NDArray[np.intp]:
        """The k database rows nearest to every query by cosine, (n_queries, k); found once."""
        if self._nearest is None or self._nearest.shape[1] != k:
            self._nearest = nearest_rows(self.X_query, self.X_database, k)
        return self._nearest

    def judgements(self, k: int) -> Any:
        """The k database rows nearest to every query as relevance for ``evaluate``, (n_queries, n_database), sparse."""
        return neighbour_judgements(self.nearest(k), len(self.X_database))

    def run(self, spec: RunSpec) -> FittedRun:
        """Fit and encode, sharing what can be shared."""
        made = make_run_hasher(spec)
        if isinstance(made.steps[0][1], AnchorRBF):
            return self._run_on_kernel(made)
        return self._run_plainly(made, spec)

    def _run_plainly(self, made: HasherPipeline, spec: RunSpec) -> FittedRun:
        saved = 0.0
        if not self.labelled:
            begin = time.process_time()
            made.fit(self.X_train)
        elif len(made.steps) == 1 and isinstance(made[-1], ClassifierCode | EAPH):  # the length matters little here
            shared, saved = self._posterior(spec)
            begin = time.process_time()
            _reuse(made[-1], shared, self.X_train, self.y_train)
        else:
            begin = time.process_time()
            made.fit(self.X_train, self.y_train)
        fitted = time.process_time()
        query, database = made.transform(self.X_query), made.transform(self.X_database)
        return FittedRun(made, query, database, fitted - begin + saved, time.process_time() - fitted)

    def _posterior(self, spec: RunSpec) -> tuple[Any, float]:
        """A learner fitted with these settings and the fastest codes, and the time of the fit."""
        settings = {
            name: value for name, value in spec.settings.items() if name not in ("codebook", "refine", "n_iter")
        }
        key = canonical([spec.method, settings, spec.seed])
        if key not in self._posteriors:
            first = make_hasher(spec.method, spec.n_bits, random_state=spec.seed, **spec.settings)
            if isinstance(first[-1], EAPH):
                first[-1].set_params(n_bits=1, codebook="random", refine=False)
            begin = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CollisionWarning)  # of the one bit that is not used
                first.fit(self.X_train, self.y_train)
            self._posteriors[key] = first[-1], time.process_time() - begin
        return self._posteriors[key]

    def _run_on_kernel(self, made: HasherPipeline) -> FittedRun:
        kernel, learner = made[0], made[-1]
        held = self._held(kernel)
        begin = time.process_time()
        for name in ("anchors_", "bandwidth_", "n_features_in_", "_n_features_out"):
            setattr(kernel, name, getattr(held.kernel, name))
        kernel.mean_ = held.mean if kernel.center else np.zeros_like(held.mean)
        saved = held.fit_seconds
        if len(made.steps) == 2 and isinstance(learner, SumHasher):
            made._fit_sums(kernel, learner, self._summed(learner, held))
            saved += held.statistics_seconds
        else:
            values: Any = held.train - kernel.mean_
            for _, step in made.steps[1:-1]:
                values = step.fit_transform(values)
            learner.fit(values, self.y_train)
        fitted = time.process_time()
        query, database = (_encode(made, maps) for maps in (held.query, held.database))
        encoded = time.process_time()
        return FittedRun(made, query, database, fitted - begin + saved, encoded - fitted + held.encode_seconds)

    def _summed(self, learner: SumHasher, held: _Kernel) -> Summed:
        """Sums over the uncentred features of the training rows, computed once."""
        groups = group_labels(self.y_train, owner=type(learner).__name__, drop_unlabelled=learner.drop_unlabelled)
        rows = Rows(held.train, "AnchorRBF")
        kept = rows if groups.kept is None else rows.keep(groups.kept)
        if held.statistics is None:
            begin = time.process_time()
            held.statistics = GroupStatistics.of(kept, groups)
            held.statistics_seconds = time.process_time() - begin
        return Summed(held.statistics, len(rows) - len(kept), kept, groups)

    def _held(self, kernel: AnchorRBF) -> _Kernel:
        """The kernel with these parameters, except for centring; one is held at a time."""
        settings = {**kernel.get_params(), "center": False}
        key = canonical(settings)
        if self._kernel is None or self._kernel[0] != key:
            self._kernel = None  # before the next one is made
            self._kernel = (key, self._make_kernel(AnchorRBF(**settings)))
        return self._kernel[1]

    def _make_kernel(self, kernel: AnchorRBF) -> _Kernel:
        begin = time.process_time()
        rows = kernel.fit_anchors(self.X_train)
        train = _map(kernel, rows, len(self.X_train))
        total = np.zeros(train.shape[1])
        for _, batch in Rows(train, "AnchorRBF"):
            total += batch.sum(axis=0, dtype=np.float64)
        fitted = time.process_time()
        query, database = (_map(kernel, Rows(X, "AnchorRBF"), len(X)) for X in (self.X_query, self.X_database))
        seconds = fitted - begin, time.process_time() - fitted
        return _Kernel(kernel, train, query, database, total / len(train), *seconds)


def labelled_rows(X: ArrayLike, y: ArrayLike | None, owner: str) -> tuple[NDArray[Any], NDArray[Any], LabelGroups]:
    """Rows that have a label, their labels and label groups; without ``y`` all rows have the same label.

    Parameters
    ----------
    X : (n_samples, n_features) features
    y : labels, or None
    owner : the caller, for error messages
    """
    values = np.asarray(X)
    if values.ndim != 2:
        raise InvalidInput(
            f"X of {owner} must have shape (n_samples, n_features). Got {values.shape} instead; put one sample per row."
        )
    labels = np.zeros(len(values), dtype=np.intp) if y is None else label_rows(y)
    groups = group_labels(labels, owner=owner, n_samples=len(values), drop_unlabelled=True)
    kept = slice(None) if groups.kept is None else groups.kept
    return values[kept], labels[kept], groups


def neighbour_judgements(lists: NDArray[np.intp], n_items: int) -> Any:
    """Lists of the nearest items of queries as relevance, (n_queries, n_items), sparse.

    Parameters
    ----------
    lists : (n_queries, k) numbers of items
    n_items : number of all items
    """
    m, k = lists.shape
    places = np.arange(m).repeat(k), lists.ravel()
    return sparse.csr_array((np.ones(m * k, dtype=np.int64), places), shape=(m, n_items))


@contextmanager
def quiet_fits() -> Iterator[None]:
    """Hide warnings of fits whose effect shows in the scores."""
    with warnings.catch_warnings():
        for kind in (AnchorWarning, CollisionWarning, ConvergenceWarning):
            warnings.simplefilter("ignore", kind)
        yield


def make_run_hasher(spec: RunSpec) -> HasherPipeline:
    """The unfitted hasher of a run."""
    made = make_hasher(spec.method, spec.n_bits, kernel=dict(spec.front_end), random_state=spec.seed, **spec.settings)
    if spec.encoder:
        name, learner = made.steps[-1]
        made.steps[-1] = (name, CodewordHasher(learner, encoder=spec.encoder))  # type: ignore[arg-type]
    return made


def _map(kernel: AnchorRBF, rows: Rows, n: int) -> Maps:
    """Kernel features without centring, batch by batch as the pipeline computes them."""
    out = np.empty((n, len(kernel.anchors_)))
    for part, batch in rows.through(kernel.features()):
        out[part] = batch
    return out


def _encode(made: HasherPipeline, maps: Maps) -> Codes:
    """Codes of rows whose kernel features are known, batch by batch as the pipeline computes them."""
    codes = []
    for start in range(0, len(maps), BATCH_ROWS):
        values: Any = maps[start : start + BATCH_ROWS] - made[0].mean_
        for _, step in made.steps[1:-1]:
            values = step.transform(values)
        codes.append(made[-1].transform(values))
    return np.concatenate(codes)


class _Fitted(FrozenEstimator):  # type: ignore[misc]
    """A fitted classifier that ignores all parameters, its seed included."""

    def set_params(self, **params: Any) -> _Fitted:  # noqa: ARG002
        """Change nothing."""
        return self


def _reuse(learner: EAPH | ClassifierCode, shared: Any, X: Any, y: Labels) -> None:
    """Fit with the posteriors, or the classifier, of a fit with another length."""
    if isinstance(learner, EAPH):
        wanted = learner.get_params(deep=False)
        learner.__dict__.update(shared.__dict__)
        learner.set_params(**wanted).update_codes()
    else:
        learner.set_params(estimator=_Fitted(shared.estimator_)).fit(X, y)
