"""The half of a collection that asks and never writes: search, buckets, items, explanations, facts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._types import Codes, Floats, PackedCodes
from shorthash._validation import check_count
from shorthash.codes import as_packed, hamming_distances
from shorthash.errors import InvalidInput, UnreadableImage
from shorthash.images.explaining import explain_scores
from shorthash.images.extraction import Source, extract
from shorthash.images.folder import ENCODER, ITEMS, THUMBNAILS, read_meta
from shorthash.images.image_features import ImageFeatures, make_features
from shorthash.images.images import MAX_PIXELS
from shorthash.images.items import ItemStore
from shorthash.images.results import BitExplanation, Bucket, Encoded, Found, Item
from shorthash.images.table import ItemTable
from shorthash.index.buckets import BucketIndex
from shorthash.index.ids import AnyIds, as_ids
from shorthash.persistence import load

__all__ = ["ReadableCollection"]

RERANK_RADIUS = 2  # of the ball that is re-ranked where no radius is given
EXPLAINED = 5000  # items that explain_bits looks at


class ReadableCollection:
    """What a collection can be asked.

    Search, ``bucket``, ``buckets`` and ``labels_of`` answer from memory; only ``items``, re-ranking and
    ``explain_bits`` read the database. Any number of threads may ask at once, also while one adds or removes.
    """

    def __init__(self, path: str | os.PathLike[str], features: ImageFeatures | None = None) -> None:
        self.path = Path(path)
        self._meta = read_meta(self.path)
        self._features = features
        self.hasher: Any = load(self.path / ENCODER)
        self._store = ItemStore(self.path / ITEMS)
        try:
            self._table: ItemTable = self._store.table()
        except BaseException:
            self._store.close()
            raise
        self._index = BucketIndex(self.n_bits)
        self._index.add(self._table.codes, self._table.ids)
        self._index.buckets()  # sorted now, not at the first search

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
        """What makes vectors of images; loaded at the first use."""
        if self._features is None:
            recipe = self._meta.get("features")
            if recipe is None:
                raise InvalidInput(f"{self.path.name} is a collection of vectors; it has no recipe for images.")
            self._features = make_features(recipe, self.path)
        return self._features

    @property
    def ids(self) -> AnyIds:
        """Ids of all items, ascending."""
        return self._table.ids

    @property
    def classes(self) -> dict[int | str, int]:
        """Class -> number of items; an item with several classes counts for each."""
        return self._table.classes

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, item: object) -> bool:
        return isinstance(item, int | str | np.integer) and bool(self._table.find(np.asarray([item]))[0] >= 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path.name!r}): {len(self)} items, {self.n_bits} bits"

    def close(self) -> None:
        """Let go of the files."""
        self._store.close()

    def encode(self, vectors: ArrayLike) -> Codes:
        """Codes of vectors, (n, n_bits) signs."""
        X = np.asarray(vectors)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise InvalidInput(
                f"Vectors must have shape (n, {self.n_features}), as the encoder was fitted. Got {X.shape} instead."
            )
        return np.asarray(self.hasher.transform(X)) if len(X) else np.empty((0, self.n_bits), dtype=np.int8)

    def encode_images(self, sources: Iterable[Source], *, max_pixels: int = MAX_PIXELS, n_workers: int = 0) -> Encoded:
        """Vectors and codes of images; those that cannot be read are reported.

        Parameters
        ----------
        sources : paths, or (name, path or bytes)
        max_pixels : larger images are refused
        n_workers : processes that decode; 0 decodes here
        """
        done = [e for part in extract(sources, self.features, max_pixels=max_pixels, n_workers=n_workers) for e in part]
        good = [e for e in done if e.row is not None]
        rows = np.stack([e.row for e in good]) if good else np.empty((0, self.n_features), dtype=np.float32)  # type: ignore[misc]
        codes = self.encode(rows)
        failed = [(e.name, e.error) for e in done if e.row is None]
        return Encoded([e.name for e in good], rows, codes, failed)

    def search(
        self,
        *,
        vector: ArrayLike | None = None,
        id: int | str | None = None,  # noqa: A002
        image: str | os.PathLike[str] | bytes | None = None,
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
        k : how many to find; None finds all within ``radius``
        radius : largest Hamming distance; None: as far as k items reach (2 if re-ranked)
        rerank : order by cosine between vectors instead: the best k of all items within ``radius``
        max_pixels : a larger image is refused
        """
        vector, query, own = self._query(vector, id, image, code, rerank, max_pixels)
        if k is None and radius is None:
            raise InvalidInput("A search needs k, or radius, or both. Got neither.")
        if k is not None:
            check_count(k, "k", "search")
        if radius is not None:
            check_count(radius, "radius", "search", low=0)
        if rerank:
            assert vector is not None
            return self._reranked(query, vector, k, RERANK_RADIUS if radius is None else radius, own)
        extra = 0 if own is None else 1
        while True:
            ids, distances = self._nearest(query, None if k is None else k + extra, radius)
            if own is not None:
                others = ids != own
                ids, distances = ids[others][:k], distances[others][:k]
            table = self._table
            rows = table.find(ids)
            if (rows >= 0).all():  # else an item was removed meanwhile
                return Found(int(query[0]), self.n_bits, ids, distances, table.codes[rows], table.labels(rows))

    def ring_sizes(self, code: int | ArrayLike) -> NDArray[np.int64]:
        """How many items lie at every distance from a code, (n_bits + 1,)."""
        codes, loads = self._index.buckets()
        distances = hamming_distances(self._packed(code), codes, self.n_bits)[0]
        return np.bincount(distances, weights=loads, minlength=self.n_bits + 1).astype(np.int64)

    def buckets(self) -> list[Bucket]:
        """Every code that occurs, ascending, with its load and its items by class."""
        return self._table.buckets

    def bucket(self, code: int | ArrayLike) -> AnyIds:
        """Ids of the items that have a code, ascending."""
        return self._index.within(self._packed(code), 0).ids

    def items(self, ids: ArrayLike) -> list[Item]:
        """Everything about some items, in order; an id that is not there is an error."""
        wanted = as_ids(ids, "Collection.items")
        if not len(wanted):
            return []
        unique, back = np.unique(wanted, return_inverse=True)
        found = self._store.items(unique)
        made = []
        for item, code, label, metadata in zip(found.ids, found.codes, found.classes, found.metadata, strict=True):
            told = metadata or {}
            content = told.get("content", "")
            made.append(
                Item(
                    item.item(),
                    int(code),
                    label,
                    told.get("name", ""),
                    content,
                    told.get("source", ""),
                    self.thumbnail(content),
                )
            )
        return [made[row] for row in back.tolist()]

    def codes_of(self, ids: ArrayLike) -> PackedCodes:
        """Packed codes of some items, from memory."""
        return self._table.codes[self._rows(as_ids(ids, "Collection.codes_of"))]

    def labels_of(self, ids: ArrayLike) -> list[int | str | None]:
        """Labels of some items, from memory."""
        return self._table.labels(self._rows(as_ids(ids, "Collection.labels_of")))

    def vectors_of(self, ids: ArrayLike) -> NDArray[np.float32] | None:
        """Vectors of some items, (n, n_features), nan in rows without one; None if no item has one."""
        return self._store.items(ids).vectors

    def thumbnail(self, content: str) -> Path | None:
        """Path of the thumbnail of a content; None if there is none."""
        if not content.isalnum():
            return None
        path = self.path / THUMBNAILS / content[:2] / f"{content}.jpg"
        return path if path.exists() else None

    def explain_bits(self, per_side: int = 6) -> list[BitExplanation]:
        """For every bit, the items that are surest on either side, and those nearest to its decision border.

        Up to 5 000 items, evenly spread over the ids, are looked at; items without a vector are left out.
        """
        check_count(per_side, "per_side", "explain_bits")
        ids = self._table.ids
        spread = np.linspace(0, len(ids) - 1, min(len(ids), EXPLAINED)).astype(np.intp)
        some = ids[spread]
        vectors = self.vectors_of(some) if len(some) else None
        if vectors is None:
            raise InvalidInput("Bits are explained by vectors, and no item of this collection has one.")
        known = ~np.isnan(vectors[:, 0])
        return explain_scores(some[known], self.scores(vectors[known]), per_side)

    def scores(self, vectors: ArrayLike) -> Floats:
        """Real scores of vectors, (n, n_bits): the sign is the bit, the magnitude how far it is from switching."""
        return np.asarray(self.hasher.project(vectors), dtype=np.float64)

    def facts(self) -> dict[str, Any]:
        """What there is to know, as plain values that JSON takes.

        ``name``, ``n_items``, ``n_bits``, ``n_features``, ``n_classes``, ``method``, ``features`` (the recipe),
        ``evaluation`` (what was measured at the fit, or None), ``codes`` (health of the codes now, see
        ``CodeQuality.to_dict``) and ``shorthash_version``.
        """
        table = self._table
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

    def _query(
        self, vector: Any, item: Any, image: Any, code: Any, rerank: bool, max_pixels: int
    ) -> tuple[NDArray[Any] | None, PackedCodes, Any]:
        """Vector (if needed or given), packed code (1,), and the id that asks."""
        given = {"vector": vector, "id": item, "image": image, "code": code}
        names = [name for name, value in given.items() if value is not None]
        if len(names) != 1:
            raise InvalidInput(
                f"A search takes exactly one of vector, id, image and code. Got {', '.join(names) or 'none'} instead."
            )
        if item is not None:
            [row] = self._rows(as_ids([item], "Collection.search"))
            vector = self._own_vector(item) if rerank else None
            return vector, self._table.codes[row : row + 1], item
        if code is not None:
            if rerank:
                raise InvalidInput("Re-ranking compares vectors, and a code is none; search by vector, id or image.")
            return None, self._packed(code), None
        if image is not None:
            vector = self._image_vector(image, max_pixels)
        row = np.asarray(vector, dtype=np.float32)
        if row.ndim != 1:
            raise InvalidInput(f"The vector of a search must have shape ({self.n_features},). Got {row.shape} instead.")
        return row, as_packed(self.encode(row[None]), self.n_bits), None

    def _image_vector(self, image: str | os.PathLike[str] | bytes, max_pixels: int) -> NDArray[np.float32]:
        name = "the image" if isinstance(image, bytes) else os.fspath(image)
        encoded = self.encode_images([(name, image)], max_pixels=max_pixels)
        if encoded.failed:
            raise UnreadableImage(f"{name} cannot be used: {encoded.failed[0][1]}")
        return np.asarray(encoded.vectors[0])

    def _own_vector(self, item: Any) -> NDArray[np.float32]:
        vectors = self.vectors_of([item])
        if vectors is None or np.isnan(vectors[0, 0]):
            raise InvalidInput(f"Item {item!r} has no vector, so its neighbours cannot be re-ranked; leave rerank off.")
        return np.asarray(vectors[0])

    def _nearest(self, query: PackedCodes, k: int | None, radius: int | None) -> tuple[AnyIds, NDArray[np.uint8]]:
        if k is None:
            assert radius is not None
            return self._index.within(query, radius)[0]
        found = self._index.search(query, k)
        ids, distances = found.ids[0], found.distances[0]
        if radius is None:
            return ids, distances
        n = int(np.searchsorted(distances, radius, side="right"))
        return ids[:n], distances[:n]

    def _reranked(self, query: PackedCodes, vector: NDArray[Any], k: int | None, radius: int, own: Any) -> Found:
        if not len(self):
            return self.search(code=int(query[0]), k=1)
        wanted = len(self) + 1 if k is None else k + 1
        found = self._store.rerank(query, vector[None], max(wanted, 1), radius=radius)
        table = self._table
        rows = table.find(found.ids)
        kept = rows >= 0
        if own is not None:
            kept &= found.ids != own
        rows, ids, scores = rows[kept][:k], found.ids[kept][:k], found.scores[kept][:k]
        codes = table.codes[rows]
        distances = hamming_distances(query, codes, self.n_bits)[0]
        return Found(int(query[0]), self.n_bits, ids, distances, codes, table.labels(rows), scores)

    def _rows(self, ids: AnyIds) -> NDArray[np.intp]:
        rows = self._table.find(ids)
        if (rows < 0).any():
            raise InvalidInput(f"Id {ids[rows < 0][0].item()!r} is not in the collection; ask for ids that were added.")
        return rows

    def _packed(self, code: int | ArrayLike) -> PackedCodes:
        values = np.asarray(code)
        if values.ndim == 0 and not 0 <= int(values) < 1 << self.n_bits:
            raise InvalidInput(
                f"A code of {self.n_bits} bits lies between 0 and {(1 << self.n_bits) - 1}. Got {code!r}."
            )
        packed = as_packed(values[None], self.n_bits)
        if len(packed) != 1:
            raise InvalidInput(f"One code is needed here. Got {len(packed)} instead.")
        return packed
