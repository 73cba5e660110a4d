r"""Groups of rows instead of classes: memberships, and the search for the table that serves a goal best.

Rows are clustered; a row belongs to clusters by :math:`p(x) = \mathrm{softmax}(-t \|x - c\|^2)`. What is relevant to a
row is defined by a goal: its nearest rows (``neighbours.py``) or the rows it is paired with (``pairs.py``). A goal
estimates the relevance between clusters, and scores codes on rows that were held out. Codebook, table and refinement
are those of EAPH with labels; what has no obvious value (how soft memberships are, how many groups are annealed, or
whether the start is ITQ) is chosen by that score.

Legend::

    X       (n, d)    rows
    P       (n, K)    memberships
    R       (K, K)    relevance between clusters
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning

from shorthash._arrays import Features, Floats, PackedCodes, njit
from shorthash._rounding import Rounded, Scored, as_double, linear, normalised, shifted_product
from shorthash.codes.signs import pack, unpack
from shorthash.data.rows import unit_rows
from shorthash.learners.eaph.codebook import anneal_codebook, schedule
from shorthash.learners.eaph.encoding import CellCenters, extend, extension
from shorthash.learners.eaph.refinement import Design, best_rows, refine_table
from shorthash.learners.itq import PCAITQ
from shorthash.learners.posteriors.folds import PosteriorModel, Posteriors, in_threads, softmax

TABLE_SIZE = 1 << 21  # codes times clusters
MOST_ROWS = 60_000  # a sample that is clustered, of more rows
DESIGN_ROWS = 16_384  # of these, the database for which codes are designed
HELD_OUT = 1_000  # rows by which choices are made; a fifth, of few rows
CLUSTERS = 400
ROWS_PER_CLUSTER = 5  # at least, on average
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
    unit: bool  # whether rows are divided by their norm
    shift: Floats | None = None  # (d,) what is subtracted from rows before
    whitening: Floats | None = None  # (d, d) what they are multiplied with then
    bias: Floats | None = None  # (K,) added to the negative squared distances

    @property
    def n_sets(self) -> int:
        """Number of clusters."""
        return len(self.centers)

    def logits(self, X: Rounded, *, exact: bool) -> Scored:
        """T (2 x c - c c + bias), (n, K)."""
        rows = Rounded(as_double(X.values), X.error)
        if self.shift is not None and self.whitening is not None:
            rows = shifted_product(rows, self.shift, self.whitening, exact=exact)
        t, C = self.temperature, np.asarray(self.centers, dtype=np.float64)
        rows = normalised(rows, exact=exact) if self.unit else rows
        return linear(rows, 2 * t * C.T, t * self.offsets(), exact=exact)

    def offsets(self) -> Floats:
        """What logits have at a row of zeros and temperature 1, (K,)."""
        C = np.asarray(self.centers, dtype=np.float64)
        return np.asarray((0.0 if self.bias is None else self.bias) - np.einsum("ij,ij->i", C, C))

    def prepared(self, X: Features) -> NDArray[np.float32]:
        """Rows in the space of the centres, in float32, for learning."""
        rows = np.asarray(X, dtype=np.float32)
        if self.shift is not None and self.whitening is not None:
            rows = (rows - self.shift.astype(np.float32)) @ self.whitening.astype(np.float32)
        return unit_rows(rows) if self.unit else rows

    def scores(self, X: NDArray[np.float32]) -> NDArray[np.float32]:
        """Logits at temperature 1 of rows that are prepared, for learning."""
        return np.asarray(2 * X @ self.centers.astype(np.float32).T + self.offsets().astype(np.float32))


class Goal(Protocol):
    """What is relevant to a row."""

    @property
    def rows(self) -> NDArray[np.float32]:
        """The database that codes are designed for, (m, d), prepared."""

    @property
    def held(self) -> NDArray[np.float32]:
        """Rows whose codes are scored, (h, d), prepared."""

    def relevance(self, model: Memberships, P: Posteriors) -> tuple[Floats, Floats]:
        """Relevance between clusters to keep, and to design codes with; P are the memberships of ``rows``."""

    def scores(self, held: PackedCodes, items: PackedCodes, n_bits: int) -> dict[str, float]:
        """How good codes of ``held`` and of ``rows`` are, by name of the score."""

    def value(self, scores: dict[str, float]) -> float:
        """The scores as the one number by which choices are made."""


@dataclass(frozen=True)
class GroupCodes:
    """What is learned: memberships, relevance between clusters, a table, and what was tried."""

    model: Memberships
    memberships: Posteriors  # (m, K) of the rows that codes were designed for
    relevance: Floats  # (K, K)
    designed: Floats  # (K, K) relevance that codes were designed with
    design: Design
    order: NDArray[np.intp]  # which bit of the table every bit of the code repeats; -1 for a constant one
    scores: dict[str, float]
    report: list[dict[str, Any]]
    place: NDArray[np.intp] | None = None  # (m,) cells of those rows, where not by the table alone
    centers: CellCenters | None = None  # means of the cells


@dataclass(frozen=True)
class _Softened:
    """Memberships at one temperature, and what follows from them."""

    softness: float
    model: Memberships
    P: Posteriors
    kept: Floats  # relevance to keep
    designed: Floats  # relevance that codes are designed with


@dataclass(frozen=True)
class _Tried:
    """A table of codes and how it scores."""

    start: str
    soft: _Softened
    z: NDArray[np.int64]  # where the refinement began
    design: Design
    scores: dict[str, float]
    value: float


class Search:
    """Softness first, then the start, each by quick refinements; then the whole refinement."""

    def __init__(
        self,
        goal: Goal,
        plain: Memberships,
        n_bits: int,
        rng: np.random.RandomState,
        n_iter: int,
        softness: tuple[float, ...] = SOFTNESS,
        finalists: int = FINALISTS,
    ) -> None:
        self.goal, self.plain, self.n_bits, self.n_iter, self.softness = goal, plain, n_bits, n_iter, softness
        self.finalists = finalists
        self.seed = int(rng.randint(np.iinfo(np.int32).max))
        self.logits = plain.scores(goal.rows)

    def run(self, n_bits: int) -> GroupCodes:
        """The best table, for codes of ``n_bits``."""
        counts = self._group_counts()
        tried = [self._quick(soft, f"{counts[0]} groups", self._annealed(soft, counts[0])) for soft in self._softened()]
        soft = max(tried, key=lambda one: one.value).soft
        starts = {f"{count} groups": self._annealed(soft, count) for count in counts[1:]}
        tried += [self._quick(soft, name, z) for name, z in (starts | self._itq()).items()]
        finalists = sorted(tried, key=lambda one: -one.value)[: self.finalists]
        whole = [self._tried(one.soft, one.start, one.z, self.n_iter) for one in finalists]
        taken = max([*tried, *whole], key=lambda one: one.value)
        lines = [(one, min(QUICK_ITER, self.n_iter)) for one in tried] + [(one, self.n_iter) for one in whole]
        report = [
            {
                "start": one.start,
                "softness": one.soft.softness,
                "iterations": n_iter,
                **one.scores,
                "taken": one is taken,
            }
            for one, n_iter in lines
        ]
        P, design = taken.soft.P, taken.design
        order = self._extension(design, taken.soft.model, P, n_bits)
        return GroupCodes(
            taken.soft.model, P, taken.soft.kept, taken.soft.designed, design, order, taken.scores, report
        )

    def _group_counts(self) -> list[int]:
        """Numbers of groups to anneal: no more than codes or clusters."""
        most = min(2**self.n_bits, self.plain.n_sets)
        found = [count for count in GROUPS if count <= most]
        return found if len(found) > 1 else list(dict.fromkeys(max(1, most // part) for part in (1, 2)))

    def _softened(self) -> list[_Softened]:
        """Memberships of every softness; one where all clusters are alike."""
        temperatures: dict[float, float] = {}
        for softness in self.softness:
            temperatures.setdefault(temperature_of(self.logits, softness), softness)

        def softened(t: float) -> _Softened:
            P, model = softmax(t * self.logits), replace(self.plain, temperature=t)
            return _Softened(temperatures[t], model, P, *self.goal.relevance(model, P))

        return in_threads(softened, temperatures)

    def _annealed(self, soft: _Softened, n_groups: int) -> NDArray[np.int64]:
        """Cells of the rows: clusters are joined to groups, whose codes are annealed."""
        rng = np.random.RandomState(self.seed)
        mass = soft.P.sum(axis=0, dtype=np.float64)
        mass = np.maximum(mass / mass.sum(), NOTHING)
        C = soft.model.centers
        if soft.model.bias is not None:  # weights that were learned; where the members are
            C = soft.P.T.astype(np.float64) @ self.goal.rows / np.maximum(soft.P.sum(axis=0), NOTHING)[:, None]
        group = np.arange(len(C))
        if n_groups < len(C):
            joined = cluster(C.astype(np.float32), rng, mass, n_groups)
            group = Memberships(joined, 1.0, unit=False).scores(C.astype(np.float32)).argmax(axis=1)
        n_groups = int(group.max()) + 1
        inside = np.zeros((len(C), n_groups))
        inside[np.arange(len(C)), group] = mass
        M = np.diag(inside.sum(axis=0))
        S = inside.T @ soft.designed @ inside / np.maximum(inside.sum(axis=0), NOTHING)
        n_proposals, heat = schedule(M)
        cells, _ = anneal_codebook(M, S, self.n_bits, rng, n_proposals=n_proposals, heat=heat, swap=0.9)
        return np.asarray(cells[group[soft.P.argmax(axis=1)]])

    def _itq(self) -> dict[str, NDArray[np.int64]]:
        """Cells of the rows by PCA-ITQ, where there are features enough."""
        rows = self.goal.rows
        if self.n_bits > rows.shape[1]:
            return {}
        hasher = PCAITQ(self.n_bits, random_state=self.seed).fit(rows)
        return {"ITQ": pack(hasher.transform(rows)).astype(np.int64)}

    def _quick(self, soft: _Softened, start: str, z: NDArray[np.int64]) -> _Tried:
        return self._tried(soft, start, z, min(QUICK_ITER, self.n_iter))

    def _tried(self, soft: _Softened, start: str, z: NDArray[np.int64], n_iter: int) -> _Tried:
        design = refine_table(soft.P, soft.designed, z, self.n_bits, np.random.RandomState(self.seed), n_iter)
        scores = self.goal.scores(*self._codes(design, soft.model, soft.P), self.n_bits)
        return _Tried(start, soft, z, design, scores, self.goal.value(scores))

    def _codes(self, design: Design, model: Memberships, P: Posteriors) -> tuple[PackedCodes, PackedCodes]:
        """Codes of the rows that were held out, and of the database."""
        Q = softmax(model.temperature * model.scores(self.goal.held))
        return design.cells[best_rows(Q, design.table)], design.cells[best_rows(P, design.table)]

    def _extension(self, design: Design, model: Memberships, P: Posteriors, n_bits: int) -> NDArray[np.intp]:
        """Which bits a longer code repeats: none, or all in turn, whichever scores better."""
        short = [unpack(codes, design.n_bits) for codes in self._codes(design, model, P)]

        def score(order: NDArray[np.intp]) -> float:
            held, items = (pack(extend(codes, order)) for codes in short)
            return next(iter(self.goal.scores(held, items, n_bits).values()))

        return extension(design.n_bits, n_bits, score)


def cluster(X: NDArray[np.float32], rng: np.random.RandomState, weights: Floats | None = None, n: int = 0) -> Floats:
    """Centres of clusters of rows, in mini-batches where there are many; without duplicates."""
    n_clusters = n or int(np.clip(len(X) // ROWS_PER_CLUSTER, 2, CLUSTERS))
    n_clusters, seed = min(n_clusters, len(X)), int(rng.randint(np.iinfo(np.int32).max))
    few = len(X) <= 4 * CLUSTERS
    means = KMeans(n_clusters, n_init=1, random_state=seed) if few else None
    means = means or MiniBatchKMeans(n_clusters, n_init=1, batch_size=4096, max_iter=30, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different rows than clusters
        means.fit(X, sample_weight=weights)
    return np.unique(np.asarray(means.cluster_centers_, dtype=np.float64), axis=0)


def temperature_of(S: NDArray[np.float32], softness: float) -> float:
    """The temperature at which the largest of ``softmax(t S)`` is ``softness`` on average, or as close as possible."""
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


def estimate_relevance(
    P: Posteriors,
    listed: NDArray[np.intp],
    lists: NDArray[np.intp],
    weights: Floats | None = None,
    items: Floats | None = None,
) -> Floats:
    """R of maximum likelihood where row j is in the list of row i with chance ``P[i] R P[j]``, symmetric, (K, K).

    Expectation maximisation, which needs only the pairs that occur.

    Parameters
    ----------
    P : (n, K) memberships
    listed : (s,) rows with lists
    lists : (s, k) rows in them
    weights : (s,) how much every list counts; 1 if missing
    items : (K,) memberships of all rows that may be in lists, added up; those of P if missing
    """
    n, K = P.shape
    top = min(MEMBERSHIPS, K)
    sets = np.argpartition(-P, top - 1, axis=1)[:, :top]
    shares = np.take_along_axis(P, sets, axis=1).astype(np.float64)
    shares /= shares.sum(axis=1, keepdims=True)
    masses = np.bincount(sets.ravel(), shares.ravel(), minlength=K).astype(np.float64) if items is None else items
    counts = np.ones(len(listed)) if weights is None else weights
    queries = np.bincount(sets[listed].ravel(), (shares[listed] * counts[:, None]).ravel(), minlength=K)
    chances = np.maximum(np.outer(queries, masses), NOTHING)
    R = np.full((K, K), lists.shape[1] / n)
    for _ in range(EM_STEPS):
        R = _expected_pairs(R, sets, shares, listed, lists, counts) / chances
    return np.asarray((R + R.T) / 2)


@njit(cache=True, nogil=True)
def _expected_pairs(
    R: Floats,
    sets: NDArray[np.intp],
    shares: Floats,
    listed: NDArray[np.intp],
    lists: NDArray[np.intp],
    weights: Floats,
) -> Floats:
    """How many pairs of a row and one of its list are due to every pair of clusters, (K, K)."""
    counts, top = np.zeros(R.shape), sets.shape[1]
    part = np.empty(top * top)
    for q, i in enumerate(listed):
        for j in lists[q]:
            its_sets, its_shares = sets[j], shares[j]
            for a in range(top):
                row, of_row = part[a * top : (a + 1) * top], R[sets[i, a]]
                for b in range(top):
                    row[b] = shares[i, a] * its_shares[b] * of_row[its_sets[b]]
            total = 0.0
            for place in range(top * top):
                total += part[place]
            if total > 0.0:
                for place in range(top * top):
                    part[place] = weights[q] * part[place] / total
                for a in range(top):
                    row, of_row = part[a * top : (a + 1) * top], counts[sets[i, a]]
                    for b in range(top):
                        of_row[its_sets[b]] += row[b]
    return counts
