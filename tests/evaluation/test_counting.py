import numpy as np
import pytest

from shorthash.evaluation import evaluate
from shorthash.evaluation.relevance import order_follows_labels


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
