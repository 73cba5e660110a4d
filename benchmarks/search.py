"""Search speed of BucketIndex beside faiss-cpu, in one run: ``python benchmarks/search.py``.

The same codes go to both; FAISS gets them padded to whole bytes, low bits first, one thread, with ``nflip`` equal to
the radius. Every time is the best of several repetitions, per query. Without faiss-cpu only our own times are printed.
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
K = 100


def uniform(rng: np.random.Generator, n: int, n_bits: int) -> Any:
    """Codes without structure."""
    return rng.integers(0, 1 << n_bits, size=n, dtype=np.uint64)


def clustered(rng: np.random.Generator, n: int, n_bits: int) -> Any:
    """Codes around 10 centres, every bit flipped with probability 0.1."""
    centres = rng.integers(0, 1 << n_bits, size=10, dtype=np.uint64)
    flips = (rng.random((n, n_bits)) < 0.1) @ (np.uint64(1) << np.arange(n_bits, dtype=np.uint64))
    return rng.choice(centres, size=n) ^ flips.astype(np.uint64)


def seconds(call: Callable[[], Any], budget: float = 1.0) -> float:
    """Shortest of at least three timings."""
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - start < budget and len(times) < 50):
        before = time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return min(times)


def our_times(codes: Any, few: Any, many: Any, n_bits: int) -> dict[str, float]:
    """Seconds per query; ``few`` queries where results are copied out, ``many`` where they are not."""
    index = BucketIndex(n_bits).add(codes)
    return {
        "within, any order": seconds(lambda: index.within(few, RADIUS, ties="any")) / len(few),
        "within, by id": seconds(lambda: index.within(few, RADIUS)) / len(few),
        "within, one by one": seconds(lambda: [index.within(few[i : i + 1], RADIUS, ties="any") for i in range(20)])
        / 20,
        "slices": seconds(lambda: index.slices(many, RADIUS)) / len(many),
        "counts": seconds(lambda: index.counts(many, RADIUS)) / len(many),
        "top 100": seconds(lambda: index.search(few, K)) / len(few),
        "top 100, many": seconds(lambda: index.search(many, K)) / len(many),
    }


def faiss_times(codes: Any, few: Any, n_bits: int) -> dict[str, float]:
    """Seconds per query of IndexBinaryHash and IndexBinaryFlat."""
    if faiss is None:
        return {}
    faiss.omp_set_num_threads(1)
    width = -(-n_bits // 8)

    def octets(values: Any) -> Any:
        return np.ascontiguousarray(values.astype("<u8").view(np.uint8).reshape(len(values), 8)[:, :width])

    hashed, flat = faiss.IndexBinaryHash(8 * width, n_bits), faiss.IndexBinaryFlat(8 * width)
    hashed.nflip = RADIUS
    for index in (hashed, flat):
        index.add(octets(codes))
    queries = octets(few)
    return {
        "hash within": seconds(lambda: hashed.range_search(queries, RADIUS + 1)) / len(few),
        "flat within": seconds(lambda: flat.range_search(queries, RADIUS + 1)) / len(few),
        "hash top 100": seconds(lambda: hashed.search(queries, K)) / len(few),
        "flat top 100": seconds(lambda: flat.search(queries, K)) / len(few),
    }


def build_times(n: int) -> dict[str, float]:
    """Seconds to build from packed 16-bit codes, and numpy's stable argsort of the same codes."""
    codes = np.random.default_rng(0).integers(0, 1 << 16, size=n).astype(np.uint16)
    return {
        "build": seconds(lambda: BucketIndex(16).add(codes).slices(codes[:1], 0)),
        "argsort": seconds(lambda: np.argsort(codes, kind="stable")),
    }


def main() -> None:
    """Print one line per code length and kind of codes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--bits", type=int, nargs="*", default=[8, 12, 16])
    parser.add_argument("--json", type=Path, help="also write the times to this file")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    report: list[dict[str, Any]] = []
    for n_bits in options.bits:
        for draw in (uniform, clustered):
            codes = draw(rng, options.items, n_bits)
            few, many = rng.choice(codes, size=20), rng.choice(codes, size=10_000)
            ours, theirs = our_times(codes, few, many, n_bits), faiss_times(codes, few, n_bits)
            report.append({"n_bits": n_bits, "codes": draw.__name__, **ours, **theirs})
            print(f"\n{n_bits} bits, {options.items} {draw.__name__} codes, microseconds per query")
            for name, value in theirs.items():
                print(f"  faiss {name:20}{1e6 * value:14.3f}")
            for name, value in ours.items():
                against = theirs.get("hash top 100" if "top" in name else "hash within")
                ratio = "" if against is None else f"{against / value:12.1f} times as fast as IndexBinaryHash"
                print(f"  ours  {name:20}{1e6 * value:14.3f}{ratio}")
    built = build_times(10 * options.items)
    print(f"\nbuild from {10 * options.items} codes: {built['build']:.3f} s, numpy.argsort {built['argsort']:.3f} s")
    if options.json:
        options.json.write_text(json.dumps([*report, built], indent=1) + "\n")


if __name__ == "__main__":
    main()
