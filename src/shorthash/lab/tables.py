"""Tables as text (markdown, LaTeX, CSV), and grids of results: methods by data sets and code lengths.

A :class:`Table` is columns and rows of values. A :class:`ResultGrid` holds measured or printed scores.
"""

from __future__ import annotations

import csv
import io
import json
import math
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from shorthash._display import html_table, plain

ABSENT = "-"
NOT_RUN = "not run"
UNDEFINED = "not defined"
LATEX = {  # applied to one character at a time, so that replacements are not escaped again
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
LATEX_MARKS = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "": "%s"}


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    title : its header
    digits : decimals of its floats; None prints values unchanged
    best : "high" or "low": which values are marked as best and second; None marks none
    text : whether it contains text, which is aligned left; numbers are aligned right
    """

    title: str
    digits: int | None = None
    best: Literal["high", "low"] | None = None
    text: bool = False

    def show(self, value: object) -> str:
        """A value as this column prints it; None and nan are absent."""
        if _absent(value):
            return ABSENT
        return f"{value:.{self.digits}f}" if self.digits is not None else str(value)

    def rank(self, value: object) -> float | None:
        """The number by which a value is marked, rounded as it is printed; None if it is absent or not a number."""
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
    >>> table = Table(columns, (("rslh", 0.7123), ("sdh", 0.5)))
    >>> table.cells()
    [['rslh', '0.712'], ['sdh', '0.500']]
    >>> table.marks()
    [['', 'best'], ['', 'second']]
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def titles(self) -> list[str]:
        """Titles of the columns."""
        return [column.title for column in self.columns]

    def cells(self) -> list[list[str]]:
        """All values as text."""
        return [[column.show(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows]

    def marks(self) -> list[list[str]]:
        """For every cell "best", "second" or ""; values that are printed alike are marked alike."""
        by_column = [
            _marks([row[j] for row in self.rows], column) if column.best else [""] * len(self.rows)
            for j, column in enumerate(self.columns)
        ]
        return [list(marks) for marks in zip(*by_column, strict=True)] if self.rows else []

    def marked_cells(self) -> list[list[tuple[str, str]]]:
        """All values as text, each with its mark."""
        return [list(zip(*row, strict=True)) for row in zip(self.cells(), self.marks(), strict=True)]


def make_table(
    titles: Sequence[str],
    rows: Iterable[tuple[Any, ...]],
    *,
    text: Collection[str] = (),
    digits: Mapping[str, int] | None = None,
) -> Table:
    """A table without marks.

    Parameters
    ----------
    titles : of the columns
    rows : values
    text : titles of the columns of words, which are aligned left
    digits : title -> decimals of its numbers
    """
    columns = tuple(Column(title, (digits or {}).get(title), text=title in text) for title in titles)
    return Table(columns, tuple(rows))


def attribute_table(columns: Mapping[str, Column], objects: Iterable[object]) -> Table:
    """A row per object, with the values of some of its attributes.

    Parameters
    ----------
    columns : name of the attribute (dots for attributes of attributes) -> column
    objects : what the rows show
    """
    return Table(tuple(columns.values()), tuple(map(operator.attrgetter(*columns), objects)))


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
        [f"**{cell}**" if mark == "best" else cell.replace("|", r"\|") for cell, mark in row]
        for row in table.marked_cells()
    ]
    lines = [table.titles, *body]
    widths = [max(3, *(len(line[j]) for line in lines)) for j in range(len(table.columns))]
    aligned = [
        [
            cell.ljust(width) if column.text else cell.rjust(width)
            for cell, width, column in zip(line, widths, table.columns, strict=True)
        ]
        for line in lines
    ]
    rule = ["-" * w if column.text else "-" * (w - 1) + ":" for column, w in zip(table.columns, widths, strict=True)]
    return "".join(f"| {' | '.join(line)} |\n" for line in [aligned[0], rule, *aligned[1:]])


def to_html(table: Table, caption: str = "") -> str:
    """A table as HTML, for notebooks.

    Examples
    --------
    >>> to_html(make_table(["bits"], [(8,)]))
    '<table><thead><tr><th>bits</th></tr></thead><tbody><tr><td>8</td></tr></tbody></table>'
    """
    return html_table(table.titles, table.cells(), caption)


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
    body = [[LATEX_MARKS[mark] % _escape_latex(cell) for cell, mark in row] for row in table.marked_cells()]
    columns = "".join("l" if column.text else "r" for column in table.columns)
    head = [_escape_latex(title) for title in table.titles]
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
    writer.writerow(table.titles)
    writer.writerows([["" if _absent(value) else value for value in row] for row in table.rows])
    return out.getvalue()


def to_json(value: Any) -> str:
    """Values as JSON text: arrays become lists, nan and infinity become null, other objects their text.

    Examples
    --------
    >>> print(to_json({"map": float("nan")}))
    {
      "map": null
    }
    """
    return json.dumps(plain(value), indent=2, ensure_ascii=False, default=str)


def _escape_latex(text: str) -> str:
    r"""Text with the special characters of LaTeX escaped.

    Examples
    --------
    >>> print(_escape_latex("mAP@H<=2 & 50 %"))
    mAP@H$\le$2 \& 50 \%
    """
    return "".join(LATEX.get(character, character) for character in text.replace("<=", "≤"))


@dataclass(frozen=True)
class Cell:
    """One number of a grid.

    Attributes
    ----------
    mean, std : over the seeds; nan where nothing was run, and std also where one seed was
    n_seeds, n_planned : seeds that were run, and that the experiment plans
    undefined : whether the method is not defined for this code length

    Examples
    --------
    >>> f"{Cell(0.5, 0.01, 5, 5):.3f}", f"{Cell(0.5, float('nan'), 1, 1):.3f}", f"{Cell():.3f}"
    ('0.500 ± 0.010', '0.500', 'not run')
    """

    mean: float = math.nan
    std: float = math.nan
    n_seeds: int = 0
    n_planned: int = 0
    undefined: bool = False

    def __float__(self) -> float:
        return self.mean

    def __format__(self, spec: str) -> str:
        if math.isnan(self.mean):
            return UNDEFINED if self.undefined else NOT_RUN
        return f"{self.mean:{spec}}" + ("" if math.isnan(self.std) else f" ± {self.std:{spec}}")

    def __str__(self) -> str:
        return f"{self:.4f}"


@dataclass(frozen=True)
class ResultGrid:
    """Scores of every row (method) on every data set at every code length.

    Attributes
    ----------
    title : title of the table
    rows : methods, in the order of the table
    columns : (data set, bits), in the order of the table
    metrics : metric -> (row, data set, bits) -> cell; runs that are not planned have no cell
    """

    title: str
    rows: tuple[str, ...]
    columns: tuple[tuple[str, int], ...]
    metrics: Mapping[str, Mapping[tuple[str, str, int], Cell]] = field(default_factory=dict)

    @property
    def datasets(self) -> tuple[str, ...]:
        """Data sets, in the order of the table."""
        return tuple(dict.fromkeys(name for name, _ in self.columns))

    def lengths(self, dataset: str) -> tuple[int, ...]:
        """Code lengths of a data set, in the order of the table."""
        return tuple(bits for name, bits in self.columns if name == dataset)

    def cell(self, metric: str, row: str, dataset: str, bits: int) -> Cell | None:
        """One cell; None if the run is not planned."""
        return self.metrics.get(metric, {}).get((row, dataset, bits))

    def values(self, metric: str, dataset: str, bits: int) -> dict[str, float]:
        """Row -> mean, of one column; rows without a number are left out."""
        cells = {row: self.cell(metric, row, dataset, bits) for row in self.rows}
        return {row: cell.mean for row, cell in cells.items() if cell is not None and not math.isnan(cell.mean)}


def mean_table(grid: ResultGrid, metric: str, dataset: str, *, digits: int = 4) -> Table:
    """Means and standard deviations of one data set: a row per method, a column per length, best marked.

    Parameters
    ----------
    grid : the results
    metric, dataset : which of them
    digits : decimals
    """
    lengths = grid.lengths(dataset)
    columns = (Column("method", text=True), *(Column(f"{bits} bits", digits, "high") for bits in lengths))
    rows = tuple((row, *(grid.cell(metric, row, dataset, bits) for bits in lengths)) for row in grid.rows)
    return Table(columns, rows)


def metric_table(grid: ResultGrid, dataset: str, digits: Mapping[str, int]) -> Table:
    """All metrics of one data set side by side, lower is better: for costs.

    Parameters
    ----------
    grid : the results
    dataset : which of them
    digits : metric -> decimals
    """
    lengths = grid.lengths(dataset)
    places = [(metric, bits) for bits in lengths for metric in grid.metrics]
    heads = [metric if len(lengths) == 1 else f"{metric}, {bits} bits" for metric, bits in places]
    columns = [Column(head, digits.get(m, 2), "low") for head, (m, _) in zip(heads, places, strict=True)]
    rows = tuple((row, *(grid.cell(metric, row, dataset, bits) for metric, bits in places)) for row in grid.rows)
    return Table((Column("method", text=True), *columns), rows)


def grid_table(grid: ResultGrid) -> Table:
    """One row per number of a grid, for a CSV file."""
    titles = ("metric", "method", "dataset", "bits", "mean", "std", "seeds")
    rows = tuple(
        (metric, row, dataset, bits, cell.mean, cell.std, cell.n_seeds)
        for metric in grid.metrics
        for row in grid.rows
        for dataset, bits in grid.columns
        if (cell := grid.cell(metric, row, dataset, bits)) is not None
    )
    return Table(tuple(Column(title) for title in titles), rows)


def grid_latex(grid: ResultGrid, *, digits: int = 4) -> str:
    r"""One wide LaTeX ``tabular``: data sets side by side, a panel per metric, best bold, second best underlined.

    Parameters
    ----------
    grid : the results
    digits : decimals
    """
    head = ["Method", *(f"{bits} bits" for _, bits in grid.columns)]
    spans, rules, first = [""], [], 2
    for dataset in grid.datasets:
        width = len(grid.lengths(dataset))
        spans.append(rf"\multicolumn{{{width}}}{{c}}{{{_escape_latex(dataset)}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    lines = [rf"\begin{{tabular}}{{l{'r' * len(grid.columns)}}}", r"\toprule", _latex_row(spans)]
    lines += ["".join(rules), _latex_row(head)]
    for metric in grid.metrics:
        panel = rf"\multicolumn{{{len(head)}}}{{l}}{{\emph{{{_escape_latex(metric)}}}}} \\"
        lines += [r"\midrule", panel, *_latex_panel(grid, metric, digits)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _latex_panel(grid: ResultGrid, metric: str, digits: int) -> list[str]:
    """The rows of one metric: means, and standard deviations where there are several seeds."""
    cells: dict[str, list[str]] = {row: [_escape_latex(row)] for row in grid.rows}
    for dataset in grid.datasets:
        table = mean_table(grid, metric, dataset, digits=digits)
        for row, marks in zip(table.rows, table.marks(), strict=True):
            for value, mark, column in zip(row[1:], marks[1:], table.columns[1:], strict=True):
                number = column.rank(value)
                cells[row[0]].append(
                    "--" if number is None else LATEX_MARKS[mark] % _escape_latex(f"{value:.{digits}f}")
                )
    return [_latex_row(row) for row in cells.values()]


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _marks(values: Sequence[object], column: Column) -> list[str]:
    """Marks of one column, by what is printed."""
    shown = [column.rank(value) for value in values]
    ranked = sorted({number for number in shown if number is not None}, reverse=column.best == "high")
    names = dict(zip(ranked, ("best", "second"), strict=False))
    return ["" if number is None else names.get(number, "") for number in shown]


def _absent(value: object) -> bool:
    """Whether a value is None or nan."""
    return value is None or (isinstance(value, float) and math.isnan(value))
