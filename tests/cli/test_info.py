"""shorthash info, by its whole output."""

import json

from shorthash import RSLH, save
from shorthash.persistence import describe

PIPELINE = """\
kind               pipeline
class              HasherPipeline
bits               2
features           4
rows learned from  60
size               SIZE
written by         shorthash 0.1.0 (format 1)
further learning   possible

kernel: AnchorRBF   value
─────────────────────────
bandwidth           8
center              True
n_anchors           9
random_state        1

hasher: RSLH        value
────────────────────────────
"""

INDEX = """\
kind        index
class       BucketIndex
bits        2
items       60
size        SIZE
written by  shorthash 0.1.0 (format 1)
"""


def sized(text, path):
    return text.replace("SIZE", f"{describe(path)['bytes'] / 1000:.1f} kB")


def test_pipeline(run, files):
    outcome = run("info", "model")
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.startswith(sized(PIPELINE, files / "model"))
    parameters = dict(line.split() for line in outcome.out[len(sized(PIPELINE, files / "model")) :].splitlines())
    assert set(parameters) == set(RSLH().get_params())
    assert (parameters["n_bits"], parameters["random_state"], parameters["boosting"]) == ("2", "1", "mb")


def test_index(run, files):
    outcome = run("info", "index")
    assert (outcome.status, outcome.out, outcome.err) == (0, sized(INDEX, files / "index"), "")


def test_bare_learner_without_its_sums(run, files):
    from shorthash import load

    save(load(files / "model")[-1], files / "learner", statistics=False)
    out = run("info", "learner").out
    assert "further learning   not possible: no sums or rows were saved\n" in out
    assert "\nRSLH                value\n" in out


def test_json_is_the_description(run, files):
    answer = json.loads(run("info", "model", "--json").out)
    assert answer == json.loads(json.dumps(describe(files / "model")))
