"""The folder of a collection: its description, its files, and the lock that keeps a second writer out.

::

    meta.json        format, method, bits, recipe of the features, what was measured; replaced in one step
    encoder/         the fitted hasher, as persistence.save writes it
    items.sqlite     ids, codes, labels, names, contents, vectors: the durable truth
    thumbnails/      JPEG files named by content
    writer.lock      held by the one process that may write
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shorthash import __version__
from shorthash.errors import DamagedFile, ForeignFile, NewerVersion, PersistenceError
from shorthash.persistence.files import sync_folder

__all__ = [
    "ENCODER",
    "ITEMS",
    "THUMBNAILS",
    "WriterLock",
    "check_new_place",
    "copy_files",
    "is_collection",
    "read_meta",
    "take_place",
    "write_file",
    "write_meta",
]

META, ENCODER, ITEMS, THUMBNAILS, LOCK = "meta.json", "encoder", "items.sqlite", "thumbnails", "writer.lock"
FORMAT, FORMAT_VERSION = "shorthash-collection", 1
LARGEST_META = 1 << 20


def is_collection(path: str | os.PathLike[str]) -> bool:
    """Whether a folder looks like a collection."""
    try:
        return str(_parsed(Path(path) / META).get("format")) == FORMAT
    except (OSError, ValueError):
        return False


def read_meta(path: Path) -> dict[str, Any]:
    """The description of a collection."""
    if not path.is_dir():
        raise PersistenceError(f"There is no collection at {path}; check the path, or make one: shorthash images fit.")
    try:
        meta = _parsed(path / META)
    except FileNotFoundError as error:
        raise ForeignFile(f"{path} is no collection: it holds no {META}; give one of shorthash images fit.") from error
    except OSError as error:
        raise PersistenceError(f"Cannot read {path / META}: {error.strerror}; check its permissions.") from error
    except ValueError as error:
        raise DamagedFile(f"{path / META} is damaged: {error}; restore it from a copy.") from error
    if meta.get("format") != FORMAT:
        raise ForeignFile(f"{path} is no collection of shorthash; give a folder of shorthash images fit.")
    if meta.get("format_version", 0) > FORMAT_VERSION:
        raise NewerVersion(
            f"{path} was written by shorthash {meta.get('shorthash_version')} in format {meta['format_version']}, and "
            f"this version reads up to {FORMAT_VERSION}; upgrade with: pip install --upgrade shorthash"
        )
    if not isinstance(meta.get("n_bits"), int):
        raise DamagedFile(f"{path / META} is damaged: it does not tell the code length; restore it from a copy.")
    return meta


def write_meta(path: Path, meta: Mapping[str, Any]) -> None:
    """Write the description, in one step."""
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "shorthash_version": __version__}
    text = json.dumps({**meta, **head}, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    write_file(path / META, text.encode())
    sync_folder(path)


def write_file(target: Path, octets: bytes, *, sync: bool = True) -> None:
    """Write a file under a temporary name and rename it; the folder itself is not forced to disk."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(octets)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise PersistenceError(
            f"Cannot write {target}: {error.strerror or error}; choose a folder with room that you may write to."
        ) from error


def check_new_place(path: Path) -> None:
    """Raise unless a new collection may be made at ``path``: nothing there, or an empty folder."""
    if is_collection(path):
        raise PersistenceError(
            f"{path} already holds a collection, which is never overwritten; add to it, or choose another folder."
        )
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise ForeignFile(f"{path} exists and is no empty folder, so it stays as it is; choose another folder.")


def copy_files(files: list[Path], folder: Path) -> None:
    """Copy what the recipe of features names into the folder."""
    for file in files:
        write_file(folder / file.name, file.read_bytes())


def take_place(work: Path, path: Path) -> None:
    """Give a finished folder its name."""
    if path.exists():
        path.rmdir()  # it is empty, or this fails
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        work.rename(path)
    except OSError:  # another file system
        shutil.move(work, path)
    sync_folder(path.parent)


class WriterLock:
    """The right to write: one process at a time; the system takes it back when the process ends, however it ends.

    Where there are no such locks (not POSIX), writers only wait for each other's transactions.
    """

    def __init__(self, path: Path) -> None:
        self._handle: int | None = None
        if os.name != "posix":
            return
        import fcntl

        try:
            handle = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise PersistenceError(
                f"Cannot open {path} for writing: {error.strerror}; open it with readonly=True, or ask for permission."
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            raise PersistenceError(
                f"Another process has {path} open for writing (a server, perhaps); write through it, stop it, or open "
                "the collection with readonly=True."
            ) from error
        self._handle = handle

    def release(self) -> None:
        """Let another process write."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _parsed(file: Path) -> dict[str, Any]:
    with file.open("rb") as opened:
        value = json.loads(opened.read(LARGEST_META))
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return value
