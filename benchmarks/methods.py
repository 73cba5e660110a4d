"""Every method on CIFAR-10 and CALTECH-101: scores, times, codewords; three seeds, four lengths.

Run ``SHORTHASH_DATA=/path/to/data python benchmarks/methods.py``. It takes less than half an hour on two cores, may be
stopped at any time, and goes on where it stopped: every cell is written to ``docs/data/methods.json`` as it is
measured, and cells already there are skipped (``--redo`` measures them again). EAPH, which takes as long as all others
together, runs only where it is named (``--methods eaph``). ``docs/generate.py`` makes the tables in
docs/guide/methods-results.md from that file.

Protocols: CIFAR-10, 100 random queries per class, 5 000 random training rows from the other 59 000, which are the
database; CALTECH-101, 1 000 random queries, the other 7 677 rows are training rows and database. Features have unit
norm; every method has its own front end and the settings of its paper; queries and database are encoded by the hash
function; mAP is tie-aware, the exact expectation over all orders of tied items.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).resolve().parents[1] / "docs" / "data"
RECORD, PRINTED = DATA / "methods.json", DATA / "rslh_table1.csv"
FILES = {"CIFAR-10": "cifar10_cnn256.npz", "CALTECH-101": "caltech101_gist512.npz"}
LENGTHS = {"CIFAR-10": (4, 6, 8, 10), "CALTECH-101": (8, 10, 12, 14)}
SEEDS = (0, 1, 2)
ALIASES = {"auto"}  # another name of a method that is in the table already
NAMED_ONLY = {"eaph"}  # takes as long as all others together; measured where it is named: --methods eaph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="only these; default: all")
    parser.add_argument("--datasets", nargs="+", choices=list(FILES), default=list(FILES))
    parser.add_argument("--bits", nargs="+", type=int, metavar="L", help="only these lengths")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS), metavar="S")
    parser.add_argument("--redo", action="store_true", help="measure cells again that are there already")
    parser.add_argument("--record", type=Path, default=RECORD, help="the file to write; default: %(default)s")
    options = parser.parse_args()
    cells = read(options.record)["cells"]
    for dataset in options.datasets:
        wanted = [cell for cell in plan(dataset, options) if options.redo or key(*cell) not in cells]
        if not wanted:
            continue
        X, y = load(dataset)
        for cell in wanted:
            cells[key(*cell)] = measured = measure(X, y, *cell)
            write(options.record, cells)
            print(key(*cell), measured.get("map", measured.get("undefined")), flush=True)


def plan(dataset: str, options: argparse.Namespace) -> list[tuple[str, str, int, int]]:
    """Cells of a data set: seed by seed, so that a run that is stopped has something of everything."""
    from shorthash.recipes import RECIPES

    default = [name for name in RECIPES if name not in ALIASES | NAMED_ONLY]
    names = [name for name in RECIPES if name in (options.methods or default)]
    lengths = [b for b in LENGTHS[dataset] if not options.bits or b in options.bits]
    return [(dataset, name, n_bits, seed) for seed in options.seeds for n_bits in lengths for name in names]


def key(dataset: str, name: str, n_bits: int, seed: int) -> str:
    return f"{dataset}/{name}/{n_bits}/{seed}"


def load(dataset: str) -> tuple[np.ndarray, np.ndarray]:
    """Features of unit norm, and labels."""
    folder = os.environ.get("SHORTHASH_DATA")
    if not folder:
        raise SystemExit(f"set SHORTHASH_DATA to the folder that holds {FILES[dataset]}")
    with np.load(Path(folder) / FILES[dataset]) as file:
        X, y = file["X"].astype(np.float32) * file["scale"], file["y"]
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def measure(X: np.ndarray, y: np.ndarray, dataset: str, name: str, n_bits: int, seed: int) -> dict[str, Any]:
    """Fit, encode and score once; where the method is not defined, why."""
    from shorthash import evaluate, make_hasher
    from shorthash.data.splits import PerClassQueries, RandomQueries
    from shorthash.errors import InvalidInput

    draw = PerClassQueries(100, n_train=5000, seed=seed) if dataset == "CIFAR-10" else RandomQueries(1000, seed=seed)
    split = draw.split(y)
    told = (
        {"database": "training"} if (name, dataset) == ("eaph", "CALTECH-101") else {}
    )  # it searches its training rows
    hasher = make_hasher(name, n_bits=n_bits, random_state=seed, **told)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # collisions and settled codes show in the table
        try:
            start = time.perf_counter()
            hasher.fit(X[split.train], y[split.train])
            fitted = time.perf_counter()
        except InvalidInput as error:
            if n_bits <= hasher[-1].max_bits(X.shape[1], len(np.unique(y))):
                raise
            return {"undefined": str(error)}
    codes = hasher.transform(X)
    encoded = time.perf_counter()
    scores = evaluate(codes[split.query], y[split.query], codes[split.database], y[split.database])
    learned = getattr(hasher[-1], "codes_", None)
    return {
        "map": round(scores.map, 5),
        "map_at_radius": round(scores.map_at_radius, 5),
        "fit_seconds": round(fitted - start, 3),
        "encode_seconds": round((encoded - fitted) / len(X) * 10_000, 4),  # per 10 000 rows
        "learned_codes": None if learned is None else len(np.unique(learned, axis=0)),
        "used_codes": len(np.unique(codes[split.train], axis=0)),
    }


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {"cells": {}}


def write(path: Path, cells: dict[str, Any]) -> None:
    """The record, in one step: a stop at any moment leaves the old one or the new one."""
    record = {
        "command": "python benchmarks/methods.py",
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "cores": os.cpu_count(),
        "cells": dict(sorted(cells.items())),
    }
    work = path.with_suffix(".tmp")
    work.write_text(json.dumps(record, indent=0) + "\n")
    work.replace(path)


Runs = dict[str, dict[int, list[dict[str, Any]]]]  # method -> length -> one cell per seed


def render() -> str:
    """The record as one table per data set, and the order of the methods in print and here."""
    record = read(RECORD)
    if not record["cells"]:
        return "Not measured yet: `python benchmarks/methods.py`."
    legend = (
        f"Means over {len(SEEDS)} seeds (mAP: with standard deviation), the best of a column in bold. *fit*: seconds "
        "to learn, front end included, the slowest length; *encode*: seconds for 10 000 rows; *codewords*: how many "
        "different codes the training rows have, by length: as learned, or as encoded (in italics) where a method "
        f"learns none of its own. Measured on {record['cores']} cores: `{record['command']}`."
    )
    parts = [legend]
    for dataset in FILES:
        runs = grouped(dataset, record["cells"])
        parts += ["", f"## {dataset}", "", *table(LENGTHS[dataset], runs), "", *order(dataset, runs)]
    return "\n".join(parts)


def grouped(dataset: str, cells: dict[str, Any]) -> Runs:
    """The cells of a data set; unsupervised methods first."""
    from shorthash.recipes import RECIPES

    names = sorted((n for n in RECIPES if n not in ALIASES), key=lambda n: (RECIPES[n].supervised, RECIPES[n].year))
    runs = {
        name: {b: [cells[k] for s in SEEDS if (k := key(dataset, name, b, s)) in cells] for b in LENGTHS[dataset]}
        for name in names
    }
    return {name: by_length for name, by_length in runs.items() if any(by_length.values())}


def table(lengths: tuple[int, ...], runs: Runs) -> list[str]:
    """One row per method: mAP and mAP@H<=2 by length, times, codewords; below, why some cells are empty."""
    columns = [(score, b) for score in ("map", "map_at_radius") for b in lengths]
    heads = [f"{'mAP' if score == 'map' else 'H≤2'}, {b}" for score, b in columns]
    best = {c: max((v for by in runs.values() if (v := average(by, *c)) is not None), default=None) for c in columns}
    lines = ["| method | " + " | ".join([*heads, "fit", "encode", "codewords"]) + " |"]
    lines += ["|---" * (len(columns) + 4) + "|"]
    for name, by_length in runs.items():
        shown = [show(by_length, *column, best[column]) for column in columns]
        everything = [run for b in lengths for run in by_length[b] if "map" in run]
        fit = max((average(by_length, "fit_seconds", b) or 0.0 for b in lengths), default=0.0)
        encode = np.mean([run["encode_seconds"] for run in everything]) if everything else np.nan
        words = "; ".join(codewords(by_length[b]) for b in lengths)
        lines.append(f"| `{name}` | " + " | ".join([*shown, f"{fit:.2f}", f"{encode:.2f}", words]) + " |")
    reasons = {run["undefined"] for by in runs.values() for b in lengths for run in by[b] if "undefined" in run}
    return [*lines, *(f"\n*n/a*: {reason}" for reason in sorted(reasons))]


def average(by_length: dict[int, list[dict[str, Any]]], score: str, n_bits: int) -> float | None:
    """Mean over the seeds; None where there is nothing to average."""
    values = [run[score] for run in by_length[n_bits] if score in run]
    return float(np.mean(values)) if values else None


def show(by_length: dict[int, list[dict[str, Any]]], score: str, n_bits: int, best: float | None) -> str:
    """A cell of the table."""
    mean = average(by_length, score, n_bits)
    if mean is None:
        return "*n/a*" if by_length[n_bits] else "-"
    text = f"**{mean:.3f}**" if mean == best else f"{mean:.3f}"
    values = [run[score] for run in by_length[n_bits]]
    return f"{text} ({np.std(values, ddof=1):.3f})" if score == "map" and len(values) > 1 else text


def codewords(runs: list[dict[str, Any]]) -> str:
    """How many codes the training rows have, over the seeds."""
    if not any("map" in run for run in runs):
        return "n/a" if runs else "-"
    learned = runs[0]["learned_codes"] is not None
    counts = [run["learned_codes"] if learned else run["used_codes"] for run in runs]
    text = f"{min(counts)}-{max(counts)}" if min(counts) < max(counts) else str(counts[0])
    return text if learned else f"*{text}*"


def order(dataset: str, runs: Runs) -> list[str]:
    """The methods of the RSLH paper by mAP, as printed there and as measured here."""
    with PRINTED.open() as file:
        rows = [row for row in csv.DictReader(file) if row["dataset"] == dataset]
    lines = ["By mAP, best first, as printed in the RSLH paper (other features and protocol) and as measured here:", ""]
    lines += ["| bits | in print | here |", "|---|---|---|"]
    for n_bits in LENGTHS[dataset]:
        printed = {row["method"]: float(row["map"]) for row in rows if int(row["bits"]) == n_bits}
        here = {name: average(runs[name], "map", n_bits) for name in printed if name in runs}
        ranked = [sorted((n for n in side if side[n]), key=lambda n, side=side: -side[n]) for side in (printed, here)]
        lines.append(f"| {n_bits} | " + " | ".join(", ".join(names) for names in ranked) + " |")
    return lines


if __name__ == "__main__":
    main()
