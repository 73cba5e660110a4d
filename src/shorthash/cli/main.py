"""The command group, and how errors become one line."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, cast

import typer

from shorthash import __version__
from shorthash.cli import output
from shorthash.cli.advise import advise
from shorthash.cli.bench import bench
from shorthash.cli.compare import compare
from shorthash.cli.datasets import datasets
from shorthash.cli.demo import demo
from shorthash.cli.encode import encode
from shorthash.cli.evaluate import evaluate
from shorthash.cli.fit import fit
from shorthash.cli.images import images
from shorthash.cli.index import index
from shorthash.cli.info import info
from shorthash.cli.methods import methods
from shorthash.cli.report import report
from shorthash.cli.search import search
from shorthash.cli.serve import serve
from shorthash.cli.sql import sql
from shorthash.cli.stats import stats
from shorthash.cli.warned import warnings_as_lines
from shorthash.errors import ShorthashError

__all__ = ["app", "main"]

# The class of all mistakes in arguments; newer versions of typer bring their own, older ones borrow it from click.
UsageError = cast("type[Exception]", typer.BadParameter.__base__)

app = typer.Typer(
    name="shorthash",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for verb in (demo, methods, advise, compare, report, fit, encode, search, evaluate, info, sql, serve):
    app.command()(verb)
app.add_typer(index)
app.add_typer(stats)
app.add_typer(images)
app.add_typer(bench)
app.add_typer(datasets)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; bad input ends in one line on standard error and exit status 2."""
    given = list(sys.argv[1:] if args is None else args) or ["--help"]
    with warnings_as_lines():
        try:
            status = app(given, prog_name="shorthash", standalone_mode=False)
        except Exception as error:
            message = _explain(error)
            if message is None:
                raise
            output.complain("error", message)
            status = 2
    sys.exit(status if isinstance(status, int) else 0)


def _print_version(wanted: bool) -> None:
    if wanted:
        output.say(f"shorthash {__version__}")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Learn, search and score extremely short binary codes.

    Features and labels are read from .npy, .npz, .csv and .parquet files. In a .npz file the arrays X (features) and
    y or Y (labels) are used, or the only array; FILE.npz:NAME picks another. Where a scalar array "scale" stands
    beside an X of integers, features are X * scale.

    \b
    Example:
      shorthash demo
    """


def _explain(error: Exception) -> str | None:
    """What to tell about bad input; None for a mistake of ours, which deserves its traceback."""
    if isinstance(error, UsageError):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "shorthash"
        message = str(error.format_message()) if hasattr(error, "format_message") else str(error)
        return f"{message.rstrip('.')} (see {command} --help)"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if isinstance(error, ShorthashError) or (isinstance(error, ValueError) and _raised_by_sklearn(error)):
        return str(error)
    return None


def _raised_by_sklearn(error: Exception) -> bool:
    """Whether scikit-learn's validation refused the input."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and str(frames[-1].f_globals.get("__name__", "")).startswith("sklearn.")
