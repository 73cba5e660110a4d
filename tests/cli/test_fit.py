"""shorthash fit, by its whole output."""

import json
import re

import numpy as np
import pytest
from cli.conftest import CODE, FIT, masked

from shorthash import load

TABLE = """\
model        fitted
method       rslh
preset       paper
bits         2
rows         60
features     4
seconds      T
classes      3
iterations   3 + 3 + 3
stopped      codes and objective stopped changing after 3 iterations
buckets      3 in use, the largest holds 20 rows
entropy      1.58 bits
imbalance    0.333 (0: every bit splits the rows in half)
correlation  0.333 (0: bits are independent)
collisions   0 (class pairs with the same main bucket)
purity       1.000 of the rows belong to the main class of their bucket
"""


def test_table(run):
    outcome = run("fit", "database.npz", "database.npz", "-o", "fitted", *FIT)
    assert (outcome.status, masked(outcome.out), outcome.err) == (0, TABLE, "")


def test_the_default_method_is_auto(run, files):
    answer = json.loads(run("fit", "X.npy", "names.npy", "-o", "default", "--bits", "2", "--json").out)
    assert answer["method"] == "auto"
    learner = load(files / "default")[-1]
    assert type(learner).__name__ == "EAPH"
    assert (answer["disjoint_map"], answer["searched_map"]) == (learner.disjoint_map_, learner.searched_map_)
    line = f"{learner.disjoint_map_:.3f} where other rows are searched, {learner.searched_map_:.3f} where these are"
    assert re.search(rf"expected mAP +{line}\n", run("fit", "X.npy", "names.npy", "-o", "default", "--bits", "2").out)


def test_json_says_the_same(run):
    outcome = run("fit", "database.npz", "database.npz", "-o", "fitted", *FIT, "--json")
    answer = json.loads(outcome.out)
    assert answer.pop("seconds") >= 0
    reason = "codes and objective stopped changing after 3 iterations"
    assert answer.pop("runs") == [{"n_iter": 3, "converged": True, "reason": reason}] * 3
    codes = answer.pop("codes")
    assert (codes["occupied_codes"], codes["class_collisions"], codes["purity"]) == (3, 0, 1.0)
    assert answer == {
        "model": "fitted",
        "method": "rslh",
        "preset": "paper",
        "n_bits": 2,
        "n_rows": 60,
        "n_features": 4,
        "n_classes": 3,
    }


def test_the_model_is_the_one_of_the_library(run, files):
    run("fit", "database.npz", "database.npz", "-o", "fitted", *FIT)
    X, y = np.load(files / "X.npy"), np.tile([0, 1, 2], 20)
    fitted, model = load(files / "fitted"), load(files / "model")
    np.testing.assert_array_equal(fitted.transform(X), model.transform(X))
    np.testing.assert_array_equal((fitted.transform(X) > 0) @ [1, 2], CODE[y])


def test_settings_reach_learner_and_kernel(run, files):
    settings = [
        "--set",
        "alpha=7",
        "--set",
        "boosting=none",
        "--set",
        "kernel.center=false",
        "--preset",
        "authors-code",
    ]
    assert run("fit", "X.npy", "names.npy", "-o", "set", *FIT, *settings).status == 0
    kernel, learner = (step for _, step in load(files / "set").steps)
    assert (learner.alpha, learner.boosting, learner.variant, learner.n_bits) == (7, None, "authors-code", 2)
    assert (kernel.center, kernel.bandwidth, kernel.n_anchors, kernel.random_state) == (False, 8, 9, 1)


UNSUPERVISED = """\
model        rotated
method       pcarr
preset       paper
bits         2
rows         60
features     4
seconds      T
"""


def test_unsupervised_methods_need_no_labels(run):
    outcome = run("fit", "X.npy", "-o", "rotated", "--bits", "2", "--method", "pcarr")
    assert (outcome.status, outcome.err) == (0, "")
    assert masked(outcome.out).startswith(UNSUPERVISED)
    assert [line.split()[0] for line in outcome.out.splitlines()[7:]] == [
        "buckets",
        "entropy",
        "imbalance",
        "correlation",
    ]
    assert run("encode", "rotated", "X.npy", "-o", "rotated.npy").status == 0


def test_methods_without_runs_show_their_iterations(run):
    answer = json.loads(run("fit", "X.npy", "names.npy", "-o", "m", "--bits", "2", "--method", "pcaitq", "--json").out)
    assert [list(run_) for run_ in answer["runs"]] == [["n_iter"]]
    assert answer["codes"]["purity"] > 0, "purity is measured wherever there are labels"


def test_several_labels_per_row(run, tmp_path):
    np.save(tmp_path / "Y.npy", np.tile([[1, 0], [0, 1], [1, 1]], (20, 1)))
    out = run("fit", "X.npy", tmp_path / "Y.npy", "-o", "tagged", *FIT).out
    assert "classes      2\n" in out
    assert " (label set pairs with the same main bucket)\n" in out
    assert " of the rows belong to the main label set of their bucket\n" in out


def test_warnings_are_single_lines_on_standard_error(run):
    outcome = run("fit", "X.npy", "names.npy", "-o", "warned", "--bits", "1", "--method", "rslh")
    assert outcome.status == 0
    anchors, bits = outcome.err.splitlines()
    assert anchors == (
        "warning: AnchorRBF has n_anchors=1000, but there are only 60 rows: every row becomes an anchor."
    )
    assert bits == (
        "warning: 3 classes cannot all have different codes of n_bits=1 (2 codes): some must collide; use n_bits >= 2 "
        "to tell all classes apart."
    )


