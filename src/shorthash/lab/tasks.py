"""What a run does, by task, and the record that comes of it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.data.datasets import Dataset
from shorthash.errors import InvalidInput
from shorthash.kernels.rbf import AnchorRBF
from shorthash.lab.dense import DENSE, fit_dense
from shorthash.lab.machine import machine_facts, peak_memory, reset_peak_memory, resident_memory, versions
from shorthash.lab.measure import measure, rounded
from shorthash.lab.runs import RunSpec
from shorthash.lab.sample import pack_sample
from shorthash.lab.sharing import SharedSplit
from shorthash.lab.store import SCHEMA
from shorthash.learners.base import BaseHasher
from shorthash.learners.rslh.estimator import RSLH
from shorthash.learners.rslh.steps import Problem, objective, start
from shorthash.recipes import make_hasher

__all__ = ["Outcome", "initial_objective", "make_record"]

LONGEST_CURVE = 100  # iterations kept of an objective


@dataclass(frozen=True)
class Outcome:
    """A record, and the arrays of its side file; None where it has none."""

    record: dict[str, Any]
    per_query: Mapping[str, NDArray[Any]] | None


def make_record(spec: RunSpec, split: SharedSplit, found: Dataset) -> Outcome:
    """Do a run. Where a method is not defined for a length, the record says so instead of scores."""
    wall = time.perf_counter()
    reset_peak_memory()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # collisions, anchors, iterations: the numbers tell
        try:
            body, per_query = TASKS[spec.task](spec, split)
        except InvalidInput as error:
            if not _too_long(spec, split):
                raise
            body, per_query = {"undefined": str(error)[:300]}, None
    record = {
        "schema": SCHEMA,
        "run": spec.name,
        "spec": spec.to_dict(),
        **body,
        "peak_memory_mib": rounded(peak_memory()),
        "data": {
            "name": found.name,
            "fingerprint": found.fingerprint,
            "rows": len(found),
            "dims": found.X.shape[1],
            "classes": found.n_classes,
        },
        "versions": versions(),
        "machine": machine_facts(),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    record.setdefault("seconds", {})["wall"] = rounded(time.perf_counter() - wall)
    return Outcome(record, per_query)


Body = tuple[dict[str, Any], Mapping[str, NDArray[Any]] | None]


def _score(spec: RunSpec, split: SharedSplit) -> Body:
    fitted = split.run(spec)
    begin = time.process_time()
    scores, per_query = measure(fitted.query, split.y_query, fitted.database, split.y_database, spec.seed)
    seconds = {"fit": fitted.fit_seconds, "encode": fitted.encode_seconds, "evaluate": time.process_time() - begin}
    return {"scores": scores, "seconds": {name: rounded(value) for name, value in seconds.items()}}, per_query


def _follow(spec: RunSpec, split: SharedSplit) -> Body:
    """The objective of the first run of RSLH, and its value at the initial point."""
    fitted = split.run(spec)
    learner = fitted.hasher[-1]
    values = [rounded(float(value), 8) for value in learner.objective_[:LONGEST_CURVE]]
    curve = {"initial": rounded(initial_objective(learner), 8), "objective": values}
    return {"curve": curve, "seconds": {"fit": rounded(fitted.fit_seconds)}}, None


def _embed(spec: RunSpec, split: SharedSplit) -> Body:
    """Codes of queries, to be drawn."""
    fitted = split.run(spec)
    sample = pack_sample(fitted.query, split.y_query, spec.seed)
    return {"sample": sample, "seconds": {"fit": rounded(fitted.fit_seconds)}}, None


def _cost(spec: RunSpec, split: SharedSplit) -> Body:
    """Seconds and memory of one fit from raw rows, nothing shared; meant for a process of its own."""
    before = resident_memory()
    begin = time.process_time()
    if spec.method == DENSE:
        _fit_dense(spec, split)
    else:
        hasher = make_hasher(
            spec.method, spec.n_bits, front_end=dict(spec.front_end), random_state=spec.seed, **spec.settings
        )
        hasher.fit(split.X_train, split.y_train)
    seconds = time.process_time() - begin
    return {
        "seconds": {"fit": rounded(seconds)},
        "added_memory_mib": rounded(max(0.0, peak_memory() - before)),
        "rows_learned": len(split.X_train),
    }, None


def _fit_dense(spec: RunSpec, split: SharedSplit) -> None:
    features = AnchorRBF(random_state=spec.seed, **dict(spec.front_end)).fit(split.X_train).transform(split.X_train)
    n_classes = len(np.unique(split.y_train))
    first = 2 * np.random.RandomState(spec.seed).randint(0, 2, size=(n_classes, spec.n_bits)) - 1
    fit_dense(features.astype(np.float64), split.y_train, first.astype(np.float64))


TASKS: dict[str, Callable[[RunSpec, SharedSplit], Body]] = {
    "scores": _score,
    "convergence": _follow,
    "embedding": _embed,
    "cost": _cost,
}


def initial_objective(learner: RSLH) -> float:
    """The objective of the first run of a fitted RSLH before its first step: random H and W, B and P zero."""
    if not isinstance(learner, RSLH):
        raise InvalidInput(f"The task 'convergence' is for rslh. Got {type(learner).__name__} instead.")
    offset = learner.offset_
    seen = learner.statistics_ if offset is None else learner.statistics_.centred(offset)
    problem = Problem.of(seen, learner._check_params())
    rng = np.random.RandomState(learner._seed)
    seeds = rng.randint(np.iinfo(np.int32).max, size=1 if learner.boosting is None else learner.n_runs)
    C, W = start(problem, np.random.RandomState(int(seeds[0])))
    nothing, zeros = np.zeros((C.shape[1],) * 2), np.zeros((seen.n_features, C.shape[1]))
    EtH = problem.N[:, None] * C
    return objective(
        problem,
        W=W,
        V=W.T,
        EtB=np.zeros(EtH.shape),
        EtH=EtH,
        BtB=nothing,
        HtH=C.T.astype(np.float64) @ EtH,
        trHtB=0.0,
        XtB=zeros,
        P=zeros,
    )


def _too_long(spec: RunSpec, split: SharedSplit) -> bool:
    """Whether the method says that it cannot learn so many bits from such rows."""
    if spec.method == DENSE:
        return False
    made = make_hasher(spec.method, spec.n_bits, **spec.settings)
    learner, n_features = made[-1], split.X_train.shape[1]
    if not isinstance(learner, BaseHasher) or isinstance(made[0], AnchorRBF):
        return False
    return spec.n_bits > learner.max_bits(n_features, split.data.n_classes)
