"""The tasks of runs, and their records.

==================  ===================================================================================================
``scores``          fit, encode queries and database, score
``conventions``     the same codes under every tie order and under every convention of published code
``reranking``       items at equal distance ordered by posteriors or features; cells in the order of ``relevance``
``neighbours``      fit without labels; mAP and recall where the nearest rows are relevant, and mAP by class
``validation``      three folds of the training rows: each is encoded by a model of the other two, and scored in itself
``cost``            time and memory of one fit from raw rows, in a separate process
``convergence``     the objective by iteration
``embedding``       codes of up to 1 000 queries, for a figure
==================  ===================================================================================================
"""

from __future__ import annotations

import base64
import contextlib
import functools
import os
import platform
import re
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash import __version__
from shorthash._arrays import Codes, Floats, Labels
from shorthash._labels import group_labels
from shorthash.codes import pack
from shorthash.codes.signs import sign
from shorthash.data.datasets import Dataset
from shorthash.errors import InvalidInput
from shorthash.evaluation import CONVENTIONS, evaluate, evaluate_cells, evaluate_neighbours, evaluate_reranked
from shorthash.kernels.rbf import AnchorRBF
from shorthash.lab.advice import balanced_folds
from shorthash.lab.sharing import SharedSplit, make_run_hasher
from shorthash.lab.spec import RunSpec
from shorthash.learners.base import BaseHasher
from shorthash.learners.eaph.pairs import RelevantPairs
from shorthash.methods import recipes
from shorthash.pipeline import HasherPipeline

SCHEMA = 1  # of records
FEW, MANY = 100, 5000  # list lengths; the second is that of the code of the RSLH authors
DIGITS = 5  # significant ones, of every number in a record
SAMPLE = 1000  # codes in a record of "embedding", at most
SHUFFLES = 10  # random orders of the database in "conventions"
RERANKED = 250  # queries in "reranking": the whole database is sorted by vectors for each
FOLDS = 3
SHARES = (0.001, 0.003, 0.01, 0.03, 0.1)  # of the database that is read, in "neighbours"
PAIRS = 20_000  # drawn in "pairs"
LONGEST_CURVE = 100  # iterations kept of an objective
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")
KEPT = ("map", "map_h2", "precision_at_100", "precision_at_5000")  # scores whose per-query values are stored


