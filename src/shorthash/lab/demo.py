"""The demonstration: short codes for scikit-learn's digits, learned, searched and scored at several lengths."""

from __future__ import annotations

import platform
import statistics
import time
import timeit
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

import shorthash
from shorthash._arrays import Codes
from shorthash._display import HEIGHT, WIDTH
from shorthash._progress import OnStep, with_progress
from shorthash._validation import check_count
from shorthash.codes import CodeQuality, code_quality
from shorthash.data.datasets import Dataset
from shorthash.data.splits import PerClassQueries
from shorthash.evaluation.scores import Scores, evaluate, plot_precision_recall
from shorthash.index.buckets import BucketIndex
from shorthash.lab import figures
from shorthash.lab.maps import draw_bucket_map
from shorthash.lab.sharing import SharedSplit
from shorthash.lab.spec import RunSpec
from shorthash.lab.tables import Column, Table, attribute_table
from shorthash.methods import recipes

LENGTHS = (4, 6, 8, 10)
SHOWN = 10  # neighbours shown per query
HARDEST = 2  # queries shown beside one per class
REPEATS = 5  # of every timing; the median counts
COLUMNS = {
    "n_bits": Column("bits"),
    "scores.map": Column("mAP", 4, "high"),
    "scores.map_worst": Column("worst", 4),
    "scores.map_best": Column("best", 4),
    "scores.map_at_radius": Column("mAP@H<=2", 4, "high"),
    "scores.precision_at_radius": Column("precision@H<=2", 4, "high"),
    "fit_seconds": Column("fit s", 2),
    "encode_microseconds": Column("encode µs/row", 2),
    "search_microseconds": Column("search µs/query", 2),
}


@dataclass(frozen=True)
class Retrieval:
    """The result of one query.

    Attributes
    ----------
    query : its row among all digits
    code : (n_bits,) its signs
    found : (k,) rows of the nearest digits, ties in a seeded random order
    distances : (k,) their Hamming distances
    average_precision : of the whole ranking, tie-aware
    hard : whether it is shown because it scores badly
    """

    query: int
    code: Codes
    found: NDArray[np.int64]
    distances: NDArray[np.int64]
    average_precision: float
    hard: bool


@dataclass(frozen=True)
class LengthRun:
    """One code length, from learning to scores.

    Attributes
    ----------
    n_bits : code length
    scores : tie-aware, with bounds
    quality : how the database codes are used
    database_codes : (n_database, n_bits) signs
    retrievals : what one query of every class and the hardest queries found
    fit_seconds : CPU time to learn
    encode_microseconds, search_microseconds : time per row encoded, per query searched
    """

    n_bits: int
    scores: Scores
    quality: CodeQuality
    database_codes: Codes
    retrievals: tuple[Retrieval, ...]
    fit_seconds: float
    encode_microseconds: float
    search_microseconds: float


@dataclass(frozen=True)
class DemoResult:
    """Everything the page shows.

    Attributes
    ----------
    images : (n, 8, 8) ink from 0 to 1
    y : (n,) the digits
    queries, database : row numbers; the database is also what is learned from
    method, seed : what was learned with
    runs : one per code length, ascending
    seconds : time for everything
    """

    images: NDArray[np.float64]
    y: NDArray[np.int64]
    queries: NDArray[np.intp]
    database: NDArray[np.intp]
    method: str
    seed: int
    runs: tuple[LengthRun, ...]
    seconds: float

    @property
    def best(self) -> LengthRun:
        """The run with the highest mAP."""
        return max(self.runs, key=lambda run: run.scores.map)


