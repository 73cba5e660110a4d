"""Full disks, read-only folders, other threads and kill -9 leave the old save or the new one."""

import errno
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from saving import fitted

from shorthash import ScanIndex, load, save
from shorthash.errors import PersistenceError


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
    with pytest.raises(PersistenceError, match=r"Cannot write .*fresh: No space left on device; choose a folder"):
        save(fitted(), tmp_path / "fresh")
    assert load(tmp_path / "model").value_.tolist() == [1, 1]
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["arrays.safetensors", "meta.json", "model"]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions are a POSIX matter")
def test_a_read_only_folder_is_a_clear_error():
    with tempfile.TemporaryDirectory() as folder:
        save(fitted(np.ones(2)), Path(folder) / "model")
        paths = [Path(folder), Path(folder) / "model"]
        for path in paths:
            path.chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)  # root may write anywhere
        try:
            for name in ("model", "fresh"):
                with pytest.raises(
                    PersistenceError, match=f"Cannot write .*{name}: Permission denied.*; choose a folder"
                ):
                    save(fitted(), Path(folder) / name)
            assert load(Path(folder) / "model").value_.tolist() == [1, 1]
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


SAVER = """
import sys
import numpy as np
from shorthash import ScanIndex, save
folder = sys.argv[1]
states = [ScanIndex(16).add(np.full(200_000, i)) for i in (1, 2)]
save(states[0], f"{folder}/index")
print("ready", flush=True)
for i in range(10_000):
    save(states[i % 2], f"{folder}/index")
    save(states[i % 2], f"{folder}/fresh-{i}")
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_while_saving_leaves_old_or_new(tmp_path):
    chance = random.Random(0)
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        child = subprocess.Popen([sys.executable, "-c", SAVER, str(folder)], stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0, 0.05))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        places = [path for path in folder.iterdir() if not path.name.startswith(".")]
        assert folder / "index" in places
        for path in places:
            codes = load(path).codes
            assert len(codes) == 200_000
            assert np.all(codes == codes[0])
        save(ScanIndex(16).add(np.array([9])), folder / "index")
        assert load(folder / "index").codes.tolist() == [9]
        assert len(list((folder / "index").iterdir())) == 2
