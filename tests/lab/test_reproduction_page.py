"""docs/reproduction.md can be written from no, some and all records."""

import importlib.util
import itertools
from pathlib import Path

import pytest
from made_records import planned, write_experiments, write_records

SCRIPT = Path(__file__).parents[2] / "docs" / "reproduction_page.py"
PARTS = ("state", "order", "ties", "tables", "sentences", "errata")


@pytest.fixture(params=[0, 3, 1], ids=["no records", "a third", "all"])
def page(request, tmp_path):
    spec = importlib.util.spec_from_file_location("reproduction_page", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.EXPERIMENTS = write_experiments(tmp_path / "experiments")
    runs = planned(module.EXPERIMENTS)
    write_records(module.EXPERIMENTS / "results", runs[:: request.param] if request.param else [])
    return request.param, {name: getattr(module, name)() for name in PARTS}


def test_every_part_says_what_there_is(page):
    share, parts = page
    assert all(text.strip() for text in parts.values())
    assert ("*not run*" in parts["state"]) == (share != 1)
    assert ("not run" in parts["tables"]) == (share != 1)
    assert "| RSLH " in parts["tables"]
    assert "0.4688" in parts["tables"], "printed numbers stand there whatever was run"
    assert ("nothing has been run yet" in parts["order"]) == (share == 0) or "mAP@H<=2" in parts["order"]
    assert "eq. 16 (W)" in parts["errata"]


def test_tables_are_well_formed(page):
    for text in page[1].values():
        rows = [line for line in text.splitlines() if line.startswith("|")]
        for above, below in itertools.pairwise(rows):
            if set(below) <= set("|-: "):
                assert above.count("|") == below.count("|")
        assert "nan" not in text