@with_progress
def run_demo(
    lengths: Sequence[int] = LENGTHS,
    *,
    per_class: int = 30,
    method: str = "auto",
    seed: int = 0,
    progress: OnStep | None = None,
) -> DemoResult:
    """Learn, index, search and score codes of every length.

    Parameters
    ----------
    lengths : code lengths, ascending
    per_class : images of every digit used as queries; the others are training rows and database
    method : a name that ``make_hasher`` knows
    seed : of the split, the method and the order of ties among the images shown
    progress : called with (what, done, total)
    """
    assert progress is not None
    start = time.perf_counter()
    pixels, y = load_digits(return_X_y=True)
    check_count(per_class, "per_class", "run_demo", high=int(np.bincount(y).min()) - 1)
    split = SharedSplit(Dataset("digits", pixels / 16, y), PerClassQueries(per_class, seed=seed).to_dict())
    runs = []
    with threadpool_limits(limits=1):  # many small products: threads would wait for each other
        for done, n_bits in enumerate(lengths):
            progress(f"{n_bits} bits: learning, searching, scoring", done, len(lengths))
            runs.append(_run_length(split, method, n_bits, seed))
    return DemoResult(
        images=pixels.reshape(-1, 8, 8) / 16,
        y=y,
        queries=split.rows.query,
        database=split.rows.database,
        method=method,
        seed=seed,
        runs=tuple(runs),
        seconds=time.perf_counter() - start,
    )


def demo_table(result: DemoResult) -> Table:
    """One row per code length."""
    return attribute_table(COLUMNS, result.runs)


def write_demo(result: DemoResult, folder: str | Path) -> Path:
    """Write ``report.html`` into a folder, created if necessary; return its path."""
    return figures.write_page(demo_page(result), folder, "report.html", files=False)


def demo_page(result: DemoResult) -> figures.Page:
    """The result as a page."""
    method, best = recipes()[result.method], result.best
    lengths = [run.n_bits for run in result.runs]
    shown = {run.n_bits: run for run in (result.runs[0], result.runs[-1])}
    return figures.Page(
        title=f"Handwritten digits in {lengths[0]} to {lengths[-1]} bits",
        lede=f"{len(result.y)} images of {len(np.unique(result.y))} digits, {result.images[0].size} pixels each. "
        f"{len(result.queries)} of them are queries; the other {len(result.database)} are what the codes are learned "
        f"from and the database that is searched. {method.full_name} turns every image into a code so short that it is "
        "the address of a bucket; images of the same digit should be in the same bucket or in one nearby.",
        facts=[
            (f"{best.scores.map:.3f}", f"mAP with {best.n_bits} bits per image, ties counted exactly"),
            (f"{best.quality.purity:.1%}", "of the images are in a bucket where their digit is the most frequent"),
            (f"{best.fit_seconds:.2f} s", f"to learn the {best.n_bits}-bit code"),
            (f"{best.search_microseconds:.1f} µs", "per query to find its ten nearest, in a batch"),
        ],
        sections=[
            figures.Section(
                "lengths",
                "By code length",
                "mAP is the exact mean over all orders of items at equal distance; worst and best are what the worst "
                "and the best order would give. H<=2 counts only what lies within two bit flips of the query.",
                tables={"": demo_table(result)},
            ),
            figures.Section("figures", "Figures", figures=_figures(result)),
            figures.Section(
                "queries",
                "What queries find",
                "One query of every digit, drawn at random, and the hardest ones: those with the lowest average "
                "precision. Beside each are the nearest images and their Hamming distances d; where more are equally "
                "near, they are drawn at random. Images of another digit are framed and marked with a cross.",
                html=_wall(result, shown.values()),
            ),
        ],
        footer=f"Made by shorthash demo in {result.seconds:.1f} s with shorthash {shorthash.__version__}, seed "
        f"{result.seed}, Python {platform.python_version()}, NumPy {np.__version__}, scikit-learn "
        f"{sklearn.__version__}. The images are the digits that come with scikit-learn. Method: {method.reference}",
        wide=False,
    )


def _run_length(split: SharedSplit, method: str, n_bits: int, seed: int) -> LengthRun:
    """Learn, encode, index, search and score codes of one length."""
    fitted = split.run(RunSpec.of("scores", "digits", split.protocol, seed, method, n_bits))
    X = split.data.X
    index = BucketIndex(n_bits).add(fitted.database, ids=split.rows.database)
    scores = evaluate(fitted.query, split.y_query, fitted.database, split.y_database)
    return LengthRun(
        n_bits=n_bits,
        scores=scores,
        quality=code_quality(fitted.database, split.y_database),
        database_codes=fitted.database,
        retrievals=_retrievals(split, fitted.query, index, scores.per_query["map"], seed),
        fit_seconds=fitted.fit_seconds,
        encode_microseconds=1e6 * _median_time(lambda: fitted.hasher.transform(X)) / len(X),
        search_microseconds=1e6 * _median_time(lambda: index.search(fitted.query, SHOWN)) / len(fitted.query),
    )


