"""shorthash bench: a group of its own, for experiments that are written down."""

from __future__ import annotations

import typer

from shorthash.cli.bench_list import list_parts
from shorthash.cli.bench_run import run
from shorthash.cli.bench_status import status

__all__ = ["bench"]

bench = typer.Typer(name="bench", rich_markup_mode=None)
bench.command()(run)
bench.command("list")(list_parts)
bench.command()(status)


@bench.callback()
def _about() -> None:
    """Run experiments that a file describes, and keep a small record of every run: run, list, status.

    \b
    Example:
      shorthash bench run experiments/smoke.toml
    """
