from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from shorthash.data.dataset import Dataset
from shorthash.data.splits import OfficialTest
from shorthash.errors import InvalidInput

X = np.arange(12.0).reshape(4, 3)


def test_rows_and_labels_belong_together():
    data = Dataset("toy", X, ["b", "a", "b", "a"], "made up", test=[False, True, False, False])
    assert (len(data), data.n_classes, data.multilabel) == (4, 2, False)
    some = data.take([1, 3])
    assert some.X.tolist() == [[3, 4, 5], [9, 10, 11]]
    assert some.y.tolist() == ["a", "a"]
    assert some.test.tolist() == [True, False]
    assert (some.name, some.provenance) == ("toy", "made up")
    assert OfficialTest().split(data.y, data.test).query.tolist() == [1]


def test_label_sets_are_multilabel():
    data = Dataset("toy", X, [[1, 0], [1, 1], [0, 1], [0, 1]])
    assert (data.n_classes, data.multilabel, data.test) == (2, True, None)
    assert data.take([1]).y.tolist() == [[1, 1]]


def test_a_memory_map_stays_one(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert isinstance(Dataset("toy", mapped, [0, 1, 0, 1]).X, np.memmap)


def test_datasets_are_frozen():
    with pytest.raises(FrozenInstanceError, match="cannot assign"):
        Dataset("toy", X, [0, 1, 0, 1]).name = "other"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X[0], [0, 1, 0]), r"X of dataset 'toy' must have shape \(n_rows, n_features\). Got \(3,\) instead"),
        ((X, [0, 1, 0]), "y of dataset 'toy' must have one entry for each of the 4 rows of X. Got 3 instead"),
        ((X, 5), "y of dataset 'toy' must have one entry for each of the 4 rows of X. Got a single value instead"),
        ((X, [0, 1, 0, 1], "", [True]), "test of dataset 'toy' must have one entry for each of the 4 rows of X. Got 1"),
    ],
)
def test_counts_that_differ_are_named(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        Dataset("toy", *arguments)
