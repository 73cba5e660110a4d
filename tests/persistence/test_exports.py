"""Exported codes can be read by other programs and imported unchanged."""

import sqlite3
import sys
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import run

from shorthash.errors import DataFileError, InvalidInput, PersistenceError
from shorthash.index import BucketIndex, ScanIndex
from shorthash.persistence import export_index, import_index
from shorthash.persistence.exports import TRAILER, _row_check
from shorthash.store import SQLiteStore

ENDINGS = [".faiss", ".parquet", ".sql", ".db", ".sqlite", ".sqlite3"]


def codes_of(rng, n, n_bits):
    return rng.integers(0, 2**n_bits - 1, size=n, dtype=np.uint64, endpoint=True)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("n_bits", [1, 7, 12, 16, 33, 64])
def test_integer_ids_come_back(ending, n_bits, tmp_path):
    rng = np.random.default_rng(n_bits)
    index = BucketIndex(n_bits).add(codes_of(rng, 1203, n_bits), ids=rng.permutation(1203) - 600)
    path = export_index(index, tmp_path / f"codes{ending}")
    again = import_index(path, n_bits if ending == ".faiss" else None)
    assert again.n_bits == n_bits
    assert again.ids.tolist() == index.ids.tolist()
    assert again.codes.tolist() == index.codes.tolist()
    assert [p.name for p in tmp_path.iterdir()] == [f"codes{ending}"]


@pytest.mark.parametrize("ending", [".parquet", ".sql", ".db"])
@settings(max_examples=25)
@given(
    names=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), unique=True, max_size=8)
)
def test_string_ids_come_back(ending, names, tmp_path_factory):
    path = tmp_path_factory.mktemp("codes") / f"codes{ending}"
    names = [name for name in names if name]
    index = ScanIndex(5).add(np.arange(len(names)), ids=np.array(names, dtype=str))
    again = import_index(export_index(index, path))
    assert again.ids.tolist() == names
    assert again.codes.tolist() == list(range(len(names)))


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_empty_index_is_exported(ending, tmp_path):
    assert len(import_index(export_index(BucketIndex(8), tmp_path / f"codes{ending}"), 8)) == 0


def test_parquet_keeps_vectors(tmp_path):
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    index = BucketIndex(4).add(np.array([1, 2, 3]), ids=["a", "b", "c"], vectors=vectors)
    again = import_index(export_index(index, tmp_path / "codes.parquet"))
    assert again.vectors.tolist() == vectors.tolist()
    assert again.vectors.dtype == np.float32


def test_faiss_finds_what_we_find(tmp_path):
    faiss = pytest.importorskip("faiss")
    rng = np.random.default_rng(0)
    index = BucketIndex(12).add(codes_of(rng, 500, 12), ids=np.arange(500) * 3)
    loaded = faiss.read_index_binary(str(export_index(index, tmp_path / "codes.faiss")))
    query = np.array([int(index.codes[0])], dtype="<u2").view(np.uint8).reshape(1, 2)
    _, distances, ids = loaded.range_search(query, 3)
    found = index.within(index.codes[:1], 2)
    assert sorted(zip(distances.tolist(), ids.tolist(), strict=True)) == (
        list(zip(found.distances.tolist(), found.ids.tolist(), strict=True))
    )


def test_a_plain_faiss_index_is_numbered(tmp_path):
    faiss = pytest.importorskip("faiss")
    flat = faiss.IndexBinaryFlat(8)
    flat.add(np.array([[5], [6]], dtype=np.uint8))
    faiss.write_index_binary(flat, str(tmp_path / "plain.faiss"))
    with pytest.raises(InvalidInput, match=r"plain.faiss does not state how many bits its codes have; pass n_bits="):
        import_index(tmp_path / "plain.faiss")
    index = import_index(tmp_path / "plain.faiss", 8)
    assert (index.n_bits, index.ids.tolist(), index.codes.tolist()) == (8, [0, 1], [5, 6])
    with pytest.raises(InvalidInput, match="must lie in the range"):
        import_index(tmp_path / "plain.faiss", 2)
    hashed = faiss.IndexBinaryHash(8, 8)
    hashed.add(np.array([[5]], dtype=np.uint8))
    faiss.write_index_binary(hashed, str(tmp_path / "hash.faiss"))
    with pytest.raises(DataFileError, match="is a FAISS IndexBinaryHash, which does not keep codes in order"):
        import_index(tmp_path / "hash.faiss")


