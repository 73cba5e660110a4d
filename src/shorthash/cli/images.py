"""Learn codes of a folder of images, and search it.

\b
Example:
  shorthash images fit photos/ -o photos.model
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from shorthash.cli import terminal as cli
from shorthash.cli.collections import duplicates, export
from shorthash.cli.search import load_model, search_policy, write_found
from shorthash.errors import InvalidInput, worded

if TYPE_CHECKING:
    from socket import socket as Socket

    from fastapi import FastAPI

    from shorthash.images import AddReport, Collection, FitReport, Found
    from shorthash.web import Settings as Limits

NAMED = 20  # unreadable images that are listed
EXAMPLES = 3  # files of a kind that are named
CORES = os.cpu_count() or 1
TOKEN = "SHORTHASH_TOKEN"
SHORT_TOKEN = 16  # characters; fewer can be guessed

LabelTable = Annotated[Path | None, cli.option("CSV", "Lines of NAME,LABEL; several labels joined by ';'.")]
LabelsFrom = Annotated[
    str | None, cli.option("PLACE", "folder, csv (with --labels) or none.", "--labels; else folders, unless albums")
]
NoLabels = Annotated[bool, cli.flag("--no-labels", "Use no labels; the same as --labels-from none.")]
Workers = Annotated[int, cli.option("N", "Processes that decode images; 0: decode in this one.", "one per core")]
Cache = Annotated[Path | None, cli.option("FILE", "File to cache features in.", "in ~/.cache/shorthash")]
NoCache = Annotated[bool, cli.flag("--no-cache", "Do not cache features.")]

images = cli.Group(help=__doc__)


@images.command()
def fit(
    folder: Annotated[Path, cli.argument("DIR", "Folder of images; its subfolders may be the classes.")],
    model: Annotated[Path, cli.option("MODEL", "Folder to write; it must be new or empty.", names="--output -o")],
    bits: cli.Bits = 8,
    features: Annotated[str, cli.option("NAME", "gist, cnn, or an .onnx file.")] = "gist",
    labels: LabelTable = None,
    labels_from: LabelsFrom = None,
    no_labels: NoLabels = False,
    method: Annotated[str | None, cli.option("NAME", "Method; see shorthash methods.", "auto")] = None,
    settings: cli.Settings = None,
    hold_out: Annotated[float, cli.option("SHARE", "Share of images held out to measure mAP.")] = 0.2,
    seed: cli.Seed = 0,
    workers: Workers = CORES,
    cache: Cache = None,
    no_cache: NoCache = False,
) -> cli.Result:
    """Learn codes of images and make a collection of them.

    Labels are the names of the subfolders, or come from --labels; without labels, similar images get similar codes. The
    mAP is measured with held-out images as queries; the saved model is then fitted on all images. If it is no better
    than chance, the subfolders are treated as albums and codes are learned without labels; --labels-from folder
    prevents that. Files that cannot be read are skipped, counted by kind and listed. Features are cached by content, so
    that a second or an interrupted run is fast.

    \b
    Examples:
      shorthash images fit photos/ -o photos.model
      shorthash images fit photos/ -o photos.model --no-labels
      shorthash images fit photos/ -o photos.model --bits 10 --features cnn
    """
    from shorthash.images import fit_images

    with cli.progress() as step:
        report = fit_images(
            folder,
            model,
            n_bits=bits,
            features=features,
            labels=labels,
            labels_from=_labels_from(labels_from, no_labels),
            method=method,
            settings=cli.parse_settings(settings),
            hold_out=hold_out,
            random_state=seed,
            cache=_cache_file(cache, no_cache),
            n_workers=workers,
            progress=step,
        )
    _name_skipped(report.added)
    return _fit_result(report)


def _labels_from(labels_from: str | None, no_labels: bool) -> str | None:
    """Where labels come from, as ``named_images`` takes it."""
    if no_labels and labels_from not in (None, "none"):
        raise cli.misuse("give --labels-from or --no-labels, not both", "--no-labels")
    return "none" if no_labels else labels_from


def _fit_result(report: FitReport) -> cli.Result:
    added = report.added
    data: dict[str, Any] = {
        "model": str(report.path),
        **{key: value for key, value in report.facts.items() if key != "name"},
        "reason": report.reason,
        "warning": report.doubt,
        "n_images": report.n_images,
        "n_labelled": report.n_labelled,
        **_left_out(added),
        "unmatched_labels": report.unmatched,
        "seconds": report.seconds,
    }
    facts = {
        "model": str(report.path),
        "images": f"{len(added.added)} of {report.n_images}",
        **_skipped_fact(added),
        **_collection_facts(report.facts),
    }
    if report.reason:
        facts["method"] += f" ({report.reason})"
    if report.unmatched:
        facts["labels unused"] = f"{len(report.unmatched)} names of the table belong to no image"
    return cli.Result(data, {**facts, "seconds": f"{report.seconds:.2f}"})


def _collection_facts(data: Mapping[str, Any]) -> dict[str, str]:
    """How a collection was made, and statistics of its codes."""
    recipe, measured, codes = data["features"], data["evaluation"], data["codes"]
    facts = {
        "items": str(data["n_items"]),
        "classes": str(data["n_classes"]),
        "bits": str(data["n_bits"]),
        "method": data["method"],
        "features": f"{data['n_features']} numbers, " + ("given as vectors" if recipe is None else recipe["kind"]),
    }
    if measured:
        queries = f"{measured['n_queries']} held-out queries, {measured['n_searched']} images searched"
        facts["mAP"] = f"{measured['map']:.4f} ({queries})"
    return {**facts, **(cli.code_facts(codes, "items") if codes else {})}


@images.command()
def search(
    model: cli.CollectionFolder,
    query: Annotated[str, cli.argument("IMAGE|ID", "An image file, or the id of an item.")],
    k: Annotated[int, cli.option("N", "Number of neighbours.", names="-k")] = 10,
    radius: Annotated[int | None, cli.option("N", "Largest Hamming distance.")] = None,
    rerank: Annotated[
        bool, cli.flag("--rerank", "Rank all within --radius (default: 2) by the cosine of their features.")
    ] = False,
    posterior: Annotated[
        bool, cli.flag("--posterior", "Rank them by the probability of being relevant instead (method auto).")
    ] = False,
    probes: cli.Probes = None,
    out: Annotated[
        Path | None,
        cli.option("FILE", "Write the neighbours to this file: .csv, .parquet or .jsonl.", names="--out -o"),
    ] = None,
    html: Annotated[Path | None, cli.option("FILE", "Write a contact sheet to this .html file.")] = None,
) -> cli.Result:
    """Find the images most similar to an image or an item.

    Images are ordered by Hamming distance between codes. An item is not among its own neighbours. A model with
    posteriors (method auto) predicts which codes hold relevant images: --probes looks these up instead of the nearest
    codes, and --rerank or --posterior orders what they hold.

    \b
    Examples:
      shorthash images search photos.model holiday.jpg -k 5
      shorthash images search photos.model 17 --rerank
      shorthash images search photos.model holiday.jpg --probes auto --posterior
      shorthash images search photos.model holiday.jpg -k 50 --html sheet.html --out found.csv
    """
    from shorthash.images import Collection

    if rerank and posterior:
        raise cli.misuse("give --rerank or --posterior, not both", "--posterior")
    search_policy(probes, radius, None)
    cli.check_file(out, "--out")
    cli.check_file(html, "--html", ".html", ".htm")
    with Collection(model, readonly=True) as collection:
        order = "posterior" if posterior else rerank
        found = collection.search(**_query(collection, query), k=k, radius=radius, rerank=order, probes=probes)
        if html is not None:
            _write_found_sheet(html, collection, query, found)
        sources = collection.sources_of(found.ids) if out is not None and len(found) else []
    columns = {
        "distance": found.distances.tolist(),
        "id": found.ids.tolist(),
        "label": found.labels,
        "name": found.names,
        **({} if found.scores is None else {"score": found.scores.tolist()}),
        "code": found.codes.tolist(),
    }
    rows = list(zip(*columns.values(), strict=True))
    neighbours = [dict(zip(columns, row, strict=True)) for row in rows]
    if out is not None:
        hits = [{**hit, "source": source} for hit, source in zip(neighbours, sources, strict=True)]
        write_found(out, [{"query": query, "neighbours": hits}])
    table = cli.table(list(columns)[:-1], [row[:-1] for row in rows], text=["label", "name"], digits={"score": 3})
    data = {"code": found.code, "n_bits": found.n_bits, "neighbours": neighbours}
    facts = {
        "query": f"{found.code:0{found.n_bits}b} (code {found.code})",
        **{name: str(path) for name, path in (("neighbours", out), ("sheet", html)) if path is not None},
    }
    if not rows:
        return cli.Result(data, facts, notes=["nothing within the radius"])
    return cli.Result(data, facts, [table])


def _write_found_sheet(path: Path, collection: Collection, query: str, found: Found) -> None:
    from shorthash.images.results import Picture, write_sheet

    def picture(row: int) -> Picture:
        label = "" if found.labels[row] is None else f"{found.labels[row]}, "
        score = "" if found.scores is None else f", score {found.scores[row]:.3f}"
        note = f"{label}id {found.ids[row]}{score}"
        return Picture(found.names[row], note, collection.thumbnail_bytes(found.contents[row]))

    about = f"The {len(found)} nearest of {len(collection)} items, by codes of {found.n_bits} bits."
    sections = [
        (f"Distance {distance}: {len(rows)} images", [picture(row) for row in rows.tolist()])
        for distance, rows in found.groups()
    ]
    if found.scores is not None:  # re-ranked: one list, the best first
        sections = [(f"{len(found)} images, the most similar first", [picture(row) for row in range(len(found))])]
    write_sheet(path, f"Neighbours of {query}", about, sections)


def _query(collection: Collection, text: str) -> dict[str, Any]:
    """An image if there is such a file, else an id."""
    if Path(text).is_file():
        return {"image": text}
    item: int | str = int(text) if text.isdecimal() and collection.ids.dtype.kind == "i" else text
    if item not in collection:
        raise InvalidInput(f"{text} is neither an image file nor the id of an item; check the path.")
    return {"id": item}


@images.command()
def add(
    model: cli.CollectionFolder,
    paths: Annotated[list[Path], cli.argument("PATH", "Images, and folders of images.")],
    label: Annotated[str | None, cli.option("NAME", "Label of all these images.")] = None,
    labels: LabelTable = None,
    labels_from: LabelsFrom = None,
    no_labels: NoLabels = False,
    workers: Workers = CORES,
    cache: Cache = None,
    no_cache: NoCache = False,
) -> cli.Result:
    """Add images; the model is not changed.

    Images whose content is already in the collection are skipped. Labels come from --label, --labels, or the names of
    subfolders; a collection without labels gets none from subfolders. The exit status is 1 if an image could not be
    read; all others are added.

    \b
    Examples:
      shorthash images add photos.model new/ holiday.jpg
      shorthash images add photos.model cat.jpg --label cats
    """
    from shorthash.images import Collection
    from shorthash.images.files import named_images

    place = _labels_from(labels_from, no_labels)
    found = named_images(paths, label, labels, place)
    with Collection(model) as collection, cli.progress() as step:
        cache_file = _cache_file(cache, no_cache)
        if place is None and label is None and labels is None and len(collection) and not collection.classes:
            found.labels = [None] * len(found.sources)
        report = collection.add_images(
            found.sources, labels=found.labels, cache=cache_file, n_workers=workers, progress=step
        )
        n_items = len(collection)
    for kind, names in found.skipped.items():
        report.skipped.setdefault(kind, []).extend(names)
    data = {
        "model": str(model),
        "added": [{"id": item, "name": name} for item, name in zip(report.added, report.names, strict=True)],
        **_left_out(report),
        "n_items": n_items,
    }
    facts = cli.facts_of({"model": str(model), "added": report.added})
    if report.added:
        first, last = report.added[0], report.added[-1]
        facts["added"] += f" (id {first})" if len(report.added) == 1 else f" (ids {first} to {last})"
    _name_skipped(report)
    facts = {**facts, **_skipped_fact(report), "items": str(n_items)}
    return cli.Result(data, facts, status=1 if report.failed else 0)


@images.command()
def remove(
    model: cli.CollectionFolder,
    ids: Annotated[list[str], cli.argument("ID", "Ids of the items to remove.")],
) -> cli.Result:
    """Remove items with their thumbnails, all or none; an unknown id is an error.

    \b
    Example:
      shorthash images remove photos.model 3 17
    """
    from shorthash.images import Collection

    with Collection(model) as collection:
        collection.remove(cli.parse_ids(ids, collection.ids))
        n_items = len(collection)
    return cli.Result({"model": str(model), "n_removed": len(ids), "n_items": n_items})


@images.command()
def info(model: cli.CollectionFolder) -> cli.Result:
    """Show what a collection holds, how it was made, and statistics of its codes, as shorthash info does.

    \b
    Example:
      shorthash images info photos.model
    """
    from shorthash.images import Collection

    with Collection(model, readonly=True) as collection:
        data = collection.facts()
        classes = collection.classes
    facts = {"kind": "collection", **_collection_facts(data), "written by": f"shorthash {data['shorthash_version']}"}
    rows = [(str(name), count) for name, count in classes.items()]
    tables = [cli.table(["class", "items"], rows, text=["class"])] if rows else []
    return cli.Result({"kind": "collection", **data, "classes": classes}, facts, tables)


images.command()(duplicates)
images.command()(export)


def _cache_file(cache: Path | None, no_cache: bool) -> Path | None:
    """The file that features are cached in, or None."""
    from shorthash.images.features import default_cache

    if cache is not None and no_cache:
        raise cli.misuse("give --cache or --no-cache, not both", "--cache")
    return None if no_cache else cache or default_cache()


def _skipped_fact(report: AddReport) -> dict[str, str]:
    """Files that were not added, counted by kind."""
    from shorthash.images.files import count_kinds

    kinds = {**report.skipped, "duplicate": [name for name, _ in report.duplicates]}
    counted = {kind: names for kind, names in kinds.items() if names}
    n_files = sum(map(len, counted.values()))
    files = "file" if n_files == 1 else "files"
    return {"skipped": f"{n_files} {files} ({count_kinds(counted)})"} if n_files else {}


def _name_skipped(report: AddReport) -> None:
    """Name the files that were not read, on standard error: images with the reason, other files by kind."""
    for name, reason in report.failed[:NAMED]:
        cli.complain("skipped", f"{name}: {reason}")
    if len(report.failed) > NAMED:
        cli.complain("skipped", f"{len(report.failed) - NAMED} more images; --json lists all")
    failed = {name for name, _ in report.failed}
    for kind, names in report.skipped.items():
        others = [name for name in names if name not in failed]
        if others:
            more = f" and {len(others) - EXAMPLES} more" if len(others) > EXAMPLES else ""
            advice = {"RAW": "; export them as JPEG", "other format": "; convert them to JPEG"}.get(kind, "")
            cli.complain("skipped", f"{kind}: {', '.join(others[:EXAMPLES])}{more}{advice}")


def _left_out(report: AddReport) -> dict[str, Any]:
    """Images that were not added, as JSON objects."""
    return {
        "duplicates": [{"name": name, "id": item} for name, item in report.duplicates],
        "failed": [{"name": name, "reason": reason} for name, reason in report.failed],
        "skipped": report.skipped,
    }


def serve(
    place: Annotated[str, cli.argument("MODEL|URL", "Folder written by shorthash images fit; or a database.")],
    model: Annotated[Path | None, cli.option("MODEL", "Model that encoded the items of the database.")] = None,
    collection: Annotated[str, cli.option("NAME", "Collection of the database.")] = "items",
    version: Annotated[str | None, cli.option("NAME", "Version of its codes.", "the current one")] = None,
    host: Annotated[str, cli.option("ADDRESS", "Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, cli.option("N", "Port; 0: any free port.")] = 8000,
    token: Annotated[
        str | None, cli.option("TEXT", "Token that writers must send.", f"${TOKEN}; else no writes")
    ] = None,
    readonly: Annotated[bool, cli.flag("--readonly", "Refuse writes, so that another process can write.")] = False,
    allow_host: Annotated[
        list[str] | None, cli.option("NAME", "Also accept requests for this host name; repeatable.")
    ] = None,
    max_body: Annotated[float, cli.option("MIB", "Largest request.")] = 32,
    max_pixels: Annotated[int, cli.option("N", "Largest image, in pixels.")] = 40_000_000,
    rate: Annotated[float, cli.option("N", "Requests per second of a client; 0: no limit.")] = 200,
    cache_size: Annotated[int, cli.option("MIB", "Size of the cache of answers.")] = 64,
    timeout: Annotated[float, cli.option("SECONDS", "Longest time for a request.")] = 30,
    connections: Annotated[int, cli.option("N", "Connections of one client at once; 0: no limit.")] = 100,
) -> None:
    """Serve a search page and an HTTP API; Ctrl+C stops.

    By default, only this machine can reach the server; see --host. Adding and removing items requires a token; set it
    in the environment, since other users of the machine can see arguments. The API is described by /openapi.json.

    A database (postgresql://..., sqlite:///FILE) is served read-only and without a page. Such servers keep no state, so
    any number can run. --model encodes the queries; it must be the model that encoded the items.

    \b
    Examples:
      shorthash serve photos.model
      shorthash serve postgresql://db.example/shop --model items.model --port 8001
      SHORTHASH_TOKEN=$(openssl rand -hex 32) shorthash serve photos.model --port 9000
    """
    from shorthash._validation import require_extra

    require_extra("uvicorn", "web", "Serving a collection")
    from shorthash.web import Settings

    settings = Settings(
        token=token or os.environ.get(TOKEN) or None,
        hosts=("localhost", host, *(allow_host or ())),
        max_body=int(max_body * (1 << 20)),
        max_pixels=max_pixels,
        rate=rate,
        cache_bytes=cache_size << 20 if cache_size >= 0 else cache_size,
        timeout=timeout,
        connections=connections,
    )
    if "://" in place:
        _serve_store(place, model, collection, version, settings, host, port)
    elif model is not None or version is not None:
        raise cli.misuse(f"{place} is a folder; leave out --model and --version", "--model")
    else:
        _serve_collection(Path(place), settings, host, port, readonly=readonly)


def _serve_collection(model: Path, settings: Limits, host: str, port: int, *, readonly: bool) -> None:
    from shorthash.images import Collection
    from shorthash.web.app import create_app, listen

    writable = settings.writable and not readonly
    with Collection(model, readonly=not writable) as collection, listen(host, port) as socket:
        if settings.token is not None and len(settings.token) < SHORT_TOKEN:
            cli.complain("warning", "the token is short enough to be guessed; use: openssl rand -hex 32")
        what = f"{model.name}: {len(collection)} items, {collection.n_bits} bits"
        why = "--readonly was given" if readonly else f"set {TOKEN} or use --token to allow writes"
        how = "writes need the token" if writable else f"read-only: {why}"
        _run(create_app(collection, settings), settings, socket, host, (what, how))


def _serve_store(
    url: str, model: Path | None, collection: str, version: str | None, settings: Limits, host: str, port: int
) -> None:
    from shorthash.store import open_store
    from shorthash.web.app import create_store_app, listen

    if model is None:
        raise cli.misuse("a database needs the model that encoded its items", "--model")
    hasher = load_model(model)
    with open_store(url, collection=collection, version=version) as store, listen(host, port) as socket:
        opened = store.version  # all connections search this version, even if the default changes later
        app = create_store_app(hasher, lambda: open_store(url, collection=collection, version=opened), settings)
        what = f"{collection}: version {opened}, {store.n_bits} bits"
        _run(app, settings, socket, host, (what, "read-only; the store is written by other processes"))


def _run(app: FastAPI, settings: Limits, socket: Socket, host: str, lines: tuple[str, str]) -> None:
    """Say what is served and where, and serve it."""
    from shorthash.web.app import run
    from shorthash.web.limits import is_loopback

    address = f"[{host}]" if ":" in host else host
    cli.say(lines[0])
    cli.say(f"http://{address}:{socket.getsockname()[1]}/  (Ctrl+C stops)")
    cli.say(lines[1])
    if not is_loopback(host):
        cli.complain(
            "warning", f"{address} can be reached by other machines, and nothing is encrypted; see SECURITY.md"
        )
    sys.stdout.flush()
    with worded({}):  # clients of the server have no options
        run(app, settings, socket)
