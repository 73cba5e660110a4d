import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import DataConversionWarning

from shorthash._labels import group_label_pair, group_labels, shared_label
from shorthash.errors import InvalidInput


def test_class_labels_and_their_one_hot_matrix_give_the_same_groups():
    y = np.array(["b", "a", "c", "a"])
    Y = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 0, 0]])
    one, two = group_labels(y, owner="test"), group_labels(Y, owner="test")
    assert one.ids.tolist() == two.ids.tolist() == [1, 0, 2, 0]
    assert one.rows.tolist() == two.rows.tolist() == np.eye(3).tolist()
    assert one.classes.tolist() == ["a", "b", "c"]
    assert np.bincount(one.ids).tolist() == [2, 1, 1]


def test_signs_and_zeros_are_the_same_labels():
    Y = np.array([[1, 0, 1], [0, 1, 1], [1, 0, 1]])
    one, two = group_labels(Y, owner="test"), group_labels(2 * Y - 1, owner="test")
    assert one.rows.tolist() == two.rows.tolist() == [[1, 0, 1], [0, 1, 1]]
    assert one.ids.tolist() == [0, 1, 0]
    assert not one.single


def test_group_order_does_not_depend_on_sample_order():
    rng = np.random.default_rng(0)
    Y = (rng.random((50, 11)) < 0.4).astype(int)
    Y[:, 0] |= Y.sum(axis=1) == 0
    order = rng.permutation(50)
    one, two = group_labels(Y, owner="test"), group_labels(Y[order], owner="test")
    assert np.array_equal(one.rows, two.rows)
    assert np.array_equal(one.ids[order], two.ids)
    assert np.array_equal(one.rows[one.ids], Y)


def test_shared_label_by_loops():
    rng = np.random.default_rng(0)
    A, B = ((rng.random((k, 5)) < 0.4).astype(np.uint8) for k in (7, 9))
    expected = [[bool(np.any(a & b)) for b in B] for a in A]
    assert shared_label(A, B).tolist() == expected


def test_pairs_are_grouped_over_the_same_rows():
    queries, database = group_label_pair(["x", "z"], ["y", "z", "y"], owner="test")
    assert queries.classes.tolist() == ["x", "y", "z"]
    assert queries.ids.tolist() == [0, 2]
    assert database.ids.tolist() == [1, 2, 1]


def test_unlabelled_rows_are_refused_or_dropped_and_counted():
    Y = np.array([[1, 0], [0, 0], [0, 1]])
    with pytest.raises(InvalidInput, match=r"1 of 3 samples.*no label \(first: 1; all-zero.*drop_unlabelled=True"):
        group_labels(Y, owner="test")
    groups = group_labels(Y, owner="test", drop_unlabelled=True)
    assert groups.kept.tolist() == [True, False, True]
    assert groups.n_samples == 2


MISSING = {
    "None": ["b", None, "a", "b"],
    "objects": np.array(["b", float("nan"), "a", "b"], dtype=object),
    "empty text": np.array(["b", "", "a", "b"]),
    "text of pandas": pd.Series(["b", pd.NA, "a", "b"], dtype="string"),
    "categories": pd.Series(["b", None, "a", "b"], dtype="category"),
    "integers of pandas": pd.Series([7, pd.NA, 3, 7], dtype="Int64"),
    "NaN": [7.0, np.nan, 3.0, 7.0],
    "times": pd.to_datetime(pd.Series(["2024-02-01", None, "2023-01-01", "2024-02-01"])).astype(object),
    "sets": [{"b"}, set(), {"a"}, ["b", None]],
    "matrix with missing rows": [[0, 1], [np.nan, np.nan], [1, 0], [0, 1]],
}


@pytest.mark.parametrize("form", MISSING)
def test_a_missing_label_of_any_form_means_unlabelled(form):
    y = MISSING[form]
    with pytest.raises(InvalidInput, match="1 of 4 samples of test have no label"):
        group_labels(y, owner="test")
    dropped = group_labels(y, owner="test", drop_unlabelled=True)
    assert dropped.kept.tolist() == [True, False, True, True]
    assert dropped.ids.tolist() == [1, 0, 1]
    assert dropped.single
    kept = group_labels(y, owner="test", allow_unlabelled=True)
    assert kept.ids.tolist() == [1, 2, 0, 1]
    assert kept.rows.tolist() == [[1, 0], [0, 1], [0, 0]]
    assert kept.kept is None


def test_a_label_that_means_none_by_option():
    for y, mark in (([4, -1, 2], -1), (["x", "?", "a"], "?"), ([{4}, {-1}, {2, -1}], -1)):
        groups = group_labels(y, owner="test", drop_unlabelled=mark)
        assert groups.kept.tolist() == [True, False, True]
        assert mark not in groups.classes
    assert group_labels([4, -1, 2], owner="test", drop_unlabelled=True).classes.tolist() == [-1, 2, 4]


SEVERAL = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 0], [1, 0, 1]])


