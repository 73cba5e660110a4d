"""Rows to scores in one step on an NVIDIA GPU, by Triton kernels: kernel features are not written to memory.

Step by step, as everywhere else, features are 4 kB per row that are written and read several times, and memory traffic
dominates the cost of encoding. Here a program holds some rows, loops over the anchors a few at a time, and keeps only
the scores.

Matrix units multiply half-precision numbers, so every factor is split once into two of them: its value rounded to
float16, and the remainder rounded to float16, together as accurate as float32. A product is then three products; the
fourth, of the remainders, is below the rounding error of float32. Powers of two (one per row, per matrix, per bit)
bring all factors into the range of float16 without rounding. Sums over tiles of anchors are float64.

The few rows with a score so near to 0 that rounding could change its sign are computed again on the CPU
(``_rounding``), so codes are those of the CPU.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import DeviceCopies, Floats
from shorthash._rounding import SURE, Scored

ROWS, ANCHORS, COLUMNS, WARPS, STAGES = 128, 128, 32, 8, 3  # tiles of 96 kB: fast on an H200, and fit older GPUs
CAPABILITY = 8  # least compute capability of a GPU
BATCH_NUMBERS = 1 << 26  # numbers of a batch of rows: 256 MiB of halves; with fewer the GPU waits for the next call
NOWHERE = -1e30  # exponent of the anchors that pad the last tile
TOP = 15  # features, at most 1, are multiplied by 2^TOP; float16 ends at 2^16
DOUBT = 24.0  # deviations by rounding within which the sign of a score is in doubt


class FusedScores:
    """Rows to scores, on GPUs that support it.

    Parameters
    ----------
    shift : (d,) subtracted from rows
    weights : (d + 2, m) float32, the factors of x, |x|^2 and 1 in the exponent
    mean : (m,) subtracted from features, so that products are of small numbers
    projection, intercept : scores are ``features @ projection + intercept``, features without the mean subtracted

    Attributes
    ----------
    doubt : (n_bits,) scores nearer to 0 than this might have another sign on a CPU
    """

    def __init__(self, shift: Any, weights: Any, mean: Floats, projection: Floats, intercept: Floats | float) -> None:
        d, m = len(weights) - 2, weights.shape[1]
        spare, n_bits = -m % ANCHORS, projection.shape[1]
        self.n_bits = n_bits
        width = max(16, 1 << (n_bits - 1).bit_length())
        exponents = weights.astype(np.float64) * math.log2(math.e)  # features are powers of 2
        factors, self.scale = _within_halves(np.pad(exponents[:d].T, ((0, spare), (0, -d % COLUMNS))))
        scores, unit = _within_halves(np.pad(projection, ((0, spare), (0, width - n_bits))), axis=0)
        middle = mean.astype(np.float32)
        self.constant = np.asarray(intercept + middle.astype(np.float64) @ projection, dtype=np.float64)
        self.norm_scale = float(-exponents[d, 0])
        self.doubt = _doubt(weights, mean, projection)
        self.copies = DeviceCopies(
            np.pad(np.asarray(shift, dtype=np.float32), (0, -d % COLUMNS)),
            *_halves(factors),
            np.pad(exponents[d + 1], (0, spare), constant_values=NOWHERE).astype(np.float32),
            np.ldexp(np.pad(middle, (0, spare)), TOP),
            *_halves(scores),
            np.ldexp(unit[0], -TOP),
            np.pad(self.constant, (0, width - n_bits)),
            self.doubt,
        )

    @staticmethod
    def usable(X: Any) -> bool:
        """Whether rows are float32 of torch, on a GPU that Triton compiles for."""
        on_gpu = str(getattr(X, "device", "")).startswith("cuda")
        if not on_gpu or str(X.dtype) != "torch.float32" or _kernels() is None:
            return False
        return bool(importlib.import_module("torch").cuda.get_device_capability(X.device)[0] >= CAPABILITY)

    def __call__(self, rows: Any) -> Scored:
        """Scores of rows, float64, (n, n_bits), with the bounds below which their signs are in doubt."""
        torch = importlib.import_module("torch")
        out = torch.empty((len(rows), self.n_bits), dtype=torch.float64, device=rows.device)
        *arrays, doubt = self.copies.of(rows)
        size = max(ROWS, BATCH_NUMBERS // len(arrays[0]))
        for start in range(0, len(rows), size):
            self._score(rows[start : start + size].contiguous(), arrays, out[start : start + size])
        return Scored(out, doubt / SURE)

    def _score(self, rows: Any, arrays: list[Any], out: Any) -> None:
        """Write the scores of one batch into ``out``."""
        torch = importlib.import_module("torch")
        shift, *factors, bias, middle, p, p_rest, unit, constant = arrays
        n, d, padded = len(rows), rows.shape[1], len(shift)
        x, x_rest = torch.empty((2, n, padded), dtype=torch.float16, device=rows.device)
        units, norms = torch.empty((2, n), dtype=torch.float32, device=rows.device)
        split, score = _kernels()
        with torch.cuda.device(rows.device):
            split[(-(-n // ROWS),)](
                rows, shift, x, x_rest, units, norms, n, float(self.scale), self.norm_scale,
                d, padded, ROWS, COLUMNS, num_warps=WARPS,
            )  # fmt: skip
            score[(-(-n // ROWS),)](
                x, x_rest, units, norms, *factors, bias, middle, p, p_rest, unit, constant, out, n, len(bias),
                padded, ROWS, ANCHORS, COLUMNS, self.n_bits, len(unit), 2.0**TOP, num_warps=WARPS, num_stages=STAGES,
            )  # fmt: skip


_last: list[tuple[list[NDArray[Any]], Any]] = []


def cached(parts: Sequence[Any], make: Callable[[], Any]) -> Any:
    """The result of ``make``, cached for parts with the same values: a model encodes many blocks in a row.

    Splitting the factors and copying them to the device takes as long as encoding a million rows.
    """
    given = [np.asarray(part) for part in parts]
    for kept, made in _last[-1:]:
        if all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(given, kept, strict=True)):
            return made
    made = make()
    _last[:] = [([part.copy() for part in given], made)]
    return made


def _doubt(weights: Any, mean: Floats, projection: Floats) -> Floats:
    r"""The bound below which the sign of a score is in doubt, per bit: rounding, here or on a CPU, might change it.

    .. math:: D\, u \sqrt{\textstyle\sum_j p_j^2 \bar f_j (1 + 4 e_j)^2}, \quad u = 2^{-24}

    where

    - :math:`p_j` is the weight of the j-th feature in the score,
    - :math:`\bar f_j` is the mean of that feature, which is at least that of its square, as it is at most 1,
    - :math:`e_j` is the size of what cancels in its exponent; matrix units round down at each of many steps, so it
      grows with the columns beyond 256.

    A feature is off by some :math:`u (1 + 4 e_j) f_j`, features are off independently of each other, and the root is
    about the deviation that this gives the score; ``DOUBT``, D, exceeds the largest of millions of measured deviations.
    """
    steps = max(1.0, (len(weights) - 2) / 256)
    off = 1.0 + 4.0 * steps * np.abs(weights[-1].astype(np.float64))
    likely = np.clip(mean, 0.0, 1.0) if mean.any() else np.ones(len(mean))
    return np.asarray(DOUBT * 2.0**-24 * np.sqrt((likely * off**2) @ projection**2))


def _within_halves(values: Floats, axis: int | None = None) -> tuple[Floats, Any]:
    """Values times a power of two that brings the largest below 2^14, and the power that takes it back."""
    _, exponent = np.frexp(np.abs(values).max(axis=axis, keepdims=axis is not None))
    return np.ldexp(values, 14 - exponent), np.ldexp(1.0, exponent - 14)


def _halves(values: Floats) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """Values rounded to float16, and the remainders rounded to float16, in C order."""
    high = values.astype(np.float16, order="C")
    return high, (values - high).astype(np.float16, order="C")


@lru_cache(maxsize=1)
def _kernels() -> Any:
    """The kernels that split rows and that score them; None without Triton."""
    try:
        triton, tl = importlib.import_module("triton"), importlib.import_module("triton.language")
    except ImportError:
        return None

    @triton.jit  # type: ignore[untyped-decorator]
    def split(  # type: ignore[no-untyped-def]
        X, SHIFT, H, REST, UNIT, NORM, n, scale, norm_scale,
        D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,  # type: ignore[name-defined]
    ):  # fmt: skip
        rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
        norm = tl.zeros((BM,), tl.float32)
        top = tl.zeros((BM,), tl.float32)
        for k in range(0, DP, BK):
            cols = k + tl.arange(0, BK)
            known = (rows < n)[:, None] & (cols < D)[None, :]
            x = tl.load(X + rows[:, None] * D + cols[None, :], mask=known, other=0.0) - tl.load(SHIFT + cols)[None, :]
            norm += tl.sum(x * x, 1)
            top = tl.maximum(top, tl.max(tl.abs(x), 1))
        # float32 writes the largest with this exponent (127 is 0); times ``up`` it is below 2^14
        power = tl.minimum(tl.maximum(top.to(tl.int32, bitcast=True) >> 23, 14), 254)
        up = ((267 - power) << 23).to(tl.float32, bitcast=True)
        down = ((power - 13) << 23).to(tl.float32, bitcast=True)
        tl.store(UNIT + rows, down * scale, mask=rows < n)
        tl.store(NORM + rows, norm * norm_scale, mask=rows < n)
        for k in range(0, DP, BK):
            cols = k + tl.arange(0, BK)
            known = (rows < n)[:, None] & (cols < D)[None, :]
            x = tl.load(X + rows[:, None] * D + cols[None, :], mask=known, other=0.0) - tl.load(SHIFT + cols)[None, :]
            x *= up[:, None]
            high = x.to(tl.float16)
            place = rows[:, None] * DP + cols[None, :]
            tl.store(H + place, high, mask=(rows < n)[:, None])
            tl.store(REST + place, (x - high.to(tl.float32)).to(tl.float16), mask=(rows < n)[:, None])

    @triton.jit  # type: ignore[untyped-decorator]
    def score(  # type: ignore[no-untyped-def]
        H, REST, UNIT, NORM, W, W_REST, BIAS, MEAN, P, P_REST, P_UNIT, CONSTANT, OUT, n, m,
        DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,  # type: ignore[name-defined]
        BITS: tl.constexpr, L: tl.constexpr, LARGEST: tl.constexpr,  # type: ignore[name-defined]
    ):  # fmt: skip
        rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
        known = tl.minimum(rows, n - 1)
        bits = tl.arange(0, L)
        unit = tl.load(UNIT + known)
        norm = tl.load(NORM + known)
        total = tl.zeros((BM, L), tl.float64)
        for j in range(0, m, BN):
            anchors = j + tl.arange(0, BN)
            product = tl.zeros((BM, BN), tl.float32)
            for k in range(0, DP, BK):
                cols = k + tl.arange(0, BK)
                x = tl.load(H + known[:, None] * DP + cols[None, :])
                x_rest = tl.load(REST + known[:, None] * DP + cols[None, :])
                w = tl.load(W + anchors[None, :] * DP + cols[:, None])
                w_rest = tl.load(W_REST + anchors[None, :] * DP + cols[:, None])
                product = tl.dot(x_rest, w, product)
                product = tl.dot(x, w_rest, product)
                product = tl.dot(x, w, product)
            exponent = product * unit[:, None] + (tl.load(BIAS + anchors)[None, :] - norm[:, None])
            z = tl.exp2(tl.minimum(exponent, 0.0)) * LARGEST - tl.load(MEAN + anchors)[None, :]
            high = z.to(tl.float16)
            rest = (z - high.to(tl.float32)).to(tl.float16)
            p = tl.load(P + anchors[:, None] * L + bits[None, :])
            part = tl.dot(rest, p)
            part = tl.dot(high, tl.load(P_REST + anchors[:, None] * L + bits[None, :]), part)
            total += tl.dot(high, p, part).to(tl.float64)
        total = total * tl.load(P_UNIT + bits)[None, :] + tl.load(CONSTANT + bits)[None, :]
        tl.store(OUT + rows[:, None] * BITS + bits[None, :], total, mask=(rows < n)[:, None] & (bits < BITS)[None, :])

    return split, score
