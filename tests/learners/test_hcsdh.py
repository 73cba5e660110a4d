"""HCSDH: its codewords and its one regression."""

import itertools

import numpy as np
import pytest
from dense_methods import ridge
from scipy.linalg import hadamard

from shorthash.errors import CollisionWarning, InvalidInput
from shorthash.learners import hcsdh
from shorthash.learners.hcsdh import HCSDH, hadamard_codewords


def distances(C):
    """Pairwise Hamming distances of the rows, by counting."""
    return [int((a != b).sum()) for a, b in itertools.combinations(C, 2)]


@pytest.mark.parametrize(("n_classes", "n_bits"), [(10, 16), (16, 16), (2, 2), (33, 64), (3, 4)])
def test_where_the_order_exists_the_codewords_are_its_rows(n_classes, n_bits):
    C = hadamard_codewords(n_classes, n_bits)
    assert np.array_equal(C, hadamard(n_bits)[:n_classes])
    assert set(distances(C)) == {n_bits // 2}


@pytest.mark.parametrize(("n_classes", "n_bits"), [(10, 5), (10, 8), (10, 12), (20, 7), (6, 3), (101, 14)])
def test_elsewhere_they_are_columns_of_a_larger_one(n_classes, n_bits):
    C = hadamard_codewords(n_classes, n_bits)
    order = 1 << max(n_classes - 1, n_bits).bit_length()
    columns = hadamard(order)[:, 1:].T.tolist()
    chosen = [next(i for i, column in enumerate(columns) if column[:n_classes] == bit) for bit in C.T.tolist()]
    assert C.shape == (n_classes, n_bits)
    assert len(chosen) == n_bits
    assert min(distances(C)) > 0


@pytest.mark.parametrize(("n_classes", "n_bits", "best"), [(16, 5, 2), (16, 7, 3), (16, 8, 4), (16, 12, 6), (8, 7, 4)])
def test_they_are_as_far_apart_as_linear_codes_can_be(n_classes, n_bits, best):
    """The best minimum distances of binary linear codes of these sizes are known."""
    assert min(distances(hadamard_codewords(n_classes, n_bits))) == best


def test_a_small_choice_of_columns_is_the_best_of_all():
    """Of all ways to choose 4 of the 7 columns of order 8, none leaves the rows less crowded."""
    H = hadamard(8)
    crowding = {
        chosen: sum(8.0 ** -int((H[i, list(chosen)] != H[0, list(chosen)]).sum()) for i in range(1, 8))
        for chosen in itertools.combinations(range(1, 8), 4)
    }
    found = tuple(hcsdh._spread_columns(8, 4))
    assert crowding[found] == pytest.approx(min(crowding.values()))


def test_transform_is_a_product_with_a_hadamard_matrix(seed):
    values = np.random.default_rng(seed).normal(size=32)
    assert np.allclose(hcsdh._walsh_hadamard(values), hadamard(32) @ values)


@pytest.mark.parametrize("n_bits", range(1, 65))
def test_any_length_tells_as_many_classes_apart_as_it_can(n_bits):
    C = hadamard_codewords(12, n_bits)
    assert len(np.unique(C, axis=0)) == min(12, 2**n_bits)


def test_the_hash_function_is_a_regression(blobs):
    X, y = blobs
    hasher = HCSDH(8, ridge=0.5).fit(X, y)
    H = hadamard(8)[y]
    assert np.array_equal(hasher.codes_, H)
    assert np.allclose(hasher.projection_[:, 1:], ridge(X, H, 0.5)[:, 1:])
    assert not hasher.projection_[:, 0].any()  # the first column of a Hadamard matrix is constant, and so is that bit
    assert hasher.intercept_.tolist() == [1, 0, 0, 0, 0, 0, 0, 0]


def test_rows_in_batches_and_back(blobs):
    X, y = blobs
    whole = HCSDH(6).fit(X, y)
    parts = HCSDH(6).partial_fit(X[:100], y[:100], classes=np.arange(5)).partial_fit(X[100:], y[100:])
    assert np.allclose(parts.projection_, whole.projection_)
    less = parts.forget(X[250:], y[250:])
    assert np.allclose(less.projection_, HCSDH(6).fit(X[:250], y[:250]).projection_)
    one, two = (HCSDH(6).partial_fit(X[s], y[s], classes=np.arange(5)) for s in (slice(0, 90), slice(90, None)))
    assert np.allclose(one.merge(two).projection_, whole.projection_)


def test_a_class_that_has_not_come_yet_keeps_its_codeword(blobs):
    X, y = blobs
    seen = y < 3
    early = HCSDH(8).partial_fit(X[seen], y[seen], classes=np.arange(5))
    assert np.array_equal(early.codewords_, hadamard(8)[:3])
    late = HCSDH(8).partial_fit(X[~seen], y[~seen], classes=np.arange(5))
    assert np.array_equal(late.codewords_, hadamard(8)[3:5])


def test_several_labels_are_refused_and_leave_no_trace(blobs, tagged):
    hasher = HCSDH(8).partial_fit(tagged[0][:50], np.eye(4, dtype=int)[np.arange(50) % 4])
    before = hasher.statistics_
    with pytest.raises(
        InvalidInput, match=r"several labels; give one label per row, or use a method for several labels"
    ):
        hasher.partial_fit(*tagged)
    assert hasher.statistics_ is before


def test_more_classes_than_codes(digits):
    with pytest.warns(CollisionWarning, match="10 classes cannot all have different codes of n_bits=3"):
        hasher = HCSDH(3).fit(*digits)
    assert len(np.unique(hasher.codewords_, axis=0)) == 8


def test_thousands_of_classes_need_no_matrix():
    C = hadamard_codewords(20_000, 16)
    assert len(np.unique(C, axis=0)) == 20_000


def test_nothing_is_drawn_from_the_global_stream(blobs):
    np.random.seed(0)
    expected = np.random.RandomState(0).rand()
    HCSDH(8).fit(*blobs)
    assert np.random.rand() == expected
