"""What several verbs read: a fitted hasher, and codes, given as they are or as features to encode."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from shorthash.cli.progress import Tell

if TYPE_CHECKING:
    from shorthash._types import Codes

__all__ = ["check_place", "encode_file", "read_hasher", "read_or_encode"]

CHUNK_ROWS = 65_536  # rows between two moves of the progress bar; a multiple of the batches the library reads


def read_hasher(path: str) -> Any:
    """Load a fitted model; an index or something else is an error."""
    from shorthash.errors import InvalidInput
    from shorthash.persistence import describe, load

    if describe(path)["kind"] == "index":
        raise InvalidInput(
            f"{path} holds an index, but a model is needed here; give a folder written by shorthash fit."
        )
    return load(path)


def check_place(path: str) -> None:
    """Raise if a model cannot be written to ``path`` because something else is there."""
    from shorthash.errors import ForeignFile, PersistenceError
    from shorthash.persistence import describe

    place = Path(path)
    try:
        if place.exists() and not (place.is_dir() and not any(place.iterdir())):
            describe(place)
    except ForeignFile:
        raise ForeignFile(f"{path} exists and is no model of shorthash, so it stays; choose another folder.") from None
    except PersistenceError:
        return  # a model of ours, damaged or newer: it may be replaced


def encode_file(path: str, hasher: Any, tell: Tell) -> Codes:
    """Codes of the feature rows of a file, read in chunks."""
    import numpy as np

    from shorthash.errors import InvalidInput
    from shorthash.features.files import read_features

    X = read_features(path)
    if X.shape[1] != hasher.n_features_in_:
        raise InvalidInput(
            f"{path} has {X.shape[1]} features per row, but the model was learned from {hasher.n_features_in_}; give "
            "features made in the same way."
        )
    parts = []
    for start in range(0, len(X), CHUNK_ROWS):
        tell("encoding", start, len(X))
        parts.append(hasher.transform(X[start : start + CHUNK_ROWS]))
    return np.concatenate(parts)


def read_or_encode(path: str, hasher: Any, tell: Tell, n_bits: int | None = None) -> Codes:
    """Codes of a file: encoded by ``hasher`` if its rows are features, read as they are if ``hasher`` is None."""
    from shorthash.features.files import read_codes

    return read_codes(path, n_bits) if hasher is None else encode_file(path, hasher, tell)
