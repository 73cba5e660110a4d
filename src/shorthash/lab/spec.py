"""Experiments: a TOML file is read, checked, and expanded into runs, before anything is computed.

A file is one part, or has several under ``[[parts]]``. A part::

    name = "table1"              # in a file of one part this is the experiment's name, too
    title = "Retrieval quality"
    task = "scores"              # one of TASKS
    seeds = 5                    # 0 to 4, or a list
    [[datasets]]
    name = "cifar10"             # of the catalogue, or the path of a file or folder
    bits = [4, 6, 8, 10]
    protocol = {n_train = 1000}  # optional: changes to the default protocol of the data set
    [[methods]]
    name = "RSLH-B"              # label of the row
    method = "rslh"              # a method of the library
    settings = {boosting = "none", kernel__n_anchors = 500}  # "none" stands for None
    encoder = "nearest"          # optional: encode with CodewordHasher
    on = {caltech101 = {database = "training"}}  # further settings on one data set
    # methods = ["sh", "sdh"] is short for methods without settings under their own names
    [grid]                       # optional: every combination of these settings
    alpha = [0.1, 1, 10]
    [report]                     # how the report shows it; this does not affect runs
    kind = "table"
    metrics = ["map", "map_h2"]

A run is identified by the hash of everything that determines its result (:class:`RunSpec`), so a run that several
experiments plan is done once.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import numpy as np

from shorthash._validation import check_choice, check_n_bits
from shorthash.data.datasets import CATALOGUE, default_protocol
from shorthash.data.splits import protocol_from_dict
from shorthash.errors import DataFileError, InvalidInput, worded
from shorthash.learners.encoders import ENCODERS
from shorthash.methods import KERNEL, STEPS, default_params, recipes

TASKS = (
    *("scores", "conventions", "reranking", "neighbours", "few_labels", "pairs"),
    *("validation", "cost", "convergence", "embedding"),
)
KINDS = ("table", "lines", "heatmap", "convergence", "embedding", "cost")
SMOKE = "smoke"  # a quick test; not included when a folder of experiments is read
SLOW = {"auto": 8.0, "eaph": 8.0}  # approximate duration of a run of a method; 1 for all others


@dataclass(frozen=True)
class DatasetSpec:
    """A data set, its code lengths, and changes to its default protocol."""

    name: str
    bits: tuple[int, ...]
    protocol: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""


@dataclass(frozen=True)
class MethodSpec:
    """A method, the label of its row, and settings; ``on`` holds additional settings by data set."""

    name: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    encoder: str = ""
    on: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """Every method on every data set at every length with every seed (and every point of the grid), for one task."""

    name: str
    title: str
    task: str
    datasets: tuple[DatasetSpec, ...]
    methods: tuple[MethodSpec, ...]
    seeds: tuple[int, ...]
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """How the report shows it, one of ``KINDS``."""
        return str(self.report.get("kind", "table"))

    @functools.cached_property
    def _plan(self) -> tuple[PlannedRun, ...]:
        points = [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]
        return tuple(
            _planned(self, data, row, n_bits, seed, point)
            for data, row in itertools.product(self.datasets, self.methods)
            for n_bits in data.bits
            for point in points
            for seed in self.seeds
        )


@dataclass(frozen=True)
class Experiment:
    """A specification file: name, title, and one or more parts."""

    name: str
    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class RunSpec:
    """Everything that determines the result of a run.

    Attributes
    ----------
    task : one of ``TASKS``
    dataset : name or path
    protocol : of the split, with its seed
    seed : of the method; the same as that of the split
    method, n_bits : a method and a code length
    settings, front_end : parameters of the learner, and of the kernel, that differ from the defaults of the method
    encoder : encoder of ``CodewordHasher``; "" for the method's own
    """

    task: str
    dataset: str
    protocol: Mapping[str, Any]
    seed: int
    method: str
    n_bits: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    front_end: Mapping[str, Any] = field(default_factory=dict)
    encoder: str = ""

    @classmethod
    def of(
        cls,
        task: str,
        dataset: str,
        protocol: Mapping[str, Any],
        seed: int,
        method: str,
        n_bits: int,
        settings: Mapping[str, Any] | None = None,
        encoder: str = "",
    ) -> Self:
        """The canonical form of a run: settings that equal the defaults of the method are omitted.

        Parameters
        ----------
        task, dataset, protocol, seed, method, n_bits, encoder : as in the class
        settings : of the learner and, with the prefix ``kernel__``, of the kernel
        """
        given = dict(settings or {})
        front_end = {key.removeprefix(KERNEL): given.pop(key) for key in list(given) if key.startswith(KERNEL)}
        recipe = recipes()[method]
        learner = {**default_params(recipe.learner), **recipe.settings}
        kernel = {**default_params(STEPS["kernel"]), **recipe.kernel}
        changed = _differing(given, learner), _differing(front_end, kernel)
        return cls(task, dataset, protocol, seed, method, n_bits, *changed, encoder)

    @property
    def name(self) -> str:
        """First 16 digits of the sha256 of the canonical form."""
        return run_name(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """As it is stored in a record."""
        values = asdict(self)
        if not self.encoder:
            del values["encoder"]
        return json.loads(canonical(values))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class PlannedRun:
    """A run, and its position in an experiment.

    Attributes
    ----------
    part, row, dataset, n_bits, seed : its position; ``dataset`` is the name in the specification
    point : the values of the grid, if there is one
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


