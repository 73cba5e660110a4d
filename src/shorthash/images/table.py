"""Ids, codes and labels of all items in memory: an immutable table, so readers never see half a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import PackedCodes
from shorthash.codes import CodeQuality, code_quality, unpack
from shorthash.images.results import Bucket, Label, split_label
from shorthash.index.ids import AnyIds

__all__ = ["ItemTable"]


@dataclass(frozen=True)
class ItemTable:
    """All items.

    Attributes
    ----------
    ids : (n,) ascending
    codes : (n,) packed
    numbers : (n,) int32, which label; -1 for none
    names : the labels
    """

    ids: AnyIds
    codes: PackedCodes
    numbers: NDArray[np.int32]
    names: tuple[Label, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def find(self, ids: AnyIds) -> NDArray[np.intp]:
        """Rows of ids; -1 where there is none."""
        if not len(self.ids) or ids.dtype.kind != self.ids.dtype.kind:
            return np.full(len(ids), -1, dtype=np.intp)
        rows = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[rows] == ids, rows, -1)

    def labels(self, rows: NDArray[np.intp]) -> list[Label]:
        """Labels of rows."""
        names = self.names
        return [names[number] if number >= 0 else None for number in self.numbers[rows].tolist()]

    def with_items(self, ids: AnyIds, codes: PackedCodes, labels: Sequence[Label]) -> ItemTable:
        """The table with new items."""
        known: dict[Label, int] = {None: -1, **{name: number for number, name in enumerate(self.names)}}
        numbers = np.array([known.setdefault(label, len(known) - 1) for label in labels], dtype=np.int32)
        order = np.argsort(ids, kind="stable")
        if not len(self.ids):
            own = ids[order], codes[order], numbers[order]
        else:
            at = np.searchsorted(self.ids, ids[order])
            wide = np.result_type(self.ids.dtype, ids.dtype)
            own = (
                np.insert(self.ids.astype(wide, copy=False), at, ids[order]),
                np.insert(self.codes, at, codes[order]),
                np.insert(self.numbers, at, numbers[order]),
            )
        return ItemTable(*own, tuple(label for label in known if label is not None))

    def without(self, ids: AnyIds) -> ItemTable:
        """The table less some items, all of which it has."""
        kept = np.ones(len(self), dtype=np.bool_)
        kept[self.find(ids)] = False
        return ItemTable(self.ids[kept], self.codes[kept], self.numbers[kept], self.names)

    @cached_property
    def buckets(self) -> list[Bucket]:
        """Every code that occurs, ascending, with its items by class."""
        codes, places, loads = np.unique(self.codes, return_inverse=True, return_counts=True)
        pairs = places.astype(np.int64) * (len(self.names) + 1) + (self.numbers + 1)
        found, counts = np.unique(pairs, return_counts=True)
        classes: list[dict[int | str, int]] = [{} for _ in codes]
        for pair, count in zip(found.tolist(), counts.tolist(), strict=True):
            place, number = divmod(pair, len(self.names) + 1)
            for label in split_label(self.names[number - 1]) if number else ():
                classes[place][label] = classes[place].get(label, 0) + count
        return [
            Bucket(code, load, dict(sorted(by_class.items(), key=lambda kv: (-kv[1], str(kv[0])))))
            for code, load, by_class in zip(codes.tolist(), loads.tolist(), classes, strict=True)
        ]

    @cached_property
    def classes(self) -> dict[int | str, int]:
        """Class -> number of items; an item with several classes counts for each."""
        totals: dict[int | str, int] = {}
        loads = np.bincount(self.numbers[self.numbers >= 0], minlength=len(self.names)).tolist()
        for name, load in zip(self.names, loads, strict=True):
            for label in split_label(name) if load else ():
                totals[label] = totals.get(label, 0) + load
        return dict(sorted(totals.items(), key=lambda kv: str(kv[0])))

    def quality(self, n_bits: int) -> CodeQuality | None:
        """Health of the codes; None without items."""
        return None if not len(self) else self._quality(n_bits)

    def _quality(self, n_bits: int) -> CodeQuality:
        y: Any = self.numbers if len(self) and (self.numbers >= 0).all() else None
        return code_quality(unpack(self.codes, n_bits), y)
