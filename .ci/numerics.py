#!/usr/bin/env python3
"""Run the numerical tests with the kernels of older CPUs, with 1 or 2 threads, and print a table.

OPENBLAS_CORETYPE chooses the kernels of matrix products, NPY_DISABLE_CPU_FEATURES those of element-wise functions.
Core types that this CPU cannot run are skipped. Arguments go to pytest: .venv/bin/python .ci/numerics.py tests/scale
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = [f"tests/{room}" for room in ("codes", "evaluation", "index", "kernels", "learners", "retrieval", "scale")]
CORE_TYPES = {"native": [], "Haswell": ["AVX2", "FMA3"], "Sandybridge": ["AVX"], "Nehalem": ["SSE42"]}
THREADS = {"native": (2,)}  # 1 and 2 for the others; make test runs native with 1 thread
WAY = ("--dist", "worksteal")  # a worker runs neighbouring tests, which share fixtures
COVER = {**THREADS, "Sandybridge": (2,), "Nehalem": (1,)}  # with --cover


def environment(core_type, n_threads):
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    settings = {**os.environ, **dict.fromkeys(names, str(n_threads))}
    if core_type != "native":
        newer = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]
        if core_type == "Haswell":
            settings.setdefault("SHORTHASH_SEEDS", "1")  # the most common kernels: every row is encoded alone, too
            newer = [name for name in newer if name.startswith("AVX512") or name == "X86_V4"]
        settings |= {"OPENBLAS_CORETYPE": core_type, "NPY_DISABLE_CPU_FEATURES": " ".join(newer)}
    return settings


def main(arguments):
    failed, table = False, []
    threads = COVER if "--cover" in arguments else THREADS
    arguments = [word for word in arguments if word != "--cover"]
    for core_type, needed in CORE_TYPES.items():
        if not all(__cpu_features__.get(name) for name in needed):
            table.append(f"{core_type:12} skipped: this CPU lacks {' or '.join(needed)}")
            continue
        for n_threads in threads.get(core_type, (1, 2)):
            command = [sys.executable, "-m", "pytest", "-n", str(os.cpu_count()), *WAY, *(arguments or FOLDERS)]
            print(f"{core_type}, {n_threads} threads", flush=True)
            start = time.perf_counter()
            done = subprocess.run(command, cwd=ROOT, env=environment(core_type, n_threads), check=False)
            outcome = "passed" if done.returncode == 0 else "FAILED"
            failed |= done.returncode != 0
            table.append(f"{core_type:12} {n_threads} threads  {outcome}  {time.perf_counter() - start:5.0f} s")
    print("\n".join(table))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
