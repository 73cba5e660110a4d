"""shorthash index stats: what an index holds, and whether its file is sound."""

from __future__ import annotations

from typing import Annotated, Any

from shorthash.cli import output
from shorthash.cli.index_place import Collection, Index, StoreUrl, check_one_place, opened, place_name
from shorthash.cli.options import AsJson, flag

__all__ = ["stats"]


def stats(
    index: Index = None,
    store: StoreUrl = None,
    collection: Collection = "items",
    check: Annotated[bool, flag("--check", "Also check every byte of the file against its checksums.")] = False,
    as_json: AsJson = False,
) -> None:
    """Tell what an index holds, and how its items are spread over the codes.

    \b
    Example:
      shorthash index stats --index items.index --check
    """
    from shorthash.errors import InvalidInput
    from shorthash.persistence import verify

    check_one_place(index, store)
    if check and index is None:
        raise InvalidInput("--check looks at the file of an --index; a store checks its own pages.")
    if check and index is not None:
        verify(index)
    with opened(index, store, collection, check=False) as items:
        _, sizes = items.buckets()
        data = {
            "place": place_name(index, store),
            "class": type(items).__name__,
            "n_items": len(items),
            "n_bits": items.n_bits,
            "dimension": getattr(items, "dimension", None),
            "string_ids": items.ids.dtype.kind == "U",
            "occupied_codes": len(sizes),
            "possible_codes": 2**items.n_bits,
            "largest_bucket": int(sizes.max(initial=0)),
            "bytes": index.stat().st_size if index is not None else None,
            "checked": check,
        }
    output.show(output.Answer(data, _facts(data)), as_json=as_json)


def _facts(data: dict[str, Any]) -> dict[str, str]:
    used = 100 * data["occupied_codes"] / data["possible_codes"]
    facts = {
        "index": data["place"],
        "class": data["class"],
        "items": str(data["n_items"]),
        "bits": str(data["n_bits"]),
        "ids": "strings" if data["string_ids"] else "integers",
        "codes in use": f"{data['occupied_codes']} of {data['possible_codes']} ({used:.3g} %)",
        "largest bucket": f"{data['largest_bucket']} items",
    }
    if data["dimension"] is not None:
        facts["vectors"] = f"dimension {data['dimension']}"
    if data["bytes"] is not None:
        facts["size"] = f"{data['bytes']} bytes"
    if data["checked"]:
        facts["checked"] = "every byte is as it was written"
    return facts
