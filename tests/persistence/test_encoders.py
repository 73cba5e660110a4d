"""An exported encoder gives the codes of the model, with nothing but NumPy."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from shorthash import AnchorRBF, HasherPipeline, make_hasher
from shorthash.codes import pack
from shorthash.errors import InvalidInput, PersistenceError
from shorthash.kernels.rbf import Bias
from shorthash.learners.itq import PCAITQ
from shorthash.learners.lsh import LSH
from shorthash.learners.rslh.estimator import RSLH
from shorthash.methods import RECIPES
from shorthash.persistence import export_encoder

RUN = """
import sys
for name in ("numba", "safetensors", "scipy", "shorthash", "sklearn"):
    sys.modules[name] = None  # importing it fails
import numpy as np
sys.path.insert(0, sys.argv[1])
import encoder
X = np.load(sys.argv[1] + "/X.npy")
np.savez(sys.argv[1] + "/answer.npz", codes=encoder.encode(X), scores=encoder.project(X))
"""


def answer(folder, X):
    """What the exported file says about X, in a process that has only NumPy."""
    np.save(folder / "X.npy", X)
    subprocess.run([sys.executable, "-I", "-c", RUN, str(folder)], check=True)
    with np.load(folder / "answer.npz") as file:
        return file["codes"], file["scores"]


HASHERS = {
    "kernel": lambda: make_hasher("rslh", 12, random_state=0, kernel={"n_anchors": 40}),
    "learner": lambda: RSLH(n_bits=7, random_state=0),
    "intercept": lambda: PCAITQ(n_bits=5, random_state=0),
    "64 bits": lambda: LSH(n_bits=64, random_state=0),
    "scaled": lambda: HasherPipeline([("z", StandardScaler()), ("b", Bias()), ("h", RSLH(n_bits=6, random_state=0))]),
    "sklearn": lambda: make_pipeline(AnchorRBF(30, random_state=0), RSLH(n_bits=8, random_state=0)),
}


@pytest.mark.parametrize("name", HASHERS)
def test_numpy_alone_gives_the_same_codes(name, blobs, tmp_path):
    X, y = blobs
    hasher = HASHERS[name]().fit(X, y)
    path = export_encoder(hasher, tmp_path / "encoder.py")
    codes, scores = answer(tmp_path, X)
    front, learner = (hasher[:-1], hasher[-1]) if hasattr(hasher, "steps") else (None, hasher)
    truth = learner.project(X if front is None else front.transform(X))
    np.testing.assert_allclose(scores, truth, atol=1e-4 * np.abs(truth).max())
    clear = np.abs(truth).min(axis=1) > 1e-4 * np.abs(truth).max()  # a score of 0 may round to either side
    assert clear.mean() > 0.9
    assert codes[clear].tolist() == pack(hasher.transform(X))[clear].tolist()
    assert path.read_text().count("\n") < 40
    assert sorted(p.name for p in tmp_path.iterdir() if "encoder." in p.name) == ["encoder.npz", "encoder.py"]


@pytest.mark.parametrize("name", sorted(set(RECIPES) - {"auto", "eaph"}))  # these two take seconds to learn
def test_every_linear_method_can_be_exported_and_the_others_say_so(name, blobs, tmp_path, recwarn):
    X, y = blobs
    kernel = {"n_anchors": 20} if "kernel" in RECIPES[name].preprocessing else None
    hasher = make_hasher(name, 2, random_state=0, kernel=kernel).fit(X, y)
    if not hasher[-1]._is_linear:
        with pytest.raises(InvalidInput, match=r"hashers with a linear hash function. Got \w+ instead; save the model"):
            export_encoder(hasher, tmp_path / "encoder.py")
        return
    space = {"__file__": str(export_encoder(hasher, tmp_path / "encoder.py"))}
    exec((tmp_path / "encoder.py").read_text(), space)
    assert np.array_equal(space["encode"](X), pack(hasher.transform(X)))


def test_integers_are_rows_too(blobs, tmp_path):
    X, y = blobs
    hasher = RSLH(n_bits=4, random_state=0).fit(X, y)
    space = {"__file__": str(export_encoder(hasher, tmp_path / "encoder.py"))}
    exec((tmp_path / "encoder.py").read_text(), space)
    whole = np.round(10 * X).astype(int)
    assert space["encode"](whole).tolist() == pack(hasher.transform(whole)).tolist()


def test_what_cannot_be_exported_is_an_error(blobs, tmp_path):
    hasher = RSLH(n_bits=4, random_state=0).fit(*blobs)
    for call, error, message in [
        (lambda: export_encoder(hasher, tmp_path / "encoder"), InvalidInput, "must end in .py. Got .*encoder instead"),
        (lambda: export_encoder(RSLH(4), tmp_path / "e.py"), ValueError, "not fitted yet"),
        (lambda: export_encoder(hasher, tmp_path / "no" / "e.py"), PersistenceError, "Cannot write .*e.npz: No such"),
    ]:
        with pytest.raises(error, match=message):
            call()
    assert list(tmp_path.iterdir()) == []
