"""shorthash index build: rows become an index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shorthash.cli.index_place import Collection, Index, IndexModel, RowBits, StoreUrl, check_one_place, opened
from shorthash.cli.index_rows import RowIds, RowVectors, read_rows, show_filled
from shorthash.cli.options import AsJson, argument, flag

__all__ = ["build"]


def build(
    rows: Annotated[Path, argument("ROWS", "Codes, or features if --model is given.")],
    index: Index = None,
    store: StoreUrl = None,
    collection: Collection = "items",
    model: IndexModel = None,
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
    from shorthash.index.buckets import BucketIndex
    from shorthash.persistence import save

    check_one_place(index, store)
    if store is not None and replace:
        raise typer.BadParameter(
            "a collection is not replaced; choose another with --collection", param_hint="--replace"
        )
    if index is not None and index.exists() and not replace:
        raise InvalidInput(f"{index} exists; add to it with shorthash index add, or give --replace.")
    codes, given = read_rows(rows, model, bits, ids, vectors)
    if index is not None:
        save(BucketIndex(codes.shape[1]).add(codes, **given), index)
    else:
        with opened(index, store, collection, n_bits=codes.shape[1]) as items:
            if len(items):
                raise InvalidInput(
                    f"{collection} already holds {len(items)} items; add to it with shorthash index add, or choose "
                    "another --collection."
                )
            items.add(codes, **given)
    show_filled(index, store, collection, len(codes), as_json)
