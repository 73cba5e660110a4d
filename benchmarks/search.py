"""Search speed of BucketIndex beside faiss-cpu, in one run: ``python benchmarks/search.py [--record]``.

The same codes go to both; FAISS gets them padded to whole bytes, low bits first, one thread, with ``nflip`` equal to
the radius. Every time is the best of several repetitions, per query. Without faiss-cpu only our own times are printed.
``--record`` stores the figures in docs/data/search.json, from which ``render`` makes the tables of the guide.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from shorthash import BucketIndex, load, save

try:
    import faiss
except ImportError:
    faiss = None

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "data" / "search.json"
RADIUS = 2
K = 100

# question, bits, codes, which time of BucketIndex, which of FAISS, and how many times as fast is the goal
QUESTIONS = [
    ("all within radius 2, copied", 8, "uniform", "within, any order", "hash within", 15),
    ("all within radius 2, copied", 8, "clustered", "within, any order", "hash within", 30),
    ("all within radius 2, copied", 12, "uniform", "within, any order", "hash within", 10),
    ("all within radius 2, copied", 12, "clustered", "within, any order", "hash within", 10),
    ("all within radius 2, copied", 16, "uniform", "within, any order", "hash within", 5),
    ("all within radius 2, copied", 16, "clustered", "within, any order", "hash within", 20),
    ("the same as slices", 8, "uniform", "slices", "hash within", 1000),
    ("the same as slices", 8, "clustered", "slices", "hash within", 1000),
    ("the same as slices", 12, "uniform", "slices", "hash within", 1000),
    ("the same as slices", 12, "clustered", "slices", "hash within", 1000),
    ("how many within radius 2", 8, "uniform", "counts", "hash within", 1000),
    ("how many within radius 2", 8, "clustered", "counts", "hash within", 1000),
    ("how many within radius 2", 12, "uniform", "counts", "hash within", 1000),
    ("how many within radius 2", 12, "clustered", "counts", "hash within", 1000),
    ("top 100", 12, "uniform", "top 100", "hash top 100", 10),
    ("top 100", 12, "clustered", "top 100", "hash top 100", 10),
]


def uniform(rng: np.random.Generator, n: int, n_bits: int) -> Any:
    """Codes without structure."""
    return rng.integers(0, (1 << n_bits) - 1, size=n, dtype=np.uint64, endpoint=True)


def clustered(rng: np.random.Generator, n: int, n_bits: int) -> Any:
    """Codes around 10 centres, every bit flipped with probability 0.1."""
    flips = np.zeros(n, dtype=np.uint64)
    for bit in range(n_bits):
        flips |= (rng.random(n) < 0.1).astype(np.uint64) << np.uint64(bit)
    return rng.choice(uniform(rng, 10, n_bits), size=n) ^ flips


def seconds(call: Callable[[], Any], budget: float = 1.0) -> float:
    """Shortest of at least three timings."""
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - start < budget and len(times) < 200):
        before = time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return min(times)


def octets(values: Any, n_bits: int) -> Any:
    """Codes as FAISS wants them: whole bytes, low bits first."""
    return np.ascontiguousarray(values.astype("<u8").view(np.uint8).reshape(len(values), 8)[:, : -(-n_bits // 8)])


def our_times(codes: Any, few: Any, many: Any, n_bits: int) -> dict[str, float]:
    """Seconds per query; ``few`` queries where results are copied, ``many`` where they are not."""
    index = BucketIndex(n_bits).add(codes)
    one = few[:1]
    return {
        "within, any order": seconds(lambda: index.within(few, RADIUS, ties="any")) / len(few),
        "within, 20 queries": seconds(lambda: index.within(many[:20], RADIUS, ties="any")) / 20,
        "within, by id": seconds(lambda: index.within(few, RADIUS)) / len(few),
        "within, one query": seconds(lambda: index.within(one, RADIUS, ties="any")),
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
    width = -(-n_bits // 8) * 8
    hashed, flat = faiss.IndexBinaryHash(width, n_bits), faiss.IndexBinaryFlat(width)
    hashed.nflip = RADIUS
    for index in (hashed, flat):
        index.add(octets(codes, n_bits))
    queries = octets(few, n_bits)
    return {
        "hash within": seconds(lambda: hashed.range_search(queries, RADIUS + 1)) / len(few),
        "flat within": seconds(lambda: flat.range_search(queries, RADIUS + 1)) / len(few),
        "hash top 100": seconds(lambda: hashed.search(queries, K)) / len(few),
        "flat top 100": seconds(lambda: flat.search(queries, K)) / len(few),
    }


def short_codes(n_items: int, lengths: list[int]) -> list[dict[str, Any]]:
    """One row per code length and kind of codes, printed as it comes."""
    rng = np.random.default_rng(0)
    rows = []
    for n_bits in lengths:
        for draw in (uniform, clustered):
            codes = draw(rng, n_items, n_bits)
            few, many = rng.choice(codes, size=10), rng.choice(codes, size=10_000)
            ours, other = our_times(codes, few, many, n_bits), faiss_times(codes, few, n_bits)
            rows.append({"n_bits": n_bits, "codes": draw.__name__, "ours": ours, "faiss": other})
            print(f"\n{n_bits} bits, {n_items} {draw.__name__} codes, microseconds per query")
            for name, value in other.items():
                print(f"  faiss {name:20}{1e6 * value:14.3f}")
            for name, value in ours.items():
                against = other.get("hash top 100" if "top" in name else "hash within")
                ratio = "" if against is None else f"{against / value:12.1f} times as fast as IndexBinaryHash"
                print(f"  ours  {name:20}{1e6 * value:14.3f}{ratio}")
    return rows


def long_codes(n_items: int) -> list[dict[str, Any]]:
    """Codes of 32 and 64 bits, searched by parts, beside FAISS's scan and its multi-index hash; one bit off an item."""
    rng = np.random.default_rng(1)
    rows = []
    for n_bits in (32, 64):
        for draw in (uniform, clustered):
            codes = draw(rng, n_items, n_bits)
            queries = rng.choice(codes, size=20) ^ (np.uint64(1) << rng.integers(0, n_bits, size=20, dtype=np.uint64))
            index = BucketIndex(n_bits).add(codes)
            row: dict[str, Any] = {"n_bits": n_bits, "codes": draw.__name__}
            row |= _our_long(index, queries) | _faiss_long(codes, queries, n_bits)
            rows.append(row)
            print(
                f"\n{n_bits} bits, {draw.__name__}:", {k: round(1e6 * v, 1) for k, v in row.items() if v and " " in k}
            )
    return rows


