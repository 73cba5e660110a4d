"""shorthash compare: its table, its files, its mistakes."""

import json
import re

import numpy as np


def test_table_page_and_files(run, files, tmp_path):
    done = run("compare", "X.npy", "names.npy", "--bits", "2", "--methods", "pcaitq,classifier", "-o", tmp_path / "out")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    heads = " ".join(lines[:3]).replace("─", "").split()
    assert {"method", "bits", "mAP", "interval", "@48", "behind", "µs/row"} <= set(heads)
    rows = [line.split() for line in lines if re.match(r"(pcaitq|classifier) ", line)]
    assert [row[:2] for row in rows] == [["pcaitq", "2"], ["classifier", "2"]]
    assert rows[1][2] == "1.0000"
    assert lines[-1] == f"page: {tmp_path / 'out' / 'index.html'}"
    assert lines[-2].startswith("Best mAP: ")
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert {"index.html", "compare.csv", "compare.json", "compare.md", "compare.tex"} <= names


def test_json_and_what_was_skipped(run, files, tmp_path):
    np.save(tmp_path / "Y.npy", np.eye(3, dtype=int)[np.tile([0, 1, 2], 20)] | np.eye(3, dtype=int)[0])
    call = ("compare", "X.npy", tmp_path / "Y.npy", "--bits", "2", "--methods", "lsh,classifier", "-o", tmp_path / "o")
    answer = json.loads(run(*call, "--json").out)
    assert answer["skipped"] == [{"method": "classifier", "n_bits": None, "reason": "needs one label per row"}]
    assert [row["method"] for row in answer["rows"]] == ["lsh"]
    assert "needs one label per row" in run(*call).out


def test_mistakes_are_one_line(run, files):
    for arguments, message in (
        (("X.npy", "nothing.npy"), "There is no file nothing.npy; check the path."),
        (("X.npy", "names.npy", "--bits", "a"), "'a' is not a list of whole numbers"),
        (("X.npy", "names.npy", "--methods", "nonsense"), "must be one of 'auto'"),
        (("X.npy", "names.npy", "--queries", "60"), "--queries must be an int in the range"),
    ):
        done = run("compare", *arguments)
        assert done.status == 2
        assert message in done.err
        assert done.err.startswith("error: ")
        assert done.err.count("\n") == 1


def test_an_own_split_from_files(run, tmp_path):
    np.savez(tmp_path / "split.npz", query=np.arange(12), train=np.arange(12, 40))
    call = [
        "compare",
        "database.npz",
        "database.npz",
        "--bits",
        "2",
        "--methods",
        "pcaitq",
        "-o",
        tmp_path / "page",
        "--json",
    ]
    outcome = run(*call, "--query-rows", f"{tmp_path}/split.npz:query", "--train-rows", f"{tmp_path}/split.npz:train")
    result = json.loads(outcome.out)
    assert (result["n_queries"], result["n_train"], result["n_database"]) == (12, 28, 48)
    wrong = run(*call, "--train-rows", f"{tmp_path}/split.npz:train")
    assert "a split needs --query-rows" in wrong.err
    np.save(tmp_path / "far.npy", [99])
    wrong = run(*call, "--query-rows", tmp_path / "far.npy")
    assert wrong.err == "error: The rows of --query-rows of a split must be from 0 to 59. Got 99 instead.\n"
