"""Rankings of cells, and of codes re-ranked by vectors, against slow references and other ways to the same ranking."""

import numpy as np
import pytest

from shorthash.codes import hamming_distances, sign
from shorthash.errors import InvalidInput
from shorthash.evaluation import evaluate, evaluate_cells, evaluate_distances, evaluate_reranked
from shorthash.index import BucketIndex


@pytest.fixture
def ranked_cells():
    rng = np.random.default_rng(0)
    return rng.integers(0, 4, (30, 9)) / 4, rng.integers(0, 9, 200), rng.integers(0, 3, 230), rng


@pytest.mark.parametrize("ties", ["expected", "best", "worst"])
@pytest.mark.parametrize("several", [False, True])
def test_cells_are_the_ranking_by_distance(ranked_cells, ties, several):
    distances, cells, y, rng = ranked_cells
    labels = rng.integers(0, 2, (230, 4)) | np.eye(4, dtype=int)[y] if several else y
    cells_scores = evaluate_cells(distances, labels[:30], cells, labels[30:], ties=ties, k=(5, 50))
    items = evaluate_distances(distances[:, cells], labels[:30], labels[30:], ties=ties, k=(5, 50))
    assert {k: v for k, v in cells_scores.to_dict().items() if v == v} == pytest.approx(
        {k: v for k, v in items.to_dict().items() if v == v}
    )


def test_hamming_distances_between_cells_give_the_scores_of_codes(ranked_cells):
    _, _, y, rng = ranked_cells
    codes = np.where(rng.random((230, 4)) < 0.5, -1, 1)
    words, where = np.unique(codes[30:], axis=0, return_inverse=True)
    cells_scores = evaluate_cells(hamming_distances(codes[:30], words), y[:30], where.reshape(-1), y[30:], k=10)
    assert cells_scores.map == pytest.approx(evaluate(codes[:30], y[:30], codes[30:], y[30:], k=10).map)


def test_bad_cells(ranked_cells):
    distances, cells, y, _ = ranked_cells
    with pytest.raises(InvalidInput, match="column numbers"):
        evaluate_cells(distances, y[:30], cells + 1, y[30:])
    with pytest.raises(InvalidInput, match="database order"):
        evaluate_cells(distances, y[:30], cells, y[30:], ties="stable")
    with pytest.raises(InvalidInput, match="without NaN"):
        evaluate_cells(distances * np.nan, y[:30], cells, y[30:])
    with pytest.raises(InvalidInput, match=r"one label .* for each of its 30 distance rows\. Got 29"):
        evaluate_cells(distances, y[:29], cells, y[30:])


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


def test_reranked_is_the_ranking_of_the_index(data):
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


def test_reranked_scores_lie_within_the_bounds_of_ties(data):
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
