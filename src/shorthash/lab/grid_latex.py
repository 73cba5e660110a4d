r"""A grid of results as one wide LaTeX table, laid out as in the paper: data sets side by side, a panel per metric."""

from __future__ import annotations

from shorthash.lab.grid import ResultGrid, mean_table
from shorthash.lab.tables import escape_latex

__all__ = ["grid_latex"]

MARKED = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "": "%s"}


def grid_latex(grid: ResultGrid, *, digits: int = 4, printed: bool = False) -> str:
    r"""A ``tabular`` with the rules of the booktabs package; best bold, second best underlined, as in the paper.

    Parameters
    ----------
    grid : the results; every metric becomes a panel
    digits : decimals
    printed : show the numbers of the paper instead of ours
    """
    head = ["Method", *(rf"{bits} bits" for _, bits in grid.columns)]
    spans, rules, first = [], [], 2
    for dataset in grid.datasets:
        width = len(grid.lengths(dataset))
        spans.append(rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(dataset)}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    lines = [rf"\begin{{tabular}}{{l{'r' * len(grid.columns)}}}", r"\toprule", " & ".join(["", *spans]) + r" \\"]
    lines += ["".join(rules), " & ".join(head) + r" \\"]
    for metric in grid.metrics:
        panel = rf"\multicolumn{{{len(head)}}}{{l}}{{\emph{{{escape_latex(metric)}}}}} \\"
        lines += [r"\midrule", panel, *_panel(grid, metric, digits, printed)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _panel(grid: ResultGrid, metric: str, digits: int, printed: bool) -> list[str]:
    """The rows of one metric."""
    cells: dict[str, list[str]] = {row: [escape_latex(row)] for row in grid.rows}
    for dataset in grid.datasets:
        table = mean_table(grid, metric, dataset, digits=digits)
        if printed:
            numbers = tuple((row[0], *(None if c is None else c.printed for c in row[1:])) for row in table.rows)
            table = type(table)(table.columns, numbers)
        for row, marks in zip(table.rows, table.marks(), strict=True):
            for value, mark, column in zip(row[1:], marks[1:], table.columns[1:], strict=True):
                number = column.rank(value)
                cells[row[0]].append("--" if number is None else MARKED[mark] % f"{number:.{digits}f}")
    return [" & ".join(row) + r" \\" for row in cells.values() if not printed or set(row[1:]) != {"--"}]
