"""Fields of the metadata in columns of their own: types in and out, filters, moving, B-trees, old and crafted files."""

import datetime as dt
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from stores import every_store

from shorthash.errors import DamagedFile, InvalidInput
from shorthash.store import SQLiteStore

TYPES = {"price": "float", "year": "int", "city": "text", "new": "bool", "day": "time", "Order by": "text"}
ROWS = [
    {"price": np.float32(2.5), "year": 1999, "city": "Rome", "new": True, "day": dt.datetime(2024, 2, 1, 12)},
    {"price": 9, "year": np.int16(2001), "city": "'; DROP TABLE items; --", "new": False, "Order by": "x", "more": [1]},
    {"price": None, "year": 3.0, "city": "", "day": dt.date(2024, 2, 2)},
    None,
]
KEPT = [
    {"price": 2.5, "year": 1999, "city": "Rome", "new": True, "day": "2024-02-01T12:00:00"},
    {"more": [1], "price": 9.0, "year": 2001, "city": "'; DROP TABLE items; --", "new": False, "Order by": "x"},
    {"year": 3, "city": "", "day": "2024-02-02T00:00:00"},
    None,
]


@every_store
def test_typed_values_come_back(make):
    store = make(4).add_columns(TYPES, index=["city", "Order by"]).add([1, 2, 3, 4], metadata=ROWS)
    assert store.columns == TYPES
    assert store.items([0, 1, 2, 3]).metadata == KEPT
    assert store.upsert([7], [0], metadata=[{"year": 5}]).items([0]).metadata == [{"year": 5}], "replaced whole"
    assert store.update([1], [6]).items([1]).metadata == KEPT[1:2]


@every_store
def test_values_are_in_columns_and_not_in_json(make):
    store = make(4).add_columns({"city": "text", "price": "float"}, index=["city"]).add([1, 2, 3, 4], metadata=ROWS)
    with store._reading() as session:
        rows = session.run(f'SELECT id, "city", "price", code FROM {store.collection} ORDER BY id')
        assert rows == [(0, "Rome", 2.5, 1), (1, ROWS[1]["city"], 9.0, 2), (2, "", None, 3), (3, None, None, 4)]
        [(left,)] = session.run(f"SELECT metadata FROM {store.collection} WHERE id = 1")
    assert "city" not in str(left)
    assert "more" in str(left)


def matches(row, where):
    """The slow reference of a filter."""
    signs = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "!=": np.not_equal}
    for name, given in where.items():
        value = (row or {}).get(name)
        if isinstance(given, dict):
            if value is None or not all(signs[sign](value, limit) for sign, limit in given.items()):
                return False
        elif value not in (given if isinstance(given, list) else [given]):
            return False
    return True


@every_store
@pytest.mark.parametrize("declared", [True, False])
def test_where_uses_columns(make, declared):
    rng = np.random.default_rng(0)
    rows = [
        {"n": int(rng.integers(9)), "x": float(rng.integers(5)) / 2, "t": f"t{i % 4}", "b": i % 3 == 0}
        for i in range(40)
    ]
    rows = [{k: v for k, v in row.items() if rng.random() < 0.9} for row in rows]
    store = make(3).add(np.arange(40) % 8, classes=[i % 2 for i in range(40)], metadata=rows)
    if declared:
        store.add_columns({"n": "int", "x": "float", "t": "text", "b": "bool"}, index=["n"])
    filters = [
        {"n": 3},
        {"n": [1, 2, None]},
        {"x": 0.5, "t": "t1"},
        {"b": True},
        {"t": []},
        {"n": 3, "t": ["t0", "t2"]},
    ]
    if declared:
        filters += [{"x": {"<": 1.5}}, {"n": {">=": 2, "<=": 6}, "b": False}, {"t": {"!=": "t1"}}, {"n": None}]
    else:  # a field that is null, and one that is missing, differ in JSON
        filters.remove({"n": [1, 2, None]})
    for where in filters:
        wanted = [i for i, row in enumerate(rows) if matches(row, where)]
        assert sorted(store.within([0], 3, where=where).ids.tolist()) == wanted, where
        assert store.counts([0], 3, where=where).tolist() == [len(wanted)]


