"""One set of real codes under every tie order and every convention: ``python benchmarks/which_map.py``.

RSLH codes of CIFAR-10 (100 queries per class, 5 000 training rows, 59 000 items). ``SHORTHASH_DATA`` names the folder
with the feature files. Writes ``docs/data/which_map.json``, from which ``render`` makes the tables of
``docs/guide/evaluation.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from shorthash import evaluate, make_hasher
from shorthash.data.splits import PerClassQueries
from shorthash.errors import TieOrderWarning
from shorthash.evaluation import CONVENTIONS

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "data" / "which_map.json"
LENGTHS = (4, 6, 8, 10, 12, 16)
CONVENTION_BITS = 8
SHUFFLES = 10
CALLED = {"map": "mAP", "map_at_k": "mAP@{k}", "map_at_radius": "mAP@H≤2", "pr_area": "PR area"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    folder = os.environ.get("SHORTHASH_DATA")
    if not folder:
        parser.error("set SHORTHASH_DATA to the folder that holds cifar10_cnn256.npz")
    results = measure(Path(folder))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(render(arguments.out))


def measure(folder: Path) -> dict[str, Any]:
    """Spread by tie order for every length; all conventions for one."""
    with np.load(folder / "cifar10_cnn256.npz") as archive:
        X, y = archive["X"].astype(np.float32) * archive["scale"], archive["y"]
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    protocol = PerClassQueries(per_class=100, n_train=5000, seed=0)
    rows = protocol.split(y)
    results: dict[str, Any] = {"data": "cifar10_cnn256.npz", "method": "rslh", "protocol": protocol.to_dict()}
    results |= {"spread": [], "conventions": {}, "convention_bits": CONVENTION_BITS, "shuffles": SHUFFLES}
    for n_bits in LENGTHS:
        hasher = make_hasher("rslh", n_bits=n_bits, random_state=0).fit(X[rows.train], y[rows.train])
        queries, items = hasher.transform(X[rows.query]), hasher.transform(X[rows.database])
        split = (queries, y[rows.query], items, y[rows.database])
        results["spread"].append({"n_bits": n_bits} | spread(split))
        if n_bits == CONVENTION_BITS:
            mixed = shuffled(split, seed=0)
            for name, rules in CONVENTIONS.items():
                scores = evaluate(*mixed, convention=name)
                called = CALLED[rules.headline].format(k=rules.k[0])
                results["conventions"][name] = {"called": called, "value": scores.headline}
    return results


def spread(split: tuple[Any, Any, Any, Any]) -> dict[str, float]:
    """MAP of the same codes, by nothing but the order of tied items."""
    scores = evaluate(*split)
    queries, y, items, z = split
    by_class = np.argsort(z, kind="stable")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TieOrderWarning)  # the point of this row
        ordered = evaluate(queries, y, items[by_class], z[by_class], ties="stable").map
    some = [evaluate(*shuffled(split, seed), ties="stable").map for seed in range(SHUFFLES)]
    return {
        "worst": scores.map_worst,
        "expected": scores.map,
        "best": scores.map_best,
        "by_class": ordered,
        "shuffled_low": min(some),
        "shuffled_high": max(some),
    }


def shuffled(split: tuple[Any, Any, Any, Any], seed: int) -> tuple[Any, Any, Any, Any]:
    """The same database in another order."""
    order = np.random.default_rng(seed).permutation(len(split[3]))
    return split[0], split[1], split[2][order], split[3][order]


def render(path: Path = RESULTS) -> str:
    """The tables in Markdown, from the stored results."""
    results = json.loads(path.read_text(encoding="utf-8"))
    shuffles, n_bits = results["shuffles"], results["convention_bits"]
    lines = [
        f"| bits | worst order | expected | best order | spread | sorted by class | {shuffles} random orders |",
        "|---:|---:|---:|---:|---:|---:|---:|",
        *(spread_row(row) for row in results["spread"]),
        "",
        f"The same {n_bits}-bit codes under every convention, with the database shuffled once:",
        "",
        "| `convention=` | calls this mAP | value | whose code |",
        "|---|---|---:|---|",
    ]
    for name, found in results["conventions"].items():
        lines.append(f"| `{name}` | {found['called']} | {found['value']:.4f} | {CONVENTIONS[name].family} |")
    return "\n".join(lines) + "\n"


def spread_row(row: dict[str, float]) -> str:
    """One code length."""
    bounds = f"{row['worst']:.3f} | **{row['expected']:.3f}** | {row['best']:.3f} | {row['best'] - row['worst']:.3f}"
    shuffled_range = f"{row['shuffled_low']:.4f} to {row['shuffled_high']:.4f}"
    return f"| {row['n_bits']} | {bounds} | {row['by_class']:.3f} | {shuffled_range} |"


if __name__ == "__main__":
    main()
