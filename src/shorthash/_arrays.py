"""Types of arrays, arrays of torch and CuPy (everything that differs from NumPy is here), and compiled loops.

Row-wise computations (kernel map, sums, scores, codes) are written once, with the functions of the array API standard,
and run on the device of the rows. Fitted attributes are always NumPy arrays.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shorthash.errors import MissingExtra

Features = NDArray[np.floating[Any]]
"""Feature rows, (n_samples, n_features), float32 or float64."""

Floats = NDArray[np.float64]
"""Anything the solvers compute with."""

Codes = NDArray[np.int8]
"""Codes as signs, (n_samples, n_bits), -1 or +1."""

Counts = NDArray[np.int64]
"""How many items: by distance, by class, by code."""

PackedCodes = NDArray[np.unsignedinteger[Any]]
"""Codes as integers, (n_samples,), the smallest unsigned type that holds n_bits."""

Distances = NDArray[np.uint8]
"""Hamming distances; 64 fits easily."""

Labels = NDArray[Any]
"""Class labels, (n_samples,), of any sortable type; or an indicator matrix, (n_samples, n_classes)."""

F = TypeVar("F", bound=Callable[..., Any])

FOREIGN = ("torch", "cupy")  # packages whose arrays stay on their device


def is_foreign(X: object) -> bool:
    """Whether ``X`` is an array of torch or CuPy."""
    return type(X).__module__.partition(".")[0] in FOREIGN and hasattr(X, "dtype") and hasattr(X, "shape")


def namespace(X: object) -> Any:
    """The functions of the array API standard for arrays like ``X``."""
    if not is_foreign(X):
        return np
    for home in ("sklearn.externals.array_api_compat", "array_api_compat"):
        try:
            return importlib.import_module(home).array_namespace(X)
        except ImportError:
            continue
    raise MissingExtra(
        f"Computing with arrays of {type(X).__module__} needs scikit-learn 1.7 or newer, or array-api-compat; "
        "install one of them, or pass NumPy arrays."
    )


def to_numpy(X: Any) -> NDArray[Any]:
    """A NumPy array with the same values, copied from the device if necessary."""
    if not is_foreign(X):
        return np.asarray(X)
    if _is_torch(X):
        return np.asarray(X.detach().cpu().numpy())
    return np.asarray(X.get())


def like(values: NDArray[Any], X: Any) -> Any:
    """``values`` as an array of the package of ``X``, on its device."""
    return values if not is_foreign(X) else namespace(X).asarray(values, device=X.device)


def returned(values: Any, X: Any) -> Any:
    """Results as arrays of the package of the rows ``X``, also where they were computed by NumPy."""
    return values if is_foreign(values) else like(values, X)


class DeviceCopies:
    """Arrays that are copied once to every device where they are used.

    Parameters
    ----------
    *arrays : NumPy arrays
    """

    def __init__(self, *arrays: NDArray[Any]) -> None:
        self.arrays = arrays
        self._copies: dict[tuple[str, str], tuple[Any, ...]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"arrays": self.arrays, "_copies": {}}

    def of(self, X: Any) -> tuple[Any, ...]:
        """The arrays, of the package of ``X`` and on its device."""
        if not is_foreign(X):
            return self.arrays
        place = (type(X).__module__, str(X.device))
        if place not in self._copies:
            self._copies[place] = tuple(like(array, X) for array in self.arrays)
        return self._copies[place]


def as_floats(X: Any) -> Any:
    """Rows as float32 or float64: these unchanged, other types as float64; without gradients."""
    if not is_foreign(X):
        return np.asarray(X) if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    xp = namespace(X)
    plain = X.detach() if hasattr(X, "detach") else X
    return plain if plain.dtype in (xp.float32, xp.float64) else xp.astype(plain, xp.float64)


def capped_exp(exponent: Any) -> Any:
    """exp(min(exponent, 0)), in place: such arrays are large, and memory traffic dominates the cost."""
    if _is_torch(exponent):
        return exponent.clamp_(max=0).exp_()
    xp = namespace(exponent)
    xp.minimum(exponent, 0, out=exponent)
    return xp.exp(exponent, out=exponent)


def _is_torch(X: Any) -> bool:
    return "torch" in sys.modules and isinstance(X, sys.modules["torch"].Tensor)


def njit(*, inner: bool = False, allocates: bool = True, **options: Any) -> Callable[[F], F]:
    """``numba.njit`` that does not keep compiled code on disk where it cannot: read-only folders, a full disk.

    Compiling takes most of the time of a first use. In compiled functions, ``np.int64(0)`` in the place of 0 as the
    first value of an argument keeps numba from compiling the callee once more for the literal; loops in the place of
    ``a[:] = b`` keep it from compiling the messages of broadcasting; conditions in the place of ``min`` and ``max``,
    and arrays that the caller allocates, save functions of numba; small functions of one caller have
    ``inline="always"``. A loop over part of an array is a loop over a slice: from 0, numba sees that no index is
    negative, and the loop can be vectorised.

    Parameters
    ----------
    inner : whether only compiled functions call this one; a part that takes arguments from Python is not compiled then
    allocates : whether arrays are made in the function; where none are, references to them are not counted
    **options : of ``numba.njit``; by default a division by zero is infinite or NaN, as in NumPy
    """
    import numba  # takes a second, and many modules that import this one compile nothing

    usual = {"no_cfunc_wrapper": True, "no_cpython_wrapper": inner, "error_model": "numpy"}  # nothing is called from C
    options = {**usual, **({} if allocates else {"_nrt": False}), **options}

    def compiled(function: F) -> F:
        try:
            made: Any = numba.njit(**options)(function)
        except RuntimeError:  # numba finds no folder that it may write to
            made = numba.njit(**{**options, "cache": False})(function)
        cache: Any = getattr(made, "_cache", None)
        if hasattr(cache, "save_overload"):
            save = cache.save_overload

            def save_if_possible(*values: Any) -> None:
                with suppress(OSError):
                    save(*values)

            cache.save_overload = save_if_possible
        result: F = made
        return result

    return compiled
