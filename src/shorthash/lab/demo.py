"""The demonstration: short codes for scikit-learn's digits, learned, searched and scored at several lengths."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from shorthash._types import Codes
from shorthash._validation import check_count
from shorthash.codes import CodeQuality, code_quality
from shorthash.evaluation.scores import Scores, evaluate
from shorthash.index.buckets import BucketIndex
from shorthash.recipes import HasherPipeline, make_hasher

__all__ = ["DemoResult", "Digits", "LengthRun", "Retrieval", "Wall", "run_demo"]

LENGTHS = (4, 6, 8, 10)
BY_K = (1, 2, 5, 10, 20, 50, 100, 200, 500)
SHOWN = 10  # neighbours per query on the wall
HARDEST = 2  # queries that the wall adds to one per class
REPEATS = 5  # of every timing; the median counts

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Digits:
    """Handwritten digits, split into queries and database.

    Attributes
    ----------
    images : (n, 8, 8) ink from 0 to 1
    y : (n,) which digit
    queries, database : row numbers; the database is also what is learned from
    """

    images: NDArray[np.float64]
    y: NDArray[np.int64]
    queries: NDArray[np.int64]
    database: NDArray[np.int64]

    @property
    def X(self) -> NDArray[np.float64]:
        """Features: the pixels, (n, 64)."""
        return self.images.reshape(len(self.images), -1)


@dataclass(frozen=True)
class Retrieval:
    """What one query found.

    Attributes
    ----------
    query : its row among all digits
    code : (n_bits,) its signs
    found : (k,) rows of the nearest digits, ties drawn by a seeded shuffle
    distances : (k,) their Hamming distances
    average_precision : of the whole ranking, tie-aware
    hard : whether it is shown because it did badly
    """

    query: int
    code: Codes
    found: NDArray[np.int64]
    distances: NDArray[np.int64]
    average_precision: float
    hard: bool


@dataclass(frozen=True)
class Wall:
    """Some queries and what they found with codes of one length."""

    n_bits: int
    retrievals: tuple[Retrieval, ...]


@dataclass(frozen=True)
class LengthRun:
    """One code length, from learning to scores.

    Attributes
    ----------
    n_bits : code length
    scores : tie-aware, with bounds
    quality : health of the database codes
    objective : one sequence of values per run of the learner; empty for methods without an objective
    database_codes : (n_database, n_bits) signs
    fit_seconds, encode_microseconds, search_microseconds : time to learn, per row encoded, per query searched
    """

    n_bits: int
    scores: Scores
    quality: CodeQuality
    objective: tuple[tuple[float, ...], ...]
    database_codes: Codes
    fit_seconds: float
    encode_microseconds: float
    search_microseconds: float


@dataclass(frozen=True)
class DemoResult:
    """Everything the report shows.

    Attributes
    ----------
    digits : the data
    method, seed : what was learned with
    runs : one per code length
    walls : what some queries found, with the shortest codes and with the best
    seconds : time for everything
    """

    digits: Digits
    method: str
    seed: int
    runs: tuple[LengthRun, ...]
    walls: tuple[Wall, ...]
    seconds: float


def run_demo(
    lengths: Sequence[int] = LENGTHS,
    *,
    n_queries: int = 300,
    n_anchors: int | None = None,
    method: str = "rslh",
    seed: int = 0,
    progress: Progress | None = None,
) -> DemoResult:
    """Learn, index, search and score codes of every length.

    Parameters
    ----------
    lengths : code lengths, in bits
    n_queries : digits kept apart as queries, the same share of every class; the rest is training set and database
    n_anchors : anchors of the kernel features; None: as the method says
    method : a name that ``make_hasher`` knows
    seed : of the split, the learner and the order of ties on the wall
    progress : called with what comes next, steps done and steps in all
    """
    tell = progress or _silent
    start, total = time.perf_counter(), len(lengths) + 1
    tell("reading the digits", 0, total)
    digits = load_split(n_queries, seed)
    front_end = None if n_anchors is None else {"n_anchors": n_anchors}
    runs, walls = [], []
    for done, n_bits in enumerate(lengths):
        tell(f"{n_bits} bits: learning, searching, scoring", done, total)
        hasher = make_hasher(method, n_bits, front_end=front_end, random_state=seed)
        run, wall = _run_length(digits, hasher, seed)
        runs.append(run)
        walls.append(wall)
    tell("choosing what to show", total - 1, total)
    shortest = min(range(len(runs)), key=lambda i: runs[i].n_bits)
    best = max(range(len(runs)), key=lambda i: runs[i].scores.map)
    return DemoResult(
        digits=digits,
        method=method,
        seed=seed,
        runs=tuple(runs),
        walls=tuple(walls[i] for i in dict.fromkeys([shortest, best])),
        seconds=time.perf_counter() - start,
    )


def load_split(n_queries: int, seed: int) -> Digits:
    """scikit-learn's digits, with as many queries of every class as its share allows."""
    pixels, y = load_digits(return_X_y=True)
    check_count(n_queries, "n_queries", "run_demo", low=len(np.unique(y)), high=len(y) // 2)
    database, queries = train_test_split(np.arange(len(y)), test_size=n_queries, stratify=y, random_state=seed)
    return Digits(pixels.reshape(-1, 8, 8) / 16.0, y, np.sort(queries), np.sort(database))


def _run_length(digits: Digits, hasher: HasherPipeline, seed: int) -> tuple[LengthRun, Wall]:
    """One length, and what its queries found."""
    X, y, rows, n_bits = digits.X, digits.y, digits.database, hasher[-1].n_bits
    start = time.perf_counter()
    hasher.fit(X[rows], y[rows])
    fit_seconds = time.perf_counter() - start
    codes = hasher.transform(X)
    queries, database = codes[digits.queries], codes[rows]
    index = BucketIndex(n_bits).add(database, ids=rows)
    scores = evaluate(queries, y[digits.queries], database, y[rows], k=[k for k in BY_K if k <= len(rows)])
    run = LengthRun(
        n_bits=n_bits,
        scores=scores,
        quality=code_quality(database, y[rows]),
        objective=_objectives(hasher[-1]),
        database_codes=database,
        fit_seconds=fit_seconds,
        encode_microseconds=1e6 * _median_time(lambda: hasher.transform(X)) / len(X),
        search_microseconds=1e6 * _median_time(lambda: index.search(queries, SHOWN)) / len(queries),
    )
    return run, Wall(n_bits, _retrievals(digits, queries, index, scores, seed))


def _retrievals(digits: Digits, codes: Codes, index: BucketIndex, scores: Scores, seed: int) -> tuple[Retrieval, ...]:
    """What one query of every class found, and the queries that did worst."""
    values = scores.per_query["map"]
    labels = digits.y[digits.queries]
    rng = np.random.default_rng(seed)
    typical = [int(rng.choice(np.flatnonzero(labels == label))) for label in np.unique(labels)]
    hardest = [int(i) for i in np.argsort(values, kind="stable") if i not in typical][:HARDEST]
    chosen = typical + hardest
    result = index.search(codes[chosen], SHOWN, ties="shuffle", seed=seed)
    return tuple(
        Retrieval(
            query=int(digits.queries[i]),
            code=codes[i],
            found=result.ids[row],
            distances=result.distances[row].astype(np.int64),
            average_precision=float(values[i]),
            hard=row >= len(typical),
        )
        for row, i in enumerate(chosen)
    )


def _silent(_what: str, _done: int, _total: int) -> None:
    """Nobody wants to know."""


def _objectives(learner: Any) -> tuple[tuple[float, ...], ...]:
    """The objective of every run, where the method has one."""
    if hasattr(learner, "convergence_"):
        return tuple(run.objective for run in learner.convergence_)
    return (tuple(learner.objective_),) if hasattr(learner, "objective_") else ()


def _median_time(action: Callable[[], Any]) -> float:
    """Seconds that an action takes, the first time not counted."""
    action()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
