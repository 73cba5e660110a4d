"""DCC against exhaustive search, bit by bit."""

import itertools

import numpy as np
import pytest
from dense_methods import flip_by_flip, quadratic, signs

from shorthash.learners.solvers import dcc


@pytest.fixture(params=["plain", "weighted"])
def problem(request, seed):
    rng = np.random.default_rng(seed)
    n, L = 40, 5
    A, B = (root @ root.T for root in rng.normal(size=(2, L, L)))
    H, Q = signs(rng.normal(size=(n, L))), 3 * rng.normal(size=(n, L))
    if request.param == "plain":
        return H, Q, {"A": A}, lambda i: A
    weights = rng.random(n)
    return H, Q, {"A": A, "weights": weights, "common": B}, lambda i: weights[i] * A + B


@pytest.mark.parametrize("max_sweeps", [1, 2, 10])
def test_every_bit_is_the_better_of_its_two_values(problem, max_sweeps):
    H, Q, parts, A_of_row = problem
    found = dcc(H, Q, **parts, max_sweeps=max_sweeps)
    assert found.dtype == np.int8
    assert np.array_equal(found, flip_by_flip(H, Q, A_of_row, max_sweeps))


def test_a_single_bit_equals_exhaustive_search(problem):
    H, Q, parts, A_of_row = problem
    first = {k: v[:1, :1] if v.ndim == 2 else v for k, v in parts.items()}
    found = dcc(H[:, :1], Q[:, :1], **first)
    for i in range(len(H)):
        costs = {h: quadratic(np.array([h]), A_of_row(i)[:1, :1], Q[i, :1]) for h in (-1.0, 1.0)}
        assert found[i, 0] == min(costs, key=costs.get)


def test_no_sweep_raises_the_objective(problem):
    H, Q, parts, A_of_row = problem
    values = [
        sum(quadratic(h, A_of_row(i), Q[i]) for i, h in enumerate(dcc(H, Q, **parts, max_sweeps=s).astype(float)))
        for s in range(6)
    ]
    assert np.all(np.diff(values) <= 1e-9)
    assert values[1] < values[0]


def test_what_it_returns_no_single_flip_improves_and_it_is_often_optimal(problem):
    H, Q, parts, A_of_row = problem
    found = dcc(H, Q, **parts, max_sweeps=100).astype(float)
    optimal = 0
    for i, h in enumerate(found):
        cost = quadratic(h, A_of_row(i), Q[i])
        for bit in range(len(h)):
            flipped = h * np.where(np.arange(len(h)) == bit, -1, 1)
            assert quadratic(flipped, A_of_row(i), Q[i]) >= cost - 1e-9
        every = [quadratic(np.array(c), A_of_row(i), Q[i]) for c in itertools.product([-1.0, 1.0], repeat=len(h))]
        optimal += cost <= min(every) + 1e-9
    assert optimal > len(found) / 5  # one code in 32 by chance


def test_from_zeros_a_bit_sees_only_those_before_it():
    A = np.array([[1.0, 2.0], [2.0, 1.0]])
    assert dcc(np.zeros((1, 2)), np.array([[0.5, 1.0]]), A, max_sweeps=1).tolist() == [[1, -1]]
    assert dcc(np.array([[1, 1]]), np.array([[0.5, 1.0]]), A, max_sweeps=1).tolist() == [[-1, 1]]


def test_the_start_is_left_alone():
    H = np.array([[1, 1]], dtype=np.int8)
    dcc(H, np.array([[-1.0, -1.0]]), np.eye(2))
    assert H.tolist() == [[1, 1]]
