"""Codebooks: one codeword per class, drawn without data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.random import sample_without_replacement

from shorthash._types import Codes, Floats
from shorthash.codes.signs import from_bool

DRAWS = 200  # number of codebooks of which the best separated one is chosen
MANY_DRAWS = 4000  # the same for draws that need not be balanced, and are cheap
DRAW_WORK = 2 * 10**7  # limit on the cost of all draws; large codebooks get fewer draws
FEW_DRAWS = 20  # minimum number of draws
BLOCK = 1 << 20  # distances held at once
DECAY = 1.5  # of the crowding of two codewords: a factor of 2 ** 1.5 per bit
ENUMERABLE = 30  # bits up to which words are drawn as integers; longer ones rarely collide


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
