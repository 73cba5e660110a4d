"""List the known data sets, and download originals.

\b
Example:
  shorthash datasets list
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shorthash.cli import output
from shorthash.cli.options import AsJson, DataDir, argument

__all__ = ["datasets"]

datasets = typer.Typer(name="datasets", help=__doc__, rich_markup_mode=None, add_completion=False)


@datasets.command("list")
def list_datasets(
    name: Annotated[str | None, argument("NAME", "Show everything about this data set.")] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """List the data sets and where they were found, or show everything about one.

    \b
    Examples:
      shorthash datasets list
      shorthash datasets list cifar10
    """
    from shorthash._validation import check_choice
    from shorthash.data.catalogue import CATALOGUE
    from shorthash.data.datasets import data_folders, dataset_facts

    facts = {known: dataset_facts(known, data_dir) for known in CATALOGUE}
    if name is not None:
        check_choice(name, "NAME", "list", list(CATALOGUE))
        output.show({name: facts[name]} if as_json else facts[name], as_json=as_json)
        return
    rows = [
        (known, f["title"], f["rows"], f["dims"], f["classes"], Path(f["place"]).name if f["place"] else "no")
        for known, f in facts.items()
    ]
    titles = ["name", "data set", "rows", "features", "classes", "found"]
    table = output.table(titles, rows, text=["name", "data set", "found"])
    folders = ", ".join(str(folder) for folder in data_folders(data_dir))
    notes = [f"\nLooked in: {folders}", "Everything about one: shorthash datasets list NAME"]
    output.show(facts, {}, [table], notes, as_json=as_json)


@datasets.command()
def fetch(
    name: Annotated[str, argument("NAME", "A data set of shorthash datasets list.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Download the original files of a data set.

    Files that exist are not downloaded again; all are checked. They are saved to originals/NAME in the data folder, or
    in the cache. mnist and fashion-mnist can be used at once; docs/guide/datasets.md says how the features of the
    others are made.

    \b
    Example:
      shorthash datasets fetch fashion-mnist
    """
    from shorthash._validation import check_choice
    from shorthash.data.catalogue import CATALOGUE
    from shorthash.data.datasets import fetch as download

    check_choice(name, "NAME", "fetch", list(CATALOGUE))
    with output.progress() as step:
        files = download(name, data_dir, step)
    facts = {file.name: str(file) for file in files} | {"licence": CATALOGUE[name].licence}
    output.show({"files": [str(file) for file in files]}, facts, as_json=as_json)
