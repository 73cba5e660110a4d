"""Expected-AP hashing that learns on, and the prototypes it uses where new classes are expected."""

import numpy as np
import pytest
import scipy.linalg

from shorthash import evaluate, load, save
from shorthash.codes import pack
from shorthash.errors import InvalidInput, ShorthashWarning
from shorthash.evaluation import evaluate_cells
from shorthash.learners.eaph.estimator import EAPH
from shorthash.learners.posteriors.folds import draw_folds
from shorthash.learners.posteriors.models import fit_posteriors
from shorthash.learners.samples import KeptRows


def test_prototypes_are_cosines_in_the_whitened_space_of_the_means(blobs):
    X, y = blobs
    folds = draw_folds(y, np.random.RandomState(0))
    [(_, fitted)] = fit_posteriors("prototypes", X, y, np.eye(5, dtype=np.uint8), folds)
    model = fitted.model
    mu = np.stack([X[y == k].mean(axis=0) for k in range(5)]).astype(np.float64)
    within = sum(np.cov(X[y == k].T, bias=True) * np.mean(y == k) for k in range(5))
    within = within / 2 + np.trace(within) / len(within) / 2 * np.eye(len(within))
    _, V = scipy.linalg.eigh(np.cov((mu - mu.mean(axis=0)).T), within)  # the same space by linear discriminants
    Z, M = (X - mu.mean(axis=0)) @ V[:, -4:], (mu - mu.mean(axis=0)) @ V[:, -4:]
    cosines = (Z @ M.T) / np.linalg.norm(Z, axis=1)[:, None] / np.linalg.norm(M, axis=1)
    np.testing.assert_allclose(model.cosines(X), cosines, atol=1e-5)


def test_partial_fit_is_fit_on_all_rows(digits):
    X, y = digits[0][:700], digits[1][:700]
    whole = EAPH(6, posterior="logistic", random_state=0).fit(X, y)
    grown = EAPH(6, posterior="logistic", random_state=0).partial_fit(X[:300], y[:300], classes=range(10))
    codes = grown.transform(X)
    words = grown.codewords_
    grown.partial_fit(X[300:], y[300:])
    np.testing.assert_allclose(grown.predict_proba(X), whole.predict_proba(X), atol=1e-6)
    assert np.array_equal(grown.codewords_, words)  # codes in use keep their meaning
    assert np.mean(codes == grown.transform(X)) > 0.9
    grown.update_codes()
    assert np.array_equal(grown.transform(X), whole.transform(X))


def test_partial_fit_says_when_codes_change(blobs):
    X, y = blobs
    hasher = EAPH(4, posterior="logistic", random_state=0).partial_fit(X[y < 4], y[y < 4], classes=range(5))
    with pytest.warns(ShorthashWarning, match="label sets that EAPH had not seen"):
        hasher.partial_fit(X[y == 4], y[y == 4])
    assert len(hasher.label_sets_) == 5


def test_partial_fit_goes_on_from_fit_but_not_from_its_save(blobs, tmp_path):
    X, y = blobs
    whole = EAPH(4, posterior="logistic", random_state=0).fit(X, y)
    grown = EAPH(4, posterior="logistic", random_state=0).fit(X[:200], y[:200])
    loaded = load(save(grown, tmp_path / "model"))
    grown.partial_fit(X[200:], y[200:])
    np.testing.assert_allclose(grown.predict_proba(X), whole.predict_proba(X), atol=1e-6)
    with pytest.raises(InvalidInput, match="saved without rows"):
        loaded.partial_fit(X, y)
    again = load(save(grown, tmp_path / "grown")).partial_fit(X, y)
    assert again.kept_rows_.seen == 600
    with pytest.raises(InvalidInput, match="needs database='disjoint'"):
        EAPH(4, database="training").partial_fit(X, y)


def test_merge_is_partial_fit_with_the_rows_of_the_other(blobs):
    X, y = blobs
    one, two, both = (EAPH(5, posterior="logistic", random_state=0) for _ in range(3))
    one.partial_fit(X[:150], y[:150])
    two.partial_fit(X[150:], y[150:])
    both.partial_fit(X[:150], y[:150]).partial_fit(X[150:], y[150:])
    before = one.cells_.copy()
    one.merge(two)
    np.testing.assert_array_equal(one.transform(X), both.transform(X))
    np.testing.assert_array_equal(one.cells_, before)
    assert one.kept_rows_.seen == 300
    np.testing.assert_array_equal(one.update_codes().transform(X), both.update_codes().transform(X))
    with pytest.raises(InvalidInput, match="merge of EAPH needs two of the same features and classes; got 12 and 3"):
        one.merge(EAPH(5, posterior="logistic", random_state=0).fit(X[:, :3], y))


def test_kept_rows_are_a_uniform_sample():
    rng = np.random.RandomState(0)
    count = np.zeros(60)
    for _ in range(400):
        kept = KeptRows.none(1, 1, 10)
        for start in range(0, 60, 20):
            rows = np.arange(start, start + 20, dtype=np.float32)[:, None]
            kept = kept.add(rows, np.ones((20, 1), dtype=np.uint8), rng)
        assert kept.seen == 60
        assert (np.diff(kept.X[:, 0]) > 0).all()
        count[kept.X[:, 0].astype(int)] += 1
    assert count.sum() == 4000
    assert abs(count / 400 - 1 / 6).max() < 0.1  # five standard deviations


def test_relevance_is_the_chance_to_share_a_label(tagged):
    X, Y = tagged
    hasher = EAPH(5, posterior="logistic", random_state=0).fit(X, Y)
    P, sets = hasher.predict_proba(X[:7]), hasher.label_sets_.astype(int)
    got = hasher.relevance(X[:7])
    for i in range(7):
        for z in range(len(hasher.cells_)):
            pairs = [
                P[i, s] * hasher.profiles_[z, t]
                for s in range(len(sets))
                for t in range(len(sets))
                if (sets[s] & sets[t]).any()
            ]
            assert got[i, z] == pytest.approx(sum(pairs), rel=1e-5, abs=2.0**-22)


def test_cells_by_relevance_beat_cells_by_distance(digits):
    X, y = digits
    noisy = X + np.random.default_rng(0).normal(scale=6, size=X.shape)
    train, query, base = slice(0, 700), slice(700, 1000), slice(1000, None)
    hasher = EAPH(6, posterior="logistic", random_state=0).fit(noisy[train], y[train])
    codes = hasher.transform(noisy[base])
    column = {int(cell): z for z, cell in enumerate(hasher.cells_)}
    where = np.array([column[int(code)] for code in pack(codes)])
    learned = evaluate_cells(-hasher.relevance(noisy[query]), y[query], where, y[base]).map
    assert learned > evaluate(hasher.transform(noisy[query]), y[query], codes, y[base]).map + 0.01
    probes = hasher.probes(noisy[query], 3)
    best = hasher.relevance(noisy[query]).argmax(axis=1)
    assert probes.shape == (300, 3)
    assert np.array_equal(probes[:, 0], hasher.cells_[best])
