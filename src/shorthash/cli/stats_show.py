"""shorthash stats show: what a file of sums holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from shorthash.cli import output
from shorthash.cli.options import AsJson
from shorthash.cli.stats_answer import StatsFile, stats_answer

__all__ = ["show"]


def show(stats: Annotated[Path, StatsFile], as_json: AsJson = False) -> None:
    """Tell of how many rows a file holds the sums, and over which features and classes.

    \b
    Example:
      shorthash stats show monday.stats
    """
    from shorthash.scale import load_collected

    output.show(stats_answer(stats, load_collected(stats)), as_json=as_json)
