"""Codebooks: one codeword per class, drawn without data, or chosen from sums over rows.

Every start of the second kind is a function of counts and sums only, so a learner of sums that begins with one still
learns in one pass, and adding or removing rows gives the same model as a fit on the remaining rows.

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

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn.utils.random import sample_without_replacement

from shorthash._arrays import Codes, Floats
from shorthash._labels import shared_label
from shorthash.codes.signs import from_bool, sign, unpack
from shorthash.learners.eaph.codebook import anneal_codebook, schedule
from shorthash.learners.solvers import polar_parts, similar_sums
from shorthash.learners.sums import GroupStatistics

DRAWS = 200  # number of codebooks of which the best separated one is chosen
MANY_DRAWS = 4000  # the same for draws that need not be balanced, and are cheap
DRAW_WORK = 2 * 10**7  # limit on the cost of all draws; large codebooks get fewer draws
FEW_DRAWS = 20  # minimum number of draws
BLOCK = 1 << 20  # distances held at once
DECAY = 1.5  # of the crowding of two codewords: a factor of 2 ** 1.5 per bit
ENUMERABLE = 30  # bits up to which words are drawn as integers; longer ones rarely collide
POLAR_RUNS, POLAR_ITERATIONS = 10, 15
POLAR_ANCHOR = 1e-3  # weight of the codes themselves in their polar step; so that it is always defined
RANK_TOLERANCE = 1e-9  # singular values below this share of the first count as 0
BLOCK_BITS = 16  # longer codes are annealed in parts
SWAP = 0.9  # chance that a label set in the target cell changes places instead of sharing the code
PENALTIES = np.logspace(-8, 0, 17)  # of the regression, in units of the largest eigenvalue of K
LARGEST_SHARE = 0.9  # upper limit of q, for as many features as rows
DIGITS = 6  # of a share of rows, so that another order of summation gives the same result


def balanced_codebook(n_classes: int, n_bits: int, rng: np.random.RandomState) -> Codes:
    """Every bit splits the classes in halves; the draw with the largest minimum distance of 200.

    Codewords are distinct if there are enough codes: a draw of independent halves that collides is replaced by
    complementary pairs of distinct words, which split the classes in halves too. Of equally good draws the one with
    fewer nearest pairs is taken.
    """
    if n_classes > 2**n_bits:
        return _evenly(n_classes, n_bits, rng, _complementary_words)
    return max((_draw_balanced(n_classes, n_bits, rng) for _ in range(DRAWS)), key=separation)


def random_codebook(n_classes: int, n_bits: int, rng: np.random.RandomState) -> Codes:
    """Random codewords, distinct if there are enough codes."""
    while n_bits > ENUMERABLE:
        C = from_bool(rng.randint(0, 2, size=(n_classes, n_bits)) == 1)
        if n_distinct(C) == n_classes:
            return C
    return _evenly(n_classes, n_bits, rng, _random_words)


def separated_codebook(n_classes: int, n_bits: int, rng: np.random.RandomState) -> Codes:
    """The least crowded (``crowding``) of up to 4 000 draws of random codewords.

    Codewords are distinct if there are enough codes; with more classes than codes a single draw is used.
    """
    if n_classes > 2**n_bits:
        return random_codebook(n_classes, n_bits, rng)
    scarce = 2**n_bits < 4 * n_classes**2  # otherwise most draws of independent words do not collide
    cost = max(n_classes**2, 2**n_bits if scarce else 1)
    left = int(np.clip(DRAW_WORK // cost, FEW_DRAWS, MANY_DRAWS))
    best, least = random_codebook(n_classes, n_bits, rng), np.inf
    while left > 0:
        n_draws = min(left, max(1, BLOCK // cost))
        left -= n_draws
        drawn = (_scarce_draws if scarce else _free_draws)(n_draws, n_classes, n_bits, rng)  # (n_draws, c, L)
        values = crowding(drawn)
        if values.min() < least:
            best, least = drawn[values.argmin()], values.min()
    return best


def binary_codebook(n_classes: int, n_bits: int, rng: np.random.RandomState) -> Codes:  # noqa: ARG001
    """The number of the class in binary, lowest bit first; numbers that do not fit start again at 0."""
    return _as_signs(np.arange(n_classes) % 2 ** min(n_bits, ENUMERABLE), n_bits)


CODEBOOKS: dict[str, Callable[[int, int, np.random.RandomState], Codes]] = {
    "balanced": balanced_codebook,
    "binary": binary_codebook,
    "random": random_codebook,
    "separated": separated_codebook,
}
"""Codebooks by name: functions of the number of classes, the number of bits and a source of random numbers."""

BLIND_STARTS = {"distinct": CODEBOOKS["random"], **{name: CODEBOOKS[name] for name in ("balanced", "separated")}}
"""Starts that depend only on the number of codewords."""


def separation(codebook: Codes) -> tuple[float, int]:
    """Smallest Hamming distance between two codewords, and minus the number of pairs that have it."""
    C = codebook.astype(np.float64)
    distances = ((C.shape[1] - C @ C.T) / 2)[np.triu_indices(len(C), k=1)]
    if not len(distances):
        return float(C.shape[1]), 0
    nearest = distances.min()
    return float(nearest), -int((distances == nearest).sum())


def crowding(codebooks: Codes) -> Floats:
    """The crowding of codewords: the sum of 2 ** (-1.5 d) over pairs at distance d, for (..., c, L) codebooks."""
    C = codebooks.astype(np.float32)
    n_classes, n_bits = C.shape[-2:]
    agreement = np.rint(C @ np.swapaxes(C, -1, -2)).astype(np.intp)  # L - 2 d
    kernel = np.exp2(-DECAY * (n_bits - np.arange(-n_bits, n_bits + 1)) / 2)  # by agreement
    return np.asarray((kernel[agreement + n_bits].sum(axis=(-2, -1)) - n_classes) / 2)


def n_distinct(codebook: Codes) -> int:
    """Number of different codewords."""
    return len(np.unique(codebook, axis=0))


def _draw_balanced(n_classes: int, n_bits: int, rng: np.random.RandomState) -> Codes:
    """Independent halves, or complementary pairs if those collide."""
    while True:
        extra = rng.randint(0, 2, size=(n_bits, 1)) if n_classes % 2 else 0  # which half is larger
        places = np.argsort(rng.random_sample((n_bits, n_classes)), axis=1)
        C = from_bool((places < n_classes // 2 + extra).T)
        if n_distinct(C) == n_classes:
            return C
        if n_bits <= ENUMERABLE:
            return _evenly(n_classes, n_bits, rng, _complementary_words)


def _scarce_draws(n_draws: int, n_classes: int, n_bits: int, rng: np.random.RandomState) -> Codes:
    """Codebooks of distinct words, every draw is the start of a shuffled list of all words."""
    words = np.argsort(rng.random_sample((n_draws, 2**n_bits)), axis=1)[:, :n_classes]
    return _as_signs(words.reshape(-1), n_bits).reshape(n_draws, n_classes, n_bits)


def _free_draws(n_draws: int, n_classes: int, n_bits: int, rng: np.random.RandomState) -> Codes:
    """Codebooks of independent words; at most one in eight collides, and then its crowding is large."""
    return from_bool(rng.randint(0, 2, size=(n_draws, n_classes, n_bits)) == 1)


def _evenly(
    n_classes: int,
    n_bits: int,
    rng: np.random.RandomState,
    draw: Callable[[int, int, np.random.RandomState], NDArray[np.int64]],
) -> Codes:
    """Distinct words from ``draw``; with more classes than words every word equally often, the rest drawn."""
    copies, rest = divmod(n_classes, 2**n_bits)
    every = np.tile(np.arange(2**n_bits), copies) if copies else np.empty(0, dtype=np.int64)
    words = np.concatenate([every, draw(rest, n_bits, rng)])
    return rng.permutation(_as_signs(words, n_bits))


def _random_words(n: int, n_bits: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    """Distinct words, as integers."""
    return np.asarray(sample_without_replacement(2**n_bits, n, random_state=rng), dtype=np.int64)


def _complementary_words(n: int, n_bits: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    """Distinct words, as integers, each followed by its complement (except the last, if ``n`` is odd)."""
    ones = _random_words(-(-n // 2), n_bits - 1, rng)
    return np.stack([ones, 2**n_bits - 1 - ones], axis=1).reshape(-1)[:n]


def _as_signs(words: NDArray[np.int64], n_bits: int) -> Codes:
    """Integers as codewords, lowest bit first."""
    return from_bool((words[:, None] >> np.arange(n_bits)) & 1 == 1)


# starts from sums over rows -------------------------------------------------------------------------------------------


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
