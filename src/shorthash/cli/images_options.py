"""What several verbs of shorthash images share: options, and how images that failed are told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from shorthash.cli import output
from shorthash.cli.options import argument, flag, option

__all__ = [
    "Cache",
    "CollectionFolder",
    "LabelTable",
    "NoCache",
    "Workers",
    "cache_place",
    "failures",
    "tell_failures",
    "workers",
]

NAMED = 20  # failures that are listed one by one

CollectionFolder = Annotated[Path, argument("MODEL", "Folder written by shorthash images fit.")]
LabelTable = Annotated[
    Path | None, option("--labels", metavar="CSV", text="Lines of NAME,LABEL; several labels joined by ';'.")
]
Workers = Annotated[
    int | None, option("--workers", metavar="N", text="Processes that decode; 0: none.", default="one per processor")
]
Cache = Annotated[
    Path | None, option("--cache", metavar="FILE", text="Where features are kept.", default="in ~/.cache/shorthash")
]
NoCache = Annotated[bool, flag("--no-cache", "Keep no features.")]


def workers(given: int | None) -> int:
    """How many processes to decode with."""
    return (os.cpu_count() or 1) if given is None else given


def cache_place(given: Path | None, none: bool) -> Path | None:
    """The file of features, if there is to be one."""
    from shorthash.images.image_cache import default_cache

    return None if none else given or default_cache()


def tell_failures(failed: list[tuple[str, str]]) -> None:
    """Name the images that could not be read, on standard error."""
    for name, reason in failed[:NAMED]:
        output.complain("skipped", f"{name}: {reason}")
    if len(failed) > NAMED:
        output.complain("skipped", f"{len(failed) - NAMED} more; --json names them all")


def failures(failed: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """The same for JSON."""
    return [{"name": name, "reason": reason} for name, reason in failed]
