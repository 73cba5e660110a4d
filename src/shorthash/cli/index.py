"""Keep codes in an index file or a database, and search it.

\b
Example:
  shorthash index build codes.npz --index items.index
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from shorthash.cli import output
from shorthash.cli.encode import load_model, read_codes
from shorthash.cli.options import AsJson, Neighbours, Show, argument, flag, option
from shorthash.cli.search import find_neighbours, hidden_queries, neighbour_lists, show_neighbours

__all__ = ["index"]

RERANK_RADIUS = 2  # of the ball that --rerank ranks if --radius is not given

IndexFile = Annotated[Path | None, option("--index", "FILE", "The index, in a file.")]
StoreUrl = Annotated[str | None, option("--store", "URL", "Or in a database: sqlite:///FILE or postgresql://...")]
Collection = Annotated[str, option("--collection", "NAME", "Collection of the database.")]
RowModel = Annotated[
    Path | None, option("--model", "MODEL", "Model that encodes the rows; without it the rows are codes.")
]
RowBits = Annotated[int | None, option("--bits", "N", "Length of packed codes, if their file does not say.")]
RowIds = Annotated[Path | None, option("--ids", "FILE", "Ids of the rows.", "numbers")]
RowVectors = Annotated[Path | None, option("--vectors", "FILE", "Vectors of the rows, to rank by.")]

index = typer.Typer(name="index", help=__doc__, rich_markup_mode=None, add_completion=False)


@index.command()
def build(
    rows: Annotated[Path, argument("ROWS", "Codes, or features if --model is given.")],
    index: IndexFile = None,
    store: StoreUrl = None,
    collection: Collection = "items",
    model: RowModel = None,
    bits: RowBits = None,
    ids: RowIds = None,
    vectors: RowVectors = None,
    replace: Annotated[bool, flag("--replace", "Replace the index if FILE holds one.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make an index of codes, or of feature rows that a model encodes.

    \b
    Examples:
      shorthash index build codes.npz --index items.index
      shorthash index build features.npy --model digits.model --ids ids.csv --store sqlite:///items.db
    """
    from shorthash.errors import InvalidInput

    _check_place(index, store)
    if store is not None and replace:
        raise typer.BadParameter(
            "a collection is not replaced; choose another with --collection", param_hint="--replace"
        )
    if index is not None and index.exists() and not replace:
        raise InvalidInput(f"{index} exists; add to it with shorthash index add, or give --replace.")
    codes, given = _read_rows(rows, model, bits, ids, vectors)
    with _open(index, store, collection, change=True, n_bits=codes.shape[1]) as items:
        if len(items):
            raise InvalidInput(
                f"{collection} already holds {len(items)} items; add to it with shorthash index add, or choose "
                "another --collection."
            )
        items.add(codes, **given)
        data = {"place": _place_name(index, store), "n_added": len(codes), **_counts(items)}
    output.show(data, as_json=as_json)


@index.command()
def add(
    rows: Annotated[Path, argument("ROWS", "Codes, features if --model is given, or another index.")],
    index: IndexFile = None,
    store: StoreUrl = None,
    collection: Collection = "items",
    model: RowModel = None,
    bits: RowBits = None,
    ids: RowIds = None,
    vectors: RowVectors = None,
    as_json: AsJson = False,
) -> None:
    """Add items, all or none.

    After a crash or an error the index is as it was before, or complete. Another index is merged with its ids and
    vectors, after its bytes have been checked.

    \b
    Examples:
      shorthash index add more.npz --index items.index
      shorthash index add shard-2.index --index items.index
    """
    from shorthash.persistence.files import is_save

    with _open(index, store, collection, change=True) as items:
        if rows.is_file() and is_save(rows):
            other = _load_index(rows)
            items.merge(other)
            n_added = len(other)
        else:
            codes, given = _read_rows(rows, model, bits or items.n_bits, ids, vectors)
            items.add(codes, **given)
            n_added = len(codes)
        data = {"place": _place_name(index, store), "n_added": n_added, **_counts(items)}
    output.show(data, as_json=as_json)


