import numpy as np
import pytest

from shorthash.learners.boosting import STRATEGIES, select_bits


def chosen(H, n_bits, strategy, seed=0):
    H = H.astype(float)
    return select_bits(H.T @ H, H.sum(axis=0), n_bits, strategy, np.random.RandomState(seed)).tolist()


@pytest.fixture
def like_bits():
    """Six bits in three families of two (one bit and a noisy complement), the second of each better balanced."""
    rng = np.random.default_rng(0)
    H = np.empty((400, 6))
    for family in range(3):
        bit = np.where(np.arange(400) % 2 == 0, 1, -1)
        rng.shuffle(bit)
        other = -bit
        other[np.flatnonzero(other == -1)[: 20 + family]] = 1  # unbalanced
        H[:, 2 * family], H[:, 2 * family + 1] = other, bit
    return H


def test_modified_boosting_takes_the_balanced_bit_of_every_family(like_bits):
    assert chosen(like_bits, 3, "mb") == [1, 3, 5]


def test_original_boosting_takes_the_most_balanced_bits_even_if_equal():
    balanced, unbalanced = np.tile([1, -1], 10), np.ones(20)
    H = np.column_stack([unbalanced, balanced, balanced, unbalanced])
    assert chosen(H, 2, "ob") == [1, 2]


def test_modified_boosting_does_not_take_equal_bits():
    one, two = np.tile([1, -1], 10), np.tile([1, 1, -1, -1], 5)
    almost = two.copy()
    almost[0] = -1
    H = np.column_stack([one, one, -one, almost])
    assert chosen(H, 2, "mb") == [0, 3]


def test_positionwise_boosting_keeps_positions():
    balance = np.array([[3, 0, 2], [1, 1, 2]])  # two runs of three bits
    picked = select_bits(np.eye(6), balance.ravel(), 3, "positionwise", np.random.RandomState(0))
    assert picked.tolist() == [1, 2, 3]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_always_n_different_bits_even_if_all_are_equal(strategy):
    H = np.ones((10, 9))
    assert len(set(chosen(H, 3, strategy))) == 3


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_bit(strategy):
    H = np.column_stack([np.ones(8), np.tile([1, -1], 4)])
    assert chosen(H, 1, strategy) == [1]


def test_same_seed_same_bits():
    H = np.sign(np.random.default_rng(0).normal(size=(100, 24)))
    assert chosen(H, 8, "mb", seed=3) == chosen(H, 8, "mb", seed=3)
