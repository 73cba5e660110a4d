"""Tables in three languages; grids of results become tables, and what is missing is marked."""

import csv
import io
import math

from shorthash.lab.tables import (
    Cell,
    Column,
    ResultGrid,
    Table,
    grid_latex,
    grid_table,
    mean_table,
    metric_table,
    to_csv,
    to_latex,
    to_markdown,
)

TABLE = Table(
    (Column("method", text=True), Column("mAP@H<=2", 2, "high"), Column("fit µs", 1, "low"), Column("bits")),
    (("a_b", 0.704, 3.0, 4), ("50% & {x}", 0.696, 1.0, 6), ("c|d", 0.5, float("nan"), 8), ("e", None, 1.04, 10)),
)


def test_markdown():
    assert to_markdown(TABLE) == (
        "| method    | mAP@H<=2 |  fit µs | bits |\n"
        "| --------- | -------: | ------: | ---: |\n"
        "| a_b       | **0.70** |     3.0 |    4 |\n"
        "| 50% & {x} | **0.70** | **1.0** |    6 |\n"
        "| c\\|d      |     0.50 |       - |    8 |\n"
        "| e         |        - | **1.0** |   10 |\n"
    )


def test_latex():
    assert to_latex(TABLE) == (
        "\\begin{tabular}{lrrr}\n"
        "\\toprule\n"
        "method & mAP@H$\\le$2 & fit $\\mu$s & bits \\\\\n"
        "\\midrule\n"
        "a\\_b & \\textbf{0.70} & \\underline{3.0} & 4 \\\\\n"
        "50\\% \\& \\{x\\} & \\textbf{0.70} & \\textbf{1.0} & 6 \\\\\n"
        "c|d & \\underline{0.50} & - & 8 \\\\\n"
        "e & - & \\textbf{1.0} & 10 \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
    )


def test_csv_keeps_full_precision():
    rows = list(csv.reader(io.StringIO(to_csv(TABLE))))
    assert rows[0] == ["method", "mAP@H<=2", "fit µs", "bits"]
    assert rows[1] == ["a_b", "0.704", "3.0", "4"]
    assert rows[3] == ["c|d", "0.5", "", "8"]
    assert rows[4] == ["e", "", "1.04", "10"]


def test_values_that_print_alike_are_marked_alike():
    column = Column("x", 1, "high")
    assert Table((column,), ((0.91,), (0.94,), (0.5,), (0.4,))).marks() == [["best"], ["best"], ["second"], [""]]


def test_lower_can_be_better():
    assert Table((Column("x", 1, "low"),), ((2.0,), (1.0,), (3.0,))).marks() == [["second"], ["best"], [""]]


def test_a_table_without_rows():
    empty = Table(TABLE.columns, ())
    assert to_markdown(empty).count("\n") == 2
    assert to_csv(empty) == "method,mAP@H<=2,fit µs,bits\n"
    assert "\\midrule\n\\bottomrule" in to_latex(empty)


NAN = math.nan
GRID = ResultGrid(
    "A table",
    ("first", "second", "third"),
    (("one", 4), ("one", 8), ("two", 4)),
    {
        "mAP": {
            ("first", "one", 4): Cell(0.5, 0.01, 5, 5),
            ("second", "one", 4): Cell(0.7, NAN, 1, 5),
            ("third", "one", 4): Cell(n_planned=5),
            ("first", "one", 8): Cell(0.6, 0.02, 5, 5),
            ("second", "one", 8): Cell(n_seeds=5, n_planned=5, undefined=True),
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


def test_costs_stand_side_by_side_and_less_is_better():
    metrics = {"fit s": {("a", "d", 8): Cell(2.0), ("b", "d", 8): Cell(1.0)}, "MiB": {("a", "d", 8): Cell(5.0)}}
    table = metric_table(ResultGrid("costs", ("a", "b"), (("d", 8),), metrics), "d", {"MiB": 0})
    assert [column.title for column in table.columns] == ["method", "fit s", "MiB"]
    assert table.cells() == [["a", "2.00", "5"], ["b", "1.00", "-"]]
    assert table.marks() == [["", "second", "best"], ["", "best", ""]]


def test_csv_has_every_number_in_full():
    rows = list(csv.DictReader(io.StringIO(to_csv(grid_table(GRID)))))
    assert len(rows) == 6
    first = rows[0]
    assert (first["method"], first["dataset"], first["bits"], first["mean"]) == ("first", "one", "4", "0.5")
    missing = next(row for row in rows if row["method"] == "third")
    assert (missing["mean"], missing["std"], missing["seeds"]) == ("", "", "0")


def test_columns_of_a_grid():
    assert GRID.datasets == ("one", "two")
    assert GRID.lengths("one") == (4, 8)
    assert GRID.values("mAP", "one", 4) == {"first": 0.5, "second": 0.7}


def test_a_grid_is_one_wide_latex_table():
    text = grid_latex(GRID, digits=2)
    assert r"\multicolumn{2}{c}{one} & \multicolumn{1}{c}{two}" in text
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-4}" in text
    assert r"first & \underline{0.50 $\pm$ 0.01} & \textbf{0.60 $\pm$ 0.02} & \textbf{0.10" in text
    assert r"second & \textbf{0.70} & -- & -- \\" in text
    assert text.count("{") == text.count("}")
