"""Speed and memory of large data on one machine: ``python benchmarks/scale.py [--record]``; 20 minutes on two cores.

Every part runs in its own process, whose peak memory is measured. Goals in brackets:

stream    fit from a Parquet file, rows/s over those of the bare kernel map and Gram product in the same run [0.8], and
          peak memory above the interpreter [1.5 GiB]
dask      fit by two worker processes of one thread over one such worker [1.7]
encode    codes of a stream written to Parquet, time over that of the two bare matrix products
evaluate  scores of queries against a database, by its histogram: seconds and memory
eaph      fit of EAPH from a Parquet file with many classes: seconds [900] and peak memory [3 GiB]
curves    rows/s against rows, anchors and bits; memory against rows
growth    CPU seconds of a fit of EAPH against rows, classes and bits, and of encoding

``--part NAME`` runs one of them; sizes are options, so a small version is quick.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).resolve().parents[1] / "docs" / "data"
RECORD = DATA / "scale.json"
COLUMNS, CLASSES = 256, 100
MADE = 65_536  # rows made at once
SIZES = {
    "rows": (2_000_000, "rows of the streamed fit"),
    "anchors": (1000, "anchors"),
    "bits": (12, "bits"),
    "bare_rows": (60_000, "rows of the bare loop, run three times before and after the fit"),
    "eaph_rows": (1_000_000, "rows of the fit of EAPH"),
    "eaph_classes": (1000, "their classes"),
    "dask_rows": (1_000_000, "rows of the fit by workers"),
    "encode_rows": (10_000_000, "rows to encode"),
    "items": (100_000_000, "codes in the database"),
    "queries": (100_000, "queries"),
    "curve_rows": (200_000, "rows of a point of the curves"),
    "growth_rows": (16_000, "rows of a point of the growth of EAPH"),
    "growth_classes": (100, "their classes"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (size, text) in SIZES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=size, help=f"{text}; default {size}")
    parser.add_argument("--part", choices=list(PARTS), help="run one part only")
    parser.add_argument("--record", action="store_true", help="store the figures in docs/data/scale.json")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(PARTS[options.child](options)))
        return
    known = json.loads(RECORD.read_text()) if RECORD.exists() and options.part else {}
    report = {**known, "versions": {"python": platform.python_version(), "numpy": np.__version__}}
    report["cores"] = os.cpu_count()
    for part in [options.part] if options.part else list(PARTS):
        report[part] = in_child(part, options)
        print(json.dumps({part: report[part]}, indent=1), flush=True)
    if options.record:
        RECORD.write_text(json.dumps(report, indent=1) + "\n")


def in_child(part: str, options: argparse.Namespace, **changes: int) -> Any:
    """What a part says, run in a process of its own."""
    sizes = {name: getattr(options, name) for name in SIZES} | changes
    arguments = [f"--{name.replace('_', '-')}={size}" for name, size in sizes.items()]
    done = subprocess.run(
        [sys.executable, __file__, "--child", part, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def make_rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy class centres of length 1, float32; always the same for a seed."""
    centres = np.random.default_rng(0).normal(size=(CLASSES, COLUMNS)).astype(np.float32)
    rng = np.random.default_rng(seed + 1)
    y = rng.integers(CLASSES, size=n)
    X = rng.standard_normal((n, COLUMNS), dtype=np.float32)
    X *= 1.5
    X += centres[y]
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def made(n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches that make up n rows."""
    for low in range(0, n, MADE):
        yield make_rows(min(MADE, n - low), low)


def hasher_of(options: argparse.Namespace, anchors: int | None = None, bits: int | None = None) -> Any:
    from shorthash import make_hasher

    front = {"n_anchors": anchors or options.anchors}
    return make_hasher("rslh", bits or options.bits, random_state=0, kernel=front)


def bare_rate(n: int, anchors: np.ndarray, sigma: float) -> float:
    """Rows per second of the kernel map and the Gram product, and nothing else."""
    X, _ = make_rows(4096, 1)
    gram = np.zeros((len(anchors),) * 2)
    start = time.perf_counter()
    for _ in range(0, n, len(X)):
        squares = (X**2).sum(axis=1)[:, None] + (anchors**2).sum(axis=1)[None, :] - 2 * (X @ anchors.T)
        Z = np.exp(-np.maximum(squares, 0) / np.float32(2 * sigma**2)).astype(np.float64)
        gram += Z.T @ Z
    return -(-n // len(X)) * len(X) / (time.perf_counter() - start)


def stream(options: argparse.Namespace) -> dict[str, Any]:
    """Fit from Parquet."""
    import pyarrow.dataset  # noqa: F401

    from shorthash.scale import fit_stream

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        subprocess.run(
            [sys.executable, "-c", WRITE, str(Path(__file__).parent), str(path), str(options.rows)], check=True
        )
        X, y = make_rows(20_000, 0)
        small = hasher_of(options).fit(X, y)  # everything imported and warm
        anchors, sigma = small[0].anchors_, small[0].bandwidth_
        rates = [bare_rate(options.bare_rows, anchors, sigma) for _ in range(3)]
        del X, y, small
        reset_peak()
        before = memory("VmRSS")
        start = time.perf_counter()
        fit_stream(hasher_of(options), path, label="label")
        seconds = time.perf_counter() - start
        peak = memory("VmHWM") - before
        rates += [bare_rate(options.bare_rows, anchors, sigma) for _ in range(3)]
        bare, ours = statistics.median(rates), options.rows / seconds
        return {
            "rows": options.rows,
            "columns": COLUMNS,
            "anchors": options.anchors,
            "seconds": round(seconds, 1),
            "rows_per_second": round(ours),
            "bare_rows_per_second": round(bare),
            "ratio": round(ours / bare, 3),
            "goal": 0.8,
            "peak_gib": round(peak / 2**20, 3),
            "goal_gib": 1.5,
            "file_gib": round(path.stat().st_size / 2**30, 3),
        }


WRITE = """
import sys
sys.path.insert(0, sys.argv[1])
import pyarrow, pyarrow.parquet as parquet
import scale
from scale import COLUMNS, made
scale.CLASSES = int(sys.argv[4]) if len(sys.argv) > 4 else scale.CLASSES
names = [f"x{j}" for j in range(COLUMNS)]
schema = pyarrow.schema([(name, pyarrow.float32()) for name in names] + [("label", pyarrow.int32())])
with parquet.ParquetWriter(sys.argv[2], schema, compression="none", use_dictionary=False) as writer:
    for X, y in made(int(sys.argv[3])):
        columns = [pyarrow.array(X[:, j]) for j in range(COLUMNS)] + [pyarrow.array(y.astype("int32"))]
        writer.write_table(pyarrow.table(columns, schema=schema))
"""


def by_workers(options: argparse.Namespace) -> dict[str, Any]:
    """Fit by one and by two worker processes."""
    import dask
    import dask.array as da
    from distributed import Client, LocalCluster

    n_blocks = -(-options.dask_rows // 25_000)
    blocks = [dask.delayed(make_rows)(25_000, i) for i in range(n_blocks)]
    X = da.concatenate([da.from_delayed(b[0], (25_000, COLUMNS), np.float32) for b in blocks])
    y = da.concatenate([da.from_delayed(b[1], (25_000,), np.int64) for b in blocks])
    clocks = {}
    for workers in (1, 2):
        settings = {"n_workers": workers, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
        with LocalCluster(**settings, memory_limit=0) as cluster, Client(cluster) as client:
            held_X, held_y = client.persist([X, y])  # the rows are in the workers' memory
            hasher_of(options, anchors=50).fit(held_X, held_y)  # everything imported and warm
            start = time.perf_counter()
            hasher_of(options).fit(held_X, held_y)
            clocks[workers] = time.perf_counter() - start
    n = n_blocks * 25_000
    return {
        "rows": n,
        "anchors": options.anchors,
        "seconds": {str(w): round(s, 2) for w, s in clocks.items()},
        "rows_per_second": {str(w): round(n / s) for w, s in clocks.items()},
        "ratio": round(clocks[1] / clocks[2], 3),
        "goal": 1.7,
    }


def encode(options: argparse.Namespace) -> dict[str, Any]:
    """Codes of a stream into a Parquet file, and the two matrix products that cannot be avoided."""
    from shorthash.scale import BatchStream, encode_to_file

    X, y = make_rows(MADE, 0)
    hasher = hasher_of(options).fit(X[:20_000], y[:20_000])
    rounds = -(-options.encode_rows // MADE)
    W, P = np.ascontiguousarray(hasher[0].anchors_.T), hasher[-1].projection_.astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        counts = encode_to_file(hasher, BatchStream(lambda: (X for _ in range(rounds))), Path(folder) / "codes.parquet")
        seconds = time.perf_counter() - start
    share = max(1, rounds // 4)
    start = time.perf_counter()
    for _ in range(share):
        for low in range(0, MADE, 4096):
            _ = (X[low : low + 4096] @ W) @ P
    bare = (time.perf_counter() - start) * rounds / share
    return {
        "rows": counts.n_rows,
        "anchors": options.anchors,
        "bits": options.bits,
        "seconds": round(seconds, 1),
        "rows_per_second": round(counts.n_rows / seconds),
        "bare_seconds": round(bare, 1),
        "ratio": round(seconds / bare, 3),
    }


def evaluation(options: argparse.Namespace) -> dict[str, Any]:
    """Scores against a database of packed codes."""
    from shorthash.evaluation import CodeHistogram, evaluate_histogram

    rng = np.random.default_rng(0)
    codebook = rng.integers(0, 1 << options.bits, CLASSES)
    labels = rng.integers(0, CLASSES, options.items + options.queries, dtype=np.uint8)
    codes = np.empty(len(labels), dtype=np.uint16 if options.bits <= 16 else np.uint64)
    for low in range(0, len(codes), 1 << 20):
        part = labels[low : low + (1 << 20)]
        flips = np.zeros(len(part), dtype=np.int64)
        for bit in range(options.bits):
            flips |= (rng.random(len(part), dtype=np.float32) < 0.15).astype(np.int64) << bit
        codes[low : low + (1 << 20)] = codebook[part] ^ flips
    n = options.queries
    evaluate_histogram(codes[:10], labels[:10], CodeHistogram.of(codes[-1000:], labels[-1000:], options.bits))
    reset_peak()
    before = memory("VmRSS")
    start = time.perf_counter()
    histogram = CodeHistogram.of(codes[n:], labels[n:], options.bits)
    middle = time.perf_counter()
    scores = evaluate_histogram(codes[:n], labels[:n], histogram)
    end = time.perf_counter()
    return {
        "items": options.items,
        "queries": n,
        "bits": options.bits,
        "classes": CLASSES,
        "count_seconds": round(middle - start, 2),
        "score_seconds": round(end - middle, 2),
        "seconds": round(end - start, 2),
        "peak_gib": round((memory("VmHWM") - before) / 2**20, 3),
        "input_gib": round((codes.nbytes + labels.nbytes) / 2**30, 3),
        "map": round(scores.map, 4),
    }


def curves(options: argparse.Namespace) -> dict[str, Any]:
    """Rows per second and memory, one size after the other."""
    n = options.curve_rows
    by_rows = {str(size): in_child("point", options, curve_rows=size) for size in (n // 4, n // 2, n, 2 * n, 4 * n)}
    anchors = (options.anchors // 4, options.anchors // 2, options.anchors, 2 * options.anchors)
    by_anchors = {str(m): in_child("point", options, anchors=m) for m in anchors}
    by_bits = {str(bits): in_child("point", options, bits=bits) for bits in (8, 12, 32, 64)}
    return {"rows": by_rows, "anchors": by_anchors, "bits": by_bits, "curve_rows": n}


def point(options: argparse.Namespace) -> dict[str, Any]:
    """One fit of a stream that is made on the way, and the encoding of a block."""
    from shorthash.scale import BatchStream, fit_stream

    X, y = make_rows(20_000, 0)
    hasher_of(options, anchors=50).fit(X, y).transform(X)
    reset_peak()
    before = memory("VmRSS")
    start = time.perf_counter()
    for _ in range(2):
        for _batch in made(options.curve_rows):
            pass
    making = time.perf_counter() - start
    start = time.perf_counter()
    hasher = fit_stream(hasher_of(options), BatchStream(lambda: made(options.curve_rows), n_rows=options.curve_rows))
    seconds = time.perf_counter() - start - making
    peak = memory("VmHWM") - before
    start = time.perf_counter()
    hasher.transform(X)
    encoding = time.perf_counter() - start
    return {
        "rows_per_second": round(options.curve_rows / seconds),
        "encode_rows_per_second": round(len(X) / encoding),
        "peak_gib": round(peak / 2**20, 3),
    }


def memory(name: str) -> int:
    """Resident memory of this process in KiB: now (VmRSS) or its peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def reset_peak() -> None:
    """Let the peak begin anew, where the system allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        print("the peak of memory includes what came before", file=sys.stderr)


def eaph(options: argparse.Namespace) -> dict[str, Any]:
    """Fit EAPH from Parquet."""
    from shorthash import make_hasher
    from shorthash.scale import fit_stream

    global CLASSES
    CLASSES = options.eaph_classes
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        arguments = [str(Path(__file__).parent), str(path), str(options.eaph_rows), str(CLASSES)]
        subprocess.run([sys.executable, "-c", WRITE, *arguments], check=True)
        hasher = make_hasher("auto", options.bits, random_state=0)
        reset_peak()
        before = memory("VmRSS")
        start = time.perf_counter()
        fit_stream(hasher, path, label="label")
        seconds = time.perf_counter() - start
        peak = memory("VmHWM") - before
    X, y = make_rows(5000, 10**9)
    return {
        "rows": options.eaph_rows,
        "columns": COLUMNS,
        "classes": CLASSES,
        "bits": options.bits,
        "seconds": round(seconds, 1),
        "goal_seconds": 900,
        "peak_gib": round(peak / 2**20, 3),
        "goal_gib": 3,
        "map_of_5_000_other_rows": round(hasher.score(X, y), 4),
    }


def growth(options: argparse.Namespace) -> dict[str, Any]:
    """CPU seconds of EAPH, one size after the other."""
    n, c = options.growth_rows, options.growth_classes
    sizes = {
        "rows": [{"growth_rows": rows} for rows in (n // 4, n // 2, n, 2 * n, 4 * n)],
        "classes": [{"growth_classes": classes} for classes in (c // 10, c, 3 * c, 10 * c)],
        "bits": [{"bits": bits} for bits in (4, 8, 12, 16)],
    }
    points = {
        name: {str(*size.values()): in_child("growth_point", options, **size) for size in chosen}
        for name, chosen in sizes.items()
    }
    return {**points, "growth_rows": n, "growth_classes": c, "growth_bits": options.bits}


def growth_point(options: argparse.Namespace) -> dict[str, Any]:
    """One fit of EAPH on rows in memory, and the encoding of a block."""
    from shorthash import make_hasher

    global CLASSES
    CLASSES = options.growth_classes
    X, y = make_rows(options.growth_rows, 0)
    make_hasher("auto", 4, random_state=0).fit(X[:500], y[:500] % 5).transform(X[:10])  # compiles
    start = time.process_time()
    hasher = make_hasher("auto", options.bits, random_state=0).fit(X, y)
    seconds = time.process_time() - start
    block, _ = make_rows(20_000, 10**9)
    start = time.process_time()
    hasher.transform(block)
    return {
        "fit_seconds": round(seconds, 2),
        "encode_microseconds_per_row": round((time.process_time() - start) / len(block) * 1e6, 2),
    }


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "stream": stream,
    "dask": by_workers,
    "encode": encode,
    "evaluate": evaluation,
    "eaph": eaph,
    "curves": curves,
    "growth": growth,
}


if __name__ == "__main__":
    PARTS |= {"point": point, "growth_point": growth_point}
    main()
