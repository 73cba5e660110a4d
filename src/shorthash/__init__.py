"""shorthash: extremely short binary codes, learned, searched and scored.

The flow, room by room (each imports only what stands to its left)::

    features -> kernels -> learners -> codes -> index -> evaluation -> report
    rows        phi(X)     fitted      +-1      buckets  Scores        tables, figures, page

    >>> from shorthash import make_hasher, BucketIndex, evaluate          # doctest: +SKIP
    >>> hasher = make_hasher("rslh", n_bits=8, random_state=0).fit(X, y)  # doctest: +SKIP
    >>> index = BucketIndex(n_bits=8).add(hasher.transform(X))            # doctest: +SKIP

Names are imported on first use, so that ``import shorthash`` and the command line stay quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shorthash.evaluation.scores import Scores, evaluate
    from shorthash.images.collection import Collection
    from shorthash.images.fitting import fit_images
    from shorthash.index.buckets import BucketIndex
    from shorthash.index.scan import ScanIndex
    from shorthash.kernels.rbf import AnchorRBF
    from shorthash.learners.eaph.estimator import EAPH
    from shorthash.learners.rslh.estimator import RSLH
    from shorthash.persistence import load, save
    from shorthash.recipes import HasherPipeline, make_hasher
    from shorthash.store import open_store
    from shorthash.store.sqlite import SQLiteStore

__all__ = [
    "EAPH",
    "RSLH",
    "AnchorRBF",
    "BucketIndex",
    "Collection",
    "HasherPipeline",
    "SQLiteStore",
    "ScanIndex",
    "Scores",
    "evaluate",
    "fit_images",
    "load",
    "make_hasher",
    "open_store",
    "save",
]

__version__ = "0.1.0"

_HOMES = {
    "EAPH": "shorthash.learners.eaph.estimator",
    "RSLH": "shorthash.learners.rslh.estimator",
    "AnchorRBF": "shorthash.kernels.rbf",
    "BucketIndex": "shorthash.index.buckets",
    "Collection": "shorthash.images.collection",
    "HasherPipeline": "shorthash.recipes",
    "SQLiteStore": "shorthash.store.sqlite",
    "ScanIndex": "shorthash.index.scan",
    "Scores": "shorthash.evaluation.scores",
    "evaluate": "shorthash.evaluation.scores",
    "fit_images": "shorthash.images.fitting",
    "load": "shorthash.persistence",
    "make_hasher": "shorthash.recipes",
    "open_store": "shorthash.store",
    "save": "shorthash.persistence",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its room on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shorthash' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