@index.command()
def remove(
    given: Annotated[list[str] | None, argument("ID", "Ids of the items to remove.")] = None,
    ids: Annotated[Path | None, option("--ids", "FILE", "Or a file of ids.")] = None,
    index: IndexFile = None,
    store: StoreUrl = None,
    collection: Collection = "items",
    as_json: AsJson = False,
) -> None:
    """Remove items, all or none; an unknown id is an error.

    \b
    Examples:
      shorthash index remove 3 17 --index items.index
      shorthash index remove --ids gone.csv --store sqlite:///items.db
    """
    from shorthash.data.files import read_labels
    from shorthash.errors import InvalidInput

    if (ids is None) == (not given):
        raise InvalidInput("Give ids to remove, or --ids FILE, one of the two.")
    with _open(index, store, collection, change=True) as items:
        gone: Any = given if ids is None else read_labels(ids)
        if ids is None and items.ids.dtype.kind != "U":
            try:
                gone = [int(word) for word in gone]
            except ValueError as error:
                raise InvalidInput(f"The ids of this index are integers. Got {' '.join(gone)} instead.") from error
        items.remove(gone)
        data = {"place": _place_name(index, store), "n_removed": len(gone), "n_items": len(items)}
    output.show(data, as_json=as_json)


@index.command()
def search(
    queries: Annotated[Path, argument("QUERIES", "Codes, or features if --model is given.")],
    index: IndexFile = None,
    store: StoreUrl = None,
    collection: Collection = "items",
    model: RowModel = None,
    k: Neighbours = None,
    radius: Annotated[int | None, option("--radius", "N", "Find all within this distance.")] = None,
    rerank: Annotated[str | None, option("--rerank", "METRIC", "Rank by cosine, dot, euclidean or asymmetric.")] = None,
    vectors: Annotated[Path | None, option("--vectors", "FILE", "Vectors of the queries.")] = None,
    show: Show = 10,
    as_json: AsJson = False,
) -> None:
    """Find the nearest items of every query, by Hamming distance.

    With --rerank, all items within --radius (default: 2) are scored, and the -k best are shown. Scores are computed
    from --vectors; those of "asymmetric" from the model, which then encodes the queries.

    \b
    Examples:
      shorthash index search codes.npz --index items.index -k 5
      shorthash index search queries.npy --model digits.model --store sqlite:///items.db --radius 1
      shorthash index search queries.npy --model digits.model --index items.index --rerank asymmetric
    """
    if rerank is None and k is not None and radius is not None:
        raise typer.BadParameter("give -k or --radius, not both", param_hint="--radius")
    if rerank is None and vectors is not None:
        raise typer.BadParameter("vectors are used with --rerank only", param_hint="--vectors")
    hasher = None if model is None else load_model(model)
    with _open(index, store, collection) as items, output.progress() as step:
        codes = read_codes(queries, hasher, step, items.n_bits)
        step("searching", 0, 0)
        if rerank is None:
            data = find_neighbours(items, codes, k, radius)
        else:
            scored = _query_vectors(rerank, vectors, queries, hasher)
            ball = RERANK_RADIUS if radius is None else radius
            ranked = items.rerank(codes, scored, k or 10, radius=ball, metric=rerank)
    if rerank is None:
        show_neighbours(data, show, as_json=as_json)
    else:
        _show_ranked(ranked, show, as_json)


def _query_vectors(metric: str, vectors: Path | None, queries: Path, hasher: Any) -> Any:
    """Vectors that the scores of the queries are computed from."""
    from shorthash.data.files import read_features

    if vectors is not None:
        return read_features(vectors)
    if metric != "asymmetric" or hasher is None:
        raise typer.BadParameter("give the --vectors of the queries (or --rerank asymmetric and --model)")
    return hasher.project(read_features(queries))


def _show_ranked(found: Any, show: int, as_json: bool) -> None:
    """Print neighbours with their scores."""
    results = neighbour_lists(found, "score")
    data = {"n_queries": len(results), "results": results}
    rows = [
        (result["query"] if rank == 0 else "", rank + 1, f"{hit['score']:.6g}", str(hit["id"]))
        for result in results[:show]
        for rank, hit in enumerate(result["neighbours"])
    ]
    table = output.table(["query", "rank", "score", "id"], rows, text=["id"])
    output.show(data, {}, [table], hidden_queries(data, show), as_json=as_json)


