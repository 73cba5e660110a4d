"""Neighbours as an answer: every query, its neighbours by distance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shorthash.cli.output import Answer
from shorthash.errors import InvalidInput

if TYPE_CHECKING:
    from shorthash._types import Labels
    from shorthash.index.results import RadiusResult, SearchResult
    from shorthash.lab.tables import Table

__all__ = ["label_names", "search_answer"]

NAMED = 8  # neighbours named per distance in a table


def search_answer(
    found: SearchResult | RadiusResult,
    names: dict[Any, Any] | None,
    full: list[int] | None,
    *,
    n_bits: int,
    n_database: int,
    show: int,
) -> Answer:
    """What ``shorthash search`` says.

    Parameters
    ----------
    found : the neighbours of every query
    names : id -> label, to show beside ids
    full : for every query, how many rows there are at the last distance, found or not; None if nothing was cut off
    n_bits, n_database : what was searched
    show : how many queries the table shows
    """
    results = [_result(query, *_hits(found, query), names) for query in range(len(found))]
    for result, n_rows in zip(results, full or [], strict=False):
        result["rows_at_last_distance"] = n_rows
    data = {"n_bits": n_bits, "n_database": n_database, "n_queries": len(results), "results": results}
    hidden = len(results) - show
    notes = (f"{hidden} more queries; --show {len(results)} or --json has them all",) if hidden > 0 else ()
    return Answer(data, {}, (_table(results[:show], named=names is not None),), notes)


def label_names(ids: Any, labels: Labels) -> dict[Any, Any]:
    """Id -> label; a row of an indicator matrix is named by its columns."""
    if len(labels) != len(ids):
        raise InvalidInput(f"There are {len(labels)} labels for {len(ids)} rows of the database; give one per row.")
    shown = labels.tolist() if labels.ndim == 1 else ["+".join(map(str, row.nonzero()[0])) for row in labels > 0]
    return dict(zip(ids.tolist(), shown, strict=True))


def _hits(found: Any, query: int) -> tuple[list[Any], list[int]]:
    """Ids and distances of one query."""
    ids, distances = found[query] if hasattr(found, "offsets") else (found.ids[query], found.distances[query])
    return ids.tolist(), distances.tolist()


def _result(query: int, ids: list[Any], distances: list[int], names: dict[Any, Any] | None) -> dict[str, Any]:
    hits: list[dict[str, Any]] = [{"id": i, "distance": distance} for i, distance in zip(ids, distances, strict=True)]
    if names is not None:
        hits = [{**hit, "label": names[hit["id"]]} for hit in hits]
    return {"query": query, "neighbours": hits}


def _table(results: list[dict[str, Any]], named: bool) -> Table:
    """One row per query and distance."""
    from shorthash.lab.tables import Column, Table

    rows: list[tuple[Any, ...]] = []
    for result in results:
        levels: dict[int, list[str]] = {}
        for hit in result["neighbours"]:
            name = f"{hit['id']}:{hit['label']}" if named else str(hit["id"])
            levels.setdefault(hit["distance"], []).append(name)
        for number, (distance, ids) in enumerate(levels.items()):
            last = number == len(levels) - 1
            full = result.get("rows_at_last_distance", len(ids)) if last else len(ids)
            count = str(len(ids)) if full == len(ids) else f"{len(ids)} of {full}"
            more = f", ... {len(ids) - NAMED} more" if len(ids) > NAMED else ""
            rows.append((result["query"] if number == 0 else "", distance, count, ", ".join(ids[:NAMED]) + more))
        if not levels:
            rows.append((result["query"], None, 0, "nothing within the radius"))
    title = "neighbours, as id:label" if named else "neighbours"
    return Table((Column("query"), Column("distance"), Column("rows"), Column(title, text=True)), tuple(rows))
