"""Sums together with the front end that made their features: what shards exchange, and what a checkpoint is.

Sums over kernel features mean something only beside the anchors they were made with, so both are kept in one file.
Files are written whole or not at all, carry checksums, and hold no code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from shorthash.errors import DamagedFile, ForeignFile, InvalidInput, PersistenceError
from shorthash.kernels.rbf import AnchorRBF
from shorthash.learners.statistics import GroupStatistics
from shorthash.persistence.files import is_save, read_save, write_file
from shorthash.persistence.values import Decoder, Encoder

__all__ = ["Collected", "load_collected", "save_collected"]

KIND = "statistics"


@dataclass(frozen=True)
class Collected:
    """Sums over the rows of one or more streams.

    Attributes
    ----------
    front : the kernel whose features were summed; None where rows were summed as they came
    sums : GroupStatistics
    n_rows : rows read, those without label included
    n_total : rows of the stream that is being read; equal to ``n_rows`` once it has been read, None if not known
    """

    front: AnchorRBF | None
    sums: GroupStatistics
    n_rows: int
    n_total: int | None

    def merge(self, other: Collected) -> Collected:
        """Both sets of rows together; either may know classes that the other has never seen."""
        self._check_like(other)
        return replace(
            self,
            sums=self.sums.join(other.sums),
            n_rows=self.n_rows + other.n_rows,
            n_total=self.n_rows + other.n_rows,
        )

    def subtract(self, other: Collected) -> Collected:
        """These rows without the others, which must have been among them."""
        self._check_like(other)
        unknown = np.setdiff1d(other.sums.classes, self.sums.classes)
        if len(unknown):
            raise InvalidInput(
                f"Statistics can be subtracted only from a whole that holds them, but class {unknown.tolist()[0]!r} "
                "is not in it; check the order of the two."
            )
        rest = self.sums.subtract(other.sums.over(self.sums.classes))
        if not len(rest.counts):
            raise InvalidInput("Nothing is left after subtracting these statistics; keep some rows.")
        n_rows = self.n_rows - other.n_rows
        return replace(self, sums=rest, n_rows=n_rows, n_total=n_rows)

    def _check_like(self, other: Collected) -> None:
        mine, theirs = self.front, other.front
        same = (mine is None) == (theirs is None)
        if same and mine is not None and theirs is not None:
            same = (
                mine.bandwidth_ == theirs.bandwidth_
                and mine.center == theirs.center
                and np.array_equal(mine.anchors_, theirs.anchors_)
            )
        if not same:
            raise InvalidInput(
                "Only statistics over the same anchors and bandwidth can be combined; collect every shard with the "
                "front end of the first (front=...)."
            )


def save_collected(collected: Collected, path: str | Path) -> Path:
    """Write sums and front end to one file; an older one of the kind is replaced in one step."""
    encoder = Encoder()
    fields = {
        "front": collected.front,
        "sums": collected.sums,
        "n_rows": collected.n_rows,
        "n_total": collected.n_total,
    }
    meta = {
        "kind": KIND,
        "class": "Statistics",
        "statistics": True,
        "summary": {
            "n_rows": collected.n_rows,
            "n_features": collected.sums.n_features,
            "n_classes": len(collected.sums.classes),
        },
        "value": encoder.encode(fields, "Collected"),
    }
    write_file(Path(path), meta, encoder.arrays)
    return Path(path)


def load_collected(path: str | Path) -> Collected:
    """Read what :func:`save_collected` wrote."""
    place = Path(path)
    if not place.exists():
        raise PersistenceError(f"There is no file {place}; check the path.")
    if not is_save(place):
        raise ForeignFile(f"{place} holds no sums of shorthash; give a file of shorthash sums collect.")
    meta, arrays = read_save(place, mmap=False)
    if meta["kind"] != KIND:
        raise ForeignFile(f"{place} holds {meta['class']}, but sums are needed; give a file of shorthash sums collect.")
    try:
        value: dict[str, Any] = Decoder(arrays).decode(meta["value"])
        return Collected(**value)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise DamagedFile(f"{place} cannot be read back: {error}; collect the statistics again.") from error
