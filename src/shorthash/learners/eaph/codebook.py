"""A codebook that knows which classes are confused: simulated annealing on the expected tie-aware mAP.

Rows are partitioned into groups (by their likeliest label set, or finer); a group is a mass per label set, and the
question is which cell each group gets. Legend::

    M   (G, u)         mass of every label set in every group; the sum of all is 1
    S   (G, u)         relevant mass, M rel; M itself for single-label data
    z   (G,)           cell of every group
    F   (G, L + 1, u)  relevant mass at every distance from every group
    m   (G, L + 1)     all mass at every distance from every group
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shorthash._types import Floats

__all__ = ["anneal_codebook", "schedule"]

REBUILD = 200  # accepted moves after which sums are made anew, against rounding
NOTHING = 1e-15  # mass below which a level is empty
FLIP, ANYWHERE = 0.5, 0.65  # shares of proposals: flip one bit; (up to ANYWHERE) any cell; the rest: near another group
COOLING = 1e-2  # last temperature over the first
HEAT = 0.04  # first temperature times the number of label sets: what one move may cost
FEWEST, MOST = 5_000, 60_000  # moves tried
WORK = 3e9  # additions they may cost together; with many label sets fewer moves are tried


def schedule(M: Floats, n_bits: int) -> tuple[int, float]:
    """Number of proposals and first temperature for masses of this shape."""
    return int(np.clip(WORK / (M.size * (n_bits + 1)), FEWEST, MOST)), HEAT / M.shape[1]


def anneal_codebook(
    M: Floats, S: Floats, n_bits: int, rng: np.random.RandomState, *, n_proposals: int, heat: float, swap: float
) -> tuple[NDArray[np.int64], float]:
    """Cells of the groups and the expected mAP, from one random start.

    Parameters
    ----------
    M, S : (G, u) mass and relevant mass of every label set in every group
    n_bits : code length
    rng : source of the start and of all proposals
    n_proposals : moves tried
    heat : first temperature, in units of mAP
    swap : chance that a group in the target cell changes places instead of sharing it
    """
    G, n_cells = len(M), 2**n_bits
    start = rng.permutation(n_cells)[:G] if n_cells >= G else rng.randint(0, n_cells, size=G)
    relevant_mass = np.maximum(S.sum(axis=0), NOTHING)
    return _anneal(
        np.ascontiguousarray(M),
        np.ascontiguousarray(S),
        M / relevant_mass,
        start.astype(np.int64),
        n_bits,
        n_proposals,
        heat,
        swap,
        int(rng.randint(np.iinfo(np.int32).max)),
    )


@njit(cache=True, nogil=True, fastmath=True)
def _anneal(
    M: Floats,
    S: Floats,
    w: Floats,
    z: NDArray[np.int64],
    n_bits: int,
    n_proposals: int,
    heat: float,
    swap: float,
    seed: int,
) -> tuple[NDArray[np.int64], float]:
    """Metropolis steps with geometric cooling; keeps the best state seen."""
    np.random.seed(seed)
    G = len(M)
    mass = M.sum(axis=1)
    F, m = np.zeros((G, n_bits + 1, M.shape[1])), np.zeros((G, n_bits + 1))
    _build(F, m, S, mass, z)
    value = _value(F, m, w)
    best, best_z, accepted = value, z.copy(), 0
    for proposal in range(n_proposals):
        g = np.random.randint(G)
        old, new = z[g], _propose(z, g, n_bits)
        if new == old:
            continue
        other = _tenant(z, new) if np.random.random() < swap else -1
        _move(F, m, S, mass, z, g, new)
        if other >= 0:
            _move(F, m, S, mass, z, other, old)
        changed = _value(F, m, w)
        temperature = heat * COOLING ** (proposal / n_proposals)
        if changed >= value or np.random.random() < math.exp((changed - value) / temperature):
            value, accepted = changed, accepted + 1
            if value > best:
                best = value
                best_z[:] = z
            if accepted % REBUILD == 0:
                _build(F, m, S, mass, z)
                value = _value(F, m, w)
        else:
            if other >= 0:
                _move(F, m, S, mass, z, other, new)
            _move(F, m, S, mass, z, g, old)
    return best_z, best


@njit(cache=True, nogil=True)
def _propose(z: NDArray[np.int64], g: int, n_bits: int) -> int:
    """Another cell for group g: one bit away, anywhere, or at or beside another group."""
    kind = np.random.random()
    if kind < FLIP:
        return int(z[g] ^ (1 << np.random.randint(n_bits)))
    if kind < ANYWHERE:
        return np.random.randint(1 << n_bits)
    near = int(z[np.random.randint(len(z))])
    if np.random.random() < 0.5:
        near ^= 1 << np.random.randint(n_bits)
    return near


@njit(cache=True, nogil=True)
def _tenant(z: NDArray[np.int64], cell: int) -> int:
    """A group in the cell, each with equal chance; -1 if there is none."""
    found, chosen = 0, -1
    for j in range(len(z)):
        if z[j] == cell:
            found += 1
            if np.random.random() * found < 1.0:
                chosen = j
    return chosen


@njit(cache=True, nogil=True)
def _distance(a: int, b: int) -> int:
    x, count = a ^ b, 0
    while x:
        x &= x - 1
        count += 1
    return count


@njit(cache=True, nogil=True, fastmath=True)
def _build(F: Floats, m: Floats, S: Floats, mass: Floats, z: NDArray[np.int64]) -> None:
    """All level masses from nothing."""
    F[:] = 0.0
    m[:] = 0.0
    for g in range(len(z)):
        for j in range(len(z)):
            t = _distance(z[g], z[j])
            m[g, t] += mass[j]
            for k in range(S.shape[1]):
                F[g, t, k] += S[j, k]


@njit(cache=True, nogil=True, fastmath=True)
def _move(F: Floats, m: Floats, S: Floats, mass: Floats, z: NDArray[np.int64], g: int, new: int) -> None:
    """Group g goes to another cell: its mass changes level for everyone, and everyone's for it."""
    old = z[g]
    z[g] = new
    F[g] = 0.0
    m[g] = 0.0
    for j in range(len(z)):
        t = _distance(z[j], new)
        m[g, t] += mass[j]
        for k in range(S.shape[1]):
            F[g, t, k] += S[j, k]
        before = _distance(z[j], old)
        if j != g and before != t:
            m[j, before] -= mass[g]
            m[j, t] += mass[g]
            for k in range(S.shape[1]):
                F[j, before, k] -= S[g, k]
                F[j, t, k] += S[g, k]


@njit(cache=True, nogil=True, fastmath=True)
def _value(F: Floats, m: Floats, w: Floats) -> float:
    """The expected mAP: sum over groups and label sets of w times AP, w = M over relevant mass."""
    total = 0.0
    R = np.zeros(F.shape[2])
    for g in range(len(F)):
        R[:] = 0.0
        N = 0.0
        for t in range(F.shape[1]):
            n = m[g, t]
            if n <= NOTHING:
                continue
            log = math.log((N + n) / N) if N > NOTHING else 0.0
            inv, part = 1.0 / n, 0.0
            for k in range(F.shape[2]):
                rho = F[g, t, k] * inv
                part += w[g, k] * rho * (F[g, t, k] + (R[k] - rho * N) * log)
                R[k] += F[g, t, k]
            total += part
            N += n
    return total
