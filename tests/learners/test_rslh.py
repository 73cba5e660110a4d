"""RSLH as an estimator: what it learns, adds, takes back, refuses."""

import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import LabelBinarizer

from shorthash import RSLH, AnchorRBF
from shorthash.errors import CodesChangedWarning, InvalidInput


def same(one, two, tolerance=1e-8):
    assert np.array_equal(one.codewords_, two.codewords_)
    assert np.array_equal(one.label_sets_, two.label_sets_)
    assert np.abs(one.projection_ - two.projection_).max() <= tolerance * np.abs(two.projection_).max()
    assert one.n_samples_seen_ == two.n_samples_seen_


def test_every_class_has_one_codeword_and_every_row_the_code_of_its_class(blobs):
    X, y = blobs
    hasher = RSLH(n_bits=6, random_state=0).fit(X, y)
    assert hasher.codewords_.shape == (5, 6)
    assert np.array_equal(hasher.codes_, hasher.codewords_[y])
    assert hasher.codes_.dtype == np.int8


def test_the_projection_is_the_ridge_regression_of_the_chosen_codes(blobs):
    X, y = blobs
    hasher = RSLH(n_bits=6, ridge=0.5, random_state=0).fit(X, y)
    expected = np.linalg.inv(X.T @ X + 0.5 * np.eye(12)) @ X.T @ hasher.codes_
    assert np.allclose(hasher.projection_, expected)
    assert np.allclose(hasher.project(X), X @ expected)
    assert np.array_equal(hasher.transform(X), np.where(X @ expected >= 0, 1, -1))


def test_boosting_chooses_among_the_bits_of_all_runs(blobs):
    X, y = blobs
    alone = RSLH(n_bits=4, boosting=None, random_state=0).fit(X, y)
    boosted = RSLH(n_bits=4, boosting="ob", n_runs=5, random_state=0).fit(X, y)
    assert len(boosted.convergence_) == 5
    assert len(alone.convergence_) == 1
    assert set(boosted.chosen_bits_) <= set(range(20))
    imbalance = [np.abs(h.codes_.sum(axis=0, dtype=int)).mean() for h in (boosted, alone)]
    assert imbalance[0] < imbalance[1]


def test_separable_classes_are_found_again():
    rng = np.random.default_rng(0)
    y = np.repeat(["cat", "dog", "emu"], 30)
    X = np.repeat(np.eye(3), 30, axis=0) + 0.01 * rng.normal(size=(90, 3))
    hasher = RSLH(n_bits=8, random_state=0).fit(X, y)
    assert hasher.score(X, y) == 1.0
    assert hasher.classes_.tolist() == ["cat", "dog", "emu"]


def test_labels_of_every_form_learn_the_same(blobs):
    X, y = blobs
    reference = RSLH(n_bits=6, random_state=0).fit(X, y)
    one_hot = LabelBinarizer().fit_transform(y)
    for labels in (y.astype(str), y.tolist(), one_hot, 2 * one_hot - 1, pd.Series(y), y.astype(float)):
        same(RSLH(n_bits=6, random_state=0).fit(X, labels), reference, tolerance=0)


