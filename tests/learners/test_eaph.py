"""Expected-AP hashing: the table against loops and finite differences, the steps, the estimator."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from shorthash import evaluate
from shorthash._labels import group_labels
from shorthash._rounding import Scored
from shorthash.codes import hamming_distances, sign, unpack
from shorthash.codes.levels import expected_average_precision, leave_one_out_map
from shorthash.errors import CollisionWarning, InvalidInput
from shorthash.learners.classifier import ClassifierCode
from shorthash.learners.eaph import codebook as eaph_codebook
from shorthash.learners.eaph import refinement
from shorthash.learners.eaph import table as eaph_table
from shorthash.learners.eaph.choosing import Candidate, Choice, Judged, searched_map, share_weights
from shorthash.learners.eaph.codebook import anneal_codebook
from shorthash.learners.eaph.encoding import Lookup, _by_bounds, likeliest_words
from shorthash.learners.eaph.estimator import EAPH
from shorthash.learners.eaph.refinement import best_rows, design_codes, masses_of, refine_table
from shorthash.learners.eaph.table import ap_table
from shorthash.learners.posteriors import folds as posterior_folds
from shorthash.learners.posteriors import logistic as posterior_logistic
from shorthash.learners.posteriors.folds import Folds, draw_folds, softmax
from shorthash.learners.posteriors.logistic import LogLinear
from shorthash.learners.posteriors.models import fit_posteriors
from shorthash.learners.rslh.estimator import RSLH


def loop_ap(h, database, rel, relevant_mass):
    """A by loops over cells, distances and label sets, in float64, with the divisor given."""
    Z, u = database.shape
    n_bits = Z.bit_length() - 1
    A = np.zeros((Z, u))
    for z in range(Z):
        for s in range(u):
            N = R = total = 0.0
            for t in range(n_bits + 1):
                ring = [y for y in range(Z) if (y ^ z).bit_count() == t]
                n = sum(database[y].sum() for y in ring)
                f = sum(database[y] @ rel[:, s] for y in ring)
                rho = f / n
                total += rho * (f + (R - rho * N) * (np.log((N + n) / N) if N else 0.0))
                N, R = N + n, R + f
            A[z, s] = total / relevant_mass[s]
    return A


@pytest.fixture(params=["single", "multi"])
def masses(request, seed):
    rng = np.random.default_rng(seed)
    h = rng.random((8, 4)) ** 3
    rel = np.eye(4)
    if request.param == "multi":
        rel = np.maximum(np.triu(rng.random((4, 4)) < 0.5), np.eye(4))
        rel = np.maximum(rel, rel.T)
    return h / h.sum(), rel


def test_the_table_equals_loops(masses):
    h, rel = masses
    background = 0.01 * h.sum(axis=0)
    full = h + background / 8
    table = ap_table(h, background, rel)
    expected = loop_ap(h, full, rel, (full @ rel).sum(axis=0))
    assert np.allclose(table.query, expected, atol=1e-6)
    assert table.value == pytest.approx(np.sum(h * expected), abs=1e-6)


def test_the_database_side_equals_finite_differences(masses):
    h, rel = masses
    background = 0.01 * h.sum(axis=0)
    full = h + background / 8
    divisor = (full @ rel).sum(axis=0)  # its own derivative is constant over cells and decides nothing
    D = ap_table(h, background, rel).database
    step = 1e-6
    for z in range(8):
        for s in range(4):
            up, down = full.copy(), full.copy()
            up[z, s] += step
            down[z, s] -= step
            slope = np.sum(h * (loop_ap(h, up, rel, divisor) - loop_ap(h, down, rel, divisor))) / (2 * step)
            assert D[z, s] == pytest.approx(slope, abs=2e-4)


def test_without_relevance_matrix_sets_are_relevant_to_themselves_alone(masses):
    h, _ = masses
    background = 0.01 * h.sum(axis=0)
    plain, explicit = ap_table(h, background), ap_table(h, background, np.eye(4))
    assert np.allclose(plain.query, explicit.query)
    assert np.allclose(plain.database, explicit.database, atol=1e-6)


def test_the_table_is_the_limit_of_the_exact_tie_aware_precision(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 200, size=(16, 3))
    codes = np.arange(16)
    distance = hamming_distances(codes, codes, 4)
    gaps = []
    for scale in (10, 1000):
        exact = np.zeros((16, 3))
        for z in range(16):
            total = np.array([[(scale * counts[distance[z] == t]).sum() for t in range(5)]])
            for s in range(3):
                relevant = np.array([[(scale * counts[distance[z] == t, s]).sum() for t in range(5)]])
                exact[z, s] = expected_average_precision(total, relevant)[0]
        A = ap_table(counts / counts.sum(), np.zeros(3)).query
        gaps.append(np.abs(A - exact).max())
    assert gaps[1] < 1e-4 < gaps[0] * 10
    assert gaps[1] < gaps[0] / 10


def test_class_blocks_change_nothing(masses, monkeypatch):
    h, rel = masses
    whole = ap_table(h, 0.01 * h.sum(axis=0), rel)
    monkeypatch.setattr(eaph_table, "BLOCK_FLOATS", 1)
    monkeypatch.setattr(eaph_table, "SIDE_BY_SIDE", 1)
    blocks = ap_table(h, 0.01 * h.sum(axis=0), rel)
    assert np.allclose(whole.query, blocks.query, atol=1e-7)
    assert np.allclose(whole.database, blocks.database, atol=1e-7)


@pytest.mark.parametrize("n_bits", [1, 2, 5, 8])
@pytest.mark.parametrize("share", [0.1, 1.0])
def test_the_compiled_table_equals_that_of_arrays_where_cells_are_empty(n_bits, share, seed):
    rng = np.random.default_rng(seed)
    h = rng.random((2**n_bits, 21)) ** 3 * (rng.random((2**n_bits, 1)) < share)
    h[0, :3] = 1.0  # cells with some label sets only
    h /= h.sum()
    background = 0.01 * h.sum(axis=0)
    for rel in (None, np.eye(21) + np.eye(21, k=1) + np.eye(21, k=-1)):
        compiled, expected = ap_table(h, background, rel), eaph_table._table_by_arrays(h, background, rel)
        assert np.allclose(compiled.query, expected.query, atol=1e-6)
        assert np.allclose(compiled.database, expected.database, atol=1e-5)
        assert compiled.value == pytest.approx(expected.value, abs=1e-6)


def confused_masses(seed, n_groups=6):
    M = np.random.default_rng(seed).random((n_groups, n_groups)) ** 6 + 3 * np.eye(n_groups)
    return M / M.sum()


def test_annealing_reports_the_value_of_the_table(seed):
    M = confused_masses(seed)
    z, value = anneal_codebook(M, M, 4, np.random.RandomState(seed), n_proposals=3000, heat=4e-3, swap=0.9)
    h = np.zeros((16, 6))
    np.add.at(h, z, M)
    assert value == pytest.approx(ap_table(h, 1e-9 * M.sum(axis=0)).value, abs=1e-5)


def loop_value(M, S, z, n_bits, item):
    """The expected mAP of cells of groups, by loops over groups, distances and label sets."""
    value = 0.0
    for g, s in zip(*np.nonzero(M), strict=True):
        N = R = 0.0
        for t in range(n_bits + 1):
            ring = [j for j in range(len(M)) if int(z[j] ^ z[g]).bit_count() == t]
            n, f = M[ring].sum(), S[ring, s].sum()
            if n > 0:
                log = np.log(1 + n / (N + item)) if N + item > 0 else 0.0
                gain = f * (1 - N * log / n) + (R + item * (1 - f / n)) * log
                value += M[g, s] / S[:, s].sum() * f * gain / n
            N, R = N + n, R + f
    return value


@pytest.mark.parametrize("n_bits", [2, 5])
@pytest.mark.parametrize("item", [0.0, 0.01])
@pytest.mark.parametrize("multi", [False, True])
def test_the_value_of_moves_that_were_judged_one_by_one_is_that_of_the_outcome(seed, n_bits, item, multi):
    M = np.concatenate([confused_masses(seed), confused_masses(seed + 1)]) / 2  # 12 groups: cells are shared at 2 bits
    M[3, 2:] = 0.0
    rel = (np.random.default_rng(seed).random((6, 6)) < 0.4) | np.eye(6, dtype=bool)
    S = M @ (rel | rel.T).astype(float) if multi else M
    options = {"n_proposals": 900, "heat": 4e-3, "swap": 0.5, "item": item}  # too few for sums to be computed again
    z, value = anneal_codebook(M, S, n_bits, np.random.RandomState(seed), **options)
    assert value == pytest.approx(loop_value(M, S, z, n_bits, item), rel=1e-9)


def test_annealing_beats_random_codebooks_and_keeps_codewords_apart(seed):
    M = confused_masses(seed)
    z, value = anneal_codebook(M, M, 3, np.random.RandomState(seed), n_proposals=20_000, heat=4e-3, swap=0.9)
    rng = np.random.default_rng(seed)
    best_random = -1.0
    for _ in range(200):
        h = np.zeros((8, 6))
        h[rng.permutation(8)[:6]] = M
        best_random = max(best_random, ap_table(h, 1e-9 * M.sum(axis=0)).value)
    assert value >= best_random - 1e-6
    assert len(set(z.tolist())) == 6


@pytest.mark.parametrize("change", ["permute", "complement"])
def test_the_value_does_not_care_for_names_of_bits(seed, change):
    h = np.random.default_rng(seed).random((16, 3))
    h /= h.sum()
    bits = unpack(np.arange(16), 4)
    moved = bits[:, [2, 0, 3, 1]] if change == "permute" else bits * np.array([1, -1, -1, 1])
    cells = ((moved > 0) @ (2 ** np.arange(4))).astype(int)
    other = np.empty_like(h)
    other[cells] = h
    one, two = ap_table(h, 0.01 * h.sum(axis=0)), ap_table(other, 0.01 * h.sum(axis=0))
    assert one.value == pytest.approx(two.value, rel=1e-6)
    assert np.allclose(one.database, two.database[cells], atol=1e-6)


def test_refinement_ascends_but_for_the_damping(digits, seed):
    X, y = digits
    folds = draw_folds(y, np.random.RandomState(0))
    [(_, fitted)] = fit_posteriors("logistic", X.astype(np.float32), y, np.eye(10, dtype=np.uint8), folds)
    oof = fitted.oof
    oof = softmax(0.4 * np.log(oof + 1e-6))  # blurred, so that there is something to gain
    start = np.random.RandomState(seed).permutation(64)[:10][oof.argmax(axis=1)]
    design = refine_table(oof, None, start.astype(np.int64), 6, np.random.RandomState(seed), 16)
    assert design.value > design.history[0] + 0.01
    assert np.all(np.diff(design.history) > -0.01)
    assert design.value == design.history.max()


def test_a_codebook_that_is_known_is_not_annealed_again(monkeypatch):
    P = softmax(3 * np.random.default_rng(0).standard_normal((300, 7))).astype(np.float32)
    settings = {"n_classes": 7, "codebook": "annealed", "new_classes": False, "n_starts": 2, "n_iter": 2}
    runs, known, anneal = [], {}, refinement.anneal_codebook

    def counted(*values, **options):
        runs.append(1)
        return anneal(*values, **options)

    monkeypatch.setattr(refinement, "anneal_codebook", counted)
    monkeypatch.setattr(refinement, "FINER_SETS", 1)
    outcomes = []
    for refine, memory in ((False, known), (True, known), (False, None)):
        outcomes.append(design_codes(P, None, 4, np.random.RandomState(0), refine=refine, known=memory, **settings)[0])
        assert len(runs) == (2 if memory is known else 4)
    assert np.array_equal(outcomes[0].table, outcomes[1].table)
    assert np.array_equal(outcomes[0].cells, outcomes[2].cells)


def test_masses_are_sums_of_posteriors(seed):
    rng = np.random.default_rng(seed)
    P, group = rng.random((50, 3)).astype(np.float32), rng.integers(0, 7, size=50)
    group[group == 4] = 0  # an empty group
    expected = np.array([P[group == g].sum(axis=0) if (group == g).any() else np.zeros(3) for g in range(7)])
    assert np.allclose(masses_of(P, group, 7), expected / P.sum(), atol=1e-7)


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("floats", [1, 1 << 26])
def test_the_table_on_tensors_equals_the_compiled_one(masses, torch, floats, monkeypatch):
    monkeypatch.setattr(eaph_table, "DEVICE_FLOATS", floats)  # label sets one by one, and at once
    h, rel = masses
    for relevance in (None, rel):
        here = ap_table(h, 0.01 * h.sum(axis=0), relevance)
        there = ap_table(torch.asarray(h), 0.01 * h.sum(axis=0), relevance)
        assert np.allclose(here.query, there.query, atol=1e-6)
        assert np.allclose(here.database, there.database, atol=1e-6)
        assert here.value == pytest.approx(there.value, abs=1e-6)


def test_refinement_on_tensors_equals_that_on_the_cpu(torch, seed):
    rng = np.random.default_rng(seed)
    P = softmax(2 * rng.standard_normal((600, 9))).astype(np.float32)
    start = rng.integers(0, 32, size=9)[P.argmax(axis=1)]
    assert np.allclose(masses_of(torch.asarray(P), torch.asarray(start), 32), masses_of(P, start, 32), atol=1e-12)
    here, there = (refine_table(p, None, start, 5, np.random.RandomState(seed), 8) for p in (P, torch.asarray(P)))
    assert np.array_equal(here.cells, there.cells)
    assert np.allclose(here.table, there.table, atol=1e-6)
    assert np.allclose(here.history, there.history, atol=1e-6)


def test_a_fold_never_sees_its_own_labels(blobs, monkeypatch):
    """Out-of-fold logits of a fold stay when its labels are shuffled (at a fixed penalty)."""
    X, y = blobs[0].astype(np.float32), blobs[1]
    fold = np.arange(len(y)) % 5
    monkeypatch.setattr(posterior_logistic, "PENALTIES", (0.03,))
    monkeypatch.setattr(posterior_logistic, "calibrate", lambda *_: (1.0, 0.0))
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
    X, y = blobs  # 300 rows: up to 11 bits compete
    short = EAPH(11, posterior="logistic", random_state=0).fit(X, y)
    for n_bits in (13, 64):
        hasher = EAPH(n_bits, posterior="logistic", random_state=0).fit(X, y)
        assert hasher.codes_.shape == (300, n_bits)
        assert np.array_equal(hasher.codes_[:, :11], short.codes_)
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


def test_a_group_without_mass_stands_beside_the_one_that_holds_its_label_set():
    M = np.diag([0.4, 0.4, 0.0, 0.0])
    M[0, 2] = M[1, 3] = 0.1
    z, _ = anneal_codebook(M, M, 3, np.random.RandomState(0), n_proposals=500, heat=1e-3, swap=0.9)
    assert len(set(z.tolist())) == 4
    assert int(z[0] ^ z[2]).bit_count() == 1
    assert int(z[1] ^ z[3]).bit_count() == 1


def test_two_thousand_easy_classes_have_codewords_of_their_own(monkeypatch):
    monkeypatch.setattr(eaph_codebook, "WORK", 0)  # the fewest moves
    monkeypatch.setattr(eaph_codebook, "FEWEST", 500)
    y = np.repeat(np.arange(2000), 2)
    P = np.full((4000, 2000), 1e-6, dtype=np.float32)
    P[np.arange(4000), y] = 1 - 1999e-6
    options = {"n_classes": 2000, "codebook": "annealed", "refine": True, "new_classes": False}
    [design] = design_codes(P, None, 12, np.random.RandomState(0), n_starts=1, n_iter=2, **options)
    codes = design.cells[best_rows(P, design.table)]
    assert leave_one_out_map(codes, y, 12) > 0.99


@pytest.mark.parametrize("rows", [100, 4096])
def test_models_finished_together_are_those_finished_one_by_one(digits, rows, monkeypatch):
    monkeypatch.setattr(posterior_logistic, "BLOCK_ROWS", rows)
    X, y = digits[0][:600].astype(np.float32), digits[1][:600]
    data = X, y, np.eye(10, dtype=np.uint8)
    path = posterior_logistic.logistic_path(*data, draw_folds(y, np.random.RandomState(0)), (0.1, 0.01, 0.001))
    steps = list(path)
    together = posterior_logistic.finished(steps, *data)
    for step, fitted in zip(steps, together, strict=True):
        [alone] = posterior_logistic.finished([step], *data)
        assert alone.model.penalty == fitted.model.penalty == step.penalty
        assert np.array_equal(alone.model.weights, fitted.model.weights)
        assert fitted.oof is step.oof


def test_few_rows_fall_back_to_codewords(blobs):
    X, y = blobs[0][:40], blobs[1][:40]
    hasher = EAPH(6, posterior="logistic", random_state=0).fit(X, y)
    assert len(hasher.cells_) == 5


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


def test_the_report_says_what_was_tried(digits):
    X, y = digits[0][:600], digits[1][:600]
    hasher = EAPH(6, random_state=0).fit(X, y)
    [taken] = [line for line in hasher.report_ if line["taken"]]
    assert {"codewords", "table"} == {line["codes"] for line in hasher.report_}
    assert taken["disjoint_map"] == hasher.disjoint_map_ == pytest.approx(leave_one_out_map(hasher.codes_, y))
    assert taken["training_map"] == hasher.searched_map_ >= hasher.disjoint_map_
    finalists = [line for line in hasher.report_ if line["posteriors"] == taken["posteriors"]]
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
def test_the_table_needs_some_rows_of_every_class(digits, rows, codes):
    kept = np.concatenate([np.flatnonzero(digits[1] == c)[:rows] for c in range(10)])
    hasher = EAPH(6, random_state=0, n_iter=2).fit(digits[0][kept], digits[1][kept])
    assert {line["codes"] for line in hasher.report_} == codes


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
    groups = group_labels([0, 0, 1, 1], owner="test")
    queries, items = np.array([0, 1, 2, 3], dtype=np.uint8), np.array([0, 0, 3, 3], dtype=np.uint8)
    values = []
    for i in range(4):
        others = [j for j in range(4) if j != i]
        distances = [int(queries[i] ^ items[j]).bit_count() for j in others]
        total = np.array([[distances.count(t) for t in range(3)]])
        hits = [d for d, j in zip(distances, others, strict=True) if groups.ids[j] == groups.ids[i]]
        relevant = np.array([[hits.count(t) for t in range(3)]])
        values.append(expected_average_precision(total, relevant)[0])
    assert searched_map(queries, items, groups, 2) == pytest.approx(np.mean(values))


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


def test_shares_that_differ_by_chance_are_evened_out():
    rng = np.random.default_rng(0)
    ids = rng.integers(50, size=2000)
    evened = np.bincount(ids, weights=share_weights(ids))
    assert np.ptp(evened) < 0.3 * np.ptp(np.bincount(ids))
    assert np.isclose(evened.sum(), 2000)
    skewed = np.minimum(rng.zipf(1.5, size=2000), 50) - 1
    assert np.allclose(np.bincount(skewed, weights=share_weights(skewed)), np.bincount(skewed), rtol=0.3)
    assert (share_weights(np.repeat(np.arange(4), 5)) == 1).all()
    assert (share_weights(np.array([0, 2, 2])) > 0).all()  # a label set without rows


@pytest.mark.parametrize("n_items", [3, 20])
def test_the_annealed_value_is_the_precision_of_a_small_database(n_items):
    y = np.repeat(np.arange(6), n_items)
    M = np.eye(6) / 6
    cells, value = anneal_codebook(
        M, M, 1, np.random.RandomState(0), n_proposals=2000, heat=1e-3, swap=0.5, item=1 / len(y)
    )
    codes = unpack(cells[y].astype(np.uint8), 1)
    assert np.isclose(value, evaluate(codes, y, codes, y).map, rtol=0.1)
    assert np.bincount(cells).tolist() == [3, 3]  # classes share the codes evenly


def test_codewords_of_more_label_sets_than_codes_are_the_best_of_all(seed):
    M = confused_masses(seed, n_groups=8)
    P = np.repeat(M / M.sum(axis=1, keepdims=True), 10, axis=0).astype(np.float32)
    settings = {"n_classes": 8, "codebook": "annealed", "new_classes": False, "n_starts": 2, "n_iter": 1}
    [design] = design_codes(P, None, 1, np.random.RandomState(seed), refine=False, **settings)
    cells = design.cells[best_rows(P, design.table)][::10]
    masses = masses_of(P, np.repeat(np.arange(8), 10), 8)
    values = [loop_value(masses, masses, [book >> g & 1 for g in range(8)], 1, 1 / len(P)) for book in range(256)]
    assert loop_value(masses, masses, cells.astype(int), 1, 1 / len(P)) == pytest.approx(max(values), rel=1e-6)


@pytest.mark.parametrize(("per_class", "lengths"), [(2, [1]), (4, [1, 1]), (5, [1, 6])])
def test_a_table_of_few_rows_is_not_refined(per_class, lengths):
    P = softmax(2 * np.random.default_rng(0).standard_normal((7 * per_class, 7))).astype(np.float32)
    settings = {"n_classes": 7, "codebook": "annealed", "new_classes": False, "n_starts": 1, "n_iter": 6}
    designs = design_codes(P, None, 2, np.random.RandomState(0), refine=True, **settings)
    assert [len(design.history) for design in designs] == lengths


@pytest.mark.parametrize(
    ("per_class", "database", "training", "taken"),
    [
        (4, "auto", 0.697, "table"),  # lost on training rows: less than 0.005
        (4, "auto", 0.69, "codewords"),
        (4, "disjoint", 0.69, "table"),
        (4, "training", 0.697, "codewords"),
        (5, "auto", 0.69, "table"),  # the mean decides
        (5, "auto", 0.6, "codewords"),
    ],
)
def test_a_table_of_few_rows_must_serve_training_rows_too(per_class, database, training, taken):
    y = np.repeat(np.arange(3), per_class)
    candidate = Candidate("any", None, None)
    codewords, table = (refinement.Design(kind, 2, None, None, None) for kind in ("codewords", "table"))
    finalists = [Judged(candidate, codewords, 0.5, 0.7), Judged(candidate, table, 0.52, training)]
    choice = Choice(group_labels(y, owner="test"), None, 2, 0, database, {"n_classes": 3})
    assert choice._taken(finalists).design.kind == taken


def test_more_classes_than_codes_use_all_codes():
    M = np.eye(20) / 20
    cells, _ = anneal_codebook(M, M, 4, np.random.RandomState(0), n_proposals=1, heat=1e-3, swap=0.5)
    assert len(np.unique(cells)) == 16
