"""What is particular to SQLite: the file, several processes, threads and forks, plans."""

import os
import sqlite3
import sys
import threading

import numpy as np
import pytest
from processes import Popen, run

from shorthash import ScanIndex
from shorthash.errors import InvalidInput, PersistenceError
from shorthash.store import SQLiteStore

WRITER = """
import sys
import numpy as np
from shorthash.store import SQLiteStore
with SQLiteStore(sys.argv[1], 12) as store:
    for i in range(50):
        store.add(np.arange(4), metadata=[{"who": int(sys.argv[2])}] * 4)
"""


def packed(codes):
    return np.array(codes, dtype=np.uint64)


def test_processes_write_beside_each_other(tmp_path):
    path = tmp_path / "a.db"
    writers = [Popen([sys.executable, "-c", WRITER, path, str(who)]) for who in range(2)]
    assert [writer.wait() for writer in writers] == [0, 0]
    with SQLiteStore(path) as store:
        assert sorted(store.ids.tolist()) == list(range(400))
        assert store.counts(packed([0]), 12, where={"who": 0}).tolist() == [200]


def test_threads_share_a_store(tmp_path):
    store = SQLiteStore(tmp_path / "a.db", 12)
    failures = []

    def work():
        try:
            for _ in range(20):
                store.add(packed([1, 2, 3]))
                assert store.counts(packed([1]), 12)[0] % 3 == 0
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert store.ids.tolist() == list(range(240))
    store.close()


def test_a_forked_process_gets_its_own_connection(tmp_path):
    script = """
import os, sys
from shorthash.store import SQLiteStore
store = SQLiteStore(sys.argv[1], 12).add([1, 2])
child = os.fork()
if child == 0:
    store.add([3])
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
store.add([4])
print(store.ids.tolist())
"""
    done = run([sys.executable, "-c", script, tmp_path / "a.db"], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[0, 1, 2, 3]\n", "")


def test_a_search_sees_one_state(tmp_path):
    """A writer moves one item between distance 0 and 2 all the time; every search finds it once."""
    path = tmp_path / "a.db"
    store, writer = SQLiteStore(path, 12).add(packed([0])), SQLiteStore(path)
    stop = threading.Event()

    def move():
        while not stop.is_set():
            writer.update([0], packed([3]))
            writer.update([0], packed([0]))

    thread = threading.Thread(target=move)
    thread.start()
    try:
        for _ in range(200):
            assert store.search(packed([0]), 5).ids.tolist() == [[0]]
    finally:
        stop.set()
        thread.join()
    for opened in (store, writer):
        opened.close()


def test_searches_read_the_b_tree_only(tmp_path):
    store = SQLiteStore(tmp_path / "a.db", 12).add(packed(range(100)), classes=list(range(100)))
    with store._reading() as session:
        plans = [
            session.run(
                f"EXPLAIN QUERY PLAN SELECT id, code, slot FROM items WHERE {clause}", ["[1]"] * clause.count("?")
            )
            for clause in (
                "code = ? ORDER BY id LIMIT 5",
                "code IN (SELECT value FROM json_each(?)) ORDER BY +id",
                "code = ? AND class = ?",
            )
        ]
    for plan in plans:
        assert "USING COVERING INDEX items_code" in plan[0][3]
    store.close()


def test_rings_fall_back_to_one_scan():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2**63, 3000, dtype=np.uint64)
    store, scan = SQLiteStore(":memory:", 64).add(codes), ScanIndex(64).add(codes)
    for ties in ("id", "insertion", "shuffle"):
        for k in (1, 10, 5000):
            found, truth = store.search(codes[:2], k, ties=ties), scan.search(codes[:2], k, ties=ties)
            assert found.ids.tolist() == truth.ids.tolist()
            assert found.distances.tolist() == truth.distances.tolist()
    assert store.counts(codes[:2], 30).tolist() == scan.counts(codes[:2], 30).tolist()
    assert store.within(codes[:2], 28).ids.tolist() == scan.within(codes[:2], 28).ids.tolist()


