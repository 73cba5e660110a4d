"""Records on disk: one small JSON file per run, written once and never again; per-query scores in a file beside.

``results/<run>.json`` is meant to be committed; ``side/<run>.npz`` beside that folder is not, its checksum stands in
the record. A record appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.data.datasets import file_checksum
from shorthash.errors import DataFileError
from shorthash.lab.runs import run_name
from shorthash.persistence.files import sync_folder, temporary_path

__all__ = [
    "LARGEST_RECORD",
    "SCHEMA",
    "read_records",
    "record_text",
    "side_folder",
    "stored_runs",
    "tidy",
    "write_record",
]

SCHEMA = 1
LARGEST_RECORD = 4096  # bytes


def write_record(
    folder: str | Path, record: Mapping[str, Any], per_query: Mapping[str, NDArray[Any]] | None = None
) -> bool:
    """Store a record; returns whether it is new. One that is there already stays as it is.

    Parameters
    ----------
    folder : of the records
    record : plain values, with ``spec`` and the ``run`` that it hashes to
    per_query : arrays for the side file; None for no side file
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    target = place / f"{record['run']}.json"
    if target.exists():
        return False
    side = None if per_query is None else _write_side(place, str(record["run"]), per_query)
    octets = record_text({**record, "side_file": side}).encode()
    with temporary_path(target) as temporary:
        with temporary.open("wb") as file:
            file.write(octets)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, target)  # unlike a rename, this never replaces what somebody else wrote meanwhile
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            temporary.replace(target)
        sync_folder(place)
    return True


def record_text(record: Mapping[str, Any]) -> str:
    """A record as text, one entry a line; raises if it is too long to be committed."""
    lines = [f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in record.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    size = len(text.encode())
    if size > LARGEST_RECORD:
        raise DataFileError(f"A record must have at most {LARGEST_RECORD} bytes. Got {size} instead; store less.")
    return text


def stored_runs(folder: str | Path) -> set[str]:
    """Names of the runs that have a record; nothing is opened."""
    place = Path(folder)
    return {file.stem for file in place.glob("*.json")} if place.is_dir() else set()


def read_records(folder: str | Path) -> list[dict[str, Any]]:
    """All records of a folder, checked, by name; an empty list where there is no folder.

    Parameters
    ----------
    folder : of the records
    """
    place = Path(folder)
    return [_read(file) for file in sorted(place.glob("*.json"))] if place.is_dir() else []


def tidy(folder: str | Path) -> None:
    """Remove what a process that was killed right after it stored a record has left beside it."""
    place = Path(folder)
    for left in place.glob(".*.json.saving-*"):
        if (place / left.name[1:].partition(".saving-")[0]).exists():
            left.unlink(missing_ok=True)


def side_folder(folder: str | Path) -> Path:
    """Where the side files of a folder of records are."""
    return Path(folder).resolve().parent / "side"


def _read(file: Path) -> dict[str, Any]:
    record: Any = None
    with contextlib.suppress(ValueError, OSError):
        record = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(record, dict) or not {"schema", "run", "spec"} <= set(record):
        raise DataFileError(f"{file} is not a record of a run; remove it, and run the experiment again.")
    if record["schema"] != SCHEMA:
        raise DataFileError(
            f"{file} has schema {record['schema']}, but this version reads {SCHEMA}; use the version that wrote it."
        )
    if record["run"] != file.stem or run_name(record["spec"]) != file.stem:
        raise DataFileError(f"{file} does not hold the run it is named after; remove it, and run the experiment again.")
    return record


def _write_side(place: Path, run: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    folder = side_folder(place)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{run}.npz"
    with temporary_path(target) as temporary:
        with temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        temporary.replace(target)
    return {"name": target.name, "sha256": file_checksum(target)}
