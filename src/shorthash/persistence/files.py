"""Saves on disk: arrays in safetensors files, written so that a crash leaves the old save or the new one.

A save is a folder (models: ``meta.json`` and an array file) or one file (indexes: the description is the metadata of
the safetensors header). Safetensors is eight bytes for the length of a header, the header (JSON: type, shape and place
of every array), and the arrays; wide types come first, so that every array is aligned. The format is written and read
here because a save needs checksums while it is written, and views of a memory map when it is read.

New files are written under a temporary name beside their target, forced to disk, and renamed. To replace a folder, the
new arrays are written into it under a new name; then ``meta.json``, which names its array file, is replaced in one
step; then the old arrays are removed. A writer locks what it writes; the system drops the lock when the process ends,
so whatever has the name of an unfinished save and is not locked is removed by the next save to the same path.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from filelock import BaseFileLock, FileLock, Timeout
from numpy.typing import NDArray

from shorthash import __version__
from shorthash.errors import DamagedFile, ForeignFile, NewerVersion, PersistenceError, phrase

Array = NDArray[Any]

FORMAT_VERSION = 1
ADVICE = "restore it from a copy, or build and save it again."

LOCKS_ITSELF = os.name == "posix"  # whether a file or folder is locked itself, or by a file beside it
LOCK_SUFFIX = ".lock"
META = "meta.json"
ARRAYS = "arrays.safetensors"
FILE_START = b'{"__metadata__":{"format":"shorthash"'  # how the header of every save in one file begins
META_START = b'{\n "format": "shorthash"'  # how every meta.json begins

ALIGNMENT = 8  # the widest type
LARGEST_HEADER = 1 << 26
PART_BYTES = 64  # memory that a part of a JSON text takes once it is parsed, about
LARGEST_JSON = 1 << 27  # bytes of memory that a JSON text may take beyond its length
TYPES = {"BOOL": "bool"}
TYPES |= {f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}
TYPES |= {f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)}
TYPES |= {f"F{bits}": f"float{bits}" for bits in (16, 32, 64)}
"""Types of arrays in saves, by their names in safetensors files."""

TYPE_NAMES = {name: key for key, name in TYPES.items()}


def write_file(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write a save in one file, new or in place of an older one; nothing else is overwritten."""
    if path.exists() and not is_save(path):
        what = "is a folder" if path.is_dir() else "was not saved by shorthash"
        raise ForeignFile(f"{path} exists and {what}, so it is not overwritten; choose another path or move it.")
    checksums = {name: _digest(_bytes_of(array)) for name, array in arrays.items()}
    description = json.dumps({**_head(), **meta, "checksums": checksums}, separators=(",", ":"), allow_nan=False)
    contents, names = _contents(arrays)
    contents = {"__metadata__": {"format": "shorthash", "save": description, "checksum": ""}, **contents}
    contents["__metadata__"]["checksum"] = _header_checksum(contents)
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        _write_arrays(temporary, _as_header(contents), [arrays[name] for name in names])


