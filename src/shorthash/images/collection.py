"""A collection: one folder to search, to add to and to remove from; what is acknowledged stays."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._types import PackedCodes
from shorthash.codes import as_packed
from shorthash.errors import InvalidInput, PersistenceError
from shorthash.images.extraction import Extracted, Source, extract, named_sources
from shorthash.images.folder import (
    ENCODER,
    ITEMS,
    THUMBNAILS,
    WriterLock,
    check_new_place,
    copy_files,
    read_meta,
    take_place,
    write_file,
    write_meta,
)
from shorthash.images.image_cache import FeatureCache
from shorthash.images.image_features import ImageFeatures, make_features
from shorthash.images.images import MAX_PIXELS
from shorthash.images.items import ItemStore
from shorthash.images.reading import ReadableCollection
from shorthash.images.results import AddReport, Label
from shorthash.index.ids import AnyIds, as_ids, check_unique
from shorthash.persistence import save
from shorthash.persistence.files import sync_folder, temporary_path

__all__ = ["Collection"]

THUMBNAIL = 256  # longest side, pixels


class Collection(ReadableCollection):
    """Items to search, in one folder: encoder, codes, labels, vectors, thumbnails, and the recipe of their features.

    A change is forced to disk first, then made in memory, then acknowledged by returning: after a kill -9 all that was
    acknowledged is there, and nothing is half there. One process may have a collection open for writing; others open it
    with ``readonly=True`` and see its state at that time. Threads of the writing process may search, add and remove;
    writers wait for each other.

    Parameters
    ----------
    path : the folder
    readonly : refuse to write, and let another process do so
    features : what makes vectors of images; None reads the recipe of the folder. Needed only where a function made
        them, which no folder can hold

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from shorthash import make_hasher
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = make_hasher("pcaitq", n_bits=4, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder, Collection.create(f"{folder}/iris", hasher) as flowers:
    ...     ids = flowers.add_vectors(X, labels=y.tolist())
    ...     found = flowers.search(vector=X[0], k=5)
    ...     len(flowers), found.labels
    (150, [0, 0, 0, 0, 0])
    """

    def __init__(
        self, path: str | os.PathLike[str], *, readonly: bool = False, features: ImageFeatures | None = None
    ) -> None:
        self.readonly = readonly
        self._lock: WriterLock | None = None
        super().__init__(path, features) if readonly else self._open_to_write(path, features)
        self._writing = threading.RLock()
        self._next_id = self._store.next_id

    def _open_to_write(self, path: str | os.PathLike[str], features: ImageFeatures | None) -> None:
        read_meta(Path(path))  # a folder of strangers gets no lock
        self._lock = WriterLock(Path(path))
        try:
            super().__init__(path, features)
        except BaseException:
            self._lock.release()
            raise

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, readonly: bool = False, features: ImageFeatures | None = None
    ) -> Self:
        """Open a collection; the same as the class itself."""
        return cls(path, readonly=readonly, features=features)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        hasher: Any,
        *,
        features: str | Mapping[str, Any] | ImageFeatures | None = None,
        method: str | None = None,
        evaluation: Mapping[str, Any] | None = None,
    ) -> Self:
        """Make an empty collection, and open it for writing; the folder appears whole or not at all.

        Parameters
        ----------
        path : a new or empty folder
        hasher : a fitted hasher or pipeline
        features : what makes vectors of images: as ``make_features`` takes it; None for a collection of vectors
        method : what to call the method; None: the class of the hasher
        evaluation : what was measured, plain values; see ``facts``
        """
        target = Path(path)
        check_new_place(target)
        made = None if features is None else make_features(features)
        learner = hasher.steps[-1][1] if hasattr(hasher, "steps") else hasher
        meta = {
            "n_bits": int(learner.n_bits),
            "method": method or type(learner).__name__,
            "features": None if made is None else made.recipe,
            "evaluation": None if evaluation is None else dict(evaluation),
        }
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary_path(target, folder=True) as place:
            work = place / "collection"
            work.mkdir()
            (work / THUMBNAILS).mkdir()
            save(hasher, work / ENCODER, statistics=False)
            copy_files([] if made is None else made.files, work)
            store = ItemStore(work / ITEMS, int(learner.n_bits))
            store.index_contents()
            store.close()
            write_meta(work, meta)
            take_place(work, target)
        return cls(target, features=made)

    def close(self) -> None:
        """Let go of the files, and let another process write."""
        super().close()
        if self._lock is not None:
            self._lock.release()

    def add_vectors(
        self,
        X: ArrayLike,
        *,
        ids: ArrayLike | None = None,
        labels: Sequence[Label] | None = None,
        names: Sequence[str] | None = None,
    ) -> AnyIds:
        """Add vectors, all or none; they are encoded, and kept for re-ranking.

        Parameters
        ----------
        X : (n, n_features)
        ids : integers or strings that are new; None numbers the items on
        labels : classes, one per vector: integers or strings, several joined by ";", or None
        names : what to call them

        Returns
        -------
        ids : (n,) of the new items
        """
        rows = np.asarray(X, dtype=np.float32)
        return self.add_codes(self.encode(rows), ids=ids, labels=labels, names=names, vectors=rows)

    def add_codes(
        self,
        codes: ArrayLike,
        *,
        ids: ArrayLike | None = None,
        labels: Sequence[Label] | None = None,
        names: Sequence[str] | None = None,
        vectors: ArrayLike | None = None,
    ) -> AnyIds:
        """Add items that are encoded already, all or none; without vectors they cannot be re-ranked or explained.

        Parameters
        ----------
        codes : (n, n_bits) signs or (n,) packed integers
        ids, labels, names : as for ``add_vectors``
        vectors : (n, n_features), or None

        Returns
        -------
        ids : (n,) of the new items
        """
        self._check_writable()
        packed = as_packed(codes, self.n_bits)
        metadata = None if names is None else [{"name": str(name)} for name in names]
        with self._writing:
            wanted = self._new_ids(len(packed)) if ids is None else as_ids(ids, "Collection")
            self._commit(wanted, packed, labels, metadata, vectors)
        return wanted

    def add_images(
        self,
        sources: Iterable[Source],
        *,
        labels: Sequence[Label] | None = None,
        cache: FeatureCache | None = None,
        max_pixels: int = MAX_PIXELS,
        n_workers: int = 0,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> AddReport:
        """Add images; those whose content is there already are left out, and those that cannot be read reported.

        Images are added in batches, each of them durable before the next begins.

        Parameters
        ----------
        sources : paths, or (name, path or bytes)
        labels : classes, one per image, as for ``add_vectors``; None: no labels
        cache : of features, by content
        max_pixels : larger images are refused
        n_workers : processes that decode; 0 decodes here
        progress : called with (what, done, total)
        """
        self._check_writable()
        named = named_sources(sources)
        if labels is not None and len(labels) != len(named):
            raise InvalidInput(f"There must be one label per image. Got {len(labels)} for {len(named)} images.")
        report, done = AddReport(), 0
        batches = extract(
            named,
            self.features,
            cache=cache,
            thumbnail=THUMBNAIL,
            max_pixels=max_pixels,
            n_workers=n_workers,
            progress=progress,
        )
        for batch in batches:
            told = [None] * len(batch) if labels is None else labels[done : done + len(batch)]
            places = [place for _, place in named[done : done + len(batch)]]
            self._add_batch(batch, told, places, report)
            done += len(batch)
        return report

    def remove(self, ids: ArrayLike) -> None:
        """Remove items, all or none; an id that is not there is an error."""
        self._check_writable()
        wanted = as_ids(ids, "Collection.remove")
        check_unique(wanted, "Collection.remove")
        with self._writing:
            self._rows(wanted)
            contents = [(m or {}).get("content") for m in self._store.items(wanted).metadata] if len(wanted) else []
            self._store.remove(wanted)
            self._index.remove(wanted)  # readers look things up in the table: it forgets last, and learns first
            self._table = self._table.without(wanted)
        for content in contents:
            thumbnail = self.thumbnail(content) if content else None
            if thumbnail is not None:
                thumbnail.unlink(missing_ok=True)

    def _add_batch(self, batch: list[Extracted], labels: Sequence[Label], places: list[Any], report: AddReport) -> None:
        """Add what is new of a batch, in one transaction."""
        with self._writing:
            known = self._store.holders([e.content for e in batch if e.content])
            new: list[tuple[Extracted, Label, dict[str, str]]] = []
            first = self._next_id
            for extracted, label, place in zip(batch, labels, places, strict=True):
                if extracted.row is None:
                    report.failed.append((extracted.name, extracted.error))
                elif extracted.content in known:
                    report.duplicates.append((extracted.name, known[extracted.content]))
                else:
                    known[extracted.content] = first + len(new)
                    told = {"name": extracted.name, "content": extracted.content}
                    if not isinstance(place, bytes):
                        told["source"] = str(Path(place).absolute())
                    new.append((extracted, label, told))
            if not new:
                return
            self._write_thumbnails([e for e, _, _ in new])
            vectors = np.stack([e.row for e, _, _ in new])  # type: ignore[misc]
            ids = self._new_ids(len(new))
            packed = as_packed(self.encode(vectors), self.n_bits)
            self._commit(ids, packed, [label for _, label, _ in new], [told for _, _, told in new], vectors)
        report.added.extend(ids.tolist())
        report.names.extend(e.name for e, _, _ in new)

    def _commit(
        self,
        ids: AnyIds,
        codes: PackedCodes,
        labels: Sequence[Label] | None,
        metadata: Sequence[Mapping[str, Any]] | None,
        vectors: ArrayLike | None,
    ) -> None:
        """Disk first, then memory."""
        told = None if labels is None else [_plain(label) for label in labels]
        self._store.add(codes, ids, classes=told, metadata=metadata, vectors=vectors)
        self._table = self._table.with_items(ids, codes, told or [None] * len(ids))
        self._index.add(codes, ids)
        if len(ids) and ids.dtype.kind == "i":
            self._next_id = max(self._next_id, int(ids.max()) + 1)

    def _write_thumbnails(self, batch: list[Extracted]) -> None:
        """Thumbnails are there before the item that names them; without an item they harm nobody."""
        folders = set()
        for extracted in batch:
            if extracted.thumbnail is None:  # it is there already
                continue
            folder = self.path / THUMBNAILS / extracted.content[:2]
            if folder not in folders:
                folder.mkdir(parents=True, exist_ok=True)
                folders.add(folder)
            write_file(folder / f"{extracted.content}.jpg", extracted.thumbnail)
        for folder in folders:
            sync_folder(folder)

    def _new_ids(self, n: int) -> NDArray[np.int64]:
        if len(self._table) and self._table.ids.dtype.kind != "i":
            raise InvalidInput("Items of a collection with string ids cannot be numbered; pass ids=[...] as strings.")
        return np.arange(self._next_id, self._next_id + n, dtype=np.int64)

    def _check_writable(self) -> None:
        if self.readonly:
            raise PersistenceError(f"{self.path.name} was opened read-only; open it without readonly=True to write.")


def _plain(label: Any) -> Label:
    """A label as a plain int, string or None."""
    return label.item() if isinstance(label, np.generic) else label  # type: ignore[no-any-return]
