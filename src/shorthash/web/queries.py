"""What a request asks for, checked by hand: lists of numbers are long, and numpy looks at them fastest."""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import orjson
from fastapi import HTTPException
from numpy.typing import NDArray

from shorthash.store.items import LONGEST
from shorthash.web.settings import Settings

__all__ = ["LARGEST", "K", "NewItems", "Query", "as_vector", "parsed", "read_label", "read_new_items", "read_query"]

K = 20  # neighbours where nobody says how many
LARGEST = 1e15  # of a feature; its square still fits float32, many times over
INT64 = 1 << 63
NUMBERS = frozenset({int, float})
KINDS = ("vector", "id", "code")
FIELDS = {*KINDS, "k", "radius", "rerank"}


@dataclass(frozen=True, slots=True)
class Query:
    """One search.

    Attributes
    ----------
    kind : "vector", "id", "code" or "image"
    value : float32 array, id, packed code, or bytes
    k, radius, rerank : as ``Collection.search`` takes them
    """

    kind: str
    value: Any
    k: int
    radius: int | None
    rerank: bool


@dataclass(frozen=True, slots=True)
class NewItems:
    """Vectors to add; ids, labels and names as ``Collection.add_vectors`` takes them."""

    vectors: NDArray[np.float32]
    ids: list[Any] | None
    labels: list[Any]
    names: list[str]


def refuse(sentence: str) -> NoReturn:
    """Answer 422 with a sentence."""
    raise HTTPException(422, sentence)


