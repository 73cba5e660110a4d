"""fsck, backup and restore: what they find, what they change, and copies that are made while another process writes."""

import shutil
import sqlite3
import threading
from contextlib import closing

import numpy as np
import pytest

from shorthash import BucketIndex, save
from shorthash.cli.main import main
from shorthash.errors import DamagedFile, ForeignFile, PersistenceError
from shorthash.images import Collection, backup_collection, check_collection, restore_collection


def run(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code, *capsys.readouterr()


def test_a_sound_collection(folder, capsys):
    found = check_collection(folder)
    assert found.sound
    assert found.n_items == 24
    status, out, err = run(capsys, "fsck", folder)
    assert (status, err) == (0, "")
    assert "sound" in out


def test_orphans_are_found_and_removed(folder, capsys):
    (folder / "thumbnails" / "ab").mkdir(exist_ok=True)
    orphan = folder / "thumbnails" / "ab" / ("ab" * 16 + ".jpg")
    orphan.write_bytes(b"\xff\xd8\xff")
    unfinished = folder / ".meta.json.saving-00112233"
    unfinished.write_text("{")
    status, _, err = run(capsys, "fsck", folder)
    assert status == 1
    assert f"superfluous: thumbnails/ab/{orphan.name}" in err
    assert orphan.exists()
    with Collection(folder), pytest.raises(PersistenceError, match="open for writing"):
        check_collection(folder, repair=True)
    assert run(capsys, "fsck", folder, "--repair")[0] == 0
    assert not orphan.exists()
    assert not unfinished.exists()
    assert check_collection(folder).sound


def test_missing_thumbnails_are_listed(folder):
    thumbnail = next((folder / "thumbnails").rglob("*.jpg"))
    thumbnail.unlink()
    assert check_collection(folder).missing_thumbnails == [thumbnail.stem]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE items SET class = 'other' WHERE id = 3",
        "UPDATE items_vectors SET vector = zeroblob(2048) WHERE slot = 3",
        "UPDATE items SET code = 99 WHERE id = 3",
    ],
)
def test_damage_is_found_and_not_copied(folder, statement, tmp_path, capsys):
    with closing(sqlite3.connect(folder / "items.sqlite")) as database, database:
        database.execute(statement)
    status, _, err = run(capsys, "fsck", folder)
    assert status == 1
    assert err.startswith("damaged: ")
    for copy in (backup_collection, restore_collection):
        with pytest.raises(DamagedFile, match=r"was not (copied|restored)|is damaged"):
            copy(folder, tmp_path / "copy")
        assert not (tmp_path / "copy").exists()


def test_a_damaged_encoder_is_found(folder):
    file = folder / "encoder" / "arrays.safetensors"
    octets = bytearray(file.read_bytes())
    octets[-5] ^= 1
    file.write_bytes(octets)
    [problem] = check_collection(folder).damaged
    assert "its checksum differs" in problem


def test_a_backup_is_a_collection_and_can_be_restored(folder, tmp_path, capsys):
    assert run(capsys, "backup", folder, tmp_path / "b")[0] == 0
    shutil.rmtree(folder)
    assert run(capsys, "restore", tmp_path / "b", folder)[0] == 0
    with Collection(folder) as again, Collection(tmp_path / "b", readonly=True) as copy:
        assert again.ids.tolist() == copy.ids.tolist() == list(range(24))
        assert again.search(id=3, k=5).ids.tolist() == copy.search(id=3, k=5).ids.tolist()
        assert all(item.thumbnail.exists() for item in again.items(again.ids))
    for copy in (backup_collection, restore_collection):
        with pytest.raises(PersistenceError, match="never overwritten"):
            copy(tmp_path / "b", folder)
    with pytest.raises(ForeignFile, match="not a collection"):
        backup_collection(tmp_path, tmp_path / "c")


def test_a_backup_is_one_state_while_another_connection_writes(vectors, hasher, tmp_path):
    """Every write adds two items with one name; a copy holds both or none."""
    stop = threading.Event()

    def write():
        number = 0
        while not stop.is_set():
            vectors.add_vectors(hasher[1][:2], names=[f"pair {number}"] * 2)
            if number % 3 == 2:
                vectors.remove(vectors.ids[-2:])
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(8):
            assert backup_collection(vectors.path, tmp_path / f"copy{number}").sound
    finally:
        stop.set()
        thread.join()
    for number in range(8):
        with Collection(tmp_path / f"copy{number}", readonly=True) as copy:
            names = [item.name for item in copy.items(copy.ids[120:])]
            assert names[::2] == names[1::2]
            assert np.all(np.diff(copy.ids) > 0)


def test_fsck_of_models_indexes_and_stores(tmp_path, capsys):
    from shorthash.store import SQLiteStore

    path = save(BucketIndex(4).add([1, 2, 3]), tmp_path / "index")
    with SQLiteStore(tmp_path / "s.db", n_bits=4) as store:
        store.add([1, 2])
    for place in (path, tmp_path / "s.db"):
        assert run(capsys, "fsck", place)[0] == 0
    octets = bytearray(path.read_bytes())
    octets[-2] ^= 1
    path.write_bytes(octets)
    assert run(capsys, "fsck", path)[0] == 2
    assert run(capsys, "fsck", path, "--repair")[0] == 2
    assert run(capsys, "fsck", tmp_path / "nowhere")[0] == 2
