"""Tables with columns of ids, labels and features, through every command that reads rows."""

import csv
import json
import re

import numpy as np
import pandas as pd
import pytest

KINDS = np.array(["ant", "bee", "cow"])


@pytest.fixture(scope="module")
def frame(files):
    """The rows of the database with ids, names and a column of prices, which is no feature."""
    with np.load(files / "database.npz") as arrays:
        X, y = arrays["X"], arrays["y"]
    table = pd.DataFrame(X, columns=[f"emb_{j}" for j in range(4)])
    table.insert(0, "sku", [f"s{i}" for i in range(60)])
    table["price"] = np.arange(60)
    table["kind"] = KINDS[y]
    return table


@pytest.fixture(params=["csv", "parquet", "vectors.parquet", "vectors.csv"])
def table(request, files, frame):
    """The same table as a file: with a column per feature, or one column of vectors."""
    path, data = files / f"items.{request.param}", frame
    if request.param.startswith("vectors"):
        data = frame[["sku", "price", "kind"]].assign(emb=frame.filter(like="emb_").to_numpy().tolist())
    if path.suffix == ".csv":
        data.to_csv(path, index=False)
    else:
        data.to_parquet(path)
    return path.name


COLUMNS = ["--id", "sku", "--features", "emb*"]
FIT = ["--method", "rslh", "--bits", "2", "--anchors", "9", "--seed", "1", "--set", "kernel.bandwidth=8"]


def test_a_model_of_a_table_is_the_model_of_its_arrays(run, files, table):
    outcome = run("fit", table, *COLUMNS, "--label", "kind", "-o", "table.model", *FIT)
    assert (outcome.status, outcome.err) == (0, "")
    for model, rows, more in (("table.model", table, COLUMNS), ("model", "X.npy", [])):
        run("encode", model, rows, *more, "-o", f"{model}.csv")
    by_array = (files / "model.csv").read_text().splitlines()
    by_table = (files / "table.model.csv").read_text().splitlines()
    assert by_table[:2] == ["id,code", "s0,3"]
    assert [line.partition(",")[2] for line in by_table] == by_array


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl", "npz"])
def test_encode_keeps_ids(run, files, table, ending):
    assert run("encode", "model", table, *COLUMNS, "-o", f"out.{ending}").status == 0
    readers = {
        "csv": lambda path: pd.read_csv(path),
        "parquet": lambda path: pd.read_parquet(path),
        "jsonl": lambda path: pd.read_json(path, lines=True),
        "npz": lambda path: pd.DataFrame({"id": np.load(path)["id"], "code": np.load(path)["codes"]}),
    }
    found = readers[ending](files / f"out.{ending}")
    assert found["id"].tolist() == [f"s{i}" for i in range(60)]
    assert found["code"].tolist() == [3, 2, 1] * 20
    if ending in ("jsonl", "npz"):  # read back as it was written
        bits = [] if ending == "npz" else ["--bits", "2"]
        call = ["evaluate", "--codes", "--query", f"out.{ending}", "--query-labels", "database.npz:y", *bits, "--json"]
        assert json.loads(run(*call).out)["map"] == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": "a", "code": 5}\n[1]\n', "Line 2 of bad.jsonl is not a JSON object; write one object per line."),
        ('{"code": 5}\n\n{"id": 7}\n', "Line 3 of bad.jsonl has no code; every object needs code."),
        ('{"code": "x"}\n', "Line 1 of bad.jsonl has no code; every object needs code."),
    ],
)
def test_json_lines_that_are_no_codes(run, files, text, message):
    (files / "bad.jsonl").write_text(text)
    outcome = run("evaluate", "--codes", "--bits", "3", "--query", "bad.jsonl", "--query-labels", "names.npy")
    assert outcome.err == f"error: {message}\n"


