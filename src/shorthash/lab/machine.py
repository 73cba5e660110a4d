"""Where and with what a run was made: machine, versions, memory; and how a worker is kept to one thread."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from shorthash import __version__

__all__ = ["machine_facts", "one_thread", "peak_memory", "reset_peak_memory", "resident_memory", "versions"]

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")


@functools.cache
def machine_facts() -> dict[str, Any]:
    """Processor, cores, system."""
    return {"cpu": _processor(), "cores": os.cpu_count() or 1, "system": f"{platform.system()} {platform.machine()}"}


@functools.cache
def versions() -> dict[str, str]:
    """Of this library, Python, and the packages that compute."""
    return {
        "shorthash": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def one_thread() -> Any:
    """Keep BLAS and numba of this process to one thread; return what must stay alive for it."""
    import numba
    from threadpoolctl import threadpool_limits

    numba.set_num_threads(1)
    return threadpool_limits(limits=1)


def reset_peak_memory() -> None:
    """Let :func:`peak_memory` begin anew, where the system can do that."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory() -> float:
    """Largest resident memory of this process, in MiB: since the last reset, or since its start elsewhere."""
    found = _status("VmHWM")
    if found is not None:
        return found
    if os.name != "posix":
        return float("nan")
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def resident_memory() -> float:
    """Resident memory of this process now, in MiB; nan where the system does not tell."""
    found = _status("VmRSS")
    return float("nan") if found is None else found


def _status(key: str) -> float | None:
    """An entry of /proc/self/status, in MiB."""
    with contextlib.suppress(OSError):
        found = re.search(rf"^{key}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"), re.M)
        if found:
            return int(found.group(1)) / 1024
    return None


def _processor() -> str:
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
        if found:
            return found.group(1).strip()
    return platform.processor() or platform.machine()
