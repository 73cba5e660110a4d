"""shorthash methods lists what make_hasher knows."""

import json

from shorthash.recipes import recipes


def test_table(run):
    outcome = run("methods")
    assert (outcome.status, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[0].split() == ["method", "name", "year", "supervised", "presets"]
    assert [line.split()[0] for line in lines[2:] if not line.startswith(" ")] == list(recipes())
    rslh = next(line for line in lines if line.startswith("rslh "))
    assert rslh.split() == ["rslh", "Reinforcing", "Short-Length", "Hashing", "2020", "yes", "authors-code"]


def test_json(run):
    said = json.loads(run("methods", "--json").out)
    assert list(said) == list(recipes())
    for name, recipe in recipes().items():
        assert said[name] == {
            "full_name": recipe.full_name,
            "year": recipe.year,
            "supervised": recipe.supervised,
            "multilabel": recipe.multilabel,
            "reference": recipe.reference,
            "presets": list(recipe.presets),
        }
