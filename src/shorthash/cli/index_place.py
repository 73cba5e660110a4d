"""Where the items of shorthash index are: in a file, or in a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from shorthash.cli.options import option

__all__ = [
    "Collection",
    "Index",
    "IndexModel",
    "RowBits",
    "StoreUrl",
    "check_one_place",
    "load_index",
    "opened",
    "place_name",
]

Index = Annotated[Path | None, option("--index", metavar="FILE", text="The index, in a file.")]
StoreUrl = Annotated[
    str | None, option("--store", metavar="URL", text="Or in a store: sqlite:///FILE or postgresql://...")
]
Collection = Annotated[str, option("--collection", metavar="NAME", text="Collection of the store.", default=True)]
IndexModel = Annotated[
    Path | None, option("--model", metavar="MODEL", text="Model that encodes the rows; without it rows are codes.")
]
RowBits = Annotated[
    int | None, option("--bits", metavar="N", text="Length of packed codes, where their file does not tell.")
]


def check_one_place(index: Path | None, store: str | None) -> None:
    """Raise unless exactly one of the two was given."""
    if (index is None) == (store is None):
        raise typer.BadParameter("give --index or --store, one of the two", param_hint="--index")


def place_name(index: Path | None, store: str | None) -> str:
    """What to call the place in an answer; passwords stay unsaid."""
    if store is None:
        return str(index)
    scheme, _, rest = store.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


@contextmanager
def opened(
    index: Path | None,
    store: str | None,
    collection: str,
    *,
    n_bits: int | None = None,
    change: bool = False,
    check: bool = True,
) -> Iterator[Any]:
    """The items, to read or to change; a file is saved at the end.

    Parameters
    ----------
    index, store, collection : the place
    n_bits : length of the codes of a new collection
    change : whether the items will be changed; a file is otherwise not copied into memory
    check : whether to check every byte of a file first; what is changed is always checked
    """
    check_one_place(index, store)
    if store is not None:
        from shorthash.store import open_store

        with open_store(store, n_bits, collection=collection) as items:
            yield items
        return
    from shorthash.persistence import save

    assert index is not None
    items = load_index(index, mmap=not change)
    if check:
        items.verify()
    yield items
    if change:
        save(items, index)


def load_index(path: Path, *, mmap: bool = False) -> Any:
    """An index in a file; a model is an error."""
    from shorthash.errors import InvalidInput
    from shorthash.persistence import describe, load

    holds = describe(path)
    if holds["kind"] != "index":
        raise InvalidInput(
            f"{path} holds {holds['class']}, but an index is needed; make one with shorthash index build."
        )
    return load(path, mmap=mmap)
