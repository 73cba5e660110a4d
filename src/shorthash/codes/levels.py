"""Level counts: how many items lie at each Hamming distance from a code, and the average precision they imply.

Every score of a ranking by Hamming distance follows from these small integers, so nothing is sorted, and memory does
not grow with queries x items. Two exact engines give the same counts:

``table``
    A histogram of the items over all 2**n_bits codes, then the *level transform*: one pass per bit turns the histogram
    into the counts at every distance from every code. Its cost does not depend on the number of queries.
``count``
    XOR and population count of every query with every item, in cache-sized blocks and on all threads. For long codes.

At 4 to 16 bits nearly every distance is shared by thousands of items, and the order among them, which the codes do not
determine, changes average precision by tenths. The mean over all such orders has a closed form in the level counts
(McSherry and Najork 2008; He, Cakir, Bargal and Sclaroff 2018), so it costs no more than one order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import ArrayLike, NDArray

from shorthash._arrays import Counts, Floats, PackedCodes, njit
from shorthash._labels import LabelGroups, group_labels
from shorthash._validation import check_choice
from shorthash.codes.signs import as_packed, code_length
from shorthash.errors import InvalidInput

ENGINES = ("auto", "table", "count")

MAX_TABLE_BITS = 20  # the transform of 20 bits holds 2**20 x 21 counts: 176 MB

BLOCK_COUNTS = 1 << 18  # level counts held at once: 2 MB, so that they stay in the cache
ITEM_BLOCK = 4096  # items compared with every query before the next ones are loaded: 32 kB, a first-level cache
PAIR_BLOCK = 1 << 15  # the same where items are counted in pairs: 256 kB, a second-level cache
THREADED_PAIRS = 1 << 24  # below this many comparisons (about 15 ms) starting threads costs more than it saves
EVERYTHING = int(np.iinfo(np.int64).max)  # a cut-off that is never reached
DIRECT_TERMS = 64  # up to here the harmonic numbers are summed term by term; beyond, the series is exact to 1e-16


@dataclass(frozen=True)
class LevelBlock:
    """Level counts of some of the queries.

    Attributes
    ----------
    rows : which queries
    total : (m, n_bits + 1) items at every distance
    graded : (n_grades, m, n_bits + 1) items at every distance that share 1, 2, ... labels with the query, the last
        grade being that many or more; with one grade, items that share any label
    """

    rows: slice
    total: Counts
    graded: Counts

    @property
    def relevant(self) -> Counts:
        """Items at every distance that share a label with the query, (m, n_bits + 1)."""
        return np.asarray(self.graded.sum(axis=0))


@dataclass(frozen=True)
class Queries:
    """Queries without repetition: each (code, label group) once.

    Attributes
    ----------
    codes : (m,) packed codes, in order of their groups
    groups : their label groups
    rows : (n,) for every query given, which of these it is
    copies : (m,) number of given queries that are equal to each
    own : (m,) the database row that each query is itself, -1 if none
    """

    codes: PackedCodes
    groups: LabelGroups
    rows: NDArray[np.intp]
    copies: Counts
    own: NDArray[np.intp]


def distinct_queries(codes: PackedCodes, groups: LabelGroups, *, each_row: bool = False) -> Queries:
    """Sort queries by group and keep one of every (code, group), or all of them, with their rows, if ``each_row``."""
    distinct, code_ids = np.unique(codes, return_inverse=True)
    keys = groups.ids * max(1, len(distinct)) + code_ids.reshape(-1)
    if each_row:
        first = own = np.argsort(keys, kind="stable")
        rows, copies = np.argsort(first), np.ones(len(first), dtype=np.int64)
    else:
        _, first, rows, copies = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        own = np.full(len(first), -1)
    kept = LabelGroups(groups.classes, groups.rows, groups.ids[first])
    return Queries(codes[first], kept, rows.reshape(-1), copies.astype(np.int64), own)


def grades_of(group: int, groups: LabelGroups, n_grades: int = 1) -> NDArray[np.int32]:
    """How many labels every label group shares with one of them, at most ``n_grades``, (u,)."""
    shared: NDArray[np.int32] = groups.rows @ groups.rows[group].astype(np.int32)
    return np.minimum(shared, n_grades)


def level_blocks(
    queries: PackedCodes,
    query_groups: LabelGroups,
    items: PackedCodes,
    item_groups: LabelGroups,
    n_bits: int,
    *,
    weights: Counts | None = None,
    n_grades: int = 1,
    engine: str = "auto",
) -> Iterator[LevelBlock]:
    """Count items by distance and by shared labels, for blocks of queries in bounded memory.

    Parameters
    ----------
    queries, items : (m,), (n,) packed codes; queries of one group must be next to each other, and every (code, group)
        should occur once
    query_groups, item_groups : their groups, made together by ``group_label_pair``
    n_bits : code length
    weights : (n,) how many times every item counts; None for once
    n_grades : number of grades (shared labels) to distinguish; 1 for shared or not shared
    engine : "auto" (whichever is cheaper, count by count), "table" or "count"
    """
    n_groups, single = len(item_groups.rows), item_groups.single
    small = np.uint16 if n_groups <= 1 << 16 else np.intp  # NumPy sorts 16-bit integers by radix
    order = np.argsort(item_groups.ids.astype(small), kind="stable")
    sorted_items, sorted_weights = items[order], None if weights is None else weights[order]
    starts = np.concatenate([[0], np.cumsum(np.bincount(item_groups.ids, minlength=n_groups))])
    size = max(1, BLOCK_COUNTS // (n_grades * (n_bits + 1)))
    for low in range(0, len(queries), size):
        block = slice(low, min(low + size, len(queries)))
        codes, ids = queries[block], query_groups.ids[block]
        distinct, inverse = np.unique(codes, return_inverse=True)
        total = level_counts(distinct, items, n_bits, weights=weights, engine=engine)[inverse.reshape(-1)]
        counts = np.zeros((n_grades, len(codes), n_bits + 1), dtype=np.int64)
        edges = [0, *(np.flatnonzero(np.diff(ids)) + 1).tolist(), len(ids)]
        for first, stop in pairwise(edges):  # queries of one group
            for grade, chosen in _relevant_items(int(ids[first]), item_groups, starts, n_grades, single):
                share = None if sorted_weights is None else sorted_weights[chosen]
                counts[grade - 1, first:stop] = level_counts(
                    codes[first:stop], sorted_items[chosen], n_bits, weights=share, engine=engine
                )
        yield LevelBlock(block, total, counts)


def level_counts(
    queries: PackedCodes, items: PackedCodes, n_bits: int, *, weights: Counts | None = None, engine: str = "auto"
) -> Counts:
    """How many items lie at distance 0, 1, ..., n_bits from every query code, (m, n_bits + 1).

    Examples
    --------
    >>> level_counts(np.array([0b11], dtype=np.uint8), np.array([0b11, 0b10, 0b01], dtype=np.uint8), n_bits=2)
    array([[1, 2, 0]])
    """
    check_choice(engine, "engine", "level_counts", ENGINES)
    if engine == "table" and n_bits > MAX_TABLE_BITS:
        raise InvalidInput(f"engine='table' takes up to {MAX_TABLE_BITS} bits. Got {n_bits}; use engine='count'.")
    if engine == "auto":
        engine = _cheaper(len(queries), len(items), n_bits)
    if engine == "table":
        histogram = np.bincount(items.astype(np.int64), weights, minlength=1 << n_bits)
        return level_transform(histogram)[queries]
    out = np.zeros((len(queries), n_bits + 1), dtype=np.int64)
    words, item_words = queries.astype(np.uint64, copy=False), items.astype(np.uint64, copy=False)
    if weights is None:
        _count_all(words, item_words, out)
    else:
        _count_weighted(words, item_words, weights, out)
    return out


def list_levels(queries: PackedCodes, items: PackedCodes, lists: NDArray[np.integer], n_bits: int) -> Counts:
    """How many of the items in the list of every query lie at distance 0, 1, ..., n_bits from it, (m, n_bits + 1).

    Examples
    --------
    >>> items = np.array([0b11, 0b10, 0b00], dtype=np.uint8)
    >>> list_levels(np.array([0b11], dtype=np.uint8), items, np.array([[0, 2]]), n_bits=2)
    array([[1, 0, 1]])
    """
    distance = np.bitwise_count(items[lists] ^ queries[:, None]).astype(np.int64)
    places = distance + np.arange(len(queries))[:, None] * (n_bits + 1)
    return np.bincount(places.ravel(), minlength=len(queries) * (n_bits + 1)).reshape(len(queries), n_bits + 1)


def level_transform(histogram: NDArray[Any]) -> Counts:
    r"""Turn a histogram over all codes into the counts at every distance from every code.

    With :math:`F_0[x, 0] = f(x)`, bit b contributes

    .. math:: F_{b+1}[x, t] = F_b[x, t] + F_b[x \oplus 2^b, t - 1]

    where

    - :math:`f(x)` is the number of items with code x;
    - :math:`F_b[x, t]` counts the items that differ from x in exactly t of the first b bits and in none of the others;
    - :math:`F_L[x, t]`, the result of shape (2**L, L + 1), counts the items at distance t from x.

    Examples
    --------
    >>> level_transform(np.array([5, 1, 0, 2]))
    array([[5, 1, 2],
           [1, 7, 0],
           [0, 7, 1],
           [2, 1, 5]])
    """
    size = len(histogram)
    n_bits = size.bit_length() - 1
    if size != 1 << n_bits:
        raise InvalidInput(f"A histogram over codes must have 2**n_bits entries. Got {size}; give every code a count.")
    F = np.zeros((size, n_bits + 1), dtype=np.int64)
    F[:, 0] = histogram
    _transform(F)
    return F


def leave_one_out_map(codes: ArrayLike, y: ArrayLike, n_bits: int | None = None) -> float:
    """Tie-aware mAP where every row is a query against all other rows.

    Two rows are relevant to each other if they share a label. Rows without any relevant other row are not queries, but
    remain in the database of the others. The cost depends on the number of different codes, not on that of pairs.

    Parameters
    ----------
    codes : (n, n_bits) signs, or (n,) integers, which need ``n_bits``
    y : (n,) class labels, or an (n, n_classes) indicator matrix

    Returns
    -------
    float
        nan if no row has a relevant other row.

    Examples
    --------
    >>> leave_one_out_map([[1, 1], [1, 1], [-1, -1], [-1, -1]], y=["a", "a", "b", "b"])
    1.0
    >>> leave_one_out_map([[1, 1], [1, 1], [1, 1]], y=["a", "a", "b"])
    0.75
    """
    n_bits = code_length(codes, n_bits, "leave_one_out_map")
    packed = as_packed(codes, n_bits)
    groups = group_labels(y, owner="leave_one_out_map", n_samples=len(packed), allow_unlabelled=True)
    queries = distinct_queries(packed, groups)
    labelled = groups.rows.max(axis=1, initial=0)[queries.groups.ids]
    total, n_scored = 0.0, 0
    for block in level_blocks(queries.codes, queries.groups, packed, groups, n_bits):
        others, relevant, copies = block.total, block.relevant, queries.copies[block.rows]
        others[:, 0] -= 1  # the query itself
        relevant[:, 0] -= labelled[block.rows]
        precision = expected_average_precision(others, relevant)
        scored = ~np.isnan(precision)
        total += float(precision[scored] @ copies[scored])
        n_scored += int(copies[scored].sum())
    return total / n_scored if n_scored else float("nan")


def expected_average_precision(total: Counts, relevant: Counts) -> Floats:
    r"""Mean average precision over all orders of tied items, (m,).

    .. math:: \mathrm{AP} = \frac{1}{R} \sum_t \frac{r_t}{n_t} \sum_{j=1}^{n_t}
              \frac{R_t + 1 + (j - 1) \rho_t}{N_t + j}, \qquad \rho_t = \frac{r_t - 1}{n_t - 1}

    where

    - :math:`n_t`, :math:`r_t` are the items, and the relevant ones, at the t-th distance (``total``, ``relevant``);
    - :math:`N_t`, :math:`R_t` are the items, and the relevant ones, at smaller distances;
    - :math:`R` is the number of relevant items; a query without any gets nan.

    Parameters
    ----------
    total, relevant : (m, n_levels) counts, nearest level first; levels may be empty

    Examples
    --------
    >>> expected_average_precision(np.array([[2, 1]]), np.array([[1, 1]])).round(4)  # (1 + 2/3) / 2 or (1/2 + 2/3) / 2
    array([0.7083])
    """
    sums: Floats = precision_sums(total, relevant, np.full(len(total), EVERYTHING))
    R = relevant.sum(axis=1)
    return np.asarray(np.divide(sums, R, out=np.full(len(R), np.nan), where=R > 0))


def _relevant_items(
    group: int, item_groups: LabelGroups, starts: NDArray[np.intp], n_grades: int, single: bool
) -> Iterator[tuple[int, slice | NDArray[np.bool_]]]:
    """The items that share labels with a group, as (grade, where among the items sorted by group)."""
    if single:
        yield 1, slice(int(starts[group]), int(starts[group + 1]))
        return
    grades = grades_of(group, item_groups, n_grades)
    grade_of_item = np.repeat(grades, np.diff(starts))
    for grade in np.unique(grades[grades > 0]).tolist():
        yield grade, grade_of_item == grade


def _cheaper(n_queries: int, n_items: int, n_bits: int) -> str:
    """The engine with fewer elementary steps; a step of either takes about 0.7 ns."""
    if n_bits > MAX_TABLE_BITS:
        return "count"
    table = n_items + (n_bits * n_bits << n_bits) // 2
    return "table" if table < n_queries * n_items else "count"


def _count_all(queries: NDArray[np.uint64], items: NDArray[np.uint64], out: Counts) -> None:
    """Add the level counts of all queries to ``out``, on all threads if that is faster."""
    n_threads = min(numba.get_num_threads(), len(queries))
    if len(queries) * len(items) < THREADED_PAIRS or n_threads < 2:
        _count_some(queries, items, out)
        return
    edges = np.linspace(0, len(queries), n_threads + 1).astype(int).tolist()
    with ThreadPoolExecutor(n_threads) as pool:
        parts = [slice(low, high) for low, high in pairwise(edges)]
        list(pool.map(lambda part: _count_some(queries[part], items, out[part]), parts))


def _count_some(queries: NDArray[np.uint64], items: NDArray[np.uint64], out: Counts) -> None:
    """Whole blocks in pairs, the rest one by one."""
    whole = len(items) // PAIR_BLOCK * PAIR_BLOCK
    if whole:  # what is not called is not compiled
        _count_pairs(queries, items[:whole], out)
    if whole < len(items):
        _count(queries, items[whole:], out)


def _population_count(_typing: Any, _x: Any) -> Any:
    """How numba types and emits ``popcount``: one machine instruction."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


