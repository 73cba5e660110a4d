"""Every metric against every tie order, one by one."""

import numpy as np
import pytest
import references
from hypothesis import given, settings
from hypothesis import strategies as st

from shorthash.errors import InvalidInput
from shorthash.evaluation.metrics import (
    DIVISORS,
    Ranking,
    average_precision,
    gains_by_grade,
    ideal_ranking,
    list_by_distance,
    ndcg,
    precision,
    rank_by_levels,
    rank_items,
    recall,
)

N_GRADES = 3


@st.composite
def lists(draw):
    """Items as (distance, grade); at least one is relevant."""
    items = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, N_GRADES)), min_size=1, max_size=6))
    at = draw(st.integers(0, len(items)))
    return [*items[:at], (draw(st.integers(0, 3)), draw(st.integers(1, N_GRADES))), *items[at:]]


def counted(items):
    """Level counts of a list of (distance, grade)."""
    table = np.zeros((N_GRADES + 1, 1, 4), dtype=np.int64)
    for level, grade in items:
        table[grade, 0, level] += 1
    return table.sum(axis=0), table[1:]


def ranked(items, ties, gains):
    """The ranking that the library makes of a list."""
    if ties == "stable":
        order = sorted(range(len(items)), key=lambda i: items[i][0])
        return rank_items(np.array([items[i][1] for i in order]), gains)
    return rank_by_levels(*counted(items), gains, ties)


EVERY_POLICY = pytest.mark.parametrize("ties", ["expected", "best", "worst", "stable"])
CUTS = st.integers(1, 9)


@pytest.mark.parametrize("divisor", DIVISORS)
@EVERY_POLICY
@settings(max_examples=20)
@given(items=lists(), cut=CUTS)
def test_average_precision_equals_the_mean_over_tie_orders(items, ties, cut, divisor):
    ranking = ranked(items, ties, np.ones(N_GRADES))
    distances, gains = [d for d, _ in items], [min(g, 1) for _, g in items]
    expected = references.under_policy(
        distances, gains, ties, lambda order: references.average_precision(order, cut, divisor)
    )
    assert average_precision(ranking, cut, divisor)[0] == pytest.approx(expected, abs=1e-13)


@EVERY_POLICY
@settings(max_examples=20)
@given(items=lists(), cut=CUTS)
def test_precision_equals_the_mean_over_tie_orders(items, ties, cut):
    distances, gains = [d for d, _ in items], [min(g, 1) for _, g in items]
    expected = references.under_policy(distances, gains, ties, lambda order: references.precision(order, cut))
    assert precision(ranked(items, ties, np.ones(N_GRADES)), cut)[0] == pytest.approx(expected, abs=1e-13)


@EVERY_POLICY
@settings(max_examples=20)
@given(items=lists(), cut=CUTS)
def test_recall_equals_the_mean_over_tie_orders(items, ties, cut):
    distances, gains = [d for d, _ in items], [min(g, 1) for _, g in items]
    expected = references.under_policy(distances, gains, ties, lambda order: references.recall(order, cut))
    assert recall(ranked(items, ties, np.ones(N_GRADES)), cut)[0] == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("rule", ["shared", "exponential", "binary"])
@EVERY_POLICY
@settings(max_examples=20)
@given(items=lists(), cut=CUTS)
def test_ndcg_equals_the_mean_over_tie_orders(items, ties, cut, rule):
    gains = gains_by_grade(rule, N_GRADES)
    worth = {"shared": lambda g: g, "exponential": lambda g: 2**g - 1, "binary": lambda g: min(g, 1)}[rule]
    distances, values = [d for d, _ in items], [worth(g) for _, g in items]
    expected = references.under_policy(distances, values, ties, lambda order: references.ndcg(order, cut))
    found = ndcg(ranked(items, ties, gains), ideal_ranking(counted(items)[1], gains), cut)
    assert found[0] == pytest.approx(expected, abs=1e-13)


@given(lists(), st.none() | CUTS)
def test_no_tie_order_leaves_the_bounds(items, cut):
    expected, worst, best = (
        average_precision(ranked(items, ties, np.ones(N_GRADES)), cut)[0] for ties in ("expected", "worst", "best")
    )
    distances, gains = [d for d, _ in items], [min(g, 1) for _, g in items]
    orders = [references.average_precision(order, cut) for order in references.tie_orders(distances, gains)]
    assert worst == pytest.approx(min(orders), abs=1e-13)
    assert best == pytest.approx(max(orders), abs=1e-13)
    assert worst - 1e-13 <= expected <= best + 1e-13


