"""How a search is carried out: which codes it looks at, in which runs of queries, on how many threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shorthash.codes import ball_masks

__all__ = ["EVERYTHING", "PROBE", "WORTH_THREADS", "Plan", "ball", "chunks", "in_chunks", "mean", "offsets_of"]

Words = NDArray[np.uint64]
Counts = NDArray[np.int64]

MAX_SLICES = 1 << 20  # bucket ranges held at once by one thread
WORTH_THREADS = 1 << 21  # steps (items copied) below which starting threads costs more than it brings
PROBE = 8  # steps that one probe of a bucket costs
EVERYTHING = int(np.iinfo(np.int64).max)  # a k that no query reaches


@dataclass(frozen=True)
class Plan:
    """How to find the buckets within ``radius``.

    Probe ``masks``, ring by ring; or (None) look at every occupied code; or (``in_parts``) look at the codes that agree
    with the query in some part.
    """

    radius: int
    masks: Words | None = None
    rings: Counts = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    in_parts: bool = False


@lru_cache(maxsize=64)
def ball(n_bits: int, radius: int) -> tuple[Words, Counts]:
    """Masks of the ball as uint64, by distance, and where each distance starts."""
    masks, rings = ball_masks(n_bits, radius)
    return masks.astype(np.uint64), rings.astype(np.int64)


def offsets_of(sizes: Counts) -> Counts:
    """Where each of several runs of these sizes begins, and where the last one ends."""
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def mean(values: Counts) -> int:
    """The mean, rounded down; 0 of nothing."""
    return int(values.sum()) // max(1, len(values))


def chunks(n_queries: int, slices: int, steps: int) -> list[tuple[int, int]]:
    """Split queries into runs of bounded memory, and into more where threads can share the work.

    ``slices`` and further ``steps`` are what the average query needs.
    """
    parts = n_queries * slices // MAX_SLICES + 1
    if n_queries * (PROBE * slices + steps) >= WORTH_THREADS:
        parts = max(parts, 4 * _n_threads())
    size = max(1, -(-n_queries // parts))
    return [(a, min(a + size, n_queries)) for a in range(0, n_queries, size)]


def in_chunks(work: Callable[[int, int], None], runs: list[tuple[int, int]]) -> None:
    """Call ``work`` on every run of queries; several at once if there are several."""
    threads = min(len(runs), _n_threads())
    if threads < 2:
        for a, b in runs:
            work(a, b)
        return
    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(work, a, b) for a, b in runs]:
            future.result()


@lru_cache(maxsize=1)
def _n_threads() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
