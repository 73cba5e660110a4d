"""Arguments and options, and those that several commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from shorthash.data.tables import Columns

KERNEL = "kernel__"  # prefix of the settings of the kernel, as make_hasher takes them


def group(name: str, about: str | None) -> typer.Typer:
    """A group of commands; its help is the docstring of its file."""
    return typer.Typer(name=name, help=about, rich_markup_mode=None, add_completion=False)


def argument(metavar: str, text: str) -> Any:
    """A positional argument."""
    return typer.Argument(metavar=metavar, show_default=False, help=text)


def option(names: str, metavar: str, text: str, default: bool | str = True, **limits: Any) -> Any:
    """An option with a value.

    Parameters
    ----------
    names : the name, or the long and the short one: ``"--output -o"``
    metavar : what help shows for the value
    text : help
    default : what help shows as the default: True shows the Python value, words explain a None
    **limits : ``min`` or ``max`` of a number
    """
    return typer.Option(*names.split(), metavar=metavar, show_default=default, help=text, **limits)


def flag(name: str, text: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text)


Model = Annotated[Path, argument("MODEL", "Folder written by shorthash fit.")]
CollectionFolder = Annotated[Path, argument("MODEL", "Folder written by shorthash images fit.")]
Features = Annotated[Path, argument("FEATURES", "Feature rows: .npy, .npz, .csv or .parquet.")]
ModelOutput = Annotated[Path, option("--output -o", "MODEL", "Folder to write.")]
Bits = Annotated[int, option("--bits -b", "N", "Length of the codes, 1 to 64.")]
Preset = Annotated[str, option("--preset", "NAME", "Settings: paper, or a preset that shorthash methods lists.")]
Seed = Annotated[int, option("--seed", "N", "Seed of all random choices.", min=0)]
Settings = Annotated[list[str] | None, option("--set", "NAME=VALUE", "Set a parameter of the learner; repeatable.")]
LabelColumns = Annotated[
    list[str] | None,
    option("--label", "COLUMN", "Column of labels in the table; repeat it for several 0/1 columns."),
]
IdColumn = Annotated[str | None, option("--id", "COLUMN", "Column of ids in the table.")]
FeatureColumns = Annotated[
    str | None,
    option(
        "--features",
        "COLUMNS",
        "Columns of features in the table: names, ranges FIRST:LAST and patterns PREFIX*, separated by commas; or one "
        "column of vectors.",
        "all but --id and --label",
    ),
]
Separator = Annotated[
    str | None, option("--separator", "TEXT", "Text between labels, if a cell of --label holds several.")
]
FoundFile = Annotated[
    Path | None,
    option("--output -o", "FILE", "Write all neighbours to this file: .csv, .parquet or .jsonl.", "a table is printed"),
]
Checkpoint = Annotated[
    Path | None,
    option("--checkpoint", "FILE", "Save the sums to this file while reading; the next run continues from it."),
]
Radius = Annotated[int, option("--radius", "N", "Radius of the Hamming ball.")]
Neighbours = Annotated[int | None, option("-k", "N", "Number of neighbours.", "10")]
Probes = Annotated[
    str | None, option("--probes", "N", "Look up the N codes with the most relevant items, or: auto.", "none")
]
Show = Annotated[int, option("--show", "N", "Number of queries in the table.", min=0)]
DataDir = Annotated[
    Path | None, option("--data-dir", "FOLDER", "Folder of data sets, searched before $SHORTHASH_DATA.")
]
AsJson = Annotated[bool, flag("--json", "Print JSON instead of a table.")]


@dataclass(frozen=True)
class TableOptions:
    """What the columns of a table are, by --id, --label and --features."""

    id_column: IdColumn = None
    label: LabelColumns = None
    feature_columns: FeatureColumns = None

    @property
    def columns(self) -> Columns:
        """The same as the library takes it; one column of labels, or several that form an indicator matrix."""
        from shorthash.data.tables import Columns

        label, separator = self.label, getattr(self, "separator", None)
        if separator is not None and len(label or []) != 1:
            raise typer.BadParameter("it belongs to one column --label", param_hint="--separator")
        labels = label[0] if label and len(label) == 1 else label or None
        return Columns(self.id_column, labels, self.feature_columns, separator)


@dataclass(frozen=True)
class LabelledOptions(TableOptions):
    """The same, and --separator for rows with several labels."""

    separator: Separator = None


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """A command that may take dataclasses of options; typer sees their fields in place of such a parameter."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if is_dataclass(parameter.annotation):
            groups[parameter.name] = parameter.annotation
            parameters += inspect.signature(groups[parameter.name], eval_str=True).parameters.values()
        else:
            parameters.append(parameter)

    @functools.wraps(command)
    def call(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def parse_settings(given: list[str] | None) -> dict[str, Any]:
    """Read NAME=VALUE pairs as ``make_hasher`` takes them; numbers, true, false and none are converted.

    Examples
    --------
    >>> parse_settings(["alpha=7", "beta=1e-3", "boosting=none", "kernel.bandwidth=8"])
    {'alpha': 7, 'beta': 0.001, 'boosting': None, 'kernel__bandwidth': 8}
    """
    settings = {}
    for pair in given or []:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{pair!r} is not of the form NAME=VALUE", param_hint="--set")
        settings[name.replace("kernel.", KERNEL)] = _value(text)
    return settings


def parse_numbers(text: str | None, option: str) -> list[int] | None:
    """Read whole numbers separated by commas.

    Examples
    --------
    >>> parse_numbers("1,10,100", "--k")
    [1, 10, 100]
    """
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of whole numbers like 1,10,100", param_hint=option) from None


def parse_ids(words: list[str], ids: Any) -> list[int] | list[str]:
    """Ids given on the command line, as integers if ``ids``, the array of all ids, is of integers."""
    from shorthash.errors import InvalidInput

    if ids.dtype.kind == "U":
        return words
    try:
        return [int(word) for word in words]
    except ValueError:
        raise InvalidInput(f"The ids are integers. Got {' '.join(words)} instead.") from None


def _value(text: str) -> bool | int | float | str | None:
    words: dict[str, bool | None] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text
