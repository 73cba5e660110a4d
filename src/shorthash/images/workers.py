"""Processes that decode images: limited in memory, killed when an image takes too long, and replaced when they end.

A worker gets a batch and reports every image that it has finished, so it is known which one it was at when it was
killed or crashed. That image fails; the others are decoded again by a new process.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from shorthash.errors import DataFileError

SECONDS = 20.0  # for one image
MEMORY = 1 << 30  # bytes that a worker may take besides what it needs to start
STARTING = 60.0  # seconds that a new process may take until it is ready
PRELOADED = ("shorthash.images.decoding", "PIL.Image", "PIL.ImageOps", "PIL.JpegImagePlugin", "scipy.fft")
CRASHED = "decoding it crashed the decoder; convert or remove it."


class Workers:
    """A pool of worker processes, started when they are needed.

    Parameters
    ----------
    n_workers : largest number of processes
    seconds : that one image may take; the process is killed then
    memory : bytes that a process may take
    """

    def __init__(self, n_workers: int, *, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self.n_workers = n_workers
        self._threads = ThreadPoolExecutor(n_workers, thread_name_prefix="shorthash-decode")
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
        for _ in range(n_workers):
            self._idle.put(_Worker(seconds, memory))

    def submit(self, work: Callable[..., list[Any]], jobs: Sequence[Any]) -> Future[list[Any]]:
        """Start ``work(jobs, started)`` in a process; the result of an image that ended it is a string, the reason."""
        return self._threads.submit(self._run, work, list(jobs))

    def close(self) -> None:
        """End the processes."""
        self._threads.shutdown(cancel_futures=True)
        while not self._idle.empty():
            self._idle.get().stop()

    def _run(self, work: Callable[..., list[Any]], jobs: list[Any]) -> list[Any]:
        worker = self._idle.get()
        try:
            results: dict[int, Any] = {}
            while len(results) < len(jobs):
                rest = [number for number in range(len(jobs)) if number not in results]
                done, reason = worker.run(work, [jobs[number] for number in rest])
                if isinstance(done, int):
                    results[rest[done]] = reason
                else:
                    results |= dict(zip(rest, done, strict=True))
            return [results[number] for number in range(len(jobs))]
        finally:
            self._idle.put(worker)


@lru_cache(maxsize=1)
def shared_workers(n_workers: int, seconds: float, memory: int) -> Workers:
    """The workers of this process's servers; they end with it."""
    return Workers(n_workers, seconds=seconds, memory=memory)


class _Worker:
    """One process, and the connection to it."""

    def __init__(self, seconds: float, memory: int) -> None:
        self._seconds, self._memory = seconds, memory
        self._process: Any = None
        self._connection: Any = None

    def run(self, work: Callable[..., list[Any]], jobs: list[Any]) -> tuple[list[Any] | int, str]:
        """The results; or the number of the image that ended the process, and the reason."""
        at, reason = 0, CRASHED
        try:
            self._start()
            self._connection.send((work, jobs))
            while True:
                if not self._connection.poll(self._seconds):
                    reason = f"decoding it took longer than {self._seconds:g} seconds; convert or remove it."
                    break
                message = self._connection.recv()
                if not isinstance(message, int):
                    if isinstance(message, BaseException):
                        raise message
                    return message, ""
                at = message
        except (EOFError, OSError):
            pass
        self.stop()
        return at, reason

    def stop(self) -> None:
        """Kill the process."""
        if self._process is not None:
            with suppress(OSError):
                self._connection.close()
            self._process.kill()
            self._process.join()
            self._process = None

    def _start(self) -> None:
        if self._process is not None and self._process.is_alive():
            return
        self.stop()
        context = multiprocessing.get_context("spawn")  # forking threads risks deadlocks
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, self._memory), daemon=True)
        with _starting:
            self._process.start()
        other.close()
        try:
            ready = self._connection.poll(STARTING) and self._connection.recv()
        except (EOFError, OSError):
            ready = None
        if not ready:
            self.stop()
            raise DataFileError(
                "The processes that decode images do not start; in a script, call shorthash under "
                "if __name__ == '__main__', or use n_workers=0."
            )


_starting = threading.Lock()


def _serve(connection: Connection, memory: int) -> None:
    """The life of a worker: batches in, numbers of images and results out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the process that waits
    for module in PRELOADED:
        with suppress(ImportError):
            import_module(module)
    _limit_memory(memory)
    try:
        connection.send("ready")
        while True:
            work, jobs = connection.recv()
            try:
                connection.send(work(jobs, connection.send))
            except (MemoryError, OSError):
                raise
            except Exception as error:
                connection.send(error)
    except BaseException:  # the parent has ended, or memory is short, which the parent reports
        os._exit(1)


def _limit_memory(memory: int) -> None:
    """Let this process take ``memory`` bytes more than it has now; where the system cannot, nothing is limited."""
    try:
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    except (ImportError, OSError, ValueError):
        return
