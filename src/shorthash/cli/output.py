"""The one renderer: tables or JSON on standard output, everything else on standard error. The only prints."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from shorthash.lab.tables import Table

__all__ = ["Answer", "complain", "say", "show"]

PIPE_WIDTH = 100  # columns where no terminal tells
UNBOUNDED = 10_000  # columns of a terminal in which everything fits


@dataclass(frozen=True)
class Answer:
    """What a command has to say.

    Attributes
    ----------
    data : everything, for ``--json``
    facts : name -> text, printed as two columns
    tables : printed below the facts
    notes : lines below the tables
    """

    data: Mapping[str, Any]
    facts: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()


def show(answer: Answer, *, as_json: bool) -> None:
    """Print an answer."""
    if as_json:
        print(json.dumps(_plain(answer.data), indent=2, ensure_ascii=False))
        return
    if answer.facts:
        _print_grid(_facts_grid(answer.facts))
    for number, table in enumerate(answer.tables):
        if answer.facts or number:
            print()
        _print_grid(_table_grid(table), _table_grid(table, narrow=True))
    print(*answer.notes, sep="\n", end="\n" if answer.notes else "")


def say(text: str) -> None:
    """Print a line."""
    print(text)


def complain(kind: str, message: str) -> None:
    """Print one line to standard error, whatever the number of lines in the message."""
    print(f"{kind}: {' '.join(message.split())}", file=sys.stderr)


def _facts_grid(facts: Mapping[str, str]) -> Any:
    """Names and what there is to say about them."""
    from rich.table import Table as Grid

    grid = Grid(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in facts.items():
        grid.add_row(name, text)
    return grid


def _table_grid(table: Table, *, narrow: bool = False) -> Any:
    """A table of the report, for the terminal; columns of words may fold, numbers never break."""
    from rich import box
    from rich.table import Table as Grid

    gap = 1 if narrow else 2
    vertical: Literal["top", "bottom"] = "bottom" if narrow else "top"
    grid = Grid(box=box.SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    cells = table.cells()
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
    """Print a grid; where it does not fit, its narrow form; where that does not fit either, lines are long."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    unbounded = console.options.update(max_width=UNBOUNDED)
    if narrow is not None and console.measure(grid, options=unbounded).minimum > console.width:
        grid = narrow
    console.width = max(console.width, console.measure(grid, options=unbounded).minimum)
    with console.capture() as captured:
        console.print(grid)
    print("\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n")))


def _plain(value: Any) -> Any:
    """A value as JSON knows it: arrays become lists, nan becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)
