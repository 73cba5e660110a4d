r"""Codes without labels: groups of rows take the place of classes, and neighbours that of equal labels.

Rows are clustered; a row belongs to clusters by :math:`p(x) = \mathrm{softmax}(-t \|x - c\|^2)`, and the relevance of
two clusters is the chance that a row of one is among the nearest of a row of the other. It is estimated from the lists
of neighbours of a sample, by maximum likelihood of :math:`\Pr(x' \text{ near } x) = p(x)' R\, p(x')`. Codebook, table
and refinement are those of EAPH with labels.

The wider neighbours count too, each a third of a near one: they cost the near ones little, and make the order of the
farther cells mean something. What has no obvious value (how soft memberships are, how many groups are annealed, or
whether the start is ITQ) is chosen by the neighbours of training rows that were held out.

Legend::

    X       (n, d)    rows, of unit length for the cosine
    P       (n, K)    memberships
    R       (K, K)    relevance between clusters
    near, wide        how many of the nearest rows count fully, and how many at all
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.optimize import brentq
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning

from shorthash._progress import shown
from shorthash._rounding import Rounded, Scored, as_double, linear, normalised
from shorthash._types import Floats, PackedCodes
from shorthash.codes.levels import expected_average_precision, level_counts
from shorthash.codes.neighbours import list_levels, nearest_rows, unit_rows
from shorthash.codes.signs import pack, unpack
from shorthash.learners.eaph.codebook import anneal_codebook, schedule
from shorthash.learners.eaph.encoding import extend
from shorthash.learners.eaph.refinement import Design, best_rows, refine_table
from shorthash.learners.itq import PCAITQ
from shorthash.learners.posteriors.folds import PosteriorModel, Posteriors, softmax

TABLE_SIZE = 1 << 21  # codes times clusters
OF_LABELS = (  # attributes of EAPH that exist only with labels
    *("classes_", "label_sets_", "label_set_ids_", "oof_rows_", "oof_posteriors_", "posterior_loss_", "disjoint_map_"),
    *("searched_map_", "kept_rows_", "n_dropped_", "_path", "_rows", "_seed"),
)
MOST_ROWS = 60_000  # a sample that is clustered, of more rows
DESIGN_ROWS = 16_384  # of these, the database for which codes are designed
LISTS = 3_000  # rows whose neighbours are looked up
HELD_OUT = 1_000  # rows by whose neighbours choices are made; a fifth, of few rows
CLUSTERS = 400
ROWS_PER_CLUSTER = 5  # at least, on average
NEAR_SHARE, WIDE_SHARE = 20, 5  # near are at most 1/20 of the rows, wide 1/5
WIDER = 10  # wide over near
WIDE_WEIGHT = 3  # one of so many wider neighbours is taken, and counts as a near one
SOFTNESS = (0.25, 0.4, 0.6)  # mean membership of a row's own cluster
GROUPS = (256, 128, 64)  # annealed; half as many and so on, where there are fewer codes
QUICK_ITER = 4  # refinements of what is only compared
FINALISTS = 2  # starts that are refined to the end
MEMBERSHIPS = 8  # of a row, in the estimate of relevance: the largest
EM_STEPS = 10
NOTHING = 1e-12


@dataclass(frozen=True)
class Memberships(PosteriorModel):
    """Softmax of the negative squared distances to the centres of clusters."""

    centers: Floats  # (K, d)
    temperature: float
    unit: bool  # whether rows are first divided by their norm

    @property
    def n_sets(self) -> int:
        """Number of clusters."""
        return len(self.centers)

    def logits(self, X: Rounded, *, exact: bool) -> Scored:
        """2 t x c - t c c, (n, K)."""
        rows = Rounded(as_double(X.values), X.error)
        t, C = self.temperature, np.asarray(self.centers, dtype=np.float64)
        rows = normalised(rows, exact=exact) if self.unit else rows
        return linear(rows, 2 * t * C.T, -t * np.einsum("ij,ij->i", C, C), exact=exact)

    def scores(self, X: NDArray[np.float32]) -> NDArray[np.float32]:
        """The same at temperature 1 for rows that are prepared, for learning."""
        C = self.centers.astype(np.float32)
        return np.asarray(2 * X @ C.T - np.einsum("ij,ij->i", C, C))


@dataclass(frozen=True)
class NeighbourCodes:
    """What is learned without labels: memberships, relevance between clusters, a table, and what was tried."""

    model: Memberships
    memberships: Posteriors  # (m, K) of the rows that codes were designed for
    relevance: Floats  # (K, K), of near neighbours alone
    design: Design
    order: NDArray[np.intp]  # which bit of the table every bit of the code repeats; -1 for a constant one
    near_map: float
    wide_map: float
    report: list[dict[str, Any]]


@dataclass(frozen=True)
class Sample:
    """Training rows by use.

    Attributes
    ----------
    rows : (m, d) the database that codes are designed for
    listed : (s,) which of them have lists, in ``lists``
    lists : (s, wide) their neighbours among ``rows``
    held : (h, d) rows held out
    held_lists : (h, wide) their neighbours among ``rows``
    near : how many of a list are near
    """

    rows: NDArray[np.float32]
    listed: NDArray[np.intp]
    lists: NDArray[np.intp]
    held: NDArray[np.float32]
    held_lists: NDArray[np.intp]
    near: int


@shown("learning codes of neighbours")
def fit_neighbours(
    X: NDArray[np.float32],
    n_rows: int,
    n_bits: int,
    rng: np.random.RandomState,
    *,
    metric: str,
    n_neighbors: int,
    table_bits: Callable[..., int],
    n_iter: int,
) -> NeighbourCodes:
    """Memberships and codes of the largest mAP by neighbours of rows that were held out.

    Parameters
    ----------
    X : (n, d) training rows, or a sample of them
    n_rows : number of all training rows
    n_bits : code length
    rng : seeds clustering, annealing and damping
    metric, n_neighbors : what the nearest rows are, and how many of ``n_rows`` count as relevant
    table_bits : bits of the table, by the numbers of rows and of clusters
    n_iter : iterations of the refinement
    """
    rows = unit_rows(X) if metric == "cosine" else X
    order = rng.permutation(len(rows))
    n_held = min(HELD_OUT, len(rows) // 5)
    kept = order[n_held:]
    sample = _sample(rows, order[:n_held], kept, n_rows, metric, n_neighbors, rng)
    centers = _clusters(rows[kept], rng)
    plain = Memberships(centers, 1.0, metric == "cosine")
    search = _Search(sample, plain, table_bits(len(sample.rows), len(centers)), rng, n_iter)
    return search.run(n_bits)


def _sample(
    X: NDArray[np.float32],
    held: NDArray[np.intp],
    kept: NDArray[np.intp],
    n_rows: int,
    metric: str,
    n_neighbors: int,
    rng: np.random.RandomState,
) -> Sample:
    """Lists of neighbours of some rows, and of those held out."""
    rows = X[kept[:DESIGN_ROWS]]
    n = len(rows)
    near = int(np.clip(round(n_neighbors * n / n_rows), 1, max(1, n // NEAR_SHARE)))
    wide = int(min(WIDER * near, max(near, n // WIDE_SHARE), n - 1))
    listed = np.sort(rng.permutation(n)[:LISTS])
    lists = nearest_rows(rows[listed], rows, wide, metric, own=listed)
    if not len(held):  # too few rows to do without any
        return Sample(rows, listed, lists, rows[listed], lists, near)
    return Sample(rows, listed, lists, X[held], nearest_rows(X[held], rows, wide, metric), near)


def _clusters(X: NDArray[np.float32], rng: np.random.RandomState, weights: Floats | None = None, n: int = 0) -> Floats:
    """Centres of clusters of rows, in mini-batches where there are many; none twice."""
    n_clusters = n or int(np.clip(len(X) // ROWS_PER_CLUSTER, 2, CLUSTERS))
    n_clusters, seed = min(n_clusters, len(X)), int(rng.randint(np.iinfo(np.int32).max))
    few = len(X) <= 4 * CLUSTERS
    means = KMeans(n_clusters, n_init=1, random_state=seed) if few else None
    means = means or MiniBatchKMeans(n_clusters, n_init=1, batch_size=4096, max_iter=30, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different rows than clusters
        means.fit(X, sample_weight=weights)
    return np.unique(np.asarray(means.cluster_centers_, dtype=np.float64), axis=0)


@dataclass(frozen=True)
class _Softened:
    """Memberships at one temperature, and what follows from them."""

    softness: float
    model: Memberships
    P: Posteriors
    near: Floats  # relevance by near neighbours
    both: Floats  # by near and wider ones


@dataclass(frozen=True)
class _Tried:
    """A table of codes and how well it retrieves neighbours of rows that were held out."""

    start: str
    soft: _Softened
    z: NDArray[np.int64]  # where the refinement began
    design: Design
    near_map: float
    wide_map: float

    @property
    def value(self) -> float:
        """Both count, whatever their size."""
        return float(np.sqrt(self.near_map * self.wide_map))


class _Search:
    """Softness first, then the start, each by quick refinements; then the whole refinement."""

    def __init__(
        self, sample: Sample, plain: Memberships, n_bits: int, rng: np.random.RandomState, n_iter: int
    ) -> None:
        self.sample, self.plain, self.n_bits, self.n_iter = sample, plain, n_bits, n_iter
        self.seed = int(rng.randint(np.iinfo(np.int32).max))
        self.scores = plain.scores(sample.rows)

    def run(self, n_bits: int) -> NeighbourCodes:
        """The best table, for codes of ``n_bits``."""
        counts = self._group_counts()
        tried = [self._quick(soft, f"{counts[0]} groups", self._annealed(soft, counts[0])) for soft in self._softened()]
        soft = max(tried, key=lambda one: one.value).soft
        starts = {f"{count} groups": self._annealed(soft, count) for count in counts[1:]}
        tried += [self._quick(soft, name, z) for name, z in (starts | self._itq()).items()]
        finalists = sorted(tried, key=lambda one: -one.value)[:FINALISTS]
        whole = [self._tried(one.soft, one.start, one.z, self.n_iter) for one in finalists]
        taken = max(*tried, *whole, key=lambda one: one.value)
        lines = [(one, min(QUICK_ITER, self.n_iter)) for one in tried] + [(one, self.n_iter) for one in whole]
        report = [
            {
                "start": one.start,
                "softness": one.soft.softness,
                "iterations": n_iter,
                "near_map": one.near_map,
                "wide_map": one.wide_map,
                "taken": one is taken,
            }
            for one, n_iter in lines
        ]
        P, design = taken.soft.P, taken.design
        order = self._extension(design, taken.soft.model, P, n_bits)
        return NeighbourCodes(
            taken.soft.model, P, taken.soft.near, design, order, taken.near_map, taken.wide_map, report
        )

    def _group_counts(self) -> list[int]:
        """Numbers of groups to anneal: no more than codes or clusters."""
        most = min(2**self.n_bits, self.plain.n_sets)
        found = [count for count in GROUPS if count <= most]
        return found if len(found) > 1 else list(dict.fromkeys(max(1, most // part) for part in (1, 2)))

    def _softened(self) -> list[_Softened]:
        """Memberships of every softness; one where all clusters are alike."""
        found: dict[float, _Softened] = {}
        for softness in SOFTNESS:
            t = temperature_of(self.scores, softness)
            if t not in found:
                P = softmax(t * self.scores)
                model = Memberships(self.plain.centers, t, self.plain.unit)
                found[t] = _Softened(softness, model, P, self._relevance(P, wide=False), self._relevance(P, wide=True))
        return list(found.values())

    def _relevance(self, P: Posteriors, *, wide: bool) -> Floats:
        """Relevance between clusters."""
        sample = self.sample
        chosen = np.arange(sample.near)
        if wide:
            chosen = np.concatenate([chosen, np.arange(sample.near, sample.lists.shape[1], WIDE_WEIGHT)])
        return estimate_relevance(P, sample.listed, sample.lists[:, chosen])

    def _annealed(self, soft: _Softened, n_groups: int) -> NDArray[np.int64]:
        """Cells of the rows: clusters are joined to groups, whose codes are annealed."""
        rng = np.random.RandomState(self.seed)
        mass = soft.P.sum(axis=0, dtype=np.float64)
        mass = np.maximum(mass / mass.sum(), NOTHING)
        C = soft.model.centers
        group = np.arange(len(C))
        if n_groups < len(C):
            joined = _clusters(C.astype(np.float32), rng, mass, n_groups)
            group = Memberships(joined, 1.0, unit=False).scores(C.astype(np.float32)).argmax(axis=1)
        n_groups = int(group.max()) + 1
        inside = np.zeros((len(C), n_groups))
        inside[np.arange(len(C)), group] = mass
        M = np.diag(inside.sum(axis=0))
        S = inside.T @ soft.both @ inside / np.maximum(inside.sum(axis=0), NOTHING)
        n_proposals, heat = schedule(M)
        cells, _ = anneal_codebook(M, S, self.n_bits, rng, n_proposals=n_proposals, heat=heat, swap=0.9)
        return np.asarray(cells[group[soft.P.argmax(axis=1)]])

    def _itq(self) -> dict[str, NDArray[np.int64]]:
        """Cells of the rows by PCA-ITQ, where there are features enough."""
        if self.n_bits > self.sample.rows.shape[1]:
            return {}
        hasher = PCAITQ(self.n_bits, random_state=self.seed).fit(self.sample.rows)
        return {"ITQ": pack(hasher.transform(self.sample.rows)).astype(np.int64)}

    def _quick(self, soft: _Softened, start: str, z: NDArray[np.int64]) -> _Tried:
        return self._tried(soft, start, z, min(QUICK_ITER, self.n_iter))

    def _tried(self, soft: _Softened, start: str, z: NDArray[np.int64], n_iter: int) -> _Tried:
        design = refine_table(soft.P, soft.both, z, self.n_bits, np.random.RandomState(self.seed), n_iter)
        near_map, wide_map = self._maps(*self._codes(design, soft.model, soft.P), self.n_bits)
        return _Tried(start, soft, z, design, near_map, wide_map)

    def _codes(self, design: Design, model: Memberships, P: Posteriors) -> tuple[PackedCodes, PackedCodes]:
        """Codes of the rows that were held out, and of the database."""
        Q = softmax(model.temperature * model.scores(self.sample.held))
        return design.cells[best_rows(Q, design.table)], design.cells[best_rows(P, design.table)]

    def _maps(self, queries: PackedCodes, items: PackedCodes, n_bits: int) -> tuple[float, float]:
        """Tie-aware mAP of the near and of all listed neighbours of the rows that were held out."""
        lists, near = self.sample.held_lists, self.sample.near
        total = level_counts(queries, items, n_bits)
        found = [list_levels(queries, items, some, n_bits) for some in (lists[:, :near], lists)]
        one, two = (float(expected_average_precision(total, relevant).mean()) for relevant in found)
        return one, two

    def _extension(self, design: Design, model: Memberships, P: Posteriors, n_bits: int) -> NDArray[np.intp]:
        """Which bits a longer code repeats: none, or all in turn, whichever finds more neighbours."""
        L = design.n_bits
        repeated: NDArray[np.intp] = np.arange(n_bits) % L
        if n_bits % L == 0:
            return repeated  # every bit equally often: the same ranking
        short = [unpack(codes, L) for codes in self._codes(design, model, P)]
        orders = (np.concatenate([np.arange(L), np.full(n_bits - L, -1)]), repeated)
        longer = [[pack(extend(codes, order)) for codes in short] for order in orders]
        values = [self._maps(queries, items, n_bits)[0] for queries, items in longer]
        return orders[1] if values[1] > values[0] else orders[0]


def temperature_of(S: NDArray[np.float32], softness: float) -> float:
    """The temperature at which the largest of ``softmax(t S)`` is ``softness`` on average, or as near as can be."""
    some = S[:: max(1, len(S) // 2000)]
    spread = float(np.mean(some.max(axis=1) - some.mean(axis=1)))
    if not spread > 0:
        return 1.0

    def excess(log_t: float) -> float:
        return float(softmax(np.exp(log_t) / spread * some).max(axis=1).mean()) - softness

    low, high = np.log(1e-2), np.log(1e4)
    if excess(low) >= 0 or excess(high) <= 0:
        low = high = low if excess(low) >= 0 else high
    return float(np.exp(low if low == high else brentq(excess, low, high, xtol=1e-3)) / spread)


def estimate_relevance(P: Posteriors, listed: NDArray[np.intp], lists: NDArray[np.intp]) -> Floats:
    """R of maximum likelihood where row j is in the list of row i with chance ``P[i] R P[j]``, symmetric, (K, K).

    Expectation maximisation, which needs only the pairs that occur.

    Parameters
    ----------
    P : (n, K) memberships
    listed : (s,) rows with lists
    lists : (s, k) rows in them
    """
    n, K = P.shape
    top = min(MEMBERSHIPS, K)
    sets = np.argpartition(-P, top - 1, axis=1)[:, :top]
    shares = np.take_along_axis(P, sets, axis=1).astype(np.float64)
    shares /= shares.sum(axis=1, keepdims=True)
    items = np.bincount(sets.ravel(), shares.ravel(), minlength=K)
    queries = np.bincount(sets[listed].ravel(), shares[listed].ravel(), minlength=K)
    chances = np.maximum(np.outer(queries, items), NOTHING)
    R = np.full((K, K), lists.shape[1] / n)
    for _ in range(EM_STEPS):
        R = _expected_pairs(R, sets, shares, listed, lists) / chances
    return np.asarray((R + R.T) / 2)


@njit(cache=True)
def _expected_pairs(
    R: Floats, sets: NDArray[np.intp], shares: Floats, listed: NDArray[np.intp], lists: NDArray[np.intp]
) -> Floats:
    """How many pairs of a row and one of its list are due to every pair of clusters, (K, K)."""
    counts, top = np.zeros(R.shape), sets.shape[1]
    part = np.empty((top, top))
    for q, i in enumerate(listed):
        for j in lists[q]:
            total = 0.0
            for a in range(top):
                for b in range(top):
                    part[a, b] = shares[i, a] * shares[j, b] * R[sets[i, a], sets[j, b]]
                    total += part[a, b]
            if total > 0.0:
                for a in range(top):
                    for b in range(top):
                        counts[sets[i, a], sets[j, b]] += part[a, b] / total
    return counts
