from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shorthash.codes import ball_masks, ball_size, codes_within, hamming_distances, pack, ring_masks
from shorthash.errors import InvalidInput


@given(st.integers(1, 64), st.integers(0, 12), st.integers(0, 12), st.integers(0, 2**32 - 1))
def test_distances_equal_a_count_of_different_bits(n_bits, n, m, seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.choice(np.array([-1, 1], dtype=np.int8), size=(k, n_bits)) for k in (n, m))
    expected = [[sum(x != y for x, y in zip(p, q, strict=True)) for q in b] for p in a]
    assert hamming_distances(a, b).tolist() == expected
    assert hamming_distances(pack(a), pack(b), n_bits).tolist() == expected


@given(st.integers(1, 10), st.integers(0, 12))
def test_the_ball_is_every_code_within_the_radius_in_order_of_distance(n_bits, radius):
    masks, offsets = ball_masks(n_bits, radius)
    weights = [mask.bit_count() for mask in masks.tolist()]
    expected = [m for m in range(2**n_bits) if m.bit_count() <= radius]
    assert sorted(masks.tolist()) == expected
    assert len(masks) == ball_size(n_bits, radius)
    assert weights == sorted(weights)
    assert [weights.count(t) for t in range(len(offsets) - 1)] == np.diff(offsets).tolist()


def test_rings_of_64_bits_are_exact():
    expected = sorted(2**a + 2**b for a, b in combinations(range(64), 2))
    assert ring_masks(64, 2).tolist() == expected


def test_codes_within_starts_at_the_code_itself():
    codes, distances = codes_within(0b1010, n_bits=4, radius=4)
    assert codes[0] == 0b1010
    assert sorted(codes.tolist()) == list(range(16))
    assert distances.tolist() == [(c ^ 0b1010).bit_count() for c in codes.tolist()]


def test_a_ball_too_large_to_enumerate_is_refused():
    with pytest.raises(InvalidInput, match="too many to enumerate"):
        ball_masks(64, 8)


def test_packed_codes_need_their_length():
    with pytest.raises(InvalidInput, match="needs n_bits"):
        hamming_distances(np.array([1], dtype=np.uint8), np.array([1], dtype=np.uint8))
