"""Items as they go into a store and come out of it: id, code, class, metadata, vector."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._types import PackedCodes
from shorthash.codes import packed_dtype
from shorthash.errors import InvalidInput
from shorthash.index.base import HammingIndex
from shorthash.index.items import AnyIds

__all__ = [
    "Items",
    "Rows",
    "as_ids_array",
    "as_vectors",
    "check_rows",
    "from_signed",
    "index_items",
    "merged_items",
    "to_signed",
]

Class = int | str | None

LONGEST = 500  # bytes of an id or a class; B-trees take keys of some 2,700


@dataclass(frozen=True)
class Items:
    """What a store knows about some items.

    Attributes
    ----------
    ids : (n,) int64 or str
    codes : (n,) packed codes of the version that was asked
    classes : n integers, strings or None
    metadata : n dictionaries or None
    vectors : (n, dimension) float32, nan in rows without a vector; None in a collection without vectors
    """

    ids: AnyIds
    codes: PackedCodes
    classes: list[Class]
    metadata: list[dict[str, Any] | None]
    vectors: NDArray[np.float32] | None

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, order: list[int]) -> Items:
        """Some of the items, in another order."""
        return Items(
            self.ids[order],
            self.codes[order],
            [self.classes[i] for i in order],
            [self.metadata[i] for i in order],
            None if self.vectors is None else self.vectors[order],
        )


@dataclass(frozen=True)
class Rows:
    """Checked items on their way into a store.

    Attributes
    ----------
    ids : n integers or strings
    codes : name of a version -> n codes as signed integers
    classes : n integers, strings or None
    metadata : n JSON texts or None
    vectors : (n, dimension) float32, or None
    """

    ids: list[Any]
    codes: dict[str, list[int]]
    classes: list[Class]
    metadata: list[str | None]
    vectors: NDArray[np.float32] | None

    def __len__(self) -> int:
        return len(self.ids)


def check_rows(
    ids: AnyIds,
    codes: dict[str, PackedCodes],
    classes: Sequence[Any] | NDArray[Any] | None,
    metadata: Sequence[Mapping[str, Any] | None] | None,
    vectors: ArrayLike | None,
    owner: str,
) -> Rows:
    """Items from what a user gave, one entry each."""
    n = len(ids)
    for name, values in [("classes", classes), ("metadata", metadata), ("vectors", vectors)]:
        if values is not None and len(values) != n:  # type: ignore[arg-type]
            raise InvalidInput(
                f"The '{name}' of {owner} must be as many as the codes. Got {len(values)} for {n} codes."  # type: ignore[arg-type]
            )
    return Rows(
        _check_text(ids, owner),
        {version: to_signed(values).tolist() for version, values in codes.items()},
        _classes(classes, n, owner),
        [None] * n if metadata is None else [_metadata(value, owner) for value in metadata],
        None if vectors is None else as_vectors(vectors, owner),
    )


def as_vectors(vectors: ArrayLike, owner: str) -> NDArray[np.float32]:
    """Vectors as finite float32 of shape (n, dimension)."""
    try:
        values = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"The 'vectors' of {owner} must be numbers of shape (n, dimension): {error}.") from error
    if values.ndim != 2 or not values.shape[1]:
        raise InvalidInput(
            f"The 'vectors' of {owner} must have shape (n, dimension). Got shape {values.shape} instead."
        )
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
        raise InvalidInput(f"The 'vectors' of {owner} must be finite in float32, but row {row} is not; drop such rows.")
    return values


def index_items(index: HammingIndex) -> Items:
    """The items of an index in memory."""
    vectors = getattr(index, "vectors", None)
    n = len(index)
    known = None if vectors is None else as_vectors(vectors, "merge")
    return Items(index.ids, index.codes, [None] * n, [None] * n, known)


def merged_items(parts: Sequence[Items]) -> Items:
    """Items of several shards together; either all of them have vectors, or none."""
    vectors = [part.vectors for part in parts if part.vectors is not None]
    if vectors and (len(vectors) < len(parts) or any(np.isnan(part).any() for part in vectors)):
        raise InvalidInput("Items with and without vectors cannot be merged; give all of them vectors, or none.")
    if len({part.shape[1] for part in vectors}) > 1:
        raise InvalidInput("Items whose vectors differ in dimension cannot be merged; use one kind of vectors.")
    return Items(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.codes for part in parts]),
        [value for part in parts for value in part.classes],
        [value for part in parts for value in part.metadata],
        np.concatenate(vectors) if vectors else None,
    )


def to_signed(codes: NDArray[Any]) -> NDArray[np.int64]:
    """Codes as databases hold them: 64 bits in two's complement, so 2**63 and more become negative.

    Examples
    --------
    >>> to_signed(np.array([5, 2**63, 2**64 - 1], dtype=np.uint64)).tolist()
    [5, -9223372036854775808, -1]
    """
    return codes.astype(np.uint64).view(np.int64)


def from_signed(values: Sequence[int] | NDArray[np.int64], n_bits: int) -> PackedCodes:
    """Codes as they were before ``to_signed``."""
    return np.asarray(values, dtype=np.int64).view(np.uint64).astype(packed_dtype(n_bits))


def as_ids_array(ids: Sequence[Any], kind: str = "i") -> AnyIds:
    """Ids from a database as an array; ``kind``, "i" or "U", is asked only where there are none."""
    if len(ids):
        kind = "U" if isinstance(ids[0], str) else "i"
    return np.array(ids, dtype=np.int64 if kind == "i" else np.str_)


def _check_text(ids: AnyIds, owner: str) -> list[Any]:
    values: list[Any] = ids.tolist()
    if ids.dtype.kind == "U":
        for value in values:
            if not _storable(value):
                raise InvalidInput(
                    f"The 'ids' of {owner} must be text that a database can hold: at most {LONGEST} bytes of UTF-8 "
                    f"without NUL. Got {value[:50]!r}; encode or shorten such ids."
                )
    return values


def _classes(classes: Sequence[Any] | NDArray[Any] | None, n: int, owner: str) -> list[Class]:
    if classes is None:
        return [None] * n
    if isinstance(classes, np.ndarray) and classes.dtype.kind == "i" and classes.ndim == 1:
        numbers: list[Class] = classes.tolist()
        return numbers
    return [_class(value, owner) for value in classes]


def _class(value: Any, owner: str) -> Class:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or (isinstance(value, int | str) and not isinstance(value, bool) and _storable(value)):
        return value
    raise InvalidInput(
        f"The 'classes' of {owner} must be integers that fit int64, strings of at most {LONGEST} bytes, or None. "
        f"Got {value!r} instead."
    )


def _storable(value: int | str) -> bool:
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    try:
        return "\0" not in value and len(value.encode()) <= LONGEST
    except UnicodeEncodeError:
        return False


def _metadata(value: Any, owner: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidInput(
            f"The 'metadata' of {owner} must be one dictionary (or None) per item. Got {value!r} instead."
        )
    if "class" in value:
        raise InvalidInput(f"The 'metadata' of {owner} may not have a field 'class'; pass classes=[...] instead.")
    try:
        text = json.dumps(dict(value), ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"The 'metadata' of {owner} must be JSON, but an entry is not: {error}.") from error
    if "\\u0000" in text:
        raise InvalidInput(f"The 'metadata' of {owner} may not hold NUL characters. Got {text}.")
    return text
