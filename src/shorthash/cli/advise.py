"""shorthash advise: says how many bits the user's own rows need."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from shorthash.cli import output
from shorthash.cli.options import AsJson, Features, argument, option, parse_numbers
from shorthash.cli.progress import progress

if TYPE_CHECKING:
    from shorthash.lab.advice import Advice
    from shorthash.lab.tables import Table

__all__ = ["advise"]


def advise(
    features: Features,
    labels: Annotated[Path, argument("LABELS", "Their labels, one per row.")],
    bits: Annotated[
        str | None, option("--bits", metavar="N,N,...", text="Lengths to try.", default="4,6,8,10,12,16")
    ] = None,
    methods: Annotated[
        str, option("--methods", metavar="NAME,...", text="Methods to try; see shorthash methods.", default=True)
    ] = "auto,rslh",
    folds: Annotated[int, option("--folds", metavar="N", text="Folds of the cross-validation.", default=True)] = 3,
    radius: Annotated[int, option("--radius", metavar="N", text="Radius of a lookup.", default=True)] = 2,
    items: Annotated[
        int | None, option("--items", metavar="N", text="Rows of the database to plan for.", default="rows given")
    ] = None,
    seed: Annotated[int, option("--seed", metavar="N", text="Seed of everything random.", default=True)] = 0,
    figure: Annotated[
        Path | None, option("--figure", metavar="FILE", text="Draw mAP by length to this .png or .svg file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say how many bits these rows need.

    Codes of several lengths are learned and scored by cross-validation: what mAP to expect, how much of the database a
    lookup reads, how full the buckets are, what the index weighs. The shortest code within 0.01 of the best mAP is
    recommended.

    \b
    Example:
      shorthash advise features.npy labels.npy --bits 4,8,12 --items 1000000 --figure advice.png
    """
    from shorthash.data.files import read_features, read_labels
    from shorthash.lab.advice import LENGTHS
    from shorthash.lab.advice import advise as ask

    with progress() as tell:
        advice = ask(
            read_features(features),
            read_labels(labels),
            lengths=parse_numbers(bits, "--bits") or LENGTHS,
            methods=[name.strip() for name in methods.split(",")],
            n_folds=folds,
            radius=radius,
            n_items=items,
            seed=seed,
            progress=tell,
        )
    notes = ["", advice.sentence]
    if figure is not None:
        notes.append(f"figure: {_draw(advice, figure)}")
    output.show(output.Answer(data=advice.to_dict(), tables=(_table(advice),), notes=tuple(notes)), as_json=as_json)


def _draw(advice: Advice, path: Path) -> Path:
    """MAP by length, one curve per method."""
    from shorthash.lab.figures import draw_map_by_length, save_figure

    curves: dict[str, dict[int, tuple[float, float]]] = {}
    for row in advice.rows:
        curves.setdefault(row.method, {})[row.n_bits] = (row.map, row.map_std)
    return save_figure(draw_map_by_length(curves), path)


def _table(advice: Advice) -> Table:
    """One row per method and length."""
    from shorthash.lab.tables import Column, Table

    columns = (
        Column("method", text=True),
        Column("bits"),
        Column("mAP", digits=4),
        Column("std", digits=4),
        Column(f"precision@H<={advice.radius}", digits=4),
        Column("ball %", digits=1),
        Column("read %", digits=1),
        Column("buckets"),
        Column("rows/bucket", digits=0),
        Column("index MB", digits=2),
    )
    rows = tuple(
        (
            row.method,
            row.n_bits,
            row.map,
            row.map_std,
            row.precision_at_radius,
            100 * row.ball_coverage,
            100 * row.ball_rows,
            row.occupied,
            row.bucket_load,
            row.index_bytes / 1e6,
        )
        for row in advice.rows
    )
    return Table(columns, rows)
