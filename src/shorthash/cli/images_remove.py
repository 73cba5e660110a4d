"""shorthash images remove: items go."""

from __future__ import annotations

from typing import Annotated

from shorthash.cli import output
from shorthash.cli.images_options import CollectionFolder
from shorthash.cli.options import AsJson, argument

__all__ = ["remove"]


def remove(
    model: CollectionFolder,
    ids: Annotated[list[str], argument("ID...", "Ids of the items to remove.")],
    as_json: AsJson = False,
) -> None:
    """Remove items with their thumbnails, all or none; an id that is not there is an error.

    \b
    Example:
      shorthash images remove photos.model 3 17
    """
    from shorthash.errors import InvalidInput
    from shorthash.images import Collection

    with Collection.open(model) as collection:
        numbers = collection.ids.dtype.kind == "i"
        if numbers and not all(word.isdecimal() for word in ids):
            raise InvalidInput(f"The ids of this collection are whole numbers. Got {' '.join(ids)} instead.")
        collection.remove([int(word) for word in ids] if numbers else ids)
        n_items = len(collection)
    data = {"model": str(model), "n_removed": len(ids), "n_items": n_items}
    facts = {"model": str(model), "removed": str(len(ids)), "items": str(n_items)}
    output.show(output.Answer(data, facts), as_json=as_json)
