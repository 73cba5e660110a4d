"""The classes that may be saved and loaded: an explicit list, imported only when needed.

A saved file can name only these; whatever else it names is refused, so loading never runs code that came with a file.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["DATACLASSES", "ESTIMATORS", "INDEXES", "find_class", "registered_name"]

ESTIMATORS = {
    "AnchorRBF": "shorthash.kernels.rbf:AnchorRBF",
    "HasherPipeline": "shorthash.recipes:HasherPipeline",
    "RSLH": "shorthash.learners.rslh:RSLH",
}
"""scikit-learn estimators and pipelines: saved as parameters and fitted attributes."""

DATACLASSES = {
    "Convergence": "shorthash.learners.rslh_steps:Convergence",
    "GroupStatistics": "shorthash.learners.statistics:GroupStatistics",
}
"""Dataclasses among fitted attributes: saved field by field."""

INDEXES = {
    "BucketIndex": "shorthash.index.buckets:BucketIndex",
    "ScanIndex": "shorthash.index.scan:ScanIndex",
}
"""Indexes: saved by their own ``export_state``."""


def registered_name(value: object, registry: dict[str, str]) -> str | None:
    """Name of the class of ``value`` if exactly that class is registered."""
    cls = type(value)
    place = f"{cls.__module__}:{cls.__qualname__}"
    return next((name for name, home in registry.items() if home == place), None)


def find_class(name: str, registry: dict[str, str]) -> Any:
    """Import a registered class; KeyError if there is none of that name."""
    module, _, qualname = registry[name].partition(":")
    return getattr(importlib.import_module(module), qualname)
