"""Thousands of damaged and crafted files of every format: no signal, no other exception than ours, bounded memory.

``SHORTHASH_ATTACKS=2000`` is the number of mutations of every format; without it, a few of some formats.
"""

import collections
import os
import sys
from pathlib import Path

import processes
import pytest
from attacks.mutations import CRAFTED, KINDS

ATTACKS = os.environ.get("SHORTHASH_ATTACKS")
N = int(ATTACKS or 15)
SCRIPT = Path(__file__).with_name("mutations.py")
TESTED = (
    [*KINDS, *(f"{kind}+" for kind in CRAFTED)] if ATTACKS else ["index-mmap", "index-mmap+", "store", "model-meta+"]
)
MEMORY = 200 << 20

# Formats in which a changed byte may give another answer without an error, and why. In an index read with mmap=True,
# and in a store, verify() must find the damage: a search reads neither whole arrays nor whole rows.
UNNOTICED = {
    "image": "a decoder makes pixels of what it gets",
    "data": "files of rows come from anywhere and have no checksums of ours: a changed number is another number",
}


def run(kind, folder):
    """Outcome -> how often, and the bytes of memory that reading took beyond that of the sound file."""
    outcomes, first, memory = collections.Counter(), 0, 0
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(SCRIPT.parents[1]), *sys.path])
    while first < N:
        place = folder / f"from{first}"
        place.mkdir()
        words = [sys.executable, SCRIPT, kind, place, str(first), str(N)]
        done = processes.run(words, capture_output=True, text=True, env=environment)
        lines = done.stdout.splitlines()
        for line in lines:
            number, _, outcome = line.partition(" ")
            if number == "memory":
                memory = int(outcome.split()[0]) - 2 * int(outcome.split()[1])
            else:
                outcomes[outcome.strip() or f"ended with status {done.returncode}"] += 1
                first = int(number) + 1
        assert lines, done.stderr
        if done.returncode == 0:
            break
    return outcomes, memory


@pytest.mark.attack
@pytest.mark.parametrize("kind", TESTED)
def test_no_file_breaks_its_reader(kind, tmp_path):
    outcomes, memory = run(kind, tmp_path)
    sys.stdout.write(f"{kind}: {dict(outcomes)}, {memory >> 20} MiB\n")  # make attack shows it
    assert not set(outcomes) - {"refused", "same", "found", "different"}, outcomes
    assert memory < MEMORY
    if not kind.endswith("+") and kind.partition("-")[0] not in UNNOTICED:
        assert not outcomes["different"]
