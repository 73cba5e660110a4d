"""All that is printed: tables or JSON on standard output; progress, warnings and errors on standard error."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from shorthash._progress import Progress, reporting, set_config

if TYPE_CHECKING:
    from shorthash.lab.tables import Table

PIPE_WIDTH = 100  # columns where there is no terminal
UNBOUNDED = 10_000  # columns of a terminal in which everything fits
_silenced = {"warning": False}  # kinds of messages that are not printed


def show(
    data: Mapping[str, Any],
    facts: Mapping[str, str] | None = None,
    tables: Sequence[Table] = (),
    notes: Sequence[str] = (),
    *,
    as_json: bool,
) -> None:
    """Print the results of a command.

    Parameters
    ----------
    data : all results, printed if ``as_json``
    facts : name -> text, printed as two columns otherwise; None: taken from ``data``
    tables, notes : tables below the facts, and lines below the tables
    as_json : whether ``--json`` was given
    """
    if as_json:
        from shorthash.lab.tables import to_json

        print(to_json(data))
        return
    if facts is None:
        facts = facts_of(data)
    if facts:
        _print_grid(_facts_grid(facts))
    for number, each in enumerate(tables):
        if facts or number:
            print()
        _print_grid(_table_grid(each), _table_grid(each, narrow=True))
    for note in notes:
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


def table(
    titles: Sequence[str],
    rows: Iterable[tuple[Any, ...]],
    *,
    text: Collection[str] = (),
    digits: Mapping[str, int] | None = None,
) -> Table:
    """A table to show, see ``lab.tables.make_table``; columns of ``text`` may be folded."""
    from shorthash.lab.tables import make_table

    return make_table(titles, rows, text=text, digits=digits)


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
