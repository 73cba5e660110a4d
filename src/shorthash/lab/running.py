"""Run experiments: worker processes do the runs that have no record."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shorthash._progress import with_progress
from shorthash._validation import check_choice, check_count
from shorthash.data.datasets import Dataset, read_dataset
from shorthash.errors import DataFileError, InvalidInput, ShorthashError
from shorthash.lab.records import append_record, compact, read_records, remove, writing
from shorthash.lab.sharing import SharedSplit
from shorthash.lab.spec import Experiment, RunSpec, group_runs, group_weight, unique_runs
from shorthash.lab.tasks import make_record

Progress = Callable[[str, int, int, float], None]  # what is done, runs done, runs in all, seconds left


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
