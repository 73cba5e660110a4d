"""Exact ranking inside a ball by stored vectors, the same in every store."""

import numpy as np
import pytest
from stores import Maker, make_postgres, postgres_connection, with_pgvector

from shorthash import BucketIndex
from shorthash.errors import InvalidInput, PersistenceError
from shorthash.store import PostgresStore, SQLiteStore

RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 64, 200).astype(np.uint64)
VECTORS = RNG.integers(-3, 4, (200, 4)).astype(np.float32)  # many equal scores
VECTORS[5] = 0
QUERIES, ASKED = CODES[:3], RNG.normal(size=(3, 4)).astype(np.float32)


def packed(codes):
    return np.array(codes, dtype=np.uint64)


def in_a_file(tmp_path_factory):
    return SQLiteStore(tmp_path_factory.mktemp("store") / "a.db", 6)


def make_packed(tmp_path_factory):
    """Some vectors in the side file, some in the database."""
    store = in_a_file(tmp_path_factory)
    store.add(CODES[:150], vectors=VECTORS[:150])
    store.pack_vectors()
    return store.add(CODES[150:], vectors=VECTORS[150:])


STORES = {
    "sqlite": lambda factory: in_a_file(factory).add(CODES, vectors=VECTORS),
    "sqlite, packed": lambda factory: make_packed(factory),
    "postgres": lambda factory: make_postgres(6).add(CODES, vectors=VECTORS),
    "pgvector": lambda factory: with_pgvector(6).add(CODES, vectors=VECTORS),
}


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("kind", STORES)
def test_reranking_equals_the_index(kind, metric, tmp_path_factory):
    store = STORES[kind](tmp_path_factory)
    truth = BucketIndex(6).add(CODES, vectors=VECTORS)
    for radius, k, where in [(0, 5, None), (2, 10, None), (6, 500, None), (2, 7, {1, 2, 3, *range(50, 120)})]:
        found = store.rerank(QUERIES, ASKED, k, radius=radius, metric=metric, where=where)
        expected = truth.rerank(QUERIES, ASKED, k, radius=radius, metric=metric, where=where)
        assert found.offsets.tolist() == expected.offsets.tolist()
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5, atol=1e-5)
        if kind != "pgvector":  # its rounding differs in the last bit, and with it the order of ties
            assert found.ids.tolist() == expected.ids.tolist()
        for ids, _ in found:
            assert len(set(ids.tolist())) == len(ids)
    asymmetric = RNG.normal(size=(3, 6))
    found = store.rerank(QUERIES, asymmetric, 9, radius=3, metric="asymmetric")
    expected = truth.rerank(QUERIES, asymmetric, 9, radius=3, metric="asymmetric")
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
    store.close() if kind != "postgres" else store.drop()


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean", "asymmetric"])
@pytest.mark.parametrize("kind", ["sqlite", "sqlite, packed", "postgres"])
def test_ties_by_scores_equal_the_index(kind, metric, tmp_path_factory):
    store = STORES[kind](tmp_path_factory)
    truth = BucketIndex(6).add(CODES, vectors=VECTORS)
    vectors = RNG.normal(size=(3, 6)) if metric == "asymmetric" else ASKED
    for where in (None, {1, 2, 3, *range(50, 120)}):
        scored = {"ties": "scores", "vectors": vectors, "metric": metric, "where": where}
        for k in (1, 20, 500):
            found, expected = store.search(QUERIES, k, **scored), truth.search(QUERIES, k, **scored)
            assert found.ids.tolist() == expected.ids.tolist()
            assert found.distances.tolist() == expected.distances.tolist()
        found, expected = store.within(QUERIES, 2, **scored), truth.within(QUERIES, 2, **scored)
        assert found.ids.tolist() == expected.ids.tolist()
        assert found.offsets.tolist() == expected.offsets.tolist()
    bare = store.add(packed(QUERIES[:1]), ids=[1000]).within(QUERIES[:1], 0, ties="scores", vectors=ASKED[:1]).ids
    assert bare[-1] == 1000  # without a vector: after the others
    store.close() if kind != "postgres" else store.drop()