popcount: Any = intrinsic(_population_count)
"""Set bits of a 64-bit integer, inside compiled functions."""


@njit(cache=True, nogil=True, allocates=False)
def _count(queries: NDArray[np.uint64], items: NDArray[np.uint64], out: Counts) -> None:
    """Add the level counts of ``items`` to ``out``, one row per query."""
    for start in range(0, items.size, ITEM_BLOCK):
        stop = start + ITEM_BLOCK if start + ITEM_BLOCK < items.size else items.size
        for i in range(queries.size):
            query = queries[i]
            for j in range(start, stop):
                out[i, popcount(query ^ items[j])] += 1


@njit(cache=True, nogil=True, allocates=False)
def _count_weighted(queries: NDArray[np.uint64], items: NDArray[np.uint64], weights: Counts, out: Counts) -> None:
    """The same for items that count several times."""
    for i in range(queries.size):
        for j in range(items.size):
            out[i, popcount(queries[i] ^ items[j])] += weights[j]


@njit(cache=True, nogil=True)
def _count_pairs(queries: NDArray[np.uint64], items: NDArray[np.uint64], out: Counts) -> None:
    """The same as ``_count`` for whole blocks, twice as fast.

    Each item is counted together with one of the other half of its block: their two distances are one cell of a table,
    whose row sums and column sums are the level counts of the two halves. Half as many counters are touched, and the
    distances are computed several at a time.
    """
    n_levels, half = out.shape[1], PAIR_BLOCK // 2
    cells = np.empty(half, dtype=np.uint32)
    table = np.zeros(n_levels * n_levels, dtype=np.uint32)
    for start in range(0, items.size, PAIR_BLOCK):
        left, right = items[start : start + half], items[start + half : start + PAIR_BLOCK]
        for i in range(queries.size):
            query = queries[i]
            for j in range(half):
                cells[j] = popcount(query ^ left[j]) * n_levels + popcount(query ^ right[j])
            for j in range(half):
                table[cells[j]] += 1
            for t in range(n_levels):
                for u in range(n_levels):
                    out[i, t] += table[t * n_levels + u]
                    out[i, u] += table[t * n_levels + u]
                    table[t * n_levels + u] = 0


