"""The model of RSLH, the steps that its two solvers share, and the solver sample by sample.

Legend, samples as rows (the paper has them as columns)::

    code    paper         shape   is
    X       X, V, phi(A)  (n, d)  features, as the learner gets them
    Y       Y             (n, c)  labels, 0/1
    H       H             (n, L)  binary codes, -1/+1
    B       B             (n, L)  real codes, B'B = I (or n I)
    W       W             (L, c)  regression of labels on codes, Y ~ B W
    V       M, = W'       (c, L)  regression of codes on labels, H ~ Y V; V = W' if shared
    P       P             (d, L)  projection, B ~ X P
    R, G    R, G = S R    (n, k)  reduction of the similarity S
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
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from shorthash._arrays import Codes, Floats
from shorthash.codes.signs import sign
from shorthash.data.rows import Rows
from shorthash.learners.codebooks import BLIND_STARTS, annealed_codebook, expected_confusion, polar_codebook
from shorthash.learners.solvers import Ridge, polar_parts, similar_sums
from shorthash.learners.sums import GroupStatistics

if TYPE_CHECKING:
    from shorthash.learners.rslh.estimator import RSLH

FLAT = 1e-6  # relative decrease of the objective below which it counts as constant
RANK_TOLERANCE = 1e-9  # singular values below this share of the first count as 0
POLAR_TOLERANCE = 1e-5  # singular values of Q below this share of the largest count as 0


class Similarity:
    """S, or its reduction G = S R, in products with group sums V = E'H and U = E'B, (u, L).

    Without M it is S itself: R = I and G = S. With M = X'E, R is the polar factor of S X (paper, eq. 12), as the
    partial isometry R = E A v'. With N the group sizes, S X = E (T M'); N^1/2 T M' = u s v' gives A = N^-1/2 u for the
    singular values that are not 0. Only R R' = E A A' E' is ever needed.

    Paper: R should satisfy R R' = I_n, which no n x k matrix does; G R' = S holds if range(S) lies in range(R).

    Parameters
    ----------
    rows : (u, c) the label rows of the groups
    counts : (u,) N
    M : (d, u) X'E, or None
    """

    def __init__(self, rows: NDArray[np.uint8], counts: Floats, M: Floats | None = None) -> None:
        self.rows = rows
        self.N = counts[:, None]
        self.A: Floats | None = None  # (u, r)
        if M is not None:
            u, s, _ = np.linalg.svd(np.sqrt(self.N) * similar_sums(rows, M.T), full_matrices=False)
            kept = s > RANK_TOLERANCE * max(s[0], np.finfo(float).tiny)
            self.A = u[:, kept] / np.sqrt(self.N)

    def b_term(self, V: Floats) -> Floats:
        """Group rows of G R' H."""
        projected = self.captured(V)
        return similar_sums(self.rows, V if projected is None else self.N * projected)

    def h_term(self, U: Floats) -> Floats:
        """Group rows of R G' B."""
        SB = similar_sums(self.rows, U)
        return SB if self.A is None else self.A @ (self.A.T @ (self.N * SB))

    def captured(self, V: Floats) -> Floats | None:
        """Group rows of R R' H = E A A' V; None if R R' is the identity."""
        return None if self.A is None else self.A @ (self.A.T @ V)

    def squared_norm(self) -> float:
        """``||G||^2``; every entry of S is -1 or +1, and R'R is the identity on r directions."""
        if self.A is None:
            return float(self.N.sum() ** 2)
        return float((self.N * similar_sums(self.rows, self.N * self.A) ** 2).sum())


@dataclass(frozen=True)
class Problem:
    """The data that the solvers need: sums and similarity."""

    weights: RSLH  # its parameters are the weights of the terms
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
        """How often rows of one label set are predicted as another, (u, u); from the sums."""
        return expected_confusion(self.statistics)

    @property
    def scale(self) -> float:
        """B'B = scale * I."""
        return 1.0 if self.weights.constraint == "I" else float(self.n)

    @classmethod
    def of(cls, statistics: GroupStatistics, weights: RSLH) -> Problem:
        """Build the similarity and the label Gram matrix."""
        rows, counts = statistics.rows, statistics.counts
        Yg: Any = sparse.csr_array(rows.astype(np.float64))
        similarity = Similarity(rows, counts, None if weights.similarity == "S" else statistics.sums)
        if (rows.sum(axis=1) == 1).all():
            label_gram = np.asarray(Yg.T @ counts)
        else:
            label_gram = (Yg.T @ (Yg * counts[:, None])).toarray()
        return cls(weights, statistics, Yg, similarity, label_gram)


@dataclass(frozen=True)
class Run:
    """The result of one run of a solver."""

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
    guard : dropped terms of the one-pass solver over kept ones; below 1 its codes are proven, nan for per-sample
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
        """The reason why a run stopped, in words."""
        n_iter = len(run.objective)
        if not run.converged:
            reason = f"max_iter={max_iter} reached with codes still changing"
        elif settled(run.objective, unchanged=True):
            reason = f"codes and objective stopped changing after {n_iter} iterations"
        else:
            reason = f"max_iter={max_iter} reached with constant codes and the objective still falling"
        return cls(n_iter, run.converged, reason, tuple(map(float, run.objective)), solver, run.guard, run.initial)


