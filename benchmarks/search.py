"""Search speed of BucketIndex beside faiss-cpu, in one run: ``python benchmarks/search.py [--record]``.

The same codes go to both, and both may use all processors; FAISS gets codes padded to whole bytes, low bits first, with
``nflip`` equal to the radius, and takes several threads for more than 100 queries only. Queries are drawn from the
items, so that large batches hold equal codes, which ``within`` searches once. Twenty small batches take
turns, since a processor learns the branches of one that is repeated; every time is the best of several repetitions, per
query, averaged over the batches. Without faiss-cpu only our own times are printed. ``--record`` stores the figures in
docs/data/search.json, from which ``render`` makes the tables of the guide.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from shorthash import BucketIndex, load, save
from shorthash.index.sorting import bitmap, is_dense, read_bits, set_all, set_equal, sort, sort_space

try:
    import faiss
except ImportError:
    faiss = None

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "data" / "search.json"
RADIUS = 2
K = 100

BATCHES = (1, 10, 500)
MANY = 10_000  # queries where nothing is copied
MOVED = 13  # bytes per item within a radius: its position is read (4), position and distance are written (9)
GOALS = {  # (bits, codes): how many times as fast as FAISS all within radius 2 shall be found, by id
    (8, "uniform"): 15,
    (8, "clustered"): 25,
    (12, "uniform"): 10,
    (12, "clustered"): 10,
    (16, "uniform"): 5,
    (16, "clustered"): 15,
}


def uniform(rng: np.random.Generator, n: int, n_bits: int) -> Any:
    """Codes without structure."""
    return rng.integers(0, (1 << n_bits) - 1, size=n, dtype=np.uint64, endpoint=True)


def clustered(rng: np.random.Generator, n: int, n_bits: int) -> Any:
    """Codes around 10 centres, every bit flipped with probability 0.1."""
    flips = np.zeros(n, dtype=np.uint64)
    for bit in range(n_bits):
        flips |= (rng.random(n) < 0.1).astype(np.uint64) << np.uint64(bit)
    return rng.choice(uniform(rng, 10, n_bits), size=n) ^ flips


def seconds(call: Callable[..., Any], budget: float = 0.5, batches: Any = ((),)) -> float:
    """The shortest of at least five timings of every batch of arguments, taken in turn; their mean."""
    best = [np.inf] * len(batches)
    start, rounds = time.perf_counter(), 0
    while rounds < 5 or (time.perf_counter() - start < budget and rounds < 200):
        for i, given in enumerate(batches):
            before = time.perf_counter()
            call(*given)
            best[i] = min(best[i], time.perf_counter() - before)
        rounds += 1
    return float(np.mean(best))


def drawn(codes: Any, n: int) -> list[tuple[Any]]:
    """Some batches of n queries, the same for everybody."""
    rng = np.random.default_rng(n)
    return [(rng.choice(codes, size=n),) for _ in range(20 if n <= 10 else 1)]


def octets(values: Any, n_bits: int) -> Any:
    """Codes as FAISS wants them: whole bytes, low bits first."""
    return np.ascontiguousarray(values.astype("<u8").view(np.uint8).reshape(len(values), 8)[:, : -(-n_bits // 8)])


def our_times(index: BucketIndex, codes: Any) -> dict[str, float]:
    """Seconds per query, by question and batch size."""
    times = {}
    for n in BATCHES:
        batches = drawn(codes, n)
        ways: dict[str, Callable[..., Any]] = {
            "within": lambda q: index.within(q, RADIUS),
            "within, any order": lambda q: index.within(q, RADIUS, ties="any"),
            "top 100": lambda q: index.search(q, K),
        }
        times |= {f"{name}, {n}": seconds(way, batches=batches) / n for name, way in ways.items()}
    many = drawn(codes, MANY)
    times["slices"] = seconds(lambda q: index.slices(q, RADIUS), batches=many) / MANY
    times["counts"] = seconds(lambda q: index.counts(q, RADIUS), batches=many) / MANY
    return times


def quickest(call: Callable[[], Any], prepare: Callable[[], Any]) -> float:
    """The shortest of ten timings, with something to prepare before each."""
    best = np.inf
    for _ in range(10):
        prepare()
        before = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - before)
    return best


def part_times(index: BucketIndex, codes: Any) -> dict[str, float]:
    """Seconds of the parts of a single query by id: the call, where every code has one item, and sorting distances."""
    n_bits, n, queries = index.n_bits, len(index), drawn(codes, 1)
    small = BucketIndex(n_bits).add(np.arange(1 << n_bits))
    small.slices([0], 0)  # sorts the items into the table
    call = seconds(lambda q: small.within(q, RADIUS, ties="any"), 0.2, queries)
    times = {"call": call, "mark": 0.0, "read": 0.0, "sort": 0.0}
    scratch, kept = sort_space(n), codes.astype(np.uint8)
    bits = bitmap(scratch, n)
    for (query,) in queries:
        found = index.slices(query, RADIUS)
        for t in range(1, RADIUS + 1):
            ring = np.concatenate([found.positions[:0], *(places for distance, places in found[0] if distance == t)])
            values = ring.astype(np.int64)

            def mark(ring: Any = ring, query: Any = query, t: int = t) -> None:
                if n_bits <= 8:
                    set_equal(bits, kept, query[0], t)
                else:
                    set_all(bits, ring)

            if is_dense(len(ring), n):
                times["read"] += quickest(lambda v=values: read_bits(bits, v), mark) / len(queries)
                times["mark"] += quickest(mark, lambda: bits.fill(0)) / len(queries)
                bits.fill(0)
            else:
                restore = partial(np.copyto, values, ring)
                times["sort"] += quickest(lambda v=values: sort(v, scratch, n), restore) / len(queries)
    return times


def faiss_times(codes: Any, n_bits: int) -> dict[str, float]:
    """Seconds per query of IndexBinaryHash, by question and batch size."""
    if faiss is None:
        return {}
    faiss.omp_set_num_threads(processors())
    hashed = faiss.IndexBinaryHash(-(-n_bits // 8) * 8, n_bits)
    hashed.nflip = RADIUS
    hashed.add(octets(codes, n_bits))
    times = {}
    for n in BATCHES:
        batches = [(octets(queries, n_bits),) for (queries,) in drawn(codes, n)]
        times[f"within, {n}"] = seconds(lambda q: hashed.range_search(q, RADIUS + 1), batches=batches) / n
        times[f"top 100, {n}"] = seconds(lambda q: hashed.search(q, K), batches=batches) / n
    return times


def short_codes(n_items: int, lengths: list[int]) -> list[dict[str, Any]]:
    """One row per code length and kind of codes, printed as it comes."""
    rng = np.random.default_rng(0)
    rows = []
    for n_bits in lengths:
        for draw in (uniform, clustered):
            codes = draw(rng, n_items, n_bits)
            index = BucketIndex(n_bits).add(codes)
            hits = float(index.counts(rng.choice(codes, size=MANY), RADIUS).mean())
            ours, other = our_times(index, codes), faiss_times(codes, n_bits)
            row = {"n_bits": n_bits, "codes": draw.__name__, "hits": hits, "ours": ours, "faiss": other}
            rows.append(row | {"parts": part_times(index, codes)})
            print(f"\n{n_bits} bits, {n_items} {draw.__name__} codes, {hits:.0f} items within the radius, us per query")
            for name, value in ours.items():
                against = other.get(name.replace(", any order", ""))
                beside = "" if against is None else f"{1e6 * against:14.3f}{against / value:10.1f} times as fast"
                print(f"  {name:24}{1e6 * value:14.3f}{beside}")
            print("  parts of one query:", {name: round(1e6 * value, 1) for name, value in rows[-1]["parts"].items()})
    return rows


def processors() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def at_once(work: Callable[[int], Any], n_threads: int) -> float:
    """Seconds until some threads have done the work, all at the same time."""
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(work, range(n_threads)))  # starts the threads
        start = time.perf_counter()
        list(pool.map(work, range(n_threads)))
        return time.perf_counter() - start


def bandwidth() -> float:
    """Bytes per second that copying arrays reads and writes, on all processors."""
    n = 8 << 20
    pairs = [(np.ones(n), np.empty(n)) for _ in range(processors())]
    best = min(at_once(lambda i: np.copyto(pairs[i][1], pairs[i][0]), len(pairs)) for _ in range(50))
    return 16 * n * len(pairs) / best


def scaling(n_items: int) -> dict[str, dict[str, float]]:
    """Searches per second from several Python threads, 12 bits, by id: single queries, and batches of 10."""
    rng = np.random.default_rng(3)
    codes = uniform(rng, n_items, 12)
    index, found = BucketIndex(12).add(codes), {}
    for n, repeats in ((1, 300), (10, 60)):
        batches = [rng.choice(codes, size=n) for _ in range(20)]

        def work(thread: int, batches: Any = batches, repeats: int = repeats) -> None:
            for i in range(repeats):
                index.within(batches[(thread + i) % 20], RADIUS)

        rates = {t: t * repeats * n / min(at_once(work, t) for _ in range(10)) for t in (1, 2, 4)}
        found[str(n)] = {str(t): rate for t, rate in rates.items()}
    return found


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
        f"FAISS {machine['faiss']}, {machine['processors']} processors for both, NumPy {machine['numpy']}, Python "
        f"{machine['python']}; {record['items']:,} items; best of several repetitions, per "
        f"query. Load of the machine before the run: {machine['load']:.1f}."
    )
    parts = (
        _batch_lines(rows, "within", "All within radius 2, by distance and id (the default)"),
        _batch_lines(rows, "top 100", "The 100 nearest"),
        _other_lines(rows),
        _part_lines(rows),
        _bound_lines(record),
        _size_lines(record),
        _long_lines(record),
        [about],
    )
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _batch_lines(rows: dict[tuple[int, str], Any], name: str, title: str) -> list[str]:
    """Times of both and their ratio, by batch size."""
    heads = "".join(f" {n} quer{'y' if n == 1 else 'ies'} | FAISS | times |" for n in BATCHES)
    lines = [
        f"{title}, beside IndexBinaryHash, whose results are in any order:",
        "",
        f"| bits | codes | items found |{heads}",
        "|---:|---|---:|" + "---:|" * 3 * len(BATCHES),
    ]
    for (n_bits, codes), row in rows.items():
        pairs = [(row["ours"][f"{name}, {n}"], row["faiss"][f"{name}, {n}"]) for n in BATCHES]
        cells = " | ".join(f"{_time(a)} | {_time(b)} | {_ratio(b / a)}" for a, b in pairs)
        hits = f"{row['hits']:,.0f}" if name == "within" else f"{K}"
        lines.append(f"| {n_bits} | {codes} | {hits} | {cells} |")
    return lines


def _other_lines(rows: dict[tuple[int, str], Any]) -> list[str]:
    """What costs less than copying in order."""
    ways = {
        'all within radius 2 in any order (`ties="any"`), 10 queries': "within, any order, 10",
        f"the same as slices, {MANY:,} queries": "slices",
        f"how many within radius 2, {MANY:,} queries": "counts",
    }
    lines = [
        "| | " + " | ".join(f"{n_bits}, {codes}" for n_bits, codes in rows) + " |",
        "|---|" + "---:|" * len(rows),
    ]
    for title, name in ways.items():
        lines.append(f"| {title} | " + " | ".join(_time(row["ours"][name]) for row in rows.values()) + " |")
    return lines


def _part_lines(rows: dict[tuple[int, str], Any]) -> list[str]:
    """Where the time of a single query goes."""
    lines = [
        "Parts of a single query, all within radius 2 by id, measured one by one:",
        "",
        "| bits | codes | the call | mark items in bitmaps | read bitmaps | sort by radix | in all | in any order |",
        "|---:|---|" + "---:|" * 6,
    ]
    for (n_bits, codes), row in rows.items():
        times = [row["parts"][name] for name in ("call", "mark", "read", "sort")]
        whole = [row["ours"]["within, 1"], row["ours"]["within, any order, 1"]]
        cells = " | ".join(_time(value) if value > 1e-7 else "" for value in (*times, *whole))
        lines.append(f"| {n_bits} | {codes} | {cells} |")
    return lines


def _bound_lines(record: dict[str, Any]) -> list[str]:
    """The share of memory bandwidth, and what threads add."""
    shares = []
    for row in record["short"]:
        rates = [row["hits"] * MOVED / row["ours"][f"within{way}, 500"] for way in (", any order", "")]
        shares.append(f"{row['n_bits']} bits {row['codes']} " + " and ".join(_percent(r, record) for r in rates))
    speed = f"{record['bandwidth'] / 1e9:.0f} GB/s"
    used = f"500 queries use, in any order and by id: {', '.join(shares)}."
    lines = [f"- Of the bandwidth of copying memory ({speed} read and written) {used}"]
    for n, rates in record["scaling"].items():
        what = "Single queries" if n == "1" else f"Batches of {n} queries"
        more = ", ".join(f"{rates[t] / rates['1']:.1f} times as many with {t}" for t in ("2", "4"))
        lines.append(f"- {what} from Python threads, 12 bits, by id: {rates['1']:,.0f} queries/s with one, {more}.")
    return lines


def _percent(rate: float, record: dict[str, Any]) -> str:
    return f"{100 * rate / record['bandwidth']:.0f}%"


def print_goals(rows: dict[tuple[int, str], Any]) -> None:
    """Which goals are met."""
    for (n_bits, codes), goal in GOALS.items():
        row = rows[n_bits, codes]
        ratios = [row["faiss"][f"within, {n}"] / row["ours"][f"within, {n}"] for n in BATCHES]
        shown = ", ".join(f"{ratio:.1f} ({n})" for ratio, n in zip(ratios, BATCHES, strict=True))
        print(f"within radius 2 by id, {n_bits} bits, {codes}: {shown}; goal {goal}")


def _size_lines(record: dict[str, Any]) -> list[str]:
    sizes = record["sizes"]
    ranks = ", ".join(f"{name} {_time(value)}" for name, value in record["reranking"].items())
    facts = {
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
            "processors": processors(),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
            "numpy": np.__version__,
            "faiss": getattr(faiss, "__version__", None),
        },
        "bandwidth": bandwidth(),
        "scaling": scaling(options.items),
        "short": short_codes(options.items, options.bits),
        "long": long_codes(options.items),
        "sizes": sizes_and_files(10 * options.items),
        "reranking": reranking(options.items),
    }
    print("\n", record["sizes"], "\n", record["reranking"], "\n", record["bandwidth"], "\n", record["scaling"])
    if faiss is not None and options.bits == [8, 12, 16]:
        print_goals({(row["n_bits"], row["codes"]): row for row in record["short"]})
    if options.record:
        RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
