"""What the supervised methods share: how well they do on real digits, what memory they need, what they set."""

import tracemalloc

import numpy as np
import pytest

from shorthash import make_hasher
from shorthash.learners.cosdish import COSDISH
from shorthash.learners.fsdh import FSDH
from shorthash.learners.fssh import FSSH
from shorthash.learners.hcsdh import HCSDH
from shorthash.learners.lfh import LFH
from shorthash.learners.nsh import NSH
from shorthash.learners.posh import POSH
from shorthash.learners.scdh import SCDH
from shorthash.learners.sdh import SDH
from shorthash.learners.sdhmlr import SDHMLR
from shorthash.learners.sslh import SSLH

METHODS = [COSDISH, FSDH, FSSH, HCSDH, LFH, NSH, POSH, SCDH, SDH, SDHMLR, SSLH]
SAMPLE_METHODS = [COSDISH, FSSH, LFH, POSH, SCDH, SDH, SDHMLR, SSLH]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# tie-aware mAP on held-out digits, 8 bits; chance is 0.1, random codewords with a good regression give 0.9
BANDS = {
    "sdh": 0.8,
    "nsh": 0.8,
    "sdhmlr": 0.8,
    "scdh": 0.85,
    "hcsdh": 0.9,
    "posh": 0.8,
    "fsdh": 0.6,
    "fssh": 0.55,
    "sslh": 0.45,
    "cosdish": 0.4,
    "lfh": 0.2,
}


@pytest.fixture(scope="module")
def held_out(digits):
    X, y = digits
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[:1200], order[1200:]

    def score(name, n_bits, seed):
        front = {} if name in {"lfh", "cosdish"} else {"kernel": {"n_anchors": 200}}
        hasher = make_hasher(name, n_bits, random_state=seed, **front).fit(X[train], y[train])
        return hasher.score(X[test], y[test])

    return score


@pytest.mark.parametrize("name", BANDS)
def test_beats_chance_by_far(held_out, name):
    assert np.mean([held_out(name, 8, seed) for seed in range(2)]) > BANDS[name]


def test_chosen_codewords_beat_random_ones(held_out):
    """Structural fact F5: at short lengths the codewords decide; FSDH returns random ones."""
    random = np.mean([held_out("fsdh", 4, seed) for seed in range(5)])
    assert np.mean([held_out("scdh", 4, seed) for seed in range(5)]) > random
    assert held_out("hcsdh", 4, 0) > random


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.__name__)
def test_no_matrix_of_all_pairs(method):
    """50 000 samples: n x n bits would take 312 MB, n x n floats 20 GB."""
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=50_000)
    X = (rng.normal(size=(5, 8))[y] + rng.normal(size=(50_000, 8))).astype(np.float32)
    hasher = method(n_bits=4)
    if "max_iter" in hasher.get_params():
        hasher.set_params(max_iter=2)
    tracemalloc.start()
    hasher.fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60 * 2**20, f"peak of {peak / 2**20:.0f} MiB"


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_narrow_features_are_computed_with_in_float64(method, dtype, blobs):
    """The codes and projections are those of the same numbers in float64."""
    X, y = (100 * blobs[0]).astype(dtype), blobs[1]
    given = {"random_state": 0} if "random_state" in method().get_params() else {}
    narrow, wide = (method(6, **given).fit(A, y) for A in (X, X.astype(np.float64)))
    assert np.array_equal(narrow.codes_, wide.codes_)
    assert np.allclose(narrow.projection_, wide.projection_, rtol=1e-6, atol=1e-9 * np.abs(wide.projection_).max())
    assert narrow.projection_.dtype == np.float64


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.__name__)
def test_any_names_of_classes_give_the_same_code(method, blobs):
    X, y = blobs
    given = {"random_state": 0} if "random_state" in method().get_params() else {}
    names = np.array(["ant", "bee", "cat", "dog", "eel"])
    one, two, three = (method(6, **given).fit(X, labels) for labels in (y, names[y], np.eye(5)[y]))
    assert np.array_equal(one.projection_, two.projection_)
    assert np.array_equal(one.projection_, three.projection_)
    assert two.classes_.tolist() == names.tolist()


