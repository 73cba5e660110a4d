"""Each convention against a loop that decides everything the way that code does."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import references
from drawing import as_lists, problems
from hypothesis import assume, given, settings

from shorthash.errors import InvalidInput
from shorthash.evaluation import CONVENTIONS, Convention, evaluate
from shorthash.evaluation.metrics import convention_rules


def rankings(problem):
    """Distances and gains of every query, and the gains in stable order."""
    codes, labels, others, other_labels = problem
    for code, label in zip(codes.tolist(), as_lists(labels), strict=True):
        distances = [references.distance(code, other) for other in others.tolist()]
        gains = [min(1, references.shared_labels(label, other)) for other in as_lists(other_labels)]
        order = sorted(range(len(gains)), key=lambda j: distances[j])
        yield distances, gains, [gains[j] for j in order]


def whole_list_or_zero(problem):
    """SDH, SSLH, RSLH: precision at every hit of the sorted database, 0 if there is none."""
    values = []
    for _, _, ranked in rankings(problem):
        hits, total = 0, 0.0
        for j, gain in enumerate(ranked, start=1):
            if gain:
                hits += 1
                total += hits / j
        values.append(total / hits if hits else 0.0)
    return np.mean(values)


def whole_list_or_nothing(problem):
    """FSSH, LFH, COSDISH: the same, over the queries that succeed."""
    values = [references.average_precision(ranked) for _, _, ranked in rankings(problem) if any(ranked)]
    return np.mean(values) if values else np.nan


def first_k_or_nothing(problem, k):
    """HashNet, DeepHash: divided by the hits among the first k, queries without a hit skipped."""
    values = []
    for _, _, ranked in rankings(problem):
        if any(ranked[:k]):
            values.append(references.average_precision(ranked, k, "retrieved"))
    return np.mean(values) if values else np.nan


def first_k_or_zero(problem, k):
    """DeepHash-pytorch: the same, divided by the number of all queries."""
    return np.mean([references.average_precision(ranked, k, "retrieved") for _, _, ranked in rankings(problem)])


def ball(problem, radius):
    """DCH: 0 for an empty ball, nothing for a ball without a hit, ties in every order."""
    values = []
    for distances, gains, _ in rankings(problem):
        inside = [j for j, d in enumerate(distances) if d <= radius]
        if not any(gains):
            continue
        if not inside:
            values.append(0.0)
        elif any(gains[j] for j in inside):
            near, hits = [distances[j] for j in inside], [gains[j] for j in inside]
            values.append(references.over_ties(near, hits, references.average_precision))
    return np.mean(values) if values else np.nan


def area(problem):
    """HABIR: trapezoids under precision by recall, pooled over pairs, up to the last but one distance."""
    pairs = [pair for distances, gains, _ in rankings(problem) for pair in zip(distances, gains, strict=True)]
    good = sum(gain for _, gain in pairs)
    points = []
    for radius in range(max(d for d, _ in pairs)):
        inside = [gain for d, gain in pairs if d <= radius]
        points.append((sum(inside) / good, sum(inside) / len(inside) if inside else 0.0))
    if points and points[0][0] > 0:
        points.insert(0, (0.0, points[0][1]))
    kept = [p for i, p in enumerate(points) if i == 0 or p[0] != points[i - 1][0]]
    return sum(0.5 * (b[0] - a[0]) * (a[1] + b[1]) for a, b in pairwise(kept))


@settings(max_examples=30)
@given(problems())
def test_sdh_scores_zero_without_relevant_items(problem):
    assert evaluate(*problem, convention="sdh").headline == pytest.approx(whole_list_or_zero(problem), abs=1e-12)


@settings(max_examples=30)
@given(problems())
def test_fssh_leaves_such_queries_out(problem):
    found = evaluate(*problem, convention="fssh").headline
    assert found == pytest.approx(whole_list_or_nothing(problem), abs=1e-12, nan_ok=True)


@settings(max_examples=30)
@given(problems())
def test_hashnet_leaves_out_queries_without_a_hit_among_the_first(problem):
    found = evaluate(*problem, convention="hashnet", k=2).headline
    assert found == pytest.approx(first_k_or_nothing(problem, 2), abs=1e-12, nan_ok=True)


@settings(max_examples=30)
@given(problems())
def test_deephash_counts_them_as_zero(problem):
    assert evaluate(*problem, convention="deephash", k=2).headline == pytest.approx(
        first_k_or_zero(problem, 2), abs=1e-12
    )


@settings(max_examples=30)
@given(problems())
def test_dch_ranks_inside_the_ball(problem):
    found = evaluate(*problem, convention="dch").headline
    assert found == pytest.approx(ball(problem, 2), abs=1e-12, nan_ok=True)


@settings(max_examples=30)
@given(problems())
def test_habir_is_an_area_over_pooled_pairs(problem):
    assume(any(any(gains) for _, gains, _ in rankings(problem)))
    assert evaluate(*problem, convention="habir").headline == pytest.approx(area(problem), abs=1e-12)


def test_the_conventions_differ_on_one_set_of_codes():
    rng = np.random.default_rng(0)
    codes, labels = np.where(rng.random((60, 4)) < 0.5, 1, -1), rng.integers(0, 4, 60)
    labels[0] = 9  # a query without relevant items
    found = {
        name: evaluate(codes[:20], labels[:20], codes[20:], labels[20:], convention=name, k=3).headline
        for name in CONVENTIONS
    }
    assert len({round(value, 9) for value in found.values()}) == len(CONVENTIONS)


def test_a_convention_of_your_own():
    own = replace(CONVENTIONS["shorthash"], name="own", divisor_at_radius="all")
    codes, labels = np.array([[1, 1, 1], [-1, -1, -1], [1, 1, -1]]), [0, 0, 0]
    assert evaluate(codes, labels, convention=own, radius=1).map_at_radius == pytest.approx((0.5 + 0.0 + 0.5) / 3)
    assert evaluate(codes, labels, radius=1).map_at_radius == pytest.approx((1 + 0 + 1) / 3)


def test_every_name_is_its_key():
    assert all(name == rules.name for name, rules in CONVENTIONS.items())


def test_list_lengths_are_ascending_and_distinct():
    assert convention_rules("shorthash", k=[100, 5, 5]).k == (5, 100)
    assert convention_rules("shorthash", k=[]).k == ()


def test_a_wrong_rule_in_a_convention_is_named():
    wrong = Convention("own", "map", "expected", "drop", "keep", "all", (), "")
    with pytest.raises(InvalidInput, match="'no_hit' parameter of evaluate must be one of 'drop', 'zero'"):
        convention_rules(wrong)
