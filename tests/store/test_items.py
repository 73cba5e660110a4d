"""What stores keep beside codes: classes, metadata, vectors; upsert, filters, and input that is refused."""

import datetime as dt

import numpy as np
import pytest
from stores import every_store

from shorthash import BucketIndex, save
from shorthash.errors import InvalidInput, PersistenceError
from shorthash.store import SQLiteStore

TEXTS = ["", "Rome", 'quo"te', "back\\slash", "ünïcode ✓ 名", "'; DROP TABLE items; --", "100%s ? :x"]


def packed(codes):
    return np.array(codes, dtype=np.uint64)


@every_store
def test_items_come_back_as_they_were(make):
    metadata = [{"text": text, "nested": {"list": [1, None, True, 2.5]}, "n": -(2**53)} for text in TEXTS]
    ids = [f"id {text}" for text in TEXTS]
    classes = [1, "one", None, -(2**63), 2**63 - 1, "", "✓"]
    store = make(8).add(packed(range(7)), ids=ids, classes=classes, metadata=metadata)
    items = store.items(ids[::-1])
    assert items.ids.tolist() == ids[::-1]
    assert items.codes.tolist() == [6, 5, 4, 3, 2, 1, 0]
    assert items.classes == classes[::-1]
    assert items.metadata == metadata[::-1]
    assert items.vectors is None
    assert len(items) == 7
    assert len(store.items(["id Rome"])) == 1
    assert store.items([]).codes.tolist() == []


@every_store
def test_filters_on_class_and_metadata(make):
    n = 60
    classes = [None if i % 5 == 4 else i % 5 if i % 2 else f"c{i % 5}" for i in range(n)]
    metadata = [
        None if i % 7 == 0 else {"city": TEXTS[i % 7], "year": 1990 + i % 4, "share": i / 2, "my key-1": None}
        for i in range(n)
    ]
    codes = packed([i * 37 % 64 for i in range(n)])
    store = make(6).add(codes, classes=classes, metadata=metadata)
    for where, admits in [
        ({"city": "Rome"}, lambda i: i % 7 == 1),
        ({"city": TEXTS[5]}, lambda i: i % 7 == 5),
        ({"city": TEXTS[2:4]}, lambda i: i % 7 in (2, 3)),
        ({"city": "Rome", "year": {1990, 1991}}, lambda i: i % 7 == 1 and i % 4 in (0, 1)),
        ({"year": "1990"}, lambda i: False),
        ({"share": [0.5, 20.0, 21]}, lambda i: i in (1, 40)),
        ({"my key-1": None}, lambda i: i % 7 != 0),
        ({"absent": None}, lambda i: False),
        ({"class": 3}, lambda i: classes[i] == 3),
        ({"class": [1, "c2", None]}, lambda i: classes[i] in (1, "c2", None)),
        ({"class": True}, lambda i: False),
        ({"city": []}, lambda i: False),
        ({}, lambda i: True),
    ]:
        only = [i for i in range(n) if admits(i)]
        truth = BucketIndex(6).add(codes)
        assert (
            store.search(packed([5]), 9, where=where).ids.tolist()
            == truth.search(packed([5]), 9, where=only).ids.tolist()
        )
        assert (
            store.within(packed([5]), 2, where=where).ids.tolist()
            == truth.within(packed([5]), 2, where=only).ids.tolist()
        )
        assert (
            store.counts(packed([5, 9]), 3, where=where).tolist()
            == truth.counts(packed([5, 9]), 3, where=only).tolist()
        )


@every_store
def test_true_is_not_one(make):
    store = make(4).add(packed([1] * 5), metadata=[{"x": x} for x in (True, 1, "1", 1.0, False)])
    for value, expected in [(True, [0]), (1, [1, 3]), ("1", [2]), (False, [4]), (0, [])]:
        assert store.search(packed([1]), 5, where={"x": value}).ids.tolist() == [expected]


@every_store
def test_upsert_replaces_items_whole(make):
    store = make(4).add(packed([1, 2]), ids=["a", "b"], classes=[1, 2], metadata=[{"x": 1}, {"x": 2}])
    store.upsert(packed([8, 9]), ["b", "c"], classes=[7, None])
    items = store.items(["a", "b", "c"])
    assert items.codes.tolist() == [1, 8, 9]
    assert items.classes == [1, 7, None]
    assert items.metadata == [{"x": 1}, None, None]
    assert store.ids.tolist() == ["a", "b", "c"]
    store.upsert(packed([0]), ["a"]).upsert(packed([]), [])
    assert store.ids.tolist() == ["b", "c", "a"]
    with pytest.raises(InvalidInput, match="are strings in this index"):
        store.upsert(packed([1]), [1])
    store.remove(["a", "b", "c"]).upsert(packed([3]), [5])
    assert store.ids.tolist() == [5]


