"""A whole report from specifications and stored records: sections, sentences, errata, provenance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shorthash.errors import DataFileError
from shorthash.lab.claims import Claim, claims_table, recompute
from shorthash.lab.collect import Records, by_run, collect_curves, collect_grid, collect_maps, collect_section
from shorthash.lab.errata import errata_table
from shorthash.lab.grid import ResultGrid
from shorthash.lab.plan import unique_runs
from shorthash.lab.printed import Printed, read_printed
from shorthash.lab.report_page import Report
from shorthash.lab.reproduction import figure_claims, verdict
from shorthash.lab.runs import canonical
from shorthash.lab.sections import HeatMap
from shorthash.lab.spec import Experiment, Part, read_experiment
from shorthash.lab.store import read_records
from shorthash.lab.tables import Column, Table

__all__ = ["Collected", "build_report", "collect", "find_experiments"]

SMOKE = "smoke"  # a quick test of the harness; in a report only by name
PAPER = ("table1", "table2", "figure1", "figure2")  # experiments about which the paper says something
PRINTED = "printed.csv"


@dataclass(frozen=True)
class Collected:
    """Experiments, and what is stored of them.

    Attributes
    ----------
    experiments : path of the specification -> experiment
    records : run -> record
    printed : numbers of the paper
    results : folder of the records
    """

    experiments: Mapping[Path, Experiment]
    records: Records
    printed: Printed = field(default_factory=dict)
    results: Path = Path("results")

    @property
    def of_the_paper(self) -> bool:
        """Whether the paper speaks about any of these experiments."""
        return any(experiment.name in PAPER for experiment in self.experiments.values())

    def command(self, path: Path) -> str:
        """What would run the missing runs of a specification."""
        beside = (path.parent / "results").resolve() == self.results.resolve()
        return f"shorthash bench run {path}" + ("" if beside else f" --results {self.results}")

    def parts(self, kind: str) -> list[Part]:
        """All parts of a kind, in order."""
        every = [part for experiment in self.experiments.values() for part in experiment.parts]
        return [part for part in every if part.report.get("kind", "table") == kind]

    def grid(self, name: str) -> ResultGrid | None:
        """The grid of the part of this name; None where there is none."""
        for kind in ("table", "cost"):
            for part in self.parts(kind):
                if part.name == name:
                    return collect_grid(part, self.records, self.printed)
        return None

    def claims(self) -> tuple[Claim, ...]:
        """Every numeric sentence of the paper that these experiments speak about."""
        table1 = self.grid("table1")
        spoken = () if table1 is None or not table1.has_printed else recompute(table1, self.grid("table2"))
        maps: list[HeatMap] = [m for part in self.parts("heatmap") for m in collect_maps(part, self.records)]
        curves = {k: v for part in self.parts("convergence") for k, v in collect_curves(part, self.records).items()}
        costs = [collect_grid(part, self.records) for part in self.parts("cost")]
        lines = [collect_grid(part, self.records) for part in self.parts("lines")]
        return (*spoken, *figure_claims(lines, maps, curves, costs[0] if costs else None))


def find_experiments(places: Sequence[str | Path]) -> list[Path]:
    """Specification files: those named, and all in the folders named, tables first, smoke tests left out.

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


def collect(places: Sequence[str | Path], results: str | Path) -> Collected:
    """Read experiments, records, and the printed numbers that lie beside the specifications.

    Parameters
    ----------
    places : .toml files and folders of them
    results : folder of records; it need not exist
    """
    experiments = {file: read_experiment(file) for file in find_experiments(places)}
    printed = {place: value for file in experiments for place, value in read_printed(file.parent / PRINTED).items()}
    return Collected(experiments, by_run(read_records(results)), printed, Path(results))


