"""Array aliases that name what travels between rooms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
