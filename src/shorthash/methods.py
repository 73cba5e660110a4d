"""Every method of the house: what it is, who published it, which front end it wants; one entry per name.

Facts only: ``recipes`` makes hashers of them, the command line and the documentation list them. To add a method to the
package, add an entry here; to add one from outside, offer a ``Recipe`` under the entry point ``shorthash.methods``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sklearn.base import BaseEstimator

__all__ = ["RECIPES", "Recipe", "import_class"]


@dataclass(frozen=True)
class Recipe:
    """How a name is made into a pipeline, and what a reader wants to know about the method.

    Attributes
    ----------
    full_name, year, reference : what the method is and where it was published
    supervised, multilabel : whether it needs labels, and whether a sample may have several
    learner : "module:class" of the learner
    front_end : keys of ``FRONT_STEPS``, in order
    settings : parameters of the learner that differ from its defaults
    front_settings : the same for the kernel
    presets : further settings by name, ``{"settings": ..., "front_settings": ...}``
    """

    full_name: str
    year: int
    supervised: bool
    multilabel: bool
    reference: str
    learner: str
    front_end: tuple[str, ...] = ("kernel",)
    settings: Mapping[str, Any] = field(default_factory=dict)
    front_settings: Mapping[str, Any] = field(default_factory=dict)
    presets: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)

    def learner_class(self) -> type[BaseEstimator]:
        """Import the learner."""
        return import_class(self.learner)


def import_class(path: str) -> type[BaseEstimator]:
    """The class at "module:class"."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


RECIPES: dict[str, Recipe] = {
    "rslh": Recipe(
        full_name="Reinforcing Short-Length Hashing",
        year=2020,
        supervised=True,
        multilabel=True,
        reference="X. Liu, X. Nie, Q. Dai, Y. Huang, Y. Yin. Reinforcing Short-Length Hashing. arXiv:2004.11511.",
        learner="shorthash.learners.rslh:RSLH",
        presets={
            "authors-code": {
                "settings": {
                    "alpha": 7,
                    "beta": 1e-2,
                    "gamma": 1e-4,
                    "ridge": 1e-6,
                    "boosting": None,
                    "variant": "authors-code",
                },
                "front_settings": {"bandwidth": "mean-min-authors"},
            },
        },
    ),
}
