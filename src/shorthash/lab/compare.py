"""Every method on the user's own rows: one split, several lengths, tie-aware scores with intervals, and their cost.

Rows are split once into queries and the rest; the rest is the database, and what the codes are learned from. Kernel
maps, sums and posteriors are computed once and shared by all methods and lengths that want the same.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning

from shorthash._labels import LabelGroups, group_labels
from shorthash._validation import check_choice, check_count, check_finite, check_n_bits
from shorthash.codes import pack
from shorthash.data.datasets import Dataset
from shorthash.data.splits import Protocol, RandomQueries
from shorthash.errors import AnchorWarning, CollisionWarning, InvalidInput, ShorthashError
from shorthash.evaluation.scores import Scores, evaluate
from shorthash.evaluation.statistics import compare, summarise
from shorthash.lab.plan import group_runs
from shorthash.lab.runs import RunSpec
from shorthash.lab.sharing import SharedSplit
from shorthash.recipes import recipes

__all__ = ["DEFAULT_METHODS", "MethodComparison", "MethodScore", "compare_methods", "default_lengths"]

# the ten of the paper, the baseline that any of them should beat, and what we recommend
DEFAULT_METHODS = (
    *("sh", "pcaitq", "pcarr", "mfh", "sdh", "nsh", "fssh", "sslh", "sdhmlr", "rslh"),
    "classifier",
    "auto",
)
MAX_QUERIES = 1000
MAX_TRAIN = 10_000  # rows to learn from, unless told: enough for every method, and minutes instead of hours
RESAMPLES = 2000
MAX_ROWS = 100_000  # of more rows a random part is taken, so that kernel maps fit in memory
FEWEST = 10
NEAR = 100  # list length of the precision that is shown


@dataclass(frozen=True)
class MethodScore:
    """What one method reaches at one length.

    Attributes
    ----------
    method, n_bits : which
    map, map_low, map_high : tie-aware mAP and its 95 % bootstrap interval over queries
    map_worst, map_best : the same with ties ordered against, or for, the query
    map_at_radius, precision_at_radius, recall_at_radius, empty_balls : inside the ball
    precision_at_k : precision among the first ``k`` items
    behind : mAP of the best method of this length minus this one
    p_value : of that difference, query by query; nan for the best itself
    used_codes : distinct codes in the database
    fit_seconds, encode_microseconds : CPU time to learn, and per row to encode, front end included
    """

    method: str
    n_bits: int
    map: float
    map_low: float
    map_high: float
    map_worst: float
    map_best: float
    map_at_radius: float
    precision_at_radius: float
    recall_at_radius: float
    empty_balls: float
    precision_at_k: float
    behind: float
    p_value: float
    used_codes: int
    fit_seconds: float
    encode_microseconds: float


@dataclass(frozen=True)
class MethodComparison:
    """All methods at all lengths.

    Attributes
    ----------
    rows : one per method and length, in the order asked for
    skipped : (method, bits or None for all, why) of what could not be run
    n_given : rows that were given; of more than 100 000, so many were drawn
    n_rows, n_features, n_classes, multilabel : the data
    n_queries, n_train, n_database : the split
    radius, k, seed : what was asked for
    seconds : time for everything
    """

    rows: tuple[MethodScore, ...]
    skipped: tuple[tuple[str, int | None, str], ...]
    n_given: int
    n_rows: int
    n_features: int
    n_classes: int
    multilabel: bool
    n_queries: int
    n_train: int
    n_database: int
    radius: int
    k: int
    seed: int
    seconds: float

    def best(self, n_bits: int) -> MethodScore:
        """The method with the highest mAP at a length."""
        return max((row for row in self.rows if row.n_bits == n_bits), key=lambda row: row.map)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of which anything was run."""
        return tuple(sorted({row.n_bits for row in self.rows}))

    def to_dict(self) -> dict[str, Any]:
        """Everything, plain."""
        names = ("method", "n_bits", "reason")
        skipped = [dict(zip(names, each, strict=True)) for each in self.skipped]
        return {**asdict(self), "rows": [asdict(row) for row in self.rows], "skipped": skipped}


