"""Hashers of two feature spaces that share a table."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import log_loss

from shorthash import EAPH, RelevantPairs, evaluate, load, make_hasher, save
from shorthash.errors import InvalidInput
from shorthash.learners.posteriors.folds import draw_folds
from shorthash.learners.posteriors.logistic import LogLinear, cross_entropy, fit_soft, soft_loss


@pytest.fixture(scope="module")
def two():
    """The same things in 8 and in 5 columns; 300 to learn from, 150 to search."""
    X, y = make_blobs(450, n_features=8, centers=6, cluster_std=1.5, random_state=0)
    rng = np.random.default_rng(0)
    other = X @ rng.normal(size=(8, 5)) + rng.normal(size=(450, 5))
    return X.astype(np.float32), (other / 4 + 1).astype(np.float32), y


@pytest.fixture(scope="module")
def first(two):
    return EAPH(4, random_state=0, posterior="logistic", n_iter=4).fit(two[0][:300], two[2][:300])


def across(one, two, X, Z, y):
    """MAP of rows of one space, searched by those of the other."""
    return evaluate(one.transform(X[300:]), y[300:], two.transform(Z[:300]), y[:300]).map


@pytest.mark.parametrize("given", ["labels", "rows"])
def test_each_space_finds_the_other(two, first, given):
    X, Z, y = two
    second = first.align(Z[:300], y[:300]) if given == "labels" else first.align(Z[:300], rows=X[:300])
    assert np.array_equal(second.table_, first.table_)
    assert second.n_features_in_ == 5
    own = EAPH(4, random_state=1, posterior="logistic", n_iter=4).fit(Z[:300], y[:300])
    alone = evaluate(own.transform(Z[300:]), y[300:], own.transform(Z[:300]), y[:300]).map
    assert across(first, second, X, Z, y) > alone - 0.05
    assert across(second, first, Z, X, y) > alone - 0.05
    assert across(own, first, Z, X, y) < alone - 0.1


@pytest.mark.parametrize("pairs", [False, True])
def test_codes_without_any_label_can_be_shared(two, pairs):
    X, Z, y = two
    same = np.column_stack([np.arange(299), np.arange(1, 300)])[y[:299] == y[1:300]]
    hasher = make_hasher("auto", 4, random_state=0, n_iter=4).fit(X[:300], RelevantPairs(same) if pairs else None)
    second = hasher.align(Z[:300], rows=X[:300])
    alone = evaluate(hasher.transform(X[300:]), y[300:], hasher.transform(X[:300]), y[:300]).map
    assert across(second, hasher, Z, X, y) > 0.6 * alone
    assert second[-1].probes(Z[:3], 2).shape == (3, 2)


def test_an_aligned_hasher_is_saved_and_not_trained(two, first, tmp_path):
    X, Z, y = two
    second = first.align(Z[:300], rows=X[:300])
    again = load(save(second, tmp_path / "second"))
    assert np.array_equal(again.transform(Z), second.transform(Z))
    assert np.array_equal(again.probes(Z[:5], 3), second.probes(Z[:5], 3))
    for train in (again.update_codes, lambda: second.partial_fit(Z, y)):
        with pytest.raises(InvalidInput, match="align again"):
            train()
    assert not hasattr(second.fit(Z[:50], y[:50]), "aligned_")


def test_labels_that_are_missing_or_several(two):
    X, Z, y = two
    both = [{f"c{c}", "big"} if c % 2 else {f"c{c}"} for c in y]
    hasher = EAPH(4, random_state=0, posterior="logistic", n_iter=2).fit(X[:300], both[:300])
    partly = [None, {"c0", "c1"}, *both[2:300]]
    second = hasher.align(Z[:300], partly)
    assert second.n_dropped_ == 2
    assert second.predict_proba(Z[:2]).shape == hasher.predict_proba(X[:2]).shape


def test_sets_of_labels_that_are_not_learned_are_learned_as_those_most_like_them(two, monkeypatch):
    X, Z, y = two
    both = [{f"c{c}", "big"} if c % 2 else {f"c{c}"} for c in y]
    hasher = EAPH(4, random_state=0, posterior="logistic", n_iter=2).fit(X[:300], both[:300])
    rare = [{*labels, "c0"} for labels in both[:300]]
    assert hasher.align(Z[:300], rare[:20] + both[20:300]).n_dropped_ == sum(c != 0 for c in y[:20])
    monkeypatch.setattr("shorthash.learners.eaph.retrieving.most_learned", lambda _: len(hasher.label_sets_))
    second = hasher.align(Z[:300], rare)
    assert second.n_dropped_ == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either labels y or rows"),
        ({"y": [0, 1], "rows": [[0] * 8] * 2}, "either labels y or rows"),
        ({"rows": np.zeros((5, 8))}, "20.*5|5.*20"),
        ({"y": np.repeat([6, 7], 10)}, "unknown classes"),
        ({"y": np.zeros(20, dtype=int)}, "two or more of the classes"),
    ],
)
def test_bad_calls(two, first, options, message):
    with pytest.raises(InvalidInput, match=message):
        first.align(two[1][:20], **options)


def test_what_cannot_be_aligned(two):
    X, Z, y = two
    with pytest.raises(InvalidInput, match=r"methods auto and eaph can be aligned\. Got AnchorRBF -> RSLH"):
        make_hasher("rslh", 4).align(X, y)
    with pytest.raises(InvalidInput, match="fitted without labels"):
        EAPH(3, random_state=0, n_iter=1).fit(X[:60]).align(Z[:60], y[:60])


def test_soft_loss_of_hard_targets_is_the_log_loss_and_its_slope_is_right():
    rng = np.random.default_rng(0)
    Z, y = rng.normal(size=(40, 3)).astype(np.float32), rng.integers(4, size=40)
    T = np.eye(4, dtype=np.float32)[y]

    def model(v):
        return LogLinear(np.zeros(3), 1.0, v[:12].reshape(3, 4), v[12:], np.eye(4, dtype=np.uint8), 1.0, 0.0)

    v = rng.normal(size=16)
    value, by_weights, by_bias = soft_loss(Z, T, model(v))
    S = model(v).scores(Z).astype(np.float64)
    P = np.exp(S) / np.exp(S).sum(axis=1, keepdims=True)
    assert value == pytest.approx(log_loss(y, P), rel=1e-5)
    assert cross_entropy(P.astype(np.float32), T) == pytest.approx(value, rel=1e-5)
    steps = 1e-2 * np.eye(16)
    slopes = [(soft_loss(Z, T, model(v + e))[0] - soft_loss(Z, T, model(v - e))[0]) / 0.02 for e in steps]
    assert np.concatenate([by_weights.ravel(), by_bias]) == pytest.approx(slopes, abs=1e-3)


def test_soft_targets_of_a_log_linear_model_are_recovered():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 6)).astype(np.float32)
    S = X / np.linalg.norm(X, axis=1, keepdims=True) @ rng.normal(size=(6, 5)) * 3
    T = (np.exp(S) / np.exp(S).sum(axis=1, keepdims=True)).astype(np.float32)
    fitted = fit_soft(X, T, draw_folds(T.argmax(axis=1), np.random.RandomState(0)))
    assert np.abs(fitted.model.predict(X) - T).mean() < 0.02
    least = cross_entropy(T, T)
    assert least < fitted.loss < least + 0.02
