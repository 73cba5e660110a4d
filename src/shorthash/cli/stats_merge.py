"""shorthash stats merge: files of sums become one."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Annotated

from shorthash.cli import output
from shorthash.cli.options import AsJson, argument, option
from shorthash.cli.stats_answer import stats_answer

__all__ = ["merge"]


def merge(
    parts: Annotated[list[Path], argument("STATS", "Files of sums over different rows, with the same anchors.")],
    whole: Annotated[Path, option("--output", "-o", metavar="STATS", text="File to write.")],
    as_json: AsJson = False,
) -> None:
    """Add up sums: those of all rows together.

    \b
    Example:
      shorthash stats merge monday.stats tuesday.stats -o both.stats
    """
    from shorthash.scale import Collected, load_collected, save_collected

    total = reduce(Collected.merge, map(load_collected, parts))
    save_collected(total, whole)
    output.show(stats_answer(whole, total), as_json=as_json)
