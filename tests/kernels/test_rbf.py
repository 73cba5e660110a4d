import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from shorthash import AnchorRBF
from shorthash.errors import AnchorWarning, InvalidInput
from shorthash.kernels import Bias


@pytest.mark.filterwarnings("ignore::shorthash.errors.AnchorWarning")
@parametrize_with_checks([AnchorRBF(), AnchorRBF(n_anchors=5, bandwidth="mean", center=False), Bias()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def loop_features(X, anchors, sigma):
    out = np.empty((len(X), len(anchors)))
    for i, x in enumerate(X):
        for j, p in enumerate(anchors):
            out[i, j] = np.exp(-((x - p) ** 2).sum() / (2 * sigma**2))
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_features_equal_a_loop(blobs, dtype):
    X = (10 * blobs[0]).astype(dtype)
    kernel = AnchorRBF(n_anchors=20, random_state=0).fit(X)
    expected = loop_features(X.astype(np.float64), kernel.anchors_, kernel.bandwidth_)
    assert np.allclose(kernel.transform(X), expected - expected.mean(axis=0), atol=1e-13)
    assert np.allclose(kernel.mean_, expected.mean(axis=0), atol=1e-13)
    assert kernel.transform(X).dtype == np.float64


def test_without_centring(blobs):
    X, _ = blobs
    kernel = AnchorRBF(n_anchors=20, center=False, random_state=0).fit(X)
    assert np.allclose(kernel.transform(X), loop_features(X, kernel.anchors_, kernel.bandwidth_), atol=1e-13)
    assert not kernel.mean_.any()


def test_anchors_are_different_training_rows(blobs):
    X, _ = blobs
    kernel = AnchorRBF(n_anchors=40, random_state=3).fit(X)
    rows = {row.tobytes() for row in X}
    assert len({a.tobytes() for a in kernel.anchors_}) == 40
    assert all(a.tobytes() in rows for a in kernel.anchors_)


def bandwidths(X, anchors, rule):
    distances = np.array([[np.linalg.norm(x - p) for p in anchors] for x in X])
    nearest = distances.min(axis=1)
    is_anchor = np.array([any(np.array_equal(x, p) for p in anchors) for x in X])
    return {"mean-min": nearest[~is_anchor].mean(), "mean-min-authors": nearest.mean(), "mean": distances.mean()}[rule]


@pytest.mark.parametrize("rule", ["mean-min", "mean-min-authors", "mean"])
def test_bandwidth_rules_equal_loops(blobs, rule):
    X, _ = blobs
    kernel = AnchorRBF(n_anchors=30, bandwidth=rule, random_state=0).fit(X)
    assert kernel.bandwidth_ == pytest.approx(bandwidths(X, kernel.anchors_, rule), rel=1e-6)


def test_bandwidth_where_every_row_is_an_anchor(blobs):
    X = blobs[0][:50]
    kernel = AnchorRBF(n_anchors=50, random_state=0).fit(X)
    distances = np.array([[np.linalg.norm(x - p) for p in X] for x in X])
    for i in range(50):
        distances[i, i] = np.inf
    assert kernel.bandwidth_ == pytest.approx(distances.min(axis=1).mean(), rel=1e-6)


def test_the_authors_bandwidth_collapses_where_most_rows_are_anchors(digits):
    """1 497 rows, 1 000 anchors: the authors' rule counts 0 for two rows of three."""
    X = digits[0][:1497]
    ours = AnchorRBF(random_state=0).fit(X).bandwidth_
    theirs = AnchorRBF(bandwidth="mean-min-authors", random_state=0).fit(X).bandwidth_
    assert theirs / ours == pytest.approx(497 / 1497, rel=1e-2)


def test_bandwidth_is_estimated_on_a_seeded_sample():
    X = np.random.default_rng(0).normal(size=(60_000, 3)).astype(np.float32)
    one, two = (AnchorRBF(n_anchors=50, random_state=s).fit(X) for s in (0, 0))
    assert one.bandwidth_ == two.bandwidth_
    nearest = np.sqrt(np.min([((X - p) ** 2).sum(axis=1) for p in one.anchors_], axis=0))
    assert one.bandwidth_ == pytest.approx(nearest[nearest > 0].mean(), rel=0.03)


def test_twins_everywhere_do_not_make_the_bandwidth_zero():
    X = np.repeat(np.arange(6.0)[:, None], 2, axis=0)
    kernel = AnchorRBF(n_anchors=12, random_state=0).fit(X)
    assert kernel.bandwidth_ > 0
    assert np.isfinite(kernel.transform(X)).all()


def test_far_from_the_origin_nothing_is_lost(blobs):
    """Squared norms of 1e12 would leave 4 digits of a squared distance."""
    X, _ = blobs
    near = AnchorRBF(n_anchors=30, random_state=0).fit(X)
    far = AnchorRBF(n_anchors=30, random_state=0).fit(X + 1e6)
    assert np.allclose(near.transform(X), far.transform(X + 1e6), atol=1e-9)


def test_more_anchors_than_rows_is_a_warning(blobs):
    with pytest.warns(AnchorWarning, match="n_anchors=1000, but there are only 300 rows"):
        kernel = AnchorRBF().fit(blobs[0])
    assert len(kernel.anchors_) == 300


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_anchors": 0}, "'n_anchors' parameter of AnchorRBF must be an int >= 1. Got 0 instead"),
        ({"n_anchors": 2.5}, "'n_anchors'.*Got 2.5"),
        ({"bandwidth": "median"}, "'mean-min', 'mean-min-authors', 'mean'. Got 'median'"),
        ({"bandwidth": 0}, "a finite float > 0. Got 0"),
        ({"bandwidth": float("nan")}, "finite float"),
    ],
)
def test_bad_parameters(blobs, parameters, message):
    with pytest.raises(InvalidInput, match=message):
        AnchorRBF(**parameters).fit(blobs[0])


def test_constant_features():
    with pytest.raises(InvalidInput, match="constant features"):
        AnchorRBF(n_anchors=3).fit(np.ones((5, 2)))


def test_bias_is_a_last_column_of_ones(blobs):
    X, _ = blobs
    out = Bias().fit_transform(X.astype(np.float32))
    assert np.array_equal(out, np.hstack([X.astype(np.float32), np.ones((300, 1), dtype=np.float32)]))
    assert out.dtype == np.float32
    assert Bias().fit(X).get_feature_names_out()[-1] == "bias"


@pytest.mark.parametrize("bandwidth", [1e-200, 1e200])
def test_a_bandwidth_without_a_square_is_refused(blobs, bandwidth):
    X, _ = blobs
    with pytest.raises(InvalidInput, match=r"must lie between 1e-150 and 1e\+150"):
        AnchorRBF(n_anchors=5, bandwidth=bandwidth).fit(X)
