"""Checks of parameters, arrays and estimators. A message names the parameter, the rule, the value and what to do."""

from __future__ import annotations

import importlib
import numbers
from collections.abc import Collection, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import namespace, to_numpy
from shorthash.errors import InvalidInput, MissingExtra, named

MAX_BITS = 64  # a code must fit one machine word


def check_n_bits(value: object, owner: str) -> int:
    """Return ``value`` as an int if it is a valid code length."""
    return check_count(value, "n_bits", owner, low=1, high=MAX_BITS)


def check_count(value: object, name: str, owner: str, *, low: int = 1, high: int | None = None) -> int:
    """Return ``value`` as an int if it lies in [low, high]."""
    if type(value) is int and low <= value and (high is None or value <= high):
        return value
    rule = f"an int >= {low}" if high is None else f"an int in the range [{low}, {high}]"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise InvalidInput(f"{named(name, owner)} must be {rule}. Got {value!r} instead.")
    number = int(value)
    if number < low or (high is not None and number > high):
        raise InvalidInput(f"{named(name, owner)} must be {rule}. Got {number} instead.")
    return number


def check_weight(value: object, name: str, owner: str, *, positive: bool = False) -> float:
    """Return ``value`` as a float if it is finite and not negative (not zero either, if ``positive``)."""
    rule = "a finite float > 0" if positive else "a finite float >= 0"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise InvalidInput(f"{named(name, owner)} must be {rule}. Got {value!r} instead.")
    number = float(value)
    if not np.isfinite(number) or number < 0 or (positive and number == 0):
        raise InvalidInput(f"{named(name, owner)} must be {rule}. Got {number!r} instead.")
    return number


def check_choice(value: object, name: str, owner: str, choices: Collection[object]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    if isinstance(value, np.ndarray) or value not in choices:
        allowed = ", ".join(repr(choice) for choice in choices)
        raise InvalidInput(f"{named(name, owner)} must be one of {allowed}. Got {value!r} instead.")


def check_finite(X: Any, owner: str, *, row_numbers: Sequence[int] | NDArray[np.intp] | None = None) -> None:
    """Raise if ``X`` holds NaN or infinity; the message names the first bad cell by its row number in the input."""
    xp = namespace(X)
    # a sum is not finite if any term is not, so one pass is enough where all are
    if not xp.isdtype(X.dtype, "real floating") or bool(xp.isfinite(xp.sum(X, dtype=xp.float64))):
        return
    bad = np.argwhere(to_numpy(~xp.isfinite(X)))
    if len(bad):
        row, column = bad[0].tolist()
        number = row if row_numbers is None else int(row_numbers[row])
        what = "NaN" if bool(xp.isnan(X[row, column])) else "infinity"
        raise InvalidInput(
            f"Input X of {owner} contains {what} (first at row {number}, column {column}); features must be "
            "finite, so drop or impute such rows first (for instance with sklearn.impute.SimpleImputer)."
        )


def as_single(X: Any, owner: str) -> NDArray[np.float32]:
    """Features in single precision, which must be finite there."""
    check_finite(X, owner)
    return np.asarray(within_single(np.asarray(X), owner), dtype=np.float32)


def within_single(X: Any, owner: str) -> Any:
    """Features, which are finite and must be so in single precision."""
    xp, limit = namespace(X), float(np.finfo(np.float32).max)
    if not len(X) or not xp.isdtype(X.dtype, "real floating") or xp.finfo(X.dtype).max <= limit:
        return X
    largest = max(float(xp.max(X)), -float(xp.min(X)))
    if largest > limit:
        raise InvalidInput(
            f"Input X of {owner} has values up to {largest:.3g}, but it learns in single precision, which ends at "
            f"{limit:.3g}; scale the features (for instance by sklearn.preprocessing.StandardScaler)."
        )
    return X


def check_same_length(n_rows: int | None, n_labels: int, owner: str) -> None:
    """Raise unless there are as many labels as rows; None if the number of rows does not matter."""
    if n_rows is not None and n_rows != n_labels:
        raise InvalidInput(
            f"Found input variables with inconsistent numbers of samples: X of {owner} has {n_rows} rows and y has "
            f"{n_labels}; give one label (or one indicator row) per feature row."
        )


def steps_of(hasher: Any) -> list[Any]:
    """The steps of a pipeline, the learner last; a hasher alone is its own only step."""
    return [step for _, step in getattr(hasher, "steps", [("", hasher)])]


def require_extra(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional dependency; the error names the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise MissingExtra(
            f"{purpose} needs {name}, which is not installed; install it with: {install_command(extra)}"
        ) from error


def install_command(extra: str) -> str:
    """How to install an extra: from the folder that the package was installed from, if it is still there."""
    import json
    from importlib import metadata
    from pathlib import Path
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = json.loads(metadata.distribution("shorthash").read_text("direct_url.json") or "{}")
        folder = Path(url2pathname(urlsplit(origin["url"]).path))
        option = "-e " if origin["dir_info"].get("editable") else ""
    except (metadata.PackageNotFoundError, ValueError, KeyError):
        return f"pip install 'shorthash[{extra}]'"
    return f"pip install {option}'{folder if folder.is_dir() else 'shorthash'}[{extra}]'"
