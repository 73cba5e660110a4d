r"""What a table of codes means for a row: how firm its bits are, what lies in its cell, and codes beyond the table.

A table of memberships knows a row by these alone, so rows of one cluster share few codes, and many codes are left
unused. So the mean c of the rows in every cell (``CellCenters``) counts, too, and a row gets the code

.. math:: z(x) = \arg\max_z\ p(x) \cdot T_z - w \|x - c_z\|^2.

At w = 0 this is the table; at a large w it is the nearest mean, as in k-means, with codes in the order of the table.

An item of cell z is a neighbour of x with a chance proportional to :math:`\exp(a\,x \cdot c_z + b\,\|c_z\|^2)`. How
all of it is learned: ``filling.py``.

Legend: P (n, u) posteriors or memberships, table (m, u) rows of T for the cells in use, short (n, L) codes of the
table, X (n, d) rows, prepared, C (m, d) means of cells.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Codes, Floats, is_foreign, like, namespace, njit
from shorthash._rounding import FEW, SURE, UNIT, Rounded, Scored, as_double, linear, normalised, norms, table_gains
from shorthash.codes.levels import leave_one_out_map
from shorthash.codes.signs import sign
from shorthash.learners.eaph.refinement import sums_of_groups
from shorthash.learners.posteriors.folds import in_threads

BLOCK = 1 << 22  # gains held at once
SINGLE_UNIT = 2.0**-24  # relative rounding error of one float32 operation
MASS_STEP = 4.0  # label sets are added up in portions: those with half the largest mass, a fourth of that, ...
FEW_CELLS = 8  # cells that are left when their gains are added up in full
MOST_CELLS = 64  # and when it is left to the product with the whole table
MOST_SETS = 8  # label sets added up for all cells; with more, that product is faster
SMALL_TABLE = 1 << 18  # cells times label sets up to which it is faster in any case
MIN_ROWS = 256  # rows that are worth a thread
RANGE = 60.0  # chances below exp(-60) of the largest count as that


class Lookup:
    """A table prepared for finding the row of largest gain.

    Parameters
    ----------
    table : (m, u) gains

    Attributes
    ----------
    mean : (u,) mean gain of every label set
    by_set : (u, m) float32, gains less the mean, by label set
    norm : (m,) float32, Euclidean norms of the rows of the table less the mean, rounded upwards
    """

    def __init__(self, table: NDArray[np.float32]) -> None:
        self.table = table
        self.size = float(np.abs(table).max())
        self.mean: Floats = table.mean(axis=0, dtype=np.float64)
        self.by_set = np.ascontiguousarray((table - self.mean).T, dtype=np.float32)
        squares = np.einsum("sz,sz->z", self.by_set, self.by_set, dtype=np.float64)
        self.norm = (np.sqrt(squares) * (1 + 1e-6)).astype(np.float32)


_lookups: WeakKeyDictionary[Any, Lookup] = WeakKeyDictionary()  # of every hasher that was used


def lookup_of(hasher: Any) -> Lookup:
    """The table of a hasher, prepared once per fit."""
    made = _lookups.get(hasher)
    if made is None or made.table is not hasher.table_:
        made = _lookups[hasher] = Lookup(hasher.table_)
    return made


def likeliest_words(P: Scored, lookup: Lookup, words: Codes) -> Scored:
    """Signs of the word of largest gain P T'; the bound is 0 where rounding cannot change the word, else infinite.

    A few label sets hold most of the mass of most posteriors, and with them most cells of a large table can be
    excluded, whatever the other label sets add. The rows where that takes too long, and all rows of a small table, are
    multiplied with the whole table: in float32, and in float64 where two gains are too close for that.
    """
    if is_foreign(P.values):
        return words_on_device(table_gains(P, lookup.table, exact=False), words)
    n, u = P.values.shape
    bound = np.broadcast_to(P.bound, (n, 1))[:, 0]
    best, lead = np.zeros(n, dtype=np.int64), np.zeros(n)

    def needed(unit: float) -> Floats:
        return np.asarray(2 * SURE * lookup.size * (bound + (u + FEW) * unit))

    def by_few_sets(part: slice) -> None:
        _by_few_sets(
            P.values[part], lookup.table, lookup.by_set, lookup.mean, lookup.norm, doubt[part], best[part], lead[part]
        )

    doubt = needed(UNIT)
    if lookup.table.size > SMALL_TABLE:
        size = max(MIN_ROWS, -(-n // (os.cpu_count() or 1)))
        in_threads(by_few_sets, [slice(start, start + size) for start in range(0, n, size)])
    rest = np.flatnonzero(~(lead > doubt))
    for dtype, unit in ((np.float32, SINGLE_UNIT), (np.float64, UNIT)):
        if not len(rest):
            break
        T, size = lookup.table.T.astype(dtype, copy=False), max(1, BLOCK // len(words))
        for some in (rest[start : start + size] for start in range(0, len(rest), size)):
            best[some], lead[some] = two_largest(P.values[some].astype(dtype) @ T)
        rest = rest[~(lead[rest] > needed(unit)[rest])]
    in_doubt = np.zeros((n, 1))
    in_doubt[rest] = np.inf
    return Scored(words[best].astype(np.float64), in_doubt)


def words_on_device(gain: Scored, words: Codes) -> Scored:
    """The word of largest gain where the gains are; the bound is 0 where rounding cannot change it, else infinite."""
    xp = namespace(gain.values)
    best = xp.argmax(gain.values, axis=1)
    lead = xp.max(gain.values, axis=1, keepdims=True) - gain.values
    lead[xp.arange(len(best), device=best.device), best] = np.inf
    bound = xp.max(xp.broadcast_to(gain.bound, gain.values.shape), axis=1, keepdims=True)
    doubt = ~(xp.min(lead, axis=1, keepdims=True) > 2 * SURE * bound)
    values = xp.astype(like(words, gain.values)[best], xp.float64)
    return Scored(values, xp.where(doubt, np.inf, 0.0))


@np.errstate(invalid="ignore")  # a lead that is NaN is in doubt
def two_largest(gain: NDArray[Any]) -> tuple[NDArray[np.int64], Floats]:
    """The column of the largest gain of every row, and by how much it leads the second; overwrites the gains."""
    rows, best = np.arange(len(gain)), gain.argmax(axis=1)
    top = gain[rows, best].astype(np.float64)
    gain[rows, best] = -np.inf
    return best, top - gain.max(axis=1)


@njit(cache=True, nogil=True)
def _by_few_sets(
    P: Floats,
    table: NDArray[np.float32],
    by_set: NDArray[np.float32],
    mean: Floats,
    norm: NDArray[np.float32],
    doubt: Floats,
    best: NDArray[np.int64],
    lead: Floats,
) -> None:
    """The row of the table with the largest gain where few label sets decide, and its lead over those not left out.

    Label sets are added up in the order of their mass. By the inequality of Cauchy and Schwarz the others change the
    gain of a cell by at most the norm of their masses times that of its row, so cells that cannot come within the
    ``doubt`` of the best are left out. The few that remain are added up in full, in float64.

    Parameters
    ----------
    P : (n, u) posteriors
    table, by_set, mean, norm : of a ``Lookup``
    doubt : (n,) leads that rounding might change
    best, lead : (n,) the outcome, right where the lead exceeds the doubt; the lead is -1 where too many cells remain
    """
    m, widest = len(table), norm[_largest(norm)]
    cells, gain = np.empty(m, dtype=np.int64), np.empty(m, dtype=np.float32)
    for i in range(len(P)):
        p, lead[i] = P[i], -1.0
        high, low, count, work, added, total = np.inf, p[_largest(p)] / 2, m, 0, 0, 0.0
        for mass in p:
            total += mass
        if not (low > 0.0 and total < np.inf):  # NaN is neither
            continue
        for z in range(m):
            cells[z], gain[z] = z, 0.0
        offset = _dot(p, mean)
        while True:
            more = _number_between(p, low, high)
            added, work = added + more, work + more * count
            if work > MOST_SETS * m:
                break
            rest = _add_sets(p, low, high, by_set, cells[:count], gain[:count], count == m)
            single = 2 * (added + FEW) * SINGLE_UNIT * total * widest  # float32 sums may be off by half of it
            reached = _dot(p, table[cells[_largest(gain[:count])]]) - offset
            count = _possible(reached - doubt[i] - single, rest, norm, cells[:count], gain[:count])
            if count <= FEW_CELLS or rest <= SINGLE_UNIT * total:
                break
            high, low = low, low / MASS_STEP
        if 0 < count <= MOST_CELLS:
            best[i], lead[i] = _best_of(p, table, cells[:count])


@njit(inner=True, cache=True, nogil=True)
def _largest(values: NDArray[Any]) -> int:
    """The place of the first of the largest values, NaN left out."""
    place = 0
    for i in range(1, len(values)):
        if values[i] > values[place] or values[place] != values[place]:
            place = i
    return place


@njit(inner=True, cache=True, nogil=True)
def _number_between(p: Floats, low: float, high: float) -> int:
    """How many masses are at least ``low`` and below ``high``."""
    number = 0
    for mass in p:
        number += (mass >= low) & (mass < high)
    return number


@njit(inner=True, cache=True, nogil=True, fastmath={"contract"})
def _add_sets(
    p: Floats,
    low: float,
    high: float,
    by_set: NDArray[np.float32],
    cells: NDArray[np.int64],
    gain: NDArray[np.float32],
    everything: bool,
) -> float:
    """Add the gains of label sets with low <= mass < high; returns the norm of the smaller masses."""
    square = 0.0
    for s in range(len(p)):
        if p[s] < low:
            square += p[s] * p[s]
        elif p[s] < high:
            mass, row = np.float32(p[s]), by_set[s]
            if everything:
                for z in range(len(gain)):
                    gain[z] += mass * row[z]
            else:
                for j in range(len(gain)):
                    gain[j] += mass * row[cells[j]]
    return math.sqrt(square)


@njit(inner=True, cache=True, nogil=True)
def _possible(
    least: float, rest: float, norm: NDArray[np.float32], cells: NDArray[np.int64], gain: NDArray[np.float32]
) -> int:
    """Keep the cells whose gain may reach ``least``; returns their number."""
    count = 0
    limit, more = np.float32(least - 1e-6 * abs(least)), np.float32(rest * (1 + 1e-6))
    for j in range(len(cells)):
        if not gain[j] + more * norm[cells[j]] < limit:
            cells[count], gain[count] = cells[j], gain[j]
            count += 1
    return count


@njit(inner=True, cache=True, nogil=True)
def _best_of(p: Floats, table: NDArray[np.float32], cells: NDArray[np.int64]) -> tuple[int, float]:
    """The cell of largest gain, and by how much it leads the next."""
    best, top, second = 0, -np.inf, -np.inf
    for z in cells:
        g = _dot(p, table[z])
        if g > top:
            best, top, second = z, g, top
        elif g > second:
            second = g
    return best, top - second


@njit(inner=True, cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _dot(p: Floats, gains: NDArray[Any]) -> float:
    """The gain of a posterior."""
    total = 0.0
    for s in range(len(p)):
        total += p[s] * gains[s]
    return total


def profiles(P: NDArray[np.float32], place: NDArray[np.intp], n_cells: int) -> Floats:
    """Mean posterior of the rows in every cell, with one row of the mean of all added, (m, u)."""
    sums = sums_of_groups(P, place, n_cells)
    mean = P.mean(axis=0, dtype=np.float64)
    return np.asarray((sums + mean) / (sums.sum(axis=1, keepdims=True) + 1))


def extension(short: Codes, Y: NDArray[np.uint8], n_bits: int) -> NDArray[np.intp]:
    """Which bit of the short code every bit of the long one repeats; -1 for a constant bit.

    A constant bit changes no distance, so the first choice ranks as the short code does; repeating bits weighs them.
    The better of the two by leave-one-out mAP of the out-of-fold codes is taken.
    """
    L = short.shape[1]
    constant = np.concatenate([np.arange(L), np.full(n_bits - L, -1)])
    repeated: NDArray[np.intp] = np.arange(n_bits) % L
    if n_bits % L == 0:
        return repeated  # every bit equally often: the same ranking
    values = [leave_one_out_map(extend(short, order), Y) for order in (constant, repeated)]
    return repeated if values[1] > values[0] else constant


def extend(short: Codes, order: NDArray[np.intp]) -> Codes:
    """Codes of full length."""
    return sign(np.where(order >= 0, short[:, order], 1))


# cells with a mean ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CellCenters:
    """Means of the rows in the cells of a table, and what follows from them.

    Attributes
    ----------
    centers : (m, d) float32, means of rows, of unit length where ``unit``
    weight : of the squared distance, against the gains of the table
    unit : whether rows are divided by their norm
    slope, norm_slope : of the logarithm of the chance that an item of a cell is a neighbour
    shares : (m,) share of the training rows in every cell
    chance : that a training row is a neighbour of another
    """

    centers: NDArray[np.float32]
    weight: float
    unit: bool
    slope: float
    norm_slope: float
    shares: Floats
    chance: float

    def rows(self, X: Rounded, *, exact: bool) -> Rounded:
        """Rows in the space of the means."""
        rows = Rounded(as_double(X.values), X.error)
        return normalised(rows, exact=exact) if self.unit else rows

    @property
    def squares(self) -> Floats:
        """Squared norms of the means, (m,)."""
        C = self.centers.astype(np.float64)
        return np.asarray(np.einsum("ij,ij->i", C, C))

    def nearness(self, X: Rounded, *, exact: bool) -> Scored:
        """Negative squared distances times the weight, up to a number that all cells of a row share, (n, m)."""
        C = self.centers.astype(np.float64)
        return linear(self.rows(X, exact=exact), 2 * self.weight * C.T, -self.weight * self.squares, exact=exact)

    def gains(self, P: Scored, X: Rounded, table: NDArray[np.float32], *, exact: bool) -> Scored:
        """What every cell gains a row, (n, m)."""
        by_table, by_rows = table_gains(P, table, exact=exact), self.nearness(X, exact=exact)
        xp = namespace(by_rows.values)
        bound = by_table.bound + xp.max(by_rows.bound, axis=1, keepdims=True)
        return Scored(by_table.values + by_rows.values, bound + 2 * UNIT * (abs(by_table.values) + abs(by_rows.values)))

    def log_chances(self, X: Rounded, *, exact: bool) -> Scored:
        """Logarithms of the chances that items are neighbours; the largest of every row is ``RANGE``, none below 0."""
        C = self.centers.astype(np.float64)
        found = linear(self.rows(X, exact=exact), self.slope * C.T, self.norm_slope * self.squares, exact=exact)
        xp = namespace(found.values)
        values = found.values - xp.max(found.values, axis=1, keepdims=True) + RANGE
        return Scored(xp.clip(values, 0.0, None), 2 * xp.max(found.bound, axis=1, keepdims=True) + FEW * UNIT * RANGE)

    def expected_shares(self, logs: Floats) -> Floats:
        """Expected share of neighbours in every cell by the logarithms of ``log_chances``, (n, m)."""
        odds = np.exp(logs - RANGE)
        total = (odds * self.shares).sum(axis=1, keepdims=True)  # no product, whose order of summation varies
        return np.asarray(-np.expm1(-odds * (self.chance / total)))

    def of_posteriors(self, table: NDArray[np.float32], clusters: Floats) -> NDArray[np.float32]:
        """A table for memberships alone: a row is taken to be where its clusters are, (m, K)."""
        C = self.centers.astype(np.float64)
        near = 2 * C @ np.asarray(clusters, dtype=np.float64).T - self.squares[:, None]
        return np.asarray(table + self.weight * near, dtype=np.float32)


class WideLookup:
    """A table and the means of its cells as one matrix."""

    def __init__(self, table: NDArray[np.float32], cells: CellCenters) -> None:
        self.table, self.cells = table, cells
        near = 2 * cells.weight * cells.centers.astype(np.float64)
        self.size, self.length = float(np.abs(table).max()), float(norms(near).max())
        self.offset: Floats = -cells.weight * cells.squares
        self.matrix: Floats = np.concatenate([table.astype(np.float64), near], axis=1).T
        self.single = self.matrix.astype(np.float32)

    def best(self, P: Scored, X: Rounded, words: Codes) -> Scored:
        """Signs of the word of largest gain; the bound is 0 where rounding cannot change the word, else infinite."""
        if is_foreign(P.values):
            return words_on_device(self.cells.gains(P, X, self.table, exact=False), words)
        rows = self.cells.rows(X, exact=False)
        V = np.concatenate([P.values, rows.values], axis=1)
        size = self.size + norms(rows.values)[:, 0] * self.length + 2 * np.abs(self.offset).max()
        known = np.broadcast_to(P.bound, (len(V), 1))[:, 0] * self.size
        known = known + np.broadcast_to(rows.error, (len(V), 1))[:, 0] * self.length
        best, in_doubt, rest = np.zeros(len(V), dtype=np.int64), np.full((len(V), 1), np.inf), np.arange(len(V))
        for matrix, unit in ((self.single, SINGLE_UNIT), (self.matrix, UNIT)):
            needed = 2 * SURE * (known + (len(matrix) + FEW) * unit * size)
            for some, gain in self._blocks(V, matrix, rest):
                best[some], lead = two_largest(gain)
                in_doubt[some[lead > needed[some]]] = 0.0
            rest = np.flatnonzero(in_doubt)
        return Scored(words[best].astype(np.float64), in_doubt)

    def _blocks(self, V: Floats, matrix: NDArray[Any], rows: NDArray[np.intp]) -> Iterator[tuple[Any, NDArray[Any]]]:
        """Gains of some rows at a time."""
        offset = self.offset.astype(matrix.dtype)
        step = max(1, BLOCK // matrix.shape[1])
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            yield some, V[some].astype(matrix.dtype) @ matrix + offset


_wide_lookups: WeakKeyDictionary[Any, WideLookup] = WeakKeyDictionary()  # of every hasher that was used


def wide_lookup_of(hasher: Any) -> WideLookup:
    """Table and means of a hasher, prepared once per fit."""
    made = _wide_lookups.get(hasher)
    if made is None or made.table is not hasher.table_:
        made = _wide_lookups[hasher] = WideLookup(hasher.table_, hasher.cell_centers_)
    return made
