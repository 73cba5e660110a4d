"""The report of the demonstration: its table, the summary behind the page, and the page itself."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import sklearn

import shorthash
from shorthash.lab.demo import DemoResult, Digits, LengthRun, Retrieval, Wall
from shorthash.lab.figures import (
    draw_bucket_map,
    draw_convergence,
    draw_pr_curve,
    draw_precision_at_k,
    draw_tie_bounds,
    to_svg,
)
from shorthash.lab.page import image_uri, render_page, table_summary, write_page
from shorthash.lab.tables import Column, Table
from shorthash.recipes import recipes

__all__ = ["demo_summary", "demo_table", "write_demo"]

COLUMNS = (
    Column("bits"),
    Column("mAP", 4, "high"),
    Column("worst", 4),
    Column("best", 4),
    Column("mAP@H<=2", 4, "high"),
    Column("precision@H<=2", 4, "high"),
    Column("fit s", 2),
    Column("encode µs/row", 2),
    Column("search µs/query", 2),
)


def demo_table(result: DemoResult) -> Table:
    """One row per code length."""
    return Table(COLUMNS, tuple(_table_row(run) for run in result.runs))


def write_demo(result: DemoResult, folder: str | Path) -> Path:
    """Write ``report.html`` into a folder, which is made if need be, and return its path."""
    html = render_page("demo.html", demo_summary(result))  # first: a missing extra leaves no empty folder behind
    Path(folder).mkdir(parents=True, exist_ok=True)
    return write_page(Path(folder) / "report.html", html)


def demo_summary(result: DemoResult) -> dict[str, Any]:
    """Everything the page says, as text, numbers, lists and dicts."""
    digits, recipe = result.digits, recipes()[result.method]
    return {
        "method": {"name": result.method, "full_name": recipe.full_name, "reference": recipe.reference},
        "data": {
            "n_rows": len(digits.y),
            "n_features": digits.X.shape[1],
            "n_classes": len(np.unique(digits.y)),
            "n_queries": len(digits.queries),
            "n_database": len(digits.database),
        },
        "lengths": [run.n_bits for run in result.runs],
        "facts": _facts(result),
        "table": table_summary(demo_table(result)),
        "figures": _figures(result),
        "walls": [_wall(digits, wall) for wall in result.walls],
        "made_with": {
            "seed": result.seed,
            "seconds": round(result.seconds, 1),
            "shorthash": shorthash.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scikit_learn": sklearn.__version__,
        },
    }


def _table_row(run: LengthRun) -> tuple[float, ...]:
    scores = run.scores
    return (
        run.n_bits,
        scores.map,
        scores.map_worst,
        scores.map_best,
        scores.map_at_radius,
        scores.precision_at_radius,
        run.fit_seconds,
        run.encode_microseconds,
        run.search_microseconds,
    )


def _facts(result: DemoResult) -> list[dict[str, str]]:
    """The few numbers to take home."""
    best = max(result.runs, key=lambda run: run.scores.map)
    widest = max(result.runs, key=_tie_width)
    return [
        {"value": f"{best.scores.map:.3f}", "label": f"mAP with {best.n_bits} bits per image, ties counted exactly"},
        {
            "value": f"{widest.scores.map_worst:.2f} to {widest.scores.map_best:.2f}",
            "label": f"what {widest.n_bits} bits could be said to score, by the order of equal distances alone",
        },
        {"value": f"{best.fit_seconds:.2f} s", "label": f"to learn the {best.n_bits}-bit code"},
        {"value": f"{best.search_microseconds:.1f} µs", "label": "per query to find its ten nearest, in a batch"},
    ]


def _tie_width(run: LengthRun) -> float:
    return run.scores.map_best - run.scores.map_worst


def _figures(result: DemoResult) -> list[dict[str, str]]:
    """Figures in the order of the page, each with what it shows in words."""
    runs, digits = result.runs, result.digits
    names = {f"{run.n_bits} bits": run for run in runs}
    labels = digits.y[digits.database]
    shortest = min(runs, key=lambda run: run.n_bits)
    best = max(runs, key=lambda run: run.scores.map)
    scores = [run.scores for run in runs]
    drawn = {
        "ties": draw_tie_bounds(
            [run.n_bits for run in runs],
            [score.map for score in scores],
            [score.map_worst for score in scores],
            [score.map_best for score in scores],
        ),
        "radius": draw_pr_curve({name: run.scores.pr_curve for name, run in names.items() if run.scores.pr_curve}),
        "map-short": draw_bucket_map(shortest.database_codes, labels),
        "map-best": draw_bucket_map(best.database_codes, labels),
        "first-k": draw_precision_at_k({name: run.scores.precision_at_k for name, run in names.items()}),
    }
    if all(run.objective for run in runs):
        drawn["convergence"] = draw_convergence({name: run.objective for name, run in names.items()})
    captions = _captions(result, shortest, best)
    return [{"name": name, "svg": to_svg(figure, name), "caption": captions[name]} for name, figure in drawn.items()]


def _captions(result: DemoResult, shortest: LengthRun, best: LengthRun) -> dict[str, str]:
    """What to see in every figure, with this run's numbers."""
    per_class = len(result.digits.database) / len(np.unique(result.digits.y))
    return {
        "ties": "Items at equal distance can stand in any order. The dot is the exact mean over all orders, the bar "
        "everything from the worst order to the best: the fewer bits, the less a score means without its tie rule.",
        "radius": "From left to right the ball around a query grows by one bit flip per mark: more of what belongs "
        "together comes in, and at last everything else too.",
        "map-short": _map_caption(shortest)
        + " Squares that touch differ in one bit; each names its digits and how many there are.",
        "map-best": _map_caption(best) + " Squares name the digit that is most frequent in them; faint ones hold few.",
        "first-k": f"Flat while the list is shorter than a class, about {per_class:.0f} images here; beyond that there "
        "is nothing right left to find.",
        "convergence": _convergence_caption([values for run in result.runs for values in run.objective]),
    }


