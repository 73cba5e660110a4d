"""FSDH and NSH: by set, by sample, and against full matrices."""

import numpy as np
import pytest
from dense_methods import dense_label_codes, indicator, ridge, signs, without_constant_bits
from sklearn.exceptions import ConvergenceWarning

from shorthash.errors import GuardWarning, InvalidInput
from shorthash.learners import samples
from shorthash.learners.fsdh import FSDH
from shorthash.learners.nsh import NSH


@pytest.fixture(params=["single", "multi"])
def data(request, blobs, tagged):
    X, y = blobs if request.param == "single" else tagged
    return X[:90] - X[:90].mean(axis=0), y[:90]


@pytest.fixture(params=[FSDH, NSH])
def method(request):
    return request.param


def start_of(hasher):
    """F of the first H-step for every sample, and the state of the method's own term."""
    term = hasher._label_term(hasher.statistics_)
    return term.start(np.random.RandomState(hasher._seed)), term


def fsdh_step(Y, lam):
    def step(H):
        W = ridge(Y, H, lam)
        return Y @ W, lam * (W**2).sum()

    return step


def nsh_step(Y, R, L):
    """With the majorisation in full matrices; R is remembered between steps."""
    Yt = np.sqrt(L) * Y / np.linalg.norm(Y, axis=1, keepdims=True)
    state = {"R": R}

    def step(H):
        A = Yt.T @ Yt
        Q = Yt.T @ H
        if Y.shape[1] > L:
            Q = Q + (np.abs(A).sum(axis=0).max() * np.eye(len(A)) - A) @ state["R"]
        U, _, Vt = np.linalg.svd(Q, full_matrices=False)
        state["R"] = U @ Vt
        return Yt @ state["R"], 0.0

    return Yt, step


def dense(hasher, X, y, nu):
    Y = indicator(y)
    F, term = start_of(hasher)
    ids = [np.flatnonzero((hasher.label_sets_ == row).all(axis=1))[0] for row in Y]
    step = fsdh_step(Y, hasher.lam) if isinstance(hasher, FSDH) else nsh_step(Y, term.R, hasher.n_bits)[1]
    return dense_label_codes(X, Y, F[ids], step, nu, hasher.ridge, hasher.n_iter_)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_bits", [3, 4, 7])
@pytest.mark.parametrize("nu", [1e-5, 0.7], ids=["light", "heavy"])
def test_equals_full_matrices(method, data, nu, n_bits, seed):
    X, y = data
    hasher = method(n_bits, nu=nu, ridge=0.3, random_state=seed).fit(X, y)
    H, P, steps = dense(hasher, X, y, nu)
    assert np.array_equal(hasher.codes_, H)
    assert np.allclose(hasher.projection_, without_constant_bits(P, H))
    assert np.allclose(hasher.objective_, [steps[1], *steps[4::3]])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::shorthash.errors.CollisionWarning")
@pytest.mark.parametrize("n_bits", [2, 3, 7])
def test_never_rises(method, data, n_bits, seed):
    """Nor does it for NSH with fewer bits than classes of unequal size, thanks to the majorisation."""
    X, y = data
    hasher = method(n_bits, nu=0.7, ridge=0.3, max_iter=15, random_state=seed).fit(X, y)
    *_, steps = dense(hasher, X, y, 0.7)
    assert np.all(np.diff(steps) <= 1e-9 * np.abs(steps[:-1]))
    assert np.all(np.diff(hasher.objective_) <= 1e-9 * np.abs(hasher.objective_[:-1]))


def test_without_the_majorisation_it_could_rise():
    """Unbalanced classes, L < c: the plain polar step is no descent, so the second summand is needed."""
    rng = np.random.default_rng(0)
    rises = 0
    for _ in range(30):
        Y = np.eye(4)[np.r_[np.zeros(30, int), rng.integers(4, size=6), 0, 1, 2, 3]]
        Yt = np.sqrt(2) * Y
        H = signs(rng.normal(size=(len(Y), 2)))
        R = np.linalg.qr(rng.normal(size=(4, 2)))[0]
        for _ in range(100):
            _, step = nsh_step(Y, R, 2)
            previous, F = R, step(H)[0]
            R = np.linalg.lstsq(Yt, F, rcond=None)[0]
            assert ((H - Yt @ R) ** 2).sum() <= ((H - Yt @ previous) ** 2).sum() + 1e-9
        U, _, Vt = np.linalg.svd(Yt.T @ H, full_matrices=False)
        rises += ((H - Yt @ U @ Vt) ** 2).sum() > ((H - Yt @ R) ** 2).sum() + 1e-9
    assert rises > 0


