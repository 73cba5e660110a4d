"""Where a save is written before it takes its place, and what killed saves have left behind.

A writer locks what it writes; the system drops the lock when the process ends, however it ends. So whatever carries the
name of an unfinished save and is not locked belongs to nobody, and the next save to the same place removes it.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["force", "working_place"]


@contextmanager
def working_place(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """A new file or folder beside ``path`` to write to; what is still there at the end is removed."""
    _clear_abandoned(path)
    while True:
        place = path.parent / f".{path.name}.saving-{secrets.token_hex(4)}"
        place.mkdir() if folder else place.touch()
        handle = _lock(place)
        if place.exists():  # nobody took it for abandoned before it was locked
            break
        _unlock(handle)
    try:
        yield place
    finally:
        _remove(place)
        _unlock(handle)


def force(place: Path) -> None:
    """Force the entries of a folder to disk."""
    if os.name != "posix":
        return  # elsewhere a folder cannot be opened
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _clear_abandoned(path: Path) -> None:
    """Remove unfinished saves to ``path`` whose writers are gone."""
    prefix = f".{path.name}.saving-"
    with suppress(OSError):  # tidying up is no reason to fail
        for place in path.parent.iterdir():
            if place.name.startswith(prefix):
                handle = _lock(place, wait=False)
                if handle is not None or os.name != "posix":  # elsewhere an open file cannot be removed anyway
                    _remove(place)
                _unlock(handle)


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
    else:
        with suppress(OSError):
            place.unlink(missing_ok=True)


def _lock(place: Path, *, wait: bool = True) -> int | None:
    """A lock that ends with this process; None if another process has it, it is gone, or there are no locks here."""
    if os.name != "posix":
        return None
    import fcntl

    try:
        handle = os.open(place, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # held by another, or a file system without locks
        os.close(handle)
        return None
    return handle


def _unlock(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)
