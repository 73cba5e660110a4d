"""A process that does groups of runs: one thread, one split at a time, a record after every run.

Also ``python -m shorthash.lab.worker JOB``: one group in a process of its own, for runs whose memory is measured.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shorthash.data.datasets import Dataset, read_dataset
from shorthash.errors import ShorthashError
from shorthash.lab.machine import one_thread
from shorthash.lab.plan import Group
from shorthash.lab.runs import RunSpec
from shorthash.lab.sharing import SharedSplit
from shorthash.lab.store import stored_runs, write_record
from shorthash.lab.tasks import make_record

__all__ = ["do_group", "serve", "start"]

Told = Callable[[tuple[str, Any]], None]


def start(line: Any, results: str, data_dir: str | None) -> None:
    """:func:`serve`, deaf to Ctrl-C, which reaches every process of a terminal: the one that asked stops us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(line, results, data_dir)


def serve(line: Any, results: str, data_dir: str | None) -> None:
    """Ask for groups until there are none; tell (kind, what) about everything that happens.

    Parameters
    ----------
    line : connection to the process that asked; when that is gone, the worker stops
    results : folder of the records
    data_dir : folder of the data; None for the usual ones
    """
    limits = one_thread()
    try:
        line.send(("ready", None))
        while (group := line.recv()) is not None:
            try:
                (_alone if group.runs[0].task == "cost" else do_group)(group, results, data_dir, line.send)
            except (ShorthashError, RuntimeError) as error:
                line.send(("failed", str(error)))
            except Exception:
                line.send(("failed", traceback.format_exc()))
            line.send(("ready", None))
    except (EOFError, OSError):
        pass  # nobody waits for an answer
    limits.unregister()


def do_group(group: Group, results: str | Path, data_dir: str | None, tell: Told) -> None:
    """Do every run of a group that has no record yet.

    Parameters
    ----------
    group : the runs
    results, data_dir : folders of records and data
    tell : called with ("done", name of the run) after each
    """
    there = stored_runs(results)
    open_runs = [spec for spec in group.runs if spec.name not in there]
    if not open_runs:
        return
    found = _read(group.dataset, data_dir)
    split = SharedSplit(found, dict(group.protocol))
    for spec in open_runs:
        outcome = make_record(spec, split, found)
        write_record(results, outcome.record, outcome.per_query)
        tell(("done", spec.name))
    split.release()


_last: dict[str, Dataset] = {}


def _read(name: str, data_dir: str | None) -> Dataset:
    """The data set; the last one is kept, for the next group often wants the same."""
    if name not in _last:
        _last.clear()
        _last[name] = read_dataset(name, data_dir)
    return _last[name]


def _alone(group: Group, results: str, data_dir: str | None, tell: Told) -> None:
    """A group in a fresh process."""
    job = json.dumps({"runs": [spec.to_dict() for spec in group.runs], "results": results, "data_dir": data_dir})
    done = subprocess.run(
        [sys.executable, "-m", "shorthash.lab.worker", job], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    for spec in group.runs:
        tell(("done", spec.name))


def main(job: str) -> None:
    """Do the group that a JSON object describes."""
    values = json.loads(job)
    runs = tuple(RunSpec(**spec) for spec in values["runs"])
    limits = one_thread()
    group = Group(runs[0].dataset, runs[0].protocol, runs)
    do_group(group, values["results"], values["data_dir"], lambda _event: None)
    limits.unregister()


if __name__ == "__main__":
    main(sys.argv[1])
