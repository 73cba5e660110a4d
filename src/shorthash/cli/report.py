"""shorthash report: tables, figures and one page from stored runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from shorthash.cli import output
from shorthash.cli.options import AsJson, option, optional

__all__ = ["report"]


def report(
    experiments: Annotated[
        list[Path] | None,
        optional("EXPERIMENTS", "Specifications (.toml), or folders of them; experiments if missing."),
    ] = None,
    results: Annotated[Path, option("--results", metavar="FOLDER", text="Folder of stored runs.", default=True)] = Path(
        "experiments/results"
    ),
    out: Annotated[Path, option("--out", "-o", metavar="FOLDER", text="Folder for the report.", default=True)] = Path(
        "report"
    ),
    as_json: AsJson = False,
) -> None:
    """Draw tables and figures from stored runs.

    Nothing is learned: what shorthash bench run has stored is laid out beside the numbers of the paper. FOLDER gets
    index.html, which stands alone, every table as .md, .tex and .csv, and every figure as .png and .svg. What was not
    run yet says so, with the command that would run it.

    \b
    Examples:
      shorthash report
      shorthash report experiments/table1.toml --results experiments/results -o report
    """
    from shorthash._validation import require_extra
    from shorthash.lab.report_page import write_report
    from shorthash.lab.reporting import build_report, collect
    from shorthash.lab.tables import Column, Table

    for module in ("matplotlib", "jinja2"):  # now, not after all the work
        require_extra(module, "report", "shorthash report")
    made = build_report(collect(experiments or [Path("experiments")], results))
    page = write_report(made, out)
    columns = (Column("part", text=True), Column("runs"), Column("stored"), Column("missing"))
    parts = [(each.title, each.n_runs, each.n_runs - each.n_missing, each.n_missing) for each in made.sections]
    commands = list(dict.fromkeys(each.command for each in made.sections if each.n_missing))
    notes = ("", *(f"to run what is missing: {command}" for command in commands), f"page: {page}")
    names = [column.title for column in columns]
    data = {
        "page": str(page),
        "parts": [dict(zip(names, part, strict=True)) for part in parts],
        "commands": commands,
    }
    output.show(output.Answer(data, tables=(Table(columns, tuple(parts)),), notes=notes), as_json=as_json)
