"""RSLH on CIFAR-10: without boosting, with the original and with the modified one; five seeds, four lengths.

Run ``SHORTHASH_DATA=/path/to/data python benchmarks/cifar10.py``; it writes ``docs/data/cifar10.json``, from which
``docs/generate.py`` makes the table in docs/paper/rslh.md. Protocol: 100 random queries per class, 5 000 random
training rows from the other 59 000, which are the database; 256-d CNN features, rows of unit norm; 1 000 anchors;
queries and database encoded by the hash function; tie-aware mAP, the exact expectation over all orders of tied items.
"""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import numpy as np
import sklearn

RECORD = Path(__file__).resolve().parents[1] / "docs" / "data" / "cifar10.json"
LENGTHS, SEEDS = (4, 6, 8, 10), range(5)
ROWS = {"none": {"boosting": None}, "ob": {"boosting": "ob"}, "mb": {"boosting": "mb"}}
NAMES = {"none": "RSLH-B (no boosting)", "ob": "RSLH, original boosting (ob)", "mb": "RSLH (mb)"}


def main() -> None:
    from shorthash import evaluate, make_hasher
    from shorthash.data.splits import PerClassQueries

    folder = os.environ.get("SHORTHASH_DATA")
    if not folder:
        raise SystemExit("set SHORTHASH_DATA to the folder that holds cifar10_cnn256.npz")
    with np.load(Path(folder) / "cifar10_cnn256.npz") as file:
        X, y = file["X"].astype(np.float32) * file["scale"], file["y"]
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    cells: dict[str, dict[str, list[dict[str, float]]]] = {name: {str(b): [] for b in LENGTHS} for name in ROWS}
    for seed in SEEDS:
        split = PerClassQueries(per_class=100, n_train=5000, seed=seed).split(y)
        for n_bits in LENGTHS:
            for name, parameters in ROWS.items():
                hasher = make_hasher("rslh", n_bits=n_bits, random_state=seed, **parameters)
                hasher.fit(X[split.train], y[split.train])
                codes = hasher.transform(X)
                scores = evaluate(codes[split.query], y[split.query], codes[split.database], y[split.database])
                cells[name][str(n_bits)].append(
                    {
                        "map": round(scores.map, 5),
                        "map_worst": round(scores.map_worst, 5),
                        "map_best": round(scores.map_best, 5),
                        "map_at_radius": round(scores.map_at_radius, 5),
                        "codewords": len(np.unique(hasher[-1].codewords_, axis=0)),
                    }
                )
                print(f"seed {seed}, {n_bits} bits, {name}: {scores.map:.4f}", flush=True)
    record = {
        "command": "python benchmarks/cifar10.py",
        "protocol": PerClassQueries(per_class=100, n_train=5000, seed=0).to_dict() | {"seed": list(SEEDS)},
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "sklearn": sklearn.__version__},
        "cells": cells,
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


def render() -> str:
    """The record as a table: mean and standard deviation over seeds."""
    record = json.loads(RECORD.read_text())
    head = [
        "Tie-aware mAP, mean (standard deviation) over 5 seeds; below it the number of distinct class codewords",
        "(of 10) per seed. 100 queries per class, 5 000 training rows, database of 59 000; command: `"
        + record["command"]
        + "`.",
        "",
        "| | " + " | ".join(f"{b} bits" for b in LENGTHS) + " |",
        "|---|" + "---|" * len(LENGTHS),
    ]
    body = []
    for name, cells in record["cells"].items():
        by_length = [cells[str(b)] for b in LENGTHS]
        values = [[cell["map"] for cell in column] for column in by_length]
        means = [f"{np.mean(v):.3f} ({np.std(v, ddof=1):.3f})" for v in values]
        body.append(f"| {NAMES[name]} | " + " | ".join(means) + " |")
        words = [", ".join(str(cell["codewords"]) for cell in column) for column in by_length]
        body.append("| *codewords* | " + " | ".join(words) + " |")
    first = {b: record["cells"]["mb"][str(b)][0] for b in LENGTHS}
    tail = [
        "",
        "With ties ordered against or for the query instead of averaged, the same codes (mb, seed 0) would score "
        + ", ".join(f"{first[b]['map_worst']:.3f} to {first[b]['map_best']:.3f} ({b} bits)" for b in LENGTHS)
        + ".",
    ]
    return "\n".join(head + body + tail)


if __name__ == "__main__":
    main()
