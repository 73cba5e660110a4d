"""shorthash encode, search and sql, and how all commands turn files into codes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from shorthash.cli import terminal as cli
from shorthash.errors import InvalidInput

if TYPE_CHECKING:
    from shorthash._arrays import Codes, Labels
    from shorthash._progress import Progress
    from shorthash.data.tables import Columns, TableRows
    from shorthash.lab.tables import Table

CHUNK_ROWS = 65_536  # rows between two updates of the progress bar; a multiple of the batches the library reads
NAMED = 8  # neighbours named per distance in a table


class CodedRows(NamedTuple):
    """Codes of the rows of a file; their ids, labels and features if the file has them."""

    codes: Codes
    ids: Labels | None = None
    labels: Labels | None = None
    X: Any = None


def encode(
    model: cli.Model,
    features: Annotated[
        Path, cli.argument("FEATURES", "Feature rows: .npy, .npz, .csv or .parquet, or a folder of tables.")
    ],
    codes: Annotated[Path, cli.option("CODES", "File to write.", names="--output -o")],
    signs: Annotated[bool, cli.flag("--signs", "Write -1 and +1, one column per bit.")] = False,
    table: cli.LabelOptions = cli.LabelOptions(),
) -> cli.Result:
    """Encode feature rows with a saved model.

    CODES ends in .npy, .npz, .csv, .parquet or .jsonl (JSON lines). Codes are packed into the smallest unsigned
    integers: bit j of an integer is bit j of the code. A .npz file also holds the length, as n_bits. With --id, the ids
    of the table are written beside the codes. Columns named by --label are not encoded. If FEATURES is a .npy, .parquet
    or .arrow file, or a folder of tables, and CODES ends in .npy or .parquet, rows are read and written in blocks and
    need not fit in memory.

    \b
    Examples:
      shorthash encode digits.model database.npy -o codes.npz
      shorthash encode items.model items.csv --id sku --features 'emb_*' -o codes.csv
    """
    import numpy as np

    from shorthash.codes import pack
    from shorthash.data.files import check_target, write_codes
    from shorthash.scale import as_stream, encode_to_file

    columns = table.columns
    check_target(codes, ids=columns.id is not None)
    hasher = load_model(model)
    readable = features.is_dir() or features.suffix.lower() in (".npy", ".parquet", ".arrow", ".feather")
    in_blocks = not signs and readable and codes.suffix.lower() in (".npy", ".parquet")
    with cli.progress() as step:
        start = time.perf_counter()
        if in_blocks:
            stream: Any = as_stream(features, features=columns.features, besides=columns.besides)
            _check_columns(features, stream.n_columns, hasher)
            ids = None if columns.id is None else stream.column(columns.id)
            counts = encode_to_file(hasher, stream, codes, ids=ids, progress=step)
            n_rows, n_bits, distinct = counts.n_rows, counts.n_bits, counts.distinct
        else:
            rows = read_rows(features, hasher, step, None, columns)
            write_codes(codes, rows.codes, signs=signs, ids=rows.ids)
            (n_rows, n_bits), distinct = rows.codes.shape, len(np.unique(pack(rows.codes)))
        seconds = time.perf_counter() - start
    data = {"codes": codes, "n_rows": n_rows, "n_bits": n_bits, "signs": signs, "distinct_codes": distinct}
    return cli.Result({**data, "seconds": round(seconds, 3)})


def check_bits(bits: int | None, model: Path | None) -> None:
    """Raise if both a code length and a model are given."""
    if bits is not None and model is not None:
        raise cli.misuse("a model sets the length of its codes; leave out --bits", "--bits")


def load_model(path: Path) -> Any:
    """Load a fitted model; an index, or a part of a model, is an error."""
    from shorthash.persistence import describe, load

    saved = describe(path)
    if saved["kind"] == "index" or "n_bits" not in saved:
        raise InvalidInput(f"{path} holds {saved['class']}, but a model is needed; make one with shorthash fit.")
    return load(path)


def read_file(path: Path, columns: Columns, *, lenient: bool = False) -> TableRows:
    """Feature rows of a file, with ids and labels if its columns are named.

    Parameters
    ----------
    path : the file
    columns : what the columns of a table are
    lenient : the file need not have the columns of ids and labels
    """
    from shorthash.data.files import read_features
    from shorthash.data.tables import TABLE_ENDINGS, TableRows, read_table

    if columns and not (lenient and path.suffix.lower() not in TABLE_ENDINGS):
        return read_table(path, columns, lenient=lenient)
    return TableRows(read_features(path), [])


def read_rows(
    path: Path, hasher: Any, step: Progress, n_bits: int | None, columns: Columns, *, lenient: bool = False
) -> CodedRows:
    """Codes from a file of feature rows, encoded in chunks, or from a file of codes if ``hasher`` is None.

    Parameters
    ----------
    path, hasher, step : the file, the model or None, and what to call with the progress
    n_bits : length of packed codes
    columns, lenient : of a file of feature rows, as for ``read_file``
    """
    import numpy as np

    from shorthash.data.files import read_codes, read_ids

    if hasher is None:
        return CodedRows(read_codes(path, n_bits), read_ids(path))
    rows = read_file(path, columns, lenient=lenient)
    _check_columns(path, rows.X.shape[1], hasher)
    parts = []
    for start in range(0, len(rows.X), CHUNK_ROWS):
        step("encoding", start, len(rows.X))
        parts.append(hasher.transform(rows.X[start : start + CHUNK_ROWS]))
    return CodedRows(np.concatenate(parts), rows.ids, rows.labels, rows.X)


def _check_columns(path: Path, n_columns: int, hasher: Any) -> None:
    """Raise if a file does not have the number of features that the model was fitted on."""
    if n_columns != hasher.n_features_in_:
        labels = "" if path.suffix == ".npy" else ", and name its columns by --id, --label or --features"
        raise InvalidInput(
            f"{path} has {n_columns} features per row, but the model was fitted on {hasher.n_features_in_}; give "
            f"features made in the same way{labels}."
        )


def item_encoder(searcher: Any, rows: Path | None, ids: Path | None, columns: Columns) -> Any:
    """What ``Store.migrate`` takes: codes and posteriors of items, from their vectors or from a file of features."""
    if rows is None:
        return searcher.encode_items
    from dataclasses import replace

    import numpy as np

    from shorthash.data.files import read_labels

    table = read_file(rows, columns)
    X, names = table.X, table.ids if ids is None else read_labels(ids)
    if names is None:
        names = np.arange(len(X))
    if len(names) != len(X):
        raise InvalidInput(f"There are {len(names)} ids for {len(X)} rows of {rows}; give one per row.")
    place = {name: row for row, name in enumerate(names.tolist())}

    def encode(items: Any) -> Any:
        missing = [item for item in items.ids.tolist() if item not in place]
        if missing:
            raise InvalidInput(f"{rows} has no row for item {missing[0]!r} and {len(missing) - 1} others; add them.")
        return searcher.encode_items(replace(items, vectors=X[[place[item] for item in items.ids.tolist()]]))

    return encode


def search(
    model: cli.Model,
    database: Annotated[Path, cli.argument("DATABASE", "Rows to search in.")],
    queries: Annotated[Path, cli.argument("QUERIES", "Rows to search for.")],
    k: cli.Neighbours = None,
    radius: Annotated[int | None, cli.option("N", "Find all within this distance, instead of -k.")] = None,
    probes: cli.Probes = None,
    rerank: Annotated[str | None, cli.option("NAME", "Order by posterior or cosine.", "none")] = None,
    codes: Annotated[bool, cli.flag("--codes", "DATABASE and QUERIES are codes, not features.")] = False,
    database_codes: Annotated[bool, cli.flag("--database-codes", "Only DATABASE is codes.")] = False,
    labels: Annotated[Path | None, cli.option("FILE", "Labels of DATABASE to show with the results.")] = None,
    ids: Annotated[Path | None, cli.option("FILE", "Ids of DATABASE.", "row numbers")] = None,
    table: cli.LabelOptions = cli.LabelOptions(),
    found: cli.FoundFile = None,
    show: cli.Show = 10,
) -> cli.Result:
    """Find the nearest rows of every query, by Hamming distance or by learned probes.

    Rows at equal distance are ordered by id. If -k cuts off rows at the last distance, the table shows how many there
    are. The table lists the first eight rows of every distance; --json prints all, and --output writes all. The ids of
    a file that shorthash encode wrote are used. --id, --label and --features name columns of DATABASE and of QUERIES,
    which need not have ids and labels.

    A model with posteriors (method auto) predicts which codes hold relevant rows: --probes looks these up instead of
    the nearest codes; auto stops when enough relevant rows are expected. --rerank orders the rows found with --probes
    or within --radius (default 2): by posterior, the probability of being relevant, or by cosine of the features. The
    table then shows the number of codes looked up (cells), the number of rows examined (items) and the expected share
    of relevant rows (expected).

    \b
    Examples:
      shorthash search digits.model database.npy queries.npy -k 5 --labels labels.npy
      shorthash search digits.model database.npy queries.npy --probes 20 --rerank posterior
      shorthash search items.model items.csv queries.csv --id sku --label kind -o found.csv
      shorthash search digits.model codes.npz queries.npy --database-codes --radius 2 --json
    """
    from shorthash.data.files import read_labels
    from shorthash.index.buckets import BucketIndex
    from shorthash.retrieval import Searcher

    policy = search_policy(probes, radius, rerank)
    if policy is not None and codes:
        raise cli.misuse("needs features of the queries; leave out --codes", "--probes or --rerank")
    if rerank is not None and database_codes:
        raise cli.misuse("needs features of the database; leave out --database-codes", "--rerank")
    if k is not None and radius is not None and policy is None:
        raise cli.misuse("give -k or --radius, not both", "--radius")
    cli.check_file(found, "--output")
    hasher = load_model(model)
    n_bits = int(hasher[-1].n_bits)
    columns = table.columns
    with cli.progress() as step:
        items = read_rows(database, None if codes or database_codes else hasher, step, n_bits, columns)
        sought = read_rows(queries, None if codes else hasher, step, n_bits, columns, lenient=True)
        step("searching", 0, 0)
        vectors = items.X if rerank == "cosine" else None
        index = BucketIndex(n_bits).add(items.codes, items.ids if ids is None else read_labels(ids), vectors=vectors)
        if policy is None:
            data = find_neighbours(index, sought.codes, k, radius)
        else:
            searcher = Searcher(hasher, index)
            if rerank == "posterior":
                searcher.keep_posteriors(index.ids, items.X)
            data = find_answers(searcher, sought, k, policy)
    known = items.labels if labels is None else read_labels(labels)
    names = None if known is None else _label_names(index.ids, known)
    if names is not None:
        for result in data["results"]:
            for hit in result["neighbours"]:
                hit["label"] = names[hit["id"]]
    name_queries(data, sought.ids)
    return search_result(data, distance_table if policy is None else answer_table, show, found)


def name_queries(data: dict[str, Any], ids: Labels | None) -> None:
    """Replace the numbers of the queries by their ids."""
    if ids is not None:
        for result, name in zip(data["results"], ids.tolist(), strict=True):
            result["query"] = name


def write_found(path: Path, results: list[dict[str, Any]]) -> None:
    """Write one row per query and neighbour: query, rank, id, distance or score, and label."""
    import numpy as np

    from shorthash.data.files import write_table

    rows = [
        {"query": result["query"], "rank": rank, **hit}
        for result in results
        for rank, hit in enumerate(result["neighbours"], 1)
    ]
    names = list(rows[0]) if rows else ["query", "rank", "id", "distance"]
    write_table(path, {name: np.array(["" if row[name] is None else row[name] for row in rows]) for name in names})


def search_policy(probes: int | str | None, radius: int | None, rerank: str | None) -> dict[str, Any] | None:
    """What ``Searcher.search`` takes; None without --probes and --rerank."""
    if probes is not None and radius is not None:
        raise cli.misuse("give --probes or --radius, not both", "--probes")
    if rerank is not None:
        from shorthash._validation import check_choice
        from shorthash.retrieval import RERANKS

        check_choice(rerank, "rerank", "search", RERANKS)
    return None if probes is None and rerank is None else {"probes": probes, "radius": radius, "rerank": rerank}


def find_answers(searcher: Any, queries: CodedRows, k: int | None, policy: dict[str, Any]) -> dict[str, Any]:
    """Answers to every query by a ``Searcher``, as JSON objects."""
    index = searcher.index
    found = searcher.search(queries.X, 10 if k is None else k, **policy)
    results = neighbour_lists(found, "score")
    for query, result in enumerate(results):
        result |= {
            "cells": int(found.n_cells[query]),
            "items": int(found.n_items[query]),
            "expected_precision": _number(found.precision[query]),
            "expected_recall": _number(found.recall[query]),
            "looked_up": found.looked_up(query).tolist(),
        }
    return {"n_bits": index.n_bits, "n_database": len(index), "n_queries": len(results), "results": results}


def _number(value: float) -> float | None:
    """A number that JSON can hold."""
    return None if math.isnan(value) else round(float(value), 4)


def answer_table(results: list[dict[str, Any]]) -> Table:
    """One row per query: what it cost, what to expect, and the best rows."""
    rows = []
    for result in results:
        expected = result["expected_precision"]
        shown = "" if expected is None else f"{expected:.3f}"
        rows.append((result["query"], result["cells"], result["items"], shown, _listed(result["neighbours"])))
    title = f"best first{_as_listed(results)}"
    return cli.table(["query", "cells", "items", "expected", title], rows, text=[title])


def find_neighbours(index: Any, queries: Any, k: int | None, radius: int | None) -> dict[str, Any]:
    """Neighbours of every query, as JSON objects; with ``k``, also the number of rows at the last distance found."""
    pairs: Iterable[tuple[Any, Any]]
    if radius is not None:
        found = index.within(queries, radius)
        pairs = (found[query] for query in range(len(found)))
    else:
        found = index.search(queries, 10 if k is None else k)
        pairs = zip(found.ids, found.distances, strict=True)
    results = neighbour_lists(pairs, "distance")
    if radius is None and len(index):
        for result, n_rows in zip(results, _rows_at_last_distance(index, queries, found), strict=True):
            result["rows_at_last_distance"] = n_rows
    return {"n_bits": index.n_bits, "n_database": len(index), "n_queries": len(results), "results": results}


def neighbour_lists(pairs: Iterable[tuple[Any, Any]], value: str) -> list[dict[str, Any]]:
    """Ids and values (distances or scores) of every query, as JSON objects."""
    return [
        {
            "query": query,
            "neighbours": [{"id": i, value: v} for i, v in zip(ids.tolist(), values.tolist(), strict=True)],
        }
        for query, (ids, values) in enumerate(pairs)
    ]


def search_result(
    data: dict[str, Any], make_table: Callable[[list[dict[str, Any]]], Table], show: int, found: Path | None
) -> cli.Result:
    """A table of the first queries; or all neighbours are written to a file."""
    queries = data["results"]
    if found is not None:
        write_found(found, queries)
        facts = {name: value for name, value in data.items() if name != "results"}
        n_found = sum(len(query["neighbours"]) for query in queries)
        return cli.Result({**facts, "output": str(found), "n_neighbours": n_found})
    hidden = len(queries) - show
    notes = [f"{hidden} more queries; --show {len(queries)} or --json shows all"] if hidden > 0 else []
    return cli.Result(data, {}, [make_table(queries[:show])], notes)


def distance_table(results: list[dict[str, Any]]) -> Table:
    """One row per query and distance."""
    rows: list[tuple[Any, ...]] = []
    for result in results:
        by_distance: dict[int, list[dict[str, Any]]] = {}
        for hit in result["neighbours"]:
            by_distance.setdefault(hit["distance"], []).append(hit)
        for number, (distance, hits) in enumerate(by_distance.items()):
            is_last = number == len(by_distance) - 1
            n_rows = result.get("rows_at_last_distance", len(hits)) if is_last else len(hits)
            count = str(len(hits)) if n_rows == len(hits) else f"{len(hits)} of {n_rows}"
            rows.append((result["query"] if number == 0 else "", distance, count, _listed(hits)))
        if not by_distance:
            rows.append((result["query"], None, 0, "nothing within the radius"))
    title = f"neighbours{_as_listed(results)}"
    return cli.table(["query", "distance", "rows", title], rows, text=[title])


def _as_listed(results: list[dict[str, Any]]) -> str:
    """End of the title of a column that ``_listed`` fills."""
    return ", as id:label" if any("label" in hit for result in results for hit in result["neighbours"]) else ""


def _listed(hits: list[dict[str, Any]]) -> str:
    """The first ids, with their labels if they have some, and how many more there are."""
    named = [str(hit["id"]) if hit.get("label") is None else f"{hit['id']}:{hit['label']}" for hit in hits[:NAMED]]
    return ", ".join(named) + (f", ... {len(hits) - NAMED} more" if len(hits) > NAMED else "")


def _rows_at_last_distance(index: Any, queries: Any, found: Any) -> list[int]:
    """Number of rows at the last distance found, for every query."""
    import numpy as np

    last, n_rows = found.distances[:, -1], np.zeros(len(queries), dtype=np.int64)
    for distance in np.unique(last):
        same = last == distance
        nearer = (found.distances[same] < distance).sum(axis=1)
        n_rows[same] = index.counts(queries[same], int(distance)) - nearer
    counts: list[int] = n_rows.tolist()
    return counts


def _label_names(ids: Any, labels: Labels) -> dict[Any, Any]:
    """Id -> label; a row of an indicator matrix is named by its columns."""
    if len(labels) != len(ids):
        raise InvalidInput(f"There are {len(labels)} labels for {len(ids)} rows of the database; give one per row.")
    if labels.ndim == 2:
        shown: list[Any] = ["+".join(map(str, row.nonzero()[0])) for row in labels > 0]
    else:
        shown = ["+".join(sorted(map(str, v))) if isinstance(v, set | list) else v for v in labels.tolist()]
    return dict(zip(ids.tolist(), shown, strict=True))


def sql(
    bits: Annotated[int, cli.option("N", "Length of the codes, 1 to 64.")],
    radius: cli.Radius = 2,
    dialect: Annotated[str, cli.option("NAME", "postgresql, sqlite, duckdb or mysql.")] = "postgresql",
    table: Annotated[str, cli.option("NAME", "Your table, or SCHEMA.TABLE.")] = "items",
    code_column: Annotated[str, cli.option("NAME", "Its column of codes.")] = "code",
    id_column: Annotated[str, cli.option("NAME", "Its column of ids.")] = "id",
    param_style: Annotated[
        str, cli.option("NAME", "How the code is written: named, pyformat, qmark or numeric.")
    ] = "named",
    probes: Annotated[bool, cli.flag("--probes", "Look up a list of codes, in its order, instead of a ball.")] = False,
    partitions: Annotated[int | None, cli.option("N", "First make the table, divided by N ranges of the code.")] = None,
) -> None:
    """Print SQL statements that search codes in your own database.

    The first line creates an index; the second finds the 100 nearest items within a radius of a code, its parameter
    (:code; $code in DuckDB). Names are quoted if necessary. No extension is needed. Codes are packed integers; those of
    64 bits are stored as signed integers with the same bits. MySQL has no IF NOT EXISTS for indexes.

    With --probes the second line finds the first 100 items of a list of codes, in its order: those that EAPH.probes
    gives, or that search --probes --json calls looked_up. Its parameter (:codes) is an array in PostgreSQL and DuckDB,
    and a JSON list in SQLite and MySQL.

    With --partitions the first lines make the table, for PostgreSQL and databases that follow it: one partition for
    every range of codes, so that a search reads only the ranges of its codes.

    \b
    Examples:
      shorthash sql --bits 12 --radius 2
      shorthash sql --bits 12 --table shop.products --code-column hash --param-style pyformat
      shorthash sql --bits 8 --dialect sqlite | sqlite3 items.db -cmd '.param set :code 5'
      shorthash sql --bits 12 --probes
      shorthash sql --bits 16 --partitions 16
    """
    from shorthash.store.example_sql import example_sql, partition_sql, probe_sql

    names = {"code_column": code_column, "id_column": id_column, "param_style": param_style}
    found = probe_sql(bits, dialect, table, **names) if probes else example_sql(bits, radius, dialect, table, **names)
    made: list[str] = []
    if partitions is not None:
        if dialect != "postgresql":
            raise cli.misuse("tables are divided in PostgreSQL only", "--partitions")
        made = partition_sql(bits, partitions, table, code_column=code_column, id_column=id_column)
    for line in (*made, *found):
        cli.say(line)
