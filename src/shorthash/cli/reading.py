"""What several verbs read: a fitted hasher, and codes, given as they are or as features to encode."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from shorthash.cli.progress import Tell

if TYPE_CHECKING:
    from shorthash._types import Codes

__all__ = ["check_columns", "check_place", "code_length", "encode_file", "read_hasher", "read_or_encode"]

CHUNK_ROWS = 65_536  # rows between two moves of the progress bar; a multiple of the batches the library reads


def read_hasher(path: Path) -> Any:
    """Load a fitted model; an index, or a part of a model, is an error."""
    from shorthash.errors import InvalidInput
    from shorthash.persistence import describe, load

    holds = describe(path)
    if holds["kind"] == "index" or "n_bits" not in holds:
        raise InvalidInput(f"{path} holds {holds['class']}, but a model is needed; give a folder of shorthash fit.")
    return load(path)


def code_length(path: Path) -> int:
    """Bits of the codes that a saved model makes."""
    from shorthash.persistence import describe

    return int(describe(path)["n_bits"])


def check_place(path: Path) -> None:
    """Raise if a model cannot be written to ``path`` because something else is there."""
    from shorthash.errors import ForeignFile, PersistenceError
    from shorthash.persistence import describe

    try:
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            describe(path)
    except ForeignFile:
        raise ForeignFile(f"{path} exists and is no model of shorthash, so it stays; choose another folder.") from None
    except PersistenceError:
        return  # a model of ours, damaged or newer: it may be replaced


def check_columns(path: Path, n_columns: int, hasher: Any) -> None:
    """Raise if a file has other features than the model was learned from."""
    from shorthash.errors import InvalidInput

    if n_columns != hasher.n_features_in_:
        labels = "" if path.suffix == ".npy" else ", and say which columns are labels"
        raise InvalidInput(
            f"{path} has {n_columns} features per row, but the model was learned from {hasher.n_features_in_}; give "
            f"features made in the same way{labels}."
        )


def encode_file(path: Path, hasher: Any, tell: Tell) -> Codes:
    """Codes of the feature rows of a file, read in chunks."""
    import numpy as np

    from shorthash.data.files import read_features

    X = read_features(path)
    check_columns(path, X.shape[1], hasher)
    parts = []
    for start in range(0, len(X), CHUNK_ROWS):
        tell("encoding", start, len(X))
        parts.append(hasher.transform(X[start : start + CHUNK_ROWS]))
    return np.concatenate(parts)


def read_or_encode(path: Path, hasher: Any, tell: Tell, n_bits: int | None = None) -> Codes:
    """Codes of a file: encoded by ``hasher`` if its rows are features, read as they are if ``hasher`` is None."""
    from shorthash.data.files import read_codes

    return read_codes(path, n_bits) if hasher is None else encode_file(path, hasher, tell)
