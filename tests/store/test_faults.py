"""kill -9, full disks, read-only folders and damaged files: nothing acknowledged is lost, nothing is half there."""

import os
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from processes import run
from stores import postgres_url

from shorthash.errors import DamagedFile, ForeignFile, InvalidInput, PersistenceError
from shorthash.store import SQLiteStore

SCRIPT = Path(__file__).with_name("killing.py")
ATTEMPTS = os.environ.get("SHORTHASH_FAULTS", "2")


def packed(codes):
    return np.array(codes, dtype=np.uint64)


@pytest.mark.faults
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("scenario", ["add", "migrate"])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_writers_lose_nothing_they_acknowledged(kind, scenario, tmp_path):
    url = f"sqlite:///{tmp_path}/%d.db" if kind == "sqlite" else postgres_url()
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = run(
        [sys.executable, SCRIPT, scenario, url, ATTEMPTS, "0"],
        capture_output=True,
        text=True,
        check=False,
        env=one_thread,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith("acknowledged: [")


FULL = """
import resource, sys
import numpy as np
from shorthash.errors import PersistenceError
from shorthash.store import SQLiteStore
store = SQLiteStore(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
try:
    if sys.argv[2] == "add":
        store.add(np.arange(100_000) % 4096)
    else:
        store.pack_vectors()
except PersistenceError as error:
    print(error)
print(len(store), store.search([5], k=1).ids.tolist())
"""


@pytest.mark.parametrize("act", ["add", "pack"])
def test_a_full_disk_is_a_clear_error_and_leaves_the_old_state(act, tmp_path):
    path = tmp_path / "a.db"
    with SQLiteStore(path, 12) as store:
        store.add(packed(range(1000)), vectors=np.ones((1000, 150), dtype=np.float32))
    done = run([sys.executable, "-c", FULL, path, act], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    message, state = done.stdout.splitlines()
    assert message.startswith("Cannot write")
    assert "nothing was changed; free disk space" in message or "choose a writable folder with enough space" in message
    assert state == "1000 [[5]]"
    with SQLiteStore(path) as store:
        assert store.ids.tolist() == list(range(1000))
        assert np.all(store.items([7]).vectors == 1)
        store.add(packed([1]))
        store.pack_vectors()
        assert len([p for p in (tmp_path / "a.db-vectors").iterdir() if not p.name.startswith(".")]) == 1


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions are a POSIX matter")
def test_read_only_folders_and_files_are_clear_errors():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        with SQLiteStore(path, 8) as store:
            store.add(packed([1, 2]))
        Path(folder).chmod(0o555)
        path.chmod(0o444)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)  # root may write anywhere
        try:
            with pytest.raises(
                PersistenceError, match=r"Cannot open or write .*a\.db.*nothing was changed; choose a folder"
            ):
                SQLiteStore(path).add(packed([3]))
            with pytest.raises(PersistenceError, match=r"Cannot open or write .*b\.db: unable to open database file"):
                SQLiteStore(Path(folder) / "b.db", 8)
        finally:
            if root:
                os.seteuid(0)
            Path(folder).chmod(0o755)
            path.chmod(0o644)
        with SQLiteStore(path) as store:
            assert store.ids.tolist() == [0, 1]


def test_a_folder_that_does_not_exist_is_a_clear_error(tmp_path):
    with pytest.raises(PersistenceError, match=r"unable to open database file.*choose a folder that exists"):
        SQLiteStore(tmp_path / "nowhere" / "a.db", 8)


def test_other_files_are_left_alone(tmp_path):
    (tmp_path / "a.txt").write_text("a letter to a friend, long enough to have a header of its own " * 100)
    with pytest.raises(ForeignFile, match="is not a SQLite database, so it is not changed"):
        SQLiteStore(tmp_path / "a.txt", 8)
    assert (tmp_path / "a.txt").read_text().startswith("a letter")


def test_a_damaged_file_is_noticed(tmp_path):
    path = tmp_path / "a.db"
    with SQLiteStore(path, 12) as store:
        store.add(packed(range(4000)))
    octets = bytearray(path.read_bytes())
    octets[4096:] = bytes(len(octets) - 4096)
    path.write_bytes(octets)
    with pytest.raises(DamagedFile, match=r"is damaged: .*; restore it from a copy"):
        SQLiteStore(path).search(packed([5]), 10)


def test_a_damaged_side_file_is_noticed(tmp_path):
    path = tmp_path / "a.db"
    with SQLiteStore(path, 12) as store:
        store.add(packed([1, 2]), vectors=[[1, 2], [3, 4]])
        store.pack_vectors()
    (side_file,) = (tmp_path / "a.db-vectors").iterdir()
    side_file.write_bytes(side_file.read_bytes()[:-3])
    with SQLiteStore(path) as store:
        assert store.search(packed([1]), 1).ids.tolist() == [[0]]
        with pytest.raises(DamagedFile, match=r"is damaged: it has"):
            store.items([1])
    side_file.unlink()
    with SQLiteStore(path) as store, pytest.raises(DamagedFile, match="is missing: restore it"):
        store.rerank(packed([1]), [[1.0, 2.0]], 1, radius=1)


def test_a_closed_store_says_so(tmp_path):
    store = SQLiteStore(tmp_path / "a.db", 8)
    store.close()
    with pytest.raises(InvalidInput, match=r"The store .*a\.db is closed; open it again"):
        len(store)
