"""The folder of a save: written so that a crash at any moment leaves the old state or the new one, read with suspicion.

A new save is written beside its place under a temporary name, forced to disk, and renamed. To replace a save, the
new arrays are written into the folder under a new name and forced to disk; then ``meta.json``, which names its array
file, is replaced in one step; then the old arrays go.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.errors import DamagedFile, ForeignFile, NewerVersion, PersistenceError

__all__ = ["FORMAT_VERSION", "read_arrays", "read_meta", "write_folder"]

Array = NDArray[Any]

FORMAT_VERSION = 1
MARK = '{\n "format": "shorthash"'  # how every meta.json begins
META = "meta.json"
ARRAYS = "arrays.safetensors"
ALIGNMENT = 8  # the widest type
LARGEST_HEADER = 1 << 26  # a table of contents beyond this is nonsense

TYPES = {
    "BOOL": "bool",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
}
"""Types we write, by their names in safetensors files."""

TYPE_NAMES = {name: key for key, name in TYPES.items()}


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
        version, checksum = meta["format_version"], meta.pop("checksum")
        if version > FORMAT_VERSION:
            raise NewerVersion(
                f"{path} was written by shorthash {meta['shorthash_version']} in format {version}, and this version "
                f"reads up to format {FORMAT_VERSION}; upgrade with: pip install --upgrade shorthash"
            )
        intact = checksum == _digest(_canonical(meta))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, NewerVersion):
            raise
        intact = False
    if not intact:
        raise DamagedFile(f"{path / META} is damaged: {_WAY_OUT}")
    return dict(meta)


def read_arrays(path: Path, meta: Mapping[str, Any], *, mmap: bool) -> dict[str, Array]:
    """The arrays by name: read and checked, or (``mmap``) left on disk with only their table of contents checked."""
    expected = _ArrayFile(**meta["arrays"])
    file = path / Path(expected.file).name  # never outside the folder
    try:
        if file.stat().st_size != expected.n_bytes:
            raise DamagedFile(
                f"{file} is damaged: it has {file.stat().st_size} bytes instead of {expected.n_bytes}; {_WAY_OUT}"
            )
        octets: Array = np.memmap(file, dtype=np.uint8, mode="c") if mmap else np.fromfile(file, dtype=np.uint8)
    except FileNotFoundError as error:
        raise DamagedFile(f"{file} is missing: {_WAY_OUT}") from error
    except OSError as error:
        raise PersistenceError(f"Cannot read {file}: {error.strerror}; check its permissions.") from error
    if not mmap and _digest(octets.data) != expected.sha256:
        raise DamagedFile(f"{file} is damaged: its checksum differs; {_WAY_OUT}")
    try:
        return _views(octets, expected.header_sha256)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise DamagedFile(f"{file} is damaged: its table of contents cannot be read; {_WAY_OUT}") from error


_WAY_OUT = "restore it from a copy, or build and save it again."


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
        raise ForeignFile(
            f"{path} exists and was not saved by shorthash, so it is not overwritten; choose another path or move it."
        )
    return True


def _create(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    work = path.parent / f".{path.name}.saving-{secrets.token_hex(4)}"
    work.mkdir()
    try:
        described = _write_arrays(work / ARRAYS, arrays)
        _write_meta(work / META, meta, described)
        _sync(work)
        if path.exists():
            path.rmdir()  # it is empty
        work.rename(path)
        _sync(path.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


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
        _sync(path)
        new_meta.replace(path / META)
        _sync(path)
    finally:
        new_arrays.unlink(missing_ok=True)
        new_meta.unlink(missing_ok=True)
    for old in path.iterdir():
        if old.name != final.name and (old.suffix == ".safetensors" or old.name.endswith(".tmp")):
            old.unlink(missing_ok=True)


def _write_arrays(file: Path, arrays: Mapping[str, Array]) -> _ArrayFile:
    """Write a safetensors file, force it to disk, and describe it.

    The format is: the length of the table of contents (8 bytes), the table (JSON: type, shape and place of every
    array), the arrays. Wide types come first, so that every array is aligned. Writing it here gives the checksum on
    the way.
    """
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    contents, end = {}, 0
    for name in names:
        start, end = end, end + arrays[name].nbytes
        kind = TYPE_NAMES[arrays[name].dtype.name]
        contents[name] = {"dtype": kind, "shape": list(arrays[name].shape), "data_offsets": [start, end]}
    header = json.dumps(contents, separators=(",", ":")).encode()
    header += b" " * (-len(header) % ALIGNMENT)
    digest = hashlib.sha256()
    with file.open("wb") as target:
        parts: list[bytes | memoryview] = [len(header).to_bytes(8, "little"), header]
        parts += [_octets(arrays[name]) for name in names]
        for part in parts:
            digest.update(part)
            target.write(part)
        target.flush()
        os.fsync(target.fileno())
    return _ArrayFile(file.name, 8 + len(header) + end, digest.hexdigest(), _digest(header))


def _octets(array: Array) -> memoryview:
    """The bytes of a contiguous array, not copied."""
    return array.reshape(-1).view(np.uint8).data


def _write_meta(file: Path, meta: Mapping[str, Any], arrays: _ArrayFile) -> None:
    contents = {**meta, "arrays": vars(arrays)}
    contents["checksum"] = _digest(_canonical(contents))
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
    if _digest(header) != header_sha256:
        raise ValueError("the checksum of the table of contents differs")
    body = octets[8 + length :]
    arrays = {}
    for name, entry in json.loads(header).items():
        if name == "__metadata__":
            continue
        start, stop = entry["data_offsets"]
        dtype = np.dtype(TYPES[entry["dtype"]]).newbyteorder("<")
        arrays[name] = np.asarray(body[start:stop]).view(dtype).reshape(entry["shape"])
    return arrays


def _canonical(meta: Mapping[str, Any]) -> bytes:
    return json.dumps(meta, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _digest(octets: bytes | memoryview) -> str:
    return hashlib.sha256(octets).hexdigest()


def _sync(folder: Path) -> None:
    """Force the entries of a folder to disk."""
    if os.name != "posix":
        return  # elsewhere a folder cannot be opened
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
