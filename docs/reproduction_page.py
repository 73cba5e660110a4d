"""The computed parts of docs/reproduction.md, from experiments/ and its stored records; nothing is learned here."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from pathlib import Path

from shorthash.lab.claims import PROPOSED, claims_table
from shorthash.lab.collect import collect_grid
from shorthash.lab.errata import errata_table
from shorthash.lab.grid import Cell, ResultGrid, difference_table, mean_table
from shorthash.lab.plan import unique_runs
from shorthash.lab.reporting import Collected, collect, provenance
from shorthash.lab.reproduction import agreement_table, scale_table, trend_table, verdict
from shorthash.lab.tables import Column, Table, to_markdown

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"
TIES = {"map_worst": "worst order", "map": "mean", "map_stable": "database order", "map_best": "best order"}


@functools.cache
def stored() -> Collected:
    """Experiments and their records."""
    return collect([EXPERIMENTS], EXPERIMENTS / "results")


def state() -> str:
    """How much has been run, on what data, with what."""
    seen = stored()
    wanted = unique_runs(list(seen.experiments.values()))
    there = {name: record for name, record in seen.records.items() if name in wanted}
    lines = [
        f"{len(there)} of the {len(wanted)} runs that the experiments ask for are stored in `experiments/results`."
    ]
    if len(there) < len(wanted):
        lines.append("What is missing says *not run* below, and is run by `make reproduce`.")
    if there:
        tables = provenance(there)
        lines += [f"\n{to_markdown(tables[title])}" for title in ("Data sets", "Software and machines")]
    return "\n".join(lines)


def order() -> str:
    """Rank correlations, winners, trends and scale."""
    grid = _grid("table1")
    parts = [f"- {verdict(grid, metric)}" for metric in grid.metrics]
    parts += [
        f"\n### Order of the ten methods, {metric}\n\n{to_markdown(agreement_table(grid, metric))}"
        for metric in grid.metrics
    ]
    parts.append(f"\n### Does {PROPOSED} reach its numbers?\n\n{to_markdown(scale_table(grid, 'mAP'))}")
    parts.append(
        "\n### Does mAP rise with every step to more bits?\n\nOn how many data sets it does, for every method.\n\n"
        + to_markdown(trend_table(grid, "mAP"))
    )
    return "\n".join(parts)


def tables() -> str:
    """Tables 1 and 2 beside the printed numbers; further rows and costs."""
    parts = []
    for part in stored().parts("table") + stored().parts("cost"):
        grid = collect_grid(part, stored().records, stored().printed)
        parts.append(f"### {part.title}\n\n{part.report.get('caption', '')}\n")
        for metric in grid.metrics:
            for dataset in grid.datasets:
                seen = any(grid.values(metric, dataset, bits, printed=True) for bits in grid.lengths(dataset))
                table = difference_table(grid, metric, dataset) if seen else mean_table(grid, metric, dataset)
                if part.report.get("kind") == "cost":
                    table = mean_table(grid, metric, dataset, digits=2, best="low")
                parts.append(f"{dataset}, {metric}\n\n{to_markdown(table)}")
    return "\n".join(parts)


def ties() -> str:
    """What the order of equal distances does to mAP of RSLH."""
    part = next(part for part in stored().parts("table") if part.name == "table1")
    wanted = replace(part, report={**part.report, "metrics": list(TIES)})
    grid = collect_grid(wanted, stored().records)
    columns = (Column("data set", text=True), Column("bits"), *(Column(title) for title in TIES.values()))
    rows = []
    for dataset, bits in grid.columns:
        cells = [grid.cell(metric, PROPOSED, dataset, bits) or Cell() for metric in grid.metrics]
        rows.append((dataset, bits, *(f"{replace(cell, std=math.nan):.3f}" for cell in cells)))
    return to_markdown(Table(columns, tuple(rows)))


def sentences() -> str:
    """The numeric sentences of the paper, recomputed."""
    return to_markdown(claims_table(stored().claims()))


def errata() -> str:
    """What is wrong, missing or ambiguous in print."""
    return to_markdown(errata_table())


def _grid(name: str) -> ResultGrid:
    grid = stored().grid(name)
    if grid is None:
        raise SystemExit(f"experiments/ has no part {name!r}")
    return grid
