"""Duplicates: all similar pairs are found, the pixels decide, and equal files are remembered."""

import shutil

import numpy as np
import pytest
from images.conftest import SMALL
from pictures import encoded
from PIL import Image, ImageEnhance

from shorthash.errors import InvalidInput
from shorthash.images import Collection, duplicates, find_duplicates, fit_images, near_pairs
from shorthash.images.duplicates import pixel_similarity, small_parts


def every_pair(X, threshold):
    """All pairs, one by one."""
    U = X / np.maximum(np.linalg.norm(X.astype(np.float64), axis=1, keepdims=True), 1e-30)
    return [[i, j] for i in range(len(U)) for j in range(i + 1, len(U)) if U[i] @ U[j] >= threshold]


@pytest.mark.parametrize("n_features", [5, 90])  # shorter and longer than what the bound uses
def test_no_pair_is_missed(monkeypatch, n_features):
    monkeypatch.setattr(duplicates, "BLOCK", 32)  # several blocks
    rng = np.random.default_rng(n_features)
    X = rng.normal(size=(12, n_features))[rng.integers(0, 12, 150)] + 0.35 * rng.normal(size=(150, n_features))
    X[40], X[41] = X[3] * 7, 0
    X = X.astype(np.float32)
    for threshold in (0.8, 0.9, 0.99):
        pairs, cosines = near_pairs(X, threshold)
        assert pairs.tolist() == every_pair(X, threshold)
        assert (cosines >= threshold).all()
    assert [3, 40] in pairs.tolist()


def test_too_many_pairs_are_refused(monkeypatch):
    monkeypatch.setattr(duplicates, "MOST_PAIRS", 10)
    with pytest.raises(InvalidInput, match=r"More than 10 pairs .* choose a larger threshold"):
        near_pairs(np.ones((9, 3)), 0.9)
    assert near_pairs(np.empty((0, 3)), 0.9)[0].shape == (0, 2)


def scene(seed, size=(160, 120)):
    """A picture unlike all others: large patches of random colour."""
    patches = np.random.default_rng(seed).integers(0, 200, size=(6, 8, 3)).astype(np.uint8)
    return Image.fromarray(patches).resize(size, Image.Resampling.BICUBIC)


def similarity(first, second):
    return float(pixel_similarity(*(small_parts(encoded(image))[None] for image in (first, second)))[0])


def test_pixels_tell_copies_from_other_pictures():
    image = scene(1)
    copies = [image.resize((70, 50)), ImageEnhance.Brightness(image).enhance(1.2), image.crop((4, 3, 156, 117))]
    assert min(similarity(image, copy) for copy in copies) > 0.9
    assert similarity(image, copies[2]) == pytest.approx(similarity(copies[2], image))
    assert max(similarity(image, scene(seed)) for seed in range(2, 8)) < 0.8
    grey = image.point(lambda _: 90)
    assert [similarity(grey, other) for other in (grey, image, image.point(lambda _: 120))] == [1, 0, 0]
    assert small_parts(b"nonsense") is None


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """A folder with a copy that is equal and one that is brighter, and a collection of it."""
    base = tmp_path_factory.mktemp("copied")
    folder = base / "photos"
    folder.mkdir()
    for seed in range(8):
        (folder / f"{seed}.png").write_bytes(encoded(scene(seed)))
    shutil.copy(folder / "5.png", folder / "5 (1).png")
    (folder / "bright.jpg").write_bytes(encoded(ImageEnhance.Brightness(scene(3)).enhance(1.1), "JPEG", quality=95))
    fit_images(folder, base / "m", n_bits=3, features=SMALL, method="pcaitq")
    return folder, base / "m"


def test_groups_of_equal_and_similar_files(copied):
    folder, model = copied
    with Collection(model, readonly=True) as collection:
        found = find_duplicates(collection)
    near, exact = found.pairs
    assert (near.kind, near.group, near.name, near.other_name) == ("near", 0, "3.png", "bright.jpg")
    assert 0.95 <= near.similarity < 1
    assert (exact.kind, exact.group, exact.similarity) == ("exact", 1, 1.0)
    assert {exact.name, exact.other_name} == {"5.png", "5 (1).png"}
    assert exact.id == exact.other_id
    assert exact.other_source == str(folder / exact.other_name)
    assert [sorted(file.name for file in group) for group in found.groups] == [
        ["3.png", "bright.jpg"],
        ["5 (1).png", "5.png"],
    ]
    sizes = [file.n_bytes for file in found.groups[0]]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 0
    assert found.n_exact == 1


def test_equal_files_are_forgotten_when_they_go(copied, tmp_path):
    folder, model = (shutil.copytree(place, tmp_path / place.name) for place in copied)
    again = tmp_path / "again.png"
    shutil.copy(folder / "5.png", again)
    with Collection(model) as collection:
        collection.add_images([again, ("from bytes", again.read_bytes())])
        assert [len(files) for files in collection.copies().values()] == [2]
        collection.add_images([collection.sources_of([0])[0]])  # the same file again is no copy of itself
        assert 0 not in collection.copies()
        again.unlink()
        assert [len(files) for files in collection.copies().values()] == [1]
        collection.remove(list(collection.copies()))
        assert collection.copies() == {}


def test_vectors_have_duplicates_too(vectors, hasher):
    with pytest.raises(InvalidInput, match="'threshold' parameter"):
        find_duplicates(vectors, threshold=1.5)
    found = [[pair.id, pair.other_id] for pair in find_duplicates(vectors, threshold=0.99).pairs]
    assert sorted(found) == every_pair(hasher[1], 0.99)
    assert found
