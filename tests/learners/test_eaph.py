"""Expected-AP hashing: posteriors and folds, the estimator, the lookup of the best code."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from shorthash import evaluate, load, save
from shorthash._labels import group_labels
from shorthash._rounding import Scored, thread_pools
from shorthash.codes import sign, unpack
from shorthash.codes.levels import expected_average_precision, leave_one_out_map
from shorthash.errors import CollisionWarning, InvalidInput
from shorthash.learners.classifier import ClassifierCode
from shorthash.learners.eaph import choosing
from shorthash.learners.eaph import codebook as eaph_codebook
from shorthash.learners.eaph.choosing import row_precisions
from shorthash.learners.eaph.encoding import Lookup, _by_bounds, likeliest_words
from shorthash.learners.eaph.estimator import EAPH
from shorthash.learners.eaph.refinement import best_rows, design_codes
from shorthash.learners.posteriors import folds as posterior_folds
from shorthash.learners.posteriors import logistic as posterior_logistic
from shorthash.learners.posteriors.folds import Folds, draw_folds
from shorthash.learners.posteriors.logistic import LogLinear
from shorthash.learners.posteriors.models import fit_posteriors
from shorthash.learners.rslh.estimator import RSLH


def test_a_fold_never_sees_its_own_labels(blobs, monkeypatch):
    """Out-of-fold logits of a fold stay when its labels are shuffled (at a fixed penalty)."""
    X, y = blobs[0].astype(np.float32), blobs[1]
    fold = np.arange(len(y)) % 5
    monkeypatch.setattr(posterior_logistic, "PENALTIES", (0.03,))
    monkeypatch.setattr(posterior_logistic, "calibrate", lambda *_, **__: (1.0, 0.0))
    shuffled = y.copy()
    shuffled[fold == 2] = np.random.default_rng(0).permutation(y[fold == 2])
    folds, eye = Folds(fold, np.arange(len(y))), np.eye(5, dtype=np.uint8)
    one, two = (fit_posteriors("logistic", X, labels, eye, folds)[0][1].oof for labels in (y, shuffled))
    assert np.array_equal(one[fold == 2], two[fold == 2])
    assert not np.array_equal(one[fold == 1], two[fold == 1])


def test_folds_spread_the_label_sets(seed):
    ids = np.random.default_rng(seed).integers(7, size=500)
    folds = draw_folds(ids, np.random.RandomState(seed))
    counts = np.array([np.bincount(ids[held], minlength=7) for _, held, _ in folds])
    assert len(counts) == 5
    assert np.ptp(counts, axis=0).max() <= 1
    assert np.array_equal(folds.rows, np.arange(500))


def test_of_many_rows_a_sample_is_held_out_once(seed, monkeypatch):
    monkeypatch.setattr(posterior_folds, "FOLDED_ROWS", 400)
    monkeypatch.setattr(posterior_folds, "HELD_OUT", 70)
    ids = np.random.default_rng(seed).integers(7, size=500)
    [(seen, held, places)] = draw_folds(ids, np.random.RandomState(seed))
    assert len(held) == 70
    assert np.array_equal(np.sort(np.concatenate([seen, held])), np.arange(500))
    assert np.array_equal(places, np.arange(70))
    assert np.abs(np.bincount(ids[held], minlength=7) - 70 * np.bincount(ids, minlength=7) / 500).max() <= 1


def test_the_log_linear_model_of_one_label_is_logistic_regression(blobs):
    """Without a space of its own, a target or biases that cost, it is what scikit-learn fits."""
    X, y = blobs[0].astype(np.float32), blobs[1]
    start = LogLinear(np.zeros(12), 1.0, np.zeros((12, 5)), np.zeros(5), np.eye(5, dtype=np.uint8), 1.0, 0.1)
    with_free_bias = pytest.MonkeyPatch()
    with_free_bias.setattr(posterior_logistic, "BIAS_PENALTY", 0.0)
    with_free_bias.setattr(posterior_logistic, "MOST_ITERATIONS", 500)
    found = posterior_logistic.minimise(X, y, start, start, 1e-12)
    with_free_bias.undo()
    sklearn = LogisticRegression(C=1 / (0.1 * len(X)), max_iter=5000, tol=1e-8).fit(X, y)
    assert np.allclose(found.predict(X), sklearn.predict_proba(X), atol=2e-3)


def test_a_strong_penalty_leaves_the_class_means(digits):
    X, y = digits[0].astype(np.float32), digits[1]
    target, Z = posterior_logistic._in_space(X, y, np.eye(10, dtype=np.uint8), None)
    assert np.allclose(np.linalg.norm(Z, axis=1), 8, rtol=1e-4)
    directions = np.stack([Z[y == k].mean(axis=0) for k in range(10)])
    assert np.allclose(target.weights.T, directions / np.linalg.norm(directions, axis=1, keepdims=True), atol=1e-5)
    heavy = posterior_logistic.minimise(Z, y, replace(target, penalty=1e4), target, 1e-9)
    assert np.allclose(heavy.weights, target.weights, atol=1e-3)


@pytest.mark.parametrize("posterior", ["logistic", "ridge", "combo", LogisticRegression(max_iter=500)])
def test_posteriors_are_calibrated_probabilities(digits, posterior):
    X, y = digits[0][:600].astype(np.float32), digits[1][:600]
    folds = draw_folds(y, np.random.RandomState(0))
    [(_, fitted)] = fit_posteriors(posterior, X, y, np.eye(10, dtype=np.uint8), folds)
    for P in (fitted.oof, fitted.model.predict(digits[0][600:700].astype(np.float32))):
        assert np.allclose(P.sum(axis=1), 1, atol=1e-5)
        assert P.min() >= 0
    assert fitted.loss == pytest.approx(-np.mean(np.log(fitted.oof[np.arange(600), y])), rel=1e-3)
    assert (fitted.oof.argmax(axis=1) == y).mean() > 0.85


def test_better_than_rslh_and_the_classifier_code_at_the_same_length(digits):
    X, y = digits
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=800, random_state=0)
    blur = np.random.default_rng(0).normal(scale=6, size=X_train.shape), np.random.default_rng(1)
    X_train, X_test = X_train + blur[0], X_test + blur[1].normal(scale=6, size=X_test.shape)  # classes overlap
    ours = EAPH(5, posterior="logistic", random_state=0).fit(X_train, y_train).score(X_test, y_test)
    simple = ClassifierCode(LogisticRegression(C=1e-3, max_iter=2000), n_bits=5, random_state=0).fit(X_train, y_train)
    assert ours > RSLH(5, random_state=0).fit(X_train - X_train.mean(axis=0), y_train).score(
        X_test - X_train.mean(axis=0), y_test
    )
    assert ours > simple.score(X_test, y_test)


def test_several_labels(tagged):
    X, Y = tagged
    hasher = EAPH(6, posterior="logistic", random_state=0).fit(X[:200], Y[:200])
    theirs = RSLH(6, max_iter=50, random_state=0).fit(X[:200], Y[:200]).score(X[200:], Y[200:])
    assert hasher.score(X[200:], Y[200:]) > theirs
    assert len(hasher.codewords_) == len(hasher.label_sets_)


def test_distinct_codewords_in_as_few_bits_as_there_can_be(digits):
    X, y = digits
    hasher = EAPH(4, posterior="logistic", random_state=0).fit(X, y)
    assert len(np.unique(hasher.codewords_, axis=0)) == 10


def test_more_classes_than_codes_share_them_well(digits):
    X, y = digits
    with pytest.warns(CollisionWarning, match="some must collide"):
        hasher = EAPH(2, posterior="logistic", random_state=0).fit(X, y)
    random_sharing = np.mean(
        [leave_one_out_map(unpack(np.random.default_rng(s).integers(0, 4, 10)[y], 2), y) for s in range(20)]
    )
    assert hasher.score(X, y) > random_sharing


def test_a_longer_code_is_not_worse_than_its_prefix(blobs):
    X, y = blobs  # 300 rows, and 2 000 that are drawn: up to 14 bits compete
    short = EAPH(14, posterior="logistic", random_state=0).fit(X, y)
    for n_bits in (15, 64):
        hasher = EAPH(n_bits, posterior="logistic", random_state=0).fit(X, y)
        assert hasher.codes_.shape == (300, n_bits)
        assert np.array_equal(hasher.codes_[:, :14], short.codes_)
        assert leave_one_out_map(hasher.codes_, y) >= leave_one_out_map(short.codes_, y) - 1e-12


def test_items_of_new_classes_lie_between_the_codewords_they_resemble(digits):
    X, y = digits
    hasher = EAPH(6, expect_new_classes=True, random_state=0).fit(X[y < 7], y[y < 7])
    assert type(hasher.posterior_).__name__ == "Prototypes"
    P = hasher.predict_proba(X[y >= 7])
    mean = P @ hasher.codewords_
    codes, cells = hasher.transform(X[y >= 7]), np.unique(hasher._codebook(), axis=0)
    nearest = cells[np.argmax(mean @ cells.T, axis=1)]
    np.testing.assert_array_equal((codes * mean).sum(axis=1), (nearest * mean).sum(axis=1))
    words = {tuple(word) for word in hasher.codewords_.tolist()}
    assert not {tuple(code) for code in codes.tolist()} <= words


@pytest.mark.parametrize("n_classes", [127, 128, 129, 300])  # around FINER_SETS, above MANY_GROUPS
def test_many_easy_classes_lose_nothing(n_classes):
    rng = np.random.default_rng(n_classes)
    y = np.repeat(np.arange(n_classes), 8)
    X = rng.normal(size=(n_classes, 24))[y] + 0.1 * rng.normal(size=(len(y), 24))
    hasher = EAPH(10, posterior="logistic", n_starts=1, random_state=0).fit(X[::2], y[::2])
    simple = ClassifierCode(n_bits=10, random_state=0).fit(X[::2], y[::2])
    scores = [evaluate(h.transform(X[1::4]), y[1::4], h.transform(X[3::4]), y[3::4]).map for h in (hasher, simple)]
    assert scores[0] > 0.99
    assert scores[0] >= scores[1] - 0.005


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_one_row_per_class_is_enough():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(60), 5)
    X = rng.normal(size=(60, 24))[y] + 0.4 * rng.normal(size=(300, 24))
    hasher = EAPH(8, random_state=0).fit(X[::5], y[::5])
    simple = ClassifierCode(n_bits=8, random_state=0).fit(X[::5], y[::5])
    query, base = np.arange(1, 300, 5), np.flatnonzero(np.arange(300) % 5 > 1)
    ours, theirs = (
        evaluate(h.transform(X[query]), y[query], h.transform(X[base]), y[base]).map for h in (hasher, simple)
    )
    assert ours > 0.8
    assert ours >= theirs - 0.005


def test_two_thousand_easy_classes_have_codewords_of_their_own(monkeypatch):
    monkeypatch.setattr(eaph_codebook, "WORK", 0)  # the fewest moves
    monkeypatch.setattr(eaph_codebook, "FEWEST", 500)
    y = np.repeat(np.arange(2000), 2)
    P = np.full((4000, 2000), 1e-6, dtype=np.float32)
    P[np.arange(4000), y] = 1 - 1999e-6
    options = {"rows_per_class": 2, "codebook": "annealed", "refine": True, "new_classes": False}
    [design] = design_codes(P, None, 12, np.random.RandomState(0), n_starts=1, n_iter=2, **options)
    codes = design.cells[best_rows(P, design.table)]
    assert leave_one_out_map(codes, y, 12) > 0.99


def test_single_rows_of_classes_are_told_apart(blobs):
    X, y = blobs[0][:40], blobs[1][:40]
    alone = np.unique(y, return_index=True)[1]
    for posterior in ("auto", "logistic"):
        hasher = EAPH(6, posterior=posterior, random_state=0).fit(X[alone], y[alone])
        assert len(np.unique(hasher.transform(X[alone]), axis=0)) == len(alone) == 5


def test_codebooks_by_name(digits):
    X, y = digits[0][:500], digits[1][:500]
    for codebook in ("annealed", "balanced", "binary", "random"):
        hasher = EAPH(6, posterior="logistic", codebook=codebook, refine=False, random_state=0).fit(X, y)
        assert len(np.unique(hasher.codewords_, axis=0)) == 10


def test_project_tells_how_firm_a_bit_is(digits):
    X, y = digits
    hasher = EAPH(6, posterior="logistic", random_state=0).fit(X, y)
    scores = hasher.project(X[:200])
    assert np.array_equal(np.where(scores >= 0, 1, -1), hasher.transform(X[:200]))
    assert np.all(scores != 0)


def test_bad_input(blobs, tagged):
    X, y = blobs
    with pytest.raises(InvalidInput, match=r"'combo', 'logistic', 'ridge'|'logistic', 'ridge', 'combo'"):
        EAPH(posterior="bayes").fit(X, y)
    with pytest.raises(InvalidInput, match="classifier with predict_proba"):
        EAPH(posterior=RidgeClassifier()).fit(X, y)
    with pytest.raises(InvalidInput, match="needs one label per row"):
        EAPH(posterior=LogisticRegression()).fit(*tagged)
    with pytest.raises(InvalidInput, match="needs one label per row"):
        EAPH(posterior=LogisticRegression()).partial_fit(*tagged)
    with pytest.raises(InvalidInput, match="'codebook' parameter of EAPH"):
        EAPH(codebook="polar").fit(X, y)
    with pytest.raises(InvalidInput, match="'n_iter'"):
        EAPH(n_iter=0).fit(X, y)


def test_update_codes_equals_fit_at_another_length(digits):
    X, y = digits[0][:600], digits[1][:600]
    updated = EAPH(8, posterior="logistic", random_state=0).fit(X, y).set_params(n_bits=5).update_codes()
    fitted = EAPH(5, posterior="logistic", random_state=0).fit(X, y)
    assert np.array_equal(updated.transform(X), fitted.transform(X))
    assert updated.expected_map_ == fitted.expected_map_


def test_a_fit_does_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(0)
    y = rng.integers(20, size=1500)
    X = (rng.normal(size=(20, 256))[y] + 3 * rng.normal(size=(1500, 256))).astype(np.float32)
    fitted = []
    for n_threads in (1, 2):
        with thread_pools().limit(limits=n_threads, user_api="blas"):
            fitted.append(EAPH(5, posterior="logistic", n_starts=1, n_iter=1, random_state=0).fit(X, y))
    np.testing.assert_array_equal(*(hasher.oof_posteriors_ for hasher in fitted))
    np.testing.assert_array_equal(*(hasher.table_ for hasher in fitted))


def test_the_report_says_what_was_tried(digits):
    X, y = digits[0][:600], digits[1][:600]
    hasher = EAPH(6, random_state=0).fit(X, y)
    [taken] = [line for line in hasher.report_ if line["taken"]]
    assert {"codewords", "table"} == {line["codes"] for line in hasher.report_}
    assert taken["disjoint_map"] == hasher.disjoint_map_ == pytest.approx(leave_one_out_map(hasher.codes_, y))
    assert taken["training_map"] == hasher.searched_map_ >= hasher.disjoint_map_
    posteriors, finalists = hasher.report_[:-2], hasher.report_[-2:]
    assert posteriors[0]["why"] == f"posteriors: {choosing.EXPECTED}"
    assert finalists[1]["why"] == f"codes: {choosing.EXPECTED}"
    assert {line["posteriors"] for line in finalists} == {taken["posteriors"]}
    for other, (preferred, what) in {2: (posteriors[0], "posteriors"), -2: (finalists[1], "codes")}.items():
        lost = preferred["disjoint_map"] - hasher.report_[other]["disjoint_map"]
        side = f"{lost:.4f} below" if lost >= 0 else f"{-lost:.4f} above"
        assert hasher.report_[other]["why"].startswith(f"{what}: disjoint_map {side} what is preferred")
    assert sum(taken[key] for key in ("disjoint_map", "training_map")) == max(
        line["disjoint_map"] + line["training_map"] for line in finalists
    )


def test_posteriors_compete_by_the_map_of_their_codes():
    X, y = make_moons(300, noise=0.2, random_state=0)
    hasher = EAPH(4, database="disjoint", random_state=0).fit(X, y)
    tried = {line["posteriors"]: line["disjoint_map"] for line in hasher.report_ if line["codes"] == "codewords"}
    [taken] = [line for line in hasher.report_ if line["taken"]]
    assert {name.split(",")[0] for name in tried} == {"logistic", "ridge"}
    assert any("with a kernel" in name for name in tried)
    assert tried[taken["posteriors"]] == max(tried.values()) > min(tried.values()) + 0.01  # a line is not enough here


@pytest.mark.parametrize(("rows", "codes"), [(2, {"codewords"}), (3, {"codewords", "table"})])
def test_the_table_needs_some_rows_of_every_class(digits, rows, codes, monkeypatch):
    monkeypatch.setattr("shorthash.learners.eaph.choosing.fit_rows", lambda *_: None)
    kept = np.concatenate([np.flatnonzero(digits[1] == c)[:rows] for c in range(10)])
    hasher = EAPH(6, random_state=0, n_iter=2).fit(digits[0][kept], digits[1][kept])
    assert {line["codes"] for line in hasher.report_} == codes


def test_two_rows_are_enough():
    X = np.array([[0.0, 1.0], [1.0, 0.0]])
    codes = EAPH(4, random_state=0).fit(X, ["a", "b"]).transform(X)
    assert not np.array_equal(*codes)


def test_not_knowing_what_is_searched_costs_little_in_either_case(digits):
    X, y = digits
    X = X + np.random.default_rng(0).normal(scale=6, size=X.shape)
    train, query, other = slice(0, 500), slice(500, 900), slice(900, 1300)
    scores = {}
    for database in ("auto", "disjoint", "training"):
        hasher = EAPH(6, posterior="logistic", database=database, random_state=0).fit(X[train], y[train])
        asked = hasher.transform(X[query])
        for name, rows in (("disjoint", other), ("training", train)):
            scores[database, name] = evaluate(asked, y[query], hasher.transform(X[rows]), y[rows]).map
    assert scores["auto", "disjoint"] > scores["disjoint", "disjoint"] - 0.02
    assert scores["auto", "training"] > scores["disjoint", "training"] - 0.005


def test_threads_change_nothing(digits):
    X, y = digits[0][:300], digits[1][:300]
    codes = []
    for limit in (1, 2):
        with threadpool_limits(limits=limit):
            codes.append(EAPH(6, random_state=0).fit(X, y).codes_)
    assert np.array_equal(*codes)


def test_codes_for_searching_the_training_rows_may_remember_them(digits):
    X, y = digits
    rng = np.random.default_rng(0)
    X = X + rng.normal(scale=6, size=X.shape)
    train, query = slice(0, 1000), slice(1000, 1400)
    scores = {}
    for database in ("disjoint", "training"):
        hasher = EAPH(6, posterior="logistic", database=database, random_state=0).fit(X[train], y[train])
        scores[database] = evaluate(hasher.transform(X[query]), y[query], hasher.transform(X[train]), y[train]).map
    assert scores["training"] > scores["disjoint"]
    assert hasher.searched_map_ == pytest.approx(scores["training"], abs=0.06)
    shorter = EAPH(5, posterior="logistic", database="training", random_state=0).fit(X[train], y[train])
    hasher.set_params(n_bits=5).update_codes()
    assert np.array_equal(hasher.transform(X[query]), shorter.transform(X[query]))
    del hasher._path
    with pytest.raises(InvalidInput, match="which are not saved; call fit"):
        hasher.update_codes()


def test_a_rows_own_item_is_left_out():
    groups = group_labels([0, 0, 1, 1, 0, 2], owner="test")
    queries, items = np.array([0, 1, 2, 3, 0, 0], dtype=np.uint8), np.array([0, 0, 3, 3, 0, 3], dtype=np.uint8)
    values = []
    for i in range(6):
        others = [j for j in range(6) if j != i]
        distances = [int(queries[i] ^ items[j]).bit_count() for j in others]
        total = np.array([[distances.count(t) for t in range(3)]])
        hits = [d for d, j in zip(distances, others, strict=True) if groups.ids[j] == groups.ids[i]]
        relevant = np.array([[hits.count(t) for t in range(3)]])
        values.append(expected_average_precision(total, relevant)[0])
    assert np.isnan(values[5])  # no other row is relevant
    np.testing.assert_allclose(row_precisions(queries, items, groups, 2), values)


def test_with_more_label_sets_than_are_learned_some_rows_are_queries(monkeypatch):
    rng = np.random.default_rng(0)
    Y = rng.integers(2, size=(90, 5))
    Y[:, 0] |= ~Y.any(axis=1)
    groups, queries = group_labels(Y, owner="test"), rng.integers(16, size=90).astype(np.uint8)
    every = row_precisions(queries, queries, groups, 4)
    monkeypatch.setattr(choosing, "JUDGING_ROWS", 30)
    assert np.array_equal(row_precisions(queries, queries, groups, 4), every)
    monkeypatch.setattr("shorthash._labels.MOST_SETS", 12)
    some = row_precisions(queries, queries, groups, 4)
    assert np.array_equal(some[::3], every[::3])
    assert np.isnan(some).sum() == 60


def test_more_rows_may_come_one_by_one_but_not_the_first(digits):
    X, y = digits[0][:60], digits[1][:60]
    with pytest.raises(ValueError, match="1 sample"):
        EAPH(4, random_state=0).partial_fit(X[:1], y[:1], classes=range(10))
    hasher = EAPH(4, posterior="logistic", random_state=0).partial_fit(X[:59], y[:59], classes=range(10))
    assert hasher.partial_fit(X[59:], y[59:]).kept_rows_.seen == 60


@pytest.fixture(params=["product", "bounds", "bounds with axes"])
def way(request, monkeypatch):
    """The ways to look up a table, whatever its size."""
    if request.param != "product":
        monkeypatch.setattr("shorthash.learners.eaph.encoding.SMALL_TABLE", 0)
        monkeypatch.setattr("shorthash.learners.eaph.encoding.ASKED_ROWS", 0)
    if request.param == "bounds with axes":
        monkeypatch.setattr("shorthash.learners.eaph.encoding.N_AXES", (1, 4, 10))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("sharpness", [0.1, 2.0, 20.0])
@pytest.mark.parametrize("n_words", [1, 2, 40, 700])
def test_the_likeliest_word_is_that_of_the_whole_table(sharpness, n_words):
    rng = np.random.default_rng(0)
    P = special.softmax(sharpness * rng.normal(size=(500, 30)), axis=1)
    table = rng.normal(size=(n_words, 30)).astype(np.float32)
    words = sign(rng.normal(size=(n_words, 7)))
    found = likeliest_words(Scored(P, 1e-12), Lookup(table), words)
    assert np.array_equal(found.values, words[np.argmax(P @ table.T.astype(np.float64), axis=1)])
    assert not found.bound.any()


@pytest.mark.usefixtures("way")
def test_a_word_is_in_doubt_where_two_gain_the_same_to_rounding():
    P = np.array([[0.5, 0.5, 0.0], [0.9, 0.1, 0.0], [0.5 + 1e-9, 0.5 - 1e-9, 0.0]])
    table, words = np.eye(3, dtype=np.float32)[:2], np.array([[1, 1], [-1, 1]], dtype=np.int8)
    assert likeliest_words(Scored(P, 1e-12), Lookup(table), words).bound.ravel().tolist() == [np.inf, 0, 0]
    assert likeliest_words(Scored(P, 1e-8), Lookup(table), words).bound.ravel().tolist() == [np.inf, 0, np.inf]


@pytest.mark.usefixtures("way")
def test_a_row_that_is_not_a_number_is_in_doubt():
    table, words = np.eye(3, dtype=np.float32)[:2], np.array([[1, 1], [-1, 1]], dtype=np.int8)
    P = np.array([[0.9, 0.1, 0.0], [np.nan, 0.2, 0.3], [0.9, np.nan, 0.0], [0.0, 0.0, 0.0]])
    assert likeliest_words(Scored(P, 1e-12), Lookup(table), words).bound.ravel().tolist() == [0, np.inf, np.inf, np.inf]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("doubt", [1e-12, 1e-5, 1e-3])
@pytest.mark.parametrize("sharpness", [1.0, 6.0, 30.0])
def test_bounds_decide_some_rows_and_never_otherwise_than_the_whole_table(doubt, sharpness):
    rng = np.random.default_rng(1)
    table = (rng.random((500, 40)) ** 8).astype(np.float32)
    table[250:] = table[:250] + rng.normal(size=(250, 40)).astype(np.float32) * 1e-3  # close seconds
    P = special.softmax(sharpness * rng.normal(size=(400, 40)), axis=1)
    best, lead = np.zeros(400, dtype=np.int64), np.zeros(400)
    _by_bounds(P, Lookup(table), np.full(400, doubt), best, lead)
    gains = P @ table.T.astype(np.float64)
    second, first = np.sort(gains, axis=1)[:, -2:].T
    found = lead > doubt
    assert found.any()
    assert np.array_equal(best[found], gains.argmax(axis=1)[found])
    assert (first - second)[found].min() > doubt - 1e-12


def test_the_likeliest_label_set_decides_alone_where_no_other_can_make_up_for_it():
    rng = np.random.default_rng(2)
    table = rng.random((300, 20)).astype(np.float32)
    bounds = Lookup(table).bounds
    distance = np.linalg.norm(table[bounds.own][:, None] - table.astype(np.float64), axis=2)
    less = table.max(axis=0)[:, None] - table.T.astype(np.float64)
    distance[np.arange(20), bounds.own] = np.nan
    assert np.allclose(bounds.gap, np.nanmin(distance, axis=1), rtol=1e-5)
    assert np.allclose(bounds.ratio, np.nanmin(less / distance, axis=1), rtol=1e-5)
    assert (bounds.ratio <= np.nanmin(less / distance, axis=1)).all()


def test_bounds_are_prepared_for_many_rows_only():
    rng = np.random.default_rng(3)
    table, words = rng.normal(size=(8192, 40)).astype(np.float32), sign(rng.normal(size=(8192, 13)))
    P, lookup = special.softmax(rng.normal(size=(100, 40)), axis=1), Lookup(table)
    few = likeliest_words(Scored(P, 1e-12), lookup, words)
    assert "bounds" not in vars(lookup)
    many = likeliest_words(Scored(P, 1e-12), lookup, words)
    assert "bounds" in vars(lookup)
    assert np.array_equal(few.values, many.values)


def test_values_beyond_single_precision_are_an_error(digits):
    X, y = digits[0][:60].astype(float), digits[1][:60]
    fitted, new = (EAPH(4, posterior="logistic", random_state=0) for _ in range(2))
    fitted.fit(X, y)
    some = np.where(np.arange(60) < 40, y.astype(float), np.nan)
    for learn, labels in ((new.fit, y), (new.fit, some), (new.fit, None), (new.partial_fit, y), (fitted.align, y)):
        with pytest.raises(InvalidInput, match=r"single precision.*scale the features"):
            learn(X * 1e39, labels)


def test_settings_that_are_true_or_false_are_nothing_else(digits):
    with pytest.raises(InvalidInput, match="'expect_new_classes' parameter of EAPH must be one of True, False"):
        EAPH(4, expect_new_classes="no").fit(digits[0][:50], digits[1][:50])


def test_no_map_is_predicted_where_it_is_not_known(digits, tmp_path):
    X, y = digits[0][:400], digits[1][:400]
    few = np.array([str(label) if i < 60 else None for i, label in enumerate(y)], dtype=object)
    hasher = EAPH(5, posterior="logistic", n_iter=1, random_state=0).fit(X, few)
    assert hasher.n_unlabelled_ > 0
    assert np.isnan([hasher.disjoint_map_, hasher.searched_map_]).all()  # guesses would be judged by guesses
    assert np.isnan(hasher.update_codes().disjoint_map_)
    fitted = EAPH(5, posterior="logistic", n_iter=1, random_state=0).fit(X, y)
    save(fitted, tmp_path / "model")
    loaded = load(tmp_path / "model").update_codes()
    assert loaded.disjoint_map_ == pytest.approx(fitted.disjoint_map_)
    assert np.isnan(loaded.searched_map_)  # models that have seen the rows are not saved
