"""A codebook that knows which classes are confused: simulated annealing on the expected tie-aware mAP.

Rows are partitioned into groups (by their likeliest label set, or finer); a group is a mass per label set, and the
question is which cell each group gets. Only the largest masses of a group count, so a move costs as much as there are
groups and masses, not groups times label sets. Legend::

    M       (G, u)          mass of every label set in every group; the sum of all is 1
    S       (G, u)          relevant mass, M rel; M itself for single-label data
    z       (G,)            cell of every group
    entry                   a group g and a label set s of which it holds mass; w = M[g, s] / relevant mass of s
    within  (G, L + 2)      all mass nearer than every distance to every group
    F       flat            relevant mass nearer than every distance, of every entry; those of a group side by side
    parts   (G, L + 1)      what every distance adds to the expected mAP of a group
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from shorthash._arrays import Floats, njit
from shorthash.codes.levels import popcount

Ints = NDArray[np.int64]

MOST_ENTRIES = 16  # label sets of a group that count; those with the largest masses
REBUILD = 1000  # accepted moves after which sums are computed again, against rounding
NOTHING = 1e-12  # mass below which a level is empty
NO_GROUP: Any = np.int64(-1)
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
    value = _anneal(found.copy(), found, masses, _levels_of(masses, n_bits), n_proposals, heat, swap, seed)
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
    weights: Floats  # w of every entry
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
    weights = chosen.data / relevant_mass[sets]
    return Masses(
        item=item,
        mass=M.sum(axis=1),
        starts=chosen.indptr.astype(np.int64),
        sets=sets,
        weights=weights,
        own_starts=relevant.indptr.astype(np.int64),
        own_sets=relevant.indices.astype(np.int64),
        own_masses=relevant.data.astype(np.float64),
        holder_starts=by_set.indptr.astype(np.int64),
        holders=by_set.indices.astype(np.int64),
        holder_masses=by_set.data.astype(np.float64),
        weight_sums=np.cumsum(weights),
        holder_sums=np.cumsum(by_set.data.astype(np.float64)),
    )


class Levels(NamedTuple):
    """Masses by distance, and what they add to the expected mAP; nothing is nearer than distance 0.

    ``aside`` and ``aside_F`` hold those of the groups that a move would place elsewhere, two at most.
    """

    within: Floats  # (G, L + 2)
    F: Floats  # flat; a group with n entries has L + 2 times n numbers
    parts: Floats  # (G, L + 1)
    tried: Floats  # (G, L + 1) parts that a move would give, where it changes them
    aside: Floats  # (2, L + 2) as ``within``
    aside_F: Floats  # (2, most numbers of a group) as ``F``
    moved: Floats  # (u,) relevant mass that a move takes from one cell to another
    shift: Floats  # (most entries of a group,) the same by entry, with the sign of the change


def _levels_of(masses: Masses, n_bits: int) -> Levels:
    """Space for what moves are judged by."""
    G, T = len(masses.mass), n_bits + 1
    most = int(np.diff(masses.starts).max())
    return Levels(
        within=np.zeros((G, T + 1)),
        F=np.zeros(len(masses.sets) * (T + 1)),
        parts=np.zeros((G, T)),
        tried=np.zeros((G, T)),
        aside=np.zeros((2, T + 1)),
        aside_F=np.zeros((2, most * (T + 1))),
        moved=np.zeros(len(masses.holder_starts) - 1),
        shift=np.zeros(most),
    )


@njit(cache=True, nogil=True, fastmath=True, allocates=False)
def _anneal(
    z: Ints, best_z: Ints, masses: Masses, levels: Levels, n_proposals: int, heat: float, swap: float, seed: int
) -> float:
    """Metropolis steps with geometric cooling; keeps the best state seen in ``best_z``, and returns its value.

    A move is judged without making it, because most are rejected.
    """
    np.random.seed(seed)
    G, n_bits = len(z), levels.parts.shape[1] - 1
    value, best, accepted, stale = 0.0, -1.0, 0, True
    for proposal in range(n_proposals):
        if stale:
            value, stale = _build(z, masses, levels), False
            best = value if best < 0 else best
        g = np.random.randint(G)
        old, new = z[g], _propose(z, g, masses, n_bits)
        if new == old:
            continue
        other = _tenant(z, new) if np.random.random() < swap else NO_GROUP
        change = _judge(z, g, other, old, new, masses, levels)
        temperature = heat * COOLING ** (proposal / n_proposals)
        if change >= 0 or np.random.random() < math.exp(change / temperature):
            value, accepted = value + change, accepted + 1
            stale = accepted % REBUILD == 0
            _accept(z, g, other, old, new, masses, levels)
            if value > best:
                best = value
                for j in range(G):
                    best_z[j] = z[j]
        else:
            z[g] = old
            if other >= 0:
                z[other] = new
        _take(g, other, np.float64(0.0), masses, levels)
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
    found, chosen = 0, NO_GROUP
    for j in range(len(z)):
        if z[j] == cell:
            found += 1
            if np.random.random() * found < 1.0:
                chosen = j
    return chosen  # type: ignore[no-any-return]


@njit(inline="always", cache=True, nogil=True, fastmath=True)
def _build(z: Ints, masses: Masses, levels: Levels) -> float:
    """All sums from nothing; returns the expected mAP."""
    n_bits, value = levels.parts.shape[1] - 1, 0.0
    for g in range(len(z)):
        first, count = masses.starts[g], masses.starts[g + 1] - masses.starts[g]
        F = levels.F[first * (n_bits + 2) : (first + count) * (n_bits + 2)]
        _surroundings(z, g, masses, levels.within[g], F)
        _shift(g, np.float64(0.0), masses, levels)
        value += _add_up(g, np.int64(0), n_bits, 0.0, masses, levels.within[g], F, levels.shift, levels.parts[g])
    return value


@njit(inline="always", cache=True, nogil=True)
def _apart(one: int, two: int) -> int:
    """Hamming distance of two cells."""
    return np.int64(popcount(np.uint64(one ^ two)))  # type: ignore[return-value]


@njit(inner=True, cache=True, nogil=True, fastmath=True, allocates=False)
def _surroundings(z: Ints, g: int, masses: Masses, within: Floats, F: Floats) -> None:
    """All and relevant mass up to every distance from group g."""
    T, first, n = len(within) - 1, masses.starts[g], masses.starts[g + 1] - masses.starts[g]
    for t in range(T + 1):
        within[t] = 0.0
    for j in range(len(z)):
        within[_apart(z[g], z[j]) + 1] += masses.mass[j]
    for t in range(1, T):
        within[t + 1] += within[t]
    for i in range((T + 1) * n):
        F[i] = 0.0
    for i in range(n):
        s = masses.sets[first + i]
        for h in range(masses.holder_starts[s], masses.holder_starts[s + 1]):
            F[(_apart(z[g], z[masses.holders[h]]) + 1) * n + i] += masses.holder_masses[h]
    for t in range(1, T):
        nearer, here = F[t * n : (t + 1) * n], F[(t + 1) * n : (t + 2) * n]
        for i in range(n):
            here[i] += nearer[i]


@njit(inner=True, cache=True, nogil=True, fastmath=True, allocates=False)
def _take(g: int, other: int, sign: float, masses: Masses, levels: Levels) -> None:
    """Relevant mass that moves with group g from one cell to another, less that which moves back; 0 forgets it."""
    for i in range(masses.own_starts[g], masses.own_starts[g + 1]):
        levels.moved[masses.own_sets[i]] = sign * masses.own_masses[i]
    if other >= 0:
        for i in range(masses.own_starts[other], masses.own_starts[other + 1]):
            s = masses.own_sets[i]
            levels.moved[s] = sign * (levels.moved[s] - masses.own_masses[i])


@njit(inner=True, cache=True, nogil=True, fastmath=True, allocates=False)
def _shift(g: int, sign: float, masses: Masses, levels: Levels) -> None:
    """The relevant mass that moves, for the entries of group g."""
    sets = masses.sets[masses.starts[g] : masses.starts[g + 1]]
    for i in range(len(sets)):
        levels.shift[i] = sign * levels.moved[sets[i]]


@njit(inner=True, cache=True, nogil=True, fastmath=True, allocates=False)
def _judge(z: Ints, g: int, other: int, old: int, new: int, masses: Masses, levels: Levels) -> float:
    """By how much the expected mAP changes if g goes to another cell, and ``other`` (-1: none) to where g was.

    Leaves the two where they would be, and the new parts in ``levels.tried``.
    """
    T, change = levels.parts.shape[1], 0.0
    _take(g, other, np.float64(1.0), masses, levels)
    mass = masses.mass[g] - (masses.mass[other] if other >= 0 else 0.0)
    z[g] = new
    if other >= 0:
        z[other] = old
    for j in range(len(z)):
        first, last = masses.starts[j], masses.starts[j + 1]
        low, high = _apart(z[j], old), _apart(z[j], new)
        sign = -1.0 if low < high else 1.0
        if low > high:
            low, high = high, low
        within, F = levels.within[j], levels.F[first * (T + 1) : last * (T + 1)]
        if j in (g, other):
            place = 0 if j == g else 1
            within, F = levels.aside[place], levels.aside_F[place, : (last - first) * (T + 1)]
            _surroundings(z, j, masses, within, F)
            low, high, sign = 0, T - 1, 0.0
        elif low == high:
            continue
        _shift(j, sign, masses, levels)
        change += _add_up(j, low, high, sign * mass, masses, within, F, levels.shift, levels.tried[j])
        for t in range(low, high + 1):
            change -= levels.parts[j, t]
    return change


@njit(inner=True, cache=True, nogil=True, fastmath=True, allocates=False)
def _add_up(
    g: int,
    low: Any,
    high: int,
    mass: float,
    masses: Masses,
    within: Floats,
    F: Floats,
    shift: Floats,
    parts: Floats,
) -> float:
    """The parts of group g at some distances, and their sum, if mass moves from the last of them to the first.

    ``mass`` and ``shift``, which is relevant mass by entry, are what moves; ``within`` and F are without it.

    With f and n the mass at a distance, R and N the mass before it, and e the mass of one item:
    w f (f (1 - N l / n) + (R + e (1 - f / n)) l) / n, l = ln(1 + n / (N + e)).
    """
    weights = masses.weights[masses.starts[g] : masses.starts[g + 1]]
    count, item, total = len(weights), masses.item, 0.0
    for t in range(low, high + 1):
        before, here = (1.0 if t > low else 0.0), (1.0 if t < high else 0.0)
        N = within[t] + before * mass
        n = within[t + 1] + here * mass - N
        part = 0.0
        if n > NOTHING:
            log = math.log(1.0 + n / (N + item)) if N + item > 0.0 else 0.0
            kept, inverse = 1.0 - N * log / n, 1.0 / n
            nearer, farther = F[t * count : (t + 1) * count], F[(t + 1) * count : (t + 2) * count]
            for i in range(count):
                R = nearer[i] + before * shift[i]
                f = farther[i] + here * shift[i] - R
                part += weights[i] * f * (f * kept + (R + item * (1.0 - f * inverse)) * log)
            part *= inverse
        total += part
        parts[t] = part
    return total


@njit(inner=True, cache=True, nogil=True, fastmath=True, allocates=False)
def _accept(z: Ints, g: int, other: int, old: int, new: int, masses: Masses, levels: Levels) -> None:
    """Make the move that was judged last."""
    T = levels.parts.shape[1]
    mass = masses.mass[g] - (masses.mass[other] if other >= 0 else 0.0)
    for j in range(len(z)):
        first, n = masses.starts[j], masses.starts[j + 1] - masses.starts[j]
        F = levels.F[first * (T + 1) : (first + n) * (T + 1)]
        low, high = _apart(z[j], old), _apart(z[j], new)
        sign = -1.0 if low < high else 1.0
        if low > high:
            low, high = high, low
        if j in (g, other):
            place = 0 if j == g else 1
            for t in range(T + 1):
                levels.within[j, t] = levels.aside[place, t]
            for i in range(n * (T + 1)):
                F[i] = levels.aside_F[place, i]
            low, high = 0, T - 1
        elif low == high:
            continue
        else:
            _shift(j, sign, masses, levels)
            for t in range(low + 1, high + 1):
                levels.within[j, t] += sign * mass
                nearer = F[t * n : (t + 1) * n]
                for i in range(n):
                    nearer[i] += levels.shift[i]
        for t in range(low, high + 1):
            levels.parts[j, t] = levels.tried[j, t]