@every_store
def test_update_keeps_class_and_metadata(make):
    store = make(4).add(packed([1, 2]), classes=[5, 6], metadata=[{"x": 1}, None]).update([0], packed([9]))
    items = store.items([0, 1])
    assert (items.codes.tolist(), items.classes, items.metadata) == ([9, 2], [5, 6], [{"x": 1}, None])


@every_store
def test_merging_carries_everything_along(make):
    shard = make(4).add(packed([1]), ids=["a"], classes=[3], metadata=[{"x": 1}])
    store = make(4).merge(shard, BucketIndex(4).add(packed([2]), ids=["b"]))
    items = store.items(["a", "b"])
    assert (items.codes.tolist(), items.classes, items.metadata) == ([1, 2], [3, None], [{"x": 1}, None])


@every_store
def test_refused_items_change_nothing(make):
    store = make(4).add(packed([1]), ids=["a"])
    for call, message in [
        (
            lambda: store.add(packed([2]), ids=["b"], classes=[1, 2]),
            "'classes' of .* one entry per code. Got 2 for 1",
        ),
        (lambda: store.add(packed([2]), ids=["b"], classes=[1.5]), "'classes' of .* must be integers .* Got 1.5"),
        (lambda: store.add(packed([2]), ids=["b"], classes=[2**63]), "'classes' of .* must be integers that fit int64"),
        (lambda: store.add(packed([2]), ids=["b"], classes=["x" * 501]), "strings of at most 500 bytes"),
        (lambda: store.add(packed([2]), ids=["b"], metadata=[]), "'metadata' of .* Got 0 for 1"),
        (lambda: store.add(packed([2]), ids=["b"], metadata=["x"]), "must be dictionaries or None. Got 'x'"),
        (
            lambda: store.add(packed([2]), ids=["b"], metadata=[{"class": 1}]),
            "may not have a field 'class'; pass classes",
        ),
        (lambda: store.add(packed([2]), ids=["b"], metadata=[{"x": {1}}]), "must be JSON, but an entry is not"),
        (
            lambda: store.add(packed([2]), ids=["b"], metadata=[{"x": float("nan")}]),
            "must be JSON, but an entry is not",
        ),
        (lambda: store.add(packed([2]), ids=["b"], metadata=[{"x": "\0"}]), "may not hold NUL"),
        (lambda: store.add(packed([2]), ids=["b"], metadata=[{"x": "\ud800"}]), "must be JSON, but an entry is not"),
        (lambda: store.add(packed([2]), ids=["b\0c"]), "may not hold NUL characters"),
        (lambda: store.add(packed([2]), ids=["\ud800"]), "text that a database can hold: at most 500 bytes"),
        (lambda: store.add(packed([2]), ids=["é" * 251]), "text that a database can hold"),
        (lambda: store.add(packed([2]), ids=["b"], vectors=[["x"]]), "must be numbers of shape"),
        (
            lambda: store.add(packed([2]), ids=["b"], vectors=[1.0]),
            r"must be numbers of shape \(1, dimension\).* Got float64 of shape \(1,\)",
        ),
        (
            lambda: store.add(packed([2]), ids=["b"], vectors=[[np.inf]]),
            "must be finite in float32, but row 0 holds NaN or infinity",
        ),
        (lambda: store.upsert(packed([2, 3]), ["b", "b"]), "must be unique, but 'b' occurs twice"),
        (lambda: store.items(["a", "z"]), "Id 'z' is not in the store"),
        (lambda: store.items([1]), "are strings in this index. Got integers"),
        (lambda: store.search(packed([1]), 1, where={"a.b": 1}), "must be a name of letters, digits, .* Got 'a.b'"),
        (lambda: store.search(packed([1]), 1, where={'a"': 1}), "must be a name of letters"),
        (lambda: store.search(packed([1]), 1, where={"a": {"b": 1}}), "must be a string, a finite number .* or None"),
        (lambda: store.search(packed([1]), 1, where={"a": float("inf")}), "must be a string, a finite number"),
        (
            lambda: store.search(packed([1]), 1, where={"a": 2**63}),
            "must be a string, a finite number that fits 64 bits",
        ),
        (lambda: store.at("v7"), "has no version 'v7'; it has 'v1'"),
        (lambda: store.sibling("Items", 4), "lower-case letters, digits and '_', begin with a letter.* Got 'Items'"),
        (lambda: store.sibling("x; DROP TABLE items", 4), "The name of a collection must be"),
        (lambda: store.sibling("pg_class", 4), "The name of a collection must be"),
        (lambda: store.sibling("new"), "finds no collection 'new' in this database; pass n_bits"),
        (lambda: store.sibling(store.collection, 5), "has codes of 4 bits. Got n_bits=5 instead"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            call()
    assert store.ids.tolist() == ["a"]
    assert store.items(["a"]).metadata == [None]


@every_store
def test_a_store_is_not_saved_to_a_folder(make, tmp_path):
    with pytest.raises(PersistenceError, match="takes one of"):
        save(make(4), tmp_path / "store")


@every_store
def test_siblings_share_a_database_and_nothing_else(make):
    store = make(4).add(packed([1]))
    other = store.sibling(f"{store.collection}_b", 12).add(packed([4095]), ids=["x"])
    assert store.sibling(f"{store.collection}_b").ids.tolist() == ["x"]
    assert (store.n_bits, other.n_bits, store.ids.tolist()) == (4, 12, [0])
    other.drop()
    with pytest.raises(InvalidInput, match="finds no collection"):
        store.sibling(f"{store.collection}_b")
    with pytest.raises((InvalidInput, PersistenceError, ValueError)):
        other.add(packed([1]))
    assert len(store) == 1


@every_store
def test_codes_of_64_bits_survive_signed_columns(make):
    codes = packed([0, 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1])
    store = make(64).add(codes)
    assert store.codes.tolist() == codes.tolist()
    assert store.items(range(6)).codes.tolist() == codes.tolist()
    for i, code in enumerate(codes.tolist()):
        assert store.search(packed([code]), 1).ids.tolist() == [[i]]
        assert (
            store.within(packed([code]), 1).ids.tolist()
            == BucketIndex(64).add(codes).within(packed([code]), 1).ids.tolist()
        )
        assert store.counts(packed([code]), 64).tolist() == [6]


@every_store
def test_large_numbers_in_metadata_are_exact(make):
    store = make(4).add(packed([1, 2]), metadata=[{"n": 2**60}, {"n": 2**60 + 1}])
    assert store.search(packed([1]), 2, where={"n": 2**60 + 1}).ids.tolist() == [[1]]


@every_store
def test_all_vectors_in_insertion_order(make):
    store = make(4)
    assert store.vectors is None
    store.add(np.array([3, 1, 2], dtype=np.uint64), ids=[9, 4, 7])
    assert store.vectors is None


def test_vectors_go_along_into_an_index():
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    store = SQLiteStore(":memory:", 4).add(np.array([3, 1, 2]), ids=[9, 4, 7], vectors=vectors)
    assert store.vectors.tolist() == vectors.tolist()
    assert not store.vectors.flags.writeable
    assert BucketIndex(4).merge(store).vectors.tolist() == vectors.tolist()
    store.add(np.array([1]))
    assert np.isnan(store.vectors).tolist() == [[False] * 2] * 3 + [[True] * 2]
    with pytest.raises(InvalidInput, match="Items with and without vectors cannot be merged"):
        BucketIndex(4).merge(store)


FRAME = {
    "price": np.array([1.5, 2.5, 3.0], dtype=np.float32),
    "size": [1, 2, 3],
    "day": [dt.datetime(2024, 2, 1), dt.datetime(2024, 2, 2, 3, 4), None],
    "name": ["a", None, "c"],
}
ROWS = [
    {"price": 1.5, "size": 1, "day": "2024-02-01T00:00:00", "name": "a"},
    {"price": 2.5, "size": 2, "day": "2024-02-02T03:04:00", "name": None},
    {"price": 3.0, "size": 3, "day": None, "name": "c"},
]


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "polars", "dictionaries"])
def test_metadata_of_a_data_frame(kind):
    if kind == "dictionaries":
        frame = [{key: values[i] for key, values in FRAME.items()} for i in range(3)]
    else:
        module = pytest.importorskip(kind)
        frame = module.table(FRAME) if kind == "pyarrow" else module.DataFrame(FRAME)
    with SQLiteStore(":memory:", 4) as store:
        store.add([1, 2, 3], ids=["x", "y", "z"], classes=["k", None, "l"], metadata=frame)
        assert store.items(["x", "y", "z"]).metadata == ROWS
        assert store.search([[1, -1, -1, -1]], k=3, where={"price": 2.5}).ids.tolist() == [["y"]]
        found = store.items(["z", "x"]).to_frame()
    assert found.columns.tolist() == ["id", "code", "class", "price", "size", "day", "name"]
    assert found["id"].tolist() == ["z", "x"]
    assert found["code"].tolist() == [3, 1]
    assert found["price"].tolist() == [3.0, 1.5]


def test_a_frame_of_another_length_is_refused():
    pandas = pytest.importorskip("pandas")
    with SQLiteStore(":memory:", 4) as store, pytest.raises(InvalidInput, match=r"'metadata' of .* Got 1 for 2"):
        store.add([1, 2], metadata=pandas.DataFrame({"a": [1]}))
