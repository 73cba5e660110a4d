"""Types of arrays, and arrays of torch and CuPy: everything that differs from NumPy is here.

Row-wise computations (kernel map, sums, scores, codes) are written once, with the functions of the array API standard,
and run on the device of the rows. Fitted attributes are always NumPy arrays.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

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


def first_not_finite(X: Any) -> tuple[int, int, bool] | None:
    """Row and column of the first NaN or infinity of an array, and whether it is NaN; None if there is none.

    A sum is not finite if any term is not, so one pass is enough; only if it is not finite a second pass is made.
    """
    xp = namespace(X)
    if not xp.isdtype(X.dtype, "real floating") or bool(xp.isfinite(xp.sum(X, dtype=xp.float64))):
        return None
    places = np.argwhere(to_numpy(~xp.isfinite(X)))
    if not len(places):
        return None
    row, column = (int(i) for i in places[0])
    return row, column, bool(xp.isnan(X[row, column]))


def _is_torch(X: Any) -> bool:
    return "torch" in sys.modules and isinstance(X, sys.modules["torch"].Tensor)
