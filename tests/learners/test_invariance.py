"""The code of a row depends on the row and the model alone: not on its neighbours, the batch size or the threads."""

import os

import numpy as np
import pytest
from hostile import hostile_rows
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from shorthash import RSLH, AnchorRBF, make_hasher
from shorthash.codes.signs import pack
from shorthash.learners.encoders import ENCODERS, CodewordHasher
from shorthash.learners.lsh import LSH
from shorthash.methods import recipes
from shorthash.pipeline import HasherPipeline

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::shorthash.errors.ShorthashWarning"),
]

MANY = "SHORTHASH_SEEDS" in os.environ
N_ROWS = 2000 if MANY else 700
WITHOUT_LABELS = "auto without labels"
NEAR = 50 if MANY else 24  # rows at a boundary between two codes
ALONE = N_ROWS if MANY else 50  # rows that are encoded one by one, beside those


@pytest.fixture(scope="module")
def rows(digits):
    """Real-valued rows, and labels."""
    X, y = digits
    rng = np.random.default_rng(0)
    picked = rng.integers(len(X), size=N_ROWS)
    return (X[picked] + rng.normal(scale=0.7, size=(N_ROWS, X.shape[1]))).astype(np.float32), y[picked]


def hashers():
    """Every registered method, every encoder of codewords, and transformers of scikit-learn in front."""
    for name, recipe in recipes().items():
        if name == "auto":  # another name of eaph
            assert str(make_hasher(name, 6)) == str(make_hasher("eaph", 6))
            continue
        kernel = {"kernel": {"n_anchors": 60}} if "kernel" in recipe.preprocessing else {}
        yield name, lambda name=name, kernel=kernel: make_hasher(name, 6, random_state=0, **kernel)
    yield WITHOUT_LABELS, lambda: make_hasher("auto", 6, random_state=0)
    for encoder in ENCODERS:
        for scores in ("ridge", "logistic") if encoder == "soft" else ("ridge",):
            learner = CodewordHasher(RSLH(6, boosting=None), encoder=encoder, scores=scores, random_state=0)
            steps = [("kernel", AnchorRBF(60, random_state=0)), ("hasher", learner)]
            yield f"{encoder}-{scores}", lambda steps=steps: HasherPipeline(steps)
    kernel = AnchorRBF(60, random_state=0)
    fronts = {"pca": [PCA(20)], "scaled-pca-kernel": [StandardScaler(), PCA(20), kernel]}
    for name, front in fronts.items():
        for learner in (LSH(6, random_state=0), RSLH(6, random_state=0)):
            steps = [(str(i), step) for i, step in enumerate([*front, learner])]
            yield f"{name}-{type(learner).__name__}", lambda steps=steps: HasherPipeline(steps)


HASHERS = dict(hashers())


def codes_in_batches(hasher, X, size):
    return np.concatenate([pack(hasher.transform(X[i : i + size])) for i in range(0, len(X), size)])


@pytest.mark.parametrize("name", HASHERS)
def test_codes_do_not_depend_on_the_batch(rows, name):
    X, y = rows
    hasher = HASHERS[name]().fit(X[:500], None if name == WITHOUT_LABELS else y[:500])
    near = hostile_rows(hasher, X[:400], NEAR)
    assert len(near) == NEAR
    X = np.concatenate([near, X])
    with threadpool_limits(limits=1):
        codes = codes_in_batches(hasher, X, len(X))
    order = np.random.default_rng(2).permutation(len(X))
    for n_threads in (1, 2):
        with threadpool_limits(limits=n_threads):
            alone = codes_in_batches(hasher, X[: NEAR + ALONE], 1)
            assert np.count_nonzero(alone != codes[: NEAR + ALONE]) == 0
            for size, some in ((7, order[: N_ROWS // 3]), (64, order), (len(X), order)):
                shuffled = codes_in_batches(hasher, X[some], size)
                assert np.count_nonzero(shuffled != codes[some]) == 0, size