def settled(values: Sequence[float] | Floats, *, unchanged: bool) -> bool:
    """Whether the alternation may stop: codes unchanged, and the objective constant over the last iteration."""
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


# sample by sample -----------------------------------------------------------------------------------------------------


def solve_per_sample(problem: Problem, seed: int, p_ridge: Ridge | None, X: Rows, group_of: NDArray[np.intp]) -> Run:
    """Alternate W -> B -> H -> P (authors' variant: B -> H -> W) until H stops changing.

    The readable reference, and used where the guard of ``solve_one_pass`` fails. H and B are n x L arrays; features are
    read batch by batch, twice per iteration.
    """
    weights = problem.weights
    C, W = start(problem, np.random.RandomState(seed))
    u, n = len(problem.N), len(group_of)
    Et: Any = sparse.csr_array((np.ones(n), (group_of, np.arange(n))), shape=(u, n))
    H: Codes = C[group_of]
    B, XP = np.zeros(H.shape), np.zeros(H.shape)
    P = np.zeros((problem.statistics.n_features, weights.n_bits))
    V = W.T
    authors = weights.variant == "authors-code"
    initial = _objective(problem, Et, B, H, W, V, np.zeros_like(P), P)
    values: list[float] = []
    converged = False
    for _ in range(weights.max_iter):
        previous = H
        if not authors:
            W, V = w_step(problem, Et @ B, Et @ H)
        sure, free = _b_step(problem, Et, group_of, H, W, XP)
        H = _h_step(problem, Et, group_of, H, sure, W, V)
        agreement = np.sum(free * _target(problem, Et, group_of, H, W, XP))
        B = sure + free if agreement >= 0 else sure - free
        XtB = X.transposed_times(B)
        if authors:
            W, V = w_step(problem, Et @ B, Et @ H)
        elif p_ridge is not None:
            P = p_ridge.solve(XtB)  # eq. 25 with lam / mu for lam
            XP = X.times(P)
        values.append(_objective(problem, Et, B, H, W, V, XtB, P))
        converged = np.array_equal(H, previous)
        if settled(values, unchanged=converged):
            break
    return Run(sign(Et @ H), H, W, np.array(values), converged, float("nan"), initial)


def _target(problem: Problem, Et: Any, group_of: NDArray[np.intp], H: Codes, W: Floats, XP: Floats) -> Floats:
    """Q = Y W' + beta H + gamma G R'H + mu X P  (paper, below eq. 19)."""
    w = problem.weights
    by_group = problem.Yg @ W.T + w.gamma * problem.similarity.b_term(Et @ H)  # (u, L)
    return np.asarray(by_group[group_of] + w.beta * H + w.mu * XP)


def _b_step(
    problem: Problem, Et: Any, group_of: NDArray[np.intp], H: Codes, W: Floats, XP: Floats
) -> tuple[Floats, Floats]:
    """B = sqrt(scale) polar(Q)  (paper, eqs. 19-20), in its determined and its free part (see ``solve_one_pass``)."""
    Q = _target(problem, Et, group_of, H, W, XP)
    sure, free = polar_parts(Q, POLAR_TOLERANCE)
    root = np.sqrt(problem.scale)
    return root * sure, root * free


def _h_step(problem: Problem, Et: Any, group_of: NDArray[np.intp], H: Codes, B: Floats, W: Floats, V: Floats) -> Codes:
    """H = sgn(alpha Y V + beta B + gamma R G'B + gamma scale (H - R R'H))  (paper, eq. 23, corrected)."""
    w = problem.weights
    by_group = w.gamma * problem.similarity.h_term(Et @ B)
    if w.variant == "authors-code":
        return sign((by_group + problem.Yg @ W.T)[group_of] + w.beta * B)
    by_group = by_group + w.alpha * (problem.Yg @ V)
    captured = problem.similarity.captured(Et @ H)
    if captured is None:
        return sign(by_group[group_of] + w.beta * B)
    return sign((by_group - w.gamma * problem.scale * captured)[group_of] + w.beta * B + w.gamma * problem.scale * H)


def _objective(problem: Problem, Et: Any, B: Floats, H: Codes, W: Floats, V: Floats, XtB: Floats, P: Floats) -> float:
    """J of the current iterate."""
    Hf = H.astype(np.float64)
    EtB, EtH, BtB = Et @ B, Et @ Hf, B.T @ B
    HtH, trHtB = Hf.T @ Hf, float(np.sum(Hf * B))
    return objective(problem, W=W, V=V, EtB=EtB, EtH=EtH, BtB=BtB, HtH=HtH, trHtB=trHtB, XtB=XtB, P=P)
