r"""Which classes a regression would confuse, from sums over rows alone.

The scores of a ridge regression of the label sets on the features estimate posteriors, so their mean over the rows of
a label set says what those rows are taken for. That mean follows from the sums that a one-pass learner keeps, and so
does, on average, what leaving out a row changes: the penalty is chosen by generalised cross-validation. Legend::

    K   (d, d)  X'X of centred rows        M  (d, u)  X'E of centred rows, sums per label set
    N   (u,)    rows per label set         n          all rows
    P   (d, u)  (K + penalty I)^-1 M       b  (u,)    N / n; the scores of a row are s = b + x P
    q           share of the fit that every row takes up; the residual e - s of a row that was left out is
                (e - s) / (1 - q), on average

A normal model of the scores (their means and common covariance) says more, and says it wrongly: scores of the own class
spread far wider than those of all others, and with a hundred classes nothing would ever be confused.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from shorthash._types import Floats
from shorthash.learners.statistics import GroupStatistics

__all__ = ["expected_confusion", "score_weights"]

PENALTIES = np.logspace(-8, 0, 17)  # of the regression, in units of the largest eigenvalue of K
LARGEST_SHARE = 0.9  # q is kept below, where there are as many features as rows
DIGITS = 6  # of a share of rows; rounding differences of sums added up in another order vanish


def expected_confusion(statistics: GroupStatistics) -> Floats:
    """How often a row of one label set is taken for another, (u, u); symmetric, not negative, sums to 1.

    The mean over rows of e's: indicator of the own label set times scores of a regression that did not see the row.
    A function of the sums alone, and the same whatever the order in which they were added up.
    """
    centred = statistics.centred(statistics.mean())
    n, b = centred.counts.sum(), centred.counts / centred.counts.sum()
    weights, q = score_weights(centred)
    fit = centred.sums.T @ weights
    seen = np.outer(b, b) + fit / n  # the mean of e's over the rows the regression saw
    joint = np.diag(b) - (np.diag(b) - seen) / (1 - q)
    joint = np.maximum(joint, np.diag(b**2))  # scores may be negative; a label set is recognised by chance at least
    return np.asarray(np.round(joint / joint.sum(), DIGITS))


def score_weights(centred: GroupStatistics) -> tuple[Floats, float]:
    """P, (d, u), and q, at the penalty of least generalised cross-validation error, from sums of centred rows."""
    K, M, N = centred.gram, centred.sums, centred.counts
    n = N.sum()
    values, vectors = linalg.eigh(K, check_finite=False)
    values = np.maximum(values, 0.0)
    R = vectors.T @ M  # (d, u)
    power = np.sum(R**2, axis=1)
    unexplained = n - np.sum(N**2) / n  # squared residual of the bias alone
    errors = []
    for penalty in PENALTIES * (values[-1] or 1.0):
        f = 1 / (values + penalty)
        residual = unexplained - 2 * np.sum(f * power) + np.sum(values * f**2 * power)
        q = min((1 + np.sum(values * f)) / n, LARGEST_SHARE)
        errors.append((residual / (1 - q) ** 2, penalty, q))
    _, penalty, q = min(errors)
    return np.asarray(vectors @ (R / (values + penalty)[:, None])), float(q)
