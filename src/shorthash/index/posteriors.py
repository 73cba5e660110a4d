"""Compact posteriors: the few likeliest label sets of an item and their probabilities, in 2 to 32 bytes.

An entry is the number of a label set (one byte, or two if there are more than 256) and a byte for its probability p,
the nearest integer to 255 sqrt(p): the square root keeps small probabilities apart. Entries are in descending order;
what they leave of the mass is spread evenly over all other label sets. A row of zeros stands for an unknown posterior.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._arrays import Floats, njit
from shorthash._validation import check_count
from shorthash.errors import InvalidInput
from shorthash.index.items import AnyIds, find_ids

Rows = NDArray[np.uint8]

ONE_BYTE = 256  # label sets that one byte can number
MOST_SETS = 1 << 16
MOST_BYTES = 32
VALUES = (np.arange(256) / 255.0) ** 2  # the probability that a byte stands for


def compact_posteriors(P: ArrayLike, n_bytes: int = 8) -> NDArray[np.uint8]:
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


def score_posteriors(rows: NDArray[np.uint8], wanted: Floats) -> NDArray[np.float32]:
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
