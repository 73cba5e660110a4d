"""What commands share: arguments, options and output.

Tables or JSON go to standard output; progress, warnings and errors to standard error.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

import typer

from shorthash._progress import Progress, reporting, set_config
from shorthash.errors import InvalidInput

if TYPE_CHECKING:
    from shorthash.data.tables import Columns
    from shorthash.lab.tables import Table

KERNEL = "kernel__"  # prefix of the settings of the kernel, as make_hasher takes them
PIPE_WIDTH = 100  # columns if the output is not a terminal
UNBOUNDED = 10_000  # columns that any table fits in
Command = TypeVar("Command", bound=Callable[..., Any])
_silenced = {"warning": False}  # kinds of messages that are not printed


class Group(typer.Typer):
    """A group of commands that return results.

    Parameters
    ----------
    **settings : as typer takes them, such as ``help``
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(rich_markup_mode=None, add_completion=False, **settings)

    def command(self, name: str | None = None) -> Callable[[Command], Command]:  # type: ignore[override]
        """A decorator that adds a command, and returns the function as it is."""
        register = super().command(name)

        def add(function: Command) -> Command:
            register(as_command(function))
            return function

        return add


def argument(metavar: str, text: str) -> Any:
    """A positional argument."""
    return typer.Argument(metavar=metavar, show_default=False, help=text)


def option(metavar: str, text: str, default: bool | str = True, names: str = "", **more: Any) -> Any:
    """An option with a value.

    Parameters
    ----------
    metavar : what help shows for the value
    text : help
    default : what help shows as the default: True shows the Python value, words explain a None
    names : ``"--output -o"``; "": the name of the parameter
    **more : ``min`` or ``max`` of a number; ``parser`` of the text
    """
    return typer.Option(*names.split(), metavar=metavar, show_default=default, help=text, **more)


def flag(name: str, text: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text)


def misuse(rule: str, option: str | None = None) -> typer.BadParameter:
    """The error for an option that breaks a rule; it is raised by the caller."""
    return typer.BadParameter(rule, param_hint=option)


def parse_probes(text: str) -> int | str:
    """Read the value of --probes."""
    if text == "auto":
        return text
    if text.isdecimal() and int(text):
        return int(text)
    raise misuse(f"must be a number of at least 1, or auto. Got {text!r}", "--probes")