def build_report(collected: Collected) -> Report:
    """Everything the page shows.

    Parameters
    ----------
    collected : experiments and what is stored of them
    """
    sections = []
    for path, experiment in collected.experiments.items():
        for part in experiment.parts:
            name = part.name if part.name.startswith(experiment.name) else f"{experiment.name}-{part.name}"
            command = collected.command(path)
            sections.append(collect_section(part, name, collected.records, collected.printed, command))
    wanted = unique_runs(list(collected.experiments.values()))
    there = {name: record for name, record in collected.records.items() if name in wanted}
    extras = {}
    if collected.of_the_paper:
        text = "What the text says, recomputed from the printed tables and from the stored runs."
        extras["Sentences of the paper"] = (text, claims_table(collected.claims()))
        extras["Errata"] = ("What is wrong, missing or ambiguous in the paper, and what is done here.", errata_table())
    table1 = collected.grid("table1")
    verdicts = [] if table1 is None else [verdict(table1, metric) for metric in table1.metrics]
    seconds = sum(record.get("seconds", {}).get("wall", 0.0) for record in there.values())
    return Report(
        title="Short codes: the paper and what we measured" if collected.of_the_paper else "Experiments",
        lede=" ".join(verdicts) or "Results of the stored runs; nothing was learned for this page.",
        sections=sections,
        extras=extras,
        provenance=provenance(there),
        facts=[
            (f"{len(there)} of {len(wanted)}", "runs are stored"),
            (f"{seconds / 60:.0f} min", "of computing in them"),
            (str(len({record["data"]["name"] for record in there.values()})), "data sets"),
        ],
    )


def provenance(records: Records) -> dict[str, Table]:
    """Where the numbers come from: data, software and machines, and every run.

    Parameters
    ----------
    records : those that the report shows
    """
    return {"Data sets": _data(records), "Software and machines": _machines(records), "Runs": _runs(records)}


def _data(records: Records) -> Table:
    titles = ("data set", "rows", "features", "classes", "protocol", "fingerprint")
    found = {}
    for record in records.values():
        data, protocol = record["data"], {k: v for k, v in record["spec"]["protocol"].items() if k != "seed"}
        key = (data["name"], canonical(protocol))
        text = ", ".join(f"{name} {value}" for name, value in protocol.items())
        found[key] = (data["name"], data["rows"], data["dims"], data["classes"], text, str(data["fingerprint"])[:23])
    columns = tuple(Column(title, text=title in ("data set", "protocol", "fingerprint")) for title in titles)
    return Table(columns, tuple(found[key] for key in sorted(found)))


def _machines(records: Records) -> Table:
    counts: Counter[tuple[str, str]] = Counter()
    for record in records.values():
        versions = ", ".join(f"{name} {value}" for name, value in record.get("versions", {}).items())
        machine = record.get("machine", {})
        where = f"{machine.get('cpu', '?')}, {machine.get('cores', '?')} cores, {machine.get('system', '?')}"
        counts[versions, where] += 1
    columns = (Column("versions", text=True), Column("machine", text=True), Column("runs"))
    return Table(columns, tuple((*key, count) for key, count in sorted(counts.items())))


def _runs(records: Records) -> Table:
    columns = (
        *(Column(title, text=True) for title in ("run", "task", "data set", "method")),
        *(Column(title) for title in ("bits", "seed")),
        Column("mAP", 4),
        Column("fit s", 2),
        Column("peak MiB", 0),
        Column("made", text=True),
    )
    rows = [_run_row(name, record) for name, record in records.items()]
    return Table(columns, tuple(sorted(rows, key=lambda row: row[1:6])))


def _run_row(name: str, record: Mapping[str, Any]) -> tuple[Any, ...]:
    spec = record["spec"]
    settings = " ".join(f"{key}={value}" for key, value in spec.get("settings", {}).items())
    return (
        name,
        spec["task"],
        spec["dataset"],
        f"{spec['method']} {settings}".strip(),
        spec["n_bits"],
        spec["seed"],
        record.get("scores", {}).get("map", {}).get("mean"),
        record.get("seconds", {}).get("fit"),
        record.get("peak_memory_mib"),
        str(record.get("made", ""))[:16],
    )
