"""shorthash index export: ids and codes for another program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from shorthash.cli import output
from shorthash.cli.index_place import Collection, Index, StoreUrl, opened
from shorthash.cli.options import AsJson, argument, flag

__all__ = ["export"]


def export(
    target: Annotated[Path, argument("OUTPUT", "File to write: .faiss, .parquet, .sql, .db or .sqlite.")],
    index: Index = None,
    store: StoreUrl = None,
    collection: Collection = "items",
    replace: Annotated[bool, flag("--replace", "Replace OUTPUT if it is there; a store never is.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write ids and codes for another program: FAISS, a data frame, or a database.

    \b
    Examples:
      shorthash index export codes.parquet --index items.index
      shorthash index export codes.sql --store sqlite:///items.db
    """
    from shorthash.persistence import export_index

    with opened(index, store, collection) as items:
        export_index(items, target, replace=replace)
        data = {"output": target, "n_items": len(items), "n_bits": items.n_bits, "bytes": target.stat().st_size}
    facts = {"output": str(target), "items": str(data["n_items"]), "bits": str(data["n_bits"])}
    output.show(output.Answer(data, facts), as_json=as_json)
