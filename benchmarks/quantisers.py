"""Quantisers of FAISS at the bits of our codes, without labels: which share of the nearest rows they find.

Run ``SHORTHASH_DATA=/path/to/data python benchmarks/quantisers.py [--record]``; the record is
docs/data/quantisers.json, and docs/images/neighbours.png is drawn from it and from the records of
experiments/neighbours.toml (``--draw``). Rows have length 1; training set and database are all rows but 1 000 queries,
seed 0. A code is a cell with a centre, and cells are read in the order of the distances of their centres to the query,
which is what FAISS calls asymmetric distance:

PQ    two halves of a row, each with a codebook of half the bits; OPQ: after a rotation that is learned
RQ    two codebooks of half the bits, the second of what the first leaves
IVF   as many k-means cells as there are codes
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs" / "data" / "quantisers.json"
FIGURE = ROOT / "docs" / "images" / "neighbours.png"
TITLES = {"imagenet100": "ImageNet-100", "cifar10": "CIFAR-10"}
BITS = (8, 12)
N_QUERIES, K = 1000, 100
SHARES = (0.001, 0.003, 0.01, 0.03, 0.1)  # as in experiments/neighbours.toml


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help=f"store the figures in {RECORD.name}, and draw them")
    parser.add_argument("--draw", action="store_true", help="draw the stored record again, measure nothing")
    options = parser.parse_args()
    if not options.draw:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            record = {name: measure(name) for name in TITLES}
        print(table(record))
        if options.record:
            RECORD.write_text(json.dumps(record, indent=1) + "\n")
    if options.record or options.draw:
        draw(json.loads(RECORD.read_text()))


def measure(name: str) -> dict[str, dict[str, Any]]:
    """Scores of every quantiser by code length."""
    from shorthash.data.datasets import read_dataset
    from shorthash.data.rows import nearest_rows, unit_rows
    from shorthash.data.splits import RandomQueries
    from shorthash.evaluation import evaluate_cells, evaluate_neighbours

    data = read_dataset(name)
    rows = RandomQueries(n_queries=N_QUERIES, seed=0).split(data.y)
    query, items = (np.ascontiguousarray(unit_rows(data.X[part]), np.float32) for part in (rows.query, rows.database))
    lists = nearest_rows(query, items, K)
    found: dict[str, dict[str, Any]] = {}
    for bits in BITS:
        found[str(bits)] = {}
        for method, centres, cells in quantisers(items, bits):
            distances = (centres**2).sum(axis=1) - 2 * query @ centres.T
            order = {"relevance": -distances, "cells": np.arange(len(centres))}
            nothing = np.zeros(len(query), dtype=np.int64)  # codes of queries play no part
            near = evaluate_neighbours(nothing, cells, n_bits=64, neighbours=lists, shares=SHARES, **order)
            found[str(bits)][method] = {
                "map": round(near.map, 4),
                "class_map": round(evaluate_cells(distances, data.y[rows.query], cells, data.y[rows.database]).map, 4),
                "recall": {f"{share:g}": round(value, 4) for share, value in near.recall.items()},
            }
            print(name, bits, method, found[str(bits)][method], flush=True)
    return found


def quantisers(X: np.ndarray, bits: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, centre of every code, and code of every row."""
    import faiss

    faiss.omp_set_num_threads(1)
    d, half = X.shape[1], bits // 2
    every = np.arange(2**bits, dtype=np.int64)
    packed = np.stack([every & 255, every >> 8], axis=1).astype(np.uint8)[:, : -(-bits // 8)]  # codes of faiss

    def numbers(codes: np.ndarray) -> np.ndarray:
        return (codes.astype(np.int64) << (8 * np.arange(codes.shape[1]))).sum(axis=1)

    rotation = faiss.OPQMatrix(d, 2)
    rotation.pq = faiss.ProductQuantizer(d, 2, half)
    rotation.train(X)
    turned = rotation.apply(X)
    for name, rows, quantiser in (
        ("PQ", X, faiss.ProductQuantizer(d, 2, half)),
        ("OPQ", turned, faiss.ProductQuantizer(d, 2, half)),
        ("RQ", X, faiss.ResidualQuantizer(d, 2, half)),
    ):
        quantiser.train(rows)
        centres = quantiser.decode(np.ascontiguousarray(packed))
        centres = rotation.reverse_transform(centres) if name == "OPQ" else centres
        yield name, centres, numbers(quantiser.compute_codes(rows))
    index = faiss.index_factory(d, f"IVF{2**bits},Flat")
    index.train(X)
    yield "IVF", index.quantizer.reconstruct_n(0, 2**bits), index.quantizer.search(X, 1)[1][:, 0]


def table(record: dict[str, dict[str, dict[str, Any]]]) -> str:
    """The record as Markdown."""
    lines = ["| data set | bits | quantiser | mAP | class mAP | recall |", "|---|---:|---|---:|---:|---:|"]
    for name, by_bits in record.items():
        for bits, methods in by_bits.items():
            for method, found in methods.items():
                scores = " | ".join(f"{v:.3f}" for v in (found["map"], found["class_map"], found["recall"]["0.01"]))
                lines.append(f"| {TITLES[name]} | {bits} | {method} | {scores} |")
    return "\n".join(lines)


def render() -> str:
    """The stored record as Markdown."""
    return table(json.loads(RECORD.read_text()))


def draw(record: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Recall by share of the database that is read, codes of ``auto`` beside quantisers."""
    from matplotlib.figure import Figure

    from shorthash._display import SERIES, figure_style
    from shorthash.lab.figures import save_figure

    sys.path.insert(0, str(ROOT / "docs"))
    import results_page

    with figure_style():
        figure = Figure(figsize=(9, 6.4), layout="constrained")
        cases = [(name, bits) for name in TITLES for bits in BITS]
        for axes, (name, bits) in zip(figure.subplots(2, 2, sharex=True, sharey=True).flat, cases, strict=True):
            fine = results_page.neighbour_scores(name, bits, "`auto`, for probes")
            ours = results_page.neighbour_scores(name, bits)
            lines = {'auto, search="probes": probes': [fine[f"probed_{share:g}"] for share in SHARES]}
            lines["auto: probes"] = [ours[f"probed_{share:g}"] for share in SHARES]
            lines["auto: Hamming rings"] = [ours[f"recall_{share:g}"] for share in SHARES]
            for method in ("IVF", "RQ", "OPQ", "PQ"):
                lines[f"FAISS {method}"] = list(record[name][str(bits)][method]["recall"].values())
            for number, (label, values) in enumerate(lines.items()):
                style = {"marker": "o" if number < 3 else "s", "linestyle": "-" if number < 3 else "--"}
                style["color"] = SERIES[number % len(SERIES)]
                axes.plot([100 * share for share in SHARES], values, label=label, **style)
            axes.set_xscale("log")
            axes.set_xticks([100 * share for share in SHARES], [f"{100 * share:g}" for share in SHARES])
            axes.minorticks_off()
            axes.set_ylim(0, 1)
            axes.set_title(f"{TITLES[name]}, {bits} bits", loc="left", fontsize=10)
            axes.grid(visible=True, alpha=0.3)
        figure.supxlabel("% of the database read", fontsize=10)
        figure.supylabel("share of the 100 nearest rows found", fontsize=10)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8)
        save_figure(figure, FIGURE)


if __name__ == "__main__":
    main()
