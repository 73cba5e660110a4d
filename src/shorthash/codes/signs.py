"""The one sign function of the house: zero becomes +1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import is_foreign, namespace
from shorthash._types import Codes

__all__ = ["from_bool", "sign", "to_bool"]


def sign(scores: NDArray[Any]) -> Codes:
    """Signs of real scores as int8: +1 where ``scores >= 0``, -1 elsewhere; arrays of other packages stay theirs.

    Paper: ``sgn`` is left undefined at 0, and MATLAB's ``sign(0)`` is 0, which is no bit. Here 0 is +1, always.

    Examples
    --------
    >>> sign(np.array([-2.0, 0.0, 3.0])).tolist()
    [-1, 1, 1]
    """
    if is_foreign(scores):
        xp = namespace(scores)
        codes: Codes = 2 * xp.astype(scores >= 0, xp.int8) - 1
        return codes
    return from_bool(np.asarray(scores) >= 0)


def from_bool(bits: NDArray[np.bool_]) -> Codes:
    """True becomes +1, False -1."""
    codes = np.asarray(bits, dtype=bool).astype(np.int8)
    codes <<= 1
    codes -= 1
    return codes


def to_bool(codes: NDArray[Any]) -> NDArray[np.bool_]:
    """+1 becomes True, -1 False."""
    return np.asarray(codes) > 0
