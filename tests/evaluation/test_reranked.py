import numpy as np
import pytest

from shorthash.codes.signs import sign
from shorthash.errors import InvalidInput
from shorthash.evaluation import evaluate, evaluate_reranked
from shorthash.index import BucketIndex


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200)
    X = rng.normal(0, 1.0, (200, 4)) + 2 * np.eye(3, 4)[y]
    return X, y, sign(X[:, :3] - X[:, :3].mean(axis=0))


def slow_map(codes, y, X, n_queries, likeness):
    """Sort by distance, then by likeness, and take the precision at every hit."""
    values = []
    for i in range(n_queries):
        far = (codes[n_queries:] != codes[i]).sum(axis=1)
        order = np.lexsort((-likeness(X[n_queries:], X[i]), far))
        hit = (y[n_queries:] == y[i])[order]
        values.append(np.mean(np.cumsum(hit)[hit] / (np.flatnonzero(hit) + 1)))
    return np.mean(values)


@pytest.mark.parametrize(
    ("metric", "likeness"),
    [
        ("cosine", lambda rows, q: rows @ q / np.linalg.norm(rows, axis=1)),
        ("dot", lambda rows, q: rows @ q),
        ("euclidean", lambda rows, q: -((rows - q) ** 2).sum(axis=1)),
    ],
)
def test_distance_first_then_likeness(data, metric, likeness):
    X, y, codes = data
    scores = evaluate_reranked(codes[:20], y[:20], X[:20], codes[20:], y[20:], X[20:], metric=metric)
    assert scores.map == pytest.approx(slow_map(codes, y, X, 20, likeness))


def test_it_is_the_ranking_of_the_index(data):
    X, y, codes = data
    index = BucketIndex(3).add(codes[20:], vectors=X[20:])
    for i in range(5):
        found = index.search(codes[i : i + 1], 10, ties="scores", vectors=X[i : i + 1])
        hits = np.mean(y[20:][found.ids[0]] == y[i])
        scores = evaluate_reranked(codes[i : i + 1], y[i : i + 1], X[i : i + 1], codes[20:], y[20:], X[20:], k=10)
        assert scores.precision_at_k[10] == pytest.approx(hits)


def test_equal_vectors_leave_the_ties_of_the_codes(data):
    _, y, codes = data
    same = np.ones((200, 2))
    plain = evaluate(codes[:20], y[:20], codes[20:], y[20:], k=5)
    tied = evaluate_reranked(codes[:20], y[:20], same[:20], codes[20:], y[20:], same[20:], k=5)
    assert tied.map == pytest.approx(plain.map)
    assert tied.map_best == pytest.approx(plain.map_best)
    assert tied.precision_at_radius == pytest.approx(plain.precision_at_radius)
    assert tied.recall_at_radius == pytest.approx(plain.recall_at_radius)


def test_it_stays_within_the_bounds_of_the_ties(data):
    X, y, codes = data
    plain = evaluate(codes[:20], y[:20], codes[20:], y[20:])
    scores = evaluate_reranked(codes[:20], y[:20], X[:20], codes[20:], y[20:], X[20:])
    assert plain.map < scores.map <= plain.map_best


def test_bad_input(data):
    X, y, codes = data
    with pytest.raises(InvalidInput, match="same dimension"):
        evaluate_reranked(codes[:5], y[:5], X[:5, :2], codes[5:], y[5:], X[5:])
    with pytest.raises(InvalidInput, match="one row per code"):
        evaluate_reranked(codes[:5], y[:5], X[:4], codes[5:], y[5:], X[5:])
    with pytest.raises(InvalidInput, match="n_bits"):
        evaluate_reranked(np.zeros(5, np.uint8), y[:5], X[:5], codes[5:], y[5:], X[5:])
    with pytest.raises(InvalidInput, match="metric"):
        evaluate_reranked(codes[:5], y[:5], X[:5], codes[5:], y[5:], X[5:], metric="hamming")
