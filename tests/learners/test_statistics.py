import numpy as np
import pytest

from shorthash._labels import group_labels
from shorthash.data.rows import Rows
from shorthash.errors import InvalidInput
from shorthash.learners.sums import GroupStatistics


def statistics(X, y, classes=None):
    return GroupStatistics.of(Rows(X, "test"), group_labels(y, owner="test", classes=classes))


def assert_same(one, two, tolerance=1e-10):
    assert np.array_equal(one.rows, two.rows)
    assert np.array_equal(one.counts, two.counts)
    assert np.allclose(one.sums, two.sums, atol=tolerance)
    assert np.allclose(one.gram, two.gram, atol=tolerance)


def test_sums_are_their_definitions(tagged):
    X, Y = tagged
    sums = statistics(X, Y)
    for g, row in enumerate(sums.rows):
        members = (row == Y).all(axis=1)
        assert sums.counts[g] == members.sum()
        assert np.allclose(sums.sums[:, g], X[members].sum(axis=0))
    assert np.allclose(sums.gram, X.T @ X)
    assert sums.largest_norm == pytest.approx(np.linalg.norm(X, axis=1).max())
    assert np.allclose(sums.mean(), X.mean(axis=0))


def test_centring_the_sums_is_centring_the_rows(blobs):
    X, y = blobs
    mean = X.mean(axis=0)
    centred = statistics(X, y).centred(mean)
    assert_same(centred, statistics(X - mean, y))
    assert centred.largest_norm >= np.linalg.norm(X - mean, axis=1).max()


def test_centring_by_any_vector(blobs):
    X, y = blobs
    shift = np.random.default_rng(0).normal(size=X.shape[1])
    assert_same(statistics(X, y).centred(shift), statistics(X - shift, y))


@pytest.mark.parametrize("data", ["blobs", "tagged"])
def test_merge_and_subtract(data, request):
    X, y = request.getfixturevalue(data)
    classes = np.unique(y) if y.ndim == 1 else None
    whole, first, rest = statistics(X, y), statistics(X[:20], y[:20], classes), statistics(X[20:], y[20:], classes)
    assert_same(first.merge(rest), whole)
    assert_same(rest.merge(first), whole)
    assert_same(whole.subtract(first), rest)


def test_groups_that_become_empty_disappear():
    X, y = np.eye(3), np.array([0, 1, 2])
    whole = statistics(X, y)
    less = whole.subtract(statistics(X[1:2], y[1:2], classes=[0, 1, 2]))
    assert less.rows.tolist() == [[1, 0, 0], [0, 0, 1]]
    assert less.n_samples == 2


def test_rows_never_seen_cannot_be_forgotten():
    X, y = np.eye(3), np.array([0, 1, 1])
    with pytest.raises(InvalidInput, match="1 more samples of one label set than were learned"):
        statistics(X, y).subtract(statistics(X[:2], np.array([0, 0]), classes=[0, 1]))


def test_different_classes_cannot_be_merged():
    X = np.eye(3)
    with pytest.raises(InvalidInput, match="same features and classes"):
        statistics(X, [0, 1, 1]).merge(statistics(X, [0, 1, 2]))
