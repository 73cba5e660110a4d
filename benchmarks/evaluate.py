"""Evaluation speed and memory: ``python benchmarks/evaluate.py [--items N] [--queries N] [--record]``.

``evaluate`` scores every query exactly, ties included, in a separate process whose peak memory is read at the end. The
usual way (distances to the whole database, a stable argsort and a running precision, query by query) is timed on a
sample of queries and scaled up: with real-valued inner products, as published scripts do it; with ``bitwise_count`` and
NumPy's default argsort; and with its stable argsort, which for one-byte distances is a radix sort. On the sample the
stable ones must give the average precision that ``evaluate`` gives with ``ties="stable"``. torchmetrics is timed too if
it is installed. Goals: 1000 times as fast for short codes, 10 times for 64 bits, except for NumPy's radix sort.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from shorthash import evaluate
from shorthash.codes import pack, packed_dtype

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "data" / "evaluate.json"
N_CLASSES = 100
NOISE = 0.15  # probability that a bit differs from the codeword of its class
PART = 1 << 16


def problem(n_queries: int, n_items: int, n_bits: int) -> tuple[Any, Any, Any, Any]:
    """Queries and database: noisy class codewords in random order, made part by part to keep memory low."""
    rng = np.random.default_rng(0)
    codebook = rng.integers(0, 2, (N_CLASSES, n_bits), dtype=np.int8)
    labels = rng.integers(0, N_CLASSES, n_queries + n_items).astype(np.int16)
    codes = np.empty((len(labels), n_bits), dtype=np.int8)
    for low in range(0, len(labels), PART):
        rows = labels[low : low + PART]
        flips = rng.random((len(rows), n_bits), dtype=np.float32) < NOISE
        codes[low : low + PART] = 2 * (codebook[rows] ^ flips) - 1
    return codes[:n_queries], labels[:n_queries], codes[n_queries:], labels[n_queries:]


def ours(n_queries: int, n_items: int, n_bits: int) -> dict[str, float]:
    """Shortest of three runs, and memory, after a first small call that compiles."""
    split = problem(n_queries, n_items, n_bits)
    evaluate(*problem(10, 1000, n_bits))
    before = peak_memory()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        scores = evaluate(*split)
        times.append(time.perf_counter() - start)
    memory = {"before_mb": before, "peak_mb": peak_memory()}
    return {"seconds": min(times), "slowest": max(times), **memory, "map": scores.map}


def peak_memory() -> float:
    """Peak resident memory of this process in MB; ``ru_maxrss`` would count the parent's before the start."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_own_process(*sizes: int) -> dict[str, float]:
    """The figures of ``ours``, from a process that does nothing else."""
    command = [sys.executable, __file__, "--ours", *map(str, sizes)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def average_precision(order: Any, relevant: Any) -> float:
    """Plain average precision of one order."""
    ranks = np.flatnonzero(relevant[order]) + 1
    return float(np.mean(np.arange(1, len(ranks) + 1) / ranks))


def by_inner_products(split: tuple[Any, Any, Any, Any]) -> Callable[[int], float]:
    """The usual script: Hamming distances from real-valued inner products."""
    queries, y, items, z = split
    database = items.astype(np.float32)

    def score(i: int) -> float:
        distances = 0.5 * (items.shape[1] - database @ queries[i].astype(np.float32))
        return average_precision(np.argsort(distances, kind="stable"), z == y[i])

    return score


def by_packed_words(split: tuple[Any, Any, Any, Any], kind: Any) -> Callable[[int], float]:
    """The same with packed codes, ``bitwise_count`` and one-byte distances."""
    queries, y, items, z = split
    words, query_words = pack(items), pack(queries)

    def score(i: int) -> float:
        return average_precision(np.argsort(np.bitwise_count(words ^ query_words[i]), kind=kind), z == y[i])

    return score


def by_torchmetrics(split: tuple[Any, Any, Any, Any]) -> Callable[[int], float] | None:
    """Retrieval average precision by torchmetrics of the same distances, where it is installed."""
    if importlib.util.find_spec("torchmetrics") is None:
        return None
    import torch
    from torchmetrics.functional.retrieval import retrieval_average_precision

    queries, y, items, z = split
    words, query_words = pack(items), pack(queries)

    def score(i: int) -> float:
        nearness = torch.from_numpy(-np.bitwise_count(words ^ query_words[i]).astype(np.float32))
        return float(retrieval_average_precision(nearness, torch.from_numpy(z == y[i])))

    return score


def per_query(score: Callable[[int], float], sample: int) -> tuple[float, list[float]]:
    """Seconds per query, and the average precisions."""
    score(0)
    start = time.perf_counter()
    values = [score(i) for i in range(sample)]
    return (time.perf_counter() - start) / sample, values


def compare(n_queries: int, n_items: int, n_bits: int, sample: int) -> dict[str, Any]:
    """Ours against the usual ways, printed and returned."""
    mine = in_own_process(n_queries, n_items, n_bits)
    print(f"\n{n_queries} queries x {n_items} items, {n_bits} bits ({packed_dtype(n_bits).name}), {N_CLASSES} classes")
    print(f"  evaluate: {mine['seconds']:.3f} s (slowest of three {mine['slowest']:.3f} s), mAP {mine['map']:.4f}")
    print(f"  peak memory {mine['peak_mb']:.0f} MB, of which {mine['before_mb']:.0f} MB libraries and data")
    split = problem(n_queries, n_items, n_bits)
    sampled = (split[0][:sample], split[1][:sample], *split[2:])
    truth = evaluate(*sampled, ties="stable").per_query["map"]
    ways = {
        "inner products + stable argsort": by_inner_products(split),
        "bitwise_count + argsort": by_packed_words(split, kind=None),
        "bitwise_count + stable argsort": by_packed_words(split, kind="stable"),
        "torchmetrics": by_torchmetrics(split),
    }
    rows: dict[str, Any] = {}
    for name, score in ways.items():
        if score is None:
            print(f"  {name}: not installed")
            continue
        seconds, values = per_query(score, sample)
        if "stable" in name:  # the others order ties in ways of their own
            np.testing.assert_allclose(values, truth, atol=1e-9)
        total = seconds * n_queries
        ratio = total / mine["seconds"]
        rows[name] = {"seconds_per_query": seconds, "seconds": total, "ratio": ratio}
        print(f"  {name}: {1000 * seconds:.1f} ms a query, {total:.0f} s in all, {ratio:.0f} times as long")
    return {"queries": n_queries, "items": n_items, "bits": n_bits, "sample": sample, "ours": mine, "others": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--sample", type=int, default=100, help="queries on which the usual ways are timed")
    parser.add_argument("--record", action="store_true", help=f"store the figures in {RESULTS.name}")
    parser.add_argument("--ours", type=int, nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ours:
        print(json.dumps(ours(*arguments.ours)))
        return
    n, items, sample = arguments.queries, arguments.items, arguments.sample
    results = [
        compare(n, items, 12, sample),
        compare(n, items, 16, sample),
        compare(max(1, n // 10), items, 64, sample),
    ]
    if arguments.record:
        RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def render(path: Path = RESULTS) -> str:
    """The stored figures as a table in Markdown."""
    results = json.loads(path.read_text(encoding="utf-8"))
    names = list(results[0]["others"])
    lines = ["| bits | queries x items | `evaluate` | peak memory | " + " | ".join(names) + " |"]
    lines.append("|---:" * (4 + len(names)) + "|")
    for row in results:
        mine, sizes = row["ours"], f"{row['queries']:,} x {row['items']:,}"
        others = [f"{each['seconds']:.0f} s ({each['ratio']:.0f}x)" for each in row["others"].values()]
        cells = [str(row["bits"]), sizes, f"**{mine['seconds']:.2f} s**", f"{mine['peak_mb']:.0f} MB", *others]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
