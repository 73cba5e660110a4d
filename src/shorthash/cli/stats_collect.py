"""shorthash stats collect: features and labels become a file of sums."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from shorthash.cli import output
from shorthash.cli.fit_streamed import Checkpoint, LabelColumns, stream_from
from shorthash.cli.options import AsJson, argument, option, optional, parse_settings
from shorthash.cli.progress import progress
from shorthash.cli.stats_answer import stats_answer

__all__ = ["collect"]

KERNEL = "kernel."


def collect(
    features: Annotated[Path, argument("FEATURES", "Feature rows: a .npy or .parquet file, or a folder of tables.")],
    stats: Annotated[Path, option("--output", "-o", metavar="STATS", text="File to write.")],
    labels: Annotated[Path | None, optional("LABELS", "Their labels, where they are in a file of their own.")] = None,
    label: LabelColumns = None,
    front: Annotated[
        Path | None,
        option("--front", metavar="STATS", text="Use the anchors of this file, so that the sums can be merged."),
    ] = None,
    anchors: Annotated[int, option("--anchors", metavar="N", text="Anchors to draw.", default=True)] = 1000,
    seed: Annotated[int, option("--seed", metavar="N", text="Seed of the draw.", default=True)] = 0,
    settings: Annotated[
        list[str] | None, option("--set", metavar="kernel.NAME=VALUE", text="A parameter of the kernel; repeatable.")
    ] = None,
    checkpoint: Checkpoint = None,
    as_json: AsJson = False,
) -> None:
    """Add up the sums of some rows, in blocks, and keep them in a file.

    \b
    Example:
      shorthash stats collect monday.parquet --label class -o monday.stats
    """
    from shorthash.kernels.rbf import AnchorRBF
    from shorthash.scale import collect as collected_from
    from shorthash.scale import load_collected, save_collected

    given = {name.removeprefix(KERNEL): value for name, value in parse_settings(settings or []).items()}
    kernel = AnchorRBF().set_params(**{"n_anchors": anchors, "random_state": seed, **given})
    source = stream_from(features, labels, label)
    if front is not None:
        kernel = load_collected(front).front
    with progress() as tell:
        collected = collected_from(source, kernel, checkpoint=checkpoint, tell=tell)
        save_collected(collected, stats)
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    output.show(stats_answer(stats, collected), as_json=as_json)
