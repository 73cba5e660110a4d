"""Files of packed vectors beside a SQLite database."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.errors import DamagedFile
from shorthash.index.items import find_ids
from shorthash.persistence.files import ADVICE, check_arrays, read_file, write_file


class SideFile:
    """Vectors beside a database: one memory-mapped file in bucket order, so that the vectors of a ball are together.

    A file is written completely, under a name of its own, before the database names it, and is never changed
    afterwards, so after a crash the old file or the new one is in use.

    Parameters
    ----------
    path : a file that ``write`` made
    dimension : of its vectors
    """

    def __init__(self, path: Path, dimension: int) -> None:
        self._path = path
        self._meta, self._arrays = read_file(path, mmap=True)
        types = {name: (array.dtype.name, array.shape) for name, array in self._arrays.items()}
        n = len(self._arrays.get("slots", ()))
        if types != {"slots": ("int64", (n,)), "rows": ("int64", (n,)), "vectors": ("float32", (n, dimension))}:
            raise DamagedFile(f"{path} is damaged: it does not hold vectors of {dimension} numbers; {ADVICE}")
        self._slots: NDArray[np.int64] = self._arrays["slots"]
        self._rows: NDArray[np.int64] = self._arrays["rows"]
        self._vectors: NDArray[np.float32] = self._arrays["vectors"]
        small = {name: self._arrays[name] for name in ("slots", "rows")}
        check_arrays(path, self._meta, small)
        if n and not (bool(np.all(np.diff(self._slots) > 0)) and np.array_equal(np.sort(self._rows), np.arange(n))):
            raise DamagedFile(f"{path} is damaged: its numbers of vectors contradict each other; {ADVICE}")

    def verify(self) -> None:
        """Raise DamagedFile unless every vector has the checksum it was written with."""
        check_arrays(self._path, self._meta, self._arrays)

    def read(self, slots: NDArray[np.int64], into: NDArray[np.float32]) -> None:
        """Copy the vectors of this file into their rows of ``into``."""
        place = find_ids(slots, self._slots, None)
        found = np.flatnonzero(place >= 0)
        into[found] = self._vectors[self._rows[place[found]]]

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
    """The folder of the side files of a database file."""
    return Path(f"{database}-vectors")
