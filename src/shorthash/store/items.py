"""Items as they go into a store and come out of it, and conditions on them: id, code, class, metadata, vector."""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import PackedCodes
from shorthash._display import plain
from shorthash._validation import require_extra
from shorthash.codes import packed_dtype, ring_masks
from shorthash.errors import DamagedFile, InvalidInput, named
from shorthash.index.base import HammingIndex, Probes, SearchResult
from shorthash.index.items import AnyIds, Where, as_vectors
from shorthash.index.memory import MemoryIndex
from shorthash.store.tables import FIELD, split_metadata

if TYPE_CHECKING:
    import pandas as pd

Class = int | str | None
Scalar = str | int | float | bool | None
Row = tuple[Any, ...]
"""Id and signed code of an item, and the value of one more column if it was requested."""

StoreWhere = Where | Mapping[str, Any]
"""What an index takes (mask, ids, function), or a mapping from metadata fields to the values they may have."""

LONGEST = 500  # bytes of an id or a class; B-trees take keys of some 2,700


@dataclass(frozen=True)
class Items:
    """Items of a store.

    Attributes
    ----------
    ids : (n,) int64 or str
    codes : (n,) packed codes of the opened version
    classes : n integers, strings or None
    metadata : n dictionaries or None
    vectors : (n, dimension) float32, nan in rows without a vector; None in a collection without vectors
    posteriors : (n, n_bytes) uint8, compact posteriors, 0 in rows without one; None if no item has one
    columns : fields of the metadata that have a separate column in the store, and their types
    """

    ids: AnyIds
    codes: PackedCodes
    classes: list[Class]
    metadata: list[dict[str, Any] | None]
    vectors: NDArray[np.float32] | None
    posteriors: NDArray[np.uint8] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def to_frame(self) -> pd.DataFrame:
        """One row per item: id, code, class, and a column for every field of the metadata, times as datetime64."""
        pandas = require_extra("pandas", "tables", "Items.to_frame")
        fields = list(dict.fromkeys([*self.columns, *(name for row in self.metadata for name in row or {})]))
        columns = {"id": self.ids, "code": self.codes, "class": self.classes}
        columns |= {name: [(row or {}).get(name) for row in self.metadata] for name in fields if name not in columns}
        frame = pandas.DataFrame(columns)
        for name in (name for name, kind in self.columns.items() if kind == "time"):
            frame[name] = pandas.to_datetime(frame[name], format="ISO8601")
        return cast("pd.DataFrame", frame)

    def take(self, order: list[int]) -> Items:
        """Some of the items, in another order."""
        return Items(
            self.ids[order],
            self.codes[order],
            [self.classes[i] for i in order],
            [self.metadata[i] for i in order],
            None if self.vectors is None else self.vectors[order],
            None if self.posteriors is None else self.posteriors[order],
            self.columns,
        )


def items_of(index: HammingIndex) -> Items:
    """The items of an index in memory."""
    n, vectors = len(index), index.vectors
    known = None if vectors is None else as_vectors(vectors, n, "merge", np.float32)
    posteriors = index.posteriors if isinstance(index, MemoryIndex) else None
    return Items(index.ids, index.codes, [None] * n, [None] * n, known, posteriors)


def search_result(rows: list[tuple[list[Any], list[int]]], kind: str = "i", width: int = 0) -> SearchResult:
    """Ids and distances of every query as arrays; ``kind`` of the ids and ``width`` where there are none."""
    n = len(rows[0][0]) if rows else width
    ids = as_ids_array([item for row, _ in rows for item in row], kind).reshape(len(rows), n)
    distances = np.array([row for _, row in rows], dtype=np.uint8).reshape(len(rows), n)
    return SearchResult(ids, distances)


def check_found(ids: AnyIds, known: Container[Any]) -> None:
    """Raise unless all ``ids`` are among the known ones."""
    missing = [item for item in ids.tolist() if item not in known]
    if missing:
        raise InvalidInput(f"Id {missing[0]!r} is not in the store; name only ids that were added.")


