"""RSLH in one pass: every step from sums over groups, none from the rows.

With B kept as E Bk + X Bx and H as E C, each step of the alternation needs only N, M = X'E and K = X'X (legend:
steps.py), so iterations, restarts and code lengths cost nothing in n. The only term dropped is
``beta X Bx`` of the H-step, which differs between samples of a group; the guard proves that it could not have changed a
sign.

Where Q does not have full rank (more bits than label sets, or repeated bits), the polar factor is one of many: the part
that Q determines, plus any orthonormal completion or its negative. Codes must not depend on that choice, so the H-step
uses the determined part only, and the completion takes the sign that suits the new codes; one of the two never raises
J.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shorthash._types import Codes, Floats
from shorthash.codes.signs import sign
from shorthash.learners.rslh.steps import Problem, Run, objective, settled, start, w_step
from shorthash.learners.solvers import Ridge, sign_guard

EIGEN_TOLERANCE = 1e-10  # eigenvalues of Q'Q below this share of the largest count as 0


@dataclass(frozen=True)
class _Pair:
    """The n x L matrix E k + X x, never formed."""

    k: Floats  # (u, L)
    x: Floats  # (d, L)

    def times(self, right: Floats) -> _Pair:
        """(E k + X x) right."""
        return _Pair(self.k @ right, self.x @ right)

    def minus(self, other: _Pair) -> _Pair:
        """Difference of two such matrices."""
        return _Pair(self.k - other.k, self.x - other.x)


def solve_one_pass(problem: Problem, seed: int, p_ridge: Ridge | None) -> Run:
    """Alternate until the codewords stop changing; ``solve_per_sample`` is the readable reference."""
    weights = problem.weights
    rng = np.random.RandomState(seed)
    C, W = start(problem, rng)
    B = _Pair(np.zeros(C.shape), np.zeros((problem.statistics.n_features, weights.n_bits)))
    P = np.zeros_like(B.x)
    V = W.T
    authors = weights.variant == "authors-code"
    initial = _objective(problem, B, C, W, V, P)
    values: list[float] = []
    guard, converged = 0.0, False
    for _ in range(weights.max_iter):
        previous = C
        if not authors:
            W, V = w_step(problem, _group_sums(problem, B), _code_sums(problem, C))
        sure, free = _b_step(problem, C, W, P, rng)
        C, margin = _h_step(problem, C, sure, W, V)
        B = sure if free is None else _join(problem, sure, free, _target(problem, C, W, P))
        guard = max(guard, margin)
        if authors:
            W, V = w_step(problem, _group_sums(problem, B), _code_sums(problem, C))
        elif p_ridge is not None:
            P = p_ridge.solve(_x_sums(problem, B))
        values.append(_objective(problem, B, C, W, V, P))
        converged = np.array_equal(C, previous)
        if settled(values, unchanged=converged):
            break
    return Run(C, None, W, np.array(values), converged, guard, initial)


def _target(problem: Problem, C: Codes, W: Floats, P: Floats) -> _Pair:
    """Q = Y W' + beta H + gamma G R'H + mu X P (paper, below eq. 19)."""
    w = problem.weights
    k = problem.Yg @ W.T + w.beta * C + w.gamma * problem.similarity.b_term(_code_sums(problem, C))
    return _Pair(k, w.mu * P)


def _b_step(problem: Problem, C: Codes, W: Floats, P: Floats, rng: np.random.RandomState) -> tuple[_Pair, _Pair | None]:
    """B = sqrt(scale) polar(Q) (paper, eqs. 19-20): the part that Q determines, and a completion where it does not."""
    Q = _target(problem, C, W, P)
    values, vectors = np.linalg.eigh(_inner(problem, Q, Q))
    kept = values > EIGEN_TOLERANCE * values[-1]
    basis = Q.times(vectors[:, kept] / np.sqrt(values[kept]))  # orthonormal columns spanning Q
    root = np.sqrt(problem.scale)
    sure = basis.times(root * vectors[:, kept].T)
    if kept.all():
        return sure, None
    left = vectors[:, ~kept]
    return sure, _complete(problem, basis, P @ left, rng).times(root * left.T)


def _join(problem: Problem, sure: _Pair, free: _Pair, Q: _Pair) -> _Pair:
    """The two parts of B, the free one with the sign that makes tr(B'Q) larger."""
    direction = 1.0 if np.trace(_inner(problem, free, Q)) >= 0 else -1.0
    return _Pair(sure.k + direction * free.k, sure.x + direction * free.x)


def _h_step(problem: Problem, C: Codes, B: _Pair, W: Floats, V: Floats) -> tuple[Codes, float]:
    """H = sgn(alpha Y V + beta B + gamma R G'B + gamma scale (H - R R'H)), and the weight of the dropped part.

    Paper: eq. 23 drops alpha and takes ||B H'R||^2 for a constant; it is one only for R = I, and the last summand is
    the majorisation that keeps the step a descent (``test_objective_never_rises``).
    """
    w = problem.weights
    scores = w.beta * B.k + w.gamma * problem.similarity.h_term(_group_sums(problem, B))
    if w.variant == "authors-code":
        scores = scores + problem.Yg @ W.T
    else:
        scores = scores + w.alpha * (problem.Yg @ V)
        captured = problem.similarity.captured(_code_sums(problem, C))
        if captured is not None:
            scores = scores + w.gamma * problem.scale * (C - captured)
    return sign(scores), sign_guard(w.beta * problem.statistics.largest_products(B.x), scores)


def _complete(problem: Problem, basis: _Pair, z: Floats, rng: np.random.RandomState) -> _Pair:
    """Orthonormal columns near X z (random if z is 0), orthogonal to ``basis``; 0 if the features do not span it."""
    if not z.any():
        z = rng.normal(size=z.shape)
    Z = _Pair(np.zeros((len(problem.N), z.shape[1])), z)
    for _ in range(2):  # for numerical orthogonality
        Z = Z.minus(basis.times(_inner(problem, basis, Z)))
        values, vectors = np.linalg.eigh(_inner(problem, Z, Z))
        kept = values > EIGEN_TOLERANCE * max(values[-1], np.finfo(float).tiny)
        inverse = np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)
        Z = Z.times((vectors * inverse) @ vectors.T)
    return Z


