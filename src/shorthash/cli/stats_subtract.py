"""shorthash stats subtract: rows are taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from shorthash.cli import output
from shorthash.cli.options import AsJson, argument, option
from shorthash.cli.stats_answer import stats_answer

__all__ = ["subtract"]


def subtract(
    whole: Annotated[Path, argument("WHOLE", "File of sums.")],
    part: Annotated[Path, argument("PART", "File of sums over some of the same rows.")],
    rest: Annotated[Path, option("--output", "-o", metavar="STATS", text="File to write.")],
    as_json: AsJson = False,
) -> None:
    """Take sums away: those of the rows that remain.

    \b
    Example:
      shorthash stats subtract both.stats monday.stats -o tuesday.stats
    """
    from shorthash.scale import load_collected, save_collected

    remaining = load_collected(whole).subtract(load_collected(part))
    save_collected(remaining, rest)
    output.show(stats_answer(rest, remaining), as_json=as_json)
