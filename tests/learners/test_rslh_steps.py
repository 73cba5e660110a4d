"""Every step of RSLH against full matrices, and the objective after each."""

from dataclasses import replace

import numpy as np
import pytest
from dense_rslh import dense_objective, dense_reduction, dense_run, dense_similarity

from shorthash._labels import group_labels
from shorthash.data.rows import Rows
from shorthash.learners.rslh import estimator
from shorthash.learners.rslh.estimator import RSLH, solve_one_pass
from shorthash.learners.rslh.steps import Problem, solve_per_sample, start, w_step
from shorthash.learners.solvers import Ridge
from shorthash.learners.sums import GroupStatistics

PAPER = RSLH(n_bits=4, max_iter=5)
# weights under which every term matters; the smallest alpha keeps the codes moving
LIVELY = replace(PAPER, alpha=0.02, beta=0.4, gamma=2e-3, mu=0.3, lam=0.1)


@pytest.fixture(params=["single", "multi"])
def data(request, blobs, tagged):
    X, y = blobs if request.param == "single" else tagged
    X, y = X[:90] - X[:90].mean(axis=0), y[:90]
    return X, np.eye(5)[y] if y.ndim == 1 else y.astype(float), group_labels(y, owner="test")


def solve(X, groups, weights, solver, seed=0):
    problem = Problem.of(GroupStatistics.of(Rows(X, "test"), groups), weights)
    ridge = Ridge(problem.statistics.gram, weights.lam / weights.mu)
    if solver == "one-pass":
        return problem, solve_one_pass(problem, seed, ridge)
    return problem, solve_per_sample(problem, seed, ridge, Rows(X, "test"), groups.ids)


VARIANTS = [
    {"similarity": s, "constraint": c, "shared_projection": p}
    for s in ("S", "G")
    for c in ("I", "nI")
    for p in (True, False)
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, v.values())))
@pytest.mark.parametrize("base", [PAPER, LIVELY], ids=["paper", "lively"])
def test_per_sample_solver_equals_full_matrices(data, base, variant, seed):
    X, Y, groups = data
    weights = replace(base, **variant, max_iter=4)
    problem, run = solve(X, groups, weights, "per-sample", seed)
    C0, W0 = start(problem, np.random.RandomState(seed))
    H, _, W, _, steps = dense_run(Y, X, C0, W0, weights, len(run.objective))
    assert np.array_equal(run.H, H)
    assert np.allclose(run.W, W, atol=1e-8)
    assert np.allclose(run.objective, steps[3::4], rtol=1e-9)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, v.values())))
@pytest.mark.parametrize("base", [PAPER, LIVELY], ids=["paper", "lively"])
def test_objective_never_rises(data, base, variant, seed):
    """Not after any single step of the full-matrix reference, which the solvers are shown to equal."""
    X, Y, groups = data
    weights = replace(base, **variant)
    problem = Problem.of(GroupStatistics.of(Rows(X, "test"), groups), weights)
    C0, W0 = start(problem, np.random.RandomState(seed))
    *_, steps = dense_run(Y, X, C0, W0, weights, 8)
    steps = np.array(steps)[1:]  # before the first B-step B = 0 breaks its constraint
    assert np.all(np.diff(steps) <= 1e-9 * steps[:-1])


def test_without_the_majorisation_the_objective_would_rise(tagged):
    """The H-step as printed drops gamma (H - R R'H); full matrices show that this is no descent."""
    X, Y = tagged[0][:60] - tagged[0][:60].mean(axis=0), tagged[1][:60].astype(float)
    S = dense_similarity(Y)
    X = X[:, :1]  # a reduction that captures little
    R = dense_reduction(S, X)
    G = S @ R
    rng = np.random.default_rng(0)
    rises = 0
    for _ in range(200):
        H = np.sign(rng.normal(size=(60, 4)))
        B = np.linalg.qr(rng.normal(size=(60, 4)))[0]
        printed = np.where(R @ G.T @ B >= 0, 1.0, -1.0)
        corrected = np.where(R @ G.T @ B + H - R @ R.T @ H >= 0, 1.0, -1.0)
        args = (np.zeros((4, 4)), np.zeros((4, 4)), np.zeros((1, 4)), R, G, 0.0, 0.0, 1.0, 0.0, 0.0)
        before = dense_objective(Y, X, H, B, *args)
        rises += dense_objective(Y, X, printed, B, *args) > before + 1e-9
        assert dense_objective(Y, X, corrected, B, *args) <= before + 1e-9
    assert rises > 0


