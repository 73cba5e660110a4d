"""shorthash stats: sums collected over shards, combined, shown, and fitted from."""

import json

import numpy as np
import pytest
from cli.conftest import FIT

from shorthash import load

KERNEL = ["--anchors", "9", "--seed", "1", "--set", "kernel.bandwidth=8"]


@pytest.fixture
def shards(run, files):
    """Sums of the whole, and of its two parts with the anchors of the whole."""
    X, names = np.load(files / "X.npy"), np.load(files / "names.npy")
    for part, rows in (("a", slice(0, 25)), ("b", slice(25, 60))):
        np.save(files / f"X{part}.npy", X[rows])
        np.save(files / f"names{part}.npy", names[rows])
    assert run("stats", "collect", "X.npy", "names.npy", "-o", "all.stats", *KERNEL).err == ""
    for part in "ab":
        outcome = run(
            "stats", "collect", f"X{part}.npy", f"names{part}.npy", "--front", "all.stats", "-o", f"{part}.stats"
        )
        assert (outcome.status, outcome.err) == (0, "")


def test_show(run, shards, files):
    outcome = run("stats", "show", "all.stats")
    size = (files / "all.stats").stat().st_size
    assert outcome.out == (
        "stats       all.stats\n"
        "rows        60 x 4 features, 60 with labels\n"
        "kernel      9 anchors, bandwidth 8\n"
        "classes     3\n"
        "label sets  3, of 20 to 20 rows\n"
        f"size        {size} bytes\n"
    )
    said = json.loads(run("stats", "show", "all.stats", "--json").out)
    assert (said["classes"], said["n_anchors"]) == (["ant", "bee", "cow"], 9)
    assert "statistics" in run("info", "all.stats").out


def test_merge_and_fit(run, shards, files):
    assert run("stats", "merge", "b.stats", "a.stats", "-o", "both.stats").status == 0
    outcome = run("stats", "fit", "both.stats", "-o", "merged.model", "--bits", "2", "--seed", "1")
    assert (outcome.status, outcome.err) == (0, "")
    assert "rows        60 x 4 features" in outcome.out
    expected = load(files / "model")[-1].projection_
    np.testing.assert_allclose(load(files / "merged.model")[-1].projection_, expected, rtol=1e-8)


def test_subtract(run, shards, files):
    said = json.loads(run("stats", "subtract", "all.stats", "a.stats", "-o", "rest.stats", "--json").out)
    assert said["n_rows"] == 35
    run("stats", "fit", "rest.stats", "-o", "rest.model", "--bits", "2", "--seed", "1")
    run("stats", "fit", "b.stats", "-o", "b.model", "--bits", "2", "--seed", "1")
    P, Q = load(files / "rest.model")[-1].projection_, load(files / "b.model")[-1].projection_
    np.testing.assert_allclose(P, Q, rtol=1e-6)


def test_errors(run, shards):
    run("stats", "collect", "X.npy", "names.npy", "-o", "other.stats", "--anchors", "7")
    for arguments, said in (
        (["merge", "all.stats", "other.stats", "-o", "x.stats"], "same anchors and bandwidth"),
        (["subtract", "a.stats", "all.stats", "-o", "x.stats"], "than were ever seen"),
        (["show", "X.npy"], "holds no statistics"),
        (["show", "none.stats"], "There is no file none.stats"),
        (["fit", "all.stats", "-o", "m", "--method", "ksh"], "needs all its rows at once"),
        (["merge", "all.stats", "a.stats", "-o", "X.npy"], "not overwritten"),
        (["collect", "X.npy", "-o", "x.stats"], "needs labels"),
    ):
        outcome = run("stats", *arguments)
        assert outcome.status == 2, arguments
        assert said in outcome.err
        assert outcome.err.count("\n") == 1


def test_fit_flags_agree(run, files):
    """The kernel of these tests is that of the model they are compared with."""
    assert FIT[2:] == KERNEL
