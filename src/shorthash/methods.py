"""Every method by name: publication, preprocessing and settings, and how to build it.

``make_hasher("rslh")`` builds the pipeline of a name. To add a method to the package, add an entry to ``methods.toml``;
to add one from another package, register a ``Recipe`` under the entry point ``shorthash.methods``.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from shorthash._validation import check_choice
from shorthash.errors import InvalidInput, ShorthashWarning
from shorthash.pipeline import HasherPipeline

KERNEL = "kernel__"  # prefix of parameters of the kernel, as in scikit-learn

# preprocessing steps by name; only the kernel has parameters to set
STEPS = {
    "kernel": "shorthash.kernels.rbf:AnchorRBF",
    "bias": "shorthash.kernels.rbf:Bias",
    "zscore": "sklearn.preprocessing:StandardScaler",
}


@dataclass(frozen=True)
class Recipe:
    """How to build the pipeline of a method, and its publication.

    Attributes
    ----------
    full_name, year, reference : what the method is and where it was published
    learner : "module:class" of the learner
    supervised, multilabel : whether it uses labels, and whether a sample may have several
    labels_optional : whether a supervised method learns without labels, too
    preprocessing : keys of ``STEPS``, in order
    settings : parameters of the learner that differ from its defaults
    kernel : the same for the kernel
    presets : further settings by name, ``{"settings": ..., "kernel": ...}``
    """

    full_name: str
    year: int
    reference: str
    learner: str
    supervised: bool = True
    multilabel: bool = True
    labels_optional: bool = False
    preprocessing: tuple[str, ...] = ("kernel",)
    settings: Mapping[str, Any] = field(default_factory=dict)
    kernel: Mapping[str, Any] = field(default_factory=dict)
    presets: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)

    def learner_class(self) -> type[BaseEstimator]:
        """Import the learner."""
        return import_class(self.learner)


def import_class(path: str) -> type[BaseEstimator]:
    """The class at "module:class"."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def _read_recipes() -> dict[str, Recipe]:
    """The methods of ``methods.toml``, in its order; lists become tuples, and "none", since TOML has no null, None."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(entry) for key, entry in value.items()}
        return tuple(value) if isinstance(value, list) else None if value == "none" else value

    with Path(__file__).with_name("methods.toml").open("rb") as file:
        return {name: Recipe(**plain(entry)) for name, entry in tomllib.load(file).items()}


RECIPES = _read_recipes()


def recipes() -> dict[str, Recipe]:
    """Every method by name: ours, and those that installed packages register under ``shorthash.methods``.

    Examples
    --------
    >>> "rslh" in recipes()
    True
    """
    found = dict(RECIPES)
    for point in _installed(tuple(sys.path)):
        if point.name in RECIPES:
            continue
        try:
            found[point.name] = point.load()
        except Exception as error:  # an error in another package must not break this one
            warnings.warn(
                f"The method {point.name!r} of an installed package cannot be loaded ({error!r}) and is ignored; "
                "repair or uninstall the package.",
                ShorthashWarning,
                stacklevel=2,
            )
    return found


@functools.cache  # the metadata of every installed package is read
def _installed(_path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Methods that installed packages register, by name; looked up once for a search path of modules."""
    return tuple(sorted(entry_points(group="shorthash.methods"), key=lambda point: point.name))


def method_facts(name: str) -> dict[str, Any]:
    """Facts about a method as plain values, for listings.

    Parameters
    ----------
    name : a name from ``recipes()``

    Examples
    --------
    >>> facts = method_facts("ksh")
    >>> facts["full_name"], facts["preprocessing"], facts["parameters"]["n_labelled"]
    ('Supervised Hashing with Kernels', ['AnchorRBF(n_anchors=300)'], 2000)
    """
    known = recipes()
    check_choice(name, "name", "method_facts", list(known))
    recipe = known[name]
    defaults = inspect.signature(recipe.learner_class()).parameters
    own = {key: p.default for key, p in defaults.items() if key not in ("n_bits", "random_state")}
    kernel = ", ".join(f"{key}={value!r}" for key, value in recipe.kernel.items())
    steps = {step: STEPS[step].partition(":")[2] for step in recipe.preprocessing}
    return {
        "full_name": recipe.full_name,
        "year": recipe.year,
        "supervised": recipe.supervised,
        "labels_optional": recipe.labels_optional,
        "multilabel": recipe.multilabel,
        "preprocessing": [f"{cls}({kernel})" if step == "kernel" else cls for step, cls in steps.items()],
        "parameters": {**own, **recipe.settings},
        "presets": {preset: dict(changes) for preset, changes in recipe.presets.items()},
        "reference": recipe.reference,
    }


def make_hasher(
    method: str = "auto",
    n_bits: int = 8,
    *,
    preset: str = "paper",
    kernel: Mapping[str, Any] | None = None,
    random_state: int | np.random.RandomState | None = None,
    **params: Any,
) -> HasherPipeline:
    """The pipeline of a method: preprocessing and learner, with the settings of its paper.

    Parameters
    ----------
    method : a key of ``recipes()``; "auto" is the recommended one
    n_bits : code length, 1 to 64
    preset : "paper", or one of the presets of the recipe, such as "authors-code": the settings of the authors' released
        code
    kernel : parameters of the kernel as a mapping, for instance ``{"n_anchors": 500}``
    random_state : passed to kernel and learner
    **params : parameters of the learner by name, and of the kernel with the prefix ``kernel__``

    Examples
    --------
    >>> hasher = make_hasher("rslh", n_bits=6, random_state=0, kernel__n_anchors=100, boosting="ob")
    >>> hasher[0].n_anchors, hasher[-1].n_bits, hasher[-1].boosting
    (100, 6, 'ob')
    """
    known = RECIPES if method in RECIPES else recipes()  # ours need no other package
    check_choice(method, "method", "make_hasher", list(known))
    recipe = known[method]
    check_choice(preset, "preset", f"make_hasher({method!r})", ["paper", *recipe.presets])
    chosen = recipe.presets.get(preset, {})
    given = dict(kernel or {})
    given |= {name.removeprefix(KERNEL): params.pop(name) for name in list(params) if name.startswith(KERNEL)}
    if given and "kernel" not in recipe.preprocessing:
        raise InvalidInput(f"{method} has no kernel, so it has no parameter {', '.join(given)} to set.")
    of_kernel = {"random_state": random_state, **recipe.kernel, **chosen.get("kernel", {}), **given}
    steps = [
        (step, _build(import_class(STEPS[step]), of_kernel if step == "kernel" else {}, f"the {step} of {method}"))
        for step in recipe.preprocessing
    ]
    learner_class = recipe.learner_class()
    settings = {"n_bits": n_bits, **recipe.settings, **chosen.get("settings", {}), **params}
    if "random_state" in _parameters(learner_class):
        settings = {"random_state": random_state, **settings}
    return HasherPipeline([*steps, ("hasher", _build(learner_class, settings, learner_class.__name__))])


def _parameters(cls: type[BaseEstimator]) -> list[str]:
    return [p for p in inspect.signature(cls.__init__).parameters if p != "self"]


def _build(cls: type[BaseEstimator], given: Mapping[str, Any], owner: str) -> BaseEstimator:
    """An instance; an unknown parameter is an error that lists the known ones."""
    known = _parameters(cls)
    for name in given:
        if name not in known:
            raise InvalidInput(f"{owner} has no parameter {name!r} to set here. It has: {', '.join(known)}.")
    return cls(**given)