@pytest.mark.parametrize("method", SAMPLE_METHODS, ids=lambda m: m.__name__)
def test_rows_without_label_are_refused_or_dropped(method, tagged):
    X, Y = tagged
    bare = Y.copy()
    bare[[3, 8]] = 0
    with pytest.raises(ValueError, match=r"2 of 300 samples .* no label \(first: 3;.*drop_unlabelled=True"):
        method(4).fit(X, bare)
    dropped = method(4, drop_unlabelled=True, random_state=0).fit(X, bare)
    rest = np.delete(np.arange(300), [3, 8])
    assert np.array_equal(dropped.codes_, method(4, random_state=0).fit(X[rest], Y[rest]).codes_)
    assert dropped.n_dropped_ == 2
    assert dropped.codes_.shape == (298, 4)


@pytest.mark.parametrize("method", SAMPLE_METHODS, ids=lambda m: m.__name__)
def test_what_fit_sets(method, tagged):
    X, Y = tagged
    hasher = method(4, random_state=0).fit(X, Y)
    assert hasher.codes_.dtype == np.int8
    assert hasher.codes_.shape == (300, 4)
    assert hasher.codewords_.shape == (len(hasher.label_sets_), 4)
    for row, codeword in zip(hasher.label_sets_, hasher.codewords_, strict=True):
        members = (row == Y).all(axis=1)
        assert np.array_equal(codeword, np.where(hasher.codes_[members].sum(axis=0) >= 0, 1, -1))
    assert 1 <= hasher.n_iter_ <= hasher.max_iter
    assert len(getattr(hasher, "objective_", range(hasher.n_iter_))) == hasher.n_iter_


@pytest.mark.parametrize("name", ["sdh", "fsdh"])
def test_front_end_with_bias(name):
    steps = make_hasher(name).named_steps
    assert list(steps) == ["kernel", "bias", "hasher"]
    assert steps["kernel"].center is False
    assert steps["kernel"].bandwidth == "mean-min"
    assert make_hasher(name, preset="authors-code")[0].bandwidth == 0.4


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        *((name, ["kernel", "hasher"]) for name in ("nsh", "sslh", "sdhmlr", "scdh", "hcsdh")),
        *((name, ["kernel", "zscore", "hasher"]) for name in ("fssh", "posh")),
        *((name, ["zscore", "hasher"]) for name in ("lfh", "cosdish")),
    ],
)
def test_other_kernels(name, steps):
    hasher = make_hasher(name)
    assert list(hasher.named_steps) == steps
    if "kernel" in steps:
        assert hasher[0].center is (name != "hcsdh")
        assert hasher[0].n_anchors == (2000 if name == "scdh" else 1000)
        assert hasher[0].bandwidth == "mean-min"


def test_presets_of_the_authors():
    assert make_hasher("fssh", preset="authors-code")[0].bandwidth == 0.4
    assert make_hasher("hcsdh", preset="authors-code")[-1].ridge == 0
    assert make_hasher("sslh", preset="authors-code")[0].bandwidth == "mean-min-authors"
    assert make_hasher("cosdish", preset="authors-code")[-1].dissimilar == "positive"


@pytest.mark.parametrize("name", ["nsh", "hcsdh"])
def test_learners_of_sums_stream_through_the_kernel(name, digits):
    X, y = digits
    front = {"n_anchors": 60}
    whole = make_hasher(name, 8, random_state=0, kernel=front).fit(X, y)
    parts = make_hasher(name, 8, random_state=0, kernel=front)
    parts[0].fit(X)
    for part in np.array_split(np.arange(len(X)), 3):
        parts.partial_fit(X[part], y[part], classes=np.arange(10))
    assert np.array_equal(whole[-1].codewords_, parts[-1].codewords_)
    assert (whole.transform(X) != parts.transform(X)).mean() < 0.001
