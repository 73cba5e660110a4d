"""The paper: its sentences recomputed from print and from our runs, its errata, and the report about it."""

import csv
import itertools
import math

import claims as paper
import pytest
import report as paper_report
from claims import (
    GAINS,
    SUPERVISED,
    UNSUPERVISED,
    agreement_table,
    claims_table,
    difference_table,
    errata_table,
    figure_claims,
    read_printed,
    scale_table,
    table_claims,
    trend_table,
    verdict,
)
from made_records import planned, write_experiments, write_records

from shorthash.errors import DataFileError
from shorthash.lab.figures import write_page
from shorthash.lab.spec import read_experiment
from shorthash.lab.tables import Cell, ResultGrid, grid_latex, to_markdown


@pytest.fixture(scope="module")
def printed():
    return read_printed()


@pytest.fixture(scope="module")
def claims(printed):
    nothing = [ResultGrid("", table.rows, table.columns, {}) for table in printed.values()]
    made = table_claims(nothing[0], printed["Table 1"], nothing[1], printed["Table 2"])
    return {claim.sentence: claim for claim in made}


def find(claims, *words):
    (found,) = [claim for sentence, claim in claims.items() if all(word in sentence for word in words)]
    return found


def test_gains_over_unsupervised_methods_follow_from_the_tables(claims):
    for (metric, rival), values in GAINS.items():
        if rival == "SSLH":
            continue
        for dataset, value in zip(("CALTECH-101", "CIFAR-10", "ImageNet-100"), values, strict=True):
            claim = find(claims, f"{metric} on {dataset} rises over the best unsupervised")
            assert claim.claimed == claim.printed == f"{value:.2f}"


@pytest.mark.parametrize(
    ("dataset", "said", "against_sslh", "against_best"),
    [
        ("CALTECH-101", "4.26", "4.30", "4.26"),
        ("CIFAR-10", "4.31", "4.77", "4.31"),
        ("ImageNet-100", "4.19", "4.40", "4.19"),
    ],
)
def test_gains_over_sslh_are_gains_over_the_best_of_every_column(claims, dataset, said, against_sslh, against_best):
    """The finding: these three sentences name SSLH, but fit the second best of every column."""
    claim = find(claims, f"mAP on {dataset} rises over SSLH")
    assert (claim.claimed, claim.printed) == (said, against_sslh)
    assert find(claims, f"(mAP, {dataset})").printed == against_best


def test_one_gain_fits_neither_reading(claims):
    claim = find(claims, "mAP@H<=2 on CALTECH-101 rises over SSLH")
    assert (claim.claimed, claim.printed) == ("7.79", "9.70")
    assert find(claims, "(mAP@H<=2, CALTECH-101)").printed == "5.33"


def test_table_2_row_is_the_table_1_row(claims):
    assert find(claims, "G+MB is row RSLH").printed == "12 of 12"
    assert find(claims, "better than all nine others in mAP,").printed == "12 of 12"


def test_without_runs_every_claim_says_so(claims):
    for claim in claims.values():
        assert claim.ours == "not run" or "log2" in claim.sentence or claim.ours == "-"
    assert len(claims_table(tuple(claims.values())).cells()) == len(claims)


def toy(ours):
    """The ten methods at two lengths of CIFAR-10; printed: all 0.1 but SSLH .3, .5 and RSLH .4, .8."""
    names = (*UNSUPERVISED, *SUPERVISED, "RSLH")
    printed = dict.fromkeys(names, (0.1, 0.1)) | {"SSLH": (0.3, 0.5), "RSLH": (0.4, 0.8)}
    columns = (("CIFAR-10", 4), ("CIFAR-10", 6))

    def grid(numbers, *more):
        places = itertools.product(numbers, enumerate((4, 6)))
        cells = {(name, "CIFAR-10", bits): Cell(numbers[name][i], *more) for name, (i, bits) in places}
        return ResultGrid("toy", names, columns, {"mAP": cells})

    return grid(ours, 0.01, 5), grid(printed)


