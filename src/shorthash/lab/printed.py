"""The numbers that a paper prints, read from a CSV file: table, metric, method, dataset, bits, value."""

from __future__ import annotations

import csv
from pathlib import Path

from shorthash.errors import DataFileError
from shorthash.lab.grid import Cell, ResultGrid

__all__ = ["Printed", "printed_grid", "read_printed"]

Printed = dict[tuple[str, str, str, str, int], float]  # table, metric, method, data set, bits -> value
FIELDS = ("table", "metric", "method", "dataset", "bits", "value")


def read_printed(path: str | Path) -> Printed:
    """Read a file of printed numbers; a file that is not there holds none.

    Parameters
    ----------
    path : the .csv file
    """
    file = Path(path)
    if not file.exists():
        return {}
    found: Printed = {}
    with file.open(newline="", encoding="utf-8") as lines:
        reader = csv.DictReader(lines)
        if tuple(reader.fieldnames or ()) != FIELDS:
            raise DataFileError(
                f"The first line of {file} must be {','.join(FIELDS)}. Got {','.join(reader.fieldnames or ())!r} "
                "instead; name the columns so."
            )
        for row in reader:
            try:
                place = (row["table"], row["metric"], row["method"], row["dataset"], int(row["bits"]))
                found[place] = float(row["value"])
            except (TypeError, ValueError):
                raise DataFileError(
                    f"Line {reader.line_num} of {file} must hold a whole number of bits and a value. Got "
                    f"{row['bits']!r} and {row['value']!r} instead; mend that line."
                ) from None
    return found


def printed_grid(printed: Printed, table: str) -> ResultGrid:
    """A printed table as a grid of which nothing was run.

    Parameters
    ----------
    printed : as :func:`read_printed` reads it
    table : "Table 1", for instance
    """
    places = {place[1:]: value for place, value in printed.items() if place[0] == table}
    rows = tuple(dict.fromkeys(method for _, method, _, _ in places))
    columns = tuple(dict.fromkeys((dataset, bits) for _, _, dataset, bits in places))
    metrics: dict[str, dict[tuple[str, str, int], Cell]] = {}
    for (metric, method, dataset, bits), value in places.items():
        metrics.setdefault(metric, {})[method, dataset, bits] = Cell(printed=value)
    return ResultGrid(table, rows, columns, metrics)
