"""Processes of Python that need not import the package: they are forked from one that has.

``Popen`` and ``run`` stand for those of ``subprocess`` where the process is what is tested, not its start. Where
processes cannot be forked, they are those of ``subprocess``.
"""

import importlib.util
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

IMPORTED = ["shorthash.images", "shorthash.lab.running", "shorthash.learners.eaph.estimator", "shorthash.store.sqlite"]
if importlib.util.find_spec("fastapi"):
    IMPORTED += ["shorthash.web", "uvicorn.protocols.http.httptools_impl"]
FORKS = "forkserver" in multiprocessing.get_all_start_methods()
CONTEXT = multiprocessing.get_context("forkserver" if FORKS else "spawn")
if FORKS:
    CONTEXT.set_forkserver_preload(IMPORTED)


def compile_once():
    """Let processes that need a function at the same time wait for the one that compiles it."""
    from filelock import FileLock
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.dispatcher import Dispatcher

    usual = Dispatcher.compile

    def compile_or_wait(dispatcher, signature):
        folder = dispatcher._cache.cache_path
        if folder is None:
            return usual(dispatcher, signature)
        lock = FileLock(Path(folder, f"{dispatcher.__module__}.{dispatcher.__qualname__}.lock"), is_singleton=True)
        with global_compiler_lock, ExitStack() as held:
            with suppress(OSError):  # a process that may not write there
                held.enter_context(lock)
            return usual(dispatcher, signature)

    Dispatcher.compile = compile_or_wait


class Forked:
    """What ``python *words`` does, in a process that is forked; as much of ``subprocess.Popen`` as tests use."""

    def __init__(self, words, stdout=None, stderr=None, text=False, env=None, cwd=None):
        pipes = [CONTEXT.Pipe(duplex=False) if each == subprocess.PIPE else None for each in (stdout, stderr)]
        ends = [pipe and pipe[1] for pipe in pipes]
        settings = {name: os.fspath(value) for name, value in (os.environ if env is None else env).items()}
        words = [os.fspath(word) for word in words[1:]]
        self._process = CONTEXT.Process(target=_run, args=(words, settings, os.fspath(cwd or Path.cwd()), ends))
        self._process.start()
        self.pid, files = self._process.pid, []
        for pipe in pipes:
            if pipe is not None:
                files.append(os.fdopen(os.dup(pipe[0].fileno()), "r" if text else "rb"))
                pipe[0].close()
                pipe[1].close()
            else:
                files.append(None)
        self.stdout, self.stderr = files

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout)
        return self.returncode

    def communicate(self, timeout=None):
        """Little output only: more than a pipe holds, on both, would wait for ever."""
        texts = tuple(file and (None if file.closed else file.read()) for file in (self.stdout, self.stderr))
        self.wait(timeout)
        self._close()
        return texts

    def send_signal(self, number):
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it may have ended since
                os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def _close(self):
        for file in (self.stdout, self.stderr):
            if file is not None:
                file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._close()
        self.wait()


def _run(words, settings, folder, ends):
    compile_once()
    os.environ.clear()
    os.environ.update(settings)
    os.chdir(folder)
    for number, end in zip((1, 2), ends, strict=True):
        if end is not None:
            os.dup2(end.fileno(), number)
            end.close()
    paths = settings.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path not in sys.path]
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    elif words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


Popen = Forked if FORKS else subprocess.Popen


def run(words, capture_output=False, text=False, check=False, env=None):
    """As ``subprocess.run``."""
    pipe = subprocess.PIPE if capture_output else None
    with Popen(words, stdout=pipe, stderr=pipe, text=text, env=env) as process:
        out, errors = process.communicate()
    done = subprocess.CompletedProcess(words, process.returncode, out, errors)
    if check:
        done.check_returncode()
    return done
