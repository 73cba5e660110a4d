"""Tables of the documentation: from the stored records, from some of them, and from none."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from shorthash.lab.spec import plan_part

DOCS = Path(__file__).parents[2] / "docs"
TABLES = ("methods", "eaph", "steps", "boosting", "penalty")


@pytest.fixture(scope="module")
def page():
    spec = importlib.util.spec_from_file_location("results_page", DOCS / "results_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def some(page, monkeypatch):
    def use(chosen):
        stored = page.records()
        kept = {name: record for name, record in stored.items() if chosen(record)}
        monkeypatch.setattr(page, "records", lambda: kept)

    return use


def test_a_cell_is_the_mean_over_the_seeds(page):
    (part,) = page.parts("methods")
    runs = [r for r in plan_part(part) if (r.row, r.dataset, r.n_bits) == ("rslh", "cifar10", 8)]
    values = [page.records()[run.name]["scores"]["map"]["mean"] for run in runs]
    assert len(values) == 3
    row = next(line for line in page.methods().splitlines() if line.startswith("| `rslh` "))
    assert f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}" in row


def test_the_order_in_print_and_here(page):
    lines = page.methods().splitlines()
    first = next(line for line in lines if line.startswith("|    4 |"))
    assert "rslh, sslh, fssh, nsh, sdhmlr, sh, sdh, mfh, pcarr, pcaitq" in first


@pytest.mark.parametrize("name", TABLES)
def test_every_planned_run_has_its_place(page, some, name):
    """Without the records of RSLH and EAPH their rows say so; nothing else changes."""
    whole = getattr(page, name)()
    assert "nan" not in whole
    some(
        lambda record: record["spec"]["method"] not in ("auto", "classifier") or record["spec"]["dataset"] == "cifar10"
    )
    part = getattr(page, name)()
    assert whole.count("\n|") >= part.count("\n|") >= whole.count("\n|") - 2
    assert "nan" not in part


def test_ties_and_conventions(page):
    text = page.ties()
    assert "`sdh`" in text
    assert "SDH, SSLH and RSLH in MATLAB" in text
