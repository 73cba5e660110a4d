"""Records become grids, maps, curves and reports: complete, partial, or from nothing; numbers by hand."""

import json
import math
import re

import numpy as np
import pytest
from made_records import METHODS, made_record, planned, write_experiments, write_records

from shorthash.errors import DataFileError
from shorthash.lab.figures import page_html, write_page
from shorthash.lab.report import build_report, build_section, collect, collect_curves, collect_grid, collect_maps
from shorthash.lab.spec import find_experiments, plan_part, read_experiment


@pytest.fixture(scope="module")
def experiments(tmp_path_factory):
    return write_experiments(tmp_path_factory.mktemp("experiments"))


@pytest.fixture(scope="module")
def runs(experiments):
    return planned(experiments)


@pytest.fixture(scope="module")
def records(runs):
    return {run.name: json.loads(json.dumps(made_record(run))) for run in runs}


@pytest.fixture(scope="module")
def full(experiments, runs):
    return collect([experiments], write_records(experiments / "results", runs))


@pytest.fixture(scope="module")
def report(full):
    return build_report(full)


def part(experiments, file, name):
    return next(p for p in read_experiment(experiments / f"{file}.toml").parts if p.name == name)


def test_cells_are_means_and_deviations_over_seeds(experiments, records):
    planned_part = part(experiments, "table1", "table1")
    values = [
        records[run.name]["scores"]["map"]["mean"]
        for run in plan_part(planned_part)
        if (run.row, run.dataset, run.n_bits) == ("RSLH", "cifar10", 4)
    ]
    cell = collect_grid(planned_part, records).cell("mAP", "RSLH", "CIFAR-10", 4)
    assert len(values) == cell.n_seeds == cell.n_planned == 2
    assert cell.mean == pytest.approx(np.mean(values))
    assert cell.std == pytest.approx(np.std(values, ddof=1))


def test_rows_and_columns_are_those_of_the_specification(full):
    grid = collect_grid(full.part("table1"), full.records)
    assert grid.rows == tuple(METHODS)
    assert grid.columns == (("CIFAR-10", 4), ("CIFAR-10", 6), ("CALTECH-101", 8), ("CALTECH-101", 10))
    assert list(grid.metrics) == ["mAP", "mAP@H<=2"]
    assert list(collect_grid(full.part("table1"), full.records, ["precision_h2"]).metrics) == ["precision@H<=2"]


def test_one_run_serves_every_table_that_asks_for_it(experiments):
    """RSLH of Table 1 and G+MB of Table 2 are the same runs."""
    names = [
        {r.name for r in plan_part(part(experiments, file, file)) if r.row == row}
        for file, row in (("table1", "RSLH"), ("table2", "G+MB"))
    ]
    assert names[0] == names[1]


def test_missing_seeds_leave_a_mean_of_the_others(experiments, records):
    planned_part = part(experiments, "table1", "table1")
    first = {name: r for name, r in records.items() if r["spec"]["seed"] == 0}
    cell = collect_grid(planned_part, first).cell("mAP", "RSLH", "CIFAR-10", 4)
    assert (cell.n_seeds, cell.n_planned) == (1, 2)
    assert math.isnan(cell.std)
    assert f"{collect_grid(planned_part, {}).cell('mAP', 'RSLH', 'CIFAR-10', 4)}" == "not run"


def test_what_a_method_cannot_do_is_not_missing(experiments, records):
    planned_part = part(experiments, "table1", "table1")
    tried = {
        name: {**{k: v for k, v in record.items() if k != "scores"}, "undefined": "too long"}
        for name, record in records.items()
    }
    assert f"{collect_grid(planned_part, tried).cell('mAP', 'RSLH', 'CIFAR-10', 4)}" == "not defined"


def test_maps_have_the_first_setting_in_their_rows(experiments, records):
    planned_part = part(experiments, "figure1", "sensitivity")
    heat = collect_maps(planned_part, records)
    assert {title: values.shape for title, values in heat.items()} == {"CIFAR-10, 10 bits": (3, 2)}
    run = next(r for r in plan_part(planned_part) if r.point == {"alpha": 10.0, "gamma": 1e-5})
    assert heat["CIFAR-10, 10 bits"][2, 0] == records[run.name]["scores"]["precision_at_5000"]["mean"]
    without = {name: record for name, record in records.items() if name != run.name}
    assert math.isnan(collect_maps(planned_part, without)["CIFAR-10, 10 bits"][2, 0])


