"""shorthash fit --stream and encode in blocks, by their output and by what they write."""

import json

import numpy as np
import pytest
from cli.conftest import CODE, FIT, masked

from shorthash import load
from shorthash.data import streams

pyarrow = pytest.importorskip("pyarrow", reason="tables need pyarrow")
import pyarrow.parquet as parquet  # noqa: E402


@pytest.fixture
def shards(files, monkeypatch):
    """The database as two Parquet files in a folder; the labels are a column of names."""
    monkeypatch.setattr(streams, "BLOCK_ROWS", 16)
    folder = files / "shards"
    if not folder.exists():
        folder.mkdir()
        X, names = np.load(files / "X.npy"), np.load(files / "names.npy")
        for number, part in enumerate((slice(0, 40), slice(40, 60))):
            columns = {f"x{j}": X[part, j] for j in range(4)} | {"animal": names[part]}
            parquet.write_table(pyarrow.table(columns), folder / f"{number}.parquet", row_group_size=9)
    return folder


TABLE = """\
model       streamed
method      rslh
preset      paper
bits        2
rows        60
features    4
seconds     T
classes     3
iterations  3 + 3 + 3
stopped     codes and objective stopped changing after 3 iterations
"""


def test_fit_a_folder(run, shards, files):
    outcome = run("fit", "shards", "--stream", "--label", "animal", "-o", "streamed", *FIT)
    assert (outcome.status, outcome.err) == (0, "")
    text, _, speed = masked(outcome.out).partition("speed")
    assert text == TABLE
    assert speed.endswith("rows/s\n")
    np.testing.assert_allclose(
        load(files / "streamed")[-1].projection_, load(files / "model")[-1].projection_, rtol=1e-8
    )


def test_the_default_method_of_a_folder(run, shards, files):
    command = ["fit", "shards", "--label", "animal", "-o", "default", "--bits", "2", "--json"]
    answer = json.loads(run(*command).out)
    assert (answer["method"], answer["n_rows"]) == ("auto", 60)
    assert json.loads(run(*command, "--checkpoint", "sums").out)["method"] == "sumeaph"


def test_fit_files(run, files):
    outcome = run("fit", "X.npy", "names.npy", "--stream", "-o", "npy.model", *FIT, "--checkpoint", "sums", "--json")
    answer = json.loads(outcome.out)
    assert (answer["n_rows"], answer["n_classes"], answer["method"]) == (60, 3, "rslh")
    assert not (files / "sums").exists()
    assert load(files / "npy.model")[-1].classes_.tolist() == ["ant", "bee", "cow"]


def test_encode_a_folder(run, shards, files):
    outcome = run("encode", "model", "shards", "--label", "animal", "-o", "shards.parquet", "--json")
    answer = json.loads(outcome.out)
    assert (outcome.status, answer["n_rows"], answer["n_bits"], answer["distinct_codes"]) == (0, 60, 2, 3)
    column = parquet.read_table(files / "shards.parquet").column("code")
    assert column.type == pyarrow.uint8()
    np.testing.assert_array_equal(column.to_numpy(), CODE[np.tile([0, 1, 2], 20)])
    run("encode", "model", "shards", "--label", "animal", "-o", "shards.npy")
    np.testing.assert_array_equal(np.load(files / "shards.npy"), CODE[np.tile([0, 1, 2], 20)])


def test_errors(run, shards):
    for arguments, answer in (
        (
            ["fit", "shards", "--stream", "--method", "rslh", "-o", "m"],
            "needs labels; give a file of them as LABELS, or a column of the table with --label",
        ),
        (["fit", "shards", "--label", "name", "-o", "m"], "has no column 'name'; it has x0, x1, x2, x3, animal"),
        (["fit", "X.npy", "names.npy", "--stream", "--method", "ksh", "-o", "m"], "needs all its rows at once"),
        (["encode", "model", "shards", "-o", "c.npy"], "column 'animal' holds string"),
        (
            ["encode", "model", "shards", "--label", "x0", "--label", "animal", "-o", "c.npy"],
            "name its columns by --id, --label or --features",
        ),
    ):
        outcome = run(*arguments)
        assert outcome.status == 2, arguments
        assert outcome.err.startswith("error: ")
        assert answer in outcome.err
        assert outcome.err.count("\n") == 1
