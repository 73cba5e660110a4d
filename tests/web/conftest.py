"""Servers in this process: one of pictures, one of vectors; no answer may contain the name of the folder."""

import shutil

import numpy as np
import pytest
from pictures import write_folder
from served import SECRET, client_of

from shorthash import make_hasher
from shorthash.images import Collection, fit_images
from shorthash.images.features import GistFeatures


@pytest.fixture(scope="session")
def fitted_pictures(tmp_path_factory):
    """A collection of 24 pictures; copy it before changing it."""
    place = tmp_path_factory.mktemp(SECRET)
    target = place / "photos.model"
    fit_images(write_folder(place / "photos"), target, n_bits=4, features=GistFeatures(32), method="rslh")
    return target


@pytest.fixture
def picture_folder(fitted_pictures, tmp_path):
    (tmp_path / SECRET).mkdir(exist_ok=True)
    return shutil.copytree(fitted_pictures, tmp_path / SECRET / "photos.model")


@pytest.fixture
def pictures(picture_folder):
    with Collection(picture_folder) as opened:
        yield opened


@pytest.fixture
def api(pictures):
    with client_of(pictures) as client:
        yield client


@pytest.fixture(scope="session")
def rows():
    rng = np.random.default_rng(0)
    y = np.arange(120) % 4
    X = (rng.normal(size=(4, 6))[y] * 3 + rng.normal(size=(120, 6))).astype(np.float32)
    X.flags.writeable = False
    return X, y


@pytest.fixture(scope="session")
def row_hasher(rows):
    return make_hasher("rslh", n_bits=5, random_state=0, kernel={"n_anchors": 20}).fit(*rows)


@pytest.fixture
def vectors(rows, row_hasher, tmp_path):
    """A collection of 120 vectors."""
    X, y = rows
    (tmp_path / SECRET).mkdir(exist_ok=True)
    with Collection.create(tmp_path / SECRET / "points", row_hasher) as made:
        made.add_vectors(X, labels=y.tolist(), names=[f"v{i}" for i in range(120)])
        yield made


@pytest.fixture
def vector_api(vectors):
    with client_of(vectors) as client:
        yield client


@pytest.fixture(scope="session")
def asked_api(rows, row_hasher, tmp_path_factory):
    """A server of 120 vectors, for requests that change nothing."""
    with Collection.create(tmp_path_factory.mktemp(SECRET) / "points", row_hasher) as made:
        made.add_vectors(rows[0], labels=rows[1].tolist(), names=[f"v{i}" for i in range(120)])
        with client_of(made) as client:
            yield client


@pytest.fixture
def named_api(rows, row_hasher, tmp_path):
    """A collection whose ids are strings, one of them with a slash."""
    X, y = rows
    (tmp_path / SECRET).mkdir(exist_ok=True)
    ids = ["a/b", *(f"n{i}" for i in range(1, 20))]
    with Collection.create(tmp_path / SECRET / "named", row_hasher) as made:
        made.add_vectors(X[:20], ids=ids, labels=y[:20].tolist())
        with client_of(made) as client:
            yield client
