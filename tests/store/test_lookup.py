"""Named cells in a database: posteriors in a column, vectors scored in the database, and tables of older versions."""

import numpy as np
import pytest
from stores import every_store, make_postgres, with_pgvector

from shorthash import BucketIndex, SQLiteStore
from shorthash.errors import InvalidInput
from shorthash.index import Probes

RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 64, 200).astype(np.uint64)
VECTORS = RNG.integers(-3, 4, (200, 4)).astype(np.float32)
VECTORS[5] = 0
ASKED = RNG.normal(size=(3, 4)).astype(np.float32)
CELLS = np.array([3, 60, 17, 5, 3, 9], dtype=np.uint8)
PROBES = Probes(CELLS, np.array([0.9, 0.5, 0.4, 0.8, 0.3, 0.1]), np.array([0, 3, 3, 6]))
POSTERIORS = RNG.integers(0, 256, (200, 4), dtype=np.uint8)


@pytest.mark.parametrize("enough", [np.inf, 1.0, 3.5])
@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("kind", ["sqlite", "sqlite, packed", "postgres", "pgvector"])
def test_scores_of_cells_equal_the_index(kind, metric, enough, tmp_path):
    store = {"postgres": make_postgres, "pgvector": with_pgvector}.get(kind, lambda n: SQLiteStore(tmp_path / "a", n))(
        6
    )
    store.add(CODES[:150], vectors=VECTORS[:150])
    if kind == "sqlite, packed":
        store.pack_vectors()
    store.add(CODES[150:], vectors=VECTORS[150:])
    probes = Probes(PROBES.cells, PROBES.shares, PROBES.offsets, enough)
    truth = BucketIndex(6).add(CODES, vectors=VECTORS).lookup(probes, vectors=ASKED, metric=metric)
    one = Probes(CELLS[:3], PROBES.shares[:3], PROBES.offsets[:2], enough)
    for given, asked, n in [(probes, ASKED, 3), (one, ASKED[:1], 1)]:
        found = store.lookup(given, vectors=asked, metric=metric)
        hits = slice(0, int(truth.offsets[n]))
        assert found.ids.tolist() == truth.ids[hits].tolist()
        assert found.places.tolist() == truth.places[hits].tolist()
        assert found.offsets.tolist() == truth.offsets[: n + 1].tolist()
        assert found.n_cells.tolist() == truth.n_cells[:n].tolist()
        np.testing.assert_allclose(found.scores, truth.scores[hits], rtol=1e-5, atol=1e-5)
    store.close() if kind != "postgres" else store.drop()


@every_store
def test_posteriors_come_back_and_follow_their_items(make):
    store = make(6).add(CODES, posteriors=POSTERIORS)
    found = store.lookup(PROBES, posteriors=True)
    assert np.array_equal(found.posteriors, POSTERIORS[found.ids])
    store.upsert(CODES[:2], [0, 1], posteriors=POSTERIORS[5:7]).upsert(CODES[2:3], [2])
    assert store.items([1, 0, 2]).posteriors.tolist() == [*POSTERIORS[[6, 5]].tolist(), [0, 0, 0, 0]]
    other = make(6).merge(store)
    assert np.array_equal(other.items(range(200)).posteriors, store.items(range(200)).posteriors)
    assert make(6).add(CODES).items([0]).posteriors is None


@every_store
def test_tables_of_older_versions_get_the_column_when_it_is_needed(make):
    store = make(6)
    name = store.collection
    with store._connection.statements() as run:
        run(f"DROP INDEX {name}_code")
        run(f"ALTER TABLE {name} DROP COLUMN posterior")
        run(f"CREATE INDEX {name}_code ON {name}(code, id) WHERE code IS NOT NULL")
    store._connection.with_posteriors.clear()
    store.add(CODES[:100])
    with pytest.raises(InvalidInput, match="has a posterior; add them with posteriors="):
        store.lookup(PROBES, posteriors=True)
    store.add(CODES[100:], posteriors=POSTERIORS[100:])
    found = store.lookup(PROBES, posteriors=True)
    known = found.ids >= 100
    assert np.array_equal(found.posteriors[known], POSTERIORS[found.ids[known]])
    assert not found.posteriors[~known].any()
    assert store.add_version("v2", 3).n_bits == 3


@every_store
def test_bad_posteriors_are_refused(make):
    store = make(6).add(CODES[:3], posteriors=POSTERIORS[:3])
    for wrong in (POSTERIORS[:3].astype(np.int64), POSTERIORS[:2], POSTERIORS[:3, :0]):
        with pytest.raises(InvalidInput, match=r"must be uint8 of shape \(3, n_bytes\)"):
            store.add(CODES[:3], posteriors=wrong)
    store.add(CODES[:1], posteriors=POSTERIORS[:1, :2])
    with pytest.raises(InvalidInput, match="posteriors of 2 and 4 bytes; upsert with one size"):
        store.items(range(4))


def test_few_statements_are_needed_for_a_query():
    """One round trip: PostgreSQL gets one statement."""
    store = make_postgres(6).add(CODES, vectors=VECTORS, posteriors=POSTERIORS)
    one = Probes(CELLS[:3], PROBES.shares[:3], PROBES.offsets[:2], 2.0)
    store.lookup(one, vectors=ASKED[:1])
    store.lookup(one, posteriors=True)
    sent, run = [], store._connection.run
    store._connection.run = lambda sql, values=(): (sent.append(sql), run(sql, values))[1]
    try:
        store.lookup(one, vectors=ASKED[:1])
        store.lookup(one, posteriors=True)
        assert [sql[:4] for sql in sent] == ["WITH", "WITH"]
        store.lookup(one, where={"class": 3})
        assert len(sent) == 3
    finally:
        del store._connection.run
