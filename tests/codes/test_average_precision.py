from fractions import Fraction

import numpy as np
import pytest
from drawing import as_lists, label_sets, sign_codes
from hypothesis import given, settings
from hypothesis import strategies as st
from references import average_precision, over_ties
from references import leave_one_out_map as slow_leave_one_out

from shorthash.codes.levels import expected_average_precision, harmonic_gap, leave_one_out_map, level_precision_sum
from shorthash.codes.signs import pack
from shorthash.errors import InvalidInput


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=7))
def test_expected_average_precision_is_the_mean_over_all_tie_orders(items):
    distances, gains = [d for d, _ in items], [int(r) for _, r in items]
    total = np.array([[distances.count(t) for t in range(4)]])
    relevant = np.array([[sum(g for d, g in zip(distances, gains, strict=True) if d == t) for t in range(4)]])
    found = expected_average_precision(total, relevant)[0]
    if any(gains):
        assert found == pytest.approx(over_ties(distances, gains, average_precision), abs=1e-13)
    else:
        assert np.isnan(found)


def test_without_ties_it_is_plain_average_precision():
    relevant = np.array([[0, 1, 1, 0, 1]])
    found = expected_average_precision(np.ones_like(relevant), relevant)
    assert found == pytest.approx([(1 / 2 + 2 / 3 + 3 / 5) / 3], abs=1e-15)


def test_empty_levels_change_nothing():
    with_gaps = expected_average_precision(np.array([[0, 3, 0, 0, 2]]), np.array([[0, 1, 0, 0, 2]]))
    without = expected_average_precision(np.array([[3, 2]]), np.array([[1, 2]]))
    assert with_gaps == without


def test_six_tied_items_with_three_relevant():
    """Where the order of the rows alone would give anything from 0.383 to 1.0."""
    assert expected_average_precision(np.array([[6]]), np.array([[3]]))[0] == pytest.approx(0.645, abs=5e-4)


@pytest.mark.parametrize("start", [0, 1, 63, 64, 65, 1000, 10**6])
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 66, 500])
def test_harmonic_gap_equals_the_sum_of_fractions(start, count):
    exact = sum(Fraction(1, i) for i in range(start + 1, start + count + 1))
    assert harmonic_gap(start, count) == pytest.approx(float(exact), rel=2e-15, abs=0)


@pytest.mark.parametrize(("before", "relevant_before"), [(0, 0), (10, 4), (10**6, 1), (10**6, 10**6)])
@pytest.mark.parametrize(("total", "relevant"), [(1, 1), (70, 1), (70, 70), (5000, 37)])
def test_a_large_level_equals_its_sum_term_by_term(before, relevant_before, total, relevant):
    rho = Fraction(relevant - 1, total - 1) if total > 1 else Fraction(0)
    terms = sum(float((relevant_before + 1 + (j - 1) * rho) / (before + j)) for j in range(1, total + 1))
    found = level_precision_sum(before, relevant_before, total, relevant, total)
    assert found == pytest.approx(relevant / total * terms, rel=1e-11, abs=0)


@st.composite
def collections(draw):
    n, n_bits = draw(st.integers(1, 6)), draw(st.sampled_from([1, 2, 5, 16, 40, 64]))
    return draw(sign_codes(n, n_bits)), draw(label_sets(n, draw(st.booleans())))


@settings(max_examples=60)
@given(collections())
def test_leave_one_out_map_equals_all_tie_orders(collection):
    codes, labels = collection
    expected = slow_leave_one_out(codes.tolist(), as_lists(labels))
    found = leave_one_out_map(codes, labels)
    if expected is None:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(expected, abs=1e-12)
    assert leave_one_out_map(pack(codes), labels, n_bits=codes.shape[1]) == pytest.approx(found, nan_ok=True)


def test_the_row_itself_is_not_counted():
    codes = np.array([[1, 1], [1, 1], [-1, -1], [-1, -1]])
    assert leave_one_out_map(codes, [0, 1, 0, 1]) == pytest.approx(5 / 12)  # one wrong item first, then two tied


def test_rows_alone_in_their_class_are_no_queries():
    codes = np.array([[1, 1], [1, 1], [1, -1]])
    assert leave_one_out_map(codes, ["a", "a", "alone"]) == 1.0
    assert np.isnan(leave_one_out_map(codes, ["a", "b", "c"]))


def test_random_codes_score_the_class_prior():
    rng = np.random.default_rng(0)
    codes, y = np.where(rng.random((4000, 12)) < 0.5, 1, -1), rng.integers(0, 5, 4000)
    assert leave_one_out_map(codes, y) == pytest.approx(0.2, abs=0.01)


def test_minus_one_means_no_label():
    codes = np.array([[1, 1], [1, 1], [-1, -1], [-1, -1]])
    Y = np.array([[1, 0], [1, 1], [0, 1], [1, 0]])
    assert leave_one_out_map(codes, 2 * Y - 1) == leave_one_out_map(codes, Y)


def test_packed_codes_need_a_length():
    with pytest.raises(InvalidInput, match="leave_one_out_map needs n_bits when codes are packed"):
        leave_one_out_map(np.array([1, 2], dtype=np.uint8), [0, 1])


def test_lengths_must_agree():
    with pytest.raises(InvalidInput, match="has 2 rows and y has 3"):
        leave_one_out_map([[1], [1]], [0, 1, 0])