@pytest.mark.parametrize(
    "y",
    [
        [{"a", "c"}, {"b"}, {"a", "b"}, {"c", "a"}],
        [["a", "c"], ["b"], ["b", "a"], ("a", "c")],
        pd.Series([["a", "c"], ["b"], ["a", "b"], ["c", "a"]]),
        [["a", "c"], ["b", "b"], ["b", "a"], ["a", "c"]],
        [{"a", "c"}, "b", {"a", "b"}, {"c", "a"}],
    ],
)
def test_sets_of_labels_equal_their_indicator_matrix(y):
    expected, groups = group_labels(SEVERAL, owner="test"), group_labels(y, owner="test")
    assert groups.classes.tolist() == ["a", "b", "c"]
    assert np.array_equal(groups.rows, expected.rows)
    assert np.array_equal(groups.ids, expected.ids)


@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_sparse_indicators_equal_dense_ones(make):
    expected, groups = group_labels(SEVERAL, owner="test"), group_labels(make(SEVERAL), owner="test")
    assert np.array_equal(groups.rows, expected.rows)
    assert np.array_equal(groups.ids, expected.ids)


def test_pairs_of_sets_share_their_columns():
    first, second = group_label_pair([{"a", "c"}, None], ["b", "c"], owner="test")
    assert first.classes.tolist() == ["a", "b", "c"]
    assert first.rows[first.ids].tolist() == [[1, 0, 1], [0, 0, 0]]
    assert second.rows[second.ids].tolist() == [[0, 1, 0], [0, 0, 1]]
    with pytest.raises(InvalidInput, match="sets of labels and the other an indicator"):
        group_label_pair([{"a"}, {"b"}], np.eye(2), owner="test")
    with pytest.raises(InvalidInput, match="one type"):
        group_label_pair([{"a"}, {"b"}], [1, 2], owner="test")


def test_sets_over_given_classes():
    groups = group_labels([{"a"}, {"a", "c"}], owner="test", classes=["c", "b", "a"])
    assert groups.classes.tolist() == ["a", "b", "c"]
    assert groups.rows[groups.ids].tolist() == [[1, 0, 0], [1, 0, 1]]
    with pytest.raises(InvalidInput, match="unknown classes: 'c'"):
        group_labels([{"a"}, {"a", "c"}], owner="test", classes=["a", "b"])


def test_pairs_with_missing_labels():
    first, second = group_label_pair(["x", None], ["y", "", "x"], owner="test")
    assert first.rows[first.ids].tolist() == [[1, 0], [0, 0]]
    assert second.rows[second.ids].tolist() == [[0, 1], [0, 0], [1, 0]]
    first, second = group_label_pair(np.array([None, None]), ["y", "x"], owner="test")
    assert first.rows[first.ids].tolist() == [[0, 0], [0, 0]]
    assert second.rows[second.ids].tolist() == [[0, 1], [1, 0]]
    first, second = group_label_pair(["y", "x"], np.array([], dtype=object), owner="test")
    assert (first.ids.tolist(), len(second.ids)) == ([1, 0], 0)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed"),
        ([1.0, np.inf], "infinity"),
        ([1.0, np.nan], r"1 of 2 samples of test have no label \(first: 1; labels missing\).*drop_unlabelled=True"),
        ([np.nan, np.nan], "2 of 2 samples"),
        ([[1, np.nan], [0, 1]], "Row 0 of the label matrix of test has missing cells"),
        (np.array(["a", 1], dtype=object), "one type. Got int, str"),
        ([0.5, 1.25], "continuous.*class labels"),
        (np.zeros((2, 2, 2)), "1 or 2 dimensions"),
        ([[0, 2], [1, 0]], "only 0/1 or only -1/\\+1. Got the values 0, 1, 2"),
        ([[-1, 0], [1, 0]], "only 0/1 or only -1/\\+1"),
    ],
)
def test_bad_labels(y, message):
    with pytest.raises(InvalidInput, match=message):
        group_labels(y, owner="test")


def test_unknown_classes_are_named():
    with pytest.raises(InvalidInput, match="unknown classes: 'd'"):
        group_labels(["a", "d"], owner="test", classes=["a", "b"])


def test_wrong_number_of_columns():
    with pytest.raises(InvalidInput, match="3 columns, but 2 classes"):
        group_labels(np.eye(3), owner="test", classes=["a", "b"])


def test_a_column_becomes_a_vector_with_a_warning():
    with pytest.warns(DataConversionWarning, match="column-vector"):
        groups = group_labels([[3], [4]], owner="test")
    assert groups.classes.tolist() == [3, 4]


def test_pairs_of_different_form_are_refused():
    with pytest.raises(InvalidInput, match="one form"):
        group_label_pair([0, 1], np.eye(2), owner="test")
    with pytest.raises(InvalidInput, match="one type"):
        group_label_pair([0, 1], ["a", "b"], owner="test")
    with pytest.raises(InvalidInput, match="same columns"):
        group_label_pair(np.eye(2), np.eye(3), owner="test")
