r"""The expected tie-aware mAP of a table of masses, and its derivative.

A code of L bits is a cell z of 2^L. If p(x) are class posteriors, the expected tie-aware mAP of any assignment of items
to cells depends on the data only through ``h``, the mass of every label set in every cell, and is a smooth function of
it. Legend::

    h    (Z, u)     mass of label set s in cell z; the sum over the training rows of their posteriors, over n
    rel  (u, u)     1 where two label sets share a label; the identity for single-label data (then None)
    f_t  (Z, u)     relevant mass at distance t from a cell: levels of h rel
    n_t  (Z,)       all mass at distance t;  N_t, R_t: all and relevant mass at smaller distances
    l_t  (Z,)       ln((N_t + n_t) / N_t), 0 at t = 0
    A    (Z, u)     AP of a query of set s at cell z: (1 / R_s) sum_t rho (f + (R_t - rho N_t) l), rho = f / n
    D    (Z, u)     derivative of the mAP by mass of set s placed in cell z of the database

The mAP is the sum of h * A. A is the limit of the tie-aware AP of codes/levels.py as counts grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Floats, is_foreign, like, namespace, njit
from shorthash.learners.posteriors.folds import in_threads

TABLE_BITS = 16  # the longest code for which all cells are held in a table
BLOCK_FLOATS = 1 << 22  # level masses held at once: 16 MB in float32, which stays in the cache
SIDE_BY_SIDE = 16  # label sets per block at least, even if the block leaves the cache: shorter loops are not vectorised
MOST_FLOATS = 1 << 24  # level masses held at once in such a block
DEVICE_FLOATS = 1 << 26  # the same on a device: 512 MB in float64
LEAST_MASS = 1e-30  # keeps the AP of a label set without any relevant mass finite


def codeword_table(cells: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Cells in use, ascending, and a table that is 1 where a cell is the codeword of a label set.

    Parameters
    ----------
    cells : (u,) codeword of every label set
    """
    used, place = np.unique(cells, return_inverse=True)
    table = np.zeros((len(used), len(cells)), dtype=np.float32)
    table[place.reshape(-1), np.arange(len(cells))] = 1
    return used, table


@dataclass(frozen=True)
class ApTable:
    """Gain of a query at every cell, gain of a database item there, and the mAP."""

    query: Any  # A, float32
    database: Any  # D, float32
    value: float


