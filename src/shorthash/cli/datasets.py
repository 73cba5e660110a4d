"""shorthash datasets: a group of its own, for data sets that have a name."""

from __future__ import annotations

import typer

from shorthash.cli.datasets_fetch import fetch
from shorthash.cli.datasets_list import list_datasets

__all__ = ["datasets"]

datasets = typer.Typer(name="datasets", rich_markup_mode=None)
datasets.command("list")(list_datasets)
datasets.command()(fetch)


@datasets.callback()
def _about() -> None:
    """Look at the data sets that have a name, and download originals: list, fetch.

    \b
    Example:
      shorthash datasets list
    """