def parse_numbers(text: str) -> list[int]:
    """Read whole numbers separated by commas.

    Examples
    --------
    >>> parse_numbers("1,10,100")
    [1, 10, 100]
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of whole numbers like 1,10,100") from None


def parse_names(text: str) -> list[str]:
    """Read names separated by commas.

    Examples
    --------
    >>> parse_names("rslh, auto")
    ['rslh', 'auto']
    """
    return [name for part in text.split(",") if (name := part.strip())]


def check_file(path: Path | None, option: str, *endings: str) -> None:
    """Raise if the file of an option does not have one of the endings (of tables, by default) or cannot be written."""
    from shorthash.data.files import WRITTEN_ENDINGS, check_place

    if path is not None:
        if path.suffix.lower() not in (endings or WRITTEN_ENDINGS):
            raise misuse(f"{path} does not end in {' or '.join(endings or WRITTEN_ENDINGS)}", option)
        check_place(path)


def numbers(text: str, default: str, names: str = "") -> Any:
    """An option with several whole numbers."""
    return option("N,N,...", text, default, names, parser=parse_numbers)


def names(text: str, default: bool | str = True) -> Any:
    """An option with several names."""
    return option("NAME,...", text, default, parser=parse_names)


Model = Annotated[Path, argument("MODEL", "Folder written by shorthash fit.")]
CollectionFolder = Annotated[Path, argument("MODEL", "Folder written by shorthash images fit.")]
Features = Annotated[Path, argument("FEATURES", "Feature rows: .npy, .npz, .csv or .parquet.")]
ModelOutput = Annotated[Path, option("MODEL", "Folder to write.", names="--output -o")]
Bits = Annotated[int, option("N", "Length of the codes, 1 to 64.", names="--bits -b")]
Preset = Annotated[str, option("NAME", "Settings: paper, or a preset that shorthash methods lists.")]
Seed = Annotated[int, option("N", "Seed of all random choices.", min=0)]
Settings = Annotated[
    list[str] | None, option("NAME=VALUE", "Set a parameter of the learner; repeatable.", names="--set")
]
LabelColumns = Annotated[
    list[str] | None, option("COLUMN", "Column of labels in the table; repeat it for several 0/1 columns.")
]
IdColumn = Annotated[str | None, option("COLUMN", "Column of ids in the table.", names="--id")]
FeatureColumns = Annotated[
    str | None,
    option(
        "COLUMNS",
        "Columns of features in the table: names, ranges FIRST:LAST and patterns PREFIX*, separated by commas; or one "
        "column of vectors.",
        "all other columns",
        names="--features",
    ),
]
Separator = Annotated[str | None, option("TEXT", "Text between labels, if a cell of --label holds several.")]
FoundFile = Annotated[
    Path | None,
    option(
        "FILE",
        "Write all neighbours to this file: .csv, .parquet or .jsonl.",
        "a table is printed",
        names="--output -o",
    ),
]
Checkpoint = Annotated[
    Path | None, option("FILE", "Save the sums to this file while reading; the next run continues from it.")
]
Radius = Annotated[int, option("N", "Radius of the Hamming ball.")]
Neighbours = Annotated[int | None, option("N", "Number of neighbours.", "10", names="-k")]
Probes = Annotated[
    Any,
    option(
        "N",
        "Number of codes to look up, the most promising first; or auto.",
        "none",
        parser=parse_probes,
    ),
]
Show = Annotated[int, option("N", "Number of queries in the table.", min=0)]
DataDir = Annotated[Path | None, option("FOLDER", "Folder of data sets, searched before $SHORTHASH_DATA.")]


@dataclass(frozen=True)
class TableOptions:
    """What the columns of a table are, by --id and --features."""

    id_column: IdColumn = None
    feature_columns: FeatureColumns = None

    @property
    def columns(self) -> Columns:
        """The same as the library takes it; one column of labels, or several that form an indicator matrix."""
        from shorthash.data.tables import Columns

        label, separator = getattr(self, "label", None), getattr(self, "separator", None)
        if separator is not None and len(label or []) != 1:
            raise misuse("it belongs to one column --label", "--separator")
        labels = label[0] if label and len(label) == 1 else label or None
        return Columns(self.id_column, labels, self.feature_columns, separator)


@dataclass(frozen=True)
class LabelOptions(TableOptions):
    """The same, and --label."""

    label: LabelColumns = None


@dataclass(frozen=True)
class LabelledOptions(LabelOptions):
    """The same, and --separator for rows with several labels."""

    separator: Separator = None


def as_command(function: Callable[..., Any]) -> Callable[..., None]:
    """A function as typer takes it: a parameter that is a dataclass of options is replaced by its fields.

    A function that returns a ``Result`` gets the option --json, and its result is printed.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    signature = inspect.signature(function, eval_str=True)
    for parameter in signature.parameters.values():
        if is_dataclass(parameter.annotation):
            groups[parameter.name] = parameter.annotation
            hints = get_type_hints(parameter.annotation, include_extras=True)
            inner = inspect.signature(groups[parameter.name]).parameters.values()
            parameters += [option.replace(annotation=hints[option.name]) for option in inner]
        else:
            parameters.append(parameter)
    if signature.return_annotation is Result:
        json = Annotated[bool, flag("--json", "Print JSON instead of a table.")]
        parameters.append(inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=json))

    @functools.wraps(function)
    def call(as_json: bool = False, **given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        result = function(**given)
        if isinstance(result, Result):
            result.show(as_json=as_json)
            raise typer.Exit(result.status)

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
            raise misuse(f"{pair!r} is not of the form NAME=VALUE", "--set")
        settings[name.replace("kernel.", KERNEL)] = _value(text)
    return settings


def parse_ids(words: list[str], ids: Any) -> list[int] | list[str]:
    """Ids given on the command line, as integers if ``ids``, the array of all ids, is of integers."""
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


@dataclass(frozen=True)
class Result:
    """What a command prints.

    Attributes
    ----------
    data : all results, printed with --json
    facts : name -> text, printed as two columns otherwise, or one text; None: taken from ``data``
    tables, notes : tables below the facts, and lines below the tables
    status : exit status of the command
    """

    data: Mapping[str, Any]
    facts: Mapping[str, str] | str | None = None
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    status: int = 0

    def show(self, *, as_json: bool) -> None:
        """Print it."""
        if as_json:
            from shorthash.lab.tables import to_json

            print(to_json(self.data))
            return
        facts = facts_of(self.data) if self.facts is None else self.facts
        if isinstance(facts, str):
            print(facts)
        elif facts:
            _print_grid(_facts_grid(facts))
        for number, each in enumerate(self.tables):
            if facts or number:
                print()
            _print_grid(_table_grid(each), _table_grid(each, narrow=True))
        for note in self.notes:
            say(note)


def facts_of(data: Mapping[str, Any]) -> dict[str, str]:
    """Results as text; a list is shown by its length, and empty values and nested results are left out.

    Examples
    --------
    >>> facts_of({"n_rows": 60, "seconds": 0.1234, "signs": False, "label": None, "missing_ids": [3, 5]})
    {'rows': '60', 'seconds': '0.12', 'signs': 'no', 'missing ids': '2'}
    """
    facts = {}
    for key, value in data.items():
        if value is None or value == "" or isinstance(value, Mapping):
            continue
        text = str(len(value) if isinstance(value, list) else value)
        if isinstance(value, bool):
            text = "yes" if value else "no"
        elif isinstance(value, float):
            text = f"{value:.2f}"
        facts[key.removeprefix("n_").replace("_", " ")] = text
    return facts


def code_facts(quality: Mapping[str, Any], what: str, group: str = "class") -> dict[str, str]:
    """Statistics of codes (``CodeQuality``) as text; ``what`` has codes, and purity is measured by ``group``."""
    facts = {
        "buckets": f"{quality['occupied_codes']} in use, the largest holds {quality['largest_bucket']} {what}",
        "entropy": f"{quality['entropy']:.2f} bits",
        "imbalance": f"{quality['imbalance']:.3f} (0: every bit splits the {what} in half)",
        "correlation": f"{quality['mean_correlation']:.3f} (0: bits are independent)",
    }
    if quality["class_collisions"] >= 0:
        facts["collisions"] = f"{quality['class_collisions']} ({group} pairs with the same main bucket)"
        facts["purity"] = f"{quality['purity']:.3f} of the {what} belong to the main {group} of their bucket"
    return facts


def table(titles: Sequence[str], rows: Iterable[tuple[Any, ...]], **columns: Any) -> Table:
    """A table to show; ``text`` and ``digits`` are those of ``lab.tables.make_table``."""
    from shorthash.lab.tables import make_table

    return make_table(titles, rows, **columns)


def records(table: Table) -> list[dict[str, Any]]:
    """The rows of a table as JSON objects."""
    return [dict(zip(table.titles, row, strict=True)) for row in table.rows]


def say(text: str) -> None:
    """Print a line."""
    print(printable(text))


def complain(kind: str, message: str) -> None:
    """Print a message to standard error as one line."""
    if not _silenced.get(kind, False):
        print(printable(f"{kind}: {' '.join(message.split())}"), file=sys.stderr)


def printable(text: str) -> str:
    r"""Text without characters that a terminal would obey: they are written as escapes.

    Examples
    --------
    >>> printable("cat\x1b[31m")
    'cat\\x1b[31m'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


@contextmanager
def progress() -> Iterator[Progress]:
    """A function to call with every step; it moves a bar on a terminal, and writes lines elsewhere."""
    with reporting(default=True, after=0) as step:
        yield step


def set_verbosity(*, quiet: bool, verbose: bool) -> None:
    """Show neither progress nor warnings (``quiet``), or a line for every step (``verbose``)."""
    if quiet or verbose:
        set_config(progress=False if quiet else "lines")
    _silenced["warning"] = quiet


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print warnings for users as one line, each of them once; other warnings are printed as usual."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def showwarning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, UserWarning):
                complain("warning", str(message))
            else:
                usual(message, category, *place, **more)

        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = showwarning
        yield


def _facts_grid(facts: Mapping[str, str]) -> Any:
    """Names and values in two columns."""
    from rich.table import Table as Grid

    grid = Grid(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in facts.items():
        grid.add_row(name, printable(text))
    return grid


def _table_grid(table: Table, *, narrow: bool = False) -> Any:
    """A table for the terminal; columns of words may be folded, numbers are never broken."""
    from rich import box
    from rich.table import Table as Grid

    gap = 1 if narrow else 2
    vertical: Literal["top", "bottom"] = "bottom" if narrow else "top"
    grid = Grid(box=box.SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    cells = [[printable(text) for text in row] for row in table.cells()]
    for j, column in enumerate(table.columns):
        title = column.title.replace(" ", "\n").replace("@", "\n@") if narrow else column.title
        widest = max(len(text) for text in [*title.split("\n"), *(row[j] for row in cells)])
        if column.text:
            grid.add_column(title, vertical=vertical, overflow="fold")
        else:
            grid.add_column(title, justify="right", vertical=vertical, no_wrap=True, min_width=widest)
    for row in cells:
        grid.add_row(*row)
    return grid


def _print_grid(grid: Any, narrow: Any = None) -> None:
    """Print a grid; its narrow form where it does not fit; long lines where that does not fit either."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    unbounded = console.options.update(max_width=UNBOUNDED)
    if narrow is not None and console.measure(grid, options=unbounded).minimum > console.width:
        grid = narrow
    console.width = max(console.width, console.measure(grid, options=unbounded).minimum)
    with console.capture() as captured:
        console.print(grid)
    print("\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n")))
