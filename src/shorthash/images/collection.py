"""A collection: one folder of items that can be searched, added to and removed from."""

from __future__ import annotations

import copy
import os
import shutil
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._arrays import PackedCodes
from shorthash._progress import OnStep, shown, with_progress
from shorthash._validation import steps_of
from shorthash.codes import as_packed
from shorthash.errors import DamagedFile, InvalidInput, PersistenceError
from shorthash.images import storage
from shorthash.images.decoding import MAX_PIXELS, Extracted, Source, extract
from shorthash.images.features import ImageFeatures, make_features
from shorthash.images.files import as_text
from shorthash.images.reading import Reader
from shorthash.images.results import AddReport, Label
from shorthash.index.items import MOST_SETS, AnyIds, as_ids, as_vectors, check_unique
from shorthash.persistence import load, save
from shorthash.persistence.files import locked, replacing, temporary_path
from shorthash.retrieval import Searcher
from shorthash.store.connection import SQLiteConnection

LACKING_AT_ONCE = 4096  # items whose posteriors are computed in one transaction
THUMBNAIL = 256  # longest side, pixels
LOCKED = (
    "Another process (perhaps a server) has {} open for writing; write through it, stop it, or open the collection "
    "read-only."
)


class Collection(Reader):
    """Items in one folder: encoder, codes, labels, names, vectors, thumbnails, and the recipe of their features.

    A change is written to disk first, then made in memory; when the call returns, it survives a kill -9 or a power
    failure. One process may have a collection open for writing; others open it with ``readonly=True`` and see its state
    at that time, until they call ``refresh``. Threads of the writing process may search, add and remove; writers wait
    for each other. Every call sees one state; ``snapshot`` gives several calls the same one.

    Searches use memory only; re-ranking, ``vectors_of``, ``sources_of`` and ``explain_bits`` read the database.

    Parameters
    ----------
    path : the folder
    readonly : refuse to write, so that another process may; works on a read-only or full disk
    features : what computes vectors of images; None takes the recipe in the folder. Needed only if they were computed
        by a function, which cannot be stored

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
        self.path, self.readonly, self._features = Path(path), readonly, features
        self._meta = storage.read_meta(self.path)
        self._writing = threading.RLock()
        self._view: Self | None = None  # the last snapshot
        with ExitStack() as resources:
            if not readonly:
                resources.enter_context(locked(self.path, LOCKED.format(self.path)))
            self.hasher: Any = load(self.path / storage.ENCODER)
            file = self.path / storage.ITEMS
            self._watch = SQLiteConnection(str(file), readonly=True) if readonly else None
            if self._watch is not None:
                resources.callback(self._watch.close)
                self._generation = self._watch.generation()
            self._store = resources.enter_context(storage.ItemStore(file, readonly=readonly))
            self._check_lengths()
            self._state = storage.ItemState.of(self._store.table(), self.n_bits)
            self._next_id = self._store.next_id
            self._resources = resources.pop_all()

    def _check_lengths(self) -> None:
        """Raise DamagedFile unless description, encoder and items have the same code length."""
        lengths = {getattr(steps_of(self.hasher)[-1], "n_bits", None), self._store.n_bits, self.n_bits}
        if len(lengths) > 1:
            raise DamagedFile(
                f"{self.path} is damaged: description, encoder and items have codes of different lengths "
                f"({', '.join(map(str, lengths))} bits); restore it from a copy."
            )

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        hasher: Any,
        *,
        features: str | Mapping[str, Any] | ImageFeatures | None = None,
        method: str | None = None,
        evaluation: Mapping[str, Any] | None = None,
        n_trained: int | None = None,
    ) -> Self:
        """Make an empty collection, and open it for writing; the folder is created completely or not at all.

        Parameters
        ----------
        path : a new or empty folder
        hasher : a fitted hasher or pipeline
        features : what computes vectors of images, as ``make_features`` takes it; None for a collection of vectors
        method : name of the method; None: the class of the hasher
        evaluation : measured quality, as plain values; see ``facts``
        n_trained : how many items, the first ones that are added, the hasher has learned from; None if unknown
        """
        target = Path(path)
        storage.check_new_folder(target)
        made = None if features is None else make_features(features)
        learner = steps_of(hasher)[-1]
        n_bits = int(learner.n_bits)
        meta = {
            "n_bits": n_bits,
            "method": method or type(learner).__name__,
            "features": None if made is None else made.recipe,
            "evaluation": None if evaluation is None else dict(evaluation),
            "n_trained": n_trained,
        }
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary_path(target, folder=True) as place:
            work = place / "collection"
            (work / storage.THUMBNAILS).mkdir(parents=True)
            save(hasher, work / storage.ENCODER, statistics=False)
            for file in [] if made is None else made.files:
                with replacing(work / file.name) as temporary:
                    shutil.copyfile(file, temporary)
            with storage.ItemStore(work / storage.ITEMS, n_bits) as store:
                store.index_contents()
            storage.write_meta(work, meta)
            storage.move_folder(work, target)
        return cls(target, features=made)

    def close(self) -> None:
        """Close the files, and let another process write."""
        self._resources.close()

    @property
    def stale(self) -> bool:
        """Whether another process has changed the items since they were read; always False if open for writing."""
        return self._watch is not None and self._watch.generation() != self._generation

    def refresh(self) -> bool:
        """Read the items again if another process has changed them; whether it had. Snapshots keep their state."""
        with self._writing:
            if not self.stale:
                return False
            assert self._watch is not None
            generation = self._watch.generation()
            if self._watch.immutable:  # such a connection never sees a change
                self._store = self._resources.enter_context(storage.ItemStore(self.path / storage.ITEMS, readonly=True))
            self._state = storage.ItemState.of(self._store.table(), self.n_bits)
            self._generation = generation
            return True

    def snapshot(self) -> Self:
        """The collection as it is now, for several calls that must agree; shares files and memory."""
        view = self._view
        if view is None or view._state is not self._state:
            view = copy.copy(self)
            view.readonly, view._view = True, None
            self._view = view
        return view

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

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
        ids : integers or strings that are new; None numbers the items
        labels : classes, one per vector: integers or strings, several joined by ";", or None
        names : one per vector

        Returns
        -------
        ids : (n,) of the new items
        """
        rows = np.asarray(X, dtype=np.float32)
        return self.add_codes(self.encode(rows), ids=ids, labels=labels, names=names, vectors=rows)

    @shown("adding items")
    def add_codes(
        self,
        codes: ArrayLike,
        *,
        ids: ArrayLike | None = None,
        labels: Sequence[Label] | None = None,
        names: Sequence[str] | None = None,
        vectors: ArrayLike | None = None,
    ) -> AnyIds:
        """Add items that are already encoded, all or none; without vectors they cannot be re-ranked or explained.

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
            new = self._new_ids(len(packed)) if ids is None else as_ids(ids, "Collection")
            self._commit(new, packed, labels, metadata, vectors)
        return new

    @with_progress
    def add_images(
        self,
        sources: Iterable[Source],
        *,
        labels: Sequence[Label] | None = None,
        cache: str | os.PathLike[str] | None = None,
        max_pixels: int = MAX_PIXELS,
        n_workers: int = 0,
        progress: OnStep | None = None,
    ) -> AddReport:
        """Add images; those whose content is in the collection are skipped, and those that cannot be read are reported.

        Images are added in batches, each of them durable before the next begins.

        Parameters
        ----------
        sources : paths, or (name, path or bytes)
        labels : classes, one per image, as for ``add_vectors``; None: no labels
        cache : file of features, by content
        max_pixels : larger images are refused
        n_workers : processes that decode; 0 decodes in this one
        progress : called with (what, done, total); None shows what ``set_config`` sets
        """
        self._check_writable()
        images = list(sources)
        if labels is not None and len(labels) != len(images):
            raise InvalidInput(f"There must be one label per image. Got {len(labels)} for {len(images)} images.")
        batches = extract(
            images,
            self.features,
            cache=cache,
            thumbnail=THUMBNAIL,
            max_pixels=max_pixels,
            n_workers=n_workers,
            progress=progress,
        )
        report, done = AddReport(), 0
        for batch in batches:
            self.add_extracted(
                batch, [None] * len(batch) if labels is None else labels[done : done + len(batch)], report
            )
            done += len(batch)
        return report

    def add_extracted(self, batch: Sequence[Extracted], labels: Sequence[Label], report: AddReport) -> None:
        """Add the new images of one batch of ``extract``, in one transaction, and complete a report.

        Parameters
        ----------
        batch : images with their features; their thumbnails are written unless they are None
        labels : one per image
        report : what is added, duplicate or failed is appended to it
        """
        self._check_writable()
        with self._writing:
            holders = self._store.holders([image.content for image in batch if image.content])
            new: list[tuple[Extracted, Label]] = []
            copies: list[dict[str, str]] = []
            for image, label in zip(batch, labels, strict=True):
                if image.row is None:
                    report.failed.append((image.name, image.error))
                    report.skipped.setdefault(image.kind, []).append(as_text(image.name))
                elif image.content in holders:
                    report.duplicates.append((image.name, holders[image.content]))
                    copies.append(image.metadata)
                else:
                    holders[image.content] = self._next_id + len(new)
                    new.append((image, label))
            files = [(copy["content"], copy["name"], copy["source"]) for copy in copies if "source" in copy]
            if files:
                self._store.note_copies(files)
            if not new:
                return
            images = [image for image, _ in new]
            for image in images:  # before the items that refer to them: an unused thumbnail is harmless
                if image.thumbnail is not None:
                    storage.write_thumbnail(self.path, image.content, image.thumbnail)
            vectors = np.stack([image.row for image in images])  # type: ignore[misc]
            ids = self._new_ids(len(new))
            packed = as_packed(self.encode(vectors), self.n_bits)
            self._commit(ids, packed, [label for _, label in new], [image.metadata for image in images], vectors)
        report.added.extend(ids.tolist())
        report.names.extend(image.name for image in images)

    def remove(self, ids: ArrayLike) -> None:
        """Remove items, all or none; an id that is not in the collection is an error."""
        self._check_writable()
        removed = as_ids(ids, "Collection.remove")
        check_unique(removed, "Collection.remove")
        with self._writing:
            contents = self._rows(removed).contents.tolist()
            self._store.remove(removed)
            self._state = self._state.without(removed)
        for content in contents:
            thumbnail = self.thumbnail(content)
            if thumbnail is not None:
                thumbnail.unlink(missing_ok=True)

    def relabel(self, ids: ArrayLike, labels: Sequence[Label]) -> None:
        """Give items other labels, all or none; their codes stay as they are.

        Parameters
        ----------
        ids : items of the collection
        labels : one per item, as for ``add_vectors``; None: no label
        """
        self._check_writable()
        given = as_ids(ids, "Collection.relabel")
        check_unique(given, "Collection.relabel")
        if len(labels) != len(given):
            raise InvalidInput(f"There must be one label per item. Got {len(labels)} for {len(given)} items.")
        with self._writing:
            self._rows(given)
            self._state = self._state.relabelled(given, self._store.relabel(given, labels))

    def keep_posteriors(self) -> int:
        """Compute the posteriors of items that have none, as older versions added them; return how many.

        New items get theirs when they are added, if the encoder has posteriors. They are kept in 8 bytes each, and
        ``search(rerank="posterior")`` orders by them.
        """
        self._check_writable()
        done = 0
        with self._writing:
            while self.has_posteriors and (ids := self._store.lacking_posteriors(LACKING_AT_ONCE)):
                vectors = self._store.items(ids).vectors
                posteriors = None if vectors is None else self._compact(vectors)
                if posteriors is None:
                    break
                self._store.keep_posteriors(ids, posteriors)
                done += len(ids)
        return done

    def _compact(self, vectors: NDArray[np.float32]) -> NDArray[np.uint8] | None:
        """Compact posteriors of vectors; None if the encoder has none, or more label sets than they can number."""
        searcher = Searcher(self.hasher, posterior_bytes=0)
        if not searcher.has_posteriors or searcher.learner.profiles_.shape[1] > MOST_SETS:
            return None
        return Searcher(self.hasher).compact(vectors)

    def _commit(
        self,
        ids: AnyIds,
        codes: PackedCodes,
        labels: Sequence[Label] | None,
        metadata: Sequence[Mapping[str, Any]] | None,
        vectors: ArrayLike | None,
    ) -> None:
        """Add items on disk, then in memory."""
        if labels is None:
            labels = [None] * len(ids)
        classes = [label.item() if isinstance(label, np.generic) else label for label in labels]
        if len(ids) and ids.dtype.kind == "i" and int(ids.max()) > storage.MOST_ID:
            raise InvalidInput(
                f"An id of a collection may be at most {storage.MOST_ID}. Got {ids.max()}; choose smaller ids."
            )
        rows = None if vectors is None else as_vectors(vectors, len(ids), "Collection", np.float32)
        posteriors = None if rows is None or not len(rows) else self._compact(rows)
        self._store.add(codes, ids, classes=classes, metadata=metadata, vectors=rows, posteriors=posteriors)
        details = metadata or [{}] * len(ids)
        names, contents = ([entry.get(field, "") for entry in details] for field in ("name", "content"))
        self._state = self._state.with_items(storage.ItemTable.from_columns(ids, codes, classes, names, contents))
        if len(ids) and ids.dtype.kind == "i":
            self._next_id = max(self._next_id, int(ids.max()) + 1)

    def _new_ids(self, n: int) -> NDArray[np.int64]:
        if len(self) and self.ids.dtype.kind != "i":
            raise InvalidInput("Items of a collection with string ids cannot be numbered; give ids that are strings.")
        return np.arange(self._next_id, self._next_id + n, dtype=np.int64)

    def _check_writable(self) -> None:
        if self.readonly:
            raise PersistenceError(f"{self.path.name} was opened read-only; open it for writing.")
