"""Run experiments that a file describes.

A record of every run is saved, and runs that have one are not repeated.

\b
Example:
  shorthash bench run experiments/smoke.toml
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shorthash.cli import output
from shorthash.cli.evaluate import check_report
from shorthash.cli.options import AsJson, DataDir, argument, option

if TYPE_CHECKING:
    from shorthash.lab.spec import Experiment

__all__ = ["bench", "report"]

Specs = Annotated[list[Path], argument("SPEC", "Specifications: .toml files.")]
Results = Annotated[
    Path | None, option("--results -r", "FOLDER", "Folder of the records.", "results beside the first SPEC")
]

bench = typer.Typer(name="bench", help=__doc__, rich_markup_mode=None, add_completion=False)


@bench.command()
def run(
    specs: Specs,
    results: Results = None,
    data_dir: DataDir = None,
    workers: Annotated[int | None, option("--workers -w", "N", "Processes of one thread each.", "one per core")] = None,
    again: Annotated[
        str, option("--again", "NAME,...", "Methods whose runs are done again, in place of their records.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Do every run of the specifications that has no record yet.

    It can be stopped at any time and continues where it stopped; a record is never overwritten. Runs on the same split
    share kernel maps, sums and posteriors, so give all specifications at once.

    \b
    Examples:
      shorthash bench run experiments/smoke.toml
      shorthash bench run experiments/table1.toml experiments/table2.toml --data-dir data
    """
    from shorthash.lab.running import run_experiments

    folder = _results_folder(results, specs)
    with output.progress() as step:
        done = run_experiments(
            _read_experiments(specs),
            folder,
            data_dir=data_dir,
            workers=workers,
            again=[name.strip() for name in again.split(",") if name.strip()],
            progress=lambda at: step("running experiments", at.done, at.total, at.seconds_left),
        )
    output.show({**vars(done), "results": str(folder)}, as_json=as_json)


@bench.command("list")
def list_parts(specs: Specs, as_json: AsJson = False) -> None:
    """List the parts of specifications; --json lists every run.

    Points are those of a grid of settings. A run that several parts need is done once.

    \b
    Example:
      shorthash bench list experiments/table1.toml
    """
    from shorthash.lab.spec import plan_part

    rows, runs = [], []
    for part in (part for experiment in _read_experiments(specs) for part in experiment.parts):
        planned = plan_part(part)
        runs += [{"part": run.part, "row": run.row, "run": run.name, **run.spec.to_dict()} for run in planned]
        names = ", ".join(dataset.name for dataset in part.datasets)
        lengths = [length for dataset in part.datasets for length in dataset.bits]
        bits = f"{min(lengths)}-{max(lengths)}" if min(lengths) < max(lengths) else str(lengths[0])
        points = math.prod(len(values) for values in part.grid.values())
        rows.append((part.name, part.task, names, bits, len(part.methods), points, len(part.seeds), len(planned)))
    titles = ["part", "task", "data sets", "bits", "methods", "points", "seeds", "runs"]
    table = output.table(titles, rows, text=titles[:4])
    different = len({run["run"] for run in runs})
    output.show({"runs": runs}, {}, [table], [f"\n{different} different runs"], as_json=as_json)


@bench.command()
def status(specs: Specs, results: Results = None, as_json: AsJson = False) -> None:
    """Count the runs of specifications that have a record.

    \b
    Example:
      shorthash bench status experiments/table1.toml
    """
    from shorthash.lab.running import experiment_status

    folder = _results_folder(results, specs)
    rows = [
        (experiment.name, part, stored, planned, planned - stored)
        for experiment in _read_experiments(specs)
        for part, (stored, planned) in experiment_status(experiment, folder).items()
    ]
    table = output.table(["experiment", "part", "stored", "planned", "missing"], rows, text=["experiment", "part"])
    data = {"results": str(folder), "parts": output.records(table)}
    output.show(data, {"records": str(folder)}, [table], as_json=as_json)


def report(
    experiments: Annotated[
        list[Path] | None,
        argument("EXPERIMENTS", "Specifications (.toml), or folders of them; experiments if missing."),
    ] = None,
    results: Annotated[Path, option("--results", "FOLDER", "Folder of the records.")] = Path("experiments/results"),
    out: Annotated[Path, option("--out -o", "FOLDER", "Folder for the report.")] = Path("report"),
    as_json: AsJson = False,
) -> None:
    """Draw tables and figures from stored runs.

    Nothing is learned: the records of shorthash bench run are shown. FOLDER gets index.html, which needs no other file,
    every table as .md, .tex and .csv, and every figure as .png and .svg. Parts that were not run yet are named with the
    command that runs them.

    \b
    Examples:
      shorthash report
      shorthash report experiments/table1.toml --results experiments/results -o report
    """
    from shorthash.lab.pages import write_page
    from shorthash.lab.report import build_report, collect

    check_report("shorthash report", out)
    found = collect(experiments or [Path("experiments")], results)
    page = write_page(build_report(found), out)
    parts = found.status()
    rows = [(part.title, part.n_runs, part.n_runs - part.n_missing, part.n_missing) for part in parts]
    table = output.table(["part", "runs", "stored", "missing"], rows, text=["part"])
    commands = list(dict.fromkeys(part.command for part in parts if part.n_missing))
    notes = ["", *(f"to run what is missing: {command}" for command in commands), f"page: {page}"]
    data = {"page": str(page), "parts": output.records(table), "commands": commands}
    output.show(data, {}, [table], notes, as_json=as_json)


def _read_experiments(specs: list[Path]) -> list[Experiment]:
    """Read all specifications, so that an error in one is found before anything runs."""
    from shorthash.lab.spec import read_experiment

    return [read_experiment(path) for path in specs]


def _results_folder(results: Path | None, specs: list[Path]) -> Path:
    return specs[0].parent / "results" if results is None else results
