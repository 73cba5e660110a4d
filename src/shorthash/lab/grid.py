"""Results of many methods, data sets and lengths as one value, and as tables: ours, printed, difference.

Plain values only: nobody here knows how a result was computed. ``bench`` fills a :class:`ResultGrid` from records.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shorthash.lab.tables import Column, Table

__all__ = ["NOT_RUN", "Cell", "ResultGrid", "difference_table", "grid_csv", "mean_table", "metric_table", "show_signed"]

NOT_RUN = "not run"
UNDEFINED = "not defined"
Place = tuple[str, str, int]  # row, data set, bits


@dataclass(frozen=True)
class Cell:
    """One number of a table.

    Attributes
    ----------
    mean, std : over the seeds; nan where nothing was run, and std also where one seed was
    n_seeds, n_wanted : seeds that were run, and that the experiment asks for
    printed : the number of the paper; None where it has none
    undefined : whether the method cannot do this: it was tried and has no number

    Examples
    --------
    >>> f"{Cell(0.5, 0.01, 5, 5):.3f}", f"{Cell(0.5, float('nan'), 1, 1):.3f}", f"{Cell():.3f}"
    ('0.500 ± 0.010', '0.500', 'not run')
    """

    mean: float = math.nan
    std: float = math.nan
    n_seeds: int = 0
    n_wanted: int = 0
    printed: float | None = None
    undefined: bool = False

    @property
    def difference(self) -> float:
        """Ours minus printed; nan where either is missing."""
        return math.nan if self.printed is None else self.mean - self.printed

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
    """What every row scored on every data set at every length.

    Attributes
    ----------
    title : what the table is
    rows : methods, in the order of the table
    columns : (data set, bits), in the order of the table
    metrics : metric -> (row, data set, bits) -> cell; places without a cell are not asked for
    """

    title: str
    rows: tuple[str, ...]
    columns: tuple[tuple[str, int], ...]
    metrics: Mapping[str, Mapping[Place, Cell]] = field(default_factory=dict)

    @property
    def datasets(self) -> tuple[str, ...]:
        """Data sets, in the order of the table."""
        return tuple(dict.fromkeys(name for name, _ in self.columns))

    def lengths(self, dataset: str) -> tuple[int, ...]:
        """Code lengths of a data set, in the order of the table."""
        return tuple(bits for name, bits in self.columns if name == dataset)

    def cell(self, metric: str, row: str, dataset: str, bits: int) -> Cell | None:
        """The cell at a place; None where the experiment asks for nothing."""
        return self.metrics.get(metric, {}).get((row, dataset, bits))

    def values(self, metric: str, dataset: str, bits: int, *, printed: bool = False) -> dict[str, float]:
        """Row -> number, of one column; rows without a number are left out."""
        found = {}
        for row in self.rows:
            cell = self.cell(metric, row, dataset, bits)
            value = None if cell is None else (cell.printed if printed else cell.mean)
            if value is not None and not math.isnan(value):
                found[row] = value
        return found

    @property
    def n_cells(self) -> int:
        """Numbers that the experiment asks for."""
        return sum(len(cells) for cells in self.metrics.values())

    @property
    def n_run(self) -> int:
        """Numbers of which at least one seed was run."""
        return sum(cell.n_seeds > 0 for cells in self.metrics.values() for cell in cells.values())

    @property
    def has_printed(self) -> bool:
        """Whether the paper prints any of these numbers."""
        return any(cell.printed is not None for cells in self.metrics.values() for cell in cells.values())


def mean_table(grid: ResultGrid, metric: str, dataset: str, *, digits: int = 4, best: str = "high") -> Table:
    """Means and standard deviations of one data set: a row per method, a column per length, best marked.

    Parameters
    ----------
    grid : the results
    metric, dataset : which of them
    digits : decimals
    best : "high" or "low", whichever is better
    """
    lengths = grid.lengths(dataset)
    columns = (Column("method", text=True), *(Column(f"{bits} bits", digits, best) for bits in lengths))
    rows = tuple((row, *(grid.cell(metric, row, dataset, bits) for bits in lengths)) for row in grid.rows)
    return Table(columns, rows)


def difference_table(grid: ResultGrid, metric: str, dataset: str, *, digits: int = 4) -> Table:
    """Ours, printed and their difference, side by side for every length of a data set.

    Parameters
    ----------
    grid : the results
    metric, dataset : which of them
    digits : decimals
    """
    lengths = grid.lengths(dataset)
    columns = [Column("method", text=True)]
    for bits in lengths:
        columns += [Column(f"{bits} bits", digits, "high"), Column("printed", digits, "high"), Column("difference")]
    rows = []
    for row in grid.rows:
        cells = [grid.cell(metric, row, dataset, bits) for bits in lengths]
        values = [[c, c and c.printed, None if c is None else show_signed(c.difference, digits)] for c in cells]
        rows.append((row, *(value for three in values for value in three)))
    return Table(tuple(columns), tuple(rows))


def metric_table(grid: ResultGrid, dataset: str, digits: Mapping[str, int]) -> Table:
    """All metrics of one data set side by side, less being better: for costs.

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


def show_signed(value: float, digits: int) -> str | None:
    """A difference with its sign; None where there is none.

    Examples
    --------
    >>> show_signed(0.0123, 3), show_signed(-0.5, 1), show_signed(float("nan"), 3)
    ('+0.012', '-0.5', None)
    """
    return None if math.isnan(value) else f"{value:+.{digits}f}"


def grid_csv(grid: ResultGrid) -> str:
    """Every number, one line each: metric, method, data set, bits, mean, std, seeds, printed, difference."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["metric", "method", "dataset", "bits", "mean", "std", "seeds", "printed", "difference"])
    writer.writerows(_csv_rows(grid))
    return out.getvalue()


def _csv_rows(grid: ResultGrid) -> Iterator[list[object]]:
    for metric in grid.metrics:
        for row in grid.rows:
            for dataset, bits in grid.columns:
                cell = grid.cell(metric, row, dataset, bits)
                if cell is not None:
                    numbers = (cell.mean, cell.std, cell.n_seeds, cell.printed, cell.difference)
                    yield [metric, row, dataset, bits, *("" if _absent(x) else x for x in numbers)]


def _absent(value: float | None) -> bool:
    return value is None or math.isnan(value)
