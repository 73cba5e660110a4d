"""Arguments and options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["AsJson", "Features", "Model", "argument", "flag", "option", "optional", "parse_numbers", "parse_settings"]


def argument(metavar: str, text: str) -> Any:
    """A required argument."""
    return typer.Argument(metavar=metavar, show_default=False, help=text)


def optional(metavar: str, text: str) -> Any:
    """An argument that may be missing."""
    return typer.Argument(metavar=metavar, show_default=False, help=text)


def option(*names: str, metavar: str, text: str, default: bool | str = False) -> Any:
    """An option with a value; ``default`` is what help says about it when it is missing: nothing, itself, or words."""
    return typer.Option(*names, metavar=metavar, show_default=default, help=text)


def flag(name: str, text: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text)


Model = Annotated[Path, argument("MODEL", "Folder written by shorthash fit.")]
Features = Annotated[Path, argument("FEATURES", "Feature rows: .npy, .npz, .csv or .parquet.")]
AsJson = Annotated[bool, flag("--json", "Print JSON instead of a table.")]


def parse_settings(given: list[str]) -> dict[str, bool | int | float | str | None]:
    """NAME=VALUE pairs; numbers, true, false and none become what they say.

    Examples
    --------
    >>> parse_settings(["alpha=7", "beta=1e-3", "boosting=none", "similarity=S"])
    {'alpha': 7, 'beta': 0.001, 'boosting': None, 'similarity': 'S'}
    """
    settings = {}
    for pair in given:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{pair!r} is not of the form NAME=VALUE", param_hint="--set")
        settings[name] = _value(text)
    return settings


def parse_numbers(text: str | None, option: str) -> list[int] | None:
    """Whole numbers separated by commas.

    Examples
    --------
    >>> parse_numbers("1,10,100", "--k")
    [1, 10, 100]
    """
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of whole numbers like 1,10,100", param_hint=option) from None


def _value(text: str) -> bool | int | float | str | None:
    words: dict[str, bool | None] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text
