"""shorthash search: queries become neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shorthash.cli import output
from shorthash.cli.options import AsJson, Model, argument, flag, option
from shorthash.cli.progress import progress
from shorthash.cli.reading import code_length, read_hasher, read_or_encode
from shorthash.cli.search_answer import label_names, search_answer

__all__ = ["at_last_distance", "search"]


def search(
    model: Model,
    database: Annotated[Path, argument("DATABASE", "Rows to search in.")],
    queries: Annotated[Path, argument("QUERIES", "Rows to search for.")],
    k: Annotated[int | None, option("-k", metavar="N", text="How many neighbours to find.", default="10")] = None,
    radius: Annotated[
        int | None, option("--radius", metavar="N", text="Find all within this distance instead.")
    ] = None,
    codes: Annotated[bool, flag("--codes", "DATABASE and QUERIES hold codes, not features.")] = False,
    database_codes: Annotated[bool, flag("--database-codes", "Only DATABASE holds codes.")] = False,
    labels: Annotated[Path | None, option("--labels", metavar="FILE", text="Labels of DATABASE, to show.")] = None,
    ids: Annotated[Path | None, option("--ids", metavar="FILE", text="Ids of DATABASE, else row numbers.")] = None,
    show: Annotated[int, option("--show", metavar="N", text="How many queries a table shows.", default=True)] = 10,
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
    from shorthash.data.files import read_labels
    from shorthash.index.buckets import BucketIndex

    if k is not None and radius is not None:
        raise typer.BadParameter("give -k or --radius, not both", param_hint="--radius")
    hasher = read_hasher(model)
    n_bits = code_length(model)
    with progress() as tell:
        items = read_or_encode(database, None if codes or database_codes else hasher, tell, n_bits)
        wanted = read_or_encode(queries, None if codes else hasher, tell, n_bits)
        tell("searching", 0, 0)
        index = BucketIndex(n_bits).add(items, None if ids is None else read_labels(ids))
        found = index.search(wanted, 10 if k is None else k) if radius is None else index.within(wanted, radius)
        full = None if radius is not None else at_last_distance(index, wanted, found)
    names = None if labels is None else label_names(index.ids, read_labels(labels))
    answer = search_answer(found, names, full, n_bits=n_bits, n_database=len(index), show=show)
    output.show(answer, as_json=as_json)


def at_last_distance(index: Any, wanted: Any, found: Any) -> list[int]:
    """For every query, how many rows are as far as the last one found."""
    import numpy as np

    last, full = found.distances[:, -1], np.zeros(len(wanted), dtype=np.int64)
    for distance in np.unique(last):
        asking = last == distance
        nearer = (found.distances[asking] < distance).sum(axis=1)
        full[asking] = index.counts(wanted[asking], int(distance)) - nearer
    counts: list[int] = full.tolist()
    return counts
