"""shorthash images search: an image, or an item, becomes its neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from shorthash.cli import output
from shorthash.cli.images_options import CollectionFolder
from shorthash.cli.options import AsJson, argument, flag, option

if TYPE_CHECKING:
    from shorthash.images import Collection, Found, Item

__all__ = ["search"]


def search(
    model: CollectionFolder,
    query: Annotated[str, argument("IMAGE|ID", "An image file, or the id of an item.")],
    k: Annotated[int, option("-k", metavar="N", text="How many neighbours to find.", default=True)] = 10,
    radius: Annotated[int | None, option("--radius", metavar="N", text="None farther than this distance.")] = None,
    rerank: Annotated[bool, flag("--rerank", "Rank all within the radius (or 2) by their features.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find the images most like one, nearest first by Hamming distance between codes.

    An item is not among its own neighbours.

    \b
    Examples:
      shorthash images search photos.model holiday.jpg -k 5
      shorthash images search photos.model 17 --rerank
    """
    from shorthash.images import Collection

    with Collection.open(model, readonly=True) as collection:
        found = collection.search(**_query(collection, query), k=k, radius=radius, rerank=rerank)
        items = collection.items(found.ids)
    output.show(_answer(found, items), as_json=as_json)


def _query(collection: Collection, text: str) -> dict[str, Any]:
    """An image if there is such a file, else an id."""
    from shorthash.errors import InvalidInput

    if Path(text).is_file():
        return {"image": text}
    item: int | str = int(text) if text.isdecimal() and collection.ids.dtype.kind == "i" else text
    if item not in collection:
        raise InvalidInput(f"{text} is neither an image file nor the id of an item; check the path.")
    return {"id": item}


def _answer(found: Found, items: list[Item]) -> output.Answer:
    from shorthash.lab.tables import Column, Table

    scores = [None] * len(items) if found.scores is None else found.scores.tolist()
    neighbours: list[dict[str, Any]] = [
        {"id": item.id, "distance": distance, "code": item.code, "label": item.label, "name": item.name}
        | ({} if score is None else {"score": score})
        for item, distance, score in zip(items, found.distances.tolist(), scores, strict=True)
    ]
    data = {"code": found.code, "n_bits": found.n_bits, "neighbours": neighbours}
    ranked = found.scores is not None
    columns = [Column("distance"), Column("id"), Column("label", text=True), Column("name", text=True)]
    rows = tuple(
        (hit["distance"], hit["id"], "" if hit["label"] is None else str(hit["label"]), hit["name"])
        + ((f"{hit['score']:.3f}",) if ranked else ())
        for hit in neighbours
    )
    table = Table((*columns, Column("cosine")) if ranked else tuple(columns), rows)
    code = f"{found.code:0{found.n_bits}b} (code {found.code})"
    return output.Answer(
        data, {"query": code}, (table,) if rows else (), () if rows else ("nothing within the radius",)
    )
