"""What an index keeps for every item besides its code: ids, vectors and compact posteriors.

Checks, filters, the order of ties, scores. A compact posterior holds the few likeliest label sets of an item and their
probabilities in 2 to 32 bytes. An entry is the number of a label set (one byte, or two if there are more than 256) and
a byte for its probability p, the nearest integer to 255 sqrt(p): the square root keeps small probabilities apart.
Entries are in descending order; the remaining probability is spread evenly over all other label sets. A row of zeros
stands for an unknown posterior.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from shorthash._arrays import Distances, Floats, PackedCodes, njit
from shorthash._validation import check_count
from shorthash.errors import InvalidInput, named

AnyIds = NDArray[Any]
"""Ids as int64 or as numpy strings, (n,)."""

Vectors = NDArray[np.floating[Any]]
"""Vectors, (n, dimension), float16, float32 or float64."""

Where = NDArray[np.bool_] | Collection[Any] | Callable[[AnyIds], NDArray[np.bool_]]
"""A mask over the items in insertion order, a collection of ids, or a function that turns all ids into such a mask."""

Rows = NDArray[np.uint8]
"""Compact posteriors, (n, n_bytes)."""

TIES = ("id", "insertion", "shuffle", "any")
"""Orders inside equal distance: smallest id first, oldest first, seeded shuffle, or unspecified."""

METRICS = ("cosine", "dot", "euclidean", "asymmetric")
"""Cosine, inner product or Euclidean distance of vectors; or the query's real scores against the signs of the codes."""

VECTOR_TYPES = ("float16", "float32", "float64")  # other types become float32
INT64_MAX = np.iinfo(np.int64).max
SMALL_BUFFER = 64
SCORED_AT_ONCE = 1 << 16  # rows gathered at a time
ONE_BYTE = 256  # label sets that one byte can number
MOST_SETS = 1 << 16
MOST_BYTES = 32
VALUES = (np.arange(256) / 255.0) ** 2  # the probability that a byte stands for


