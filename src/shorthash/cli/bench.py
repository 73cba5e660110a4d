"""Run experiments described by TOML files.

Every run is stored as a record; runs that have a record are not repeated.

\b
Example:
  shorthash bench run experiments/smoke.toml
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from shorthash.cli import terminal as cli
from shorthash.cli.evaluate import check_report

if TYPE_CHECKING:
    from shorthash.lab.spec import Experiment

DATASETS = """List data sets, and download their original files.

\b
Example:
  shorthash datasets list
"""

Specs = Annotated[list[Path], cli.argument("SPEC", "Specifications of experiments: .toml files.")]
Results = Annotated[
    Path | None,
    cli.option("FOLDER", "Folder of the records.", "results in the folder of the first SPEC", names="--results -r"),
]

bench = cli.Group(__doc__)
datasets = cli.Group(DATASETS)


@bench.command()
def run(
    specs: Specs,
    results: Results = None,
    data_dir: cli.DataDir = None,
    workers: Annotated[
        int | None, cli.option("N", "Processes of one thread each.", "one per core", names="--workers -w")
    ] = None,
    again: Annotated[Any, cli.names("Repeat the runs of these methods and replace their records.")] = None,
) -> cli.Result:
    """Do the runs of the specifications that have no record.

    The command can be stopped at any time and continues where it stopped. Runs on the same split share kernel features,
    sums and posteriors, so pass all specifications at once.

    \b
    Examples:
      shorthash bench run experiments/smoke.toml
      shorthash bench run experiments/table1.toml experiments/table2.toml --data-dir data
    """
    from shorthash.lab.running import run_experiments

    folder = _results_folder(results, specs)
    with cli.progress() as step:
        done = run_experiments(
            _read_experiments(specs),
            folder,
            data_dir=data_dir,
            workers=workers,
            again=again or [],
            progress=step,
        )
    return cli.Result({**vars(done), "results": str(folder)})


@bench.command("list")
def list_parts(specs: Specs, results: Results = None) -> cli.Result:
    """List the parts of specifications, and count the runs that are stored.

    Points are those of a grid of settings. A run that several parts plan is done once. --json lists every run.

    \b
    Example:
      shorthash bench list experiments/table1.toml
    """
    from shorthash.lab.running import read_records
    from shorthash.lab.spec import plan_part

    folder = _results_folder(results, specs)
    records = read_records(folder)
    rows, runs = [], []
    for part in (part for experiment in _read_experiments(specs) for part in experiment.parts):
        planned = plan_part(part)
        stored = sum(run.name in records for run in planned)
        for run in planned:
            place = {"part": run.part, "row": run.row, "run": run.name, "stored": run.name in records}
            runs.append({**place, **run.spec.to_dict()})
        names = ", ".join(dataset.name for dataset in part.datasets)
        lengths = [length for dataset in part.datasets for length in dataset.bits]
        bits = f"{min(lengths)}-{max(lengths)}" if min(lengths) < max(lengths) else str(lengths[0])
        points = math.prod(len(values) for values in part.grid.values())
        counts = (len(part.methods), points, len(part.seeds), len(planned), stored)
        rows.append((part.name, part.task, names, bits, *counts))
    titles = ["part", "task", "data sets", "bits", "methods", "points", "seeds", "runs", "stored"]
    table = cli.table(titles, rows, text=titles[:4])
    data = {"results": str(folder), "parts": cli.records(table), "runs": runs}
    notes = ["", f"{len({run['run'] for run in runs})} different runs; records in {folder}"]
    return cli.Result(data, {}, [table], notes)


@bench.command()
def status(specs: Specs, results: Results = None) -> cli.Result:
    """Count the runs of experiments that are stored, and those that are missing.

    \b
    Example:
      shorthash bench status experiments/table1.toml
    """
    from shorthash.lab.report import collect

    folder = _results_folder(results, specs)
    parts = collect(specs, folder).status()
    rows = [(at.experiment, at.part, at.n_runs - at.n_missing, at.n_runs, at.n_missing) for at in parts]
    table = cli.table(["experiment", "part", "stored", "planned", "missing"], rows, text=["experiment", "part"])
    data = {"results": str(folder), "parts": cli.records(table)}
    return cli.Result(data, {"records": str(folder)}, [table])


def report(
    experiments: Annotated[
        list[Path] | None,
        cli.argument("EXPERIMENTS", "Specifications (.toml) or folders of them; default: experiments."),
    ] = None,
    results: Annotated[
        Path | None,
        cli.option(
            "FOLDER",
            "Folder of the records.",
            "results in the folder of the first of EXPERIMENTS",
            names="--results -r",
        ),
    ] = None,
    out: Annotated[Path, cli.option("FOLDER", "Folder for the report.", names="--out -o")] = Path("report"),
) -> cli.Result:
    """Draw tables and figures from stored runs.

    Only the records of shorthash bench run are read. FOLDER will contain a self-contained index.html, every table as
    .md, .tex and .csv, and every figure as .png and .svg. For parts with missing runs, the command to run is shown.

    \b
    Examples:
      shorthash report
      shorthash report mine.toml -o report
    """
    from shorthash.lab.figures import write_page
    from shorthash.lab.report import build_report, collect

    check_report("shorthash report", out)
    specs = experiments or [Path("experiments")]
    found = collect(specs, _results_folder(results, specs))
    page = write_page(build_report(found), out)
    parts = found.status()
    rows = [(part.title, part.n_runs, part.n_runs - part.n_missing, part.n_missing) for part in parts]
    table = cli.table(["part", "runs", "stored", "missing"], rows, text=["part"])
    commands = list(dict.fromkeys(part.command for part in parts if part.n_missing))
    notes = ["", *(f"to do the missing runs: {command}" for command in commands), f"page: {page}"]
    data = {"page": str(page), "parts": cli.records(table), "commands": commands}
    return cli.Result(data, {}, [table], notes)


@datasets.command("list")
def list_datasets(
    name: Annotated[str | None, cli.argument("NAME", "Data set to show in detail.")] = None,
    data_dir: cli.DataDir = None,
) -> cli.Result:
    """List the data sets and where they are, or show one in detail.

    \b
    Examples:
      shorthash datasets list
      shorthash datasets list cifar10
    """
    from shorthash._validation import check_choice
    from shorthash.data.datasets import CATALOGUE, data_folders, dataset_facts

    facts = {known: dataset_facts(known, data_dir) for known in CATALOGUE}
    if name is not None:
        check_choice(name, "NAME", "list", list(CATALOGUE))
        return cli.Result({name: facts[name]}, cli.facts_of(facts[name]))
    rows = [
        (known, f["title"], f["rows"], f["dims"], f["classes"], Path(f["place"]).name if f["place"] else "no")
        for known, f in facts.items()
    ]
    titles = ["name", "data set", "rows", "features", "classes", "found"]
    table = cli.table(titles, rows, text=["name", "data set", "found"])
    folders = ", ".join(str(folder) for folder in data_folders(data_dir))
    notes = ["", f"Looked in: {folders}", "For details: shorthash datasets list NAME"]
    return cli.Result(facts, {}, [table], notes)


@datasets.command()
def fetch(
    name: Annotated[str, cli.argument("NAME", "Name of a data set; see shorthash datasets list.")],
    data_dir: cli.DataDir = None,
) -> cli.Result:
    """Download the original files of a data set.

    Existing files are checked, not downloaded again. Files are saved to originals/NAME in the data folder, or in the
    cache. mnist and fashion-mnist can be used directly; docs/guide/datasets.md explains how the features of the others
    are made.

    \b
    Example:
      shorthash datasets fetch fashion-mnist
    """
    from shorthash._validation import check_choice
    from shorthash.data.datasets import CATALOGUE
    from shorthash.data.datasets import fetch as download

    check_choice(name, "NAME", "fetch", list(CATALOGUE))
    with cli.progress() as step:
        files = download(name, data_dir, progress=step)
    facts = {file.name: str(file) for file in files} | {"licence": CATALOGUE[name].licence}
    return cli.Result({"files": [str(file) for file in files]}, facts)


def _read_experiments(specs: list[Path]) -> list[Experiment]:
    """Read all specifications, so that an error in one is found before anything runs."""
    from shorthash.lab.spec import read_experiment

    return [read_experiment(path) for path in specs]


def _results_folder(results: Path | None, specs: list[Path]) -> Path:
    first = specs[0] if specs[0].is_dir() else specs[0].parent
    return first / "results" if results is None else results