def test_same_seed_same_codes_other_seed_other_codes(blobs):
    fits = [RSLH(n_bits=8, random_state=s).fit(*blobs).codewords_ for s in (0, 0, 1)]
    assert np.array_equal(fits[0], fits[1])
    assert not np.array_equal(fits[0], fits[2])
    generator = [RSLH(n_bits=8, random_state=np.random.RandomState(3)).fit(*blobs).codewords_ for _ in range(2)]
    assert np.array_equal(*generator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("data", ["blobs", "tagged"])
def test_partial_fit_in_any_order_equals_fit(data, request):
    X, y = request.getfixturevalue(data)
    classes = np.unique(y) if y.ndim == 1 else None
    whole = RSLH(n_bits=6, random_state=0).fit(X, y)
    parts = np.array_split(np.random.default_rng(0).permutation(len(X)), 7)
    for order in (parts, parts[::-1]):
        hasher = RSLH(n_bits=6, random_state=0)
        for part in order:
            hasher.partial_fit(X[part], y[part], classes=classes)
        same(hasher, whole)


def test_merge_equals_fit_on_both(blobs):
    X, y = blobs
    halves = [
        RSLH(n_bits=6, random_state=0).partial_fit(X[part], y[part], classes=np.arange(5))
        for part in (slice(0, 100), slice(100, 300))
    ]
    same(halves[0].merge(halves[1]), RSLH(n_bits=6, random_state=0).fit(X, y))


def test_forget_equals_never_having_seen(blobs):
    X, y = blobs
    hasher = RSLH(n_bits=6, random_state=0).fit(X, y).forget(X[200:], y[200:])
    same(hasher, RSLH(n_bits=6, random_state=0).fit(X[:200], y[:200]))
    assert hasher.n_samples_seen_ == 200
    assert not hasattr(hasher, "codes_")


def test_forgetting_a_whole_class(blobs):
    X, y = blobs
    kept = y != 2
    hasher = RSLH(n_bits=6, random_state=0).fit(X, y).forget(X[~kept], y[~kept])
    rest = RSLH(n_bits=6, random_state=0).fit(X[kept], y[kept])
    assert np.array_equal(hasher.codewords_, rest.codewords_)
    assert np.abs(hasher.projection_ - rest.projection_).max() <= 1e-8 * np.abs(rest.projection_).max()


def test_fit_forgets_everything_before(blobs):
    X, y = blobs
    hasher = RSLH(n_bits=6, random_state=0).partial_fit(X[:50], y[:50], classes=np.arange(5))
    same(hasher.fit(X, y), RSLH(n_bits=6, random_state=0).fit(X, y), tolerance=0)


def test_classes_announced_but_not_seen_yet(blobs):
    X, y = blobs
    two = y < 2
    hasher = RSLH(n_bits=6, random_state=0).partial_fit(X[two], y[two], classes=np.arange(5))
    assert hasher.codewords_.shape == (2, 6)
    assert hasher.label_sets_.tolist() == [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0]]


def test_memory_map_and_array_learn_the_same(blobs, tmp_path):
    X, y = blobs
    np.save(tmp_path / "X.npy", X)
    mapped = RSLH(n_bits=6, random_state=0).fit(np.load(tmp_path / "X.npy", mmap_mode="r"), y)
    same(mapped, RSLH(n_bits=6, random_state=0).fit(X, y), tolerance=0)


def test_data_frames_and_set_output(blobs):
    X, y = blobs
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(12)])
    hasher = RSLH(n_bits=3, random_state=0).set_output(transform="pandas").fit(frame, y)
    codes = hasher.transform(frame)
    assert codes.columns.tolist() == ["rslh0", "rslh1", "rslh2"] == hasher.get_feature_names_out().tolist()
    assert (codes.dtypes == np.int8).all()
    assert hasher.feature_names_in_.tolist() == frame.columns.tolist()


def test_grid_search_by_tie_aware_map(blobs):
    search = GridSearchCV(RSLH(random_state=0), {"n_bits": [3, 8], "ridge": [1e-5, 1e5]}, cv=3).fit(*blobs)
    assert search.best_params_["n_bits"] == 8
    assert 0 < search.best_score_ <= 1


def test_score_is_the_leave_one_out_map_of_a_loop(blobs):
    X, y = blobs[0][:40], blobs[1][:40]
    hasher = RSLH(n_bits=4, random_state=0).fit(X, y)
    codes = hasher.transform(X)
    rng = np.random.default_rng(0)
    values = []
    for _ in range(400):  # a mean over random tie orders comes near the exact expectation
        noise = rng.random(40)
        for i in range(40):
            d = (codes != codes[i]).sum(axis=1) + noise
            d[i] = np.inf
            hits = (y == y[i])[np.argsort(d)][:-1]
            values.append((np.cumsum(hits) / np.arange(1, 40))[hits].mean())
    assert hasher.score(X, y) == pytest.approx(np.mean(values), abs=0.005)


def test_unlabelled_rows_dropped_on_request(tagged):
    X, Y = tagged
    bare = Y.copy()
    bare[:10] = 0
    hasher = RSLH(n_bits=6, drop_unlabelled=True, max_iter=50, random_state=0).fit(X, bare)
    assert hasher.n_dropped_ == 10
    assert hasher.n_samples_seen_ == 290
    assert len(hasher.codes_) == 290
    same(hasher, RSLH(n_bits=6, max_iter=50, random_state=0).fit(X[10:], bare[10:]), tolerance=0)


def test_mu_zero_leaves_the_features_out_of_the_alternation(blobs):
    hasher = RSLH(n_bits=4, mu=0, random_state=0).fit(*blobs)
    assert np.isfinite(hasher.projection_).all()


