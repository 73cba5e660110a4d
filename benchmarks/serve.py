"""How many searches a server answers: ``python benchmarks/serve.py [--record]``.

A million items of 12 bits, one process, requests over loopback with a vector of 256 numbers each, answered with
the 100 nearest items and their names, 8 connections at once. The load comes from wrk (Debian: ``apt-get install wrk``).
Three servers are measured: one that only reads and writes as many bytes, the limit of HTTP alone; one that searches for
every request; and one with default settings, which caches answers. ``--record`` writes
``docs/data/serve.json``. The goal is 1 500 requests per second and a p99 below 20 ms on two processors.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs" / "data" / "serve.json"
N, N_BITS, N_FEATURES, K, CONNECTIONS, BLOCK = 1_000_000, 12, 256, 100, 8, 100_000
WARM, SECONDS, ROUNDS = 6, 10, 3
QUIET = 0.7  # load average of a machine that does nothing else
ANSWER = 11_600  # bytes of an answer, about
SERVERS = {"http": "HTTP alone", "searched": "every query searched", "remembered": "answers cached (default)"}

LUA = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local bodies, n = {}, 0
function init(args)
  math.randomseed(7)
  for i = 1, 3000 do
    local t = {}
    for j = 1, %d do t[j] = string.format("%%.6f", math.random() * 4 - 2) end
    bodies[i] = '{"vector":[' .. table.concat(t, ",") .. '],"k":%d}'
  end
end
function request()
  n = n + 1
  return wrk.format(nil, "/search", nil, bodies[n %% #bodies + 1])
end
function done(summary, latency, requests)
  io.write(string.format('RESULT {"requests": %%d, "seconds": %%f, "p50_ms": %%f, "p99_ms": %%f, "errors": %%d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    summary.errors.status + summary.errors.timeout + summary.errors.connect + summary.errors.read))
end
"""

BARE = """
import sys, uvicorn
ANSWER = b"x" * %d
async def app(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    head = [(b"content-length", str(len(ANSWER)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": ANSWER})
uvicorn.run(app, port=int(sys.argv[1]), lifespan="off", log_level="error")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="store the figures")
    parser.add_argument("--folder", type=Path, help="collection, made if it does not exist; default: a temporary one")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("this benchmark needs wrk, and it is not installed: apt-get install wrk")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "million"
        if not folder.exists():
            build(folder)
        script = Path(temporary) / "post.lua"
        script.write_text(LUA % (N_FEATURES, K))
        result: dict[str, Any] = {"processors": os.cpu_count(), "load_before": round(os.getloadavg()[0], 1)}
        result["niceness"] = os.getpriority(os.PRIO_PROCESS, 0)
        for kind in SERVERS:
            result[kind] = measure(kind, folder, script)
            print(kind, json.dumps(result[kind]), flush=True)
    if options.record:
        RECORD.write_text(json.dumps(result, indent=1) + "\n")
        print(render())


def build(folder: Path) -> None:
    """A million items around 64 centres, encoded and named."""
    from shorthash import make_hasher
    from shorthash.images import Collection

    rng = np.random.default_rng(0)
    centres = rng.normal(size=(64, N_FEATURES))

    def rows(n: int) -> np.ndarray:
        return (centres[rng.integers(64, size=n)] + rng.normal(size=(n, N_FEATURES))).astype(np.float32)

    hasher = make_hasher("pcaitq", n_bits=N_BITS, random_state=0).fit(rows(5000))
    with Collection.create(folder, hasher) as collection:
        for first in range(0, N, BLOCK):
            collection.add_codes(collection.encode(rows(BLOCK)), names=[f"item {first + i}" for i in range(BLOCK)])


def measure(kind: str, folder: Path, script: Path) -> dict[str, Any]:
    """The best of a few rounds, by requests per second."""
    with started(kind, folder) as (process, address):
        load(address, script, WARM)
        rounds = []
        for _ in range(ROUNDS):
            before = state(kind, address, process.pid)
            found = load(address, script, SECONDS)
            after = state(kind, address, process.pid)
            spent = {name: after[name] - before[name] for name in after}
            found["cpu_us"] = round(1e6 * spent.pop("cpu") / found["requests"], 1)
            found |= {f"{name}_us": round(1e6 * value / found["requests"], 1) for name, value in spent.items()}
            found["rate"] = round(found["requests"] / found["seconds"], 1)
            rounds.append(found)
    return max(rounds, key=lambda found: float(found["rate"]))


@contextmanager
def started(kind: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process and its address."""
    port = 8765
    command = [sys.executable, "-c", BARE % ANSWER, str(port)]
    if kind != "http":
        command = [sys.executable, "-m", "shorthash", "serve", str(folder), "--readonly", "--rate", "0"]
        command += ["--port", str(port), *(["--cache-size", "0"] if kind == "searched" else [])]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            wait_for(f"http://127.0.0.1:{port}/healthz", process)
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def wait_for(address: str, process: subprocess.Popen[str]) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(address, timeout=1).read()
            return
        except OSError:
            if process.poll() is not None:
                raise SystemExit("the server did not start") from None
            time.sleep(0.1)
    raise SystemExit("the server did not answer within a minute")


def load(address: str, script: Path, seconds: int) -> dict[str, Any]:
    """Load the server for a while."""
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}", "-s", str(script), address]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.partition("RESULT ")[2])
    assert not found["errors"], done.stdout
    return found


def state(kind: str, address: str, pid: int) -> dict[str, float]:
    """Processor seconds of a server so far, and its own timers."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    spent = {"cpu": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")}
    if kind != "http":
        text = urllib.request.urlopen(f"{address}/metrics").read().decode()
        for name in ("search", "encode"):
            found = re.search(rf"^shorthash_{name}_seconds_sum (\S+)", text, re.M)
            assert found is not None
            spent[name] = float(found.group(1))
    return spent


def render() -> str:
    """The table for docs/guide/serve.md."""
    record = json.loads(RECORD.read_text())
    lines = [
        "| server | requests/s | p50, ms | p99, ms | µs of a processor per request | of them searching | encoding |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind, name in SERVERS.items():
        found = record[kind]
        parts = [found.get(f"{part}_us") for part in ("search", "encode")]
        shares = ["" if part is None else f"{part / found['cpu_us']:.0%}" for part in parts]
        lines.append(
            f"| {name} | {found['rate']:,.0f} | {found['p50_ms']:.1f} | {found['p99_ms']:.1f} | "
            f"{found['cpu_us']:.0f} | {shares[0]} | {shares[1]} |".replace(",", " ")
        )
    lines.append(
        f"\nA million items, {N_BITS} bits, {N_FEATURES} numbers per query, the {K} nearest with names (about "
        f"{ANSWER // 1000} kB), {CONNECTIONS} connections, one process on {record['processors']} processors that wrk "
        f"shares; best of {ROUNDS} rounds of {SECONDS} seconds (`benchmarks/serve.py`)."
    )
    if record["load_before"] > QUIET:
        lines[-1] += (
            f" The machine was busy with other work (load {record['load_before']:g}; server and wrk ran at niceness "
            f"{record['niceness']})."
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
