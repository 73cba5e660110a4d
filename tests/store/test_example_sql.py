"""The printed SQL does what it says, in every database that is at hand, at any code length."""

import os
import shutil
import sqlite3
import subprocess
import time

import numpy as np
import pytest
from stores import make_postgres

from shorthash import ScanIndex
from shorthash.errors import InvalidInput
from shorthash.store.example_sql import example_sql, probe_sql
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


NAMES = {"table": 'odd; "name"', "code_column": "select", "id_column": "Sku"}
PARAMETERS = [({"code": 0}, "named"), ([0], "qmark"), ([0], "numeric")]


@pytest.mark.parametrize(("given", "style"), PARAMETERS)
def test_sqlite_with_other_names_and_parameters(given, style):
    connection = sqlite3.connect(":memory:")
    connection.execute('CREATE TABLE "odd; ""name"""("Sku" TEXT PRIMARY KEY, "select" INTEGER)')
    connection.executemany('INSERT INTO "odd; ""name""" VALUES (?, ?)', [("a", 1), ("b", 0), ("c", 3)])
    index, query = example_sql(2, 1, "sqlite", **NAMES, param_style=style)
    for _ in range(2):
        connection.execute(index)
    assert connection.execute(query, given).fetchall() == [("b", 0), ("a", 1)]
    connection.close()


@pytest.mark.parametrize(("n_bits", "radius"), CASES)
def test_duckdb(n_bits, radius):
    duckdb = pytest.importorskip("duckdb")
    codes, queries = data(n_bits)
    connection = duckdb.connect()
    connection.execute("CREATE TABLE items(id BIGINT, code BIGINT)")
    connection.executemany("INSERT INTO items VALUES (?, ?)", list(enumerate(to_signed(codes).tolist())))
    index, query = example_sql(n_bits, radius, "duckdb")
    connection.execute(index)
    for code in queries:
        found = connection.execute(query, {"code": int(to_signed(np.array([code]))[0])}).fetchall()
        assert found == expected(codes, code, n_bits, radius)


@pytest.mark.parametrize(("given", "style"), PARAMETERS)
def test_duckdb_with_other_names_and_parameters(given, style):
    connection = pytest.importorskip("duckdb").connect()
    connection.execute('CREATE TABLE "odd; ""name"""("Sku" TEXT PRIMARY KEY, "select" UTINYINT)')
    connection.executemany('INSERT INTO "odd; ""name""" VALUES (?, ?)', [("a", 1), ("b", 0), ("c", 3)])
    index, query = example_sql(2, 1, "duckdb", **NAMES, param_style=style)
    for _ in range(2):
        connection.execute(index)
    assert connection.execute(query, given).fetchall() == [("b", 0), ("a", 1)]


def in_cells(codes, cells):
    return [(i,) for cell in cells for i in np.flatnonzero(codes == cell).tolist()][:100]


@pytest.mark.parametrize("n_bits", [4, 12, 64])
def test_lists_of_codes_in_sqlite_and_duckdb(n_bits):
    codes, _ = data(n_bits)
    cells = np.unique(codes)[[3, 0, -1, 2]]
    listed = to_signed(cells).tolist()
    rows = list(enumerate(to_signed(codes).tolist()))
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE items(id INTEGER PRIMARY KEY, code INTEGER)")
    connection.executemany("INSERT INTO items VALUES (?, ?)", rows)
    index, query = probe_sql(n_bits, "sqlite")
    connection.execute(index)
    assert connection.execute(query, {"codes": str(listed)}).fetchall() == in_cells(codes, cells)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {query}", {"codes": "[]"}).fetchall()
    assert any("COVERING INDEX items_code (code=?)" in row[3] for row in plan)
    connection.close()
    connection = pytest.importorskip("duckdb").connect()
    connection.execute("CREATE TABLE items(id BIGINT, code BIGINT)")
    connection.executemany("INSERT INTO items VALUES (?, ?)", rows)
    index, query = probe_sql(n_bits, "duckdb", param_style="qmark")
    connection.execute(index)
    assert connection.execute(query, [listed]).fetchall() == in_cells(codes, cells)