def _convergence_caption(objectives: list[tuple[float, ...]]) -> str:
    """How long the runs took, and how far the objective fell."""
    if not objectives:
        return ""
    lengths = [len(values) for values in objectives]
    span = str(lengths[0]) if len(set(lengths)) == 1 else f"{min(lengths)} to {max(lengths)}"
    fall = max(1 - values[-1] / values[0] for values in objectives)
    return (
        f"One line per run and length. The runs take {span} iterations; after the first of them the objective falls by "
        f"{100 * fall:.1f} per cent at most."
    )


def _map_caption(run: LengthRun) -> str:
    """What the buckets of a length hold."""
    collisions = run.quality.class_collisions
    pairs = {0: "no two digits", 1: "two digits"}.get(collisions, f"{collisions} pairs of digits")
    return (
        f"The {run.n_bits}-bit codes of the database: {pairs} share their main bucket, and "
        f"{100 * run.quality.purity:.1f} per cent of the images lie in a bucket where their digit is the most frequent."
    )


def _wall(digits: Digits, wall: Wall) -> dict[str, Any]:
    """One length: the queries shown, what they found, and how much of it is right."""
    typical = [r for r in wall.retrievals if not r.hard]
    found = np.concatenate([digits.y[r.found] == digits.y[r.query] for r in typical])
    return {
        "bits": wall.n_bits,
        "right": int(found.sum()),
        "found": len(found),
        "rows": [_wall_row(digits, retrieval) for retrieval in wall.retrievals],
    }


def _wall_row(digits: Digits, retrieval: Retrieval) -> dict[str, Any]:
    """One query with its code and what it found."""
    label = digits.y[retrieval.query]
    return {
        "label": str(label),
        "image": image_uri(digits.images[retrieval.query]),
        "bits": (retrieval.code > 0).astype(int).tolist(),
        "average_precision": retrieval.average_precision,
        "hard": retrieval.hard,
        "hits": [
            {
                "label": str(digits.y[row]),
                "image": image_uri(digits.images[row]),
                "distance": int(distance),
                "right": bool(digits.y[row] == label),
            }
            for row, distance in zip(retrieval.found, retrieval.distances, strict=True)
        ],
    }
