"""The description of a save: what every form of it has in common."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shorthash.errors import NewerVersion

__all__ = ["FORMAT_VERSION", "WAY_OUT", "canonical", "check_meta"]

FORMAT_VERSION = 1
WAY_OUT = "restore it from a copy, or build and save it again."


def check_meta(path: Path, meta: Mapping[str, Any]) -> None:
    """Raise NewerVersion if a description is of a format that is not known here."""
    if meta["format_version"] > FORMAT_VERSION:
        raise NewerVersion(
            f"{path} was written by shorthash {meta['shorthash_version']} in format {meta['format_version']}, and this "
            f"version reads up to format {FORMAT_VERSION}; upgrade with: pip install --upgrade shorthash"
        )


def canonical(values: Mapping[str, Any]) -> bytes:
    """The one text of a JSON object whose checksum is taken."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
