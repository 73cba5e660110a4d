"""A connection that is lost during COMMIT: the outcome is unknown, says so, and repeating a named batch is safe."""

import contextlib
import itertools
import socket
import tempfile
import threading
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from stores import postgres_url

from shorthash.errors import InvalidInput, OutcomeUnknown, PersistenceError
from shorthash.store import PostgresStore, SQLiteStore

numbers = itertools.count()
SOCKET = ".s.PGSQL.5432"


class Proxy:
    """Passes bytes on to a server; ``cut``: the next COMMIT is lost "before", or its answer "after", the server."""

    def __init__(self, folder, target):
        self.cut, self._target, self._sockets = "", target, []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / SOCKET))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                self._sockets += [client, server]
                server.connect(self._target)
                threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source, target, from_client):
        with contextlib.suppress(OSError):
            while octets := source.recv(1 << 16):
                if from_client and self.cut and b"COMMIT" in octets:
                    if self.cut == "after":
                        source.shutdown(socket.SHUT_RDWR)  # the answer is lost, the statement is not
                        target.sendall(octets)
                    self.cut = ""
                    break
                target.sendall(octets)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@pytest.fixture
def proxy():
    url = postgres_url()
    host = parse_qs(urlsplit(url).query)["host"][0]
    with tempfile.TemporaryDirectory() as folder:
        made = Proxy(Path(folder), f"{host}/{SOCKET}")
        yield made, url.replace(host, folder), url
        made.close()


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_lost_commit_is_unknown_and_can_be_repeated(proxy, cut):
    made, through, direct = proxy
    name = f"lost_{next(numbers)}_{cut}"
    with PostgresStore(through, n_bits=8, collection=name) as store, PostgresStore(direct, collection=name) as other:
        store.add(np.arange(10), batch="first")
        made.cut = cut
        with pytest.raises(OutcomeUnknown, match="unknown whether it was made"):
            store.add(np.arange(10), batch="second")
        for _ in range(2):
            store.add(np.arange(10), batch="second")
        assert len(store) == len(other) == 20
        assert sorted(other.ids.tolist()) == list(range(20))
        other.drop()


def test_a_connection_lost_before_the_commit_changed_nothing(proxy):
    _, through, direct = proxy
    name = f"lost_{next(numbers)}_early"
    with PostgresStore(through, n_bits=8, collection=name) as store, PostgresStore(direct, collection=name) as other:
        victim = store._connection.run("SELECT pg_backend_pid()")[0][0]
        other._connection.run("SELECT pg_terminate_backend(?)", [victim])
        with pytest.raises(PersistenceError, match="nothing was changed") as caught:
            store.add(np.arange(10))
        assert not isinstance(caught.value, OutcomeUnknown)
        assert len(other) == 0
        other.drop()


def test_batches_of_a_store(tmp_path):
    with SQLiteStore(tmp_path / "s.db", n_bits=8) as store:
        store.add([1, 2], batch="a").add([1, 2], batch="a").add([3], batch="b").add([4])
        assert store.ids.tolist() == [0, 1, 2, 3]
        with pytest.raises(InvalidInput, match="already in the store"):
            store.add([5], ids=[0], batch="c")
        assert len(store.add([5], ids=[9], batch="c")) == 5  # a batch that failed does not count
        for wrong in ("", "x" * 501, 7):
            with pytest.raises(InvalidInput, match="must be text of 1 to 500 bytes"):
                store.add([1], batch=wrong)
        store.drop()
    with SQLiteStore(tmp_path / "s.db", n_bits=8) as store:
        assert len(store.add([1], batch="a")) == 1
