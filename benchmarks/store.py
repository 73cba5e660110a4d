"""Stores beside each other, in one run: ``python benchmarks/store.py [--items N] [--record]``.

The same items (sparse ids, 12-bit codes, 100 classes) go into SQLite, into PostgreSQL, and into PostgreSQL again as
pgvector's ``bit(12)`` searched with ``<~>``, where that can be installed. Latencies are of single queries, one after
another, in this process; every engine's answers to the first 20 are compared with the index in memory. PostgreSQL runs
on this machine with its default durability; SQLite forces every change to disk.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from shorthash import BucketIndex
from shorthash.store import PostgresStore, SQLiteStore

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "data" / "store.json"
N_BITS, K, RADIUS, N_QUERIES, DIMENSION = 12, 100, 2, 200, 64
SERVER = ("shared_buffers=512MB", "max_parallel_workers_per_gather=0", "jit=off", "max_wal_size=4GB")
NAMES = {
    "memory": "BucketIndex (in memory)",
    "sqlite": "SQLiteStore",
    "postgres": "PostgresStore",
    "pgvector": "pgvector `bit(12)`, `<~>`",
}
ROWS = {
    "load": "load, s",
    "disk": "disk, MB",
    "top": "top 100, ms",
    "filtered": "top 100 of one class, ms",
    "ball": "all within radius 2, ms",
    "counts": "count within radius 2, ms",
    "add_1": "add 1 item, ms",
    "add_1000": "add 1000 items, ms",
    "remove_1": "delete 1 item, ms",
    "remove_1000": "delete 1000 items, ms",
}


def items(n: int) -> dict[str, Any]:
    """Ids, codes and classes of the database."""
    rng = np.random.default_rng(0)
    return {
        "ids": np.sort(rng.choice(10**12, n, replace=False)),
        "codes": rng.integers(0, 1 << N_BITS, n, dtype=np.uint16),
        "classes": rng.integers(0, 100, n),
        "queries": rng.integers(0, 1 << N_BITS, N_QUERIES, dtype=np.uint16),
    }


def latency(call: Callable[[int], Any], arguments: Any) -> dict[str, float]:
    """Milliseconds of single calls: median and 99th percentile, after one that warms up."""
    call(arguments[0])
    times = []
    for argument in arguments:
        start = time.perf_counter()
        call(argument)
        times.append(1e3 * (time.perf_counter() - start))
    return {"p50": float(np.percentile(times, 50)), "p99": float(np.percentile(times, 99))}


def measure_store(store: Any, data: dict[str, Any], disk: Callable[[], float], truth: BucketIndex) -> dict[str, Any]:
    """Everything about one of our stores."""
    start = time.perf_counter()
    store.add(data["codes"], ids=data["ids"], classes=data["classes"])
    figures: dict[str, Any] = {"load": time.perf_counter() - start, "disk": disk()}
    for query in data["queries"][:20]:
        assert np.array_equal(store.search([query], K).ids, truth.search([query], K).ids)
        assert np.array_equal(store.within([query], RADIUS).ids, truth.within([query], RADIUS).ids)
    figures |= {
        "top": latency(lambda q: store.search([q], K), data["queries"]),
        "filtered": latency(lambda q: store.search([q], K, where={"class": 7}), data["queries"]),
        "ball": latency(lambda q: store.within([q], RADIUS), data["queries"][:50]),
        "counts": latency(lambda q: store.counts([q], RADIUS), data["queries"]),
    }
    new = 10**13 + np.arange(1200)
    return figures | write_figures(store, new, np.resize(data["codes"], len(new)))


def write_figures(store: Any, ids: Any, codes: Any) -> dict[str, Any]:
    """Single and bulk changes."""
    ones, thousand = iter(range(101)), slice(200, 1200)

    def add(_: int) -> None:
        i = next(ones)
        store.add(codes[i : i + 1], ids=ids[i : i + 1])

    added = latency(add, range(100))
    ones = iter(range(101))

    def remove(_: int) -> None:
        i = next(ones)
        store.remove(ids[i : i + 1])

    removed = latency(remove, range(100))
    start = time.perf_counter()
    store.add(codes[thousand], ids=ids[thousand])
    middle = time.perf_counter()
    store.remove(ids[thousand])
    end = time.perf_counter()
    return {
        "add_1": added,
        "add_1000": 1e3 * (middle - start),
        "remove_1": removed,
        "remove_1000": 1e3 * (end - middle),
    }


def measure_memory(data: dict[str, Any]) -> tuple[BucketIndex, dict[str, Any]]:
    """The index in memory, for scale; and the truth."""
    start = time.perf_counter()
    index = BucketIndex(N_BITS).add(data["codes"], ids=data["ids"])
    index.search(data["queries"][:1], K)
    figures: dict[str, Any] = {"load": time.perf_counter() - start}
    figures |= {
        "top": latency(lambda q: index.search([q], K), data["queries"]),
        "ball": latency(lambda q: index.within([q], RADIUS), data["queries"][:50]),
        "counts": latency(lambda q: index.counts([q], RADIUS), data["queries"]),
    }
    return index, figures


def measure_pgvector(url: str, data: dict[str, Any], truth: BucketIndex) -> dict[str, Any] | None:
    """Codes as bit strings, scanned; an index of pgvector's would not be exact."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchone():
            return None
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(f"CREATE TABLE bits(id bigint PRIMARY KEY, class integer, code bit({N_BITS}))")
        start = time.perf_counter()
        texts = [f"{code:0{N_BITS}b}" for code in data["codes"].tolist()]
        with connection.cursor().copy("COPY bits FROM STDIN") as copy:
            for row in zip(data["ids"].tolist(), data["classes"].tolist(), texts, strict=True):
                copy.write_row(row)
        connection.execute("VACUUM (ANALYZE) bits")
        figures: dict[str, Any] = {"load": time.perf_counter() - start}
        figures["disk"] = connection.execute("SELECT pg_total_relation_size('bits')").fetchone()[0] / 1e6  # type: ignore[index]
        near = "SELECT id, code <~> %s::bit(12) AS d FROM bits"

        def top(query: int, clause: str = "") -> list[Any]:
            sql = f"{near}{clause} ORDER BY d, id LIMIT {K}"
            return connection.execute(sql, [f"{query:012b}"]).fetchall()  # type: ignore[call-overload, no-any-return]

        def ball(query: int) -> list[Any]:
            text = f"{query:012b}"
            sql = f"{near} WHERE code <~> %s::bit(12) <= {RADIUS} ORDER BY d, id"
            return connection.execute(sql, [text, text]).fetchall()  # type: ignore[call-overload, no-any-return]

        for query in data["queries"][:5].tolist():
            assert [row[0] for row in top(query)] == truth.search([query], K).ids[0].tolist()
        few = data["queries"][:30].tolist()
        figures |= {
            "top": latency(top, few),
            "filtered": latency(lambda q: top(q, " WHERE class = 7"), few),
            "ball": latency(ball, few),
        }
        connection.execute("DROP TABLE bits")
    return figures