def test_ours_is_computed_like_print():
    names = (*UNSUPERVISED, *SUPERVISED, "RSLH")
    pair = toy(dict.fromkeys(names, (0.2, 0.2)) | {"SSLH": (0.3, 0.6), "RSLH": (0.5, 0.55)})
    claims = {claim.sentence: claim for claim in table_claims(*pair, None, None)}
    claim = find(claims, "mAP on CIFAR-10 rises over SSLH")
    assert (claim.printed, claim.ours) == ("20.00", "7.50")
    assert find(claims, "better than all nine others in mAP,").ours == "1 of 2"
    assert find(claims, "accuracy falls", "CIFAR-10").ours == "5.00"


def test_a_gain_needs_all_its_rivals():
    pair = toy({"RSLH": (0.5, 0.5), "SH": (0.2, 0.2)})
    claims = {claim.sentence: claim for claim in table_claims(*pair, None, None)}
    assert find(claims, "mAP on CIFAR-10 rises over the best unsupervised").ours == "not run"


def test_agreement_by_hand():
    names = (*UNSUPERVISED, *SUPERVISED, "RSLH")
    ours = {name: (0.01 * i, 0.01 * i) for i, name in enumerate(names)}
    table = agreement_table(*toy(ours), "mAP")
    assert table.rows[0][4:6] == ("RSLH", "RSLH")
    assert 0 < table.rows[0][3] < 1
    reversed_order = agreement_table(*toy({"SH": (0.9, 0.9), "SSLH": (0.5, 0.5), "RSLH": (0.2, 0.2)}), "mAP")
    assert reversed_order.rows[0][2:6] == (3, -1.0, "RSLH", "SH")
    assert agreement_table(*toy({}), "mAP").rows[0][2:6][-1] == "not run"


def test_scale_trend_and_verdict():
    pair = toy({"RSLH": (0.42, 0.7), "SSLH": (0.5, 0.4), "SH": (0.1, 0.2)})
    row = scale_table(*pair, "mAP").rows[0]
    assert row[4] == "+0.0200"
    assert row[5] == pytest.approx(2.0)
    trends = {name: rest for name, *rest in trend_table(*pair, "mAP").rows}
    assert trends["RSLH"] == ["1 of 1", "1 of 1"]
    assert trends["SSLH"] == ["1 of 1", "0 of 1"]
    assert trends["NSH"] == ["0 of 1", "not run"]
    assert verdict(*pair, "mAP").startswith("mAP: in 2 of 2 columns, the rank correlation")
    assert verdict(*toy({}), "mAP") == "mAP: nothing has been run yet."


def test_sentences_about_figures():
    cells = {
        (name, "CIFAR-10", bits): Cell(value, 0.0, 1, 1)
        for name, values in {"RSLH": (0.6, 0.7), "SDH": (0.5, 0.69), "RSLH-B": (0.4, 0.7)}.items()
        for bits, value in zip((8, 64), values, strict=True)
    }
    lines = ResultGrid("f", ("RSLH", "SDH", "RSLH-B"), (("CIFAR-10", 8), ("CIFAR-10", 64)), {"precision@5000": cells})
    maps = {"CIFAR-10, 10 bits": [[0.5, 0.7]]}
    curves = {"VOC2012": [(9.0, [4.0, 3.0])], "CIFAR-10": []}
    said = [claim.ours for claim in figure_claims([lines], maps, curves, None)]
    assert said == ["+10.00 and +1.00", "+10.00", "0.500 to 0.700", "75.00 % after 2", "not run"]


def test_errata_are_complete_sentences_of_three_kinds():
    rows = errata_table().rows
    assert len(rows) == len({(where, printed) for where, _, printed, _ in rows}) == 33
    assert {kind for _, kind, _, _ in rows} == {"error", "gap", "contradiction"}
    for _, _, printed, decision in rows:
        assert printed.endswith(".")
        assert decision.endswith(".")
    for step in ("(W)", "(B)", "(H)", "(P)", "Table 2", "eq. 12"):
        assert any(step in row[0] for row in rows)


def test_ours_printed_difference():
    pair = toy({"SSLH": (0.5, 0.4), "RSLH": (0.42, math.nan)})
    table = difference_table(*pair, "mAP", "CIFAR-10", digits=2)
    cells = {row[0]: row[1:] for row in table.cells()}
    assert cells["SSLH"] == ["0.50 ± 0.01", "0.30", "+0.20", "0.40 ± 0.01", "0.50", "-0.10"]
    assert cells["RSLH"][3:] == ["not run", "0.80", "-"]
    assert "**0.80**" in to_markdown(table)


