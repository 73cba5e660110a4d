"""Search speed of BucketIndex beside faiss-cpu: ``python benchmarks/search.py [--items N] [--json FILE]``.

One process, one run. FAISS indexes hold the same codes, low bits first, padded to whole bytes; ``nflip`` is the
radius. Without faiss-cpu only our own column is printed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from shorthash import BucketIndex

try:
    import faiss
except ImportError:
    faiss = None

RADIUS = 2


def clustered(rng: np.random.Generator, n: int, n_bits: int) -> Any:
    """Codes around 10 centres, every bit flipped with probability 0.1."""
    centres = rng.integers(0, 1 << n_bits, size=10, dtype=np.uint64)
    flips = (rng.random((n, n_bits)) < 0.1) @ (np.uint64(1) << np.arange(n_bits, dtype=np.uint64))
    return rng.choice(centres, size=n) ^ flips.astype(np.uint64)


def uniform(rng: np.random.Generator, n: int, n_bits: int) -> Any:
    return rng.integers(0, 1 << n_bits, size=n, dtype=np.uint64)


def best(call: Callable[[], Any], seconds: float = 1.0) -> float:
    """Shortest of repeated timings, at least three."""
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - start < seconds and len(times) < 50):
        before = time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return min(times)


def as_bytes(codes: Any, n_bits: int) -> Any:
    """Packed codes as FAISS wants them: bytes, low bits first."""
    width = -(-n_bits // 8)
    return np.ascontiguousarray(codes.astype("<u8").view(np.uint8).reshape(len(codes), 8)[:, :width])


def faiss_times(codes: Any, queries: Any, n_bits: int, k: int) -> dict[str, float]:
    """Seconds per query of range and top-k search."""
    if faiss is None:
        return {}
    faiss.omp_set_num_threads(1)
    width = 8 * -(-n_bits // 8)
    data, wanted = as_bytes(codes, n_bits), as_bytes(queries, n_bits)
    table = faiss.IndexBinaryHash(width, n_bits)
    table.nflip = RADIUS
    table.add(data)
    flat = faiss.IndexBinaryFlat(width)
    flat.add(data)
    m = len(queries)
    return {
        "hash_within": best(lambda: table.range_search(wanted, RADIUS + 1)) / m,
        "flat_within": best(lambda: flat.range_search(wanted, RADIUS + 1)) / m,
        "hash_topk": best(lambda: table.search(wanted, k)) / m,
    }


def our_times(codes: Any, queries: Any, n_bits: int, k: int, many: Any) -> dict[str, float]:
    index = BucketIndex(n_bits).add(codes)
    packed = queries.astype(index.codes.dtype)
    m = len(queries)
    return {
        "within": best(lambda: index.within(packed, RADIUS, ties="any")) / m,
        "within_one_by_one": best(lambda: [index.within(packed[i : i + 1], RADIUS, ties="any") for i in range(m)]) / m,
        "within_by_id": best(lambda: index.within(packed, RADIUS)) / m,
        "slices": best(lambda: index.slices(many, RADIUS)) / len(many),
        "counts": best(lambda: index.counts(many, RADIUS)) / len(many),
        "topk": best(lambda: index.search(packed, k)) / m,
        "topk_many": best(lambda: index.search(many, k)) / len(many),
        "bytes_per_item": index.nbytes / len(codes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--bits", type=int, nargs="*", default=[8, 12, 16])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    report = []
    for n_bits in options.bits:
        for draw in (uniform, clustered):
            codes = draw(rng, options.items, n_bits)
            queries, many = rng.choice(codes, size=20), rng.choice(codes, size=10_000)
            row: dict[str, Any] = {"n_bits": n_bits, "codes": draw.__name__}
            row |= our_times(codes, queries, n_bits, 100, many) | faiss_times(codes, queries, n_bits, 100)
            if "hash_within" in row:
                row |= {f"x_{name}": row["hash_within"] / row[name] for name in ("within", "within_by_id", "within_one_by_one", "slices", "counts")}
                row |= {"x_topk": row["hash_topk"] / row["topk"], "x_flat": row["flat_within"] / row["within"]}
            report.append(row)
            print(" ".join(f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}" for name, value in row.items()))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
