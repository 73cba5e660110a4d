"""Hadamard Coding for Supervised Discrete Hashing (HCSDH). G. Koutaki, K. Shirai, M. Ambai, TIP 2018.

Without its tiny feature term, SDH has an exact solution: the codewords of the classes are rows of a Hadamard matrix,
which all differ in half of their bits. Only the hash function is learned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Codes, Floats
from shorthash._labels import LabelGroups
from shorthash.codes.signs import from_bool
from shorthash.data.rows import Rows
from shorthash.learners.solvers import Ridge
from shorthash.learners.sums import SumHasher


@dataclass(eq=False, repr=False)
class HCSDH(SumHasher):
    r"""Hadamard Coding for Supervised Discrete Hashing.

    Regresses the features on fixed codewords,

    .. math::
        \min_P \|H - XP\|^2 + \rho\|P\|^2, \quad h_i = t_{y_i}

    where

    - :math:`X` (n, d) are the features and :math:`y_i` the classes,
    - :math:`t_k` is the k-th row of a Hadamard matrix of order L,
    - :math:`P` (d, L) projects features on codes, and :math:`\rho` is its ridge.

    The paper needs a Hadamard matrix of order L with a row for every class. Here L may be any length: if it is no power
    of 2, or smaller than the number of classes, L columns of a larger matrix are used, without the constant one, chosen
    to keep the codewords far apart. Nothing is random. Training needs one pass over the rows: they can be
    added (``partial_fit``, ``merge``) and removed (``forget``).

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64.
    ridge : float, default=1e-6
        Ridge on P. The paper has none, but features may depend on each other.
    drop_unlabelled : bool, int or str, default=False
        Drop rows without a label (None, NaN, "", an empty set, a row of zeros) instead of raising; a value such as -1
        or "unknown" also drops the rows that have it as their label.

    Attributes
    ----------
    projection_ : (n_features_in, n_bits) the hash function is ``sign(X @ projection_ + intercept_)``
    intercept_ : (n_bits,) 0, or the bit itself if all samples share it
    classes_ : (c,) the classes
    label_sets_ : (u, c) the label rows that occurred
    codewords_ : (u, n_bits) the code of every class that occurred
    codes_ : (n_samples, n_bits) codes of the training rows; only after ``fit`` on all rows
    statistics_ : GroupStatistics, the sums
    n_samples_seen_ : int, rows learned from and not forgotten
    n_dropped_ : int, rows without label in the last call

    References
    ----------
    G. Koutaki, K. Shirai, M. Ambai. Hadamard Coding for Supervised Discrete Hashing. IEEE Transactions on Image
    Processing 27(11), 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> HCSDH(n_bits=4).fit(X, y).codewords_.tolist()
    [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1]]
    """

    n_bits: int = 8
    ridge: float = 1e-6
    drop_unlabelled: bool | int | str = False

    random_state = 0  # nothing is random
    _multilabel: ClassVar[bool] = False

    def _learn(self, rows: Rows | None = None, groups: LabelGroups | None = None) -> Self:  # noqa: ARG002
        """Solve from the statistics and set every fitted attribute."""
        seen = self.statistics_
        codewords = hadamard_codewords(len(seen.classes), self.n_bits)[seen.rows.argmax(axis=1)]
        projection = Ridge(seen.gram, self.ridge).solve(seen.sums @ codewords)
        self._keep(projection, codewords, None if groups is None else codewords[groups.ids])
        return self


def hadamard_codewords(n_classes: int, n_bits: int) -> Codes:
    """One codeword per class, (n_classes, n_bits), from the rows of a Hadamard matrix of Sylvester's kind.

    The entry of such a matrix in row i and column j is -1 if i AND j has an odd number of ones, so it is never built.

    Examples
    --------
    Ten classes, eight bits: any two codewords differ in four bits or more.

    >>> C = hadamard_codewords(10, 8).astype(int)
    >>> int((8 - (C @ C.T)[~np.eye(10, dtype=bool)]).min() // 2)
    4
    """
    exact = n_bits >= n_classes and n_bits & (n_bits - 1) == 0
    columns = np.arange(n_bits) if exact else _spread_columns(1 << max(n_classes - 1, n_bits).bit_length(), n_bits)
    odd = np.bitwise_count(np.arange(n_classes)[:, None] & columns) & 1
    return from_bool(odd == 0)


def _spread_columns(order: int, n_bits: int) -> NDArray[np.intp]:
    """Columns, ascending, that keep the rows far apart: chosen one by one, then exchanged as long as that helps.

    Rows i and j differ in the same bits as rows 0 and i XOR j, so the distances of row 0 to the others are those of all
    pairs. A pair at distance t weighs order^-t, more than all pairs further apart together.
    """
    columns: list[int] = []
    distances = np.zeros(order - 1)
    for _ in range(n_bits):
        columns.append(_best_column(distances, columns))
        distances += _differ(order, columns[-1])
    crowding = np.inf
    while crowding > (crowding := _crowding(distances)):
        for place, column in enumerate(columns):
            without = distances - _differ(order, column)
            best = _best_column(without, columns[:place] + columns[place + 1 :])
            exchanged = without + _differ(order, best)
            if _crowding(exchanged) < _crowding(distances):
                columns[place], distances = best, exchanged
    return np.sort(np.array(columns))


def _best_column(distances: Floats, taken: list[int]) -> int:
    """The column that leaves the least weight of pairs unseparated: a coefficient of their Walsh-Hadamard transform."""
    order = len(distances) + 1
    unseparated = _walsh_hadamard(np.concatenate([[0.0], float(order) ** -distances]))
    unseparated[[0, *taken]] = np.inf  # the constant column separates nothing
    return int(unseparated.argmin())


def _differ(order: int, column: int) -> NDArray[np.uint8]:
    """Which rows differ from row 0 in a column, (order - 1,)."""
    return np.asarray(np.bitwise_count(np.arange(1, order) & column) & 1)


def _crowding(distances: Floats) -> float:
    """The weight of all pairs."""
    return float(np.sum(float(len(distances) + 1) ** -distances))


def _walsh_hadamard(values: Floats) -> Floats:
    """The product of a Hadamard matrix with a vector whose length is a power of 2."""
    half = 1
    while half < len(values):
        pairs = values.reshape(-1, 2, half)
        values = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        half *= 2
    return values
