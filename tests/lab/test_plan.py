"""From experiments to runs: names, what runs share, and in which order they are done."""

from pathlib import Path

import pytest

from shorthash.errors import InvalidInput
from shorthash.lab.plan import group_runs, plan_part, plan_runs, unique_runs
from shorthash.lab.runs import RunSpec, run_name
from shorthash.lab.spec import DatasetWish, Experiment, MethodRow, Part, read_experiment

ROOT = Path(__file__).resolve().parents[2]


def part(**changes):
    values = {
        "name": "p",
        "title": "p",
        "task": "scores",
        "datasets": (DatasetWish("digits", (4, 6)),),
        "methods": (MethodRow("RSLH", "rslh"), MethodRow("ITQ", "pcaitq")),
        "seeds": (0, 1),
    }
    return Part(**{**values, **changes})


def test_every_combination_once():
    runs = plan_part(part())
    assert len(runs) == len({run.name for run in runs}) == 2 * 2 * 2
    assert {run.spec.protocol["seed"] for run in runs} == {0, 1}
    assert all(run.seed == run.spec.seed == run.spec.protocol["seed"] for run in runs)


def test_a_name_follows_from_what_matters_alone():
    plain = part(methods=(MethodRow("RSLH", "rslh"),))
    said = part(methods=(MethodRow("ours", "rslh", {"alpha": 3.0, "boosting": "mb"}, {"n_anchors": 1000}),))
    other = part(methods=(MethodRow("RSLH", "rslh", {"alpha": 4}),))
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
    row = MethodRow("EAPH", "auto", on={"digits": {"database": "training"}})
    wishes = (DatasetWish("digits", (4,)), DatasetWish("cifar10", (4,)))
    runs = plan_part(part(methods=(row,), datasets=wishes, seeds=(0,)))
    assert [run.spec.settings for run in runs] == [{"database": "training"}, {}]


def test_a_grid():
    runs = plan_part(part(grid={"alpha": (1, 3), "gamma": (1e-5, 1)}, methods=(MethodRow("RSLH", "rslh"),), seeds=(0,)))
    assert len(runs) == 2 * 4
    assert [run.point["alpha"] for run in runs[:4]] == [1, 1, 3, 3]
    assert runs[2].spec.settings == {}, "alpha 3 and gamma 1e-5 are those of the recipe"


def test_a_protocol_of_ones_own():
    own = DatasetWish("digits", (4,), {"n_train": 100})
    other = DatasetWish("digits", (4,), {"kind": "per_class_queries", "per_class": 5})
    runs = plan_part(part(datasets=(own, other), methods=(MethodRow("RSLH", "rslh"),), seeds=(2,)))
    assert runs[0].spec.protocol == {
        "kind": "random_queries",
        "n_queries": 300,
        "n_train": 100,
        "train_in_database": True,
        "seed": 2,
    }
    assert runs[1].spec.protocol["kind"] == "per_class_queries"


def test_groups_share_a_split_and_a_kernel():
    rows = [MethodRow(name, name) for name in ("rslh", "sdh", "fssh", "scdh", "pcaitq", "sh", "auto")]
    experiment = Experiment("e", "e", (part(methods=tuple(rows), seeds=(0,)),))
    groups = group_runs(unique_runs([experiment]).values())
    assert [sorted({run.method for run in group.runs}) for group in groups] == [
        ["auto"],
        ["fssh", "rslh", "sdh"],
        ["scdh"],
        ["pcaitq", "sh"],
    ]
    assert sum(len(group.runs) for group in groups) == len(plan_runs(experiment))


def test_costs_are_measured_alone_and_last():
    both = Experiment("e", "e", (part(name="c", task="cost"), part(name="s")))
    groups = group_runs(unique_runs([both]).values())
    assert [group.runs[0].task for group in groups][-8:] == ["cost"] * 8
    assert all(len(group.runs) == 1 for group in groups if group.runs[0].task == "cost")


def test_a_run_that_two_experiments_want_is_done_once():
    names = ("table1", "table2", "figure1")
    experiments = [read_experiment(ROOT / "experiments" / f"{name}.toml") for name in names]
    assert len(unique_runs(experiments)) < sum(len(plan_runs(experiment)) for experiment in experiments) - 400


def test_specs_travel_as_plain_values():
    spec = plan_part(part())[0].spec
    assert RunSpec(**spec.to_dict()).name == spec.name
