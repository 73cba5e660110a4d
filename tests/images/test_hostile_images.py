"""Image files that are meant to block or to fill the process that reads them; none stops the others."""

import os
import sqlite3
import sys
import time

import numpy as np
import pytest
from images.bombs import many_scans, tiny_gif, wide_png
from images.deadly import Deadly
from pictures import encoded, picture

from shorthash.errors import UnreadableImage
from shorthash.images import Collection, fit_images
from shorthash.images.decoding import Workers, decode, extract, memory_for, read_bytes
from shorthash.images.features import FeatureCache, GistFeatures


@pytest.mark.parametrize(
    ("octets", "says"),
    [
        (many_scans(), "JPEG of 50.. scans, and at most 100 are decoded"),
        (tiny_gif(), "8000 x 8000 pixels in only 43 bytes"),
        (tiny_gif(65_000), "too many pixels"),
    ],
    ids=["scans", "gif", "giant gif"],
)
def test_what_costs_far_more_than_its_bytes_is_refused_before_it_is_decoded(octets, says):
    start = time.perf_counter()
    with pytest.raises(UnreadableImage, match=says):
        decode(octets)
    assert time.perf_counter() - start < 5


def test_ordinary_images_are_not_refused():
    assert decode(many_scans(20)).size == (100, 100)
    assert decode(wide_png(1900)).size == (1900, 1900)


def test_an_image_that_blocks_or_fills_its_worker_fails_alone():
    wide = {width: encoded(picture("rings", width, size=(width, 20))) for width in (13, 17, 19, 23)}
    images = [(str(width), octets) for width, octets in [(23, wide[23]), *wide.items()]]
    workers = Workers(1, seconds=1.5, memory=1 << 29)
    try:
        [done] = extract(images, Deadly(32), workers=workers)
        [again] = extract(images[:1], Deadly(32), workers=workers)
    finally:
        workers.close()
    assert [image.error.partition(";")[0] for image in done] == [
        "",
        "decoding it crashed the decoder",
        "decoding it took longer than 1.5 seconds",
        "decoding it crashed the decoder",
        "",
    ]
    np.testing.assert_array_equal(done[0].row, again[0].row)


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits on memory")
def test_a_worker_takes_no_more_memory_than_it_may():
    big = [("big", wide_png())]
    for memory, fails in [(1 << 27, True), (memory_for(40_000_000), False)]:
        workers = Workers(1, seconds=300, memory=memory)
        try:
            [[image]] = extract(big, GistFeatures(32), workers=workers)
        finally:
            workers.close()
        assert bool(image.error) == fails


def test_files_that_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    with (tmp_path / "sparse.jpg").open("wb") as file:
        file.truncate(6 << 30)
    for name, says in [
        ("pipe.jpg", "is not a file"),
        ("sparse.jpg", "6442450944 bytes"),
        ("no\0.jpg", "cannot be read"),
    ]:
        with pytest.raises(UnreadableImage, match=says):
            read_bytes(tmp_path / name)


def test_hostile_files_do_not_stop_a_fit(tmp_path):
    folder = tmp_path / "photos"
    for kind in ("rings", "checks"):
        (folder / kind).mkdir(parents=True)
        for number in range(4):
            (folder / kind / f"{number}.png").write_bytes(encoded(picture(kind, number)))
    os.mkfifo(folder / "rings" / "pipe.png")
    with (folder / "rings" / "sparse.jpg").open("wb") as file:
        file.truncate(6 << 30)
    (folder / "checks" / "scans.jpg").write_bytes(many_scans())
    strange = os.fsencode(folder) + b"/checks/m\xfcll.png"
    with open(strange, "wb") as file:  # noqa: PTH123
        file.write(encoded(picture("checks", 77)))
    report = fit_images(folder, tmp_path / "m", n_bits=3, features=GistFeatures(32), method="rslh", hold_out=0)
    assert len(report.added.added) == 9
    assert sorted(name for name, _ in report.added.failed) == ["checks/scans.jpg", "rings/sparse.jpg"]
    with Collection(tmp_path / "m", readonly=True) as collection:
        assert "checks/m\ufffdll.png" in [item.name for item in collection.items(collection.ids)]


def test_a_broken_or_full_cache_is_a_warning(tmp_path):
    images = [("a", encoded(picture("rings", 1)))]
    expected = next(extract(images, GistFeatures(32)))[0].row
    (tmp_path / "broken").write_bytes(b"something else, " * 100)
    with pytest.warns(UserWarning, match="computed without it"):
        [[image]] = extract(images, GistFeatures(32), cache=tmp_path / "broken")
    np.testing.assert_array_equal(image.row, expected)
    cache = FeatureCache(tmp_path / "full", GistFeatures(32).recipe)
    cache._connection.execute("PRAGMA max_page_count = 1")
    with pytest.warns(UserWarning, match="it is not used"):
        cache.put([f"{number}" for number in range(50)], np.ones((50, 512), dtype=np.float32))
    cache.close()
    with sqlite3.connect(tmp_path / "wrong") as database:
        FeatureCache(tmp_path / "wrong", GistFeatures(32).recipe).put([image.content], expected[None])
        database.execute("UPDATE features SET row = x'000000'")
    [[image]] = extract(images, GistFeatures(32), cache=tmp_path / "wrong")
    np.testing.assert_array_equal(image.row, expected)