@index.command()
def stats(
    index: IndexFile = None,
    store: StoreUrl = None,
    collection: Collection = "items",
    check: Annotated[bool, flag("--check", "Also check every byte of the file against its checksums.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what an index holds, and how its items are spread over the codes.

    \b
    Example:
      shorthash index stats --index items.index --check
    """
    from shorthash.errors import InvalidInput
    from shorthash.persistence import verify

    _check_place(index, store)
    if check and index is None:
        raise InvalidInput("--check is for the file of an --index; a database checks its own pages.")
    if check and index is not None:
        verify(index)
    with _open(index, store, collection, check=False) as items:
        _, sizes = items.buckets()
        data: dict[str, Any] = {
            "place": _place_name(index, store),
            "class": type(items).__name__,
            **_counts(items),
            "dimension": getattr(items, "dimension", None),
            "string_ids": items.ids.dtype.kind == "U",
            "occupied_codes": len(sizes),
            "possible_codes": 2**items.n_bits,
            "largest_bucket": int(sizes.max(initial=0)),
            "bytes": index.stat().st_size if index is not None else None,
            "checked": check,
        }
    output.show(data, as_json=as_json)


@index.command()
def export(
    target: Annotated[Path, argument("OUTPUT", "File to write: .faiss, .parquet, .sql, .db or .sqlite.")],
    index: IndexFile = None,
    store: StoreUrl = None,
    collection: Collection = "items",
    replace: Annotated[bool, flag("--replace", "Replace OUTPUT if it exists; a store is never replaced.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write ids and codes for another program: FAISS, a data frame, or a database.

    \b
    Examples:
      shorthash index export codes.parquet --index items.index
      shorthash index export codes.sql --store sqlite:///items.db
    """
    from shorthash.persistence import export_index

    with _open(index, store, collection) as items:
        export_index(items, target, replace=replace)
        data = {"output": target, **_counts(items), "bytes": target.stat().st_size}
    output.show(data, as_json=as_json)


def _check_place(index: Path | None, store: str | None) -> None:
    """Raise unless exactly one of the two was given."""
    if (index is None) == (store is None):
        raise typer.BadParameter("give --index or --store, one of the two", param_hint="--index")


def _place_name(index: Path | None, store: str | None) -> str:
    """The file, or the address of the database without its password."""
    if store is None:
        return str(index)
    scheme, _, rest = store.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


@contextmanager
def _open(
    index: Path | None,
    store: str | None,
    collection: str,
    *,
    n_bits: int | None = None,
    change: bool = False,
    check: bool = True,
) -> Iterator[Any]:
    """Open the items, to read or to change; a file is saved at the end.

    Parameters
    ----------
    index, store, collection : where the items are
    n_bits : length of the codes, if the index or the collection is new
    change : whether the items will be changed; a file is otherwise not copied into memory
    check : whether to check every byte of a file first; a file that is changed is always checked
    """
    _check_place(index, store)
    if store is not None:
        from shorthash.store import open_store

        with open_store(store, n_bits, collection=collection) as opened:
            yield opened
        return
    from shorthash.index.buckets import BucketIndex
    from shorthash.persistence import save

    assert index is not None
    items = BucketIndex(n_bits) if n_bits is not None else _load_index(index, mmap=not change)
    if check:
        items.verify()
    yield items
    if change:
        save(items, index)


def _load_index(path: Path, *, mmap: bool = False) -> Any:
    """Load an index; a model is an error."""
    from shorthash.errors import InvalidInput
    from shorthash.persistence import describe, load

    saved = describe(path)
    if saved["kind"] != "index":
        raise InvalidInput(
            f"{path} holds {saved['class']}, but an index is needed; make one with shorthash index build."
        )
    return load(path, mmap=mmap)


def _read_rows(
    rows: Path, model: Path | None, bits: int | None, ids: Path | None, vectors: Path | None
) -> tuple[Any, dict[str, Any]]:
    """Codes as signs, and the ids and vectors that were given."""
    from shorthash.data.files import read_features, read_labels

    with output.progress() as step:
        codes = read_codes(rows, None if model is None else load_model(model), step, bits)
    given: dict[str, Any] = {"ids": None if ids is None else read_labels(ids)}
    if vectors is not None:
        given["vectors"] = read_features(vectors)
    return codes, given


def _counts(items: Any) -> dict[str, int]:
    return {"n_items": len(items), "n_bits": items.n_bits}
