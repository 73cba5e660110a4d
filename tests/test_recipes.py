import copy
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from shorthash import RSLH, AnchorRBF, HasherPipeline, make_hasher
from shorthash.errors import AnchorWarning, InvalidInput

FRONT = {"n_anchors": 60}


@pytest.fixture
def hasher():
    return make_hasher("rslh", n_bits=8, random_state=0, front_end=FRONT)


def assert_close_codes(one, two, share=0.001):
    """Float32 kernels may differ in the last digit between batches; a bit may flip where its score is 0."""
    assert (one != two).mean() <= share


def test_streaming_equals_the_plain_pipeline(hasher, digits):
    X, y = digits
    plain = make_pipeline(AnchorRBF(60, random_state=0), RSLH(8, random_state=0)).fit(X, y)
    hasher.fit(X, y)
    assert np.array_equal(hasher[-1].codewords_, plain[-1].codewords_)
    assert np.allclose(hasher[0].mean_, plain[0].mean_, atol=1e-9)
    assert np.allclose(hasher.project(X), plain[-1].project(plain[0].transform(X)), atol=2e-3)
    assert_close_codes(hasher.transform(X), plain.transform(X))


def test_the_kernel_matrix_never_exists(digits):
    X = np.tile(digits[0], (20, 1)).astype(np.float32)  # 35 940 rows
    y = np.tile(digits[1], 20)
    hasher = make_hasher("rslh", n_bits=8, random_state=0, front_end={"n_anchors": 400})
    hasher.fit(X[:2000], y[:2000])  # compiles and caches what is compiled and cached
    tracemalloc.start()
    hasher.fit(X, y)
    hasher.transform(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    full = len(X) * 400 * 4
    assert peak < 0.9 * full, f"peak of {peak / 2**20:.0f} MiB, the kernel matrix alone has {full / 2**20:.0f}"


def test_transform_is_the_sign_of_project_and_fit_transform_is_both(hasher, digits):
    X, y = digits
    codes = hasher.fit_transform(X, y)
    assert np.array_equal(codes, np.where(hasher.project(X) >= 0, 1, -1))
    assert codes.dtype == np.int8


def test_partial_fit_keeps_the_first_front_end(digits):
    X, y = digits
    hasher = make_hasher("rslh", n_bits=8, random_state=0, front_end=FRONT)
    hasher[0].fit(X)
    anchors = hasher[0].anchors_.copy()
    for part in np.array_split(np.arange(len(X)), 5):
        hasher.partial_fit(X[part], y[part], classes=np.arange(10))
    assert np.array_equal(hasher[0].anchors_, anchors)
    whole = make_hasher("rslh", n_bits=8, random_state=0, front_end=FRONT).fit(X, y)
    assert np.array_equal(hasher[-1].codewords_, whole[-1].codewords_)
    assert np.allclose(hasher[0].mean_, whole[0].mean_, atol=1e-8)
    assert_close_codes(hasher.transform(X), whole.transform(X))


def test_merge_and_forget(digits):
    X, y = digits
    template = make_hasher("rslh", n_bits=8, random_state=0, front_end=FRONT)
    template[0].fit(X)
    parts = [
        copy.deepcopy(template).partial_fit(X[s], y[s], classes=np.arange(10))
        for s in (slice(0, 900), slice(900, None))
    ]
    first = parts[0].transform(X)
    merged = parts[0].merge(parts[1])
    whole = copy.deepcopy(template).partial_fit(X, y)
    assert merged[-1].n_samples_seen_ == len(X)
    assert_close_codes(merged.transform(X), whole.transform(X))
    assert_close_codes(merged.forget(X[900:], y[900:]).transform(X), first)


def test_different_front_ends_do_not_merge(digits):
    X, y = digits
    one, two = (make_hasher("rslh", random_state=s, front_end=FRONT).fit(X, y) for s in (0, 1))
    with pytest.raises(InvalidInput, match="same anchors and bandwidth"):
        one.merge(two)


def test_rows_must_go_through_the_pipeline(hasher, digits):
    X, y = digits
    hasher.fit(X, y)
    with pytest.raises(InvalidInput, match="call the method of the pipeline"):
        hasher[-1].partial_fit(hasher[0].transform(X), y)


def test_a_pipeline_like_any_other(hasher, digits):
    X, y = digits
    hasher.fit(X, y)
    assert isinstance(hasher, HasherPipeline)
    assert hasher[:-1].transform(X[:5]).shape == (5, 60)
    assert hasher[-1].codes_.shape == (1797, 8)
    copy_ = clone(hasher).set_params(hasher__n_bits=4, kernel__n_anchors=30)
    assert copy_.fit(X, y).transform(X[:3]).shape == (3, 4)
    assert hasher.n_features_in_ == 64
    assert hasher.get_feature_names_out().tolist() == [f"rslh{i}" for i in range(8)]
    assert hasher[:1].fit(X).transform(X[:2]).shape == (2, 60)


def test_grid_search_over_front_end_and_learner(digits):
    X, y = digits[0][:600], digits[1][:600]
    grid = {"kernel__n_anchors": [10, 80], "hasher__n_bits": [4, 8]}
    search = GridSearchCV(make_hasher("rslh", random_state=0), grid, cv=2).fit(X, y)
    assert search.best_params_ == {"kernel__n_anchors": 80, "hasher__n_bits": 8}


def test_data_frames(hasher, digits):
    X, y = digits
    frame = pd.DataFrame(X, columns=[f"p{i}" for i in range(64)])
    by_frame = clone(hasher).fit(frame, y)
    assert by_frame.feature_names_in_[0] == "p0"
    assert np.array_equal(by_frame.transform(frame), hasher.fit(X, y).transform(X))


def test_without_centring(digits):
    X, y = digits
    hasher = make_hasher("rslh", n_bits=8, random_state=0, front_end={**FRONT, "center": False}).fit(X, y)
    assert not hasher[0].mean_.any()
    plain = make_pipeline(AnchorRBF(60, center=False, random_state=0), RSLH(8, random_state=0)).fit(X, y)
    assert_close_codes(hasher.transform(X), plain.transform(X))


def test_fallback_inside_the_pipeline_streams_too(digits):
    """The per-sample solver reads the rows through the front end; its outcome is that of the one-pass solver."""
    X, y = digits
    one = make_hasher("rslh", n_bits=8, random_state=0, front_end=FRONT).fit(X, y)
    two = make_hasher("rslh", n_bits=8, random_state=0, front_end=FRONT, solver="per-sample").fit(X, y)
    assert np.array_equal(one[-1].codes_, two[-1].codes_)
    largest = np.abs(one[-1].projection_).max()
    assert np.abs(one[-1].projection_ - two[-1].projection_).max() <= 1e-8 * largest


def test_the_authors_preset(digits):
    hasher = make_hasher("rslh", n_bits=8, preset="authors-code", random_state=0)
    learner, kernel = hasher[-1], hasher[0]
    assert (learner.alpha, learner.beta, learner.gamma, learner.ridge) == (7, 1e-2, 1e-4, 1e-6)
    assert (learner.variant, learner.boosting, kernel.bandwidth) == ("authors-code", None, "mean-min-authors")
    assert make_hasher("rslh", preset="authors-code", boosting="mb")[-1].boosting == "mb"


def test_the_authors_bandwidth_ruins_a_small_training_set_and_ours_does_not(digits):
    """1 497 rows, 1 000 anchors, 8 bits: the regression test of the mean-min rule."""
    X, y = digits
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[:1497], order[1497:]
    ours = make_hasher("rslh", n_bits=8, random_state=0).fit(X[train], y[train]).score(X[test], y[test])
    front = {"bandwidth": "mean-min-authors"}
    theirs = make_hasher("rslh", n_bits=8, random_state=0, front_end=front).fit(X[train], y[train])
    assert ours > 0.9
    assert theirs.score(X[test], y[test]) < 0.7


def test_fewer_rows_than_anchors(blobs):
    with pytest.warns(AnchorWarning, match="every row becomes an anchor"):
        hasher = make_hasher("rslh", n_bits=4, random_state=0).fit(*blobs)
    assert hasher.score(*blobs) > 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "rlsh"}, "'name' parameter of make_hasher must be one of 'rslh'"),
        ({"name": "rslh", "preset": "matlab"}, "'paper', 'authors-code'. Got 'matlab'"),
        ({"name": "rslh", "alhpa": 3}, "RSLH has no parameter 'alhpa' to set here. It has: n_bits, alpha"),
        ({"name": "rslh", "front_end": {"anchors": 3}}, "front end of rslh has no parameter 'anchors'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        make_hasher(**arguments)


def test_bad_rows(hasher, digits):
    X, y = digits
    broken = X.copy()
    broken[3, 5] = np.inf
    with pytest.raises(InvalidInput, match="infinity"):
        hasher.fit(broken, y)
    with pytest.raises(InvalidInput, match="1797 rows and y has 3"):
        hasher.fit(X, [1, 2, 3])
    hasher.fit(X, y)
    with pytest.raises(ValueError, match="X has 63 features, but AnchorRBF is expecting 64"):
        hasher.transform(X[:, :-1])
    with pytest.raises(InvalidInput, match="NaN"):
        hasher.transform(np.full((1, 64), np.nan))
