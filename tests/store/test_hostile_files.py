"""SQLite files that somebody crafted: views, triggers, wrong types, links; and folders that cannot be written to."""

import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from crafting import craft_file
from processes import run

from shorthash.errors import DamagedFile, ForeignFile, PersistenceError
from shorthash.store import SQLiteStore
from shorthash.store.tables import row_crc


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "items.db"
    with SQLiteStore(path, n_bits=8) as store:
        rng = np.random.default_rng(0)
        store.add(np.arange(50) % 256, classes=[i % 3 for i in range(50)], vectors=rng.normal(size=(50, 4)))
    return path


def craft(path, *statements):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA writable_schema = ON")
        for statement in statements:
            database.execute(statement)


ENDLESS = "CREATE VIEW {} AS WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n) SELECT i AS id FROM n"
TRIGGER = "CREATE TRIGGER t AFTER INSERT ON items BEGIN DELETE FROM items WHERE id < 40; END"
SCHEMA = "UPDATE sqlite_master SET sql = replace(sql, '{}', '{}') WHERE name = '{}'"


@pytest.mark.parametrize(
    "statements",
    [
        ["DROP TABLE items", ENDLESS.format("items")],
        ["DROP TABLE shorthash_collections", ENDLESS.format("shorthash_collections")],
        ["DROP TABLE items_vectors", ENDLESS.format("items_vectors")],
        [TRIGGER],
        [SCHEMA.format("class,", "class CHECK (length(randomblob(9)) > 0),", "items")],
        ["CREATE INDEX slow ON items(zeroblob(place))"],
    ],
)
@pytest.mark.parametrize("readonly", [False, True])
def test_a_schema_that_is_not_ours_is_refused(statements, readonly, path):
    craft(path, *statements)
    with pytest.raises(ForeignFile, match=r"which shorthash did not make; do not use files of unknown origin"):
        SQLiteStore(path, readonly=readonly)


def test_other_tables_of_a_database_may_be_anything(path):
    craft(path, "CREATE TABLE mine(a)", TRIGGER.replace("ON items", "ON mine"), ENDLESS.format("numbers"))
    with SQLiteStore(path) as store:
        assert len(store.add([7])) == 51


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE shorthash_versions SET number = '1 FROM items; --'",
        "UPDATE shorthash_versions SET n_bits = 4000000",
        "UPDATE shorthash_collections SET dimension = 1 << 40",
        "UPDATE shorthash_collections SET id_kind = 'X'",
        "UPDATE shorthash_collections SET last_id = 'many'",
        "UPDATE shorthash_collections SET current_version = 'v9'",
        "UPDATE items SET code = 'text' WHERE id = 5",
        "UPDATE items SET id = x'00ff' WHERE id = 5",
        "UPDATE items SET metadata = '{{' WHERE id = 5",
        "UPDATE items_vectors SET vector = x'00' WHERE slot = 5",
        "UPDATE items_vectors SET vector = 7 WHERE slot = 5",
    ],
)
def test_values_that_are_not_ours_are_damage(change, path):
    def verify():
        with SQLiteStore(path) as store:
            store.verify()

    def read():
        with SQLiteStore(path) as store:
            store.search([5], k=50)
            store.items(store.ids)

    craft(path, change)
    for use in (verify, read):
        with pytest.raises(DamagedFile, match="damaged"):
            use()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE items SET class = 7 WHERE id = 5",
        "UPDATE items SET code = 6 WHERE id = 5",
        "UPDATE items SET place = place - 1 WHERE id = 5",
        "UPDATE items SET metadata = '{\"a\": 1}' WHERE id = 5",
        "UPDATE items SET slot = 6 WHERE id = 5",
        "UPDATE items SET posterior = x'01' WHERE id = 5",
        "UPDATE items SET id = 500 WHERE id = 5",
        "UPDATE items_vectors SET vector = zeroblob(16) WHERE slot = 5",
        "UPDATE items_vectors SET slot = 500 WHERE slot = 5",
        "UPDATE shorthash_collections SET next_place = 7",
        "UPDATE shorthash_versions SET n_bits = 9",
    ],
)
def test_a_value_that_was_not_written_has_another_checksum(change, path):
    craft(path, change)
    with pytest.raises(DamagedFile, match=r"as it was written|differ"), SQLiteStore(path) as store:
        store.items(store.ids)
    with pytest.raises(DamagedFile, match=r"as it was written|differ"), SQLiteStore(path) as store:
        store.verify()
    if change.startswith("UPDATE items SET"):
        item = 500 if "500" in change else 5
        with SQLiteStore(path) as store, pytest.raises(DamagedFile, match="as it was written"):
            store.update([item], [1])  # which would write a new checksum


