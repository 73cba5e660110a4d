"""benchmarks/methods.py: measures what is missing, writes every cell at once, says why a cell is empty."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def benchmark(monkeypatch, tmp_path):
    """The script, with one small data set of five features and three classes in place of the real ones."""
    path = Path(__file__).parents[1] / "benchmarks" / "methods.py"
    spec = importlib.util.spec_from_file_location("methods_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=1300)
    X = rng.normal(size=(3, 5))[y] + 0.3 * rng.normal(size=(1300, 5))
    monkeypatch.setattr(module, "FILES", {"CALTECH-101": "none.npz"})
    monkeypatch.setattr(module, "LENGTHS", {"CALTECH-101": (2, 4)})
    monkeypatch.setattr(module, "RECORD", tmp_path / "methods.json")
    monkeypatch.setattr(module, "load", lambda _: (X, y))
    return module


@pytest.fixture
def run(benchmark, monkeypatch):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["methods.py", "--record", str(benchmark.RECORD), *arguments])
        benchmark.main()
        return json.loads(benchmark.RECORD.read_text())["cells"]

    return call


CHOICE = ("--methods", "lsh", "ccaitq", "--seeds", "0", "1")


def test_cells_and_reasons(run, capsys):
    cells = run(*CHOICE)
    assert sorted(cells) == [f"CALTECH-101/{m}/{b}/{s}" for m in ("ccaitq", "lsh") for b in (2, 4) for s in (0, 1)]
    assert "at most 2 bits from n_features=5 and n_classes=3" in cells["CALTECH-101/ccaitq/4/0"]["undefined"]
    cell = cells["CALTECH-101/ccaitq/2/0"]
    assert 0.5 < cell["map"] <= 1
    assert cell["used_codes"] <= 4
    assert cell["learned_codes"] is None
    assert capsys.readouterr().out.count("\n") == 8


def test_a_second_run_measures_only_what_is_missing(run, benchmark, monkeypatch, capsys):
    first = run(*CHOICE)
    monkeypatch.setattr(benchmark, "measure", lambda *_: {"map": 0.0})
    capsys.readouterr()
    assert run(*CHOICE) == first
    assert capsys.readouterr().out == ""
    more = run("--methods", "lsh", "--bits", "2", "--seeds", "2")
    assert set(more) - set(first) == {"CALTECH-101/lsh/2/2"}
    again = run("--methods", "lsh", "--bits", "2", "--seeds", "0", "--redo")
    assert again["CALTECH-101/lsh/2/0"] == {"map": 0.0}
    assert not list(benchmark.RECORD.parent.glob("*.tmp"))


def test_the_page(run, benchmark, capsys):
    assert benchmark.render() == "Not measured yet: `python benchmarks/methods.py`."
    cells = run(*CHOICE)
    capsys.readouterr()
    page = benchmark.render()
    row = next(line for line in page.splitlines() if line.startswith("| `ccaitq` |"))
    values = [cells[f"CALTECH-101/ccaitq/2/{s}"]["map"] for s in (0, 1)]
    assert f"**{np.mean(values):.3f}** ({np.std(values, ddof=1):.3f})" in row
    assert row.count("*n/a*") == 2
    assert "*n/a*: CCAITQ learns at most 2 bits" in page
    assert "| 2 |" in page  # the order of the methods, by length
