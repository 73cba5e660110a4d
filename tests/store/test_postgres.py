"""What is particular to PostgreSQL: types, plans, several writers, lost connections, the extra."""

import sys
import threading

import numpy as np
import pytest
from stores import make_postgres, numbers, postgres_url

from shorthash import ScanIndex
from shorthash.errors import InvalidInput, MissingExtra, PersistenceError
from shorthash.store import PostgresStore


def packed(codes):
    return np.array(codes, dtype=np.uint64)


def fresh():
    return f"own_{next(numbers)}"


@pytest.mark.parametrize(
    ("n_bits", "kind"),
    [(12, "smallint"), (15, "smallint"), (16, "integer"), (31, "integer"), (32, "bigint"), (64, "bigint")],
)
def test_codes_have_the_smallest_type(n_bits, kind):
    store = make_postgres(n_bits).add(packed([0, 2**n_bits - 1, 2 ** (n_bits - 1)]))
    assert store.codes.tolist() == [0, 2**n_bits - 1, 2 ** (n_bits - 1)]
    with store._reading() as session:
        sql = "SELECT data_type FROM information_schema.columns WHERE table_name = ? AND column_name = 'code'"
        assert session.run(sql, [store.collection]) == [(kind,)]


def test_searches_read_the_b_tree_only():
    rng = np.random.default_rng(0)
    store = make_postgres(12).add(rng.integers(0, 4096, 20_000), classes=rng.integers(0, 100, 20_000))
    store._connection.lock.acquire()
    with store._connection.statements() as run:
        run(f"VACUUM (ANALYZE) {store.collection}")
        plan = "\n".join(
            row[0] for row in run(f"EXPLAIN SELECT id, code FROM {store.collection} WHERE code = ANY(?)", [[1, 2, 3]])
        )
    store._connection.lock.release()
    assert f"Index Only Scan using {store.collection}_code" in plan


def test_rings_fall_back_to_counting_bits_in_the_database():
    codes = np.random.default_rng(0).integers(0, 2**63, 3000, dtype=np.uint64)
    store, scan = make_postgres(64).add(codes), ScanIndex(64).add(codes)
    for ties in ("id", "insertion", "shuffle"):
        for k in (10, 5000):
            found, truth = store.search(codes[:2], k, ties=ties), scan.search(codes[:2], k, ties=ties)
            assert found.ids.tolist() == truth.ids.tolist()
    assert store.counts(codes[:2], 30).tolist() == scan.counts(codes[:2], 30).tolist()
    assert store.within(codes[:2], 28).ids.tolist() == scan.within(codes[:2], 28).ids.tolist()


def test_several_writers_number_their_items_without_collisions():
    name, failures = fresh(), []
    barrier = threading.Barrier(3)

    def work():
        try:
            barrier.wait()
            with PostgresStore(postgres_url(), 12, collection=name) as store:  # all of them make it at once
                for _ in range(20):
                    store.add(packed([1, 2, 3]))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with PostgresStore(postgres_url(), collection=name) as store:
        assert store.ids.tolist() == list(range(180))


def test_a_lost_connection_is_made_again():
    store = PostgresStore(postgres_url(), 12, collection=fresh()).add(packed([1]))
    with PostgresStore(postgres_url(), 12, collection=fresh()) as other, other._connection.statements() as run:
        run("SELECT pg_terminate_backend(?)", [store._connection.raw.info.backend_pid])
    with pytest.raises(PersistenceError, match=r"PostgreSQL reports: .*; nothing was changed; check the server"):
        store.add(packed([2]))
    assert store.add(packed([3])).codes.tolist() == [1, 3]
    store.close()
    with pytest.raises(InvalidInput, match="The store is closed; open it again"):
        len(store)


def test_ids_of_another_type_are_read_by_a_store_that_has_read_often():
    """psycopg prepares what runs often, and PostgreSQL refuses that once a column has another type."""
    url, name = postgres_url(), fresh()
    with PostgresStore(url, 4, collection=name) as reader, PostgresStore(url, 4, collection=name) as writer:
        assert [reader.ids.tolist() for _ in range(8)] == [[]] * 8
        writer.add(packed([3]), ids=["a"])
        assert reader.ids.tolist() == ["a"]


def test_passwords_are_not_shown():
    with pytest.raises(PersistenceError, match="PostgreSQL reports") as caught:
        PostgresStore("postgresql://me:secret@127.0.0.1:1/none", 12)
    assert "secret" not in str(caught.value)


def test_tables_of_others_are_left_alone():
    store, name = make_postgres(4), fresh()
    with store._connection.statements() as run:
        run(f"CREATE TABLE {name}(x integer)")
    with pytest.raises(PersistenceError, match="that shorthash did not make; choose another collection"):
        store.sibling(name, 4)


def test_strings_are_ordered_as_in_python():
    ids = ["Zebra", "ape", "Äpfel", "ému", "名", "_", "10", "9", "😀", "\uffff"]
    store = make_postgres(4).add(packed([0] * len(ids)), ids=ids)
    assert store.search(packed([0]), 20).ids.tolist() == [sorted(ids)]


def test_the_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"PostgresStore needs psycopg.*pip install .*\[postgres\]'"):
        PostgresStore("postgresql:///x", 12)
