"""The contract of every index: add, remove, update, search, within, counts, iterate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._types import PackedCodes
from shorthash._validation import check_choice, check_count, check_n_bits
from shorthash.codes import as_packed
from shorthash.errors import InvalidInput
from shorthash.index.filters import Where
from shorthash.index.ids import TIES, AnyIds, as_ids, check_unique
from shorthash.index.results import RadiusResult, SearchResult

__all__ = ["HammingIndex", "check_k"]

LARGEST_SEED = 2**64 - 1
MOST = 2**62  # more items than any index holds, and a number that every database takes


class HammingIndex(ABC):
    """Exact search among binary codes of ``n_bits`` bits, 1 to 64.

    Codes come in as signs, int8 of shape (n, n_bits), or as packed integers of shape (n,). Every item has an id that
    stays with it: an int64 or a string (one kind per index), unique. Items added without ids are numbered on from the
    largest id so far, starting at 0; the number of a removed item is not given again.

    Distances are Hamming distances, radii are inclusive, and results are exact. Items at equal distance stand in a
    named order, ``ties``: ``"id"`` (smallest first), ``"insertion"`` (oldest first; an updated item counts as new),
    ``"shuffle"`` (a shuffle that depends only on the ids and ``seed``) or ``"any"`` (no promise, fastest).

    ``where`` restricts a search to some items: a boolean mask in insertion order, a collection of ids, or a function
    that takes the array of all ids and returns such a mask.
    """

    def __init__(self, n_bits: int) -> None:
        self._n_bits = check_n_bits(n_bits, type(self).__name__)

    @property
    def n_bits(self) -> int:
        """Length of the codes."""
        return self._n_bits

    @property
    @abstractmethod
    def codes(self) -> PackedCodes:
        """Packed codes of all items in insertion order, (n_items,), read-only."""

    @property
    @abstractmethod
    def ids(self) -> AnyIds:
        """Ids of all items in insertion order, (n_items,), read-only."""

    @abstractmethod
    def __len__(self) -> int: ...

    def __contains__(self, item: object) -> bool:
        if isinstance(item, bool | np.bool_) or not isinstance(item, int | np.integer | str):
            return False
        if isinstance(item, str) and "\0" in item:
            return False
        ids = np.asarray([item])
        return ids.dtype.kind in "iU" and self._has(as_ids(ids, type(self).__name__))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_bits={self.n_bits}): {len(self)} items"

    def add(self, codes: ArrayLike, ids: ArrayLike | None = None) -> Self:
        """Add items, all or none.

        Parameters
        ----------
        codes : signs of shape (n, n_bits) or packed integers of shape (n,)
        ids : (n,) integers or strings not yet in the index; None numbers the items on
        """
        packed = as_packed(codes, self.n_bits)
        self._add(packed, None if ids is None else self._ids_for(packed, ids))
        return self

    def remove(self, ids: ArrayLike) -> Self:
        """Remove items, all or none; an id that is not in the index is an error."""
        wanted = as_ids(ids, type(self).__name__)
        check_unique(wanted, type(self).__name__)
        self._remove(wanted)
        return self

    def update(self, ids: ArrayLike, codes: ArrayLike) -> Self:
        """Give items new codes, all or none; in insertion order they become the newest."""
        packed = as_packed(codes, self.n_bits)
        self._update(self._ids_for(packed, ids), packed)
        return self

    def merge(self, *others: HammingIndex) -> Self:
        """Take in all items of other indexes (shards) with their ids, all or none; ids must not collide."""
        filled = self._mergeable(others)
        if filled:
            self.add(np.concatenate([o.codes for o in filled]), ids=np.concatenate([o.ids for o in filled]))
        return self

    def search(
        self, codes: ArrayLike, k: int, *, ties: str = "id", seed: int = 0, where: Where | None = None
    ) -> SearchResult:
        """Find the k nearest items of every query; all of them if there are fewer than k.

        Parameters
        ----------
        codes : the queries, signs of shape (n_queries, n_bits) or packed integers of shape (n_queries,)
        k : number of items wanted, at least 1
        ties : order inside equal distance, which also decides who is cut off: "id", "insertion", "shuffle" or "any"
        seed : seed of ``ties="shuffle"``
        where : only these items may be found: a mask in insertion order, a collection of ids, or a function of the ids
        """
        owner = f"{type(self).__name__}.search"
        k = check_k(k, owner)
        check_choice(ties, "ties", owner, TIES)
        seed = check_count(seed, "seed", owner, low=0, high=LARGEST_SEED)
        return self._search(as_packed(codes, self.n_bits), k, ties, seed, where)

    def within(
        self, codes: ArrayLike, radius: int, *, ties: str = "id", seed: int = 0, where: Where | None = None
    ) -> RadiusResult:
        """Find all items within ``radius`` (inclusive) of every query, nearest first.

        Parameters
        ----------
        codes : the queries, signs of shape (n_queries, n_bits) or packed integers of shape (n_queries,)
        radius : largest distance, at least 0; from n_bits on everything is found
        ties : order inside equal distance: "id", "insertion", "shuffle" or "any"
        seed : seed of ``ties="shuffle"``
        where : only these items may be found: a mask in insertion order, a collection of ids, or a function of the ids
        """
        owner = f"{type(self).__name__}.within"
        radius = self._radius(radius, owner)
        check_choice(ties, "ties", owner, TIES)
        seed = check_count(seed, "seed", owner, low=0, high=LARGEST_SEED)
        return self._within(as_packed(codes, self.n_bits), radius, ties, seed, where)

    def counts(self, codes: ArrayLike, radius: int, *, where: Where | None = None) -> NDArray[np.int64]:
        """Count the items within ``radius`` (inclusive) of every query, (n_queries,)."""
        radius = self._radius(radius, f"{type(self).__name__}.counts")
        return self._counts(as_packed(codes, self.n_bits), radius, where)

    def iterate(self, code: ArrayLike) -> Iterator[tuple[int, AnyIds]]:
        """Yield (distance, ids) of one query by increasing distance, ids ascending; only distances that occur.

        Parameters
        ----------
        code : one query: signs of shape (n_bits,) or (1, n_bits), or one packed integer
        """
        values = np.asarray(code)
        signs = values.ndim == 1 and len(values) == self.n_bits and bool(np.all(np.abs(values) == 1))
        if values.ndim == 0 or signs:
            values = values[None]
        packed = as_packed(values, self.n_bits)
        if len(packed) != 1:
            raise InvalidInput(f"{type(self).__name__}.iterate takes one query. Got {len(packed)} instead.")
        return self._iterate(packed)

    def buckets(self) -> tuple[PackedCodes, NDArray[np.int64]]:
        """The codes that occur, ascending, and how many items have each."""
        codes, counts = np.unique(self.codes, return_counts=True)
        return codes, counts.astype(np.int64)

    @abstractmethod
    def _has(self, ids: AnyIds) -> bool: ...

    @abstractmethod
    def _add(self, codes: PackedCodes, ids: AnyIds | None) -> None: ...

    @abstractmethod
    def _remove(self, ids: AnyIds) -> None: ...

    @abstractmethod
    def _update(self, ids: AnyIds, codes: PackedCodes) -> None: ...

    @abstractmethod
    def _search(self, queries: PackedCodes, k: int, ties: str, seed: int, where: Where | None) -> SearchResult: ...

    @abstractmethod
    def _within(self, queries: PackedCodes, radius: int, ties: str, seed: int, where: Where | None) -> RadiusResult: ...

    @abstractmethod
    def _counts(self, queries: PackedCodes, radius: int, where: Where | None) -> NDArray[np.int64]: ...

    @abstractmethod
    def _iterate(self, query: PackedCodes) -> Iterator[tuple[int, AnyIds]]: ...

    @abstractmethod
    def export_state(self) -> dict[str, Any]:
        """Everything the index holds, as numbers and arrays, for :mod:`shorthash.persistence`."""

    @classmethod
    @abstractmethod
    def from_state(cls, n_bits: int, state: dict[str, Any], *, thorough: bool = True) -> Self:
        """Rebuild an index from ``export_state``; raises InvalidInput if the state contradicts itself.

        ``thorough`` looks at every entry; otherwise only at sizes and types.
        """

    def _mergeable(self, others: Sequence[HammingIndex]) -> list[HammingIndex]:
        """Those that hold items; raises unless codes and ids are of one kind."""
        for other in others:
            if other.n_bits != self.n_bits:
                raise InvalidInput(
                    f"Only indexes of the same code length can be merged. Got {other.n_bits} bits instead of "
                    f"{self.n_bits}."
                )
        filled = [other for other in others if len(other)]
        if len({other.ids.dtype.kind for other in filled}) > 1:
            raise InvalidInput("Indexes with integer and with string ids cannot be merged; convert them to one kind.")
        return filled

    def _ids_for(self, codes: PackedCodes, ids: ArrayLike) -> AnyIds:
        """User ids, checked against the codes they belong to."""
        owner = type(self).__name__
        values = as_ids(ids, owner)
        if len(values) != len(codes):
            raise InvalidInput(
                f"The 'ids' of {owner} must be as many as the codes. Got {len(values)} ids for {len(codes)} codes."
            )
        check_unique(values, owner)
        return values

    def _radius(self, radius: int, owner: str) -> int:
        return min(check_count(radius, "radius", owner, low=0), self.n_bits)


def check_k(k: object, owner: str) -> int:
    """Return the number of items wanted, at least 1; a huge one means all."""
    return min(check_count(k, "k", owner), MOST)