def compare_methods(
    X: ArrayLike,
    y: ArrayLike,
    *,
    lengths: Sequence[int] | None = None,
    methods: Sequence[str] = DEFAULT_METHODS,
    n_queries: int | None = None,
    n_train: int | None = None,
    radius: int = 2,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> MethodComparison:
    """Learn, encode and score with every method on one split of the rows.

    Parameters
    ----------
    X : (n_samples, n_features) features
    y : labels: (n_samples,) classes, or an indicator matrix; items are relevant that share a label
    lengths : code lengths; by default four, from the shortest that can tell the classes apart
    methods : names of methods, see ``recipes()``; those that cannot handle the labels are skipped and named
    n_queries : rows kept apart as queries; by default a fifth of the rows, at most 1 000
    n_train : rows to learn from; by default all others, at most 10 000; they are searched, too
    radius : Hamming radius of a lookup
    seed : seed of the split and the methods
    progress : called with (what, done, total)

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> result = compare_methods(X[:500], y[:500], lengths=[4], methods=["pcaitq", "classifier"])
    >>> result.best(4).method, result.n_queries, result.n_database
    ('classifier', 100, 400)
    """
    start = time.perf_counter()
    values, labels, groups = _checked(X, y, seed)
    chosen = sorted({check_n_bits(n, "compare_methods") for n in lengths or default_lengths(len(groups.classes))})
    names = list(dict.fromkeys(methods))
    for name in names:
        check_choice(name, "methods", "compare_methods", list(recipes()))
    if not names:
        raise InvalidInput("compare_methods needs at least one method to try.")
    multilabel = not groups.single
    fit = [name for name in names if recipes()[name].multilabel or not multilabel]
    skipped: list[tuple[str, int | None, str]] = [(n, None, "needs one label per row") for n in names if n not in fit]
    protocol = _protocol(len(values), n_queries, n_train, seed)
    shared = SharedSplit(Dataset("given", values, labels), protocol.to_dict())
    scored: dict[tuple[str, int], _Scored] = {}
    specs = _specs(fit, chosen, protocol, seed)
    for done, spec in enumerate(specs):
        if progress is not None:
            progress(f"{spec.method}, {spec.n_bits} bits", done, len(specs))
        try:
            scored[spec.method, spec.n_bits] = _score(shared, spec, radius)
        except ShorthashError as error:
            skipped.append((spec.method, spec.n_bits, str(error)))
    if not scored:
        name, _, reason = skipped[0]
        raise InvalidInput(f"No method could be run on these rows, {name} for this reason: {reason}")
    return MethodComparison(
        rows=_rows(scored, names, chosen),
        skipped=tuple(sorted(skipped, key=lambda each: (names.index(each[0]), each[1] or 0))),
        n_given=len(np.asarray(X)),
        n_rows=len(values),
        n_features=values.shape[1],
        n_classes=len(groups.classes),
        multilabel=multilabel,
        n_queries=len(shared.X_query),
        n_train=len(shared.X_train),
        n_database=len(shared.X_database),
        radius=radius,
        k=min(NEAR, len(shared.X_database)),
        seed=seed,
        seconds=time.perf_counter() - start,
    )


def default_lengths(n_classes: int) -> tuple[int, ...]:
    """Four lengths, two bits apart, from the shortest even one that can tell the classes apart; never below 4.

    Examples
    --------
    >>> default_lengths(10), default_lengths(101)
    ((4, 6, 8, 10), (8, 10, 12, 14))
    """
    shortest = max(4, 2 * math.ceil(math.log2(max(n_classes, 2)) / 2))
    return tuple(range(shortest, shortest + 8, 2))


@dataclass(frozen=True)
class _Scored:
    scores: Scores
    used_codes: int
    fit_seconds: float
    encode_microseconds: float


def _score(shared: SharedSplit, spec: RunSpec, radius: int) -> _Scored:
    """Learn, encode, evaluate."""
    with warnings.catch_warnings():
        for kind in (AnchorWarning, CollisionWarning, ConvergenceWarning):  # the scores tell what comes of it
            warnings.simplefilter("ignore", kind)
        run = shared.run(spec)
    scores = evaluate(
        run.query,
        shared.y_query,
        run.database,
        shared.y_database,
        radius=min(radius, spec.n_bits),
        k=min(NEAR, len(run.database)),
    )
    per_row = 1e6 * run.encode_seconds / (len(run.query) + len(run.database))
    return _Scored(scores, len(np.unique(pack(run.database))), run.fit_seconds, per_row)


def _specs(names: Sequence[str], lengths: Sequence[int], protocol: Protocol, seed: int) -> list[RunSpec]:
    """All runs; those that share a kernel stand together, and so do the lengths of a method."""
    facts = {"task": "scores", "dataset": "given", "protocol": protocol.to_dict(), "seed": seed}
    made = [RunSpec.of(**facts, method=name, n_bits=n_bits) for name in names for n_bits in lengths]
    return [run for group in group_runs(made) for run in group.runs]


def _checked(X: ArrayLike, y: ArrayLike, seed: int) -> tuple[NDArray[Any], NDArray[Any], LabelGroups]:
    """Finite rows and as many labels, of two classes or more; a random part of them where there are very many."""
    values, labels = np.asarray(X), np.asarray(y)
    if values.ndim != 2:
        raise InvalidInput(
            f"X of compare_methods must have shape (n_samples, n_features). Got {values.shape} instead; put one sample "
            "per row."
        )
    groups = group_labels(y, owner="compare_methods", n_samples=len(values))
    if len(values) > MAX_ROWS:
        kept = np.sort(np.random.default_rng(seed).choice(len(values), MAX_ROWS, replace=False))
        values, labels = values[kept], labels[kept]
        groups = group_labels(labels, owner="compare_methods")
    if len(groups.rows) < 2:
        raise InvalidInput(
            f"compare_methods needs labels of at least two kinds, but all {len(values)} rows are labelled alike; there "
            "is nothing to tell apart."
        )
    check_finite(values, "compare_methods")
    return values, labels, groups


def _protocol(n_rows: int, n_queries: int | None, n_train: int | None, seed: int) -> Protocol:
    """Queries drawn overall; all others are the database, and some or all of them are learned from."""
    if n_rows < FEWEST:
        raise InvalidInput(f"compare_methods needs at least {FEWEST} rows to split. Got {n_rows} instead; give more.")
    asked = min(MAX_QUERIES, n_rows // 5) if n_queries is None else n_queries
    asked = check_count(asked, "n_queries", "compare_methods", high=n_rows - 2)
    rest = n_rows - asked
    train = check_count(min(MAX_TRAIN, rest) if n_train is None else n_train, "n_train", "compare_methods", high=rest)
    return RandomQueries(n_queries=asked, n_train=None if train == rest else train, seed=seed)


def _rows(
    scored: dict[tuple[str, int], _Scored], names: Sequence[str], lengths: Sequence[int]
) -> tuple[MethodScore, ...]:
    """Rows of the table: by length, methods in the order given."""
    rows = []
    for n_bits in lengths:
        of_length = {name: scored[name, n_bits] for name in names if (name, n_bits) in scored}
        if not of_length:
            continue
        best = max(of_length.values(), key=lambda each: each.scores.map)
        rows += [_row(name, n_bits, each, best) for name, each in of_length.items()]
    return tuple(rows)


def _row(name: str, n_bits: int, scored: _Scored, best: _Scored) -> MethodScore:
    scores = scored.scores
    values = scores.per_query["map"]
    interval = summarise(values[~np.isnan(values)], n_resamples=RESAMPLES)
    against = None if scored is best else compare(best.scores, scores, n_resamples=RESAMPLES)
    return MethodScore(
        method=name,
        n_bits=n_bits,
        map=scores.map,
        map_low=interval.low,
        map_high=interval.high,
        map_worst=scores.map_worst,
        map_best=scores.map_best,
        map_at_radius=scores.map_at_radius,
        precision_at_radius=scores.precision_at_radius,
        recall_at_radius=scores.recall_at_radius,
        empty_balls=scores.empty_balls,
        precision_at_k=next(iter(scores.precision_at_k.values())),
        behind=0.0 if against is None else against.difference,
        p_value=math.nan if against is None else against.p_value,
        used_codes=scored.used_codes,
        fit_seconds=scored.fit_seconds,
        encode_microseconds=scored.encode_microseconds,
    )
