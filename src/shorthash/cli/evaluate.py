"""shorthash evaluate scores codes; demo, advise and compare try methods; bench and report run experiments."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from shorthash.cli import terminal as cli
from shorthash.cli.fit import read_training
from shorthash.cli.search import CodedRows, check_bits, load_model, read_rows

if TYPE_CHECKING:
    from shorthash._arrays import Labels
    from shorthash.evaluation.scores import Scores
    from shorthash.lab.advice import Advice
    from shorthash.lab.spec import Experiment
    from shorthash.lab.tables import Table

REPORT_MODULES = ("matplotlib", "jinja2")  # what a report needs

BY_CLASS = ("map", "map_worst", "map_best", "precision_at_radius", "recall_at_radius")

Specs = Annotated[list[Path], cli.argument("SPEC", "Specifications of experiments: .toml files.")]
Results = Annotated[
    Path | None,
    cli.option("FOLDER", "Folder of the records.", "results in the folder of the first SPEC", names="--results -r"),
]

bench = cli.Group()


@bench.callback()
def _about_bench() -> None:
    """Run experiments described by TOML files.

    Every run is stored as a record; runs that have a record are not repeated.

    \b
    Example:
      shorthash bench run experiments/smoke.toml
    """


datasets = cli.Group()


@datasets.callback()
def _about_datasets() -> None:
    """List data sets, and download their original files.

    \b
    Example:
      shorthash datasets list
    """


def evaluate(
    query: Annotated[Path, cli.option("FILE", "Queries.")],
    query_labels: Annotated[Path | None, cli.option("FILE", "Labels of the queries.")] = None,
    database: Annotated[Path | None, cli.option("FILE", "Rows to rank.", "for each query, the other queries")] = None,
    database_labels: Annotated[Path | None, cli.option("FILE", "Labels of the rows to rank.")] = None,
    model: Annotated[Path | None, cli.option("MODEL", "Folder written by shorthash fit.")] = None,
    codes: Annotated[bool, cli.flag("--codes", "The rows are codes, not features; no model is needed.")] = False,
    bits: Annotated[int | None, cli.option("N", "Length of packed codes; with --codes only.")] = None,
    ties: Annotated[str | None, cli.option("NAME", "expected, stable, best or worst.", "expected")] = None,
    radius: cli.Radius = 2,
    k: Annotated[Any, cli.numbers("List lengths.", "10,100,1000", names="--k -k")] = None,
    convention: Annotated[
        str, cli.option("NAME", "Scoring rules: shorthash, sdh, fssh, hashnet, deephash, dch or habir.")
    ] = "shorthash",
    bounds: Annotated[
        bool, cli.flag("--bounds", "With --by-class, also show the mAP of the worst and the best order of ties.")
    ] = False,
    by_class: Annotated[bool, cli.flag("--by-class", "Show scores for every class of queries.")] = False,
    relevance: Annotated[
        Path | None, cli.option("FILE", "Judgements instead of labels: lines of QUERY 0 ITEM GRADE (TREC).")
    ] = None,
    table: cli.LabelledOptions = cli.LabelledOptions(),
) -> cli.Result:
    """Compute retrieval scores of codes, with exact treatment of ties.

    With few bits most distances are equal. By default, scores are exact means over all orders of items at equal
    distance (--ties expected); the lowest and the highest mAP that an order can give are shown beside them. Labels are
    files, or the column --label of tables; a row without a label is relevant to no query. With --relevance, a file
    lists the relevant items of every query, with grades for nDCG. It refers to queries and items by the ids of tables
    (--id) or of encoded files, otherwise by row numbers from 0; --label then only excludes columns from the features.

    \b
    Examples:
      shorthash evaluate --model digits.model --query q.npz --query-labels q.npz \\
          --database db.npz --database-labels db.npz --bounds --by-class
      shorthash evaluate --codes --bits 8 --query q.npy --query-labels yq.npy \\
          --database db.npy --database-labels yd.npy --json
      shorthash evaluate --model items.model --query q.csv --database items.csv --id sku \\
          --relevance judged.qrels
    """
    from shorthash.evaluation.scores import evaluate as score

    columns = table.columns
    if relevance is not None and (query_labels or database_labels or by_class):
        raise cli.misuse("--relevance cannot be combined with --by-class or files of labels")
    if not columns.label and relevance is None and (database is None) != (database_labels is None):
        raise cli.misuse("give --database and --database-labels together", "--database")
    if codes == (model is not None):
        raise cli.misuse("give --model for features, or --codes for codes", "--model")
    check_bits(bits, model)
    hasher = None if model is None else load_model(model)
    with cli.progress() as step:
        queries = read_rows(query, hasher, step, bits, columns)
        items = None if database is None else read_rows(database, hasher, step, bits, columns)
        step("scoring", 0, 0)
        judged = None if relevance is None else _judgements(relevance, queries, items or queries)
        labels = None if judged is not None else _labels_of(queries, query_labels, "--query-labels")
        known = None if items is None or judged is not None else _labels_of(items, database_labels, "--database-labels")
        scores = score(
            queries.codes,
            labels,
            None if items is None else items.codes,
            known,
            relevance=judged,
            convention=convention,
            ties=ties,
            radius=radius,
            k=k,
        )
    data = scores.to_dict() | {"headline": scores.headline}
    text, tables = str(scores), []
    if scores.rules.name != "shorthash":
        text += f"\n  headline of {scores.rules.name}: {scores.headline:.4f} ({scores.rules.family})"
    if by_class:
        assert labels is not None
        classes = {name: scores.by_class(labels, name) for name in BY_CLASS}
        data["by_class"] = {str(label): {name: classes[name][label] for name in BY_CLASS} for label in classes["map"]}
        tables.append(_scores_by_class(classes, scores, bounds))
    if unlabelled := _n_unlabelled(labels if items is None else known):
        data["n_unlabelled"] = unlabelled
        text += f"\n  {unlabelled} rows of the database without a label, relevant to no query"
    return cli.Result(data, text, tables)


def _n_unlabelled(labels: Labels | None) -> int:
    """Rows without a label, where labels are given."""
    from shorthash._labels import missing_labels

    if labels is None:
        return 0
    missing = missing_labels(labels) if labels.ndim == 1 else ~(labels > 0).any(axis=1)
    return int(missing.sum())


def _judgements(file: Path, queries: CodedRows, items: CodedRows) -> Any:
    """Judgements of a file; rows without ids are named by their numbers."""
    from shorthash.evaluation.relevance import read_qrels

    ids = [range(len(rows.codes)) if rows.ids is None else rows.ids.tolist() for rows in (queries, items)]
    return read_qrels(file, *ids)


def _labels_of(rows: CodedRows, file: Path | None, name: str) -> Labels:
    """Labels from a file, or from the column of a table."""
    from shorthash.data.files import read_labels

    if file is not None:
        return read_labels(file)
    if rows.labels is None:
        raise cli.misuse(f"labels are missing; give {name}, or the column --label of a table")
    return rows.labels


def _scores_by_class(classes: dict[str, dict[Any, float]], scores: Scores, bounds: bool) -> Table:
    within = f"@H<={scores.radius:g}"
    titles = dict(zip(BY_CLASS, ("mAP", "worst", "best", f"precision{within}", f"recall{within}"), strict=True))
    if not bounds:
        del titles["map_worst"], titles["map_best"]
    rows = [(label, *(classes[name][label] for name in titles)) for label in classes["map"]]
    return cli.table(["class", *titles.values()], rows, text=["class"], digits=dict.fromkeys(titles.values(), 4))


def advise(
    features: cli.Features,
    labels: Annotated[
        Path | None, cli.argument("LABELS", "Labels, one per row; without them the nearest rows are relevant.")
    ] = None,
    bits: Annotated[Any, cli.numbers("Lengths to try.", "4,6,8,10,12,16")] = None,
    methods: Annotated[
        Any, cli.names("Methods to try; see shorthash methods.", "auto,rslh; without labels auto,pcaitq")
    ] = None,
    folds: Annotated[int, cli.option("N", "Folds of the cross-validation.")] = 3,
    radius: cli.Radius = 2,
    items: Annotated[int | None, cli.option("N", "Size of the database to plan for.", "number of rows")] = None,
    seed: cli.Seed = 0,
    figure: Annotated[Path | None, cli.option("FILE", "Draw mAP by length to this .png or .svg file.")] = None,
    table: cli.LabelledOptions = cli.LabelledOptions(),
) -> cli.Result:
    """Recommend a code length for the given rows.

    Codes of several lengths are learned and scored by cross-validation. The table shows the expected mAP, the share of
    the database that a lookup reads, the rows per bucket and the size of the index. The shortest code whose mAP is
    within 0.01 of the best is recommended. Rows without a label are left out. Without any labels, the 100 nearest rows
    by cosine are relevant to a row, proportionally fewer within a fold. To save time, auto is refined in 4 iterations
    instead of 16 above 12 bits, and with more than 64 label sets it anneals from one start instead of 2 and compares
    fewer posteriors; in these cases a full fit may score slightly higher.

    \b
    Examples:
      shorthash advise features.npy labels.npy --bits 4,8,12 --items 1000000 --figure advice.png
      shorthash advise embeddings.npy
    """
    from shorthash._validation import require_extra
    from shorthash.lab import advice as lab

    if figure is not None:
        require_extra("matplotlib", "report", "--figure")
        cli.check_file(figure, "--figure", ".png", ".svg")
    rows, y = read_training(features, labels, table.columns)
    with cli.progress() as step:
        advice = lab.advise(
            rows,
            y,
            lengths=bits or lab.LENGTHS,
            methods=methods,
            n_folds=folds,
            radius=radius,
            n_items=items,
            seed=seed,
            progress=step,
        )
    notes = ["", advice.sentence]
    if figure is not None:
        notes.append(f"figure: {_draw_advice(advice, figure)}")
    return cli.Result(advice.to_dict(), {}, [advice.to_table()], notes)


def _draw_advice(advice: Advice, path: Path) -> Path:
    """Draw mAP by length, one curve per method."""
    from shorthash.lab.figures import TALL, WIDE, drawing, save_figure

    with drawing("", "", "Expected mAP by code length", width=WIDE, height=TALL) as (figure, axes):
        advice.plot(ax=axes)
    return save_figure(figure, path)


def compare(
    features: cli.Features,
    labels: Annotated[
        Path | None,
        cli.argument(
            "LABELS", "Labels, one per row, or an indicator matrix; without them the nearest rows are relevant."
        ),
    ] = None,
    bits: Annotated[Any, cli.numbers("Code lengths.", "four, by the number of classes")] = None,
    methods: Annotated[
        Any,
        cli.names(
            "Methods, or all; see shorthash methods.",
            "the paper's ten, classifier, auto; without labels the unsupervised ones, auto",
        ),
    ] = None,
    queries: Annotated[int | None, cli.option("N", "Number of queries.", "a fifth of the rows, at most 1000")] = None,
    train: Annotated[int | None, cli.option("N", "Number of training rows.", "all others, at most 10000")] = None,
    query_rows: Annotated[
        Path | None, cli.option("FILE", "Numbers of the query rows, from 0, instead of a random split.")
    ] = None,
    train_rows: Annotated[
        Path | None, cli.option("FILE", "Numbers of the training rows.", "those of the database")
    ] = None,
    database_rows: Annotated[
        Path | None, cli.option("FILE", "Numbers of the rows to search.", "all but the queries")
    ] = None,
    radius: cli.Radius = 2,
    seed: cli.Seed = 0,
    out: Annotated[Path, cli.option("FOLDER", "Folder for the report.", names="--out -o")] = Path("compare"),
    table: cli.LabelledOptions = cli.LabelledOptions(),
) -> cli.Result:
    """Compare methods on the given rows and write a report.

    Some rows are held out as queries; the others are the training set and the database. The mAP is an exact mean over
    the orders of ties, with a confidence interval over the queries. --query-rows sets the split: files of row numbers,
    or arrays of a .npz file (split.npz:query). FOLDER will contain index.html, compare.json, the tables as .csv, .md
    and .tex, and the figures. Without labels, the 100 nearest rows by cosine are relevant, and methods that need labels
    are skipped.

    \b
    Examples:
      shorthash compare features.npy labels.npy
      shorthash compare embeddings.npy
      shorthash compare features.npy labels.npy --bits 8,12 --methods rslh,sdh,auto -o compare
      shorthash compare X.npy y.npy --query-rows split.npz:query --train-rows split.npz:train
    """
    from shorthash.lab import compare as lab
    from shorthash.methods import recipes

    check_report("shorthash compare", out)
    split = _split({"query": query_rows, "train": train_rows, "database": database_rows})
    rows, y = read_training(features, labels, table.columns)
    with cli.progress() as step:
        result = lab.compare(
            rows,
            y,
            lengths=bits,
            methods=list(recipes()) if methods == ["all"] else methods,
            n_queries=queries,
            n_train=train,
            split=split,
            radius=radius,
            seed=seed,
            progress=step,
        )
        page = lab.write_comparison(result, out)
    tables = [lab.comparison_table(result), *([lab.skipped_table(result)] if result.skipped else [])]
    notes = ["", lab.comparison_sentence(result), f"page: {page}"]
    return cli.Result({**result.to_dict(), "page": str(page)}, {}, tables, notes)


def _split(files: dict[str, Path | None]) -> dict[str, Any] | None:
    """Row numbers from files; None if there are none."""
    from shorthash.data.files import read_labels

    given = {name: read_labels(file) for name, file in files.items() if file is not None}
    if given and "query" not in given:
        raise cli.misuse("a split needs --query-rows", f"--{next(iter(given))}-rows")
    return given or None


def demo(
    out: Annotated[Path, cli.option("FOLDER", "Folder for report.html.", names="--out -o")] = Path("demo"),
) -> cli.Result:
    """Run a demonstration on handwritten digits and write a report.

    Codes of 4, 6, 8 and 10 bits are learned for the digits of scikit-learn; 300 digits are queries, the others are the
    training set and the database. The report is FOLDER/report.html; without the extra "report" only the table is
    printed.

    \b
    Example:
      shorthash demo --out demo
    """
    from shorthash._validation import install_command
    from shorthash.lab.demo import demo_table, run_demo, write_demo

    missing = [module for module in REPORT_MODULES if find_spec(module) is None]
    if not missing:
        check_report("shorthash demo", out)
    path = None
    with cli.progress() as step:
        result = run_demo(progress=step)
        if not missing:
            step("writing the report", len(result.runs), len(result.runs) + 1)
            path = write_demo(result, out)
    table = demo_table(result)
    data = {"report": None if path is None else str(path), "rows": cli.records(table)}
    needs = f"report: not written, it needs {' and '.join(missing)}: {install_command('report')}"
    return cli.Result(data, {}, [table], [needs if path is None else f"report: {path}"])


def check_report(command: str, folder: Path) -> None:
    """Check what a report needs, before the work and not after it."""
    from shorthash._validation import require_extra

    for module in REPORT_MODULES:
        require_extra(module, "report", command)
    if folder.exists() and not folder.is_dir():
        raise cli.misuse(f"{folder} is a file; give a folder", "--out")


# experiments ----------------------------------------------------------------------------------------------------------


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
    """Run the experiments of specifications; runs that have a record are skipped.

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

    Points are the points of a grid of settings. A run that several parts plan is done once. --json lists every run.

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
