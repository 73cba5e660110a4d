"""Arguments that the bench verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from shorthash.cli.options import argument, option

if TYPE_CHECKING:
    from shorthash.lab.spec import Experiment

__all__ = ["DataDir", "Results", "Specs", "experiments", "results_folder"]

Specs = Annotated[list[Path], argument("SPEC", "Specifications: .toml files.")]
Results = Annotated[
    Path | None,
    option("--results", "-r", metavar="FOLDER", text="Folder of the records.", default="results beside the first SPEC"),
]
DataDir = Annotated[
    Path | None, option("--data-dir", metavar="FOLDER", text="Folder to look for data in, before SHORTHASH_DATA.")
]


def experiments(specs: list[Path]) -> list[Experiment]:
    """Read every specification before anything else happens."""
    from shorthash.lab.spec import read_experiment

    return [read_experiment(path) for path in specs]


def results_folder(results: Path | None, specs: list[Path]) -> Path:
    """Where the records are."""
    return specs[0].parent / "results" if results is None else results
