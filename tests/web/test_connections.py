"""A server over sockets: large headers, many headers, slow and many connections, and clients that go away."""

import asyncio
import contextlib
import json
import socket
import threading
import time

import pytest
import uvicorn

from shorthash.web import Settings, create_app, limits
from shorthash.web.limits import protocol_class


@contextlib.contextmanager
def listening(collection, **settings):
    """A server in a thread, and its port."""
    limits = Settings(rate=0, **settings)
    config = uvicorn.Config(
        create_app(collection, limits), log_config=None, access_log=False, http=protocol_class(limits), ws="none"
    )
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def port(vectors):
    with listening(vectors, connections=5, timeout=2) as opened:
        yield opened


def opened(port):
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection.settimeout(20)
    return connection


def answer(connection):
    octets = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            octets += part
    connection.close()
    return octets


def sent(port, octets):
    connection = opened(port)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for start in range(0, len(octets), 1 << 16):
            connection.sendall(octets[start : start + (1 << 16)])
    return answer(connection)


GET = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"


@pytest.mark.parametrize(
    "headers",
    [
        b"x: " + b"y" * (1 << 24),
        b"x: y\r\n" * 101,
        b"x" * (1 << 17) + b": y",
        b"cookie: " + b"z" * 40_000,
    ],
    ids=["one of 16 MiB", "101", "a long name", "40 kB"],
)
def test_headers_are_bounded(port, headers):
    octets = sent(port, GET + headers + b"\r\n\r\n")
    assert octets == b"" or octets.startswith(b"HTTP/1.1 431 ")  # the answer may be lost while much is still sent
    assert sent(port, GET + b"connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_addresses_are_bounded(port):
    assert b"431" in sent(port, b"GET /?" + b"x" * 60_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n")[:20]


def test_trailers_and_empty_chunks_are_bounded(port):
    head = b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += b"transfer-encoding: chunked\r\n\r\n"
    octets = sent(port, head + b"0\r\n" + b"x: y\r\n" * 500_000)
    assert octets == b"" or octets[9:12] in (b"400", b"431")
    octets = sent(port, head + b"1;" + b"e" * (1 << 22))
    assert octets == b"" or octets[9:12] in (b"400", b"408", b"431")


def test_headers_must_arrive_in_time(vectors, monkeypatch):
    monkeypatch.setattr(limits, "HEADER_SECONDS", 0.3)
    with listening(vectors) as port:
        silent, slow = opened(port), opened(port)
        slow.sendall(GET)
        again = opened(port)
        again.sendall(GET + b"\r\n")
        assert again.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        again.sendall(GET)  # the next request of the same connection
        for connection in (silent, slow, again):
            assert b"HTTP/1.1 408 Request Timeout" in answer(connection)


def test_one_address_cannot_take_all_connections(port):
    silent = [opened(port) for _ in range(5)]
    refused = answer(opened(port))
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert json.loads(refused.partition(b"\r\n\r\n")[2])["detail"].startswith("At most 5 connections of one address")
    silent.pop().close()
    time.sleep(0.2)
    assert sent(port, GET + b"connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    for connection in silent:
        connection.close()


def test_a_client_that_goes_away_leaves_no_traceback(port, caplog):
    head = b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n"
    for _ in range(3):
        connection = opened(port)
        connection.sendall(head + b'{"vec')
        connection.close()
    time.sleep(0.3)
    assert sent(port, GET + b"connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    assert "Traceback" not in caplog.text


def test_a_body_of_millions_of_values_does_not_stop_the_server(port):
    body = b'{"vector":[' + b"[]," * 5_000_000 + b"[]]}"
    head = b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
    start = time.perf_counter()
    octets = sent(port, head + b"content-length: %d\r\n\r\n" % len(body) + body)
    assert octets.startswith(b"HTTP/1.1 413 ")
    assert b"more than" in octets
    assert time.perf_counter() - start < 2
