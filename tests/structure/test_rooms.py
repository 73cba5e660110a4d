"""A room imports only rooms to its left, and every module can be the first one imported."""

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import shorthash

ROOMS = [
    {"errors", "_types", "_arrays", "_validation", "_labels"},
    {"codes"},
    {"data"},
    {"kernels"},
    {"learners"},
    {"methods"},
    {"recipes"},
    {"index"},
    {"persistence"},
    {"store"},
    {"evaluation"},
    {"scale"},
    {"lab"},
    {"images"},
    {"web"},
    {"cli"},
]
PLACE = {room: place for place, rooms in enumerate(ROOMS) for room in rooms}
SOURCE = Path(shorthash.__file__).parent
MODULES = sorted(
    m.name for m in pkgutil.walk_packages(shorthash.__path__, "shorthash.") if not m.name.endswith("__main__")
)


def imports(path):
    """(line, room) of every import of our own in a file, lazy ones included."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module] if node.module != "shorthash" else [f"shorthash.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.startswith("shorthash."):
                yield node.lineno, name.split(".")[1]


def room_of(path):
    parts = path.relative_to(SOURCE).parts
    return parts[0].removesuffix(".py")


FILES = [p for p in sorted(SOURCE.rglob("*.py")) if room_of(p) not in {"__init__", "__main__"}]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_leftwards_only(path):
    here = room_of(path)
    assert here in PLACE, f"{here} is no room; add it to the order in ARCHITECTURE.md and here"
    for line, there in imports(path):
        if there == "__version__":
            continue
        allowed = there == here or PLACE[there] < PLACE[here] or (PLACE[there] == PLACE[here] == 0)
        assert allowed, f"{here} may not import {there} ({path.relative_to(SOURCE)}, line {line})"


def test_the_order_stands_in_the_architecture():
    """ARCHITECTURE.md and this test tell the same story."""
    text = (SOURCE.parents[1] / "ARCHITECTURE.md").read_text()
    stated = " | ".join(", ".join(sorted(rooms, key=text.find)) for rooms in ROOMS)
    assert stated in text.replace("`", "")


def test_no_top_level_name_is_a_room():
    rooms = set(PLACE)
    assert not rooms & set(shorthash.__all__)


def test_every_module_can_be_imported_first_and_evaluate_stays_callable():
    """One process per module would cost a minute; forking after each import keeps every start fresh."""
    script = """
import importlib, os, sys
failed = []
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
            import shorthash
            assert callable(shorthash.evaluate), name
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"{name}: {error!r}\\n")
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        failed.append(name)
sys.exit(len(failed))
"""
    # the heavy third-party packages are loaded once, before forking; our own modules are not
    preload = "import numpy, scipy.linalg, scipy.sparse, scipy.optimize, scipy.stats, numba, typer, rich.table\n"
    preload += "import sklearn.pipeline, sklearn.cluster, sklearn.linear_model, sklearn.preprocessing, sqlite3\n"
    preload += "import fastapi.security, jinja2, orjson, prometheus_client, starlette.staticfiles, uvicorn\n"
    done = subprocess.run(
        [sys.executable, "-c", preload + script, *MODULES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_no_drawers():
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [p for p in SOURCE.rglob("*.py") if p.stem in drawers]


def test_files_stay_readable():
    long = {str(p.relative_to(SOURCE)): n for p in SOURCE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 600}
    assert not long