@pytest.mark.parametrize("divisor", DIVISORS)
@pytest.mark.parametrize("before", [[], [0], [1], [1, 0, 1]])
def test_every_cut_through_every_small_tie(divisor, before):
    """All sizes and all numbers of relevant items, one by one: nothing is left to the draw."""
    for total in range(1, 6):
        for relevant in range(total + 1):
            gains = [*before, *[1] * relevant, *[0] * (total - relevant)]
            if not any(gains):
                continue
            distances = [*range(len(before)), *[len(before)] * total]
            groups = [1] * len(before) + [total]
            hits = np.array([[*before, relevant]])
            ranking = Ranking(np.array([groups]), hits, hits.astype(float))
            for cut in range(1, len(gains) + 2):
                expected = references.over_ties(
                    distances, gains, lambda order, k=cut: references.average_precision(order, k, divisor)
                )
                assert average_precision(ranking, cut, divisor)[0] == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("shown", [1, 40, 500, 999])
def test_a_cut_through_a_large_tie_equals_a_thousand_random_orders(shown):
    """The hypergeometric sum, far from sizes where all orders can be listed."""
    grades = np.array([1] * 150 + [0] * 850)
    ranking = Ranking(np.array([[10, 1000]]), np.array([[4, 150]]), np.array([[4.0, 150.0]]))
    rng, values = np.random.default_rng(0), []
    for _ in range(1000):
        order = [*rng.permutation([1] * 4 + [0] * 6), *rng.permutation(grades)]
        values.append(references.average_precision(order, 10 + shown, "retrieved"))
    found = average_precision(ranking, 10 + shown, "retrieved")[0]
    assert abs(found - np.mean(values)) < 5 * np.std(values) / np.sqrt(len(values))


def test_one_lucky_hit_is_perfect_only_for_the_retrieved_divisor():
    ranking = rank_items(np.array([1, 0, 0, 1]), np.ones(1))
    assert [average_precision(ranking, 3, divisor)[0] for divisor in DIVISORS] == [0.5, 0.5, 1.0]
    assert average_precision(ranking, 1, "possible")[0] == 1.0


def test_one_cut_per_ranking():
    ranking = Ranking(np.array([[2, 2], [2, 2]]), np.array([[1, 1], [1, 1]]), np.ones((2, 2)))
    assert recall(ranking, np.array([2, 4])).tolist() == [0.5, 1.0]
    assert precision(ranking, np.array([0, 4])).tolist() == [0.0, 0.5]


def test_nothing_relevant_is_nan_and_nothing_shown_is_zero():
    ranking = Ranking(np.array([[2], [2]]), np.array([[0], [1]]), np.array([[0.0], [1.0]]))
    assert np.isnan(average_precision(ranking)).tolist() == [True, False]
    assert np.isnan(recall(ranking, 1)).tolist() == [True, False]
    assert np.isnan(ndcg(ranking, ranking, 1)).tolist() == [True, False]
    assert precision(ranking, 1).tolist() == [0.0, 0.5]
    for divisor in DIVISORS:
        assert average_precision(ranking, 0, divisor)[1] == 0.0


def test_unknown_divisor_is_named():
    ranking = rank_items(np.array([1]), np.ones(1))
    with pytest.raises(InvalidInput, match="'divisor' parameter of average_precision must be one of 'all'"):
        average_precision(ranking, 1, "some")


def test_unknown_gain_is_named():
    with pytest.raises(
        InvalidInput, match="'gain' parameter of evaluate must be one of 'shared', 'exponential', 'binary'"
    ):
        gains_by_grade("cubic", 2)


@given(st.lists(st.integers(0, 15), min_size=1, max_size=8), st.integers(0, 15), st.integers(-1, 7))
def test_listing_is_a_stable_sort_by_distance(words, query, skipped):
    grades = np.arange(len(words))
    listed = list_by_distance(np.uint64(query), np.array(words, dtype=np.uint64), grades, 4, np.intp(skipped))
    kept = [j for j in range(len(words)) if j != skipped]
    assert listed.tolist() == sorted(kept, key=lambda j: bin(words[j] ^ query).count("1"))