def test_w_step_is_stationary(data, seed):
    """B'B W + alpha W Y'Y = (B + alpha H)'Y, by the gradient of J in W."""
    X, Y, groups = data
    problem = Problem.of(GroupStatistics.of(Rows(X, "test"), groups), PAPER)
    rng = np.random.default_rng(seed)
    B, H = np.linalg.qr(rng.normal(size=(90, 4)))[0], np.sign(rng.normal(size=(90, 4)))
    E = np.eye(len(groups.rows))[groups.ids]
    W, V = w_step(problem, E.T @ B, E.T @ H)
    gradient = -2 * B.T @ (Y - B @ W) - 2 * PAPER.alpha * ((H - Y @ W.T).T @ Y)
    assert np.allclose(gradient, 0, atol=1e-10)
    assert np.array_equal(V, W.T)


def test_unshared_w_step_is_two_regressions(data, seed):
    X, Y, groups = data
    problem = Problem.of(GroupStatistics.of(Rows(X, "test"), groups), replace(PAPER, shared_projection=False))
    rng = np.random.default_rng(seed)
    B, H = np.linalg.qr(rng.normal(size=(90, 4)))[0], np.sign(rng.normal(size=(90, 4)))
    E = np.eye(len(groups.rows))[groups.ids]
    W, V = w_step(problem, E.T @ B, E.T @ H)
    assert np.allclose(W, np.linalg.lstsq(B, Y, rcond=None)[0])
    assert np.allclose(V, np.linalg.lstsq(Y, H, rcond=None)[0])


@pytest.fixture
def single(blobs):
    return blobs[0] - blobs[0].mean(axis=0), group_labels(blobs[1], owner="test")


def test_authors_variant_starts_from_the_signs_of_W(single, seed):
    """Structural fact: the released code's codes are the signs of Y W0' wherever W0 is not tiny."""
    X, groups = single
    weights = replace(PAPER, alpha=7.0, gamma=1e-4, variant="authors-code", max_iter=6)
    for solver in ("one-pass", "per-sample"):
        problem, run = solve(X, groups, weights, solver, seed)
        _, W0 = start(problem, np.random.RandomState(seed))
        scores = problem.Yg @ W0.T
        firm = np.abs(scores) > 0.03
        assert firm.mean() > 0.8
        assert np.array_equal(run.codewords[firm], np.where(scores >= 0, 1, -1)[firm])


def test_codewords_never_move_with_the_published_weights(single, seed):
    """Structural fact F2: the label regression outweighs every other term, so the random start stays."""
    X, groups = single
    problem, run = solve(X, groups, PAPER, "one-pass", seed)
    C0, _ = start(problem, np.random.RandomState(seed))
    assert np.array_equal(run.codewords, C0)


def test_codewords_move_with_several_labels(tagged, seed):
    """Label sets share columns of W, so the start does not stay, and the objective falls by more than a tenth."""
    X, groups = tagged[0] - tagged[0].mean(axis=0), group_labels(tagged[1], owner="test")
    problem, run = solve(X, groups, replace(PAPER, max_iter=20), "one-pass", seed)
    C0, _ = start(problem, np.random.RandomState(seed))
    assert not np.array_equal(run.codewords, C0)
    assert run.objective[-1] < 0.9 * run.objective[0]


def test_B_is_orthonormal(data, seed):
    X, _, groups = data
    for constraint, n_bits in (("I", 4), ("nI", 4), ("I", 20)):
        weights = replace(LIVELY, constraint=constraint, n_bits=n_bits)
        problem = Problem.of(GroupStatistics.of(Rows(X, "test"), groups), weights)
        rng = np.random.RandomState(seed)
        C, W = start(problem, rng)
        P = rng.normal(size=(X.shape[1], n_bits)) if n_bits == 4 else np.zeros((X.shape[1], n_bits))
        sure, free = estimator._b_step(problem, C, W, P, rng)
        B = sure if free is None else estimator._join(problem, sure, free, estimator._target(problem, C, W, P))
        dense = B.k[groups.ids] + X @ B.x
        reachable = np.linalg.matrix_rank(np.hstack([np.eye(len(groups.rows))[groups.ids], X]))
        if n_bits <= reachable:
            assert np.allclose(dense.T @ dense, problem.scale * np.eye(n_bits), atol=1e-8 * problem.scale)
