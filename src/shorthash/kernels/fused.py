"""Kernel features and scores in one go on an NVIDIA GPU, by a Triton kernel: the features never reach memory.

Written step by step, as everywhere else, features are 4 kB per row that are stored and read several times, and memory
is what encoding costs. Here a program holds some rows, goes through the anchors a few at a time, and keeps only the
scores. Products are sums of three products of rounded factors (``tf32x3``), as exact as float32; sums over tiles of
anchors are float64. ``benchmarks/gpu.py`` compares the codes with those of the CPU. Triton comes with torch.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

import numpy as np

from shorthash._arrays import Beside
from shorthash._types import Floats

__all__ = ["FusedScores"]

ROWS, ANCHORS, COLUMNS, WARPS, STAGES = 256, 64, 32, 8, 3  # tiles: the fastest of some twenty tried on an H200
NOWHERE = -1e30  # exponent of the anchors that fill up the last tile


class FusedScores:
    """Rows to scores; offered where it can be used.

    Parameters
    ----------
    shift : (d,) what rows are moved by
    weights : (d + 2, m) float32, the factors of x, |x|^2 and 1 in the exponent
    mean : (m,) features are moved by it, so that products are of small numbers
    projection, intercept : scores are ``features @ projection + intercept``, features not moved
    """

    def __init__(self, shift: Any, weights: Any, mean: Floats, projection: Floats, intercept: Floats | float) -> None:
        d, m = len(weights) - 2, weights.shape[1]
        spare, n_bits = -m % ANCHORS, projection.shape[1]
        self.n_bits = n_bits
        self.width = max(16, 1 << (n_bits - 1).bit_length())
        middle = mean.astype(np.float32)
        scores = np.zeros((m + spare, self.width), dtype=np.float32)
        scores[:m, :n_bits] = projection
        factors = np.zeros((-(-d // COLUMNS) * COLUMNS, m + spare), dtype=np.float32)
        factors[:d, :m] = weights[:d]
        self.intercept = np.asarray(intercept + middle.astype(np.float64) @ projection, dtype=np.float64)
        self.beside = Beside(
            np.concatenate([np.asarray(shift, dtype=np.float32), np.zeros(-d % COLUMNS, dtype=np.float32)]),
            factors,
            np.concatenate([weights[d + 1], np.full(spare, NOWHERE)]).astype(np.float32),
            np.concatenate([middle, np.zeros(spare)]).astype(np.float32),
            scores,
            self.intercept,
        )
        self.scale = float(-weights[d, 0])

    @staticmethod
    def usable(X: Any) -> bool:
        """Whether rows are float32 of torch, on a GPU that Triton compiles for."""
        on_gpu = str(getattr(X, "device", "")).startswith("cuda")
        return on_gpu and str(X.dtype) == "torch.float32" and _kernel() is not None

    def __call__(self, batch: Any) -> Any:
        """Scores of a batch, float64, (n, n_bits)."""
        torch = importlib.import_module("torch")
        rows = batch.contiguous()
        n, d = rows.shape
        out = torch.empty((n, self.width), dtype=torch.float64, device=rows.device)
        shift, factors, bias, middle, scores, intercept = self.beside.of(rows)
        _kernel()[(-(-n // ROWS),)](
            rows, shift, factors, bias, middle, scores, out, n, factors.shape[1], self.scale,
            d, len(shift), ROWS, ANCHORS, COLUMNS, self.width, num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip
        return out[:, : self.n_bits] + intercept


@lru_cache(maxsize=1)
def _kernel() -> Any:
    """The compiled kernel; None where there is no Triton."""
    try:
        triton, tl = importlib.import_module("triton"), importlib.import_module("triton.language")
    except ImportError:
        return None

    @triton.jit  # type: ignore[untyped-decorator]
    def kernel(  # type: ignore[no-untyped-def]
        X, SHIFT, W, BIAS, MEAN, P, OUT, n, m, scale,
        D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, L: tl.constexpr,  # type: ignore[name-defined]
    ):  # fmt: skip
        rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
        bits = tl.arange(0, L)
        norm = tl.zeros((BM,), tl.float32)
        for k in range(0, DP, BK):
            cols = k + tl.arange(0, BK)
            known = (rows < n)[:, None] & (cols < D)[None, :]
            x = tl.load(X + rows[:, None] * D + cols[None, :], mask=known, other=0.0) - tl.load(SHIFT + cols)[None, :]
            norm += tl.sum(x * x, 1)
        total = tl.zeros((BM, L), tl.float64)
        for j in range(0, m, BN):
            anchors = j + tl.arange(0, BN)
            product = tl.zeros((BM, BN), tl.float32)
            for k in range(0, DP, BK):
                cols = k + tl.arange(0, BK)
                known = (rows < n)[:, None] & (cols < D)[None, :]
                x = tl.load(X + rows[:, None] * D + cols[None, :], mask=known, other=0.0)
                x -= tl.load(SHIFT + cols)[None, :]
                w = tl.load(W + cols[:, None] * m + anchors[None, :])
                product += tl.dot(x, w, input_precision="tf32x3")
            exponent = product - scale * norm[:, None] + tl.load(BIAS + anchors)[None, :]
            z = tl.exp(tl.minimum(exponent, 0.0)) - tl.load(MEAN + anchors)[None, :]
            p = tl.load(P + anchors[:, None] * L + bits[None, :])
            total += tl.dot(z, p, input_precision="tf32x3").to(tl.float64)
        tl.store(OUT + rows[:, None] * L + bits[None, :], total, mask=(rows < n)[:, None])

    return kernel
