"""shorthash index: a group of its own, for items that stay."""

from __future__ import annotations

import typer

from shorthash.cli.index_add import add
from shorthash.cli.index_build import build
from shorthash.cli.index_export import export
from shorthash.cli.index_remove import remove
from shorthash.cli.index_search import search
from shorthash.cli.index_stats import stats

__all__ = ["index"]

index = typer.Typer(name="index", rich_markup_mode=None)
for verb in (build, add, remove, search, stats, export):
    index.command()(verb)


@index.callback()
def _about() -> None:
    """Keep items in an index (one file) or a store (a database): build, add, remove, search, stats, export.

    \b
    Example:
      shorthash index build codes.npz --index items.index
    """
