"""kill -9 of a server, a backup, a fit, and PostgreSQL: what was acknowledged is kept, and nothing is half written.

``SHORTHASH_FAULTS`` is the number of kills of each kind; the counts are printed (``pytest -m faults -rA``).
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from postgres_server import start_server
from processes import Popen, run
from web.test_api_process import ask, server

from shorthash import load, make_hasher
from shorthash.errors import PersistenceError
from shorthash.images import Collection, check_collection
from shorthash.persistence import verify
from shorthash.store import PostgresStore

KILLS = int(os.environ.get("SHORTHASH_FAULTS", "1"))
pytestmark = [pytest.mark.faults, pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")]
BATCH = 5


@pytest.fixture
def folder(tmp_path):
    """A collection of 200 vectors."""
    X = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    hasher = make_hasher("pcaitq", n_bits=5, random_state=0).fit(X)
    with Collection.create(tmp_path / "points", hasher) as made:
        made.add_vectors(X)
    return tmp_path / "points"


def tell(kind, acknowledged, lost, half):
    sys.stdout.write(f"{kind}: {KILLS} kills, {acknowledged} acknowledged, {lost} lost, {half} half\n")
    assert (lost, half) == (0, 0)


def test_a_killed_server_loses_nothing(folder):
    rng, acknowledged = random.Random(0), []
    for number in range(KILLS):
        with server(folder) as (process, address, _):
            killer = threading.Timer(rng.uniform(0, 0.5), process.kill)
            with contextlib.suppress(OSError):
                for first in range(1000 * (number + 1), 1000 * (number + 2), BATCH):
                    items = [{"id": first + i, "vector": [float(i)] * 6} for i in range(BATCH)]
                    acknowledged += ask(address, "/items", {"items": items})["added"]
                    if first == 1000 * (number + 1):
                        killer.start()
            killer.join()
    with Collection(folder) as again:
        ids = set(again.ids.tolist())
        new = [i for i in ids if i >= 1000]
        starts = {i - i % BATCH for i in new}
        tell("server", len(acknowledged), len(set(acknowledged) - ids), len(starts) * BATCH - len(new))
    assert check_collection(folder).sound


SCRIPT = "import sys\nfrom shorthash.images import backup_collection\nbackup_collection(*sys.argv[1:])"


def test_a_killed_backup_leaves_all_or_nothing(folder, tmp_path):
    rng, made, half = random.Random(0), 0, 0
    start = time.monotonic()
    run([sys.executable, "-c", SCRIPT, folder, tmp_path / "whole"], check=True)
    usual = time.monotonic() - start
    for number in range(KILLS):
        target = tmp_path / f"copy{number}"
        with Popen([sys.executable, "-c", SCRIPT, folder, target]) as process:
            time.sleep(usual * rng.uniform(0.6, 1.1))
            process.kill()
        made += target.exists()
        half += target.exists() and not check_collection(target).sound
    assert check_collection(folder).sound
    tell("backup", made, 0, half)


FITS = """
import sys
from shorthash.cli.main import app
while True:
    for bits in ("3", "4"):
        app(["fit", sys.argv[1], sys.argv[2], "-o", sys.argv[3], "--bits", bits, "--method", "nsh", "--json"],
            standalone_mode=False)
        sys.stdout.flush()
"""


def test_a_killed_fit_leaves_the_old_model_or_the_new_one(tmp_path):
    rng, half = random.Random(0), 0
    X = np.random.default_rng(0).normal(size=(60, 4))
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", np.arange(60) % 3)
    model = tmp_path / "m.model"
    places = [tmp_path / "X.npy", tmp_path / "y.npy", model]
    expected = {}
    for _ in range(KILLS):
        with Popen([sys.executable, "-c", FITS, *places], stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(rng.uniform(0.05, 0.4))
            process.kill()
        verify(model)
        codes = load(model).transform(X)
        n_bits = codes.shape[1]
        half += not np.array_equal(codes, expected.setdefault(n_bits, codes))
        assert n_bits in (3, 4)
    tell("fit", KILLS, 0, half)


@pytest.fixture(scope="module")
def database():
    url, reason = start_server(("fsync=on", "max_connections=50"))
    if url is None:
        pytest.skip(reason)
    return url


def keep_adding(url, stop, acknowledged):
    """Add named batches, each until it is acknowledged, over connections that are lost again and again."""
    number, store = 0, None
    while not stop.is_set():
        try:
            if store is None:
                store = PostgresStore(url, n_bits=8)
            store.add(np.arange(BATCH), batch=f"batch {number}")
            acknowledged.append(number)
            number += 1
        except PersistenceError:
            time.sleep(0.02)
            with contextlib.suppress(Exception):
                store.close()
            store = None
    if store is not None:
        store.close()


def postmaster(url):
    """Process id, command and user of a server."""
    with PostgresStore(url, n_bits=8) as store:
        folder = Path(store._connection.run("SHOW data_directory")[0][0])
    pid = int((folder / "postmaster.pid").read_text().split()[0])
    command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    return pid, command, Path(f"/proc/{pid}").stat().st_uid, folder


def kill_backend(url):
    with contextlib.suppress(PersistenceError), PostgresStore(url, n_bits=8) as store:
        sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        for (pid,) in store._connection.run(sql):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # PostgreSQL restarts all backends and recovers


def kill_postmaster(url):
    pid, command, user, folder = postmaster(url)
    who = {"user": user, "group": user, "extra_groups": []} if os.geteuid() == 0 else {}
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)  # a server does not start while its predecessor seems to be there
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        process = subprocess.Popen(
            command, **who, cwd=folder.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(0.5)
        if process.poll() is None:  # otherwise old backends have not ended yet
            return process
    raise AssertionError("PostgreSQL did not start again")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("kind", ["backend", "postmaster"])
def test_postgresql_killed_under_a_writer(database, kind):
    rng, stop, acknowledged, started = random.Random(0), threading.Event(), [], []
    with PostgresStore(database, n_bits=8) as store:
        store.drop()
    PostgresStore(database, n_bits=8).close()
    thread = threading.Thread(target=keep_adding, args=(database, stop, acknowledged))
    thread.start()
    for _ in range(KILLS):
        time.sleep(rng.uniform(0.1, 0.5))
        for _ in range(100):
            try:
                if kind == "backend":
                    kill_backend(database)
                else:
                    started.append(kill_postmaster(database))
                break
            except PersistenceError:  # it is still recovering
                time.sleep(0.1)
    while not acknowledged:
        time.sleep(0.1)
    time.sleep(1)
    stop.set()
    thread.join()
    for _ in range(100):
        try:
            with PostgresStore(database, n_bits=8) as store:
                n = len(store)
            break
        except PersistenceError:
            time.sleep(0.1)
    extra = n - BATCH * len(acknowledged)
    tell(f"PostgreSQL {kind}", BATCH * len(acknowledged), max(0, -extra), n % BATCH)
    assert extra in (0, BATCH)  # a batch that was being retried when the test ended
    for process in started:
        process.send_signal(signal.SIGINT)  # SIGTERM would wait for every client
        with contextlib.suppress(ChildProcessError):
            process.wait(timeout=30)