def test_a_folder_of_tables_is_encoded_with_ids_in_blocks(run, files, frame, tmp_path):
    for part in range(2):
        frame[part * 30 : part * 30 + 30].to_parquet(tmp_path / f"{part}.parquet")
    assert run("encode", "model", tmp_path, *COLUMNS, "-o", "folder.parquet").status == 0
    found = pd.read_parquet(files / "folder.parquet")
    assert found["id"].tolist() == frame["sku"].tolist()
    assert found["code"].tolist() == [3, 2, 1] * 20


def test_search_names_queries_and_neighbours(run, files, table, frame):
    frame.iloc[[4, 0]][["sku", "emb_0", "emb_1", "emb_2", "emb_3"]].to_csv(files / "some.csv", index=False)
    items, how = ("codes.csv", ["--database-codes"])
    run("encode", "model", table, *COLUMNS, "-o", items)
    outcome = run("search", "model", items, "some.csv", "--id", "sku", *how, "-k", 2, "-o", "found.csv")
    assert (outcome.status, outcome.err) == (0, "")
    with (files / "found.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows == [
        {"query": q, "rank": str(rank), "id": item, "distance": "0"}
        for q, found in (("s4", ["s1", "s10"]), ("s0", ["s0", "s12"]))
        for rank, item in enumerate(found, 1)
    ]


