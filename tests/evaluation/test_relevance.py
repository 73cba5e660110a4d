import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shorthash._labels import group_label_pair
from shorthash.evaluation import evaluate
from shorthash.evaluation.relevance import distinct_queries, order_follows_labels, shared_with


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), min_size=1, max_size=10), st.booleans())
def test_distinct_queries_stand_for_all_of_them(pairs, each_row):
    codes, labels = np.array([c for c, _ in pairs], dtype=np.uint8), np.array([label for _, label in pairs])
    groups, _ = group_label_pair(labels, labels[:0], owner="test")
    queries = distinct_queries(codes, groups, each_row=each_row)
    assert queries.codes[queries.rows].tolist() == codes.tolist()
    assert queries.groups.ids[queries.rows].tolist() == groups.ids.tolist()
    assert queries.copies.tolist() == np.bincount(queries.rows).tolist()
    assert (np.diff(queries.groups.ids) >= 0).all()
    if each_row:
        assert queries.own[queries.rows].tolist() == list(range(len(pairs)))
    else:
        assert len(queries.codes) == len(set(pairs))
        assert (queries.own == -1).all()


def test_shared_labels_are_counted():
    Y = np.array([[1, 1, 0], [0, 1, 1], [1, 1, 1], [0, 0, 0]])
    groups, _ = group_label_pair(Y, Y[:0], owner="test")
    for i in range(4):
        assert shared_with(groups.ids[i], groups)[groups.ids].tolist() == (Y @ Y[i]).tolist()


@pytest.mark.parametrize("n_classes", [2, 10, 100])
def test_sorted_labels_are_noticed_and_shuffled_ones_are_not(n_classes):
    labels = np.repeat(np.arange(n_classes), 50)
    assert order_follows_labels(labels)
    for seed in range(20):
        assert not order_follows_labels(np.random.default_rng(seed).permutation(labels))


def test_few_items_say_nothing():
    assert not order_follows_labels(np.array([0, 0]))
    assert not order_follows_labels(np.zeros(1000, dtype=int))


def test_by_class_leaves_queries_without_label_out_of_every_class():
    Y = np.array([[1, 0], [0, 1], [0, 0]])
    scores = evaluate(np.array([[1, 1], [-1, -1], [1, -1]]), Y, np.array([[1, 1], [-1, -1]]), Y[:2])
    assert scores.by_class(Y) == {0: 1.0, 1: 1.0}