def read_experiment(path: str | Path) -> Experiment:
    """Read and check a specification file.

    Parameters
    ----------
    path : a .toml file, as the docstring of :mod:`shorthash.lab.spec` explains

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mine.toml"
    >>> part = 'name = "table"', 'datasets = [{name = "digits", bits = [4, 8]}]', 'methods = ["rslh", "auto"]'
    >>> _ = file.write_text(chr(10).join(['name = "mine"', "[[parts]]", *part]))
    >>> [part.name for part in read_experiment(file).parts]
    ['table']
    """
    file = Path(path)
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataFileError(f"There is no specification {file}; check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataFileError(f"{file} is not a TOML file: {error}; correct it.") from error
    try:
        with worded({}):  # parameters are those of the file
            return _experiment(values, file.stem)
    except InvalidInput as error:
        raise DataFileError(f"{file}: {error}") from error


def find_experiments(places: Sequence[str | Path]) -> list[Path]:
    """Specification files: the given files, and those in the given folders, tables first, without ``smoke.toml``.

    Parameters
    ----------
    places : .toml files and folders of them
    """
    found: list[Path] = []
    for place in map(Path, places):
        if not place.exists():
            raise DataFileError(f"There is no experiment {place}; give a .toml file, or a folder of them.")
        inside = sorted(place.glob("*.toml"), key=lambda file: (not file.stem.startswith("table"), file.stem))
        files = [file for file in inside if file.stem != SMOKE] if place.is_dir() else [place]
        if not files:
            raise DataFileError(f"The folder {place} holds no experiment; give one with .toml files, or a file.")
        found += [file for file in files if file not in found]
    return found


def plan_part(part: Part) -> tuple[PlannedRun, ...]:
    """Every run of a part, in the order of its data sets, methods, lengths, points of the grid and seeds."""
    return part._plan  # computed once: the name of every run is a checksum


def unique_runs(experiments: Iterable[Experiment]) -> dict[str, RunSpec]:
    """All runs that experiments plan, by name."""
    parts = [part for experiment in experiments for part in experiment.parts]
    return {run.name: run.spec for part in parts for run in plan_part(part)}


def group_runs(specs: Iterable[RunSpec]) -> list[tuple[RunSpec, ...]]:
    """Runs on one split that can share work, for one process; each run once, long groups first, costs last."""
    groups: dict[tuple[str, str, str], dict[str, RunSpec]] = {}
    for spec in specs:
        key = (spec.dataset, canonical(spec.protocol), _shared_work(spec))
        groups.setdefault(key, {})[spec.name] = spec
    ordered = [tuple(sorted(runs.values(), key=_order)) for runs in groups.values()]
    return sorted(ordered, key=lambda runs: (runs[0].task == "cost", -group_weight(runs)))


def group_weight(runs: Iterable[RunSpec]) -> float:
    """Approximate duration of runs, in units of a run of a typical method."""
    return sum(SLOW.get(run.method, 1.0) for run in runs)


def run_name(spec: Mapping[str, Any]) -> str:
    """The name of a run.

    Examples
    --------
    >>> run_name({"alpha": 1.0, "beta": 2}) == run_name({"beta": 2.0, "alpha": 1})
    True
    """
    return hashlib.sha256(canonical(spec).encode()).hexdigest()[:16]


def canonical(value: Any) -> str:
    """Canonical JSON: sorted keys, whole numbers without a decimal point, no spaces."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _experiment(values: dict[str, Any], stem: str) -> Experiment:
    name = str(values.get("name", stem))
    title = str(values.get("title", name))
    if "parts" not in values:
        return Experiment(name, title, (_part({"name": name, "title": title, **values}),))
    shared = {key: value for key, value in values.items() if key not in ("name", "title", "parts")}
    parts = tuple(_part({**shared, **part}) for part in values["parts"])
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        raise InvalidInput(f"the names of the parts must be different. Got {', '.join(names)} instead; rename some.")
    return Experiment(name, title, parts)


def _part(values: dict[str, Any]) -> Part:
    owner = f"part {values.get('name', '?')!r}"
    _check_keys(values, owner, Part, needed=("name", "datasets", "methods"))
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


def _dataset(values: dict[str, Any], owner: str) -> DatasetSpec:
    _check_keys(values, f"a data set of {owner}", DatasetSpec, needed=("name", "bits"))
    bits = tuple(check_n_bits(length, f"data set {values['name']!r}") for length in values["bits"])
    title = CATALOGUE[values["name"]].title if values["name"] in CATALOGUE else Path(values["name"]).stem
    return DatasetSpec(str(values["name"]), bits, dict(values.get("protocol", {})), str(values.get("title", title)))


def _method(values: dict[str, Any] | str, owner: str) -> MethodSpec:
    if isinstance(values, str):
        values = {"method": values}
    _check_keys(values, f"a method of {owner}", MethodSpec, needed=("method",))
    check_choice(values["method"], "method", owner, list(recipes()))
    encoder = values.get("encoder", "")
    check_choice(encoder, "encoder", owner, ["", *ENCODERS])
    return MethodSpec(
        name=str(values.get("name", values["method"])),
        method=values["method"],
        settings=_without_none(values.get("settings", {})),
        encoder=encoder,
        on={name: _without_none(settings) for name, settings in values.get("on", {}).items()},
    )


def _seeds(value: Any, owner: str) -> tuple[int, ...]:
    """0 to n - 1, or those listed."""
    seeds = tuple(range(value)) if type(value) is int else tuple(value) if isinstance(value, list) else ()
    if not seeds or not all(type(seed) is int and seed >= 0 for seed in seeds):
        raise InvalidInput(f"The 'seeds' of {owner} must be a count or a list of numbers >= 0. Got {value!r} instead.")
    return seeds


def _without_none(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with "none" as None, since TOML has no null."""
    return {key: None if value == "none" else value for key, value in settings.items()}


def _check_keys(values: Mapping[str, Any], owner: str, kind: type, *, needed: Sequence[str]) -> None:
    """Raise unless the keys are fields of a class, with those that are needed."""
    for key in values:
        check_choice(key, "key", owner, [each.name for each in fields(kind)])
    for key in needed:
        if not values.get(key):
            raise InvalidInput(f"{owner} has no {key!r}; add it (see docs/guide/bench.md).")


def _planned(
    part: Part, data: DatasetSpec, row: MethodSpec, n_bits: int, seed: int, point: dict[str, Any]
) -> PlannedRun:
    own = default_protocol(data.name).to_dict()
    base = own if data.protocol.get("kind", own["kind"]) == own["kind"] else {}
    protocol = protocol_from_dict({**base, **data.protocol, "seed": seed})
    settings = {**row.settings, **row.on.get(data.name, {}), **point}
    spec = RunSpec.of(part.task, data.name, protocol.to_dict(), seed, row.method, n_bits, settings, row.encoder)
    return PlannedRun(part.name, row.name, data.name, n_bits, seed, point, spec, spec.name)


def _shared_work(spec: RunSpec) -> str:
    """What a run shares with others: kernel features, posteriors, or (cost) nothing."""
    if spec.task == "cost":
        return spec.name
    recipe = recipes()[spec.method]
    if "kernel" in recipe.preprocessing:
        return f"kernel {canonical({**recipe.kernel, **spec.front_end, 'center': None})}"
    return spec.method if spec.method in SLOW else "plain"


def _order(run: RunSpec) -> tuple[Any, ...]:
    """By method and length, so that the order in a group does not depend on the experiments."""
    return run.method, canonical(run.settings), run.encoder, run.n_bits, run.task


def _differing(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that differ from the defaults; unknown names are kept, and ``make_hasher`` rejects them."""
    missing = object()
    return {key: value for key, value in given.items() if defaults.get(key, missing) != value}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InvalidInput(f"A setting of a run must be a number, a word, none, or a list of them. Got {value!r} instead.")
