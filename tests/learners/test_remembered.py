"""Posteriors that remember their rows: what they say of these rows, of others, and out of fold."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.base import clone

from shorthash import EAPH, evaluate, load, save
from shorthash._rounding import Rounded
from shorthash.data.streams import ArrayStream
from shorthash.errors import DamagedFile, InvalidInput
from shorthash.learners.eaph import estimator
from shorthash.learners.posteriors import memory
from shorthash.learners.posteriors.folds import Folds, draw_folds, log
from shorthash.learners.posteriors.memory import DOUBT, Memory, Remembered, Remembering, Sketching, nearest_distance
from shorthash.learners.posteriors.models import fit_posteriors


@pytest.fixture(scope="module")
def noisy():
    """Four classes that overlap so much that a third of the labels is recognised; rows 300 to 449 are not learned."""
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=450)
    return (0.6 * rng.normal(size=(4, 6))[y] + rng.normal(size=(450, 6))).astype(np.float32), y


@pytest.fixture(scope="module")
def fitted(noisy):
    X, y = noisy
    return EAPH(4, random_state=0, n_iter=4).fit(X[:300], y[:300])


def with_memory(kind, X, y, u, labelled=None):
    """A model, and the same with memory, with posteriors of the rows held out."""
    folds, sketching = draw_folds(y, np.random.RandomState(0)), Sketching.of_rows(X)
    [(_, base)] = fit_posteriors(kind, X, y, np.eye(u, dtype=np.uint8), folds)
    remembered = Remembered.of_rows(sketching, sketching.sketches(X), y, u, folds, labelled)
    return folds, base, *remembered.added(base, base.model.predict(X[folds.rows]))


def by_distances(P, X, y, rows, others, tolerance, doubt):
    """Posteriors of rows, by comparing each with all others; what is within the tolerance is far within it."""
    P = P.astype(np.float64)
    for i, row in enumerate(rows):
        alike = [y[j] for j in others[i] if np.linalg.norm(X[row].astype(np.float64) - X[j]) < tolerance]
        n = np.bincount(alike, minlength=P.shape[1]) if alike else np.zeros(P.shape[1])
        P[i] = (n + doubt * P[i]) / (n.sum() + doubt)
    return P


def test_learned_rows_have_their_labels_and_others_what_they_had(noisy):
    X, y = noisy[0][:300].copy(), noisy[1][:300].copy()
    X[250:], y[250:295] = X[:50], y[:45]  # rows that are like others; five may contradict them
    _, base, made, inside = with_memory("logistic", X, y, 4)
    assert isinstance(made.model, Remembering)
    new = noisy[0][300:]
    np.testing.assert_array_equal(made.model.predict(new), base.model.predict(new))
    everyone = [np.arange(300)] * 300
    tolerance, doubt = 0.01 * nearest_distance(X), made.model.doubt
    expected = by_distances(base.model.predict(X), X, y, np.arange(300), everyone, tolerance, doubt)
    np.testing.assert_allclose(made.model.predict(X), expected, atol=1e-6)
    np.testing.assert_allclose(inside, expected, atol=1e-6)
    assert (inside[:295].argmax(axis=1) == y[:295]).mean() > 0.98


def test_rows_held_out_are_recognised_by_rows_of_other_folds(noisy):
    X, y = noisy
    X, y = X[:300].copy(), y[:300].copy()
    X[200:], y[200:260] = X[:100], y[:60]
    folds, base, made, _ = with_memory("logistic", X, y, 4)
    others = [np.flatnonzero(folds.fold != folds.fold[i]) for i in range(300)]
    tolerance = 0.01 * nearest_distance(X)
    expected = by_distances(base.oof, X, y, np.arange(300), others, tolerance, made.model.doubt)
    np.testing.assert_allclose(made.oof, expected, atol=1e-6)
    assert 0 < (made.oof != base.oof).any(axis=1).sum() < 200
    assert made.loss == pytest.approx(-np.mean(log(made.oof)[np.arange(300), y]), rel=1e-5)


def test_rows_with_guessed_labels_are_not_remembered(noisy):
    X, y = noisy
    labelled = np.arange(300) < 100
    _, base, made, inside = with_memory("logistic", X[:300], y[:300], 4, labelled)
    np.testing.assert_allclose(inside[100:], base.model.predict(X[100:300]), rtol=1e-6)
    assert (inside[:100].argmax(axis=1) == y[:100]).all()
    assert len(made.model.memory.sets) == 100


def test_rows_are_remembered_after_a_fit_that_has_dropped_unlabelled_rows():
    rng = np.random.default_rng(3)
    means = 0.6 * rng.normal(size=(4, 6))
    y = rng.integers(4, size=600)
    X = (means[y] + 0.3 * rng.normal(size=(600, 6))).astype(np.float32)  # where rows say enough, labels are not spread
    some = np.array([str(label) if i % 3 else None for i, label in enumerate(y)], dtype=object)
    hasher = EAPH(4, random_state=0, n_iter=1).fit(X, some)
    assert hasher.n_unlabelled_ == 0
    hasher.partial_fit(X[1:2], some[1:2])
    known = np.flatnonzero(np.arange(600) % 3)
    assert (hasher.predict_proba(X[known]).argmax(axis=1) == y[known]).all()


def test_labels_that_were_spread_are_not_remembered():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 60)
    X = rng.normal(size=(120, 3)) + 4 * y[:, None]
    few = np.array([str(label) if i % 60 == 0 else None for i, label in enumerate(y)], dtype=object)
    hasher = EAPH(3, random_state=0, n_iter=2).fit(X, few)
    assert hasher.n_unlabelled_ > 0
    assert len(hasher.posterior_.memory.sets) == 2
    assert (few[hasher.oof_rows_[hasher.label_set_ids_ == 0]] != "1").all()
    assert not isinstance(hasher.partial_fit(X[:1], few[:1]).posterior_, Remembering)
    assert not isinstance(EAPH(3, random_state=0, n_iter=2).fit(X, few.copy()).merge(hasher).posterior_, Remembering)


def test_where_nothing_is_to_be_remembered_nothing_is(fitted, noisy, tmp_path):
    X, y = noisy
    save(fitted, tmp_path / "model")
    for hasher in (clone(fitted).fit(X[:300], y[:300]), load(tmp_path / "model")):
        assert isinstance(hasher.posterior_, Remembering)
        forgetful = hasher.set_params(database="disjoint").update_codes()
        assert not isinstance(forgetful.posterior_, Remembering)
    alone = clone(fitted).set_params(database="disjoint").fit(X[:300], y[:300])
    again = clone(fitted).fit(X[:300], y[:300]).set_params(database="disjoint").update_codes()
    assert np.array_equal(again.table_, alone.table_)


def test_rows_that_occur_twice_cannot_be_forgotten_by_a_model_that_was_loaded(noisy, tmp_path):
    X, y = np.concatenate([noisy[0][:300], noisy[0][:100]]), np.concatenate([noisy[1][:300], noisy[1][:100]])
    fitted = EAPH(5, posterior="logistic", random_state=0, n_iter=2).fit(X, y)
    save(fitted, tmp_path / "model")
    loaded = load(tmp_path / "model").set_params(database="disjoint")
    with pytest.raises(InvalidInput, match=r"occur more than once.*call fit with database='disjoint'"):
        loaded.update_codes()
    alone = clone(fitted).set_params(database="disjoint").fit(X, y)
    assert fitted.set_params(database="disjoint").update_codes().disjoint_map_ == alone.disjoint_map_


@pytest.mark.parametrize("offset", [1e5, 3e6])
def test_rows_far_from_the_origin_are_not_taken_for_each_other(offset):
    X = (np.random.default_rng(0).normal(size=(600, 16)) + offset).astype(np.float32)
    sketching = Sketching.of_rows(X)
    known = Memory.of_rows(sketching, sketching.sketches(X[:300]), np.zeros(300, dtype=np.intp))
    assert known.recognised(sketching.sketches(X[:300]), np.zeros(300)).all()
    assert not known.recognised(sketching.sketches(X[300:]), np.zeros(300)).any()


def test_hardly_any_new_row_is_taken_for_one_far_from_the_origin():
    X = (np.random.default_rng(0).normal(size=(40_000, 64)) + 1e5).astype(np.float32)
    sketching = Sketching.of_rows(X[:20_000])
    known = Memory.of_rows(sketching, sketching.sketches(X[:20_000]), np.zeros(20_000, dtype=np.intp))
    assert known.recognised(sketching.sketches(X[20_000:]), np.zeros(20_000)).mean() < 1e-4


def sentinel_rows(X, rng):
    X[rng.random(len(X)) < 0.05] = -99_999_999


def sentinel_cells(X, rng):
    X[rng.random(X.shape) < 0.05] = -99_999_999


def mostly_sentinel_rows(X, rng):
    X[rng.random(len(X)) < 0.6] = -99_999_999


def sentinel_column(X, rng):
    X[rng.random(len(X)) < 0.05, 0] = -99_999_999


def one_row_far_off(X, _rng):
    X[3] = 1e20


@pytest.mark.parametrize(
    "spoilt", [sentinel_rows, sentinel_cells, mostly_sentinel_rows, sentinel_column, one_row_far_off]
)
def test_rows_far_off_do_not_make_others_the_same(spoilt):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 16))
    spoilt(X, rng)
    single = X.astype(np.float32)
    usual = np.abs(X[:600]).max(axis=1) < 100
    sketching, ids = Sketching.of_rows(single), rng.integers(4, size=600)
    known = Memory.of_rows(sketching, sketching.sketches(single[:600]), ids)
    assert sketching.tolerance < 0.03 * 6
    for rows in (single[:600], X[:600][usual]):
        assert known.recognised(sketching.sketches(rows), np.zeros(len(rows))).all()
    new = single[600:][np.abs(single[600:]).max(axis=1) < 100]
    assert not known.recognised(sketching.sketches(new), np.zeros(len(new))).any()


def test_rows_that_are_nearly_equal_are_one_entry_of_their_label_set():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 8))
    X[:1800] = X[0] + 1e-6 * rng.normal(size=(1800, 8))
    single, ids = X.astype(np.float32), rng.integers(3, size=4000)
    sketching = Sketching.of_rows(single)
    sketches = sketching.sketches(single)
    known = Memory.of_rows(sketching, sketches, ids)
    assert len(known.sets) <= 2200 + 3 * 2 ** sketches.shape[1]
    np.testing.assert_array_equal(np.bincount(known.sets, known.counts), np.bincount(ids))
    for rows in (single, X):
        assert known.recognised(sketching.sketches(rows), np.zeros(4000)).all()
    np.testing.assert_array_equal(known.counted(sketches[:1], 3).toarray()[0], np.bincount(ids[:1800]))
    other = rng.permutation(4000)
    again = Memory.of_rows(sketching, sketches[other], ids[other])
    for name in ("sketches", "sets", "counts"):
        np.testing.assert_array_equal(getattr(again, name), getattr(known, name))


def test_no_rows_are_no_entries():
    sketching = Sketching(np.zeros(1), np.ones((1, 1)), 0.5)
    known = Memory.of_rows(sketching, np.empty((0, 1)), np.empty(0, dtype=np.intp))
    assert known.recognised(np.zeros((2, 1)), np.zeros(2)).tolist() == [0, 0]
    assert known.counted(np.zeros((2, 1)), 3).sum() == 0


def test_the_nearest_distance_is_that_to_another_row():
    X = np.array([[0.0], [0.0], [1.0], [3.0]])
    assert nearest_distance(X) == pytest.approx(1.0)  # 1, 1, 1 and 2
    assert nearest_distance(np.repeat(X, 700, axis=0)) == pytest.approx(1.0)
    far = np.random.default_rng(0).normal(size=(700, 5)) + 1e4
    distances = cdist(far[::2], far)
    distances[distances == 0] = np.inf
    assert nearest_distance(far) == pytest.approx(np.median(distances.min(axis=1)), rel=1e-6)


def test_rows_are_recognised_in_half_precision_and_not_among_their_neighbours():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 64)).astype(np.float32)
    sketching = Sketching.of_rows(X)
    known = Memory.of_rows(sketching, sketching.sketches(X), np.zeros(2000, dtype=np.intp))
    still = np.zeros(2000)
    assert known.recognised(sketching.sketches(X.astype(np.float16)), still).mean() > 0.99
    near = X + 0.05 * nearest_distance(X) * rng.normal(size=X.shape) / 8
    assert not known.recognised(sketching.sketches(near), still).any()


def test_a_column_of_another_unit_does_not_hide_the_others():
    rng = np.random.default_rng(0)
    X = np.column_stack([1e6 * rng.integers(5, size=400), rng.normal(size=(400, 2))]).astype(np.float32)
    sketching = Sketching.of_rows(X[:200])
    known = Memory.of_rows(sketching, sketching.sketches(X[:200]), np.zeros(200, dtype=np.intp))
    assert known.recognised(sketching.sketches(X), np.zeros(400)).tolist() == [1] * 200 + [0] * 200


def test_counts_are_added_up_by_label_set():
    rng = np.random.default_rng(0)
    sketching = Sketching(np.zeros(2), np.eye(2), 0.5)
    sketches, ids = 3 * rng.random((200, 2)), rng.integers(5, size=200)
    known, rows = Memory.of_rows(sketching, sketches, ids), 3 * rng.random((50, 2))
    near = cdist(rows, known.sketches, "chebyshev") <= 0.5
    expected = near @ (np.eye(5)[known.sets] * known.counts[:, None])
    found = known.counted(rows, 5)
    np.testing.assert_array_equal(found.toarray(), expected)
    assert found.nnz == (expected > 0).sum()
    P = rng.dirichlet(np.ones(5), size=50).astype(np.float32)
    dense = (expected + 0.3 * P) / (expected.sum(axis=1, keepdims=True) + 0.3)
    np.testing.assert_array_equal(memory.mixed(P, found, 0.3), dense.astype(np.float32))


def test_what_rounding_could_change_is_not_sure_and_decided_by_the_row_alone():
    sketching = Sketching(np.zeros(1), np.ones((1, 1)), 0.5)
    known = Memory.of_rows(sketching, np.array([[0.0], [0.0], [10.0]]), np.array([1, 1, 0]))
    rows, error = np.array([[0.0], [0.49], [0.51], [5.0], [10.5], [np.nan]]), np.full(6, 0.02)
    assert known.recognised(rows, error).tolist() == [1, 2, 2, 0, 2, 0]
    assert known.recognised(rows, np.zeros(6)).tolist() == [1, 1, 0, 0, 1, 0]
    np.testing.assert_array_equal(known.counted(rows, 2).toarray()[:4], [[0, 2], [0, 2], [0, 0], [0, 0]])


def test_logits_of_a_row_are_within_their_bounds_however_they_are_computed(noisy):
    X, y = noisy
    _, _, made, _ = with_memory("logistic", X[:300], y[:300], 4)
    together = made.model.logits(Rounded(X), exact=False)
    assert np.isfinite(together.bound).all()
    for i in (0, 7, 299, 300, 449):
        alone = made.model.logits(Rounded(X[i : i + 1].astype(np.float64)), exact=True)
        assert (abs(alone.values[0] - together.values[i]) <= together.bound[i]).all()


def test_logits_of_label_sets_that_no_row_like_it_has_stay_those_of_the_model(noisy):
    X, y = noisy[0][:300], noisy[1][:300]
    _, base, made, _ = with_memory("logistic", X, y, 4)
    model, both = (fitted.model.logits(Rounded(X), exact=False).values for fitted in (base, made))
    own = np.eye(4, dtype=bool)[y]
    np.testing.assert_array_equal(both[~own], model[~own])
    assert (both[own] > model[own]).all()


def test_training_rows_are_found_and_others_as_before(noisy, fitted, tmp_path):
    X, y = noisy
    taken = next(line for line in fitted.report_ if line["taken"])
    assert taken["posteriors"].endswith("rows remembered")
    other = EAPH(4, random_state=0, n_iter=4, database="disjoint").fit(X[:300], y[:300])
    scores = [evaluate(h.transform(X[300:]), y[300:], h.transform(X[:300]), y[:300]).map for h in (fitted, other)]
    assert scores[0] > scores[1] + 0.1
    assert taken["training_map"] == pytest.approx(scores[0], abs=0.08)
    np.testing.assert_array_equal(fitted.transform(X[300:]), other.transform(X[300:]))  # rows that neither has learned
    alone = np.vstack([fitted.transform(X[i : i + 1]) for i in range(450)])
    np.testing.assert_array_equal(alone, fitted.transform(X))
    save(fitted, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").transform(X), alone)


def test_a_save_with_fewer_projections_is_loaded(noisy, fitted, tmp_path):
    known = fitted.posterior_.memory
    few = replace(known.sketching, directions=known.sketching.directions[:, :4].copy())
    before = replace(known, sketching=few, sketches=known.sketches[:, :4].copy())
    save(with_posterior(fitted, replace(fitted.posterior_, memory=before)), tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").transform(noisy[0]), fitted.transform(noisy[0]))


@pytest.mark.parametrize("kind", ["logistic", "ridge", "combo"])
def test_every_model_that_is_learned_remembers(noisy, kind):
    X, y = noisy
    hasher = EAPH(4, posterior=kind, random_state=0, n_iter=1).fit(X[:300], y[:300])
    assert isinstance(hasher.posterior_, Remembering)


def test_rows_of_a_stream_are_remembered(noisy, fitted, monkeypatch):
    X, y = noisy
    monkeypatch.setattr(estimator, "FOLDED_ROWS", 250)
    hasher = EAPH(4, random_state=0, n_iter=4).fit_stream(ArrayStream(X[:300], y[:300]))
    found = hasher.posterior_.memory
    assert len(found.sets) == 300
    assert (hasher.predict_proba(X[:300]).argmax(axis=1) == y[:300]).all()
    np.testing.assert_array_equal(np.bincount(found.sets), np.bincount(fitted.posterior_.memory.sets))


def test_rows_of_a_stream_that_are_held_out_do_not_remember_themselves(noisy):
    X, y = noisy
    folds = Folds.one(np.arange(300) >= 200)
    sketching = Sketching.of_rows(X[:300])
    rows = sketching, sketching.sketches(X[:300]), y[:300]
    remembered = Remembered.of_rows(*rows, 4, folds)
    assert len(remembered.known) == 0
    assert len(remembered.memory.sets) == 300


def test_many_rows_are_not_remembered(noisy, monkeypatch):
    X, y = noisy
    monkeypatch.setattr(estimator, "MOST_REMEMBERED", 299)
    report = EAPH(4, random_state=0, n_iter=1).fit(X[:300], y[:300]).report_
    assert not any("remembered" in line["posteriors"] for line in report)


def test_equal_rows_that_contradict_each_other_are_trusted_as_far_as_they_agree():
    rng = np.random.default_rng(0)
    X = rng.integers(40, size=(500, 1)).astype(np.float32)
    y = np.where(rng.random(500) < 0.5, rng.integers(3, size=500), (X[:, 0] // 4).astype(int) % 3)
    _, base, made, P = with_memory("ridge", X, y, 3)
    assert 1 < made.model.doubt < memory.MOST_DOUBT
    assert made.loss <= base.loss * 1.02
    assert P.max(axis=1).mean() == pytest.approx((P.argmax(axis=1) == y).mean(), abs=0.1)
    _, _, agreed, _ = with_memory("ridge", X, (X[:, 0] // 4).astype(int) % 3, 3)
    assert agreed.model.doubt == pytest.approx(DOUBT, rel=1e-4)


def test_a_few_contradictions_cost_the_other_rows_nothing(noisy):
    X, y = noisy[0][:300].copy(), noisy[1][:300].copy()
    X[297:], y[297:] = X[:3], (y[:3] + 1) % 4
    _, base, made, inside = with_memory("logistic", X, y, 4)
    assert DOUBT < made.model.doubt < 0.2
    assert (inside[3:297].argmax(axis=1) == y[3:297]).all()
    assert made.model.doubt == pytest.approx(slow_doubt(base, X, y, 3), rel=0.01)


def slow_doubt(base, X, y, n_equal):
    """The number of rows that the model counts as, of the last rows that equal the first, by trying many."""
    folds = draw_folds(y, np.random.RandomState(0))
    first = np.arange(n_equal)
    last = len(X) - n_equal + first
    apart = folds.fold[first] != folds.fold[last]
    inside, best = base.model.predict(X), (np.inf, 0.0)
    for a in np.geomspace(1e-3, 10, 4000):
        total = 0.0
        for row, other in [*zip(first[apart], last[apart], strict=True), *zip(last[apart], first[apart], strict=True)]:
            n = np.eye(4)[y[other]]
            total -= memory.HELD_OUT_WEIGHT * np.log((n + a * base.oof[row])[y[row]] / (1 + a))
        for row in range(len(X)):
            n = 2 if row < n_equal or row >= len(X) - n_equal else 1
            total -= np.log((1 + a * inside[row, y[row]]) / (n + a))
        best = min(best, (total, a))
    return best[1]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("sets", np.full(300, 99), "label sets do not exist"),
        ("sets", np.full(300, -1), "label sets do not exist"),
        ("counts", np.zeros(300, dtype=np.int64), "numbers of rows are not positive"),
        ("counts", np.full(300, -1), "numbers of rows are not positive"),
        ("counts", np.ones(2, dtype=np.int64), "do not fit each other"),
        ("counts", np.ones(300), "other types"),
        ("sketches", np.zeros((300, 2)), "do not fit each other"),
        ("sketches", np.full((300, 6), np.nan), "not in order"),
        ("sketches", -np.arange(1800.0).reshape(300, 6), "not in order"),
        ("sketching", Sketching(np.zeros(5), np.ones((6, 4)), 0.1), "do not fit each other"),
        ("sketching", Sketching(np.zeros(6), np.ones((6, 6)), np.inf), "not a finite number"),
        ("sketching", Sketching(np.zeros(6), np.ones((6, 6)), 10**400), "not a finite number"),
        ("sketching", Sketching(np.full(6, np.nan), np.ones((6, 6)), 0.1), "not finite"),
        ("sketching", Sketching(np.full(6, np.inf), np.ones((6, 6)), 0.1), "not finite"),
        ("sketching", Sketching(np.zeros(6), np.full((6, 6), np.inf), 0.1), "not finite"),
    ],
)
def test_a_damaged_memory_is_not_loaded(fitted, tmp_path, name, value, reason):
    broken = replace(fitted.posterior_, memory=replace(fitted.posterior_.memory, **{name: value}))
    save(with_posterior(fitted, broken), tmp_path / "model")
    with pytest.raises(DamagedFile, match=reason):
        load(tmp_path / "model")


@pytest.mark.parametrize("doubt", [0.0, -1.0, np.nan, np.inf, 10**400])
def test_a_damaged_doubt_is_not_loaded(fitted, tmp_path, doubt):
    save(with_posterior(fitted, replace(fitted.posterior_, doubt=doubt)), tmp_path / "model")
    with pytest.raises(DamagedFile, match="not positive"):
        load(tmp_path / "model")


def with_posterior(fitted, posterior):
    """The same hasher with other posteriors."""
    hasher = EAPH().set_params(**fitted.get_params())
    hasher.__dict__.update(fitted.__dict__)
    hasher.posterior_ = posterior
    return hasher
