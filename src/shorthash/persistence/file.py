"""A save in one file: safetensors whose metadata say what the arrays mean; any reader of the format can look in.

The metadata hold the description of the object, the checksum of every array, and a checksum of all that and of the
table of contents. Opening checks the latter; the arrays are checked when they are read, or on demand. A file is
replaced in one step, so a crash leaves the old one or the new one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from shorthash.errors import DamagedFile, ForeignFile, PersistenceError
from shorthash.persistence import arrays as safetensors
from shorthash.persistence.arrays import LARGEST_HEADER, Array
from shorthash.persistence.meta import WAY_OUT, canonical, check_meta
from shorthash.persistence.places import force, working_place

__all__ = ["check_arrays", "is_save", "read_file", "read_header", "write_file"]

MARK = b'{"__metadata__":{"format":"shorthash"'  # how the table of contents of every save begins


def write_file(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write a save to ``path``, new or in place of an older one; nothing else is ever overwritten."""
    replacing = path.exists()
    if replacing and not is_save(path):
        what = "is a folder" if path.is_dir() else "was not saved by shorthash"
        raise ForeignFile(
            f"{path} exists and {what}, so it is not overwritten with a file; choose another path or move it."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with working_place(path) as place:
            header, names = _header(meta, arrays)
            safetensors.write_parts(place, header, [safetensors.octets_of(arrays[name]) for name in names])
            place.replace(path)
            force(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        kept = "; what was saved there before is unchanged" if replacing else ""
        raise PersistenceError(
            f"Cannot write {path}: {reason}{kept}; choose a folder with room that you may write to."
        ) from error


def is_save(path: Path) -> bool:
    """Whether a file begins like a save."""
    try:
        with path.open("rb") as file:
            return file.read(8 + len(MARK))[8:] == MARK
    except OSError:
        return False


def read_header(path: Path) -> dict[str, Any]:
    """The checked description of a save."""
    with _opened(path) as file:
        return _header_of(path, file)[0]


def read_file(path: Path, *, mmap: bool) -> tuple[dict[str, Any], dict[str, Array]]:
    """Description and arrays: read and checked, or (``mmap``) left on disk with only the table of contents checked."""
    with _opened(path) as file:
        meta, contents, start = _header_of(path, file)
        ends = [entry["data_offsets"][1] for name, entry in contents.items() if name != "__metadata__"]
        expected, size = start + max(ends, default=0), os.fstat(file.fileno()).st_size
        if size != expected:
            raise DamagedFile(f"{path} is damaged: it has {size} bytes instead of {expected}; {WAY_OUT}")
        file.seek(0)
        octets: Array = np.memmap(file, dtype=np.uint8, mode="c") if mmap else np.fromfile(file, dtype=np.uint8)
    arrays = safetensors.views(contents, octets[start:])
    if not mmap:
        check_arrays(path, meta, arrays)
    return meta, arrays


def check_arrays(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Raise DamagedFile unless every array has the checksum it was written with."""
    for name, array in arrays.items():
        if safetensors.digest(safetensors.octets_of(array)) != meta["checksums"].get(name):
            raise DamagedFile(f"{path} is damaged: the checksum of its array {name!r} differs; {WAY_OUT}")


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A file to read; it stays the same even if it is being replaced meanwhile."""
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise PersistenceError(f"Cannot read {path}: {error.strerror}; check its permissions.") from error


def _header_of(path: Path, file: BinaryIO) -> tuple[dict[str, Any], dict[str, Any], int]:
    """The checked description, the table of contents, and where the arrays begin."""
    length = int.from_bytes(file.read(8), "little")
    header = file.read(length if length <= LARGEST_HEADER else len(MARK))
    if not header.startswith(MARK):
        raise ForeignFile(f"{path} was not saved by shorthash, or its first bytes are damaged; give what save() wrote.")
    try:
        contents = json.loads(header)
        meta = json.loads(contents["__metadata__"]["save"])
        check_meta(path, meta)
        intact = contents["__metadata__"]["checksum"] == _checksum(contents) and header == _padded(contents)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, PersistenceError):
            raise
        intact = False
    if not intact:
        raise DamagedFile(f"{path} is damaged: its table of contents cannot be read; {WAY_OUT}")
    return meta, contents, 8 + length


def _header(meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> tuple[bytes, list[str]]:
    """Table of contents with the description and all checksums in its metadata, and the order of the arrays."""
    checksums = {name: safetensors.digest(safetensors.octets_of(array)) for name, array in arrays.items()}
    text = json.dumps({**meta, "checksums": checksums}, separators=(",", ":"), allow_nan=False)
    metadata = {"format": "shorthash", "save": text, "checksum": ""}
    header, names = safetensors.table_of_contents(arrays, metadata)
    contents = json.loads(header)
    contents["__metadata__"]["checksum"] = _checksum(contents)
    return _padded(contents), names


def _padded(contents: Mapping[str, Any]) -> bytes:
    header = json.dumps(contents, separators=(",", ":")).encode()
    return header + b" " * (-len(header) % safetensors.ALIGNMENT)


def _checksum(contents: Mapping[str, Any]) -> str:
    """Checksum of a table of contents, its own aside."""
    metadata = {key: value for key, value in contents["__metadata__"].items() if key != "checksum"}
    return safetensors.digest(canonical({**contents, "__metadata__": metadata}))
