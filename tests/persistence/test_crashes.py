"""Full disks, read-only folders, other threads and kill -9 leave the old save or the new one."""

import errno
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path
from textwrap import indent

import numpy as np
import pytest
from processes import run
from saving import fitted

from shorthash import ScanIndex, load, save
from shorthash.errors import PersistenceError
from shorthash.persistence.files import temporary_path


def test_replacing_leaves_one_array_file(tmp_path):
    for i in range(3):
        save(fitted(np.full(4, i)), tmp_path / "model")
        assert load(tmp_path / "model").value_.tolist() == [i] * 4
        assert len(list((tmp_path / "model").iterdir())) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_full_disk_leaves_the_old_state(tmp_path, monkeypatch):
    save(fitted(np.ones(2)), tmp_path / "model")

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PersistenceError, match=r"No space left on device; what was saved there before is unchanged"):
        save(fitted(np.zeros(2)), tmp_path / "model")
    with pytest.raises(PersistenceError, match=r"Cannot write .*fresh: No space left on device; choose a writable"):
        save(fitted(), tmp_path / "fresh")
    with pytest.raises(PersistenceError, match=r"Cannot write .*index: No space left on device; choose a writable"):
        save(ScanIndex(4), tmp_path / "index")
    assert load(tmp_path / "model").value_.tolist() == [1, 1]
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["arrays.safetensors", "meta.json", "model"]


def test_a_full_disk_leaves_the_old_index(tmp_path, monkeypatch):
    save(ScanIndex(4).add(np.array([7])), tmp_path / "index")

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PersistenceError, match=r"No space left on device; what was saved there before is unchanged"):
        save(ScanIndex(4), tmp_path / "index")
    assert load(tmp_path / "index").codes.tolist() == [7]
    assert [p.name for p in tmp_path.iterdir()] == ["index"]


def test_a_really_full_disk_leaves_the_old_index(tmp_path):
    """The writer runs into a limit on the size of files, in the middle of the arrays."""
    resource = pytest.importorskip("resource")
    save(ScanIndex(4).add(np.array([7])), tmp_path / "index")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(PersistenceError, match=r"Cannot write .*: File too large; what was saved there before"):
            save(ScanIndex(16).add(np.zeros(500_000, dtype=int)), tmp_path / "index")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert load(tmp_path / "index").codes.tolist() == [7]
    assert [p.name for p in tmp_path.iterdir()] == ["index"]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions are a POSIX matter")
def test_a_read_only_folder_is_a_clear_error():
    with tempfile.TemporaryDirectory() as folder:
        save(fitted(np.ones(2)), Path(folder) / "model")
        save(ScanIndex(4).add(np.array([7])), Path(folder) / "index")
        paths = [Path(folder), Path(folder) / "model"]
        for path in paths:
            path.chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)  # root may write anywhere
        try:
            for name, value in (
                ("model", fitted()),
                ("fresh", fitted()),
                ("index", ScanIndex(4)),
                ("new", ScanIndex(4)),
            ):
                with pytest.raises(
                    PersistenceError, match=f"Cannot write .*{name}: Permission denied.*; choose a writable"
                ):
                    save(value, Path(folder) / name)
            assert load(Path(folder) / "model").value_.tolist() == [1, 1]
            assert load(Path(folder) / "index").codes.tolist() == [7]
        finally:
            if root:
                os.seteuid(0)
            for path in paths:
                path.chmod(0o755)


def test_reading_while_another_thread_replaces(tmp_path):
    save(fitted(np.full(100, 0)), tmp_path / "model")
    stop = threading.Event()

    def write():
        i = 0
        while not stop.is_set():
            i += 1
            save(fitted(np.full(100, i)), tmp_path / "model")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(100):
            value = load(tmp_path / "model").value_
            assert len(set(value.tolist())) == 1
    finally:
        stop.set()
        writer.join()


FAULTS = int(os.environ.get("SHORTHASH_FAULTS", "2"))
kills = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")