def _retrievals(
    split: SharedSplit, codes: Codes, index: BucketIndex, values: NDArray[np.float64], seed: int
) -> tuple[Retrieval, ...]:
    """What one random query of every class found, and the queries with the lowest values."""
    rng = np.random.default_rng(seed)
    typical = [int(rng.choice(np.flatnonzero(split.y_query == label))) for label in np.unique(split.y_query)]
    hardest = [int(i) for i in np.argsort(values, kind="stable") if i not in typical][:HARDEST]
    chosen = typical + hardest
    result = index.search(codes[chosen], SHOWN, ties="shuffle", seed=seed)
    return tuple(
        Retrieval(
            query=int(split.rows.query[i]),
            code=codes[i],
            found=result.ids[place],
            distances=result.distances[place].astype(np.int64),
            average_precision=float(values[i]),
            hard=place >= len(typical),
        )
        for place, i in enumerate(chosen)
    )


def _median_time(action: Callable[[], Any]) -> float:
    """Seconds that an action takes, the first time not counted."""
    return statistics.median(timeit.repeat(action, number=1, repeat=1 + REPEATS)[1:])


def _figures(result: DemoResult) -> dict[str, tuple[Any, str]]:
    """Figures in the order of the page, each with a caption that has the numbers of this run."""
    scores, labels = [run.scores for run in result.runs], result.y[result.database]
    ties = figures.draw_tie_bounds(
        [run.n_bits for run in result.runs],
        [score.map for score in scores],
        [score.map_worst for score in scores],
        [score.map_best for score in scores],
    )
    curves = {f"{score.n_bits} bits": score.pr_curve for score in scores if score.pr_curve}
    per_class = len(labels) / len(np.unique(labels))
    return {
        "ties": (
            ties,
            (
                "Items at equal distance can be in any order. The dot is the exact mean over all orders, the bar the "
                "range from the worst order to the best: the fewer bits, the less a score says without its tie rule."
            ),
        ),
        "radius": (
            figures.figure_of(
                plot_precision_recall, curves, title="Precision and recall by radius", width=WIDTH, height=HEIGHT
            ),
            (
                "From left to right the ball around a query grows by one bit flip per mark: more of the relevant items "
                "are inside, and in the end everything else too."
            ),
        ),
        "map-short": (
            draw_bucket_map(result.runs[0].database_codes, labels),
            _map_caption(result.runs[0])
            + " Squares that touch differ in one bit; each names its digits and how many there are.",
        ),
        "map-long": (
            draw_bucket_map(result.runs[-1].database_codes, labels),
            _map_caption(result.runs[-1]) + " Squares name their most frequent digit; pale ones hold few images.",
        ),
        "first-k": (
            figures.draw_precision_at_k({f"{score.n_bits} bits": score.precision_at_k for score in scores}),
            (
                f"A class has about {per_class:.0f} images here; in a longer list precision must fall, because no "
                "relevant images are left."
            ),
        ),
    }


def _map_caption(run: LengthRun) -> str:
    """What the buckets of a length hold."""
    collisions = run.quality.class_collisions
    pairs = {0: "no two digits", 1: "two digits"}.get(collisions, f"{collisions} pairs of digits")
    return (
        f"The {run.n_bits}-bit codes of the database: {pairs} share their main bucket, and "
        f"{100 * run.quality.purity:.1f} per cent of the images are in a bucket where their digit is the most frequent."
    )


def _wall(result: DemoResult, runs: Iterable[LengthRun]) -> str:
    """The queries shown and what they found, as HTML."""
    walls = []
    for run in runs:
        right = [result.y[r.found] == result.y[r.query] for r in run.retrievals if not r.hard]
        walls.append({"run": run, "right": int(np.sum(right)), "found": np.size(right)})
    values = {"walls": walls, "y": result.y.tolist(), "image": lambda row: figures.image_uri(result.images[row])}
    return figures.render("wall.html", values)
