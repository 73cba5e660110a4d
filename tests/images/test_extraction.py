"""From files to rows: order, cache, failures, worker processes, and workers that crash."""

from contextlib import closing

import numpy as np
import pytest
from images.deadly import Deadly
from pictures import CLASSES, encoded, picture, write_folder

from shorthash.errors import DataFileError
from shorthash.images.decoding import extract
from shorthash.images.features import CallableFeatures, FeatureCache, GistFeatures, default_cache
from shorthash.images.files import named_images


def flat(batches):
    return [e for batch in batches for e in batch]


class Counting(CallableFeatures):
    """Mean colours; counts the images it has seen."""

    def __init__(self):
        super().__init__(self._mean, "mean", size=8)
        self.n = 0

    def _mean(self, batch):
        self.n += len(batch)
        return batch.reshape(len(batch), -1)[:, :6] + 1.0


def sources(n=5):
    return [(f"{i}", encoded(picture(CLASSES[i % 3], i))) for i in range(n)]


def test_order_failures_and_thumbnails():
    given = [*sources(3), ("empty", b""), ("text", b"hello"), *sources(1)]
    calls = []
    done = flat(extract(given, GistFeatures(32), thumbnail=16, batch_size=2, progress=lambda *a: calls.append(a)))
    assert [e.name for e in done] == ["0", "1", "2", "empty", "text", "0"]
    assert [bool(e.error) for e in done] == [False, False, False, True, True, False]
    assert done[3].row is None
    assert "empty" in done[3].error
    assert done[0].thumbnail.startswith(b"\xff\xd8")
    np.testing.assert_array_equal(done[0].row, done[-1].row)
    assert calls[-1] == ("reading images", 6, 6)


def test_missing_files_are_reported(tmp_path):
    [[done]] = extract([tmp_path / "gone.jpg"], GistFeatures(32))
    assert "cannot be read" in done.error


def test_what_is_in_the_cache_is_not_computed_again(tmp_path):
    features = Counting()
    cache = tmp_path / "cache"
    first = flat(extract(sources(5), features, cache=cache, batch_size=2))
    assert features.n == 5
    again = flat(extract([*sources(5), ("new", encoded(picture("rings", 99)))], features, cache=cache))
    assert features.n == 6
    np.testing.assert_array_equal([e.row for e in first], [e.row for e in again[:5]])


def test_interrupted_work_continues_where_it_stopped(tmp_path):
    features = Counting()
    interrupted = extract(sources(6), features, cache=tmp_path / "cache", batch_size=2)
    next(interrupted)
    interrupted.close()
    flat(extract(sources(6), features, cache=tmp_path / "cache", batch_size=2))
    assert features.n == 6


def test_the_cache_keeps_recipes_apart(tmp_path):
    with closing(FeatureCache(tmp_path / "cache", {"kind": "a"})) as cache:
        cache.put(["x"], np.ones((1, 3), dtype=np.float32))
    with closing(FeatureCache(tmp_path / "cache", {"kind": "b"})) as cache:
        assert cache.get(["x"]) == {}


def test_a_file_that_is_not_a_cache_is_refused(tmp_path):
    (tmp_path / "cache").write_bytes(b"something else, " * 100)
    with pytest.raises(DataFileError, match="choose another file"):
        FeatureCache(tmp_path / "cache", {})


def test_the_default_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "shorthash" / "features.sqlite"


@pytest.mark.parametrize("batch_size", [1, 5])
def test_workers_give_the_same_rows_and_may_crash(tmp_path, batch_size):
    """One image crashes its worker again and again; all others come out as without worker processes."""
    write_folder(tmp_path / "images", per_class=3)
    (tmp_path / "images" / "checks" / "0deadly.png").write_bytes(encoded(picture("rings", 1, size=(13, 20))))
    files = [path for _, path in named_images([tmp_path / "images"]).sources]
    images = flat(extract(files, Deadly(32), thumbnail=16, batch_size=batch_size, n_workers=1))
    expected = flat(extract([f for f in files if f.stem != "0deadly"], GistFeatures(32), thumbnail=16))
    [dead] = [image for image in images if image.error]
    assert "crashed the decoder" in dead.error
    assert dead.name.endswith("0deadly.png")
    kept = [image for image in images if not image.error]
    assert [image.name for image in kept] == [image.name for image in expected]
    np.testing.assert_allclose([image.row for image in kept], [image.row for image in expected], rtol=1e-5)
    assert [image.thumbnail for image in kept] == [image.thumbnail for image in expected]
