"""Vectors beside a database: one memory-mapped file in bucket order, so that the vectors of a ball lie together.

New vectors stand in the database; ``write`` moves them here. A file is written whole, under a name of its own, before
the database names it, and is never changed afterwards, so a crash leaves the old file or the new one in force.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.persistence.files import read_file, write_file

__all__ = ["SideFile", "remove_others", "side_folder"]


class SideFile:
    """Vectors by number (slot).

    Parameters
    ----------
    path : a file that ``write`` made
    """

    def __init__(self, path: Path) -> None:
        _, arrays = read_file(path, mmap=True)
        self._slots: NDArray[np.int64] = arrays["slots"]
        self._rows: NDArray[np.int64] = arrays["rows"]
        self._vectors: NDArray[np.float32] = arrays["vectors"]

    def read(self, slots: NDArray[np.int64], into: NDArray[np.float32]) -> None:
        """Copy the vectors that are here into their rows of ``into``."""
        if not len(self._slots):
            return
        place = np.minimum(np.searchsorted(self._slots, slots), len(self._slots) - 1)
        here = np.flatnonzero(self._slots[place] == slots)
        into[here] = self._vectors[self._rows[place[here]]]

    @staticmethod
    def write(folder: Path, collection: str, slots: NDArray[np.int64], vectors: NDArray[np.float32]) -> str:
        """Write vectors in the order given, and return the name of the file."""
        name = f"{collection}-{secrets.token_hex(8)}.safetensors"
        order = np.argsort(slots, kind="stable")
        arrays: dict[str, NDArray[Any]] = {
            "slots": slots[order],
            "rows": order.astype(np.int64),
            "vectors": np.ascontiguousarray(vectors),
        }
        write_file(folder / name, {"kind": "vectors"}, arrays)
        return name


def side_folder(database: str) -> Path:
    """Where the vectors of a database file are."""
    return Path(f"{database}-vectors")


def remove_others(folder: Path, collection: str, kept: set[str]) -> None:
    """Delete the files of a collection that nobody needs any more."""
    for path in [*folder.glob(f"{collection}-*"), *folder.glob(f".{collection}-*")]:  # those with a dot were never done
        if path.name not in kept:
            path.unlink(missing_ok=True)
