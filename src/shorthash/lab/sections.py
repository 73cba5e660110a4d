"""Parts of a report: a caption, tables, figures and the texts of their files, made from plain results.

One function per kind of part. Every part can be made from nothing, from some or from all of the results it asks for: it
shows what there is, and says what is missing and which command would run it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from shorthash.lab.code_map import draw_code_map
from shorthash.lab.grid import ResultGrid, difference_table, grid_csv, mean_table, metric_table
from shorthash.lab.grid_latex import grid_latex
from shorthash.lab.paper_figures import draw_heat_map, draw_objective, draw_scores_by_length
from shorthash.lab.tables import Column, Table, to_csv, to_latex, to_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "CodeSample",
    "HeatMap",
    "Section",
    "convergence_section",
    "cost_section",
    "embedding_section",
    "heatmap_section",
    "lines_section",
    "table_section",
]

COSTS = {
    "fit s": 2,
    "encode s": 2,
    "peak MiB": 0,
    "added MiB": 0,
}  # metrics of which less is better, and their decimals
DIGITS = 4


@dataclass(frozen=True)
class Section:
    """One part of a report.

    Attributes
    ----------
    name : file names begin with it
    title, caption : for the reader
    n_runs, n_missing : runs that the part asks for, and those that are not there
    command : what would run them
    tables : title -> table, for the page
    figures : name -> (figure, caption)
    texts : file name -> content
    """

    name: str
    title: str
    caption: str = ""
    n_runs: int = 0
    n_missing: int = 0
    command: str = ""
    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: Mapping[str, tuple[Figure, str]] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HeatMap:
    """Scores over two parameters.

    Attributes
    ----------
    title : what was scored, usually the data set
    rows, columns : values of the two parameters
    values : (n_rows, n_columns); nan where nothing was run
    """

    title: str
    rows: tuple[float, ...]
    columns: tuple[float, ...]
    values: ArrayLike


@dataclass(frozen=True)
class CodeSample:
    """Codes of some samples and their classes; both empty where nothing was run."""

    title: str
    codes: ArrayLike
    classes: ArrayLike


def table_section(name: str, grid: ResultGrid, caption: str = "") -> Section:
    """Tables of a grid: ours beside the printed numbers where there are any, means alone where not.

    Parameters
    ----------
    name : file names begin with it
    grid : the results
    caption : for the reader
    """
    tables, markdown = {}, [f"# {grid.title}\n"]
    for metric in grid.metrics:
        for dataset in grid.datasets:
            means = mean_table(grid, metric, dataset, digits=DIGITS)
            shown = difference_table(grid, metric, dataset) if _printed(grid, metric, dataset) else means
            tables[f"{dataset}, {metric}"] = shown
            markdown += [f"## {dataset}, {metric}\n", to_markdown(shown)]
    texts = {f"{name}.md": "\n".join(markdown), f"{name}.csv": grid_csv(grid), f"{name}.tex": grid_latex(grid)}
    if grid.has_printed:
        texts[f"{name}-printed.tex"] = grid_latex(grid, printed=True)
    return Section(name, grid.title, caption, tables=tables, texts=texts)


def cost_section(name: str, grid: ResultGrid, caption: str = "") -> Section:
    """One table per data set, metrics side by side, the cheapest marked.

    Parameters
    ----------
    name : file names begin with it
    grid : the results
    caption : for the reader
    """
    tables = {
        f"{dataset}, {', '.join(map(str, grid.lengths(dataset)))} bits": metric_table(grid, dataset, COSTS)
        for dataset in grid.datasets
    }
    markdown = [f"# {grid.title}\n", *(f"## {title}\n\n{to_markdown(table)}" for title, table in tables.items())]
    latex = "\n".join(f"% {title}\n{to_latex(table)}" for title, table in tables.items())
    texts = {f"{name}.md": "\n".join(markdown), f"{name}.csv": grid_csv(grid), f"{name}.tex": latex}
    return Section(name, grid.title, caption, tables=tables, texts=texts)


def lines_section(name: str, grid: ResultGrid, caption: str = "") -> Section:
    """A figure per data set and metric, lines over code lengths, and the numbers behind them.

    Parameters
    ----------
    name : file names begin with it
    grid : the results
    caption : for the reader
    """
    figures, tables = {}, {}
    for dataset in grid.datasets:
        for metric in grid.metrics:
            curves = {row: _curve(grid, metric, row, dataset) for row in grid.rows}
            if not any((row, dataset, bits) in grid.metrics[metric] for row in grid.rows for _, bits in grid.columns):
                continue
            tables[f"{dataset}, {metric}"] = mean_table(grid, metric, dataset, digits=3)
            if any(curves.values()):
                figure = draw_scores_by_length(curves, title=dataset, score=metric)
                figures[f"{name}-{_slug(dataset)}-{_slug(metric)}"] = (figure, f"{dataset}: {metric} by code length.")
    markdown = [f"# {grid.title}\n", *(f"## {title}\n\n{to_markdown(table)}" for title, table in tables.items())]
    texts = {f"{name}.csv": grid_csv(grid), f"{name}.md": "\n".join(markdown)}
    return Section(name, grid.title, caption, tables=tables, figures=figures, texts=texts)


def heatmap_section(
    name: str, title: str, maps: Sequence[HeatMap], names: tuple[str, str], score: str, caption: str = ""
) -> Section:
    """A heat map per data set, and how far the score moves over it.

    Parameters
    ----------
    name : file names begin with it
    title, caption : for the reader
    maps : what was scored
    names : names of the two parameters
    score : name of the score
    """
    columns = (
        Column("data set", text=True),
        *(Column(f"{which} {score}", 3) for which in ("lowest", "median", "highest")),
    )
    rows, long, figures = [], [], {}
    for each in maps:
        values = np.asarray(each.values, dtype=np.float64)
        known = values[~np.isnan(values)]
        spread = (known.min(), np.median(known), known.max()) if len(known) else (None, None, None)
        rows.append((each.title, *spread))
        long += [
            (each.title, r, c, float(values[i, j])) for i, r in enumerate(each.rows) for j, c in enumerate(each.columns)
        ]
        if len(known):
            figure = draw_heat_map(values, each.rows, each.columns, title=f"{each.title}: {score}", names=names)
            figures[f"{name}-{_slug(each.title)}"] = (figure, f"{each.title}: {score} by {names[0]} and {names[1]}.")
    summary = Table(columns, tuple(rows))
    every = Table((Column("data set", text=True), Column(names[0]), Column(names[1]), Column(score)), tuple(long))
    texts = {f"{name}.csv": to_csv(every), f"{name}.md": f"# {title}\n\n{to_markdown(summary)}"}
    return Section(name, title, caption, tables={f"{score} over the grid": summary}, figures=figures, texts=texts)


def convergence_section(
    name: str, title: str, curves: Mapping[str, Sequence[tuple[float, Sequence[float]]]], caption: str = ""
) -> Section:
    """The objective by iteration, from the first iteration and from the initial point.

    Parameters
    ----------
    name : file names begin with it
    title, caption : for the reader
    curves : data set -> runs, each (value at the initial point, values after every iteration)
    """
    columns = (
        Column("data set", text=True),
        Column("runs"),
        Column("iterations", text=True),
        Column("last, % of first", 2),
        Column("last, % of initial point", 2),
    )
    rows = tuple((dataset, *_fall(runs)) for dataset, runs in curves.items())
    table = Table(columns, rows)
    figures = {}
    if any(curves.values()):
        for slug, start in (("first", False), ("start", True)):
            what = "initial point" if start else "first iteration"
            figure = draw_objective(curves, title="Objective by iteration", from_start=start)
            figures[f"{name}-{slug}"] = (figure, f"Objective in per cent of its value at the {what}.")
    texts = {f"{name}.csv": to_csv(table), f"{name}.md": f"# {title}\n\n{to_markdown(table)}"}
    texts[f"{name}.tex"] = to_latex(table)
    return Section(name, title, caption, tables={"how far it falls": table}, figures=figures, texts=texts)


def embedding_section(name: str, title: str, samples: Sequence[CodeSample], caption: str = "") -> Section:
    """Codes in the plane, one figure per method.

    Parameters
    ----------
    name : file names begin with it
    title, caption : for the reader
    samples : codes and classes
    """
    figures = {}
    rows = []
    for sample in samples:
        codes, classes = np.asarray(sample.codes), np.asarray(sample.classes)
        rows.append((sample.title, len(codes), len(np.unique(codes, axis=0)) if len(codes) else None))
        if len(codes):
            figure = draw_code_map(codes, classes, title=sample.title)
            text = f"{sample.title}: every dot is a sample, every disc a code, named by its bits and its main classes."
            figures[f"{name}-{_slug(sample.title)}"] = (figure, text)
    table = Table((Column("method", text=True), Column("samples"), Column("distinct codes")), tuple(rows))
    texts = {f"{name}.csv": to_csv(table), f"{name}.md": f"# {title}\n\n{to_markdown(table)}"}
    return Section(name, title, caption, tables={"codes in use": table}, figures=figures, texts=texts)


def _printed(grid: ResultGrid, metric: str, dataset: str) -> bool:
    """Whether the paper prints this metric for this data set."""
    return any(grid.values(metric, dataset, bits, printed=True) for bits in grid.lengths(dataset))


def _curve(grid: ResultGrid, metric: str, row: str, dataset: str) -> dict[int, tuple[float, float]]:
    """What was run of a line."""
    cells = {bits: grid.cell(metric, row, dataset, bits) for bits in grid.lengths(dataset)}
    return {bits: (c.mean, c.std) for bits, c in cells.items() if c is not None and not math.isnan(c.mean)}


def _fall(runs: Sequence[tuple[float, Sequence[float]]]) -> tuple[int, str | None, float, float]:
    """Number of runs, their iterations, and what is left of the objective at the end, on average."""
    if not runs:
        return 0, None, math.nan, math.nan
    steps = sorted({len(values) for _, values in runs})
    first = float(np.mean([100 * values[-1] / values[0] for _, values in runs]))
    start = float(np.mean([100 * values[-1] / initial for initial, values in runs]))
    return len(runs), str(steps[0]) if len(steps) == 1 else f"{steps[0]} to {steps[-1]}", first, start


def _slug(text: str) -> str:
    """A name as it stands in file names.

    Examples
    --------
    >>> _slug("mAP@H<=2"), _slug("CIFAR-10")
    ('map-h2', 'cifar-10')
    """
    words = text.lower().replace("<=", "").replace("@", " ")
    return "-".join("".join(c if c.isalnum() or c == "-" else " " for c in words).split())
