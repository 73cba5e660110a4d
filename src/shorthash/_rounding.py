r"""Codes that rounding cannot change: the one mechanism behind ``project`` and ``transform`` of every hasher.

A bit is the sign of a score, and a score is a long sum. Another batch size, number of threads or CPU adds it up in
another order, rounds it another way, and may turn the sign of a score near 0. So every score is computed together with
a bound of its rounding error, one that holds for every order of summation:

1. All rows of a batch are scored at once (``exact=False``). Where every score of a row is larger than three times its
   bound, its signs are those of the exact scores, on every machine.
2. The few other rows are scored again one by one (``exact=True``): sums in a fixed order, no BLAS, one thread. What
   remains within its bound even then counts as 0, and the bit of 0 is +1.

Three times, because the two steps must agree: a score beyond three bounds is exactly beyond two, so the second step
finds it beyond one. In float64 the bounds are about 1e-10 of a score, so the second step is rare. docs/numerics.md says
what follows from this.

A hasher takes part by one method, ``_scores(X: Rounded, *, exact: bool) -> Scored``; ``linear``, ``softmax`` and
``best_word`` below are the usual last steps, ``by_itself`` is for functions of other packages, and ``settled`` runs
both steps. For a new kind of hash function, write its formula once with ``product`` in place of ``@``, and bound its
error::

    def _scores(self, X, *, exact):
        S = linear(X, self.weights_, self.bias_, exact=exact)        # class scores and their bounds
        P = softmax(S, self.temperature_)                            # posteriors and the bound of their 1-norm
        return best_table_word(P, self.table_, self.words_, exact=exact)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from shorthash._arrays import Codes, Floats, is_foreign, like, namespace, to_numpy

P = ParamSpec("P")
R = TypeVar("R")

UNIT = 2.0**-53  # relative rounding error of one float64 operation
SURE = 3  # a score larger than this many bounds has the sign of the exact score, in either step
FEW = 8  # roundings of a handful of operations, exp and log included
DOUBLE_ERROR, SINGLE_ERROR = 1e-10, 1e-5  # assumed relative errors of functions of other packages
CPU_ROWS = 4096  # rows that a device sends back at once
BLOCK = 1 << 22  # gains held at once


class Rounded(NamedTuple):
    """Rows known up to rounding."""

    values: Any  # (n, d)
    error: Any = 0.0  # (n, 1), at least the Euclidean distance of every row from its exact value


class Scored(NamedTuple):
    """Scores known up to rounding."""

    values: Any  # (n, k)
    bound: Any  # the same shape, or one that broadcasts to it: at least the absolute error of every score


def product(A: Any, B: Any, *, exact: bool) -> Any:
    """``A @ B``; with ``exact`` for a single row A, added up in the order of the columns, the same on every CPU."""
    if not exact:
        return A @ B
    return np.add.reduce(A[0][:, None] * B, axis=0)[None]


def norms(X: Any) -> Any:
    """Euclidean norms of rows, (n, 1), rounded upwards."""
    if is_foreign(X):
        return namespace(X).linalg.vector_norm(X, axis=1, keepdims=True) * (1 + 1e-6)
    return np.sqrt(np.einsum("ij,ij->i", X, X))[:, None] * (1 + 1e-6)


def linear(
    X: Rounded, weights: Floats, intercept: Floats | float, *, exact: bool, bound_by_row: bool = False
) -> Scored:
    """``X @ weights + intercept`` in float64; bounds of every score, or the largest of every row, which is quicker."""
    d = len(weights)
    constant = np.asarray(intercept, dtype=np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->j", weights, weights)) * (1 + 1e-6)
    rounding = 2 * UNIT * np.abs(constant)
    if bound_by_row:
        lengths, rounding = lengths.max(keepdims=True), rounding.max(keepdims=True)
    values = as_double(X.values)
    weights, constant, lengths, rounding = (like(a, values) for a in (weights, constant, lengths, rounding))
    bound = (X.error + (d + FEW) * UNIT * norms(values)) * lengths + rounding
    return Scored(product(values, weights, exact=exact) + constant, bound)


def shifted_product(X: Rounded, center: Floats, M: Floats, *, exact: bool) -> Rounded:
    """``(X - center) @ M`` in float64.

    The bound is added up by column: a column that hardly varies has large weights and small values, and neither says
    anything about the other columns.
    """
    values = as_double(X.values)
    lengths = np.sqrt(np.einsum("ij,ij->i", M, M)) * (1 + 1e-6)
    size, shift = float(np.linalg.norm(lengths)), 2 * float(np.abs(center) @ lengths)
    center, M, lengths = (like(a, values) for a in (center, M, lengths))
    moved = values - center
    rounding = (2 * abs(values) + (len(M) + FEW) * abs(moved)) @ lengths + shift
    return Rounded(product(moved, M, exact=exact), X.error * size + UNIT * rounding[:, None])


def normalised(X: Rounded, *, exact: bool) -> Rounded:
    """Rows divided by their Euclidean norm; a row of zeros stays one."""
    xp, d = namespace(X.values), X.values.shape[1]
    if exact:
        length = np.array([[math.sqrt(math.fsum(X.values[0] ** 2))]])
    else:
        length = xp.sqrt(xp.sum(X.values**2, axis=1, keepdims=True))
    length = xp.clip(length, np.finfo(np.float64).tiny, None)
    return Rounded(X.values / length, 2 * X.error / length + (d + FEW) * UNIT)


def as_double(X: Any) -> Any:
    """Values in float64, on their device."""
    xp = namespace(X)
    return np.asarray(X, dtype=np.float64) if xp is np else xp.astype(X, xp.float64, copy=False)


def softmax(S: Scored, temperature: float = 1.0) -> Scored:
    """Posteriors ``softmax(temperature * S)``, (n, k), and the bound of the 1-norm of the error of each row, (n, 1)."""
    xp = namespace(S.values)
    size = xp.max(xp.abs(S.values), axis=1, keepdims=True)
    exponent = 2 * temperature * (_largest_bound(S) + FEW * UNIT * size)
    values = xp.exp(temperature * (S.values - xp.max(S.values, axis=1, keepdims=True)))
    values /= xp.sum(values, axis=1, keepdims=True)
    return Scored(values, xp.expm1(xp.clip(exponent, 0.0, 2.0)) + (S.values.shape[1] + FEW) * UNIT)


def _largest_bound(S: Scored) -> Any:
    """The largest bound of every row, (n, 1)."""
    xp = namespace(S.values)
    return xp.max(xp.broadcast_to(S.bound, S.values.shape), axis=1, keepdims=True)


def table_gains(P: Scored, table: NDArray[Any], *, exact: bool) -> Scored:
    """``P @ table.T`` for posteriors P whose error is bounded in the 1-norm."""
    T = like(np.asarray(table.T, dtype=np.float64), P.values)
    total = namespace(P.values).sum(P.values, axis=1, keepdims=True)
    bound = P.bound + (len(T) + FEW) * UNIT * total
    return Scored(product(P.values, T, exact=exact), float(np.abs(table).max()) * bound)


def best_table_word(P: Scored, table: NDArray[Any], words: Codes, *, exact: bool) -> Scored:
    """``best_word`` for the gains ``P @ table.T``; in blocks, since there are up to 65 536 words."""
    size = max(1, BLOCK // len(words))
    bounds = np.broadcast_to(P.bound, (len(P.values), 1))
    parts = []
    for start in range(0, len(P.values), size):
        some = Scored(P.values[start : start + size], bounds[start : start + size])
        parts.append(best_word(table_gains(some, table, exact=exact), words, exact=exact))
    return Scored(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def best_word(gain: Scored, words: Codes, *, exact: bool) -> Scored:
    """Bits of the word of largest gain; the magnitude is what the best word with the other bit would lose.

    Parameters
    ----------
    gain : (n, m) what every word would gain
    words : (m, L) signs; words may be equal
    exact : whether ties are to be broken: of words whose gains cannot be distinguished the first is taken
    """
    g = gain.values
    bound = _largest_bound(gain)
    top = g.max(axis=1, keepdims=True)
    best = words[np.argmax(g >= top - 2 * bound, axis=1)] if exact else words[g.argmax(axis=1)]
    lead = _leads(g, words)
    shared = np.isinf(lead)  # no word has the other bit
    lead = np.where(shared, np.ptp(g, axis=1, keepdims=True), lead)
    bits = best * np.maximum(lead, np.finfo(float).tiny)  # a bit keeps its sign where words tie
    return Scored(bits, np.where(shared | exact, 0.0, 2 * bound))


def _leads(g: Floats, words: Codes) -> Floats:
    """By how much the best word with one bit leads the best word with the other, (n, L); infinite if there is none."""
    n_bits = words.shape[1]
    if 2.0**n_bits > 4 * len(words):  # few words
        sides = [[_largest(g[:, column == side]) for side in (1, -1)] for column in words.T]
        return np.stack([np.abs(plus - minus) for plus, minus in sides], axis=1)
    cube = np.full((len(g), 2**n_bits), -np.inf)
    places = (words > 0) @ (1 << np.arange(n_bits)[::-1])  # the first bit is the highest
    order = np.argsort(places, kind="stable")
    used, starts = np.unique(places[order], return_index=True)
    cube[:, used] = np.maximum.reduceat(g[:, order], starts, axis=1)
    leads = np.empty((len(g), n_bits))
    for bit in range(n_bits):
        halves = cube.reshape(len(g), 2, -1)
        minus, plus = halves.max(axis=2).T
        leads[:, bit] = np.abs(plus - minus)
        cube = halves.max(axis=1)  # this bit is done
    return leads


def _largest(gains: Floats) -> Floats:
    return gains.max(axis=1) if gains.shape[1] else np.full(len(gains), -np.inf)


def by_itself(
    function: Callable[[Any], Any], values: Any, *, exact: bool, relative_error: float | None = None
) -> Rounded:
    """The result of a function of rows whose rounding is not known, such as a transformer of another package.

    Its result for a row alone, with one thread, is taken as exact. It is an assumption that the result for the same row
    in a batch differs by no more than ``relative_error`` times its norm; unless given, 1e-10 for float64 and 1e-5 for
    anything else.
    """
    if exact:
        with thread_pools().limit(limits=1):
            return Rounded(function(values))
    out = function(values)
    numbers = np.asarray(out)
    if relative_error is None:
        relative_error = DOUBLE_ERROR if numbers.dtype == np.float64 else SINGLE_ERROR
    return Rounded(out, relative_error * norms(numbers.astype(np.float64)))


@lru_cache(maxsize=1)
def thread_pools() -> ThreadpoolController:
    """The BLAS and OpenMP libraries in use; looking for them takes milliseconds."""
    return ThreadpoolController()


def on_one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function: its products are computed on one thread, so their last bits do not depend on the number."""

    @wraps(function)
    def alone(*args: P.args, **settings: P.kwargs) -> R:
        with thread_pools().limit(limits=1):
            return function(*args, **settings)

    return alone


