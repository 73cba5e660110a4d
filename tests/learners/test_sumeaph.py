"""Expected-AP codes from sums: the same from parts as from the whole, and better than what else sums give."""

import numpy as np
import pytest

from shorthash import make_hasher
from shorthash.codes.signs import pack
from shorthash.errors import InvalidInput
from shorthash.learners.codebooks import score_weights
from shorthash.learners.sumeaph import SumEAPH


def test_scores_are_a_ridge_regression(blobs):
    X, y = blobs
    hasher = SumEAPH(5, random_state=0).fit(X, y)
    E, mean = np.eye(5)[y], X.mean(axis=0)
    P, _ = score_weights(hasher.statistics_.centred(mean))
    fitted = np.linalg.lstsq(np.hstack([X, np.ones((300, 1))]), E, rcond=None)[0]  # without penalty, close by
    S = (X - mean) @ P + E.mean(axis=0)
    np.testing.assert_allclose(X @ hasher.score_weights_ + hasher.shares_, S, atol=1e-10)
    assert np.corrcoef(S.ravel(), (X @ fitted[:-1] + fitted[-1]).ravel())[0, 1] > 0.99
    np.testing.assert_allclose(S.sum(axis=1), 1.0)


def test_parts_give_what_the_whole_gives(digits):
    X, y = digits
    whole = make_hasher("sumeaph", 6, random_state=0, kernel={"n_anchors": 200}).fit(X, y)
    parts = make_hasher("sumeaph", 6, random_state=0, kernel={"n_anchors": 200})
    parts[0].fit(X)
    for part in (slice(0, 700), slice(700, None)):
        parts.partial_fit(X[part], y[part], classes=np.arange(10))
    np.testing.assert_allclose(parts[-1].score_weights_, whole[-1].score_weights_, rtol=1e-6, atol=1e-8)
    assert np.mean(parts.transform(X) == whole.transform(X)) > 0.9999


def test_the_nearest_encoder_is_a_classifier_code(digits):
    X, y = digits
    settings = {"encoder": "nearest", "codebook": "balanced", "kernel": {"n_anchors": 300}}
    hasher = make_hasher("sumeaph", 6, random_state=0, **settings).fit(X[:900], y[:900])
    words = {int(word) for word in pack(hasher[-1].codewords_)}
    codes = pack(hasher.transform(X[900:]))
    assert set(codes.tolist()) <= words
    right = codes == pack(hasher[-1].codewords_)[y[900:]]
    assert right.mean() > 0.9


def test_better_than_rslh_from_the_same_sums(digits):
    X, y = digits
    X = X + np.random.default_rng(0).normal(scale=6, size=X.shape)
    scores = {}
    for name in ("sumeaph", "rslh"):
        hasher = make_hasher(name, 6, random_state=0, kernel={"n_anchors": 300}).fit(X[:900], y[:900])
        scores[name] = hasher.score(X[900:], y[900:])
    assert scores["sumeaph"] > scores["rslh"]


def test_the_code_is_the_cell_of_the_largest_gain(tagged):
    X, Y = tagged
    hasher = SumEAPH(4, random_state=0).fit(X, Y)
    S = np.maximum(X @ hasher.score_weights_ + hasher.shares_, 0) ** 2
    P = S / S.sum(axis=1, keepdims=True)
    gain = P @ hasher.table_.T.astype(float)
    chosen = gain[np.arange(len(X)), pack(hasher.transform(X)).astype(int)]
    np.testing.assert_allclose(chosen, gain.max(axis=1), rtol=1e-6)


def test_long_codes_keep_to_codewords(blobs):
    X, y = blobs
    hasher = SumEAPH(40, random_state=0).fit(X, y)
    words = {tuple(word) for word in hasher.codewords_.tolist()}
    assert {tuple(code) for code in hasher.transform(X).tolist()} <= words


def test_bad_input(blobs):
    X, y = blobs
    with pytest.raises(InvalidInput, match="'encoder' parameter of SumEAPH"):
        SumEAPH(encoder="linear").fit(X, y)
    with pytest.raises(InvalidInput, match="'codebook' parameter of SumEAPH"):
        SumEAPH(codebook="polar").fit(X, y)
