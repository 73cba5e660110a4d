"""One code for two feature spaces: GIST and CNN features of CALTECH-101, each searched by the other.

Run ``SHORTHASH_DATA=/path/to/data python experiments/crossmodal.py``; it measures what docs/data/crossmodal.json lacks.
A third of the rows is learned from, a third is searched, and 1 000 of the rest are queries, so no row that is searched
was learned from. ``align`` takes labels of the second space, or only rows of both. CCA-ITQ is learned on the
concatenation of both spaces with labels; a query has the mean in the place of the features it lacks.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).resolve().parents[1] / "docs" / "data" / "crossmodal.json"
SEEDS = (0, 1)
BITS = (8, 12)
N_QUERIES = 1000
ROWS = {
    "labels": "`align`: labels of both spaces",
    "rows": "`align`: labels of CNN, rows of both",
    "none": "`align`: no labels, rows of both",
    "ccaitq": "CCA-ITQ: concatenation, labels",
    "within": "`auto` within the space of the query",
}


def main() -> None:
    """Measure what has no record, and print the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    from threadpoolctl import threadpool_limits

    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    with threadpool_limits(1):
        for seed in SEEDS:
            for n_bits in BITS:
                key = f"{n_bits} bits, seed {seed}"
                if key not in record:
                    record[key] = measure(n_bits, seed)
                    RECORD.write_text(json.dumps(record, indent=1) + "\n")
                    print(key, record[key], flush=True)
    print(table(record))


def measure(n_bits: int, seed: int) -> dict[str, list[float]]:
    """MAP by class of queries of GIST among CNN features, and the other way round, by row of the table."""
    from shorthash import make_hasher
    from shorthash.data.datasets import read_dataset

    gist, cnn = read_dataset("caltech101"), read_dataset("caltech101-cnn")
    assert np.array_equal(gist.y, cnn.y)
    train, database, rest = np.array_split(np.random.default_rng(seed).permutation(len(gist)), 3)
    parts = {"train": train, "database": database, "query": rest[:N_QUERIES]}
    spaces = [{part: data.X[rows] for part, rows in parts.items()} for data in (gist, cnn)]
    y = {part: gist.y[rows] for part, rows in parts.items()}
    hashers = {name: make_hasher("auto", n_bits, random_state=seed) for name in ("with", "without")}
    G, C = spaces
    first = hashers["with"].fit(C["train"], y["train"])
    plain = hashers["without"].fit(C["train"])
    seconds = {
        "labels": (first.align(G["train"], y["train"]), first),
        "rows": (first.align(G["train"], rows=C["train"]), first),
        "none": (plain.align(G["train"], rows=C["train"]), plain),
    }
    found = {name: _both(*pair, spaces, y) for name, pair in seconds.items()}
    found["ccaitq"] = _both(*_cca_itq(n_bits, seed, spaces, y["train"]), spaces, y)
    own = seconds["labels"][0], first
    found["within"] = [_map(h, h, X["query"], X["database"], y) for h, X in zip(own, spaces, strict=True)]
    return {name: [round(value, 4) for value in values] for name, values in found.items()}


class Half:
    """A linear hasher of two spaces, for rows of one of them."""

    def __init__(self, hasher: Any, columns: slice) -> None:
        self.mean, self.projection = hasher.mean_[columns], hasher.projection_[columns]

    def transform(self, X: Any) -> Any:
        """Codes of rows whose other features are the mean."""
        return np.where((X - self.mean) @ self.projection >= 0, 1, -1).astype(np.int8)


def _cca_itq(n_bits: int, seed: int, spaces: list[dict[str, Any]], y: Any) -> tuple[Half, Half]:
    from shorthash import CCAITQ

    X = np.hstack([space["train"] for space in spaces])
    hasher = CCAITQ(n_bits, random_state=seed).fit(X, y)
    first = spaces[0]["train"].shape[1]
    return Half(hasher, slice(0, first)), Half(hasher, slice(first, None))


def _both(gist: Any, cnn: Any, spaces: list[dict[str, Any]], y: dict[str, Any]) -> list[float]:
    """GIST among CNN features, and CNN features among GIST."""
    G, C = spaces
    return [_map(gist, cnn, G["query"], C["database"], y), _map(cnn, gist, C["query"], G["database"], y)]


def _map(query: Any, database: Any, X: Any, Z: Any, y: dict[str, Any]) -> float:
    from shorthash import evaluate

    return float(evaluate(query.transform(X), y["query"], database.transform(Z), y["database"]).map)


def table(record: dict[str, dict[str, list[float]]]) -> str:
    """Means over seeds."""
    from shorthash.lab.tables import make_table, to_markdown

    lengths = [n_bits for n_bits in BITS if any(key.startswith(f"{n_bits} bits") for key in record)]
    titles = [f"{way}, {n_bits} bits" for n_bits in lengths for way in ("GIST to CNN", "CNN to GIST")]
    rows: list[tuple[Any, ...]] = []
    for name, title in ROWS.items():
        values = []
        for n_bits in lengths:
            runs = [record[key][name] for key in record if key.startswith(f"{n_bits} bits")]
            values += np.mean(runs, axis=0).tolist()
        rows.append((title, *values))
    n_seeds = len({key.split("seed ")[1] for key in record})
    caption = (
        f"CALTECH-101, mAP by class, seeds: {n_seeds}. A third of the rows is learned from, another third is "
        "searched, 1 000 of the rest are queries. `python experiments/crossmodal.py`.\n\n"
    )
    return caption + to_markdown(
        make_table(["learned from", *titles], rows, text=["learned from"], digits=dict.fromkeys(titles, 3))
    )


def render() -> str:
    """The record as a table."""
    return table(json.loads(RECORD.read_text()))


if __name__ == "__main__":
    main()
