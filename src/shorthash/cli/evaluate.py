"""shorthash evaluate: codes and labels become scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shorthash.cli import output
from shorthash.cli.options import AsJson, flag, option, parse_numbers
from shorthash.cli.progress import progress
from shorthash.cli.reading import read_hasher, read_or_encode
from shorthash.cli.score_answer import score_answer

__all__ = ["evaluate"]


def evaluate(
    query: Annotated[Path, option("--query", metavar="FILE", text="Rows that ask.")],
    query_labels: Annotated[Path, option("--query-labels", metavar="FILE", text="Their labels.")],
    database: Annotated[
        Path | None, option("--database", metavar="FILE", text="Rows to rank; without it every query asks the others.")
    ] = None,
    database_labels: Annotated[Path | None, option("--database-labels", metavar="FILE", text="Their labels.")] = None,
    model: Annotated[Path | None, option("--model", metavar="MODEL", text="Folder written by shorthash fit.")] = None,
    codes: Annotated[bool, flag("--codes", "The rows are codes, not features; no model needed.")] = False,
    bits: Annotated[int | None, option("--bits", metavar="N", text="Length of packed codes.")] = None,
    ties: Annotated[
        str | None, option("--ties", metavar="NAME", text="expected, stable, best or worst.", default="expected")
    ] = None,
    radius: Annotated[int, option("--radius", metavar="N", text="Radius of the Hamming ball.", default=True)] = 2,
    k: Annotated[
        str | None, option("--k", "-k", metavar="N,N,...", text="List lengths.", default="10,100,1000")
    ] = None,
    convention: Annotated[
        str,
        option(
            "--convention",
            metavar="NAME",
            text="Whose rules to score by: shorthash, sdh, fssh, hashnet, deephash, dch or habir.",
            default=True,
        ),
    ] = "shorthash",
    bounds: Annotated[bool, flag("--bounds", "Show what the worst and the best tie order give.")] = False,
    by_class: Annotated[bool, flag("--by-class", "Show scores for every class of queries.")] = False,
    as_json: AsJson = False,
) -> None:
    """Score codes against labels, exactly, with ties.

    With few bits most distances are equal. By default scores are the exact mean over all orders of equal distances
    (--ties expected); --bounds shows how far any order could move them.

    \b
    Examples:
      shorthash evaluate --model digits.model --query q.npz --query-labels q.npz \\
          --database db.npz --database-labels db.npz --bounds --by-class
      shorthash evaluate --codes --bits 8 --query q.npy --query-labels yq.npy \\
          --database db.npy --database-labels yd.npy --json
    """
    from shorthash.data.files import read_labels
    from shorthash.evaluation.scores import evaluate as score

    if (database is None) != (database_labels is None):
        raise typer.BadParameter("give --database and --database-labels together", param_hint="--database")
    if codes == (model is not None):
        raise typer.BadParameter("give --model for features, or --codes for codes", param_hint="--model")
    hasher = None if model is None else read_hasher(model)
    with progress() as tell:
        asking = read_or_encode(query, hasher, tell, bits)
        ranked = None if database is None else read_or_encode(database, hasher, tell, bits)
        tell("scoring", 0, 0)
        labels = read_labels(query_labels)
        scores = score(
            asking,
            labels,
            ranked,
            None if database_labels is None else read_labels(database_labels),
            convention=convention,
            ties=ties,
            radius=radius,
            k=parse_numbers(k, "--k"),
        )
    output.show(score_answer(scores, labels, bounds=bounds, by_class=by_class), as_json=as_json)