@pytest.mark.parametrize("n_bits", [12, 64])
def test_the_sql_of_the_file_answers_in_sqlite(n_bits, tmp_path):
    rng = np.random.default_rng(0)
    index = BucketIndex(n_bits).add(codes_of(rng, 300, n_bits))
    export_index(index, tmp_path / "codes.sql")
    database = sqlite3.connect(":memory:")
    database.executescript((tmp_path / "codes.sql").read_text())
    code = int(index.codes[7].astype(np.uint64).view(np.int64))
    found = database.execute("SELECT id FROM items WHERE code = ? ORDER BY id", (code,)).fetchall()
    database.close()
    assert [i for (i,) in found] == index.within(index.codes[7:8], 0).ids.tolist()


def test_a_foreign_script_can_do_nothing_else(tmp_path):
    target = tmp_path / "stolen.db"
    script = tmp_path / "evil.sql"
    script.write_text(f"-- shorthash: codes of 4 bits\nATTACH '{target}' AS other;\nCREATE TABLE other.t (x);\n")
    with pytest.raises(DataFileError, match=r"evil.sql is not a script of export_index \(not authorized\)"):
        import_index(script)
    assert not target.exists()


def test_what_cannot_be_exported_is_an_error(tmp_path):
    named = BucketIndex(4).add(np.array([1]), ids=["a"])
    (tmp_path / "junk.parquet").write_text("junk")
    (tmp_path / "junk.faiss").write_text("junk")
    (tmp_path / "junk.db").write_text("junk" * 300)
    (tmp_path / "plain.sql").write_text("CREATE TABLE items (id, code);")
    (tmp_path / "none.sql").write_text("CREATE TABLE things (id, code);")
    for call, error, message in [
        (lambda: export_index(named, tmp_path / "x.txt"), InvalidInput, r"end in one of .faiss, .parquet, .sql"),
        (lambda: export_index(named, tmp_path / "x.faiss"), InvalidInput, "FAISS takes integer ids only"),
        (lambda: export_index(named, tmp_path / "no" / "x.db"), PersistenceError, "Cannot write .*x.db: No such file"),
        (lambda: import_index(tmp_path / "x.db"), DataFileError, "There is no file .*x.db; check the path"),
        (lambda: import_index(tmp_path / "junk.parquet"), DataFileError, "not a readable .parquet file"),
        (lambda: import_index(tmp_path / "junk.faiss"), DataFileError, "is not a binary index of FAISS"),
        (lambda: import_index(tmp_path / "junk.db"), DataFileError, "has no table items with id and code"),
        (lambda: import_index(tmp_path / "none.sql"), DataFileError, "has no table items with id and code"),
        (lambda: import_index(tmp_path / "plain.sql"), InvalidInput, r"how many bits its codes have; pass n_bits="),
    ]:
        with pytest.raises(error, match=message):
            call()
    assert sorted(p.name for p in tmp_path.iterdir()) == (
        ["junk.db", "junk.faiss", "junk.parquet", "none.sql", "plain.sql"]
    )


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_is_replaced_only_if_that_is_wanted(ending, tmp_path):
    path = tmp_path / f"codes{ending}"
    export_index(BucketIndex(4).add(np.array([1])), path)
    before = path.read_bytes()
    more = BucketIndex(4).add(np.array([1, 2]))
    with pytest.raises(PersistenceError, match=rf"codes{ending} exists, .* another name, or pass replace=True"):
        export_index(more, path)
    assert path.read_bytes() == before
    assert len(import_index(export_index(more, path, replace=True), 4)) == 2
    path.write_text("notes " * 300)
    assert len(import_index(export_index(more, path, replace=True), 4)) == 2


def test_a_store_is_never_replaced(tmp_path):
    with SQLiteStore(tmp_path / "live.db", 4).add(np.array([1, 2])) as store:
        for replace, message in [(False, "live.db exists"), (True, "live.db is a store, so it is not overwritten")]:
            with pytest.raises(PersistenceError, match=message):
                export_index(store, tmp_path / "live.db", replace=replace)
        assert len(store.add(np.array([3]))) == 3
    with pytest.raises(PersistenceError, match="is a store, so it is not overwritten; choose another name"):
        export_index(BucketIndex(4), tmp_path / "live.db", replace=True)
    assert SQLiteStore(tmp_path / "live.db").codes.tolist() == [1, 2, 3]