def test_dependent_features_without_ridge(blobs):
    X, y = blobs
    doubled = RSLH(n_bits=4, ridge=0, random_state=0).fit(np.hstack([X, X]), y)
    plain = RSLH(n_bits=4, ridge=0, random_state=0).fit(X, y)
    assert np.array_equal(doubled.transform(np.hstack([X, X])), plain.transform(X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_bits": 0}, r"The 'n_bits' parameter of RSLH must be an int in the range \[1, 64\]. Got 0 instead."),
        ({"n_bits": 65}, "Got 65 instead"),
        ({"n_bits": 8.0}, "Got 8.0 instead"),
        ({"n_bits": True}, "Got True instead"),
        ({"alpha": -1}, "'alpha' parameter of RSLH must be a finite float >= 0. Got -1.0"),
        ({"ridge": np.inf}, "'ridge'"),
        ({"gamma": "x"}, "'gamma'.*Got 'x'"),
        ({"similarity": "T"}, "one of 'G', 'S'. Got 'T'"),
        ({"boosting": "gradient"}, "'mb', 'ob', 'positionwise', None. Got 'gradient'"),
        ({"n_runs": 0}, "'n_runs'"),
        ({"max_iter": 0}, "'max_iter'"),
        ({"init": "zeros"}, "'init'"),
        ({"variant": "matlab"}, "'paper', 'authors-code'. Got 'matlab'"),
        ({"solver": "svd"}, "'one-pass', 'per-sample'"),
        ({"constraint": "J"}, "'I', 'nI'"),
    ],
)
def test_bad_parameters(blobs, parameters, message):
    with pytest.raises(InvalidInput, match=message):
        RSLH(**parameters).fit(*blobs)


def test_bad_data(blobs, tagged):
    X, y = blobs
    hasher = RSLH(n_bits=4, random_state=0)
    broken = X.copy()
    broken[7, 3] = np.nan
    with pytest.raises(InvalidInput, match=r"contains NaN \(first at row 7, column 3\)"):
        hasher.fit(broken, y)
    with pytest.raises(InvalidInput, match="X of RSLH has 300 rows and y has 299"):
        hasher.fit(X, y[:-1])
    with pytest.raises(InvalidInput, match=r"one class only \('a'\)"):
        hasher.fit(X, ["a"] * 300)
    with pytest.raises(InvalidInput, match="constant features"):
        hasher.fit(np.ones_like(X), y)
    with pytest.raises(InvalidInput, match=r"Sparse data.*RSLH computes with dense rows.* takes \d+ MiB"):
        hasher.fit(sparse.csr_array(X), y)
    with pytest.raises(InvalidInput, match="all-zero rows"):
        hasher.fit(tagged[0], np.zeros_like(tagged[1]))
    with pytest.raises(InvalidInput, match="unknown classes: 7"):
        hasher.partial_fit(X, y).partial_fit(X[:2], [0, 7])
    with pytest.raises(ValueError, match="X has 11 features, but RSLH is expecting 12"):
        hasher.transform(X[:, :-1])
    with pytest.raises(InvalidInput, match="would leave no rows"):
        hasher.fit(X, y).forget(X, y)
    with pytest.raises(InvalidInput, match="contains infinity"):
        hasher.transform(np.full((2, 12), np.inf))


def test_one_seen_class_is_no_error_while_more_are_announced(blobs):
    X, y = blobs
    hasher = RSLH(n_bits=4, random_state=0)
    for k in range(5):
        hasher.partial_fit(X[y == k], y[y == k], classes=np.arange(5))
    same(hasher, RSLH(n_bits=4, random_state=0).fit(X, y))


@pytest.mark.data
def test_structural_facts_on_cifar10(real_features):
    """Random codewords stay, bits of one class agree, and G gives the codes of S."""
    X, y = real_features("cifar10_cnn256")
    rows = np.random.default_rng(0).permutation(len(X))[:5000]
    Z = AnchorRBF(n_anchors=300, random_state=0).fit_transform(X[rows])
    fits = [RSLH(n_bits=8, similarity=s, boosting=None, random_state=0).fit(Z, y[rows]) for s in "GS"]
    assert np.array_equal(fits[0].codewords_, fits[1].codewords_)
    assert np.array_equal(fits[0].codes_, fits[0].codewords_[y[rows]])


