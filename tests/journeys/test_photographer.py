"""A person with photographs: albums from a camera and a phone, searched, cleaned of duplicates and taken elsewhere."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from pictures import encoded
from PIL import Image, ImageEnhance

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "images.md").read_text(encoding="utf-8")
PLACES = ("harbour", "forest", "street")


def photograph(place, number):
    """Photographs of one place are alike, and no two are the same."""
    patches = np.random.default_rng(PLACES.index(place)).integers(40, 215, size=(6, 8, 3))
    noise = np.random.default_rng([PLACES.index(place), number]).integers(-38, 38, size=patches.shape)
    return Image.fromarray((patches + noise).astype(np.uint8)).resize((96, 72), Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def shell(tmp_path_factory, shell_in):
    """Command lines in a folder with photos/ (two albums), new/ and holiday.jpg."""
    folder = tmp_path_factory.mktemp("photographer")
    for number in range(30):
        album = folder / "photos" / ("2023" if number % 2 else "2024")
        album.mkdir(parents=True, exist_ok=True)
        for place in PLACES:
            (album / f"{place}{number}.jpg").write_bytes(encoded(photograph(place, number), "JPEG", quality=90))
    pytest.importorskip("pillow_heif").register_heif_opener()
    (folder / "photos" / "2024" / "phone.heic").write_bytes(encoded(photograph("harbour", 90), "HEIF", quality=90))
    for name in ("IMG_1.CR2", "IMG_2.CR2", "MVI_3.MOV", ".DS_Store"):
        (folder / "photos" / name).write_bytes(b"\0" * 64)
    (folder / "photos" / "2023" / "cut.jpg").write_bytes(encoded(photograph("forest", 80), "JPEG")[:200])
    (folder / "holiday.jpg").write_bytes(encoded(photograph("harbour", 91), "JPEG"))
    (folder / "new").mkdir()
    shutil.copy(folder / "photos" / "2023" / "forest1.jpg", folder / "new" / "forest1 copy.jpg")
    brighter = ImageEnhance.Brightness(photograph("street", 4)).enhance(1.15)
    (folder / "new" / "street4-edited.jpg").write_bytes(encoded(brighter, "JPEG", quality=80))
    (folder / "new" / "late.jpg").write_bytes(encoded(photograph("street", 95), "JPEG"))
    return shell_in(folder)


def documented(line):
    """A command line that the guide prints."""
    assert f"shorthash {line}" in GUIDE
    return line


@pytest.fixture(scope="module")
def fitted(shell):
    return json.loads(shell(documented("images fit photos/ -o photos.model") + " --workers 0 --no-cache --json"))


def test_albums_become_codes_by_which_images_look_alike(fitted):
    assert fitted["warning"].startswith("The folders look like albums")
    assert (fitted["n_items"], fitted["n_labelled"]) == (91, 0)
    skipped = {kind: len(names) for kind, names in fitted["skipped"].items()}
    assert skipped == {"RAW": 2, "video": 1, "hidden": 1, "damaged": 1}


def test_a_photograph_finds_its_place(fitted, shell):
    shell(documented("images search photos.model holiday.jpg -k 50 --out found.csv --html sheet.html"))
    with (shell.folder / "found.csv").open() as file:
        names = [row["name"] for row in csv.DictReader(file)]
    assert sum("harbour" in name or "phone" in name for name in names[:20]) >= 18
    assert (shell.folder / "sheet.html").read_text().count("<img") == 50


def test_new_photographs_and_their_duplicates(fitted, shell):
    added = json.loads(shell(documented("images add photos.model new/") + " --workers 0 --no-cache --json"))
    assert [item["name"] for item in added["added"]] == ["late.jpg", "street4-edited.jpg"]
    shell(documented("images duplicates photos.model --html duplicates.html --out pairs.csv"))
    with (shell.folder / "pairs.csv").open() as file:
        pairs = {(row["kind"], row["name"], row["other_name"]) for row in csv.DictReader(file)}
    assert ("exact", "2023/forest1.jpg", "forest1 copy.jpg") in pairs
    assert ("near", "2024/street4.jpg", "street4-edited.jpg") in pairs
    assert "forest1 copy.jpg" in (shell.folder / "duplicates.html").read_text()


def test_everything_can_leave(fitted, shell):
    shell(documented("images export photos.model --out codes.csv --vectors vectors.npy"))
    with (shell.folder / "codes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(np.load(shell.folder / "vectors.npy"))
    assert {Path(row["source"]).is_file() for row in rows} == {True}
    shell(documented("fsck photos.model"))
    shell(documented("backup photos.model may.backup"))
    assert json.loads(shell("images info may.backup --json"))["n_items"] == len(rows)
