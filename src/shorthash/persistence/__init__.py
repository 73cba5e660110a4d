"""Save and load fitted models (as folders) and indexes (as single files), memory-mappable and without pickle.

In: an object of a registered class. Out: a folder or file, and the object again.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from shorthash.persistence.saves import describe, load, save, verify

if TYPE_CHECKING:
    from shorthash.persistence.encoders import export_encoder
    from shorthash.persistence.exports import export_index, import_index

__all__ = ["describe", "export_encoder", "export_index", "import_index", "load", "save", "verify"]

_HOMES = {
    "export_encoder": "shorthash.persistence.encoders",
    "export_index": "shorthash.persistence.exports",
    "import_index": "shorthash.persistence.exports",
}


def __getattr__(name: str) -> Any:
    """Import exports on first use: few programs need them, and they import much."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shorthash.persistence' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
