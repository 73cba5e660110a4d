"""An index is one file: any reader of safetensors can look in, opening is quick, and damage is noticed."""

import json
import threading

import numpy as np
import pytest
from safetensors.numpy import load_file

from shorthash import BucketIndex, ScanIndex, load, save
from shorthash.errors import DamagedFile, ForeignFile, NewerVersion, PersistenceError
from shorthash.index import FaissIndex
from shorthash.persistence import describe, verify
from shorthash.persistence.files import _header_checksum


def small(**extra):
    rng = np.random.default_rng(0)
    return BucketIndex(9).add(rng.integers(0, 512, size=300), vectors=rng.normal(size=(300, 4)), **extra)


def flip(path, place, bit=2):
    octets = bytearray(path.read_bytes())
    octets[place] ^= 1 << bit
    path.write_bytes(octets)


def vectors_at(path):
    """A place inside the vectors of a saved index."""
    whole = path.read_bytes()
    length = 8 + int.from_bytes(whole[:8], "little")
    contents = json.loads(whole[8:length])
    return length + contents["BucketIndex.vectors"]["data_offsets"][0] + 20


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("make", [ScanIndex, BucketIndex, FaissIndex])
def test_vectors_come_back_and_grow(make, mmap, tmp_path):
    rng = np.random.default_rng(0)
    codes, vectors = rng.integers(0, 16, size=50), rng.normal(size=(50, 3)).astype(np.float32)
    index = make(4).add(codes, vectors=vectors).remove([3, 4])
    again = load(save(index, tmp_path / "index"), mmap=mmap)
    assert type(again) is make
    for one in (index, again):
        one.add([5], vectors=[[1, 2, 3]]).remove([7]).update([9], np.array([2]))
    assert again.vectors.tolist() == index.vectors.tolist()
    assert again.rerank(codes[:5], vectors[:5], 9, radius=2).ids.tolist() == (
        index.rerank(codes[:5], vectors[:5], 9, radius=2).ids.tolist()
    )
    assert len(load(tmp_path / "index")) == 48
    assert describe(tmp_path / "index")["dimension"] == 3


def test_another_reader_of_safetensors_finds_the_arrays(tmp_path):
    index = small()
    found = load_file(save(index, tmp_path / "index"))
    assert found["BucketIndex.vectors"].tolist() == index.vectors.tolist()
    assert sorted(found["BucketIndex.order"].tolist()) == list(range(300))


def test_arrays_of_an_open_file_stay_on_disk_and_changes_do_not_reach_it(tmp_path):
    save(small(), tmp_path / "index")
    before = (tmp_path / "index").read_bytes()
    index = load(tmp_path / "index", mmap=True)
    base = index.vectors
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    index.add([1], vectors=np.ones((1, 4))).remove([0])
    assert (tmp_path / "index").read_bytes() == before


def test_every_flipped_bit_is_noticed(tmp_path):
    path = save(BucketIndex(2).add(np.array([1, 2, 2]), ids=["a", "b", "c"]), tmp_path / "index")
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        flip(path, place, place % 8)
        with pytest.raises(PersistenceError, match=r"damaged|not saved by shorthash|in format"):
            load(path)
        path.write_bytes(whole)
    load(path)


def test_a_flipped_bit_in_an_array_is_noticed_by_verify_and_before_merge_and_save(tmp_path):
    path = save(small(), tmp_path / "index")
    flip(path, vectors_at(path))
    damage = r"index is damaged: the checksum of its array 'BucketIndex.\w+' differs; restore it from a copy"
    for check in (load, verify):
        with pytest.raises(DamagedFile, match=damage):
            check(path)
    assert len(load(path, mmap=True)) == 300  # opening does not read vectors
    for act in (
        lambda: load(path, mmap=True).verify(),
        lambda: BucketIndex(9).merge(load(path, mmap=True)),
        lambda: load(path, mmap=True).merge(BucketIndex(9)),
        lambda: save(load(path, mmap=True), tmp_path / "copy"),
        lambda: save(load(path, mmap=True), path),
    ):
        with pytest.raises(DamagedFile, match=damage):
            act()
    assert not (tmp_path / "copy").exists()
    save(small(), path)  # saving a sound index is a way out
    index = load(path, mmap=True)
    index.verify()
    index.verify()
    assert len(BucketIndex(9).merge(index)) == 300


