"""Directions through the mean of the rows: principal ones, and random rotations of them.

Rows are read in batches and sums are float64; nothing larger than the d x d scatter matrix exists.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from shorthash._types import Floats
from shorthash.data.rows import Rows

__all__ = ["centred", "principal_directions", "random_rotation", "scatter"]


def centred(rows: Rows) -> tuple[Floats, Rows]:
    """The mean row, (d,), and the rows with it subtracted, in float64."""
    total: Floats | float = 0.0
    for _, batch in rows:
        total = total + batch.sum(axis=0, dtype=np.float64)
    mean = np.asarray(total / len(rows))
    return mean, rows.through(lambda batch: batch.astype(np.float64) - mean)


def scatter(rows: Rows) -> Floats:
    """X'X, (d, d); centre first, then sum: the other order loses digits where the mean is large."""
    total: Floats | float = 0.0
    for _, batch in rows:
        total = total + batch.T @ batch
    return np.asarray(total, dtype=np.float64)


def principal_directions(rows: Rows, n: int) -> Floats:
    """The ``n`` orthonormal directions of largest variance of centred rows, (d, n), largest first.

    Signs are free and therefore fixed: the entry of largest magnitude of every direction is positive. Where there are
    fewer directions of any variance, directions without variance follow.
    """
    S = scatter(rows)
    d = len(S)
    _, V = linalg.eigh(S, subset_by_index=[d - n, d - 1], check_finite=False)
    V = V[:, ::-1]
    peaks = V[np.abs(V).argmax(axis=0), np.arange(n)]
    return np.asarray(V * np.where(peaks < 0, -1.0, 1.0))


def random_rotation(n: int, rng: np.random.RandomState) -> Floats:
    """An orthogonal matrix, (n, n), uniform over all of them (QR of a Gaussian with the signs of its R fixed)."""
    Q, R = np.linalg.qr(rng.normal(size=(n, n)))
    return np.asarray(Q * np.where(np.diag(R) < 0, -1.0, 1.0))
