"""The schema of requests and answers, exact for one collection: lengths of vectors and ranges of codes included."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from shorthash.images import Collection
from shorthash.store.items import LONGEST
from shorthash.web.queries import INT64, LARGEST, K
from shorthash.web.settings import Settings

__all__ = [
    "Added",
    "BucketList",
    "BucketPage",
    "Health",
    "ItemInfo",
    "Problem",
    "SearchAnswer",
    "add_request",
    "problems",
    "search_request",
]

Id = Annotated[int | str, Field(description="Integer or string, as it was added.", examples=[17])]
Code = Annotated[int, Field(ge=0, description="The code as an integer; bit 0 is the lowest.", examples=[90])]
Bits = Annotated[str, Field(pattern="^[01]+$", description="The code as zeros and ones, highest bit first.")]
Label = Annotated[int | str | None, Field(description="Class; several are joined by ';'.", examples=["cat"])]
Thumbnail = Annotated[
    str | None, Field(description="Address of a JPEG; null if the item is no image.", examples=["/thumbnails/0a1b.jpg"])
]


class _Exact(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Problem(_Exact):
    """What went wrong."""

    detail: str = Field(description="One sentence: what, which rule, and the way out.")


class QueryCode(_Exact):
    """The code of the query."""

    code: Code
    bits: Bits


class ItemInfo(_Exact):
    """An item."""

    id: Id
    label: Label
    name: str = Field(description="What it is called; empty without a name.", examples=["cat/1.jpg"])
    code: Code
    bits: Bits
    thumbnail: Thumbnail


class Neighbour(ItemInfo):
    """An item that was found."""

    distance: int = Field(ge=0, le=64, description="Bits that differ from the query.")
    score: float | None = Field(description="Cosine between the vectors if re-ranked, else null.")


class Ring(_Exact):
    """Items at one distance."""

    distance: int = Field(ge=0, le=64)
    items: list[Neighbour] = Field(description="Bucket by bucket, or best first where they were re-ranked.")


class SearchAnswer(_Exact):
    """Neighbours of a query."""

    query: QueryCode
    n_bits: int = Field(ge=1, le=64)
    count: int = Field(ge=0, description="Items in all groups.")
    groups: list[Ring] = Field(description="By increasing distance.")
    ring_sizes: list[int] = Field(description="How many items of the collection lie at distance 0, 1, ..., n_bits.")
    seconds: float = Field(ge=0, description="What the search took on the server.")


class Duplicate(_Exact):
    """An image that is there already."""

    name: str
    id: Id


class Failure(_Exact):
    """An image that could not be used."""

    name: str
    reason: str


class Added(_Exact):
    """What became of new items."""

    added: list[Id] = Field(description="Ids of the new items, in order; they are on disk.")
    duplicates: list[Duplicate] = Field(description="Images whose content is there already.")
    failed: list[Failure] = Field(description="Images that could not be used.")
    detail: str | None = Field(default=None, description="One sentence where nothing was added; else missing.")


class BucketSize(_Exact):
    """A bucket."""

    code: Code
    load: int = Field(ge=0, description="How many items share the code.")
    classes: dict[str, int] = Field(description="Class -> how many, most frequent first.")


class BucketList(_Exact):
    """Codes that occur."""

    n_bits: int
    count: int = Field(description="Codes that occur in all.")
    buckets: list[BucketSize] = Field(description="By code, ascending.")


class BucketPage(BucketSize):
    """A bucket with some of its items."""

    bits: Bits
    offset: int
    items: list[ItemInfo] = Field(description="From offset on, by id.")


class Health(_Exact):
    """That the server lives."""

    status: str = Field(examples=["ok"])
    items: int
    n_bits: int
    n_features: int
    takes_images: bool = Field(description="Whether images can be sent.")
    writable: bool = Field(description="Whether items can be added and removed, given the token.")


REASONS = {
    400: "The body cannot be parsed.",
    401: "The token is missing or wrong.",
    403: "Nobody may write here.",
    404: "There is no such thing here.",
    408: "The request did not arrive in time.",
    409: "An id is taken.",
    413: "The body is too long.",
    415: "The content type is none of those listed.",
    421: "The server does not answer to that name.",
    422: "A value breaks a rule.",
    429: "Too many requests; Retry-After tells when to come back.",
    503: "The server is busy, or it took too long.",
}


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Declared errors of a route; those of the door come along."""
    return {code: {"model": Problem, "description": REASONS[code]} for code in sorted({*codes, 421, 429, 503})}


