"""The report about the paper: its tables and figures from stored runs, beside the printed numbers; claims and errata.

``python experiments/paper/report.py [FOLDER]`` writes it; nothing is learned. The functions ``state`` to ``errata`` are
the computed parts of docs/reproduction.md, for docs/generate.py.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from claims import (
    PROPOSED,
    Claim,
    agreement_table,
    claims_table,
    difference_table,
    errata_table,
    figure_claims,
    read_printed,
    scale_table,
    table_claims,
    trend_table,
    verdict,
)

from shorthash._display import MARKERS, PALETTE, SERIES
from shorthash.lab.figures import Page, Section, write_page, write_text
from shorthash.lab.report import Results, build_report, collect, collect_curves, collect_grid, collect_maps, provenance
from shorthash.lab.spec import Part, unique_runs
from shorthash.lab.tables import Cell, Column, ResultGrid, Table, grid_latex, mean_table, metric_table, to_markdown

EXPERIMENTS = Path(__file__).resolve().parents[1]
NAMES = ("table1", "table2", "figure1", "figure2")
PRINTED = {"table1": "Table 1", "table2": "Table 2"}  # part -> printed table
TIES = {"map_worst": "worst order", "map": "mean", "map_stable": "database order", "map_best": "best order"}
GREY, HOLLOW = PALETTE["quiet"], PALETTE["on-series"]
# lines of Figure 1: dashed grey is unsupervised, thick is what the paper proposes
STYLES: dict[str, Mapping[str, Any]] = {
    **{
        name: {"color": GREY, "marker": marker, "linestyle": "--", "markerfacecolor": HOLLOW}
        for name, marker in zip(("SH", "PCA-ITQ", "PCA-RR", "MFH"), "os^D", strict=True)
    },
    **{
        name: {"color": SERIES[colour], "marker": MARKERS[colour]}
        for name, colour in (("SDH", 0), ("NSH", 2), ("FSSH", 3), ("SSLH", 4), ("SDHMLR", 5))
    },
    "RSLH-B": {"color": SERIES[1], "marker": "o", "linestyle": "--", "markerfacecolor": HOLLOW},
    "RSLH": {"color": SERIES[1], "marker": "o", "linewidth": 2.6, "markersize": 6, "zorder": 4},
}


@functools.cache
def stored() -> Results:
    """The experiments of the paper and their records."""
    return collect([EXPERIMENTS / f"{name}.toml" for name in NAMES], EXPERIMENTS / "results")


@functools.cache
def printed() -> Mapping[str, ResultGrid]:
    """Part -> printed table."""
    tables = read_printed()
    return {part: tables[name] for part, name in PRINTED.items()}


def grid_of(name: str) -> ResultGrid:
    """The results of a part."""
    part = stored().part(name)
    if part is None:
        raise SystemExit(f"experiments/ has no part {name!r}")
    return collect_grid(part, stored().records)


def main(folder: str = "report") -> None:
    """Write the report into a folder."""
    path = write_page(paper_page(), folder)
    for part, grid in printed().items():
        write_text(path.with_name(f"{part}-printed.tex"), grid_latex(grid))
    for at in stored().status():
        print(f"{at.title}: {at.n_runs - at.n_missing} of {at.n_runs} runs")
    print(f"page: {path}")


def paper_page() -> Page:
    """The generic report of the experiments, with printed numbers, claims and errata."""
    page = build_report(stored(), STYLES)
    sections = [replace(each, tables=_beside_print(each.name) or each.tables) for each in page.sections]
    text = "What the text says, recomputed from the printed tables and from the stored runs."
    remarks = "What is wrong, missing or ambiguous in the paper, and what is done here."
    more = [
        Section("claims", "Sentences of the paper", text, tables={"": claims_table(claims())}, look="words"),
        Section("errata", "Errata", remarks, tables={"": errata_table()}, look="words"),
    ]
    return replace(
        page,
        title="Short codes: the paper and what we measured",
        lede=" ".join(
            verdict(grid_of("table1"), printed()["table1"], metric) for metric in printed()["table1"].metrics
        ),
        sections=[*sections[:-1], *more, sections[-1]],
    )


def claims() -> tuple[Claim, ...]:
    """Every numeric sentence of the paper."""
    seen, records = stored(), stored().records
    curves = {k: v for part in seen.parts("convergence") for k, v in collect_curves(part, records).items()}
    maps = {k: v for part in seen.parts("heatmap") for k, v in collect_maps(part, records).items()}
    costs = [collect_grid(part, records) for part in seen.parts("cost")]
    lines = [collect_grid(part, records) for part in seen.parts("lines")]
    return (
        *table_claims(grid_of("table1"), printed()["table1"], grid_of("table2"), printed()["table2"]),
        *figure_claims(lines, maps, curves, costs[0] if costs else None),
    )


def _beside_print(name: str) -> dict[str, Table]:
    """The tables of a part with the printed numbers; none for a part that the paper does not print."""
    if name not in printed():
        return {}
    ours, there, tables = grid_of(name), printed()[name], {}
    for metric, dataset in itertools.product(ours.metrics, ours.datasets):
        compared = any(there.values(metric, dataset, bits) for bits in there.lengths(dataset))
        table = difference_table(ours, there, metric, dataset) if compared else mean_table(ours, metric, dataset)
        tables[f"{dataset}, {metric}"] = table
    return tables


def state() -> str:
    """How much has been run, on what data, with what."""
    shown, planned = stored().shown(), len(unique_runs(stored().experiments.values()))
    lines = [f"{len(shown)} of the {planned} runs of the four experiments are stored in `experiments/results`."]
    if len(shown) < planned:
        lines.append("What is missing says *not run* below, and is run by `make reproduce`.")
    if shown:
        found = provenance(shown).tables
        lines += [f"\n{to_markdown(found[title])}" for title in ("Data sets", "Software and machines")]
    return "\n".join(lines)


def order() -> str:
    """Rank correlations, winners, trends and scale."""
    pair = grid_of("table1"), printed()["table1"]
    metrics = list(pair[1].metrics)
    parts = [f"- {verdict(*pair, metric)}" for metric in metrics]
    parts += [
        f"\n### Order of the ten methods, {metric}\n\n{to_markdown(agreement_table(*pair, metric))}"
        for metric in metrics
    ]
    parts.append(f"\n### Does {PROPOSED} reach its numbers?\n\n{to_markdown(scale_table(*pair, 'mAP'))}")
    parts.append(
        "\n### Does mAP rise with every step to more bits?\n\nOn how many data sets it does, for every method.\n\n"
        + to_markdown(trend_table(*pair, "mAP"))
    )
    return "\n".join(parts)


def tables() -> str:
    """Tables 1 and 2 beside the printed numbers; further rows and costs."""
    parts = []
    for part in stored().parts("table", "cost"):
        parts.append(f"### {part.title}\n\n{part.report.get('caption', '')}\n")
        parts += [f"{title}\n\n{to_markdown(table)}" for title, table in _tables_of(part).items()]
    return "\n".join(parts)


def _tables_of(part: Part) -> dict[str, Table]:
    if part.name in printed():
        return _beside_print(part.name)
    grid = collect_grid(part, stored().records)
    if part.report.get("kind") == "cost":
        return {dataset: metric_table(grid, dataset, {"peak MiB": 0, "added MiB": 0}) for dataset in grid.datasets}
    places = itertools.product(grid.metrics, grid.datasets)
    return {f"{dataset}, {metric}": mean_table(grid, metric, dataset) for metric, dataset in places}


def ties() -> str:
    """What the order of equal distances does to mAP of RSLH."""
    part = stored().part("table1")
    assert part is not None
    grid = collect_grid(part, stored().records, list(TIES))
    columns = (Column("data set", text=True), Column("bits"), *(Column(title) for title in TIES.values()))
    rows = []
    for dataset, bits in grid.columns:
        cells = [grid.cell(metric, PROPOSED, dataset, bits) or Cell() for metric in grid.metrics]
        rows.append((dataset, bits, *(f"{replace(cell, std=math.nan):.3f}" for cell in cells)))
    return to_markdown(Table(columns, tuple(rows)))


def sentences() -> str:
    """The numeric sentences of the paper, recomputed."""
    return to_markdown(claims_table(claims()))


def errata() -> str:
    """What is wrong, missing or ambiguous in print."""
    return to_markdown(errata_table())


if __name__ == "__main__":
    main(*sys.argv[1:])