def in_order(found: Items, ids: AnyIds) -> Items:
    """Items in the order of ``ids``; one that was not found is an error."""
    place = {item: row for row, item in enumerate(found.ids.tolist())}
    check_found(ids, place)
    return found.take([place[item] for item in ids.tolist()])


def item_columns(
    ids: AnyIds,
    classes: Sequence[Any] | NDArray[Any] | None,
    metadata: Any,
    owner: str,
    declared: Mapping[str, str],
) -> dict[str, Iterable[Any]]:
    """Checked items as columns of a table: ids, classes (integers, strings or None) and metadata (JSON or None).

    Fields of the metadata that are ``declared`` columns are written to those columns.
    """
    n = len(ids)
    metadata = as_records(metadata)
    for name, values in [("classes", classes), ("metadata", metadata)]:
        if values is not None and len(values) != n:
            raise InvalidInput(f"The '{name}' of {owner} must have one entry per code. Got {len(values)} for {n}.")
    if ids.dtype.kind == "U":
        for value in ids.tolist():
            if not _storable(value):
                raise InvalidInput(
                    f"{named('ids', owner, 'of')} must be text that a database can hold: at most {LONGEST} bytes of "
                    f"UTF-8 without NUL. Got {value[:50]!r}; encode or shorten such ids."
                )
    metadata, cells = split_metadata(metadata, declared, n, owner)
    return {
        "id": ids.tolist(),
        "class": [None] * n if classes is None else as_classes(classes, owner),
        "metadata": [None] * n if metadata is None else [_as_json(value, owner) for value in metadata],
        **cells,
    }


def as_records(metadata: Any) -> Any:
    """Metadata as dictionaries: rows of a data frame of pandas, polars or Arrow, with missing cells as None.

    Examples
    --------
    >>> import pandas as pd
    >>> as_records(pd.DataFrame({"price": [1.5, None], "day": pd.to_datetime(["2024-02-01", None])}))
    [{'price': 1.5, 'day': '2024-02-01T00:00:00'}, {'price': None, 'day': None}]
    """
    if hasattr(metadata, "to_pylist"):  # a table of Arrow
        rows = metadata.to_pylist()
    elif hasattr(metadata, "iter_rows") and hasattr(metadata, "columns"):  # polars
        rows = metadata.to_dicts()
    elif hasattr(metadata, "iloc") and hasattr(metadata, "columns"):  # pandas
        rows = metadata.to_dict("records")
    else:
        return metadata
    return [plain(row) for row in rows]


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
    with damage_explained("code"):
        return np.asarray(values, dtype=np.int64).view(np.uint64).astype(packed_dtype(n_bits))


def distances_of(rows: Sequence[Row], query: int) -> NDArray[np.uint8]:
    """Distance of every item from a signed query."""
    with damage_explained("code"):
        codes = np.fromiter((row[1] for row in rows), dtype=np.int64, count=len(rows))
    distances: NDArray[np.uint8] = np.bitwise_count((codes ^ query).view(np.uint64))
    return distances


def ball_codes(n_bits: int, radius: int, query: int) -> list[int]:
    """The signed codes within ``radius`` of a signed code, nearest first."""
    codes = np.concatenate([ring_codes(n_bits, t) for t in range(min(radius, n_bits) + 1)]) ^ query
    signed: list[int] = codes.tolist()
    return signed


@lru_cache(maxsize=128)
def ring_codes(n_bits: int, distance: int) -> NDArray[np.int64]:
    """The signed codes at ``distance`` from zero."""
    return to_signed(ring_masks(n_bits, distance))


def probe_columns(probes: Probes) -> list[list[Any]]:
    """Number of the query, number of the probe, signed code and expected share of every probe."""
    counts = np.diff(probes.offsets)
    places = np.arange(len(probes.cells)) - np.repeat(probes.offsets[:-1], counts)
    columns = np.repeat(np.arange(len(probes)), counts), places, to_signed(probes.cells), probes.shares
    return [column.tolist() for column in columns]


