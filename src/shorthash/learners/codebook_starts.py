r"""Initial codewords: random ones, or ones chosen from sums over rows.

Every start is a function of counts and sums only, so a learner of sums that begins with one still learns in one pass,
and adding or removing rows gives the same model as a fit on the remaining rows.

Which classes a regression would confuse follows from the same sums. The scores of a ridge regression of the label sets
on the features estimate posteriors, so their mean over the rows of a label set says what those rows are taken for, and
so does, on average, the effect of leaving out a row: the penalty is chosen by generalised cross-validation. Legend::

    K   (d, d)  X'X of centred rows        M  (d, u)  X'E of centred rows, sums per label set
    N   (u,)    rows per label set         n          all rows
    P   (d, u)  (K + penalty I)^-1 M       b  (u,)    N / n; the scores of a row are s = b + x P
    q           share of the fit that every row takes up; the residual e - s of a row that was left out is
                (e - s) / (1 - q), on average

A normal model of the scores (their means and common covariance) would use more of the sums, but gives wrong answers:
scores of the own class have a much larger variance than those of all others, and with a hundred classes no two classes
would ever be confused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from shorthash._labels import shared_label
from shorthash._types import Codes, Floats
from shorthash.codes.signs import sign, unpack
from shorthash.learners.codebooks import CODEBOOKS, crowding
from shorthash.learners.eaph.codebook import anneal_codebook, schedule
from shorthash.learners.solvers import polar_parts, similar_sums
from shorthash.learners.sums import GroupStatistics

BLIND_STARTS = {"distinct": CODEBOOKS["random"], **{name: CODEBOOKS[name] for name in ("balanced", "separated")}}
"""Starts that depend only on the number of codewords."""

POLAR_RUNS, POLAR_ITERATIONS = 10, 15
POLAR_ANCHOR = 1e-3  # weight of the codes themselves in their polar step; so that it is always defined
RANK_TOLERANCE = 1e-9  # singular values below this share of the first count as 0
BLOCK_BITS = 16  # longer codes are annealed in parts
SWAP = 0.9  # chance that a label set in the target cell changes places instead of sharing the code
PENALTIES = np.logspace(-8, 0, 17)  # of the regression, in units of the largest eigenvalue of K
LARGEST_SHARE = 0.9  # upper limit of q, for as many features as rows
DIGITS = 6  # of a share of rows, so that another order of summation gives the same result


def polar_codebook(rows: NDArray[np.uint8], counts: Floats, n_bits: int, rng: np.random.RandomState) -> Codes:
    """Codewords that factor the centred similarity: the least crowded result of ten alternations from random starts.

    With J = I - 11'/n, one alternation repeats B = polar(J S J H + 1e-3 J H), H = sgn(J S B). Rows with the same labels
    share a code, so everything is computed between label sets.

    Parameters
    ----------
    rows : (u, c) the label sets
    counts : (u,) rows of each
    n_bits : code length
    rng : draws the starts
    """
    runs = [_polar_run(rows, counts, n_bits, rng) for _ in range(POLAR_RUNS)]
    return min(runs, key=lambda C: float(crowding(C)))


def annealed_codebook(rows: NDArray[np.uint8], confusion: Floats, n_bits: int, rng: np.random.RandomState) -> Codes:
    """Codewords with the largest expected mAP if every item gets the codeword of its predicted label set.

    Confused label sets get similar codes. Codes of more than 16 bits are annealed in parts of equal length.

    Parameters
    ----------
    rows : (u, c) the label sets
    confusion : (u, u) how often items of one label set are predicted as another; sums to 1
    n_bits : code length
    rng : draws start and moves
    """
    M = confusion / confusion.sum()
    single = bool(np.all(rows.sum(axis=1) == 1))
    relevant = M if single else M @ shared_label(rows, rows).astype(np.float64)
    n_parts = -(-n_bits // BLOCK_BITS)
    parts = []
    for part in range(n_parts):
        length = n_bits // n_parts + (part < n_bits % n_parts)
        n_proposals, heat = schedule(M)
        cells, _ = anneal_codebook(M, relevant, length, rng, n_proposals=n_proposals, heat=heat, swap=SWAP)
        parts.append(unpack(cells, length))
    return np.hstack(parts)


def _polar_run(rows: NDArray[np.uint8], counts: Floats, n_bits: int, rng: np.random.RandomState) -> Codes:
    """One alternation; C (u, L) codewords, N (u,) counts, B of the rows of every label set (u, L)."""
    N = counts[:, None]
    C = sign(rng.normal(size=(len(counts), n_bits)))
    for _ in range(POLAR_ITERATIONS):
        JC = _centred(C, N)
        Q = _centred(similar_sums(rows, N * JC), N) + POLAR_ANCHOR * JC
        sure, _ = polar_parts(np.sqrt(N) * Q, RANK_TOLERANCE)  # N rows are equal, and every row counts
        previous, C = C, sign(_centred(similar_sums(rows, np.sqrt(N) * sure), N))
        if np.array_equal(C, previous):
            break
    return C


def _centred(A: NDArray[Any], N: Floats) -> Floats:
    """A less its mean over all rows."""
    return np.asarray(A - (N * A).sum(axis=0) / N.sum())


def expected_confusion(statistics: GroupStatistics) -> Floats:
    """How often a row of one label set is predicted as another, (u, u); symmetric, not negative, sums to 1.

    The mean over rows of e's: indicator of the own label set times scores of a regression that did not see the row.
    It depends on the sums only, not on the order of summation.
    """
    centred = statistics.centred(statistics.mean())
    n, b = centred.counts.sum(), centred.counts / centred.counts.sum()
    weights, q = score_weights(centred)
    fit = centred.sums.T @ weights
    seen = np.outer(b, b) + fit / n  # the mean of e's over the rows the regression saw
    joint = np.diag(b) - (np.diag(b) - seen) / (1 - q)
    joint = np.maximum(joint, np.diag(b**2))  # scores may be negative; recognition is at least that of chance
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
