import numpy as np
import pytest

from shorthash.learners.codebooks import CODEBOOKS, crowding, n_distinct, separation


def draw(name, n_classes, n_bits, seed=0):
    return CODEBOOKS[name](n_classes, n_bits, np.random.RandomState(seed))


SHAPES = [(2, 1), (3, 2), (10, 4), (16, 4), (10, 8), (101, 7), (100, 8), (5, 31), (7, 64), (300, 10)]


@pytest.mark.parametrize("name", CODEBOOKS)
@pytest.mark.parametrize(("n_classes", "n_bits"), SHAPES)
def test_codewords_are_distinct_signs(name, n_classes, n_bits):
    C = draw(name, n_classes, n_bits)
    assert C.shape == (n_classes, n_bits)
    assert C.dtype == np.int8
    assert set(np.unique(C)) <= {-1, 1}
    assert n_distinct(C) == n_classes
    assert np.array_equal(C, draw(name, n_classes, n_bits))


@pytest.mark.parametrize(("n_classes", "n_bits"), [*SHAPES, (20, 4), (37, 2), (5, 1)])
def test_balanced_bits_split_the_classes_in_halves(n_classes, n_bits):
    sums = draw("balanced", n_classes, n_bits).sum(axis=0, dtype=int)
    assert (np.abs(sums) == n_classes % 2).all()


@pytest.mark.parametrize("name", CODEBOOKS)
@pytest.mark.parametrize(("n_classes", "n_bits"), [(20, 4), (37, 2), (5, 1), (32, 4)])
def test_with_more_classes_than_codes_every_code_is_shared_evenly(name, n_classes, n_bits):
    _, counts = np.unique(draw(name, n_classes, n_bits), axis=0, return_counts=True)
    assert len(counts) == 2**n_bits
    assert counts.max() - counts.min() <= 1


def test_balanced_codewords_are_farther_apart_than_random_ones():
    for n_classes, n_bits in ((10, 8), (10, 16), (100, 12)):
        random = [separation(draw("random", n_classes, n_bits, s)) for s in range(20)]
        assert separation(draw("balanced", n_classes, n_bits)) >= max(random)


def test_separation_is_the_smallest_distance_and_how_often_it_occurs():
    C = np.array([[1, 1, 1], [1, 1, -1], [-1, -1, 1]])
    assert separation(C) == (1, -1)
    assert separation(C[[0, 2]]) == (2, -1)


def test_binary_is_the_number_of_the_class():
    assert draw("binary", 5, 2).tolist() == [[-1, -1], [1, -1], [-1, 1], [1, 1], [-1, -1]]


def test_crowding_is_a_sum_over_pairs(seed):
    C = np.random.default_rng(seed).choice([-1, 1], size=(4, 6, 5)).astype(np.int8)
    for book, value in zip(C, crowding(C), strict=True):
        pairs = [(book[i] != book[j]).sum() for i in range(6) for j in range(i)]
        assert value == pytest.approx(sum(0.5 ** (1.5 * d) for d in pairs), rel=1e-6)


@pytest.mark.parametrize(("n_classes", "n_bits"), [(10, 4), (10, 8), (100, 8), (10, 12)])
def test_separated_codewords_are_less_crowded_than_random_ones(n_classes, n_bits):
    random = [crowding(draw("random", n_classes, n_bits, s)) for s in range(50)]
    assert crowding(draw("separated", n_classes, n_bits)) <= min(random)
