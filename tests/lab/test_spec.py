"""Specifications: what is read, and what a mistake is told."""

from pathlib import Path

import pytest

from shorthash.errors import DataFileError
from shorthash.lab.spec import read_experiment

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "experiments").glob("*.toml"))
SMALL = """
name = "small"
seeds = 2
[[datasets]]
name = "digits"
bits = [4]
[[methods]]
name = "RSLH-B"
method = "rslh"
settings = {boosting = "none"}
"""


@pytest.fixture
def read(tmp_path):
    def call(text):
        path = tmp_path / "given.toml"
        path.write_text(text)
        return read_experiment(path)

    return call


def test_a_small_one(read):
    experiment = read(SMALL)
    (part,) = experiment.parts
    assert (experiment.name, part.name, part.task, part.seeds) == ("small", "small", "scores", (0, 1))
    assert part.datasets[0].title == "Digits"
    assert part.methods[0].settings == {"boosting": None}, "none is no word but nothing"


def test_parts_take_over_what_stands_above_them(read):
    text = (
        SMALL.replace('name = "small"', 'title = "Two"') + '[[parts]]\nname = "a"\n[[parts]]\nname = "b"\nseeds = [7]\n'
    )
    experiment = read(text)
    assert experiment.name == "given"
    assert [(part.name, part.seeds) for part in experiment.parts] == [("a", (0, 1)), ("b", (7,))]
    assert experiment.parts[0].datasets == experiment.parts[1].datasets


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seeds = 2", "seed = 2"), r"'key' parameter of part 'small' must be one of .*'seeds'.* Got 'seed'"),
        (("seeds = 2", "seeds = 0"), "'seeds' of part 'small' must be a count"),
        (("seeds = 2", "seeds = [-1]"), "'seeds' of part 'small' must be a count"),
        (("seeds = 2", 'task = "dance"'), "'task' parameter of part 'small' must be one of 'scores'"),
        (("bits = [4]", "bits = [65]"), r"range \[1, 64\]. Got 65"),
        (("bits = [4]", ""), "a data set of part 'small' has no 'bits'"),
        (('method = "rslh"', 'method = "rhls"'), "'method' parameter of part 'small' must be one of 'auto'"),
        (("seeds = 2", "seeds = = 2"), "is not a TOML file"),
        (("seeds = 2", 'seeds = 2\nreport = {kind = "pie"}'), "report.kind"),
    ],
)
def test_mistakes_are_told(read, change, message):
    with pytest.raises(DataFileError, match=message):
        read(SMALL.replace(*change))


def test_two_parts_of_one_name(read):
    with pytest.raises(DataFileError, match="every part must have a name of its own"):
        read(SMALL + '[[parts]]\nname = "a"\n[[parts]]\nname = "a"\n')


def test_no_such_file():
    with pytest.raises(DataFileError, match=r"no specification nowhere\.toml"):
        read_experiment("nowhere.toml")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_specifications_are_sound(path):
    experiment = read_experiment(path)
    assert experiment.name == path.stem
    assert all(part.report.get("kind") for part in experiment.parts)


def test_the_paper_is_covered():
    """Methods, data sets and lengths of the printed tables are those of the specifications."""
    import csv

    with (ROOT / "experiments" / "printed.csv").open() as file:
        printed = list(csv.DictReader(file))
    for number in (1, 2):
        part = read_experiment(ROOT / "experiments" / f"table{number}.toml").parts[0]
        here = {(row.name, wish.title, bits) for row in part.methods for wish in part.datasets for bits in wish.bits}
        wanted = {(r["method"], r["dataset"], int(r["bits"])) for r in printed if r["table"] == f"Table {number}"}
        assert wanted <= here