def test_the_guard_holds_and_both_ways_agree(method, blobs, monkeypatch):
    X, y = blobs
    by_set = method(6, random_state=0).fit(X, y)
    monkeypatch.setattr(samples._BySet, "h_step", _refuse(samples._BySet.h_step))
    by_sample = method(6, random_state=0).fit(X, y)
    assert np.array_equal(by_set.codes_, by_sample.codes_)
    assert np.allclose(by_set.projection_, by_sample.projection_)
    assert np.allclose(by_set.objective_, by_sample.objective_)


def _refuse(h_step):
    def refusing(self, F, P):
        codes = h_step(self, F, P)
        self.guard = np.inf
        return codes

    return refusing


def test_heavy_features_are_not_dropped(method, blobs):
    X, y = blobs
    hasher = method(6, nu=5.0, max_iter=50, random_state=0).fit(X, y)
    assert not np.array_equal(hasher.codes_, hasher.codewords_[y])
    with pytest.warns(GuardWarning, match="cannot prove from sums that samples with equal labels get equal codes"):
        method(6, nu=5.0, max_iter=50, random_state=0).partial_fit(X, y)


def test_rows_in_batches_and_back(method, blobs):
    X, y = blobs
    whole = method(6, random_state=0).fit(X, y)
    parts = method(6, random_state=0).partial_fit(X[:100], y[:100], classes=np.arange(5)).partial_fit(X[100:], y[100:])
    assert np.array_equal(parts.codewords_, whole.codewords_)
    assert np.allclose(parts.projection_, whole.projection_)
    less = parts.forget(X[250:], y[250:])
    assert np.allclose(less.projection_, method(6, random_state=0).fit(X[:250], y[:250]).projection_)
    assert not hasattr(less, "codes_")


def test_locks_itself_in(blobs, seed):
    """Structural fact F2: with one label per sample FSDH returns the random codewords it starts from."""
    X, y = blobs
    hasher = FSDH(8, random_state=seed).fit(X, y)
    start = 2 * np.random.RandomState(hasher._seed).randint(0, 2, size=(5, 8)) - 1
    assert np.array_equal(hasher.codewords_, start)
    assert np.array_equal(hasher.codes_, start[y])
    assert hasher.n_iter_ == 2


def test_the_start_of_fsdh_is_that_of_random_codes_for_every_sample(blobs):
    """The signs of class means of random signs: random codewords, each bit of each class a fair coin."""
    _, y = blobs
    rng = np.random.default_rng(0)
    means = np.array([[signs(rng.normal(size=(300, 1)))[y == k].mean() for k in range(5)] for _ in range(400)])
    assert abs(signs(means).mean()) < 0.1


@pytest.mark.filterwarnings("ignore::shorthash.errors.CollisionWarning")
@pytest.mark.parametrize("n_bits", [2, 5, 9])
def test_the_rotation_is_semi_orthogonal(data, n_bits, seed):
    X, y = data
    hasher = NSH(n_bits, random_state=seed).fit(X, y)
    _, term = start_of(hasher)
    c = term.R.shape[0]
    for _ in range(3):
        inner = term.R @ term.R.T if n_bits >= c else term.R.T @ term.R
        assert np.allclose(inner, np.eye(min(c, n_bits)))
        term.step(hasher.statistics_.counts[:, None] * hasher.codewords_)


def test_the_rotation_is_the_best_there_is(data, seed):
    """For L >= c the step is exact: no other semi-orthogonal matrix comes closer."""
    X, y = data
    hasher = NSH(6, random_state=seed).fit(X, y)
    Y = indicator(y)
    Yt = np.sqrt(6) * Y / np.linalg.norm(Y, axis=1, keepdims=True)
    _, term = start_of(hasher)
    H = hasher.codes_.astype(float)
    term.step(hasher.statistics_.counts[:, None] * hasher.codewords_)
    own = ((H - Yt @ term.R) ** 2).sum()
    rng = np.random.default_rng(seed)
    for _ in range(50):
        near = np.linalg.qr((term.R + 0.1 * rng.normal(size=term.R.shape)).T)[0].T
        near *= signs(np.sum(near * term.R, axis=1))[:, None]
        assert ((H - Yt @ near) ** 2).sum() >= own - 1e-9


def test_unsettled_codes_are_reported(tagged):
    with pytest.warns(ConvergenceWarning, match="NSH stopped after max_iter=1 iterations with codes still changing"):
        NSH(8, max_iter=1, random_state=0).fit(*tagged)


def test_bad_parameters(method, blobs):
    name = method.__name__
    with pytest.raises(InvalidInput, match=f"'nu' parameter of {name} must be a finite float >= 0"):
        method(nu=-1).fit(*blobs)
    with pytest.raises(InvalidInput, match=f"'max_iter' parameter of {name} must be an int >= 1"):
        method(max_iter=0).fit(*blobs)
