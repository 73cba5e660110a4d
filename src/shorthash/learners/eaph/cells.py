r"""Cells with a mean: which code a row gets, and which cells to read first, by the rows in them.

A table knows a row by its memberships alone, so rows of one cluster share few codes, and many codes are left unused. So
the mean c of the rows in every cell counts, too, and a row gets the code

.. math:: z(x) = \arg\max_z\ p(x) \cdot T_z - w \|x - c_z\|^2.

At w = 0 this is the table; at a large w it is the nearest mean, as in k-means, with codes in the order of the table.

An item of cell z is a neighbour of x with a chance proportional to :math:`\exp(a\,x \cdot c_z + b\,\|c_z\|^2)`. How all
of it is learned: ``filling.py``.

Legend: X (n, d) rows, prepared; P (n, K) memberships; table (m, K), rows of T; C (m, d) means of cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import is_foreign, namespace
from shorthash._rounding import FEW, SURE, UNIT, Rounded, Scored, as_double, linear, normalised, norms, table_gains
from shorthash._types import Codes, Floats
from shorthash.learners.eaph.encoding import BLOCK, SINGLE_UNIT, two_largest, words_on_device

RANGE = 60.0  # chances below exp(-60) of the largest count as that


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


_lookups: WeakKeyDictionary[Any, WideLookup] = WeakKeyDictionary()  # of every hasher that was used


def wide_lookup_of(hasher: Any) -> WideLookup:
    """Table and means of a hasher, prepared once per fit."""
    made = _lookups.get(hasher)
    if made is None or made.table is not hasher.table_:
        made = _lookups[hasher] = WideLookup(hasher.table_, hasher.cell_centers_)
    return made
