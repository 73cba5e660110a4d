"""Warnings as single lines."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from shorthash.cli.output import complain

__all__ = ["warnings_as_lines"]


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Show warnings that are meant for users as one line each, every one once; others as Python does."""
    with warnings.catch_warnings():
        as_before = warnings.showwarning

        def showwarning(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, UserWarning):
                complain("warning", str(message))
            else:
                as_before(message, category, filename, lineno, file, line)

        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = showwarning
        yield
