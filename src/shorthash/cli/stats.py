"""shorthash stats: a group of its own, for sums over rows that can be kept, sent and added up."""

from __future__ import annotations

import typer

from shorthash.cli.stats_collect import collect
from shorthash.cli.stats_fit import fit
from shorthash.cli.stats_merge import merge
from shorthash.cli.stats_show import show
from shorthash.cli.stats_subtract import subtract

__all__ = ["stats"]

stats = typer.Typer(name="stats", rich_markup_mode=None)
for verb in (collect, merge, subtract, show, fit):
    stats.command()(verb)


@stats.callback()
def _about() -> None:
    """Learn from sums: collect them over shards, merge, subtract, show, and fit a model from them.

    All that a learner of sums (sumeaph, rslh, nsh, hcsdh) needs of the rows is a few sums. So shards may be read
    anywhere, in any order, and added up later: the model is that of all rows together. Shards must share their anchors:
    collect the first, and give its file to the others by --front.

    \b
    Example:
      shorthash stats collect monday.parquet --label class -o monday.stats
      shorthash stats collect tuesday.parquet --label class --front monday.stats -o tuesday.stats
      shorthash stats merge monday.stats tuesday.stats -o both.stats
      shorthash stats fit both.stats -o digits.model --bits 12
    """
