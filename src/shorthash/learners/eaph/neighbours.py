r"""Codes without labels: groups of rows take the place of classes, and neighbours that of equal labels.

The relevance of two clusters is the chance that a row of one is among the nearest of a row of the other. It is
estimated from the lists of neighbours of a sample, by maximum likelihood of :math:`\Pr(x' \text{ near } x) = p(x)' R\,
p(x')`.

The wider neighbours count too, each a third of a near one, and so do the far ones, together as much as the wider: they
cost the near ones little, and make the order of the farther cells mean something. What is chosen (``groups.py``) is
chosen by the neighbours of training rows that were held out.

Legend::

    X       (n, d)    rows, of unit length for the cosine
    P       (n, K)    memberships
    R       (K, K)    relevance between clusters
    near, wide, far   how many rows are near, near or wider, and any of the three
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Floats, PackedCodes
from shorthash._progress import shown
from shorthash.codes.levels import expected_average_precision, level_counts, list_levels
from shorthash.data.rows import nearest_rows
from shorthash.learners.eaph.filling import Filling
from shorthash.learners.eaph.groups import (
    DESIGN_ROWS,
    HELD_OUT,
    GroupCodes,
    Memberships,
    Search,
    cluster,
    estimate_relevance,
)
from shorthash.learners.posteriors.folds import Posteriors

LISTS = 3_000  # rows whose neighbours are looked up
NEAR_SHARE, WIDE_SHARE = 20, 5  # near are at most 1/20 of the rows, wide 1/5
FAR_SHARE = 10  # far are 1/10, where wide are fewer
WIDER = 10  # wide over near
FAR_WEIGHT = 1 / 3  # of the far ones in what is chosen
WIDE_WEIGHT = 3  # one of so many wider neighbours is taken, and counts as a near one


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
    if not len(held):  # too few rows to do without any
        return Sample(rows, listed, lists, rows[listed], lists, near, wide)
    return Sample(rows, listed, lists, X[held], nearest_rows(X[held], rows, far, metric), near, wide)