def write_folder(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write a save as a folder, new or in place of an older one; nothing else is overwritten."""
    is_new = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    if not is_new and not _starts_with(path / META, META_START):
        what = "is a file" if is_save(path) else "was not saved by shorthash"
        raise ForeignFile(f"{path} exists and {what}, so it is not overwritten; choose another path or move it.")
    with _explained(path):
        if not is_new:
            _replace_folder(path, meta, arrays)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_path(path, folder=True) as folder:
            _write_meta(folder / META, meta, _write_array_file(folder / ARRAYS, arrays))
            sync_folder(folder)
            if path.exists():
                path.rmdir()  # it is empty
            folder.rename(path)
            sync_folder(path.parent)


def is_save(path: Path) -> bool:
    """Whether a file begins like a save."""
    return _starts_with(path, FILE_START, skip=8)


def read_meta(path: Path) -> dict[str, Any]:
    """The checked description of a save."""
    if is_save(path):
        with _opened(path) as file:
            return _read_file_header(path, file)[0]
    return _read_folder_meta(path)


def read_save(path: Path, *, mmap: bool) -> tuple[dict[str, Any], dict[str, Array]]:
    """Description and arrays: read and checked, or (``mmap``) left on disk with only the header checked."""
    if is_save(path):
        return read_file(path, mmap=mmap)
    meta = _read_folder_meta(path)
    while True:
        try:
            return meta, _read_array_file(path, meta["arrays"], mmap=mmap)
        except DamagedFile:
            before, meta = meta, _read_folder_meta(path)  # another process may have replaced the save meanwhile
            if meta == before:
                raise


def check_arrays(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Raise DamagedFile unless every array of a save in one file has the checksum it was written with."""
    for name, array in arrays.items():
        if _digest(_bytes_of(array)) != meta["checksums"].get(name):
            raise DamagedFile(f"{path} is damaged: the checksum of its array {name!r} differs; {ADVICE}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file to write to; it is forced to disk and becomes ``path`` in one step, or is removed on errors.

    An OSError, in the body or here, becomes a PersistenceError that names ``path``.
    """
    with _explained(path), temporary_path(path) as temporary:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)


@contextmanager
def temporary_path(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """A new, locked file or folder beside ``path``; it is removed at the end unless it was renamed."""
    _remove_abandoned(path)
    while True:
        temporary = path.parent / f".{path.name}.saving-{secrets.token_hex(4)}"
        if folder:
            temporary.mkdir()
        else:
            temporary.touch()
        handle = _lock(temporary)
        if temporary.exists():  # no other process removed it before it was locked
            break
        _unlock(handle)
    try:
        yield temporary
    finally:
        _remove(temporary)
        _unlock(handle)


@contextmanager
def locked(folder: Path, busy: str) -> Iterator[None]:
    """Lock a folder until the block, or the process, ends; PersistenceError(``busy``) if another process holds it."""
    handle = _lock(folder, wait=False)
    if handle is None:
        raise PersistenceError(busy)
    try:
        yield
    finally:
        _unlock(handle)


def sync_folder(folder: Path) -> None:
    """Force the entries of a folder to disk."""
    if os.name != "posix":
        return  # elsewhere a folder cannot be opened
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_abandoned(path: Path) -> None:
    """Remove unfinished saves to ``path`` whose writers have ended."""
    prefix = f".{path.name}.saving-"
    with suppress(OSError):  # temporary files that remain do no harm
        for place in path.parent.iterdir():
            if not place.name.startswith(prefix):
                continue
            if place.suffix == LOCK_SUFFIX:
                if not place.with_suffix("").exists():
                    _remove(place)
                continue
            handle = _lock(place, wait=False)
            if handle is not None:
                _remove(place)
            _unlock(handle)


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
    else:
        with suppress(OSError):
            place.unlink(missing_ok=True)


def _lock(place: Path, *, wait: bool = True) -> int | BaseFileLock | None:
    """A lock that ends with this process; None if another process holds it, or there is no file or no locking."""
    if not LOCKS_ITSELF:
        return _lock_beside(place, wait=wait)
    import fcntl

    try:
        handle = os.open(place, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # held by another process, or a file system without locks
        os.close(handle)
        return None
    return handle


def _lock_beside(place: Path, *, wait: bool) -> BaseFileLock | None:
    """The same by a file beside it, for systems where a folder cannot be locked and a locked file cannot be read."""
    if not place.exists():
        return None
    name = place.name if place.name.startswith(".") else f".{place.name}"
    lock = FileLock(place.with_name(name + LOCK_SUFFIX), timeout=-1 if wait else 0, thread_local=False)
    try:
        lock.acquire()
    except (Timeout, OSError):
        return None
    return lock


def _unlock(handle: int | BaseFileLock | None) -> None:
    if isinstance(handle, int):
        os.close(handle)
    elif handle is not None:
        handle.release(force=True)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn an OSError while writing to ``path`` into a PersistenceError."""
    existed = path.exists()
    try:
        yield
    except OSError as error:
        kept = "; what was saved there before is unchanged" if existed else ""
        raise PersistenceError(
            f"Cannot write {path}: {error.strerror or error}{kept}; choose a writable folder with enough space."
        ) from error


def _starts_with(path: Path, start: bytes, skip: int = 0) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(skip + len(start))[skip:] == start
    except OSError:
        return False


def _head() -> dict[str, Any]:
    """What every description begins with."""
    return {"format": "shorthash", "format_version": FORMAT_VERSION, "shorthash_version": __version__}


def parse_json(raw: bytes) -> Any:
    """The value of a JSON text; ValueError if it has so many parts that it would take far more memory than its bytes.

    Examples
    --------
    >>> parse_json(b'{"a": [1, 2]}')
    {'a': [1, 2]}
    """
    n_parts = sum(raw.count(mark) for mark in (b",", b"[", b"{", b":"))
    if PART_BYTES * n_parts > LARGEST_JSON + len(raw):
        raise ValueError(f"it has {n_parts} parts")
    return json.loads(raw)


def _check_version(path: Path, meta: Mapping[str, Any]) -> None:
    if not all(type(meta[key]) is kind for key, kind in (("format_version", int), ("shorthash_version", str))):
        raise ValueError("the version of the format is not a number")
    if meta["format_version"] > FORMAT_VERSION:
        raise NewerVersion(
            f"{path} was written by shorthash {meta['shorthash_version']} in format {meta['format_version']}, and this "
            f"version reads up to format {FORMAT_VERSION}; upgrade with: pip install --upgrade shorthash"
        )


# safetensors ----------------------------------------------------------------------------------------------------------


def _contents(arrays: Mapping[str, Array]) -> tuple[dict[str, Any], list[str]]:
    """Entries of the header, and the order of the arrays in the file."""
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    contents: dict[str, Any] = {}
    end = 0
    for name in names:
        start, end = end, end + arrays[name].nbytes
        kind = TYPE_NAMES[arrays[name].dtype.name]
        contents[name] = {"dtype": kind, "shape": list(arrays[name].shape), "data_offsets": [start, end]}
    return contents, names


def _as_header(contents: Mapping[str, Any]) -> bytes:
    """The header as bytes, padded so that arrays are aligned."""
    header = json.dumps(contents, separators=(",", ":")).encode()
    return header + b" " * (-len(header) % ALIGNMENT)


def _write_arrays(file: Path, header: bytes, arrays: list[Array]) -> str:
    """Write header and arrays, and return the checksum of the whole file."""
    return _write_synced(file, [len(header).to_bytes(8, "little"), header, *map(_bytes_of, arrays)])


def _write_synced(file: Path, parts: list[bytes | memoryview]) -> str:
    """Write a file, force it to disk, and return its checksum."""
    checksum = hashlib.sha256()
    with file.open("wb") as target:
        for part in parts:
            checksum.update(part)
            target.write(part)
        target.flush()
        os.fsync(target.fileno())
    return checksum.hexdigest()


def _read_bytes(path: Path, file: BinaryIO, expected: int, *, mmap: bool) -> Array:
    """All bytes of an open file of the expected size."""
    size = os.fstat(file.fileno()).st_size
    if size != expected:
        raise DamagedFile(f"{path} is damaged: it has {size} bytes instead of {expected}; {ADVICE}")
    file.seek(0)
    return np.memmap(file, dtype=np.uint8, mode="c") if mmap else np.fromfile(file, dtype=np.uint8)


def _views(contents: Mapping[str, Any], body: Array) -> dict[str, Array]:
    """Views of the arrays in the bytes after the header; ValueError unless they fill the bytes one after another."""
    entries = {name: entry for name, entry in contents.items() if name != "__metadata__"}
    end, arrays = 0, {}
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape = np.dtype(TYPES[entry["dtype"]]).newbyteorder("<"), entry["shape"]
        if not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"the shape of array {name} is {shape}")
        start, end = end, end + math.prod(shape) * dtype.itemsize
        if entry["data_offsets"] != [start, end] or start % dtype.itemsize or end > len(body):
            raise ValueError(f"array {name} is not where the table of contents says")
        arrays[name] = np.asarray(body[start:end]).view(dtype).reshape(shape)
    if end != len(body):
        raise ValueError(f"{len(body) - end} bytes belong to no array")
    return arrays


def _bytes_of(array: Array) -> memoryview:
    """The bytes of a contiguous array, not copied."""
    return array.reshape(-1).view(np.uint8).data


def _digest(octets: bytes | memoryview) -> str:
    return hashlib.sha256(octets).hexdigest()


def _canonical(values: Mapping[str, Any]) -> bytes:
    """The one text of a JSON object whose checksum is taken."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


# a save in one file ---------------------------------------------------------------------------------------------------


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A file to read; its contents do not change if another process replaces it meanwhile."""
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError as error:
        raise DamagedFile(f"{path} is missing: {ADVICE}") from error
    except OSError as error:
        raise PersistenceError(f"Cannot read {path}: {error.strerror}; check its permissions.") from error


@contextmanager
def damage_explained(path: Path, what: str) -> Iterator[None]:
    """Turn errors of parsing into DamagedFile."""
    try:
        yield
    except PersistenceError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise DamagedFile(f"{path} is damaged: {what}{ADVICE}") from error


def _check_equal(found: object, expected: object) -> None:
    if found != expected:
        raise ValueError("a checksum differs")


def read_file(path: Path, *, mmap: bool) -> tuple[dict[str, Any], dict[str, Array]]:
    """Description and arrays of a save in one file; see ``read_save``."""
    with _opened(path) as file:
        meta, contents, start = _read_file_header(path, file)
        with damage_explained(path, "its table of contents cannot be read; "):
            ends = [entry["data_offsets"][1] for name, entry in contents.items() if name != "__metadata__"]
            octets = _read_bytes(path, file, start + max(ends, default=0), mmap=mmap)
            arrays = _views(contents, octets[start:])
    if not mmap:
        check_arrays(path, meta, arrays)
    return meta, arrays


def _read_file_header(path: Path, file: BinaryIO) -> tuple[dict[str, Any], dict[str, Any], int]:
    """The checked description, the header, and where the arrays begin."""
    length = int.from_bytes(file.read(8), "little")
    header = file.read(length if length <= LARGEST_HEADER else len(FILE_START))
    with damage_explained(path, "its table of contents cannot be read; "):
        contents = parse_json(header)
        meta = parse_json(contents["__metadata__"]["save"].encode())
        _check_version(path, meta)
        _check_equal(contents["__metadata__"]["checksum"], _header_checksum(contents))
        _check_equal(header, _as_header(contents))
    return meta, contents, 8 + length


def _header_checksum(contents: Mapping[str, Any]) -> str:
    """Checksum of a header without its own entry ``checksum``."""
    metadata = {key: value for key, value in contents["__metadata__"].items() if key != "checksum"}
    return _digest(_canonical({**contents, "__metadata__": metadata}))


# a save in a folder ---------------------------------------------------------------------------------------------------


def _replace_folder(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    token = secrets.token_hex(4)
    new_arrays, new_meta = path / f".arrays-{token}.tmp", path / f".meta-{token}.tmp"
    try:
        described = _write_array_file(new_arrays, arrays)
        final = path / f"arrays-{described['sha256'][:16]}.safetensors"
        new_arrays.replace(final)
        _write_meta(new_meta, meta, {**described, "file": final.name})
        sync_folder(path)
        new_meta.replace(path / META)
        sync_folder(path)
    finally:
        new_arrays.unlink(missing_ok=True)
        new_meta.unlink(missing_ok=True)
    for old in path.iterdir():
        if old.name != final.name and (old.suffix == ".safetensors" or old.name.endswith(".tmp")):
            old.unlink(missing_ok=True)


def _write_array_file(file: Path, arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Write an array file, and return what ``meta.json`` states about it."""
    contents, names = _contents(arrays)
    header = _as_header(contents)
    checksum = _write_arrays(file, header, [arrays[name] for name in names])
    n_bytes = 8 + len(header) + sum(array.nbytes for array in arrays.values())
    return {"file": file.name, "n_bytes": n_bytes, "sha256": checksum, "header_sha256": _digest(header)}


def _write_meta(file: Path, meta: Mapping[str, Any], array_file: Mapping[str, Any]) -> None:
    contents = {**_head(), **meta, "arrays": array_file}
    contents["checksum"] = _digest(_canonical(contents))
    _write_synced(file, [json.dumps(contents, indent=1, allow_nan=False).encode() + b"\n"])


def _read_folder_meta(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise PersistenceError(f"There is nothing at {path}; check the path.")
    if path.is_file():
        raise ForeignFile(
            f"{path} was not saved by shorthash, or its first bytes are damaged; give the file (of an index) or the "
            f"folder (of a model) that {phrase('save()')} wrote."
        )
    try:
        raw = (path / META).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ForeignFile(
            f"{path} was not saved by shorthash: it holds no {META}; give the folder that {phrase('save()')} wrote."
        ) from error
    except OSError as error:
        raise PersistenceError(f"Cannot read {path}: {error.strerror}; check its permissions.") from error
    if not raw.startswith(META_START):
        raise ForeignFile(
            f"{path / META} was not written by shorthash, or its first bytes are damaged; "
            f"give the folder that {phrase('save()')} wrote."
        )
    with damage_explained(path / META, ""):
        meta = parse_json(raw)
        _check_version(path, meta)
        _check_equal(meta.pop("checksum"), _digest(_canonical(meta)))
    with damage_explained(path, "its entry of arrays cannot be read; "):
        int(meta["arrays"]["n_bytes"])
    return dict(meta)


def _read_array_file(folder: Path, expected: Mapping[str, Any], *, mmap: bool) -> dict[str, Array]:
    with damage_explained(folder, "its entry of arrays cannot be read; "):
        path = folder / Path(expected["file"]).name  # never outside the folder
        n_bytes, checksum = int(expected["n_bytes"]), expected["sha256"]
    with _opened(path) as file:
        octets = _read_bytes(path, file, n_bytes, mmap=mmap)
    if not mmap and _digest(octets.data) != checksum:
        raise DamagedFile(f"{path} is damaged: its checksum differs; {ADVICE}")
    with damage_explained(path, "its table of contents cannot be read; "):
        length = int.from_bytes(octets[:8].tobytes(), "little")
        header = octets[8 : 8 + min(length, LARGEST_HEADER)].tobytes()
        _check_equal(_digest(header), expected["header_sha256"])
        return _views(parse_json(header), octets[8 + length :])
