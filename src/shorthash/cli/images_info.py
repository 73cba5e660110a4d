"""shorthash images info: what a collection holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shorthash.cli import output
from shorthash.cli.images_options import CollectionFolder
from shorthash.cli.options import AsJson

__all__ = ["info", "show_collection"]


def info(model: CollectionFolder, as_json: AsJson = False) -> None:
    """Tell what a collection holds, how it was made, and how healthy its codes are.

    \b
    Example:
      shorthash images info photos.model
    """
    show_collection(model, as_json)


def show_collection(model: Path, as_json: bool) -> None:
    """What a collection says about itself."""
    from shorthash.images import Collection

    with Collection.open(model, readonly=True) as collection:
        data = collection.facts()
        classes = collection.classes
    output.show(
        output.Answer({"kind": "collection", **data, "classes": classes}, _facts(data), _tables(classes)),
        as_json=as_json,
    )


def _facts(data: dict[str, Any]) -> dict[str, str]:
    facts = {"kind": "collection", "items": str(data["n_items"]), "bits": str(data["n_bits"]), "method": data["method"]}
    recipe, measured, codes = data["features"], data["evaluation"], data["codes"]
    facts["features"] = f"{data['n_features']} numbers, " + ("given as vectors" if recipe is None else recipe["kind"])
    if measured:
        facts["mAP"] = f"{measured['map']:.4f} at the fit ({measured['n_queries']} held-out images asked)"
    if codes:
        facts["buckets"] = f"{codes['occupied_codes']} in use, the largest holds {codes['largest_bucket']} items"
        facts["entropy"] = f"{codes['entropy']:.2f} bits"
        if "purity" in codes:
            facts["purity"] = f"{codes['purity']:.3f} of the items belong to the main class of their bucket"
    facts["written by"] = f"shorthash {data['shorthash_version']}"
    return facts


def _tables(classes: dict[int | str, int]) -> tuple[Any, ...]:
    """Items by class."""
    from shorthash.lab.tables import Column, Table

    rows = tuple((str(name), count) for name, count in classes.items())
    return (Table((Column("class", text=True), Column("items")), rows),) if rows else ()
