"""Records of runs on disk.

While runs are done, every record is appended as a line of JSON to ``running.jsonl``; when an experiment is complete,
its records move to one compressed table, ``<experiment>.jsonl.gz``, sorted by run. A run is stored once, in any
table, and found by its name; records are never overwritten. Per-query scores are in ``side/<run>.npz`` beside the
folder, their checksum in the record.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.data.datasets import file_checksum
from shorthash.data.files import replacing
from shorthash.errors import DataFileError
from shorthash.lab.spec import run_name
from shorthash.persistence.files import locked

SCHEMA = 1
LOG = "running.jsonl"
TABLE = ".jsonl.gz"
Records = Mapping[str, Mapping[str, Any]]  # name of the run -> record


def read_records(folder: str | Path) -> dict[str, dict[str, Any]]:
    """All records of a folder by the name of their run, checked; empty if the folder is missing.

    Parameters
    ----------
    folder : of the records

    Examples
    --------
    >>> import tempfile
    >>> read_records(tempfile.mkdtemp())
    {}
    """
    place = Path(folder)
    records: dict[str, dict[str, Any]] = {}
    for table in sorted(place.glob(f"*{TABLE}")):
        records = {**_read_table(table), **records}
    return {**_read_log(place), **records}


def append_record(folder: str | Path, record: Mapping[str, Any], per_query: Mapping[str, NDArray[Any]] | None) -> None:
    """Store a record.

    Parameters
    ----------
    folder : of the records
    record : plain values, with ``spec`` and the ``run`` that it hashes to
    per_query : arrays for the side file; None for no side file
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    side = None if per_query is None else _write_side(place, str(record["run"]), per_query)
    # one write between line breaks: several processes may append, and a killed one damages only its own line
    line = f"\n{json.dumps({**record, 'side_file': side}, allow_nan=False)}\n".encode()
    handle = os.open(place / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line)
        os.fsync(handle)
    finally:
        os.close(handle)


def compact(folder: str | Path, tables: Mapping[str, Iterable[str]]) -> None:
    """Move records from the log into the tables of the experiments that plan their runs.

    Parameters
    ----------
    folder : of the records
    tables : name of the table -> names of its runs; a run that several plan goes to the first
    """
    place = Path(folder)
    logged = _read_log(place)
    moved = {run for table in place.glob(f"*{TABLE}") for run in _read_table(table)} & logged.keys()  # before a crash
    for name, runs in tables.items():
        new = {run: logged[run] for run in runs if run in logged and run not in moved}
        if new:
            table = place / f"{name}{TABLE}"
            _write_table(table, {**new, **(_read_table(table) if table.exists() else {})})
            moved |= new.keys()
    if moved:
        _write_log(place, [record for run, record in logged.items() if run not in moved])


def remove(folder: str | Path, runs: Collection[str]) -> None:
    """Remove the records of some runs, so that they are repeated.

    Parameters
    ----------
    folder : of the records
    runs : names of the runs
    """
    place = Path(folder)
    for table in place.glob(f"*{TABLE}"):
        records = _read_table(table)
        if not records.keys().isdisjoint(runs):
            _write_table(table, {run: record for run, record in records.items() if run not in runs})
    if (place / LOG).exists():
        _write_log(place, [record for run, record in _read_log(place).items() if run not in runs])


def writing(folder: str | Path) -> AbstractContextManager[None]:
    """Hold the folder for writing until the block, or the process, ends; an error if another process holds it."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    return locked(
        place, f"Another process writes records to {place}; wait for it, or use another folder with --results."
    )


def side_folder(folder: str | Path) -> Path:
    """Where the side files of a folder of records are."""
    return Path(folder).resolve().parent / "side"


def _read_table(table: Path) -> dict[str, dict[str, Any]]:
    try:
        with gzip.open(table, "rt", encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
    except (OSError, EOFError, ValueError) as error:
        raise DataFileError(
            f"{table} is damaged ({error}); restore it, or remove it and run the experiment again."
        ) from error
    return {record["run"]: record for record in (_checked(record, table) for record in records)}


def _read_log(place: Path) -> dict[str, dict[str, Any]]:
    """The records of the log; lines that a killed process left incomplete are skipped, their runs are done again."""
    log = place / LOG
    records: dict[str, dict[str, Any]] = {}
    for line in log.read_bytes().splitlines() if log.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        records.setdefault(_checked(record, log)["run"], record)
    return records


def _checked(record: Any, file: Path) -> dict[str, Any]:
    if not isinstance(record, dict) or not {"schema", "run", "spec"} <= set(record):
        raise DataFileError(f"{file} does not contain records of runs; remove it, and run the experiment again.")
    if record["schema"] != SCHEMA:
        raise DataFileError(
            f"{file} has schema {record['schema']}, but this version reads {SCHEMA}; use the version that wrote it."
        )
    if run_name(record["spec"]) != record["run"]:
        raise DataFileError(f"{file} holds a record that is not of the run it is named after; remove that record.")
    return record


def _write_table(table: Path, records: Records) -> None:
    """Write a table, all of it or nothing; the same records give the same file."""
    lines = "".join(json.dumps(records[run], allow_nan=False) + "\n" for run in sorted(records))
    with replacing(table) as temporary, temporary.open("wb") as file:
        with gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
            packed.write(lines.encode())
        file.flush()
        os.fsync(file.fileno())


def _write_log(place: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write the log again, or remove it if there are no records."""
    lines = "".join(json.dumps(record, allow_nan=False) + "\n" for record in records)
    with replacing(place / LOG) as temporary:
        temporary.write_text(lines, encoding="utf-8")
    if not lines:
        (place / LOG).unlink()


def _write_side(place: Path, run: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    folder = side_folder(place)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{run}.npz"
    with replacing(target) as temporary:
        np.savez_compressed(temporary, allow_pickle=False, **arrays)
    return {"name": target.name, "sha256": file_checksum(target)}
