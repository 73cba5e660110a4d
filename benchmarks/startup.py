"""How long the first answers take. Run ``python benchmarks/startup.py``.

The command line should answer within half a second; the six lines of README within 5 s of CPU time where nothing is
compiled yet (a new folder of compiled code), and again when everything is.
"""

from __future__ import annotations

import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def main() -> None:
    for arguments in (["--help"], ["fit", "--help"], ["--version"], ["sql", "--bits", "8"]):
        seconds = []
        for _ in range(7):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-m", "shorthash", *arguments], check=True, capture_output=True)
            seconds.append(time.perf_counter() - start)
        print(f"shorthash {' '.join(arguments)}: {statistics.median(seconds):.2f} s (goal 0.50)")
    with tempfile.TemporaryDirectory() as folder:
        for state in ("nothing compiled", "all compiled"):
            print(f"README, {state}: {_first_lines(folder):.1f} s of CPU (goal 5)")


def _first_lines(folder: str) -> float:
    """CPU seconds of the six lines of README, with compiled code in ``folder``."""
    lines = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)[0]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"NUMBA_CACHE_DIR": folder, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", lines], check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    main()
