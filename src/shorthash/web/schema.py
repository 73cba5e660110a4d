"""Requests and answers of the API: pydantic models, exact for one collection, and how the body of a request is read.

Models of requests check them. Models of answers only describe them, for the OpenAPI schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

import orjson
from fastapi import HTTPException, Request
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, model_validator
from pydantic.json_schema import SkipJsonSchema
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartParser

from shorthash.images import Collection
from shorthash.store.items import LONGEST
from shorthash.web.limits import Settings

Model = TypeVar("Model", bound=BaseModel)
Json = dict[str, Any]

QUERIES = ("vector", "id", "code")
K = 20  # neighbours by default
MOST_PROBES = 10_000  # cells that one search may look up
LARGEST = 1e15  # of a feature; its square still fits float32 many times over
INT64 = 1 << 63
LONGEST_NAME = 120  # characters of a file name that are kept
FEW_BYTES = 1 << 16  # of a body that is always parsed
FIELDS = 16  # values of an item or a search besides its vector, and commas in its texts, about
LONGEST_VALUE = 60  # characters of a wrong value that an error repeats


class Exact(BaseModel):
    """A model without other fields."""

    model_config = ConfigDict(extra="forbid")


# Answers

Id = Annotated[int | str, Field(description="Integer or string, as it was added.", examples=[17])]
Code = Annotated[int, Field(ge=0, description="The code as an integer; bit 0 is the lowest.", examples=[90])]
Bits = Annotated[str, Field(pattern="^[01]+$", description="The code as zeros and ones, highest bit first.")]
Load = Annotated[int, Field(ge=0, description="Number of items with this code.")]
Label = Annotated[int | str | None, Field(description="Class; several are joined by ';'.", examples=["cat"])]
Thumbnail = Annotated[
    str | None,
    Field(description="Address of a JPEG; null if the item is not an image.", examples=["/thumbnails/0a.jpg"]),
]


class Problem(Exact):
    """An error."""

    detail: str = Field(description="One sentence: what is wrong, the rule, and what to do.")


class Coded(Exact):
    """A code in both forms."""

    code: Code
    bits: Bits


class ItemInfo(Coded):
    """An item."""

    id: Id
    label: Label
    name: str = Field(description="Its name; empty without one.", examples=["cat/1.jpg"])
    thumbnail: Thumbnail


class Ranked(Exact):
    """How an item was found."""

    distance: int = Field(ge=0, le=64, description="Bits that differ from the query.")
    score: float | None = Field(description="Cosine or probability of being relevant if re-ranked, else null.")


class Neighbour(ItemInfo, Ranked):
    """An item that was found."""


class Ring(Exact):
    """Items at one distance."""

    distance: int = Field(ge=0, le=64)
    items: list[Neighbour] = Field(description="Bucket by bucket; if re-ranked, best first.")


class Answer(Exact):
    """What every search answers."""

    query: Coded
    n_bits: int = Field(ge=1, le=64)
    count: int = Field(ge=0, description="Items found.")
    looked_up: list[int] = Field(description="Codes of the cells that were looked up, in order.")
    expected_precision: float | None = Field(description="Expected share of relevant items; null without posteriors.")
    seconds: float = Field(ge=0, description="Duration of the search on the server.")


class SearchAnswer(Answer):
    """Neighbours of a query."""

    groups: list[Ring] = Field(description="By increasing distance.")
    ring_sizes: list[int] = Field(description="Number of items of the collection at distance 0, 1, ..., n_bits.")


class Duplicate(Exact):
    """An image that is already in the collection."""

    name: str
    id: Id


class Failure(Exact):
    """An image that could not be used."""

    name: str
    reason: str


class Added(Exact):
    """The result of adding items."""

    added: list[Id] = Field(description="Ids of the new items, in order; they are on disk.")
    duplicates: list[Duplicate] = Field(description="Images whose content is already in the collection.")
    failed: list[Failure] = Field(description="Images that could not be used.")
    detail: str | None = Field(default=None, description="One sentence if nothing was added; else missing.")


class BucketSize(Exact):
    """A bucket."""

    code: Code
    load: Load
    classes: dict[str, int] = Field(description="Class -> number of items, most frequent first.")


class BucketList(Exact):
    """Codes that occur."""

    n_bits: int
    count: int = Field(description="Number of all codes that occur.")
    buckets: list[BucketSize] = Field(description="By code, ascending.")


class BucketPage(Coded, BucketSize):
    """A bucket with some of its items."""

    offset: int
    items: list[ItemInfo] = Field(description="From offset on, by id.")


class State(Exact):
    """The state of every server."""

    status: str = Field(examples=["ok"])
    n_bits: int
    n_features: int


class Health(State):
    """The state of a server for a collection."""

    items: int
    takes_images: bool = Field(description="Whether images can be sent.")
    writable: bool = Field(description="Whether items can be added and removed with the token.")


class StoredItem(Coded):
    """An item of a store."""

    id: Id
    label: Label
    metadata: dict[str, Any] | None = Field(description="What was stored with it.")


class Hit(StoredItem, Ranked):
    """An item that was found."""


class StoredAnswer(Answer):
    """The best items of a query."""

    items: list[Hit] = Field(description="Best first.")
    looked_at: int = Field(ge=0, description="Items in the cells that were looked up.")


class StoredCell(Coded):
    """The items that share a code."""

    load: Load
    offset: int
    items: list[StoredItem] = Field(description="From offset on, by id.")


class StoredHealth(State):
    """The state of a server over a store."""

    collection: str
    version: str = Field(description="Whose codes are searched; the model of the server made them.")
    current_version: str = Field(description="What the store opens by default: another one after a migration.")


REASONS = {
    400: "The body cannot be parsed.",
    401: "The token is missing or wrong.",
    403: "The collection is read-only.",
    404: "It does not exist.",
    408: "The request did not arrive in time.",
    409: "An id is already used.",
    413: "The body is too long.",
    415: "The content type is not one of those listed.",
    421: "The server does not answer to this host name.",
    422: "A value breaks a rule.",
    429: "Too many requests; see Retry-After.",
    503: "The server is busy, or the request took too long.",
}


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The declared errors of a route, and those of the middleware."""
    return {code: {"model": Problem, "description": REASONS[code]} for code in sorted({*codes, 421, 429, 503})}


