import numpy as np
import pytest
from dense_rslh import dense_reduction, dense_similarity
from scipy import sparse

from shorthash import EAPH, RSLH, SDH, ClassifierCode
from shorthash._labels import group_labels
from shorthash.learners import solvers
from shorthash.learners.rslh.steps import Similarity
from shorthash.learners.solvers import LabelGram, similar_sums


def one_hot(y):
    return np.eye(int(y.max()) + 1)[y]


@pytest.fixture(params=["single", "multi"])
def problem(request, blobs, tagged):
    X, y = blobs if request.param == "single" else tagged
    X, y = X[:80], y[:80]
    groups = group_labels(y, owner="test")
    Y = one_hot(y) if y.ndim == 1 else y
    E = np.eye(len(groups.rows))[groups.ids]
    return X - X.mean(axis=0), Y, groups, E


def test_sums_over_similar_groups_are_products_with_S(problem):
    _, Y, groups, E = problem
    A = np.random.default_rng(0).normal(size=(80, 3))
    assert np.allclose(similar_sums(groups.rows, E.T @ A)[groups.ids], dense_similarity(Y) @ A)


def test_blocks_change_nothing(problem, monkeypatch):
    _, _, groups, E = problem
    V = E.T @ np.random.default_rng(0).normal(size=(80, 3))
    whole = similar_sums(groups.rows, V)
    monkeypatch.setattr(solvers, "BLOCK_GROUPS", 2)
    assert np.allclose(similar_sums(groups.rows, V), whole)


def test_full_similarity_is_S(problem):
    _, Y, groups, E = problem
    S, H = dense_similarity(Y), np.sign(np.random.default_rng(1).normal(size=(80, 4)))
    full = Similarity(groups.rows, np.bincount(groups.ids).astype(float))
    assert np.allclose(full.b_term(E.T @ H)[groups.ids], S @ H)
    assert np.allclose(full.h_term(E.T @ H)[groups.ids], S @ H)
    assert full.captured(E.T @ H) is None
    assert full.squared_norm() == pytest.approx((S**2).sum())


def test_reduced_similarity_is_G_and_R(problem):
    X, Y, groups, E = problem
    S = dense_similarity(Y)
    R = dense_reduction(S, X)
    G, H = S @ R, np.sign(np.random.default_rng(1).normal(size=(80, 4)))
    reduced = Similarity(groups.rows, np.bincount(groups.ids).astype(float), X.T @ E)
    assert np.allclose(reduced.b_term(E.T @ H)[groups.ids], G @ R.T @ H)
    assert np.allclose(reduced.h_term(E.T @ H)[groups.ids], R @ G.T @ H)
    assert np.allclose(reduced.captured(E.T @ H)[groups.ids], R @ R.T @ H)
    assert reduced.squared_norm() == pytest.approx((G**2).sum())


def test_G_equals_S_where_the_class_means_are_independent(blobs):
    """Structural fact: with uncentred features range(S) lies in range(R), and G R' = S exactly."""
    X, y = blobs[0][:80], blobs[1][:80]
    groups = group_labels(y, owner="test")
    E = np.eye(len(groups.rows))[groups.ids]
    H = np.sign(np.random.default_rng(1).normal(size=(80, 4)))
    reduced = Similarity(groups.rows, np.bincount(groups.ids).astype(float), X.T @ E)
    assert np.allclose(reduced.b_term(E.T @ H)[groups.ids], dense_similarity(one_hot(y)) @ H)


@pytest.mark.parametrize("kind", ["single", "multi"])
@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_label_gram_divides_like_the_full_matrix(kind, shift, blobs, tagged, seed):
    y = blobs[1] if kind == "single" else tagged[1]
    Y = np.eye(5)[y] if y.ndim == 1 else y.astype(float)
    groups = group_labels(y, owner="test")
    gram = LabelGram(sparse.csr_array(groups.rows.astype(float)), np.bincount(groups.ids).astype(float))
    right = np.random.default_rng(seed).normal(size=(Y.shape[1], 3))
    assert np.allclose(gram.solve(right, shift), np.linalg.solve(Y.T @ Y + shift * np.eye(Y.shape[1]), right))
    assert np.allclose(gram.from_basis(gram.values[:, None] * gram.to_basis(right)), Y.T @ Y @ right)


def test_label_gram_of_classes_that_always_come_together_is_divided_by_its_pseudo_inverse():
    Y = np.array([[1, 1, 0], [1, 1, 1], [0, 0, 1], [1, 1, 0]])
    groups = group_labels(Y, owner="test")
    gram = LabelGram(sparse.csr_array(groups.rows.astype(float)), np.bincount(groups.ids).astype(float))
    right = Y.T @ np.arange(8.0).reshape(4, 2)
    assert np.allclose(gram.solve(right), np.linalg.pinv(Y.T @ Y) @ right)


@pytest.mark.parametrize("make", [RSLH, SDH, EAPH, ClassifierCode])
@pytest.mark.parametrize("mark", [None, -1])
def test_rows_without_a_label_are_left_out(make, mark, blobs):
    X, y = blobs[0][:80], blobs[1][:80].astype(object)
    bare = np.arange(80) % 5 == 0
    expected = make(n_bits=4, random_state=0).fit(X[~bare], y[~bare].astype(int)).transform(X)
    y[bare] = mark
    drop = True if mark is None else mark
    assert np.array_equal(make(n_bits=4, random_state=0, drop_unlabelled=drop).fit(X, y).transform(X), expected)


def test_sets_of_labels_and_sparse_indicators_are_learned_from(tagged):
    X, Y = tagged[0][:80], tagged[1][:80]
    expected = RSLH(n_bits=4, random_state=0).fit(X, Y).transform(X)
    sets = [{f"tag{c:02}" for c in np.flatnonzero(row)} for row in Y]
    for labels in (sets, sparse.csr_array(Y)):
        assert np.array_equal(RSLH(n_bits=4, random_state=0).fit(X, labels).transform(X), expected)
