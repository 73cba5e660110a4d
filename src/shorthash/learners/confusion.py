r"""Which classes a regression would confuse, from sums over rows alone.

A ridge regression of the label sets on the features gives every row scores; their mean per label set and their common
covariance follow from the sums that a one-pass learner keeps. Rows are thought of as normal in the scores, as in linear
discriminant analysis, and normal rows, the same for everyone, are drawn and classified. Legend::

    K    (d, d)   X'X of centred rows          M   (d, u)  X'E of centred rows, sums per label set
    N    (u,)     rows per label set           n           all rows
    P    (d, u)   (K + penalty I)^-1 M         b   (u,)    N / n; the scores of a row are s = b + x P
    q             share of every residual e - s that the row itself took away; the residual of a row that was left
                  out is (e - s) / (1 - q), on average: generalised cross-validation
    m    (u, u)   mean scores per label set, of rows left out
    V    (u, u)   their covariance within label sets
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg, sparse, special

from shorthash._types import Floats
from shorthash.learners.statistics import GroupStatistics

__all__ = ["expected_confusion"]

PENALTIES = np.logspace(-8, 0, 17)  # of the regression, in units of the largest eigenvalue of K
LARGEST_SHARE = 0.9  # q is kept below, where there are as many features as rows
DRAWN_ROWS, FEWEST_ROWS = 20_000, 20  # rows drawn in all, and per label set at least
RANK_TOLERANCE = 1e-9  # directions of less variance, by the largest, count as constant
DIGITS = 6  # of a share of rows; rounding differences of sums added up in another order vanish


def expected_confusion(statistics: GroupStatistics) -> Floats:
    """Expected mass of every label set (columns) among the rows classified as every label set, (u, u); sums to 1.

    A function of the sums alone, and the same whatever the order in which they were added up.
    """
    N = statistics.counts
    m, V = _score_moments(statistics.centred(statistics.mean()))
    values, vectors = np.linalg.eigh(V)
    kept = values > RANK_TOLERANCE * max(values[-1], np.finfo(float).tiny)
    means = m @ (vectors[:, kept] / np.sqrt(values[kept]))  # (u, r); rows around them are standard normal
    n_drawn = max(FEWEST_ROWS, DRAWN_ROWS // len(N))
    noise = np.random.RandomState(0).normal(size=(n_drawn, means.shape[1]))
    offset = np.log(N) - np.sum(means**2, axis=1) / 2
    masses = np.zeros((len(N), len(N)))
    for mean, share in zip(means, N / (N.sum() * n_drawn), strict=True):
        posteriors = special.softmax((mean + noise) @ means.T + offset, axis=1)  # (n_drawn, u)
        taken_for = (posteriors.argmax(axis=1), np.arange(n_drawn))
        classified: Any = sparse.csr_array((np.full(n_drawn, share), taken_for), shape=(len(N), n_drawn))
        masses += classified @ posteriors
    return np.asarray(np.round(masses, DIGITS))


def _score_moments(centred: GroupStatistics) -> tuple[Floats, Floats]:
    """Moments m and V at the penalty of least generalised cross-validation error."""
    K, M, N = centred.gram, centred.sums, centred.counts
    n, b = N.sum(), N / N.sum()
    values, vectors = linalg.eigh(K, check_finite=False)
    values = np.maximum(values, 0.0)
    R = vectors.T @ M  # (d, u)
    power = np.sum(R**2, axis=1)
    left = n - np.sum(N * b)  # squared residual of the bias alone
    errors = []
    for penalty in PENALTIES * (values[-1] or 1.0):
        f = 1 / (values + penalty)
        residual = left - 2 * np.sum(f * power) + np.sum(values * f**2 * power)
        q = min((1 + np.sum(values * f)) / n, LARGEST_SHARE)
        errors.append((residual / (1 - q) ** 2, penalty, q))
    _, penalty, q = min(errors)
    P = R / (values + penalty)[:, None]  # in the basis of the eigenvectors
    means = b + (R / N).T @ P  # (u, u)
    spread = P.T @ (values[:, None] * P) - (means - b).T @ (N[:, None] * (means - b))
    identity = np.eye(len(N))
    return identity - (identity - means) / (1 - q), spread / (n * (1 - q) ** 2)
