"""The list of commands, and the function that runs one and reports errors as single lines."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from types import FrameType
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from shorthash import __version__
from shorthash._progress import config_context
from shorthash.cli import terminal as cli
from shorthash.errors import ShorthashError, worded

# command or group -> the file of shorthash.cli that defines it under this name, in the order of --help
COMMANDS = {
    "demo": "evaluate",
    "fit": "fit",
    "align": "fit",
    "encode": "search",
    "search": "search",
    "evaluate": "evaluate",
    "info": "fit",
    "methods": "fit",
    "advise": "evaluate",
    "compare": "evaluate",
    "index": "index",
    "sql": "search",
    "images": "images",
    "serve": "images",
    "fsck": "collections",
    "backup": "collections",
    "restore": "collections",
    "sums": "fit",
    "datasets": "evaluate",
    "bench": "evaluate",
    "report": "evaluate",
}

COLUMNS = "name the columns with --id, --label, --features"

# parameters of the library whose options have the same name
SAME = ["convention", "dialect", "hold_out", "ids", "labels", "labels_from", "method", "methods", "param_style"]
SAME += ["preset", "radius", "rerank", "threshold", "ties"]

# parameter or phrase in messages of the library -> words of the command line
WORDS = {
    **{word: f"--{word.replace('_', '-')}" for word in SAME},
    "n_bits": "--bits",
    "metric": "--rerank",
    "metric of EAPH": "--set metric",
    "search of EAPH": "--set search",
    "k": "-k",
    **{f"n_{word}": f"--{word}" for word in ("anchors", "folds", "items", "queries", "train", "workers")},
    **{word: word for word in ("METHOD", "NAME")},
    **{f"'{part}' rows": f"rows of --{part}-rows" for part in ("query", "train", "database")},
    "a split, or n_queries and n_train to draw one": "--query-rows, or --queries and --train to draw rows",
    "add(codes, vectors=...)": "--vectors",
    "vectors=...": "--vectors",
    "collection=...": "--collection",
    "rows=...": "--rows FILE",
    "label=...": "--label",
    "labels=...": "--labels",
    "RelevantPairs": "--pairs",
    "save()": "shorthash",
    "pass replace=True": "give --replace",
    "pass n_bits=... to make one": "make one with shorthash index build",
    "pass n_bits=... to make it": "make it with shorthash index build",
    "give the number of bits": "give it by --bits",
    "use upsert() to replace the item": "replace it with shorthash index upsert",
    "use update() to change its code": "replace it with shorthash index upsert",
    "drop those rows (a learner does so with drop_unlabelled=True)": "fit drops them with --set drop_unlabelled=true",
    "drop this column or turn it into numbers": COLUMNS,
    "drop this column or turn it into numbers (ids and labels are read from columns that are named)": COLUMNS,
}

CLOSE = 0.7  # similarity from which on an option is suggested for a misspelt one
INTERRUPTED = 130  # exit status after Ctrl-C, as shells report it
RAISED_AGAIN = 0.02  # seconds after which an interrupt that got lost is raised again
VERBOSITY = ("-q", "--quiet", "-v", "--verbose")  # options of the whole command line that may be given anywhere

# Base class of errors in arguments; newer versions of typer define it, older ones import it from click.
UsageError = cast("type[Exception]", typer.BadParameter.__base__)


class LazyGroup(TyperGroup):
    """A group that imports a command when it is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: dict[str, Any] = dict.fromkeys(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """The command of this name, or None."""
        if cmd_name in COMMANDS and self.commands[cmd_name] is None:
            command = getattr(import_module(f"shorthash.cli.{COMMANDS[cmd_name]}"), cmd_name)
            if not isinstance(command, typer.Typer):
                function, command = command, cli.Group()
                command.command(cmd_name)(function)
            self.commands[cmd_name] = typer.main.get_command(command)
        return self.commands.get(cmd_name)


app = typer.Typer(
    name="shorthash",
    cls=LazyGroup,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; bad input gives one line on standard error and exit status 2, Ctrl-C one and 130."""
    arguments = _verbosity_first(list(sys.argv[1:] if args is None else args)) or ["--help"]
    with cli.warnings_as_lines(), config_context(), worded(WORDS), _one_interrupt():
        cli.set_verbosity(quiet=False, verbose=False)
        try:
            status = app(arguments, prog_name="shorthash", standalone_mode=False)
        except (typer.Abort, KeyboardInterrupt):  # newer versions of typer return the status
            status = INTERRUPTED
        except Exception as error:
            message = _explain(error)
            if message is None:
                raise
            cli.complain("error", message)
            status = 2
        if status == INTERRUPTED:
            cli.complain("interrupted", "stopped by Ctrl-C; files are unchanged or complete")
        sys.exit(status if isinstance(status, int) else 0)


def _verbosity_first(arguments: list[str]) -> list[str]:
    """The arguments with -q and -v in front, where they belong to the whole command line."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    found = [word for word in arguments[:end] if word in VERBOSITY]
    return found + [word for word in arguments[:end] if word not in VERBOSITY] + arguments[end:]


@contextmanager
def _one_interrupt() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt once; a second one ends the process at once.

    An interrupt that lands where Python cannot raise (a finalizer, a callback of the compiler) is raised again later
    instead of being printed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        seen.append(number)
        if len(seen) > 1:
            os._exit(INTERRUPTED)
        raise KeyboardInterrupt

    def unraisable(lost: Any) -> None:
        if isinstance(lost.exc_value, KeyboardInterrupt):
            seen.clear()
            again = threading.Timer(RAISED_AGAIN, _interrupt_main)
            again.daemon = True
            again.start()
        else:
            before_hook(lost)

    before, before_hook = signal.signal(signal.SIGINT, interrupt), sys.unraisablehook
    sys.unraisablehook = unraisable
    try:
        yield
    finally:
        sys.unraisablehook = before_hook
        signal.signal(signal.SIGINT, signal.SIG_IGN if seen else before)


def _interrupt_main() -> None:
    """Interrupt the main thread, even while it waits."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


def _print_version(given: bool) -> None:
    if given:
        cli.say(f"shorthash {__version__}")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print every step as it begins, with the time so far.")
    ] = False,
) -> None:
    """Learn, search and score extremely short binary codes.

    Features and labels are read from .npy, .npz, .csv and .parquet files. In a .npz file the arrays X (features) and
    y or Y (labels) are used, or the only array; FILE.npz:NAME picks another. If a .npz file also holds a scalar named
    "scale" and X is an array of integers, the features are X * scale.

    -q and -v may be given anywhere in a command. Ctrl-C ends a command with status 130 and leaves no half-written file.

    \b
    Example:
      shorthash demo
    """
    if quiet and verbose:
        raise cli.misuse("give --quiet or --verbose, not both", "--quiet")
    cli.set_verbosity(quiet=quiet, verbose=verbose)


def _explain(error: Exception) -> str | None:
    """The message for an error of the user; None for a bug, which keeps its traceback."""
    if isinstance(error, UsageError):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "shorthash"
        message = str(error.format_message()) if hasattr(error, "format_message") else str(error)
        if context is not None and hasattr(error, "option_name"):
            message = f"No such option: {error.option_name}{_instead(error.option_name, context)}"
        return f"{message.rstrip('.')} (see {command} --help)"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if isinstance(error, ShorthashError) or (isinstance(error, ValueError) and _raised_by_sklearn(error)):
        return str(error)
    return None


def _instead(wrong: str, context: Any) -> str:
    """What to suggest for an unknown option: similar ones, or all options of the command."""
    options = [param for param in context.command.get_params(context) if param.param_type_name == "option"]
    names = [max(param.opts, key=len) for param in options if not getattr(param, "hidden", False)]
    close = get_close_matches(wrong.lstrip("-"), [name.lstrip("-") for name in names], n=2, cutoff=CLOSE)
    if close:
        return f"; did you mean {' or '.join(name for name in names if name.lstrip('-') in close)}?"
    if hasattr(context.command, "list_commands") and context.parent is not None:
        return f"; options follow the command, one of {', '.join(context.command.list_commands(context))}"
    return f"; the options are {', '.join(names)}"


def _raised_by_sklearn(error: Exception) -> bool:
    """Whether the validation of scikit-learn raised the error."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and str(frames[-1].f_globals.get("__name__", "")).startswith("sklearn.")
