"""Which files are images, and what the others are."""

import pytest
from images.conftest import SMALL
from pictures import encoded, picture

from shorthash.images.decoding import extract
from shorthash.images.files import named_images


@pytest.fixture
def card(tmp_path):
    """What a memory card and a few programs leave in a folder."""
    folder = tmp_path / "card"
    (folder / "DCIM").mkdir(parents=True)
    (folder / ".cache").mkdir()
    for name in ("DCIM/a.JPG", "DCIM/b.png"):
        (folder / name).write_bytes(encoded(picture("rings", len(name)), "PNG"))
    for name in ("DCIM/a.NEF", "DCIM/b.cr3", "clip.mov", "edit.psd", "a.xmp", "notes", ".DS_Store", ".cache/c.jpg"):
        (folder / name).write_bytes(b"x")
    return folder


def test_every_file_of_a_folder_is_an_image_or_counted(card):
    found = named_images([card])
    assert [name for name, _ in found.sources] == ["DCIM/a.JPG", "DCIM/b.png"]
    assert [path for _, path in found.sources] == [card / "DCIM/a.JPG", card / "DCIM/b.png"]
    assert found.skipped == {
        "hidden": [".DS_Store", ".cache/c.jpg"],
        "RAW": ["DCIM/a.NEF", "DCIM/b.cr3"],
        "not an image": ["a.xmp", "notes"],
        "video": ["clip.mov"],
        "other format": ["edit.psd"],
    }
    n_files = sum(place.is_file() for place in card.rglob("*"))
    assert len(found.sources) + sum(map(len, found.skipped.values())) == n_files


def test_failures_have_kinds(card, collection):
    given = [
        ("cut.jpg", encoded(picture("rings", 1), "JPEG")[:300]),
        ("empty.jpg", b""),
        ("text.jpg", b"hello"),
        ("gone.jpg", card / "gone.jpg"),
        ("a.NEF", encoded(picture("rings", 2), "TIFF")),  # RAW files begin like TIFF images
        ("clip.mov", card / "clip.mov"),
    ]
    kinds = ["damaged", "empty", "not an image", "unreadable", "RAW", "video"]
    [failed] = extract(given, SMALL)
    assert [image.kind for image in failed] == kinds
    assert "export it as JPEG" in failed[4].error
    report = collection.add_images(given)
    assert report.skipped == {kind: [name] for kind, (name, _) in zip(kinds, given, strict=True)}
    [[large]] = extract([("large.png", encoded(picture("rings", 3)))], SMALL, max_pixels=1000)
    assert large.kind == "too large"
