"""shorthash index search: queries become neighbours, from an index or a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shorthash.cli import output
from shorthash.cli.index_place import Collection, Index, IndexModel, StoreUrl, opened
from shorthash.cli.options import AsJson, argument, option
from shorthash.cli.progress import progress
from shorthash.cli.reading import read_hasher, read_or_encode
from shorthash.cli.search import at_last_distance
from shorthash.cli.search_answer import search_answer

__all__ = ["search"]

DEFAULT_RADIUS = 2  # of the ball that --rerank ranks


def search(
    queries: Annotated[Path, argument("QUERIES", "Codes, or features if --model is given.")],
    index: Index = None,
    store: StoreUrl = None,
    collection: Collection = "items",
    model: IndexModel = None,
    k: Annotated[int | None, option("-k", metavar="N", text="How many neighbours to find.", default="10")] = None,
    radius: Annotated[int | None, option("--radius", metavar="N", text="Find all within this distance.")] = None,
    rerank: Annotated[
        str | None, option("--rerank", metavar="METRIC", text="Rank by cosine, dot, euclidean or asymmetric.")
    ] = None,
    vectors: Annotated[Path | None, option("--vectors", metavar="FILE", text="Vectors of the queries.")] = None,
    show: Annotated[int, option("--show", metavar="N", text="How many queries a table shows.", default=True)] = 10,
    as_json: AsJson = False,
) -> None:
    """Find the nearest items of every query, by Hamming distance.

    With --rerank, the -k items with the best scores among all within --radius (2 if it is not given). The scores come
    from --vectors; those of "asymmetric" from the model, which then encodes the queries.

    \b
    Examples:
      shorthash index search codes.npz --index items.index -k 5
      shorthash index search queries.npy --model digits.model --store sqlite:///items.db --radius 1
      shorthash index search queries.npy --model digits.model --index items.index --rerank asymmetric
    """
    if rerank is None and k is not None and radius is not None:
        raise typer.BadParameter("give -k or --radius, not both", param_hint="--radius")
    hasher = None if model is None else read_hasher(model)
    with opened(index, store, collection) as items, progress() as tell:
        wanted = read_or_encode(queries, hasher, tell, items.n_bits)
        tell("searching", 0, 0)
        if rerank is not None:
            asked = _asked(rerank, vectors, queries, hasher)
            ball = DEFAULT_RADIUS if radius is None else radius
            answer = _ranked(items.rerank(wanted, asked, k or 10, radius=ball, metric=rerank), show)
        elif vectors is not None:
            raise typer.BadParameter("vectors are used with --rerank only", param_hint="--vectors")
        else:
            found = items.search(wanted, 10 if k is None else k) if radius is None else items.within(wanted, radius)
            full = None if radius is not None or not len(items) else at_last_distance(items, wanted, found)
            answer = search_answer(found, None, full, n_bits=items.n_bits, n_database=len(items), show=show)
    output.show(answer, as_json=as_json)


def _asked(metric: str, vectors: Path | None, queries: Path, hasher: Any) -> Any:
    """What the scores of the queries are computed from."""
    from shorthash.data.files import read_features

    if vectors is not None:
        return read_features(vectors)
    if metric != "asymmetric" or hasher is None:
        raise typer.BadParameter("give the --vectors of the queries (or --rerank asymmetric and --model)")
    return hasher.project(read_features(queries))


def _ranked(found: Any, show: int) -> output.Answer:
    """Neighbours with scores, as an answer."""
    from shorthash.lab.tables import Column, Table

    results: list[dict[str, Any]] = [
        {
            "query": query,
            "neighbours": [{"id": i, "score": score} for i, score in zip(ids.tolist(), scores.tolist(), strict=True)],
        }
        for query, (ids, scores) in enumerate(found)
    ]
    rows = tuple(
        (result["query"] if rank == 0 else "", rank + 1, f"{hit['score']:.6g}", str(hit["id"]))
        for result in results[:show]
        for rank, hit in enumerate(result["neighbours"])
    )
    table = Table((Column("query"), Column("rank"), Column("score"), Column("id", text=True)), rows)
    hidden = len(results) - show
    notes = (f"{hidden} more queries; --show {len(results)} or --json has them all",) if hidden > 0 else ()
    return output.Answer({"n_queries": len(results), "results": results}, {}, (table,), notes)
