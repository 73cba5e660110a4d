"""A table that is divided by ranges of the code: what one table gives, and what its parts hold."""

import itertools
import os

import numpy as np
import pytest
from stores import postgres_url

from shorthash import BucketIndex, open_store
from shorthash.errors import InvalidInput
from shorthash.store import PostgresStore
from shorthash.store.example_sql import partition_sql

numbers = itertools.count()
RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 64, 300).astype(np.uint64)
POSTERIORS = RNG.integers(0, 256, (300, 4)).astype(np.uint8)


@pytest.fixture(scope="module")
def opened():
    """Makes stores in partitions; they are closed at the end."""
    made = []

    def make(n_bits, partitions=4):
        name = f"parts{os.getpid()}_{next(numbers)}"
        made.append(PostgresStore(postgres_url(), n_bits, collection=name, partitions=partitions))
        return made[-1]

    yield make
    for store in made:
        store.close()


def sizes(store):
    """Items in every partition, and in the one of items without a code."""
    with store._connection.statements() as run:
        tables = [f"{store.collection}_{part}" for part in ("p0", "p1", "p2", "p3", "rest")]
        return [run(f"SELECT count(*) FROM {table}")[0][0] for table in tables]


def test_partitions_give_what_one_table_gives(opened):
    store, index = opened(6).add(CODES, posteriors=POSTERIORS), BucketIndex(6).add(CODES)
    assert sizes(store) == [*np.bincount(CODES.astype(int) // 16).tolist(), 0]
    queries = np.arange(0, 64, 7, dtype=np.uint64)

    def check():
        assert store.search(queries, 20).ids.tolist() == index.search(queries, 20).ids.tolist()
        found, expected = store.within(queries, 2), index.within(queries, 2)
        assert found.ids.tolist() == expected.ids.tolist()
        assert found.offsets.tolist() == expected.offsets.tolist()

    check()
    moved = np.arange(40)
    for changed in (store, index):
        changed.update(moved, (CODES[:40] + 17) % 64).remove(np.arange(100, 130))
    check()
    with pytest.raises(InvalidInput, match="Id 7 is already in the store"):
        store.add(CODES[:1], [7])
    assert np.array_equal(store.items([200, 45]).posteriors, POSTERIORS[[200, 45]])


def test_versions_migrate_inside_partitions(opened):
    store = opened(6).add(CODES, [f"item {i}" for i in range(300)], posteriors=POSTERIORS)
    new = store.add_version("v2", 9)
    new.add(CODES[:1], ["only new"])
    assert sizes(store)[-1] == 1
    other = POSTERIORS[::-1].copy()
    store.migrate("v2", lambda items: (items.codes.astype(np.uint64) * 5, other[: len(items)]), batch_size=300)
    index = BucketIndex(9).add(np.append(CODES * 5, CODES[:1]), [*store.ids.tolist(), "only new"])
    assert new.search(CODES[:9], 30).ids.tolist() == index.search(CODES[:9], 30).ids.tolist()
    assert np.array_equal(np.sort(new.items(store.ids).posteriors, axis=0), np.sort(other, axis=0))
    assert np.array_equal(store.items(["item 3"]).posteriors, POSTERIORS[[3]])
    new = new.switch("v2")
    with pytest.raises(InvalidInput, match="partitioned by the codes of version 'v1', so these stay"):
        new.drop_version("v1")
    new.drop()


def test_codes_of_64_bits_are_divided_by_their_sign(opened):
    codes = np.array([0, 2**62, 2**63, 2**64 - 1, 2**63 + 2**62], dtype=np.uint64)
    store = opened(64).add(codes)
    assert sizes(store) == [1, 2, 1, 1, 0]
    assert store.search(codes, 1).ids[:, 0].tolist() == [0, 1, 2, 3, 4]


def test_the_statements_for_a_table_of_your_own_run(opened):
    lines = partition_sql(8, 3, "My Table", code_column="key")
    with opened(6)._connection.statements() as run:
        for line in lines:
            run(line)
        run('INSERT INTO "My Table"(id, "key") SELECT i, i FROM generate_series(0, 255) AS i')
        assert run('SELECT count(*) FROM "My Table_p1"') == [(85,)]
        run('DROP TABLE "My Table"')


def test_bad_partitions_are_refused():
    for make, message in (
        (lambda: PostgresStore(postgres_url(), 3, collection="few", partitions=9), "too few for 9 partitions"),
        (lambda: PostgresStore(postgres_url(), 3, partitions=0), "The 'partitions' parameter of PostgresStore"),
        (lambda: partition_sql(8, 1), "The 'partitions' parameter of partition_sql"),
        (lambda: open_store("sqlite://:memory:", 3, partitions=2), "A store in SQLite is one table"),
    ):
        with pytest.raises(InvalidInput, match=message):
            make()