def test_curves_by_data_set(experiments, records):
    curves = collect_curves(part(experiments, "figure2", "convergence"), records)
    assert list(curves) == ["CIFAR-10", "PASCAL VOC 2012"]
    assert curves["CIFAR-10"][0][0] == 130.0
    assert len(curves["CIFAR-10"][0][1]) == 3
    assert collect_curves(part(experiments, "figure2", "convergence"), {}) == {"CIFAR-10": [], "PASCAL VOC 2012": []}


def test_codes_come_back_from_their_sample(experiments, records):
    section = build_section(part(experiments, "figure2", "codes"), "codes", records)
    assert list(section.figures) == ["codes-sslh-4-bits", "codes-rslh-4-bits"]
    assert section.tables["codes in use"].rows[0][1] == 300


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    """A page of all records."""
    return write_page(report, tmp_path_factory.mktemp("whole") / "report")


def test_a_whole_report(page):
    html = page.read_text(encoding="utf-8")
    assert "not run" not in html
    assert "Missing runs" not in html
    assert "What is &lt;seen&gt; here." in html
    for outside in ("http://", "https://", "<link", "@import", "src="):
        assert outside not in html.replace("http://www.w3.org", "")
    names = {file.name for file in page.parent.iterdir()}
    figures = {name[:-4] for name in names if name.endswith(".svg")}
    assert figures == {name[:-4] for name in names if name.endswith(".png")}
    sections = ("table1", "table2", "costs", "figure1-lines", "figure1-sensitivity", "figure2-convergence")
    assert {f"{name}.{ending}" for name in sections for ending in ("md", "tex", "csv")} <= names
    assert {"figure1-lines-cifar-10-precision-5000", "figure1-sensitivity-cifar-10-10-bits"} <= figures
    assert {"figure2-codes-rslh-4-bits", "figure2-convergence-first", "figure2-convergence-start"} <= figures


def test_ids_of_a_page_are_unique(report):
    ids = re.findall(r'\bid="([^"]+)"', page_html(report))
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("every", [0, 3])
def test_a_report_from_some_or_no_records(experiments, runs, tmp_path, every):
    stored = write_records(tmp_path / "results", runs[::every] if every else [])
    found = collect([experiments], stored)
    html = write_page(build_report(found), tmp_path / "report").read_text(encoding="utf-8")
    assert "not run" in html
    assert f"shorthash bench run {experiments}/table1.toml --results {stored}" in html
    assert sum(part.n_missing for part in found.status()) > 0


def test_the_same_records_are_the_same_files(full, page, tmp_path):
    again = write_page(build_report(full), tmp_path / "again")
    for file in page.parent.iterdir():
        assert file.read_bytes() == (again.parent / file.name).read_bytes(), file.name


def test_experiments_are_found(experiments, tmp_path):
    found = [file.stem for file in find_experiments([experiments])]
    assert found == ["table1", "table2", "costs", "figure1", "figure2"]
    assert find_experiments([experiments / "costs.toml", experiments])[0].stem == "costs"
    (experiments / "smoke.toml").write_text((experiments / "costs.toml").read_text())
    assert "smoke" not in [file.stem for file in find_experiments([experiments])]
    (experiments / "smoke.toml").unlink()
    with pytest.raises(DataFileError, match=r"There is no experiment .*nowhere"):
        find_experiments([tmp_path / "nowhere"])
    with pytest.raises(DataFileError, match="holds no experiment"):
        find_experiments([tmp_path])


def test_provenance_names_data_software_and_every_run(full, report):
    tables = report.sections[-1].tables
    assert {row[0] for row in tables["Data sets"].rows} == {"cifar10", "caltech101", "voc2012"}
    assert tables["Software and machines"].rows[0][2] == len(full.records) == len(tables["Runs"].rows)
