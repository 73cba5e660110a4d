"""Records: written once, whole, small, and checked when they are read."""

import hashlib
import json

import numpy as np
import pytest

from shorthash.errors import DataFileError
from shorthash.lab import store
from shorthash.lab.runs import run_name
from shorthash.lab.store import (
    LARGEST_RECORD,
    read_records,
    record_text,
    side_folder,
    stored_runs,
    tidy,
    write_record,
)


def record(**spec):
    return {"schema": 1, "run": run_name(spec), "spec": spec, "scores": {"map": 0.5}}


def test_there_and_back(tmp_path):
    folder = tmp_path / "results"
    first, second = record(n_bits=4), record(n_bits=6)
    assert write_record(folder, first)
    assert write_record(folder, second, {"map": np.linspace(0, 1, 5, dtype=np.float32)})
    assert stored_runs(folder) == {first["run"], second["run"]}
    found = {each["run"]: each for each in read_records(folder)}
    assert found[first["run"]] == {**first, "side_file": None}
    side = side_folder(folder) / found[second["run"]]["side_file"]["name"]
    assert hashlib.sha256(side.read_bytes()).hexdigest() == found[second["run"]]["side_file"]["sha256"]
    with np.load(side) as arrays:
        assert arrays["map"].tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert not [path for path in tmp_path.rglob("*") if "saving" in path.name]


def test_a_record_is_never_written_over(tmp_path):
    given = record(n_bits=4)
    write_record(tmp_path, given)
    assert not write_record(tmp_path, {**given, "scores": {"map": 0.9}})
    assert read_records(tmp_path)[0]["scores"] == {"map": 0.5}


def test_nor_by_somebody_who_did_not_see_it(tmp_path, monkeypatch):
    """Two campaigns in one folder: the second finds the record only when it is about to write its own."""
    given = record(n_bits=4)
    original = store.record_text

    def meanwhile(other):
        monkeypatch.setattr(store, "record_text", original)
        write_record(tmp_path, given)
        return original(other)

    monkeypatch.setattr(store, "record_text", meanwhile)
    assert not write_record(tmp_path, {**given, "scores": {"map": 0.9}})
    assert read_records(tmp_path)[0]["scores"] == {"map": 0.5}


def test_what_a_killed_writer_left_is_removed_once_its_record_is_there(tmp_path):
    given = record(n_bits=4)
    write_record(tmp_path, given)
    done, under_way = (tmp_path / f".{name}.json.saving-12ab34cd" for name in (given["run"], "other"))
    done.touch()
    under_way.touch()
    tidy(tmp_path)
    assert not done.exists()
    assert under_way.exists(), "somebody may still be writing it"


def test_a_record_is_small(tmp_path):
    with pytest.raises(DataFileError, match=f"at most {LARGEST_RECORD} bytes. Got 5"):
        write_record(tmp_path, {**record(n_bits=4), "note": "x" * 5000})
    assert not stored_runs(tmp_path)


def test_a_record_can_be_read_by_people():
    text = record_text(record(n_bits=4))
    assert text.count("\n") == 6
    assert json.loads(text)["spec"] == {"n_bits": 4}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a record of a run"),
        ('{"schema": 1}', "is not a record of a run"),
        ('{"schema": 2, "run": "a", "spec": {}}', "has schema 2, but this version reads 1"),
        ('{"schema": 1, "run": "a", "spec": {}}', "does not hold the run it is named after"),
    ],
)
def test_damage_is_told(tmp_path, content, message):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataFileError, match=message):
        read_records(tmp_path)


def test_no_folder_no_records(tmp_path):
    assert read_records(tmp_path / "none") == []
    assert stored_runs(tmp_path / "none") == set()
