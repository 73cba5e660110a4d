"""Collections that somebody crafted or damaged, ids at the limit, and readers beside a writer."""

import json
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from shorthash import make_hasher, save
from shorthash.errors import DamagedFile, InvalidInput, NewerVersion, PersistenceError
from shorthash.images import Collection
from shorthash.images.storage import META, MOST_ID, UNSIGNED, _checksum, write_meta

LARGEST = 2**63 - 1


def rewrite(path, **changes):
    """Change the description and make its checksum fit."""
    meta = {**json.loads((path / META).read_text()), **changes}
    meta["checksum"] = _checksum(meta)
    (path / META).write_text(json.dumps(meta))


@pytest.mark.parametrize(
    "change",
    [
        {"format_version": None},
        {"format_version": "1"},
        {"n_bits": "5"},
        {"n_bits": 0},
        {"n_bits": True},
        {"n_bits": 8},
        {"features": "gist"},
        {"features": {"size": 9}},
        {"evaluation": [1]},
        {"evaluation": {"map": "high"}},
        {"method": 5},
        {"files": {"../../etc/passwd": "0"}},
        {"files": {"encoder/meta.json": "0"}},
    ],
)
def test_a_description_that_is_not_one_is_damage(change, vectors):
    vectors.close()
    rewrite(vectors.path, **change)
    for readonly in (False, True):
        with pytest.raises(DamagedFile, match="is damaged"):
            Collection(vectors.path, readonly=readonly)


def test_every_change_of_the_description_is_noticed(vectors):
    vectors.close()
    text = (vectors.path / META).read_text()
    (vectors.path / META).write_text(text.replace('"method": "RSLH"', '"method": "RSLX"'))
    with pytest.raises(DamagedFile, match="its checksum differs"):
        Collection(vectors.path)
    (vectors.path / META).write_text(text.replace('"checksum"', '"chacksum"'))
    with pytest.raises(DamagedFile, match="its checksum differs"):
        Collection(vectors.path)
    (vectors.path / META).write_text(text)
    rewrite(vectors.path, format_version=9)
    with pytest.raises(NewerVersion, match="in format 9"):
        Collection(vectors.path)


def test_the_encoder_of_another_collection_is_refused(vectors, hasher):
    vectors.close()
    shutil.rmtree(vectors.path / "encoder")
    save(make_hasher("pcaitq", n_bits=5).fit(hasher[1]), vectors.path / "encoder", statistics=False)
    with pytest.raises(DamagedFile, match=r"encoder/meta.json is not the file that belongs to it"):
        Collection(vectors.path)


def test_a_collection_of_an_older_version_opens(vectors):
    vectors.close()
    meta = json.loads((vectors.path / META).read_text())
    (vectors.path / META).write_text(json.dumps({k: v for k, v in meta.items() if k in UNSIGNED}))
    craft(vectors.path, "UPDATE items SET crc = NULL, metadata = json_set(metadata, '$.check', '0')")
    with Collection(vectors.path) as opened:
        assert len(opened) == 120


def craft(path, statement):
    with closing(sqlite3.connect(path / "items.sqlite")) as database, database:
        database.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE items SET code = code + 1 WHERE id = 7",
        "UPDATE items SET class = 99 WHERE id = 7",
        "UPDATE items SET class = x'00' WHERE id = 7",
        "UPDATE items SET metadata = json_set(metadata, '$.name', 'other') WHERE id = 7",
        "UPDATE items SET id = 5000 WHERE id = 7",
        "UPDATE items SET metadata = json_set(metadata, '$.check', 5) WHERE id = 7",
    ],
)
def test_an_item_that_is_not_as_it_was_written_is_damage(statement, vectors):
    vectors.close()
    craft(vectors.path, statement)
    with pytest.raises(DamagedFile, match="is damaged"):
        Collection(vectors.path, readonly=True)


def test_thumbnails_are_not_read_through_links(collection, tmp_path):
    item = collection.items(collection.ids[:1])[0]
    assert collection.thumbnail_bytes(item.content) == item.thumbnail.read_bytes()
    secret = tmp_path / "secret.jpg"
    secret.write_bytes(item.thumbnail.read_bytes())
    item.thumbnail.unlink()
    item.thumbnail.symlink_to(secret)
    assert collection.thumbnail_bytes(item.content) is None
    item.thumbnail.unlink()
    item.thumbnail.write_text("root:x:0:0")  # not a JPEG, as a hard link to a file of the system would be
    assert collection.thumbnail_bytes(item.content) is None
    folder = item.thumbnail.parent
    shutil.move(folder, tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    assert collection.thumbnail_bytes(item.content) is None
    assert collection.thumbnail_bytes("../../meta") is None


def test_the_largest_id_does_not_stop_later_items(vectors, hasher):
    X = hasher[1]
    with pytest.raises(InvalidInput, match=rf"at most {MOST_ID}. Got {LARGEST}"):
        vectors.add_vectors(X[:1], ids=[LARGEST])
    vectors._store.add(np.zeros(1, dtype=np.uint8), [LARGEST])  # as an older version did
    vectors.close()
    with Collection(vectors.path) as again:
        assert again.add_vectors(X[:2]).tolist() == [120, 121]
        assert LARGEST in again
        again.remove([LARGEST, 121])
        assert again.add_vectors(X[:1]).tolist() == [122]


def test_a_reader_follows_a_writer(vectors, hasher):
    X = hasher[1]
    with Collection(vectors.path, readonly=True) as reader:
        assert not reader.stale
        before = reader.snapshot()
        vectors.remove(vectors.ids[3:])
        vectors.add_vectors(X[:1], labels=["new"])
        assert reader.stale
        assert reader.refresh()
        assert not reader.refresh()
        assert reader.ids.tolist() == [0, 1, 2, 120] == vectors.ids.tolist()
        assert "new" in reader.classes
        assert reader.search(id=0, k=39).ids.tolist() == vectors.search(id=0, k=39).ids.tolist()
        assert len(before) == 120
        found = before.search(id=7, k=39)
        assert len(found) == 39
        assert before.ring_sizes(found.code).sum() == 120


def test_a_snapshot_keeps_its_state_while_the_writer_goes_on(vectors, hasher):
    before = vectors.snapshot()
    vectors.remove(vectors.ids[:60])
    vectors.add_vectors(hasher[1][:30])
    assert (len(before), len(vectors)) == (120, 90)
    assert before.search(id=7, k=200).ids.tolist() == [i for i in before.search(id=7, k=200).ids.tolist() if i < 120]
    assert len(before.search(id=7, k=200)) == 119
    with pytest.raises(PersistenceError, match="read-only"):
        before.remove([100])


def test_reranking_finds_k_items_although_the_database_is_ahead(vectors, hasher):
    X = hasher[1]
    before = vectors.snapshot()
    vectors.add_vectors(np.repeat(X[:1], 50, axis=0))
    found = before.search(vector=X[0], k=5, radius=5, rerank=True)
    assert found.ids.tolist() == before.search(vector=X[0], k=5, radius=5, rerank=True).ids.tolist()
    assert len(found) == 5
    assert max(found.ids) < 120


def test_the_description_is_written_with_its_checksum(vectors):
    write_meta(vectors.path, {"n_bits": 5, "method": "x", "features": None, "evaluation": None})
    with Collection(vectors.path, readonly=True) as again:
        assert again.facts()["method"] == "x"
