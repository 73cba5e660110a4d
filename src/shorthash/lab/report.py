"""Reports from specifications and stored records; no model is fitted here.

Records are looked up by the names of the planned runs, and become grids, figures and tables. Cells without a stored run
are marked, and the report shows the command for the missing runs.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import shorthash
from shorthash.lab.figures import Page, Section, draw_convergence, draw_heat_map, figure_of, plot_scores_by_length
from shorthash.lab.maps import draw_code_map
from shorthash.lab.running import Records, read_records
from shorthash.lab.spec import (
    KINDS,
    Experiment,
    Part,
    PlannedRun,
    canonical,
    find_experiments,
    plan_part,
    read_experiment,
    unique_runs,
)
from shorthash.lab.tables import (
    Cell,
    ResultGrid,
    Table,
    grid_latex,
    grid_table,
    make_table,
    mean_table,
    metric_table,
    to_csv,
)
from shorthash.lab.tasks import unpack_sample

METRICS = {  # name in records -> name in tables
    "map": "mAP",
    "map_h2": "mAP@H<=2",
    "map_stable": "mAP, ties in database order",
    "map_worst": "mAP, worst tie order",
    "map_best": "mAP, best tie order",
    "precision_h2": "precision@H<=2",
    "recall_h2": "recall@H<=2",
    "fit": "fit s",
    "encode": "encode s",
    "evaluate": "evaluate s",
    "peak_memory_mib": "peak MiB",
    "added_memory_mib": "added MiB",
}
DEFAULT_METRICS = {
    "cost": ("fit", "added_memory_mib"),
    "heatmap": ("precision_at_5000",),
    "lines": ("precision_at_5000",),
}
COST_DIGITS = {"fit s": 2, "encode s": 2, "peak MiB": 0, "added MiB": 0}
Styles = Mapping[str, Mapping[str, Any]]  # row -> line properties of matplotlib
Curve = tuple[float, list[float]]  # an objective at the starting point, and after every iteration

LEDE = (
    "A method turns rows of numbers, such as features of images, into codes of a few bits; items are then found by "
    "codes that differ in few bits from that of a query. Every table and figure compares methods on one task: larger "
    "scores are better, mAP 1 means that relevant items always come first, and what follows ± is the deviation of runs."
)


@dataclass(frozen=True)
class PartStatus:
    """How many runs of a part are stored, and the command that does the others."""

    experiment: str
    part: str
    title: str
    n_runs: int
    n_missing: int
    command: str


@dataclass(frozen=True)
class Results:
    """Experiments and the stored records of their runs.

    Attributes
    ----------
    experiments : path of the specification -> experiment
    records : name of the run -> record
    folder : of the records
    """

    experiments: Mapping[Path, Experiment]
    records: Records
    folder: Path

    def parts(self, *kinds: str) -> list[Part]:
        """All parts of these kinds, in order."""
        return [part for experiment in self.experiments.values() for part in experiment.parts if part.kind in kinds]

    def part(self, name: str) -> Part | None:
        """The part of this name, or None."""
        return next((part for part in self.parts(*KINDS) if part.name == name), None)

    def shown(self) -> dict[str, Mapping[str, Any]]:
        """The records of runs that the experiments plan."""
        planned = unique_runs(self.experiments.values())
        return {name: record for name, record in self.records.items() if name in planned}

    def status(self) -> list[PartStatus]:
        """The status of every part."""
        found = []
        for path, experiment in self.experiments.items():
            beside = (path.parent / "results").resolve() == self.folder.resolve()
            command = f"shorthash bench run {path}" + ("" if beside else f" --results {self.folder}")
            for part in experiment.parts:
                names = {run.name for run in plan_part(part)}
                counts = len(names), len(names - self.records.keys())
                found.append(PartStatus(experiment.name, part.name, part.title, *counts, command))
        return found


def collect(places: Sequence[str | Path], results: str | Path) -> Results:
    """Read experiments and records.

    Parameters
    ----------
    places : .toml files and folders of them
    results : folder of records; it may be missing
    """
    experiments = {file: read_experiment(file) for file in find_experiments(places)}
    return Results(experiments, read_records(results), Path(results))


def build_report(results: Results, styles: Styles | None = None) -> Page:
    """A page of all experiments.

    Parameters
    ----------
    results : experiments and records
    styles : row -> line properties of matplotlib, for figures by code length
    """
    sections: list[Section] = []
    status = results.status()
    for experiment in results.experiments.values():
        for part in experiment.parts:
            name = part.name if part.name.startswith(experiment.name) else f"{experiment.name}-{part.name}"
            at = status[len(sections)]
            note = f"{at.n_runs - at.n_missing} of {at.n_runs} runs are stored." if at.n_missing else ""
            sections.append(replace(build_section(part, name, results.records, styles), note=note))
    shown = results.shown()
    planned = len(unique_runs(results.experiments.values()))
    seconds = sum(record.get("seconds", {}).get("wall", 0.0) for record in shown.values())
    return Page(
        title="Experiments",
        lede=LEDE,
        sections=[*_missing(status), *sections, provenance(shown)],
        facts=[
            (f"{len(shown)} of {planned}", "runs are stored"),
            (f"{seconds / 60:.0f} min", "of computing in them"),
            (str(len({record["data"]["name"] for record in shown.values()})), "data sets"),
        ],
        footer=f"Made by shorthash {shorthash.__version__} from stored records.",
    )


def build_section(part: Part, name: str, records: Records, styles: Styles | None = None) -> Section:
    """The section of one part of an experiment.

    Parameters
    ----------
    part : what is planned
    name : of the section; its files begin with it
    records : what is stored
    styles : row -> line properties of matplotlib, for figures by code length
    """
    if part.kind == "lines":
        section = _lines(part, name, records, styles)
    else:
        section = OTHER_KINDS[part.kind](part, name, records)
    return replace(section, title=part.title, caption=str(part.report.get("caption", "")))


def collect_grid(part: Part, records: Records, metrics: Sequence[str] | None = None) -> ResultGrid:
    """Means and standard deviations over seeds.

    Parameters
    ----------
    part : what is planned
    records : what is stored
    metrics : names in the records; default: those of the part
    """
    titles = {data.name: data.title for data in part.datasets}
    places: dict[tuple[str, str, int], list[PlannedRun]] = {}
    for run in plan_part(part):
        places.setdefault((run.row, titles[run.dataset], run.n_bits), []).append(run)
    rows = tuple(dict.fromkeys(row.name for row in part.methods))
    columns = tuple((data.title, bits) for data in part.datasets for bits in data.bits)
    cells = {
        _shown(metric): {place: _cell(runs, records, metric) for place, runs in places.items()}
        for metric in (_metrics(part) if metrics is None else metrics)
    }
    return ResultGrid(part.title, rows, columns, cells)


def collect_maps(part: Part, records: Records) -> dict[str, NDArray[np.float64]]:
    """Title -> scores over the grid of a part, which has two settings; one map per data set and length.

    Parameters
    ----------
    part : what is planned
    records : what is stored
    """
    first, second = part.grid
    metric = _metrics(part)[0]
    maps = {}
    for data in part.datasets:
        for bits in data.bits:
            runs: dict[tuple[Any, Any], list[PlannedRun]] = {}
            for run in plan_part(part):
                if (run.dataset, run.n_bits) == (data.name, bits):
                    runs.setdefault((run.point[first], run.point[second]), []).append(run)
            values = [[_cell(runs[a, b], records, metric).mean for b in part.grid[second]] for a in part.grid[first]]
            maps[f"{data.title}, {bits} bits"] = np.array(values)
    return maps


def collect_curves(part: Part, records: Records) -> dict[str, list[Curve]]:
    """Data set -> objectives of every stored run, at the starting point and after every iteration.

    Parameters
    ----------
    part : what is planned
    records : what is stored
    """
    titles = {data.name: data.title for data in part.datasets}
    curves: dict[str, list[Curve]] = {title: [] for title in titles.values()}
    for run in plan_part(part):
        curve = records.get(run.name, {}).get("curve")
        if curve and curve["objective"]:
            curves[titles[run.dataset]].append((float(curve["initial"]), [float(v) for v in curve["objective"]]))
    return curves


def provenance(records: Records) -> Section:
    """Provenance: data sets, software and machines, and all runs.

    Parameters
    ----------
    records : those that the report shows
    """
    tables = {"Data sets": _data(records), "Software and machines": _machines(records), "Runs": _runs(records)}
    return Section("provenance", "Provenance", tables=tables, look="small", folded=True)


def _slug(text: str) -> str:
    """A name for file names.

    Examples
    --------
    >>> _slug("mAP@H<=2"), _slug("CIFAR-10")
    ('map-h2', 'cifar-10')
    """
    words = text.lower().replace("<=", "").replace("@", " ")
    return "-".join("".join(c if c.isalnum() or c == "-" else " " for c in words).split())


def _tables(part: Part, name: str, records: Records) -> Section:
    grid = collect_grid(part, records)
    places = itertools.product(grid.metrics, grid.datasets)
    tables = {f"{dataset}, {metric}": mean_table(grid, metric, dataset) for metric, dataset in places}
    return Section(name, "", tables=tables, csv=to_csv(grid_table(grid)), latex=grid_latex(grid))


def _costs(part: Part, name: str, records: Records) -> Section:
    grid = collect_grid(part, records)
    tables = {
        f"{dataset}, {', '.join(map(str, grid.lengths(dataset)))} bits": metric_table(grid, dataset, COST_DIGITS)
        for dataset in grid.datasets
    }
    return Section(name, "", tables=tables, csv=to_csv(grid_table(grid)))


def _lines(part: Part, name: str, records: Records, styles: Styles | None) -> Section:
    grid = collect_grid(part, records)
    figures, tables = {}, {}
    for dataset in grid.datasets:
        for metric in grid.metrics:
            tables[f"{dataset}, {metric}"] = mean_table(grid, metric, dataset, digits=3)
            curves: dict[str, dict[int, tuple[float, float]]] = {row: {} for row in grid.rows}
            for row, bits in itertools.product(grid.rows, grid.lengths(dataset)):
                cell = grid.cell(metric, row, dataset, bits)
                if cell is not None and not math.isnan(cell.mean):
                    curves[row][bits] = (cell.mean, cell.std)
            if any(curves.values()):
                figure = figure_of(plot_scores_by_length, curves, title=dataset, score=metric, styles=styles)
                figures[f"{name}-{_slug(dataset)}-{_slug(metric)}"] = (figure, f"{dataset}: {metric} by code length.")
    csv, latex = to_csv(grid_table(grid)), grid_latex(grid, digits=3)
    return Section(name, "", tables=tables, figures=figures, folded=True, csv=csv, latex=latex)


def _heat_maps(part: Part, name: str, records: Records) -> Section:
    score, names = _shown(_metrics(part)[0]), tuple(part.grid)
    rows, columns = part.grid.values()
    spreads, long, figures = [], [], {}
    for title, values in collect_maps(part, records).items():
        known = values[~np.isnan(values)]
        spreads.append((title, *((known.min(), np.median(known), known.max()) if len(known) else (None,) * 3)))
        long += [(title, rows[i], columns[j], float(value)) for (i, j), value in np.ndenumerate(values)]
        if len(known):
            figure = draw_heat_map(values, rows, columns, title=f"{title}: {score}", names=names)
            figures[f"{name}-{_slug(title)}"] = (figure, f"{title}: {score} by {names[0]} and {names[1]}.")
    heads = [f"{which} {score}" for which in ("lowest", "median", "highest")]
    table = make_table(("data set", *heads), spreads, text=["data set"], digits=dict.fromkeys(heads, 3))
    every = make_table(("data set", *names, score), long)
    tables = {f"{score} over the grid": table}
    return Section(name, "", tables=tables, figures=figures, folded=True, csv=to_csv(every))


def _convergence(part: Part, name: str, records: Records) -> Section:
    curves = collect_curves(part, records)
    rows, figures = [], {}
    for dataset, runs in curves.items():
        steps = sorted({len(values) for _, values in runs})
        first = float(np.mean([100 * values[-1] / values[0] for _, values in runs])) if runs else math.nan
        start = float(np.mean([100 * values[-1] / initial for initial, values in runs])) if runs else math.nan
        iterations = " to ".join(str(n) for n in dict.fromkeys((steps[0], steps[-1]))) if runs else None
        rows.append((dataset, len(runs), iterations, first, start))
    if any(curves.values()):
        after = {dataset: [values for _, values in runs] for dataset, runs in curves.items()}
        whole = {dataset: [[initial, *values] for initial, values in runs] for dataset, runs in curves.items()}
        text = "Objective in per cent of its value at the {}."
        figures[f"{name}-first"] = (draw_convergence(after), text.format("first iteration"))
        figures[f"{name}-start"] = (draw_convergence(whole, first=0), text.format("starting point"))
    titles = ("data set", "runs", "iterations", "last, % of first", "last, % of starting point")
    table = make_table(titles, rows, text=("data set", "iterations"), digits=dict.fromkeys(titles[3:], 2))
    return Section(name, "", tables={"decrease of the objective": table}, figures=figures, folded=True)


def _embedding(part: Part, name: str, records: Records) -> Section:
    """Codes in the plane; for every method, the first stored seed."""
    samples: dict[str, Any] = {}
    for run in plan_part(part):
        title = f"{run.row}, {run.n_bits} bits"
        samples[title] = samples.get(title) or records.get(run.name, {}).get("sample")
    rows: list[tuple[Any, ...]] = []
    figures = {}
    for title, sample in samples.items():
        if sample is None:
            rows.append((title, 0, None))
            continue
        codes, classes = unpack_sample(sample)
        rows.append((title, len(codes), len(np.unique(codes, axis=0))))
        text = f"{title}: every dot is a sample, every disc a code, labelled with its bits and its main classes."
        figures[f"{name}-{_slug(title)}"] = (draw_code_map(codes, classes, title=title), text)
    table = make_table(("method", "samples", "distinct codes"), rows, text=["method"])
    return Section(name, "", tables={"codes in use": table}, figures=figures, folded=True)


OTHER_KINDS: dict[str, Callable[[Part, str, Records], Section]] = {
    "heatmap": _heat_maps,
    "convergence": _convergence,
    "embedding": _embedding,
    "cost": _costs,
    "table": _tables,
}


def _missing(status: Sequence[PartStatus]) -> list[Section]:
    """A section with the commands that do the missing runs; none if all runs are stored."""
    counts: dict[str, list[int]] = {}
    for at in status:
        if at.n_missing:
            total = counts.setdefault(at.command, [0, 0])
            total[0], total[1] = total[0] + at.n_missing, total[1] + at.n_runs
    rows = ((command, *count) for command, count in counts.items())
    table = make_table(("command", "missing runs", "of"), rows, text=["command"])
    caption = "Cells marked as not run have no stored record. These commands do the missing runs only."
    return [Section("missing", "Missing runs", caption, tables={"": table}, look="words")] if counts else []


def _cell(runs: Sequence[PlannedRun], records: Records, metric: str) -> Cell:
    """Mean and sample standard deviation over the seeds that are stored."""
    stored = [records[run.name] for run in runs if run.name in records]
    found = [_value(record, metric) for record in stored]
    values = np.array([value for value in found if value is not None], dtype=np.float64)
    if not len(values):
        return Cell(n_seeds=0, n_planned=len(runs), undefined=any("undefined" in record for record in stored))
    std = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return Cell(float(values.mean()), std, len(values), len(runs))


def _value(record: Mapping[str, Any], metric: str) -> float | None:
    """One number of a record, or None."""
    if metric in record.get("scores", {}):
        mean = record["scores"][metric]["mean"]
        return None if mean is None else float(mean)
    value = record.get("seconds", {}).get(metric, record.get(metric))
    return None if value is None else float(value)


def _metrics(part: Part) -> tuple[str, ...]:
    return tuple(part.report.get("metrics", DEFAULT_METRICS.get(part.kind, ("map", "map_h2"))))


def _shown(metric: str) -> str:
    """The name of a metric in tables.

    Examples
    --------
    >>> _shown("map_h2"), _shown("precision_at_100")
    ('mAP@H<=2', 'precision@100')
    """
    return METRICS.get(metric, metric.replace("_at_", "@").replace("_", " "))


def _data(records: Records) -> Table:
    titles = ("data set", "rows", "features", "classes", "protocol", "fingerprint")
    found = {}
    for record in records.values():
        data, protocol = record["data"], {k: v for k, v in record["spec"]["protocol"].items() if k != "seed"}
        text = ", ".join(f"{name} {value}" for name, value in protocol.items())
        row = (data["name"], data["rows"], data["dims"], data["classes"], text, str(data["fingerprint"])[:23])
        found[data["name"], canonical(protocol)] = row
    return make_table(titles, (found[key] for key in sorted(found)), text=("data set", "protocol", "fingerprint"))


def _machines(records: Records) -> Table:
    counts: Counter[tuple[str, str]] = Counter()
    for record in records.values():
        versions = ", ".join(f"{name} {value}" for name, value in record.get("versions", {}).items())
        machine = record.get("machine", {})
        where = f"{machine.get('cpu', '?')}, {machine.get('cores', '?')} cores, {machine.get('system', '?')}"
        counts[versions, where] += 1
    rows = ((*key, count) for key, count in sorted(counts.items()))
    return make_table(("versions", "machine", "runs"), rows, text=("versions", "machine"))


def _runs(records: Records) -> Table:
    titles = ("run", "task", "data set", "method", "bits", "seed", "mAP", "fit s", "peak MiB", "made")
    digits = {"mAP": 4, "fit s": 2, "peak MiB": 0}
    rows = []
    for name, record in records.items():
        spec = record["spec"]
        settings = " ".join(f"{key}={value}" for key, value in spec.get("settings", {}).items())
        method = f"{spec['method']} {settings}".strip()
        numbers = (_value(record, "map"), _value(record, "fit"), record.get("peak_memory_mib"))
        made = str(record.get("made", ""))[:16]
        rows.append((name, spec["task"], spec["dataset"], method, spec["n_bits"], spec["seed"], *numbers, made))
    return make_table(titles, sorted(rows, key=lambda row: row[1:6]), text=(*titles[:4], "made"), digits=digits)
