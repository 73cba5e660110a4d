"""Command lines as the guides print them.

With ``SHORTHASH_COMMAND`` set, for instance to the command of a wheel in an environment of its own, every line is a
process; else it is run inside this one.
"""

import contextlib
import io
import os
import shlex
import subprocess

import pytest

from shorthash.cli.main import main

COMMAND = shlex.split(os.environ.get("SHORTHASH_COMMAND", ""))


def run_here(words):
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            main(words)
            status = 0
        except SystemExit as stop:
            status = stop.code
    assert status == 0, errors.getvalue()
    return out.getvalue()


def run_process(words, folder):
    done = subprocess.run([*COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def shell_in():
    """A function of a folder: a function that runs a command line in that folder, and fails where it fails."""

    def shell(folder):
        def run(line):
            if COMMAND:
                return run_process(shlex.split(line), folder)
            with contextlib.chdir(folder):
                return run_here(shlex.split(line))

        run.folder = folder
        return run

    return shell
