"""shorthash bench run: do what is missing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from shorthash.cli import output
from shorthash.cli.bench_options import DataDir, Results, Specs, experiments, results_folder
from shorthash.cli.options import AsJson, option

if TYPE_CHECKING:
    from shorthash.lab.run import Progress

__all__ = ["run"]

SILENCE = 10  # seconds between lines where no terminal shows a bar


def run(
    specs: Specs,
    results: Results = None,
    data_dir: DataDir = None,
    workers: Annotated[
        int | None, option("--workers", "-w", metavar="N", text="Processes of one thread each.", default="one per core")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Do every run of the specifications that has no record yet.

    It may be stopped at any moment, in any way, and goes on where it stopped; a record is never written over. Runs on
    the same split share kernel maps, sums and posteriors, so give all specifications at once.

    \b
    Examples:
      shorthash bench run experiments/smoke.toml
      shorthash bench run experiments/table1.toml experiments/table2.toml --data-dir data
    """
    from shorthash.lab.run import run_experiments

    folder = results_folder(results, specs)
    with _progress() as tell:
        done = run_experiments(experiments(specs), folder, data_dir=data_dir, workers=workers, tell=tell)
    facts = {
        "runs": f"{done.wanted} wanted, {done.there} were there, {done.done} done now",
        "time": _clock(done.seconds),
        "records": str(folder),
    }
    data = {**vars(done), "results": str(folder)}
    output.show(output.Answer(data, facts), as_json=as_json)


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """A bar with the time left on a terminal; elsewhere a line now and then. Both on standard error."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda at: bar.update(task, description=_left(at), completed=at.done, total=at.total)


class _Lines:
    """One line every few seconds, and one for the last run."""

    def __init__(self) -> None:
        self.last = 0.0

    def __call__(self, at: Progress) -> None:
        now = time.monotonic()
        if now - self.last >= SILENCE or at.done == at.total:
            self.last = now
            output.complain("bench", f"{at.done} of {at.total} runs, {_left(at)}")


def _left(at: Progress) -> str:
    return "starting" if at.seconds_left is None else f"about {_clock(at.seconds_left)} left"


def _clock(seconds: float) -> str:
    """Seconds for the reader.

    Examples
    --------
    >>> _clock(7), _clock(754), _clock(7300)
    ('7 s', '12 min 34 s', '2 h 1 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