def test_a_bit_that_all_classes_share_is_constant_and_no_rounding_noise():
    """Centred features give such a bit a projection of 1e-16, whose signs are noise."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 40)
    X = np.eye(3)[y] + 0.05 * rng.normal(size=(120, 3))
    X -= X.mean(axis=0)
    shared = 0
    for seed in range(20):
        hasher = RSLH(n_bits=2, boosting=None, random_state=seed).fit(X, y)
        constant = (hasher.codewords_ == hasher.codewords_[0]).all(axis=0)
        shared += constant.sum()
        assert not hasher.projection_[:, constant].any()
        assert np.array_equal(hasher.transform(X)[:, constant], hasher.codes_[:, constant])
    assert shared > 0


def test_a_fit_that_fails_leaves_classes_and_sums_alone(blobs):
    X, y = blobs
    hasher = RSLH(n_bits=4, random_state=0).fit(X, y)
    broken = X.copy()
    broken[-1, 0] = np.nan
    with pytest.raises(InvalidInput, match="NaN"):
        hasher.fit(broken, y.astype(str))
    expected = RSLH(n_bits=4, random_state=0).partial_fit(X, y).partial_fit(X[:50], y[:50])
    same(hasher.partial_fit(X[:50], y[:50]), expected)


def test_announced_classes_are_checked(blobs):
    X, y = blobs
    with pytest.raises(InvalidInput, match="must name 2 classes or more"):
        RSLH(n_bits=4).partial_fit(X, np.zeros(300), classes=[0])
    hasher = RSLH(n_bits=4, random_state=0).partial_fit(X, y, classes=np.arange(5))
    hasher.partial_fit(X, y, classes=[4, 3, 2, 1, 0])
    with pytest.raises(InvalidInput, match=r"must be those of the first call, \[0, 1, 2, 3, 4\]"):
        hasher.partial_fit(X, y, classes=np.arange(6))


def test_no_row_has_a_label(tagged):
    X, Y = tagged
    with pytest.raises(InvalidInput, match="None of the 300 samples of RSLH has a label"):
        RSLH(drop_unlabelled=True).fit(X, np.zeros_like(Y))


def test_dropping_unlabelled_rows_copies_nothing_of_the_size_of_the_data(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "X.npy", rng.normal(size=(60_000, 50)).astype(np.float32))
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    Y = np.eye(4, dtype=np.int8)[rng.integers(4, size=len(X))]
    Y[5] = 0
    hasher = RSLH(n_bits=4, drop_unlabelled=True, random_state=0)
    hasher.fit(X[:1000], Y[:1000])
    tracemalloc.start()
    hasher.fit(X, Y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert hasher.n_dropped_ == 1
    assert peak < 0.9 * X.nbytes


def test_partial_fit_says_once_that_codes_changed(blobs):
    X, y = blobs
    hasher = RSLH(n_bits=4, random_state=0).partial_fit(X[:60], y[:60])
    assert hasher.codes_changed_ == 0
    before, counts = hasher.codewords_.copy(), np.bincount(y[:60])
    with pytest.warns(CodesChangedWarning, match="gave other codewords to the classes of .* % of the rows"):
        hasher.partial_fit(X[60:200], y[60:200])
    changed = (before != hasher.codewords_).any(axis=1)
    assert hasher.codes_changed_ == pytest.approx(counts[changed].sum() / 60)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CodesChangedWarning)
        hasher.partial_fit(X[200:], y[200:])


def test_frozen_codewords_keep_the_meaning_of_codes(blobs):
    X, y = blobs
    hasher = RSLH(n_bits=4, random_state=0, freeze_codewords=True).partial_fit(X[:60], y[:60], classes=np.unique(y))
    before = hasher.codewords_.copy()
    hasher.partial_fit(X[60:], y[60:])
    assert np.array_equal(hasher.codewords_, before)
    assert hasher.codes_changed_ == 0
    assert hasher.n_samples_seen_ == len(X)
    E = np.eye(len(before))[y]
    expected = np.linalg.solve(X.T @ X + hasher.ridge * np.eye(X.shape[1]), X.T @ E @ before)
    varied = (before != before[0]).any(axis=0)
    np.testing.assert_allclose(hasher.projection_[:, varied], expected[:, varied], atol=1e-8)
    hasher.forget(X[:30], y[:30])
    assert np.array_equal(hasher.codewords_, before)


def test_frozen_codewords_need_every_class_at_first(blobs):
    X, y = blobs
    some = y < 2
    hasher = RSLH(n_bits=4, random_state=0, freeze_codewords=True)
    hasher.partial_fit(X[some], y[some], classes=np.unique(y))
    with pytest.raises(InvalidInput, match="has no codeword for the labels 2, which no row had before"):
        hasher.partial_fit(X, y)
    assert hasher.n_samples_seen_ == some.sum()