def ap_table(h: Any, background: Floats, rel: Floats | None = None) -> ApTable:
    """A, D and the mAP of the masses ``h``.

    Parameters
    ----------
    h : (2**n_bits, u) masses; where they are tensors, so are A and D
    background : (u,) mass spread evenly over all cells, so that empty ones have a derivative
    rel : (u, u) which label sets share a label; None for the identity
    """
    if is_foreign(h):
        return _table_by_arrays(h, background, rel)
    Z, u = h.shape
    n_bits = Z.bit_length() - 1
    full = h + background / Z
    seen = full if rel is None else full @ rel
    n = _masses_at_distances(full.sum(axis=1))  # (Z, T)
    N = np.cumsum(n, axis=1) - n
    log = np.zeros_like(n)
    log[:, 1:] = np.log((N[:, 1:] + n[:, 1:]) / N[:, 1:])
    inverse = 1.0 / np.maximum(seen.sum(axis=0), LEAST_MASS)
    A, own = np.empty((Z, u), dtype=np.float32), np.empty((Z, u), dtype=np.float32)
    block = max(1, BLOCK_FLOATS // n.size, min(SIDE_BY_SIDE, MOST_FLOATS // n.size))
    low = n_bits // 2  # bits that are raised first and lowered last
    filled = np.flatnonzero(h.any(axis=1))
    place = np.full(Z, len(filled))  # of a cell in gn and gN, where all cells without mass share the last row
    place[filled] = np.arange(len(filled))

    def terms(start: int) -> tuple[Floats, Floats]:
        part = slice(start, min(start + block, u))
        f = np.zeros((low + 1, Z, part.stop - start), dtype=np.float32)
        f[0] = seen[:, part]
        here = np.zeros(f.shape[1:], dtype=np.float32)
        gn, gN = np.zeros((2, len(filled) + 1, n_bits + 1))
        inside = np.zeros((n_bits + 1, Z >> low, f.shape[2]), dtype=np.float32)
        space = np.zeros((n_bits + 3, f.shape[2]))
        _raise_levels(f, low, 0)
        _upper_bits(f, inside, n, N, log, np.ascontiguousarray(h[:, part]), inverse[part], place, gn, gN, here, space)
        _lower_levels(f, low, 0)
        A[:, part], own[:, part] = here, f[0]
        return gn, gN

    gn, gN = (np.sum(parts, axis=0) for parts in zip(*in_threads(terms, range(0, u, block)), strict=True))
    common = np.zeros((n_bits + 1, Z, 1))
    common[:, filled, 0] = (gn + np.cumsum(gN[:, ::-1], axis=1)[:, ::-1] - gN)[:-1].T
    _lower_levels(common, n_bits, 0)
    D = (own if rel is None else own @ rel) + common[0]
    return ApTable(A, D.astype(np.float32), float(np.sum(h * A)))


def _masses_at_distances(masses: Floats) -> Floats:
    """Masses at every distance from every cell, (Z, T)."""
    n_bits = len(masses).bit_length() - 1
    f = np.zeros((n_bits + 1, len(masses), 1))
    f[0, :, 0] = masses
    _raise_levels(f, n_bits, 0)
    return np.ascontiguousarray(f[:, :, 0].T)


@njit(inner=True, cache=True, nogil=True, allocates=False)
def _add(to: NDArray[Any], of: NDArray[Any]) -> None:
    for i in range(len(to)):
        to[i] += of[i]


@njit(cache=True, nogil=True, allocates=False)
def _raise_levels(f: NDArray[Any], n_bits: int, n_known: int) -> None:
    """Masses at every distance in some more bits, from those in ``n_known`` bits; (T, Z, b), in place.

    Bit by bit, what lies across the bit is added one level up. Cells across the first bit stand side by side; parts of
    2^n_bits cells are done one after the other, so that a part stays in the cache.
    """
    b = f.shape[2]
    for first in range(0, f.shape[1], 1 << n_bits):
        for bit in range(n_bits):
            run = b << bit
            for t in range(n_known + bit + 1, 0, -1):  # from the top: level t - 1 is still the old one
                to, of = f[t].reshape(-1), f[t - 1].reshape(-1)
                for start in range(first * b, (first + (1 << n_bits)) * b, 2 * run):
                    _add(to[start : start + run], of[start + run : start + 2 * run])
                    _add(to[start + run : start + 2 * run], of[start : start + run])


@njit(cache=True, nogil=True, allocates=False)
def _lower_levels(a: NDArray[Any], n_bits: int, n_known: int) -> None:
    """The adjoint of ``_raise_levels``, in place; the levels that it begins with are the answer."""
    b = a.shape[2]
    for first in range(0, a.shape[1], 1 << n_bits):
        for bit in range(n_bits - 1, -1, -1):
            run = b << bit
            for t in range(n_known + bit + 1):
                to, of = a[t].reshape(-1), a[t + 1].reshape(-1)
                for start in range(first * b, (first + (1 << n_bits)) * b, 2 * run):
                    _add(to[start : start + run], of[start + run : start + 2 * run])
                    _add(to[start + run : start + 2 * run], of[start : start + run])


@njit(cache=True, nogil=True, allocates=False)
def _upper_bits(
    f: NDArray[Any],
    inside: NDArray[Any],
    n: Floats,
    N: Floats,
    log: Floats,
    h: Floats,
    inverse: Floats,
    place: NDArray[np.intp],
    gn: Floats,
    gN: Floats,
    A: NDArray[np.float32],
    space: Floats,
) -> None:
    """A of some label sets, and from masses by distance in the lowest bits, f, derivatives by the same distances.

    The cells that agree in the lowest bits are taken together, to ``inside``, (T, Z', b), where all their levels stay
    in the cache: levels are raised by the other bits, become derivatives (``_class_terms``), and are lowered again.
    """
    T, n_low = inside.shape[0], f.shape[0] - 1
    n_high = T - 1 - n_low
    for rest in range(1 << n_low):
        for high in range(inside.shape[1]):
            z = high << n_low | rest
            for t in range(T):
                for k in range(f.shape[2]):
                    inside[t, high, k] = f[t, z, k] if t <= n_low else 0.0
        _raise_levels(inside, n_high, n_low)
        filled = False
        for high in range(inside.shape[1]):
            z = high << n_low | rest
            row = place[z]
            some = _class_terms(inside[:, high], n[z], N[z], log[z], h[z], inverse, gn[row], gN[row], A[z], space)
            filled = filled or some
        if filled:
            _lower_levels(inside, n_high, n_low)
        for high in range(inside.shape[1]):
            z = high << n_low | rest
            for t in range(n_low + 1):
                for k in range(f.shape[2]):
                    f[t, z, k] = inside[t, high, k]


@njit(inner=True, cache=True, nogil=True, fastmath=True, allocates=False)
def _class_terms(
    f: NDArray[Any],
    n: Floats,
    N: Floats,
    log: Floats,
    h: Floats,
    inverse: Floats,
    gn: Floats,
    gN: Floats,
    A: NDArray[np.float32],
    space: Floats,
) -> bool:
    """A (zeros) of some label sets at one cell; f, (T, b), becomes gf_t + sum_{s>t} gR_s; gn, gN become their sums.

    With w = h / R and e = rho (R_t - rho N_t)::

        gf = w (2 rho + l (R_t - 2 rho N_t) / n)     gn = w (-rho^2 + l rho (2 rho N_t - R_t) / n + e / (N_t + n))
        gR = w rho l                                 gN = w (-rho^2 l + e (1 / (N_t + n) - 1 / N_t)), 0 at t = 0

    Without mass at the cell, only A is not 0. Returns whether there is mass.
    """
    T, b = f.shape
    R, above, before = space[0], space[1], space[2:]
    filled = False
    for k in range(b):
        R[k], above[k] = 0.0, 0.0
        filled = filled or h[k] != 0.0
    for t in range(T):
        inv, joint = 1.0 / n[t], 1.0 / (N[t] + n[t])
        if not filled:
            for k in range(b):
                rho = f[t, k] * inv
                e = rho * (R[k] - rho * N[t])
                A[k] += (rho * f[t, k] + e * log[t]) * inverse[k]
                R[k] += f[t, k]
                f[t, k] = 0.0
            continue
        fall = joint - 1.0 / N[t] if t > 0 else 0.0
        sum_n, sum_N = 0.0, 0.0
        for k in range(b):
            rho = f[t, k] * inv
            e = rho * (R[k] - rho * N[t])
            w = h[k] * inverse[k]
            A[k] += (rho * f[t, k] + e * log[t]) * inverse[k]
            sum_n += w * (-rho * rho + log[t] * rho * (2 * rho * N[t] - R[k]) * inv + e * joint)
            sum_N += w * (-rho * rho * log[t] + e * fall)
            before[t, k] = R[k]
            R[k] += f[t, k]
        gn[t] += sum_n
        if t > 0:
            gN[t] += sum_N
    if filled:
        for t in range(T - 1, -1, -1):
            inv = 1.0 / n[t]
            for k in range(b):
                rho = f[t, k] * inv
                w = h[k] * inverse[k]
                f[t, k] = w * (2 * rho + log[t] * (before[t, k] - 2 * rho * N[t]) * inv) + above[k]
                above[k] += w * rho * log[t]
    return filled


def _table_by_arrays(h: Any, background: Floats, rel: Floats | None) -> ApTable:
    """``ap_table`` on the device of the masses, in float64, without compiled loops."""
    xp = namespace(h)
    Z, u = h.shape
    n_bits = Z.bit_length() - 1
    across = [like(np.arange(Z) ^ (1 << bit), h) for bit in range(n_bits)]
    shared = None if rel is None else like(np.asarray(rel, dtype=np.float64), h)
    full = h + like(background / Z, h)
    seen = full if shared is None else full @ shared
    n = _levels_by_arrays(xp.sum(full, axis=1)[:, None], across)  # (T, Z, 1)
    inverse = 1.0 / xp.clip(xp.sum(seen, axis=0), LEAST_MASS, None)
    block = max(1, DEVICE_FLOATS // ((n_bits + 1) * Z))
    terms = []
    for part in (slice(start, start + block) for start in range(0, u, block)):
        f = _levels_by_arrays(seen[:, part], across)
        A, own, common = _class_terms_by_arrays(f, n, h[:, part], inverse[part])
        terms.append((A, _lowered(own, across), _lowered(common, across)))
    A, own = (xp.concat([term[i] for term in terms], axis=1) for i in (0, 1))
    D = (own if shared is None else own @ shared) + sum(term[2] for term in terms)
    return ApTable(xp.astype(A, xp.float32), xp.astype(D, xp.float32), float(xp.sum(h * A)))


def _levels_by_arrays(masses: Any, across: list[Any]) -> Any:
    """Masses at every distance from every cell, (n_bits + 1, Z, b); ``across``: the cell across every bit."""
    xp = namespace(masses)
    f = masses[None]
    for other in across:
        none = xp.zeros_like(f[:1])
        f = xp.concat([f, none]) + xp.concat([none, f[:, other]])
    return f


def _lowered(a: Any, across: list[Any]) -> Any:
    """The adjoint of ``_levels_by_arrays``, (Z, b)."""
    for other in reversed(across):
        a = a[:-1] + a[1:][:, other]
    return a[0]


def _class_terms_by_arrays(f: Any, n: Any, h: Any, inverse: Any) -> tuple[Any, Any, Any]:
    """A, gf_t + sum_{s>t} gR_s and gn_t + sum_{s>t} gN_s of some label sets; formulas as in ``_class_terms``."""
    xp = namespace(f)

    def before(x: Any) -> Any:
        return xp.cumulative_sum(x, axis=0) - x

    def after(x: Any) -> Any:
        return xp.sum(x, axis=0, keepdims=True) - xp.cumulative_sum(x, axis=0)

    N, R, rho, w = before(n), before(f), f / n, (h * inverse)[None]
    within = N + n
    log, fall = xp.zeros_like(n), xp.zeros_like(n)
    log[1:], fall[1:] = xp.log(within[1:] / N[1:]), 1.0 / within[1:] - 1.0 / N[1:]
    e = rho * (R - rho * N)
    A = xp.sum(rho * f + e * log, axis=0) * inverse
    gf = w * (2 * rho + log * (R - 2 * rho * N) / n)
    gn = xp.sum(w * (-(rho**2) + log * rho * (2 * rho * N - R) / n + e / within), axis=2, keepdims=True)
    gN = xp.sum(w * (-(rho**2) * log + e * fall), axis=2, keepdims=True)
    return A, gf + after(w * rho * log), gn + after(gN)
