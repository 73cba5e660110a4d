"""Which items a search may find."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.errors import InvalidInput
from shorthash.index.ids import AnyIds, as_ids, check_same_kind

__all__ = ["Where", "allowed_items"]

Where = NDArray[np.bool_] | Collection[Any] | Callable[[AnyIds], NDArray[np.bool_]]
"""A mask over the items in insertion order, a collection of ids, or a function that turns all ids into such a mask."""


def allowed_items(where: Where, ids: AnyIds, owner: str) -> NDArray[np.bool_]:
    """Mask of the items that ``where`` admits, (n_items,).

    Examples
    --------
    >>> ids = np.array([10, 20, 30])
    >>> allowed_items({10, 30, 50}, ids, "demo").tolist()
    [True, False, True]
    >>> allowed_items(lambda ids: ids > 10, ids, "demo").tolist()
    [False, True, True]
    """
    if callable(where):
        return _as_mask(np.asarray(where(ids)), len(ids), f"The function given as 'where' of {owner} must return")
    values = where if isinstance(where, np.ndarray) else np.asarray(list(where))
    if values.dtype.kind == "b":
        return _as_mask(values, len(ids), f"A mask given as 'where' of {owner} must be")
    wanted = as_ids(values, owner)
    check_same_kind(wanted, ids, owner)
    return np.isin(ids, wanted)


def _as_mask(mask: NDArray[Any], n_items: int, rule: str) -> NDArray[np.bool_]:
    if mask.dtype.kind != "b" or mask.shape != (n_items,):
        raise InvalidInput(
            f"{rule} a boolean array with one entry per item, shape ({n_items},). "
            f"Got {mask.dtype} of shape {mask.shape} instead."
        )
    return mask
