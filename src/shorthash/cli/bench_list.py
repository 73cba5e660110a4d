"""shorthash bench list: what a specification asks for."""

from __future__ import annotations

import math

from shorthash.cli import output
from shorthash.cli.bench_options import Specs, experiments
from shorthash.cli.options import AsJson

__all__ = ["list_parts"]


def list_parts(specs: Specs, as_json: AsJson = False) -> None:
    """Tell what specifications ask for; --json lists every run.

    Points are those of a grid of settings. A run that several parts want is done once.

    \b
    Example:
      shorthash bench list experiments/table1.toml
    """
    from shorthash.lab.plan import plan_part
    from shorthash.lab.tables import Column, Table

    rows, runs = [], []
    for part in (part for experiment in experiments(specs) for part in experiment.parts):
        planned = plan_part(part)
        runs += [{"part": run.part, "row": run.row, "run": run.name, **run.spec.to_dict()} for run in planned]
        names = ", ".join(wish.name for wish in part.datasets)
        lengths = [length for wish in part.datasets for length in wish.bits]
        bits = f"{min(lengths)}-{max(lengths)}" if min(lengths) < max(lengths) else str(lengths[0])
        points = math.prod(len(values) for values in part.grid.values())
        rows.append((part.name, part.task, names, bits, len(part.methods), points, len(part.seeds), len(planned)))
    titles = ("part", "task", "data sets", "bits", "methods", "points", "seeds", "runs")
    table = Table(tuple(Column(title, text=title in titles[:4]) for title in titles), tuple(rows))
    different = len({run["run"] for run in runs})
    output.show(output.Answer({"runs": runs}, {}, (table,), (f"\n{different} different runs",)), as_json=as_json)
