"""The classes that may be saved and loaded: an explicit list, imported only when needed.

A saved file can name only these, and learners of methods that installed packages register by entry points. Any other
name is an error, so loading never runs code that came with a file.
"""

from __future__ import annotations

import importlib
from typing import Any

from shorthash.methods import RECIPES, Recipe, recipes

__all__ = ["DATACLASSES", "ESTIMATORS", "INDEXES", "find_class", "registered_name"]

METHOD = "method:"  # prefix of the name of a learner that an installed package registers

ESTIMATORS = {
    "AnchorRBF": "shorthash.kernels.rbf:AnchorRBF",
    "Bias": "shorthash.kernels.rbf:Bias",
    "BitBoost": "shorthash.learners.boosting:BitBoost",
    "CCAITQ": "shorthash.learners.ccaitq:CCAITQ",
    "COSDISH": "shorthash.learners.cosdish:COSDISH",
    "ClassifierCode": "shorthash.learners.classifier:ClassifierCode",
    "CodewordHasher": "shorthash.learners.encoders:CodewordHasher",
    "EAPH": "shorthash.learners.eaph.estimator:EAPH",
    "FSDH": "shorthash.learners.fsdh:FSDH",
    "FSSH": "shorthash.learners.fssh:FSSH",
    "HCSDH": "shorthash.learners.hcsdh:HCSDH",
    "HasherPipeline": "shorthash.pipeline:HasherPipeline",
    "KSH": "shorthash.learners.ksh:KSH",
    "LFH": "shorthash.learners.lfh:LFH",
    "LSH": "shorthash.learners.lsh:LSH",
    "LogisticRegression": "sklearn.linear_model:LogisticRegression",
    "MFH": "shorthash.learners.mfh:MFH",
    "NSH": "shorthash.learners.nsh:NSH",
    "PCAITQ": "shorthash.learners.itq:PCAITQ",
    "PCARR": "shorthash.learners.pcarr:PCARR",
    "POSH": "shorthash.learners.posh:POSH",
    "RSLH": "shorthash.learners.rslh.estimator:RSLH",
    "SCDH": "shorthash.learners.scdh:SCDH",
    "SDH": "shorthash.learners.sdh:SDH",
    "SDHMLR": "shorthash.learners.sdhmlr:SDHMLR",
    "SH": "shorthash.learners.sh:SH",
    "SSLH": "shorthash.learners.sslh:SSLH",
    "SumEAPH": "shorthash.learners.sumeaph:SumEAPH",
    "StandardScaler": "sklearn.preprocessing:StandardScaler",
}
"""scikit-learn estimators and pipelines: saved as parameters and fitted attributes."""

DATACLASSES = {
    "Classified": "shorthash.learners.posteriors.models:Classified",
    "Combination": "shorthash.learners.posteriors.models:Combination",
    "Convergence": "shorthash.learners.rslh.steps:Convergence",
    "GroupStatistics": "shorthash.learners.sums:GroupStatistics",
    "KeptRows": "shorthash.learners.kept_rows:KeptRows",
    "KernelRidge": "shorthash.learners.posteriors.ridge:KernelRidge",
    "LogLinear": "shorthash.learners.posteriors.logistic:LogLinear",
    "LogPosterior": "shorthash.learners.encoders:LogPosterior",
    "Prototypes": "shorthash.learners.posteriors.prototypes:Prototypes",
    "RidgeScores": "shorthash.learners.encoders:RidgeScores",
}
"""Dataclasses among fitted attributes: saved field by field."""

INDEXES = {
    "BucketIndex": "shorthash.index.buckets:BucketIndex",
    "FaissIndex": "shorthash.index.scan:FaissIndex",
    "ScanIndex": "shorthash.index.scan:ScanIndex",
}
"""Indexes: saved by their own ``export_state``."""


def registered_name(value: object, registry: dict[str, str]) -> str | None:
    """Name of the class of ``value`` if exactly that class is registered."""
    cls = type(value)
    for name, home in registry.items():
        if home.endswith(f":{cls.__qualname__}") and find_class(name, registry) is cls:
            return name
    if registry is ESTIMATORS:
        for name, recipe in _registered_methods().items():
            if recipe.learner_class() is cls:
                return METHOD + name
    return None


def find_class(name: str, registry: dict[str, str]) -> Any:
    """Import a registered class; KeyError if there is none of that name."""
    if registry is ESTIMATORS and name.startswith(METHOD):
        return _registered_methods()[name.removeprefix(METHOD)].learner_class()
    module, _, qualname = registry[name].partition(":")
    return getattr(importlib.import_module(module), qualname)


def _registered_methods() -> dict[str, Recipe]:
    """Methods that installed packages register."""
    return {name: recipe for name, recipe in recipes().items() if name not in RECIPES}
