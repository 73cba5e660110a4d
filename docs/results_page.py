"""Tables of measured results for the documentation, drawn from the stored records of experiments/; nothing is learned.

docs/generate.py puts them into the pages. To measure again: ``shorthash bench run experiments/NAME.toml``; what has no
record says *not run*.
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

import numpy as np

from shorthash.evaluation import CONVENTIONS
from shorthash.lab.report import collect_grid
from shorthash.lab.running import Records, read_records
from shorthash.lab.spec import Part, plan_part, read_experiment
from shorthash.lab.tables import Cell, Column, ResultGrid, Table, mean_table, to_markdown

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"
CONVENTION_BITS = 8
AUTO_BITS = (4, 8, 12, 16)
FEW_LABELS_BITS = 8
HEADLINES = {"map": "mAP", "map_at_k": "mAP@{k}", "map_at_radius": "mAP@H≤2", "pr_area": "PR area"}
RERANKED = {
    "by_relevance": "cells in the order of `relevance`",
    "by_posteriors": "re-ranked by posteriors",
    "by_features": "re-ranked by features",
    "posteriors_alone": "posteriors alone, no bits",
}


@functools.cache
def records() -> Records:
    """All stored records."""
    return read_records(EXPERIMENTS / "results")


@functools.cache
def parts(experiment: str) -> tuple[Part, ...]:
    """The parts of an experiment."""
    return read_experiment(EXPERIMENTS / f"{experiment}.toml").parts


def methods() -> str:
    """Every method on two data sets: scores, time, codes; and their order in print and here."""
    (part,) = parts("methods")
    grid = collect_grid(part, records(), ["map", "map_h2", "fit", "encode"])
    legend = (
        f"Means over {len(part.seeds)} seeds (mAP: ± standard deviation), the best of a column in bold. *fit*: CPU "
        "seconds to learn, kernel included, the slowest length; *encode*: CPU seconds for 10 000 rows; *codes*: how "
        "many different codes the training rows have, by length: as learned, or as encoded (in brackets) where a "
        "method learns none of its own. `shorthash bench run experiments/methods.toml`."
    )
    lines = [legend]
    for data in part.datasets:
        lines += ["", f"## {data.title}", "", to_markdown(_methods_table(part, grid, data.name, data.title))]
        reasons = {r["undefined"] for r in _records(part, data.name) if "undefined" in r}
        lines += [f"*not defined*: {reason}\n" for reason in sorted(reasons)]
        lines += [
            "By mAP, best first, as printed in the RSLH paper (other features and protocol) and as measured here:"
        ]
        lines += ["", to_markdown(_order_table(grid, data.title))]
    return "\n".join(lines)


def _methods_table(part: Part, grid: ResultGrid, dataset: str, title: str) -> Table:
    lengths = grid.lengths(title)
    columns = [Column("method", text=True)]
    columns += [Column(f"mAP, {bits}", 3, "high") for bits in lengths]
    columns += [Column(f"H≤2, {bits}", 3, "high") for bits in lengths]
    columns += [Column("fit", 2), Column("encode", 2), Column("codes", text=True)]
    n_rows = next(iter(_records(part, dataset)))["data"]["rows"]
    rows = []
    for row in grid.rows:
        cells = {m: [grid.cell(m, row, title, bits) or Cell() for bits in lengths] for m in grid.metrics}
        within = [replace(cell, std=math.nan) for cell in cells["mAP@H<=2"]]
        fit = max(_known(cells["fit s"]), default=math.nan)
        seconds = _known(cells["encode s"])
        encode = float(np.mean(seconds)) * 10_000 / n_rows if seconds else math.nan
        codes = "; ".join(_codes(part, row, dataset, bits) for bits in lengths)
        rows.append((f"`{row}`", *cells["mAP"], *within, fit, encode, codes))
    return Table(tuple(columns), tuple(rows))


def _known(cells: list[Cell]) -> list[float]:
    return [cell.mean for cell in cells if not math.isnan(cell.mean)]


def _codes(part: Part, row: str, dataset: str, bits: int) -> str:
    """How many codes the training rows have, over the seeds."""
    found = [r["codes"] for r in _records(part, dataset, row, bits) if "codes" in r]
    learned = [each["learned"] for each in found if each["learned"] is not None]
    counts = learned or [each["used"] for each in found]
    if not counts:
        return "-"
    text = "-".join(str(n) for n in dict.fromkeys((min(counts), max(counts))))
    return text if learned else f"({text})"


def _order_table(grid: ResultGrid, title: str) -> Table:
    """The methods of the RSLH paper by mAP, as printed there and as measured here."""
    sys.path.insert(0, str(EXPERIMENTS / "paper"))
    from claims import read_printed

    printed = read_printed()["Table 1"]
    rows = []
    for bits in grid.lengths(title):
        there = {n.lower().replace("-", ""): v for n, v in printed.values("mAP", title, bits).items()}
        here = {name: value for name, value in grid.values("mAP", title, bits).items() if name in there}
        rows.append((bits, *(", ".join(sorted(side, key=lambda n, s=side: -s[n])) for side in (there, here))))
    return Table((Column("bits"), Column("in print", text=True), Column("here", text=True)), tuple(rows))


def auto() -> str:
    """The recommended method beside others: by how much it leads or trails the best of them, then every score."""
    columns = (Column("", text=True), Column("data", text=True), *(Column(f"{b} bits", text=True) for b in AUTO_BITS))
    lines, grids = [], []
    for title, name in (("Five seeds", "auto-seeds"), ("One seed, every method", "auto")):
        found = [(part, collect_grid(part, records())) for part in parts(name)]
        leads = [
            (part.title.removesuffix(", five seeds"), dataset, *(_lead(grid, dataset, bits) for bits in AUTO_BITS))
            for part, grid in found
            for dataset in grid.datasets
        ]
        lines += [f"## {title}", "", to_markdown(Table(columns, tuple(leads)))]
        grids += found
    for part, grid in grids:
        lines += [f"## {part.title}", ""]
        for dataset in grid.datasets:
            lines += [f"**{dataset}**", "", to_markdown(mean_table(grid, "mAP", dataset, digits=3))]
    return "\n".join(lines)


def _lead(grid: ResultGrid, dataset: str, bits: int) -> str:
    """The score of auto, and its lead over the best other method."""
    values = grid.values("mAP", dataset, bits)
    if "auto" not in values or len(values) < 2:
        return "not run"
    best = max((name for name in values if name != "auto"), key=lambda name: values[name])
    return f"{values['auto']:.3f} ({values['auto'] - values[best]:+.3f} `{best}`)"


def eaph() -> str:
    """EAPH beside other methods, one table per case; then re-ranking."""
    lines = []
    for part in parts("eaph"):
        if part.name == "eaph-steps":
            continue
        grid = collect_grid(part, records())
        lines += [f"**{part.title}**", ""]
        if part.task == "reranking":
            lines += [table for dataset in grid.datasets for table in (f"{dataset}", "", _reranked(grid, dataset))]
            lines += _earlier(part)
            continue
        (dataset,) = grid.datasets
        table = mean_table(grid, "mAP", dataset, digits=3)
        gain = ("*EAPH less the classifier with the same posteriors, by seed*", *_gains(part, grid.lengths(dataset)))
        lines.append(to_markdown(replace(table, rows=(*table.rows, gain))))
        lines += _earlier(part)
    return "\n".join(lines)


def _earlier(part: Part) -> list[str]:
    """A sentence on runs of EAPH whose records were converted: an earlier version of the method measured them."""
    runs = [run for run in plan_part(part) if run.row.startswith("EAPH") and run.name in records()]
    old = sum("converted" in records()[run.name] for run in runs)
    return [f"EAPH: {old} of these {len(runs)} runs were measured by an earlier version.\n"] if old else []


def _gains(part: Part, lengths: tuple[int, ...]) -> list[Cell]:
    """Mean and standard deviation over the seeds of the difference."""
    cells = []
    for bits in lengths:
        pair = [
            {r["spec"]["seed"]: r["scores"]["map"]["mean"] for r in _records(part, part.datasets[0].name, row, bits)}
            for row in ("EAPH", "classifier, same posteriors")
        ]
        gains = [pair[0][seed] - pair[1][seed] for seed in pair[0] if seed in pair[1]]
        cells.append(Cell(float(np.mean(gains)), float(np.std(gains, ddof=1))) if len(gains) > 1 else Cell())
    return cells


def _reranked(grid: ResultGrid, dataset: str) -> str:
    """One row per order of the items."""
    shown = {metric.replace("_", " "): name for metric, name in RERANKED.items()}
    lengths = grid.lengths(dataset)
    rows = [(shown[m], *(grid.cell(m, "EAPH", dataset, bits) for bits in lengths)) for m in grid.metrics]
    columns = (Column("EAPH", text=True), *(Column(f"{bits} bits", 3) for bits in lengths))
    return to_markdown(Table(columns, tuple(rows)))


def steps() -> str:
    """From RSLH to EAPH, one change at a time."""
    part = next(part for part in parts("eaph") if part.name == "eaph-steps")
    grid = collect_grid(part, records())
    head = (
        f"Tie-aware mAP on CIFAR-10, mean ± standard deviation over {len(part.seeds)} seeds; 100 queries per class, "
        "5 000 training rows, database of 59 000; `shorthash bench run experiments/eaph.toml`.\n\n"
    )
    return "\n".join([head + to_markdown(mean_table(grid, "mAP", "CIFAR-10", digits=3)), *_earlier(part)]).rstrip()


def boosting() -> str:
    """RSLH on CIFAR-10 without boosting, with the original and with the modified one."""
    names = {"G": "RSLH-B (no boosting)", "G+OB": "RSLH, original boosting (ob)", "G+MB": "RSLH (mb)"}
    part = parts("table2")[0]
    grid = collect_grid(part, records(), ["map"])
    lengths = grid.lengths("CIFAR-10")
    rows: list[tuple[Any, ...]] = []
    for row, name in names.items():
        rows.append((name, *(f"{grid.cell('mAP', row, 'CIFAR-10', bits):.3f}" for bits in lengths)))
        rows.append(("*distinct codewords*", *(_codes(part, row, "cifar10", bits) for bits in lengths)))
    table = Table((Column("", text=True), *(Column(f"{bits} bits") for bits in lengths)), tuple(rows))
    first = {bits: _records(part, "cifar10", "G+MB", bits, seed=0)[0]["scores"] for bits in lengths}
    ties = ", ".join(
        f"{s['map_worst']['mean']:.3f} to {s['map_best']['mean']:.3f} ({b} bits)" for b, s in first.items()
    )
    return (
        f"Tie-aware mAP, mean ± standard deviation over {len(part.seeds)} seeds, and the smallest and largest number "
        "of distinct class codewords (of 10) over the first five. 100 queries per class, 5 000 training rows, database "
        f"of 59 000; `shorthash bench run experiments/table2.toml`.\n\n{to_markdown(table)}\n"
        "With ties ordered against or for the query instead of averaged, the same codes (mb, seed 0) would score "
        f"{ties}."
    )


def ties() -> str:
    """One set of codes under every tie order, and under every convention."""
    (part,) = parts("ties")
    found = {r["spec"]["n_bits"]: _means(r) for r in _records(part, "cifar10")}
    titles = ("bits", "worst order", "expected", "best order", "spread", "sorted by class", "10 random orders")
    rows = []
    for bits, s in found.items():
        orders = (s["map_worst"], s["map"], s["map_best"], s["map_best"] - s["map_worst"], s["map_by_class"])
        shuffled = f"{s['map_shuffled_low']:.4f} to {s['map_shuffled_high']:.4f}"
        rows.append((bits, *(f"{value:.3f}" for value in orders), shuffled))
    lines = [to_markdown(Table(tuple(map(Column, titles)), tuple(rows)))]
    lines += [f"The same {CONVENTION_BITS}-bit codes under every convention, with the database shuffled once:\n"]
    rules = []
    for name, rule in CONVENTIONS.items():
        value = found.get(CONVENTION_BITS, {}).get(f"convention_{name}")
        rules.append((f"`{name}`", HEADLINES[rule.headline].format(k=rule.k[0]), value, rule.family))
    columns = (Column("`convention=`", text=True), Column("calls this mAP", text=True), Column("value", 4))
    return "\n".join([*lines, to_markdown(Table((*columns, Column("whose code", text=True)), tuple(rules)))])


def penalty() -> str:
    """The penalty of the classifier code, by cross-validation."""
    (part,) = parts("penalty")
    grid = collect_grid(part, records())
    columns = (Column("penalty", text=True), *(Column(name, 3) for name in grid.rows))
    rows = [
        (dataset, *(grid.values("mAP", dataset, grid.lengths(dataset)[0]).get(row) for row in grid.rows))
        for dataset in grid.datasets
    ]
    return to_markdown(Table(columns, tuple(rows)))


def neighbours() -> str:
    """Codes without labels: neighbours found by Hamming distance and by learned probes."""
    (part,) = parts("neighbours")
    head = (
        "Relevant: the 100 nearest rows by cosine; 1 000 queries; training set and database are all other rows; means "
        "over *seeds*. *class mAP*: by labels that training never saw. *recall*: share of the 100 nearest found in 1 % "
        "of the database, read by Hamming distance; *probed*: in the order of `relevance`. *for probes*: "
        '`search="probes"`. `shorthash bench run experiments/neighbours.toml`.\n\n'
    )
    shown = ("neighbour_map", "class_map", "recall_0.01", "probed_0.01")
    columns = (Column("data set", text=True), Column("bits"), Column("method", text=True))
    columns += (*(Column(title, 3) for title in ("mAP", "class mAP", "recall", "probed")), Column("seeds"))
    rows = []
    for data, bits, row in itertools.product(part.datasets, (8, 12), part.methods):
        found = [_means(record) for record in _records(part, data.name, row.name, bits)]
        if found:
            values = [float(np.mean([one[name] for one in found])) if name in found[0] else None for name in shown]
            rows.append((data.title, bits, row.name, *values, len(found)))
    return head + to_markdown(Table(columns, tuple(rows)))


def neighbour_scores(dataset: str, bits: int, row: str = "`auto`") -> dict[str, float]:
    """Scores of a row without labels, means over the seeds that have records."""
    (part,) = parts("neighbours")
    found = [_means(record) for record in _records(part, dataset, row, bits)]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def few_labels() -> str:
    """Codes from few labels and many rows without, beside all labels: mAP by labels per class, of what has records."""
    known = parts("few-labels")
    titles = list(dict.fromkeys(row.name for part in known for row in part.methods))
    values: dict[tuple[str, str], dict[str, float]] = {}
    n_seeds = 0
    for part in known:
        for data, row in itertools.product(part.datasets, part.methods):
            found = [_means(record)["map"] for record in _records(part, data.name, row.name)]
            if found:
                n_seeds = max(n_seeds, len(found))
                values.setdefault((data.title, part.name.split("-")[1]), {})[row.name] = float(np.mean(found))
    whole = next(part for part in parts("pairs") if part.name == "pairs-labels")
    for data in whole.datasets:
        found = [_means(record)["map"] for record in _records(whole, data.name, bits=FEW_LABELS_BITS)]
        if found:
            values[data.title, "all"] = {titles[1]: float(np.mean(found))}
    every = "; *all*: every row has its label (`experiments/pairs.toml`)" if any("all" in key for key in values) else ""
    head = (
        f"mAP by class at 8 bits; 1 000 queries, seeds: {n_seeds}; the database are all other rows{every}. "
        "`shorthash bench run experiments/few-labels.toml`.\n\n"
    )
    columns = (Column("data set", text=True), Column("labels per class"), *(Column(title, 3) for title in titles))
    order = sorted(values, key=lambda place: place[0])  # by data set; labels per class stay in order
    rows = [(*place, *(values[place].get(title) for title in titles)) for place in order]
    return head + to_markdown(Table(columns, tuple(rows))) if rows else ""


def pairs() -> str:
    """Codes from pairs beside those from all labels and from none, of what has records."""
    columns = (
        Column("data set", text=True),
        Column("bits"),
        *(Column(part.methods[0].name, 3) for part in parts("pairs")),
    )
    rows, n_seeds = [], 0
    for data in parts("pairs")[0].datasets:
        for bits in data.bits:
            found = [[_means(record) for record in _records(part, data.name, bits=bits)] for part in parts("pairs")]
            n_seeds = max(n_seeds, *map(len, found))
            means = [
                np.mean([one.get("class_map", one.get("map")) for one in runs]) if runs else None for runs in found
            ]
            if found[0]:
                rows.append((data.title, bits, *means))
    head = (
        f"mAP by class; 1 000 queries, seeds: {n_seeds}; training set and database are all other rows. "
        "`shorthash bench run experiments/pairs.toml`.\n\n"
    )
    return head + to_markdown(Table(columns, tuple(rows))) if rows else ""


def _records(
    part: Part, dataset: str, row: str | None = None, bits: int | None = None, seed: int | None = None
) -> list[Mapping[str, Any]]:
    """Stored records of the runs of a part, in the order of the plan."""
    planned = [run for run in plan_part(part) if run.dataset == dataset and row in (None, run.row)]
    chosen = [run for run in planned if bits in (None, run.n_bits) and seed in (None, run.seed)]
    return [records()[run.name] for run in chosen if run.name in records()]


def _means(record: Mapping[str, Any]) -> dict[str, float]:
    return {name: value["mean"] for name, value in record["scores"].items()}