# Requests


def _storable(value: Any) -> Any:
    """A value that every database takes."""
    if isinstance(value, str) and (len(value.encode()) > LONGEST or "\0" in value):
        raise ValueError(f"Text may have at most {LONGEST} bytes and no NUL character")
    return value


Number = Annotated[float, Field(strict=True, ge=-LARGEST, le=LARGEST)]
Integer = Annotated[int, Field(strict=True, ge=-INT64, le=INT64 - 1)]
Text = Annotated[str, Field(min_length=1, max_length=LONGEST)]
Key = Annotated[Integer | Text, AfterValidator(_storable)]
Nothing = SkipJsonSchema[None]  # null means the same as no value, but clients need not send it


class Relabel(Exact):
    """Another label of an item."""

    label: Key | None = Field(description="Class; several are joined by ';'; null: none.")


class RequestModels(NamedTuple):
    """The models of requests to one server.

    Attributes
    ----------
    options : how many neighbours to find, how far, and in which order
    search : a search by vector, id or code, with options
    stored : the same for a server over a store
    add : items to add
    """

    options: type[Any]
    search: type[Any]
    stored: type[Any]
    add: type[Any]


def _as_order(value: Any) -> Any:
    """A form has texts, also for true and false; 1 is not true."""
    words = {"true": True, "false": False}
    return value if isinstance(value, bool) else words.get(str(value).lower(), str(value))


