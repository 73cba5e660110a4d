"""Data sets by name: where their files are looked for, how to obtain the originals, features, licence, protocol.

A name is an entry of :data:`CATALOGUE`, or the path of a .npz file with ``X`` and ``y`` (or ``Y``), or of a folder with
``features`` and ``labels`` files. Rows are scaled, then divided by their length. To add a data set, add an entry.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Labels
from shorthash._validation import check_choice
from shorthash.data.dataset import Dataset
from shorthash.data.downloads import Original, Tell, download
from shorthash.data.entries import CATALOGUE, Entry
from shorthash.data.files import ENDINGS, read_features, read_labels
from shorthash.data.formats import npz_names, read_npz
from shorthash.data.splits import Protocol, RandomQueries
from shorthash.errors import DataFileError

__all__ = [
    "CATALOGUE",
    "Entry",
    "NamedData",
    "data_folders",
    "dataset_facts",
    "default_protocol",
    "fetch",
    "find_file",
    "read_dataset",
]

Arrays = tuple[NDArray[Any], Labels, NDArray[np.bool_] | None]  # features as stored, labels, official test rows


@dataclass(frozen=True)
class NamedData:
    """A data set as it was found.

    Attributes
    ----------
    data : rows of unit norm, and labels
    fingerprint : sha256 of labels and scaled features, before rows are divided by their length
    place : the file or folder it was read from; "" where it comes with scikit-learn
    """

    data: Dataset
    fingerprint: str
    place: str


def data_folders(data_dir: str | Path | None = None) -> tuple[Path, ...]:
    """Folders in which data files are looked for, first one first: ``data_dir``, SHORTHASH_DATA, a per-user cache."""
    named = [data_dir, os.environ.get("SHORTHASH_DATA")]
    return (*(Path(folder) for folder in named if folder), _user_cache())


def find_file(name: str, data_dir: str | Path | None = None) -> Path:
    """The feature file of an entry, in the first folder that has it; raises if none has."""
    entry = CATALOGUE[name]
    folders = data_folders(data_dir)
    for folder in folders:
        if (folder / entry.file).exists():
            return folder / entry.file
    looked = ", ".join(str(folder) for folder in folders)
    raise DataFileError(
        f"The data set {name!r} needs {entry.file}, which is in none of {looked}; set SHORTHASH_DATA or --data-dir to "
        f"its folder, or {_way_to(entry)}."
    )


def default_protocol(name: str, n_rows: int | None = None) -> Protocol:
    """The protocol of an entry; of other data, up to 1 000 random queries, a tenth of the rows if they are few."""
    if name in CATALOGUE:
        return CATALOGUE[name].protocol
    return RandomQueries(n_queries=1000 if n_rows is None else max(1, min(1000, n_rows // 10)))


def read_dataset(name: str, data_dir: str | Path | None = None) -> NamedData:
    """A data set by name, or from a file or folder; rows have unit norm.

    Parameters
    ----------
    name : an entry of the catalogue, or a path
    data_dir : folder to look in first

    Examples
    --------
    >>> read_dataset("digits").data
    Dataset('digits', 1797 rows x 64 features, 10 classes)
    """
    if name not in CATALOGUE:
        path = Path(name)
        X, y, test = _read_path(path)
        return _named(path.stem, X, y, test, f"from {path.name}", str(path))
    entry = CATALOGUE[name]
    if entry.reader == "sklearn":
        return _named(name, *_read_digits(), entry.features, "")
    place = _place(name, data_dir)
    X, y, test = _read_npz(place) if entry.reader == "npz" else _read_idx(place, entry.originals)
    return _named(name, X, y, test, entry.features, str(place))


def dataset_facts(name: str, data_dir: str | Path | None = None) -> dict[str, Any]:
    """What there is to know about an entry, and where it was found ("" if nowhere), as plain values: for listings."""
    entry = CATALOGUE[name]
    try:
        place = "scikit-learn" if entry.reader == "sklearn" else str(_place(name, data_dir))
    except DataFileError:
        place = ""
    return {
        "title": entry.title,
        "rows": entry.rows,
        "dims": entry.dims,
        "classes": entry.classes,
        "several_labels": entry.several,
        "features": entry.features,
        "protocol": ", ".join(f"{key}={value}" for key, value in entry.protocol.to_dict().items() if key != "seed"),
        "original": entry.obtain,
        "downloads": ", ".join(f"{file.url} ({file.checksum or 'no known checksum'})" for file in entry.originals),
        "licence": entry.licence,
        "place": place,
    }


def fetch(name: str, data_dir: str | Path | None = None, tell: Tell | None = None) -> tuple[Path, ...]:
    """Download the original files of an entry into ``originals/NAME`` of a folder, the per-user cache unless told.

    Parameters
    ----------
    name : an entry of the catalogue
    data_dir : where to put them; default: the per-user cache
    tell : called with (name of the file, bytes so far, bytes in all or 0)
    """
    check_choice(name, "name", "fetch", list(CATALOGUE))
    entry = CATALOGUE[name]
    if not entry.originals:
        raise DataFileError(f"The data set {name!r} cannot be downloaded by a program: {entry.obtain}.")
    folder = (_user_cache() if data_dir is None else Path(data_dir)) / "originals" / name
    return tuple(download(original, folder, tell) for original in entry.originals)


def _named(
    name: str, X: NDArray[Any], y: Labels, test: NDArray[np.bool_] | None, provenance: str, place: str
) -> NamedData:
    digest = hashlib.sha256()
    for array in (X, y):
        stored = np.ascontiguousarray(array)
        digest.update(f"{stored.dtype.str}{stored.shape}".encode())
        digest.update(stored.tobytes() if stored.dtype != object else repr(stored.tolist()).encode())
    return NamedData(Dataset(name, _unit_rows(X), y, provenance, test), digest.hexdigest(), place)


def _unit_rows(X: NDArray[Any]) -> NDArray[np.float32]:
    """Rows of unit norm; rows of zeros stay."""
    values = X.astype(np.float32)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    values /= np.where(norms > 0, norms, 1)
    return np.asarray(values, dtype=np.float32)


def _read_npz(file: Path) -> Arrays:
    names = npz_names(file)
    test = read_npz(file, "official_test").astype(bool) if "official_test" in names else None
    return read_features(file), read_labels(file), test


def _read_path(path: Path) -> Arrays:
    """Features and labels of a .npz file, or of the two files of a folder."""
    if path.is_dir():
        return read_features(_only(path, "features", "X")), read_labels(_only(path, "labels", "y", "Y")), None
    if not path.exists() or path.suffix.lower() != ".npz":
        known = ", ".join(CATALOGUE)
        raise DataFileError(
            f"A data set must be one of {known}, a .npz file with X and y, or a folder with a features and a labels "
            f"file. Got {str(path)!r} instead."
        )
    return _read_npz(path)


def _only(folder: Path, *stems: str) -> Path:
    found = [folder / f"{stem}{ending}" for stem in stems for ending in ENDINGS]
    there = [path for path in found if path.exists()]
    if len(there) != 1:
        raise DataFileError(
            f"{folder} must hold exactly one file named {' or '.join(stems)} with one of the endings "
            f"{', '.join(ENDINGS)}. Got {len(there)} instead; rename them."
        )
    return there[0]


def _read_digits() -> Arrays:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return X, y, None


def _read_idx(folder: Path, originals: tuple[Original, ...]) -> Arrays:
    """Pixels and labels of the idx files of MNIST and its likes: training rows, then test rows."""
    pixels, labels, more, last = (_idx(folder / original.name) for original in originals)
    X = np.concatenate([pixels, more]).reshape(len(pixels) + len(more), -1)
    return X, np.concatenate([labels, last]).astype(np.int16), np.arange(len(X)) >= len(pixels)


def _place(name: str, data_dir: str | Path | None) -> Path:
    """The feature file, or the folder of original files, of an entry."""
    entry = CATALOGUE[name]
    if entry.reader != "idx":
        return find_file(name, data_dir)
    folders = data_folders(data_dir)
    for place in (folder / "originals" / name for folder in folders):
        if all((place / original.name).exists() for original in entry.originals):
            return place
    looked = ", ".join(str(folder) for folder in folders)
    raise DataFileError(
        f"The data set {name!r} needs {entry.originals[0].name} and {len(entry.originals) - 1} more files in "
        f"originals/{name} of one of {looked}; run: shorthash datasets fetch {name}"
    )


def _idx(file: Path) -> NDArray[np.uint8]:
    """The array of an idx file of bytes, packed or not."""
    opener: Callable[..., Any] = gzip.open if file.suffix == ".gz" else open
    try:
        with opener(file, "rb") as stream:
            octets = stream.read()
    except (OSError, EOFError) as error:
        raise DataFileError(f"{file} cannot be unpacked ({error}); remove it and fetch it again.") from error
    n_dims = octets[3] if octets[:3] == b"\0\0\x08" else 0
    start = 4 + 4 * n_dims
    shape = [int.from_bytes(octets[at : at + 4]) for at in range(4, start, 4)]
    if not n_dims or len(octets) != start + math.prod(shape):
        raise DataFileError(f"{file} is not an idx file of bytes, or it is damaged; remove it and fetch it again.")
    return np.frombuffer(octets, dtype=np.uint8, offset=start).reshape(shape)


def _way_to(entry: Entry) -> str:
    """What to do where a feature file is missing."""
    return f"make it from the original ({entry.obtain}) as docs/guide/datasets.md says"


def _user_cache() -> Path:
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "shorthash"
