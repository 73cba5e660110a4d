"""The report of a comparison on the user's own rows: table, page, CSV and JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from shorthash.data.files import replacing
from shorthash.lab.compare import MethodComparison
from shorthash.lab.grid import Cell, ResultGrid
from shorthash.lab.report_page import Report, write_report
from shorthash.lab.sections import Section, lines_section
from shorthash.lab.tables import Column, Table, to_csv, to_latex, to_markdown
from shorthash.recipes import recipes

__all__ = ["comparison_report", "comparison_sentence", "comparison_table", "skipped_table", "write_comparison"]

SURE = 0.05  # differences to the best with a larger p-value may be luck of the queries


def comparison_table(result: MethodComparison) -> Table:
    """One row per method and length."""
    within = f"@H<={result.radius}"
    columns = (
        Column("method", text=True),
        Column("bits"),
        Column("mAP", 4),
        Column("interval"),
        Column("worst tie", 3),
        Column("best tie", 3),
        Column(f"mAP{within}", 4),
        Column(f"precision@{result.k}", 4),
        Column("behind best", 4),
        Column("fit CPU s", 2),
        Column("encode µs/row", 1),
    )
    rows = tuple(
        (
            row.method,
            row.n_bits,
            row.map,
            f"{row.map_low:.3f} to {row.map_high:.3f}",
            row.map_worst,
            row.map_best,
            row.map_at_radius,
            row.precision_at_k,
            row.behind,
            row.fit_seconds,
            row.encode_microseconds,
        )
        for row in result.rows
    )
    return Table(columns, rows)


def skipped_table(result: MethodComparison) -> Table:
    """What could not be run, and why."""
    columns = (Column("method", text=True), Column("bits", text=True), Column("why", text=True))
    return Table(
        columns, tuple((name, "all" if bits is None else str(bits), why) for name, bits, why in result.skipped)
    )


def comparison_sentence(result: MethodComparison) -> str:
    """Which method to take at which length, and which others may be as good."""
    parts = []
    for n_bits in result.lengths:
        best = result.best(n_bits)
        near = [row.method for row in result.rows if row.n_bits == n_bits and row.p_value > SURE]
        also = f" (not told apart from it: {', '.join(near)})" if near else ""
        parts.append(f"{best.method} {best.map:.3f} at {n_bits} bits{also}")
    return f"Best mAP: {'; '.join(parts)}."


def comparison_report(result: MethodComparison) -> Report:
    """Everything the page shows.

    Parameters
    ----------
    result : what was compared
    """
    table = comparison_table(result)
    whole = Section(
        "compare",
        "All numbers",
        "mAP is the exact mean over all orders of items at equal distance, with a 95 % bootstrap interval over the "
        "queries; the tie columns are what the most unlucky and the luckiest order would give.",
        tables={"every method and length": table},
        texts={"compare.csv": to_csv(table), "compare.md": to_markdown(table), "compare.tex": to_latex(table)},
    )
    learned = "all" if result.n_train == result.n_database else str(result.n_train)
    best = max(result.rows, key=lambda row: row.map)
    shortest = result.best(result.lengths[0])
    extras = {"Not run": ("", skipped_table(result))} if result.skipped else {}
    return Report(
        title=f"{len({row.method for row in result.rows})} methods on your rows",
        lede=f"{result.n_rows} rows with {result.n_features} features and {result.n_classes} "
        f"{'labels, several per row allowed' if result.multilabel else 'classes'}. {result.n_queries} rows are "
        f"queries; the other {result.n_database} are searched, and {learned} of them were learned from. "
        + comparison_sentence(result),
        sections=[_by_length(result), whole],
        extras=extras,
        provenance={"methods": _methods(result), "settings": _settings(result)},
        facts=[
            (f"{best.map:.3f}", f"best mAP: {best.method}, {best.n_bits} bits"),
            (f"{shortest.map:.3f}", f"best mAP with {shortest.n_bits} bits: {shortest.method}"),
            (f"{result.seconds:.0f} s", "for everything"),
        ],
        footer=f"(shorthash compare) in {result.seconds:.0f} s, seed {result.seed}",
    )


def write_comparison(result: MethodComparison, folder: str | Path) -> Path:
    """Write ``index.html``, tables, figures and ``compare.json`` into a folder; return the page.

    Parameters
    ----------
    result : what was compared
    folder : where to; it is made if need be
    """
    page = write_report(comparison_report(result), folder)
    with replacing(page.with_name("compare.json")) as temporary:
        temporary.write_text(json.dumps(_plain(result.to_dict()), indent=2) + "\n", encoding="utf-8")
    return page


def _by_length(result: MethodComparison) -> Section:
    """Two figures: mAP, and precision inside the ball, by length."""
    names = tuple(dict.fromkeys(row.method for row in result.rows))
    scores = {"mAP": "map", f"precision@H<={result.radius}": "precision_at_radius"}
    metrics = {
        title: {(row.method, "your rows", row.n_bits): Cell(getattr(row, name), math.nan, 1, 1) for row in result.rows}
        for title, name in scores.items()
    }
    grid = ResultGrid("By code length", names, tuple(("your rows", n) for n in result.lengths), metrics)
    return lines_section("by-length", grid, comparison_sentence(result))


def _methods(result: MethodComparison) -> Table:
    known = recipes()
    names = dict.fromkeys(row.method for row in result.rows)
    columns = (Column("method", text=True), Column("full name", text=True), Column("reference", text=True))
    return Table(columns, tuple((name, known[name].full_name, known[name].reference) for name in names))


def _settings(result: MethodComparison) -> Table:
    names = (
        "n_given",
        "n_rows",
        "n_features",
        "n_classes",
        "n_queries",
        "n_train",
        "n_database",
        "radius",
        "k",
        "seed",
    )
    rows = tuple((name, str(getattr(result, name))) for name in names)
    return Table((Column("what", text=True), Column("value", text=True)), rows)


def _plain(value: Any) -> Any:
    """As JSON knows it: nan is null."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