def make_record(
    spec: RunSpec, split: SharedSplit, found: Dataset
) -> tuple[dict[str, Any], Mapping[str, NDArray[Any]] | None]:
    """Do a run; return its record, and its per-query scores or None.

    If a method is not defined for a code length or for several labels, the record has the reason (``undefined``) in
    place of scores.

    Parameters
    ----------
    spec : the run
    split : the rows, and what runs on them share
    found : the data set as it was read
    """
    wall = time.perf_counter()
    with contextlib.suppress(OSError):  # reset the peak memory, if the system can
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # collisions, anchors, iterations: their effect is in the scores
        try:
            body = FUNCTIONS[spec.task](spec, split)
        except InvalidInput as error:
            if not _undefined(spec, split):
                raise
            body = {"undefined": str(error)[:300]}
    record = {
        "schema": SCHEMA,
        "run": spec.name,
        "spec": spec.to_dict(),
        **body,
        "peak_memory_mib": rounded(_memory("VmHWM")),
        "data": {
            "name": found.name,
            "fingerprint": found.fingerprint,
            "rows": len(found),
            "dims": found.X.shape[1],
            "classes": found.n_classes,
        },
        **_provenance(),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    per_query = record.pop("per_query", None)
    record.setdefault("seconds", {})["wall"] = rounded(time.perf_counter() - wall)
    return record, per_query


def measure(
    query: Codes, query_labels: ArrayLike, database: Codes, database_labels: ArrayLike, seed: int
) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
    """Every score of a record, and the main ones per query.

    ``map_stable`` and ``precision_at_5000`` follow the code of the RSLH authors (ties in database order), on a
    database shuffled with the seed; all others are exact expectations over ties, in particular
    ``precision_at_5000_expected``.

    Parameters
    ----------
    query, database : codes
    query_labels, database_labels : their labels
    seed : of the shuffle
    """
    expected = evaluate(query, query_labels, database, database_labels, k=(FEW, MANY)).per_query
    order = np.random.default_rng(seed).permutation(len(database))
    labels = np.asarray(database_labels)[order]
    stable = evaluate(query, query_labels, database[order], labels, k=MANY, convention="sdh").per_query
    columns: dict[str, Floats] = {
        "map": expected["map"],
        "map_best": expected["map_best"],
        "map_worst": expected["map_worst"],
        "map_h2": expected["map_at_radius"],
        "map_stable": stable["map"],
        "precision_at_100": expected["precision_at_k"][:, 0],
        "precision_at_5000": stable["precision_at_k"][:, 0],
        "precision_at_5000_expected": expected["precision_at_k"][:, 1],
        "precision_h2": expected["precision_at_radius"],
        "recall_h2": expected["recall_at_radius"],
    }
    scores = {name: summary(values) for name, values in columns.items()}
    return scores, {name: columns[name].astype(np.float32) for name in KEPT}


def summary(values: Floats) -> dict[str, Any]:
    """Mean, standard deviation and quartiles over the queries, nan ignored.

    Examples
    --------
    >>> summary(np.array([0.0, 0.25, 0.5, np.nan]))
    {'mean': 0.25, 'std': 0.25, 'quantiles': [0.0, 0.125, 0.25, 0.375, 0.5]}
    """
    kept = values[~np.isnan(values)]
    if not len(kept):
        return {"mean": None, "std": None, "quantiles": []}
    spread = float(kept.std(ddof=1)) if len(kept) > 1 else 0.0
    quantiles = [rounded(float(value)) for value in np.quantile(kept, (0, 0.25, 0.5, 0.75, 1))]
    return {"mean": rounded(float(kept.mean())), "std": rounded(spread), "quantiles": quantiles}


def rounded(value: float, digits: int = DIGITS) -> float:
    """A number rounded to some significant digits."""
    return float(f"{value:.{digits}g}")


def pack_sample(codes: Codes, classes: ArrayLike, seed: int = 0) -> dict[str, Any]:
    """Codes and classes of up to 1 000 items as one string of bits, for a record.

    Parameters
    ----------
    codes : (n, n_bits) signs
    classes : (n,) class labels
    seed : of the sample, if there are more items

    Examples
    --------
    >>> codes, classes = unpack_sample(pack_sample(np.array([[1, -1], [-1, -1]], dtype=np.int8), ["b", "a"]))
    >>> codes.tolist(), classes.tolist()
    ([[1, -1], [-1, -1]], ['b', 'a'])
    """
    names, ids = np.unique(np.asarray(classes), return_inverse=True)
    n_items = min(len(codes), SAMPLE)
    chosen = np.sort(np.random.default_rng(seed).choice(len(codes), n_items, replace=False))
    class_bits = (ids[chosen, None] >> np.arange(_class_bits(names))) & 1
    bits = np.hstack([codes[chosen] > 0, class_bits.astype(bool)])
    text = base64.b64encode(np.packbits(bits).tobytes()).decode("ascii")
    return {"items": n_items, "n_bits": codes.shape[1], "classes": names.tolist(), "packed": text}


def unpack_sample(sample: Mapping[str, Any]) -> tuple[Codes, Labels]:
    """Codes, (n, n_bits), and classes, (n,), of a packed sample."""
    names: NDArray[Any] = np.array(sample["classes"])
    n_items, n_bits, class_bits = int(sample["items"]), int(sample["n_bits"]), _class_bits(names)
    octets = np.frombuffer(base64.b64decode(sample["packed"]), dtype=np.uint8)
    bits = np.unpackbits(octets)[: n_items * (n_bits + class_bits)].reshape(n_items, n_bits + class_bits)
    ids = bits[:, n_bits:].astype(np.int64) @ (1 << np.arange(class_bits))
    return sign(bits[:, :n_bits].astype(np.float64) - 0.5), names[ids]


def _score(spec: RunSpec, split: SharedSplit) -> dict[str, Any]:
    fitted = split.run(spec)
    begin = time.process_time()
    scores, per_query = measure(fitted.query, split.y_query, fitted.database, split.y_database, spec.seed)
    seconds = {"fit": fitted.fit_seconds, "encode": fitted.encode_seconds, "evaluate": time.process_time() - begin}
    learned = getattr(fitted.hasher[-1], "codes_", None)
    used = fitted.hasher.transform(split.X_train)
    codes = {"learned": None if learned is None else len(np.unique(pack(learned))), "used": len(np.unique(pack(used)))}
    return {
        "scores": scores,
        "codes": codes,  # distinct ones of the training rows: as learned, and as encoded
        "seconds": {name: rounded(value) for name, value in seconds.items()},
        "per_query": per_query,
    }


def _conventions(spec: RunSpec, split: SharedSplit) -> dict[str, Any]:
    """The mAP by the order of tied items alone, and by the rules of published code."""
    fitted = split.run(spec)
    y = np.asarray(split.y_database)

    def ordered(order: NDArray[np.intp], **rules: Any) -> Any:
        return evaluate(fitted.query, split.y_query, fitted.database[order], y[order], **rules)

    orders = [np.random.default_rng(seed).permutation(len(y)) for seed in range(SHUFFLES)]
    expected = ordered(orders[0])
    shuffled = [ordered(order, ties="stable").map for order in orders]
    by_class = np.argsort(y, kind="stable") if y.ndim == 1 else np.lexsort(y.T)
    values = {
        "map_worst": expected.map_worst,
        "map": expected.map,
        "map_best": expected.map_best,
        "map_by_class": ordered(by_class, ties="stable").map,
        "map_shuffled_low": min(shuffled),
        "map_shuffled_high": max(shuffled),
        **{f"convention_{name}": ordered(orders[0], convention=name).headline for name in CONVENTIONS},
    }
    return {"scores": _means(values), "seconds": {"fit": rounded(fitted.fit_seconds)}}


def _rerank(spec: RunSpec, split: SharedSplit) -> dict[str, Any]:
    """The mAP of some queries, ties broken by vectors; of posteriors without codes; of cells in learned order."""
    fitted = split.run(spec)
    learner = fitted.hasher[-1]
    if len(fitted.hasher.steps) > 1 or not hasattr(learner, "relevance"):
        raise InvalidInput(f"The task 'reranking' needs a method with posteriors, such as auto. Got {spec.method}.")
    chosen = np.random.default_rng(spec.seed).permutation(len(split.X_query))[:RERANKED]
    X, y, codes = split.X_query[chosen], split.y_query[chosen], fitted.query[chosen]
    mean = split.X_train.mean(axis=0)
    posteriors = learner.predict_proba(X), learner.predict_proba(split.X_database)
    features = X - mean, split.X_database - mean

    def value(pair: tuple[Codes, Codes], vectors: tuple[Any, Any], metric: str) -> float:
        sides = (pair[0], y, vectors[0], pair[1], split.y_database, vectors[1])
        return evaluate_reranked(*sides, metric=metric, k=FEW).map

    same = np.ones((len(X), 1), dtype=np.int8), np.ones((len(split.X_database), 1), dtype=np.int8)
    cells = np.searchsorted(learner.cells_, pack(fitted.database))  # cells in use are sorted
    values = {
        "by_relevance": evaluate_cells(-learner.relevance(X), y, cells, split.y_database, k=FEW).map,
        "by_posteriors": value((codes, fitted.database), posteriors, "dot"),
        "by_features": value((codes, fitted.database), features, "cosine"),
        "posteriors_alone": value(same, posteriors, "dot"),
    }
    return {"scores": _means(values), "seconds": {"fit": rounded(fitted.fit_seconds)}}


def _neighbours(spec: RunSpec, split: SharedSplit) -> dict[str, Any]:
    """Scores of codes that were learned without labels."""
    hasher, seconds, query, database = _fitted(spec, split, split.X_train)
    lists = split.nearest(FEW)
    by_rings = evaluate_neighbours(query, database, neighbours=lists, shares=SHARES)
    values = {
        "neighbour_map": by_rings.map,
        "class_map": evaluate(query, split.y_query, database, split.y_database).map,
        **{f"recall_{share:g}": value for share, value in by_rings.recall.items()},
    }
    learner = hasher[-1]
    if hasattr(learner, "relevance"):
        order = {"relevance": learner.relevance(split.X_query), "cells": learner.cells_}
        probed = evaluate_neighbours(query, database, neighbours=lists, shares=SHARES, **order)
        values |= {f"probed_{share:g}": value for share, value in probed.recall.items()}
    return {"scores": _means(values), "seconds": {"fit": seconds}}


def _few_labels(spec: RunSpec, split: SharedSplit) -> dict[str, Any]:
    """Scores of codes from the labels of the training rows, and from all other rows of the database without theirs."""
    known = np.isin(split.rows.database, split.rows.train)
    y = np.full(len(known), None, dtype=object)
    y[known] = split.y_database[known]
    return _scored(spec, split, split.X_database, y)


def _pairs(spec: RunSpec, split: SharedSplit) -> dict[str, Any]:
    """Scores of codes from pairs of training rows with equal labels, drawn at random; no label is given."""
    ids = group_labels(split.y_train, owner="pairs").ids
    rng = np.random.default_rng(spec.seed)
    counts = np.bincount(ids)
    first = rng.integers(len(ids), size=PAIRS)
    place = (np.cumsum(counts) - counts)[ids[first]] + (rng.random(PAIRS) * counts[ids[first]]).astype(np.intp)
    drawn = np.column_stack([first, np.argsort(ids, kind="stable")[place]])
    return _scored(spec, split, split.X_train, RelevantPairs(drawn[drawn[:, 0] != drawn[:, 1]]))


def _scored(spec: RunSpec, split: SharedSplit, X: Any, y: Any) -> dict[str, Any]:
    """Scores of codes that were learned from these rows."""
    _, seconds, query, database = _fitted(spec, split, X, y)
    scores, per_query = measure(query, split.y_query, database, split.y_database, spec.seed)
    return {"scores": scores, "seconds": {"fit": seconds}, "per_query": per_query}


def _fitted(spec: RunSpec, split: SharedSplit, X: Any, y: Any = None) -> tuple[HasherPipeline, float, Codes, Codes]:
    """A hasher fitted to these rows without sharing, the seconds, and its codes of queries and database."""
    hasher = make_run_hasher(spec)
    begin = time.process_time()
    hasher.fit(X, y)
    seconds = rounded(time.process_time() - begin)
    return hasher, seconds, hasher.transform(split.X_query), hasher.transform(split.X_database)


def _validate(spec: RunSpec, split: SharedSplit) -> dict[str, Any]:
    """Scores for choosing settings: only training rows are read."""
    X, y = split.X_train, split.y_train
    fold = balanced_folds(group_labels(y, owner="validation").ids, FOLDS, spec.seed)
    values = []
    for k in range(FOLDS):
        hasher = make_run_hasher(spec).fit(X[fold != k], y[fold != k])
        values.append(evaluate(hasher.transform(X[fold == k]), y[fold == k]).map)
    return {"scores": {"map": summary(np.array(values))}}


def _cost(spec: RunSpec, split: SharedSplit) -> dict[str, Any]:
    """Seconds and memory of one fit from raw rows, without sharing."""
    before = _memory("VmRSS")
    begin = time.process_time()
    make_run_hasher(spec).fit(split.X_train, split.y_train)
    seconds = time.process_time() - begin
    added = rounded(max(0.0, _memory("VmHWM") - before))
    return {"seconds": {"fit": rounded(seconds)}, "added_memory_mib": added, "rows_learned": len(split.X_train)}


def _follow(spec: RunSpec, split: SharedSplit) -> dict[str, Any]:
    """The objective of the first run of RSLH, after every iteration and at the starting point."""
    fitted = split.run(spec)
    runs = getattr(fitted.hasher[-1], "convergence_", None)
    if not runs:
        raise InvalidInput(f"The task 'convergence' needs rslh. Got {spec.method} instead.")
    values = [rounded(float(value), 8) for value in runs[0].objective[:LONGEST_CURVE]]
    curve = {"initial": rounded(runs[0].initial, 8), "objective": values}
    return {"curve": curve, "seconds": {"fit": rounded(fitted.fit_seconds)}}


def _embed(spec: RunSpec, split: SharedSplit) -> dict[str, Any]:
    fitted = split.run(spec)
    sample = pack_sample(fitted.query, split.y_query, spec.seed)
    return {"sample": sample, "seconds": {"fit": rounded(fitted.fit_seconds)}}


FUNCTIONS: dict[str, Callable[[RunSpec, SharedSplit], dict[str, Any]]] = {
    "scores": _score,
    "conventions": _conventions,
    "reranking": _rerank,
    "neighbours": _neighbours,
    "few_labels": _few_labels,
    "pairs": _pairs,
    "validation": _validate,
    "cost": _cost,
    "convergence": _follow,
    "embedding": _embed,
}


def _undefined(spec: RunSpec, split: SharedSplit) -> bool:
    """Whether the method is for one label per row, or the code longer than it can learn from these rows."""
    hasher = make_run_hasher(spec)
    learner, n_features = hasher[-1], split.X_train.shape[1]
    if split.data.multilabel and not recipes()[spec.method].multilabel:
        return True
    if not isinstance(learner, BaseHasher) or isinstance(hasher[0], AnchorRBF):
        return False
    return spec.n_bits > learner.max_bits(n_features, split.data.n_classes)


def _means(values: Mapping[str, float]) -> dict[str, Any]:
    return {name: {"mean": rounded(float(value))} for name, value in values.items()}


def _class_bits(names: NDArray[Any]) -> int:
    return max(1, int(np.ceil(np.log2(len(names)))))


@functools.cache
def _provenance() -> dict[str, Any]:
    """Versions and machine."""
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
        processor = found.group(1).strip() if found else processor
    packages = {name: version(name) for name in PACKAGES}
    return {
        "versions": {"shorthash": __version__, "python": platform.python_version(), **packages},
        "machine": {
            "cpu": processor,
            "cores": os.cpu_count() or 1,
            "system": f"{platform.system()} {platform.machine()}",
        },
    }


def _memory(key: str) -> float:
    """Memory of this process in MiB: "VmRSS" now, "VmHWM" at its peak; the peak where there is no /proc."""
    with contextlib.suppress(OSError):
        found = re.search(rf"^{key}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"), re.M)
        if found:
            return int(found.group(1)) / 1024
    if os.name != "posix":
        return float("nan")
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
