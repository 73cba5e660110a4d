"""A room imports only rooms to its left, and no import goes round in a circle."""

import ast
import importlib
import pkgutil
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import shorthash

ROOMS = [
    {"errors", "_arrays", "_display", "_progress", "_rounding", "_validation", "_labels"},
    {"codes"},
    {"data"},
    {"kernels"},
    {"learners"},
    {"pipeline"},
    {"methods"},
    {"index"},
    {"persistence"},
    {"store"},
    {"retrieval"},
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


def test_imports_go_leftwards_only():
    assert {room_of(path) for path in FILES} <= set(PLACE), "a new room needs a place in ARCHITECTURE.md and in ROOMS"
    wrong = [
        f"{path.relative_to(SOURCE)}, line {line}: {here} may not import {there}"
        for path in FILES
        for here in [room_of(path)]
        for line, there in imports(path)
        if there not in {here, "__version__"} and not PLACE[there] < PLACE[here] and PLACE[here]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_order_stands_in_the_architecture():
    """ARCHITECTURE.md and this test tell the same story."""
    text = (SOURCE.parents[1] / "ARCHITECTURE.md").read_text()
    stated = " | ".join(", ".join(sorted(rooms, key=text.find)) for rooms in ROOMS)
    assert stated in text.replace("`", "")


def test_no_top_level_name_is_a_room():
    rooms = set(PLACE)
    assert not rooms & set(shorthash.__all__)


def imported_at_once(name):
    """The modules of our own that importing a module imports: every import outside of functions and type checks."""
    module = importlib.import_module(name)
    nodes = ast.parse(Path(module.__file__).read_text()).body
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "shorthash":
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                home = None if node.module == "shorthash" else node.module
                yield submodule if submodule in MODULES else home
        elif isinstance(node, ast.Try) or (isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test)):
            nodes += [*node.body, *node.orelse, *getattr(node, "finalbody", [])]


def test_every_module_can_be_imported_first():
    """Without a circle among the imports, no order of imports can fail."""
    graph = {name: set(imported_at_once(name)) - {None} for name in MODULES}
    assert sum(map(len, graph.values())) > len(MODULES)  # the reader of imports reads them
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        raise AssertionError(" -> ".join(circle.args[1])) from None
    assert callable(shorthash.evaluate)  # after every module was imported


def test_no_drawers():
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [p for p in SOURCE.rglob("*.py") if p.stem in drawers]


def test_files_stay_readable():
    long = {str(p.relative_to(SOURCE)): n for p in SOURCE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 600}
    assert not long
