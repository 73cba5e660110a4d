"""Settings of the process, and the progress of long work: one display for terminals, notebooks and logs."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Literal, ParamSpec, Protocol, TypeVar, cast

from shorthash.errors import InvalidInput

VARIABLE = "SHORTHASH_PROGRESS"  # 0, 1 or lines; set_config overrides it

Style = bool | Literal["lines"] | None
WORDS: dict[str, Style] = {"": None, "0": False, "off": False, "1": True, "on": True, "lines": "lines"}
_config: dict[str, Style] = {"progress": None}

SHOW_SECONDS = 2.0  # work of the library that is shorter shows nothing
LOG_SECONDS = 10.0  # least time between lines where there is no terminal
REDRAW_SECONDS = 0.2  # between two updates of a bar

P = ParamSpec("P")
R = TypeVar("R")

OnStep = Callable[[str, int, int], None]
"""What users pass as ``progress``: a function of the step, units done, and units in all (0 if not known)."""


def set_config(*, progress: Style = None) -> None:
    """Set what holds for the whole process, as ``sklearn.set_config`` does.

    Parameters
    ----------
    progress : True shows the progress of work that takes more than two seconds (``fit``, ``transform``, ``search``,
        ``evaluate``, ``compare``, ...): a bar on a terminal, one line in a notebook, and elsewhere a line of standard
        error every ten seconds. "lines" writes a line for every step as it begins. False shows nothing. None leaves the
        setting as it is. Without a setting the variable ``SHORTHASH_PROGRESS`` (0, 1 or lines) counts; without that,
        the library shows nothing and the command line shows progress.

    Examples
    --------
    >>> from shorthash import config_context, get_config, set_config
    >>> with config_context():  # what is set inside ends with the block
    ...     set_config(progress=False)
    ...     get_config()
    {'progress': False}
    """
    if progress is not None:
        if not (isinstance(progress, bool) or progress == "lines"):
            raise InvalidInput(
                f"The 'progress' parameter of set_config must be True, False or 'lines'. Got {progress!r} instead."
            )
        _config["progress"] = progress


def get_config() -> dict[str, Style]:
    """The settings of ``set_config``; None where nothing is set.

    Examples
    --------
    >>> from shorthash import config_context, get_config
    >>> with config_context(progress=True):
    ...     get_config()
    {'progress': True}
    """
    if _config["progress"] is None:
        text = os.environ.get(VARIABLE, "").strip().lower()
        if text not in WORDS:
            raise InvalidInput(f"{VARIABLE} must be 0, 1 or lines. Got {text!r} instead.")
        return {"progress": WORDS[text]}
    return dict(_config)


@contextmanager
def config_context(*, progress: Style = None) -> Iterator[None]:
    """Settings for the time of a ``with`` block, as ``sklearn.config_context`` does.

    Parameters
    ----------
    progress : as in :func:`set_config`

    Yields
    ------
    None
        Nothing; the settings hold inside the block.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from shorthash import config_context, make_hasher
    >>> X, y = load_digits(return_X_y=True)
    >>> with config_context(progress=True):  # a bar, if it takes more than two seconds
    ...     hasher = make_hasher("classifier", n_bits=8).fit(X, y)
    """
    before = dict(_config)
    try:
        set_config(progress=progress)
        yield
    finally:
        _config.update(before)


# progress -------------------------------------------------------------------------------------------------------------


class Progress(Protocol):
    """A function that is called with every step of some work."""

    def __call__(self, what: str, done: int, total: int, seconds_left: float | None = None) -> None:
        """Take the step, units done, and units in all (0: not known); the time left is estimated if it is missing."""


@contextmanager
def reporting(
    progress: Progress | None = None, *, default: Style = False, after: float | None = None
) -> Iterator[Progress]:
    """A function to call with every step of some work.

    Work inside other work that is shown moves the display only while the outer work cannot count its units.

    Parameters
    ----------
    progress : called instead of showing anything
    default : the style if none is set
    after : seconds after which the display appears; by default two
    """
    style = get_config()["progress"]
    style = default if style is None else style
    if not style or isinstance(progress, Step):
        yield progress or _silent
    elif progress is None and _shown:
        yield _shown[-1].inner
    else:  # a function of the caller hides the steps of inner work
        step = Step(lines=style == "lines" and progress is None)
        _shown.append(step)
        try:
            with nullcontext() if progress else _displayed(step, SHOW_SECONDS if after is None else after):
                yield progress or step
        finally:
            _shown.remove(step)


def with_progress(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function: with ``progress=None``, progress is shown as ``set_config`` says."""

    @wraps(function)
    def reported(*args: P.args, **settings: P.kwargs) -> R:
        with reporting(cast("Progress | None", settings.pop("progress", None))) as step:
            return function(*args, **settings, progress=step)  # type: ignore[arg-type]

    return reported


