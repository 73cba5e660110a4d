"""The folder of a save: written so that a crash at any moment leaves the old state or the new one, read with suspicion.

A new save is written beside its place under a temporary name, forced to disk, and renamed. To replace a save, the
new arrays are written into the folder under a new name and forced to disk; then ``meta.json``, which names its array
file, is replaced in one step; then the old arrays go.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shorthash.errors import DamagedFile, ForeignFile, NewerVersion, PersistenceError
from shorthash.persistence import arrays as safetensors
from shorthash.persistence.arrays import LARGEST_HEADER, Array
from shorthash.persistence.file import is_save
from shorthash.persistence.meta import WAY_OUT, canonical, check_meta
from shorthash.persistence.places import force, working_place

__all__ = ["read_arrays", "read_meta", "write_folder"]

MARK = '{\n "format": "shorthash"'  # how every meta.json begins
META = "meta.json"
ARRAYS = "arrays.safetensors"


@dataclass(frozen=True)
class _ArrayFile:
    """What meta.json knows about its array file."""

    file: str
    n_bytes: int
    sha256: str
    header_sha256: str


def write_folder(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write a save to ``path``, new or in place of an older save; nothing else is ever overwritten."""
    replacing = _may_replace(path)
    try:
        if replacing:
            _replace(path, meta, arrays)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            _create(path, meta, arrays)
    except OSError as error:
        reason = error.strerror or str(error)
        kept = "; what was saved there before is unchanged" if replacing else ""
        raise PersistenceError(
            f"Cannot write {path}: {reason}{kept}; choose a folder with room that you may write to."
        ) from error


def read_meta(path: Path) -> dict[str, Any]:
    """The checked contents of ``meta.json``."""
    if not path.exists():
        raise PersistenceError(f"There is nothing at {path}; check the path.")
    if path.is_file():
        raise ForeignFile(
            f"{path} was not saved by shorthash, or its first bytes are damaged; give the file (of an index) or the "
            "folder (of a model) that save() wrote."
        )
    try:
        raw = (path / META).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ForeignFile(
            f"{path} was not saved by shorthash: it holds no {META}; give the folder that save() wrote."
        ) from error
    except OSError as error:
        raise PersistenceError(f"Cannot read {path}: {error.strerror}; check its permissions.") from error
    if not raw.startswith(MARK.encode()):
        raise ForeignFile(
            f"{path / META} was not written by shorthash, or its first bytes are damaged; "
            "give the folder that save() wrote."
        )
    try:
        meta = json.loads(raw)
        check_meta(path, meta)
        intact = meta.pop("checksum") == safetensors.digest(canonical(meta))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, NewerVersion):
            raise
        intact = False
    if not intact:
        raise DamagedFile(f"{path / META} is damaged: {WAY_OUT}")
    return dict(meta)


def read_arrays(path: Path, meta: Mapping[str, Any], *, mmap: bool) -> dict[str, Array]:
    """The arrays by name: read and checked, or (``mmap``) left on disk with only their table of contents checked."""
    expected = _ArrayFile(**meta["arrays"])
    file = path / Path(expected.file).name  # never outside the folder
    try:
        if file.stat().st_size != expected.n_bytes:
            raise DamagedFile(
                f"{file} is damaged: it has {file.stat().st_size} bytes instead of {expected.n_bytes}; {WAY_OUT}"
            )
        octets: Array = np.memmap(file, dtype=np.uint8, mode="c") if mmap else np.fromfile(file, dtype=np.uint8)
    except FileNotFoundError as error:
        raise DamagedFile(f"{file} is missing: {WAY_OUT}") from error
    except OSError as error:
        raise PersistenceError(f"Cannot read {file}: {error.strerror}; check its permissions.") from error
    if not mmap and safetensors.digest(octets.data) != expected.sha256:
        raise DamagedFile(f"{file} is damaged: its checksum differs; {WAY_OUT}")
    try:
        return _views(octets, expected.header_sha256)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise DamagedFile(f"{file} is damaged: its table of contents cannot be read; {WAY_OUT}") from error


def _may_replace(path: Path) -> bool:
    """Whether ``path`` holds an older save; raises if it holds anything else."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return False
    try:
        with (path / META).open("rb") as file:
            ours = file.read(len(MARK)) == MARK.encode()
    except OSError:
        ours = False
    if not ours:
        what = "is a file" if is_save(path) else "was not saved by shorthash"
        raise ForeignFile(f"{path} exists and {what}, so it is not overwritten; choose another path or move it.")
    return True


def _create(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    with working_place(path, folder=True) as work:
        described = _write_arrays(work / ARRAYS, arrays)
        _write_meta(work / META, meta, described)
        force(work)
        if path.exists():
            path.rmdir()  # it is empty
        work.rename(path)
        force(path.parent)


def _replace(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    token = secrets.token_hex(4)
    new_arrays, new_meta = path / f".arrays-{token}.tmp", path / f".meta-{token}.tmp"
    try:
        described = _write_arrays(new_arrays, arrays)
        final = path / f"arrays-{described.sha256[:16]}.safetensors"
        new_arrays.replace(final)
        _write_meta(
            new_meta, meta, _ArrayFile(final.name, described.n_bytes, described.sha256, described.header_sha256)
        )
        force(path)
        new_meta.replace(path / META)
        force(path)
    finally:
        new_arrays.unlink(missing_ok=True)
        new_meta.unlink(missing_ok=True)
    for old in path.iterdir():
        if old.name != final.name and (old.suffix == ".safetensors" or old.name.endswith(".tmp")):
            old.unlink(missing_ok=True)


def _write_arrays(file: Path, arrays: Mapping[str, Array]) -> _ArrayFile:
    """Write the array file and describe it."""
    header, names = safetensors.table_of_contents(arrays)
    checksum = safetensors.write_parts(file, header, [safetensors.octets_of(arrays[name]) for name in names])
    n_bytes = 8 + len(header) + sum(array.nbytes for array in arrays.values())
    return _ArrayFile(file.name, n_bytes, checksum, safetensors.digest(header))


def _write_meta(file: Path, meta: Mapping[str, Any], arrays: _ArrayFile) -> None:
    contents = {**meta, "arrays": vars(arrays)}
    contents["checksum"] = safetensors.digest(canonical(contents))
    text = json.dumps(contents, indent=1, allow_nan=False)
    assert text.startswith(MARK), "the mark is how a save is recognised"
    with file.open("w", encoding="utf-8") as target:
        target.write(text + "\n")
        target.flush()
        os.fsync(target.fileno())


def _views(octets: Array, header_sha256: str) -> dict[str, Array]:
    """Views of the arrays inside a safetensors file."""
    length = int.from_bytes(octets[:8].tobytes(), "little")
    if length > min(LARGEST_HEADER, len(octets) - 8):
        raise ValueError("the table of contents is longer than the file")
    header = octets[8 : 8 + length].tobytes()
    if safetensors.digest(header) != header_sha256:
        raise ValueError("the checksum of the table of contents differs")
    return safetensors.views(json.loads(header), octets[8 + length :])