@njit(cache=True, nogil=True, allocates=False)
def _transform(F: Counts) -> None:
    """The level transform in place; levels go downwards, so that level t - 1 is still that of the bits before."""
    size, n_bits = F.shape[0], F.shape[1] - 1
    for b in range(n_bits):
        step = 1 << b
        for base in range(0, size, 2 * step):
            for x in range(base, base + step):
                for t in range(b + 1, 0, -1):
                    below = F[x, t - 1]
                    F[x, t] += F[x + step, t - 1]
                    F[x + step, t] += below


@njit(inline="always", cache=True, nogil=True, allocates=False)
def harmonic_gap(start: int, count: int) -> float:
    """The harmonic number of start + count less that of start, without cancellation and without a table."""
    stop = start + count
    gap = 0.0
    while start < stop and (start < DIRECT_TERMS or stop - start <= DIRECT_TERMS):
        start += 1
        gap += 1.0 / start
    if start == stop:
        return gap
    a, b = 1.0 / start, 1.0 / stop  # Euler-Maclaurin, differences only
    a2, b2 = a * a, b * b
    gap += math.log1p((stop - start) * a) + 0.5 * (b - a) - (b2 - a2) / 12.0
    return gap + (b2 * b2 - a2 * a2) / 120.0 - (b2 * b2 * b2 - a2 * a2 * a2) / 252.0


