"""Save and load fitted models and indexes; describe and verify what was saved."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shorthash.errors import DamagedFile, PersistenceError, ShorthashError
from shorthash.index.memory import MemoryIndex
from shorthash.persistence.files import check_arrays, damage_explained, read_meta, read_save, write_file, write_folder
from shorthash.persistence.values import ESTIMATORS, INDEXES, Decoder, Encoder, registered_name

TRIED = 1 << 20  # columns of a row that a loaded model encodes to show that it can
NOT_SAVED = ("_path", "_rows")  # what EAPH keeps in memory after fit: models of all penalties, training rows
OF_PARTIAL_FIT = ("statistics_", "kept_rows_")


def save(obj: Any, path: str | os.PathLike[str], *, statistics: bool = True) -> Path:
    """Save a fitted model or pipeline as a folder, an index as one file.

    An older save at the same path is replaced in one step: a crash leaves the old one or the new one. Anything else at
    that path is not overwritten; an error says so. Temporary files of interrupted saves to this path are removed. An
    index opened with ``mmap=True`` is first checked against the checksums of its file.

    Parameters
    ----------
    obj : an estimator or pipeline of shorthash, or an index
    path : the folder or file to write
    statistics : whether to save the sums that ``partial_fit`` needs (``statistics_``); without them the save is
        smaller and gives the same codes, but the loaded model cannot be trained further

    Returns
    -------
    path : the folder or file

    Examples
    --------
    >>> import tempfile
    >>> from shorthash import BucketIndex, load, save
    >>> index = BucketIndex(n_bits=3).add([[1, 1, 1], [1, -1, 1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     load(save(index, f"{folder}/index")).search([[1, 1, 1]], k=2).ids.tolist()
    [[0, 1]]
    """
    kind = "pipeline" if hasattr(obj, "steps") else "model"
    name = registered_name(obj, ESTIMATORS)
    if name is None:
        kind, name = "index", registered_name(obj, INDEXES)
    if name is None:
        kinds = ", ".join(sorted([*ESTIMATORS, *INDEXES]))
        raise PersistenceError(f"save() takes one of {kinds}. Got {type(obj).__name__} instead.")
    if hasattr(obj, "verify"):
        obj.verify()  # a damaged array must not get a new checksum that fits it
    encoder = Encoder(leave_out=NOT_SAVED if statistics else (*NOT_SAVED, *OF_PARTIAL_FIT))
    meta = {
        "kind": kind,
        "class": name,
        "statistics": statistics and _learns_further(obj),
        "summary": _summary(obj),
        "value": encoder.encode(obj, name),
    }
    write = write_file if kind == "index" else write_folder
    write(Path(path), meta, encoder.arrays)
    return Path(path)


def load(path: str | os.PathLike[str], *, mmap: bool = False) -> Any:
    """Load what ``save`` wrote; no code in it is run.

    Parameters
    ----------
    path : the folder or file
    mmap : leave the arrays on disk and read them when they are needed; changes are kept in memory. The table of
        contents is checked, and of an index what keeps a search inside its arrays (one pass over the bucket table, 4 or
        8 bytes per item). Ids, vectors and checksums are not: ``verify`` checks every byte

    Examples
    --------
    >>> import tempfile
    >>> from shorthash import BucketIndex, load, save
    >>> path = tempfile.mkdtemp() + "/index"
    >>> _ = save(BucketIndex(n_bits=3).add([1, 2]), path)
    >>> len(load(path))
    2
    """
    place = Path(path)
    meta, arrays = read_save(place, mmap=mmap)
    loaded = _decoded(place, meta, arrays, thorough=not mmap)
    if mmap and "checksums" in meta and hasattr(loaded, "verify"):
        loaded._check_source = lambda: _check(place, meta, arrays)
    return loaded


def _decoded(place: Path, meta: Mapping[str, Any], arrays: Mapping[str, Any], *, thorough: bool) -> Any:
    """The object that a save describes."""
    try:
        loaded = Decoder(arrays, thorough=thorough).decode(meta["value"])
        _check_use(loaded, meta)
        return loaded
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError, OverflowError) as error:
        kind = "" if isinstance(error, ShorthashError) else f"{type(error).__name__}: "
        raise DamagedFile(
            f"{place} cannot be read back: {kind}{str(error).rstrip('.')}; it was written by shorthash "
            f"{meta['shorthash_version']}, so try that version, or build and save it again."
        ) from error


def _check_use(loaded: Any, meta: Mapping[str, Any]) -> None:
    """Raise unless an object is of the class that its description names, and a model encodes one row."""
    registry = INDEXES if meta["kind"] == "index" else ESTIMATORS
    if registered_name(loaded, registry) != meta["class"]:
        raise TypeError(f"it is a {type(loaded).__name__}, not a {meta['class']}")
    n_features = meta["summary"].get("n_features_in")
    if meta["kind"] == "index" or n_features is None or n_features > TRIED or not hasattr(loaded, "transform"):
        return
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            loaded.transform(np.zeros((1, n_features)))
    except ShorthashError:
        raise
    except Exception as error:  # of any kind, since its parts may not fit each other
        raise ValueError(f"it cannot encode a row ({type(error).__name__}: {error})") from error


def _check(place: Path, meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Raise DamagedFile unless the arrays of a save in one file have their checksums and fit each other."""
    check_arrays(place, meta, arrays)
    _decoded(place, meta, arrays, thorough=True)


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a save holds, without reading its arrays.

    Parameters
    ----------
    path : the folder or file

    Returns
    -------
    description : kind ("index", "model" or "pipeline"), class, shorthash_version, format_version, statistics (whether
        it can be trained further), bytes, params, and n_bits, n_items, n_features_in, n_samples_seen where they apply

    Examples
    --------
    >>> import tempfile
    >>> from shorthash import BucketIndex, save
    >>> path = tempfile.mkdtemp() + "/index"
    >>> _ = save(BucketIndex(n_bits=3).add([1, 2]), path)
    >>> describe(path)["kind"]
    'index'
    """
    place = Path(path)
    meta = read_meta(place)
    n_bytes = meta["arrays"]["n_bytes"] if "arrays" in meta else place.stat().st_size
    kept = ("kind", "class", "shorthash_version", "format_version", "statistics")
    with damage_explained(place, "its description is incomplete; "):
        return {
            **{key: meta[key] for key in kept},
            "bytes": n_bytes,
            **meta["summary"],
            "params": _plain(meta["value"].get("params", {})),
        }


def verify(path: str | os.PathLike[str]) -> None:
    """Raise DamagedFile unless every byte of a save is as it was written, and its parts fit each other.

    Parameters
    ----------
    path : the folder or file

    Examples
    --------
    >>> import tempfile
    >>> from shorthash import BucketIndex, save
    >>> path = tempfile.mkdtemp() + "/index"
    >>> _ = save(BucketIndex(n_bits=3).add([1, 2]), path)
    >>> verify(path)
    """
    place = Path(path)
    meta, arrays = read_save(place, mmap=False)
    if "value" in meta:  # other files of arrays, such as packed vectors, have none
        _decoded(place, meta, arrays, thorough=True)


def _learns_further(obj: Any) -> bool:
    """Whether the learner has what its ``partial_fit`` goes on from."""
    learner = obj.steps[-1][1] if hasattr(obj, "steps") else obj
    return hasattr(learner, "partial_fit") and any(hasattr(learner, name) for name in OF_PARTIAL_FIT)


def _summary(obj: Any) -> dict[str, int]:
    """Sizes that ``describe`` reports."""
    if isinstance(obj, MemoryIndex):
        more = {} if obj.dimension is None else {"dimension": obj.dimension}
        more |= {"posterior_bytes": obj.posterior_bytes} if obj.posterior_bytes else {}
        return {"n_bits": obj.n_bits, "n_items": len(obj), **more}
    steps = [step for _, step in getattr(obj, "steps", [("", obj)])]
    features = [getattr(step, "n_features_in_", None) for step in steps]
    seen = [getattr(step, "n_samples_seen_", None) for step in reversed(steps)]
    found = {
        "n_bits": getattr(steps[-1], "n_bits", None),
        "n_features_in": next((n for n in features if n is not None), None),
        "n_samples_seen": next((n for n in seen if n is not None), None),
    }
    return {name: int(value) for name, value in found.items() if value is not None}


def _plain(node: Any) -> Any:
    """Encoded parameters as plain values; arrays and random generators by name only."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    kind = node.get("$")
    if kind is None:
        return {key: _plain(value) for key, value in node.items()}
    if kind == "estimator":
        return {"class": node["class"], **_plain(node["params"])}
    if kind in ("tuple", "dict"):
        items = [_plain(item) for item in node["items"]]
        return items if kind == "tuple" else {str(key): value for key, value in items}
    if kind in ("float", "strings", "objects") and ("value" in node or "values" in node):
        return node.get("value", node.get("values"))
    return f"<{kind}>"
