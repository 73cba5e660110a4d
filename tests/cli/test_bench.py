"""shorthash bench and shorthash datasets, as a user meets them."""

import json

import pytest

from shorthash.lab.running import append_record
from shorthash.lab.spec import plan_part, read_experiment

SPEC = """
seeds = 1
[[datasets]]
name = "digits"
bits = [3, 4]
protocol = {n_train = 100}
[[methods]]
name = "PCA-RR"
method = "pcarr"
"""


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(SPEC)
    return path


def test_run_status_and_again(run, spec, forked_workers):
    before = run("bench", "status", spec).out.splitlines()
    assert before[0] == f"records  {spec.parent / 'results'}"
    assert before[-1].split() == ["mine", "mine", "0", "2", "2"]
    first = run("bench", "run", spec, "--workers", 1)
    assert first.status == 0, first.err
    assert [line.split() for line in first.out.splitlines()[:3]] == [["planned", "2"], ["stored", "0"], ["done", "2"]]
    assert [file.name for file in (spec.parent / "results").iterdir()] == ["mine.jsonl.gz"]
    again = run("bench", "run", spec, "--json")
    assert json.loads(again.out)["done"] == 0
    status = json.loads(run("bench", "status", spec, "--json").out)
    assert status["parts"] == [{"experiment": "mine", "part": "mine", "stored": 2, "planned": 2, "missing": 0}]
    listed = json.loads(run("bench", "list", spec, "--json").out)
    assert (listed["parts"][0]["runs"], listed["parts"][0]["stored"]) == (2, 2)


def test_another_folder(run, spec, tmp_path):
    (planned, _) = plan_part(read_experiment(spec).parts[0])
    append_record(tmp_path / "own", {"schema": 1, "run": planned.name, "spec": planned.spec.to_dict()}, None)
    answer = json.loads(run("bench", "list", spec, "--results", tmp_path / "own", "--json").out)
    assert answer["parts"][0]["stored"] == 1
    assert [each["stored"] for each in answer["runs"]] == [True, False]
    status = json.loads(run("bench", "status", spec, "--results", tmp_path / "own", "--json").out)
    assert status["parts"][0]["missing"] == 1


def test_list(run, spec):
    answer = run("bench", "list", spec)
    assert "2 different runs" in answer.out
    listed = json.loads(run("bench", "list", spec, "--json").out)["runs"]
    assert [each["n_bits"] for each in listed] == [3, 4]
    assert listed[0]["row"] == "PCA-RR"


def test_mistakes_are_one_line(run, spec, tmp_path, monkeypatch):
    monkeypatch.delenv("SHORTHASH_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for text, message in (
        (SPEC.replace("pcarr", "pcarrr"), "'method' parameter of part 'mine' must be one of"),
        (SPEC.replace("digits", "voc2012"), "'voc2012' needs voc2012_cnn256.npz"),
        (SPEC.replace("n_train = 100", "n_trains = 100"), "must be one of 'per_class_queries'"),
    ):
        spec.write_text(text.replace("n_trains = 100", 'kind = "some"'))
        answer = run("bench", "run", spec)
        assert answer.status == 2
        assert message in answer.err
        assert answer.err.count("\n") == 1


def test_a_failing_run_is_one_line(run, spec, forked_workers):
    spec.write_text(SPEC.replace("n_train = 100", "n_train = 10000"))
    answer = run("bench", "run", spec, "--workers", 1)
    assert answer.status == 2
    assert "A run failed: The 'n_train' parameter" in answer.err
    assert answer.err.count("\n") == 1


def test_datasets(run, tmp_path, monkeypatch):
    monkeypatch.delenv("SHORTHASH_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    answer = run("datasets", "list")
    assert "fashion-mnist" in answer.out
    assert f"Looked in: {tmp_path}" in answer.out
    facts = json.loads(run("datasets", "list", "cifar10", "--json").out)["cifar10"]
    assert "c58f30108f718f92721af3b95e74349a" in facts["downloads"]
    assert "licence" in run("datasets", "list", "mnist").out
    wrong = run("datasets", "list", "cifar")
    assert (wrong.status, "must be one of" in wrong.err) == (2, True)


def test_fetch_what_cannot_be_fetched(run):
    answer = run("datasets", "fetch", "digits")
    assert answer.status == 2
    assert "comes with scikit-learn" in answer.err
