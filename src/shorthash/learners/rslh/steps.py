"""The model behind RSLH and what its two solvers share: W-step, similarity terms, objective.

Legend, samples as rows (the paper has them as columns)::

    code    paper         shape   is
    X       X, V, phi(A)  (n, d)  features, as the learner gets them
    Y       Y             (n, c)  labels, 0/1
    H       H             (n, L)  binary codes, -1/+1
    B       B             (n, L)  real codes, B'B = I (or n I)
    W       W             (L, c)  regression of labels on codes, Y ~ B W
    V       M, = W'       (c, L)  regression of codes on labels, H ~ Y V; V = W' if shared
    P       P             (d, L)  projection, B ~ X P
    R, G    R, G = S R    (n, k)  reduction of the similarity S (supervision.py)
    E       -             (n, u)  indicator of the groups of samples with equal label rows
    Yg      -             (u, c)  label rows of the groups, Y = E Yg
    N       -             (u,)    group sizes, E'E = diag(N)
    EtB     -             (u, L)  group sums E'B, and EtH = E'H

The objective (paper, eq. 13)::

    J = ||Y - B W||^2 + alpha ||H - Y V||^2 + beta ||H - B||^2 + gamma ||B H'R - G||^2
        + mu ||B - X P||^2 + lam ||P||^2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from shorthash._types import Codes, Floats
from shorthash.learners.codebook_starts import BLIND_STARTS, annealed_codebook, polar_codebook
from shorthash.learners.confusion import expected_confusion
from shorthash.learners.statistics import GroupStatistics
from shorthash.learners.supervision import FullSimilarity, ReducedSimilarity, Similarity

__all__ = ["Convergence", "Problem", "Run", "Weights", "objective", "settled", "start", "w_step"]

FLAT = 1e-6  # relative fall of the objective below which it has stopped falling


@dataclass(frozen=True)
class Weights:
    """The hyper-parameters of one fit."""

    n_bits: int
    alpha: float
    beta: float
    gamma: float
    mu: float
    lam: float
    ridge: float
    similarity: str
    constraint: str
    shared_projection: bool
    variant: str
    max_iter: int
    init: str = "random"


@dataclass(frozen=True)
class Problem:
    """One data set as the solvers see it: sums and similarity."""

    weights: Weights
    statistics: GroupStatistics
    Yg: Any  # (u, c) sparse
    similarity: Similarity
    label_gram: Floats  # Y'Y: (c,) its diagonal where every sample has one label, else (c, c)

    @property
    def N(self) -> Floats:
        """Group sizes."""
        return self.statistics.counts

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.statistics.n_samples

    @cached_property
    def confusion(self) -> Floats:
        """How often rows of one label set are taken for another, (u, u); from the sums."""
        return expected_confusion(self.statistics)

    @property
    def scale(self) -> float:
        """B'B = scale * I."""
        return 1.0 if self.weights.constraint == "I" else float(self.n)

    @classmethod
    def of(cls, statistics: GroupStatistics, weights: Weights) -> Problem:
        """Build the similarity and the label Gram matrix."""
        rows, counts = statistics.rows, statistics.counts
        Yg: Any = sparse.csr_array(rows.astype(np.float64))
        similarity: Similarity
        if weights.similarity == "S":
            similarity = FullSimilarity(rows, counts)
        else:
            similarity = ReducedSimilarity(rows, counts, statistics.sums)
        if (rows.sum(axis=1) == 1).all():
            label_gram = np.asarray(Yg.T @ counts)
        else:
            label_gram = (Yg.T @ (Yg * counts[:, None])).toarray()
        return cls(weights, statistics, Yg, similarity, label_gram)


@dataclass(frozen=True)
class Run:
    """What one run of a solver leaves behind."""

    codewords: Codes  # (u, L)
    H: Codes | None  # (n, L) where samples of a group may differ, else None
    W: Floats
    objective: Floats  # one value per iteration
    converged: bool
    guard: float  # largest dropped term over smallest kept one; below 1 the codes are proven (nan: not applicable)
    initial: float  # the objective at the starting point


@dataclass(frozen=True)
class Convergence:
    """When and why one run stopped.

    Attributes
    ----------
    n_iter : iterations done
    converged : whether the codes had stopped changing
    reason : the same in words
    objective : J after every iteration
    solver : "one-pass" or "per-sample"
    guard : what the one-pass solver dropped over what it kept; below 1 its codes are proven, nan for per-sample
    initial : J at the starting point; nan in models of version 0.1.0
    """

    n_iter: int
    converged: bool
    reason: str
    objective: tuple[float, ...]
    solver: str
    guard: float
    initial: float = float("nan")

    @classmethod
    def of(cls, run: Run, solver: str, max_iter: int) -> Convergence:
        """Say in words why a run stopped."""
        n_iter = len(run.objective)
        if not run.converged:
            reason = f"max_iter={max_iter} reached with codes still changing"
        elif settled(run.objective, unchanged=True):
            reason = f"codes and objective stopped changing after {n_iter} iterations"
        else:
            reason = f"max_iter={max_iter} reached with codes at rest and the objective still falling"
        return cls(n_iter, run.converged, reason, tuple(map(float, run.objective)), solver, run.guard, run.initial)


