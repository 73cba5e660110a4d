"""One run, as plain values with one spelling, and the name that follows from them."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from shorthash.errors import InvalidInput
from shorthash.lab.dense import DENSE
from shorthash.methods import Recipe, import_class
from shorthash.recipes import FRONT_STEPS, recipes

__all__ = ["RunSpec", "canonical", "known_recipes", "run_name"]


@dataclass(frozen=True)
class RunSpec:
    """All that decides the outcome of a run.

    Attributes
    ----------
    task : "scores", "cost", "convergence" or "embedding"
    dataset : name or path
    protocol : of the split, its seed included
    seed : of the method; the same as that of the split
    method, n_bits : a recipe and a length
    settings, front_end : parameters that differ from the recipe, of learner and kernel
    """

    task: str
    dataset: str
    protocol: Mapping[str, Any]
    seed: int
    method: str
    n_bits: int
    settings: Mapping[str, Any]
    front_end: Mapping[str, Any]

    @classmethod
    def of(cls, **values: Any) -> Self:
        """A run in its one spelling: settings that say what the recipe says anyway are left out."""
        method = values["method"]
        settings, front_end = _differing(method, values.get("settings", {}), values.get("front_end", {}))
        return cls(**{**values, "settings": settings, "front_end": front_end})

    @property
    def name(self) -> str:
        """First 16 digits of the sha256 of the canonical form."""
        return run_name(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a record."""
        return json.loads(canonical(asdict(self)))  # type: ignore[no-any-return]


@functools.cache
def known_recipes() -> Mapping[str, Recipe]:
    """Every method by name; looked up once, for an experiment asks thousands of times."""
    return recipes()


def run_name(spec: Mapping[str, Any]) -> str:
    """The name of a run.

    Examples
    --------
    >>> run_name({"alpha": 1.0, "beta": 2}) == run_name({"beta": 2.0, "alpha": 1})
    True
    """
    return hashlib.sha256(canonical(spec).encode()).hexdigest()[:16]


def canonical(value: Any) -> str:
    """JSON in one spelling: keys sorted, whole numbers without a point, no spaces."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InvalidInput(f"A setting of a run must be a number, a word, none, or a list of them. Got {value!r} instead.")


def _differing(
    method: str, settings: Mapping[str, Any], front_end: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings that differ from those of the recipe; unknown names stay, so that making the hasher complains."""
    recipe = known_recipes()["rslh" if method == DENSE else method]
    learner = {**_defaults(recipe.learner_class()), **recipe.settings}
    kernel = {**_defaults(import_class(FRONT_STEPS["kernel"])), **recipe.front_settings}
    missing = object()
    return (
        {key: value for key, value in settings.items() if learner.get(key, missing) != value},
        {key: value for key, value in front_end.items() if kernel.get(key, missing) != value},
    )


def _defaults(cls: type) -> dict[str, Any]:
    return {key: parameter.default for key, parameter in inspect.signature(cls).parameters.items()}