KILLER = """
import os, random, signal, sys, time
from pathlib import Path
from textwrap import indent
import numpy as np
from shorthash import BucketIndex, ScanIndex, load, save
from sklearn.preprocessing import StandardScaler

def prepare(folder):
{prepare}

def work(folder, acknowledge):
{work}

chance = random.Random(int(sys.argv[2]))
for attempt in range(int(sys.argv[3])):
    folder = Path(sys.argv[1]) / str(attempt)
    folder.mkdir()
    prepare(folder)
    child = os.fork()
    if child == 0:
        with open(folder / ".said", "w") as said:
            work(folder, lambda value: (said.write(f"{{value}}\\n"), said.flush()))
        os._exit(1)
    time.sleep(chance.uniform(0, {longest}))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def kill_repeatedly(tmp_path, prepare, work, longest, seed):
    """Let ``work`` run in a folder of its own and kill it at a random moment, many times; the folders.

    A process that has loaded everything forks for every attempt, so that the moments are spent on the work.
    """
    script = KILLER.format(prepare=indent(prepare, "    "), work=indent(work, "    "), longest=longest)
    run([sys.executable, "-c", script, str(tmp_path), str(seed), str(FAULTS)], check=True)
    folders = sorted(tmp_path.iterdir())
    assert len(folders) == FAULTS
    return folders


PREPARE_SAVES = """
global states, models
states = [ScanIndex(16).add(np.full(200_000, i)) for i in (1, 2)]
models = [StandardScaler().fit(np.full((2, 100_000), i)) for i in (1.0, 2.0)]
save(states[0], folder / "index")
save(models[0], folder / "model")
"""

SAVES = """
for i in range(10_000):
    save(states[i % 2], folder / "index")
    save(models[i % 2], folder / "model")
    save(states[i % 2], folder / f"fresh-{i}.index")
    save(models[i % 2], folder / f"fresh-{i}.model")
"""


@kills
@pytest.mark.faults
def test_killed_while_saving_leaves_old_or_new(tmp_path):
    for folder in kill_repeatedly(tmp_path, PREPARE_SAVES, SAVES, 0.08, seed=0):
        places = [path for path in folder.iterdir() if not path.name.startswith(".")]
        assert {folder / "index", folder / "model"} <= set(places)
        for path in places:
            loaded = load(path)
            values = loaded.codes if hasattr(loaded, "codes") else loaded.mean_
            assert len(values) == (200_000 if hasattr(loaded, "codes") else 100_000)
            assert np.all(values == values[0])
        save(ScanIndex(16).add(np.array([9])), folder / "index")
        assert load(folder / "index").codes.tolist() == [9]
        save(fitted(), folder / "model")
        assert len(list((folder / "model").iterdir())) == 2
        unfinished = [path for path in folder.iterdir() if path.name.startswith((".index.", ".model."))]
        assert unfinished == []


PREPARE_ADDS = """
save(BucketIndex(12), folder / "index")
"""

ADDS = """
for batch in range(10_000):
    index = load(folder / "index", mmap=True)
    index.add(np.full(5000, batch), ids=np.arange(5000) + 5000 * batch, vectors=np.full((5000, 2), batch))
    save(index, folder / "index")
    acknowledge(batch)
"""


@kills
@pytest.mark.faults
def test_killed_in_bulk_adds_keeps_every_acknowledged_item_and_no_half_batch(tmp_path):
    for folder in kill_repeatedly(tmp_path, PREPARE_ADDS, ADDS, 0.3, seed=1):
        said = (folder / ".said").read_text().split() if (folder / ".said").exists() else []
        index = load(folder / "index")
        batches, rest = divmod(len(index), 5000)
        assert rest == 0
        assert batches in (len(said), len(said) + 1)  # the last one may have been saved but not announced
        assert index.ids.tolist() == list(range(5000 * batches))
        assert index.codes.tolist() == np.repeat(np.arange(batches), 5000).tolist()
        if batches:
            assert index.vectors[:, 0].tolist() == np.repeat(np.arange(batches), 5000).tolist()
        load(folder / "index", mmap=True).verify()


def test_what_killed_saves_left_is_removed_by_the_next(tmp_path):
    save(fitted(), tmp_path / "model")
    save(ScanIndex(4), tmp_path / "index")
    (tmp_path / ".fresh.saving-00000000").mkdir()
    (tmp_path / ".fresh.saving-00000000" / "arrays.safetensors").write_text("half")
    (tmp_path / ".index.saving-00000000").write_text("half")
    (tmp_path / ".other.saving-00000000").write_text("of another save")
    save(fitted(), tmp_path / "fresh")
    save(ScanIndex(4), tmp_path / "index")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".other.saving-00000000", "fresh", "index", "model"]


@pytest.mark.skipif(os.name != "posix", reason="locks end with their process on POSIX")
def test_a_save_in_progress_is_not_taken_for_abandoned(tmp_path):
    with temporary_path(tmp_path / "index") as place:
        place.write_text("being written")
        save(ScanIndex(4), tmp_path / "index")
        assert place.read_text() == "being written"
    assert [p.name for p in tmp_path.iterdir()] == ["index"]
