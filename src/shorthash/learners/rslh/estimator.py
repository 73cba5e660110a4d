"""Reinforcing Short-Length Hashing (RSLH). X. Liu, X. Nie, Q. Dai, Y. Huang, Y. Yin, 2020.

Codes and labels are regressed on each other through one shared matrix, real-valued orthogonal codes replace
uncorrelated bits, and pairwise similarity is preserved through a reduction of S. Several runs are combined into one
code by picking balanced bits from clusters of similar bits. Every equation, as printed, as derived and as implemented:
docs/paper/rslh.md.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Codes, Floats
from shorthash._labels import LabelGroups
from shorthash.codes.signs import sign
from shorthash.data.rows import Rows
from shorthash.errors import GuardWarning, InvalidInput
from shorthash.learners.boosting import select_bits
from shorthash.learners.rslh.steps import Convergence, Problem, Run, objective, settled, solve_per_sample, start, w_step
from shorthash.learners.solvers import Ridge, sign_guard
from shorthash.learners.sums import GroupStatistics, SumHasher, Summed

EIGEN_TOLERANCE = 1e-10  # eigenvalues of Q'Q below this share of the largest count as 0


@dataclass(eq=False, repr=False)
class RSLH(SumHasher):
    r"""Reinforcing Short-Length Hashing.

    Learns real codes B, binary codes H and projections by alternation on

    .. math::
        \|Y - BW\|^2 + \alpha\|H - YW^T\|^2 + \beta\|H - B\|^2 + \gamma\|BH^TR - G\|^2
        + \mu\|B - XP\|^2 + \lambda\|P\|^2, \quad B^TB = I,\ H \in \{-1, +1\}^{n \times L}

    where

    - :math:`X` (n, d) are the features and :math:`Y` (n, c) the labels,
    - :math:`W` (L, c) regresses labels on codes and, transposed, codes on labels,
    - :math:`G = SR` is the pairwise similarity S (+1: shared label, -1: none), reduced by R,
    - :math:`P` (d, L) projects features on real codes;

    then picks L of the T L bits of T runs, and fits them to the features by ridge regression. Training needs one pass
    over the rows; the sums it keeps (``statistics_``) are the model's memory: more rows can be added (``partial_fit``,
    ``merge``) and removed (``forget``).

    With the published weights the codewords of the classes never change from their random start: the label terms
    outweigh all others. What improves the code is the choice of bits between runs. See docs/paper/rslh.md.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64.
    alpha : float, default=3
        Weight of the regression of codes on labels.
    beta : float, default=1e-2
        Weight of the agreement of binary and real codes.
    gamma : float, default=1e-5
        Weight of the pairwise similarity.
    mu : float, default=1e-5
        Weight of the agreement of real codes and projected features.
    lam : float, default=1e-6
        Ridge on P inside the alternation (its penalty is ``lam / mu``).
    similarity : {"G", "S"}, default="G"
        Reduced similarity, or S itself; neither forms an n x n matrix.
    boosting : {"mb", "ob", "positionwise", None}, default="mb"
        How bits of several runs are chosen: spectral clusters (the paper's), the most balanced (MoBoost), the most
        balanced per position, or not at all.
    n_runs : int, default=3
        Runs to choose from (T); ignored without boosting.
    init : {"random", "distinct", "balanced", "separated", "polar", "annealed"}, default="random"
        The initial codewords, which with one label per row and the published weights do not change:

        - "random": independent bits (the paper's); codewords may be equal;
        - "distinct": random, but all different if there are enough codes;
        - "balanced": every bit splits the classes in halves; the best separated of 200 draws;
        - "separated": the best separated of up to 4 000 draws of distinct codewords;
        - "polar": the alternation of polar factor and sign on the centred similarity, from class sizes alone; the best
          separated of ten;
        - "annealed": confused classes get close codes, by annealing the expected tie-aware mAP of codewords; which
          classes are confused is estimated from the sums, so no further pass over the rows is needed.

        Every run draws its own start. Bits chosen from several runs do not form the codebook of any one of them, so all
        but the first are best used with ``boosting=None``.
    ridge : float, default=1e-5
        Penalty of the final projection.
    constraint : {"I", "nI"}, default="I"
        B'B = I as in the paper, or n I, which gives B the scale of H.
    shared_projection : bool, default=True
        One W for both directions, or two matrices as in eq. 4 of the paper.
    variant : {"paper", "authors-code"}, default="paper"
        The steps as derived from the paper's objective, or in the order and form of the authors' released code.
    max_iter : int, default=6
        Maximum number of iterations; the alternation stops when codes and objective stop changing.
    solver : {"one-pass", "per-sample"}, default="one-pass"
        Both give the same codes; the second works sample by sample.
    drop_unlabelled : bool, int or str, default=False
        Drop rows without a label (None, NaN, "", an empty set, a row of zeros) instead of raising; a value such as -1
        or "unknown" also drops the rows that have it as their label.
    random_state : int, RandomState instance or None, default=None
        Seeds the random starts and the clustering.
    freeze_codewords : bool, default=False
        Whether ``partial_fit``, ``forget`` and ``merge`` keep the codewords of the first call and learn only the hash
        function, so that codes that are stored keep their meaning.

    Attributes
    ----------
    projection_ : (n_features_in, n_bits) the hash function is ``sign(X @ projection_ + intercept_)``
    intercept_ : (n_bits,) 0, or the bit itself if all classes share it
    classes_ : (c,) the classes
    label_sets_ : (u, c) the label rows that occurred; the identity for single-label data
    codewords_ : (u, n_bits) the learned code of every label set; of every class, for single-label data
    codes_ : (n_samples, n_bits) learned codes of the training rows; only after ``fit`` on all rows
    statistics_ : GroupStatistics, the sums
    objective_ : (n_iter_,) J after every iteration of the first run
    convergence_ : tuple of Convergence, one per run
    chosen_bits_ : (n_bits,) which of the ``n_runs * n_bits`` bits were chosen
    n_iter_ : int, iterations of the longest run
    n_samples_seen_ : int, rows learned from and not forgotten
    n_dropped_ : int, rows without label in the last call
    codes_changed_ : float, share of the rows before the last ``partial_fit`` whose label set got another codeword

    References
    ----------
    X. Liu, X. Nie, Q. Dai, Y. Huang, Y. Yin. Reinforcing Short-Length Hashing. arXiv:2004.11511, 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = RSLH(n_bits=4, random_state=0).fit(X, y)
    >>> hasher.transform(X).shape, hasher.codewords_.shape
    ((150, 4), (3, 4))
    """

    n_bits: int = 8
    alpha: float = 3
    beta: float = 1e-2
    gamma: float = 1e-5
    mu: float = 1e-5
    lam: float = 1e-6
    similarity: Literal["G", "S"] = "G"
    boosting: Literal["mb", "ob", "positionwise", None] = "mb"
    n_runs: int = 3
    init: Literal["random", "distinct", "balanced", "separated", "polar", "annealed"] = "random"
    ridge: float = 1e-5
    constraint: Literal["I", "nI"] = "I"
    shared_projection: bool = True
    variant: Literal["paper", "authors-code"] = "paper"
    max_iter: int = 6
    solver: Literal["one-pass", "per-sample"] = "one-pass"
    drop_unlabelled: bool | int | str = False
    random_state: int | np.random.RandomState | None = None
    freeze_codewords: bool = False

    def learn_from(self, statistics: GroupStatistics, change: Summed | None = None) -> Self:
        """Solve from new sums; with ``freeze_codewords``, only for the hash function."""
        if not self.freeze_codewords or not hasattr(self, "codewords_"):
            return super().learn_from(statistics, change)
        self._check_params()
        places = {row.tobytes(): place for place, row in enumerate(self.label_sets_)}
        unknown = [row for row in statistics.rows if row.tobytes() not in places]
        if unknown:
            names = ", ".join(repr(name) for name in self.classes_[unknown[0].astype(bool)].tolist())
            raise InvalidInput(
                f"RSLH with freeze_codewords=True has no codeword for the labels {names}, which no row had before; let "
                "the first batch have rows of every class, or learn with freeze_codewords=False."
            )
        C = self.codewords_[[places[row.tobytes()] for row in statistics.rows]]
        self.n_dropped_ = self.n_dropped_ if change is None else change.n_dropped
        self.statistics_ = statistics
        self._keep(Ridge(statistics.gram, self.ridge).solve(statistics.sums @ C), C, None)
        return self

    def _learn(self, rows: Rows | None = None, groups: LabelGroups | None = None) -> Self:
        """Solve from the statistics (and the rows, if they are available) and set every fitted attribute."""
        seen = self.statistics_
        problem = Problem.of(seen, self)
        runs, solver, rng = self._run_all(problem, rows, groups)
        chosen, codewords, H = self._choose(problem, runs, rng)
        XtH = seen.sums @ codewords if H is None or rows is None else rows.transposed_times(H)
        codes = codewords[groups.ids] if groups is not None and H is None else H
        self._keep(Ridge(seen.gram, self.ridge).solve(XtH), codewords, codes)
        self.chosen_bits_ = chosen
        self.convergence_ = tuple(Convergence.of(run, solver, self.max_iter) for run in runs)
        self.objective_ = runs[0].objective
        self.n_iter_ = max(c.n_iter for c in self.convergence_)
        if not all(run.converged for run in runs):
            self._warn_not_converged(self.max_iter, stacklevel=3)
        return self

    def _run_all(
        self, problem: Problem, rows: Rows | None, groups: LabelGroups | None
    ) -> tuple[list[Run], str, np.random.RandomState]:
        """All runs by one solver: the one-pass solver, unless another is chosen or its guard fails."""
        solver: str = self.solver
        rng = np.random.RandomState(self._seed)
        seeds = rng.randint(np.iinfo(np.int32).max, size=1 if self.boosting is None else self.n_runs)
        p_ridge = Ridge(problem.statistics.gram, self.lam / self.mu) if self.mu > 0 else None
        runs: list[Run] = []
        if solver == "one-pass" or rows is None or groups is None:
            runs, solver = [solve_one_pass(problem, int(seed), p_ridge) for seed in seeds], "one-pass"
            worst = max(run.guard for run in runs)
            if worst < 1:
                return runs, solver, rng
            act = "falls back to the per-sample solver" if rows is not None else "keeps the codes of the groups"
            hint = "" if rows is not None else " (call fit on all rows with solver='per-sample')"
            warnings.warn(
                f"The one-pass solver of RSLH cannot prove its codes for these weights (guard {worst:.3g}, should be "
                f"below 1) and {act}{hint}; a smaller beta makes the proof possible.",
                GuardWarning,
                stacklevel=5,
            )
        if rows is None or groups is None:
            return runs, solver, rng
        return [solve_per_sample(problem, int(s), p_ridge, rows, groups.ids) for s in seeds], "per-sample", rng

    def _choose(
        self, problem: Problem, runs: list[Run], rng: np.random.RandomState
    ) -> tuple[NDArray[np.intp], Codes, Codes | None]:
        """Combine the runs: chosen bits, their codewords, and their codes if samples of a group may differ."""
        C = np.hstack([run.codewords for run in runs])  # (u, T L)
        all_codes = [run.H for run in runs if run.H is not None]
        H = np.hstack(all_codes) if all_codes else None
        if self.boosting is None:
            return np.arange(self.n_bits), C, H
        if H is None:
            weighted = problem.N[:, None] * C
            gram, sums = C.T @ weighted, weighted.sum(axis=0)
        else:
            gram, sums = H.T.astype(np.float64) @ H, H.sum(axis=0, dtype=np.float64)
        chosen = select_bits(gram, sums, self.n_bits, self.boosting, rng)
        return chosen, C[:, chosen], None if H is None else H[:, chosen]


# in one pass ----------------------------------------------------------------------------------------------------------


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
    """Alternate until the codewords stop changing, with every step from sums over groups, none from the rows.

    With B kept as E Bk + X Bx and H as E C, each step of the alternation needs only N, M = X'E and K = X'X (legend:
    steps.py), so iterations, restarts and code lengths cost nothing in n. The only term dropped is ``beta X Bx`` of the
    H-step, which differs between samples of a group; the guard proves that it could not have changed a sign.

    Where Q does not have full rank (more bits than label sets, or repeated bits), the polar factor is one of many: the
    part that Q determines, plus any orthonormal completion or its negative. Codes must not depend on that choice, so
    the H-step uses the determined part only, and the completion takes the sign that suits the new codes; one of the
    two never raises J. ``solve_per_sample`` is the readable reference.
    """
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
