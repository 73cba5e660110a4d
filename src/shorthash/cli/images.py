"""Learn codes of a folder of images, and search it.

\b
Example:
  shorthash images fit photos/ -o photos.model
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shorthash.cli import output
from shorthash.cli.options import AsJson, Bits, Seed, Settings, argument, flag, option, parse_settings

if TYPE_CHECKING:
    from shorthash.images import Collection, FitReport

__all__ = ["CollectionFolder", "images", "info"]

NAMED = 20  # images that could not be read, named one by one

CollectionFolder = Annotated[Path, argument("MODEL", "Folder written by shorthash images fit.")]
LabelTable = Annotated[Path | None, option("--labels", "CSV", "Lines of NAME,LABEL; several labels joined by ';'.")]
Workers = Annotated[int | None, option("--workers", "N", "Processes that read images; 0: none.", "one per processor")]
Cache = Annotated[Path | None, option("--cache", "FILE", "Where features are cached.", "in ~/.cache/shorthash")]
NoCache = Annotated[bool, flag("--no-cache", "Do not cache features.")]

images = typer.Typer(name="images", help=__doc__, rich_markup_mode=None, add_completion=False)


@images.command()
def fit(
    folder: Annotated[Path, argument("DIR", "Folder of images; folders inside it are classes.")],
    model: Annotated[Path, option("--output -o", "MODEL", "Folder to write: new, or empty.")],
    bits: Bits = 8,
    features: Annotated[str, option("--features", "NAME", "gist, cnn, or an .onnx file.")] = "gist",
    labels: LabelTable = None,
    method: Annotated[
        str | None,
        option("--method", "NAME", "Method; see shorthash methods.", "auto; pcaitq without labels"),
    ] = None,
    settings: Settings = None,
    hold_out: Annotated[float, option("--hold-out", "SHARE", "Share of images held out to measure mAP.")] = 0.2,
    seed: Seed = 0,
    workers: Workers = None,
    cache: Cache = None,
    no_cache: NoCache = False,
    as_json: AsJson = False,
) -> None:
    """Learn codes of images and make a collection of them.

    Labels are the folders that the images are in, or come from --labels; without labels the method is one that needs
    none. The mAP is measured with held-out images as queries, by a model that has not seen them; the model that is
    saved has learned from all images. Images that cannot be read are skipped and named. Features are cached by content,
    so a second run, or one after an interruption, is quick.

    \b
    Examples:
      shorthash images fit photos/ -o photos.model
      shorthash images fit photos/ -o photos.model --bits 10 --features cnn
    """
    from shorthash.images import fit_images

    with output.progress() as step:
        report = fit_images(
            folder,
            model,
            n_bits=bits,
            features=features,
            labels=labels,
            method=method,
            settings=parse_settings(settings),
            hold_out=hold_out,
            random_state=seed,
            cache=_cache_file(cache, no_cache),
            n_workers=_n_workers(workers),
            progress=step,
        )
    _show_fit(report, as_json)
    _name_failures(report.added.failed)


def _show_fit(report: FitReport, as_json: bool) -> None:
    added, seconds = report.added, sum(report.seconds.values())
    data: dict[str, Any] = {
        "model": str(report.path),
        **{key: value for key, value in report.facts.items() if key != "name"},
        "reason": report.reason,
        "n_images": report.n_images,
        "n_labelled": report.n_labelled,
        "duplicates": [{"name": name, "id": item} for name, item in added.duplicates],
        "failed": _failures(added.failed),
        "unmatched_labels": report.unmatched,
        "seconds": seconds,
    }
    left_out = [(len(added.duplicates), "duplicates"), (len(added.failed), "unreadable")]
    facts = {
        "model": str(report.path),
        "images": f"{report.n_items} of {report.n_images}" + "".join(f", {n} {why}" for n, why in left_out if n),
        **_collection_facts(report.facts),
    }
    if report.reason:
        facts["method"] += f" ({report.reason})"
    if report.unmatched:
        facts["labels unused"] = f"{len(report.unmatched)} names of the table belong to no image"
    output.show(data, {**facts, "seconds": f"{seconds:.2f}"}, as_json=as_json)


def _collection_facts(data: Mapping[str, Any]) -> dict[str, str]:
    """How a collection was made, and how healthy its codes are."""
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
    if codes:
        facts["buckets"] = f"{codes['occupied_codes']} in use, the largest holds {codes['largest_bucket']} items"
        facts["entropy"] = f"{codes['entropy']:.2f} bits"
        if "purity" in codes:
            facts["purity"] = f"{codes['purity']:.3f} of the items belong to the main class of their bucket"
    return facts


@images.command()
def search(
    model: CollectionFolder,
    query: Annotated[str, argument("IMAGE|ID", "An image file, or the id of an item.")],
    k: Annotated[int, option("-k", "N", "How many neighbours to find.")] = 10,
    radius: Annotated[int | None, option("--radius", "N", "Leave out images farther than this distance.")] = None,
    rerank: Annotated[bool, flag("--rerank", "Rank all within the radius (or 2) by their features.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find the images most like one, nearest first by Hamming distance between codes.

    An item is not among its own neighbours.

    \b
    Examples:
      shorthash images search photos.model holiday.jpg -k 5
      shorthash images search photos.model 17 --rerank
    """
    from shorthash.images import Collection

    with Collection.open(model, readonly=True) as collection:
        found = collection.search(**_query(collection, query), k=k, radius=radius, rerank=rerank)
        items = collection.items(found.ids)
    neighbours: list[dict[str, Any]] = [
        {"id": item.id, "distance": distance, "code": item.code, "label": item.label, "name": item.name}
        for item, distance in zip(items, found.distances.tolist(), strict=True)
    ]
    titles = ["distance", "id", "label", "name"]
    rows: list[tuple[Any, ...]] = [
        (hit["distance"], hit["id"], "" if hit["label"] is None else str(hit["label"]), hit["name"])
        for hit in neighbours
    ]
    if found.scores is not None:
        scores = found.scores.tolist()
        neighbours = [{**hit, "score": score} for hit, score in zip(neighbours, scores, strict=True)]
        titles.append("cosine")
        rows = [(*row, f"{score:.3f}") for row, score in zip(rows, scores, strict=True)]
    data = {"code": found.code, "n_bits": found.n_bits, "neighbours": neighbours}
    code = f"{found.code:0{found.n_bits}b} (code {found.code})"
    if rows:
        output.show(data, {"query": code}, [output.table(titles, rows, text=["label", "name"])], as_json=as_json)
    else:
        output.show(data, {"query": code}, notes=["nothing within the radius"], as_json=as_json)