@every_store
def test_times_compare_in_every_form(make):
    store = make(2).add_columns({"day": "time"})
    zone = dt.timezone(dt.timedelta(hours=2))
    days = [dt.datetime(2024, 1, 1), "2024-01-02T00:00:00.5", dt.datetime(2024, 1, 3, 2, tzinfo=zone)]
    store.add([0, 1, 2], metadata=[{"day": day} for day in days])
    assert store.items([0, 1, 2]).to_frame()["day"].dt.day.tolist() == [1, 2, 3]
    for limit in (dt.date(2024, 1, 2), np.datetime64("2024-01-02"), "2024-01-02", dt.datetime(2024, 1, 2)):
        assert store.within([0], 2, where={"day": {"<": limit}}).ids.tolist() == [0]
    assert store.within([0], 2, where={"day": dt.datetime(2024, 1, 3)}).ids.tolist() == [2], "in UTC"


@every_store
def test_values_that_items_have_are_moved(make):
    store = make(4).add([1, 2, 3, 4], metadata=ROWS).add_columns({"price": "float", "city": "text"})
    assert [(row or {}).get("price") for row in store.items([0, 1, 2, 3]).metadata] == [2.5, 9.0, None, None]
    assert store.items([1]).metadata[0]["more"] == [1]
    assert store.within([0], 4, where={"price": {">": 3}}).ids.tolist() == [1]
    with pytest.raises(InvalidInput, match=r"The column 'year' of \w+ holds text. Got 1999 instead"):
        store.add_columns({"year": "text"})
    assert store.columns == {"price": "float", "city": "text"}, "nothing was changed"
    if isinstance(store, SQLiteStore):
        store.verify()


@every_store
def test_merging_carries_columns_along(make):
    one = make(4).add_columns({"price": "float"}).add([1], ids=[5], metadata=[{"price": 2}])
    other = make(4).add_columns({"price": "float", "city": "text"}).merge(one)
    assert other.items([5]).metadata == [{"price": 2.0}]
    assert other.columns == {"price": "float", "city": "text"}


