import numpy as np
import pytest

from shorthash.codes import code_quality, occupancy, pack
from shorthash.errors import InvalidInput

CODES = np.array([[1, 1, -1], [1, -1, -1], [1, 1, -1], [1, -1, 1]], dtype=np.int8)


def test_balance_degree_is_the_absolute_column_sum():
    assert code_quality(CODES).balance_degree.tolist() == [4, 0, 2]
    assert code_quality(CODES).imbalance == pytest.approx((4 + 0 + 2) / 3 / 4)


def test_the_papers_example_of_balance_degree():
    assert code_quality([[-1], [1], [-1], [-1]]).balance_degree.tolist() == [2]


def test_correlation_by_loops():
    quality = code_quality(CODES)
    for i in range(3):
        for j in range(3):
            assert quality.bit_correlation[i, j] == np.mean([row[i] * row[j] for row in CODES.tolist()])
    off = [abs(quality.bit_correlation[i, j]) for i in range(3) for j in range(3) if i != j]
    assert quality.mean_correlation == pytest.approx(np.mean(off))


def test_entropy_and_occupancy():
    quality = code_quality(CODES)
    assert quality.occupied.tolist() == [1, 3, 5]
    assert quality.occupancy.tolist() == [1, 2, 1]
    assert quality.entropy == pytest.approx(-(0.5 * np.log2(0.5) + 2 * 0.25 * np.log2(0.25)))


def test_classes_that_share_their_most_frequent_code_collide():
    codes = [[1, 1], [1, 1], [1, 1], [1, -1], [-1, -1]]
    quality = code_quality(codes, y=["a", "b", "b", "b", "c"])
    assert quality.class_collisions == 1  # a and b both live at [1, 1]
    assert quality.purity == pytest.approx((2 + 1 + 1) / 5)


def test_no_labels_no_collisions():
    quality = code_quality(CODES)
    assert quality.class_collisions == -1
    assert np.isnan(quality.purity)


def test_empty_codes_are_refused():
    with pytest.raises(InvalidInput, match="at least one code"):
        code_quality(np.empty((0, 4), dtype=np.int8))


def test_occupancy_counts_items_by_bucket_and_class():
    rng = np.random.default_rng(0)
    labels, codes = rng.integers(0, 3, 50), np.where(rng.random((50, 6)) < 0.5, 1, -1)
    found = occupancy(codes, labels)
    assert found.items.sum() == 50
    assert (np.diff(found.items) <= 0).all()
    packed = pack(codes)
    for code, items, by_class in zip(found.codes, found.items, found.by_class, strict=True):
        inside = labels[packed == code]
        assert items == len(inside)
        assert by_class.tolist() == [int((inside == c).sum()) for c in range(3)]


def test_occupancy_of_packed_codes_and_several_labels():
    found = occupancy(np.array([2, 2, 0], dtype=np.uint8), [[1, 1], [1, 0], [0, 1]], n_bits=2)
    assert found.codes.tolist() == [2, 0]
    assert found.items.tolist() == [2, 1]
    assert found.by_class.tolist() == [[2, 1], [0, 1]]
    with pytest.raises(InvalidInput, match="occupancy needs n_bits"):
        occupancy(np.array([2]), [0])