def _query(collection: Collection, text: str) -> dict[str, Any]:
    """An image if there is such a file, else an id."""
    from shorthash.errors import InvalidInput

    if Path(text).is_file():
        return {"image": text}
    item: int | str = int(text) if text.isdecimal() and collection.ids.dtype.kind == "i" else text
    if item not in collection:
        raise InvalidInput(f"{text} is neither an image file nor the id of an item; check the path.")
    return {"id": item}


@images.command()
def add(
    model: CollectionFolder,
    paths: Annotated[list[Path], argument("PATH", "Images, and folders of images.")],
    label: Annotated[str | None, option("--label", "NAME", "Label of all of them.")] = None,
    labels: LabelTable = None,
    workers: Workers = None,
    cache: Cache = None,
    no_cache: NoCache = False,
    as_json: AsJson = False,
) -> None:
    """Add images; the model is not changed.

    An image whose content is in the collection already is left out. Labels come from --label, from --labels, or from
    the class folders inside a folder. Exits with 1 if an image could not be read; all others are added nevertheless.

    \b
    Examples:
      shorthash images add photos.model new/ holiday.jpg
      shorthash images add photos.model cat.jpg --label cats
    """
    from shorthash.images import Collection
    from shorthash.images.features import FeatureCache
    from shorthash.images.files import named_images

    if label is not None and labels is not None:
        raise typer.BadParameter("give --label or --labels, not both", param_hint="--label")
    sources, source_labels = named_images(paths, label, labels)
    cache_file = _cache_file(cache, no_cache)
    with Collection.open(model) as collection, output.progress() as step:
        cached: Any = nullcontext() if cache_file is None else FeatureCache(cache_file, collection.features.recipe)
        with cached as features:
            report = collection.add_images(
                sources, labels=source_labels, cache=features, n_workers=_n_workers(workers), progress=step
            )
        n_items = len(collection)
    data = {
        "model": str(model),
        "added": [{"id": item, "name": name} for item, name in zip(report.added, report.names, strict=True)],
        "duplicates": [{"name": name, "id": item} for name, item in report.duplicates],
        "failed": _failures(report.failed),
        "n_items": n_items,
    }
    facts = output.facts_of(data)
    if report.added:
        facts["added"] += f" (ids {report.added[0]} to {report.added[-1]})"
    output.show(data, facts, as_json=as_json)
    _name_failures(report.failed)
    if report.failed:
        raise typer.Exit(1)


@images.command()
def remove(
    model: CollectionFolder,
    ids: Annotated[list[str], argument("ID", "Ids of the items to remove.")],
    as_json: AsJson = False,
) -> None:
    """Remove items with their thumbnails, all or none; an unknown id is an error.

    \b
    Example:
      shorthash images remove photos.model 3 17
    """
    from shorthash.errors import InvalidInput
    from shorthash.images import Collection

    with Collection.open(model) as collection:
        integers = collection.ids.dtype.kind == "i"
        if integers and not all(word.isdecimal() for word in ids):
            raise InvalidInput(f"The ids of this collection are whole numbers. Got {' '.join(ids)} instead.")
        collection.remove([int(word) for word in ids] if integers else ids)
        n_items = len(collection)
    output.show({"model": str(model), "n_removed": len(ids), "n_items": n_items}, as_json=as_json)


@images.command()
def info(model: CollectionFolder, as_json: AsJson = False) -> None:
    """Show what a collection holds, how it was made, and how healthy its codes are.

    \b
    Example:
      shorthash images info photos.model
    """
    from shorthash.images import Collection

    with Collection.open(model, readonly=True) as collection:
        data = collection.facts()
        classes = collection.classes
    facts = {"kind": "collection", **_collection_facts(data), "written by": f"shorthash {data['shorthash_version']}"}
    rows = [(str(name), count) for name, count in classes.items()]
    tables = [output.table(["class", "items"], rows, text=["class"])] if rows else []
    output.show({"kind": "collection", **data, "classes": classes}, facts, tables, as_json=as_json)


def _n_workers(given: int | None) -> int:
    return (os.cpu_count() or 1) if given is None else given


def _cache_file(cache: Path | None, no_cache: bool) -> Path | None:
    """The file that features are cached in, or None."""
    from shorthash.images.features import default_cache

    return None if no_cache else cache or default_cache()


def _name_failures(failed: list[tuple[str, str]]) -> None:
    """Name the images that could not be read, on standard error."""
    for name, reason in failed[:NAMED]:
        output.complain("skipped", f"{name}: {reason}")
    if len(failed) > NAMED:
        output.complain("skipped", f"{len(failed) - NAMED} more; --json names them all")


def _failures(failed: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Images that could not be read, as JSON objects."""
    return [{"name": name, "reason": reason} for name, reason in failed]
