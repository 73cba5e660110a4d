"""Rows that become items: what build and add read, and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from shorthash.cli import output
from shorthash.cli.index_place import opened, place_name
from shorthash.cli.options import option
from shorthash.cli.progress import progress
from shorthash.cli.reading import read_hasher, read_or_encode

__all__ = ["RowIds", "RowVectors", "read_rows", "show_filled"]

RowIds = Annotated[Path | None, option("--ids", metavar="FILE", text="Ids of the rows, else they are numbered.")]
RowVectors = Annotated[Path | None, option("--vectors", metavar="FILE", text="Vectors of the rows, to rank by.")]


def read_rows(
    rows: Path, model: Path | None, bits: int | None, ids: Path | None, vectors: Path | None
) -> tuple[Any, dict[str, Any]]:
    """Codes as signs, and ids and vectors as far as they were given."""
    from shorthash.data.files import read_features, read_labels

    with progress() as tell:
        codes = read_or_encode(rows, None if model is None else read_hasher(model), tell, bits)
    given: dict[str, Any] = {"ids": None if ids is None else read_labels(ids)}
    if vectors is not None:
        given["vectors"] = read_features(vectors)
    return codes, given


def show_filled(index: Path | None, store: str | None, collection: str, n_added: int, as_json: bool) -> None:
    """Say how many items there are now."""
    with opened(index, store, collection) as items:
        data = {"place": place_name(index, store), "n_added": n_added, "n_items": len(items), "n_bits": items.n_bits}
    facts = {"index": data["place"], "added": str(n_added), "items": str(data["n_items"]), "bits": str(data["n_bits"])}
    output.show(output.Answer(data, facts), as_json=as_json)