def test_vectors_of_a_store_are_exported(tmp_path):
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    store = SQLiteStore(":memory:", 4).add(np.array([1, 2, 3]), ids=["b", "c", "a"], vectors=vectors)
    assert import_index(export_index(store, tmp_path / "codes.parquet")).vectors.tolist() == vectors.tolist()


FULL = """
import resource, sys
import numpy as np
from shorthash import BucketIndex
from shorthash.errors import PersistenceError
from shorthash.persistence import export_index
index = BucketIndex(12).add(np.arange(100_000) % 4096)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for path in sys.argv[1:]:
    try:
        export_index(index, path)
    except PersistenceError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of a process")
def test_a_full_disk_is_a_clear_error_and_leaves_nothing(tmp_path):
    paths = [tmp_path / f"codes{ending}" for ending in (".faiss", ".parquet", ".sql", ".db")]
    done = run([sys.executable, "-c", FULL, *paths], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    for path, line in zip(paths, done.stdout.splitlines(), strict=True):
        assert line.startswith(f"Cannot write {path}: ")
        assert line.endswith("; choose a writable folder with enough space.")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", [".faiss", ".parquet", ".sql", ".db"])
def test_damage_of_an_export_is_noticed(ending, tmp_path):
    """Every file with a changed byte gives the items that were exported, or an error."""
    rng = np.random.default_rng(0)
    index = BucketIndex(16).add(rng.integers(0, 1 << 16, size=40), ids=rng.permutation(1000)[:40])
    path = export_index(index, tmp_path / f"codes{ending}")
    whole = path.read_bytes()
    for place in rng.integers(0, len(whole), size=150).tolist():
        octets = bytearray(whole)
        octets[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(octets)
        try:
            again = import_index(path, 16)
        except (DataFileError, InvalidInput):
            continue
        assert sorted(zip(again.ids.tolist(), again.codes.tolist(), strict=True)) == sorted(
            zip(index.ids.tolist(), index.codes.tolist(), strict=True)
        )


def test_a_row_that_claims_to_be_huge_is_damage(tmp_path):
    path = export_index(BucketIndex(9).add(np.arange(300)), tmp_path / "codes.db")
    whole = path.read_bytes()
    refused = set()
    for place in range(6500, 6530):  # rows of the table
        path.write_bytes(whole[:place] + b"\xff" * 7 + b"\x7f" + whole[place + 8 :])
        with pytest.raises(DataFileError, match=r"codes\.db") as error:
            import_index(path)
        refused.add(str(error.value))
    assert any("larger than the memory" in message for message in refused)


def test_damage_of_a_faiss_file_and_of_its_checksum_is_noticed(tmp_path):
    pytest.importorskip("faiss")
    path = export_index(BucketIndex(8).add(np.arange(40)), tmp_path / "codes.faiss")
    octets = bytearray(path.read_bytes())
    mark = octets.rindex(TRAILER)
    path.write_bytes(octets[:mark])  # as FAISS itself writes it
    assert import_index(path, 8).codes.tolist() == list(range(40))
    octets[mark] ^= 1
    octets[mark // 2] ^= 1
    path.write_bytes(octets)
    with pytest.raises(DataFileError, match="does not end where its index ends"):
        import_index(path, 8)


def test_an_incomplete_script_is_refused(tmp_path):
    index = BucketIndex(12).add(np.arange(1797))
    path = export_index(index, tmp_path / "codes.sql")
    whole = path.read_bytes()
    for kept in (whole[: -len(whole) // 3], whole[: whole.rindex(b"(1796")], whole[:-80], whole[:-3]):
        path.write_bytes(kept)
        with pytest.raises(DataFileError, match="damaged or incomplete"):
            import_index(path)
    path.write_bytes(whole[: whole.rindex(b"-- sha256")].replace(b"; the last line is a checksum", b""))
    assert len(import_index(path)) == 1797  # as an older version wrote it


def test_the_checksum_of_a_database_is_the_same_in_every_python(tmp_path):
    """A value computed once; files of older versions have the checksum of ``repr``, and are still read."""
    rows = [("h\xe9\u0378", 3), ("x", 4)]
    assert _row_check(rows) == 167717943
    index = BucketIndex(4).add([3, 4], ids=[name for name, _ in rows])
    path = export_index(index, tmp_path / "codes.db")
    with closing(sqlite3.connect(path)) as database, database:
        assert database.execute("PRAGMA application_id").fetchone() == (167717943,)
        database.execute(f"PRAGMA application_id = {_row_check(rows, repr):d}")
    assert import_index(path).ids.tolist() == index.ids.tolist()
