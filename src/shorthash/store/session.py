"""What a database has to offer so that a store can be built on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.errors import InvalidInput
from shorthash.index.items import AnyIds
from shorthash.store.conditions import Allowed
from shorthash.store.items import Items, Rows

__all__ = ["Collection", "Hit", "Session", "Version"]

Hit = tuple[Any, int, Any]
"""Id and signed code of an item, and a third thing that depends on the order asked for: its place where that is
"insertion", the number of its vector (or None) where that is "vectors", else nothing."""


@dataclass(frozen=True)
class Version:
    """One encoder's codes of a collection.

    Attributes
    ----------
    name : as the user calls it
    number : as the database calls it; never given twice
    n_bits : length of its codes
    """

    name: str
    number: int
    n_bits: int

    @property
    def column(self) -> str:
        """Where its codes stand."""
        return f"code_{self.number}"


@dataclass(frozen=True)
class Collection:
    """What a store remembers about a collection besides its items.

    Attributes
    ----------
    name : also the name of its table
    current : the version that is opened when none is named
    id_kind : "i" for integers, "U" for strings
    last_id : largest integer id ever given, -1 before the first
    next_place : where the next item stands in insertion order; so no more items than this were ever added
    next_number : number of the next version
    next_slot : number of the next vector
    dimension : of the vectors, 0 before the first
    vectors_at : where vectors are: the side file (SQLite) or the type of the column (PostgreSQL)
    versions : by name
    """

    name: str
    current: str
    id_kind: str = "i"
    last_id: int = -1
    next_place: int = 0
    next_number: int = 1
    next_slot: int = 0
    dimension: int = 0
    vectors_at: str = ""
    versions: dict[str, Version] = field(default_factory=dict)

    def version(self, name: str) -> Version:
        """A version by name."""
        if name not in self.versions:
            known = ", ".join(repr(v) for v in self.versions)
            raise InvalidInput(f"Collection {self.name!r} has no version {name!r}; it has {known}.")
        return self.versions[name]


class Session(ABC):
    """One transaction, or one snapshot, of one collection.

    Everything a session reads belongs to one state of the database, and everything it writes is done when it ends
    well, or not at all.
    """

    @property
    @abstractmethod
    def collection(self) -> Collection:
        """The collection as this session sees it."""

    @abstractmethod
    def save(self, collection: Collection) -> None:
        """Write back what is remembered about the collection."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the collection has no item in any version."""

    @abstractmethod
    def known(self, ids: AnyIds) -> list[Any]:
        """Those of ``ids`` that are in the collection, in any version; the kind of the ids fits."""

    @abstractmethod
    def probe(
        self, version: Version, codes: Sequence[int], allowed: Allowed, order: str, limit: int | None, skip: str = ""
    ) -> list[Hit]:
        """Items whose code is one of ``codes``.

        ``order`` is "id", "insertion", "any" or "vectors" (any order, but to be ranked by vectors); the first ``limit``
        in that order are enough. Items that have a code in the column ``skip`` are left out.
        """

    @abstractmethod
    def scan(
        self,
        version: Version,
        query: int,
        reach: range,
        allowed: Allowed,
        order: str,
        limit: int | None,
        skip: str = "",
    ) -> list[Hit]:
        """Items whose distance from ``query`` lies in ``reach``, not yet sorted.

        The nearest ``limit`` are enough, and of those equally near the first in ``order``, which is as for ``probe``.
        """

    @abstractmethod
    def count(self, version: Version, codes: Sequence[int] | None, allowed: Allowed) -> int:
        """How many items have one of ``codes``; None counts all items of the version."""

    @abstractmethod
    def listing(self, version: Version) -> tuple[list[Any], list[int]]:
        """Ids and codes of all items of a version in insertion order."""

    @abstractmethod
    def items(self, version: Version, ids: AnyIds) -> Items:
        """Everything about some items that have a code in ``version``, in any order; ids without one are left out."""

    @abstractmethod
    def lacking(self, version: Version, target: Version, after: Any, limit: int) -> tuple[list[Any], list[int]]:
        """Ids and places of items of ``version`` without a code in ``target``, by id, beyond the id ``after``."""

    @abstractmethod
    def n_lacking(self, target: Version) -> int:
        """How many items have no code in ``target``."""

    @abstractmethod
    def vectors_of(self, hits: Sequence[Hit]) -> NDArray[np.float32]:
        """Vectors of items found in the order "vectors", (n_hits, dimension), nan in rows without one."""

    @abstractmethod
    def insert(self, rows: Rows, first_place: int, first_slot: int) -> None:
        """Write new items."""

    @abstractmethod
    def delete(self, ids: AnyIds) -> None:
        """Delete items."""

    @abstractmethod
    def recode(self, version: Version, ids: Sequence[Any], codes: Sequence[int], first_place: int) -> None:
        """Give items new codes and places; their codes in other versions are forgotten."""

    @abstractmethod
    def fill(self, target: Version, ids: Sequence[Any], places: Sequence[int], codes: Sequence[int]) -> None:
        """Write codes of items that are still at their place and still have none."""

    @abstractmethod
    def set_id_kind(self, kind: str) -> None:
        """Make ready for ids of another kind; the collection is empty."""

    @abstractmethod
    def set_dimension(self, dimension: int) -> None:
        """Make ready for vectors; there are none yet."""

    @abstractmethod
    def add_version(self, version: Version) -> None:
        """Make room for the codes of a version."""

    @abstractmethod
    def drop_version(self, version: Version) -> None:
        """Forget the codes of a version."""

    @abstractmethod
    def drop(self) -> None:
        """Delete the collection with all items."""
