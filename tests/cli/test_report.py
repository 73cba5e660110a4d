"""shorthash report, by its whole output."""

import json
import sys

import pytest
from cli.conftest import squeezed
from made_records import planned, write_experiments, write_records

OUTPUT = """\
part             runs   stored   missing
────────────────────────────────────────
Table 1            48       24        24
Table 2            32       16        16
Costs               2        1         1
Figure 1 (a-c)     48       24        24
Figure 1 (d-f)      6        3         3
Figure 2 (a-c)      2        1         1
Figure 2 (d)        2        1         1

to do the missing runs: shorthash bench run experiments/table1.toml
to do the missing runs: shorthash bench run experiments/table2.toml
to do the missing runs: shorthash bench run experiments/costs.toml
to do the missing runs: shorthash bench run experiments/figure1.toml
to do the missing runs: shorthash bench run experiments/figure2.toml
page: report/index.html
"""


@pytest.fixture
def place(tmp_path, monkeypatch, run):
    experiments = write_experiments(tmp_path / "experiments")
    names = dict.fromkeys(run.name for run in planned(experiments))
    by_name = {each.name: each for each in planned(experiments)}
    stored = {}
    for name in names:  # every second run of every part
        each = by_name[name]
        stored.setdefault((each.part, each.spec.task), []).append(each)
    half = [each for runs in stored.values() for each in runs[::2]]
    write_records(experiments / "results", half)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_whole_output(run, place):
    done = run("report")
    assert (done.status, done.err) == (0, "")
    lines, expected = squeezed(done.out).splitlines(), squeezed(OUTPUT).splitlines()
    assert [line.split()[:2] for line in lines] == [line.split()[:2] for line in expected]
    assert done.out.splitlines()[-6:] == OUTPUT.splitlines()[-6:]
    assert (place / "report" / "index.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_json_and_one_experiment(run, place):
    answer = json.loads(run("report", "experiments/costs.toml", "-o", "elsewhere", "--json").out)
    assert answer["page"] == "elsewhere/index.html"
    assert [part["part"] for part in answer["parts"]] == ["Costs"]
    assert answer["commands"] == ["shorthash bench run experiments/costs.toml"]


def test_records_elsewhere_are_named_in_the_command(run, place):
    done = run("report", "experiments/costs.toml", "--results", "other/results")
    assert "shorthash bench run experiments/costs.toml --results other/results" in done.out


def test_nothing_there(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("report")
    message = "There is no experiment experiments; give a .toml file, or a folder of them."
    assert (done.status, done.out, done.err) == (2, "", f"error: {message}\n")


def test_a_missing_extra_is_reported_first(run, place, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    done = run("report")
    assert done.status == 2
    assert "shorthash report needs jinja2" in done.err
