"""Everything that version 0.1.0 saved still loads: models with equal codes, indexes, a store and a collection."""

import shutil
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from shorthash import BucketIndex, ScanIndex, SQLiteStore, load
from shorthash.images import Collection
from shorthash.persistence import verify

ARCHIVE = Path(__file__).parent / "saved-0.1.0.tar.gz"
with tarfile.open(ARCHIVE) as archive:
    MODELS = sorted(name.removesuffix(".codes.npy") for name in archive.getnames() if name.endswith(".codes.npy"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def sqlite_rows(path, column):
    """A column of the table ``items``, read without this package."""
    with closing(sqlite3.connect(path)) as database:
        return [row[0] for row in database.execute(f"SELECT {column} FROM items ORDER BY id")]


@pytest.mark.parametrize("name", MODELS)
def test_models_give_the_codes_they_gave(saved, name):
    X = load_digits().data[:50].astype(np.float32)
    verify(saved / name)
    codes = load(saved / name).transform(X)
    assert codes.tolist() == np.load(saved / f"{name}.codes.npy").tolist()
    assert load(saved / name, mmap=True).transform(X).tolist() == codes.tolist()


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize(("name", "kind"), [("buckets.index", BucketIndex), ("scan.index", ScanIndex)])
def test_indexes_are_searched(saved, name, kind, mmap):
    verify(saved / name)
    index = load(saved / name, mmap=mmap)
    assert type(index) is kind
    assert len(index) == 300
    codes = np.array(sqlite_rows(saved / "items.sqlite", "code_1"))  # the store has the first 50 items
    assert index.codes[:50].tolist() == codes.tolist()
    truth = ScanIndex(6).add(index.codes).search(codes, 7)
    found = index.search(codes, 7)
    assert found.ids.tolist() == truth.ids.tolist()
    assert found.distances.tolist() == truth.distances.tolist()
    index.add(codes[:1], [1000]).remove([0])
    assert len(index) == 300


def test_a_store_is_searched_and_changed(saved, tmp_path):
    path = shutil.copy(saved / "items.sqlite", tmp_path)
    codes = np.array(sqlite_rows(path, "code_1"))
    classes = sqlite_rows(path, "class")
    with SQLiteStore(path) as store:
        assert (len(store), store.n_bits) == (50, 6)
        assert store.codes.tolist() == codes.tolist()
        truth = ScanIndex(6).add(codes).search(codes[:5], 7)
        assert store.search(codes[:5], 7).ids.tolist() == truth.ids.tolist()
        item = store.items([3])
        assert (item.codes[0], item.classes[0], item.metadata[0]) == (codes[3], classes[3], {"n": 3})
        assert item.vectors.shape == (1, 2)
        store.remove([3])
        store.add(codes[3:4], vectors=[[0.0, 1.0]], classes=[3])
        assert store.ids.tolist() == [0, 1, 2, *range(4, 51)]


def test_a_collection_is_searched_and_changed(saved, tmp_path):
    path = shutil.copytree(saved / "photos.model", tmp_path / "photos.model")
    with Collection(path) as photos:
        assert (len(photos), photos.n_bits) == (12, 4)
        assert photos.classes == {"a": 6, "b": 6}
        found = photos.search(id=0, k=5)
        assert found.ids.tolist() == [1, 2, 3, 4, 5]
        assert set(found.labels) == {"a"}
        item = photos.items([7])[0]
        assert (item.label, item.name, item.code) == ("b", "b/image_0127.jpg", 5)
        picture = photos.thumbnail(item.content)
        again = photos.search(image=picture, k=6)
        assert again.ids.tolist() == [6, 7, 8, 9, 10, 11]
        photos.remove([0])
        assert len(photos) == 11
