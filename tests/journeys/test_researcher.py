"""A researcher with a method of their own: offered by name, compared with others, in an experiment with records."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

pytestmark = pytest.mark.slow  # runs of an experiment are processes of their own

ROOT = Path(__file__).parents[2]

SPECIFICATION = """
name = "mine"
title = "Halves beside random planes"
task = "scores"
seeds = 2

[[datasets]]
name = "digits"
bits = [4]
protocol = {n_train = 100}

[[methods]]
name = "Halves"
method = "halves"
settings = {kernel__n_anchors = 50}

[[methods]]
name = "LSH"
method = "lsh"

[report]
kind = "table"
metrics = ["map"]
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory, shell_in):
    """Command lines in a folder with data and a specification; the package of the method is installed beside it."""
    folder = tmp_path_factory.mktemp("researcher")
    site = folder / "site"
    package = site / "halves-1.0.dist-info"
    package.mkdir(parents=True)
    shutil.copy(ROOT / "examples" / "own_method.py", site)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: halves\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[shorthash.methods]\nhalves = own_method:RECIPE\n")
    X, y = load_digits(return_X_y=True)
    np.save(folder / "features.npy", X[:400])
    np.save(folder / "labels.npy", y[:400])
    (folder / "mine.toml").write_text(SPECIFICATION)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")])))
        yield shell_in(folder)


def test_the_method_has_a_name(shell):
    assert "Planes between halves of the classes" in shell("methods halves")
    shell("fit features.npy labels.npy --method halves --bits 4 --anchors 50 -o halves.model")
    shell("encode halves.model features.npy -o codes.csv")  # the saved model finds the method again
    assert len((shell.folder / "codes.csv").read_text().splitlines()) == 401


def test_it_is_compared_with_others(shell):
    shell("compare features.npy labels.npy --bits 4 --methods halves,lsh -o compare")
    place = shell.folder / "compare"
    assert (place / "index.html").is_file()
    assert '"halves"' in (place / "compare.json").read_text()
    assert any("halves" in file.read_text().lower() for file in place.rglob("*.tex"))


def test_an_experiment_leaves_records_and_a_table(shell, forked_workers):
    [part] = json.loads(shell("bench list mine.toml --json"))["parts"]
    assert part["runs"] == 4
    assert json.loads(shell("bench run mine.toml --workers 1 --json"))["done"] == 4
    assert json.loads(shell("bench run mine.toml --workers 1 --json"))["done"] == 0  # records are there
    [part] = json.loads(shell("bench status mine.toml --json"))["parts"]
    assert (part["stored"], part["missing"]) == (4, 0)
    [part] = json.loads(shell("report mine.toml --json"))["parts"]
    assert part["missing"] == 0
    rows = (shell.folder / "report" / "mine.tex").read_text()
    assert "Halves" in rows
    assert "LSH" in rows