@pytest.mark.parametrize("n_bits", [4, 31, 64])
def test_lists_of_codes_in_postgresql(n_bits):
    codes, _ = data(n_bits)
    cells = np.unique(codes)[[3, 0, -1, 2]]
    table = make_postgres(1).collection + "_p"
    with make_postgres(1)._connection.statements() as run:
        run(f"CREATE TABLE {table}(id integer PRIMARY KEY, code bigint)")
        given = to_signed(codes).tolist()
        run(f"INSERT INTO {table} SELECT i - 1, c FROM unnest(?::bigint[]) WITH ORDINALITY AS t(c, i)", [given])
        index, query = probe_sql(n_bits, "postgresql", table)
        run(index)
        listed = "{" + ",".join(map(str, to_signed(cells).tolist())) + "}"
        assert run(query.replace(":codes", f"'{listed}'")) == in_cells(codes, cells)


def test_mysql(mariadb):
    script = []
    for n_bits, radius in CASES:
        codes, queries = data(n_bits)
        table = f"Odd `{n_bits}`"
        index, query = example_sql(n_bits, radius, "mysql", table, code_column="key", param_style="qmark")
        quoted = "`" + table.replace("`", "``") + "`"
        rows = ",".join(f"({i},{code})" for i, code in enumerate(to_signed(codes).tolist()))
        script += [
            f"CREATE TABLE {quoted}(id BIGINT PRIMARY KEY, `key` BIGINT);",
            f"INSERT INTO {quoted} VALUES {rows};",
        ]
        script += [index, "SELECT 'begin';"]
        for code in to_signed(queries).tolist():
            script += [query.replace("?", f"({code})"), "SELECT 'end';"]
    found = iter(mariadb("\n".join(script)).splitlines())
    for n_bits, radius in CASES:
        codes, queries = data(n_bits)
        assert next(found) == "begin"
        for code in queries:
            rows = list(iter(lambda: next(found), "end"))
            assert [tuple(map(int, row.split("\t"))) for row in rows] == expected(codes, code, n_bits, radius)


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory):
    """A function that runs a script in a MariaDB server of our own and returns the rows, separated by tabs."""
    if not shutil.which("mariadbd") or not shutil.which("mariadb-install-db"):
        pytest.skip("there is no MariaDB here; apt install mariadb-server")
    folder = tmp_path_factory.mktemp("mariadb")
    data, socket = folder / "data", folder / "socket"
    who = ["--user=root"] if os.geteuid() == 0 else []
    made = ["mariadb-install-db", f"--datadir={data}", "--auth-root-authentication-method=normal", *who]
    subprocess.run(made, check=True, capture_output=True)
    options = [f"--datadir={data}", f"--socket={socket}", "--skip-networking", f"--pid-file={folder}/pid", *who]
    server = subprocess.Popen(["mariadbd", "--no-defaults", *options], stderr=subprocess.DEVNULL)
    client = ["mariadb", "--no-defaults", f"--socket={socket}", "-u", "root", "--batch", "--skip-column-names"]
    while subprocess.run(
        [*client, "-e", "CREATE DATABASE IF NOT EXISTS t"], check=False, capture_output=True
    ).returncode:
        assert server.poll() is None, "MariaDB did not start"
        time.sleep(0.1)

    def run(script):
        return subprocess.run([*client, "t"], input=script, check=True, capture_output=True, text=True).stdout

    yield run
    server.terminate()
    server.wait()


def test_refusals():
    for arguments, message in [
        ((12, 2, "oracle"), "must be one of 'postgresql', 'sqlite', 'duckdb', 'mysql'. Got 'oracle'"),
        ((0, 2), "'n_bits' parameter"),
        ((12, -1), "'radius' parameter"),
        ((64, 3), "43745 codes lie within radius 3 of 64-bit codes, more than a query should list"),
        ((12, 2, "sqlite", ""), "The name of a table must be text"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            example_sql(*arguments)
