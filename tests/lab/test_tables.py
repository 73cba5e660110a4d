"""Tables in three languages; marks go by what is printed."""

import csv
import io

import pytest

from shorthash.errors import InvalidInput
from shorthash.lab.tables import Column, Table, to_csv, to_latex, to_markdown

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


def test_rows_must_fit_the_columns():
    with pytest.raises(InvalidInput, match=r"Row 1 of a table must have 1 cells, as many as columns\. Got 2"):
        Table((Column("x"),), ((1,), (1, 2)))


def test_best_is_high_or_low():
    with pytest.raises(InvalidInput, match="The 'best' parameter of Column must be one of 'high', 'low', None"):
        Table((Column("x", best="highest"),), ())
