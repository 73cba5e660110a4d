"""Grids of results: cells, tables, CSV and LaTeX say the same numbers, and what is missing says so."""

import csv
import io
import math
from pathlib import Path

import pytest

from shorthash.errors import DataFileError
from shorthash.lab.grid import Cell, ResultGrid, difference_table, grid_csv, mean_table, metric_table
from shorthash.lab.grid_latex import grid_latex
from shorthash.lab.printed import printed_grid, read_printed
from shorthash.lab.tables import to_markdown

PRINTED = Path(__file__).parents[2] / "experiments" / "printed.csv"
NAN = math.nan
GRID = ResultGrid(
    "A table",
    ("first", "second", "third"),
    (("one", 4), ("one", 8), ("two", 4)),
    {
        "mAP": {
            ("first", "one", 4): Cell(0.5, 0.01, 5, 5, 0.4),
            ("second", "one", 4): Cell(0.7, NAN, 1, 5, 0.8),
            ("third", "one", 4): Cell(n_wanted=5),
            ("first", "one", 8): Cell(0.6, 0.02, 5, 5),
            ("second", "one", 8): Cell(n_seeds=5, n_wanted=5, undefined=True),
            ("first", "two", 4): Cell(0.1, 0.0, 2, 2),
        }
    },
)


def test_means_deviations_and_what_is_missing():
    cells = mean_table(GRID, "mAP", "one", digits=2).cells()
    assert cells == [
        ["first", "0.50 ± 0.01", "0.60 ± 0.02"],
        ["second", "0.70", "not defined"],
        ["third", "not run", "-"],
    ]


def test_marks_follow_the_means_and_skip_what_is_missing():
    assert mean_table(GRID, "mAP", "one").marks() == [["", "second", "best"], ["", "best", ""], ["", "", ""]]


def test_ours_printed_difference():
    cells = difference_table(GRID, "mAP", "one", digits=2).cells()
    assert cells[0][1:4] == ["0.50 ± 0.01", "0.40", "+0.10"]
    assert cells[1][1:4] == ["0.70", "0.80", "-0.10"]
    assert cells[2][1:4] == ["not run", "-", "-"]
    assert "**0.80**" in to_markdown(difference_table(GRID, "mAP", "one", digits=2))


def test_costs_stand_side_by_side_and_less_is_better():
    metrics = {"fit s": {("a", "d", 8): Cell(2.0), ("b", "d", 8): Cell(1.0)}, "MiB": {("a", "d", 8): Cell(5.0)}}
    table = metric_table(ResultGrid("costs", ("a", "b"), (("d", 8),), metrics), "d", {"MiB": 0})
    assert [column.title for column in table.columns] == ["method", "fit s", "MiB"]
    assert table.cells() == [["a", "2.00", "5"], ["b", "1.00", "-"]]
    assert table.marks() == [["", "second", "best"], ["", "best", ""]]


def test_csv_has_every_number_in_full():
    rows = list(csv.DictReader(io.StringIO(grid_csv(GRID))))
    assert len(rows) == GRID.n_cells == 6
    first = rows[0]
    assert (first["method"], first["dataset"], first["bits"]) == ("first", "one", "4")
    assert float(first["difference"]) == pytest.approx(0.1)
    missing = next(row for row in rows if row["method"] == "third")
    assert (missing["mean"], missing["std"], missing["printed"]) == ("", "", "")


def test_counts():
    assert GRID.n_run == 5
    assert GRID.has_printed
    assert GRID.datasets == ("one", "two")
    assert GRID.values("mAP", "one", 4) == {"first": 0.5, "second": 0.7}
    assert GRID.values("mAP", "one", 4, printed=True) == {"first": 0.4, "second": 0.8}


def test_latex_is_laid_out_as_in_the_paper():
    text = grid_latex(GRID, digits=2)
    assert r"\multicolumn{2}{c}{one} & \multicolumn{1}{c}{two}" in text
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-4}" in text
    assert r"first & \underline{0.50} & \textbf{0.60} & \textbf{0.10} \\" in text
    assert r"second & \textbf{0.70} & -- & -- \\" in text
    assert text.count("{") == text.count("}")


def test_the_printed_table_marks_what_the_paper_marks():
    grid = printed_grid(read_printed(PRINTED), "Table 1")
    assert (len(grid.rows), len(grid.columns), grid.n_cells) == (10, 12, 240)
    text = grid_latex(grid, printed=True)
    bold = [line for line in text.splitlines() if line.startswith("RSLH & ")]
    assert len(bold) == 2
    assert all(line.count(r"\textbf") == 12 for line in bold)
    underlined = {line.split(" & ")[0]: line.count(r"\underline") for line in text.splitlines()[7:17]}
    paper = {"NSH": 1, "FSSH": 2, "SSLH": 7, "SDHMLR": 2}  # top panel of Table 1
    assert {name: n for name, n in underlined.items() if n} == paper
    assert r"mAP@H$\le$2" in text


def test_printed_numbers_that_cannot_be_read(tmp_path):
    assert read_printed(tmp_path / "none.csv") == {}
    file = tmp_path / "printed.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(DataFileError, match=r"first line of .* must be table,metric,method,dataset,bits,value"):
        read_printed(file)
    file.write_text("table,metric,method,dataset,bits,value\nT,m,a,d,four,0.5\n")
    with pytest.raises(DataFileError, match=r"Line 2 of .* whole number of bits"):
        read_printed(file)
