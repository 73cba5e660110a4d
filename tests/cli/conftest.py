"""A command line that can be called like a function, and small files to call it with."""

import re
from dataclasses import dataclass

import numpy as np
import pytest

from shorthash import BucketIndex, make_hasher, save
from shorthash.cli.main import main


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    status: int
    out: str
    err: str


@pytest.fixture
def run(capsys, monkeypatch, files):
    """Run a command inside the folder of the files."""
    monkeypatch.chdir(files)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("shorthash._progress.LOG_SECONDS", 3600)  # a slow machine writes no lines of progress

    def call(*args):
        with pytest.raises(SystemExit) as stop:
            main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Outcome(stop.value.code, captured.out, captured.err)

    return call


FIT = ["--method", "rslh", "--bits", "2", "--anchors", "9", "--seed", "1", "--set", "kernel.bandwidth=8"]
CODE = np.array([3, 2, 1], dtype=np.uint8)  # what this model learns for the three classes


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Three well separated classes, 20 rows each in the database, 3 each among the queries; a model of 2 bits.

    The classes get the codes 3, 2 and 1, whatever the rounding. ``noisy.npy`` are the labels of the database with two
    mistakes, so that ties matter.
    """
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.RandomState(0)
    centres = np.array([[9.0, 0, 0, 0], [0, 9, 0, 0], [0, 0, 9, 9]])
    y = np.tile([0, 1, 2], 20)
    X = centres[y] + rng.uniform(-1, 1, size=(60, 4))
    yq = np.repeat([0, 1, 2], 3)
    np.savez(folder / "database.npz", X=X, y=y)
    np.savez(folder / "queries.npz", X=centres[yq] + rng.uniform(-1, 1, size=(9, 4)), y=yq)
    np.savez(folder / "sorted.npz", X=X[np.argsort(y, kind="stable")], y=np.sort(y))
    np.save(folder / "X.npy", X)
    np.save(folder / "names.npy", np.array(["ant", "bee", "cow"])[y])
    np.save(folder / "ids.npy", np.array([f"row{i}" for i in range(60)]))
    np.save(folder / "noisy.npy", np.concatenate([[1, 2], y[2:]]))
    np.save(folder / "codes.npy", CODE[y])
    hasher = make_hasher("rslh", 2, random_state=1, kernel={"n_anchors": 9, "bandwidth": 8}).fit(X, y)
    save(hasher, folder / "model")
    save(BucketIndex(2).add(CODE[y]), folder / "index")
    return folder


@pytest.fixture(scope="session")
def learned(files):
    """A model with posteriors."""
    rows = np.load(files / "database.npz")
    save(make_hasher("auto", 2, random_state=0).fit(rows["X"], rows["y"]), files / "learned")


def masked(text):
    """Text with its timings replaced."""
    text = re.sub(r"^(seconds +)[\d.]+$", r"\1T", text, flags=re.M)
    return re.sub(r'("seconds": )[\d.]+', r"\1T", text)


def squeezed(text):
    """Text without the widths of columns and rules, in which versions of rich differ."""
    lines = [re.sub(" +", " ", line).strip() for line in re.sub("─+", "─", text).splitlines()]
    return "\n".join(lines)
