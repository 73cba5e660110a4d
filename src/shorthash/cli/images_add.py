"""shorthash images add: more images, without learning anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shorthash.cli import output
from shorthash.cli.images_options import (
    Cache,
    CollectionFolder,
    LabelTable,
    NoCache,
    Workers,
    cache_place,
    failures,
    tell_failures,
    workers,
)
from shorthash.cli.options import AsJson, argument, option
from shorthash.cli.progress import progress

__all__ = ["add"]


def add(
    model: CollectionFolder,
    paths: Annotated[list[Path], argument("PATH...", "Images, and folders of images.")],
    label: Annotated[str | None, option("--label", metavar="NAME", text="Label of all of them.")] = None,
    labels: LabelTable = None,
    workers_: Workers = None,
    cache: Cache = None,
    no_cache: NoCache = False,
    as_json: AsJson = False,
) -> None:
    """Add images; the encoder stays as it is.

    An image whose content is there already is left out. Labels come from --label, from --labels, or from the class
    folders inside a folder. Exits with 1 if an image could not be read; all others are added nevertheless.

    \b
    Examples:
      shorthash images add photos.model new/ holiday.jpg
      shorthash images add photos.model cat.jpg --label cats
    """
    from contextlib import nullcontext

    from shorthash.images import Collection
    from shorthash.images.image_cache import FeatureCache
    from shorthash.images.labels import named_images

    if label is not None and labels is not None:
        raise typer.BadParameter("give --label or --labels, not both", param_hint="--label")
    sources, told = named_images(paths, label, labels)
    place = cache_place(cache, no_cache)
    with Collection.open(model) as collection, progress() as tell:
        kept: Any = nullcontext() if place is None else FeatureCache(place, collection.features.recipe)
        with kept as features:
            report = collection.add_images(
                sources, labels=told, cache=features, n_workers=workers(workers_), progress=tell
            )
        n_items = len(collection)
    data = {
        "model": str(model),
        "added": [{"id": item, "name": name} for item, name in zip(report.added, report.names, strict=True)],
        "duplicates": [{"name": name, "id": item} for name, item in report.duplicates],
        "failed": failures(report.failed),
        "n_items": n_items,
    }
    facts = {"model": str(model), "added": str(len(report.added))}
    if report.added:
        facts["ids"] = f"{report.added[0]} to {report.added[-1]}" if len(report.added) > 1 else str(report.added[0])
    if report.duplicates:
        facts["there already"] = str(len(report.duplicates))
    if report.failed:
        facts["unreadable"] = str(len(report.failed))
    output.show(output.Answer(data, {**facts, "items": str(n_items)}), as_json=as_json)
    tell_failures(report.failed)
    if report.failed:
        raise typer.Exit(1)
