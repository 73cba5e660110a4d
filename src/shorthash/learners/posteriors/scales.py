"""Columns in units of their own spread: for rows whose columns were measured in different units.

Shrinkage, penalties and kernels treat all columns alike, so a column of prices would hide one of weights. In features
of one kind, such as those of a network, a column of small spread says less than the others and is better left as it is.
So every model tries both on rows held out, where spreads differ much.

Scales are powers of two: scaled rows are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shorthash._arrays import like, namespace
from shorthash._types import Features, Floats

UNEVEN = 16.0  # largest scale over the smallest from which on scales are tried
LEAST_GAIN = 0.01  # share of the log-loss that scales must take away
MOST_EXPONENT = 100  # of a scale, so that float32 holds it


def uneven_scales(X: Features) -> Floats | None:
    """The power of two nearest to one over the standard deviation of every column; None where they are much alike.

    Columns that are constant, up to rounding in float32, get the scale of the widest.
    """
    largest, deviation = np.abs(X).max(axis=0), X.std(axis=0, dtype=np.float64)
    varied = deviation > np.finfo(np.float32).eps * largest
    exponents = np.round(np.log2(np.where(varied, deviation, deviation.max() or 1.0)))
    scales = 2.0 ** -np.clip(exponents, -MOST_EXPONENT, MOST_EXPONENT)
    return np.asarray(scales) if scales.max() >= UNEVEN * scales.min() else None


def scaled(X: Any, scales: Floats | None) -> Any:
    """Rows with their columns multiplied by scales, in their own type and on their device."""
    if scales is None:
        return X
    xp = namespace(X)
    return X * xp.astype(like(scales, X), X.dtype, copy=False)