def shown(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function whose call is one step with this name."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def reported(*args: P.args, **settings: P.kwargs) -> R:
            with reporting() as step:
                step(what, 0, 0)
                return function(*args, **settings)

        return reported

    return decorate


class Step:
    """The current step of some work, and when it began."""

    def __init__(self, *, lines: bool = False) -> None:
        self.what, self.done, self.total = "", 0, 0
        self.lines = lines
        self._ends: float | None = None
        self._own_total = 0
        self.started = self.begun = time.monotonic()

    def __call__(self, what: str, done: int, total: int, seconds_left: float | None = None) -> None:
        """Take a step of the work that is shown."""
        self._own_total = total
        self._take(what, done, total, seconds_left)

    def inner(self, what: str, done: int, total: int, seconds_left: float | None = None) -> None:
        """Take a step of work inside it."""
        if not self._own_total:
            self._take(what, done, total, seconds_left)

    def _take(self, what: str, done: int, total: int, seconds_left: float | None) -> None:
        now = time.monotonic()
        if total != self.total or done < self.done:
            self.started = now
        if seconds_left is None and 0 < done < total:
            seconds_left = (now - self.started) * (total - done) / done
        is_new = what != self.what
        self._ends = None if seconds_left is None else now + seconds_left
        self.what, self.done, self.total = what, done, total
        if self.lines and is_new:
            _write_line(f"[{now - self.begun:8.2f} s] {self.text()}")

    def left(self) -> str:
        """The time left as words; nothing where it is not known, or has passed."""
        seconds = -1.0 if self._ends is None else self._ends - time.monotonic()
        return f"about {duration(seconds)} left" if seconds >= 0 else ""

    def text(self) -> str:
        """The step, how far it is, and the time left, where they are known."""
        left = self.left()
        return self.what + (f", {left}" if left else "") + (f" ({self.done} of {self.total})" if self.total else "")


def duration(seconds: float) -> str:
    """Seconds for a reader.

    Examples
    --------
    >>> duration(7), duration(754), duration(7300)
    ('7 s', '12 min 34 s', '2 h 1 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@contextmanager
def _displayed(step: Step, after: float) -> Iterator[None]:
    """Show a step from a separate thread, so that slow steps are shown, too, and quick ones cost nothing."""
    if step.lines:
        try:
            yield
        finally:
            _write_line(f"[{time.monotonic() - step.begun:8.2f} s] end")
        return
    show = _draw_bar if sys.stderr.isatty() else _redraw_line if _in_notebook() else _log
    finished = threading.Event()
    thread = threading.Thread(target=lambda: None if finished.wait(after) else show(step, finished), daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


def _draw_bar(step: Step, finished: threading.Event) -> None:
    """A bar on a terminal, and the time left, counting down."""
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn()
    with Bar(*columns, TextColumn("{task.fields[left]}"), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, left="")
        while True:
            bar.tasks[0].total = step.total or None
            bar.update(task, description=step.what, completed=step.done, left=step.left())
            if finished.wait(REDRAW_SECONDS):
                return


def _redraw_line(step: Step, finished: threading.Event) -> None:
    """One line of a notebook that is written again and again, and cleared at the end."""
    widest = 0
    while True:
        text = step.text()
        widest = max(widest, len(text))
        sys.stderr.write(f"\r{text:{widest}}")
        sys.stderr.flush()
        if finished.wait(REDRAW_SECONDS):
            sys.stderr.write(f"\r{'':{widest}}\r")
            return


def _log(step: Step, finished: threading.Event) -> None:
    """Write what is new, at most once every ``LOG_SECONDS``."""
    last = None
    while not finished.wait(LOG_SECONDS):
        now = step.what, step.done
        if now != last and step.what:
            last = now
            _write_line(f"progress: {step.text()}")


def _write_line(text: str) -> None:
    sys.stderr.write(f"{text if text.isprintable() else ascii(text)[1:-1]}\n")
    sys.stderr.flush()


def _in_notebook() -> bool:
    """Whether the process is the kernel of a notebook."""
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python is not None else None
    return shell is not None and hasattr(shell, "kernel")


def _silent(what: str, done: int, total: int, seconds_left: float | None = None) -> None:
    """Show nothing."""


_shown: list[Step] = []  # the display in use; at most one