def read_only(values: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written to."""
    view = values.view()
    view.flags.writeable = False
    return view


def as_ids(ids: ArrayLike, owner: str) -> AnyIds:
    """Ids as int64 or as strings, (n,); raises for anything else."""
    values = np.asarray(ids)
    if values.ndim != 1:
        raise InvalidInput(f"{named('ids', owner, 'of')} must have shape (n_items,). Got shape {values.shape} instead.")
    if values.size == 0 and values.dtype.kind not in "iuU":
        return values.astype(np.int64)
    if values.dtype.kind == "O" and len({type(v) for v in values}) == 1:
        values = np.array(values.tolist())
    if values.dtype.kind == "U" and (isinstance(ids, np.ndarray) or _all_strings(ids)):
        _check_no_nul(ids, values, owner)
        return values
    if values.dtype.kind == "i":
        return values.astype(np.int64, copy=False)
    if values.dtype.kind == "u" and (values.dtype.itemsize < 8 or not values.size or int(values.max()) <= INT64_MAX):
        return values.astype(np.int64)
    raise InvalidInput(
        f"{named('ids', owner, 'of')} must be all integers that fit int64, or all strings. Got {values.dtype} instead; "
        "convert them, for instance with [str(i) for i in ids]."
    )


def _all_strings(ids: ArrayLike) -> bool:
    """Whether a sequence held strings only, before numpy made strings of the rest."""
    return all(isinstance(value, str) for value in np.asarray(ids, dtype=object))


def _check_no_nul(ids: ArrayLike, values: AnyIds, owner: str) -> None:
    """Raise if a string holds a NUL character; numpy strips those at the end, so a list is checked itself."""
    if isinstance(ids, np.ndarray) and ids.dtype.kind == "U":
        letters = np.ascontiguousarray(values).view(np.uint32).reshape(len(values), -1) if values.size else values
        bad = bool(values.size and np.any((letters[:, :-1] == 0) & (letters[:, 1:] != 0)))
    else:
        bad = any("\0" in value for value in np.asarray(ids, dtype=object))
    if bad:
        raise InvalidInput(f"The 'ids' of {owner} may not hold NUL characters; encode or rename such ids.")


def check_unique(ids: AnyIds, owner: str) -> None:
    """Raise if an id occurs twice in ``ids``."""
    if len(ids) < 2 or (ids.dtype.kind == "i" and bool(np.all(ids[1:] > ids[:-1]))):
        return
    values, counts = np.unique(ids, return_counts=True)
    if len(values) < len(ids):
        twice = values[counts > 1][0].item()
        raise InvalidInput(f"{named('ids', owner, 'of')} must be unique, but {twice!r} occurs twice; drop one.")


def check_same_kind(ids: AnyIds, kind: str, owner: str) -> None:
    """Raise unless ids are of the kind of those in the index: "i" for integers, "U" for strings."""
    if ids.dtype.kind != kind and len(ids):
        names = {"i": "integers", "U": "strings"}
        raise InvalidInput(
            f"The 'ids' of {owner} are {names[kind]} in this index. Got {names[ids.dtype.kind]} instead; "
            "convert them to one kind."
        )


def next_ids(next_id: int, n: int) -> AnyIds:
    """Ids for n items added without any: consecutive numbers."""
    if next_id + n - 1 > INT64_MAX:
        raise InvalidInput(f"Items cannot be numbered beyond the id {INT64_MAX}; pass ids=[...] for new items.")
    return np.arange(n, dtype=np.int64) + next_id if n else np.empty(0, dtype=np.int64)


def find_ids(ids: AnyIds, known: AnyIds, order: NDArray[np.intp] | None) -> NDArray[np.int64]:
    """Positions of ``ids`` in ``known``, -1 where absent; ``order`` sorts ``known`` (None: it is ascending)."""
    if not len(known):
        return np.full(len(ids), -1, dtype=np.int64)
    slots = np.minimum(np.searchsorted(known, ids, sorter=order), len(known) - 1)
    positions = slots if order is None else order[slots]
    return np.where(known[positions] == ids, positions, -1).astype(np.int64)


def allowed_items(where: Where, ids: AnyIds, owner: str) -> NDArray[np.bool_]:
    """Mask of the items that ``where`` admits, (n_items,).

    Examples
    --------
    >>> ids = np.array([10, 20, 30])
    >>> allowed_items({10, 30, 50}, ids, "demo").tolist()
    [True, False, True]
    >>> allowed_items(lambda ids: ids > 10, ids, "demo").tolist()
    [False, True, True]
    """
    if callable(where):
        rule = f"The function given as 'where' of {owner} must return"
        mask: NDArray[Any] = np.asarray(where(ids))
    else:
        rule = f"A mask given as 'where' of {owner} must be"
        mask = where if isinstance(where, np.ndarray) else np.asarray(list(where))
        if mask.dtype.kind != "b":
            allowed = as_ids(mask, owner)
            check_same_kind(allowed, ids.dtype.kind, owner)
            return np.isin(ids, allowed)
    if mask.dtype.kind != "b" or mask.shape != ids.shape:
        raise InvalidInput(
            f"{rule} a boolean array with one entry per item, shape ({len(ids)},). "
            f"Got {mask.dtype} of shape {mask.shape} instead."
        )
    return mask


def tie_order(
    queries: NDArray[Any], distances: NDArray[Any], positions: NDArray[Any], ids: AnyIds, ties: str, seed: int
) -> NDArray[np.intp]:
    """The permutation that sorts hits by query, distance and the order of ties; all arrays are (n_hits,)."""
    if ties == "shuffle":
        return np.lexsort((ids, shuffle_keys(ids, seed), distances, queries))
    return np.lexsort((ids if ties == "id" else positions, distances, queries))


def shuffle_keys(ids: AnyIds, seed: int) -> NDArray[np.uint64]:
    """Pseudo-random keys that depend only on id and seed, so that every index shuffles in the same order.

    Examples
    --------
    >>> np.argsort(shuffle_keys(np.arange(6), seed=1)).tolist() != np.argsort(shuffle_keys(np.arange(6), 2)).tolist()
    True
    """
    start = _mix(np.array([seed], dtype=np.uint64))
    if ids.dtype.kind != "U":
        return _mix(ids.astype(np.int64).view(np.uint64) ^ start)
    keys = np.repeat(start, len(ids))
    letters = np.ascontiguousarray(ids).view(np.uint32).reshape(len(ids), ids.dtype.itemsize // 4)
    for column in letters.T:  # zeros only pad numpy strings, so the width of the array does not matter
        keys = np.where(column == 0, keys, _mix(keys ^ column.astype(np.uint64)))
    return keys


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64 bits (the finaliser of SplitMix64)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def as_vectors(values: ArrayLike, n: int, owner: str, dtype: DTypeLike | None = None) -> Vectors:
    """Check that ``values`` are n finite vectors, in ``dtype`` (None: theirs; integers become float32)."""
    try:
        vectors = np.asarray(values)
    except ValueError as error:
        raise InvalidInput(f"The 'vectors' of {owner} must be numbers of shape ({n}, dimension): {error}.") from error
    if vectors.ndim != 2 or len(vectors) != n or vectors.shape[1] == 0 or vectors.dtype.kind not in "fiu":
        raise InvalidInput(
            f"The 'vectors' of {owner} must be numbers of shape ({n}, dimension), one row per code. "
            f"Got {vectors.dtype} of shape {vectors.shape} instead."
        )
    if dtype is None:
        dtype = vectors.dtype if vectors.dtype.name in VECTOR_TYPES else np.float32
    with np.errstate(over="ignore"):  # too large a number becomes infinity, which is refused below
        vectors = np.ascontiguousarray(vectors, dtype=dtype)
    if not np.isfinite(np.sum(vectors, dtype=np.float64)):
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(bad):
            raise InvalidInput(
                f"The 'vectors' of {owner} must be finite in {vectors.dtype}, but row {bad[0]} holds NaN or "
                "infinity; drop or repair it."
            )
    return vectors


def stacked_vectors(parts: Sequence[Vectors | None]) -> Vectors | None:
    """Vectors of several indexes together; raises unless all of them have vectors of one dimension, or none has any."""
    vectors = [part for part in parts if part is not None]
    if not vectors:
        return None
    if len(vectors) < len(parts) or any(np.isnan(part[:, 0]).any() for part in vectors):
        raise InvalidInput("Items with and without vectors cannot be merged; give all of them vectors, or none.")
    if len({part.shape[1] for part in vectors}) > 1:
        raise InvalidInput("Items whose vectors differ in dimension cannot be merged; use one kind of vectors.")
    return np.concatenate(vectors)


def check_saved_ids(ids: AnyIds | None, next_id: Any, n_items: int, *, thorough: bool) -> AnyIds | None:
    """The ids in the exported state of an index; raises InvalidInput unless they are what an index keeps.

    ``thorough`` also checks that ids differ and that the next number is beyond them.
    """
    fits = ids is None or (ids.shape == (n_items,) and (ids.dtype == np.int64 or ids.dtype.kind == "U"))
    fits = (
        fits and isinstance(next_id, int) and 0 <= next_id <= INT64_MAX + 1 and (ids is not None or next_id >= n_items)
    )
    if fits and ids is not None and thorough:
        fits = len(np.unique(ids)) == n_items
        fits = fits and (ids.dtype.kind == "U" or not n_items or int(ids.max()) < next_id)
    if not fits:
        raise InvalidInput(f"A saved index of {n_items} items has inconsistent ids; build it again.")
    return ids


def saved_vectors(state: Mapping[str, Any], n_items: int) -> Vectors | None:
    """The vectors in the exported state of an index; raises InvalidInput if they do not fit its items."""
    vectors = state.get("vectors")
    if vectors is None:
        return None
    if vectors.ndim != 2 or len(vectors) != n_items or vectors.dtype.name not in VECTOR_TYPES:
        raise InvalidInput(f"A saved index of {n_items} items has vectors of shape {vectors.shape}; build it again.")
    return np.asarray(vectors)


@dataclass(frozen=True, eq=False)
class VectorRows:
    """Vectors by position; adding rows does not change those that readers hold.

    Rows are never moved: the first remain where they were loaded (perhaps on disk), later ones go to a buffer with room
    to grow. When positions are renumbered because items were dropped, ``slots`` holds the rows of the positions.

    Attributes
    ----------
    base : (n0, dimension) the first rows
    tail : (capacity, dimension) buffer for further rows
    n_rows : rows in use, in ``base`` and ``tail`` together
    n_positions : number of positions
    slots : (capacity,) row of every position; None: position and row are the same
    """

    base: Vectors
    tail: Vectors
    n_rows: int
    n_positions: int
    slots: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, rows: Vectors) -> VectorRows:
        """Rows that are not changed by other code."""
        return cls(rows, rows[:0], len(rows), len(rows))

    @property
    def dimension(self) -> int:
        """Columns of a row."""
        return int(self.base.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.base.nbytes + self.tail.nbytes + (0 if self.slots is None else self.slots.nbytes)

    def appended(self, rows: Vectors) -> VectorRows:
        """With more rows at the end; only the writer may call it, and only on the newest state."""
        used, rows = self.n_rows - len(self.base), rows.astype(self.base.dtype, copy=False)
        n_rows, n_positions = self.n_rows + len(rows), self.n_positions + len(rows)
        slots = self.slots
        if slots is not None:
            slots = grown(slots, self.n_positions, np.arange(self.n_rows, n_rows))
        return VectorRows(self.base, grown(self.tail, used, rows), n_rows, n_positions, slots)

    def take(self, positions: NDArray[np.int64]) -> Vectors:
        """Rows of some positions, (n, dimension)."""
        slots = positions if self.slots is None else self.slots[positions]
        late = slots >= len(self.base)
        if not late.any():
            return np.asarray(self.base[slots])
        rows = np.empty((len(slots), self.dimension), dtype=self.base.dtype)
        rows[~late] = self.base[slots[~late]]
        rows[late] = self.tail[slots[late] - len(self.base)]
        return rows

    def renumbered(self, positions: NDArray[np.int64]) -> VectorRows:
        """For new positions 0, 1, ... that were these ``positions``; drops rows once most of them are not needed."""
        if len(positions) == self.n_positions:
            return self
        if 2 * len(positions) < self.n_rows:
            return VectorRows.of(self.take(positions))
        slots = positions if self.slots is None else self.slots[positions]
        return replace(self, n_positions=len(positions), slots=slots)

    def all_rows(self) -> Vectors:
        """All rows by position, not copied where they are one array."""
        if self.slots is None and self.n_rows == len(self.base):
            return self.base
        return self.take(np.arange(self.n_positions))


def grown(buffer: NDArray[Any], used: int, rows: NDArray[Any]) -> NDArray[Any]:
    """Append to a buffer, in place if it has room; ``buffer[:used]``, which readers may hold, never changes."""
    dtype = np.result_type(buffer.dtype, rows.dtype) if used else rows.dtype
    if dtype != buffer.dtype or used + len(rows) > len(buffer):
        n = used + len(rows)
        larger = np.empty((n + n // 4 + SMALL_BUFFER, *rows.shape[1:]), dtype=dtype)
        larger[:used] = buffer[:used]
        buffer = larger
    buffer[used : used + len(rows)] = rows
    return buffer


def score_vectors(
    take: Callable[[NDArray[np.int64]], Vectors], positions: NDArray[np.int64], query: Vectors, metric: str
) -> NDArray[np.float32]:
    """Scores of the items at some positions, larger is better, (n,).

    Parameters
    ----------
    take : returns the vectors of positions
    query : (dimension,)
    metric : "cosine" (of a vector of zeros: 0), "dot" or "euclidean" (minus the distance)
    """
    scores = np.empty(len(positions), dtype=np.float32)
    wide = np.result_type(query.dtype, np.float32)
    query = query.astype(wide, copy=False)
    for start in range(0, len(positions), SCORED_AT_ONCE):
        part = slice(start, start + SCORED_AT_ONCE)
        rows = take(positions[part]).astype(wide, copy=False)
        if metric == "euclidean":
            scores[part] = -np.linalg.norm(rows - query, axis=1)
        elif metric == "dot":
            scores[part] = rows @ query
        else:
            norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(query)
            scores[part] = np.divide(rows @ query, norms, out=np.zeros(len(rows), dtype=wide), where=norms != 0)
    return scores


def score_codes(codes: PackedCodes, query: NDArray[Any], n_bits: int) -> NDArray[np.float32]:
    """Inner products of real scores with the signs of codes, (n,), by a table lookup for every byte of a code.

    Examples
    --------
    >>> score_codes(np.array([0b11, 0b01], dtype=np.uint8), np.array([2.0, 0.5]), 2).tolist()
    [2.5, 1.5]
    """
    weights = np.zeros(-(-n_bits // 8) * 8)
    weights[:n_bits] = query
    signs = 2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little") - 1  # (256, 8)
    total = np.zeros(len(codes))
    for byte, part in enumerate(weights.reshape(-1, 8)):
        values = (codes >> codes.dtype.type(8 * byte)) & codes.dtype.type(255)
        total += (signs @ part)[values]
    return total.astype(np.float32)


def best_order(
    scores: NDArray[np.float32], ids: AnyIds, k: int | None, distances: Distances | None = None
) -> NDArray[np.intp]:
    """Order of the k best (None: all): by distance if given, then by score, then by id."""
    if distances is None and k is not None and len(scores) > k:
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        kept = np.flatnonzero(scores >= least)  # only these can be among the best
        return kept[np.lexsort((ids[kept], -scores[kept]))][:k]
    keys = (ids, -scores) if distances is None else (ids, -scores, distances)
    return np.lexsort(keys)[:k]


# compact posteriors ---------------------------------------------------------------------------------------------------


def compact_posteriors(P: ArrayLike, n_bytes: int = 8) -> Rows:
    """Posteriors in ``n_bytes`` bytes each, (n, n_bytes).

    Parameters
    ----------
    P : (n, n_label_sets) probabilities
    n_bytes : size of a row, at least one entry (2 bytes; 3 with more than 256 label sets) and at most 32

    Examples
    --------
    >>> rows = compact_posteriors([[0.1, 0.7, 0.2], [0.0, 0.0, 1.0]], 4)
    >>> rows.tolist()
    [[1, 213, 2, 114], [2, 255, 0, 0]]
    >>> [f"{score:.2f}" for score in score_posteriors(rows, np.array([0.0, 1.0, 0.0]))]
    ['0.70', '0.00']
    """
    posteriors = np.asarray(P)
    n, u = posteriors.shape
    width = entry_bytes(u)
    n_bytes = check_count(n_bytes, "n_bytes", "compact_posteriors", low=width, high=MOST_BYTES)
    t = min(n_bytes // width, u)
    order = np.argsort(-posteriors, axis=1, kind="stable")[:, :t]
    values = np.rint(255 * np.sqrt(np.take_along_axis(posteriors, order, 1))).astype(np.uint8)
    entries = np.zeros((n, t, width), dtype=np.uint8)
    entries[:, :, 0] = order & 255
    if width == 3:
        entries[:, :, 1] = order >> 8
    entries[:, :, -1] = values
    rows = np.zeros((n, n_bytes), dtype=np.uint8)
    rows[:, : t * width] = entries.reshape(n, -1)
    return rows


def score_posteriors(rows: Rows, wanted: Floats) -> NDArray[np.float32]:
    """Probability that items are relevant, (n,); -infinity where the posterior is unknown.

    Parameters
    ----------
    rows : (n, n_bytes) compact posteriors
    wanted : (n_label_sets,) the probability that an item with a label set is relevant, a row of ``EAPH.wanted``

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from shorthash import EAPH, BucketIndex, Searcher
    >>> X, y = load_digits(return_X_y=True)
    >>> hasher = EAPH(n_bits=4, posterior="ridge", random_state=0).fit(X[:200], y[:200])
    >>> searcher = Searcher(hasher, BucketIndex(4).add(hasher.transform(X[:200])))
    >>> scores = score_posteriors(searcher.compact(X[:200]), hasher.wanted(X[200:201])[0])
    >>> bool(y[scores.argmax()] == y[200])
    True
    """
    scores = np.empty(len(rows), dtype=np.float32)
    _score(rows, np.ascontiguousarray(wanted, dtype=np.float64), entry_bytes(len(wanted)), VALUES, scores)
    return scores


def entry_bytes(n_sets: int) -> int:
    """Bytes of one label set and its probability."""
    if n_sets > MOST_SETS:
        raise InvalidInput(f"Compact posteriors hold at most {MOST_SETS} label sets. Got {n_sets} instead.")
    return 2 if n_sets <= ONE_BYTE else 3


@njit(cache=True, nogil=True, allocates=False)
def _score(rows: Any, wanted: Any, width: int, values: Any, scores: Any) -> None:
    n, n_bytes = rows.shape
    u = len(wanted)
    everything = 0.0
    for i in range(u):
        everything += wanted[i]
    for i in range(n):
        score = 0.0
        mass = 0.0
        others = everything
        count = 0
        for at in range(0, n_bytes - width + 1, width):
            p = values[rows[i, at + width - 1]]
            if p == 0.0:
                break
            s = np.int64(rows[i, at])
            if width == 3:
                s += np.int64(rows[i, at + 1]) << 8
            if s >= u:  # not of this model
                continue
            score += p * wanted[s]
            mass += p
            others -= wanted[s]
            count += 1
        if count == 0:
            scores[i] = -np.inf
            continue
        if count < u and mass < 1.0:
            score += (1.0 - mass) * others / (u - count)
        scores[i] = score


@dataclass(frozen=True, eq=False)
class PosteriorTable:
    """Compact posteriors by id; immutable, so that readers keep what they took.

    Attributes
    ----------
    ids : (n,) ascending
    rows : (n, n_bytes), 0 where the posterior is unknown
    """

    ids: AnyIds = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    rows: Rows = field(default_factory=lambda: np.empty((0, 2), dtype=np.uint8))

    @classmethod
    def of(cls, ids: AnyIds, rows: Rows) -> PosteriorTable:
        """A table of ids in any order."""
        if bool(np.all(ids[1:] > ids[:-1])):
            return cls(ids, rows)
        order = np.argsort(ids, kind="stable")
        return cls(ids[order], rows[order])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.ids.nbytes + self.rows.nbytes)

    def __len__(self) -> int:
        return len(self.ids)

    def without(self, ids: AnyIds) -> PosteriorTable:
        """The table without some ids, which need not be in it."""
        if not len(self) or self.ids.dtype.kind != ids.dtype.kind:
            return self
        kept = ~np.isin(self.ids, ids)
        return PosteriorTable(self.ids[kept], self.rows[kept])

    def with_rows(self, ids: AnyIds, rows: Rows) -> PosteriorTable:
        """The table with more rows; an id that is in it gets the new row."""
        kept = self.without(ids)
        if not len(kept):
            return PosteriorTable.of(ids, rows.copy())
        return PosteriorTable.of(np.concatenate([kept.ids, ids]), np.concatenate([kept.rows, rows]))

    def take(self, ids: AnyIds) -> Rows:
        """Rows of some ids, (n, n_bytes); 0 where none is known."""
        if not len(self) or self.ids.dtype.kind != ids.dtype.kind:
            return np.zeros((len(ids), self.rows.shape[1]), dtype=np.uint8)
        places = find_ids(ids, self.ids, None)
        found: Rows = self.rows[places]
        found[places < 0] = 0
        return found


def as_posteriors(values: ArrayLike, n: int, owner: str) -> Rows:
    """Check that ``values`` are n compact posteriors."""
    rows = np.asarray(values)
    if rows.ndim != 2 or len(rows) != n or not rows.shape[1] or rows.dtype != np.uint8:
        raise InvalidInput(
            f"The 'posteriors' of {owner} must be uint8 of shape ({n}, n_bytes), as Searcher.compact gives them. "
            f"Got {rows.dtype} of shape {rows.shape} instead."
        )
    return rows


def stacked_posteriors(parts: Sequence[Rows | None], sizes: Sequence[int]) -> Rows | None:
    """Compact posteriors of several indexes or stores of these sizes together; None if none has any."""
    known = [rows for rows in parts if rows is not None]
    if not known:
        return None
    if len({rows.shape[1] for rows in known}) > 1:
        raise InvalidInput("Items whose posteriors differ in size cannot be merged; compact them to one size.")
    none = np.zeros((1, known[0].shape[1]), dtype=np.uint8)
    return np.concatenate([none.repeat(n, 0) if rows is None else rows for rows, n in zip(parts, sizes, strict=True)])


def saved_posteriors(state: Mapping[str, Any], ids: AnyIds) -> PosteriorTable:
    """The posteriors in the exported state of an index with these ids; files written before have none."""
    rows = state.get("posteriors")
    return PosteriorTable() if rows is None else PosteriorTable.of(ids, as_posteriors(rows, len(ids), "a saved index"))
