"""A codebook that knows which classes are confused: simulated annealing on the expected tie-aware mAP.

Rows are partitioned into groups (by their likeliest label set, or finer); a group is a mass per label set, and the
question is which cell each group gets. Only the largest masses of a group count, so a move costs as much as there are
groups and masses, not groups times label sets. Legend::

    M       (G, u)          mass of every label set in every group; the sum of all is 1
    S       (G, u)          relevant mass, M rel; M itself for single-label data
    z       (G,)            cell of every group
    entry                   a group g and a label set s of which it holds mass; w = M[g, s] / relevant mass of s
    within  (G, L + 1)      all mass up to every distance from every group
    F       flat            relevant mass up to every distance, of every entry; the entries of a group side by side
    parts   (G, L + 1)      what every distance adds to the expected mAP of a group
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from shorthash._arrays import Floats
from shorthash._compiled import njit

Ints = NDArray[np.int64]

MOST_ENTRIES = 16  # label sets of a group that count; those with the largest masses
REBUILD = 1000  # accepted moves after which sums are computed again, against rounding
NOTHING = 1e-12  # mass below which a level is empty
FLIP, ANYWHERE = 0.3, 0.35  # shares of proposals: flip one bit; (up to ANYWHERE) any cell; rest: by a confused group
BESIDE = 0.8  # chance that a group proposed to stand near another gets a cell beside it instead of the same cell
HEAT = 0.004  # first temperature times the number of label sets: what one move may cost
COOLING = 1e-2  # last temperature over the first
PER_GROUP = 200  # moves tried per group
FEWEST, MOST = 5_000, 40_000  # moves tried in all
WORK = 3e7  # moves times groups; with many groups fewer moves are tried


def schedule(M: Floats) -> tuple[int, float]:
    """Number of proposals and first temperature for masses of this shape."""
    G, u = M.shape
    return int(np.clip(min(PER_GROUP * G, WORK / G), FEWEST, MOST)), HEAT / u


def anneal_codebook(
    M: Floats,
    S: Floats,
    n_bits: int,
    rng: np.random.RandomState,
    *,
    n_proposals: int,
    heat: float,
    swap: float,
    item: float = 0.0,
) -> tuple[Ints, float]:
    """Cells of the groups and the expected mAP, from one random start.

    A group without mass gets the free cell nearest to the group that holds most of its label set.

    Parameters
    ----------
    M, S : (G, u) mass and relevant mass of every label set in every group
    n_bits : code length
    rng : source of the start and of all proposals
    n_proposals : moves tried
    heat : first temperature, in units of mAP
    swap : chance that a group in the target cell changes places instead of sharing it
    item : mass of one item of a database as large as the training set; 0 for an infinite one. The few items of a small
        database are found sooner than their share says, which favours groups of equal size
    """
    G, n_cells = len(M), 2**n_bits
    filled = np.flatnonzero(M.sum(axis=1) > NOTHING)
    masses = _masses(M[filled], None if S is M else S[filled], np.maximum(S.sum(axis=0), NOTHING), item)
    start = rng.permutation(n_cells)[:G] if n_cells >= G else rng.permutation(np.resize(rng.permutation(n_cells), G))
    distance = np.array([cell.bit_count() for cell in range(n_cells)], dtype=np.int64)
    seed = int(rng.randint(np.iinfo(np.int32).max))
    found = start[filled].astype(np.int64)
    value = _anneal(found.copy(), found, distance, masses, *_sums(masses, n_bits), n_proposals, heat, swap, seed)
    z = start.astype(np.int64)
    z[filled] = found
    free = np.setdiff1d(np.arange(n_cells), found)
    for g in np.setdiff1d(np.arange(G), filled) if M.shape[1] == G else ():
        holder = z[filled[M[filled, g].argmax()]]
        z[g] = holder if not len(free) else free[distance[free ^ holder].argmin()]
        free = free[free != z[g]]
    return z, value


class Masses(NamedTuple):
    """Groups and label sets, by entry, by label set and by group."""

    item: float  # mass of one item
    mass: Floats  # (G,) of every group
    starts: Ints  # (G + 1,) where the entries of every group begin
    sets: Ints  # label set of every entry
    groups: Ints  # group of every entry
    weights: Floats  # w of every entry
    set_starts: Ints  # (u + 1,) where the entries of every label set begin in set_entries
    set_entries: Ints  # entries by label set
    own_starts: Ints  # (G + 1,) where the relevant masses of every group begin
    own_sets: Ints
    own_masses: Floats
    holder_starts: Ints  # (u + 1,) where the groups with mass relevant to every label set begin
    holders: Ints
    holder_masses: Floats
    weight_sums: Floats  # running sums of weights and of holder_masses, for drawing
    holder_sums: Floats


def _masses(M: Floats, S: Floats | None, relevant_mass: Floats, item: float) -> Masses:
    """The largest entries of M, and all of S; where S is None, it is M."""
    G, u = M.shape
    order = np.argsort(-M, axis=1, kind="stable")[:, :MOST_ENTRIES]
    values = np.take_along_axis(M, order, axis=1)
    counts = values > 0
    chosen: Any = sparse.csr_array((values[counts], (np.nonzero(counts)[0], order[counts])), shape=(G, u))
    chosen.sort_indices()
    relevant: Any = chosen if S is None else sparse.csr_array(S)
    by_set: Any = relevant.tocsc()
    by_set.sort_indices()
    sets = chosen.indices.astype(np.int64)
    entries = np.argsort(sets, kind="stable")
    weights = chosen.data / relevant_mass[sets]
    return Masses(
        item=item,
        mass=M.sum(axis=1),
        starts=chosen.indptr.astype(np.int64),
        sets=sets,
        groups=np.repeat(np.arange(G), np.diff(chosen.indptr)),
        weights=weights,
        set_starts=np.searchsorted(sets[entries], np.arange(u + 1)),
        set_entries=entries.astype(np.int64),
        own_starts=relevant.indptr.astype(np.int64),
        own_sets=relevant.indices.astype(np.int64),
        own_masses=relevant.data.astype(np.float64),
        holder_starts=by_set.indptr.astype(np.int64),
        holders=by_set.indices.astype(np.int64),
        holder_masses=by_set.data.astype(np.float64),
        weight_sums=np.cumsum(weights),
        holder_sums=np.cumsum(by_set.data.astype(np.float64)),
    )


def _sums(masses: Masses, n_bits: int) -> tuple[Floats, Floats, Floats, Floats, Ints, Ints]:
    """Space for what moves are judged by: ``within``, ``F``, ``parts``, ``tried``, ``low`` and ``high``.

    ``tried`` are the parts that a move would give; ``low`` and ``high``, (G,), the first and the last distance at which
    it changes parts of a group.
    """
    G, T = len(masses.mass), n_bits + 1
    within, parts, tried = np.zeros((G, T)), np.zeros((G, T)), np.zeros((G, T))
    return within, np.zeros(len(masses.sets) * T), parts, tried, np.zeros(G, np.int64), np.zeros(G, np.int64)


@njit(cache=True, nogil=True, fastmath=True, allocates=False)
def _anneal(
    z: Ints,
    best_z: Ints,
    distance: Ints,
    masses: Masses,
    within: Floats,
    F: Floats,
    parts: Floats,
    tried: Floats,
    low: Ints,
    high: Ints,
    n_proposals: int,
    heat: float,
    swap: float,
    seed: int,
) -> float:
    """Metropolis steps with geometric cooling; keeps the best state seen in ``best_z``, and returns its value."""
    np.random.seed(seed)
    G, T = within.shape
    n_bits = T - 1
    value, best, accepted, stale = 0.0, -1.0, 0, True
    for proposal in range(n_proposals):
        if stale:
            value, stale = _build(z, distance, masses, within, F, parts, tried, low, high), False
            best = value if best < 0 else best
        g = np.random.randint(G)
        old, new = z[g], _propose(z, g, masses, n_bits)
        if new == old:
            continue
        other = _tenant(z, new) if np.random.random() < swap else -1
        for j in range(G):
            low[j], high[j] = T, -1
        _exchange(z, g, new, other, old, distance, masses, within, F, low, high)
        change = 0.0
        for j in range(G):
            change += _levels(j, low[j], high[j], masses, within, F, tried)
        temperature = heat * COOLING ** (proposal / n_proposals)
        if change >= 0 or np.random.random() < math.exp(change / temperature):
            value, accepted = value + change, accepted + 1
            stale = accepted % REBUILD == 0
            _copy(tried, parts, low, high)
            if value > best:
                best = value
                for j in range(G):
                    best_z[j] = z[j]
        else:
            _copy(parts, tried, low, high)
            _exchange(z, other, new, g, old, distance, masses, within, F, low, high)
    return best


@njit(inline="always", cache=True, nogil=True)
def _propose(z: Ints, g: int, masses: Masses, n_bits: int) -> int:
    """Another cell for group g: one bit away, anywhere, or at or beside a group that shares a label set with it."""
    kind = np.random.random()
    if kind < FLIP:
        return z[g] ^ (1 << np.random.randint(n_bits))  # type: ignore[no-any-return]
    if kind < ANYWHERE:
        return np.random.randint(1 << n_bits)
    s = masses.sets[_draw(masses.weight_sums, masses.starts[g], masses.starts[g + 1])]
    first, last = masses.holder_starts[s], masses.holder_starts[s + 1]
    near = masses.holders[_draw(masses.holder_sums, first, last)] if last > first else np.random.randint(len(z))
    cell: int = z[near]
    if np.random.random() < BESIDE:
        cell ^= 1 << np.random.randint(n_bits)
    return cell


@njit(inline="always", cache=True, nogil=True)
def _draw(sums: Floats, first: int, last: int) -> int:
    """One of the numbers first ... last - 1, with the chances whose running sums are given."""
    before = sums[first - 1] if first > 0 else 0.0
    target = before + np.random.random() * (sums[last - 1] - before)
    while first < last - 1:
        middle = (first + last) // 2
        if sums[middle - 1] > target:
            last = middle
        else:
            first = middle
    return first


@njit(inline="always", cache=True, nogil=True)
def _tenant(z: Ints, cell: int) -> int:
    """A group in the cell, each with equal chance; -1 if there is none."""
    found, chosen = 0, -1
    for j in range(len(z)):
        if z[j] == cell:
            found += 1
            if np.random.random() * found < 1.0:
                chosen = j
    return chosen


@njit(inline="always", cache=True, nogil=True)
def _copy(source: Floats, target: Floats, low: Ints, high: Ints) -> None:
    """The levels that a move has touched."""
    for j in range(len(low)):
        for t in range(low[j], high[j] + 1):
            target[j, t] = source[j, t]


@njit(inline="always", cache=True, nogil=True, fastmath=True)
def _build(
    z: Ints,
    distance: Ints,
    masses: Masses,
    within: Floats,
    F: Floats,
    parts: Floats,
    tried: Floats,
    low: Ints,
    high: Ints,
) -> float:
    """All sums from nothing; returns the expected mAP."""
    T, value = within.shape[1], 0.0
    for g in range(len(z)):
        for t in range(T):
            parts[g, t] = 0.0
    for g in range(len(z)):
        _surroundings(z, g, distance, masses, within, F)
        value += _levels(g, np.int64(0), T - 1, masses, within, F, parts)
        low[g], high[g] = 0, T - 1
    _copy(parts, tried, low, high)
    return value


@njit(inner=True, cache=True, nogil=True, fastmath=True, allocates=False)
def _surroundings(z: Ints, g: int, distance: Ints, masses: Masses, within: Floats, F: Floats) -> None:
    """All and relevant mass up to every distance from group g."""
    T, first, n = within.shape[1], masses.starts[g], masses.starts[g + 1] - masses.starts[g]
    for t in range(T):
        within[g, t] = 0.0
    for j in range(len(z)):
        within[g, distance[z[g] ^ z[j]]] += masses.mass[j]
    for t in range(1, T):
        within[g, t] += within[g, t - 1]
    for i in range(first * T, (first + n) * T):
        F[i] = 0.0
    for i in range(n):
        s = masses.sets[first + i]
        for h in range(masses.holder_starts[s], masses.holder_starts[s + 1]):
            F[first * T + distance[z[g] ^ z[masses.holders[h]]] * n + i] += masses.holder_masses[h]
    for i in range(n, T * n):
        F[first * T + i] += F[first * T + i - n]


@njit(inline="always", cache=True, nogil=True, fastmath=True)
def _exchange(
    z: Ints,
    first: int,
    its_cell: int,
    second: int,
    other_cell: int,
    distance: Ints,
    masses: Masses,
    within: Floats,
    F: Floats,
    low: Ints,
    high: Ints,
) -> None:
    """Two groups go to other cells, one after the other; -1 stands for no group."""
    for turn in range(2):
        g = first if turn == 0 else second
        if g >= 0:
            cell = its_cell if turn == 0 else other_cell
            _move(z, g, cell, distance, masses, within, F, low, high)
            _surroundings(z, g, distance, masses, within, F)


@njit(inner=True, cache=True, nogil=True, fastmath=True, allocates=False)
def _move(
    z: Ints, g: int, new: int, distance: Ints, masses: Masses, within: Floats, F: Floats, low: Ints, high: Ints
) -> None:
    """Group g goes to another cell: its mass changes level for everyone else.

    ``low`` and ``high`` are widened to the levels whose part changes.
    """
    old, T = z[g], within.shape[1]
    for j in range(len(z)):
        before, after = distance[z[j] ^ old], distance[z[j] ^ new]
        if before == after or j == g:
            continue
        sign = -1.0 if before < after else 1.0
        nearer, farther = (before, after) if before < after else (after, before)
        for t in range(nearer, farther):
            within[j, t] += sign * masses.mass[g]
        low[j] = nearer if nearer < low[j] else low[j]
        high[j] = farther if farther > high[j] else high[j]
    for i in range(masses.own_starts[g], masses.own_starts[g + 1]):
        s = masses.own_sets[i]
        for k in range(masses.set_starts[s], masses.set_starts[s + 1]):
            e = masses.set_entries[k]
            j = masses.groups[e]
            if j == g:
                continue
            before, after = distance[z[j] ^ old], distance[z[j] ^ new]
            n = masses.starts[j + 1] - masses.starts[j]
            place = masses.starts[j] * (T - 1) + e
            change = -masses.own_masses[i] if before < after else masses.own_masses[i]
            nearer, farther = (before, after) if before < after else (after, before)
            for t in range(nearer, farther):
                F[place + t * n] += change
    z[g] = new
    low[g], high[g] = 0, T - 1


@njit(inner=True, cache=True, nogil=True, fastmath=True, allocates=False)
def _levels(g: int, low: Any, high: int, masses: Masses, within: Floats, F: Floats, parts: Floats) -> float:
    """Recompute the parts of group g at some distances; returns by how much their sum changes.

    With f and n the mass at a distance, R and N the mass before it, and e the mass of one item:
    w f (f (1 - N l / n) + (R + e (1 - f / n)) l) / n, l = ln(1 + n / (N + e)).
    """
    T, first, count = within.shape[1], masses.starts[g], masses.starts[g + 1] - masses.starts[g]
    change = 0.0
    for t in range(low, high + 1):
        N = within[g, t - 1] if t > 0 else 0.0
        n, here = within[g, t] - N, first * T + t * count
        part = 0.0
        if n > NOTHING:
            log = math.log(1.0 + n / (N + masses.item)) if N + masses.item > 0.0 else 0.0
            kept = 1.0 - N * log / n
            for i in range(count):
                R = F[here - count + i] if t > 0 else 0.0
                f = F[here + i] - R
                part += masses.weights[first + i] * f * (f * kept + (R + masses.item * (1.0 - f / n)) * log)
            part /= n
        change += part - parts[g, t]
        parts[g, t] = part
    return change