def test_a_model_is_replaced_and_other_files_are_not(run, files):
    run("fit", "X.npy", "names.npy", "-o", "replaced", *FIT)
    assert (
        run("fit", "X.npy", "names.npy", "-o", "replaced", "--bits", "3", "--method", "rslh", "--anchors", "9").status
        == 0
    )
    assert load(files / "replaced")[-1].n_bits == 3
    outcome = run("fit", "X.npy", "names.npy", "-o", "ids.npy", *FIT)
    assert outcome.status == 2
    message = "ids.npy exists and is not a model of shorthash, so it is not overwritten; choose another folder."
    assert outcome.err == f"error: {message}\n"
    assert len(np.load(files / "ids.npy")) == 60


PAIRED = """\
model        paired
method       auto
preset       paper
bits         2
rows         60
features     4
seconds      T
labels       none: learned from pairs of rows
lift         N times chance, average precision of held-out partners
"""


def test_pairs_by_number_and_by_id(run, files):
    y = np.arange(60) % 3
    pairs = [(i, (i + step) % 60) for i in range(0, 60, 2) for step in (3, 9, 12)]
    (files / "pairs.csv").write_text("".join(f"{i},{j}\n" for i, j in pairs))
    outcome = run("fit", "X.npy", "--pairs", "pairs.csv", "-o", "paired", "--bits", "2")
    assert (outcome.status, outcome.err) == (0, "")
    assert re.sub(r"lift         [\d.]+", "lift         N", masked(outcome.out)).startswith(PAIRED)
    X = np.load(files / "X.npy")
    codes = load(files / "paired").transform(X)
    assert all(len(np.unique(codes[y == c], axis=0)) == 1 for c in range(3))
    lines = [f"row{i}," + ",".join(map(str, row)) for i, row in enumerate(X.tolist())]
    (files / "paired.csv").write_text("name,a,b,c,d\n" + "\n".join(lines))
    (files / "named.csv").write_text("query,clicked,clicks\n" + "".join(f"row{i},row{j},1\n" for i, j in pairs))
    answer = run("fit", "paired.csv", "--id", "name", "--pairs", "named.csv", "-o", "named", "--bits", "2", "--json")
    assert json.loads(answer.out)["lift"] > 1
    np.testing.assert_array_equal(load(files / "named").transform(X), codes)


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        ("0,1\n2,b\n", [], "pairs.csv, line 2 must be two row numbers and, if wanted, a weight. Got '2,b'"),
        ("0,1\n2,60\n", [], "--pairs must name rows 0 to 59 of X, but pair 1 is (2, 60)"),
        ("a,b\n", [], "pairs.csv has no pairs"),
        ("0,1,-1\n", [], "pair 0 has -1"),
        ("0,1\n", ["--method", "rslh"], "rslh cannot learn from --pairs; use --method auto"),
        ("0,1\n", ["--stream"], "pairs cannot be combined with labels or with --stream"),
    ],
)
def test_bad_pairs(run, files, text, more, message):
    (files / "pairs.csv").write_text(text)
    outcome = run("fit", "X.npy", "--pairs", "pairs.csv", "-o", "never", "--bits", "2", *more)
    assert outcome.status == 2
    assert message in outcome.err
    assert not (files / "never").exists()


ALIGNED = """\
model         second
aligned with  first
bits          2
rows          60
features      2
seconds       T
"""


def test_align_by_labels_and_by_rows(run, files):
    X = np.load(files / "X.npy")
    np.save(files / "other.npy", X[:, 1:3] * 2)
    assert run("fit", "X.npy", "names.npy", "-o", "first", "--bits", "2").status == 0
    outcome = run("align", "first", "other.npy", "names.npy", "-o", "second")
    assert (outcome.status, masked(outcome.out), outcome.err) == (0, ALIGNED, "")
    first, second = load(files / "first").transform(X), load(files / "second").transform(X[:, 1:3] * 2)
    np.testing.assert_array_equal(first, second)
    assert run("align", "first", "other.npy", "--rows", "X.npy", "-o", "second").status == 0
    np.testing.assert_array_equal(first, load(files / "second").transform(X[:, 1:3] * 2))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["first", "X.npy"], "give either labels or --rows"),
        (["first", "X.npy", "names.npy", "--rows", "X.npy"], "give either labels or --rows"),
        (["model", "X.npy", "names.npy"], "Only models of the methods auto and eaph can be aligned"),
        (["X.npy", "X.npy", "names.npy"], "X.npy"),
    ],
)
def test_bad_alignments(run, files, args, message):
    outcome = run("align", *args, "-o", "never")
    assert outcome.status == 2
    assert message in outcome.err
    assert not (files / "never").exists()


def test_labels_inside_a_file_of_features_are_pointed_at(run):
    alone = run("fit", "database.npz", "-o", "unlabelled", "--method", "lsh", "--bits", "3")
    assert "database.npz holds labels (y), which are not used; to use them, also give the file as LABELS" in alone.err
    both = run("fit", "database.npz", "database.npz", "-o", "labelled", "--method", "lsh", "--bits", "3")
    assert "holds labels" not in both.err
