"""Stored records, laid out as an experiment wants them: grids, maps and curves for the report; nothing is learned here.

A part of an experiment says which runs it wants (``plan_part``); records are looked up by the name of the run. Whatever
is missing leaves an empty place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from shorthash.lab.grid import Cell, ResultGrid
from shorthash.lab.plan import PlannedRun, plan_part
from shorthash.lab.printed import Printed
from shorthash.lab.sample import unpack_sample
from shorthash.lab.sections import (
    CodeSample,
    HeatMap,
    Section,
    convergence_section,
    cost_section,
    embedding_section,
    heatmap_section,
    lines_section,
    table_section,
)
from shorthash.lab.spec import Part

__all__ = ["METRICS", "Records", "by_run", "collect_curves", "collect_grid", "collect_maps", "collect_section"]

Records = Mapping[str, Mapping[str, Any]]  # run -> record
METRICS = {  # in a record -> for the reader, as the file of printed numbers spells it
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
USUAL = {"cost": ("fit", "added_memory_mib"), "heatmap": ("precision_at_5000",), "lines": ("precision_at_5000",)}


def by_run(records: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Records by the name of their run."""
    return {str(record["run"]): record for record in records}


def collect_section(part: Part, name: str, records: Records, printed: Printed, command: str) -> Section:
    """A part of an experiment, drawn from what is stored.

    Parameters
    ----------
    part : what is wanted
    name : of the section; its files begin with it
    records : what is stored
    printed : numbers of the paper
    command : what would run the part
    """
    kind = part.report.get("kind", "table")
    caption = str(part.report.get("caption", ""))
    planned = plan_part(part)
    if kind == "heatmap":
        score = _shown(_metrics(part)[0])
        section = heatmap_section(name, part.title, collect_maps(part, records), _axes(part), score, caption)
    elif kind == "convergence":
        section = convergence_section(name, part.title, collect_curves(part, records), caption)
    elif kind == "embedding":
        section = embedding_section(name, part.title, _samples(part, records), caption)
    else:
        make = {"lines": lines_section, "cost": cost_section}.get(kind, table_section)
        section = make(name, collect_grid(part, records, printed), caption)
    missing = {run.name for run in planned if run.name not in records}
    counted = {"n_runs": len({run.name for run in planned}), "n_missing": len(missing), "command": command}
    return Section(**{**vars(section), **counted})


def collect_grid(part: Part, records: Records, printed: Printed | None = None) -> ResultGrid:
    """Means and standard deviations over seeds, beside the printed numbers.

    Parameters
    ----------
    part : what is wanted
    records : what is stored
    printed : numbers of the paper; None for none
    """
    titles = {wish.name: wish.title for wish in part.datasets}
    table = _printed_table(part)
    places: dict[tuple[str, str, int], list[PlannedRun]] = {}
    for run in plan_part(part):
        places.setdefault((run.row, titles[run.dataset], run.n_bits), []).append(run)
    metrics = {}
    for metric in _metrics(part):
        shown = _shown(metric)
        metrics[shown] = {
            place: _cell(runs, records, metric, (printed or {}).get((table, shown, *place)))
            for place, runs in places.items()
        }
    rows = tuple(dict.fromkeys(row.name for row in part.methods))
    columns = tuple((wish.title, bits) for wish in part.datasets for bits in wish.bits)
    return ResultGrid(part.title, rows, columns, metrics)


def collect_maps(part: Part, records: Records) -> list[HeatMap]:
    """Scores over the grid of a part, one map per data set and length.

    Parameters
    ----------
    part : what is wanted; its grid has two settings
    records : what is stored
    """
    first, second = _axes(part)
    metric = _metrics(part)[0]
    maps = []
    for wish in part.datasets:
        for bits in wish.bits:
            runs = [run for run in plan_part(part) if (run.dataset, run.n_bits) == (wish.name, bits)]
            values = [
                [
                    _cell([r for r in runs if (r.point[first], r.point[second]) == (a, b)], records, metric, None).mean
                    for b in part.grid[second]
                ]
                for a in part.grid[first]
            ]
            maps.append(HeatMap(f"{wish.title}, {bits} bits", part.grid[first], part.grid[second], values))
    return maps


def collect_curves(part: Part, records: Records) -> dict[str, list[tuple[float, list[float]]]]:
    """Objectives by data set: (value at the initial point, values after every iteration) of every stored run.

    Parameters
    ----------
    part : what is wanted
    records : what is stored
    """
    titles = {wish.name: wish.title for wish in part.datasets}
    curves: dict[str, list[tuple[float, list[float]]]] = {title: [] for title in titles.values()}
    for run in plan_part(part):
        curve = records.get(run.name, {}).get("curve")
        if curve and curve["objective"]:
            curves[titles[run.dataset]].append((float(curve["initial"]), [float(v) for v in curve["objective"]]))
    return curves


def _samples(part: Part, records: Records) -> list[CodeSample]:
    """Codes in the plane: of every method, the first seed that is stored."""
    found: dict[str, CodeSample] = {}
    for run in plan_part(part):
        title = f"{run.row}, {run.n_bits} bits"
        sample = records.get(run.name, {}).get("sample")
        empty = CodeSample(title, np.empty((0, run.n_bits)), np.empty(0))
        if title not in found or not len(np.asarray(found[title].codes)):
            found[title] = empty if sample is None else CodeSample(title, *unpack_sample(sample))
    return list(found.values())


def _cell(runs: Sequence[PlannedRun], records: Records, metric: str, printed: float | None) -> Cell:
    """Mean and sample standard deviation over the seeds that are stored."""
    stored = [records[run.name] for run in runs if run.name in records]
    found = [_value(record, metric) for record in stored]
    values = np.array([value for value in found if value is not None], dtype=np.float64)
    if not len(values):
        undefined = any("undefined" in record for record in stored)
        return Cell(n_seeds=len(stored), n_wanted=len(runs), printed=printed, undefined=undefined)
    std = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return Cell(float(values.mean()), std, len(values), len(runs), printed)


def _value(record: Mapping[str, Any], metric: str) -> float | None:
    """One number of a record; None where it has no such number."""
    if metric in record.get("scores", {}):
        mean = record["scores"][metric]["mean"]
        return None if mean is None else float(mean)
    value = record.get("seconds", {}).get(metric, record.get(metric))
    return None if value is None else float(value)


def _metrics(part: Part) -> tuple[str, ...]:
    kind = part.report.get("kind", "table")
    return tuple(part.report.get("metrics", USUAL.get(kind, ("map", "map_h2"))))


def _shown(metric: str) -> str:
    """A metric for the reader.

    Examples
    --------
    >>> _shown("map_h2"), _shown("precision_at_100")
    ('mAP@H<=2', 'precision@100')
    """
    return METRICS.get(metric, metric.replace("_at_", "@").replace("_", " "))


def _axes(part: Part) -> tuple[str, str]:
    """The two settings of a grid."""
    names = tuple(part.grid)
    return names[0], names[1]


def _printed_table(part: Part) -> str:
    """Which printed table belongs to a part: as it says itself, or by its name, "table1" being "Table 1"."""
    numbered = re.fullmatch(r"table(\d+).*", part.name)
    return str(part.report.get("printed", f"Table {numbered.group(1)}" if numbered else ""))