def measure_reranking(url: str | None, n: int) -> dict[str, Any]:
    """Milliseconds to rank a whole ball by 64-d vectors."""
    data, rng = items(n), np.random.default_rng(1)
    vectors = rng.normal(size=(n, DIMENSION)).astype(np.float32)
    wanted = rng.normal(size=(50, DIMENSION)).astype(np.float32)
    truth = BucketIndex(N_BITS).add(data["codes"], ids=data["ids"], vectors=vectors)

    def figures(store: Any) -> dict[str, float]:
        def rerank(i: int) -> Any:
            return store.rerank(data["queries"][i : i + 1], wanted[i : i + 1], K, radius=RADIUS)

        assert np.array_equal(rerank(0).ids, truth.rerank(data["queries"][:1], wanted[:1], K, radius=RADIUS).ids)
        return latency(rerank, range(50))

    found = {"BucketIndex (in memory)": figures(truth)}
    with tempfile.TemporaryDirectory() as folder, SQLiteStore(f"{folder}/a.db", N_BITS) as store:
        store.add(data["codes"], ids=data["ids"], vectors=vectors)
        found["SQLiteStore, vectors in the database"] = figures(store)
        store.pack_vectors()
        found["SQLiteStore, after pack_vectors()"] = figures(store)
    for name, extension in [("PostgresStore, no extension", False), ("PostgresStore, pgvector installed", True)]:
        if url is not None:
            with PostgresStore(url, N_BITS, collection="reranked") as store:
                with store._connection.statements() as run:
                    run("CREATE EXTENSION IF NOT EXISTS vector" if extension else "DROP EXTENSION IF EXISTS vector")
                order = np.argsort(data["codes"], kind="stable")  # rows of a bucket side by side
                store.add(data["codes"][order], ids=data["ids"][order], vectors=vectors[order])
                found[name] = figures(store)
                store.drop()
    return found


