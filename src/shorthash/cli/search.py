"""shorthash search: queries become neighbours."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from shorthash.cli import output
from shorthash.cli.options import AsJson, Model
from shorthash.cli.progress import progress
from shorthash.cli.reading import read_hasher, read_or_encode
from shorthash.cli.search_answer import label_names, search_answer

__all__ = ["search"]


def search(
    model: Model,
    database: Annotated[str, typer.Argument(metavar="DATABASE", show_default=False, help="Rows to search in.")],
    queries: Annotated[str, typer.Argument(metavar="QUERIES", show_default=False, help="Rows to search for.")],
    k: Annotated[int | None, typer.Option("-k", show_default="10", help="How many neighbours to find.")] = None,
    radius: Annotated[
        int | None, typer.Option(show_default=False, help="Find all within this distance instead.")
    ] = None,
    codes: Annotated[bool, typer.Option("--codes", help="DATABASE and QUERIES hold codes, not features.")] = False,
    database_codes: Annotated[bool, typer.Option("--database-codes", help="Only DATABASE holds codes.")] = False,
    labels: Annotated[str | None, typer.Option(show_default=False, help="Labels of DATABASE, to show.")] = None,
    ids: Annotated[
        str | None, typer.Option(show_default=False, help="Ids of DATABASE, to show; else row numbers.")
    ] = None,
    show: Annotated[int, typer.Option(help="How many queries a table shows; JSON has all.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Find the nearest rows of every query, by Hamming distance.

    Rows at equal distance stand in order of their ids; where -k cuts through them, the table says of how many. A table
    names the first eight rows of every distance; JSON has all.

    \b
    Examples:
      shorthash search digits.model database.npy queries.npy -k 5 --labels labels.npy
      shorthash search digits.model codes.npz queries.npy --database-codes --radius 2 --json
    """
    from shorthash.features.files import read_labels
    from shorthash.index.buckets import BucketIndex

    if k is not None and radius is not None:
        raise typer.BadParameter("give -k or --radius, not both", param_hint="--radius")
    hasher = read_hasher(model)
    n_bits = hasher[-1].n_bits
    with progress() as tell:
        items = read_or_encode(database, None if codes or database_codes else hasher, tell, n_bits)
        wanted = read_or_encode(queries, None if codes else hasher, tell, n_bits)
        tell("searching", 0, 0)
        index = BucketIndex(n_bits).add(items, None if ids is None else read_labels(ids))
        found = index.search(wanted, 10 if k is None else k) if radius is None else index.within(wanted, radius)
        full = None if radius is not None else _at_last_distance(index, wanted, found)
    names = None if labels is None else label_names(index.ids, read_labels(labels))
    answer = search_answer(found, names, full, n_bits=n_bits, n_database=len(index), show=show)
    output.show(answer, as_json=as_json)


def _at_last_distance(index: Any, wanted: Any, found: Any) -> list[int]:
    """For every query, how many rows are as far as the last one found."""
    import numpy as np

    last, full = found.distances[:, -1], np.zeros(len(wanted), dtype=np.int64)
    for distance in np.unique(last):
        asking = last == distance
        nearer = (found.distances[asking] < distance).sum(axis=1)
        full[asking] = index.counts(wanted[asking], int(distance)) - nearer
    counts: list[int] = full.tolist()
    return counts
