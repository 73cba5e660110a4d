#!/usr/bin/env python3
"""Run uv in the environment this Python belongs to, with the package indexes that pip is configured to use.

    .venv/bin/python .ci/uv.py pip install -r requirements.lock

uv is taken from the PATH, or installed into the environment by pip. `pip install` is the one command that also works
without uv: where uv cannot be had or fails, pip runs it with the same arguments.
"""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

PIN = Path(__file__).with_name("uv.lock")
# What uv reads from the environment for each setting of pip's; uv does not read pip's configuration files.
SETTINGS = {
    "index-url": "UV_INDEX_URL",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}


def pip(*arguments):
    command = [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check", "--no-input"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def pip_settings():
    """Settings of pip's configuration files and environment: the words of each, by name."""
    lines = [line.partition("=") for line in pip("config", "list").stdout.splitlines()]
    settings = {}
    for section in ("global.", "install.", ":env:."):  # the later section wins, as in pip
        for key, _, value in lines:
            if key.startswith(section):
                settings[key.removeprefix(section)] = ast.literal_eval(value).split()
    return settings


def uv_environment(command):
    environment = dict(os.environ, VIRTUAL_ENV=sys.prefix)
    # a lock needs the hashes of every platform's files, and only the main index is sure to have them all
    left_out = {"extra-index-url", "find-links"} if command == "compile" else set()
    for name, words in pip_settings().items():
        if name in SETTINGS and name not in left_out:
            separator = "," if name == "find-links" else " "
            environment.setdefault(SETTINGS[name], separator.join(words))
    # like pip, take the wanted version from whichever index has it
    environment.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return environment


def find_uv():
    """The path of uv, or None; installs it into the environment where it is not on the PATH."""
    own = Path(sys.executable).with_name("uv")
    if not own.exists() and not shutil.which("uv"):
        pip("install", "--quiet", "--require-hashes", "--only-binary=:all:", "--requirement", str(PIN))
    return str(own) if own.exists() else shutil.which("uv")


def main(arguments):
    uv = find_uv()
    if uv is not None:
        done = subprocess.run([uv, *arguments], env=uv_environment(arguments[1]), check=False)
        if done.returncode == 0 or arguments[:2] != ["pip", "install"]:
            return done.returncode
        print("uv could not install it; trying pip", file=sys.stderr)
    elif arguments[:2] != ["pip", "install"]:
        print(f"uv could not be installed from {PIN}; install it and put it on the PATH", file=sys.stderr)
        return 1
    return subprocess.run([sys.executable, "-m", *arguments, "-qq"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
