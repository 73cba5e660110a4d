"""What a table of codes means for a row: how firm its bits are, what lies in its cell, and codes beyond the table.

Legend: P (n, u) posteriors, table (m, u) rows of T for the cells in use, short (n, L) codes of the table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Codes, Floats
from shorthash.codes.levels import leave_one_out_map
from shorthash.codes.signs import sign
from shorthash.learners.eaph.refinement import best_rows

__all__ = ["extend", "extension", "margins", "profiles"]

BLOCK = 1 << 22  # gains held at once


def margins(P: NDArray[Any], table: NDArray[Any], words: Codes) -> Floats:
    """Signs of the word of largest gain P T', and by how much the best word with the other bit falls behind it."""
    bits = np.empty((len(P), words.shape[1]))
    block = max(1, BLOCK // len(words))
    for start in range(0, len(P), block):
        gain = np.asarray(P[start : start + block] @ table.T, dtype=np.float64)  # (b, m)
        best = words[gain.argmax(axis=1)]
        for bit, column in enumerate(words.T):
            sides = [gain[:, column == side] for side in (1, -1)]
            lead = sides[0].max(axis=1) - sides[1].max(axis=1) if all(s.size for s in sides) else np.ptp(gain, axis=1)
            magnitude = np.maximum(np.abs(lead), np.finfo(float).tiny)  # a bit keeps its sign even where words tie
            bits[start : start + block, bit] = best[:, bit] * magnitude
    return bits


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