@np.errstate(over="ignore", invalid="ignore")  # rows whose squares overflow are in doubt; their scores count as 0
def settled(rows: Any, scores: Callable[..., Scored], fast: Callable[[Any], Scored] | None = None) -> Any:
    """Scores of rows, (n, L), whose signs depend on the row alone.

    Parameters
    ----------
    rows : an array or data frame; of torch or CuPy, the rows whose scores are in doubt are settled on the CPU
    scores : function of rows and ``exact``
    fast : another way to the scores in the first step
    """
    found = scores(rows, exact=False) if fast is None else fast(rows)
    values = found.values
    sure = (abs(values) > SURE * found.bound) | (found.bound == 0)  # NaN is not sure
    (numbers,) = namespace(values).nonzero(~namespace(values).all(sure, axis=1))
    if is_foreign(values):
        for start in range(0, len(numbers), CPU_ROWS):
            some = numbers[start : start + CPU_ROWS]
            values[some] = like(settled(to_numpy(rows[some]), scores), values)
        return values
    place = rows.iloc if hasattr(rows, "iloc") else rows
    for number in numbers:
        row = place[number : number + 1]
        one = scores(to_numpy(row) if is_foreign(row) else row, exact=True)
        values[number] = np.where(np.abs(one.values) > one.bound, one.values, 0.0)
    return values


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def on_grid(rows: Any, scores: Callable[..., Scored], n_bits: int) -> Floats:
    """Scores of rows, (n, k), rounded to some bits of the largest of their row, which depend on the row alone.

    Rows with a score that rounding could take across the border between two multiples of the step, or whose largest
    score it could give another step, are computed again one by one.

    Parameters
    ----------
    rows : an array or data frame
    scores : function of rows and ``exact``; no score is negative
    n_bits : of the largest score
    """
    found = scores(rows, exact=False)
    values = np.array(to_numpy(found.values), dtype=np.float64)
    bound = SURE * np.broadcast_to(to_numpy(found.bound), values.shape)
    limit = _row_limit(values)
    step = limit * 2.0**-n_bits
    to_border = np.abs(values / step - np.floor(values / step) - 0.5) * step
    top = values.max(axis=1, keepdims=True)
    sure = (to_border > bound) & (limit - top > bound) & (top - limit / 2 > bound)
    place = rows.iloc if hasattr(rows, "iloc") else rows
    for number in np.flatnonzero(~sure.all(axis=1)):
        values[number] = scores(to_numpy(place[number : number + 1]), exact=True).values[0]
    step = _row_limit(values) * 2.0**-n_bits
    return np.asarray(np.round(values / step) * step)


def _row_limit(values: Floats) -> Floats:
    """The smallest number 1.5 * 2**k that the largest value of every row does not exceed, (n, 1).

    Not a power of two: probabilities of 1 are common, and would be at the border.
    """
    top = np.maximum(values.max(axis=1, keepdims=True), 2.0**-900)
    return np.asarray(1.5 * np.exp2(np.ceil(np.log2(top / 1.5))))
