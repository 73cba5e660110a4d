"""shorthash search, by its whole output."""

import json

import numpy as np
import pytest

BY_K = """\
query   distance      rows   neighbours, as id:label
────────────────────────────────────────────────────────────────────────────────────────────────────
    0          0        20   0:ant, 3:ant, 6:ant, 9:ant, 12:ant, 15:ant, 18:ant, 21:ant, ... 12 more
               1   2 of 40   1:bee, 2:cow
8 more queries; --show 9 or --json shows all
"""

BY_RADIUS = """\
query   distance   rows   neighbours
────────────────────────────────────────────────────────────────────────────────────────────
    0          0     20   row0, row12, row15, row18, row21, row24, row27, row3, ... 12 more
               1     40   row1, row10, row11, row13, row14, row16, row17, row19, ... 32 more
8 more queries; --show 9 or --json shows all
"""


def test_k(run):
    outcome = run("search", "model", "X.npy", "queries.npz", "-k", 22, "--labels", "names.npy", "--show", 1)
    assert (outcome.status, outcome.out, outcome.err) == (0, BY_K, "")


def test_radius(run):
    outcome = run("search", "model", "X.npy", "queries.npz", "--radius", 1, "--ids", "ids.npy", "--show", 1)
    assert (outcome.status, outcome.out, outcome.err) == (0, BY_RADIUS, "")


def test_ten_neighbours_by_default(run):
    answer = json.loads(run("search", "model", "X.npy", "queries.npz", "--json").out)
    assert (answer["n_bits"], answer["n_database"], answer["n_queries"]) == (2, 60, 9)
    assert [len(result["neighbours"]) for result in answer["results"]] == [10] * 9
    assert answer["results"][3]["neighbours"][:2] == [{"id": 1, "distance": 0}, {"id": 4, "distance": 0}]
    assert answer["results"][3]["rows_at_last_distance"] == 20


def test_codes_in_place_of_features(run):
    by_features = run("search", "model", "X.npy", "queries.npz", "-k", 25, "--json").out
    assert run("search", "model", "codes.npy", "queries.npz", "--database-codes", "-k", 25, "--json").out == by_features
    both = json.loads(run("search", "model", "codes.npy", "codes.npy", "--codes", "-k", 25, "--json").out)
    assert both["n_queries"] == 60
    assert both["results"][0] == json.loads(by_features)["results"][0]


def test_labels_in_json(run):
    answer = json.loads(run("search", "model", "X.npy", "queries.npz", "-k", 1, "--labels", "names.npy", "--json").out)
    found = [result["neighbours"][0]["label"] for result in answer["results"]]
    assert found == ["ant"] * 3 + ["bee"] * 3 + ["cow"] * 3


def test_an_empty_ball_is_shown_in_words(run, files, tmp_path):

    np.save(tmp_path / "far.npy", np.array([0], dtype=np.uint8))
    outcome = run("search", "model", "codes.npy", tmp_path / "far.npy", "--codes", "--radius", 0)
    assert outcome.out.splitlines()[2:] == ["    0          -      0   nothing within the radius"]


@pytest.mark.usefixtures("learned")
def test_probes(run):
    asked = ["search", "learned", "X.npy", "queries.npz", "-k", 5, "--labels", "names.npy"]
    outcome = run(*asked, "--probes", 1, "--rerank", "posterior", "--show", 1)
    head, _, row, more = outcome.out.splitlines()
    assert head.split(maxsplit=4) == ["query", "cells", "items", "expected", "best first, as id:label"]
    assert row.split()[:3] == ["0", "1", "20"]
    assert row.count(":ant") == 5
    assert more == "8 more queries; --show 9 or --json shows all"
    for policy in (["--probes", "auto"], ["--probes", 2, "--rerank", "cosine"], ["--radius", 0, "--rerank", "cosine"]):
        answer = json.loads(run(*asked, *policy, "--json").out)
        kinds = [{hit["label"] for hit in result["neighbours"]} for result in answer["results"]]
        assert kinds == [{"ant"}] * 3 + [{"bee"}] * 3 + [{"cow"}] * 3
        assert all(result["items"] >= 20 for result in answer["results"])
    first = answer["results"][0]
    assert (first["cells"], len(first["looked_up"]), first["expected_recall"]) == (1, 1, None)


@pytest.mark.usefixtures("learned")
def test_probes_among_codes(run):
    run("encode", "learned", "X.npy", "-o", "learned.npz")
    by_codes = json.loads(
        run("search", "learned", "learned.npz", "queries.npz", "--database-codes", "--probes", 1, "--json").out
    )
    by_rows = json.loads(run("search", "learned", "X.npy", "queries.npz", "--probes", 1, "--json").out)
    assert by_codes == by_rows


@pytest.mark.usefixtures("learned")
def test_policies_that_do_not_fit(run):
    asked = ["search", "learned", "X.npy", "queries.npz"]
    for options, message in [
        (["--probes", "many"], "--probes: must be a number of at least 1, or auto. Got 'many'"),
        (["--probes", 0], "--probes: must be a number of at least 1, or auto. Got '0'"),
        (["--rerank", "dot"], "--rerank must be one of 'posterior', 'cosine'. Got 'dot' instead."),
        (["--probes", 2, "--radius", 1], "--probes: give --probes or --radius, not both"),
        (["--probes", 2, "--codes"], "needs features of the queries; leave out --codes"),
        (["--rerank", "cosine", "--database-codes"], "needs features of the database; leave out --database-codes"),
    ]:
        outcome = run(*asked, *options)
        assert outcome.status == 2
        assert message in outcome.err
    outcome = run("search", "model", "X.npy", "queries.npz", "--probes", 2)
    assert outcome.status != 0
    assert "probes needs a hasher that has learned posteriors, such as EAPH. Got RSLH" in outcome.err
