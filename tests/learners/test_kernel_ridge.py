"""Kernel ridge posteriors: the link from scores to logits, and the rows by which it is chosen."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.naive_bayes import GaussianNB

from shorthash import load, save
from shorthash._rounding import Rounded, Scored
from shorthash.errors import InvalidInput
from shorthash.learners.eaph.estimator import EAPH
from shorthash.learners.posteriors.folds import Fitted, Folds, calibrate, draw_folds, softmax, with_lone_rows
from shorthash.learners.posteriors.logistic import fit_logistic
from shorthash.learners.posteriors.models import combined
from shorthash.learners.posteriors.ridge import (
    EXPECTED_LOG,
    EXPECTED_MULTIPLE,
    FLOOR,
    LINK_ROWS,
    RIDGES,
    Link,
    Tried,
    _best_space,
    best_link,
    fit_link,
    fit_ridge,
)

EXPECTED_LINK = np.array([EXPECTED_MULTIPLE, EXPECTED_LOG])


def drawn_scores(seed, n, u, temperature, power):
    """Scores, and label sets drawn from the posteriors that a link makes of them."""
    rng = np.random.default_rng(seed)
    S = rng.dirichlet(np.full(u, 0.2), size=n).astype(np.float32) + 0.02 * rng.standard_normal((n, u), dtype=np.float32)
    P = Link(0.0, 1.0, temperature, power).posteriors(S).astype(np.float64)
    return S, np.array([rng.choice(u, p=p / p.sum()) for p in P])


def slow_loss(S, ids, temperature, power):
    """The log-loss of a link, row by row."""
    losses = []
    for scores, own in zip(S.astype(np.float64), ids, strict=True):
        logits = [temperature * s + power * np.log(max(s, FLOOR)) for s in scores]
        losses.append(logsumexp(logits) - logits[own])
    return np.mean(losses)


@pytest.mark.parametrize(("temperature", "power"), [(8.0, 0.0), (1.0, 1.5), (4.0, 0.8)])
def test_the_link_of_least_loss_is_found(temperature, power):
    S, ids = drawn_scores(0, 500, 12, temperature, power)
    loss, found = fit_link(S, ids, EXPECTED_LINK)
    assert loss == pytest.approx(slow_loss(S, ids, *found), abs=1e-5)

    def penalised(x):
        away = np.log(x[0] / 5) ** 2 + ((x[1] - 0.5) / 0.5) ** 2
        return slow_loss(S, ids, *x) + 3 / 500 * away / 2  # three rows of what is expected

    slow = minimize(penalised, [3.0, 1.0], bounds=[(0.01, 1e4), (0.0, 20.0)], method="Powell")
    assert penalised(found) == pytest.approx(slow.fun, abs=1e-4)


def test_few_rows_change_the_link_little():
    """Rows that a model gets wrong would make its posteriors uniform, if there were nothing but them."""
    S, ids = drawn_scores(0, 500, 12, 8.0, 0.0)
    wrong = (ids + 1) % 12
    multiples = [fit_link(S[:n], wrong[:n], EXPECTED_LINK)[1] for n in (2, 20, 500)]
    assert multiples[0][0] > multiples[1][0] > multiples[2][0]
    assert multiples[0][0] > 2
    assert multiples[2][0] < 0.5


def test_few_rows_change_a_temperature_little():
    S, ids = drawn_scores(0, 500, 12, 8.0, 0.0)
    wrong, S = (ids + 1) % 12, 8 * S
    temperatures = [calibrate(S[:n], wrong[:n], expected=1.0)[0] for n in (2, 20, 500)]
    assert temperatures == sorted(temperatures, reverse=True)
    assert temperatures[0] > 0.3
    assert temperatures[2] < 0.1
    assert calibrate(S[:2], wrong[:2])[0] < temperatures[0]
    temperature, loss = calibrate(S[:20], wrong[:20], expected=1.0)
    assert loss == pytest.approx(slow_loss(temperature * S[:20], wrong[:20], 1.0, 0.0), rel=1e-5)


def test_few_rows_that_are_all_right_do_not_make_a_linear_model_certain():
    """Ten rows in 64 columns can often be told apart without an error, but other rows cannot."""
    rng = np.random.default_rng(0)
    ids = np.repeat([0, 1], 500)
    X = (rng.normal(size=(1000, 64)) + 0.6 * ids[:, None]).astype(np.float32)
    few = np.arange(0, 1000, 100)
    Yg = np.eye(2, dtype=np.uint8)
    losses = []
    for seed in range(5):
        rows = few + seed
        found = fit_logistic(X[rows], ids[rows], Yg, draw_folds(ids[rows], np.random.RandomState(seed)))
        P = found.model.predict(X)
        losses.append(-np.mean(np.log(np.maximum(P[np.arange(1000), ids], 1e-12))))
    assert max(losses) < 0.4  # without what is expected, 1.2
    S = np.array([[3.0, -3.0], [-3.0, 3.0]], dtype=np.float32)[[0, 1] * 250]
    scales = [calibrate(S[:n], np.arange(n) % 2, expected=0.1)[0] for n in (2, 20, 500)]
    assert 0.1 < scales[0] < scales[1] < scales[2]


@pytest.mark.parametrize("posterior", ["logistic", "precomputed", GaussianNB()])
def test_few_rows_that_are_wrong_do_not_make_posteriors_uniform(posterior):
    """All three ways to posteriors expect a temperature near 1."""
    rng = np.random.default_rng(0)
    X, ids = np.repeat(10 * np.eye(3), 2, axis=0) + rng.normal(size=(6, 3)), np.array([0, 1, 2, 0, 1, 2])
    if posterior == "precomputed":
        X = softmax(X).astype(np.float64)
        X /= X.sum(axis=1, keepdims=True)
    model = EAPH(3, posterior=posterior, database="disjoint", random_state=0).fit(X, ids).posterior_
    assert model.temperature > 0.02


def test_few_rows_change_the_powers_of_a_product_little():
    S, ids = drawn_scores(0, 500, 12, 8.0, 0.0)
    good, bad = (Fitted(None, softmax(8 * scores), 0.0) for scores in (S, S[::-1]))
    gaps = []
    for n in (5, 50, 500):
        one, two = (replace(each, oof=each.oof[:n]) for each in (good, bad))
        together = combined(one, two, ids[:n], np.arange(n), None)
        powers = np.zeros(2) if together is None else together.model.powers
        gaps.append(powers[0] - powers[1])
        assert together is None or (powers > 0).all()
    assert 0 < gaps[0] < gaps[1]
    assert gaps[0] < 0.5
    assert combined(good, bad, ids, np.arange(500)) is None  # the second gains nothing


def test_the_powers_of_least_loss_are_found():
    S, ids = drawn_scores(3, 40, 5, 8.0, 0.0)
    noise = np.random.default_rng(0).normal(size=S.shape)
    one, two = (Fitted(None, softmax(6 * S + each), 0.0) for each in (noise, noise[::-1]))
    logs = [np.log(each.oof.astype(np.float64)) for each in (one, two)]

    def loss(powers):
        logits = powers[0] * logs[0] + powers[1] * logs[1]
        return np.mean(logsumexp(logits, axis=1) - logits[np.arange(40), ids])

    def penalised(powers):
        return loss(powers) + 10 / 40 * np.sum((powers - 0.6) ** 2) / 2  # ten rows of what is expected

    found = combined(one, two, ids, np.arange(40), None)
    slow = minimize(penalised, [0.6, 0.6], bounds=[(0.0, 2.0)] * 2, method="Powell")
    np.testing.assert_allclose(found.model.powers, slow.x, atol=0.01)
    assert found.loss == pytest.approx(loss(found.model.powers), rel=1e-4)


def test_a_logarithm_never_harms_and_helps_many_label_sets():
    for temperature, power, gain in ((9.0, 0.0, 0.0), (0.5, 2.0, 0.1)):
        S, ids = drawn_scores(1, 800, 60, temperature, power)
        assert calibrate(S, ids)[1] - fit_link(S, ids, EXPECTED_LINK)[0] >= gain - 1e-3


def test_rows_that_were_never_seen_do_not_decide():
    S, ids = drawn_scores(2, 400, 10, 2.0, 1.0)
    judged = np.flatnonzero(np.arange(400) % 3)
    spoiled = S.copy()
    spoiled[::3] = 1 - spoiled[::3]
    by_ridge = {0.1: S, 1.0: 0.1 * S}
    found = best_link({0.1: spoiled, 1.0: 0.1 * spoiled}, ids, judged)
    assert found == best_link({ridge: scores[judged] for ridge, scores in by_ridge.items()}, ids[judged])
    nothing = np.empty(0, dtype=np.intp)
    assert best_link(dict.fromkeys(RIDGES, S), ids, nothing) == (0.0, 0.01, *EXPECTED_LINK)


def test_few_rows_need_much_to_choose_a_penalty_that_is_not_expected():
    S, ids = drawn_scores(4, 400, 10, 8.0, 0.0)
    wrong = np.roll(S, 1, axis=1)
    by_ridge = {0.01: (0.6 * S + 0.4 * wrong).astype(np.float32), 1.0: S}  # better at a penalty of 1
    losses = [fit_link(scores, ids, EXPECTED_LINK)[0] for scores in by_ridge.values()]
    n = int(10 * 2 / (losses[0] - losses[1]))  # rows at which two powers of ten outweigh the gain: 10 / n * 2**2 / 2
    assert losses[0] > losses[1] + 0.01
    for size, chosen in ((n // 2, 0.01), (2 * n, 1.0)):
        tiled = {ridge: np.tile(scores, (-(-size // 400), 1))[:size] for ridge, scores in by_ridge.items()}
        labels = np.tile(ids, -(-size // 400))[:size]
        assert best_link(tiled, labels, few=True).ridge == chosen, size
        assert best_link(tiled, labels).ridge == 1.0


@pytest.mark.parametrize("n", [1000, 1001])
def test_without_rows_to_judge_there_is_no_product_where_anchors_are_missing(n):
    fitted, nothing = Fitted(None, np.full((n, 2), 0.5, dtype=np.float32), 0.0), np.empty(0, dtype=np.intp)
    assert (combined(fitted, fitted, np.arange(n), nothing, None) is None) == (n > 1000)
    assert combined(fitted, fitted, np.arange(n), nothing) is None


@pytest.mark.parametrize("posterior", ["ridge", "combo"])
def test_two_rows_are_too_few_for_a_kernel(posterior):
    with pytest.raises(InvalidInput, match=r"at least 3 rows.*Got 2 instead; use posterior='auto'"):
        EAPH(4, posterior=posterior).fit([[0.0, 1.0], [1.0, 0.0]], [0, 1])


@pytest.mark.parametrize(("n", "sigma"), [(30, 0.7), (1000, 1.0)])
def test_few_rows_get_the_bandwidth_that_is_expected(n, sigma):
    """Where a wide kernel is hardly better."""
    X = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    losses = {0.5: 0.6, 0.7: 0.501, 1.0: 0.5}
    unit = np.sqrt(2 * X.var(axis=0, dtype=np.float64).sum())

    def tried(spaces, _):
        return [Tried(losses.get(round(space.sigma / unit, 3), 1.0), space, []) for space in spaces]

    folds = draw_folds(np.arange(n) % 2, np.random.RandomState(0))
    assert _best_space(X, folds, tried).space.sigma == pytest.approx(sigma * unit)


def test_of_many_rows_some_decide_about_the_link():
    S, ids = drawn_scores(3, 2 * LINK_ROWS, 4, 3.0, 0.5)
    assert best_link({1.0: S}, ids) == best_link({1.0: S[::2]}, ids[::2])


def test_logits_are_the_link_of_the_scores_within_their_bound(blobs):
    X, y = blobs
    rows, ids = X.astype(np.float32), np.unique(y, return_inverse=True)[1]
    u = ids.max() + 1
    folds = draw_folds(ids, np.random.RandomState(0))
    model = replace(fit_ridge(rows, ids, np.eye(u, dtype=np.uint8), folds).model, temperature=3.0, power=1.2)
    fast = model.logits(Rounded(rows[:40]), exact=False)
    scores = model.kernel.transform(rows[:40].astype(np.float64)) @ model.weights + model.bias
    slow = 3.0 * scores + 1.2 * np.log(np.maximum(scores, FLOOR))
    assert np.allclose(fast.values, slow, rtol=1e-9, atol=1e-9)
    for row in range(10):
        exact = model.logits(Rounded(rows[row : row + 1]), exact=True).values
        assert np.all(np.abs(exact - fast.values[row]) <= fast.bound[row])


def test_the_bound_of_a_logit_holds_for_every_score_within_its_own(blobs):
    X, y = blobs
    ids = np.unique(y, return_inverse=True)[1]
    folds = draw_folds(ids, np.random.RandomState(0))
    fitted = fit_ridge(X.astype(np.float32), ids, np.eye(ids.max() + 1, dtype=np.uint8), folds)
    model = replace(fitted.model, temperature=2.0, power=3.0)
    S = np.array([[-0.2, FLOOR - 1e-4, FLOOR, FLOOR + 1e-4, 0.05, 0.7, 1.1]])
    e = np.full_like(S, 1e-3)
    found = model._linked(Scored(S, e))
    for share in np.linspace(-1, 1, 41):
        moved = S + share * e
        exact = 2.0 * moved + 3.0 * np.log(np.maximum(moved, FLOOR))
        assert np.all(np.abs(exact - found.values) <= found.bound)


def test_codes_with_a_link_do_not_depend_on_the_batch_and_are_saved(tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(40), 12)
    X = (rng.uniform(size=(40, 2))[y] + 0.03 * rng.normal(size=(len(y), 2))).astype(np.float32)
    hasher = EAPH(6, posterior="ridge", random_state=0).fit(X, y)
    assert hasher.posterior_.model.power > 0
    codes = hasher.transform(X)
    assert np.array_equal(np.vstack([hasher.transform(X[i : i + 1]) for i in range(60)]), codes[:60])
    save(hasher, tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").transform(X), codes)


@pytest.mark.parametrize("whole", [True, False])
def test_judged_rows_have_a_label_set_that_their_model_saw(whole, seed):
    ids = np.random.default_rng(seed).zipf(1.6, size=60).astype(np.intp)
    folds = draw_folds(ids, np.random.RandomState(seed))
    folds = folds if whole else folds.first()
    slow = []
    for place, row in enumerate(folds.rows):
        others = [ids[i] for i in range(60) if folds.fold[i] != folds.fold[row]]
        slow += [place] if ids[row] in others else []
    assert folds.judged(ids).tolist() == slow


def test_every_row_of_the_first_fold_is_judged_where_classes_have_two_rows():
    ids = np.repeat(np.arange(30), 2)
    first = draw_folds(ids, np.random.RandomState(0)).first()
    assert len(first.judged(ids)) == len(first.rows) == 12


def test_few_rows_of_fine_structure_get_a_narrow_kernel():
    rng = np.random.default_rng(0)
    centers = rng.uniform(size=(60, 2))
    X = np.repeat(centers, 3, axis=0) + 0.01 * rng.normal(size=(180, 2))
    ids = np.repeat(np.arange(60), 3)
    folds = draw_folds(ids, np.random.RandomState(0))
    fitted = fit_ridge(X.astype(np.float32), ids, np.eye(60, dtype=np.uint8), folds)
    assert fitted.model.kernel.bandwidth_ < 0.2 * np.sqrt(2 * X.var(axis=0).sum())
    assert (fitted.oof.argmax(axis=1) == ids).mean() > 0.8  # of 60 classes with three rows each


@pytest.mark.parametrize(
    ("losses", "narrowest", "best"),
    [
        ({0.5: 0.5, 0.7: 0.6, 1.0: 0.7, 0.25: 0.502, 0.125: 0.4, 0.0625: 0.401, 0.03125: 0.5}, 0.03125, 0.125),
        ({0.5: 0.5, 0.7: 0.6, 1.0: 0.7, 0.25: 0.52}, 0.25, 0.5),
        ({0.5: 0.6, 0.7: 0.5, 1.0: 0.7}, 0.5, 0.7),
        ({width: width for width in (1.0, 0.7, 0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625)}, 0.015625, 0.015625),
    ],
)
def test_narrower_bandwidths_are_tried_while_they_are_hardly_worse(losses, narrowest, best):
    X = np.random.default_rng(0).normal(size=(1200, 2)).astype(np.float32)
    folds = draw_folds(np.arange(1200) % 2, np.random.RandomState(0))
    unit, asked = np.sqrt(2 * X.var(axis=0, dtype=np.float64).sum()), []

    def tried(spaces, trial):
        widths = [round(space.sigma / unit, 9) for space in spaces]
        asked.extend((width, len(trial.rows)) for width in widths)
        return [Tried(losses[width], space, []) for width, space in zip(widths, spaces, strict=True)]

    assert _best_space(X, folds, tried).space.sigma == pytest.approx(best * unit)
    assert min(asked)[0] == narrowest
    first = len(folds.first().rows)
    again = [(0.5, 1200)] if best <= 0.5 else []
    assert asked == [(width, first) for width in (0.5, 0.7, 1.0)] + again + [
        (width, 1200) for width in losses if width < 0.5
    ]


def test_a_label_set_that_was_not_seen_is_recognised_as_often_as_the_others():
    P = softmax(np.random.default_rng(0).standard_normal((6, 3)))
    ids = np.array([0, 0, 1, 1, 2, 0])
    judged = Folds(np.array([0, 1, 0, 1, 0, 1]), np.arange(6)).judged(ids)
    assert judged.tolist() == [0, 1, 2, 3, 5]
    found, share = with_lone_rows(P, ids, judged, np.eye(3, dtype=np.uint8)), P[judged, ids[judged]].mean()
    assert np.array_equal(found[judged], P[judged])
    assert np.allclose(found[4], (1 - share) * P[4] + share * np.eye(3)[2])


def test_a_label_set_that_was_not_seen_but_has_known_labels_stays_as_it_was_found():
    P = softmax(np.random.default_rng(0).standard_normal((6, 4)))
    Yg = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [1, 0, 1]], dtype=np.uint8)  # the last alone has the third label
    found = with_lone_rows(P, np.array([0, 0, 1, 1, 2, 3]), np.arange(4), Yg)
    assert np.array_equal(found[:5], P[:5])
    assert found[5, 3] > P[5, 3]


def test_rows_per_class_are_those_in_the_class_of_a_row():
    rng = np.random.default_rng(0)
    y = np.concatenate([np.repeat(np.arange(3), 20), np.arange(3, 33)])  # most classes have one row, most rows do not
    X = np.vstack([5 * rng.normal(size=(33, 4))[y] + rng.normal(size=(90, 4))]).astype(np.float32)
    hasher = EAPH(6, posterior="logistic", random_state=0).fit(X, y)
    assert hasher._options()["rows_per_class"] == pytest.approx((3 * 400 + 30) / 90)
    assert {line["codes"] for line in hasher.report_} == {"codewords", "table"}