def test_checksums_follow_every_change(path):
    with SQLiteStore(path) as store:
        store.upsert([9], [3], classes=["é"], metadata=[{"name": "ü"}], posteriors=np.ones((1, 4), dtype=np.uint8))
        store.update([4, 5], [200, 201])
        store.add_version("v2", 4)
        store.verify()
        store.migrate("v2", lambda items: items.codes % 16)
        store.verify()
        store.switch("v2").drop_version("v1").remove([7])
        store.verify()
    with SQLiteStore(path) as store:
        assert store.items([3]).classes == ["é"]


def test_a_row_that_claims_to_be_huge_is_damage(path):
    match = "larger than the memory"
    with SQLiteStore(path) as store, pytest.raises(PersistenceError, match=match), store._connection.explained():
        raise MemoryError  # which sqlite3 raises if a length in the file is not one


def test_checksums_are_the_same_in_every_python():
    """Values computed once: letters that only some versions know, bytes, floats, the smallest integer."""
    values = "it's \u0378\U0001fae8\n", 7, b"\x00\xff'", 1e-5
    assert row_crc("class,id,posterior,price", *values) == 1515250921
    assert row_crc("a,b", 0.1, -(2**63)) == 2293762983


def test_a_store_without_checksums_still_works(path):
    tables = ("items", "items_vectors", "shorthash_collections")
    craft(path, *(f"ALTER TABLE {table} DROP COLUMN crc" for table in tables))  # as older versions made it
    with SQLiteStore(path) as store:
        store.add([7, 8], classes=[1, 2], vectors=np.ones((2, 4))).update([3], [77])
        store.add_version("v2", 4)
        store.migrate("v2", lambda items: items.codes % 16)
        store.switch("v2").drop_version("v1")
    with SQLiteStore(path, readonly=True) as store:
        store.verify()
        assert len(store) == 52
        assert store.items([51]).classes == [2]
        assert store.items([51]).vectors.tolist() == [[1, 1, 1, 1]]


def test_packed_vectors_are_checked(path, tmp_path):
    with SQLiteStore(path) as store:
        store.pack_vectors()
        store.verify()
        [file] = (tmp_path / "items.db-vectors").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    with SQLiteStore(path) as store, pytest.raises(DamagedFile, match="checksum of its array 'vectors' differs"):
        store.verify()
    file.write_bytes(whole)
    craft_file(file, lambda arrays: arrays["rows"].__setitem__(0, -1))
    with SQLiteStore(path) as store, pytest.raises(DamagedFile, match="numbers of vectors are inconsistent"):
        store.items([3])
    file.write_bytes(whole)
    shutil.move(file, tmp_path / file.name)
    file.symlink_to(tmp_path / file.name)
    with SQLiteStore(path) as store, pytest.raises(DamagedFile, match="which is not one of its files of vectors"):
        store.items([3])
    craft(path, "UPDATE shorthash_collections SET vectors_at = '../items.db', crc = NULL")
    with SQLiteStore(path) as store, pytest.raises(DamagedFile, match="which is not one of its files of vectors"):
        store.items([3])


READ = """
import os, sys
from shorthash.store import SQLiteStore
SQLiteStore(":memory:", 8).add([1]).search([1], k=1)  # imports what it needs
if os.getuid() == 0:
    os.setuid(65534)
with SQLiteStore(sys.argv[1], readonly=True) as store:
    print(len(store), store.search([7], k=1).ids.tolist())
"""


def test_a_store_can_be_read_where_nothing_can_be_written(path):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        copy = Path(shutil.copy(path, folder / "items.db"))
        copy.chmod(0o444)
        folder.chmod(0o555)
        done = run([sys.executable, "-c", READ, copy], capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == ("50 [[7]]\n", "")
        assert [file.name for file in folder.iterdir()] == ["items.db"]
        folder.chmod(0o755)


def test_a_read_only_store_refuses_to_write_and_sees_what_others_write(path):
    with SQLiteStore(path, readonly=True) as reader, SQLiteStore(path) as writer:
        generation = reader._connection.generation()
        writer.add([9], ids=[1000])
        assert 1000 in reader
        assert reader._connection.generation() != generation
        with pytest.raises(PersistenceError, match="read"):
            reader.add([1])
