"""A cache of image features, keyed by the content of the file and the recipe: interrupted work goes on where it was."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shorthash.errors import DataFileError
from shorthash.images.image_features import recipe_key

__all__ = ["FeatureCache", "default_cache"]

BUSY_SECONDS = 30


class FeatureCache:
    """Feature rows on disk, one SQLite file; every batch is written whole or not at all, and processes may share it.

    Parameters
    ----------
    path : the file, made if there is none
    recipe : of the features; rows of another recipe are never returned

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, FeatureCache(f"{folder}/cache", {"kind": "gist"}) as cache:
    ...     cache.put(["a"], np.array([[1.0, 2.0]], dtype=np.float32))
    ...     {content: row.tolist() for content, row in cache.get(["a", "b"]).items()}
    {'a': [1.0, 2.0]}
    """

    def __init__(self, path: str | os.PathLike[str], recipe: Mapping[str, Any]) -> None:
        self.path, self._key = Path(path), recipe_key(recipe)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")  # what a power cut takes is computed again
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS features(recipe TEXT, content TEXT, row BLOB NOT NULL,"
                " PRIMARY KEY (recipe, content)) WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            raise DataFileError(
                f"The cache of features {self.path} cannot be used: {error}; name another file, or delete it."
            ) from error

    def get(self, contents: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Rows of those contents that are known."""
        found: dict[str, NDArray[np.float32]] = {}
        for start in range(0, len(contents), 500):
            part = list(contents[start : start + 500])
            marks = ",".join("?" * len(part))
            sql = f"SELECT content, row FROM features WHERE recipe = ? AND content IN ({marks})"
            for content, octets in self._connection.execute(sql, [self._key, *part]):
                found[content] = np.frombuffer(octets, dtype="<f4")
        return found

    def put(self, contents: Sequence[str], rows: NDArray[np.float32]) -> None:
        """Keep rows."""
        entries = [(self._key, c, row.astype("<f4").tobytes()) for c, row in zip(contents, rows, strict=True)]
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT OR REPLACE INTO features VALUES (?, ?, ?)", entries)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def default_cache() -> Path:
    """Where the command line keeps features: below $XDG_CACHE_HOME, or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "shorthash" / "features.sqlite"
