"""The printed SQL does what it says, in both databases, at any code length."""

import sqlite3

import numpy as np
import pytest
from stores import make_postgres

from shorthash import ScanIndex
from shorthash.errors import InvalidInput
from shorthash.store.example_sql import example_sql
from shorthash.store.items import to_signed

CASES = [(1, 1), (4, 2), (12, 2), (15, 1), (16, 2), (31, 2), (32, 1), (63, 2), (64, 2)]


def data(n_bits):
    rng = np.random.default_rng(n_bits)
    centre = rng.integers(0, 2**63, dtype=np.uint64) if n_bits == 64 else rng.integers(0, 2**n_bits, dtype=np.uint64)
    flips = rng.integers(0, n_bits, (400, 3)).astype(np.uint64)
    codes = centre ^ np.bitwise_xor.reduce(np.uint64(1) << flips, axis=1)
    codes[:3] = [0, 2**n_bits - 1, 2 ** (n_bits - 1)]
    return codes, np.array([codes[5], 2**n_bits - 1, 0], dtype=np.uint64)


def expected(codes, query, n_bits, radius):
    ids, distances = ScanIndex(n_bits).add(codes).within(np.array([query], dtype=np.uint64), radius)[0]
    return list(zip(ids.tolist(), distances.tolist(), strict=True))[:100]


@pytest.mark.parametrize(("n_bits", "radius"), CASES)
def test_sqlite(n_bits, radius):
    codes, queries = data(n_bits)
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE items(id INTEGER PRIMARY KEY, code INTEGER)")
    connection.executemany("INSERT INTO items VALUES (?, ?)", enumerate(to_signed(codes).tolist()))
    index, query = example_sql(n_bits, radius, "sqlite")
    connection.execute(index)
    for code in queries:
        found = connection.execute(query, {"code": int(to_signed(np.array([code]))[0])}).fetchall()
        assert found == expected(codes, code, n_bits, radius)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {query}", {"code": 0}).fetchall()
    assert any("COVERING INDEX items_code (code=?)" in row[3] for row in plan)
    connection.close()


@pytest.mark.parametrize(("n_bits", "radius"), CASES)
def test_postgresql(n_bits, radius):
    codes, queries = data(n_bits)
    kind = "smallint" if n_bits <= 15 else "integer" if n_bits <= 31 else "bigint"
    table = make_postgres(1).collection + "_t"
    with make_postgres(1)._connection.statements() as run:
        run(f"CREATE TABLE {table}(id integer PRIMARY KEY, code {kind})")
        run(
            f"INSERT INTO {table} SELECT i - 1, c FROM unnest(?::bigint[]) WITH ORDINALITY AS t(c, i)",
            [to_signed(codes).tolist()],
        )
        index, query = example_sql(n_bits, radius, "postgresql", table)
        run(index)
        for code in queries:
            found = run(query.replace(":code", f"({int(to_signed(np.array([code]))[0])})"))
            assert found == expected(codes, code, n_bits, radius)


def test_refusals():
    for arguments, message in [
        ((12, 2, "oracle"), "must be one of 'sqlite', 'postgresql'. Got 'oracle'"),
        ((0, 2), "'n_bits' parameter"),
        ((12, -1), "'radius' parameter"),
        ((64, 3), "43745 codes lie within radius 3 of 64-bit codes, more than a query should list"),
        ((12, 2, "sqlite", "a; DROP"), "The name of a table must be"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            example_sql(*arguments)