def request_models(n_features: int, n_bits: int, settings: Settings) -> RequestModels:
    """Models with the limits of one collection: length of vectors, range of codes, numbers of items."""
    features = Field(min_length=n_features, max_length=n_features, description=f"{n_features} features.")
    largest, pattern = (1 << n_bits) - 1, f"^[01]{{{n_bits}}}$"

    scalar = str | int | float | bool | None

    class Reach(Exact):
        k: StrictInt = Field(K, ge=1, le=settings.max_k, description="How many neighbours to find.")
        radius: StrictInt | None = Field(
            None, ge=0, le=n_bits, description="Largest Hamming distance; null: no limit, or 2 if re-ranked."
        )
        probes: Annotated[StrictInt, Field(ge=1, le=MOST_PROBES)] | Literal["auto"] | None = Field(
            None,
            description="Number of cells to look up, best expected shares of relevant items first; not with a radius.",
        )

        @model_validator(mode="after")
        def _check_probes(self) -> Self:
            if self.probes is not None and self.radius is not None:
                raise ValueError("A search takes probes or a radius. Got both; leave one out")
            return self

    class Options(Reach):
        rerank: Annotated[Literal["cosine", "posterior", True, False], BeforeValidator(_as_order)] = Field(
            False,
            description="Order by cosine (or true), or by posterior: the best k of all items within the radius, or in "
            "the cells that were looked up.",
        )

    class Query(Exact):
        vector: Annotated[list[Number], features] | Nothing = None
        id: Key | Nothing = Field(None, description="An item; it is not among its own neighbours.")
        code: (
            Annotated[StrictInt, Field(ge=0, le=largest)]
            | Annotated[str, Field(pattern=pattern), AfterValidator(lambda text: int(text, 2))]
            | Nothing
        ) = Field(None, description="A code as an integer, or as zeros and ones, highest bit first.")

        @model_validator(mode="after")
        def _check_query(self) -> Self:
            given = [name for name in QUERIES if getattr(self, name) is not None]
            if len(given) != 1:
                got = " and ".join(given) or "none"
                raise ValueError(f"A search by JSON takes exactly one of vector, id and code. Got {got}")
            if self.code is not None and getattr(self, "probes", None) is not None:
                raise ValueError("Probes are chosen by features, and a code has none; search by vector or id")
            if self.code is not None and getattr(self, "rerank", None):
                raise ValueError("Re-ranking compares vectors, and a code has none; search by vector or id")
            return self

    class Search(Options, Query):
        pass

    class StoredSearch(Reach, Query):
        rerank: Literal["posterior", "cosine"] | None = Field(None, description="What to order the items by.")
        where: dict[str, scalar | list[scalar]] | None = Field(
            None, description="Fields of the metadata, or class, and the values that they may have."
        )

    class Item(Exact):
        vector: Annotated[list[Number], features]
        id: Key | Nothing = Field(None, description="New. Either all items have one, or none, and they are numbered.")
        label: Key | None = Field(None, description="Class; several are joined by ';'.")
        name: Annotated[str, Field(max_length=LONGEST), AfterValidator(_storable)] | Nothing = ""

    class Add(Exact):
        items: list[Item] = Field(min_length=1, max_length=settings.max_items)

        @model_validator(mode="after")
        def _check_ids(self) -> Self:
            ids = [item.id for item in self.items if item.id is not None]
            if len(ids) not in (0, len(self.items)):
                raise ValueError(
                    f"Either all items have an id, or none. Got {len(ids)} ids for {len(self.items)} items"
                )
            if len(set(ids)) < len(ids) or len(set(map(type, ids))) > 1:
                raise ValueError("The ids of new items must be different, and all integers or all strings")
            return self

    return RequestModels(Options, Search, StoredSearch, Add)


def request_bodies(models: RequestModels, collection: Collection, settings: Settings) -> tuple[Json, Json]:
    """OpenAPI descriptions of the bodies of POST /search and POST /items."""
    fields = models.search.model_json_schema()["properties"]
    options = {name: fields[name] for name in models.options.model_fields}
    by_kind = [_object({kind: fields[kind], **options}, kind) for kind in QUERIES]
    examples = {
        "by id": {"value": {"id": collection.ids[0].item() if len(collection) else 0, "k": 5, "radius": 2}},
        "by code": {"value": {"code": 0, "k": 5}},
    }
    image = {"type": "string", "format": "binary", "description": "An image file."}
    search: Json = {"application/json": {"schema": {"oneOf": by_kind}, "examples": examples}}
    adding = models.add.model_json_schema()
    items = {**adding["properties"]["items"], "items": _object(adding["$defs"]["Item"]["properties"], "vector")}
    add: Json = {"application/json": {"schema": _object({"items": items}, "items")}}
    if collection.takes_images:
        images = {"type": "array", "minItems": 1, "maxItems": settings.max_images, "items": image}
        label = {"type": "string", "minLength": 1, "maxLength": LONGEST, "description": "Class of all images."}
        search["multipart/form-data"] = {"schema": _object({"image": image, **options}, "image")}
        add["multipart/form-data"] = {"schema": _object({"image": images, "label": label}, "image")}
    return body_of(search), body_of(add)


def body_of(content: Json) -> Json:
    """OpenAPI description of a body, by content type."""
    return {"requestBody": {"required": True, "content": content}}


def json_body(model: type[BaseModel]) -> Json:
    """The same for a body in JSON."""
    return body_of({"application/json": {"schema": model.model_json_schema()}})


def _object(properties: Json, required: str) -> Json:
    return {"type": "object", "additionalProperties": False, "required": [required], "properties": properties}


def broken_rule(errors: Sequence[Mapping[str, Any]]) -> str:
    """The first broken rule as one sentence, from the errors of pydantic.

    Examples
    --------
    >>> broken_rule([{"type": "x", "loc": ("k",), "msg": "Input should be greater than or equal to 1", "input": 0}])
    'k must be greater than or equal to 1. Got 0.'
    """
    first = errors[0]
    field = _field(first)
    if first["type"] == "value_error":
        return f"{first['ctx']['error']}."
    if first["type"] == "missing":
        return f"{field} is missing; see /openapi.json."
    if first["type"] == "extra_forbidden":
        return f"{field} is not a field of this request; see /openapi.json."
    if first["type"] == "model_type":
        rules = "must be a JSON object"
    else:  # of a union, every member has an error
        rules = " or ".join(dict.fromkeys(_rule(error) for error in errors if _field(error) == field))
    return f"{field} {rules}. Got {shortened(first['input'])}."


