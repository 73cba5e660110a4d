"""shorthash sums: sums collected over shards, combined, shown, and fitted from."""

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
    assert run("sums", "collect", "X.npy", "names.npy", "-o", "all.sums", *KERNEL).err == ""
    for part in "ab":
        outcome = run(
            "sums", "collect", f"X{part}.npy", f"names{part}.npy", "--kernel", "all.sums", "-o", f"{part}.sums"
        )
        assert (outcome.status, outcome.err) == (0, "")


def test_show(run, shards, files):
    outcome = run("sums", "show", "all.sums")
    size = (files / "all.sums").stat().st_size
    assert outcome.out == (
        "sums                all.sums\n"
        "rows                60\n"
        "labelled            60\n"
        "features            9\n"
        "anchors             9\n"
        "columns             4\n"
        "bandwidth           8.00\n"
        "classes             3\n"
        "label sets          3\n"
        "smallest label set  20\n"
        "largest label set   20\n"
        f"bytes               {size}\n"
    )
    answer = json.loads(run("sums", "show", "all.sums", "--json").out)
    assert (answer["classes"], answer["n_anchors"]) == (["ant", "bee", "cow"], 9)
    assert "statistics" in run("info", "all.sums").out


def test_merge_and_fit(run, shards, files):
    assert run("sums", "merge", "b.sums", "a.sums", "-o", "both.sums").status == 0
    outcome = run("sums", "fit", "both.sums", "-o", "merged.model", "--bits", "2", "--seed", "1", "--method", "rslh")
    assert (outcome.status, outcome.err) == (0, "")
    assert "rows        60\nfeatures    4\n" in outcome.out
    expected = load(files / "model")[-1].projection_
    np.testing.assert_allclose(load(files / "merged.model")[-1].projection_, expected, rtol=1e-8)


def test_subtract(run, shards, files):
    answer = json.loads(run("sums", "subtract", "all.sums", "a.sums", "-o", "rest.sums", "--json").out)
    assert answer["n_rows"] == 35
    run("sums", "fit", "rest.sums", "-o", "rest.model", "--bits", "2", "--seed", "1", "--method", "rslh")
    run("sums", "fit", "b.sums", "-o", "b.model", "--bits", "2", "--seed", "1", "--method", "rslh")
    P, Q = load(files / "rest.model")[-1].projection_, load(files / "b.model")[-1].projection_
    np.testing.assert_allclose(P, Q, rtol=1e-6)


def test_errors(run, shards):
    run("sums", "collect", "X.npy", "names.npy", "-o", "other.sums", "--anchors", "7")
    for arguments, answer in (
        (["merge", "all.sums", "other.sums", "-o", "x.sums"], "same anchors and bandwidth"),
        (["subtract", "a.sums", "all.sums", "-o", "x.sums"], "than were learned"),
        (["show", "X.npy"], "holds no sums"),
        (["show", "none.sums"], "There is no file none.sums"),
        (["fit", "all.sums", "-o", "m", "--method", "ksh"], "needs all its rows at once"),
        (["merge", "all.sums", "a.sums", "-o", "X.npy"], "not overwritten"),
        (["collect", "X.npy", "-o", "x.sums"], "need labels"),
        (
            ["collect", "X.npy", "names.npy", "--kernel", "a.sums", "--anchors", "5", "-o", "x.sums"],
            "leave out --anchors",
        ),
    ):
        outcome = run("sums", *arguments)
        assert outcome.status == 2, arguments
        assert answer in outcome.err
        assert outcome.err.count("\n") == 1


def test_fit_flags_agree(run, files):
    """The kernel of these tests is that of the model they are compared with."""
    assert FIT[4:] == KERNEL


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_of_a_table(run, shards, files, ending):
    pd = pytest.importorskip("pandas")
    X, names = np.load(files / "X.npy"), np.load(files / "names.npy")
    frame = pd.DataFrame({"sku": np.arange(60), "kind": names, "weight": 1.0} | {f"emb_{j}": X[:, j] for j in range(4)})
    frame.to_csv(files / "t.csv", index=False) if ending == "csv" else frame.to_parquet(files / "t.parquet")
    columns = ["--id", "sku", "--label", "kind", "--features", "emb_*"]
    assert run("sums", "collect", f"t.{ending}", *columns, "-o", "t.sums", *KERNEL).err == ""
    for name in ("t", "all"):
        assert run("sums", "fit", f"{name}.sums", "-o", f"{name}.m", "--method", "rslh", "--bits", "2").status == 0
    codes = [load(files / f"{name}.m").transform(X) for name in ("t", "all")]
    np.testing.assert_array_equal(*codes)
