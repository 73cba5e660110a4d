import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans, SpectralClustering

from shorthash.errors import InvalidInput
from shorthash.learners.boosting import STRATEGIES, BitBoost, seeded_clone, select_bits
from shorthash.learners.lsh import LSH
from shorthash.learners.pcarr import PCARR
from shorthash.learners.rslh.estimator import RSLH, solve_one_pass
from shorthash.learners.rslh.steps import Problem
from shorthash.learners.solvers import Ridge


def chosen(H, n_bits, strategy, seed=0):
    H = H.astype(float)
    return select_bits(H.T @ H, H.sum(axis=0), n_bits, strategy, np.random.RandomState(seed)).tolist()


@pytest.fixture
def like_bits():
    """Six bits in three families of two (one bit and a noisy complement), the second of each better balanced."""
    rng = np.random.default_rng(0)
    H = np.empty((400, 6))
    for family in range(3):
        bit = np.where(np.arange(400) % 2 == 0, 1, -1)
        rng.shuffle(bit)
        other = -bit
        other[np.flatnonzero(other == -1)[: 20 + family]] = 1  # unbalanced
        H[:, 2 * family], H[:, 2 * family + 1] = other, bit
    return H


def test_modified_boosting_takes_the_balanced_bit_of_every_family(like_bits):
    assert chosen(like_bits, 3, "mb") == [1, 3, 5]


def test_original_boosting_takes_the_most_balanced_bits_even_if_equal():
    balanced, unbalanced = np.tile([1, -1], 10), np.ones(20)
    H = np.column_stack([unbalanced, balanced, balanced, unbalanced])
    assert chosen(H, 2, "ob") == [1, 2]


def test_modified_boosting_does_not_take_equal_bits():
    one, two = np.tile([1, -1], 10), np.tile([1, 1, -1, -1], 5)
    almost = two.copy()
    almost[0] = -1
    H = np.column_stack([one, one, -one, almost])
    assert chosen(H, 2, "mb") == [0, 3]


def test_positionwise_boosting_keeps_positions():
    balance = np.array([[3, 0, 2], [1, 1, 2]])  # two runs of three bits
    picked = select_bits(np.eye(6), balance.ravel(), 3, "positionwise", np.random.RandomState(0))
    assert picked.tolist() == [1, 2, 3]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_always_n_different_bits_even_if_all_are_equal(strategy):
    H = np.ones((10, 9))
    assert len(set(chosen(H, 3, strategy))) == 3


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_bit(strategy):
    H = np.column_stack([np.ones(8), np.tile([1, -1], 4)])
    assert chosen(H, 1, strategy) == [1]


def test_same_seed_same_bits():
    H = np.sign(np.random.default_rng(0).normal(size=(100, 24)))
    assert chosen(H, 8, "mb", seed=3) == chosen(H, 8, "mb", seed=3)


def test_too_many_clusters_leave_the_most_balanced_bits():
    H = np.sign(np.random.default_rng(0).normal(size=(99, 6)))
    picked = select_bits(H.T @ H, H.sum(axis=0), 2, "mb", np.random.RandomState(0), DBSCAN(eps=1e-9, min_samples=2))
    assert picked.tolist() == chosen(H, 2, "ob")  # every bit is noise, so every bit stands alone


class Fixed(ClusterMixin, BaseEstimator):
    """A clusterer that has made up its mind."""

    def __init__(self, labels=()):
        self.labels = labels

    def fit_predict(self, X, y=None):
        return np.array(self.labels)


def test_bits_that_belong_nowhere_stand_alone():
    balance = np.array([0, 1, 5, 6])
    picked = select_bits(np.eye(4), balance, 3, "mb", np.random.RandomState(0), Fixed(labels=(0, 0, -1, -1)))
    assert picked.tolist() == [0, 2, 3]


@pytest.mark.parametrize(
    "clusterer",
    [
        KMeans(2),
        AgglomerativeClustering(metric="precomputed", linkage="average"),
        AgglomerativeClustering(linkage="ward"),
        SpectralClustering(affinity="precomputed"),
    ],
    ids=lambda c: f"{type(c).__name__}-{getattr(c, 'metric', getattr(c, 'affinity', ''))}",
)
def test_any_clusterer_finds_the_families(like_bits, clusterer):
    H, before = like_bits.astype(float), repr(clusterer)
    picked = select_bits(H.T @ H, H.sum(axis=0), 3, "mb", np.random.RandomState(0), clusterer)
    assert picked.tolist() == [1, 3, 5]
    assert repr(clusterer) == before


