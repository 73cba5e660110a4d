"""Which items switch a bit: those nearest to its decision border, and those that are surest on either side."""

from __future__ import annotations

import numpy as np

from shorthash._types import Floats
from shorthash.images.results import BitExplanation
from shorthash.index.ids import AnyIds

__all__ = ["explain_scores"]


def explain_scores(ids: AnyIds, scores: Floats, per_side: int) -> list[BitExplanation]:
    """Explanations of every bit from the real scores of items.

    Parameters
    ----------
    ids : (n,) items
    scores : (n, n_bits) as ``hasher.project`` gives them; the sign is the bit
    per_side : how many items to name on either side and at the border

    Examples
    --------
    >>> [bit] = explain_scores(np.array([7, 8, 9]), np.array([[0.5], [-2.0], [3.0]]), 1)
    >>> bit.on.tolist(), bit.off.tolist(), bit.border.tolist(), round(bit.share, 2)
    ([9], [8], [7], 0.67)
    """
    found = []
    for bit, column in enumerate(scores.T):
        order = np.argsort(-column, kind="stable")
        on = [row for row in order[:per_side] if column[row] >= 0]
        off = [row for row in order[::-1][:per_side] if column[row] < 0]
        border = np.argsort(np.abs(column), kind="stable")[:per_side]
        share = float(np.mean(column >= 0)) if len(column) else 0.0
        found.append(BitExplanation(bit, share, ids[on], ids[off], ids[border], column[border]))
    return found
