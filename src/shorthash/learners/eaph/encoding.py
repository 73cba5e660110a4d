"""What a table of codes means for a row: how firm its bits are, what lies in its cell, and codes beyond the table.

Legend: P (n, u) posteriors, table (m, u) rows of T for the cells in use, short (n, L) codes of the table.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import is_foreign, like, namespace
from shorthash._compiled import njit
from shorthash._rounding import FEW, SURE, UNIT, Scored, table_gains
from shorthash._types import Codes, Floats
from shorthash.codes.levels import leave_one_out_map
from shorthash.codes.signs import sign
from shorthash.learners.eaph.refinement import best_rows
from shorthash.learners.posteriors.folds import in_threads

BLOCK = 1 << 22  # gains held at once
SINGLE_UNIT = 2.0**-24  # relative rounding error of one float32 operation
MUCH_MASS = 1e-3  # posterior of a label set that is added up at once
MOST_SETS = 16  # such label sets of a row; with more, the product with the whole table is faster
MIN_ROWS = 256  # rows that are worth a thread


def likeliest_words(P: Scored, table: NDArray[np.float32], words: Codes) -> Scored:
    """Signs of the word of largest gain P T'; the bound is 0 where rounding cannot change the word, else infinite.

    A few label sets hold most of the mass of most posteriors. Where their gains alone decide, whatever the others add,
    nothing else is added up. The other rows are multiplied with the whole table: in float32, and in float64 where two
    gains are too close for that.
    """
    if is_foreign(P.values):
        return _words_on_device(P, table, words)
    n, by_set = len(P.values), np.ascontiguousarray(table.T)
    lead_per_error = 2 * SURE * float(np.abs(table).max())
    bound = np.broadcast_to(P.bound, (n, 1))[:, 0]
    best, lead = np.zeros(n, dtype=np.int64), np.zeros(n)

    def needed(unit: float) -> Floats:
        return np.asarray(lead_per_error * (bound + (len(by_set) + FEW) * unit))

    def by_few_sets(part: slice) -> None:
        _by_few_sets(P.values[part], by_set, np.ptp(table, axis=0).astype(np.float64), best[part], lead[part])

    size = max(MIN_ROWS, -(-n // (os.cpu_count() or 1)))
    in_threads(by_few_sets, [slice(start, start + size) for start in range(0, n, size)])
    rest = np.flatnonzero(~(lead > needed(UNIT)))
    for dtype, unit in ((np.float32, SINGLE_UNIT), (np.float64, UNIT)):
        T, size = by_set.astype(dtype), max(1, BLOCK // len(words))
        for some in (rest[start : start + size] for start in range(0, len(rest), size)):
            best[some], lead[some] = _two_largest(P.values[some].astype(dtype) @ T)
        rest = rest[~(lead[rest] > needed(unit)[rest])]
    doubt = np.zeros((n, 1))
    doubt[rest] = np.inf
    return Scored(words[best].astype(np.float64), doubt)


def _words_on_device(P: Scored, table: NDArray[np.float32], words: Codes) -> Scored:
    """The same where the posteriors are, by one product."""
    xp = namespace(P.values)
    gain = table_gains(P, table, exact=False)
    best = xp.argmax(gain.values, axis=1)
    lead = xp.max(gain.values, axis=1, keepdims=True) - gain.values
    lead[xp.arange(len(best), device=best.device), best] = np.inf
    doubt = ~(xp.min(lead, axis=1, keepdims=True) > 2 * SURE * gain.bound)
    values = xp.astype(like(words, P.values)[best], xp.float64)
    return Scored(values, xp.where(doubt, np.inf, 0.0))


@njit(cache=True, nogil=True)
def _two_largest(gain: NDArray[Any]) -> tuple[NDArray[np.int64], Floats]:
    """The column of the largest gain of every row, and by how much it leads the second."""
    n, m = gain.shape
    best, lead = np.zeros(n, dtype=np.int64), np.empty(n)
    for i in range(n):
        top, second = -np.inf, -np.inf
        for z in range(m):
            g = np.float64(gain[i, z])
            if g > second:
                if g > top:
                    top, second, best[i] = g, top, z
                else:
                    second = g
        lead[i] = top - second
    return best, lead


@njit(cache=True, nogil=True)
def _by_few_sets(P: Floats, by_set: NDArray[np.float32], spread: Floats, best: NDArray[np.int64], lead: Floats) -> None:
    """The row of the table with the largest gain by the label sets with much mass, and by how much it leads at least.

    Parameters
    ----------
    P : (n, u) posteriors
    by_set : (u, m) the table, by label set
    spread : (u,) largest less smallest gain of every label set
    best, lead : (n,) the outcome; the lead is negative where the other label sets may change the order
    """
    n, (u, m) = len(P), by_set.shape
    gain = np.empty(m)
    for i in range(n):
        gain[:] = 0.0
        rest, count = 0.0, 0
        for s in range(u):
            p = P[i, s]
            if p < MUCH_MASS:
                rest += p * spread[s]
            elif count < MOST_SETS:
                count += 1
                for z in range(m):
                    gain[z] += p * by_set[s, z]
            else:
                rest = np.inf
                break
        found, ahead = _two_largest(gain.reshape(1, m))
        best[i], lead[i] = found[0], ahead[0] - rest


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