def search_request(collection: Collection, settings: Settings) -> dict[str, Any]:
    """The body of POST /search."""
    extent = _extent(collection, settings)
    kinds = {
        "vector": _vector(collection),
        "id": {**_id(), "description": "An item; it is not among its own neighbours."},
        "code": _code(collection),
    }
    variants = [
        {"type": "object", "additionalProperties": False, "required": [kind], "properties": {kind: schema, **extent}}
        for kind, schema in kinds.items()
    ]
    content: dict[str, Any] = {
        "application/json": {
            "schema": {"oneOf": variants},
            "examples": {
                "by id": {"value": {"id": _some_id(collection), "k": 5, "radius": 2}},
                "by code": {"value": {"code": 0, "k": 5}},
            },
        }
    }
    if collection.takes_images:
        form = {"image": {**_file(), "description": "One image file."}, **extent}
        schema = {"type": "object", "additionalProperties": False, "required": ["image"], "properties": form}
        content["multipart/form-data"] = {"schema": schema}
    return {"requestBody": {"required": True, "content": content}}


def add_request(collection: Collection, settings: Settings) -> dict[str, Any]:
    """The body of POST /items."""
    text = {"type": "string", "maxLength": LONGEST}
    item = {
        "type": "object",
        "additionalProperties": False,
        "required": ["vector"],
        "properties": {
            "id": {**_id(), "description": "New; all items bring one, or none does, and they are numbered on."},
            "vector": _vector(collection),
            "label": _label(),
            "name": {**text, "description": f"What to call it, {LONGEST} bytes at most."},
        },
    }
    items = {"type": "array", "minItems": 1, "maxItems": settings.max_items, "items": item}
    body = {"type": "object", "additionalProperties": False, "required": ["items"], "properties": {"items": items}}
    content: dict[str, Any] = {"application/json": {"schema": body}}
    if collection.takes_images:
        images = {"type": "array", "minItems": 1, "maxItems": settings.max_images, "items": _file()}
        form = {"image": {**images, "description": "Image files; repeat the field."}, "label": {**text, "minLength": 1}}
        schema = {"type": "object", "additionalProperties": False, "required": ["image"], "properties": form}
        content["multipart/form-data"] = {"schema": schema}
    return {"requestBody": {"required": True, "content": content}}


def _extent(collection: Collection, settings: Settings) -> dict[str, Any]:
    radius = {"type": "integer", "minimum": 0, "maximum": collection.n_bits}
    return {
        "k": {
            "type": "integer",
            "minimum": 1,
            "maximum": settings.max_k,
            "default": K,
            "description": "How many neighbours to find.",
        },
        "radius": {
            "anyOf": [radius, {"type": "null"}],
            "default": None,
            "description": "Largest Hamming distance; null: as far as k items reach, and 2 if re-ranked.",
        },
        "rerank": {
            "type": "boolean",
            "default": False,
            "description": "Order by cosine between vectors: the best k of all items within the radius.",
        },
    }


def _vector(collection: Collection) -> dict[str, Any]:
    n = collection.n_features
    number = {"type": "number", "minimum": -LARGEST, "maximum": LARGEST}
    return {"type": "array", "minItems": n, "maxItems": n, "items": number, "description": f"{n} features."}


def _id() -> dict[str, Any]:
    return {
        "anyOf": [
            {"type": "integer", "minimum": -INT64, "maximum": INT64 - 1},
            {"type": "string", "minLength": 1, "maxLength": LONGEST},
        ]
    }


def _label() -> dict[str, Any]:
    return {"anyOf": [*_id()["anyOf"], {"type": "null"}], "description": "Class; several are joined by ';'."}


def _code(collection: Collection) -> dict[str, Any]:
    n = collection.n_bits
    return {
        "anyOf": [
            {"type": "integer", "minimum": 0, "maximum": (1 << n) - 1},
            {"type": "string", "pattern": f"^[01]{{{n}}}$"},
        ],
        "description": "A code as an integer, or as zeros and ones, highest bit first.",
    }


def _file() -> dict[str, Any]:
    return {"type": "string", "format": "binary"}


def _some_id(collection: Collection) -> int | str:
    return collection.ids[0].item() if len(collection) else 0
