"""shorthash bench status: what is there and what is missing."""

from __future__ import annotations

from shorthash.cli import output
from shorthash.cli.bench_options import Results, Specs, experiments, results_folder
from shorthash.cli.options import AsJson

__all__ = ["status"]


def status(specs: Specs, results: Results = None, as_json: AsJson = False) -> None:
    """Tell how many runs of the specifications have a record.

    \b
    Example:
      shorthash bench status experiments/table1.toml
    """
    from shorthash.lab.run import experiment_status
    from shorthash.lab.tables import Column, Table

    folder = results_folder(results, specs)
    rows = [
        (experiment.name, part, there, wanted, wanted - there)
        for experiment in experiments(specs)
        for part, (there, wanted) in experiment_status(experiment, folder).items()
    ]
    titles = ("experiment", "part", "there", "wanted", "missing")
    table = Table(tuple(Column(title, text=title in titles[:2]) for title in titles), tuple(rows))
    data = {"results": str(folder), "parts": [dict(zip(titles, row, strict=True)) for row in rows]}
    output.show(output.Answer(data, {"records": str(folder)}, (table,)), as_json=as_json)
