"""shorthash evaluate, by its whole output."""

import json

import numpy as np
import pytest
from cli.conftest import squeezed

from shorthash import evaluate
from shorthash.evaluation import CONVENTIONS

QUERIES = ["--query", "queries.npz", "--query-labels", "queries.npz"]
RANKED = ["--database", "database.npz", "--database-labels", "noisy.npy"]

CLASSES = """
class      mAP    worst     best   precision@H<=0   recall@H<=0
───────────────────────────────────────────────────────────────
0       0.9568   0.8633   1.0000           0.9500        1.0000
1       0.9430   0.8451   0.9976           0.9500        0.9500
2       0.9724   0.9690   0.9768           1.0000        0.9524
"""


def test_scores_are_printed_as_the_library_prints_them(run, files):
    queries = np.repeat(np.array([3, 2, 1], dtype=np.uint8), 3)
    labels = np.repeat([0, 1, 2], 3)
    database = np.load(files / "codes.npy"), np.load(files / "noisy.npy")
    scores = evaluate(queries, labels, *database, n_bits=2, k=[5, 20], radius=0)
    asked = ["evaluate", "--model", "model", *QUERIES, *RANKED, "--k", "5,20", "--radius", 0]
    outcome = run(*asked)
    assert (outcome.status, outcome.out, outcome.err) == (0, f"{scores}\n", "")
    by_class = run(*asked, "--by-class", "--bounds").out
    assert squeezed(by_class) == squeezed(f"{scores}\n{CLASSES}")


def test_json_equals_the_library(run, files):
    outcome = run("evaluate", "--model", "model", *QUERIES, *RANKED, "--k", "5", "--by-class", "--json")
    answer = json.loads(outcome.out)
    queries = np.repeat(np.array([3, 2, 1], dtype=np.uint8), 3)
    labels = np.repeat([0, 1, 2], 3)
    scores = evaluate(queries, labels, np.load(files / "codes.npy"), np.load(files / "noisy.npy"), n_bits=2, k=5)
    by_class = answer.pop("by_class")
    assert answer == scores.to_dict() | {"headline": scores.map}
    assert by_class["1"]["map"] == scores.by_class(labels)[1]
    assert list(by_class) == ["0", "1", "2"]


def test_codes_need_no_model(run, files):
    labels = ["--query-labels", "noisy.npy", "--database", "codes.npy", "--database-labels", "noisy.npy"]
    by_codes = run("evaluate", "--codes", "--bits", 2, "--query", "codes.npy", *labels, "--json")
    features = ["--query", "X.npy", "--query-labels", "noisy.npy", *RANKED]
    assert by_codes.out == run("evaluate", "--model", "model", *features, "--json").out


def test_without_a_database_every_query_ranks_the_others(run):
    answer = json.loads(run("evaluate", "--model", "model", *QUERIES, "--json").out)
    assert (answer["n_queries"], answer["n_database"], answer["map"]) == (9, 8, 1.0)


def test_an_ordered_database_gives_a_warning(run):
    database = ["--database", "sorted.npz", "--database-labels", "sorted.npz"]
    outcome = run("evaluate", "--model", "model", *QUERIES, *database, "--ties", "stable")
    assert outcome.status == 0
    assert outcome.err.startswith(
        "warning: ties='stable' breaks ties by database order, and this database is ordered by"
    )
    assert outcome.err.count("\n") == 1
    assert run("evaluate", "--model", "model", *QUERIES, *database).err == ""


def test_indicator_labels(run, tmp_path):
    np.save(tmp_path / "Y.npy", np.eye(3, dtype=int)[np.repeat([0, 1, 2], 3)])
    queries = ["--query", "queries.npz", "--query-labels", tmp_path / "Y.npy"]
    answer = json.loads(run("evaluate", "--model", "model", *queries, "--by-class", "--json").out)
    assert (answer["map"], list(answer["by_class"])) == (1.0, ["0", "1", "2"])


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_conventions_are_named_in_help_and_shown(run, convention):
    assert convention in run("evaluate", "--help").out
    out = run("evaluate", "--model", "model", *QUERIES, *RANKED, "--convention", convention).out
    assert (f"headline of {convention}" in out) == (convention != "shorthash")
