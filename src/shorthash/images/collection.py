"""A collection: one folder of items that can be searched, added to and removed from."""

from __future__ import annotations

import copy
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._types import Codes, PackedCodes
from shorthash._validation import check_count
from shorthash.codes import as_packed, hamming_distances
from shorthash.errors import DamagedFile, InvalidInput, PersistenceError, UnreadableImage
from shorthash.images.decoding import MAX_PIXELS, Extracted, Place, Source, extract
from shorthash.images.features import ImageFeatures, make_features
from shorthash.images.results import AddReport, BitExplanation, Bucket, Found, Item, Label, explain_bits
from shorthash.images.storage import (
    ENCODER,
    ITEMS,
    MOST_ID,
    THUMBNAILS,
    ItemIndex,
    ItemState,
    ItemStore,
    ItemTable,
    check_new_folder,
    move_folder,
    read_meta,
    read_thumbnail,
    with_checks,
    write_meta,
    write_thumbnail,
)
from shorthash.index.items import AnyIds, as_ids, as_vectors, check_unique
from shorthash.persistence import load, save
from shorthash.persistence.files import locked, replacing, temporary_path
from shorthash.store.sqlite import SQLiteConnection

THUMBNAIL = 256  # longest side, pixels
RERANK_RADIUS = 2  # of the ball that is re-ranked if no radius is given
EXPLAINED = 5000  # items that explain_bits examines
LOCKED = (
    "Another process (perhaps a server) has {} open for writing; write through it, stop it, or open the collection "
    "read-only."
)


