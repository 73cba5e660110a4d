"""Sentences of the paper, recomputed: known values from print, and by hand from a grid made up for it."""

from pathlib import Path

import pytest

from shorthash.lab.claims import GAINS, SUPERVISED, UNSUPERVISED, claims_table, recompute
from shorthash.lab.errata import ERRATA, errata_table
from shorthash.lab.grid import Cell, ResultGrid
from shorthash.lab.printed import printed_grid, read_printed
from shorthash.lab.reproduction import agreement_table, figure_claims, scale_table, trend_table, verdict
from shorthash.lab.sections import HeatMap

PRINTED = Path(__file__).parents[2] / "experiments" / "printed.csv"


@pytest.fixture(scope="module")
def printed():
    return read_printed(PRINTED)


@pytest.fixture(scope="module")
def claims(printed):
    return {c.sentence: c for c in recompute(printed_grid(printed, "Table 1"), printed_grid(printed, "Table 2"))}


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
    cells = {
        (name, "CIFAR-10", bits): Cell(*((ours[name][i], 0.01, 5) if name in ours else ()), printed=printed[name][i])
        for name in names
        for i, bits in enumerate((4, 6))
    }
    return ResultGrid("toy", names, (("CIFAR-10", 4), ("CIFAR-10", 6)), {"mAP": cells})


def test_ours_is_computed_like_print():
    names = (*UNSUPERVISED, *SUPERVISED, "RSLH")
    grid = toy(dict.fromkeys(names, (0.2, 0.2)) | {"SSLH": (0.3, 0.6), "RSLH": (0.5, 0.55)})
    claims = {claim.sentence: claim for claim in recompute(grid)}
    claim = find(claims, "mAP on CIFAR-10 rises over SSLH")
    assert (claim.printed, claim.ours) == ("20.00", "7.50")
    assert find(claims, "better than all nine others in mAP,").ours == "1 of 2"
    assert find(claims, "accuracy falls", "CIFAR-10").ours == "5.00"


def test_a_gain_needs_all_its_rivals():
    grid = toy({"RSLH": (0.5, 0.5), "SH": (0.2, 0.2)})
    claims = {claim.sentence: claim for claim in recompute(grid)}
    assert find(claims, "mAP on CIFAR-10 rises over the best unsupervised").ours == "not run"


def test_agreement_by_hand():
    names = (*UNSUPERVISED, *SUPERVISED, "RSLH")
    ours = {name: (0.01 * i, 0.01 * i) for i, name in enumerate(names)}
    table = agreement_table(toy(ours), "mAP")
    assert table.rows[0][4:6] == ("RSLH", "RSLH")
    assert 0 < table.rows[0][3] < 1
    reversed_order = agreement_table(toy({"SH": (0.9, 0.9), "SSLH": (0.5, 0.5), "RSLH": (0.2, 0.2)}), "mAP")
    assert reversed_order.rows[0][2:6] == (3, -1.0, "RSLH", "SH")
    assert agreement_table(toy({}), "mAP").rows[0][2:6][-1] == "not run"


def test_scale_trend_and_verdict():
    grid = toy({"RSLH": (0.42, 0.7), "SSLH": (0.5, 0.4), "SH": (0.1, 0.2)})
    row = scale_table(grid, "mAP").rows[0]
    assert row[4] == "+0.0200"
    assert row[5] == pytest.approx(2.0)
    trends = {name: rest for name, *rest in trend_table(grid, "mAP").rows}
    assert trends["RSLH"] == ["1 of 1", "1 of 1"]
    assert trends["SSLH"] == ["1 of 1", "0 of 1"]
    assert trends["NSH"] == ["0 of 1", "not run"]
    assert verdict(grid, "mAP").startswith("mAP: in 2 of 2 columns, the rank correlation")
    assert verdict(toy({}), "mAP") == "mAP: nothing has been run yet."


def test_sentences_about_figures():
    cells = {
        (name, "CIFAR-10", bits): Cell(value, 0.0, 1, 1)
        for name, values in {"RSLH": (0.6, 0.7), "SDH": (0.5, 0.69), "RSLH-B": (0.4, 0.7)}.items()
        for bits, value in zip((8, 64), values, strict=True)
    }
    lines = ResultGrid("f", ("RSLH", "SDH", "RSLH-B"), (("CIFAR-10", 8), ("CIFAR-10", 64)), {"precision@5000": cells})
    maps = [HeatMap("CIFAR-10, 10 bits", (1.0,), (1.0, 2.0), [[0.5, 0.7]])]
    curves = {"VOC2012": [(9.0, [4.0, 3.0])], "CIFAR-10": []}
    said = [claim.ours for claim in figure_claims([lines], maps, curves)]
    assert said == ["+10.00 and +1.00", "+10.00", "0.500 to 0.700", "75.00 % after 2", "not run"]


def test_errata_are_complete_sentences_of_three_kinds():
    assert {each.kind for each in ERRATA} == {"error", "gap", "contradiction"}
    assert len({(each.where, each.printed) for each in ERRATA}) == len(ERRATA)
    for each in ERRATA:
        assert each.printed.endswith(".")
        assert each.decision.endswith(".")
    for step in ("(W)", "(B)", "(H)", "(P)", "Table 2", "eq. 12"):
        assert any(step in each.where for each in ERRATA)
    assert len(errata_table().rows) == len(ERRATA)
