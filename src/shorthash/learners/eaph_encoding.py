"""What a table of codes means for a row: how firm its bits are, what lies in its cell, and codes beyond the table.

Legend: P (n, u) posteriors, table (m, u) rows of T for the cells in use, short (n, L) codes of the table.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Codes, Floats
from shorthash.codes.signs import sign
from shorthash.codes.ties import leave_one_out_map
from shorthash.learners.eaph_refinement import best_rows

__all__ = ["extend", "extension", "margins", "profiles"]


def margins(P: NDArray[np.float32], table: NDArray[np.float32], codebook: Codes) -> Floats:
    """Scores of the bits, (b, L): the sign is the bit, the magnitude what the best code without it would lose."""
    gain: Floats = np.asarray(P @ table.T, dtype=np.float64)  # (b, m)
    best = gain.argmax(axis=1)
    top = gain[np.arange(len(P)), best]
    codes: Floats = codebook[best].astype(np.float64)
    for bit in range(codebook.shape[1]):
        for side in (-1, 1):
            mine, others = codes[:, bit] == side, codebook[:, bit] != side
            rival = gain[np.ix_(mine, others)].max(axis=1) if others.any() else 0.0
            codes[mine, bit] *= np.maximum(top[mine] - rival, np.finfo(np.float32).tiny)
    return codes


def profiles(P: NDArray[np.float32], table: NDArray[np.float32]) -> Floats:
    """Mean posterior of the rows in every cell, with one row of the mean of all added, (m, u)."""
    sums = np.zeros(table.shape)
    np.add.at(sums, best_rows(P, table), P)
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
