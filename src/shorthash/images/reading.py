"""Reading a collection: items, searches, explanations, facts."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._arrays import Codes, PackedCodes
from shorthash._validation import check_choice, check_count
from shorthash.codes import as_packed, hamming_distances
from shorthash.errors import InvalidInput, UnreadableImage
from shorthash.images.decoding import MAX_PIXELS, Place, Workers, extract
from shorthash.images.features import ImageFeatures, make_features
from shorthash.images.results import BitExplanation, Bucket, Found, Item, Label, explain_bits, split_label
from shorthash.images.storage import THUMBNAILS, ItemState, ItemStore, ItemTable, read_thumbnail
from shorthash.index.items import AnyIds, as_ids
from shorthash.retrieval import RERANK_RADIUS, RERANKS, Searcher

EXPLAINED = 5000  # items that explain_bits examines


class Reader:
    """The reading half of a ``Collection``, which opens the files and writes."""

    path: Path
    hasher: Any
    _meta: dict[str, Any]
    _features: ImageFeatures | None
    _state: ItemState
    _store: ItemStore
    _posteriors_known = False  # whether every item with a vector has its posterior

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
    def n_trained(self) -> int | None:
        """How many items, those with the smallest ids, the encoder has learned from; None if unknown."""
        return self._meta.get("n_trained")

    def was_trained_on(self, item: int | str) -> bool | None:
        """Whether the encoder has learned from an item; None if unknown."""
        n = self.n_trained
        return None if n is None or not isinstance(item, int) else item < n

    @property
    def has_posteriors(self) -> bool:
        """Whether the encoder knows which cells hold relevant items, so that they can be searched by probes."""
        return Searcher(self.hasher, posterior_bytes=0).has_posteriors

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

    def image_vector(
        self, image: Place, *, max_pixels: int = MAX_PIXELS, workers: Workers | None = None
    ) -> NDArray[np.float32]:
        """The vector of one image, (n_features,); raises UnreadableImage if it cannot be decoded.

        Parameters
        ----------
        image : a path, or the bytes of a file
        max_pixels : a larger image is refused
        workers : processes that decode; None decodes in this one
        """
        name = "The image" if isinstance(image, bytes) else os.fspath(image)
        [[extracted]] = extract([(name, image)], self.features, max_pixels=max_pixels, workers=workers)
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
        rerank: bool | str = False,
        probes: int | str | None = None,
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
        rerank : order by "cosine" between vectors (or True), or by "posterior", the probability of being relevant that
            a model with posteriors gives: the best k of all items within ``radius``
        probes : number of cells to look up, those with the largest expected share of relevant items, instead of Hamming
            rings; "auto": as many as needed. A model with posteriors is needed, and a query with a vector
        max_pixels : a larger image is refused
        """
        given = {"vector": vector, "id": id, "image": image, "code": code}
        names = [name for name, value in given.items() if value is not None]
        if len(names) != 1:
            raise InvalidInput(
                f"A search takes exactly one of vector, id, image and code. Got {', '.join(names) or 'none'} instead."
            )
        order = _check_policy(k, radius, rerank, probes, by_code=code is not None)
        if image is not None:
            vector = self.image_vector(image, max_pixels=max_pixels)
        if id is not None:
            query = self.codes_of([id])
        elif code is not None:
            query = self._packed(code)
        else:
            query = as_packed(self.encode(self._one_row(vector)), self.n_bits)
        reach = RERANK_RADIUS if radius is None else radius
        if order is not None or probes is not None:
            row = self._item_vector(id) if id is not None else self._one_row(vector)
        if probes is not None:
            return self._by_searcher(query, row, k, order, id, probes=probes)
        if order == "posterior":
            return self._by_searcher(query, row, k, order, id, radius=reach)
        if order == "cosine":
            return self._reranked(query, row, k, reach, id)
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

    def find_text(self, text: str) -> AnyIds:
        """Ids of the items of a class with this name, then of those whose name or label contains the text, by id."""
        table, wanted = self._state.table, text.strip().casefold()
        words = {label: [str(part).casefold() for part in split_label(label)] for label in set(table.labels.tolist())}
        exact = np.fromiter((wanted in words[label] for label in table.labels.tolist()), np.bool_, len(table))
        inside = {label: any(wanted in word for word in found) for label, found in words.items()}
        pairs = zip(table.labels.tolist(), table.names.tolist(), strict=True)
        near = np.fromiter((inside[label] or wanted in name.casefold() for label, name in pairs), np.bool_, len(table))
        return np.concatenate([table.ids[exact], table.ids[near & ~exact]])

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

    def copies(self) -> dict[int | str, list[tuple[str, str]]]:
        """Item -> (name, source) of the other files with its content, as they were when they were added.

        A file that no longer exists is left out if the file of the item still exists.
        """
        noted = self._store.copies()
        holders = self._store.holders(sorted({content for content, _, _ in noted}))
        kept = {content: item for content, item in holders.items() if item in self}
        own = dict(zip(kept.values(), self.sources_of(list(kept.values())), strict=True)) if kept else {}
        found: dict[int | str, list[tuple[str, str]]] = {}
        for content, name, source in noted:
            item = kept.get(content)
            if item is None or source == own[item]:
                continue
            if Path(source).is_file() or not Path(own[item]).is_file():
                found.setdefault(item, []).append((name, source))
        return found

    def thumbnail(self, content: str) -> Path | None:
        """Path of the thumbnail of a content; None for "", the content of items that are not images."""
        return self.path / THUMBNAILS / content[:2] / f"{content}.jpg" if content.isalnum() else None

    def thumbnail_bytes(self, content: str) -> bytes | None:
        """The thumbnail of a content as a JPEG; None if there is none. Links are not followed."""
        return read_thumbnail(self.path, content)

    def explain_bits(self, per_side: int = 6) -> list[BitExplanation]:
        """For every bit, items with large scores on either side, and those nearest to its decision border.

        On a side, the best item of every class comes first, then the second best ones, and so on, of the classes in
        the order of their best items. Up to 5 000 items, evenly spread over the ids, are examined; items without a
        vector are left out.
        """
        check_count(per_side, "per_side", "explain_bits")
        ids = self.ids
        some = ids[np.linspace(0, len(ids) - 1, min(len(ids), EXPLAINED)).astype(np.intp)]
        some, vectors = self._known_vectors(some)
        if vectors is None:
            raise InvalidInput("Bits are explained by vectors, and no item of this collection has one.")
        known = ~np.isnan(vectors[:, 0])
        return explain_bits(some[known], self.hasher.project(vectors[known]), per_side, self.labels_of(some[known]))

    def facts(self) -> dict[str, Any]:
        """Everything about the collection as a whole, as plain values that JSON takes.

        ``name``, ``n_items``, ``n_bits``, ``n_features``, ``n_classes``, ``method``, ``features`` (the recipe),
        ``evaluation`` (what was measured at the fit, or None), ``n_trained``, ``codes`` (statistics of the codes
        now, see ``CodeQuality.to_dict``) and ``shorthash_version``.
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
            "n_trained": self.n_trained,
            "codes": None if quality is None else {n: v for n, v in quality.to_dict().items() if v == v},
            "shorthash_version": self._meta.get("shorthash_version"),
        }

    def _known_vectors(self, ids: AnyIds) -> tuple[AnyIds, NDArray[np.float32] | None]:
        """Those of some items that the database still has, and their vectors (None if none has one)."""
        found = self._store.items_of(ids)
        order = np.argsort(found.ids, kind="stable")
        return found.ids[order], None if found.vectors is None else found.vectors[order]

    def _item_vector(self, item: int | str) -> NDArray[np.float32]:
        _, vectors = self._known_vectors(as_ids([item], "Collection"))
        if vectors is None or not len(vectors) or np.isnan(vectors[0, 0]):
            raise InvalidInput(f"Item {item!r} has no vector; search without re-ranking and probes.")
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

    def _by_searcher(
        self,
        query: PackedCodes,
        vector: NDArray[np.float32],
        k: int | None,
        order: str | None,
        exclude: int | str | None,
        **reach: Any,
    ) -> Found:
        """The best k of the cells with the largest expected shares of relevant items, or of a ball."""
        if order == "posterior":
            self._check_posteriors()
        table, holder = self._state.table, self._state.index if order is None else self._store
        searcher = Searcher(self.hasher, holder, posterior_bytes=0)
        found = searcher.search(vector, (len(self) if k is None else k) + 1, rerank=order, **reach)
        rows = table.find(found.ids)
        kept = (rows >= 0) & (found.ids != exclude)  # the database may be ahead of this state
        items = table.take(rows[kept][:k])
        distances = hamming_distances(query, items.codes, self.n_bits)[0]
        expected = None if np.isnan(found.precision[0]) else round(float(found.precision[0]), 4)
        looked_up = tuple(found.looked_up(0).tolist()) if "probes" in reach else ()
        return replace(
            self._as_found(query, items, distances, found.scores[kept][:k]), looked_up=looked_up, expected=expected
        )

    def _check_posteriors(self) -> None:
        """Raise if an item with a vector has no posterior, as one that an older version added."""
        if self.has_posteriors and not self._posteriors_known:
            if self._store.lacking_posteriors(1):
                raise InvalidInput(
                    f"Items of {self.path.name} have no posteriors, as an older version of shorthash added them; "
                    "compute them with: shorthash fsck MODEL --repair"
                )
            self._posteriors_known = True

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


def _check_policy(
    k: int | None, radius: int | None, rerank: bool | str, probes: int | str | None, *, by_code: bool
) -> str | None:
    """What to order by; raises if the parts of a search do not fit each other."""
    order = ("cosine" if rerank else None) if isinstance(rerank, bool) else rerank
    if order is not None:
        check_choice(order, "rerank", "search", RERANKS)
    if k is None and radius is None:
        raise InvalidInput("A search needs k, or radius, or both. Got neither.")
    if k is not None:
        check_count(k, "k", "search")
    if radius is not None:
        check_count(radius, "radius", "search", low=0)
    if probes is not None and (radius is not None or by_code or k is None):
        raise InvalidInput("A search by probes takes k, and a vector, id or image; leave out radius and code.")
    if rerank and by_code:
        raise InvalidInput("Re-ranking compares vectors, and a code has none; search by vector, id or image.")
    return order
