"""Check collections byte by byte, remove files of no item, and copy them while another process writes."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from shorthash.errors import DamagedFile, PersistenceError
from shorthash.images import storage
from shorthash.images.collection import LOCKED, Collection
from shorthash.persistence import verify
from shorthash.persistence.files import locked, sync_folder, temporary_path


@dataclass
class Checked:
    """What ``check_collection`` found.

    Attributes
    ----------
    path : the collection
    damaged : what is damaged, in sentences; restore a copy
    missing_thumbnails : contents of items whose thumbnail is missing or cannot be used
    orphans : files that belong to no item, and unfinished files
    repaired : whether orphans were removed
    n_items : items that were read; 0 if they cannot be
    n_posteriors : posteriors that were computed
    """

    path: Path
    damaged: list[str] = field(default_factory=list)
    missing_thumbnails: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    repaired: bool = False
    n_items: int = 0
    n_posteriors: int = 0

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged, missing or superfluous."""
        return not (self.damaged or self.missing_thumbnails or (self.orphans and not self.repaired))


def check_collection(path: str | os.PathLike[str], *, repair: bool = False) -> Checked:
    """Read every byte of a collection and compare it with its checksums.

    Parameters
    ----------
    path : the folder
    repair : remove thumbnails that belong to no item and unfinished files, and compute posteriors that items of an
        older version lack; no other process may write meanwhile

    Examples
    --------
    >>> import tempfile
    >>> from shorthash import make_hasher
    >>> hasher = make_hasher("pcaitq", n_bits=2, random_state=0).fit([[0, 1], [1, 0], [2, 2], [3, 1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Collection.create(f"{folder}/points", hasher).close()
    ...     check_collection(f"{folder}/points").sound
    True
    """
    folder = Path(path)
    storage.read_meta(folder)
    if repair:
        with locked(folder, LOCKED.format(folder)):
            found = _checked(folder, repair=True)
        if not found.damaged:
            with Collection(folder) as collection:
                found.n_posteriors = collection.keep_posteriors()
        return found
    return _checked(folder, repair=False)


def _checked(folder: Path, *, repair: bool) -> Checked:
    found = Checked(folder)
    try:
        verify(folder / storage.ENCODER)
        with Collection(folder, readonly=True) as collection:
            found.n_items = len(collection)
            collection._store.verify()
            contents = _contents(collection)
    except PersistenceError as error:
        found.damaged.append(str(error))
        return found
    found.missing_thumbnails = sorted(c for c in contents if storage.read_thumbnail(folder, c) is None)
    known = {f"{content}.jpg" for content in contents}
    superfluous = [file for file in _small_files(folder) if file.name not in known]
    found.orphans = sorted(str(file.relative_to(folder)) for file in superfluous)
    if repair:
        for file in superfluous:
            file.unlink(missing_ok=True)
        found.repaired = True
    return found


def _small_files(folder: Path) -> Iterator[Path]:
    """Thumbnails, and what unfinished writes have left."""
    for place in (folder / storage.THUMBNAILS).rglob("*"):
        if place.is_symlink() or not place.is_dir():
            yield place
    yield from (place for place in folder.glob(".*.saving-*") if place.is_file())


def backup_collection(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> Checked:
    """Copy a collection to a new folder, which is a collection itself; another process may write meanwhile.

    The copy is one state of the items. It is checked, and appears completely or not at all.

    Parameters
    ----------
    path : the collection
    target : a new or empty folder

    Returns
    -------
    checked : what was found in the copy; a damaged collection raises DamagedFile

    Examples
    --------
    >>> import tempfile
    >>> from shorthash import make_hasher
    >>> X = [[0, 1], [1, 0], [2, 2], [3, 1]]
    >>> hasher = make_hasher("pcaitq", n_bits=2, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder, Collection.create(f"{folder}/points", hasher) as points:
    ...     ids = points.add_vectors(X)
    ...     backup_collection(f"{folder}/points", f"{folder}/copy").n_items
    4
    """
    source, place = Path(path), Path(target)
    storage.read_meta(source)
    storage.check_new_folder(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    with temporary_path(place, folder=True) as temporary:
        work = temporary / "collection"
        (work / storage.THUMBNAILS).mkdir(parents=True)
        _copy_items(source, work)
        shutil.copytree(source / storage.ENCODER, work / storage.ENCODER)
        for file in source.iterdir():  # meta.json, and models that features need
            if file.is_file() and not file.is_symlink() and not file.name.startswith((".", storage.ITEMS)):
                shutil.copyfile(file, work / file.name)
        _copy_thumbnails(source, work)
        checked = _checked(work, repair=False)
        if checked.damaged:
            raise DamagedFile(f"{source} was not copied: {checked.damaged[0]}")
        _sync(work)
        storage.move_folder(work, place)
    checked.path = place
    return checked


def _copy_items(source: Path, work: Path) -> None:
    """Copy one state of the database with SQLite's backup."""
    try:
        with (
            closing(sqlite3.connect(f"{(source / storage.ITEMS).resolve().as_uri()}?mode=ro", uri=True)) as old,
            closing(sqlite3.connect(work / storage.ITEMS)) as new,
        ):
            old.backup(new)
            new.execute("PRAGMA journal_mode = DELETE")  # one file, which can be read anywhere
    except sqlite3.Error as error:
        raise DamagedFile(
            f"{source / storage.ITEMS} cannot be copied: {error}; check it with shorthash fsck."
        ) from error
    side = f"{storage.ITEMS}-vectors"
    if (source / side).is_dir():
        shutil.copytree(source / side, work / side)


def _copy_thumbnails(source: Path, work: Path) -> None:
    with Collection(work, readonly=True) as collection:
        contents = _contents(collection)
    for content in sorted(contents):
        octets = storage.read_thumbnail(source, content)
        if octets is not None:  # else its item was removed after the items were copied
            storage.write_thumbnail(work, content, octets, sync=False)


def _contents(collection: Collection) -> set[str]:
    """The contents of all images."""
    return {item.content for item in collection.items(collection.ids) if item.content}


def _sync(folder: Path) -> None:
    """Force everything in a folder to disk."""
    for place in [folder, *folder.rglob("*")]:
        if place.is_dir():
            sync_folder(place)
        else:
            with place.open("rb") as file:
                os.fsync(file.fileno())


def restore_collection(backup: str | os.PathLike[str], target: str | os.PathLike[str]) -> Checked:
    """Check a backup and copy it to a new folder; nothing is overwritten.

    Parameters
    ----------
    backup : a folder that ``backup_collection`` made
    target : a new or empty folder

    Returns
    -------
    checked : what was found in the new folder; a damaged backup raises DamagedFile

    Examples
    --------
    >>> import tempfile
    >>> from shorthash import make_hasher
    >>> hasher = make_hasher("pcaitq", n_bits=2, random_state=0).fit([[0, 1], [1, 0], [2, 2], [3, 1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Collection.create(f"{folder}/points", hasher).close()
    ...     copied = backup_collection(f"{folder}/points", f"{folder}/copy")
    ...     restored = restore_collection(f"{folder}/copy", f"{folder}/restored")
    >>> restored.path.name, restored.sound
    ('restored', True)
    """
    checked = check_collection(backup)
    if checked.damaged:
        raise DamagedFile(f"{backup} was not restored: {checked.damaged[0]}")
    return backup_collection(backup, target)
