"""Records: appended whole, never written over, moved into tables, and checked when they are read."""

import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from shorthash.errors import DataFileError, PersistenceError
from shorthash.lab.running import append_record, compact, read_records, remove, side_folder, writing
from shorthash.lab.spec import run_name

RESULTS = Path(__file__).parents[2] / "experiments" / "results"


def record(value=0.5, **spec):
    return {"schema": 1, "run": run_name(spec), "spec": spec, "scores": {"map": value}}


def store(folder, *records):
    for each in records:
        append_record(folder, each, None)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_append_and_read(tmp_path):
    folder = tmp_path / "results"
    first, second = record(n_bits=4), record(n_bits=6)
    append_record(folder, first, None)
    append_record(folder, second, {"map": np.linspace(0, 1, 5, dtype=np.float32)})
    found = read_records(folder)
    assert found[first["run"]] == {**first, "side_file": None}
    side = side_folder(folder) / found[second["run"]]["side_file"]["name"]
    assert hashlib.sha256(side.read_bytes()).hexdigest() == found[second["run"]]["side_file"]["sha256"]
    with np.load(side) as arrays:
        assert arrays["map"].tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert names(folder) == ["running.jsonl"]


def test_records_move_into_the_first_table_that_plans_them(tmp_path):
    records = [record(n_bits=n) for n in (2, 4, 6, 8)]
    runs = [each["run"] for each in records]
    store(tmp_path, *records)
    before = read_records(tmp_path)
    compact(tmp_path, {"a": runs[:2], "b": runs[1:3]})
    assert names(tmp_path) == ["a.jsonl.gz", "b.jsonl.gz", "running.jsonl"], "nobody plans the fourth"
    assert read_records(tmp_path) == before
    with gzip.open(tmp_path / "a.jsonl.gz", "rt") as lines:
        stored = [json.loads(line)["run"] for line in lines]
    assert stored == sorted(runs[:2])
    compact(tmp_path, {"b": runs[3:]})
    assert names(tmp_path) == ["a.jsonl.gz", "b.jsonl.gz"]
    assert read_records(tmp_path) == before


def test_the_same_records_give_the_same_table(tmp_path):
    records = [record(n_bits=n) for n in range(1, 9)]
    for folder, order in (("a", records), ("b", records[::-1])):
        store(tmp_path / folder, *order[:5])
        compact(tmp_path / folder, {"t": [each["run"] for each in records]})
        store(tmp_path / folder, *order[5:])
        compact(tmp_path / folder, {"t": [each["run"] for each in records]})
    assert (tmp_path / "a" / "t.jsonl.gz").read_bytes() == (tmp_path / "b" / "t.jsonl.gz").read_bytes()


def test_the_first_record_of_a_run_stays(tmp_path):
    store(tmp_path, record(0.5, n_bits=4), record(0.9, n_bits=4))
    run = record(n_bits=4)["run"]
    assert read_records(tmp_path)[run]["scores"] == {"map": 0.5}
    compact(tmp_path, {"t": [run]})
    store(tmp_path, record(0.9, n_bits=4))
    compact(tmp_path, {"t": [run], "u": [run]})
    assert read_records(tmp_path)[run]["scores"] == {"map": 0.5}
    assert names(tmp_path) == ["t.jsonl.gz"], "what is in a table already leaves the log"


def test_records_can_be_removed(tmp_path):
    records = [record(n_bits=n) for n in (2, 4, 6, 8)]
    runs = [each["run"] for each in records]
    store(tmp_path, *records[:2])
    compact(tmp_path, {"t": runs})
    store(tmp_path, records[2])
    remove(tmp_path, [runs[0], runs[2]])
    assert set(read_records(tmp_path)) == {runs[1]}
    assert names(tmp_path) == ["t.jsonl.gz"]


@pytest.mark.parametrize("kept", [0, 1, 40])
def test_an_incomplete_line_is_skipped(tmp_path, kept):
    """A process was killed while it wrote; the next one appends behind it."""
    store(tmp_path, record(n_bits=4), record(n_bits=6))
    log = tmp_path / "running.jsonl"
    torn = log.read_bytes().rstrip(b"\n")
    last = torn.rindex(b"\n") + 1
    log.write_bytes(torn[: last + kept])
    store(tmp_path, record(n_bits=8))
    assert {each["spec"]["n_bits"] for each in read_records(tmp_path).values()} == {4, 8}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "does not contain records of runs"),
        ('{"schema": 1}', "does not contain records of runs"),
        ('{"schema": 2, "run": "a", "spec": {}}', "has schema 2 instead of 1"),
        ('{"schema": 1, "run": "a", "spec": {}}', "whose name is not that of its run"),
    ],
)
def test_wrong_files_are_rejected(tmp_path, content, message):
    (tmp_path / "running.jsonl").write_text(content)
    with pytest.raises(DataFileError, match=message):
        read_records(tmp_path)


def test_a_damaged_table_is_rejected(tmp_path):
    store(tmp_path, record(n_bits=4))
    compact(tmp_path, {"t": [record(n_bits=4)["run"]]})
    table = tmp_path / "t.jsonl.gz"
    table.write_bytes(table.read_bytes()[:-9])
    with pytest.raises(DataFileError, match=r"t\.jsonl\.gz is damaged .*; restore it, or remove it and run"):
        read_records(tmp_path)


def test_no_folder_no_records(tmp_path):
    assert read_records(tmp_path / "none") == {}


def test_one_writer_at_a_time(tmp_path):
    with writing(tmp_path), pytest.raises(PersistenceError, match="Another process writes records"), writing(tmp_path):
        pass
    with writing(tmp_path):
        pass


def test_no_record_of_the_experiments_is_lost():
    """There were 2 859 files of records before they were moved into tables."""
    records = read_records(RESULTS)
    assert len(records) >= 3814
    assert len([r for r in records.values() if "converted" not in r]) >= 2859