@njit(inline="always", cache=True, nogil=True, allocates=False)
def level_precision_sum(before: Any, relevant_before: Any, total: int, relevant: int, shown: int) -> float:
    """Expected sum of the precisions at the relevant ones among the first ``shown`` items of a level.

    The inner sum of the formula above, up to j = ``shown``: precisions only look backwards, so a cut inside a level
    stays exact.
    """
    if relevant == 0 or shown == 0:
        return 0.0
    rho = (relevant - 1.0) / (total - 1.0) if total > 1 else 0.0
    gap = harmonic_gap(before, shown)
    return float(relevant / total * (rho * shown + (relevant_before + 1.0 - rho * (before + 1.0)) * gap))


def precision_sums(total: Counts, relevant: Counts, cuts: Counts) -> Floats:
    """Expected sum of the precisions at relevant items among the first ``cuts`` of every ranking, (m,)."""
    sums = np.zeros(len(total))
    _add_precisions(total, relevant, cuts, sums)
    return sums


@njit(cache=True, nogil=True, allocates=False)
def _add_precisions(total: Counts, relevant: Counts, cuts: Counts, sums: Floats) -> None:
    for i in range(len(total)):
        before, relevant_before = np.int64(0), np.int64(0)
        for t in range(total.shape[1]):
            if before >= cuts[i]:
                break
            shown = total[i, t] if total[i, t] < cuts[i] - before else cuts[i] - before
            sums[i] += level_precision_sum(before, relevant_before, total[i, t], relevant[i, t], shown)
            before += total[i, t]
            relevant_before += relevant[i, t]
