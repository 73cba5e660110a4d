"""Discrete cyclic coordinate descent (DCC): binary codes that minimise a quadratic form, one bit at a time.

Introduced with SDH (F. Shen, C. Shen, W. Liu, H. T. Shen, 2015). With all other bits fixed, a bit of all samples has a
closed form, because its square is 1 and drops out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Codes, Floats
from shorthash.codes.signs import sign

__all__ = ["MAX_SWEEPS", "dcc"]

MAX_SWEEPS = 10  # as in the SDH authors' code


def dcc(
    H: NDArray[Any],
    Q: Floats,
    A: Floats,
    *,
    weights: Floats | None = None,
    common: Floats | None = None,
    max_sweeps: int = MAX_SWEEPS,
) -> Codes:
    r"""Descend on :math:`\sum_i h_i A_i h_i^T - 2 h_i q_i^T` over signs, until no bit changes.

    Parameters
    ----------
    H : (n, L) codes to start from; zeros let every bit of the first sweep see only the bits before it
    Q : (n, L) linear part
    A : (L, L) symmetric; :math:`A_i = A` for every sample,
    weights : (n,) or None; with them :math:`A_i = w_i A`
    common : (L, L) symmetric or None; added to every :math:`A_i`
    max_sweeps : sweeps over all bits at most

    Examples
    --------
    Two bits that should differ, the first of which should be +1:

    >>> dcc(np.array([[1, 1]]), Q=np.array([[2.0, 0.0]]), A=np.ones((2, 2))).tolist()
    [[1, -1]]
    """
    bits = np.array(H, dtype=np.float64, order="F")
    for _ in range(max_sweeps):
        changed = False
        for bit in range(bits.shape[1]):
            scores = Q[:, bit] - _pull(bits, A, bit, weights)
            if common is not None:
                scores -= _pull(bits, common, bit, None)
            signs = sign(scores)
            changed = changed or not np.array_equal(signs, bits[:, bit])
            bits[:, bit] = signs
        if not changed:
            break
    return bits.astype(np.int8, order="C")


def _pull(bits: Floats, A: Floats, bit: int, weights: Floats | None) -> Floats:
    """What the other bits want of this one: H_-l A_-l,l, row by row, (n,)."""
    column = A[:, bit].copy()
    column[bit] = 0.0
    pulled = bits @ column
    return np.asarray(pulled if weights is None else weights * pulled)