def _inner(problem: Problem, A: _Pair, B: _Pair) -> Floats:
    """(E a.k + X a.x)'(E b.k + X b.x) from N, M and K."""
    N, M, K = problem.N, problem.statistics.sums, problem.statistics.gram
    return A.k.T @ (N[:, None] * B.k + M.T @ B.x) + A.x.T @ (M @ B.k + K @ B.x)


def _group_sums(problem: Problem, B: _Pair) -> Floats:
    """E'B = N Bk + M'Bx, (u, L)."""
    return problem.N[:, None] * B.k + problem.statistics.sums.T @ B.x


def _code_sums(problem: Problem, C: Codes) -> Floats:
    """E'H = N C, (u, L)."""
    return problem.N[:, None] * C


def _x_sums(problem: Problem, B: _Pair) -> Floats:
    """X'B = M Bk + K Bx, (d, L)."""
    return problem.statistics.sums @ B.k + problem.statistics.gram @ B.x


def _objective(problem: Problem, B: _Pair, C: Codes, W: Floats, V: Floats, P: Floats) -> float:
    """J of the current iterate."""
    EtB, EtH = _group_sums(problem, B), _code_sums(problem, C)
    BtB, XtB = _inner(problem, B, B), _x_sums(problem, B)
    HtH, trHtB = C.T.astype(np.float64) @ EtH, float(np.sum(C * EtB))
    return objective(problem, W=W, V=V, EtB=EtB, EtH=EtH, BtB=BtB, HtH=HtH, trHtB=trHtB, XtB=XtB, P=P)
