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

from shorthash._arrays import Floats, is_foreign, like, namespace
from shorthash._compiled import njit
from shorthash.learners.posteriors.folds import in_threads

BLOCK_FLOATS = 1 << 22  # level masses held at once: 16 MB in float32, which stays in the cache
SIDE_BY_SIDE = 16  # label sets per block at least, even if the block leaves the cache: shorter loops are not vectorised
MOST_FLOATS = 1 << 24  # level masses held at once in such a block
DEVICE_FLOATS = 1 << 26  # the same on a device: 512 MB in float64
LEAST_MASS = 1e-30  # keeps the AP of a label set without any relevant mass finite


@dataclass(frozen=True)
class ApTable:
    """What a query gains at every cell, what a database item gives there, and the mAP of it all."""

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
    n = _levels(full.sum(axis=1)[:, None], n_bits, np.float64)[:, :, 0]  # (T, Z)
    N = np.cumsum(n, axis=0) - n
    log = np.zeros_like(n)
    log[1:] = np.log((N[1:] + n[1:]) / N[1:])
    inverse = 1.0 / np.maximum(seen.sum(axis=0), LEAST_MASS)
    A, own = np.empty((Z, u), dtype=np.float32), np.empty((Z, u), dtype=np.float32)
    block = max(1, BLOCK_FLOATS // n.size, min(SIDE_BY_SIDE, MOST_FLOATS // n.size))

    def terms(start: int) -> tuple[Floats, Floats]:
        part = slice(start, min(start + block, u))
        f, gn, gN = _levels(seen[:, part], n_bits, np.float32), np.zeros_like(n), np.zeros_like(n)
        here, space = np.zeros(f.shape[1:], dtype=np.float32), np.zeros((n_bits + 3, f.shape[2]))
        _class_terms(f, n, N, log, np.ascontiguousarray(h[:, part]), inverse[part], gn, gN, here, space)
        A[:, part] = here
        _lower_levels(f.reshape(n_bits + 1, -1), n_bits)
        own[:, part] = f[0]
        return gn, gN

    gn, gN = (np.sum(parts, axis=0) for parts in zip(*in_threads(terms, range(0, u, block)), strict=True))
    common = gn + np.cumsum(gN[::-1], axis=0)[::-1] - gN
    _lower_levels(common, n_bits)
    D = (own if rel is None else own @ rel) + common[0][:, None]
    return ApTable(A, D.astype(np.float32), float(np.sum(h * A)))


def _levels(masses: NDArray[Any], n_bits: int, dtype: Any) -> NDArray[Any]:
    """Masses at every distance from every cell, (n_bits + 1, Z, b)."""
    f = np.zeros((n_bits + 1, *masses.shape), dtype=dtype)
    f[0] = masses
    _raise_levels(f.reshape(n_bits + 1, -1), n_bits)
    return f


def _raise_levels(f: NDArray[Any], n_bits: int) -> None:
    """Bit by bit, add what lies across the bit one level up; in place. Cells across a bit are ``run`` places apart."""
    for bit in range(n_bits):
        run = f.shape[1] >> n_bits << bit
        halves = f.reshape(n_bits + 1, -1, 2, run)
        for t in range(bit + 1, 0, -1):  # from the top: level t - 1 is still the old one
            halves[t, :, 0] += halves[t - 1, :, 1]
            halves[t, :, 1] += halves[t - 1, :, 0]


def _lower_levels(a: NDArray[Any], n_bits: int) -> None:
    """The adjoint of ``_raise_levels``, in place; the answer is a[0]."""
    for bit in range(n_bits - 1, -1, -1):
        run = a.shape[1] >> n_bits << bit
        halves = a.reshape(n_bits + 1, -1, 2, run)
        for t in range(bit + 1):
            halves[t, :, 0] += halves[t + 1, :, 1]
            halves[t, :, 1] += halves[t + 1, :, 0]


@njit(cache=True, nogil=True, fastmath=True, allocates=False)
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
) -> None:
    """A (zeros) of some label sets; f becomes gf_t + sum_{s>t} gR_s, and gn, gN gain what these sets add.

    With w = h / R and e = rho (R_t - rho N_t)::

        gf = w (2 rho + l (R_t - 2 rho N_t) / n)     gn = w (-rho^2 + l rho (2 rho N_t - R_t) / n + e / (N_t + n))
        gR = w rho l                                 gN = w (-rho^2 l + e (1 / (N_t + n) - 1 / N_t)), 0 at t = 0
    """
    T, Z, b = f.shape
    R, above, before = space[0], space[1], space[2:]
    for z in range(Z):
        for k in range(b):
            R[k], above[k] = 0.0, 0.0
        for t in range(T):
            inv, joint = 1.0 / n[t, z], 1.0 / (N[t, z] + n[t, z])
            fall = joint - 1.0 / N[t, z] if t > 0 else 0.0
            sum_n, sum_N = 0.0, 0.0
            for k in range(b):
                rho = f[t, z, k] * inv
                e = rho * (R[k] - rho * N[t, z])
                w = h[z, k] * inverse[k]
                A[z, k] += (rho * f[t, z, k] + e * log[t, z]) * inverse[k]
                sum_n += w * (-rho * rho + log[t, z] * rho * (2 * rho * N[t, z] - R[k]) * inv + e * joint)
                sum_N += w * (-rho * rho * log[t, z] + e * fall)
                before[t, k] = R[k]
                R[k] += f[t, z, k]
            gn[t, z] += sum_n
            if t > 0:
                gN[t, z] += sum_N
        for t in range(T - 1, -1, -1):
            inv = 1.0 / n[t, z]
            for k in range(b):
                rho = f[t, z, k] * inv
                w = h[z, k] * inverse[k]
                f[t, z, k] = w * (2 * rho + log[t, z] * (before[t, k] - 2 * rho * N[t, z]) * inv) + above[k]
                above[k] += w * rho * log[t, z]


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