def file_size(path: str) -> float:
    """Megabytes of a database whose log is empty."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return Path(path).stat().st_size / 1e6


def postgres_url() -> str | None:
    """A server for this run: SHORTHASH_POSTGRES, or one of our own."""
    if "SHORTHASH_POSTGRES" in os.environ:
        return os.environ["SHORTHASH_POSTGRES"]
    sys.path.insert(0, str(ROOT / "tests"))
    from postgres_server import start_server

    url, reason = start_server(SERVER)
    if url is None:
        print(f"without PostgreSQL: {reason}")
    return url


def machine(url: str | None) -> dict[str, Any]:
    """What the figures depend on."""
    facts = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version, "processors": os.cpu_count()}
    if url is not None:
        import psycopg

        with psycopg.connect(url) as connection:
            facts["postgresql"] = connection.execute("SHOW server_version").fetchone()[0]  # type: ignore[index]
            sql = "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
            facts["pgvector"] = (connection.execute(sql).fetchone() or [None])[0]
    return facts


def run(n: int, n_reranked: int) -> dict[str, Any]:
    """All figures."""
    data = items(n)
    truth, memory = measure_memory(data)
    engines: dict[str, Any] = {"memory": memory}
    with tempfile.TemporaryDirectory() as folder:
        store: Any = SQLiteStore(f"{folder}/a.db", N_BITS)
        engines["sqlite"] = measure_store(store, data, lambda: file_size(f"{folder}/a.db"), truth)
        store.close()
    url = postgres_url()
    if url is not None:
        store = PostgresStore(url, N_BITS)

        def disk() -> float:
            with store._connection.statements() as run:
                return float(run("SELECT pg_total_relation_size('items')")[0][0]) / 1e6

        engines["postgres"] = measure_store(store, data, disk, truth)
        store.drop()
        store.close()
        engines["pgvector"] = measure_pgvector(url, data, truth)
    return {
        "n_items": n,
        "n_bits": N_BITS,
        "machine": machine(url),
        "engines": {name: figures for name, figures in engines.items() if figures},
        "reranking": {"n_items": n_reranked, "dimension": DIMENSION, "engines": measure_reranking(url, n_reranked)},
    }


def text(value: Any, digits: int = 2) -> str:
    """A figure, or a median and a 99th percentile."""
    if value is None:
        return "-"
    if isinstance(value, dict):
        return f"{text(value['p50'], digits)} / {text(value['p99'], digits)}"
    return f"{value:.{digits}f}" if value < 10 else f"{value:.0f}"


def render() -> str:
    """The stored record as Markdown."""
    record = json.loads(RESULTS.read_text())
    facts, engines, ranked = record["machine"], record["engines"], record["reranking"]
    versions = ", ".join(f"{name} {version}" for name, version in facts.items() if name != "processors" and version)
    what = f"{record['n_items']:,} items, {record['n_bits']} bits, uniform codes"
    lines = [
        f"{what}; {versions}; {facts['processors']} processors. Two figures are the median and the 99th percentile.",
        "",
        f"| | {' | '.join(NAMES[name] for name in engines)} |",
        f"| --- |{' ---: |' * len(engines)}",
    ]
    for key, title in ROWS.items():
        lines.append(f"| {title} | {' | '.join(text(figures.get(key)) for figures in engines.values())} |")
    lines += [
        "",
        f"The 100 best of a ball by {ranked['dimension']}-d vectors, {ranked['n_items']:,} items:",
        "",
        "| | ms |",
        "| --- | ---: |",
        *(f"| {name} | {text(value)} |" for name, value in ranked["engines"].items()),
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and store on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--reranked", type=int, default=100_000)
    parser.add_argument("--record", action="store_true", help=f"store the figures in {RESULTS.name}")
    arguments = parser.parse_args()
    record = run(arguments.items, arguments.reranked)
    print(json.dumps(record, indent=1))
    if arguments.record:
        RESULTS.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
