"""Build, change and search an index in a file or a database.

\b
Example:
  shorthash index build codes.npz --index items.index
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from shorthash.cli import terminal as cli
from shorthash.cli.search import (
    answer_table,
    check_bits,
    distance_table,
    find_answers,
    find_neighbours,
    item_encoder,
    load_model,
    name_queries,
    neighbour_lists,
    read_file,
    read_rows,
    search_policy,
    search_result,
)
from shorthash.errors import InvalidInput

if TYPE_CHECKING:
    from shorthash.data.tables import Columns
    from shorthash.lab.tables import Table

RERANK_RADIUS = 2  # of the ball that --rerank ranks if --radius is not given

Place = Annotated[str, cli.option("PLACE", "The index: a file, or a database as sqlite:///FILE or postgresql://...")]
Collection = Annotated[str | None, cli.option("NAME", "Collection of the database.", "items")]
RowModel = Annotated[Path | None, cli.option("MODEL", "Model that encodes the rows; without it the rows are codes.")]
RowIds = Annotated[Path | None, cli.option("FILE", "Ids of the rows.", "numbers")]


@dataclass(frozen=True)
class ItemOptions(cli.TableOptions):
    """How the rows of items are read."""

    model: RowModel = None
    bits: Annotated[int | None, cli.option("N", "Length of packed codes, if the file does not contain it.")] = None
    ids: RowIds = None
    label: Annotated[
        list[str] | None, cli.option("COLUMN", "Column of labels in the table; a database keeps it as the class.")
    ] = None
    vectors: Annotated[Path | None, cli.option("FILE", "Vectors of the rows, to rank by.")] = None


index = cli.Group(help=__doc__)


@index.command()
def build(
    rows: Annotated[Path, cli.argument("ROWS", "Codes, or features if --model is given.")],
    index: Place,
    collection: Collection = None,
    given: ItemOptions = ItemOptions(),
    partitions: Annotated[int, cli.option("N", "Tables of a new collection in PostgreSQL, by ranges of the code.")] = 1,
    replace: Annotated[bool, cli.flag("--replace", "Replace the index if the file exists.")] = False,
) -> cli.Result:
    """Make an index of codes, or of feature rows that a model encodes.

    Ids are those that shorthash encode wrote with the codes, or come from --ids or from the column --id of a table.
    If the model has posteriors (method auto), they are kept in 8 bytes per item, for index search --rerank posterior.

    \b
    Examples:
      shorthash index build codes.npz --index items.index
      shorthash index build features.npy --model digits.model --ids ids.csv --index sqlite:///items.db
      shorthash index build items.csv --model items.model --id sku --index sqlite:///items.db
    """
    if replace and _is_database(index):
        raise cli.misuse("a collection is not replaced; choose another with --collection", "--replace")
    if not replace and not _is_database(index) and Path(index).exists():
        raise InvalidInput(f"{index} exists; add to it with shorthash index add, or give --replace.")
    codes, about = _read_items(rows, index, given)
    with _open(index, collection, change=True, n_bits=codes.shape[1], partitions=partitions) as items:
        if len(items):
            raise InvalidInput(
                f"{collection or 'items'} already holds {len(items)} items; add to it with shorthash index add, or "
                "choose another --collection."
            )
        items.add(codes, **about)
        data = _facts(index, items, n_added=len(codes))
    return cli.Result(data)


@index.command()
def add(
    rows: Annotated[Path, cli.argument("ROWS", "Codes, features if --model is given, or another index.")],
    index: Place,
    collection: Collection = None,
    given: ItemOptions = ItemOptions(),
) -> cli.Result:
    """Add items, all or none.

    After a crash or an error the index is unchanged or complete. Another index is merged with all it holds, after
    its bytes have been checked.

    \b
    Examples:
      shorthash index add more.npz --index items.index
      shorthash index add shard-2.index --index items.index
    """
    from shorthash.persistence.files import is_save

    with _open(index, collection, change=True) as items:
        before = len(items)
        if rows.is_file() and is_save(rows):
            if given != ItemOptions():
                raise cli.misuse("ROWS is an index; leave out all options but --index and --collection")
            items.merge(_load_index(rows))
        else:
            codes, about = _read_items(rows, index, given, items)
            items.add(codes, **about)
        data = _facts(index, items, n_added=len(items) - before)
    return cli.Result(data)


@index.command()
def upsert(
    rows: Annotated[Path, cli.argument("ROWS", "Codes, or features if --model is given.")],
    index: Place,
    collection: Collection = None,
    given: ItemOptions = ItemOptions(),
) -> cli.Result:
    """Add items, and replace those whose ids are in the index, all or none.

    \b
    Examples:
      shorthash index upsert codes.csv --index items.index
      shorthash index upsert items.csv --model items.model --id sku --index sqlite:///items.db
    """
    with _open(index, collection, change=True) as items:
        before = len(items)
        codes, about = _read_items(rows, index, given, items)
        if about["ids"] is None:
            raise cli.misuse("replacing needs ids; give them with --ids, or with --id for a table")
        items.upsert(codes, **about)
        n_new = len(items) - before
        data = _facts(index, items, n_added=n_new, n_replaced=len(codes) - n_new)
    return cli.Result(data)


@index.command()
def remove(
    index: Place,
    given: Annotated[list[str] | None, cli.argument("ID", "Ids of the items to remove.")] = None,
    ids: Annotated[Path | None, cli.option("FILE", "Or a file of ids.")] = None,
    collection: Collection = None,
) -> cli.Result:
    """Remove items, all or none; an unknown id is an error.

    \b
    Examples:
      shorthash index remove 3 17 --index items.index
      shorthash index remove --ids gone.csv --index sqlite:///items.db
    """
    from shorthash.data.files import read_labels

    if (ids is None) == (not given):
        raise InvalidInput("Give either the ids to remove, or a file of them with --ids.")
    with _open(index, collection, change=True) as items:
        gone = cli.parse_ids(given or [], items.ids) if ids is None else read_labels(ids)
        items.remove(gone)
        data = _facts(index, items, n_removed=len(gone))
    return cli.Result(data)


@index.command()
def search(
    queries: Annotated[Path, cli.argument("QUERIES", "Codes, or features if --model is given.")],
    index: Place,
    collection: Collection = None,
    model: RowModel = None,
    k: cli.Neighbours = None,
    radius: Annotated[int | None, cli.option("N", "Find all within this distance.")] = None,
    probes: cli.Probes = None,
    rerank: Annotated[
        str | None, cli.option("METRIC", "Rank by cosine, dot, euclidean, asymmetric or posterior.")
    ] = None,
    vectors: Annotated[Path | None, cli.option("FILE", "Vectors of the queries.")] = None,
    table: cli.TableOptions = cli.TableOptions(),
    found: cli.FoundFile = None,
    show: cli.Show = 10,
) -> cli.Result:
    """Find the nearest items of every query, by Hamming distance or by learned probes.

    With --rerank, all items within --radius (default: 2) are scored, and the -k best are shown. Scores are computed
    from --vectors; those of "asymmetric" from the model, which then encodes the queries.

    A --model with posteriors (method auto) predicts which codes hold relevant items: --probes looks these up instead of
    the nearest codes; auto stops when enough relevant items are expected. --rerank then orders the items found, by
    cosine between the features of the queries and the vectors of the items, or by posterior, the probability of being
    relevant.

    \b
    Examples:
      shorthash index search codes.npz --index items.index -k 5
      shorthash index search queries.csv --model items.model --index sqlite:///items.db -o found.csv
      shorthash index search queries.npy --model digits.model --index items.index --rerank asymmetric
      shorthash index search queries.npy --model items.model --index sqlite:///items.db --probes 20
    """
    from shorthash.retrieval import Searcher

    learned = probes is not None or rerank == "posterior"
    if learned and model is None:
        name = "--rerank" if probes is None else "--probes"
        raise cli.misuse("needs features of the queries and the model that encodes them: --model", name)
    if vectors is not None and (learned or rerank is None):
        raise cli.misuse("these vectors are used with --rerank only, and not with --probes", "--vectors")
    if rerank is None and k is not None and radius is not None:
        raise cli.misuse("give -k or --radius, not both", "--radius")
    policy = search_policy(probes, radius, rerank) if learned else None
    cli.check_file(found, "--output")
    hasher = None if model is None else load_model(model)
    columns = table.columns
    with _open(index, collection) as items, cli.progress() as step:
        rows = read_rows(queries, hasher, step, items.n_bits, columns)
        step("searching", 0, 0)
        if policy is not None:
            if rerank == "posterior" and not _is_database(index) and not items.posterior_bytes:
                raise cli.misuse(
                    "the index holds no posteriors; build it from features, with a --model that has them (method auto)",
                    "--rerank",
                )
            data, make_table = find_answers(Searcher(hasher, items), rows, k, policy), answer_table
        elif rerank is None:
            data, make_table = find_neighbours(items, rows.codes, k, radius), distance_table
        else:
            scored = _query_vectors(rerank, vectors, queries, hasher, columns)
            ball = RERANK_RADIUS if radius is None else radius
            ranked = items.rerank(rows.codes, scored, k or 10, radius=ball, metric=rerank)
            lists = neighbour_lists(ranked, "score")
            data, make_table = {"n_queries": len(lists), "results": lists}, _score_table
    name_queries(data, rows.ids)
    return search_result(data, make_table, show, found)


def _query_vectors(metric: str | None, vectors: Path | None, queries: Path, hasher: Any, columns: Columns) -> Any:
    """Vectors that the scores of the queries are computed from."""
    from shorthash.data.files import read_features

    if vectors is not None:
        return read_features(vectors)
    if metric != "asymmetric" or hasher is None:
        raise cli.misuse("give the --vectors of the queries (or --rerank asymmetric and --model)")
    return hasher.project(read_file(queries, columns).X)


def _score_table(results: list[dict[str, Any]]) -> Table:
    """One row per query and neighbour."""
    rows = [
        (result["query"] if rank == 0 else "", rank + 1, f"{hit['score']:.6g}", str(hit["id"]))
        for result in results
        for rank, hit in enumerate(result["neighbours"])
    ]
    return cli.table(["query", "rank", "score", "id"], rows, text=["id"])


@index.command()
def migrate(
    index: Place,
    model: Annotated[Path, cli.option("MODEL", "Model that encodes the items.")],
    version: Annotated[str, cli.option("NAME", "Version of its codes; created if it does not exist.")],
    rows: Annotated[Path | None, cli.argument("ROWS", "Features of the items, if the database has no vectors.")] = None,
    ids: RowIds = None,
    table: cli.TableOptions = cli.TableOptions(),
    collection: Collection = None,
    batch: Annotated[int, cli.option("N", "Items per transaction.", min=1)] = 10_000,
    switch: Annotated[bool, cli.flag("--switch", "Make this version the default afterwards.")] = False,
    drop: Annotated[str | None, cli.option("NAME", "Finally, delete the codes of this version.")] = None,
) -> cli.Result:
    """Encode the items of a database with another model, while servers and writers keep running.

    The new codes, and posteriors if the model has them, are a version beside the old one. They are computed from the
    vectors of the items, or from ROWS, batch by batch; each batch is a transaction. After a crash, run the same command
    again to continue; it also encodes items that were added with old codes only. A server searches the version that it
    was started with: start servers with the new model after --switch, and --drop the old version when no old server is
    left.

    \b
    Examples:
      shorthash index migrate --index postgresql://db/shop --model new.model --version v2 --switch
      shorthash index migrate --index postgresql://db/shop --model new.model --version v2 --drop v1
      shorthash index migrate items.csv --id sku --index sqlite:///i.db --model new.model --version v2
    """
    from shorthash.retrieval import Searcher

    if not _is_database(index):
        raise cli.misuse("an index in a file has one version; build another file", "--index")
    columns = table.columns
    if rows is None and (ids is not None or columns):
        raise cli.misuse("--ids, --id and --features describe ROWS; also give that file", "ROWS")
    hasher = load_model(model)
    encode = item_encoder(Searcher(hasher), rows, ids, columns)
    with _open(index, collection) as items, cli.progress() as step:
        _check_drop(items, drop, version, switch=switch)
        if len(items):
            encode(items.items(items.search([0], 1).ids[0]))  # fails before anything is changed
        known = version in items.versions
        new = items.at(version) if known else items.add_version(version, int(hasher[-1].n_bits))
        Searcher(hasher, new).check_codes()
        total, done = items.n_lacking(version), 0

        def encode_and_show(batch: Any) -> Any:
            nonlocal done
            step("encoding", done, total)
            done += len(batch)
            return encode(batch)

        for other in items.versions:
            if other != version:
                items.at(other).migrate(version, encode_and_show, batch_size=batch)
        if switch:
            items.switch(version)
        if drop is not None:
            items.drop_version(drop)
        facts = {"version": version, "current_version": items.current_version, "n_migrated": done}
        data = {"place": _place_name(index), **facts, "n_items": len(new), "n_bits": new.n_bits}
    return cli.Result(data)


def _check_drop(items: Any, drop: str | None, version: str, *, switch: bool) -> None:
    """Raise unless the version to drop exists and is not needed after the migration."""
    if drop is None:
        return
    items.at(drop)
    if drop == version:
        raise cli.misuse(f"{drop} is the version being created; drop another", "--drop")
    if drop == items.current_version and not switch:
        raise cli.misuse(f"{drop} is the default version; also give --switch", "--drop")


@index.command()
def stats(
    index: Place,
    collection: Collection = None,
    check: Annotated[bool, cli.flag("--check", "Also check every byte of the file against its checksums.")] = False,
) -> cli.Result:
    """Show what an index holds, and how its items are spread over the codes.

    \b
    Example:
      shorthash index stats --index items.index --check
    """
    file = None if _is_database(index) else Path(index)
    if check and file is None:
        raise InvalidInput("--check is for an index in a file; a database checks its own pages.")
    with _open(index, collection, check=check) as items:
        _, sizes = items.buckets()
        facts = {
            "class": type(items).__name__,
            "dimension": getattr(items, "dimension", None),
            "posterior_bytes": getattr(items, "posterior_bytes", 0) or None,
            "string_ids": items.ids.dtype.kind == "U",
            "occupied_codes": len(sizes),
            "possible_codes": 2**items.n_bits,
            "largest_bucket": int(sizes.max(initial=0)),
            "bytes": None if file is None else file.stat().st_size,
            "checked": check,
        }
        data = _facts(index, items, **facts)
    return cli.Result(data)


@index.command()
def export(
    target: Annotated[Path, cli.argument("OUTPUT", "File to write: .faiss, .parquet, .sql, .db or .sqlite.")],
    index: Place,
    collection: Collection = None,
    replace: Annotated[bool, cli.flag("--replace", "Replace OUTPUT if it exists; a store is never replaced.")] = False,
) -> cli.Result:
    """Write ids and codes for another program: FAISS, a data frame, or a database.

    \b
    Examples:
      shorthash index export codes.parquet --index items.index
      shorthash index export codes.sql --index sqlite:///items.db
    """
    from shorthash.persistence import export_index

    with _open(index, collection) as items:
        export_index(items, target, replace=replace)
        data = _facts(index, items, output=target, bytes=target.stat().st_size)
    return cli.Result(data)


def _is_database(place: str) -> bool:
    return "://" in place


def _place_name(place: str) -> str:
    """The file, or the address of the database without its password."""
    scheme, separator, rest = place.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}" if separator else place


def _facts(place: str, items: Any, **facts: Any) -> dict[str, Any]:
    """Where an index is, ``facts``, and how many items it holds."""
    return {"place": _place_name(place), **facts, "n_items": len(items), "n_bits": items.n_bits}


@contextmanager
def _open(
    place: str,
    collection: str | None,
    *,
    n_bits: int | None = None,
    change: bool = False,
    check: bool = True,
    partitions: int = 1,
) -> Iterator[Any]:
    """Open the items, to read or to change; a file is saved at the end.

    Parameters
    ----------
    place, collection : where the items are
    n_bits : length of the codes, if the index or the collection is new
    change : whether the items will be changed; otherwise a file is not copied into memory
    check : whether to check every byte of a file first
    partitions : tables of a new collection
    """
    if partitions != 1 and not place.startswith("postgres"):
        raise cli.misuse("only a collection in PostgreSQL is divided", "--partitions")
    if _is_database(place):
        from shorthash.store import open_store

        with open_store(place, n_bits, collection=collection or "items", partitions=partitions) as opened:
            yield opened
        return
    from shorthash.index.buckets import BucketIndex
    from shorthash.persistence import save

    if collection is not None:
        raise cli.misuse("a file holds one index, without collections", "--collection")
    items = BucketIndex(n_bits) if n_bits is not None else _load_index(Path(place), mmap=not change)
    if check:
        items.verify()
    yield items
    if change:
        save(items, place)


def _load_index(path: Path, *, mmap: bool = False) -> Any:
    """Load an index; a model is an error."""
    from shorthash.persistence import describe, load

    saved = describe(path)
    if saved["kind"] != "index":
        raise InvalidInput(
            f"{path} holds {saved['class']}, but an index is needed; make one with shorthash index build."
        )
    return load(path, mmap=mmap)


def _read_items(rows: Path, place: str, given: ItemOptions, items: Any = None) -> tuple[Any, dict[str, Any]]:
    """Codes as signs, and ids, classes, vectors and posteriors of rows that will be added to ``items``."""
    from shorthash.data.files import read_features, read_labels

    if given.label and not _is_database(place):
        raise cli.misuse("an index in a file holds no labels; use a database", "--label")
    check_bits(given.bits, given.model)
    columns = given.columns
    if given.model is None and columns:
        raise cli.misuse("columns of a table are encoded by a model; give --model", "--model")
    if given.ids is not None and columns.id is not None:
        raise cli.misuse("give --id or --ids, not both", "--ids")
    hasher = None if given.model is None else load_model(given.model)
    n_bits = given.bits if items is None else given.bits or items.n_bits
    with cli.progress() as step:
        read = read_rows(rows, hasher, step, n_bits, columns)
    about: dict[str, Any] = {"ids": read.ids if given.ids is None else read_labels(given.ids)}
    if hasher is not None and hasattr(hasher[-1], "wanted") and _keeps_posteriors(place, items):
        from shorthash.retrieval import Searcher

        n_bytes = {"posterior_bytes": items.posterior_bytes} if items and not _is_database(place) else {}
        about["posteriors"] = Searcher(hasher, **n_bytes).compact(read.X)
    if given.vectors is not None:
        about["vectors"] = read_features(given.vectors)
    if read.labels is not None:
        about["classes"] = read.labels.tolist()
    return read.codes, about


def _keeps_posteriors(place: str, items: Any) -> bool:
    """Whether new items get posteriors: not in a file whose items, of an older version or of codes, have none."""
    return _is_database(place) or not items or bool(items.posterior_bytes)
