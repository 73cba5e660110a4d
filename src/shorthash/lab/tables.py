"""Rows of results as text: markdown, LaTeX (best bold, second underlined) and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shorthash._validation import check_choice
from shorthash.errors import InvalidInput

__all__ = ["Column", "Table", "escape_latex", "to_csv", "to_latex", "to_markdown"]

ABSENT = "-"
LATEX = {  # one pass over the characters, so that what is put in is not escaped again
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "≤": r"$\le$",
    "µ": r"$\mu$",
    "±": r"$\pm$",
}


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    title : its head
    digits : decimals of its floats; None leaves values as they are
    best : "high" or "low": which values deserve a mark; None marks nothing
    text : whether it holds words, which stand on the left; numbers stand on the right
    """

    title: str
    digits: int | None = None
    best: str | None = None
    text: bool = False

    def show(self, value: object) -> str:
        """A value as this column prints it; None and nan are absent."""
        if _absent(value):
            return ABSENT
        return f"{value:.{self.digits}f}" if self.digits is not None else str(value)

    def rank(self, value: object) -> float | None:
        """The number by which a value is marked, as exact as it is printed; None if it is absent or no number."""
        if _absent(value):
            return None
        number = float(value) if hasattr(value, "__float__") else float(self.show(value))
        return None if math.isnan(number) else round(number, self.digits) if self.digits is not None else number


@dataclass(frozen=True)
class Table:
    """Columns and rows of values.

    Examples
    --------
    >>> columns = (Column("method", text=True), Column("mAP", digits=3, best="high"))
    >>> table = Table(columns, (("ours", 0.7123), ("theirs", 0.5)))
    >>> table.cells()
    [['ours', '0.712'], ['theirs', '0.500']]
    >>> table.marks()
    [['', 'best'], ['', 'second']]
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise InvalidInput(
                    f"Row {number} of a table must have {len(self.columns)} cells, as many as columns. Got {len(row)}."
                )
        for column in self.columns:
            check_choice(column.best, "best", "Column", ["high", "low", None])

    def cells(self) -> list[list[str]]:
        """All values as text."""
        return [[column.show(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows]

    def marks(self) -> list[list[str]]:
        """For every cell "best", "second" or nothing; values that print alike are marked alike."""
        by_column = [
            _marks([row[j] for row in self.rows], column) if column.best else [""] * len(self.rows)
            for j, column in enumerate(self.columns)
        ]
        return [list(marks) for marks in zip(*by_column, strict=True)] if self.rows else []


def to_markdown(table: Table) -> str:
    """The table in markdown, columns aligned, best values bold.

    Examples
    --------
    >>> print(to_markdown(Table((Column("bits"), Column("mAP", 2, "high")), ((4, 0.5), (6, 0.75)))), end="")
    | bits |      mAP |
    | ---: | -------: |
    |    4 |     0.50 |
    |    6 | **0.75** |
    """
    body = [
        [f"**{cell}**" if mark == "best" else cell.replace("|", r"\|") for cell, mark in zip(cells, marks, strict=True)]
        for cells, marks in zip(table.cells(), table.marks(), strict=True)
    ]
    widths = [max(3, *(len(row[j]) for row in [_titles(table), *body])) for j in range(len(table.columns))]
    rule = ["-" * width if c.text else "-" * (width - 1) + ":" for c, width in zip(table.columns, widths, strict=True)]
    lines = [
        [
            cell.ljust(width) if c.text else cell.rjust(width)
            for cell, width, c in zip(row, widths, table.columns, strict=True)
        ]
        for row in [_titles(table), *body]
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in [lines[0], rule, *lines[1:]])


def to_latex(table: Table) -> str:
    r"""The table as a LaTeX ``tabular`` with the rules of the booktabs package; best bold, second underlined.

    Examples
    --------
    >>> print(to_latex(Table((Column("bits"), Column("mAP", 2, "high")), ((4, 0.5), (6, 0.75)))), end="")
    \begin{tabular}{rr}
    \toprule
    bits & mAP \\
    \midrule
    4 & \underline{0.50} \\
    6 & \textbf{0.75} \\
    \bottomrule
    \end{tabular}
    """
    marked = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "": "%s"}
    body = [
        [marked[mark] % escape_latex(cell) for cell, mark in zip(cells, marks, strict=True)]
        for cells, marks in zip(table.cells(), table.marks(), strict=True)
    ]
    columns = "".join("l" if column.text else "r" for column in table.columns)
    head = [escape_latex(title) for title in _titles(table)]
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _latex_row(head), r"\midrule"]
    lines += [*(_latex_row(row) for row in body), r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """The table as comma-separated values: full precision, no marks, absent values empty.

    Examples
    --------
    >>> print(to_csv(Table((Column("bits"), Column("mAP", 2, "high")), ((4, 0.125), (6, None)))), end="")
    bits,mAP
    4,0.125
    6,
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_titles(table))
    writer.writerows([["" if _absent(value) else value for value in row] for row in table.rows])
    return out.getvalue()


def escape_latex(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    Examples
    --------
    >>> print(escape_latex("mAP@H<=2 & 50 %"))
    mAP@H$\le$2 \& 50 \%
    """
    return "".join(LATEX.get(character, character) for character in text.replace("<=", "≤"))


def _marks(values: Sequence[object], column: Column) -> list[str]:
    """Marks of one column, by what is printed."""
    shown = [column.rank(value) for value in values]
    ranked = sorted({number for number in shown if number is not None}, reverse=column.best == "high")
    names = dict(zip(ranked, ("best", "second"), strict=False))
    return ["" if number is None else names.get(number, "") for number in shown]


def _absent(value: object) -> bool:
    """Whether a value is None or nan."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _titles(table: Table) -> list[str]:
    return [column.title for column in table.columns]


def _latex_row(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"
