"""shorthash methods lists what make_hasher knows."""

import json

from shorthash.methods import method_facts, recipes


def test_table(run):
    outcome = run("methods")
    assert (outcome.status, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[0].split() == ["method", "name", "year", "supervised", "several", "labels", "presets"]
    listed = [line.split()[0] for line in lines[2:-2] if not line.startswith(" ")]
    assert listed == list(recipes())
    rslh = next(line for line in lines if line.startswith("rslh "))
    assert rslh.split() == ["rslh", "Reinforcing", "Short-Length", "Hashing", "2020", "yes", "yes", "authors-code"]
    assert lines[-1] == "For settings and reference: shorthash methods METHOD"


def test_one_method(run):
    outcome = run("methods", "mfh")
    assert (outcome.status, outcome.err) == (0, "")
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert lines[:5] == [
        "name Matrix Factorization Hashing",
        "year 2014",
        "supervised no",
        "several labels -",
        "preprocessing none",
    ]
    assert "preset habir habir=True" in lines
    assert "mu 100" in lines


def test_a_kernel_is_shown_with_its_settings(run):
    assert "AnchorRBF(n_anchors=300)" in run("methods", "ksh").out


def test_an_unknown_method(run):
    outcome = run("methods", "rlsh")
    assert outcome.status == 2
    assert "must be one of " in outcome.err
    assert "Got 'rlsh' instead" in outcome.err


def test_json(run):
    answer = json.loads(run("methods", "--json").out)
    assert list(answer) == list(recipes())
    for name in recipes():
        facts = method_facts(name)
        assert {key: answer[name][key] for key in ("full_name", "year", "supervised", "multilabel", "reference")} == {
            key: facts[key] for key in ("full_name", "year", "supervised", "multilabel", "reference")
        }
        assert list(answer[name]["parameters"]) == list(facts["parameters"])
        assert list(answer[name]["presets"]) == list(facts["presets"])
    assert answer["rslh"]["parameters"]["alpha"] == 3
    assert json.loads(run("methods", "rslh", "--json").out) == {"rslh": answer["rslh"]}
