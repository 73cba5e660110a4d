"""How a collection is stored: a folder on disk, and an index of its items in memory.

::

    meta.json        format, method, bits, recipe of the features, evaluation, checksums; replaced in one step
    encoder/         the fitted hasher, as persistence.save writes it
    items.sqlite     ids, codes, labels, names, contents, vectors
    thumbnails/      JPEG files named by content

``items.sqlite`` holds the items; ``ItemState`` is made from it at opening and has everything that a search shows.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import shutil
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shorthash import __version__
from shorthash._arrays import Distances, PackedCodes
from shorthash.codes import CodeQuality, code_quality, unpack
from shorthash.errors import DamagedFile, ForeignFile, NewerVersion, PersistenceError
from shorthash.images.results import Bucket, Label, split_label
from shorthash.index.buckets import BucketIndex
from shorthash.index.items import AnyIds
from shorthash.persistence.files import ADVICE, parse_json, replacing, sync_folder
from shorthash.store.items import Items, as_classes, as_ids_array, as_json_list, from_signed
from shorthash.store.sqlite import SQLiteSession, SQLiteStore

META, ENCODER, ITEMS, THUMBNAILS = "meta.json", "encoder", "items.sqlite", "thumbnails"
FORMAT, FORMAT_VERSION = "shorthash-collection", 1
LARGEST_META = 1 << 20
LARGEST_THUMBNAIL = 1 << 20
MOST_ID = (1 << 62) - 1  # largest id; numbers beyond it are left for items that are numbered
# all that a description without a checksum has: those of the first version
UNSIGNED = {"n_bits", "method", "features", "evaluation", "format", "format_version", "shorthash_version"}
HASHED = (f"{ENCODER}/{META}",)  # files whose checksums meta.json keeps; they never change
CONTENT_NAME = re.compile("[0-9a-f]{2,64}")
JPEG_START = b"\xff\xd8\xff"
NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
BLOCK = 1 << 16  # rows held as Python objects at once
NAME, CONTENT = (f"json_extract(metadata, '$.{field}')" for field in ("name", "content"))


def is_collection(path: str | os.PathLike[str]) -> bool:
    """Whether a folder looks like a collection.

    Parameters
    ----------
    path : any path

    Examples
    --------
    >>> import tempfile
    >>> is_collection(tempfile.mkdtemp())
    False
    """
    try:
        return str(_parsed(Path(path) / META).get("format")) == FORMAT
    except (OSError, ValueError, RecursionError):
        return False


def read_meta(path: Path) -> dict[str, Any]:
    """The description of a collection."""
    if not path.is_dir():
        raise PersistenceError(f"There is no collection at {path}; check the path, or make one: shorthash images fit.")
    try:
        meta = _parsed(path / META)
    except FileNotFoundError as error:
        raise ForeignFile(
            f"{path} is not a collection: it has no {META}; give a folder made by shorthash images fit."
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedFile(f"{path / META} cannot be read: {error}; restore it from a copy.") from error
    if meta.get("format") != FORMAT:
        raise ForeignFile(f"{path} is not a collection of shorthash; give a folder made by shorthash images fit.")
    version = meta.get("format_version", 0)
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise NewerVersion(
            f"{path} was written by shorthash {meta.get('shorthash_version')} in format {version}, and "
            f"this version reads up to {FORMAT_VERSION}; upgrade with: pip install --upgrade shorthash"
        )
    problem = _problem(path, meta)
    if problem:
        raise DamagedFile(f"{path / META} is damaged: {problem}; restore it from a copy.")
    return meta


def _problem(path: Path, meta: Mapping[str, Any]) -> str:
    """What is wrong with a description; "" if nothing is."""
    kinds = {"n_bits": int, "format_version": int, "n_trained": int, "method": str, "features": dict, "files": dict}
    for key, kind in {**kinds, "evaluation": dict}.items():
        optional = key not in ("n_bits", "format_version")
        if type(meta.get(key)) is not kind and not (optional and meta.get(key) is None):
            return f"{key} is {str(meta.get(key))[:40]!r}"
    if not 1 <= meta["n_bits"] <= 64:
        return f"n_bits is {meta['n_bits']}"
    if meta.get("features") is not None and type(meta["features"].get("kind")) is not str:
        return "the recipe of the features has no kind"
    measured = meta.get("evaluation") or {"map": 0.0, "n_queries": 0, "n_searched": 0}
    if not all(type(measured.get(key)) in (int, float) for key in ("map", "n_queries", "n_searched")):
        return "the evaluation is incomplete"
    if meta.get("checksum") != _checksum(meta) and not set(meta) <= UNSIGNED:
        return "its checksum differs"
    for name, expected in (meta.get("files") or {}).items():
        if name not in HASHED or _file_hash(path / name) != expected:
            return f"{name} is not the file that belongs to it"
    return ""


def _checksum(meta: Mapping[str, Any]) -> str:
    """Checksum of a description without its own entry."""
    text = json.dumps({k: v for k, v in meta.items() if k != "checksum"}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _file_hash(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def write_meta(path: Path, meta: Mapping[str, Any]) -> None:
    """Write the description, in one step, with a checksum and those of the files that never change."""
    files = {name: _file_hash(path / name) for name in HASHED if (path / name).exists()}
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "shorthash_version": __version__}
    values = json.loads(json.dumps({**meta, **head, "files": files}, allow_nan=False))
    text = json.dumps({**values, "checksum": _checksum(values)}, indent=1, ensure_ascii=False) + "\n"
    with replacing(path / META) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_thumbnail(collection: Path, content: str) -> bytes | None:
    """The thumbnail of a content; None if there is none, or it is a link, or not a JPEG of ours."""
    folder = collection / THUMBNAILS / content[:2]
    try:
        if not CONTENT_NAME.fullmatch(content) or folder.is_symlink() or folder.parent.is_symlink():
            return None
        handle = os.open(folder / f"{content}.jpg", os.O_RDONLY | NO_LINKS)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            octets = file.read(LARGEST_THUMBNAIL + 1)
    except OSError:
        return None
    return octets if octets.startswith(JPEG_START) and len(octets) <= LARGEST_THUMBNAIL else None


def write_thumbnail(collection: Path, content: str, octets: bytes, *, sync: bool = True) -> None:
    """Write a thumbnail; without ``sync`` it is not forced to disk."""
    folder = collection / THUMBNAILS / content[:2]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{content}.jpg"
    if not sync:
        file.write_bytes(octets)
        return
    with replacing(file) as temporary:
        temporary.write_bytes(octets)


def check_new_folder(path: Path) -> None:
    """Raise unless a new collection may be made at ``path``: it does not exist, or is an empty folder."""
    if is_collection(path):
        raise PersistenceError(
            f"{path} already holds a collection, which is never overwritten; add to it (shorthash images add), or "
            "choose another folder."
        )
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise ForeignFile(f"{path} exists and is not an empty folder; nothing was changed, choose another folder.")


def move_folder(work: Path, path: Path) -> None:
    """Move a finished folder to its final path."""
    if path.exists():
        path.rmdir()  # it is empty, or this fails
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        work.rename(path)
    except OSError:  # another file system
        shutil.move(work, path)
    sync_folder(path.parent)


def _parsed(file: Path) -> dict[str, Any]:
    with file.open("rb") as opened:
        value = parse_json(opened.read(LARGEST_META))
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


class ItemStore(SQLiteStore):
    """Items in one SQLite file; the metadata of an image are its name, content and source."""

    @property
    def next_id(self) -> int:
        """The number of the next item; numbers of removed items are not used again."""
        with self._reading() as session:
            last = session.collection.last_id
            if last > MOST_ID:  # an older version took such an id: count from the others
                sql = f"SELECT max(id) FROM {self.collection} WHERE typeof(id) = 'integer' AND id <= ?"
                last = session.run(sql, [MOST_ID])[0][0]
            return 0 if last is None else int(last) + 1

    def index_contents(self) -> None:
        """Make a database index of contents, for ``holders``."""
        with self._writing() as session:
            session.run(f"CREATE INDEX IF NOT EXISTS {self.collection}_content ON {self.collection}({CONTENT})")

    def holders(self, contents: Sequence[str]) -> dict[str, Any]:
        """Content -> id of the item that has it, for those contents that an item has."""
        sql = f"SELECT {CONTENT}, id FROM {self.collection} WHERE {CONTENT} IN (SELECT value FROM json_each(?))"
        with self._reading() as session:
            return dict(session.run(sql, [as_json_list(contents)]))

    def note_copies(self, files: Sequence[tuple[str, str, str]]) -> None:
        """Remember files whose content an item has: (content, name, source); the last content of a source counts."""
        with self._writing() as session:
            session.run(
                f"CREATE TABLE IF NOT EXISTS {self.collection}_copies"
                "(content TEXT NOT NULL, name TEXT NOT NULL, source TEXT NOT NULL PRIMARY KEY)"
            )
            for file in files:
                session.run(f"INSERT OR REPLACE INTO {self.collection}_copies VALUES (?, ?, ?)", list(file))

    def copies(self) -> list[tuple[str, str, str]]:
        """The files that ``note_copies`` remembers, by source."""
        table = f"{self.collection}_copies"
        with self._reading() as session:
            if not session.run("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", [table]):
                return []
            rows = session.run(f"SELECT content, name, source FROM {table} ORDER BY source")
        if not all(isinstance(value, str) for row in rows for value in row):
            raise DamagedFile(f"{self.path} is damaged: a copy has no name; {ADVICE}")
        return [(content, name, source) for content, name, source in rows]

    def items_of(self, ids: AnyIds) -> Items:
        """Those of some items that the database has, in any order."""
        with self._opened() as session:
            return session.items(ids)

    def relabel(self, ids: AnyIds, labels: Sequence[Label]) -> list[Any]:
        """Give items other labels, and return them as they are stored."""
        classes: list[Any] = as_classes(labels, "Collection")
        with self._writing() as session:
            rows = zip(classes, ids.tolist(), strict=True)
            with session.changing(session.among_ids(ids)):
                session.connection.run_many(f"UPDATE {self.collection} SET class = ? WHERE id = ?", rows)
        return classes

    def lacking_posteriors(self, most: int) -> list[Any]:
        """Ids of some items that have a vector and no compact posterior."""
        with self._reading() as session:
            none = f" AND {self._version.posterior} IS NULL" if session.has_posteriors() else ""
            sql = f"SELECT id FROM {self.collection} WHERE slot IS NOT NULL{none} ORDER BY id LIMIT ?"
            return [item for (item,) in session.run(sql, [most])]

    def keep_posteriors(self, ids: Sequence[Any], posteriors: NDArray[np.uint8]) -> None:
        """Write the compact posteriors of items."""
        with self._writing() as session:
            session.add_posteriors()
            rows = [(row.tobytes(), item) for row, item in zip(posteriors, ids, strict=True)]
            sql = f"UPDATE {self.collection} SET {self._version.posterior} = ? WHERE id = ?"
            with session.changing(session.among_ids(as_ids_array(list(ids)))):
                session.connection.run_many(sql, rows)

    def table(self) -> ItemTable:
        """All items, without their vectors and sources; DamagedFile if one is not as it was written."""
        columns: list[list[Any]] = [[] for _ in range(5)]
        sql = f"SELECT id, {self._version.column}, class, {NAME}, {CONTENT} FROM {self.collection}"
        with self._reading() as session:
            assert isinstance(session, SQLiteSession)
            session.check_rows()
            kind = session.collection.id_kind
            cursor = session.connection.raw.execute(sql)
            while block := cursor.fetchmany(BLOCK):
                for i, column in enumerate(columns):
                    column += [row[i] for row in block]
        ids, codes, labels, names, contents = columns
        if not all(isinstance(label, int | str | None) for label in set(labels)):
            raise DamagedFile(f"{self.path} is damaged: a label is neither a number nor text; {ADVICE}")
        shared: dict[Label, Label] = {}  # equal labels become one object
        return ItemTable.from_columns(
            as_ids_array(ids, kind),
            from_signed(codes, self.n_bits),
            [shared.setdefault(label, label) for label in labels],
            [str(name or "") for name in names],
            [str(content or "") for content in contents],
        )


@dataclass(frozen=True)
class ItemTable:
    """Items as columns, ascending by id; immutable, so that readers never see half a change.

    Attributes
    ----------
    ids : (n,) int64 or strings
    codes : (n,) packed
    labels, names, contents : (n,) Python objects; no label is None, no name or content is ""
    """

    ids: AnyIds
    codes: PackedCodes
    labels: NDArray[np.object_]
    names: NDArray[np.object_]
    contents: NDArray[np.object_]

    @classmethod
    def from_columns(cls, ids: AnyIds, codes: PackedCodes, *details: Sequence[Any] | NDArray[np.object_]) -> Self:
        """A table of items in any order; ``details`` are labels, names and contents."""
        columns = [ids, codes, *map(_as_objects, details)]
        if (ids[1:] < ids[:-1]).any():
            order = np.argsort(ids, kind="stable")
            columns = [column[order] for column in columns]
        return cls(*columns)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """All columns."""
        return self.ids, self.codes, self.labels, self.names, self.contents

    def find(self, ids: AnyIds) -> NDArray[np.intp]:
        """Rows of ids; -1 for an id that is not in the table."""
        if not len(self.ids) or ids.dtype.kind != self.ids.dtype.kind:
            return np.full(len(ids), -1, dtype=np.intp)
        if self._consecutive:
            rows = ids - self.ids[0]
            return np.where((rows >= 0) & (rows < len(self)), rows, -1)
        rows = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[rows] == ids, rows, -1)

    @cached_property
    def _consecutive(self) -> bool:
        """Whether the ids are numbers without gaps, so that rows need not be searched."""
        return self.ids.dtype.kind == "i" and int(self.ids[-1]) - int(self.ids[0]) == len(self) - 1

    def take(self, rows: NDArray[Any]) -> Self:
        """Some rows."""
        return type(self)(*(column[rows] for column in self.columns))

    @cached_property
    def buckets(self) -> list[Bucket]:
        """Every code that occurs, ascending, with its items by class."""
        loads: Counter[int] = Counter(self.codes.tolist())
        classes: dict[int, Counter[int | str]] = {code: Counter() for code in loads}
        for (code, label), count in Counter(zip(self.codes.tolist(), self.labels.tolist(), strict=True)).items():
            classes[code].update(dict.fromkeys(split_label(label), count))
        return [
            Bucket(code, loads[code], dict(sorted(classes[code].items(), key=lambda kv: (-kv[1], str(kv[0])))))
            for code in sorted(loads)
        ]

    @cached_property
    def classes(self) -> dict[int | str, int]:
        """Class -> number of items; an item with several classes counts for each."""
        totals: Counter[int | str] = Counter()
        for label, count in Counter(self.labels.tolist()).items():
            totals.update(dict.fromkeys(split_label(label), count))
        return dict(sorted(totals.items(), key=lambda kv: str(kv[0])))

    def quality(self, n_bits: int) -> CodeQuality | None:
        """Statistics of the codes; None without items."""
        if not len(self):
            return None
        numbers: dict[Label, int] = {}
        y = [numbers.setdefault(label, len(numbers)) for label in self.labels.tolist()]
        return code_quality(unpack(self.codes, n_bits), None if None in numbers else y)


@dataclass(frozen=True)
class ItemState:
    """The items at one moment: a table of what is shown about them, and an index that finds exactly these.

    A change makes another state, so that threads may read one while a thread adds or removes.
    """

    table: ItemTable
    index: BucketIndex

    @classmethod
    def of(cls, table: ItemTable, n_bits: int) -> Self:
        """The state of these items."""
        index = BucketIndex(n_bits).add(table.codes, table.ids)
        index.buckets()  # sort now, not at the first search
        return cls(table, index)

    def with_items(self, new: ItemTable) -> ItemState:
        """The state with new items; a copy of the index keeps the items that it has."""
        table = new
        if len(self.table):
            pairs = zip(self.table.columns, new.columns, strict=True)
            table = ItemTable.from_columns(*(np.concatenate(pair) for pair in pairs))
        return ItemState(table, copy.copy(self.index).add(new.codes, new.ids))

    def without(self, ids: AnyIds) -> ItemState:
        """The state without some of its items."""
        rows = np.delete(np.arange(len(self.table)), self.table.find(ids))
        return ItemState(self.table.take(rows), copy.copy(self.index).remove(ids))

    def relabelled(self, ids: AnyIds, labels: Sequence[Label]) -> ItemState:
        """The state with other labels of some of its items."""
        changed = self.table.labels.copy()
        changed[self.table.find(ids)] = _as_objects(labels)
        return replace(self, table=replace(self.table, labels=changed))

    def nearest(
        self, query: PackedCodes, k: int | None, radius: int | None, exclude: int | str | None
    ) -> tuple[ItemTable, Distances]:
        """The k nearest items, or all within a radius, and their distances; ``exclude`` is left out."""
        more = k if k is None or exclude is None else k + 1
        if more is None:
            assert radius is not None
            ids, distances = self.index.within(query, radius)[0]
        else:
            found = self.index.search(query, more)
            ids, distances = found.ids[0], found.distances[0]
            if radius is not None:
                n = int(np.searchsorted(distances, radius, side="right"))
                ids, distances = ids[:n], distances[:n]
        if exclude is not None:
            others = ids != exclude
            ids, distances = ids[others][:k], distances[others][:k]
        return self.table.take(self.table.find(ids)), distances


def _as_objects(values: Sequence[Any] | NDArray[np.object_]) -> NDArray[np.object_]:
    if isinstance(values, np.ndarray):
        return values
    column = np.empty(len(values), dtype=np.object_)
    column[:] = values
    return column
