"""shorthash index add: more items, or those of another index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from shorthash.cli.index_place import Collection, Index, IndexModel, RowBits, StoreUrl, load_index, opened
from shorthash.cli.index_rows import RowIds, RowVectors, read_rows, show_filled
from shorthash.cli.options import AsJson, argument

__all__ = ["add"]


def add(
    rows: Annotated[Path, argument("ROWS", "Codes, features if --model is given, or another index.")],
    index: Index = None,
    store: StoreUrl = None,
    collection: Collection = "items",
    model: IndexModel = None,
    bits: RowBits = None,
    ids: RowIds = None,
    vectors: RowVectors = None,
    as_json: AsJson = False,
) -> None:
    """Add items, all or none: after a crash or an error the index is as it was before, or complete.

    Another index is merged with its ids and vectors, after its bytes have been checked.

    \b
    Examples:
      shorthash index add more.npz --index items.index
      shorthash index add shard-2.index --index items.index
    """
    from shorthash.persistence.file import is_save

    with opened(index, store, collection, change=True) as items:
        if rows.is_file() and is_save(rows):
            other = load_index(rows)
            items.merge(other)
            n_added = len(other)
        else:
            codes, given = read_rows(rows, model, bits or items.n_bits, ids, vectors)
            items.add(codes, **given)
            n_added = len(codes)
    show_filled(index, store, collection, n_added, as_json)