def test_search_with_labels_of_a_table(run, files, table):
    run("search", "model", table, "queries.npz", *COLUMNS, "--label", "kind", "-k", 1, "-o", "labelled.jsonl")
    rows = [json.loads(line) for line in (files / "labelled.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows] == ["ant"] * 3 + ["bee"] * 3 + ["cow"] * 3
    assert rows[0] == {"query": 0, "rank": 1, "id": "s0", "distance": 0, "label": "ant"}


@pytest.mark.parametrize("kind", ["file", "store"])
def test_index_of_a_table_and_upsert(run, files, table, frame, kind, tmp_path):
    place = ["--index", tmp_path / "items.index" if kind == "file" else f"sqlite:///{tmp_path}/items.db"]
    label = [] if kind == "file" else ["--label", "kind"]
    built = run("index", "build", table, "--model", "model", *COLUMNS, *label, *place)
    assert (built.status, built.err) == (0, "")
    again = run("index", "add", table, "--model", "model", *COLUMNS, *label, *place)
    assert "Id 's0' is already in the" in again.err
    assert "replace it with shorthash index upsert, or another id" in again.err
    changed = frame.iloc[[0, 1]].assign(sku=["s0", "new"])
    changed[["emb_0", "emb_1", "emb_2", "emb_3"]] = [0, 0, 9, 9]  # both are cows now
    changed.to_csv(files / "changed.csv", index=False)
    outcome = run("index", "upsert", "changed.csv", "--model", "model", *COLUMNS, *label, *place, "--json")
    answer = json.loads(outcome.out)
    assert (answer["n_added"], answer["n_replaced"], answer["n_items"]) == (1, 1, 61)
    how = ["--model", "model", *COLUMNS, *place, "--radius", 0, "-o", tmp_path / "found.csv"]
    assert run("index", "search", "changed.csv", *how).status == 0
    found = pd.read_csv(tmp_path / "found.csv")
    assert {"s0", "new", "s2"} <= set(found[found["query"] == "new"]["id"])
    assert "replacing needs ids" in run("index", "upsert", "codes.npy", *place).err


def test_evaluate_reads_labels_from_the_table(run, table):
    by_files = run("evaluate", "--model", "model", "--query", "X.npy", "--query-labels", "names.npy", "--json").out
    by_table = run("evaluate", "--model", "model", "--query", table, *COLUMNS, "--label", "kind", "--json").out
    assert json.loads(by_table) == json.loads(by_files)
    missing = run("evaluate", "--model", "model", "--query", table, *COLUMNS)
    assert "labels are missing; give --query-labels, or the column --label of a table" in missing.err


def test_empty_cells_are_unlabelled_rows(run, files, frame):
    bare = frame.copy()
    bare.loc[::3, "kind"] = None
    bare.to_csv(files / "bare.csv", index=False)
    fit = ["fit", "bare.csv", *COLUMNS, "--label", "kind", "-o", "bare.model", *FIT]
    outcome = run(*fit)
    assert "20 of 60 samples of RSLH have no label (first: 0; labels missing)" in outcome.err
    assert "--set drop_unlabelled=true" in outcome.err
    shown = json.loads(run(*fit, "--set", "drop_unlabelled=true", "--json").out)
    assert (shown["n_classes"], shown["n_unlabelled"], shown["n_dropped"]) == (2, 20, 20)
    assert re.search(r"unlabelled +20 rows, dropped\n", run(*fit, "--set", "drop_unlabelled=true").out)
    assert json.loads(run(*fit[: -len(FIT)], "--bits", 4, "--json").out)["n_unlabelled"] == 20
    asked = ["evaluate", "--model", "model", "--query", "bare.csv", *COLUMNS, "--label", "kind"]
    assert json.loads(run(*asked, "--json").out)["n_unlabelled"] == 20
    assert re.search(r"20 rows of the database without a label, relevant to no query\n", run(*asked).out)
    listed = run("search", "model", "bare.csv", "bare.csv", *COLUMNS, "--label", "kind", "-k", 60, "--show", 60).out
    assert ":None" not in listed
    assert ":bee" in listed
    bare["kind"] = bare["kind"].map({"bee": 1, "cow": 2}).fillna(-1).astype(int)
    bare.to_csv(files / "bare.csv", index=False)
    assert json.loads(run(*fit, "--json").out)["n_classes"] == 3
    assert json.loads(run(*fit, "--set", "drop_unlabelled=-1", "--json").out)["n_classes"] == 2


def test_several_labels_in_a_cell(run, files, frame):
    several = frame.assign(kind=[f"{kind};animal" if i % 2 else kind for i, kind in enumerate(frame["kind"])])
    several.to_csv(files / "several.csv", index=False)
    fit = ["fit", "several.csv", *COLUMNS, "--label", "kind", "--separator", ";", "-o", "several.model", *FIT, "--json"]
    assert json.loads(run(*fit).out)["n_classes"] == 4


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["--label", "none"], "has no column 'none'; it has sku, emb_0, emb_1"),
        (["--label", "kind", "--features", "x*"], "has no column 'x*'"),
        (["--label", "kind", "--features", "emb_3:emb_0"], "emb_3 comes after emb_0"),
        (["--label", "kind"], "line 2, column 1 holds the text 's0', but every cell must be a number; name the"),
        (["names.npy", "--label", "kind"], "give a file LABELS or a column --label, not both"),
        (["--label", "kind", "--label", "price", "--separator", ";"], "it belongs to one column --label"),
    ],
)
def test_mistakes_name_columns_and_options(run, files, frame, columns, message):
    frame.to_csv(files / "named.csv", index=False)
    outcome = run("fit", "named.csv", *columns, "-o", "m", *FIT)
    assert outcome.status == 2
    assert message in outcome.err


def test_arrays_have_no_columns(run):
    outcome = run("encode", "model", "X.npy", "--id", "sku", "-o", "out.csv")
    assert "X.npy has no columns with names" in outcome.err


def test_evaluate_with_judgements(run, files, frame):
    frame.to_csv(files / "judged.csv", index=False)
    pairs = [(a, b) for a in range(60) for b in range(60) if a != b and (a - b) % 3 == 0]
    (files / "judged.qrels").write_text("".join(f"s{a} 0 s{b} 1\n" for a, b in pairs))
    how = ["evaluate", "--model", "model", "--query", "judged.csv", *COLUMNS, "--json"]
    judged = json.loads(run(*how, "--relevance", "judged.qrels").out)
    assert judged == json.loads(run(*how, "--label", "kind").out)
    assert judged == json.loads(run(*how, "--label", "kind", "--relevance", "judged.qrels").out)
    both = run(*how, "--by-class", "--relevance", "judged.qrels")
    assert "--relevance cannot be combined with --by-class" in both.err
