"""From experiments to runs: which there are, which row and column each belongs to, and which share their work."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shorthash.data.catalogue import default_protocol
from shorthash.data.splits import protocol_from_dict
from shorthash.lab.runs import RunSpec, canonical, known_recipes
from shorthash.lab.spec import DatasetWish, Experiment, MethodRow, Part

__all__ = ["Group", "PlannedRun", "group_runs", "plan_part", "plan_runs", "unique_runs", "weight"]

# CPU seconds of a run, roughly: good enough to begin with the longest groups and to guess how much time is left
_KERNEL, _PLAIN, _EAPH = 0.5, 0.25, 4.0
_SIZE = {"imagenet100": 1.7, "caltech101": 0.7, "caltech101-cnn": 0.7, "digits": 0.1}  # beside CIFAR-10
_MANY_CLASSES, _TRAINING, _LONG = 3.0, 6.0, 4  # EAPH: for many classes, for database="training", bits that double it


@dataclass(frozen=True)
class PlannedRun:
    """A run, and where an experiment wants it.

    Attributes
    ----------
    part, row, dataset, n_bits, seed : its place; ``dataset`` is the name in the specification
    point : the values of the grid, where there is one
    spec : the run
    name : of the run, and of its record
    """

    part: str
    row: str
    dataset: str
    n_bits: int
    seed: int
    point: Mapping[str, Any]
    spec: RunSpec
    name: str


@dataclass(frozen=True)
class Group:
    """Runs on one split that are done by one process one after the other, and share what they can."""

    dataset: str
    protocol: Mapping[str, Any]
    runs: tuple[RunSpec, ...]

    @property
    def weight(self) -> float:
        """What the group costs, roughly."""
        return sum(weight(run) for run in self.runs)


def plan_runs(experiment: Experiment) -> tuple[PlannedRun, ...]:
    """Every run an experiment wants, in the order of its parts, data sets, methods, lengths and seeds."""
    return tuple(run for part in experiment.parts for run in plan_part(part))


def plan_part(part: Part) -> tuple[PlannedRun, ...]:
    """Every run of a part."""
    points = [dict(zip(part.grid, values, strict=True)) for values in itertools.product(*part.grid.values())]
    wanted = itertools.product(part.datasets, part.methods)
    return tuple(
        _planned(part, wish, row, n_bits, seed, point)
        for wish, row in wanted
        for n_bits in wish.bits
        for point in points
        for seed in part.seeds
    )


def unique_runs(experiments: Sequence[Experiment]) -> dict[str, RunSpec]:
    """Every run that some experiments want, by name."""
    return {run.name: run.spec for experiment in experiments for run in plan_runs(experiment)}


def group_runs(specs: Iterable[RunSpec]) -> tuple[Group, ...]:
    """Runs by split and by what they share, each run once, expensive groups first."""
    groups: dict[tuple[str, str, str], dict[str, RunSpec]] = {}
    for spec in specs:
        key = (spec.dataset, canonical(spec.protocol), _share(spec))
        groups.setdefault(key, {})[spec.name] = spec
    made = [Group(key[0], next(iter(runs.values())).protocol, _ordered(runs.values())) for key, runs in groups.items()]
    return tuple(sorted(made, key=lambda group: (group.runs[0].task == "cost", -group.weight)))


def weight(spec: RunSpec) -> float:
    """What a run costs, roughly."""
    size = _SIZE.get(spec.dataset, 1.0)
    if spec.method in ("auto", "eaph"):
        many = _MANY_CLASSES if "100" in spec.dataset or "101" in spec.dataset else 1.0
        again = _TRAINING if spec.settings.get("database") == "training" else 1.0
        return _EAPH * size * many * again * float(2 ** (max(0, spec.n_bits - 8) / _LONG))
    recipe = known_recipes().get(spec.method)
    return size * (_PLAIN if recipe is not None and "kernel" not in recipe.front_end else _KERNEL)


def _planned(
    part: Part, wish: DatasetWish, row: MethodRow, n_bits: int, seed: int, point: dict[str, Any]
) -> PlannedRun:
    own = default_protocol(wish.name).to_dict()
    base = own if wish.protocol.get("kind", own["kind"]) == own["kind"] else {}
    protocol = protocol_from_dict({**base, **wish.protocol, "seed": seed})
    spec = RunSpec.of(
        task=part.task,
        dataset=wish.name,
        protocol=protocol.to_dict(),
        seed=seed,
        method=row.method,
        n_bits=n_bits,
        settings={**row.settings, **row.on.get(wish.name, {}), **point},
        front_end=dict(row.front_end),
    )
    return PlannedRun(part.name, row.name, wish.name, n_bits, seed, point, spec, spec.name)


def _share(spec: RunSpec) -> str:
    """What a run shares with others: the kernel map, the posteriors, or (cost) nothing, so that it is alone."""
    if spec.task == "cost":
        return spec.name
    recipe = known_recipes()[spec.method]
    if "kernel" in recipe.front_end:
        return f"kernel {canonical({**recipe.front_settings, **spec.front_end, 'center': None})}"
    return spec.method if spec.method in ("auto", "eaph") else "plain"


def _ordered(runs: Iterable[RunSpec]) -> tuple[RunSpec, ...]:
    """Methods together, lengths ascending; the order of a group is the same however it was asked for."""
    return tuple(sorted(runs, key=lambda run: (run.method, canonical(run.settings), run.n_bits, run.task)))