def test_the_chosen_bits_of_the_runs_are_regressed_on_centred_features(blobs):
    X, y = blobs
    hasher = BitBoost(RSLH(4, boosting=None), n_runs=3, ridge=0.1, random_state=0).fit(X + 2, y)
    H = np.hstack([run.codes_ for run in hasher.estimators_])
    assert hasher.chosen_bits_.tolist() == sorted(set(hasher.chosen_bits_.tolist()))
    assert np.array_equal(hasher.codes_, H[:, hasher.chosen_bits_])
    C = X - X.mean(axis=0)
    P = np.linalg.solve(C.T @ C + 0.1 * np.eye(12), C.T @ hasher.codes_)
    assert np.allclose(hasher.projection_, P)
    assert np.allclose(hasher.project(X + 2), C @ P)


def test_it_is_the_boosting_of_rslh(blobs):
    """Given the bits that RSLH chose from, BitBoost's choice and projection are RSLH's."""
    X = blobs[0] - blobs[0].mean(axis=0)
    y = blobs[1]
    rslh = RSLH(4, boosting="ob", n_runs=3, random_state=0).fit(X, y)
    seeds = np.random.RandomState(rslh._seed).randint(np.iinfo(np.int32).max, size=3)

    class Replay(LSH):
        """Hands out the runs of that RSLH one after the other."""

        def fit(self, X, y=None):
            super().fit(X)
            run = solve_one_pass(problem, int(seeds[Replay.turn]), p_ridge)
            self.codes_ = run.codewords[y]
            Replay.turn += 1
            return self

    problem = Problem.of(rslh.statistics_, rslh)
    p_ridge = Ridge(rslh.statistics_.gram, rslh.lam / rslh.mu)
    Replay.turn = 0
    boosted = BitBoost(Replay(4), strategy="ob", ridge=rslh.ridge, random_state=0).fit(X, y)
    assert np.array_equal(boosted.chosen_bits_, rslh.chosen_bits_)
    assert np.array_equal(boosted.codes_, rslh.codes_)
    assert np.allclose(boosted.projection_, rslh.projection_)


def test_runs_differ_and_a_seed_repeats_them(blobs):
    X, y = blobs
    one, two = (BitBoost(LSH(6), n_runs=2, random_state=5).fit(X, y) for _ in range(2))
    assert np.array_equal(one.transform(X), two.transform(X))
    assert not np.array_equal(one.estimators_[0].projection_, one.estimators_[1].projection_)


def test_boosted_bits_are_better_balanced(digits):
    X, _ = digits
    plain = np.mean([np.abs(LSH(8, random_state=s).fit_transform(X).mean(axis=0)).mean() for s in range(5)])
    for strategy in STRATEGIES:
        boosted = BitBoost(LSH(8), strategy=strategy, random_state=0).fit(X)
        assert np.abs(boosted.codes_.mean(axis=0)).mean() < plain


def test_hashers_without_learned_codes_are_asked_to_encode(blobs):
    X, _ = blobs
    hasher = BitBoost(PCARR(4), n_runs=1, random_state=0).fit(X)
    assert np.array_equal(hasher.codes_, hasher.estimators_[0].transform(X))
    assert hasher.chosen_bits_.tolist() == [0, 1, 2, 3]


def test_dropped_rows_are_encoded(tagged):
    X, Y = tagged
    bare = Y.copy()
    bare[:5] = 0
    hasher = BitBoost(RSLH(4, boosting=None, drop_unlabelled=True), random_state=0).fit(X, bare)
    assert hasher.codes_.shape == (300, 4)


def test_seeds_reach_every_part():
    copy = seeded_clone(BitBoost(LSH(4, random_state=3), random_state=4), np.random.RandomState(0))
    assert copy.random_state not in (None, 4)
    assert copy.estimator.random_state not in (None, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"estimator": KMeans()}, "'estimator' parameter of BitBoost must be a hasher"),
        ({"n_runs": 0}, "'n_runs' parameter of BitBoost must be an int >= 1"),
        ({"strategy": "best"}, "'strategy' parameter of BitBoost must be one of 'mb', 'ob', 'positionwise'"),
        ({"clustering": "kmeans"}, "'clustering' parameter of BitBoost must be one of 'spectral'"),
        ({"clustering": LSH()}, "'clustering' parameter of BitBoost must be one of 'spectral'"),
        ({"ridge": -1}, "'ridge' parameter of BitBoost must be a finite float >= 0"),
    ],
)
def test_bad_parameters(blobs, settings, message):
    with pytest.raises(InvalidInput, match=message):
        BitBoost(**{"estimator": LSH(), **settings}).fit(*blobs)
