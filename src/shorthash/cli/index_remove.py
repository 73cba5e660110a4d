"""shorthash index remove: items go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from shorthash.cli import output
from shorthash.cli.index_place import Collection, Index, StoreUrl, opened, place_name
from shorthash.cli.options import AsJson, option, optional

__all__ = ["remove"]


def remove(
    given: Annotated[list[str] | None, optional("[ID]...", "Ids of the items to remove.")] = None,
    ids: Annotated[Path | None, option("--ids", metavar="FILE", text="Or a file of ids.")] = None,
    index: Index = None,
    store: StoreUrl = None,
    collection: Collection = "items",
    as_json: AsJson = False,
) -> None:
    """Remove items, all or none; an id that is not there is an error.

    \b
    Examples:
      shorthash index remove 3 17 --index items.index
      shorthash index remove --ids gone.csv --store sqlite:///items.db
    """
    from shorthash.data.files import read_labels
    from shorthash.errors import InvalidInput

    if (ids is None) == (not given):
        raise InvalidInput("Give ids to remove, or --ids FILE, one of the two.")
    with opened(index, store, collection, change=True) as items:
        strings = items.ids.dtype.kind == "U"
        wanted: Any = _as_ids(given or [], strings) if ids is None else read_labels(ids)
        items.remove(wanted)
        data: dict[str, Any] = {"place": place_name(index, store), "n_removed": len(wanted), "n_items": len(items)}
    facts = {"index": data["place"], "removed": str(data["n_removed"]), "items": str(data["n_items"])}
    output.show(output.Answer(data, facts), as_json=as_json)


def _as_ids(given: list[str], strings: bool) -> list[str] | list[int]:
    """Ids from the command line, in the kind that the index has."""
    from shorthash.errors import InvalidInput

    try:
        return given if strings else [int(word) for word in given]
    except ValueError as error:
        raise InvalidInput(f"The ids of this index are integers. Got {' '.join(given)} instead.") from error
