"""shorthash demo, by its whole output; a smaller run stands in for the real one."""

import functools
import json
import re
import sys

import pytest
from cli.conftest import squeezed

from shorthash._validation import install_command
from shorthash.lab import demo

TABLE = """\
                                 mAP  precision   fit  encode    search
bits     mAP   worst    best   @H<=2      @H<=2     s  µs/row  µs/query
───────────────────────────────────────────────────────────────────────
   4  0.0000  0.0000  0.0000  0.0000     0.0000  0.00    0.00      0.00
   8  0.0000  0.0000  0.0000  0.0000     0.0000  0.00    0.00      0.00
report: out/report.html
"""


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(demo, "run_demo", functools.partial(demo.run_demo, (4, 8), per_class=10, method="classifier"))
    monkeypatch.setattr(demo, "REPEATS", 1)


@pytest.mark.usefixtures("small")
def test_table_and_report(run, files):
    outcome = run("demo", "--out", "out")
    assert (outcome.status, outcome.err) == (0, "")
    zeros = re.sub(r" *\d+\.(\d+)", lambda m: " " + "0." + "0" * len(m.group(1)), outcome.out)
    assert squeezed(zeros) == squeezed(TABLE)
    assert (files / "out" / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.usefixtures("small")
def test_json(run, files):
    answer = json.loads(run("demo", "-o", files / "elsewhere", "--json").out)
    assert answer["report"] == str(files / "elsewhere" / "report.html")
    assert [row["bits"] for row in answer["rows"]] == [4, 8]
    assert all(row["worst"] <= row["mAP"] <= row["best"] for row in answer["rows"])


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("module", ["matplotlib", "jinja2"])
def test_without_the_extra_the_table_is_printed(run, files, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    outcome = run("demo", "--out", "bare")
    assert (outcome.status, outcome.err) == (0, "")
    note = f"report: not written, it needs {module}: {install_command('report')}"
    assert outcome.out.splitlines()[-1] == note
    assert not (files / "bare").exists()