@every_store
def test_what_is_refused(make):
    store = make(4).add_columns({"price": "float", "year": "int"})
    for columns, message in [
        ({"price": "int"}, r"The column 'price' holds float already. Got 'int' instead"),
        ({"x": "blob"}, r"must be one of bool, int, float, time, text. Got 'blob' instead"),
        ({"code": "int"}, r"must be at most 40 letters.* Got 'code' instead; rename the field"),
        ({"CODE_7": "int"}, r"Got 'CODE_7' instead"),
        ({"PRICE": "int"}, r"Got 'PRICE' instead"),
        ({'a"b': "int"}, r"rename the field"),
        ({"check": "int"}, r"Got 'check' instead"),
        (3, r"must be a mapping from fields to types, or a data frame. Got 3 instead"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            store.add_columns(columns)
    with pytest.raises(InvalidInput, match=r"must name columns of the store. Got 'city' instead"):
        store.add_columns({}, index=["city"])
    for row, message in [
        ({"price": "much"}, r"The column 'price' of \w+ holds float. Got 'much' instead"),
        ({"price": True}, r"holds float. Got True"),
        ({"year": 2.5}, r"holds int. Got 2.5"),
        ({"year": 2**63}, r"holds int. Got 9223372036854775808"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            store.add([1], metadata=[row])
    with pytest.raises(InvalidInput, match=r"is compared by <, <=, >, >=, !=. Got \['~'\]"):
        store.search([1], 1, where={"price": {"~": 3}})
    with pytest.raises(InvalidInput, match=r"The column 'price' of \w+ holds float. Got 'x'"):
        store.search([1], 1, where={"price": "x"})
    assert len(store) == 0


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_types_of_a_data_frame(kind):
    module = pytest.importorskip(kind)
    data = {
        "price": np.array([1.5, 2.5], dtype=np.float32),
        "year": np.array([1, 2], dtype=np.int16),
        "city": ["Rome", None],
        "new": [True, False],
        "day": np.array(["2024-02-01", "NaT"], dtype="datetime64[ms]"),
    }
    frame = module.table(data) if kind == "pyarrow" else module.DataFrame(data)
    store = SQLiteStore(":memory:", n_bits=4).add_columns(frame, index=["city"]).add([1, 2], metadata=frame)
    assert store.columns == {"price": "float", "year": "int", "city": "text", "new": "bool", "day": "time"}
    back = store.items([0, 1]).to_frame()
    assert back["price"].tolist() == [1.5, 2.5]
    assert back["year"].tolist() == [1, 2]
    assert back["day"].dt.strftime("%F").tolist()[0] == "2024-02-01"
    assert back["day"].isna().tolist() == back["city"].isna().tolist() == [False, True]


def test_a_frame_column_of_another_kind_is_refused():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"waited": pandas.to_timedelta(["1 day"])})
    with pytest.raises(InvalidInput, match=r"The column 'waited' has the type timedelta64.* leave it in the metadata"):
        SQLiteStore(":memory:", n_bits=4).add_columns(frame)


def test_an_index_is_used(tmp_path):
    path = tmp_path / "items.db"
    with SQLiteStore(path, n_bits=4) as store:
        store.add_columns({"city": "text"}, index=["city"]).add_columns({"city": "text"}, index=["city"])
    with closing(sqlite3.connect(path)) as database:
        [plan] = database.execute("EXPLAIN QUERY PLAN SELECT id FROM items WHERE city = 'Rome'").fetchall()
    assert "USING INDEX city " in plan[3] or "USING COVERING INDEX city " in plan[3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE items SET price = 8.5 WHERE id = 0", "item 0 is not as it was written"),
        ("UPDATE items SET price = 'much', crc = NULL WHERE id = 0", "a column of float holds 'much'"),
    ],
)
def test_a_changed_column_is_damage(tmp_path, change, message):
    path = tmp_path / "items.db"
    with SQLiteStore(path, n_bits=4) as store:
        store.add_columns({"price": "float"}).add([1], metadata=[{"price": 2}])
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(change)
    with SQLiteStore(path) as store:
        with pytest.raises(DamagedFile, match=message):
            store.items([0])
        with pytest.raises(DamagedFile, match="item 0 is not as it was written"):
            store.verify()


def test_names_of_a_crafted_file_are_never_statements(tmp_path):
    path = tmp_path / "items.db"
    with SQLiteStore(path, n_bits=4) as store:
        store.add([1], metadata=[{"a": 1}])
    with closing(sqlite3.connect(path)) as database, database:
        database.execute('ALTER TABLE items ADD COLUMN "x"", randomblob(9), ""y" TEXT')
        database.execute('ALTER TABLE items ADD COLUMN "it\'s" TEXT')
    with SQLiteStore(path) as store:
        assert store.columns == {}
        assert store.search([1], 1).ids.tolist() == [[0]]


def test_a_store_whose_codes_have_the_old_name_is_used_as_it_is(tmp_path):
    path = tmp_path / "items.db"
    with SQLiteStore(path, n_bits=4) as store:
        store.add([1, 2], ids=["a", "b"])
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE items SET crc = NULL")
        database.execute("DROP INDEX items_code")
        database.execute("ALTER TABLE items RENAME COLUMN code TO code_1")
        database.execute("CREATE INDEX items_code_1 ON items(code_1, id, class, slot) WHERE code_1 IS NOT NULL")
    with SQLiteStore(path) as store:
        assert store.add([3], ids=["c"]).search([3], 1).ids.tolist() == [["c"]]
        store.add_version("v2", 6).add({"v2": [5], "v1": [4]}, ids=["d"])
        store.migrate("v2", lambda items: items.codes + 1)
        assert store.switch("v2").drop_version("v1").versions == {"v2": 6}
        assert store.at("v2").codes.tolist() == [2, 3, 4, 5]
        store.drop()
        assert store.sibling("items", 4).add([1]).search([1], 1).ids.tolist() == [[0]]