def test_the_printed_table_marks_what_the_paper_marks(printed):
    grid = printed["Table 1"]
    assert (len(grid.rows), len(grid.columns), sum(map(len, grid.metrics.values()))) == (10, 12, 240)
    text = grid_latex(grid)
    bold = [line for line in text.splitlines() if line.startswith("RSLH & ")]
    assert len(bold) == 2
    assert all(line.count(r"\textbf") == 12 for line in bold)
    underlined = {line.split(" & ")[0]: line.count(r"\underline") for line in text.splitlines()[7:17]}
    paper_marks = {"NSH": 1, "FSSH": 2, "SSLH": 7, "SDHMLR": 2}  # top panel of Table 1
    assert {name: n for name, n in underlined.items() if n} == paper_marks
    assert r"mAP@H$\le$2" in text


def test_printed_numbers_that_cannot_be_read(tmp_path):
    file = tmp_path / "printed.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(DataFileError, match=r"first line of .* must be table,metric,method,dataset,bits,value"):
        read_printed(file)
    file.write_text("table,metric,method,dataset,bits,value\nT,m,a,d,four,0.5\n")
    with pytest.raises(DataFileError, match=r"Line 2 of .* whole number of bits"):
        read_printed(file)


def test_the_paper_is_covered():
    """Methods, data sets and lengths of the printed tables are those of the specifications."""
    with (paper.HERE / "printed.csv").open() as file:
        rows = list(csv.DictReader(file))
    for number in (1, 2):
        part = read_experiment(paper_report.EXPERIMENTS / f"table{number}.toml").parts[0]
        here = {(row.name, data.title, bits) for row in part.methods for data in part.datasets for bits in data.bits}
        assert {(r["method"], r["dataset"], int(r["bits"])) for r in rows if r["table"] == f"Table {number}"} <= here


def test_every_method_of_the_figures_has_a_look_of_its_own():
    looks = {tuple(sorted(style.items())) for style in paper_report.STYLES.values()}
    assert len(looks) == len(paper_report.STYLES) == 11


@pytest.fixture(params=[0, 3, 1], ids=["no records", "a third", "all"])
def share(request, tmp_path, monkeypatch):
    """The report on made-up records: none, every third, or all."""
    folder = write_experiments(tmp_path / "experiments")
    monkeypatch.setattr(paper_report, "EXPERIMENTS", folder)
    paper_report.stored.cache_clear()
    runs = planned(folder)
    write_records(folder / "results", runs[:: request.param] if request.param else [])
    yield request.param
    paper_report.stored.cache_clear()


def test_every_part_of_the_docs_says_what_there_is(share):
    names = ("state", "order", "ties", "tables", "sentences", "errata")
    parts = {name: getattr(paper_report, name)() for name in names}
    assert all(text.strip() for text in parts.values())
    assert ("*not run*" in parts["state"]) == (share != 1)
    assert ("not run" in parts["tables"]) == (share != 1)
    assert "| RSLH " in parts["tables"]
    assert "0.4688" in parts["tables"], "printed numbers are there whatever was run"
    assert ("nothing has been run yet" in parts["order"]) == (share == 0) or "mAP@H<=2" in parts["order"]
    assert "eq. 16 (W)" in parts["errata"]
    for text in parts.values():
        rows = [line for line in text.splitlines() if line.startswith("|")]
        for above, below in itertools.pairwise(rows):
            if set(below) <= set("|-: "):
                assert above.count("|") == below.count("|")
        assert "nan" not in text


def test_the_report_has_printed_numbers_claims_and_errata(share, tmp_path):
    page = write_page(paper_report.paper_page(), tmp_path / "report")
    html = page.read_text(encoding="utf-8")
    assert ("Missing runs" in html) == (share != 1)
    assert html.count(">printed</th>") > 10
    assert 'id="claims"' in html
    assert "eq. 16 (W)" in html
    assert {"claims.md", "errata.md", "table1.tex"} <= {file.name for file in page.parent.iterdir()}