def parsed(body: bytes) -> Any:
    """JSON as plain values; 400 if it is none."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise HTTPException(400, f"The body must be JSON ({str(error)[:120]}); check its syntax.") from None
    except RecursionError:
        raise HTTPException(400, "The body must be JSON of reasonable depth; send what the schema shows.") from None


def read_query(data: Any, n_features: int, n_bits: int, settings: Settings) -> Query:
    """A search from JSON."""
    if not isinstance(data, dict):
        refuse('The body must be a JSON object such as {"id": 17, "k": 20}.')
    _check_fields(data, FIELDS, "A search")
    kinds = [kind for kind in KINDS if data.get(kind) is not None]
    if len(kinds) != 1:
        got = " and ".join(kinds) or "none"
        refuse(f"A search by JSON takes exactly one of vector, id and code. Got {got}; images come as multipart.")
    kind = kinds[0]
    value = data[kind]
    if kind == "vector":
        value = as_vector(value, n_features)
    elif kind == "id":
        value = read_id(value)
    else:
        value = read_code(value, n_bits)
    if kind == "code" and data.get("rerank"):
        refuse("Re-ranking compares vectors, and a code is none; search by vector, id or image.")
    return Query(kind, value, *read_extent(data, n_bits, settings))


def read_extent(data: Mapping[str, Any], n_bits: int, settings: Settings) -> tuple[int, int | None, bool]:
    """k, radius and rerank, of JSON."""
    k, radius, rerank = data.get("k", K), data.get("radius"), data.get("rerank", False)
    if type(k) is not int or not 1 <= k <= settings.max_k:
        refuse(f"k must be an integer from 1 to {settings.max_k}. Got {_short(k)}.")
    if radius is not None and (type(radius) is not int or not 0 <= radius <= n_bits):
        refuse(f"radius must be null or an integer from 0 to {n_bits}. Got {_short(radius)}.")
    if type(rerank) is not bool:
        refuse(f"rerank must be true or false. Got {_short(rerank)}.")
    return k, radius, rerank


def read_texts(texts: Mapping[str, str]) -> dict[str, Any]:
    """k, radius and rerank as forms and addresses write them; what cannot be read stays text, and is refused later."""
    words: dict[str, Any] = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False, "": False}
    values: dict[str, Any] = {}
    for name, text in texts.items():
        if name == "rerank":
            values[name] = words.get(text.lower(), text)
        elif name == "radius" and text.lower() in ("", "null"):
            values[name] = None
        else:
            values[name] = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else text
    return values


def as_vector(value: Any, n_features: int, what: str = "vector") -> NDArray[np.float32]:
    """A list of numbers as float32; everything else is refused."""
    if not isinstance(value, list) or len(value) != n_features:
        got = f"{len(value)} entries" if isinstance(value, list) else _short(value)
        refuse(f"{what} must be a list of {n_features} numbers. Got {got}.")
    if not NUMBERS.issuperset(map(type, value)):
        bad = next(entry for entry in value if type(entry) not in NUMBERS)
        refuse(f"{what} must hold nothing but numbers. Got {_short(bad)}.")
    row = np.array(value, dtype=np.float64)
    if n_features and not np.abs(row).max() <= LARGEST:
        refuse(f"{what} must hold numbers between -{LARGEST:g} and {LARGEST:g}; scale the features.")
    return row.astype(np.float32)


def read_id(value: Any) -> int | str:
    """An id: an integer, or a string."""
    if type(value) is int and -INT64 <= value < INT64:
        return value
    if isinstance(value, str):
        return _text(value, "An id", least=1)
    return refuse(f"An id must be an integer of 64 bits, or a string. Got {_short(value)}.")


def read_code(value: Any, n_bits: int) -> int:
    """A packed code: an integer, or a string of n_bits zeros and ones, which also JavaScript can write exactly."""
    if isinstance(value, str) and len(value) == n_bits and not set(value) - {"0", "1"}:
        return int(value, 2)
    if type(value) is int and 0 <= value < 1 << n_bits:
        return value
    return refuse(
        f"A code is an integer from 0 to {(1 << n_bits) - 1}, or a string of {n_bits} zeros and ones. Got "
        f"{_short(value)}."
    )


def read_label(value: Any) -> int | str | None:
    """A label: an integer, a string, or null."""
    if value is None or (type(value) is int and -INT64 <= value < INT64):
        return value
    if isinstance(value, str):
        return _text(value, "A label", least=1)
    return refuse(f"A label must be an integer, a string or null. Got {_short(value)}.")


def read_new_items(data: Any, n_features: int, settings: Settings) -> NewItems:
    """Items to add from JSON."""
    if not isinstance(data, dict) or not isinstance(data.get("items"), list):
        refuse('The body must be a JSON object such as {"items": [{"vector": [...], "label": "cat"}]}.')
    _check_fields(data, {"items"}, "The body")
    items = data["items"]
    if not 1 <= len(items) <= settings.max_items:
        refuse(f"items must hold 1 to {settings.max_items} items. Got {len(items)}; send them in parts.")
    for item in items:
        if not isinstance(item, dict):
            refuse(f'An item must be an object such as {{"vector": [...]}}. Got {_short(item)}.')
        _check_fields(item, {"id", "vector", "label", "name"}, "An item")
    with_id = [item for item in items if item.get("id") is not None]
    if len(with_id) not in (0, len(items)):
        refuse(f"Either all items bring an id, or none does. Got {len(with_id)} ids for {len(items)} items.")
    ids = [read_id(item["id"]) for item in with_id] or None
    if ids is not None and (len(set(ids)) < len(ids) or len({type(item) for item in ids}) > 1):
        refuse("The ids of new items must differ from each other, and be all integers or all strings.")
    return NewItems(
        np.stack([as_vector(item.get("vector"), n_features) for item in items]),
        ids,
        [read_label(item.get("label")) for item in items],
        [read_name(item.get("name")) for item in items],
    )


def read_name(value: Any) -> str:
    """A name: a string, or null for none."""
    if value is None:
        return ""
    if not isinstance(value, str):
        refuse(f"A name must be a string. Got {_short(value)}.")
    return _text(value, "A name", least=0)


def _text(value: str, what: str, least: int) -> str:
    """A string that every store takes."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        refuse(f"{what} must be proper Unicode text.")
    if not least <= size <= LONGEST or "\0" in value:
        refuse(f"{what} must have {least} to {LONGEST} bytes and no NUL character. Got {size} bytes.")
    return value


def _check_fields(data: Mapping[str, Any], known: Names[str], what: str) -> None:
    if not data.keys() <= set(known):
        odd = next(name for name in data if name not in known)
        refuse(f"{what} has the fields {', '.join(sorted(known))}. Got {_short(odd)}.")


def _short(value: Any) -> str:
    """A value, as much of it as fits a sentence."""
    text = repr(value) if not isinstance(value, list | dict) else f"a {'list' if isinstance(value, list) else 'object'}"
    return text if len(text) <= 60 else f"{text[:57]}..."
