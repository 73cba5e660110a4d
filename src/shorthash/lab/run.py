"""Experiments in, records out: what is missing is done by several processes; what is there is left alone."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, cast

from shorthash._validation import check_count
from shorthash.data.datasets import read_dataset
from shorthash.errors import DataFileError, InvalidInput
from shorthash.lab.plan import Group, group_runs, plan_runs, unique_runs, weight
from shorthash.lab.spec import Experiment
from shorthash.lab.store import stored_runs, tidy
from shorthash.lab.worker import start

__all__ = ["Progress", "Summary", "experiment_status", "run_experiments"]


@dataclass(frozen=True)
class Progress:
    """How far a campaign is.

    Attributes
    ----------
    done, total : runs
    seconds_left : a guess from what has been done so far; None before the first run
    """

    done: int
    total: int
    seconds_left: float | None


@dataclass(frozen=True)
class Summary:
    """What a campaign did.

    Attributes
    ----------
    wanted, there, done : runs wanted, found, and made now
    seconds : wall time
    """

    wanted: int
    there: int
    done: int
    seconds: float


def run_experiments(
    experiments: Sequence[Experiment],
    results: str | Path,
    *,
    data_dir: str | Path | None = None,
    workers: int | None = None,
    tell: Callable[[Progress], None] | None = None,
) -> Summary:
    """Do every run that has no record yet. It may be stopped at any moment, in any way, and goes on where it stopped.

    Parameters
    ----------
    experiments : what to do; a run that several want is done once
    results : folder of the records
    data_dir : folder to look for data in first
    workers : processes of one thread each; default: one per core
    tell : called after every run
    """
    n_workers = check_count(os.cpu_count() or 1 if workers is None else workers, "workers", "run_experiments")
    begin = time.perf_counter()
    wanted = unique_runs(experiments)
    tidy(results)
    there = stored_runs(results)
    missing = {name: spec for name, spec in wanted.items() if name not in there}
    if missing:
        Path(results).mkdir(parents=True, exist_ok=True)
        _check_data(missing.values(), data_dir)
        groups, place = group_runs(missing.values()), None if data_dir is None else str(data_dir)
        crew = _Crew(groups, str(results), place, tell or (lambda _progress: None))
        crew.work(min(n_workers, len(groups)))
    return Summary(len(wanted), len(wanted) - len(missing), len(missing), time.perf_counter() - begin)


def experiment_status(experiment: Experiment, results: str | Path) -> dict[str, tuple[int, int]]:
    """Runs that have a record, and runs wanted, by part."""
    there = stored_runs(results)
    status: dict[str, tuple[int, int]] = {part.name: (0, 0) for part in experiment.parts}
    for run in plan_runs(experiment):
        have, want = status[run.part]
        status[run.part] = have + (run.name in there), want + 1
    return status


@dataclass
class _Crew:
    """Processes that are given one group after the other.

    Attributes
    ----------
    groups : what is to be done
    results, data_dir : folders of records and data
    tell : told about progress
    """

    groups: tuple[Group, ...]
    results: str
    data_dir: str | None
    tell: Callable[[Progress], None]

    def work(self, n_workers: int) -> None:
        """Start the processes, listen to them, and stop them whatever happens."""
        context = multiprocessing.get_context("spawn")
        crew: dict[Any, Any] = {}
        try:
            for _ in range(n_workers):
                line, far = context.Pipe()
                worker = context.Process(target=start, args=(far, self.results, self.data_dir), daemon=True)
                worker.start()
                far.close()  # so that the line breaks when the worker ends
                crew[line] = worker
            self._listen(crew)
        finally:
            for line, worker in crew.items():
                line.close()
                worker.terminate()
                worker.join()

    def _listen(self, crew: dict[Any, Any]) -> None:
        """Give out groups and count what is done, until every worker has been sent home."""
        waiting = list(self.groups)
        weights = {run.name: weight(run) for group in waiting for run in group.runs}
        total, done, behind, begin = sum(weights.values()), 0, 0.0, time.perf_counter()
        busy = set(crew)
        while busy:
            for line in cast("list[Any]", wait(list(busy))):
                kind, what = _heard(line, crew)
                if kind == "failed":
                    raise DataFileError(f"A run failed: {what}")
                if kind == "done":
                    done, behind = done + 1, behind + weights[what]
                    left = (time.perf_counter() - begin) * (total - behind) / behind
                    self.tell(Progress(done, len(weights), left))
                elif waiting:
                    line.send(waiting.pop(0))
                else:
                    line.send(None)
                    busy.remove(line)


def _heard(line: Any, crew: Mapping[Any, Any]) -> tuple[str, Any]:
    """What a worker says; raises if it has ended without a word, for instance killed for lack of memory."""
    try:
        return line.recv()  # type: ignore[no-any-return]
    except (EOFError, OSError):
        crew[line].join()
        raise InvalidInput(
            f"A worker ended with status {crew[line].exitcode} (-9: killed, perhaps for lack of memory); run again to "
            "go on where it stopped, with fewer --workers if memory is short."
        ) from None


def _check_data(specs: Any, data_dir: str | Path | None) -> None:
    """Raise now if a data set is missing, not after an hour."""
    for name in dict.fromkeys(spec.dataset for spec in specs):
        read_dataset(name, data_dir)
