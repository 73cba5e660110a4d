"""A server process: what it prints, how it ends, and what a kill -9 leaves."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

import pytest
from processes import Popen, run
from served import TOKEN, allowed

from shorthash.images import Collection


def command(folder, *options):
    return [sys.executable, "-m", "shorthash", "serve", str(folder), *options]


def environment():
    return {**os.environ, "SHORTHASH_TOKEN": TOKEN, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@contextmanager
def server(folder, *options):
    """A running server and its address."""
    words = command(folder, "--port", "0", *options)
    with Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            lines = [process.stdout.readline() for _ in range(3)]
            address = re.search(r"http://\S+:\d+", "".join(lines))
            assert address, (lines, process.poll())
            yield process, address.group(), lines
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()


def ask(address, path, body=None, method=None):
    headers = {**allowed(), "content-type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read() or b"null")


@pytest.fixture
def folder(vectors):
    vectors.close()
    return vectors.path


READ = """
import resource, sys
import scipy.stats  # older versions write a temporary file when they are imported
from shorthash.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
for words in (["images", "info", sys.argv[1], "--json"], ["serve", sys.argv[1], "--readonly", "--port", "0"]):
    try:
        main(words)
    except SystemExit as end:
        assert not end.code, end.code
    sys.stdout.flush()
"""  # as on a full disk: no byte can be written to any file


@pytest.mark.skipif(sys.platform != "linux", reason="needs the limits of Linux")
def test_a_collection_on_a_read_only_and_full_disk_is_shown_and_served(folder):
    with tempfile.TemporaryDirectory() as place:
        model = shutil.copytree(folder, Path(place) / "points")
        for path in [*model.rglob("*"), model]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        Path(place).chmod(0o755)
        words = [sys.executable, "-c", READ, str(model)]
        with Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                text = ""
                while process.poll() is None and "http://" not in text:
                    text += process.stdout.readline()
                assert "http://" in text, process.communicate()
                assert '"n_items": 120' in text
                answer = ask(re.search(r"http://\S+:\d+", text).group(), "/search", {"id": 3, "k": 5, "rerank": True})
                assert answer["count"] == 5
            finally:
                process.kill()
                process.communicate()
        model.chmod(0o755)


def test_it_says_where_it_is_shares_the_collection_with_readers_and_stops_cleanly(folder):
    with server(folder) as (process, address, lines), server(folder, "--readonly") as (_, reading, others):
        assert lines[0] == "points: 120 items, 5 bits\n"
        assert "token" in lines[2]
        assert ask(address, "/healthz")["writable"] is True
        assert "read-only" in others[2]
        assert ask(reading, "/search", {"id": 1})["groups"] == ask(address, "/search", {"id": 1})["groups"]
        with pytest.raises(urllib.error.HTTPError, match="403"):
            ask(reading, "/items/1", method="DELETE")
        second = run(command(folder, "--port", "0"), capture_output=True, text=True, env=environment())
        assert second.returncode == 2
        assert "open for writing" in second.stderr
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (0, "")
    with Collection(folder) as after:  # the lock is free
        assert len(after) == 120


def test_mistakes_are_one_line(folder, tmp_path, capsys):
    from shorthash.cli.main import main

    for options, sentence in (
        ([str(tmp_path / "nothing")], "There is no collection"),
        ([str(folder), "--host", "256.1.1.1", "--port", "0"], "Cannot listen on 256.1.1.1"),
        ([str(folder), "--port", "99999"], "'port' parameter of serve must be an int in the range [0, 65535]"),
        ([str(folder), "--rate", "-1"], "rate"),
        ([str(folder), "--max-body", "0"], "max_body"),
        ([str(folder), "--cache-size", "-1"], "cache_bytes"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(["serve", *options])
        errors = capsys.readouterr().err
        assert len(errors.splitlines()) == 1
        assert sentence in errors


def test_other_machines_are_warned_about(folder):
    with server(folder, "--host", "0.0.0.0", "--token", "short") as (process, _, _):
        time.sleep(0.3)
        process.terminate()
        _, errors = process.communicate(timeout=20)
    assert "can be reached by other machines" in errors
    assert "short enough to be guessed" in errors


@pytest.mark.faults
def test_what_was_acknowledged_survives_kill_9(folder, rows):
    """Several clients add while the server is killed; every id that was answered is there afterwards."""
    X, acknowledged = rows[0], []

    def add(address, first):
        for i in range(first, first + 100_000):
            item = {"vector": X[i % 120].tolist(), "name": f"new {i}", "label": i % 7}
            try:
                [number] = ask(address, "/items", {"items": [item]})["added"]
            except (OSError, HTTPException):  # the server has gone, perhaps in the middle of an answer
                return
            acknowledged.append((number, item))

    with server(folder, "--rate", "0") as (process, address, _):
        threads = [threading.Thread(target=add, args=(address, 1_000_000 * n)) for n in range(3)]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 30:
            time.sleep(0.01)
        process.kill()
        for thread in threads:
            thread.join()
    with Collection(folder) as after:
        assert (
            120 + len(acknowledged) <= len(after) <= 120 + len(acknowledged) + 3
        )  # a write that was not acknowledged may be on disk
        for (number, item), found in zip(
            acknowledged, after.items([number for number, _ in acknowledged]), strict=True
        ):
            assert (found.id, found.name, found.label) == (number, item["name"], item["label"])
    with server(folder) as (_, address, _):
        assert ask(address, f"/items/{acknowledged[-1][0]}")["name"] == acknowledged[-1][1]["name"]