def read_posteriors(values: Sequence[Any]) -> NDArray[np.uint8] | None:
    """Compact posteriors from a database, (n, n_bytes), 0 in rows without one; None if there is none."""
    if not all(isinstance(value, bytes | memoryview | None) for value in values):
        raise DamagedFile("The store is damaged: it holds an invalid posterior; restore it from a copy.")
    sizes = {len(value) for value in values if value is not None}
    if len(sizes) > 1:
        raise InvalidInput(f"The items have posteriors of {min(sizes)} and {max(sizes)} bytes; upsert with one size.")
    if not sizes:
        return None
    none = bytes(sizes.pop())
    octets = b"".join(none if value is None else value for value in values)
    return np.frombuffer(octets, dtype=np.uint8).reshape(len(values), -1)


def as_json_list(values: Sequence[Any]) -> str:
    """Values as one parameter."""
    return json.dumps(list(values), ensure_ascii=False)


def as_ids_array(ids: Sequence[Any], kind: str = "i") -> AnyIds:
    """Ids from a database as an array; ``kind``, "i" or "U", is used only where there are none."""
    if len(ids):
        kind = "U" if isinstance(ids[0], str) else "i"
    with damage_explained("id"):
        return np.array(ids, dtype=np.int64 if kind == "i" else np.str_)


@contextmanager
def damage_explained(what: str) -> Iterator[None]:
    """Turn the errors of values that a database should not hold into DamagedFile."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        raise DamagedFile(f"The store is damaged: it holds an invalid {what}; restore it from a copy.") from error


def as_classes(classes: Sequence[Any] | NDArray[Any], owner: str) -> list[Class]:
    """Checked classes as a database holds them: integers, strings or None."""
    if isinstance(classes, np.ndarray) and classes.dtype.kind == "i" and classes.ndim == 1:
        numbers: list[Class] = classes.tolist()
        return numbers
    values = [value.item() if isinstance(value, np.generic) else value for value in classes]
    for value in values:
        fits = isinstance(value, int | str) and not isinstance(value, bool) and _storable(value)
        if value is not None and not fits:
            raise InvalidInput(
                f"The 'classes' of {owner} must be integers that fit int64, strings of at most {LONGEST} bytes, or "
                f"None. Got {value!r} instead."
            )
    return values


def _storable(value: int | str) -> bool:
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    try:
        return "\0" not in value and len(value.encode()) <= LONGEST
    except UnicodeEncodeError:
        return False


def _as_json(value: Any, owner: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidInput(f"The 'metadata' of {owner} must be dictionaries or None. Got {value!r} instead.")
    if "class" in value:
        raise InvalidInput(f"The 'metadata' of {owner} may not have a field 'class'; pass classes=[...] instead.")
    try:
        text = json.dumps({key: _scalar(item) for key, item in value.items()}, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"The 'metadata' of {owner} must be JSON, but an entry is not: {error}.") from error
    if "\\u0000" in text:
        raise InvalidInput(f"The 'metadata' of {owner} may not hold NUL characters. Got {text}.")
    return text


def _scalar(value: Any) -> Any:
    """NumPy's scalars and times as JSON holds them; anything else as it is."""
    if isinstance(value, np.generic):
        return value.item()
    return value.isoformat() if hasattr(value, "isoformat") else value


def check_field(name: Any, owner: str) -> str:
    """The name of a metadata field in ``where``."""
    if not isinstance(name, str) or not FIELD.fullmatch(name):
        raise InvalidInput(
            f"A field in 'where' of {owner} must be a name of letters, digits, spaces, '_' and '-'. Got {name!r}."
        )
    return name


def check_values(name: str, value: Any, owner: str) -> tuple[Scalar, ...]:
    """The values that a field may have according to ``where``: one, or a collection of them."""
    several = isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)
    scalars = tuple(v.item() if isinstance(v, np.generic) else v for v in (value if several else [value]))
    for scalar in scalars:
        finite = not isinstance(scalar, float) or np.isfinite(scalar)
        whole = not isinstance(scalar, int) or -(2**63) <= scalar < 2**63
        if not isinstance(scalar, Scalar) or not finite or not whole or (isinstance(scalar, str) and "\0" in scalar):
            raise InvalidInput(
                f"Field {name!r} in 'where' of {owner} must be a string, a finite number that fits 64 bits, True, "
                f"False or None, or a list of such. Got {scalar!r}."
            )
    return scalars