def test_balls_of_many_codes_are_probed_by_one_statement(monkeypatch):
    monkeypatch.setattr("shorthash.store.sql.ALWAYS_PROBED", 50_000)
    monkeypatch.setattr("shorthash.store.sqlite.SQLiteSession.distance", None)  # a scan would fail
    codes = np.random.default_rng(0).integers(0, 2**63, 500, dtype=np.uint64)
    queries = codes[:2] ^ np.uint64(0b111)
    store, scan = SQLiteStore(":memory:", 64).add(codes), ScanIndex(64).add(codes)
    assert store.counts(queries, 3).tolist() == scan.counts(queries, 3).tolist() == [1, 1]
    assert store.within(queries, 3).ids.tolist() == scan.within(queries, 3).ids.tolist()


def test_plain_sql_can_read_a_store(tmp_path):
    with SQLiteStore(tmp_path / "a.db", 8) as store:
        store.add(packed([200]), ids=["x"], classes=[3], metadata=[{"city": "Rome"}])
    connection = sqlite3.connect(tmp_path / "a.db")
    assert connection.execute("SELECT id, code, class, metadata FROM items").fetchall() == [
        ("x", 200, 3, '{"city": "Rome"}')
    ]
    connection.close()


def test_tables_of_others_are_left_alone(tmp_path):
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("CREATE TABLE items(name)")
    connection.execute("INSERT INTO items VALUES ('theirs')")
    connection.commit()
    with pytest.raises(PersistenceError, match="already has a table 'items' that shorthash did not make; choose"):
        SQLiteStore(tmp_path / "a.db", 8)
    with SQLiteStore(tmp_path / "a.db", 8, collection="ours") as store:
        store.add(packed([1]))
    assert connection.execute("SELECT * FROM items").fetchall() == [("theirs",)]
    connection.close()


def test_a_table_that_vanishes_is_a_clear_error(tmp_path):
    store = SQLiteStore(tmp_path / "a.db", 8)
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("DROP TABLE items")
    connection.close()
    with pytest.raises(PersistenceError, match="failed: no such table: items; check that no other program"):
        store.search(packed([1]), 1)
    store.close()


def test_a_busy_database_is_a_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr("shorthash.store.connection.BUSY_SECONDS", 0)
    store = SQLiteStore(tmp_path / "a.db", 8)
    connection = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    assert store.search(packed([1]), 1).ids.shape == (1, 0)
    with SQLiteStore(tmp_path / "a.db") as another:  # who only reads does not wait, not even to open
        assert len(another) == 0
    with pytest.raises(PersistenceError, match="another process has been writing for 0 seconds; nothing was changed"):
        store.add(packed([1]))
    connection.execute("ROLLBACK")
    connection.close()
    assert len(store.add(packed([1]))) == 1
    store.close()


def test_a_missing_file_is_not_made_by_mistake(tmp_path):
    with pytest.raises(PersistenceError, match=r"There is no store at .*typo\.db; check the path, or pass n_bits"):
        SQLiteStore(tmp_path / "typo.db")
    assert not list(tmp_path.iterdir())


def test_reopening_finds_everything(tmp_path):
    path = os.fspath(tmp_path / "a.db")
    with SQLiteStore(path, 8, version="first") as store:
        store.add(packed([1, 2, 255]), ids=["a", "b", "c"], classes=[1, None, "x"], metadata=[{"k": 1}, None, {}])
        assert store.path == path
    with SQLiteStore(path) as store:
        assert (store.version, store.n_bits, store.collection) == ("first", 8, "items")
        items = store.items(["c", "a"])
        assert (items.codes.tolist(), items.classes, items.metadata) == ([255, 1], ["x", 1], [{}, {"k": 1}])
        with pytest.raises(InvalidInput, match="has no version 'second'; it has 'first'"):
            SQLiteStore(path, version="second")