def _field(error: Mapping[str, Any]) -> str:
    """The name of a field, without its place in the request and the members of unions."""
    place = [str(part) for part in error["loc"] if part not in ("body", "path", "query", "int", "str")]
    return ".".join(part for part in place if part.replace("_", "").isalnum()) or "The body"


def _rule(error: Mapping[str, Any]) -> str:
    rule = str(error["msg"]).partition(", unable to")[0].replace(" after validation", "")
    return re.sub(r"^\w+ should ", "must ", rule)


def shortened(value: Any) -> str:
    """A value, shortened to fit a sentence."""
    if isinstance(value, list | dict):
        return f"a list of {len(value)}" if isinstance(value, list) else "an object"
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."


# Bodies


def content_type(request: Request, takes_images: bool) -> str:
    """Either "json" or "form"; 415 for everything else."""
    given = request.headers.get("content-type", "")
    kind, _, parameters = given.partition(";")
    kind = kind.strip().lower()
    charset = re.search(r'charset="?([^\s";]+)', parameters.lower())
    if kind == "application/json" and (charset is None or charset.group(1) in ("utf-8", "utf8", "us-ascii")):
        return "json"
    if kind == "multipart/form-data" and takes_images:
        return "form"
    known = "application/json (UTF-8)" + (" or multipart/form-data" if takes_images else "")
    note = "" if takes_images or kind != "multipart/form-data" else ", since this collection takes vectors, not images"
    raise HTTPException(415, f"The content type must be {known}{note}. Got {given[:60] or 'none'!r}.")


async def read_json(request: Request, model: type[Model], most: int) -> Model:
    """The body of a request, checked; 400 if it is not JSON, 413 if it has more than ``most`` values.

    Values are counted before they are parsed: a parser stops everything else meanwhile.
    """
    body = await request.body()
    if len(body) > FEW_BYTES and sum(body.count(mark) for mark in (b",", b"[", b"{")) > most:
        raise HTTPException(413, f"The body has more than {most} values, which this request cannot use; send less.")
    try:
        values = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise HTTPException(400, f"The body must be JSON ({str(error)[:120]}); check its syntax.") from None
    return model.model_validate(values)


async def read_form(
    request: Request, known: Sequence[str], most: int
) -> tuple[list[tuple[str, bytes]], dict[str, str]]:
    """The images (name and bytes) and the other fields of a multipart body.

    Parameters
    ----------
    request : its body is read
    known : names of the other fields; each may occur once
    most : number of images allowed; at least one is needed
    """
    images: list[tuple[str, bytes]] = []
    texts: dict[str, str] = {}
    try:
        form = await request.form(max_files=most + 1, max_fields=10)
    except LookupError:
        raise HTTPException(400, "The form cannot be read, since its charset is unknown; use UTF-8.") from None
    try:
        for field, value in form.multi_items():
            if field == "image" and isinstance(value, UploadFile):
                images.append((base_name(value.filename), await value.read()))
            elif field == "image":
                raise HTTPException(422, "The field image must be a file with a file name; in curl: -F image=@cat.jpg")
            elif field not in known or isinstance(value, UploadFile):
                raise HTTPException(422, f"The field {field[:60]!r} is unknown; known are image, {', '.join(known)}.")
            elif field in texts:
                raise HTTPException(422, f"The field {field!r} occurs twice; send it once.")
            else:
                texts[field] = value
    finally:
        await form.close()
    if not 1 <= len(images) <= most:
        allowed = "one file" if most == 1 else f"1 to {most} files"
        raise HTTPException(422, f"The form must have {allowed} in the field image. Got {len(images)}.")
    return images, texts


def keep_in_memory(max_body: int) -> None:
    """Keep Starlette from writing forms to temporary files: a body is small enough for memory, and leaves no traces."""
    MultiPartParser.spool_max_size = max(MultiPartParser.spool_max_size, max_body + 1)


def base_name(given: str | None) -> str:
    r"""The name of an uploaded file, without folders and unprintable characters.

    Examples
    --------
    >>> base_name("../../etc/passwd"), base_name("C:\\Users\\me\\cat.jpg"), base_name(None)
    ('passwd', 'cat.jpg', 'image')
    """
    name = re.split(r"[/\\]", given or "")[-1]
    clean = "".join(c for c in name if c.isprintable()).strip().lstrip(".")[:LONGEST_NAME]
    return clean.encode("utf-8", "ignore").decode() or "image"