def test_a_flipped_bit_in_the_table_of_contents_is_noticed_at_once(tmp_path):
    path = save(small(), tmp_path / "index")
    whole = path.read_bytes()
    length = 8 + int.from_bytes(whole[:8], "little")
    for place in range(60, length, 7):
        flip(path, place)
        for read in (describe, verify, lambda p: load(p, mmap=True)):
            with pytest.raises(PersistenceError, match=r"damaged|in format"):
                read(path)
        path.write_bytes(whole)


@pytest.mark.parametrize("mmap", [False, True])
def test_a_truncated_file_is_damage(mmap, tmp_path):
    path = save(small(), tmp_path / "index")
    whole = path.read_bytes()
    for kept in (100, 600, len(whole) - 1):
        path.write_bytes(whole[:kept])
        with pytest.raises(DamagedFile, match=r"index is damaged: .*; restore it from a copy"):
            load(path, mmap=mmap)
    path.write_bytes(whole + b"x")
    with pytest.raises(DamagedFile, match=rf"it has {len(whole) + 1} bytes instead of {len(whole)}"):
        load(path, mmap=mmap)
    for kept in (0, 5, 20):
        path.write_bytes(whole[:kept])
        with pytest.raises(ForeignFile, match=r"index was not saved by shorthash"):
            load(path, mmap=mmap)


def test_a_newer_format_is_refused(tmp_path):
    path = save(BucketIndex(4), tmp_path / "index")
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    contents = json.loads(whole[8 : 8 + length])
    meta = json.loads(contents["__metadata__"]["save"]) | {"format_version": 2, "shorthash_version": "9.9"}
    contents["__metadata__"]["save"] = json.dumps(meta)
    contents["__metadata__"]["checksum"] = _header_checksum(contents)
    header = json.dumps(contents, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + whole[8 + length :])
    for read in (load, describe, verify):
        with pytest.raises(NewerVersion, match=r"written by shorthash 9.9 in format 2, .* pip install --upgrade"):
            read(path)


def test_files_and_folders_are_not_mistaken_for_each_other(tmp_path):
    from saving import fitted

    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ForeignFile, match=r"notes.txt exists and was not saved by shorthash, so it is not overwritten"):
        save(BucketIndex(4), tmp_path / "notes.txt")
    save(fitted(), tmp_path / "model")
    with pytest.raises(
        ForeignFile, match=r"model exists and is a folder, so it is not overwritten; choose another path"
    ):
        save(BucketIndex(4), tmp_path / "model")
    save(BucketIndex(4), tmp_path / "index")
    with pytest.raises(ForeignFile, match=r"index exists and is a file, so it is not overwritten; choose another path"):
        save(fitted(), tmp_path / "index")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert type(load(tmp_path / "index")) is BucketIndex


def test_reading_while_another_thread_replaces(tmp_path):
    save(ScanIndex(16).add(np.full(1000, 0)), tmp_path / "index")
    stop = threading.Event()

    def write():
        i = 0
        while not stop.is_set():
            i += 1
            save(ScanIndex(16).add(np.full(1000, i)), tmp_path / "index")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for turn in range(100):
            index = load(tmp_path / "index", mmap=turn % 2 == 0)
            assert len(set(index.codes.tolist())) == 1
            index.verify()
    finally:
        stop.set()
        writer.join()


def test_shards_in_files_become_one_index(tmp_path):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 512, size=900)
    vectors = rng.normal(size=(900, 2))
    shards = []
    for i in range(3):
        part = slice(300 * i, 300 * i + 300)
        shard = BucketIndex(9).add(codes[part], ids=np.arange(900)[part], vectors=vectors[part])
        shards.append(save(shard, tmp_path / f"shard-{i}"))
    whole = BucketIndex(9).merge(*(load(path, mmap=True) for path in shards))
    truth = ScanIndex(9).add(codes, vectors=vectors)
    assert whole.search(codes[:9], 20).ids.tolist() == truth.search(codes[:9], 20).ids.tolist()
    assert whole.vectors.tolist() == truth.vectors.tolist()


def test_opening_does_not_read_the_arrays(tmp_path):
    path = save(small(), tmp_path / "index")
    length = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    for place in range(length, path.stat().st_size, 97):
        flip(path, place)
    assert describe(path)["n_items"] == 300
