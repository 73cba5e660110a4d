"""Item ids: int64 or strings, unique, and what decides between items at equal distance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash.errors import InvalidInput

__all__ = [
    "TIES",
    "AnyIds",
    "as_ids",
    "check_same_kind",
    "check_unique",
    "find_ids",
    "number_on",
    "shuffle_keys",
    "tie_order",
]

AnyIds = NDArray[Any]
"""Ids as int64 or as numpy strings, (n,)."""

TIES = ("id", "insertion", "shuffle", "any")
"""Orders inside equal distance: smallest id first, oldest first, seeded shuffle, or whatever is fastest."""

INT64_MAX = np.iinfo(np.int64).max


def as_ids(ids: ArrayLike, owner: str) -> AnyIds:
    """Ids as int64 or as strings, (n,); anything else is refused."""
    values = np.asarray(ids)
    if values.ndim != 1:
        raise InvalidInput(f"The 'ids' of {owner} must have shape (n_items,). Got shape {values.shape} instead.")
    if values.size == 0 and values.dtype.kind not in "iuU":
        return values.astype(np.int64)
    if values.dtype.kind == "O" and len({type(v) for v in values}) == 1:
        values = np.array(values.tolist())
    if values.dtype.kind == "U" and (isinstance(ids, np.ndarray) or _all_strings(ids)):
        _check_no_nul(ids, values, owner)
        return values
    if values.dtype.kind == "i":
        return values.astype(np.int64, copy=False)
    if values.dtype.kind == "u" and (values.dtype.itemsize < 8 or not values.size or int(values.max()) <= INT64_MAX):
        return values.astype(np.int64)
    raise InvalidInput(
        f"The 'ids' of {owner} must be all integers that fit int64, or all strings. Got {values.dtype} instead; "
        "convert them, for instance with [str(i) for i in ids]."
    )


def _all_strings(ids: ArrayLike) -> bool:
    """Whether a sequence held strings only, before numpy made strings of the rest."""
    return all(isinstance(value, str) for value in np.asarray(ids, dtype=object))


def _check_no_nul(ids: ArrayLike, values: AnyIds, owner: str) -> None:
    """Raise if a string holds a NUL character; numpy strips those at the end, so lists are asked themselves."""
    if isinstance(ids, np.ndarray) and ids.dtype.kind == "U":
        letters = np.ascontiguousarray(values).view(np.uint32).reshape(len(values), -1) if values.size else values
        bad = bool(values.size and np.any((letters[:, :-1] == 0) & (letters[:, 1:] != 0)))
    else:
        bad = any("\0" in value for value in np.asarray(ids, dtype=object))
    if bad:
        raise InvalidInput(f"The 'ids' of {owner} may not hold NUL characters; encode or rename such ids.")


def check_unique(ids: AnyIds, owner: str) -> None:
    """Raise if an id occurs twice in ``ids``."""
    if len(ids) < 2 or (ids.dtype.kind == "i" and bool(np.all(ids[1:] > ids[:-1]))):
        return
    values, counts = np.unique(ids, return_counts=True)
    if len(values) < len(ids):
        twice = values[counts > 1][0].item()
        raise InvalidInput(f"The 'ids' of {owner} must be unique, but {twice!r} occurs twice; drop one of the two.")


def check_same_kind(ids: AnyIds, known: AnyIds | None, owner: str) -> None:
    """Raise if an index of integer ids is asked about strings, or the other way round."""
    kind = "i" if known is None else known.dtype.kind
    if ids.dtype.kind != kind and len(ids):
        names = {"i": "integers", "U": "strings"}
        raise InvalidInput(
            f"The 'ids' of {owner} are {names[kind]} in this index. Got {names[ids.dtype.kind]} instead; "
            "convert them to one kind."
        )


def number_on(next_id: int, n: int) -> AnyIds:
    """Ids for n items without any."""
    if next_id + n - 1 > INT64_MAX:
        raise InvalidInput(f"Items cannot be numbered on beyond the id {INT64_MAX}; pass ids=[...] for new items.")
    return np.arange(n, dtype=np.int64) + next_id if n else np.empty(0, dtype=np.int64)


def find_ids(wanted: AnyIds, known: AnyIds, order: NDArray[np.intp] | None) -> NDArray[np.int64]:
    """Positions of ``wanted`` in ``known``, -1 where absent; ``order`` sorts ``known`` (None: it is ascending)."""
    if not len(known):
        return np.full(len(wanted), -1, dtype=np.int64)
    slots = np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)
    positions = slots if order is None else order[slots]
    return np.where(known[positions] == wanted, positions, -1).astype(np.int64)


def tie_order(
    queries: NDArray[Any], distances: NDArray[Any], positions: NDArray[Any], ids: AnyIds, ties: str, seed: int
) -> NDArray[np.intp]:
    """The permutation that sorts hits by query, distance and the tie policy; all arrays are (n_hits,)."""
    if ties == "shuffle":
        return np.lexsort((ids, shuffle_keys(ids, seed), distances, queries))
    return np.lexsort((ids if ties == "id" else positions, distances, queries))


def shuffle_keys(ids: AnyIds, seed: int) -> NDArray[np.uint64]:
    """Pseudo-random keys that depend only on id and seed, so that every index shuffles alike.

    Examples
    --------
    >>> np.argsort(shuffle_keys(np.arange(6), seed=1)).tolist() != np.argsort(shuffle_keys(np.arange(6), 2)).tolist()
    True
    """
    start = _mix(np.array([seed], dtype=np.uint64))
    if ids.dtype.kind != "U":
        return _mix(ids.astype(np.int64).view(np.uint64) ^ start)
    keys = np.repeat(start, len(ids))
    letters = np.ascontiguousarray(ids).view(np.uint32).reshape(len(ids), ids.dtype.itemsize // 4)
    for column in letters.T:  # zeros only pad numpy strings, so the width of the array does not matter
        keys = np.where(column == 0, keys, _mix(keys ^ column.astype(np.uint64)))
    return keys


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64 bits (the finaliser of SplitMix64)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
