"""shorthash images, by its output, its exit status, and what it leaves on disk."""

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli.conftest import squeezed
from pictures import CLASSES, encoded, picture, write_folder

from shorthash.images import Collection

pytestmark = pytest.mark.usefixtures("forked_workers")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of photographs with a broken one, and a place for collections."""
    base = tmp_path_factory.mktemp("images")
    photos = write_folder(base / "photos", per_class=6)
    (photos / "rings" / "cut.jpg").write_bytes(encoded(picture("rings", 40), "JPEG")[:200])
    return base


@pytest.fixture(scope="module")
def answers():
    """What the command that made the collection answered."""
    return {}


@pytest.fixture
def fitted(run, made, answers, tmp_path):
    """A collection of them, fitted once."""
    if not answers:
        answers["fit"] = run("images", "fit", made / "photos", "-o", made / "m", "--bits", 4, "--cache", made / "cache")
    return shutil.copytree(made / "m", tmp_path / "m")


def test_fit_output(fitted, answers, made):
    path, answer = made / "m", answers["fit"]
    assert answer.status == 0
    shown = re.sub(r"(mAP|seconds) +[\d.]+", r"\1 N", squeezed(answer.out))
    assert shown.splitlines() == [
        f"model {path}",
        "images 18 of 19",
        "skipped 1 file (damaged 1)",
        "items 18",
        "classes 3",
        "bits 4",
        "method auto (images have labels: the recommended method)",
        "features 512 numbers, gist",
        "mAP N (3 held-out queries, 15 images searched)",
        "buckets 3 in use, the largest holds 6 items",
        "entropy 1.58 bits",
        *re.findall(r"^(?:imbalance|correlation) 0\.\d+ \(.*\)$", shown, re.M),
        "collisions 0 (class pairs with the same main bucket)",
        "purity 1.000 of the items belong to the main class of their bucket",
        "seconds N",
    ]
    reason = r"the image is damaged or truncated \(.*\); copy it again\."
    assert re.fullmatch(rf"skipped: rings/cut\.jpg: {reason}\n", answer.err)


def test_fit_without_labels(run, made, tmp_path):
    answer = run("images", "fit", made / "photos" / "checks", "-o", tmp_path / "m", "--bits", 2, "--no-cache", "--json")
    data = json.loads(answer.out)
    assert (data["method"], data["n_items"], data["evaluation"]) == ("auto", 6, None)
    assert "no labels" in data["reason"]
    assert answer.err == ""


def test_albums_and_other_files(run, tmp_path):
    folder = tmp_path / "photos"
    for year in (2023, 2024):
        (folder / str(year)).mkdir(parents=True)
        for seed in range(year % 2, 40, 2):
            (folder / str(year) / f"{seed}.png").write_bytes(encoded(picture("rings", seed)))
    for name in ("a.nef", "b.nef", "c.nef", "d.cr2", "clip.mov"):
        (folder / name).write_bytes(b"x")
    fit = ["images", "fit", folder, "--bits", 2, "--cache", tmp_path / "cache", "--workers", 0]
    answer = run(*fit, "-o", tmp_path / "m")
    assert answer.status == 0
    assert "skipped 5 files (RAW 4, video 1)" in squeezed(answer.out)
    assert "the folders are not classes" in answer.out
    warning, raw, video = answer.err.splitlines()
    assert warning.startswith("warning: The folders look like albums, not classes:")
    assert "--labels-from folder" in warning
    assert raw == "skipped: RAW: a.nef, b.nef, c.nef and 1 more; export them as JPEG"
    assert video == "skipped: video: clip.mov"
    answer = run("images", "add", tmp_path / "m", folder, "--no-cache", "--json")  # albums stay albums
    assert set(json.loads(answer.out)["skipped"]) == {"RAW", "video"}
    data = json.loads(run(*fit, "-o", tmp_path / "n", "--labels-from", "folder", "--json").out)
    assert (data["n_classes"], data["warning"][:30]) == (2, "The labels seem unrelated to t")
    answer = run(*fit, "-o", tmp_path / "o", "--no-labels", "--json")
    assert json.loads(answer.out)["n_labelled"] == 0
    assert "warning:" not in answer.err


def test_search_by_id_and_by_image(run, fitted, tmp_path):
    path = fitted
    found = run("images", "search", path, 0, "-k", 3)
    assert found.out.splitlines()[2:] == [
        "distance   id   label    name",
        "─────────────────────────────────────",
        "       0    1   checks   checks/1.png",
        "       0    2   checks   checks/2.png",
        "       0    3   checks   checks/3.png",
    ]
    (tmp_path / "new.png").write_bytes(encoded(picture("stripes", 60)))
    data = json.loads(run("images", "search", path, tmp_path / "new.png", "-k", 4, "--rerank", "--json").out)
    assert {hit["label"] for hit in data["neighbours"]} == {"stripes"}
    scores = [hit["score"] for hit in data["neighbours"]]
    assert scores == sorted(scores, reverse=True)
    assert "score" in run("images", "search", path, 0, "--rerank", "--radius", 0).out


def test_search_by_probes_and_posteriors(run, fitted):
    found = json.loads(run("images", "search", fitted, 0, "-k", 4, "--probes", 1, "--posterior", "--json").out)
    assert [hit["label"] for hit in found["neighbours"]] == ["checks"] * 4
    assert all(0 < hit["score"] <= 1.0001 for hit in found["neighbours"])
    assert "score" in run("images", "search", fitted, 0, "--posterior", "--radius", 0).out
    for options, message in [
        (["--rerank", "--posterior"], "give --rerank or --posterior, not both"),
        (["--probes", "x"], "must be a number of at least 1, or auto. Got 'x'"),
        (["--probes", 2, "--radius", 1], "give --probes or --radius, not both"),
    ]:
        outcome = run("images", "search", fitted, 0, *options)
        assert outcome.status == 2
        assert message in outcome.err


def test_neighbours_as_table_and_contact_sheet(run, fitted, tmp_path):
    out, sheet = tmp_path / "found.csv", tmp_path / "sheet.html"
    answer = run("images", "search", fitted, 0, "-k", 3, "--out", out, "--html", sheet)
    assert answer.status == 0
    assert str(sheet) in answer.out.replace("\n", "")
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["rank"], row["id"], row["name"]) for row in rows[:2]] == [
        ("1", "1", "checks/1.png"),
        ("2", "2", "checks/2.png"),
    ]
    assert Path(rows[0]["source"]).is_file()
    page = sheet.read_text()
    assert page.count("<img") == 3
    assert "checks/1.png" in page
    assert "http" not in page  # nothing is loaded from elsewhere
    run("images", "search", fitted, 0, "--rerank", "--radius", 0, "--html", sheet)
    assert "score" in sheet.read_text()
    assert run("images", "search", fitted, 0, "--radius", 0, "-k", 1, "--out", tmp_path / "x.jsonl").status == 0


def test_names_on_a_sheet_are_text(run, fitted, tmp_path):
    evil = tmp_path / "<script>alert(1)<" / "a&b.png"
    evil.parent.mkdir()
    evil.write_bytes(encoded(picture("rings", 0)))
    sheet = tmp_path / "sheet.html"
    run("images", "search", fitted, evil, "--html", sheet)
    assert "<script" not in sheet.read_text()
    assert "&lt;script&gt;alert(1)&lt;" in sheet.read_text()


def test_duplicates(run, fitted, made, tmp_path):
    more = tmp_path / "more"
    more.mkdir()
    (more / "copy.png").write_bytes((made / "photos" / "rings" / "0.png").read_bytes())
    (more / "near.jpg").write_bytes(encoded(picture("rings", 1), "JPEG", quality=95))
    assert run("images", "add", fitted, more, "--no-cache", "--workers", 0).status == 0
    out, page = tmp_path / "pairs.csv", tmp_path / "page.html"
    answer = run("images", "duplicates", fitted, "--out", out, "--html", page, "--threshold", 0.98, "--json")
    data = json.loads(answer.out)
    with out.open() as file:
        pairs = {(row["kind"], row["name"], row["other_name"]) for row in csv.DictReader(file)}
    assert {("exact", "rings/0.png", "copy.png"), ("near", "rings/1.png", "near.jpg")} <= pairs
    assert data["n_exact_pairs"] == 1
    assert data["n_groups"] == len(data["groups"])
    assert page.read_text().count("<figure>") == sum(map(len, data["groups"]))
    assert "threshold must be in (0, 1]. Got 2.0" in run("images", "duplicates", fitted, "--threshold", 2).err
    table = run("images", "duplicates", fitted, "--threshold", 1).out
    assert re.search(r"^groups +1\nexact pairs +1\nnear pairs +0$", table, re.M)
    assert re.search(r"^ +0 +\d+ +copy.png$", table, re.M)


def test_export(run, fitted, tmp_path):
    answer = run("images", "export", fitted, "--out", tmp_path / "codes.csv", "--vectors", tmp_path / "v.npy", "--bits")
    assert answer.status == 0
    with (tmp_path / "codes.csv").open() as file:
        rows = list(csv.DictReader(file))
    with Collection(fitted, readonly=True) as collection:
        assert [int(row["id"]) for row in rows] == collection.ids.tolist()
        assert [int(row["code"]) for row in rows] == collection.codes_of(collection.ids).tolist()
        assert [row["label"] for row in rows] == collection.labels_of(collection.ids)
        np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), collection.vectors_of(collection.ids))
    assert all(int(row["bits"], 2) == int(row["code"]) for row in rows)
    assert Path(rows[0]["source"]).name == Path(rows[0]["name"]).name


def test_add_and_remove(run, fitted, made, tmp_path):
    path = fitted
    for kind in CLASSES[:2]:
        (tmp_path / "more" / kind).mkdir(parents=True)
        (tmp_path / "more" / kind / "n.png").write_bytes(encoded(picture(kind, 70)))
    again = made / "photos" / "rings" / "0.png"
    answer = run("images", "add", path, tmp_path / "more", again, "--no-cache")
    assert (answer.status, answer.err) == (0, "")
    shown = f"model    {path}\nadded    2 (ids 18 to 19)\nskipped  1 file (duplicate 1)\nitems    20\n"
    assert answer.out == shown
    with Collection(path, readonly=True) as collection:
        assert collection.labels_of([18, 19]) == ["checks", "rings"]
    assert run("images", "remove", path, 18, 19).out == f"model    {path}\nremoved  2\nitems    18\n"
    gone = run("images", "remove", path, 18)
    assert (gone.status, gone.out) == (2, "")
    assert gone.err.startswith("error: Id 18 is not in the collection")


def test_add_exits_with_1_if_an_image_failed_and_adds_the_others(run, fitted, tmp_path):
    path = fitted
    (tmp_path / "bad.png").write_bytes(b"nonsense")
    (tmp_path / "good.png").write_bytes(encoded(picture("rings", 80)))
    answer = run(
        "images", "add", path, tmp_path / "bad.png", tmp_path / "good.png", "--label", "rings", "--no-cache", "--json"
    )
    data = json.loads(answer.out)
    assert answer.status == 1
    assert [item["name"] for item in data["added"]] == ["good.png"]
    assert [item["name"] for item in data["failed"]] == ["bad.png"]
    assert answer.err.startswith("skipped: bad.png: it is not an image")


@pytest.mark.parametrize("command", [["info"], ["images", "info"]], ids=" ".join)
def test_info_of_a_collection(run, fitted, command):
    path = fitted
    answer = run(*command, path)
    assert answer.status == 0
    assert squeezed(answer.out).startswith("kind collection\nitems 18\nclasses 3\nbits 4\nmethod auto\n")
    assert re.search(r"^rings +6$", answer.out, re.M)
    assert json.loads(run(*command, path, "--json").out)["classes"] == dict.fromkeys(CLASSES, 6)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fit", "nowhere", "-o", "photos.model"], "There is no folder nowhere"),
        (["fit", ".", "-o", "model"], "exists and is not an empty folder"),
        (["fit", "empty", "-o", "photos.model", "--features", "sift"], "holds no images"),
        (["search", "model", "x.jpg"], "is not a collection of shorthash"),
        (["search", "nowhere", "x.jpg"], "There is no collection at nowhere"),
        (["info", "nowhere"], "There is no collection at nowhere"),
        (["add", "model", "x.jpg"], "There is no file or folder x.jpg"),
        (["add", "model", "x.jpg", "--label", "a", "--labels", "b"], "Got --label and --labels; give one of them"),
        (["remove", "model", "3"], "is not a collection of shorthash"),
        (
            ["fit", ".", "-o", "new", "--labels-from", "exif"],
            "--labels-from must be one of 'folder', 'csv', 'none'. Got 'exif'",
        ),
        (["fit", ".", "-o", "new", "--labels-from", "csv"], "--labels-from csv needs a CSV file; give it as --labels."),
        (
            ["fit", ".", "-o", "new", "--no-labels", "--labels", "b"],
            "Got --labels and --labels-from none; give one of them",
        ),
        (["fit", ".", "-o", "new", "--no-labels", "--labels-from", "folder"], "give --labels-from or --no-labels"),
        (["search", "model", "3", "--out", "found.txt"], "found.txt does not end in .csv or .parquet or .jsonl"),
        (["search", "model", "3", "--html", "nowhere/s.html"], "nowhere"),
        (["duplicates", "model", "--html", "page.png"], "page.png does not end in .html"),
        (["export", "model", "--out", "codes.csv", "--vectors", "v.csv"], "v.csv does not end in .npy"),
        (["add", "model", ".", "--label", "a", "--no-labels"], "Got --label and --labels-from none; give one of them"),
        (["fit", ".", "-o", "new", "--cache", "c", "--no-cache"], "give --cache or --no-cache, not both"),
    ],
)
def test_mistakes_are_one_line(run, arguments, says):
    Path("empty").mkdir(exist_ok=True)
    answer = run("images", *arguments)
    assert (answer.status, answer.out) == (2, "")
    assert says in answer.err
    assert answer.err.count("\n") == 1


def test_mistakes_with_a_collection(run, fitted, made):
    path = fitted
    for arguments, says in [
        (["search", path, "nothing.jpg"], "neither an image file nor the id"),
        (["search", path, 999], "neither an image file nor the id"),
        (["remove", path, "x"], "The ids are integers. Got x instead"),
        (["fit", made / "photos", "-o", path], "never overwritten"),
    ]:
        answer = run("images", *arguments)
        assert (answer.status, answer.out) == (2, "")
        assert says in answer.err
