"""How much fitting costs beyond what cannot be avoided, and how much memory it takes.

Run ``python benchmarks/fit.py``. Two figures, each with its goal:

1. 50 000 x 256 rows, 1 000 anchors, 8 bits, three boosting runs: time of ``make_hasher("rslh").fit`` over the time of
   the bare kernel map plus one float64 Gram product of the same shapes (at most 1.5), medians of interleaved rounds.
2. 1 000 000 x 256 rows from a memory map: peak memory of the fit above the interpreter (at most 1.5 GiB), measured in a
   process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

RECORD = Path(__file__).resolve().parents[1] / "docs" / "data" / "fit.json"
ANCHORS, COLUMNS, CLASSES = 1000, 256, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000, help="rows of the timed fit")
    parser.add_argument("--big-rows", type=int, default=1_000_000, help="rows of the memory-mapped fit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="store the figures in docs/data/fit.json")
    parser.add_argument("--peak", metavar="FILE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        print(json.dumps(peak_of_fit(Path(arguments.peak))))
        return
    report = {
        "time": time_ratio(arguments.rows, arguments.rounds),
        "memory": memory(arguments.big_rows),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "cores": os.cpu_count(),
    }
    print(json.dumps(report, indent=1))
    if arguments.record:
        RECORD.write_text(json.dumps(report, indent=1) + "\n")


def render() -> str:
    """The stored figures as a table."""
    record = json.loads(RECORD.read_text())
    clock, peak = record["time"], record["memory"]
    fit = (
        f"| fit, {clock['rows']:,} x 256, 1 000 anchors, 8 bits: time over bare kernel map + Gram product | "
        f"{clock['ratio']:.2f} ({clock['fit_seconds']:.2f} s over {clock['bare_seconds']:.2f} s, "
        f"{record['cores']} cores) | at most {clock['goal']} |"
    )
    memory_map = (
        f"| fit of {peak['rows']:,} x 256 from a memory map: peak memory above the interpreter | "
        f"{peak['peak_gib']:.2f} GiB ({peak['seconds']:.0f} s) | at most {peak['goal_gib']} GiB |"
    )
    return "\n".join(["| what | measured | goal |", "|---|---|---|", fit, memory_map])


def make_rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Unit-norm clusters, one per class."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(CLASSES, COLUMNS)).astype(np.float32)
    y = rng.integers(CLASSES, size=n)
    X = centres[y] + 1.5 * rng.normal(size=(n, COLUMNS)).astype(np.float32)
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def bare(X: np.ndarray, anchors: np.ndarray, sigma: float) -> None:
    """The kernel map and the Gram product, and nothing else."""
    squares = (X**2).sum(axis=1)[:, None] + (anchors**2).sum(axis=1)[None, :] - 2 * (X @ anchors.T)
    Z = np.exp(-np.maximum(squares, 0) / np.float32(2 * sigma**2)).astype(np.float64)
    _ = Z.T @ Z


def time_ratio(n: int, rounds: int) -> dict[str, float]:
    from shorthash import make_hasher

    X, y = make_rows(n)
    hasher = make_hasher("rslh", n_bits=8, random_state=0, kernel={"n_anchors": ANCHORS}).fit(X, y)
    anchors, sigma = hasher[0].anchors_, hasher[0].bandwidth_
    ours, theirs = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        bare(X, anchors, sigma)
        middle = time.perf_counter()
        make_hasher("rslh", n_bits=8, random_state=0, kernel={"n_anchors": ANCHORS}).fit(X, y)
        theirs.append(middle - start)
        ours.append(time.perf_counter() - middle)
    return {
        "rows": n,
        "fit_seconds": round(statistics.median(ours), 3),
        "bare_seconds": round(statistics.median(theirs), 3),
        "ratio": round(statistics.median(a / b for a, b in zip(ours, theirs, strict=True)), 3),
        "goal": 1.5,
    }


def memory(n: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        X = np.lib.format.open_memmap(Path(folder) / "X.npy", mode="w+", dtype=np.float32, shape=(n, COLUMNS))
        y = np.empty(n, dtype=np.int64)
        for start in range(0, n, 50_000):
            part = slice(start, min(start + 50_000, n))
            X[part], y[part] = make_rows(part.stop - part.start, seed=start)
        X.flush()
        del X
        np.save(Path(folder) / "y.npy", y)
        done = subprocess.run([sys.executable, __file__, "--peak", folder], check=True, capture_output=True, text=True)
    return {"rows": n, **json.loads(done.stdout), "goal_gib": 1.5}


def peak_of_fit(folder: Path) -> dict[str, float]:
    """Peak resident memory of a fit, above that of the interpreter with everything imported."""
    from shorthash import make_hasher

    X, y = np.load(folder / "X.npy", mmap_mode="r"), np.load(folder / "y.npy")
    hasher = make_hasher("rslh", n_bits=8, random_state=0, kernel={"n_anchors": ANCHORS})
    before = peak_memory()
    start = time.perf_counter()
    hasher.fit(X, y)
    seconds = time.perf_counter() - start
    return {"peak_gib": round((peak_memory() - before) / 2**20, 3), "seconds": round(seconds, 1)}


def peak_memory() -> int:
    """Peak resident memory of this process in KiB; ``ru_maxrss`` would count the parent's before the start."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
