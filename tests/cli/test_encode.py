"""shorthash encode, by its whole output and what it writes."""

import json

import numpy as np
import pytest
from cli.conftest import CODE, masked

from shorthash.data.files import ENDINGS, read_codes

TABLE = """\
codes           out.npz
rows            60
bits            2
signs           no
distinct codes  3
seconds         T
"""


def test_table(run):
    outcome = run("encode", "model", "X.npy", "-o", "out.npz")
    assert (outcome.status, masked(outcome.out), outcome.err) == (0, TABLE, "")


def test_json(run):
    outcome = run("encode", "model", "X.npy", "-o", "out.csv", "--signs", "--json")
    answer = json.loads(outcome.out)
    assert answer.pop("seconds") >= 0
    assert answer == {"codes": "out.csv", "n_rows": 60, "n_bits": 2, "signs": True, "distinct_codes": 3}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("signs", [[], ["--signs"]])
def test_files_hold_the_codes(run, files, ending, signs):
    assert run("encode", "model", "database.npz", "-o", f"out{ending}", *signs).status == 0
    codes = read_codes(files / f"out{ending}", 2)
    np.testing.assert_array_equal((codes > 0) @ [1, 2], CODE[np.tile([0, 1, 2], 20)])


def test_npy_is_packed_small(run, files):
    run("encode", "model", "X.npy", "-o", "packed.npy")
    stored = np.load(files / "packed.npy")
    assert (stored.dtype, stored.shape) == (np.uint8, (60,))


def test_a_bad_target_is_refused_before_the_work(run, monkeypatch):
    monkeypatch.setattr("shorthash.cli.search.read_rows", lambda *_: pytest.fail("encoded for nothing"))
    outcome = run("encode", "model", "X.npy", "-o", "out.txt")
    ending = (
        "error: Codes can be written to files that end in .npy, .npz, .csv, .parquet, .jsonl. Got out.txt instead.\n"
    )
    assert (outcome.status, outcome.err) == (2, ending)
    outcome = run("encode", "model", "X.npy", "-o", "no/out.npy")
    place = "error: no/out.npy cannot be written because there is no folder no; create it first.\n"
    assert (outcome.status, outcome.err) == (2, place)


def test_chunks_change_nothing(run, files, monkeypatch):
    monkeypatch.setattr("shorthash.cli.search.CHUNK_ROWS", 7)
    run("encode", "model", "X.npy", "-o", "chunks.npy")
    np.testing.assert_array_equal(np.load(files / "chunks.npy"), CODE[np.tile([0, 1, 2], 20)])
