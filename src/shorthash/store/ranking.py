"""Nearest first, ring by ring: probe the codes at distance 0, then 1, then 2, until there are enough.

A ring is probed as long as it has no more codes than the collection may have items; from there on one scan of all
items is cheaper, and answers for all larger distances at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.codes import ball_size, ring_masks
from shorthash.index.items import shuffle_keys
from shorthash.store.conditions import Allowed
from shorthash.store.items import as_ids_array, to_signed
from shorthash.store.session import Hit, Session, Version

__all__ = ["ball", "ball_codes", "count", "distances_of", "nearest", "rings", "sorted_hits", "worth_probing"]

ALWAYS_PROBED = 512  # codes that are cheap to probe however few items there are
NEVER_PROBED = 100_000  # codes that are too many for a statement however many items there are


def rings(
    session: Session,
    version: Version,
    query: int,
    ties: str,
    seed: int,
    allowed: Allowed,
    k: int | None,
    skip: str = "",
) -> Iterator[tuple[int, list[Hit]]]:
    """(distance, items) by increasing distance, only distances that occur; about ``k`` items in all are enough."""
    wanted = k
    for distance in range(version.n_bits + 1):
        if not _few(session, comb(version.n_bits, distance)):
            reach = range(distance, version.n_bits + 1)
            hits = session.scan(version, query, reach, allowed, ties, None if ties == "shuffle" else wanted, skip)
            yield from _by_distance(hits, query, ties, seed)
            return
        codes = _ring(version.n_bits, distance) ^ query
        limit = None if ties == "shuffle" else wanted
        hits = session.probe(version, codes.tolist(), allowed, ties, limit, skip)
        if hits:
            yield distance, sorted_hits(hits, ties, seed)
        if wanted is not None:
            wanted -= len(hits)
            if wanted <= 0:
                return


def nearest(
    session: Session, version: Version, query: int, k: int, ties: str, seed: int, allowed: Allowed, skip: str = ""
) -> tuple[list[Any], list[int]]:
    """Ids and distances of the k nearest items, or of all if there are fewer."""
    ids: list[Any] = []
    distances: list[int] = []
    for distance, hits in rings(session, version, query, ties, seed, allowed, k, skip):
        taken = [hit[0] for hit in hits[: k - len(ids)]]
        ids += taken
        distances += [distance] * len(taken)
        if len(ids) == k:
            break
    return ids, distances


def ball(session: Session, version: Version, query: int, radius: int, allowed: Allowed, order: str) -> list[Hit]:
    """All items within ``radius``, not yet sorted; ``order`` as for ``Session.probe``."""
    if not worth_probing(session, version.n_bits, radius):
        return session.scan(version, query, range(radius + 1), allowed, order, None)
    return session.probe(version, ball_codes(version.n_bits, radius, query), allowed, order, None)


def ball_codes(n_bits: int, radius: int, query: int) -> list[int]:
    """The signed codes within ``radius`` of a signed code, nearest first."""
    codes = np.concatenate([_ring(n_bits, t) for t in range(min(radius, n_bits) + 1)]) ^ query
    signed: list[int] = codes.tolist()
    return signed


def count(session: Session, version: Version, query: int, radius: int, allowed: Allowed) -> int:
    """How many items lie within ``radius``."""
    if radius >= version.n_bits:
        return session.count(version, None, allowed)
    if not worth_probing(session, version.n_bits, radius):
        return len(session.scan(version, query, range(radius + 1), allowed, "any", None))
    return session.count(version, ball_codes(version.n_bits, radius, query), allowed)


def distances_of(hits: Sequence[Hit], query: int) -> NDArray[np.uint8]:
    """Distance of every item from a signed query."""
    codes = np.fromiter((hit[1] for hit in hits), dtype=np.int64, count=len(hits))
    distances: NDArray[np.uint8] = np.bitwise_count((codes ^ query).view(np.uint64))
    return distances


def sorted_hits(hits: list[Hit], ties: str, seed: int) -> list[Hit]:
    """Items in the order of a tie policy."""
    if ties == "id":
        return sorted(hits)
    if ties == "insertion":
        return sorted(hits, key=lambda hit: hit[2])
    if ties == "shuffle":
        ids = as_ids_array([hit[0] for hit in hits])
        return [hits[i] for i in np.lexsort((ids, shuffle_keys(ids, seed)))]
    return hits


def _by_distance(hits: list[Hit], query: int, ties: str, seed: int) -> Iterator[tuple[int, list[Hit]]]:
    distances = distances_of(hits, query)
    for distance in np.unique(distances):
        here = [hits[i] for i in np.flatnonzero(distances == distance)]
        yield int(distance), sorted_hits(here, ties, seed)


def worth_probing(session: Session, n_bits: int, radius: int) -> bool:
    """Whether to probe the codes within ``radius`` rather than scan all items."""
    return _few(session, ball_size(n_bits, radius))


def _few(session: Session, n_codes: int) -> bool:
    if n_codes <= ALWAYS_PROBED:
        return True
    return n_codes <= NEVER_PROBED and n_codes <= session.collection.next_place


@lru_cache(maxsize=128)
def _ring(n_bits: int, distance: int) -> NDArray[np.int64]:
    return to_signed(ring_masks(n_bits, distance))
