r"""What a table of codes means for a row: how firm its bits are, what lies in its cell, and codes beyond the table.

A table of memberships knows a row by these alone, so rows of one cluster share few codes, and many codes are left
unused. So the mean c of the rows in every cell (``CellCenters``) counts, too, and a row gets the code

.. math:: z(x) = \arg\max_z\ p(x) \cdot T_z - w \|x - c_z\|^2.

At w = 0 this is the table; at a large w it is the nearest mean, as in k-means, with codes in the order of the table.

An item of cell z is a neighbour of x with a chance proportional to :math:`\exp(a\,x \cdot c_z + b\,\|c_z\|^2)`. How
all of it is learned: ``neighbours.py``.

Legend: P (n, u) posteriors or memberships, table (m, u) rows of T for the cells in use, short (n, L) codes of the
table, X (n, d) rows, prepared, C (m, d) means of cells.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Codes, Floats, is_foreign, like, namespace, njit
from shorthash._rounding import FEW, SURE, UNIT, Rounded, Scored, as_double, linear, normalised, norms, table_gains
from shorthash.codes.signs import sign
from shorthash.learners.eaph.refinement import sums_of_groups
from shorthash.learners.posteriors.folds import in_threads

Singles = NDArray[np.float32]

BLOCK = 1 << 22  # gains held at once
SINGLE_UNIT = 2.0**-24  # relative rounding error of one float32 operation
LIKELIEST = 4  # label sets whose gains are added up for all cells
N_AXES, AXES_STEPS = (64, 256), 2  # main directions of a table, by levels, and steps to find them
AXES_SHARE = 3  # label sets for every axis: with fewer, the product with the whole table is faster
MOST_CELLS = 64  # cells whose gains are added up in full, where no others are left
GROUPS = 256  # of cells whose bounds are looked at together
SMALL_TABLE = 1 << 18  # cells times label sets up to which that product is faster in any case
ASKED_ROWS = 4  # rows for every label set after which it pays to prepare bounds
TINY = 1e-300  # keeps a ratio of two zeros from being NaN
MIN_ROWS = 256  # rows that are worth a thread
RANGE = 60.0  # chances below exp(-60) of the largest count as that


class Lookup:
    """A table prepared for finding the row of largest gain.

    Parameters
    ----------
    table : (m, u) gains
    """

    def __init__(self, table: Singles) -> None:
        self.table = table
        self.size = float(np.abs(table).max())
        self.asked = 0  # rows that were looked up

    @cached_property
    def bounds(self) -> Bounds:
        """What excludes cells; preparing it takes as long as the gains of some thousand rows."""
        return Bounds(self.table)


class Bounds:
    """Bounds of gains that exclude most cells of a table.

    Attributes
    ----------
    mean : (u,) mean gain of every label set
    by_set : (u, m) float32, gains less the mean, by label set
    widest : the largest Euclidean norm of a row of the table less the mean
    own : (u,) the cell of largest gain of every label set
    ratio : (u,) by how much a label set gains less in any other cell, over the distance of the rows of both cells
    gap : (u,) the smallest of these distances
    levels : all float32: (u, r) orthonormal axes along which rows of the table differ most; (r, m) the table less the
        mean along them; and (m,) the norms of what it has beside these axes and those before, rounded upwards
    """

    def __init__(self, table: Singles) -> None:
        self.mean: Floats = table.mean(axis=0, dtype=np.float64)
        moved = table - self.mean
        squares = np.einsum("zs,zs->z", moved, moved)
        self.widest = float(np.sqrt(squares.max()))
        self.by_set = np.ascontiguousarray(moved.T, dtype=np.float32)
        self.own, self.ratio, self.gap = _leads_of_sets(moved, squares)
        self.levels = list(_levels(moved, squares, self.by_set))


def _leads_of_sets(moved: Floats, squares: Floats) -> tuple[NDArray[np.int64], Floats, Floats]:
    """``own``, ``ratio`` and ``gap`` of ``Bounds``, rounded downwards."""
    m, u = moved.shape
    own, ratio, gap = moved.argmax(axis=0), np.empty(u), np.empty(u)
    size = max(1, BLOCK // m)
    for some in (slice(start, start + size) for start in range(0, u, size)):
        products, gains = moved[own[some]] @ moved.T, np.ascontiguousarray(moved[:, some].T)
        _measure_leads(products, gains, squares, own[some], FEW * (u + FEW) * UNIT, ratio[some], gap[some])
    return own, ratio, gap


@njit(cache=True, nogil=True)
def _measure_leads(
    products: Floats,
    gains: Floats,
    squares: Floats,
    own: NDArray[np.int64],
    error: float,
    ratio: Floats,
    gap: Floats,
) -> None:
    """``ratio`` and ``gap`` of some label sets; ``error`` is that of a product of rows, relative to their squares."""
    for s in range(len(own)):
        least, nearest = np.inf, np.inf
        for z in range(len(squares)):
            if z != own[s]:
                size = squares[own[s]] + squares[z]
                square = max(size - 2 * products[s, z], 0.0)
                least = min(least, (gains[s, own[s]] - gains[s, z]) / math.sqrt(square + error * size + TINY))
                nearest = min(nearest, square - error * size)
        ratio[s], gap[s] = (1 - 1e-6) * least, (1 - 1e-6) * math.sqrt(max(nearest, 0.0))


def _levels(moved: Floats, squares: Floats, by_set: Singles) -> Iterator[tuple[Singles, ...]]:
    """``levels`` of ``Bounds``; axes by subspace iteration."""
    u = moved.shape[1]
    numbers = [0, *(number for number in N_AXES if AXES_SHARE * number <= u)]
    axes: Floats = np.random.RandomState(0).normal(size=(u, numbers[-1]))
    for _ in range(AXES_STEPS):
        axes = np.linalg.qr((by_set @ (by_set.T @ axes.astype(np.float32))).astype(np.float64))[0]
    along, left = moved @ axes, squares.copy()
    for start, stop in itertools.pairwise([*numbers, 0] if len(numbers) == 1 else numbers):
        left -= np.einsum("zr,zr->z", along[:, start:stop], along[:, start:stop])
        beside = np.sqrt(np.maximum(left, 0.0) + FEW * (u + FEW) * UNIT * squares) * (1 + 1e-6)
        W = np.ascontiguousarray(along[:, start:stop].T, dtype=np.float32)
        yield np.ascontiguousarray(axes[:, start:stop], dtype=np.float32), W, beside.astype(np.float32)


_lookups: WeakKeyDictionary[Any, Lookup] = WeakKeyDictionary()  # of every hasher that was used


def lookup_of(hasher: Any) -> Lookup:
    """The table of a hasher, prepared once per fit."""
    made = _lookups.get(hasher)
    if made is None or made.table is not hasher.table_:
        made = _lookups[hasher] = Lookup(hasher.table_)
    return made


def likeliest_words(P: Scored, lookup: Lookup, words: Codes) -> Scored:
    """Signs of the word of largest gain P T'; the bound is 0 where rounding cannot change the word, else infinite.

    The likeliest label set, or a few of them and the main directions of the table, exclude most cells of a large table,
    whatever the others add. All rows of a small table, and the first ones of a large table, are multiplied with the
    whole table: in float32, and in float64 where two gains are too close for that.
    """
    if is_foreign(P.values):
        return words_on_device(table_gains(P, lookup.table, exact=False), words)
    n, u = P.values.shape
    bound = np.broadcast_to(P.bound, (n, 1))[:, 0]
    best, lead = np.zeros(n, dtype=np.int64), np.zeros(n)

    def needed(unit: float) -> Floats:
        return np.asarray(2 * SURE * lookup.size * (bound + (u + FEW) * unit))

    lookup.asked += n
    if lookup.table.size > SMALL_TABLE and lookup.asked >= ASKED_ROWS * u:
        _by_bounds(P.values, lookup, needed(UNIT), best, lead)
    rest = np.flatnonzero(~(lead > needed(UNIT)))
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


def _by_bounds(P: Floats, lookup: Lookup, doubt: Floats, best: NDArray[np.int64], lead: Floats) -> None:
    """The row of the table with the largest gain, and by how much it leads at least, where bounds decide.

    Parameters
    ----------
    P : (n, u) posteriors
    lookup : the table
    doubt : (n,) leads that rounding might change
    best, lead : (n,) the outcome, right where the lead exceeds the doubt
    """
    b = lookup.bounds

    def decide(part: slice) -> None:
        _by_likeliest_set(P[part], b.own, b.ratio, b.gap, best[part], lead[part])
        size = max(1, BLOCK // (2 * len(lookup.table)))
        gain, more = np.empty((2, size, len(lookup.table)), dtype=np.float32)
        for by in (_by_levels, _by_all_sets):
            rest = part.start + np.flatnonzero(~(lead[part] > doubt[part]))
            for some in (rest[start : start + size] for start in range(0, len(rest), size)):
                best[some], lead[some] = by(P[some], lookup.table, b, doubt[some], gain, more)

    size = max(MIN_ROWS, -(-len(P) // (os.cpu_count() or 1)))
    in_threads(decide, [slice(start, start + size) for start in range(0, len(P), size)])


def _by_levels(
    P: Floats, table: Singles, b: Bounds, doubt: Floats, gain: Singles, more: Singles
) -> tuple[NDArray[np.int64], Floats]:
    """The same for some rows, by gains of their likeliest label sets, and of the others along more and more axes.

    By the inequality of Cauchy and Schwarz, the gain of a cell changes by at most the norm of the other masses beside
    the axes times that of its row of the table, so cells that cannot come within the ``doubt`` of the best are left
    out. The few that remain are added up in full, in float64; where many remain, the lead is -1. ``gain`` and ``more``,
    (n, m), are overwritten.
    """
    n, u = P.shape
    best, lead, rest, n_axes = np.zeros(n, dtype=np.int64), np.full(n, -1.0), np.arange(n), 0
    Q = P.astype(np.float32)
    total = np.sqrt(np.einsum("ij,ij->i", Q, Q))
    _take_likeliest(Q, b.by_set, gain)
    square = np.einsum("ij,ij->i", Q, Q)
    left = square.astype(np.float64)
    for axes, along, norm in b.levels:
        n_axes += axes.shape[1]
        C = Q[rest] @ axes
        left[rest] -= np.einsum("ij,ij->i", C, C)
        np.matmul(C, along, out=more[: len(rest)])
        error = (u + FEW) * (n_axes + FEW) ** 0.5 * SINGLE_UNIT  # of C, against the norm of Q
        beside = np.sqrt(np.maximum(left, 0.0) + 4 * error * square)
        single = 2 * b.widest * (error * np.sqrt(square) + (LIKELIEST + n_axes + 2 * FEW) * SINGLE_UNIT * total)
        _decide(P, rest, gain, more, beside, doubt + single, table, b.mean, norm, best, lead)
        rest = rest[lead[rest] < 0]
        if not len(rest):
            break
    return best, lead


def _by_all_sets(
    P: Floats, table: Singles, b: Bounds, doubt: Floats, gain: Singles, more: Singles
) -> tuple[NDArray[np.int64], Floats]:
    """The same by the gains of all label sets, in float32."""
    n, u = P.shape
    best, lead, zeros = np.zeros(n, dtype=np.int64), np.full(n, -1.0), np.zeros(max(n, len(table)))
    gain[:n] = 0.0
    np.matmul(P.astype(np.float32), b.by_set, out=more[:n])
    single = 2 * b.widest * (u + 2 * FEW) * SINGLE_UNIT * norms(P)[:, 0]
    norm = zeros[: len(table)].astype(np.float32)
    _decide(P, np.arange(n), gain, more, zeros[:n], doubt + single, table, b.mean, norm, best, lead)
    return best, lead


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


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _by_likeliest_set(
    P: Floats, own: NDArray[np.int64], ratio: Floats, gap: Floats, best: NDArray[np.int64], lead: Floats
) -> None:
    """The cell of the likeliest label set, and by how much it leads any other at least; negative where that is unknown.

    Against a cell at the distance D from it, the likeliest set gains its mass times D times ``ratio`` or more, and
    the others lose the norm of their masses times D or less.
    """
    tops = np.empty(min(P.shape[1], GROUPS))
    for i in range(len(P)):
        p, square = P[i], 0.0
        for mass in p:
            square += mass * mass
        s = _largest(p, tops)
        others = math.sqrt(abs(square - p[s] * p[s]) + FEW * (len(p) + FEW) * UNIT * square)
        best[i], lead[i] = own[s], gap[s] * (p[s] * ratio[s] * (1 - 1e-9) - others * (1 + 1e-9))


@njit(cache=True, nogil=True, fastmath={"contract"})
def _take_likeliest(Q: Singles, by_set: Singles, gain: Singles) -> None:
    """Set the gains to those of the likeliest label sets, whose masses become 0."""
    sets = np.empty(LIKELIEST, dtype=np.int64)
    for i in range(len(Q)):
        q, number = Q[i], 0
        for s in range(len(q)):
            if number < LIKELIEST or q[s] > q[sets[number - 1]]:
                j = number if number < LIKELIEST else number - 1
                while j > 0 and q[s] > q[sets[j - 1]]:
                    if j < LIKELIEST:
                        sets[j] = sets[j - 1]
                    j -= 1
                sets[j] = s
                number = min(number + 1, LIKELIEST)
        for j in range(number):
            mass, row, g = q[sets[j]], by_set[sets[j]], gain[i]
            if j == 0:
                for z in range(len(g)):
                    g[z] = mass * row[z]
            else:
                for z in range(len(g)):
                    g[z] += mass * row[z]
            q[sets[j]] = 0.0


@njit(cache=True, nogil=True)
def _decide(
    P: Floats,
    rows: NDArray[np.int64],
    gain: Singles,
    more: Singles,
    beside: Floats,
    doubt: Floats,
    table: Singles,
    mean: Floats,
    norm: Singles,
    best: NDArray[np.int64],
    lead: Floats,
) -> None:
    """The best cell and its lead over those not excluded, where few are left.

    Parameters
    ----------
    P : (n, u) posteriors
    rows : (k,) those to decide
    gain, more : (n, m) and (k, m), what was known of their gains, and what is added
    beside : (n,) norms of the masses of which they are not known
    doubt : (n,) leads that rounding might change
    table, mean : the gains, and their means
    norm : (m,) norms of the rows of the table that belong to ``beside``
    best, lead : (n,) the outcome
    """
    m = gain.shape[1]
    tops, cells = np.empty(min(m, GROUPS), dtype=np.float32), np.empty(MOST_CELLS, dtype=np.int64)
    for k in range(len(rows)):
        i = rows[k]
        g, p = gain[i], P[i]
        _add(g, more[k])
        reached = _dot(p, table[_largest(g, tops)]) - _dot(p, mean) - doubt[i]
        limit, factor = np.float32(reached - 1e-6 * abs(reached)), np.float32(beside[i] * (1 + 1e-6))
        _tops(g, factor, norm, tops)
        count = 0
        for j in range(len(tops)):
            if count <= MOST_CELLS and not tops[j] < limit:
                for z in range(j, m, len(tops)):
                    if not g[z] + factor * norm[z] < limit:
                        if count < MOST_CELLS:
                            cells[count] = z
                        count += 1
        if count <= MOST_CELLS:
            best[i], lead[i] = _best_of(p, table, cells[:count])


@njit(inner=True, cache=True, nogil=True)
def _add(values: NDArray[Any], more: NDArray[Any]) -> None:
    for z in range(len(values)):
        values[z] += more[z]


@njit(inner=True, cache=True, nogil=True, fastmath={"contract"})
def _tops(values: NDArray[Any], factor: Any, norm: NDArray[Any], tops: NDArray[Any]) -> None:
    """The largest of ``values + factor * norm`` in every group: those whose places leave the same remainder."""
    k = len(tops)
    for j in range(k):
        tops[j] = -np.inf
    for start in range(0, len(values), k):
        part, added = values[start : start + k], norm[start : start + k]
        for j in range(len(part)):
            value = part[j] + factor * added[j]
            tops[j] = value if value > tops[j] else tops[j]


@njit(inner=True, cache=True, nogil=True)
def _largest(values: NDArray[Any], tops: NDArray[Any]) -> int:
    """The place of a largest value; ``tops`` is overwritten."""
    _tops(values, values.dtype.type(0), values, tops)
    group = 0
    for j in range(1, len(tops)):
        if tops[j] > tops[group]:
            group = j
    best = group
    for place in range(group, len(values), len(tops)):
        if values[place] > values[best]:
            best = place
    return best


@njit(inner=True, cache=True, nogil=True)
def _best_of(p: Floats, table: Singles, cells: NDArray[np.int64]) -> tuple[int, float]:
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


def profiles(P: Singles, place: NDArray[np.intp], n_cells: int) -> Floats:
    """Mean posterior of the rows in every cell, with one row of the mean of all added, (m, u)."""
    sums = sums_of_groups(P, place, n_cells)
    mean = P.mean(axis=0, dtype=np.float64)
    return np.asarray((sums + mean) / (sums.sum(axis=1, keepdims=True) + 1))


def extension(n_short: int, n_bits: int, score: Callable[[NDArray[np.intp]], float]) -> NDArray[np.intp]:
    """Which bit of the short code every bit of the long one repeats; -1 for a constant bit.

    A constant bit changes no distance, so the first choice ranks as the short code does; repeating bits weighs them.
    The one of the larger score is taken.
    """
    repeated: NDArray[np.intp] = np.arange(n_bits) % n_short
    if n_bits % n_short == 0:
        return repeated  # every bit equally often: the same ranking
    constant = np.concatenate([np.arange(n_short), np.full(n_bits - n_short, -1)])
    return repeated if score(repeated) > score(constant) else constant


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

    centers: Singles
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

    def gains(self, P: Scored, X: Rounded, table: Singles, *, exact: bool) -> Scored:
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

    def of_posteriors(self, table: Singles, clusters: Floats) -> Singles:
        """A table for memberships alone: a row is taken to be where its clusters are, (m, K)."""
        C = self.centers.astype(np.float64)
        near = 2 * C @ np.asarray(clusters, dtype=np.float64).T - self.squares[:, None]
        return np.asarray(table + self.weight * near, dtype=np.float32)


class WideLookup:
    """A table and the means of its cells as one matrix."""

    def __init__(self, table: Singles, cells: CellCenters) -> None:
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
