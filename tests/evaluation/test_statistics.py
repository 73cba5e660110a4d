from itertools import product
from math import erfc, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shorthash.errors import InvalidInput
from shorthash.evaluation import compare_scores, evaluate, summarise

RUNS = [0.51, 0.53, 0.52, 0.55]


def test_summary_of_seeds():
    summary = summarise(RUNS)
    assert summary.mean == pytest.approx(0.5275)
    assert summary.std == pytest.approx(np.std(RUNS, ddof=1))
    assert min(RUNS) < summary.low < summary.mean < summary.high < max(RUNS)
    assert (summary.n, summary.confidence) == (4, 0.95)


def test_a_single_run_has_no_spread():
    summary = summarise([0.5])
    assert (summary.mean, summary.low, summary.high) == (0.5, 0.5, 0.5)
    assert np.isnan(summary.std)


def test_the_interval_covers_the_true_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for i in range(300):
        summary = summarise(rng.normal(0.5, 0.1, 40), confidence=0.9, n_resamples=300, random_state=i)
        covered += summary.low <= 0.5 <= summary.high
    assert 0.84 < covered / 300 < 0.95


def test_resampling_in_parts_equals_resampling_at_once(monkeypatch):
    whole = summarise(np.arange(50.0), n_resamples=101), compare_scores(np.arange(50.0), np.zeros(50), n_resamples=101)
    monkeypatch.setattr("shorthash.evaluation.statistics.CHUNK", 500)
    parts = summarise(np.arange(50.0), n_resamples=101), compare_scores(np.arange(50.0), np.zeros(50), n_resamples=101)
    assert whole[0] == parts[0]
    assert whole[1].low == parts[1].low


def test_the_same_seed_gives_the_same_interval():
    assert summarise(RUNS, random_state=3) == summarise(RUNS, random_state=3)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=8))
def test_p_value_of_few_pairs_tries_every_sign(differences):
    observed = abs(sum(differences))
    flips = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=len(differences))
    ]
    expected = sum(1 for value in flips if value >= observed) / len(flips)
    assert compare_scores(differences, np.zeros(len(differences)), n_resamples=10).p_value == pytest.approx(expected)


def test_p_value_of_many_pairs_is_close_to_the_normal_one():
    rng = np.random.default_rng(1)
    differences = rng.normal(0.2, 1.0, 400)
    z = differences.sum() / np.sqrt((differences**2).sum())
    expected = erfc(abs(z) / sqrt(2))
    assert compare_scores(differences, np.zeros(400), n_resamples=20_000).p_value == pytest.approx(expected, rel=0.3)


def test_swapping_the_methods_turns_the_signs():
    a, b = [0.6, 0.7, 0.9, 0.8], [0.5, 0.7, 0.6, 0.7]
    one, other = compare_scores(a, b), compare_scores(b, a)
    assert one.difference == pytest.approx(0.125)
    assert other.difference == pytest.approx(-0.125)
    assert (one.wins, one.losses, one.draws) == (other.losses, other.wins, other.draws) == (3, 0, 1)
    assert one.p_value == other.p_value == 0.25


def test_scores_are_compared_query_by_query_without_those_left_out():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 60)
    labels[0] = 9  # no relevant item anywhere
    good = np.where(np.eye(3, dtype=int)[labels % 3], 1, -1)
    bad = np.where(rng.random((60, 3)) < 0.5, 1, -1)
    first = evaluate(good[:20], labels[:20], good[20:], labels[20:])
    second = evaluate(bad[:20], labels[:20], bad[20:], labels[20:])
    result = compare_scores(first, second, score="precision_at_radius")
    assert result.n == 19
    expected = np.nanmean(first.per_query["precision_at_radius"] - second.per_query["precision_at_radius"])
    assert result.difference == pytest.approx(expected)
    better = compare_scores(first, second)
    assert better.difference > 0.3
    assert better.p_value < 0.01
    assert better.low > 0


@pytest.mark.parametrize("values", [[], [np.nan], [[0.1, 0.2]]])
def test_no_numbers_no_summary(values):
    with pytest.raises(InvalidInput, match="'values' of summarise must be one or more finite numbers"):
        summarise(values)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1, "high"])
def test_confidence_is_a_share(confidence):
    with pytest.raises(InvalidInput, match="'confidence' parameter of summarise must"):
        summarise(RUNS, confidence=confidence)


def test_comparisons_need_the_same_queries():
    with pytest.raises(InvalidInput, match="first has 2 and the second 3; evaluate both on one split"):
        compare_scores([0.1, 0.2], [0.1, 0.2, 0.3])


def test_comparisons_need_a_score_per_query():
    scores = evaluate([[1], [1]], [0, 0])
    with pytest.raises(InvalidInput, match="'score' parameter of compare_scores must be one of 'map'"):
        compare_scores(scores, scores, score="precision_at_k")


def test_resamples_are_counted():
    with pytest.raises(InvalidInput, match="'n_resamples' parameter of the bootstrap must be an int >= 1"):
        summarise(RUNS, n_resamples=0)
