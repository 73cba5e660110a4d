"""What an experiment wants to know: a TOML file, read into frozen values and checked before anything is computed.

A file is one part, or has several under ``[[parts]]``. A part::

    name = "table1"              # in a file of one part this is the experiment's name, too
    title = "Retrieval quality"
    task = "scores"              # or "cost", "convergence", "embedding"
    seeds = 5                    # 0 to 4, or a list
    [[datasets]]
    name = "cifar10"             # of the catalogue, or the path of a file or folder
    bits = [4, 6, 8, 10]
    protocol = {n_train = 1000}  # optional: what differs from the data set's own protocol
    [[methods]]
    name = "RSLH-B"              # how the row is called
    method = "rslh"              # a recipe
    settings = {boosting = "none"}
    front_end = {n_anchors = 500}
    on = {caltech101 = {database = "training"}}  # further settings on one data set
    [grid]                       # optional: every combination of these settings
    alpha = [0.1, 1, 10]
    [report]                     # how the report lays it out; nothing here changes a run
    kind = "table"
    metrics = ["map", "map_h2"]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shorthash._validation import check_choice, check_n_bits
from shorthash.data.catalogue import CATALOGUE
from shorthash.errors import DataFileError, InvalidInput
from shorthash.lab.dense import DENSE
from shorthash.recipes import recipes

__all__ = ["KINDS", "TASKS", "DatasetWish", "Experiment", "MethodRow", "Part", "read_experiment"]

TASKS = ("scores", "cost", "convergence", "embedding")
KINDS = ("table", "lines", "heatmap", "convergence", "embedding", "cost")
_PART_KEYS = ("name", "title", "task", "seeds", "datasets", "methods", "grid", "report")
_DATASET_KEYS = ("name", "bits", "protocol", "title")
_METHOD_KEYS = ("name", "method", "settings", "front_end", "on")


@dataclass(frozen=True)
class DatasetWish:
    """A data set, the lengths wanted on it, and what differs from its own protocol."""

    name: str
    bits: tuple[int, ...]
    protocol: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""


@dataclass(frozen=True)
class MethodRow:
    """A method under the name of its row; ``on`` holds further settings by data set."""

    name: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    front_end: Mapping[str, Any] = field(default_factory=dict)
    on: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """Every method on every data set at every length with every seed (and every point of the grid), for one task."""

    name: str
    title: str
    task: str
    datasets: tuple[DatasetWish, ...]
    methods: tuple[MethodRow, ...]
    seeds: tuple[int, ...]
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A specification file.

    Attributes
    ----------
    name : of the experiment
    title : for the reader
    parts : one or more
    """

    name: str
    title: str
    parts: tuple[Part, ...]


def read_experiment(path: str | Path) -> Experiment:
    """Read and check a specification file.

    Parameters
    ----------
    path : a .toml file, as the docstring of :mod:`shorthash.lab.spec` explains
    """
    file = Path(path)
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataFileError(f"There is no specification {file}; check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataFileError(f"{file} is not a TOML file: {error}; mend it.") from error
    try:
        return _experiment(values, file.stem)
    except InvalidInput as error:
        raise DataFileError(f"{file}: {error}") from error


def _experiment(values: dict[str, Any], stem: str) -> Experiment:
    name = str(values.get("name", stem))
    title = str(values.get("title", name))
    if "parts" not in values:
        return Experiment(name, title, (_part({"name": name, "title": title, **values}),))
    shared = {key: value for key, value in values.items() if key not in ("name", "title", "parts")}
    parts = tuple(_part({**shared, **part}) for part in values["parts"])
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        raise InvalidInput(f"every part must have a name of its own, but there are {', '.join(names)}; rename some.")
    return Experiment(name, title, parts)


def _part(values: dict[str, Any]) -> Part:
    owner = f"part {values.get('name', '?')!r}"
    _check_keys(values, _PART_KEYS, owner)
    _check_present(values, ("name", "datasets", "methods"), owner)
    task = values.get("task", "scores")
    check_choice(task, "task", owner, TASKS)
    report = dict(values.get("report", {}))
    check_choice(report.get("kind", "table"), "report.kind", owner, KINDS)
    return Part(
        name=str(values["name"]),
        title=str(values.get("title", values["name"])),
        task=task,
        datasets=tuple(_dataset(each, owner) for each in values["datasets"]),
        methods=tuple(_method(each, owner) for each in values["methods"]),
        seeds=_seeds(values.get("seeds", 1), owner),
        grid={key: tuple(points) for key, points in values.get("grid", {}).items()},
        report=report,
    )


def _dataset(values: dict[str, Any], owner: str) -> DatasetWish:
    _check_keys(values, _DATASET_KEYS, f"a data set of {owner}")
    _check_present(values, ("name", "bits"), f"a data set of {owner}")
    bits = tuple(check_n_bits(length, f"data set {values['name']!r}") for length in values["bits"])
    title = CATALOGUE[values["name"]].title if values["name"] in CATALOGUE else Path(values["name"]).stem
    return DatasetWish(str(values["name"]), bits, dict(values.get("protocol", {})), str(values.get("title", title)))


def _method(values: dict[str, Any], owner: str) -> MethodRow:
    _check_keys(values, _METHOD_KEYS, f"a method of {owner}")
    _check_present(values, ("method",), f"a method of {owner}")
    check_choice(values["method"], "method", owner, [*recipes(), DENSE])
    on = {name: _without_none(settings) for name, settings in values.get("on", {}).items()}
    return MethodRow(
        name=str(values.get("name", values["method"])),
        method=values["method"],
        settings=_without_none(values.get("settings", {})),
        front_end=dict(values.get("front_end", {})),
        on=on,
    )


def _seeds(value: Any, owner: str) -> tuple[int, ...]:
    """0 to n - 1, or those listed."""
    seeds = tuple(range(value)) if type(value) is int else tuple(value) if isinstance(value, list) else ()
    if not seeds or not all(type(seed) is int and seed >= 0 for seed in seeds):
        raise InvalidInput(f"The 'seeds' of {owner} must be a count or a list of numbers >= 0. Got {value!r} instead.")
    return seeds


def _without_none(settings: Mapping[str, Any]) -> dict[str, Any]:
    """TOML has no null; the word "none" stands for it."""
    return {key: None if value == "none" else value for key, value in settings.items()}


def _check_keys(values: Mapping[str, Any], known: tuple[str, ...], owner: str) -> None:
    for key in values:
        check_choice(key, "key", owner, known)


def _check_present(values: Mapping[str, Any], needed: tuple[str, ...], owner: str) -> None:
    for key in needed:
        if not values.get(key):
            raise InvalidInput(f"{owner} has no {key!r}; add it (see docs/guide/bench.md).")
