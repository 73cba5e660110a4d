"""Run experiments: worker processes do the runs that have no record; records on disk.

While runs are done, every record is appended as a line of JSON to ``running.jsonl``; when an experiment is complete,
its records move to one compressed table, ``<experiment>.jsonl.gz``, sorted by run. A run is stored once, in any
table, and found by its name; records are never overwritten. Per-query scores are in ``side/<run>.npz`` beside the
folder, their checksum in the record.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._progress import with_progress
from shorthash._validation import check_choice, check_count
from shorthash.data.datasets import Dataset, file_checksum, read_dataset
from shorthash.data.files import replacing
from shorthash.errors import DataFileError, InvalidInput, ShorthashError
from shorthash.lab.sharing import SharedSplit
from shorthash.lab.spec import Experiment, RunSpec, group_runs, group_weight, run_name, unique_runs
from shorthash.lab.tasks import SCHEMA, make_record
from shorthash.persistence.files import locked

Progress = Callable[[str, int, int, float], None]  # what is done, runs done, runs in all, seconds left
LOG = "running.jsonl"  # records of an experiment that is not complete
TABLE = ".jsonl.gz"  # ending of the table of a complete one
Records = Mapping[str, Mapping[str, Any]]  # name of the run -> record


@dataclass(frozen=True)
class RunCounts:
    """Runs that the experiments plan, runs that had a record, runs done now, and wall time."""

    planned: int
    stored: int
    done: int
    seconds: float


@with_progress
def run_experiments(
    experiments: Sequence[Experiment],
    results: str | Path,
    *,
    data_dir: str | Path | None = None,
    workers: int | None = None,
    again: Sequence[str] = (),
    progress: Progress | None = None,
) -> RunCounts:
    r"""Do every run that has no record. It may be stopped or killed at any time, and continues where it stopped.

    Parameters
    ----------
    experiments : specifications; a run that several plan is done once
    results : folder of the records
    data_dir : folder of data sets that is searched first
    workers : processes of one thread each; default: one per core
    again : methods whose runs are repeated and whose records are replaced
    progress : called with (what, done, total, seconds left) after every group of runs

    Returns
    -------
    counts : how many runs are planned, had a record, and were done now

    Examples
    --------
    >>> import tempfile
    >>> from shorthash.lab.spec import read_experiment
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "short.toml")
    ...     _ = file.write_text('methods = ["lsh"]\ndatasets = [{name = "digits", bits = [4, 8]}]')
    ...     experiment = read_experiment(file)
    ...     for runs in group_runs(unique_runs([experiment]).values()):
    ...         do_group(runs, f"{folder}/results", None)  # what the processes do, in this one
    ...     counts = run_experiments([experiment], f"{folder}/results")  # every run has a record now
    >>> counts.planned, counts.stored, counts.done
    (2, 2, 0)
    """
    n_workers = check_count(os.cpu_count() or 1 if workers is None else workers, "workers", "run_experiments")
    begin = time.perf_counter()
    planned = unique_runs(experiments)
    for method in again:
        check_choice(method, "again", "run_experiments", sorted({spec.method for spec in planned.values()}))
    with writing(results):
        if again:
            remove(results, {name for name, spec in planned.items() if spec.method in again})
        stored = read_records(results)
        missing = [spec for name, spec in planned.items() if name not in stored]
        for name in dict.fromkeys(spec.dataset for spec in missing):
            read_dataset(name, data_dir)  # raise now if a data set is missing, not after an hour
        if missing:
            _do_groups(group_runs(missing), str(results), data_dir, n_workers, progress)
        compact(results, {experiment.name: unique_runs([experiment]) for experiment in experiments})
    return RunCounts(len(planned), len(planned) - len(missing), len(missing), time.perf_counter() - begin)


def do_group(runs: Sequence[RunSpec], results: str | Path, data_dir: str | Path | None) -> None:
    """Do runs on one split one after the other; each record is stored as soon as its run is done.

    Parameters
    ----------
    runs : one of ``group_runs``
    results, data_dir : folders of records and data
    """
    found = _read(runs[0].dataset, data_dir)
    split = SharedSplit(found, dict(runs[0].protocol))
    for spec in runs:
        append_record(results, *make_record(spec, split, found))


def _do_groups(
    groups: Sequence[Sequence[RunSpec]],
    results: str,
    data_dir: str | Path | None,
    n_workers: int,
    progress: Progress | None,
) -> None:
    """Distribute the groups over processes: first those that share work, then costs, each in a separate process."""
    begin = time.perf_counter()
    total, total_weight = sum(map(len, groups)), sum(map(group_weight, groups))
    done, done_weight = 0, 0.0
    for alone in (False, True):
        chosen = [group for group in groups if (group[0].task == "cost") == alone]
        if not chosen:
            continue
        pool = ProcessPoolExecutor(
            min(n_workers, len(chosen)),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            max_tasks_per_child=1 if alone else None,
        )
        try:
            with _ignoring_interrupts():
                waiting = {pool.submit(do_group, group, results, data_dir): group for group in chosen}
            for future in as_completed(waiting):
                future.result()
                done, done_weight = done + len(waiting[future]), done_weight + group_weight(waiting[future])
                spent = time.perf_counter() - begin
                if progress is not None:
                    left = spent * (total_weight - done_weight) / done_weight
                    progress("running experiments", done, total, left)
        except BrokenProcessPool:
            raise InvalidInput(
                "A worker process was killed, perhaps for lack of memory; run again to continue where it stopped, with "
                "fewer --workers if memory is short."
            ) from None
        except ShorthashError as error:
            raise DataFileError(f"A run failed: {error}") from error
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Start processes that ignore Ctrl-C until ``_start_worker`` has run: it would end their imports in a traceback."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _start_worker() -> None:
    """Set up a worker process: one thread; it ends with Ctrl-C and with its parent process."""
    import numba
    from threadpoolctl import threadpool_limits

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    numba.set_num_threads(1)
    threadpool_limits(limits=1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


_last: dict[str, Dataset] = {}


def _read(name: str, data_dir: str | Path | None) -> Dataset:
    """The data set; the last one is cached, since the next group often uses the same."""
    if name not in _last:
        _last.clear()
        _last[name] = read_dataset(name, data_dir)
    return _last[name]


# records on disk ------------------------------------------------------------------------------------------------------


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
    """Remove the records of runs, so that they are repeated.

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
        raise DataFileError(f"{table} is damaged ({error}); restore it, or remove it and run again.") from error
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
        raise DataFileError(f"{file} has schema {record['schema']} instead of {SCHEMA}; use the version that wrote it.")
    if run_name(record["spec"]) != record["run"]:
        raise DataFileError(f"{file} holds a record whose name is not that of its run; remove that record.")
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
