"""Specifications: what is read, how a mistake is reported, and which runs are planned."""

from pathlib import Path

import pytest

from shorthash.errors import DataFileError, InvalidInput
from shorthash.lab.spec import (
    DatasetSpec,
    Experiment,
    MethodSpec,
    Part,
    RunSpec,
    group_runs,
    plan_part,
    read_experiment,
    run_name,
    unique_runs,
)

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
    with pytest.raises(DataFileError, match="the names of the parts must be different"):
        read(SMALL + '[[parts]]\nname = "a"\n[[parts]]\nname = "a"\n')


def test_no_such_file():
    with pytest.raises(DataFileError, match=r"no specification nowhere\.toml"):
        read_experiment("nowhere.toml")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_specifications_are_sound(path):
    experiment = read_experiment(path)
    assert experiment.name == path.stem
    assert all(part.report.get("kind") for part in experiment.parts)


def part(**changes):
    values = {
        "name": "p",
        "title": "p",
        "task": "scores",
        "datasets": (DatasetSpec("digits", (4, 6)),),
        "methods": (MethodSpec("RSLH", "rslh"), MethodSpec("ITQ", "pcaitq")),
        "seeds": (0, 1),
    }
    return Part(**{**values, **changes})


def test_every_combination_once():
    runs = plan_part(part())
    assert len(runs) == len({run.name for run in runs}) == 2 * 2 * 2
    assert {run.spec.protocol["seed"] for run in runs} == {0, 1}
    assert all(run.seed == run.spec.seed == run.spec.protocol["seed"] for run in runs)


def test_a_name_follows_from_what_matters_alone():
    plain = part(methods=(MethodSpec("RSLH", "rslh"),))
    settings = {"alpha": 3.0, "boosting": "mb", "kernel__n_anchors": 1000}
    said = part(methods=(MethodSpec("ours", "rslh", settings),))
    other = part(methods=(MethodSpec("RSLH", "rslh", {"alpha": 4}),))
    names = [[run.name for run in plan_part(each)] for each in (plain, said, other)]
    assert names[0] == names[1], "settings that the recipe has anyway change nothing"
    assert not set(names[0]) & set(names[2])


def test_names_do_not_change():
    """A stored record must be found again by later versions."""
    spec = {"task": "scores", "dataset": "digits", "protocol": {"kind": "random_queries", "seed": 0}, "seed": 0}
    assert run_name({**spec, "method": "rslh", "n_bits": 8, "settings": {"alpha": 7.0}, "front_end": {}}) == NAME


NAME = "81b654a1304e75fd"


def test_a_setting_that_is_no_plain_value():
    with pytest.raises(InvalidInput, match="must be a number, a word, none, or a list"):
        run_name({"alpha": object()})


def test_settings_on_one_data_set():
    row = MethodSpec("EAPH", "auto", on={"digits": {"database": "training"}})
    wishes = (DatasetSpec("digits", (4,)), DatasetSpec("cifar10", (4,)))
    runs = plan_part(part(methods=(row,), datasets=wishes, seeds=(0,)))
    assert [run.spec.settings for run in runs] == [{"database": "training"}, {}]


def test_a_grid():
    runs = plan_part(
        part(grid={"alpha": (1, 3), "gamma": (1e-5, 1)}, methods=(MethodSpec("RSLH", "rslh"),), seeds=(0,))
    )
    assert len(runs) == 2 * 4
    assert [run.point["alpha"] for run in runs[:4]] == [1, 1, 3, 3]
    assert runs[2].spec.settings == {}, "alpha 3 and gamma 1e-5 are those of the recipe"


def test_a_protocol_of_ones_own():
    own = DatasetSpec("digits", (4,), {"n_train": 100})
    other = DatasetSpec("digits", (4,), {"kind": "per_class_queries", "per_class": 5})
    runs = plan_part(part(datasets=(own, other), methods=(MethodSpec("RSLH", "rslh"),), seeds=(2,)))
    assert runs[0].spec.protocol == {
        "kind": "random_queries",
        "n_queries": 300,
        "n_train": 100,
        "train_in_database": True,
        "seed": 2,
    }
    assert runs[1].spec.protocol["kind"] == "per_class_queries"


def test_groups_share_a_split_and_a_kernel():
    rows = [MethodSpec(name, name) for name in ("rslh", "sdh", "fssh", "scdh", "pcaitq", "sh", "auto")]
    experiment = Experiment("e", "e", (part(methods=tuple(rows), seeds=(0,)),))
    groups = group_runs(unique_runs([experiment]).values())
    assert [sorted({run.method for run in group}) for group in groups] == [
        ["auto"],
        ["fssh", "rslh", "sdh"],
        ["pcaitq", "sh"],
        ["scdh"],
    ]
    assert sum(len(group) for group in groups) == len(plan_part(experiment.parts[0]))


def test_costs_are_measured_alone_and_last():
    both = Experiment("e", "e", (part(name="c", task="cost"), part(name="s")))
    groups = group_runs(unique_runs([both]).values())
    assert [group[0].task for group in groups][-8:] == ["cost"] * 8
    assert all(len(group) == 1 for group in groups if group[0].task == "cost")


def test_a_run_that_two_experiments_plan_is_done_once():
    experiments = [read_experiment(ROOT / "experiments" / f"{name}.toml") for name in ("table1", "table2", "figure1")]
    planned = [run for experiment in experiments for part in experiment.parts for run in plan_part(part)]
    assert len(unique_runs(experiments)) < len(planned) - 400


def test_an_encoder_and_kernel_settings_belong_to_the_run():
    rows = (
        MethodSpec("linear", "rslh"),
        MethodSpec("nearest", "rslh", encoder="nearest"),
        MethodSpec("few anchors", "rslh", {"kernel__n_anchors": 50}),
    )
    runs = [run.spec for run in plan_part(part(methods=rows, seeds=(0,), datasets=(DatasetSpec("digits", (4,)),)))]
    assert len({run.name for run in runs}) == 3
    assert "encoder" not in runs[0].to_dict(), "names of runs without one do not change"
    assert runs[1].to_dict()["encoder"] == "nearest"
    assert runs[2].front_end == {"n_anchors": 50}
    assert runs[2].settings == {}


def test_specs_travel_as_plain_values():
    spec = plan_part(part())[0].spec
    assert RunSpec(**spec.to_dict()).name == spec.name