def settled(values: Sequence[float] | Floats, *, unchanged: bool) -> bool:
    """Whether the alternation may stop: codes at rest, and the objective flat over the last iteration."""
    return unchanged and len(values) > 1 and values[-2] - values[-1] <= FLAT * abs(values[-2])


def start(problem: Problem, rng: np.random.RandomState) -> tuple[Codes, Floats]:
    """First codewords (u, L) and, for the authors' variant, the W that comes before them (L, c).

    Random codewords have a random W. Others have the W that regresses them on the labels: the authors' first H-step
    then returns them, where every row has one label.
    """
    u, c = problem.Yg.shape
    init, n_bits = problem.weights.init, problem.weights.n_bits
    if init == "random":
        C = (2 * rng.randint(0, 2, size=(u, n_bits)) - 1).astype(np.int8)
        return C, rng.uniform(-0.5, 0.5, size=(n_bits, c))
    if init == "annealed":
        C = annealed_codebook(problem.statistics.rows, problem.confusion, n_bits, rng)
    elif init == "polar":
        C = polar_codebook(problem.statistics.rows, problem.N, n_bits, rng)
    else:
        C = BLIND_STARTS[init](u, n_bits, rng)
    EtH = problem.N[:, None] * C
    return C, _divide((problem.Yg.T @ EtH).T, problem.label_gram, 1.0, 0.0)


def w_step(problem: Problem, EtB: Floats, EtH: Floats) -> tuple[Floats, Floats]:
    """W = (B + alpha H)' Y (scale I + alpha Y'Y)^-1 and V = W'; unshared: two separate regressions.

    Paper: eq. 16 prints the inverse on the other factor, which is not square. Stationarity of J in W is
    B'B W + alpha W Y'Y = (B + alpha H)'Y (``test_w_step_is_stationary``).
    """
    alpha, Yg = problem.weights.alpha, problem.Yg
    if problem.weights.shared_projection:
        W = _divide((Yg.T @ (EtB + alpha * EtH)).T, problem.label_gram, alpha, problem.scale)
        return W, W.T
    W = (Yg.T @ EtB).T / problem.scale  # paper, eq. 4: W and M free of each other
    V = _divide((Yg.T @ EtH).T, problem.label_gram, 1.0, 0.0).T
    return W, V


def _divide(right: Floats, label_gram: Floats, alpha: float, shift: float) -> Floats:
    """Right (alpha Y'Y + shift I)^-1, for a diagonal or full Y'Y; classes without samples get 0."""
    if label_gram.ndim == 1:
        divisor = alpha * label_gram + shift
        return np.divide(right, divisor, out=np.zeros_like(right), where=divisor > 0)
    A = alpha * label_gram + shift * np.eye(len(label_gram))
    if shift > 0:
        return np.asarray(np.linalg.solve(A, right.T)).T
    return np.asarray(np.linalg.lstsq(A, right.T, rcond=None)[0]).T


def objective(
    problem: Problem,
    *,
    W: Floats,
    V: Floats,
    EtB: Floats,
    EtH: Floats,
    BtB: Floats,
    HtH: Floats,
    trHtB: float,
    XtB: Floats,
    P: Floats,
) -> float:
    """J, expanded into sums so that no n x c or n x n matrix is formed."""
    w, Yg, N = problem.weights, problem.Yg, problem.N
    YWt, YV = Yg @ W.T, Yg @ V  # (u, L)
    label_to_code = float(N @ np.asarray(Yg.sum(axis=1))) - 2 * np.sum(EtB * YWt) + np.sum(BtB * (W @ W.T))
    code_to_label = np.trace(HtH) - 2 * np.sum(EtH * YV) + np.sum(N[:, None] * YV**2)
    coupling = np.trace(HtH) - 2 * trHtB + np.trace(BtB)
    captured = problem.similarity.captured(EtH)
    HtRRtH = HtH if captured is None else EtH.T @ captured
    pairs = np.sum(BtB * HtRRtH) - 2 * np.sum(EtB * problem.similarity.b_term(EtH)) + problem.similarity.squared_norm()
    projection = np.trace(BtB) - 2 * np.sum(P * XtB) + np.sum(P * (problem.statistics.gram @ P))
    return float(
        label_to_code
        + w.alpha * code_to_label
        + w.beta * coupling
        + w.gamma * pairs
        + w.mu * projection
        + w.lam * np.sum(P**2)
    )
