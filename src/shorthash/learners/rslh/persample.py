"""RSLH sample by sample: the readable reference, and the fall-back where the one-pass guard fails.

H and B are n x L arrays; features are read batch by batch, twice per iteration (legend: steps.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from shorthash._types import Codes, Floats
from shorthash.codes.signs import sign
from shorthash.data.rows import Rows
from shorthash.learners.rslh.steps import Problem, Run, objective, settled, start, w_step
from shorthash.learners.solvers import Ridge, polar_parts

RANK_TOLERANCE = 1e-5  # singular values of Q below this share of the largest count as 0


def solve_per_sample(problem: Problem, seed: int, p_ridge: Ridge | None, X: Rows, group_of: NDArray[np.intp]) -> Run:
    """Alternate W -> B -> H -> P (authors' variant: B -> H -> W) until H stops changing."""
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
    """B = sqrt(scale) polar(Q)  (paper, eqs. 19-20), in its determined and its free part (see onepass.py)."""
    Q = _target(problem, Et, group_of, H, W, XP)
    sure, free = polar_parts(Q, RANK_TOLERANCE)
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
