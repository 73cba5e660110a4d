"""From RSLH to EAPH on CIFAR-10, one change at a time: codewords, encoder, table, posteriors.

Run ``SHORTHASH_DATA=/path/to/data python benchmarks/ablation.py --record``; it writes ``docs/data/ablation.json``, of
which ``render`` makes a table. Without ``--record`` the table is only printed. Protocol: 100 random queries per class,
5 000 random training rows from the other 59 000, which are the database; 256-d CNN features, rows of unit norm; queries
and database encoded by the same function; tie-aware mAP, the exact expectation over all orders of tied items. All rows
of the table but the last two see the same 1 000 anchor features; whatever is chosen (temperatures, penalties, tables)
is chosen on the training rows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import sklearn

RECORD = Path(__file__).resolve().parents[1] / "docs" / "data" / "ablation.json"
LENGTHS, SEEDS = (4, 6, 8, 10), range(3)

# name of the step: start of the codewords, boosting, encoder
ON_ANCHORS = {
    "RSLH without boosting: random codewords, linear encoder": ("random", None, "linear"),
    "RSLH: random codewords, bits chosen from 3 runs (mb), linear encoder": ("random", "mb", "linear"),
    "balanced codewords, linear encoder": ("balanced", None, "linear"),
    "balanced codewords, soft encoder": ("balanced", None, "soft"),
    "balanced codewords, nearest codeword": ("balanced", None, "nearest"),
    "annealed codewords, nearest codeword": ("annealed", None, "nearest"),
    "annealed codewords, expected-AP encoder (query side of the gradient)": ("annealed", None, "expected-ap"),
}
# the same with both sides of the gradient: posterior model
ON_ROWS = {
    "EAPH, kernel ridge posteriors": "ridge",
    "EAPH": "combo",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name}")
    keep = parser.parse_args().record
    record = measure() | {"command": "python benchmarks/ablation.py --record"}
    if keep:
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
    print(table(record))


def measure() -> dict[str, Any]:
    """Every step at every length and seed."""
    from shorthash import AnchorRBF
    from shorthash.data.splits import PerClassQueries

    X, y = read()
    cells: dict[str, dict[str, list[float]]] = {name: {str(b): [] for b in LENGTHS} for name in [*ON_ANCHORS, *ON_ROWS]}
    for seed in SEEDS:
        split = PerClassQueries(per_class=100, n_train=5000, seed=seed).split(y)
        Z = AnchorRBF(random_state=seed).fit(X[split.train]).transform(X)
        for n_bits in LENGTHS:
            for name, hasher in hashers(n_bits, seed).items():
                value = score(hasher, X if name in ON_ROWS else Z, y, split)
                cells[name][str(n_bits)].append(round(value, 5))
                print(f"seed {seed}, {n_bits} bits, {name}: {value:.4f}", flush=True)
    return {
        "protocol": PerClassQueries(per_class=100, n_train=5000, seed=0).to_dict() | {"seed": list(SEEDS)},
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "sklearn": sklearn.__version__},
        "cells": cells,
    }


def read() -> tuple[Any, Any]:
    """CIFAR-10 features, rows of unit norm, and labels."""
    folder = os.environ.get("SHORTHASH_DATA")
    if not folder:
        raise SystemExit("set SHORTHASH_DATA to the folder that holds cifar10_cnn256.npz")
    with np.load(Path(folder) / "cifar10_cnn256.npz") as file:
        X, y = file["X"].astype(np.float32) * file["scale"], file["y"]
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def hashers(n_bits: int, seed: int) -> dict[str, Any]:
    """Every step as an estimator."""
    from shorthash import RSLH
    from shorthash.learners.eaph.estimator import EAPH
    from shorthash.learners.encoders import CodewordHasher

    steps: dict[str, Any] = {}
    for name, (init, boosting, encoder) in ON_ANCHORS.items():
        learner = RSLH(n_bits=n_bits, init=init, boosting=boosting, random_state=seed)
        steps[name] = learner if encoder == "linear" else CodewordHasher(learner, encoder=encoder)
    for name, posterior in ON_ROWS.items():
        steps[name] = EAPH(n_bits=n_bits, posterior=posterior, random_state=seed)
    return steps


def score(hasher: Any, X: Any, y: Any, split: Any) -> float:
    """Tie-aware mAP of a hasher fitted on the training rows."""
    from shorthash import evaluate

    hasher.fit(X[split.train], y[split.train])
    codes = hasher.transform(X)
    return float(evaluate(codes[split.query], y[split.query], codes[split.database], y[split.database]).map)


def render() -> str:
    """The stored record as a table."""
    return table(json.loads(RECORD.read_text()))


def table(record: dict[str, Any]) -> str:
    """Mean and standard deviation over seeds; the best mean of every length in bold."""
    means = {name: {b: float(np.mean(cells[str(b)])) for b in LENGTHS} for name, cells in record["cells"].items()}
    best = {b: max(by_length[b] for by_length in means.values()) for b in LENGTHS}
    lines = [
        f"Tie-aware mAP on CIFAR-10, mean (standard deviation) over {len(record['protocol']['seed'])} seeds; 100",
        f"queries per class, 5 000 training rows, database of 59 000; command: `{record['command']}`.",
        "",
        "| | " + " | ".join(f"{b} bits" for b in LENGTHS) + " |",
        "|---|" + "---|" * len(LENGTHS),
    ]
    for name, cells in record["cells"].items():
        shown = []
        for b in LENGTHS:
            value = f"{means[name][b]:.3f}"
            value = f"**{value}**" if means[name][b] == best[b] else value
            shown.append(f"{value} ({np.std(cells[str(b)], ddof=1):.3f})")
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