def _our_long(index: BucketIndex, queries: Any) -> dict[str, float]:
    n = len(queries)
    times = {
        f"ours {radius}": seconds(lambda r=radius: index.within(queries, r, ties="any")) / n for radius in (2, 5, 8)
    }
    return {**times, "ours top 10": seconds(lambda: index.search(queries, 10)) / n}


def _faiss_long(codes: Any, queries: Any, n_bits: int) -> dict[str, float]:
    if faiss is None:
        return {}
    flat, multi = faiss.IndexBinaryFlat(n_bits), faiss.IndexBinaryMultiHash(n_bits, n_bits // 16, 16)
    packed = octets(queries, n_bits)
    for index in (flat, multi):
        index.add(octets(codes, n_bits))
    times = {}
    for radius in (2, 5, 8):
        multi.nflip = radius // (n_bits // 16)
        times[f"flat {radius}"] = seconds(lambda r=radius: flat.range_search(packed, r + 1), 0.3) / 20
        if radius < 8:  # takes minutes on clustered codes
            times[f"multi {radius}"] = seconds(lambda r=radius: multi.range_search(packed, r + 1), 0.3) / 20
    times["flat top 10"] = seconds(lambda: flat.search(packed, 10), 0.3) / 20
    return times


def sizes_and_files(n: int) -> dict[str, float]:
    """Building, memory, saving and opening."""
    codes = np.random.default_rng(0).integers(0, 1 << 16, size=n).astype(np.uint16)
    short = BucketIndex(12).add(codes >> 4)
    short.slices(codes[:1] >> 4, 0)
    index = BucketIndex(16).add(codes)
    with tempfile.TemporaryDirectory() as folder:
        path = save(index, f"{folder}/index")
        opening = seconds(lambda: load(path, mmap=True))
        first = seconds(lambda: load(path, mmap=True).search(codes[:1], 10))
        checking = seconds(lambda: load(path, mmap=True).verify())
    return {
        "items": n,
        "build": seconds(lambda: BucketIndex(16).add(codes).slices(codes[:1], 0)),
        "argsort": seconds(lambda: np.argsort(codes, kind="stable")),
        "bytes per item": short.nbytes / n,
        "open": opening,
        "open and search": first,
        "open and verify": checking,
    }


def reranking(n_items: int) -> dict[str, float]:
    """Seconds per query to rank the ball of radius 1 at 12 bits by vectors of 128 numbers."""
    rng = np.random.default_rng(2)
    codes, vectors = uniform(rng, n_items, 12), rng.random((n_items, 128), dtype=np.float32)
    index = BucketIndex(12).add(codes, vectors=vectors)
    vectors_by_metric = {
        "cosine": vectors[:20],
        "dot": vectors[:20],
        "euclidean": vectors[:20],
        "asymmetric": vectors[:20, :12],
    }
    return {
        metric: seconds(lambda m=metric, v=rows: index.rerank(codes[:20], v, 10, radius=1, metric=m)) / 20
        for metric, rows in vectors_by_metric.items()
    }


def render(path: Path = RESULTS) -> str:
    """The stored figures as tables in Markdown."""
    record = json.loads(path.read_text(encoding="utf-8"))
    rows = {(row["n_bits"], row["codes"]): row for row in record["short"]}
    machine = record["machine"]
    about = (
        f"FAISS {machine['faiss']} on one thread, {machine['processors']} processors, NumPy {machine['numpy']}, Python "
        f"{machine['python']}; {record['items']:,} items; batches of 10 queries where results are copied, of "
        "10,000 where not; best of several repetitions, per query."
    )
    parts = _question_lines(rows), _order_lines(rows), _size_lines(record, rows), _long_lines(record), [about]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _order_lines(rows: dict[tuple[int, str], Any]) -> list[str]:
    """How the ratio for results that are copied depends on order and batch size."""
    ways = {
        "any order, 10 queries (above)": "within, any order",
        "any order, 20 queries": "within, 20 queries",
        "any order, 1 query": "within, one query",
        "by distance and id (the default), 10 queries": "within, by id",
    }
    keys = [(n_bits, codes) for n_bits in (8, 12, 16) for codes in ("uniform", "clustered")]
    about = (
        "All within radius 2, copied: times as fast as IndexBinaryHash (whose results are in any order), by order and "
        "number of queries in a batch; 20 queries at 8 bits give up to 45 MB of results, for which the system clears "
        "new pages at every call."
    )
    lines = [
        about,
        "",
        "| | " + " | ".join(f"{n_bits}, {codes}" for n_bits, codes in keys) + " |",
        "|---|" + "---:|" * len(keys),
    ]
    for title, name in ways.items():
        ratios = [_ratio(rows[key]["faiss"]["hash within"] / rows[key]["ours"][name]) for key in keys]
        lines.append(f"| {title} | " + " | ".join(ratios) + " |")
    return lines


def _question_lines(rows: dict[tuple[int, str], Any]) -> list[str]:
    lines = [
        "| question | bits | codes | BucketIndex | IndexBinaryHash | times as fast |",
        "|---|---:|---|---:|---:|---:|",
    ]
    for question, n_bits, codes, own, other, _ in QUESTIONS:
        a, b = rows[n_bits, codes]["ours"][own], rows[n_bits, codes]["faiss"][other]
        lines.append(f"| {question} | {n_bits} | {codes} | {_time(a)} | {_time(b)} | {_ratio(b / a)} |")
    return lines


def print_goals(rows: dict[tuple[int, str], Any]) -> None:
    """Which goals are met."""
    for question, n_bits, codes, own, other, goal in QUESTIONS:
        ratio = rows[n_bits, codes]["faiss"][other] / rows[n_bits, codes]["ours"][own]
        print(
            f"{question}, {n_bits} bits, {codes}: {ratio:,.1f}, goal {goal:,}: {'met' if ratio >= goal else 'missed'}"
        )


def _size_lines(record: dict[str, Any], rows: dict[tuple[int, str], Any]) -> list[str]:
    sizes = record["sizes"]
    one = ", ".join(f"{_time(rows[n, 'uniform']['ours']['within, one query'])} at {n} bits" for n in (8, 12, 16))
    many = ", ".join(
        f"{_time(rows[12, codes]['ours']['top 100, many'])} ({codes})" for codes in ("uniform", "clustered")
    )
    ranks = ", ".join(f"{name} {_time(value)}" for name, value in record["reranking"].items())
    facts = {
        "A single query with its results copied, uniform codes": f"{one}.",
        "Top 100 at 12 bits for a batch of 10,000 queries, a query": f"{many}.",
        f"Building from {sizes['items']:,} 16-bit codes": f"{sizes['build'] / sizes['argsort']:.1f} times as long as "
        '`numpy.argsort(codes, kind="stable")`.',
        "Opening that index from a file": f"{_time(sizes['open'])}; with a first search "
        f"{_time(sizes['open and search'])}; with a check of every byte {_time(sizes['open and verify'])}.",
        "Memory at 12 bits with implicit ids": f"{sizes['bytes per item']:.2f} bytes per item.",
        "Ranking the ball of radius 1 at 12 bits by vectors of 128 numbers, a query": f"{ranks}.",
    }
    return [f"- {name}: {text}" for name, text in facts.items()]


def _long_lines(record: dict[str, Any]) -> list[str]:
    titles = "radius 2", "radius 5", "radius 8", "top 10", "Flat, radius 2", "top 10", "MultiHash, radius 2", "radius 5"
    lines = [f"| bits | codes | {' | '.join(titles)} |", "|---:|---" + "|---:" * len(titles) + "|"]
    names = ("ours 2", "ours 5", "ours 8", "ours top 10", "flat 2", "flat top 10", "multi 2", "multi 5")
    for row in record["long"]:
        cells = " | ".join(_time(row[name]) for name in names)
        lines.append(f"| {row['n_bits']} | {row['codes']} | {cells} |")
    return lines


def _ratio(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _time(value: float) -> str:
    """A time in a unit that suits it."""
    unit, factor = next((u, f) for u, f in (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)) if value * f >= 1)
    number = value * factor
    return f"{number:.0f} {unit}" if number >= 10 else f"{number:.1f} {unit}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--bits", type=int, nargs="*", default=[8, 12, 16])
    parser.add_argument("--record", action="store_true", help=f"store the figures in {RESULTS.name}")
    options = parser.parse_args()
    if options.record and (faiss is None or options.bits != [8, 12, 16]):
        raise SystemExit("a record needs faiss-cpu and all code lengths")
    record = {
        "items": options.items,
        "machine": {
            "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "faiss": getattr(faiss, "__version__", None),
        },
        "short": short_codes(options.items, options.bits),
        "long": long_codes(options.items),
        "sizes": sizes_and_files(10 * options.items),
        "reranking": reranking(options.items),
    }
    print("\n", record["sizes"], "\n", record["reranking"])
    if faiss is not None and options.bits == [8, 12, 16]:
        print_goals({(row["n_bits"], row["codes"]): row for row in record["short"]})
    if options.record:
        RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
