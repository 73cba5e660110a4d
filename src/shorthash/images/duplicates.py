"""Duplicates in a collection: files of equal content, and images that show the same picture.

Near duplicates are found in two steps. All pairs of stored vectors with a large cosine are candidates; none is missed,
and no n x n matrix is made (``near_pairs``). A candidate is confirmed by the pixels of the thumbnails, in grey and at
small size: the whole of one image is compared with the whole and with the middle parts of the other, so that a copy may
be resized, compressed again, brighter, or cropped a little.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from shorthash._progress import OnStep, with_progress
from shorthash.errors import InvalidInput, UnreadableImage, named
from shorthash.images.collection import Collection
from shorthash.images.decoding import decode

THRESHOLD = 0.95
CANDIDATES = 0.9  # least cosine of the vectors of images whose pixels are compared
HEAD = 64  # directions of the rotated vectors that the upper bound uses
SAMPLE = 4096  # rows that the directions are computed from
BLOCK = 2048  # rows of a block; a block of bounds has 16 MB
ROUNDING = 1e-5  # of a product of float32 rows of unit length, with a margin
MOST_PAIRS = 5_000_000
SIDE = 24  # pixels along a side of what is compared
SHARES = (1.0, 0.95, 0.9)  # of the sides of an image: the whole, and middle parts
ENOUGH = 64  # pixels of a thumbnail's shorter side that suffice
FLAT = 2.0  # standard deviation of grey values below which an image shows nothing
CONFIRMED_AT_ONCE = 4096


@dataclass(frozen=True)
class DuplicatePair:
    """Two files that show the same picture.

    Attributes
    ----------
    group : number of the group both belong to, from 0
    kind : "exact" (equal bytes) or "near"
    id, other_id : their items; equal if only one of two equal files is in the collection
    name, other_name : their names
    source, other_source : the files they were read from; "" if unknown
    similarity : 1 for equal files; else the cosine between grey values, or between vectors where there is no thumbnail
    """

    group: int
    kind: str
    id: int | str
    name: str
    source: str
    other_id: int | str
    other_name: str
    other_source: str
    similarity: float


@dataclass(frozen=True)
class DuplicateFile:
    """A file of a group of duplicates.

    Attributes
    ----------
    id : its item, or the item of equal content
    name, source : its name, and the file it was read from ("" if unknown)
    content : hash of its bytes, "" for vectors
    n_bytes : its size now; 0 if it is not there
    """

    id: int | str
    name: str
    source: str
    content: str
    n_bytes: int


@dataclass(frozen=True)
class Duplicates:
    """What ``find_duplicates`` found.

    Attributes
    ----------
    pairs : by group, the most similar first
    groups : files that show the same picture, the largest file first
    n_items : items that were compared
    """

    pairs: list[DuplicatePair] = field(default_factory=list)
    groups: list[list[DuplicateFile]] = field(default_factory=list)
    n_items: int = 0

    @property
    def n_exact(self) -> int:
        """Number of pairs of equal files."""
        return sum(pair.kind == "exact" for pair in self.pairs)


@with_progress
def find_duplicates(
    collection: Collection, *, threshold: float = THRESHOLD, progress: OnStep | None = None
) -> Duplicates:
    """Groups of files in a collection that show the same picture.

    Files of equal content are in the collection once; the others are known from when they were added. Near duplicates
    are all pairs of items whose vectors have a cosine of at least 0.9 (or ``threshold``, if that is less) and whose
    pixels are at least as similar as ``threshold``. Items without thumbnails are compared by their vectors alone.

    Parameters
    ----------
    collection : of images, or of vectors
    threshold : least similarity of a pair, in (0, 1]
    progress : called with (what, done, total); None shows what ``set_config`` sets

    Examples
    --------
    >>> import tempfile
    >>> from shorthash import make_hasher
    >>> X = np.random.default_rng(0).normal(size=(50, 8))
    >>> X[7] = X[3] + 0.01
    >>> hasher = make_hasher("pcaitq", n_bits=4, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder, Collection.create(f"{folder}/points", hasher) as points:
    ...     ids = points.add_vectors(X)
    ...     [(pair.id, pair.other_id, pair.kind) for pair in find_duplicates(points).pairs]
    [(3, 7, 'near')]
    """
    assert progress is not None
    if not 0 < threshold <= 1:
        raise InvalidInput(f"{named('threshold', 'find_duplicates')} must be in (0, 1]. Got {threshold} instead.")
    ids = collection.ids
    if not len(ids):
        return Duplicates()
    progress("reading vectors", 0, 0)
    vectors = collection.vectors_of(ids)
    if vectors is None:
        raise InvalidInput("Near duplicates are found by vectors, and no item of this collection has one.")
    known = np.flatnonzero(~np.isnan(vectors[:, 0]))
    pairs, cosines = near_pairs(vectors[known], min(threshold, CANDIDATES), progress=progress)
    pairs = known[pairs]
    similar = _confirmed(collection, ids, pairs, cosines, progress)
    kept = similar >= threshold
    return _grouped(collection, pairs[kept], similar[kept])


def near_pairs(
    X: ArrayLike, threshold: float, *, progress: OnStep | None = None
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """All pairs of rows whose cosine is at least ``threshold``: (m, 2) row numbers, ascending, and the m cosines.

    Rows of unit length are rotated so that their first coordinates hold most of their length. The product of those
    coordinates, plus that of the lengths of what is left, is an upper bound of the cosine; it is computed for all
    pairs, block by block, and the cosine only where the bound allows it. The result is that of comparing all pairs.

    Parameters
    ----------
    X : (n, n_features); a row of zeros is similar to none
    threshold : least cosine
    progress : called with (what, done, total)

    Examples
    --------
    >>> pairs, cosines = near_pairs([[1, 0], [0, 1], [2, 0.1]], 0.9)
    >>> pairs.tolist()
    [[0, 2]]
    """
    rows = np.asarray(X, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units = np.asarray(rows / np.where(lengths > 0, lengths, 1), dtype=np.float32)
    bounds = _bounding(units)
    starts = range(0, len(units), BLOCK)
    found: list[NDArray[np.intp]] = []
    scores: list[NDArray[np.float32]] = []
    n_pairs = 0
    for done, start in enumerate(starts):
        for other in range(start, len(units), BLOCK):
            i, j = np.nonzero(bounds[start : start + BLOCK] @ bounds[other : other + BLOCK].T >= threshold - ROUNDING)
            i, j = i + start, j + other
            i, j = i[i < j], j[i < j]
            cosines = _cosines(units, i, j)
            kept = cosines >= threshold
            found.append(np.stack([i[kept], j[kept]], axis=1))
            scores.append(cosines[kept])
            n_pairs += len(found[-1])
            if n_pairs > MOST_PAIRS:
                raise InvalidInput(
                    f"More than {MOST_PAIRS} pairs have a cosine of at least {threshold:g}; choose a larger threshold."
                )
        if progress is not None:
            progress("comparing all pairs", done + 1, len(starts))
    pairs = np.concatenate([np.empty((0, 2), dtype=np.intp), *found])
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return pairs[order], np.concatenate([np.empty(0, dtype=np.float32), *scores])[order]


def _bounding(units: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows whose products are upper bounds of the products of ``units``; as they are if they are short."""
    if units.shape[1] <= HEAD + 1:
        return units
    sample = units[np.linspace(0, len(units) - 1, min(len(units), SAMPLE)).astype(np.intp)].astype(np.float64)
    _, directions = np.linalg.eigh(sample.T @ sample)
    head = units @ directions[:, -HEAD:].astype(np.float32)
    left = np.sqrt(np.maximum((units**2).sum(axis=1) - (head**2).sum(axis=1), 0) + ROUNDING)
    return np.column_stack([head, left])


def _cosines(units: NDArray[np.float32], i: NDArray[np.intp], j: NDArray[np.intp]) -> NDArray[np.float32]:
    """Products of pairs of rows, some at a time."""
    parts = [
        np.einsum("pd,pd->p", units[i[at : at + BLOCK]], units[j[at : at + BLOCK]]) for at in range(0, len(i), BLOCK)
    ]
    return np.concatenate([np.empty(0, dtype=np.float32), *parts])


def _confirmed(
    collection: Collection,
    ids: NDArray[Any],
    pairs: NDArray[np.intp],
    cosines: NDArray[np.float32],
    progress: OnStep,
) -> NDArray[np.float32]:
    """The similarity of pairs of items: by pixels where both have a thumbnail, else the cosine."""
    rows, places = np.unique(pairs, return_inverse=True)
    places = places.reshape(pairs.shape)
    small = np.zeros((len(rows), len(SHARES), SIDE * SIDE), dtype=np.uint8)
    seen = np.zeros(len(rows), dtype=np.bool_)
    for number, item in enumerate(collection.items(ids[rows])):
        pixels = small_parts(collection.thumbnail_bytes(item.content) or b"")
        if pixels is not None:
            small[number], seen[number] = pixels, True
        if number % 100 == 0:
            progress("comparing thumbnails", number, len(rows))
    similar = cosines.copy()
    for start in range(0, len(pairs), CONFIRMED_AT_ONCE):
        part = slice(start, start + CONFIRMED_AT_ONCE)
        i, j = places[part, 0], places[part, 1]
        both = seen[i] & seen[j]
        similar[part][both] = pixel_similarity(small[i[both]], small[j[both]])
    return similar


def small_parts(octets: bytes) -> NDArray[np.uint8] | None:
    """The whole of an image and its middle parts, grey, (len(SHARES), SIDE * SIDE); None if it cannot be read."""
    try:
        image = decode(octets, at_least=ENOUGH).convert("L")
    except UnreadableImage:
        return None
    width, height = image.size
    parts = []
    for share in SHARES:
        x, y = (1 - share) / 2 * width, (1 - share) / 2 * height
        box = (x, y, width - x, height - y)
        parts.append(np.asarray(image.resize((SIDE, SIDE), resample=4, box=box)).ravel())  # 4: mean over areas
    return np.stack(parts)


def pixel_similarity(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Cosines between the grey values of pairs of images, minus their means; the most similar parts count.

    Images of one colour are similar (1) if the colour is about the same, and to nothing else.

    Parameters
    ----------
    first, second : (n, len(SHARES), SIDE * SIDE), as ``small_parts`` gives them
    """
    levels = [whole[:, 0].mean(axis=1) for whole in (first, second)]
    flat = [whole[:, 0].std(axis=1) < FLAT for whole in (first, second)]
    units = []
    for whole in (first, second):
        grey = whole.astype(np.float32)
        grey -= grey.mean(axis=2, keepdims=True)
        units.append(grey / np.maximum(np.linalg.norm(grey, axis=2, keepdims=True), 1e-6))
    a, b = units
    best = np.maximum(
        np.einsum("psd,pd->ps", a, b[:, 0]).max(axis=1, initial=-1),
        np.einsum("psd,pd->ps", b, a[:, 0]).max(axis=1, initial=-1),
    )
    best[flat[0] | flat[1]] = 0
    best[flat[0] & flat[1] & (np.abs(levels[0] - levels[1]) < FLAT)] = 1
    return np.asarray(best, dtype=np.float32)


def _grouped(collection: Collection, pairs: NDArray[np.intp], similar: NDArray[np.float32]) -> Duplicates:
    """Near duplicates as rows of items, and equal files, in groups."""
    ids = collection.ids
    copies = collection.copies()
    copied = np.flatnonzero(np.isin(ids, np.array(list(copies), dtype=ids.dtype)))
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(ids), len(ids)))
    _, component = connected_components(graph, directed=False)
    involved = np.union1d(pairs, copied).astype(np.intp)
    _, numbers = np.unique(component[involved], return_inverse=True)
    group_of = dict(zip(involved.tolist(), numbers.tolist(), strict=True))
    items = dict(zip(involved.tolist(), collection.items(ids[involved]), strict=True))
    sources = dict(zip(involved.tolist(), collection.sources_of(ids[involved]), strict=True))
    groups: list[list[DuplicateFile]] = [[] for _ in range(int(numbers.max(initial=-1)) + 1)]
    found: list[DuplicatePair] = []
    for row in involved.tolist():
        item, source = items[row], sources[row]
        groups[group_of[row]].append(_file(item.id, item.name, source, item.content))
        for name, other in copies.get(item.id, []):
            groups[group_of[row]].append(_file(item.id, name, other, item.content))
            found.append(DuplicatePair(group_of[row], "exact", item.id, item.name, source, item.id, name, other, 1.0))
    for (i, j), score in zip(pairs.tolist(), similar.tolist(), strict=True):
        a, b, value = items[i], items[j], round(float(score), 4)
        found.append(DuplicatePair(group_of[i], "near", a.id, a.name, sources[i], b.id, b.name, sources[j], value))
    found.sort(key=lambda pair: (pair.group, pair.kind, -pair.similarity))
    return Duplicates(found, [sorted(files, key=lambda f: -f.n_bytes) for files in groups], len(ids))


def _file(item: int | str, name: str, source: str, content: str) -> DuplicateFile:
    try:
        n_bytes = Path(source).stat().st_size if source else 0
    except (OSError, ValueError):
        n_bytes = 0
    return DuplicateFile(item, name, source, content, n_bytes)
