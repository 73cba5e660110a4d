r"""Codes without labels: groups of rows take the place of classes, and neighbours that of equal labels.

The relevance of two clusters is the chance that a row of one is among the nearest of a row of the other. It is
estimated from the lists of neighbours of a sample, by maximum likelihood of :math:`\Pr(x' \text{ near } x) = p(x)' R\,
p(x')`.

The wider neighbours count too, each a third of a near one, and so do the far ones, together as much as the wider: they
cost the near ones little, and make the order of the farther cells mean something. What is chosen (``groups.py``) is
chosen by the neighbours of training rows that were held out.

Means of cells are learned last, by k-means in which a row also counts what its code gains. In turns, every row moves
to the cell of largest :math:`p(x) \cdot T_z - w \|x - c_z\|^2`, T becomes the derivative of the expected mAP at the
masses of the cells, and c their means. For Hamming distance (``search="rings"``) the weight w rises in steps, each of
which begins where the last one ended; for probes (``search="probes"``), which need no order among codes, it is so large
that this is k-means, and a cell of few rows splits one that is a bit away. The weight is chosen by how neighbours of
rows that were held out are found; for rings, neither the near nor the wider ones may be found much worse than without
means.

Legend::

    X  (n, d) rows, of unit length for the cosine     P  (n, K) memberships     R  (K, K) relevance between clusters
    z  (n,) cells     T  (Z, K) table     C  (Z, d) means of cells
    near, wide, far   how many rows are near, near or wider, and any of the three
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Counts, Floats, PackedCodes
from shorthash._progress import shown
from shorthash.codes.levels import expected_average_precision, level_counts, list_levels
from shorthash.codes.signs import packed_dtype
from shorthash.data.rows import nearest_rows
from shorthash.learners.eaph.encoding import CellCenters
from shorthash.learners.eaph.groups import (
    DESIGN_ROWS,
    HELD_OUT,
    NOTHING,
    GroupCodes,
    Memberships,
    Search,
    cluster,
    estimate_relevance,
)
from shorthash.learners.eaph.refinement import Design, background_of, best_rows, masses_of, sums_of_groups
from shorthash.learners.eaph.table import ap_table
from shorthash.learners.posteriors.folds import Posteriors, softmax

LISTS = 3_000  # rows whose neighbours are looked up
NEAR_SHARE, WIDE_SHARE = 20, 5  # near are at most 1/20 of the rows, wide 1/5
FAR_SHARE = 10  # far are 1/10, where wide are fewer
WIDER = 10  # wide over near
FAR_WEIGHT = 1 / 3  # of the far ones in what is chosen
WIDE_WEIGHT = 3  # one of so many wider neighbours is taken, and counts as a near one
WEIGHTS = (1.0, 3.0, 10.0, 100.0)  # of distances; at 1 they vary as much among codes as gains do
LARGEST = 1000.0  # the weight for probes
HAMMING_SCORES = ("near_map", "wide_map")
MOST_LOST = 0.05  # share of a score that another weight may lose
TURNS = {"rings": 5, "probes": 12}  # at every weight
MOVED = 0.5  # share of the rows that move in a turn for rings; all at once would oscillate
FEW_ROWS = 4  # a cell with no more is moved into one that has over twice as many
CANDIDATES = 256  # codes that a row is compared with while learning: those best for the mean row of its cluster
SOME = 2_000  # rows by which gains and distances are brought to one scale
NEWTON_STEPS = 30  # of length 1 at most, in standard deviations of the features
RIDGE = 1e-9
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Sample:
    """Training rows by use.

    Attributes
    ----------
    rows : (m, d) the database that codes are designed for
    listed : (s,) which of them have lists, in ``lists``
    lists : (s, far) their neighbours among ``rows``
    held : (h, d) rows held out
    held_lists : (h, far) their neighbours among ``rows``
    near, wide : how many of a list are near, and how many near or wider
    """

    rows: NDArray[np.float32]
    listed: NDArray[np.intp]
    lists: NDArray[np.intp]
    held: NDArray[np.float32]
    held_lists: NDArray[np.intp]
    near: int
    wide: int

    def relevance(self, model: Memberships, P: Posteriors) -> tuple[Floats, Floats]:  # noqa: ARG002
        """By near neighbours alone, and by all."""
        near, wider = np.arange(self.near), np.arange(self.near, self.wide, WIDE_WEIGHT)
        n_far = min(len(wider), self.lists.shape[1] - self.wide)
        far = np.linspace(self.wide, self.lists.shape[1] - 1, n_far).astype(np.intp)
        every = np.concatenate([near, wider, far])
        one, two = (estimate_relevance(P, self.listed, self.lists[:, some]) for some in (near, every))
        return one, two

    def scores(self, held: PackedCodes, items: PackedCodes, n_bits: int) -> dict[str, float]:
        """Tie-aware mAP of the near, of the near and wider, and of all listed neighbours of the rows held out."""
        total = level_counts(held, items, n_bits)
        counts, far = {"near_map": self.near, "wide_map": self.wide}, self.held_lists.shape[1]
        if far > self.wide:
            counts["far_map"] = far
        lists = {name: self.held_lists[:, :count] for name, count in counts.items()}
        found = {name: list_levels(held, items, some, n_bits) for name, some in lists.items()}
        return {name: float(expected_average_precision(total, some).mean()) for name, some in found.items()}

    def value(self, scores: dict[str, float]) -> float:
        """All count, whatever their size, the far ones less."""
        return float(scores["near_map"] * scores["wide_map"] * scores.get("far_map", 1.0) ** FAR_WEIGHT)


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
    search: str,
) -> GroupCodes:
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
    search : "rings" or "probes", how codes will be searched
    """
    plain = Memberships(np.empty((0, X.shape[1])), 1.0, metric == "cosine")
    rows = plain.prepared(X)
    order = rng.permutation(len(rows))
    n_held = min(HELD_OUT, len(rows) // 5)
    kept = order[n_held:]
    sample = draw_sample(rows, order[:n_held], kept, n_rows, metric, n_neighbors, rng)
    plain = replace(plain, centers=cluster(rows[kept], rng))
    bits = table_bits(len(sample.rows), plain.n_sets)
    finalists = 1 if search == "rings" else 0  # the order of codes that are probed matters little
    found = Search(sample, plain, bits, rng, n_iter, finalists=finalists).run(n_bits)
    return Filling(found, rows[kept], sample, search, rng).run(min(1.0, n_neighbors / n_rows))


def draw_sample(
    X: NDArray[np.float32],
    held: NDArray[np.intp],
    kept: NDArray[np.intp],
    n_rows: int,
    metric: str,
    n_neighbors: int,
    rng: np.random.RandomState,
) -> Sample:
    """Lists of neighbours of some rows, and of those held out.

    Parameters
    ----------
    X : (n, d) rows, prepared
    held, kept : which of them are held out, and which are not
    n_rows : number of all training rows
    metric, n_neighbors : what the nearest rows are, and how many of ``n_rows`` count as near
    rng : draws the rows that have lists
    """
    rows = X[kept[:DESIGN_ROWS]]
    n = len(rows)
    near = int(np.clip(round(n_neighbors * n / n_rows), 1, max(1, n // NEAR_SHARE)))
    wide = int(min(WIDER * near, max(near, n // WIDE_SHARE), n - 1))
    far = max(wide, n // FAR_SHARE)
    listed = np.sort(rng.permutation(n)[:LISTS])
    lists = nearest_rows(rows[listed], rows, far, metric, own=listed)
    if not len(held):  # too few rows to hold any out
        return Sample(rows, listed, lists, rows[listed], lists, near, wide)
    return Sample(rows, listed, lists, X[held], nearest_rows(X[held], rows, far, metric), near, wide)


# means of cells -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cells:
    """Cells in use at one weight, and the cell of every row."""

    weight: float
    codes: NDArray[np.int64]  # (m,)
    T: NDArray[np.float32]  # (m, K)
    C: NDArray[np.float32]  # (m, d)
    place: NDArray[np.intp]  # (n,)
    value: float  # expected mAP


@dataclass(frozen=True)
class _Tried:
    """Cells with their scores, and the slopes of the chances."""

    cells: _Cells
    slopes: Floats
    scores: dict[str, float]
    value: float


class Filling:
    """The search for the weight of the means.

    Parameters
    ----------
    found : memberships, relevance and table
    X : (n, d) rows, prepared; the first of them are the rows of ``goal``
    goal : lists of neighbours
    search : "rings" or "probes", what the weight is chosen for
    rng : draws the rows that move
    """

    def __init__(
        self, found: GroupCodes, X: NDArray[np.float32], goal: Sample, search: str, rng: np.random.RandomState
    ) -> None:
        self.found, self.X, self.goal, self.search, self.rng = found, X, goal, search, rng
        model = found.model
        self.P: Posteriors = softmax(model.temperature * model.scores(X))
        self.held: Posteriors = softmax(model.temperature * model.scores(goal.held))
        self.main = self.P.argmax(axis=1)
        self.background = background_of(self.P)

    def run(self, chance: float) -> GroupCodes:
        """Codes and means of the weight that serves best; ``chance`` that a row is a neighbour of another."""
        tried: list[_Tried] = []
        for cells in self._path():
            tried.append(self._tried(cells))
            if self._loses(tried[-1], tried[0]):
                break
        taken = max((one for one in tried if not self._loses(one, tried[0])), key=lambda one: one.value)
        lines = [
            {"start": "means of cells", "weight": one.cells.weight, **one.scores, "taken": one is taken}
            for one in tried
        ]
        report = [line | {"taken": False} for line in self.found.report] + lines
        return replace(self._kept(taken, chance), scores=taken.scores, report=report)

    def _loses(self, one: _Tried, plain: _Tried) -> bool:
        """Whether Hamming distance finds near or wider neighbours much worse than without means; not for probes."""
        return self.search == "rings" and any(
            one.scores[name] < (1 - MOST_LOST) * plain.scores[name] for name in HAMMING_SCORES
        )

    def _path(self) -> Iterator[_Cells]:
        """The table as it was found, then larger and larger weights."""
        design = self.found.design
        place = best_rows(self.P, design.table)
        z = design.cells[place].astype(np.int64)
        T, C, value = self._learned(z, design.n_bits)
        yield _Cells(0.0, design.cells.astype(np.int64), design.table, C[design.cells], place, design.value)
        unit = self._unit(T, C)
        if self.search == "probes":
            yield self._in_use(T, self._quantised(z, T, LARGEST * unit, design.n_bits), LARGEST * unit, value)
            return
        for weight in WEIGHTS:
            for _ in range(TURNS["rings"]):
                moved = np.flatnonzero(self.rng.random_sample(len(z)) < MOVED)
                z[moved] = self._best(moved, T, C, weight * unit)
                T, C, value = self._learned(z, design.n_bits)
            yield self._in_use(T, C, weight * unit, value)

    def _in_use(self, T: NDArray[np.float32], C: NDArray[np.float32], weight: float, value: float) -> _Cells:
        """The cells that rows get."""
        z = self._best(np.arange(len(self.X)), T, C, weight)
        codes, place = np.unique(z, return_inverse=True)
        return _Cells(weight, codes, T[codes], C[codes], place.reshape(-1), value)

    def _learned(self, z: NDArray[np.int64], n_bits: int) -> tuple[NDArray[np.float32], NDArray[np.float32], float]:
        """Table and means of all codes, and the expected mAP, where rows have the cells z.

        To the rows of a cell one is added: the mean of the cells one bit away, which is where an empty cell lies.
        """
        table = ap_table(masses_of(self.P, z, 2**n_bits), self.background, self.found.designed)
        sums, counts = sums_of_groups(self.X, z, 2**n_bits), np.bincount(z, minlength=2**n_bits)
        across = [np.arange(len(counts)) ^ (1 << bit) for bit in range(n_bits)]
        near, n_near = sum(sums[other] for other in across), sum(counts[other] for other in across)
        amid = (near + sums.sum(axis=0) / len(z)) / (n_near + 1)[:, None]
        means = (sums + amid) / (counts + 1)[:, None]
        return table.query + table.database, means.astype(np.float32), table.value

    def _quantised(
        self, z: NDArray[np.int64], T: NDArray[np.float32], weight: float, n_bits: int
    ) -> NDArray[np.float32]:
        """Means of k-means that begins with the cells z."""
        for _ in range(TURNS["probes"]):
            sums, counts = sums_of_groups(self.X, z, 2**n_bits), np.bincount(z, minlength=2**n_bits)
            means = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
            away = self.X - means[z]
            costs = np.bincount(z, np.einsum("ij,ij->i", away, away), minlength=2**n_bits)
            order = np.argsort(z, kind="stable")
            first = np.cumsum(counts) - counts
            for cell in self.rng.permutation(np.flatnonzero(counts <= FEW_ROWS)):
                across = cell ^ (1 << np.arange(n_bits))
                large = across[costs[across].argmax()]
                if counts[large] > 2 * FEW_ROWS:
                    row = order[first[large] + self.rng.randint(counts[large])]
                    means[cell] = (means[large] + self.X[row]) / 2
                    costs[large] /= 2
            z = self._best(np.arange(len(z)), T, means, weight)
        return means

    def _unit(self, T: NDArray[np.float32], C: NDArray[np.float32]) -> float:
        """The weight at which distances vary as much among the codes of a row as gains do."""
        some = slice(0, SOME)
        gains, near = self.P[some] @ T.T, _nearness(self.X[some], C)
        return float(gains.std(axis=1).mean() / max(float(near.std(axis=1).mean()), np.finfo(np.float32).tiny))

    def _best(
        self, rows: NDArray[np.intp], T: NDArray[np.float32], C: NDArray[np.float32], weight: float
    ) -> NDArray[np.int64]:
        """The best code of some rows, among those best for the mean row of their cluster."""
        order = rows[np.argsort(self.main[rows], kind="stable")]
        found = np.empty(len(self.X), dtype=np.int64)
        for part in np.split(order, np.flatnonzero(np.diff(self.main[order])) + 1):
            P, X, codes = self.P[part], self.X[part], np.arange(len(T))
            if len(T) > CANDIDATES:
                mean = P.mean(axis=0) @ T.T + weight * _nearness(X.mean(axis=0), C)
                codes = np.sort(np.argpartition(-mean, CANDIDATES)[:CANDIDATES])
            gains = P @ T[codes].T + np.float32(weight) * _nearness(X, C[codes])
            found[part] = codes[gains.argmax(axis=1)]
        return found[rows]

    def _tried(self, cells: _Cells) -> _Tried:
        """How neighbours of the rows held out are found by Hamming distance, and by the order of the means."""
        gains = self.held @ cells.T.T + np.float32(cells.weight) * _nearness(self.goal.held, cells.C)
        codes, n_bits, n = cells.codes.astype(packed_dtype(64)), self.found.design.n_bits, len(self.goal.rows)
        scores = self.goal.scores(codes[gains.argmax(axis=1)], codes[cells.place[:n]], n_bits)
        near = cells.place[self.goal.held_lists[:, : self.goal.near]]
        features = np.stack([self.goal.held @ cells.C.T, np.broadcast_to(_squares(cells.C), gains.shape)])
        counts = np.bincount(cells.place, minlength=len(codes))
        slopes = fit_slopes(features, near, counts / len(cells.place))
        chances = np.tensordot(slopes, features, axes=1)
        probed = _probed_map(chances, near, np.bincount(cells.place[:n], minlength=len(codes)))
        value = probed if self.search == "probes" else self.goal.value(scores)
        return _Tried(cells, slopes, {**scores, "probed_map": probed}, value)

    def _kept(self, taken: _Tried, chance: float) -> GroupCodes:
        """The codes to keep."""
        cells, n_bits = taken.cells, self.found.design.n_bits
        design = Design("table", n_bits, cells.codes.astype(packed_dtype(n_bits)), cells.T, lambda: [cells.value])
        shares = np.bincount(cells.place, minlength=len(cells.codes)) / len(cells.place)
        slope, norm_slope = map(float, taken.slopes)
        centers = CellCenters(cells.C, cells.weight, self.found.model.unit, slope, norm_slope, shares, chance)
        return replace(self.found, design=design, memberships=self.P, place=cells.place, centers=centers)


def fit_slopes(features: NDArray[Any], near: NDArray[np.intp], shares: Floats) -> Floats:
    """Slopes of the features of cells at which neighbours are likeliest to be where they are.

    An item of cell z is a neighbour of row i with a chance proportional to ``exp(slopes . features[:, i, z])``.

    Parameters
    ----------
    features : (f, h, m)
    near : (h, k) cells of the neighbours of every row
    shares : (m,) share of all rows in every cell
    """
    F = features.astype(np.float64)
    middle, spread = F.mean(axis=(1, 2), keepdims=True), np.maximum(F.std(axis=(1, 2)), np.finfo(np.float64).tiny)
    F = (F - middle) / spread[:, None, None]
    seen = np.take_along_axis(F, np.broadcast_to(near, (len(F), *near.shape)), axis=2).mean(axis=2)  # (f, h)
    slopes: Floats = np.zeros(len(F))

    def chances(slopes: Floats) -> tuple[Floats, float]:
        logits = np.tensordot(slopes, F, axes=1)
        top = logits.max(axis=1, keepdims=True)
        W = np.exp(logits - top) * shares
        total = W.sum(axis=1, keepdims=True)
        return W / total, float((slopes @ seen).mean() - (top + np.log(total)).mean())

    W, value = chances(slopes)
    for _ in range(NEWTON_STEPS):
        mean = np.einsum("hm,fhm->fh", W, F)
        slope = (seen - mean).mean(axis=1)
        curve = np.einsum("hm,fhm,ghm->fg", W, F, F) / len(W) - mean @ mean.T / len(W)
        step = np.linalg.solve(curve + RIDGE * np.eye(len(F)), slope)
        step *= min(1.0, 1.0 / max(float(np.abs(step).max()), NOTHING))
        while np.abs(step).max() >= TOLERANCE and not chances(slopes + step)[1] > value:
            step /= 2  # too far
        if np.abs(step).max() < TOLERANCE:
            break
        slopes = slopes + step
        W, value = chances(slopes)
    return np.asarray(slopes / spread)


def _probed_map(chances: NDArray[Any], near: NDArray[np.intp], counts: Counts) -> float:
    """Tie-aware mAP of neighbours where cells are read by descending chance."""
    order = np.argsort(-chances, axis=1, kind="stable")
    found = np.zeros(chances.shape, dtype=np.int64)
    np.add.at(found, (np.arange(len(near))[:, None], near), 1)
    return float(expected_average_precision(counts[order], np.take_along_axis(found, order, axis=1)).mean())


def _nearness(X: NDArray[np.float32], C: NDArray[np.float32]) -> NDArray[np.float32]:
    """Negative squared distances to means, up to a number per row."""
    return 2 * X @ C.T - _squares(C)


def _squares(C: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(np.einsum("ij,ij->i", C, C))
