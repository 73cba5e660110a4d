"""Which items a search in a store may find."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.errors import InvalidInput
from shorthash.index.items import AnyIds, Where, allowed_items, as_ids, check_same_kind

__all__ = ["Allowed", "Scalar", "StoreWhere", "as_allowed"]

Scalar = str | int | float | bool | None
StoreWhere = Where | Mapping[str, Any]
"""What an index takes (mask, ids, function), or a mapping from metadata fields to the values they may have."""

FIELD = re.compile(r"[A-Za-z0-9_ -]+")


@dataclass(frozen=True)
class Allowed:
    """A condition on items; by default there is none.

    Attributes
    ----------
    ids : only these
    fields : field of the metadata (or "class") -> the values it may have
    """

    ids: AnyIds | None = None
    fields: tuple[tuple[str, tuple[Scalar, ...]], ...] = ()


def as_allowed(where: StoreWhere | None, kind: Callable[[], str], all_ids: Callable[[], AnyIds], owner: str) -> Allowed:
    """The condition that ``where`` states; ``kind`` and ``all_ids`` are asked only if it takes them."""
    if where is None:
        return Allowed()
    if isinstance(where, Mapping):
        return Allowed(fields=tuple((_field(name, owner), _values(name, v, owner)) for name, v in where.items()))
    if callable(where):
        return _masked(where, all_ids(), owner)
    values = where if isinstance(where, np.ndarray) else np.asarray(list(where))
    if values.dtype.kind == "b":
        return _masked(values, all_ids(), owner)
    wanted = as_ids(values, owner)
    check_same_kind(wanted, kind(), owner)
    return Allowed(ids=wanted)


def _masked(where: Where, ids: AnyIds, owner: str) -> Allowed:
    mask: NDArray[np.bool_] = allowed_items(where, ids, owner)
    return Allowed(ids=ids[mask])


def _field(name: Any, owner: str) -> str:
    if not isinstance(name, str) or not FIELD.fullmatch(name):
        raise InvalidInput(
            f"A field in 'where' of {owner} must be a name of letters, digits, spaces, '_' and '-'. Got {name!r}."
        )
    return name


def _values(name: str, value: Any, owner: str) -> tuple[Scalar, ...]:
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
