"""Quality against cost on CIFAR-10: learned codes of 4 to 12 bits beside exact search and FAISS on the features.

Run ``SHORTHASH_DATA=/path/to/data python benchmarks/frontier.py [--record]``; the record is docs/data/frontier.json,
the figures are docs/images/frontier-light.svg and -dark.svg. Quality is the share of the same class among the first
100 items (ties: the mean over all orders); cost is the CPU time of one query on one thread, encoding included, and
the bytes of an item. Learned codes know 5 000 labels; searches on the features know none.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

DOCS = Path(__file__).resolve().parents[1] / "docs"
RECORD = DOCS / "data" / "frontier.json"
K = 100
LENGTHS = (4, 6, 8, 12)
NAMES = {"exact": "exact search, 256 floats", "faiss": "FAISS on the features", "codes": "shorthash"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help=f"store the figures in {RECORD.name}")
    parser.add_argument("--draw", action="store_true", help="draw the stored record again, measure nothing")
    arguments = parser.parse_args()
    if not arguments.draw:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            record = list(measure())
        print(table(record))
        if arguments.record:
            RECORD.write_text(json.dumps(record, indent=1) + "\n")
    if arguments.record or arguments.draw:
        draw(json.loads(RECORD.read_text()))


def measure() -> Iterator[dict[str, Any]]:
    """One point per way to search."""
    import faiss

    from shorthash import BucketIndex, evaluate, make_hasher
    from shorthash.data.datasets import default_protocol, read_dataset

    data = read_dataset("cifar10")
    X, y = np.ascontiguousarray(data.X, dtype=np.float32), np.asarray(data.y)
    rows = default_protocol("cifar10").split(y)
    database, query = X[rows.database], X[rows.query]
    relevant = y[rows.query][:, None]
    faiss.omp_set_num_threads(1)

    def share(ids: Any) -> float:
        return float((y[rows.database][ids] == relevant).mean())

    def nearest() -> Any:
        squares = (database**2).sum(axis=1)
        distances = squares - 2 * query[:100] @ database.T
        return np.argpartition(distances, K, axis=1)[:, :K]

    flat = faiss.IndexFlatL2(X.shape[1])
    flat.add(database)
    exact = share(flat.search(query, K)[1])
    yield {"kind": "exact", "name": "NumPy", "seconds": cpu(nearest) / 100, "quality": exact, "bytes": 4 * X.shape[1]}
    cost = cpu(lambda: flat.search(query, K)) / len(query)
    yield {"kind": "faiss", "name": "Flat", "seconds": cost, "quality": exact, "bytes": 4 * X.shape[1]}
    for name, bytes_ in (("IVF256,Flat", 4 * X.shape[1]), ("HNSW32", 4 * X.shape[1] + 256), ("IVF256,PQ8", 8)):
        index = faiss.index_factory(X.shape[1], name)
        index.train(database)
        index.add(database)
        if hasattr(index, "nprobe"):
            index.nprobe = 8
        ids = index.search(query, K)[1]
        cost = cpu(lambda index=index: index.search(query, K)) / len(query)
        yield {"kind": "faiss", "name": name, "seconds": cost, "quality": share(ids), "bytes": bytes_}
    for n_bits in LENGTHS:
        hasher = make_hasher("auto", n_bits=n_bits, random_state=0).fit(X[rows.train], y[rows.train])
        codes, queries = hasher.transform(database), hasher.transform(query)
        table_ = BucketIndex(n_bits).add(codes)
        cost = cpu(lambda h=hasher, t=table_: t.search(h.transform(query), K, ties="any")) / len(query)
        quality = evaluate(queries, y[rows.query], codes, y[rows.database], k=K).precision_at_k[K]
        name = f"{n_bits} bits"
        yield {"kind": "codes", "name": name, "seconds": cost, "quality": quality, "bytes": -(-n_bits // 8)}


def cpu(call: Callable[[], Any]) -> float:
    """CPU seconds of a call, the least of three."""
    found = []
    for _ in range(3):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return min(found)


def table(record: list[dict[str, Any]]) -> str:
    """The points as Markdown."""
    lines = [
        "| search | µs of CPU per query | same class among the first 100 | bytes per item |",
        "|---|---:|---:|---:|",
    ]
    for point in record:
        name = f"{NAMES[point['kind']]}: {point['name']}"
        lines.append(f"| {name} | {1e6 * point['seconds']:.0f} | {point['quality']:.3f} | {point['bytes']} |")
    return "\n".join(lines)


def render() -> str:
    """The stored record as Markdown."""
    return table(json.loads(RECORD.read_text()))


def draw(record: list[dict[str, Any]]) -> None:
    """Two drawings of the same figure, for light and for dark pages."""
    from matplotlib.figure import Figure

    from shorthash._display import figure_style

    for mode, ink, colours in (
        ("light", "#1b2430", {"exact": "#5c6b7a", "faiss": "#0072b2", "codes": "#d55e00"}),
        ("dark", "#dbe3ea", {"exact": "#a9b6c2", "faiss": "#6cb9ec", "codes": "#ff9d5c"}),
    ):
        with figure_style():
            figure = Figure(figsize=(6.4, 3.6), layout="constrained")
            axes = figure.add_subplot()
            for kind, marker in (("exact", "s"), ("faiss", "D"), ("codes", "o")):
                points = [point for point in record if point["kind"] == kind]
                x, y = [1e6 * p["seconds"] for p in points], [p["quality"] for p in points]
                axes.plot(x, y, marker=marker, linestyle="none", color=colours[kind], label=NAMES[kind], markersize=7)
                for px, py, point in zip(x, y, points, strict=True):
                    bytes_ = f"{point['bytes']} byte{'s' * (point['bytes'] > 1)}"
                    axes.annotate(f"{point['name']}, {bytes_}", (px, py), **place(point), fontsize=7.5, color=ink)
            axes.set_xscale("log")
            axes.set_xlabel("µs of CPU per query", color=ink)
            axes.set_ylabel("same class among the first 100", color=ink)
            axes.set_ylim(0.5, 0.7)
            axes.margins(x=0.14)
            axes.tick_params(colors=ink)
            axes.grid(color=ink, alpha=0.15)
            axes.legend(loc="lower right", labelcolor=ink)
            figure.savefig(DOCS / "images" / f"frontier-{mode}.svg", transparent=True, metadata={"Date": None})


def place(point: dict[str, Any]) -> dict[str, Any]:
    """Where the name of a point stands: right of codes, above or below others."""
    if point["kind"] == "codes":
        return {"xytext": (9, -3), "textcoords": "offset points", "ha": "left"}
    below = point["name"] == "IVF256,Flat"
    return {"xytext": (0, -14 if below else 8), "textcoords": "offset points", "ha": "center"}


if __name__ == "__main__":
    main()
