"""From a folder of images to a collection."""

import json

import numpy as np
import pytest
from images.conftest import SMALL
from pictures import CLASSES, encoded, picture, write_folder

from shorthash.errors import DataFileError, InvalidInput, PersistenceError
from shorthash.images import Collection, fit_images
from shorthash.images.files import labels_by_table
from shorthash.images.fitting import _doubt, held_out


def test_a_folder_of_classes(fitted):
    path, report = fitted
    assert (report.n_images, len(report.added.added), report.facts["n_classes"]) == (26, 24, 3)
    assert [name for name, _ in report.added.failed] == ["rings/broken.jpg"]
    assert [name for name, _ in report.added.duplicates] == ["rings/again.png"]
    assert report.facts["evaluation"]["map"] > 0.8
    assert report.facts["evaluation"]["n_queries"] == 6
    assert report.facts["evaluation"]["n_searched"] == 18
    with Collection(path, readonly=True) as collection:
        assert collection.classes == dict.fromkeys(CLASSES, 8)
        [item] = collection.items([0])
        assert (item.name, item.label) == ("checks/0.png", "checks")
        assert item.thumbnail is not None
        assert collection.facts()["evaluation"] == report.facts["evaluation"]
        assert collection.search(image=encoded(picture("rings", 77)), k=5).labels.count("rings") >= 4
    assert not [p for p in path.parent.iterdir() if p.name != path.name]


def test_without_labels_codes_are_learned_from_neighbours(tmp_path):
    folder = write_folder(tmp_path / "photos", classes=("rings",))
    report = fit_images(folder, tmp_path / "m", n_bits=3, features=SMALL)
    assert report.facts["method"] == "auto"
    assert "no labels" in report.reason
    assert report.facts["evaluation"] is None
    assert report.n_labelled == 0
    with pytest.raises(InvalidInput, match="needs labels, and there are none"):
        fit_images(folder, tmp_path / "m2", n_bits=3, features=SMALL, method="rslh")
    assert not (tmp_path / "m2").exists()


@pytest.fixture(scope="module")
def albums(tmp_path_factory):
    """Two folders that hold the same kinds of pictures."""
    folder = tmp_path_factory.mktemp("albums")
    for year in (2023, 2024):
        (folder / str(year)).mkdir()
        for kind in CLASSES:
            for seed in range(year % 2, 20, 2):
                (folder / str(year) / f"{kind}{seed}.png").write_bytes(encoded(picture(kind, seed)))
    return folder


def test_albums_are_no_classes(tmp_path, albums, photos):
    with pytest.warns(UserWarning, match=r"look like albums, not classes: .*Codes were learned without labels"):
        report = fit_images(albums, tmp_path / "m", n_bits=3, features=SMALL)
    assert report.doubt.startswith("The folders look like albums")
    assert "not classes" in report.reason
    assert (report.n_labelled, report.facts["evaluation"], report.facts["n_classes"]) == (0, None, 0)
    with Collection(tmp_path / "m", readonly=True) as collection:
        found = collection.search(image=encoded(picture("rings", 90)), k=5).names
        assert sum("rings" in name for name in found) >= 4


def test_requested_labels_are_used_whatever_they_are(tmp_path, albums):
    with pytest.warns(UserWarning, match=r"labels seem unrelated to the images: .*--no-labels"):
        report = fit_images(albums, tmp_path / "m", n_bits=3, features=SMALL, labels_from="folder")
    assert (report.n_labelled, report.facts["n_classes"]) == (60, 2)
    report = fit_images(albums, tmp_path / "lsh", n_bits=3, features=SMALL, method="lsh")  # uses no labels: no warning
    assert (report.n_labelled, report.doubt) == (60, "")


def test_one_bucket_for_nearly_all_is_in_doubt():
    measured = {"map": 0.99, "chance": 0.9, "error": 0.0, "largest_bucket": 0.95, "n_queries": 50}
    assert "one bucket holds 95% of the images" in _doubt(measured, "drop")
    assert _doubt({**measured, "largest_bucket": 0.5}, "drop") == ""
    assert _doubt({**measured, "n_queries": 4}, "drop") == ""


def test_labels_may_be_left_out(tmp_path, photos):
    report = fit_images(photos, tmp_path / "m", n_bits=3, features=SMALL, labels_from="none")
    assert (report.n_labelled, report.facts["evaluation"], report.doubt) == (0, None, "")
    assert "no labels" in report.reason


