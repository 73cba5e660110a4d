"""Where codewords start: drawn blindly, or from what sums over rows tell about the classes.

Every start is a function of counts and sums alone, so a learner of sums that begins with one still learns in one pass,
and adding or taking back rows gives what a fit on the rows that remain gives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._labels import shared_label
from shorthash._types import Codes, Floats
from shorthash.codes.signs import sign, unpack
from shorthash.learners.codebooks import CODEBOOKS, crowding
from shorthash.learners.eaph.codebook import anneal_codebook, schedule
from shorthash.learners.solvers import polar_parts
from shorthash.learners.supervision import similar_sums

__all__ = ["BLIND_STARTS", "STARTS", "annealed_codebook", "polar_codebook"]

BLIND_STARTS = {"distinct": CODEBOOKS["random"], **{name: CODEBOOKS[name] for name in ("balanced", "separated")}}
"""Starts that know only how many codewords there are."""

STARTS = ["random", *BLIND_STARTS, "polar", "annealed"]
"""Every start by name; "random" are independent bits, as in the publication."""

POLAR_RUNS, POLAR_ITERATIONS = 10, 15
POLAR_ANCHOR = 1e-3  # weight of the codes themselves in their polar step; keeps it defined
RANK_TOLERANCE = 1e-9  # singular values below this share of the first count as 0
BLOCK_BITS = 16  # longer codes are annealed in parts
SWAP = 0.9  # label sets rather change places than share a code


def polar_codebook(rows: NDArray[np.uint8], counts: Floats, n_bits: int, rng: np.random.RandomState) -> Codes:
    """Codewords that factor the centred similarity: the least crowded of ten alternations from random starts.

    With J = I - 11'/n, one alternation repeats B = polar(J S J H + 1e-3 J H), H = sgn(J S B). Rows with the same labels
    share a code, so all of it happens between label sets.

    Parameters
    ----------
    rows : (u, c) the label sets
    counts : (u,) rows of each
    n_bits : code length
    rng : source of the starts
    """
    runs = [_polar_run(rows, counts, n_bits, rng) for _ in range(POLAR_RUNS)]
    return min(runs, key=lambda C: float(crowding(C)))


def annealed_codebook(rows: NDArray[np.uint8], confusion: Floats, n_bits: int, rng: np.random.RandomState) -> Codes:
    """Codewords of the largest expected mAP when every item gets the codeword of the label set it is taken for.

    Confused label sets come to stand close together. Codes of more than 16 bits are annealed in parts of equal length.

    Parameters
    ----------
    rows : (u, c) the label sets
    confusion : (u, u) how often items of one label set are taken for another; sums to 1
    n_bits : code length
    rng : source of start and moves
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
        sure, _ = polar_parts(np.sqrt(N) * Q, RANK_TOLERANCE)  # every row counts: N of them are alike
        previous, C = C, sign(_centred(similar_sums(rows, np.sqrt(N) * sure), N))
        if np.array_equal(C, previous):
            break
    return C


def _centred(A: NDArray[Any], N: Floats) -> Floats:
    """A less its mean over all rows."""
    return np.asarray(A - (N * A).sum(axis=0) / N.sum())
