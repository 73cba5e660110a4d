"""shorthash datasets list: which there are, and which are here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from shorthash.cli import output
from shorthash.cli.bench_options import DataDir
from shorthash.cli.options import AsJson, optional

__all__ = ["list_datasets"]


def list_datasets(
    name: Annotated[str | None, optional("[NAME]", "Tell all about this one.")] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List the data sets that have a name, and where they were found; or tell all about one.

    \b
    Examples:
      shorthash datasets list
      shorthash datasets list cifar10
    """
    from shorthash._validation import check_choice
    from shorthash.data.catalogue import CATALOGUE, data_folders, dataset_facts

    facts = {known: dataset_facts(known, data_dir) for known in CATALOGUE}
    folders = ", ".join(str(folder) for folder in data_folders(data_dir))
    if name is None:
        answer = _list(facts, folders)
    else:
        check_choice(name, "NAME", "datasets list", list(CATALOGUE))
        lines = {key.replace("_", " "): str(value) for key, value in facts[name].items() if value != ""}
        answer = output.Answer({name: facts[name]}, lines)
    output.show(answer, as_json=as_json)


def _list(facts: dict[str, dict[str, Any]], folders: str) -> output.Answer:
    from shorthash.lab.tables import Column, Table

    titles = ("name", "data set", "rows", "features", "classes", "found")
    rows = tuple(
        (name, f["title"], f["rows"], f["dims"], f["classes"], Path(f["place"]).name if f["place"] else "no")
        for name, f in facts.items()
    )
    table = Table(tuple(Column(title, text=title in ("name", "data set", "found")) for title in titles), rows)
    notes = (f"\nLooked in: {folders}", "All about one: shorthash datasets list NAME")
    return output.Answer(facts, {}, (table,), notes)
