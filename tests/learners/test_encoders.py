"""Encoders: their limits, their held-out scores, what they choose, what they refuse."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from shorthash import RSLH, AnchorRBF, load, save
from shorthash._labels import group_labels
from shorthash._rounding import Scored, best_word
from shorthash.codes.levels import leave_one_out_map
from shorthash.codes.signs import pack, sign
from shorthash.data.rows import Rows
from shorthash.errors import InvalidInput
from shorthash.learners import encoders
from shorthash.learners.classifier import ClassifierCode
from shorthash.learners.eaph.estimator import EAPH
from shorthash.learners.encoders import ENCODERS, CodewordHasher, fit_logistic, fit_ridge
from shorthash.learners.fsdh import FSDH
from shorthash.learners.lsh import LSH
from shorthash.learners.nsh import NSH
from shorthash.learners.scdh import SCDH
from shorthash.learners.sdh import SDH
from shorthash.pipeline import HasherPipeline

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def centred(blobs):
    return blobs[0] - blobs[0].mean(axis=0), blobs[1]


def rslh(n_bits=6, **parameters):
    return RSLH(n_bits=n_bits, random_state=0, **parameters)


@pytest.mark.parametrize("data", ["blobs", "tagged"])
@pytest.mark.parametrize(
    "learner", [rslh(), rslh(ridge=0.5, init="balanced", boosting=None), FSDH(n_bits=6), NSH(n_bits=3)]
)
def test_linear_is_the_projection_of_the_learner(data, learner, request):
    X, y = request.getfixturevalue(data)
    hasher = CodewordHasher(learner, encoder="linear", random_state=0).fit(X, y)
    assert np.allclose(hasher.project(X), hasher.estimator_.project(X), atol=1e-9)
    assert np.array_equal(hasher.transform(X), hasher.estimator_.transform(X))


def test_linear_with_another_penalty_is_another_regression(blobs):
    X, y = blobs
    hasher = CodewordHasher(rslh(ridge=1e-5), encoder="linear", ridge=7.0).fit(X, y)
    expected = np.linalg.solve(X.T @ X + 7 * np.eye(12), X.T @ hasher.codes_)
    assert np.allclose(hasher.project(X), X @ expected)


@pytest.mark.parametrize("scores", ["ridge", "logistic"])
def test_soft_tends_to_linear_and_to_nearest(centred, scores):
    X, y = centred
    codes = {
        name: CodewordHasher(rslh(), encoder=encoder, scores=scores, temperature=tau, random_state=0).fit(X, y)
        for name, encoder, tau in (
            ("linear", "linear", None),
            ("nearest", "nearest", None),
            ("cold", "soft", 1e-6),
            ("hot", "soft", 1e6),
        )
    }
    codes = {name: hasher.transform(X) for name, hasher in codes.items()}
    assert np.array_equal(codes["cold"], codes["linear"])
    assert np.array_equal(codes["hot"], codes["nearest"])
    assert not np.array_equal(codes["cold"], codes["hot"])


def test_without_centring_small_temperatures_would_collapse(centred):
    """The mean codeword is what a flat posterior would vote for."""
    X, y = centred
    hasher = CodewordHasher(rslh(5, init="distinct", boosting=None), temperature=1e-3).fit(X, y)
    flat = np.full((1, 5), 0.2)
    mean = hasher.codewords_.mean(axis=0)
    assert (mean != 0).any()
    assert np.array_equal(np.sign(flat @ hasher.codewords_)[0], np.sign(mean))
    assert len(np.unique(hasher.transform(X), axis=0)) > 5


def test_nearest_is_the_codeword_of_the_largest_score(centred):
    X, y = centred
    hasher = CodewordHasher(rslh(), encoder="nearest").fit(X, y)
    scores = hasher.scores_.predict(X)
    assert np.array_equal(hasher.transform(X), hasher.codewords_[scores.argmax(axis=1)])
    gap = np.sort(scores, axis=1)[:, -1] - np.sort(scores, axis=1)[:, -2]
    assert (np.abs(hasher.project(X)).min(axis=1) >= gap - 1e-12).all()


def test_words_that_tie_give_the_first_of_them_and_no_third():
    words = np.array([[1, -1], [-1, 1]], dtype=np.int8)
    tied = Scored(np.ones((1, 2)), 0.0)
    for exact in (False, True):
        assert np.array_equal(np.sign(best_word(tied, words, exact=exact).values), [[1, -1]])


def test_bits_that_all_codewords_share_stay(centred):
    C = np.array([[1, -1, 1], [-1, -1, 1]], dtype=np.int8)
    S = Scored(np.random.default_rng(0).normal(size=(9, 2)), 0.1)
    soft = encoders._soft(S, C, 2.0, exact=False)
    for bits in (encoders._linear(S, C, exact=False), soft, best_word(S, C, exact=False)):
        assert (bits.values[:, 1] < 0).all()
        assert (bits.values[:, 2] > 0).all()


def test_held_out_ridge_scores_equal_refits_without_the_row(centred):
    X, y = centred[0][:40], centred[1][:40]
    groups = group_labels(y, owner="test")
    held_out = fit_ridge(Rows(X, "test"), groups, 0.3)[1]()
    for i in range(40):
        rest = np.arange(40) != i
        A, E = X[rest], np.eye(5)[y[rest]]
        expected = X[i] @ np.linalg.solve(A.T @ A + 0.3 * np.eye(12), A.T @ E)
        assert np.allclose(held_out[i], expected)


def test_held_out_scores_do_not_know_the_label_of_their_row(centred):
    X, y = centred
    other = y.copy()
    other[17] = (y[17] + 1) % 5
    scores = [fit_ridge(Rows(X, "test"), group_labels(z, owner="test"), 0.1)[1]()[17] for z in (y, other)]
    assert np.allclose(*scores)


def test_logistic_scores_sum_to_zero(centred):
    X, y = centred
    model, held_out = fit_logistic(Rows(X, "test"), group_labels(y, owner="test"), np.random.RandomState(0))
    assert np.allclose(model.predict(X).sum(axis=1), 0, atol=1e-9)
    assert np.allclose(held_out().sum(axis=1), 0, atol=1e-9)


def test_the_chosen_temperature_retrieves_best_out_of_sample(centred):
    X, y = centred
    hasher = CodewordHasher(rslh(5, init="balanced", boosting=None), random_state=0).fit(X, y)
    scores = fit_ridge(Rows(X, "test"), group_labels(y, owner="test"), 1e-5)[1]()
    start, held_out = encoders._calibrated(scores, y), Scored(scores, 0.0)
    value = {
        tau: leave_one_out_map(sign(encoders._soft(held_out, hasher.codewords_, tau, exact=False).values), y)
        for tau in start * encoders.FACTORS
    }
    assert value[hasher.temperature_] == max(value.values())


def test_calibration_finds_the_temperature_of_the_scores(seed):
    rng = np.random.default_rng(seed)
    S = rng.normal(size=(20_000, 4))
    P = np.exp(3 * S)
    P /= P.sum(axis=1, keepdims=True)
    ids = (rng.random((20_000, 1)) > P.cumsum(axis=1)).sum(axis=1)
    assert encoders._calibrated(S, ids) == pytest.approx(3, rel=0.1)


def test_a_given_temperature_is_used(centred):
    for encoder in ("soft", "expected-ap"):
        assert CodewordHasher(rslh(4), encoder=encoder, temperature=2.5).fit(*centred).temperature_ == 2.5


@pytest.mark.parametrize("data", ["blobs", "tagged"])
def test_expected_ap_gives_every_row_the_cell_of_largest_precision(data, request):
    X, y = request.getfixturevalue(data)
    hasher = CodewordHasher(rslh(4), encoder="expected-ap").fit(X, y)
    P = np.exp(hasher.temperature_ * hasher.scores_.predict(X))
    P /= P.sum(axis=1, keepdims=True)
    assert np.array_equal(hasher.transform(X), hasher.cells_[(P @ hasher.table_.T).argmax(axis=1)])
    assert np.array_equal(hasher.codewords_, hasher.cells_[hasher.table_.argmax(axis=0)])
    assert hasher.table_.shape == (len(hasher.cells_), len(hasher.label_sets_))
    assert 0 <= hasher.table_.min() <= hasher.table_.max() <= 1 + 1e-6


def test_expected_ap_raises_the_expected_precision_of_the_nearest_codewords(digits):
    X, y = digits
    Z = AnchorRBF(100, random_state=0).fit_transform(X + 6 * np.random.default_rng(0).normal(size=X.shape))
    learner = rslh(8, init="balanced", boosting=None)
    even = np.arange(len(X)) % 2 == 0
    value = {
        encoder: clone(CodewordHasher(learner, encoder=encoder)).fit(Z[even], y[even]).score(Z[~even], y[~even])
        for encoder in ENCODERS
    }
    assert value["expected-ap"] > value["nearest"]
    assert value["soft"] > value["linear"]


def test_only_cells_in_use_are_kept(centred):
    hasher = CodewordHasher(rslh(12), encoder="expected-ap").fit(*centred)
    assert len(hasher.cells_) < 300
    assert len(np.unique(pack(hasher.cells_))) == len(hasher.cells_)


@pytest.mark.parametrize(
    "learner", [SDH(n_bits=4), SCDH(n_bits=4), ClassifierCode(n_bits=4), EAPH(4, "logistic")], ids=str
)
def test_any_learner_with_codewords(centred, learner):
    X, y = centred
    for encoder in ENCODERS:
        hasher = CodewordHasher(learner, encoder=encoder, random_state=0).fit(X, y)
        assert hasher.score(X, y) > 0.4


def test_the_seeds_of_the_learner_are_kept_unless_others_are_given(centred):
    plain = rslh().fit(*centred).codewords_
    kept = CodewordHasher(rslh(), encoder="nearest").fit(*centred)
    other = CodewordHasher(rslh(), encoder="nearest", random_state=1).fit(*centred)
    assert np.array_equal(kept.codewords_, plain)
    assert not np.array_equal(other.codewords_, plain)


def test_after_a_kernel(digits, tmp_path):
    X, y = digits
    steps = [("kernel", AnchorRBF(80, random_state=0)), ("scale", StandardScaler())]
    hasher = HasherPipeline([*steps, ("hasher", CodewordHasher(rslh(), encoder="expected-ap", scores="logistic"))])
    hasher.fit(X, y)
    assert hasher.score(X, y) > 0.8
    loaded = load(save(hasher, tmp_path / "model"))
    assert np.array_equal(loaded.project(X), hasher.project(X))


def test_unlabelled_rows_are_dropped_if_the_learner_drops_them(tagged):
    X, Y = tagged
    bare = Y.copy()
    bare[:10] = 0
    hasher = CodewordHasher(rslh(drop_unlabelled=True)).fit(X, bare)
    assert hasher.n_dropped_ == 10
    assert len(hasher.codes_) == 290
    assert np.array_equal(hasher.transform(X), CodewordHasher(rslh()).fit(X[10:], bare[10:]).transform(X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"estimator": "rslh"}, "must be a hasher. Got 'rslh' instead; in a pipeline"),
        ({"encoder": "hard"}, "'linear', 'soft', 'nearest', 'expected-ap'. Got 'hard'"),
        ({"scores": "svm"}, "'ridge', 'logistic'. Got 'svm'"),
        ({"temperature": 0}, "'temperature' parameter of CodewordHasher must be a finite float > 0"),
        ({"ridge": -1}, "'ridge'"),
        ({"estimator": LSH(n_bits=4)}, "LSH has none .*; use one that has, such as RSLH"),
        ({"estimator": RSLH(n_bits=17), "encoder": "expected-ap"}, "at most 16 bits .*Got n_bits=17 .*encoder='soft'"),
    ],
)
def test_bad_parameters(centred, parameters, message):
    with pytest.raises(InvalidInput, match=message):
        CodewordHasher(**{"estimator": rslh(), **parameters}).fit(*centred)
