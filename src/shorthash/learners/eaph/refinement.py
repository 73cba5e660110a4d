"""From posteriors to a table of codes: starts, annealing, and the conditional gradient of the expected mAP.

Legend: P (n, u) out-of-fold posteriors, group (n,) a partition of the rows, M (G, u) masses of the groups, z (n,) the
cell of every row, h (Z, u) masses in the cells (table.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans

from shorthash._arrays import Floats, PackedCodes, is_foreign, like, namespace, njit, to_numpy
from shorthash.codes.signs import pack, packed_dtype, sign, unpack
from shorthash.learners.codebooks import CODEBOOKS
from shorthash.learners.eaph.codebook import anneal_codebook, schedule
from shorthash.learners.eaph.table import ap_table, codeword_table
from shorthash.learners.posteriors.folds import Posteriors, in_threads

BACKGROUND = 1e-2  # mass spread over all cells, against the mass of all rows
ROWS_PER_CLASS = 5  # with fewer training rows in the class of a row, on average, a table is computed once, not refined
FEWEST_PER_CLASS = 3  # with fewer still, codewords are all that can be trusted
MANY_GROUPS = 256  # annealed from one start: moves are what more groups need
FINER_SETS = 128  # up to so many label sets, rows are also grouped more finely than by label set
SWAP_CODEWORDS = 0.9  # chance of changing places, where every label set has a code
SWAP_GROUPS = 0.5  # where groups share codes
SHARED_HEAT = 4  # times the usual temperature, where groups must share codes: a single move changes more
SHARED_MOVES = 4  # times the usual moves there, up to MANY_GROUPS
BLOCK = 1 << 22  # gains held at once by a thread


@dataclass(frozen=True)
class Design:
    """A table of codes.

    Attributes
    ----------
    kind : "codewords", "table" or "between codewords"
    n_bits : bits of the cells
    cells : (m,) codes in use, packed
    table : (m, u) gain of a label set at each of them
    objective : computes ``history``, which is slow for long codes and needed only for the codes that are taken
    """

    kind: str
    n_bits: int
    cells: PackedCodes
    table: NDArray[np.float32]
    objective: Callable[[], list[float]]

    @cached_property
    def history(self) -> Floats:
        """The expected mAP at every iteration."""
        return np.array(self.objective())

    @property
    def value(self) -> float:
        """The expected mAP."""
        return float(self.history.max())


def design_codes(
    P: Posteriors,
    rel: Floats | None,
    n_bits: int,
    rng: np.random.RandomState,
    *,
    rows_per_class: float,
    codebook: str,
    refine: bool,
    new_classes: bool,
    n_starts: int,
    n_iter: int,
    beside: Any = None,
    known: dict[tuple[int, bytes], tuple[NDArray[np.int64], float]] | None = None,
) -> list[Design]:
    """Codewords and, where there are rows enough, the refined table of the largest expected mAP over all partitions.

    With fewer than ``ROWS_PER_CLASS`` rows in the class of a row, on average, a refined table would look better on them
    than it is on others. Where new classes are expected there is one design, which places items between codewords. The
    table is refined on the device of ``beside``, an array; on the CPU if it is None. ``known`` keeps what was annealed,
    for another call.
    """
    refine = refine and not new_classes and rows_per_class >= FEWEST_PER_CLASS
    n_iter = 1 if rows_per_class < ROWS_PER_CLASS else n_iter
    partitions = _partitions(P, n_bits, rng, finer=refine and codebook == "annealed")
    masses = [masses_of(P, group, n_groups) for group, n_groups in partitions]
    if codebook == "annealed":
        books = _annealed(masses, rel, n_bits, n_starts, rng, 1 / len(P), {} if known is None else known)
    else:
        books = [pack(CODEBOOKS[codebook](len(M), n_bits, rng)).astype(np.int64) for M in masses]
    if new_classes:
        return [_between(P, books[0], rel, n_bits)]
    designs = [_nearest(P, books[0], rel, n_bits)]
    if refine:
        tables = [
            refine_table(like(P, beside), rel, cells[group], n_bits, rng, n_iter)
            for (group, _), cells in zip(partitions, books, strict=True)
        ]
        designs.append(max(tables, key=lambda design: design.value))
    return designs


def refine_table(
    P: Any, rel: Floats | None, start: NDArray[np.int64], n_bits: int, rng: np.random.RandomState, n_iter: int
) -> Design:
    """Conditional gradient: rows move, some at a time, to the cell where their posterior gains most.

    Posteriors may be an array of torch or CuPy; then all is computed on its device.
    """
    n, background = len(P), background_of(P)
    z = like(start.copy(), P)
    best_T, best_value = None, -np.inf
    history: list[float] = []
    for iteration in range(n_iter):
        table = ap_table(masses_of(P, z, 2**n_bits), background, rel)
        T = table.query + table.database
        history.append(table.value)
        if table.value > best_value:
            best_T, best_value = T, table.value
        share = 0.5 if iteration < n_iter // 2 else 0.25  # damping: all at once would oscillate
        moved = like(rng.random_sample(n) < share, P)
        z[moved] = best_rows(P[moved], T)
    used = np.unique(to_numpy(best_rows(P, best_T)))
    cells, table = used.astype(packed_dtype(n_bits)), to_numpy(best_T)[used]
    return Design("table", n_bits, cells, table, lambda: history)


def _nearest(P: Posteriors, cells: NDArray[np.int64], rel: Floats | None, n_bits: int) -> Design:
    """Every item gets the codeword of its likeliest label set: a table of ones."""
    return _of_table("codewords", P, *codeword_table(cells), rel, n_bits)


def _between(P: Posteriors, cells: NDArray[np.int64], rel: Floats | None, n_bits: int) -> Design:
    """Every item gets the cell nearest to the mean codeword under its posterior, among cells that such means reach.

    An item that resembles several classes, as items of unknown classes do, is placed between them.
    """
    dtype = packed_dtype(n_bits)
    codewords = unpack(cells.astype(dtype), n_bits).astype(np.float32)
    used = np.union1d(pack(sign(P @ codewords)).astype(dtype), cells.astype(dtype))
    table = unpack(used, n_bits).astype(np.float32) @ codewords.T / np.float32(n_bits)
    return _of_table("between codewords", P, used, table, rel, n_bits)


def _of_table(
    kind: str, P: Posteriors, cells: NDArray[Any], table: NDArray[np.float32], rel: Floats | None, n_bits: int
) -> Design:
    """A design with the expected mAP of the codes that the table gives."""

    def objective() -> list[float]:
        z = cells[best_rows(P, table)].astype(np.int64)
        return [ap_table(masses_of(P, z, 2**n_bits), background_of(P), rel).value]

    return Design(kind, n_bits, cells.astype(packed_dtype(n_bits)), table, objective)


def _partitions(
    P: Posteriors, n_bits: int, rng: np.random.RandomState, *, finer: bool
) -> list[tuple[NDArray[np.intp], int]]:
    """Rows by their likeliest label set and, where there are enough codes, by finer clusters of posteriors."""
    u = P.shape[1]
    found = [(P.argmax(axis=1), u)]
    if finer and u <= FINER_SETS:
        counts = (2 * u, 3 * u) if u < 50 else (2 * u,)
        found += [_clusters(P, G, rng) for G in counts if min(2 ** (n_bits - 1), len(P)) >= G]
    return found


def _clusters(P: Posteriors, n_groups: int, rng: np.random.RandomState) -> tuple[NDArray[np.intp], int]:
    """Clusters of posteriors, alike in Hellinger distance."""
    n_groups = min(n_groups, len(P))
    seed = int(rng.randint(np.iinfo(np.int32).max))
    roots = np.sqrt(P / P.sum(axis=1, keepdims=True))
    labels = MiniBatchKMeans(n_groups, n_init=3, random_state=seed).fit_predict(roots)
    return np.asarray(labels, dtype=np.intp), n_groups


def _annealed(
    masses: list[Floats],
    rel: Floats | None,
    n_bits: int,
    n_starts: int,
    rng: np.random.RandomState,
    item: float,
    known: dict[tuple[int, bytes], tuple[NDArray[np.int64], float]],
) -> list[NDArray[np.int64]]:
    """Cells of the groups of every partition, by the best of several annealings, those in ``known`` excepted."""
    jobs: list[tuple[Floats, Floats, int]] = []
    for M in masses:
        S = M if rel is None else M @ rel
        seeds = rng.randint(np.iinfo(np.int32).max, size=n_starts if len(M) <= MANY_GROUPS else 1)
        jobs += [(M, S, int(seed)) for seed in seeds]

    def annealed(job: tuple[Floats, Floats, int]) -> tuple[NDArray[np.int64], float]:
        M, S, seed = job
        key = seed, hashlib.sha256(M.tobytes()).digest()
        if key not in known:
            n_proposals, heat = schedule(M)
            if len(M) > 2**n_bits:
                heat *= SHARED_HEAT
                n_proposals *= SHARED_MOVES if len(M) <= MANY_GROUPS else 1
            swap = SWAP_CODEWORDS if len(M) == M.shape[1] <= 2**n_bits else SWAP_GROUPS
            source = np.random.RandomState(seed)
            known[key] = anneal_codebook(M, S, n_bits, source, n_proposals=n_proposals, heat=heat, swap=swap, item=item)
        return known[key]

    runs = in_threads(annealed, jobs)
    of_partition = [[run for run, job in zip(runs, jobs, strict=True) if job[0] is M] for M in masses]
    return [max(found, key=lambda run: run[1])[0] for found in of_partition]


def masses_of(P: Any, group: Any, n_groups: int) -> Any:
    """Share of every label set in every group in all posterior mass, (G, u); a row may have more mass than others."""
    if is_foreign(P):
        return _masses_by_arrays(P, group, n_groups)
    M = sums_of_groups(P, group, n_groups)
    return np.asarray(M / M.sum())


def sums_of_groups(P: Posteriors, group: NDArray[np.integer], n_groups: int) -> Floats:
    """Sums of the rows of every group, in their order, float64."""
    sums = np.zeros((n_groups, P.shape[1]))
    _add_rows(P, group, sums)
    return sums


@njit(cache=True, nogil=True, allocates=False)
def _add_rows(P: Posteriors, group: NDArray[np.integer], sums: Floats) -> None:
    for i in range(P.shape[0]):
        for s in range(P.shape[1]):
            sums[group[i], s] += P[i, s]


def _masses_by_arrays(P: Any, group: Any, n_groups: int) -> Any:
    """The same on a device, as differences of running sums."""
    xp = namespace(P)
    order = xp.argsort(group)
    sums = xp.cumulative_sum(P[order], axis=0, dtype=xp.float64, include_initial=True)
    places = xp.searchsorted(group[order], like(np.arange(n_groups + 1), P))
    M = sums[places[1:]] - sums[places[:-1]]
    return M / xp.sum(M)


def background_of(P: Any) -> Floats:
    """Mass of the label sets that is spread over all cells, (u,)."""
    xp = namespace(P)
    mass = to_numpy(xp.sum(P, axis=0, dtype=xp.float64))
    return np.asarray(BACKGROUND * mass / mass.sum())


def best_rows(P: Any, T: Any) -> Any:
    """The row of a table with the largest gain, for every posterior; in blocks."""
    block = max(1, BLOCK // len(T))
    xp = namespace(P)

    def best(start: int) -> Any:
        return xp.argmax(P[start : start + block] @ T.T, axis=1)

    starts = range(0, max(len(P), 1), block)
    parts = in_threads(best, starts) if len(P) > block and not is_foreign(P) else [best(start) for start in starts]
    return xp.astype(xp.concat(parts), xp.int64, copy=False)