@pytest.mark.parametrize("kind", STORES)
def test_vectors_come_back_and_follow_their_items(kind, tmp_path_factory):
    store = STORES[kind](tmp_path_factory)
    assert np.array_equal(store.items(range(200)).vectors, VECTORS)
    store.update([3], packed([63])).upsert(packed([1]), [4], vectors=[[9, 9, 9, 9]]).upsert(packed([1]), [5]).remove(
        [6]
    )
    assert np.array_equal(store.items([3]).vectors, VECTORS[[3]])
    assert store.items([4]).vectors.tolist() == [[9, 9, 9, 9]]
    assert np.isnan(store.items([5]).vectors).all()
    top = store.rerank(packed([1]), [[1.0, 1, 1, 1]], 300, radius=6, metric="dot")
    assert top.ids[0] == 4
    assert sorted(top.ids.tolist()) == [i for i in range(200) if i not in (5, 6)]
    if kind.startswith("sqlite"):
        store.pack_vectors()
        again = store.rerank(packed([1]), [[1.0, 1, 1, 1]], 300, radius=6, metric="dot")
        assert again.ids.tolist() == top.ids.tolist()
        assert np.isnan(store.items([5]).vectors).all()
        store.add(packed([1]), ids=[1000], vectors=[[9.5, 9, 9, 9]])
        assert store.rerank(packed([1]), [[1.0, 1, 1, 1]], 1, radius=0, metric="dot").ids.tolist() == [1000]
    store.close() if kind != "postgres" else store.drop()


def test_migrations_see_vectors(tmp_path_factory):
    store = make_packed(tmp_path_factory)
    store.add_version("v2", 4)
    store.migrate("v2", lambda items: np.where(items.vectors > 0, 1, -1).astype(np.int8), batch_size=64)
    expected = ((VECTORS > 0) @ (1 << np.arange(4))).tolist()
    assert store.at("v2").items(range(200)).codes.tolist() == expected
    new = store.switch("v2")
    new.pack_vectors()
    assert np.array_equal(new.items(range(200)).vectors, VECTORS)
    new.close()


@pytest.mark.parametrize(
    "make", [Maker(SQLiteStore, lambda n: SQLiteStore(":memory:", n)), Maker(PostgresStore, make_postgres)]
)
def test_refused_vectors_change_nothing(make):
    store = make(6).add(CODES[:3], vectors=VECTORS[:3])
    for call, message in [
        (lambda: store.add(packed([1]), vectors=[[1, 2]]), "have dimension 4. Got 2 instead"),
        (lambda: store.rerank(packed([1]), [[1, 2]], 1, radius=1), "must have 4 columns for metric='cosine'. Got 2"),
        (
            lambda: store.rerank(packed([1]), [[1, 2, 3, 4]] * 2, 1, radius=1),
            r"must be numbers of shape \(1, dimension\)",
        ),
        (lambda: store.rerank(packed([1]), [[1, 2, 3, 4]], 0, radius=1), "The 'k' parameter"),
        (lambda: store.rerank(packed([1]), [[1, 2, 3, 4]], 1, radius=-1), "The 'radius' parameter"),
        (lambda: store.rerank(packed([1]), [[1, 2, 3, 4]], 1, radius=1, metric="l1"), "must be one of 'cosine', 'dot'"),
        (lambda: store.rerank(packed([1]), [[1, 2]], 1, radius=1, metric="asymmetric"), "must have 6 columns"),
        (lambda: make(6).add(packed([1])).rerank(packed([1]), [[1, 2]], 1, radius=1), "needs items with vectors"),
        (lambda: store.search(packed([1]), 1, ties="scores"), "needs the vectors of queries; pass vectors="),
    ]:
        with pytest.raises(InvalidInput, match=message):
            call()
    assert store.ids.tolist() == [0, 1, 2]
    assert store.add(packed([1])).rerank(packed([1]), [[1, 2, 3, 4]], 9, radius=6).ids.tolist() != [3]


def test_memory_cannot_be_packed():
    with pytest.raises(InvalidInput, match="in memory cannot be packed"):
        SQLiteStore(":memory:", 6).pack_vectors()


def test_packers_do_not_undo_each_other(tmp_path):
    first = SQLiteStore(tmp_path / "a.db", 6).add(CODES, vectors=VECTORS)
    second = SQLiteStore(tmp_path / "a.db")
    write = SQLiteStore.pack_vectors.__globals__["SideFile"].write

    def meanwhile(*args):
        name = write(*args)
        second.add(packed([1]), ids=[500], vectors=[[1, 2, 3, 4]])
        SQLiteStore.pack_vectors.__globals__["SideFile"].write = staticmethod(write)
        second.pack_vectors()
        return name

    SQLiteStore.pack_vectors.__globals__["SideFile"].write = staticmethod(meanwhile)
    with pytest.raises(PersistenceError, match="Another process has packed the vectors in the meantime"):
        first.pack_vectors()
    assert np.array_equal(first.items(range(200)).vectors, VECTORS)
    assert first.items([500]).vectors.tolist() == [[1, 2, 3, 4]]
    first.pack_vectors()
    assert second.items([500]).vectors.tolist() == [[1, 2, 3, 4]]
    for store in (first, second):
        store.close()


def test_nothing_is_needed_from_pgvector():
    assert postgres_connection().collection.startswith("first")
    store = make_postgres(6).add(CODES, vectors=VECTORS)
    with store._reading() as session:
        assert session.collection.vectors_at == "bytea"