def test_where_labels_come_from_must_fit(tmp_path, photos):
    for given, says in [
        ({"labels_from": "exif"}, "must be one of 'folder', 'csv', 'none'"),
        ({"labels_from": "csv"}, "needs a CSV file"),
        ({"labels_from": "none", "labels": "x.csv"}, "Labels come from one place"),
    ]:
        with pytest.raises(InvalidInput, match=says):
            fit_images(photos, tmp_path / "m", features=SMALL, **given)
    with pytest.raises(DataFileError, match="no class folders"):
        fit_images(photos / "rings", tmp_path / "m", features=SMALL, labels_from="folder")


def test_labels_from_a_table_may_be_several(tmp_path, photos):
    lines = ["name,label"]
    lines += [f"{kind}/{i}.png,{kind}{';odd' if i % 2 else ''}" for kind in CLASSES for i in range(7)]
    (tmp_path / "labels.csv").write_text("\n".join([*lines, "nobody.png,x"]))
    report = fit_images(photos, tmp_path / "m", n_bits=4, features=SMALL, labels=tmp_path / "labels.csv", method="rslh")
    assert (report.n_labelled, report.facts["n_classes"], report.unmatched) == (21, 4, ["nobody.png"])
    assert report.facts["evaluation"]["n_queries"] == 4
    with Collection(tmp_path / "m", readonly=True) as collection:
        assert collection.classes["odd"] == 9
        assert collection.items([1])[0].labels == ("checks", "odd")


def test_one_image_per_class(tmp_path):
    folder = write_folder(tmp_path / "photos", per_class=1)
    report = fit_images(folder, tmp_path / "m", n_bits=3, features=SMALL)
    assert report.facts["method"] == "auto"
    assert report.facts["evaluation"] is None
    with Collection(tmp_path / "m", readonly=True) as collection:
        assert len(collection.buckets()) == 3


def test_the_recommended_method_on_few_images(tmp_path, photos):
    report = fit_images(photos, tmp_path / "m", n_bits=4, features=SMALL)
    assert "recommended" in report.reason
    assert report.facts["evaluation"]["map"] > 0.8


def test_a_failed_fit_leaves_nothing(tmp_path, photos):
    with pytest.raises(InvalidInput, match="no parameter 'nonsense'"):
        fit_images(photos, tmp_path / "m", features=SMALL, method="rslh", settings={"nonsense": 1})
    assert not list(tmp_path.iterdir())


def test_an_existing_collection_is_never_overwritten(fitted, photos):
    with pytest.raises(PersistenceError, match="never overwritten"):
        fit_images(photos, fitted[0], features=SMALL)


def test_folders_without_readable_images_are_refused(tmp_path):
    with pytest.raises(DataFileError, match="There is no folder"):
        fit_images(tmp_path / "none", tmp_path / "m")
    with pytest.raises(DataFileError, match="holds no images"):
        fit_images(tmp_path, tmp_path / "m")
    (tmp_path / "shoot.nef").write_bytes(b"II*")
    with pytest.raises(DataFileError, match=r"its 1 files were skipped \(RAW 1\)"):
        fit_images(tmp_path, tmp_path / "m")
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "bad.jpg").write_bytes(b"nonsense")
    with pytest.raises(DataFileError, match=r"None of the 1 images can be read; bad\.jpg"):
        fit_images(tmp_path / "only", tmp_path / "m")
    with pytest.raises(InvalidInput, match="'hold_out' parameter"):
        fit_images(tmp_path / "only", tmp_path / "m", hold_out=1)


def test_the_cache_is_filled_and_used(tmp_path, photos):
    stored = []
    for name in ("a", "b"):
        fit_images(photos, tmp_path / name, features=SMALL, method="lsh", cache=tmp_path / "cache", hold_out=0)
        stored.append(json.loads((tmp_path / name / "meta.json").read_text())["features"])
    assert stored[0] == stored[1] == SMALL.recipe
    assert (tmp_path / "cache").stat().st_size > 20_000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a.png,x,y\n", "line 1 has 3"),
        ("zzz.png,x\n", "labels none of the 2 images"),
        ("same.png,x\n", "2 images have the name"),
        ("\xff\xfe", "labels none|line 1|cannot be read"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, text, says):
    (tmp_path / "t.csv").write_text(text, encoding="latin-1")
    with pytest.raises(DataFileError, match=says):
        labels_by_table(tmp_path / "t.csv", ["a/same.png", "b/same.png"])


def test_held_out_rows_leave_rows_of_every_class():
    y = np.repeat(["a", "b", "c"], [50, 2, 1])
    rows = held_out(y, 0.2, 1)
    assert [int((y[rows] == c).sum()) for c in "abc"] == [10, 1, 0]
    assert len(held_out(np.zeros(20_000, dtype=int), 0.2, 0)) == 1000
    assert len(held_out(np.ones((50, 3), dtype=int), 0.2, 0)) == 10
