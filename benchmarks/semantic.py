"""Quality against latency of search by meaning, beside exact and approximate search of vectors by FAISS.

Run ``SHORTHASH_DATA=/path/to/data python benchmarks/semantic.py --data imagenet100 [--record]`` for one data set after
another, ``--stores`` for SQLite and PostgreSQL, ``--figures`` to draw docs/images/semantic-*.png from the record,
docs/data/semantic.json. The split of a data set is its protocol with seed 0; codes and posteriors are learned from its
training rows, and nothing is chosen on queries. Quality is that of up to 1 000 queries, drawn at random; times are
medians of single queries, from features to ids, on one thread.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs" / "data" / "semantic.json"
IMAGES = ROOT / "docs" / "images"
BITS = {"imagenet100": 12, "cifar10": 10, "caltech101-cnn": 12, "wordnet": 12, "unseen": 12}
TITLES = {
    "imagenet100": "ImageNet-100",
    "cifar10": "CIFAR-10",
    "caltech101-cnn": "CALTECH-101",
    "wordnet": "WordNet glosses",
    "unseen": "ImageNet-100, classes never seen",
}
N_QUERIES, TIMED, K, DEEP = 1000, 200, 100, 1000
POSTERIOR_BYTES = (2, 4, 8, 16)
Find = Callable[[Any, int], list[Any]]
"""From query rows and k to the rows found for every query."""


def load(name: str, most: int | None = None) -> dict[str, Any]:
    """Rows, labels and split of one data set; at most so many items, and a quarter of them training rows."""
    from shorthash.data.datasets import default_protocol, read_dataset
    from shorthash.data.splits import RandomQueries, UnseenClasses

    source = "imagenet100" if name == "unseen" else name
    data = read_dataset(source)
    protocol = default_protocol(source)
    if name == "unseen":
        protocol = UnseenClasses(n_unseen=25, n_queries=1000, n_train=10_000, seed=0)
    if name == "wordnet":  # training rows are not searched: classes have few rows, and a model may remember them
        protocol = RandomQueries(n_queries=2000, n_train=13_722, train_in_database=False, seed=0)
    split = protocol.split(data.y)
    X = np.ascontiguousarray(data.X, dtype=np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    rng = np.random.default_rng(0)
    queries = rng.permutation(split.query)[:N_QUERIES]
    train, items = split.train, split.database
    if most is not None:
        train, items = rng.permutation(train)[: most // 4], rng.permutation(items)[:most]
    return {
        "name": name,
        "X_train": X[train],
        "y_train": data.y[train],
        "X": X[items],
        "y": data.y[items],
        "Q": X[queries],
        "y_q": data.y[queries],
    }


def quality(found: list[Any], deep: list[Any], data: dict[str, Any]) -> dict[str, float]:
    """Share of relevant items among the first 100, average precision and recall within the first 1 000."""
    precision, average, recall = [], [], []
    for near, far, label in zip(found, deep, data["y_q"], strict=True):
        n_relevant = int((data["y"] == label).sum())
        precision.append((data["y"][near[:K]] == label).sum() / K)
        hits = data["y"][far[:DEEP]] == label
        at = np.arange(1, len(hits) + 1)
        possible = max(1, min(n_relevant, DEEP))
        average.append(float((np.cumsum(hits) / at)[hits].sum()) / possible)
        recall.append(hits.sum() / max(1, n_relevant))
    values = {"p100": precision, "map1000": average, "recall1000": recall}
    return {key: round(float(np.mean(column)), 4) for key, column in values.items()}


def latency(find: Find, Q: Any) -> float:
    """Median seconds of a single query, 100 items wanted."""
    times = []
    for row in Q[:TIMED]:
        start = time.perf_counter()
        find(row[None], K)
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def vector_searches(X: Any) -> Iterator[tuple[str, str, Find]]:
    """(family, name, search) of FAISS: exact cosine, inverted lists and a graph."""
    import faiss

    faiss.omp_set_num_threads(1)

    def by(index: Any) -> Find:
        return lambda Q, k: [row[row >= 0] for row in index.search(Q, k)[1]]

    flat = faiss.IndexFlatIP(X.shape[1])
    flat.add(X)
    yield "exact cosine", "FAISS flat", by(flat)
    lists = 1 << int(np.round(np.log2(4 * np.sqrt(len(X)))))
    ivf = faiss.IndexIVFFlat(faiss.IndexFlatIP(X.shape[1]), X.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
    ivf.train(X)
    ivf.add(X)
    for n_probe in (1, 2, 4, 16, 64):
        ivf.nprobe = n_probe
        yield "FAISS IVF", f"IVF{lists}, {n_probe} probes", by(ivf)
    graph = faiss.IndexHNSWFlat(X.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = 100
    graph.add(X)
    for ef in (100, 200, 500):
        graph.hnsw.efSearch = ef
        yield "FAISS HNSW", f"HNSW32, ef {ef}", by(graph)


def our_searches(searcher: Any) -> Iterator[tuple[str, str, Find, dict[str, Any]]]:
    """(family, name, search, policy) of the searcher."""
    policies: list[dict[str, Any]] = [{}, {"radius": 1, "rerank": "cosine"}, {"radius": 1, "rerank": "posterior"}]
    policies += [{"probes": n, "rerank": by} for by in (None, "cosine", "posterior") for n in (1, 5, 20, 100, "auto")]
    for policy in policies:
        by = policy.get("rerank")
        family = ("learned probes" if "probes" in policy else "Hamming rings") + (f", by {by}" if by else "")
        where = f"{policy['probes']} probes" if "probes" in policy else f"radius {policy.get('radius', 'any')}"

        def find(Q: Any, k: int, policy: dict[str, Any] = policy) -> list[Any]:
            return [ids for ids, _ in searcher.search(Q, k, **policy)]

        yield family, where, find, policy


def measure(name: str, most: int | None) -> dict[str, Any]:
    """All searches of one data set."""
    from shorthash import EAPH, Searcher

    data = load(name, most)
    start = time.perf_counter()
    hasher = EAPH(n_bits=BITS[name], random_state=0).fit(data["X_train"], data["y_train"])
    fit = time.perf_counter() - start
    searcher = Searcher(hasher, vectors="float32", posterior_bytes=8).add(data["X"])
    rows = []
    for family, title, find in vector_searches(data["X"]):
        rows.append({"family": family, "name": title, **_row(find, data)})
        print(rows[-1], flush=True)
    for family, title, find, policy in our_searches(searcher):
        cost = searcher.search(data["Q"], K, **policy)
        facts = {
            "cells": float(np.mean(cost.n_cells)),
            "items": float(np.mean(cost.n_items)),
            "expected": None if np.isnan(cost.precision).all() else round(float(np.nanmean(cost.precision)), 4),
        }
        rows.append({"family": family, "name": title, **_row(find, data), **facts})
        print(rows[-1], flush=True)
    return {
        "n_bits": BITS[name],
        "n_train": len(data["X_train"]),
        "n_items": len(data["X"]),
        "n_queries": len(data["Q"]),
        "n_features": int(data["X"].shape[1]),
        "fit": round(fit, 1),
        "rows": rows,
        "posteriors": sizes(hasher, data),
    }


def _row(find: Find, data: dict[str, Any]) -> dict[str, float]:
    found, deep = find(data["Q"], K), find(data["Q"], DEEP)
    return {**quality(found, deep, data), "seconds": latency(find, data["Q"])}


def sizes(hasher: Any, data: dict[str, Any]) -> dict[str, Any]:
    """Quality of 20 probes by the bytes kept of a posterior; "all": every probability, as float64."""
    from shorthash import Searcher

    table: dict[str, Any] = {}
    for n_bytes in POSTERIOR_BYTES:
        try:
            searcher = Searcher(hasher, posterior_bytes=n_bytes).add(data["X"])
        except ValueError:  # an entry takes three bytes with more than 256 classes
            continue
        found = [[ids for ids, _ in searcher.search(data["Q"], k, probes=20, rerank="posterior")] for k in (K, DEEP)]
        table[str(n_bytes)] = quality(*found, data)
    searched = searcher.search(data["Q"], len(data["X"]), probes=20)
    P, wanted = hasher.predict_proba(data["X"]), hasher.wanted(data["Q"])
    best = [ids[np.argsort(-(P[ids] @ w), kind="stable")] for (ids, _), w in zip(searched, wanted, strict=True)]
    table["all"] = quality(best, best, data)
    return table


def measure_stores(most: int | None) -> dict[str, Any]:
    """The same search in SQLite and PostgreSQL, beside the indexes of pgvector."""
    import tempfile

    from shorthash import EAPH, Searcher, SQLiteStore
    from shorthash.store import PostgresStore

    sys.path.insert(0, str(ROOT / "tests"))
    from postgres_server import start_server

    data = load("imagenet100", most)
    hasher = EAPH(n_bits=12, random_state=0).fit(data["X_train"], data["y_train"])
    url, reason = start_server(("max_connections=20", "shared_buffers=512MB", "maintenance_work_mem=512MB"))
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        stores: dict[str, Any] = {"SQLite": SQLiteStore(Path(folder) / "items.db", 12)}
        if url is not None:
            _run(url, "CREATE EXTENSION IF NOT EXISTS vector")
            stores["PostgreSQL"] = PostgresStore(url, 12)
        for title, store in stores.items():
            searcher = Searcher(hasher, store, vectors="float32").add(data["X"])
            if title == "SQLite":
                store.pack_vectors()
            for n in (1, 5, 20):
                for by in (None, "posterior", "cosine"):

                    def find(Q: Any, k: int, n: int = n, by: Any = by, searcher: Any = searcher) -> list[Any]:
                        return [ids for ids, _ in searcher.search(Q, k, probes=n, rerank=by)]

                    rows.append({"store": title, "name": f"{n} probes, {by or 'by cell'}", **_quick(find, data)})
                    print(rows[-1], flush=True)
        if url is not None:
            rows += _pgvector(url, data)
    sizes = {"n_items": len(data["X"]), "n_train": len(data["X_train"]), "n_features": int(data["X"].shape[1])}
    return {"rows": rows, "reason": reason, **sizes}


def _quick(find: Find, data: dict[str, Any]) -> dict[str, float]:
    some = {**data, "Q": data["Q"][:TIMED], "y_q": data["y_q"][:TIMED]}
    found = [ids for row in some["Q"] for ids in find(row[None], K)]
    return {"p100": quality(found, found, some)["p100"], "seconds": latency(find, data["Q"])}


def _run(url: str, *statements: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def _pgvector(url: str, data: dict[str, Any]) -> list[dict[str, Any]]:
    """Nearest vectors by pgvector: a scan, inverted lists, a graph."""
    import psycopg

    rows = []
    ways = {
        "": [("scan of all vectors", "SET enable_indexscan = off")],
        "CREATE INDEX way ON items USING ivfflat (vector vector_cosine_ops) WITH (lists = 256)": [
            (f"ivfflat 256, {n} probes", f"SET ivfflat.probes = {n}") for n in (1, 4, 16)
        ],
        "CREATE INDEX way ON items USING hnsw (vector vector_cosine_ops) WITH (m = 16, ef_construction = 64)": [
            (f"hnsw 16, ef {n}", f"SET hnsw.ef_search = {n}") for n in (100, 200)
        ],
    }
    for index, settings in ways.items():
        _run(url, "DROP INDEX IF EXISTS way", *([index] if index else []), "ANALYZE items")
        for title, setting in settings:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(setting)

                def find(Q: Any, k: int, connection: Any = connection) -> list[Any]:
                    text = f"[{','.join(map(repr, Q[0].tolist()))}]"
                    sql = "SELECT id FROM items ORDER BY vector <=> %s::vector LIMIT %s"
                    return [np.array([row[0] for row in connection.execute(sql, [text, k]).fetchall()], dtype=int)]

                rows.append({"store": "pgvector", "name": title, **_quick(find, data)})
                print(rows[-1], flush=True)
    return rows


def render(path: Path = RECORD) -> str:
    """The stored figures as tables in Markdown."""
    record = json.loads(path.read_text(encoding="utf-8"))
    parts = [_data_lines(name, record[name]) for name in TITLES if name in record]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _data_lines(name: str, entry: dict[str, Any]) -> list[str]:
    about = (
        f"{TITLES[name]}: {entry['n_items']:,} items of {entry['n_features']} features, {entry['n_bits']} bits, "
        f"{entry['n_train']:,} training rows, {entry['n_queries']:,} queries."
    )
    lines = [
        f"### {TITLES[name]}",
        "",
        f"![Precision against time per query on {TITLES[name]}](../images/semantic-{name}.png)",
        "",
        about,
        "",
        "| search | | P@100 | expected | mAP@1000 | recall@1000 | cells | items | ms |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in entry["rows"]:
        expected = "" if row.get("expected") is None else f"{row['expected']:.3f}"
        cost = [f"{row[key]:,.0f}" if key in row else "" for key in ("cells", "items")]
        values = [f"{row['p100']:.3f}", expected, f"{row['map1000']:.3f}", f"{row['recall1000']:.3f}", *cost]
        lines.append(f"| {row['family']} | {row['name']} | {' | '.join(values)} | {1e3 * row['seconds']:.2f} |")
    return lines


def render_sizes(path: Path = RECORD) -> str:
    """Quality by the bytes of a compact posterior."""
    record = json.loads(path.read_text(encoding="utf-8"))
    columns = [*map(str, POSTERIOR_BYTES), "all"]
    titles = [f"{c} bytes" if c != "all" else "all probabilities" for c in columns]
    lines = [f"| P@100, mAP@1000 | {' | '.join(titles)} |", "|---|" + "---:|" * len(columns)]
    for name in (name for name in TITLES if name in record):
        table = record[name]["posteriors"]
        cells = [f"{table[c]['p100']:.3f}, {table[c]['map1000']:.3f}" if c in table else "" for c in columns]
        lines.append(f"| {TITLES[name]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def render_stores(path: Path = RECORD) -> str:
    """Search in databases."""
    record = json.loads(path.read_text(encoding="utf-8"))
    entry = record["stores"]
    about = (
        f"ImageNet-100: {entry['n_items']:,} items of {entry['n_features']} features, 12 bits, {entry['n_train']:,} "
        f"training rows, {TIMED} queries, one after another."
    )
    lines = [about, "", "| database | search | P@100 | ms |", "|---|---|---:|---:|"]
    lines += [f"| PostgreSQL | not measured: {entry['reason']} | | |"] if entry["reason"] else []
    lines += [
        f"| {row['store']} | {row['name']} | {row['p100']:.3f} | {1e3 * row['seconds']:.2f} |" for row in entry["rows"]
    ]
    return "\n".join(lines) + "\n"


def draw(name: str, entry: dict[str, Any]) -> None:
    """Precision against time per query, one colour per family."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    families = list(dict.fromkeys(row["family"] for row in entry["rows"]))
    for family in families:
        rows = [row for row in entry["rows"] if row["family"] == family]
        ours = family.startswith(("learned", "Hamming"))
        style = {"marker": "o" if ours else "s", "linestyle": "" if ours else "--", "markersize": 6 if ours else 4}
        axes.plot([1e3 * r["seconds"] for r in rows], [r["p100"] for r in rows], label=family, **style)
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds per query, from features to 100 ids, one thread")
    axes.set_ylabel("share of relevant items among the first 100")
    axes.set_title(TITLES[name], loc="left", fontsize=11)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    figure.savefig(IMAGES / f"semantic-{name}.png", dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=[], choices=list(TITLES), help="data sets to measure")
    parser.add_argument("--rows", type=int, metavar="N", help="at most N items, and N / 4 training rows")
    parser.add_argument("--stores", action="store_true", help="measure SQLite and PostgreSQL")
    parser.add_argument("--record", action="store_true", help=f"store the figures in {RECORD.name}")
    parser.add_argument("--figures", action="store_true", help="draw the figures from the record")
    options = parser.parse_args()
    from threadpoolctl import threadpool_limits

    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    with threadpool_limits(1):
        for name in options.data:
            record[name] = measure(name, options.rows)
            if options.record:
                RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        if options.stores:
            record["stores"] = measure_stores(options.rows)
            if options.record:
                RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if options.figures:
        for name in (name for name in TITLES if name in record):
            draw(name, record[name])


if __name__ == "__main__":
    main()
