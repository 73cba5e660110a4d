"""How long the command line takes to answer. Run ``python benchmarks/startup.py``; the goal is half a second."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time


def main() -> None:
    for arguments in (["--help"], ["fit", "--help"], ["--version"], ["sql", "--bits", "8"]):
        seconds = []
        for _ in range(7):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-m", "shorthash", *arguments], check=True, capture_output=True)
            seconds.append(time.perf_counter() - start)
        print(f"shorthash {' '.join(arguments)}: {statistics.median(seconds):.2f} s (goal 0.50)")


if __name__ == "__main__":
    main()
