"""Collections of pictures and of vectors."""

import shutil

import numpy as np
import pytest
from pictures import CLASSES, encoded, picture, write_folder

from shorthash import make_hasher
from shorthash.images import Collection, fit_images
from shorthash.images.features import GistFeatures

SMALL = GistFeatures(32)


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """Three class folders of 8 images, one of them a duplicate, one broken."""
    folder = write_folder(tmp_path_factory.mktemp("photos") / "photos")
    (folder / "rings" / "again.png").write_bytes((folder / "rings" / "0.png").read_bytes())
    (folder / "rings" / "broken.jpg").write_bytes(encoded(picture("rings", 50), "JPEG")[:300])
    return folder


@pytest.fixture(scope="session")
def fitted(tmp_path_factory, photos):
    """A collection on disk and the report of its making; copy it before changing it."""
    target = tmp_path_factory.mktemp("fitted") / "photos.model"
    report = fit_images(photos, target, n_bits=4, features=SMALL, method="rslh")
    return target, report


@pytest.fixture
def folder(fitted, tmp_path):
    """A copy of the collection of pictures."""
    return shutil.copytree(fitted[0], tmp_path / "photos.model")


@pytest.fixture
def collection(folder):
    with Collection(folder) as opened:
        yield opened


@pytest.fixture(scope="session")
def hasher():
    rng = np.random.default_rng(0)
    y = np.arange(120) % 4
    X = (rng.normal(size=(4, 6))[y] * 3 + rng.normal(size=(120, 6))).astype(np.float32)
    return make_hasher("rslh", n_bits=5, random_state=0, kernel={"n_anchors": 20}).fit(X, y), X, y


@pytest.fixture
def vectors(hasher, tmp_path):
    """A collection of 120 vectors with labels."""
    model, X, y = hasher
    with Collection.create(tmp_path / "vectors", model) as made:
        made.add_vectors(X, labels=y.tolist(), names=[f"v{i}" for i in range(120)])
        yield made


def new_images(n, first=1000):
    return [(f"new{i}.png", encoded(picture(CLASSES[i % 3], first + i))) for i in range(n)]