class Collection:
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
        self._meta = read_meta(self.path)
        self._writing = threading.RLock()
        with ExitStack() as resources:
            if not readonly:
                resources.enter_context(locked(self.path, LOCKED.format(self.path)))
            self.hasher: Any = load(self.path / ENCODER)
            file = self.path / ITEMS
            self._watch = SQLiteConnection(str(file), readonly=True) if readonly else None
            if self._watch is not None:
                resources.callback(self._watch.close)
                self._generation = self._watch.generation()
            self._store = resources.enter_context(ItemStore(file, readonly=readonly))
            self._check_lengths()
            self._items = ItemIndex(self._store.table(), self.n_bits)
            self._next_id = self._store.next_id
            self._resources = resources.pop_all()

    def _check_lengths(self) -> None:
        """Raise DamagedFile unless description, encoder and items have the same code length."""
        learner = self.hasher.steps[-1][1] if hasattr(self.hasher, "steps") else self.hasher
        lengths = {getattr(learner, "n_bits", None), self._store.n_bits, self.n_bits}
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
    ) -> Self:
        """Make an empty collection, and open it for writing; the folder is created completely or not at all.

        Parameters
        ----------
        path : a new or empty folder
        hasher : a fitted hasher or pipeline
        features : what computes vectors of images, as ``make_features`` takes it; None for a collection of vectors
        method : name of the method; None: the class of the hasher
        evaluation : measured quality, as plain values; see ``facts``
        """
        target = Path(path)
        check_new_folder(target)
        made = None if features is None else make_features(features)
        learner = hasher.steps[-1][1] if hasattr(hasher, "steps") else hasher
        n_bits = int(learner.n_bits)
        meta = {
            "n_bits": n_bits,
            "method": method or type(learner).__name__,
            "features": None if made is None else made.recipe,
            "evaluation": None if evaluation is None else dict(evaluation),
        }
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary_path(target, folder=True) as place:
            work = place / "collection"
            (work / THUMBNAILS).mkdir(parents=True)
            save(hasher, work / ENCODER, statistics=False)
            for file in [] if made is None else made.files:
                with replacing(work / file.name) as temporary:
                    shutil.copyfile(file, temporary)
            with ItemStore(work / ITEMS, n_bits) as store:
                store.index_contents()
            write_meta(work, meta)
            move_folder(work, target)
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
                self._store = self._resources.enter_context(ItemStore(self.path / ITEMS, readonly=True))
            self._items = ItemIndex(self._store.table(), self.n_bits)
            self._generation = generation
            return True

    def snapshot(self) -> Self:
        """The collection as it is now, for several calls that must agree; shares files and memory."""
        view = copy.copy(self)
        view._items, view.readonly = copy.copy(self._items), True
        return view

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def n_bits(self) -> int:
        """Length of the codes."""
        return int(self._meta["n_bits"])

    @property
    def n_features(self) -> int:
        """Columns of the vectors that the encoder takes."""
        return int(self.hasher.n_features_in_)

    @property
    def takes_images(self) -> bool:
        """Whether there is a recipe for features of images."""
        return self._features is not None or self._meta.get("features") is not None

    @property
    def features(self) -> ImageFeatures:
        """What computes vectors of images; loaded at the first use."""
        if self._features is None:
            recipe = self._meta.get("features")
            if recipe is None:
                raise InvalidInput(f"{self.path.name} is a collection of vectors; it has no recipe for images.")
            self._features = make_features(recipe, self.path)
        return self._features

    @property
    def _state(self) -> ItemState:
        return self._items.state

    @property
    def ids(self) -> AnyIds:
        """Ids of all items, ascending."""
        return self._state.table.ids

    @property
    def classes(self) -> dict[int | str, int]:
        """Class -> number of items; an item with several classes counts for each."""
        return self._state.table.classes

    def __len__(self) -> int:
        return len(self._state.table)

    def __contains__(self, item: object) -> bool:
        return isinstance(item, int | str | np.integer) and bool(self._state.table.find(np.asarray([item]))[0] >= 0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path.name!r}): {len(self)} items, {self.n_bits} bits"

    def encode(self, vectors: ArrayLike) -> Codes:
        """Codes of vectors, (n, n_bits) signs."""
        X = np.asarray(vectors)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise InvalidInput(
                f"Vectors must have shape (n, {self.n_features}), as the encoder was fitted. Got {X.shape} instead."
            )
        return np.asarray(self.hasher.transform(X)) if len(X) else np.empty((0, self.n_bits), dtype=np.int8)

    def image_vector(self, image: Place, *, max_pixels: int = MAX_PIXELS) -> NDArray[np.float32]:
        """The vector of one image, (n_features,); raises UnreadableImage if it cannot be decoded.

        Parameters
        ----------
        image : a path, or the bytes of a file
        max_pixels : a larger image is refused
        """
        name = "The image" if isinstance(image, bytes) else os.fspath(image)
        [[extracted]] = extract([(name, image)], self.features, max_pixels=max_pixels)
        if extracted.row is None:
            raise UnreadableImage(f"{name} cannot be used: {extracted.error}")
        return extracted.row

    def search(
        self,
        *,
        vector: ArrayLike | None = None,
        id: int | str | None = None,  # noqa: A002
        image: Place | None = None,
        code: int | ArrayLike | None = None,
        k: int | None = 10,
        radius: int | None = None,
        rerank: bool = False,
        max_pixels: int = MAX_PIXELS,
    ) -> Found:
        """Find the neighbours of one query, given as exactly one of ``vector``, ``id``, ``image`` and ``code``.

        Parameters
        ----------
        vector : (n_features,) numbers
        id : an item; it is not among its own neighbours
        image : a path, or the bytes of a file
        code : a packed integer, or n_bits signs
        k : number of neighbours; None finds all within ``radius``
        radius : largest Hamming distance; None: no limit (2 if re-ranked)
        rerank : order by cosine between vectors instead: the best k of all items within ``radius``
        max_pixels : a larger image is refused
        """
        given = {"vector": vector, "id": id, "image": image, "code": code}
        names = [name for name, value in given.items() if value is not None]
        if len(names) != 1:
            raise InvalidInput(
                f"A search takes exactly one of vector, id, image and code. Got {', '.join(names) or 'none'} instead."
            )
        if k is None and radius is None:
            raise InvalidInput("A search needs k, or radius, or both. Got neither.")
        if k is not None:
            check_count(k, "k", "search")
        if radius is not None:
            check_count(radius, "radius", "search", low=0)
        if rerank and code is not None:
            raise InvalidInput("Re-ranking compares vectors, and a code has none; search by vector, id or image.")
        if image is not None:
            vector = self.image_vector(image, max_pixels=max_pixels)
        if id is not None:
            query = self.codes_of([id])
        elif code is not None:
            query = self._packed(code)
        else:
            query = as_packed(self.encode(self._one_row(vector)), self.n_bits)
        if rerank:
            row = self._item_vector(id) if id is not None else self._one_row(vector)
            return self._reranked(query, row, k, RERANK_RADIUS if radius is None else radius, id)
        return self._as_found(query, *self._state.nearest(query, k, radius, id))

    def ring_sizes(self, code: int | ArrayLike) -> NDArray[np.int64]:
        """Number of items at every distance from a code, (n_bits + 1,)."""
        codes, loads = self._state.index.buckets()
        distances = hamming_distances(self._packed(code), codes, self.n_bits)[0]
        return np.bincount(distances, weights=loads, minlength=self.n_bits + 1).astype(np.int64)

    def buckets(self) -> list[Bucket]:
        """Every code that occurs, ascending, with its load and its items by class."""
        return self._state.table.buckets

    def bucket(self, code: int | ArrayLike) -> AnyIds:
        """Ids of the items that have a code, ascending."""
        return self._state.index.within(self._packed(code), 0).ids

    def items(self, ids: ArrayLike, *, skip_missing: bool = False) -> list[Item]:
        """Some items, in the order of ``ids``; an id that is not in the collection is an error, or is skipped."""
        columns = [c.tolist() for c in self._rows(as_ids(ids, "Collection.items"), skip_missing).columns]
        return [
            Item(item, code, label, name, content, self.thumbnail(content))
            for item, code, label, name, content in zip(*columns, strict=True)
        ]

    def codes_of(self, ids: ArrayLike) -> PackedCodes:
        """Packed codes of some items."""
        return self._rows(as_ids(ids, "Collection.codes_of")).codes

    def labels_of(self, ids: ArrayLike) -> list[Label]:
        """Labels of some items."""
        labels: list[Label] = self._rows(as_ids(ids, "Collection.labels_of")).labels.tolist()
        return labels

    def vectors_of(self, ids: ArrayLike) -> NDArray[np.float32] | None:
        """Vectors of some items, (n, n_features), nan in rows without one; None if no item has one."""
        return self._store.items(ids).vectors

    def sources_of(self, ids: ArrayLike) -> list[str]:
        """The files on this machine that some items were read from; "" if unknown."""
        return [(metadata or {}).get("source", "") for metadata in self._store.items(ids).metadata]

    def thumbnail(self, content: str) -> Path | None:
        """Path of the thumbnail of a content; None for "", the content of items that are not images."""
        return self.path / THUMBNAILS / content[:2] / f"{content}.jpg" if content.isalnum() else None

    def thumbnail_bytes(self, content: str) -> bytes | None:
        """The thumbnail of a content as a JPEG; None if there is none. Links are not followed."""
        return read_thumbnail(self.path, content)

    def explain_bits(self, per_side: int = 6) -> list[BitExplanation]:
        """For every bit, the items with the largest scores on either side, and those nearest to its decision border.

        Up to 5 000 items, evenly spread over the ids, are examined; items without a vector are left out.
        """
        check_count(per_side, "per_side", "explain_bits")
        ids = self.ids
        some = ids[np.linspace(0, len(ids) - 1, min(len(ids), EXPLAINED)).astype(np.intp)]
        some, vectors = self._known_vectors(some)
        if vectors is None:
            raise InvalidInput("Bits are explained by vectors, and no item of this collection has one.")
        known = ~np.isnan(vectors[:, 0])
        return explain_bits(some[known], self.hasher.project(vectors[known]), per_side)

    def facts(self) -> dict[str, Any]:
        """Everything about the collection as a whole, as plain values that JSON takes.

        ``name``, ``n_items``, ``n_bits``, ``n_features``, ``n_classes``, ``method``, ``features`` (the recipe),
        ``evaluation`` (what was measured at the fit, or None), ``codes`` (statistics of the codes now, see
        ``CodeQuality.to_dict``) and ``shorthash_version``.
        """
        table = self._state.table
        quality = table.quality(self.n_bits)
        return {
            "name": self.path.name,
            "n_items": len(table),
            "n_bits": self.n_bits,
            "n_features": self.n_features,
            "n_classes": len(table.classes),
            "method": self._meta.get("method"),
            "features": self._meta.get("features"),
            "evaluation": self._meta.get("evaluation"),
            "codes": None if quality is None else {n: v for n, v in quality.to_dict().items() if v == v},
            "shorthash_version": self._meta.get("shorthash_version"),
        }

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

    def add_images(
        self,
        sources: Iterable[Source],
        *,
        labels: Sequence[Label] | None = None,
        cache: str | os.PathLike[str] | None = None,
        max_pixels: int = MAX_PIXELS,
        n_workers: int = 0,
        progress: Callable[[str, int, int], None] | None = None,
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
        progress : called with (what, done, total)
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
            for image, label in zip(batch, labels, strict=True):
                if image.row is None:
                    report.failed.append((image.name, image.error))
                elif image.content in holders:
                    report.duplicates.append((image.name, holders[image.content]))
                else:
                    holders[image.content] = self._next_id + len(new)
                    new.append((image, label))
            if not new:
                return
            images = [image for image, _ in new]
            for image in images:  # before the items that refer to them: a thumbnail without an item does no harm
                if image.thumbnail is not None:
                    write_thumbnail(self.path, image.content, image.thumbnail)
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
            self._items.remove(removed)
        for content in contents:
            thumbnail = self.thumbnail(content)
            if thumbnail is not None:
                thumbnail.unlink(missing_ok=True)

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
        if len(ids) and ids.dtype.kind == "i" and int(ids.max()) > MOST_ID:
            raise InvalidInput(f"An id of a collection may be at most {MOST_ID}. Got {ids.max()}; choose smaller ids.")
        rows = None if vectors is None else as_vectors(vectors, len(ids), "Collection", np.float32)
        checked = metadata
        if len(codes) == len(ids) == len(classes) and (metadata is None or len(metadata) == len(ids)):
            checked = with_checks(ids, codes, classes, metadata, rows)  # otherwise the store says what is wrong
        self._store.add(codes, ids, classes=classes, metadata=checked, vectors=rows)
        details = metadata or [{}] * len(ids)
        names, contents = ([entry.get(field, "") for entry in details] for field in ("name", "content"))
        self._items.add(ItemTable.from_columns(ids, codes, classes, names, contents))
        if len(ids) and ids.dtype.kind == "i":
            self._next_id = max(self._next_id, int(ids.max()) + 1)

    def _new_ids(self, n: int) -> NDArray[np.int64]:
        if len(self) and self.ids.dtype.kind != "i":
            raise InvalidInput("Items of a collection with string ids cannot be numbered; give ids that are strings.")
        return np.arange(self._next_id, self._next_id + n, dtype=np.int64)

    def _check_writable(self) -> None:
        if self.readonly:
            raise PersistenceError(f"{self.path.name} was opened read-only; open it for writing.")

    def _known_vectors(self, ids: AnyIds) -> tuple[AnyIds, NDArray[np.float32] | None]:
        """Those of some items that the database still has, and their vectors (None if none has one)."""
        found = self._store.items_of(ids)
        order = np.argsort(found.ids, kind="stable")
        return found.ids[order], None if found.vectors is None else found.vectors[order]

    def _item_vector(self, item: int | str) -> NDArray[np.float32]:
        _, vectors = self._known_vectors(as_ids([item], "Collection"))
        if vectors is None or not len(vectors) or np.isnan(vectors[0, 0]):
            raise InvalidInput(
                f"Item {item!r} has no vector, so its neighbours cannot be re-ranked; search without it."
            )
        return vectors

    def _one_row(self, vector: ArrayLike | None) -> NDArray[np.float32]:
        row = np.asarray(vector, dtype=np.float32)
        if row.ndim != 1:
            raise InvalidInput(f"The vector of a search must have shape ({self.n_features},). Got {row.shape} instead.")
        return row[None]

    def _reranked(
        self, query: PackedCodes, vector: NDArray[np.float32], k: int | None, radius: int, exclude: int | str | None
    ) -> Found:
        """The best k by cosine of all items within a radius."""
        if not len(self):
            return self._as_found(query, self._state.table, np.empty(0, dtype=np.uint8))
        table, more = self._state.table, len(self) + 1 if k is None else k + 1
        while True:
            found = self._store.rerank(query, vector, more, radius=radius)
            rows = table.find(found.ids)
            kept = rows >= 0  # the database may be ahead of this state
            if exclude is not None:
                kept &= found.ids != exclude
            if k is None or np.count_nonzero(kept) >= k or len(found.ids) < more:
                break
            more *= 2
        items = table.take(rows[kept][:k])
        distances = hamming_distances(query, items.codes, self.n_bits)[0]
        return self._as_found(query, items, distances, found.scores[kept][:k])

    def _as_found(
        self,
        query: PackedCodes,
        items: ItemTable,
        distances: NDArray[np.uint8],
        scores: NDArray[np.float32] | None = None,
    ) -> Found:
        labels, names, contents = (column.tolist() for column in (items.labels, items.names, items.contents))
        return Found(int(query[0]), self.n_bits, items.ids, distances, items.codes, labels, names, contents, scores)

    def _rows(self, ids: AnyIds, skip_missing: bool = False) -> ItemTable:
        """The items with some ids, in that order."""
        table = self._state.table
        rows = table.find(ids)
        if skip_missing:
            rows = rows[rows >= 0]
        elif (rows < 0).any():
            raise InvalidInput(f"Id {ids[rows < 0][0].item()!r} is not in the collection; give ids that were added.")
        return table.take(rows)

    def _packed(self, code: int | ArrayLike) -> PackedCodes:
        values = np.asarray(code)
        if values.ndim == 0 and not 0 <= int(values) < 1 << self.n_bits:
            raise InvalidInput(f"A code of {self.n_bits} bits is between 0 and {(1 << self.n_bits) - 1}. Got {code!r}.")
        packed = as_packed(values[None], self.n_bits)
        if len(packed) != 1:
            raise InvalidInput(f"One code is needed here. Got {len(packed)} instead.")
        return packed
